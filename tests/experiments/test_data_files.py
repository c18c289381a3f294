"""Files of data name registered parts alone: whatever a store or a performance model says, no command imports or calls
it unasked.
"""

from __future__ import annotations

import ast
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.experiments.studies import toy
from tests.support import audit
from tts._common.scopes import TRUST_PLACES, RegisteredNames
from tts.allocator.performance import PerformanceModel
from tts.allocator.shipped import FOLDER
from tts.cli.app import app
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.stored import condition_faults, configuration_faults

PACKAGE = Path(tts.__file__).parent
PLACE = "canary:sing"
CANARY = """
from pathlib import Path
Path("sang").touch()
def sing(*given, **named):
    raise SystemExit("sang")
"""
CONDITIONS: dict[str, dict[str, Any]] = {
    "strategy": {"strategy": PLACE},
    "stop rule": {"strategy": f"best_of_n | {PLACE} | majority"},
    "selection": {"strategy": f"best_of_n | {PLACE}(n=1)"},
    "embedder": {"strategy": f"best_of_n | medoid(embedder={PLACE!r})"},
    "embedder of a strategy": {"strategy": f"ets(embedder={PLACE!r})"},
    "performance model": {"strategy": "auto(model='canary.py')"},
    "verifier": {"verifiers": {"main": PLACE}},
    "verifier that is called": {"verifiers": {"main": f"{PLACE}(low=0)"}},
    "member of an ensemble": {"verifiers": {"main": f"ensemble(members=({PLACE!r},))"}},
    "member of a member": {"verifiers": {"main": f"ensemble(members=({f'ensemble(members=({PLACE!r},))'!r},))"}},
    "record of a reward model": {"verifiers": {"main": "reward(record='canary.yaml')"}},
    "folder of a reward model": {"verifiers": {"main": "reward(record='.')"}},
    "scores of an import": {"verifiers": {"main": f"recorded_{PLACE}"}},
}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "strategies": {"strategies": [PLACE]},
    "task": {"task": PLACE},
    "parameter of a task": {"task": f"choice(choices=({PLACE!r}, 'b'))  | {PLACE}"},
    "schema of a task": {"task": "json(schema='canary.py')"},
    "verifiers": {"verifiers": {"main": PLACE}},
    "backend": {"models": {"toy": {"model": {"policy": "toy"}, "backend": PLACE}}},
    "verifiers of a model": {"models": {"toy": {"model": {"policy": "toy"}, "verifiers": {"main": PLACE}}}},
    "task of a model": {"models": {"toy": {"model": {"policy": "toy"}, "settings": {"task": PLACE}}}},
    "verifier of a model's record": {"models": {"toy": {"model": {"policy": "toy"}, "settings": {"verifier": PLACE}}}},
    "backend of a model's record": {"models": {"toy": {"model": {"policy": "toy"}, "settings": {"backend": PLACE}}}},
    "verifiers of tasks": {
        "models": {"toy": {"model": {"policy": "toy"}, "settings": {"task_verifiers": {"arithmetic": PLACE}}}}
    },
    "data set": {"problems": [{"dataset": PLACE}]},
    "task of a data set": {"problems": [{"dataset": "problems.jsonl", "task": PLACE}]},
    "path of a data set on the Hub": {"problems": [{"dataset": "hub", "path": "./canary"}]},
}
COMMANDS = (
    ["show"], ["show", "--export", "all.jsonl"], ["runs"], ["runs", "--check"], ["replay"], ["fit"],
    ["plot", "--out", "a.svg"], ["report", "--out", "a.html"], ["verifiers", "report"],
    ["verifiers", "threshold", "--risk", "0.5"], ["show", "--export", "all.json", "--form", "samples"],
)  # fmt: skip
pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of pools of 20 problems."""
    path = tmp_path_factory.mktemp("clean") / "store.sqlite"
    config = toy(limit=20, strategies=["best_of_n | best"], budgets={"samples": [2]}, record={"candidates": True})
    with PreparedStudy(config) as prepared, Store(path) as store:
        run(prepared, store)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module that leaves a file where it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(TRUST_PLACES, raising=False)
    monkeypatch.delitem(sys.modules, "canary", raising=False)
    (tmp_path / "canary.py").write_text(CANARY)
    (tmp_path / "canary.yaml").write_text("{}")
    (tmp_path / "problems.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n')
    return tmp_path


@pytest.fixture
def poisoned(clean: Path, folder: Path) -> Callable[..., Path]:
    """Return a copy of the store in which conditions, or the configuration of the study, have other values."""

    def make(condition: dict[str, Any] | None = None, configuration: dict[str, Any] | None = None) -> Path:
        with sqlite3.connect(clean) as source, sqlite3.connect(folder / "store.sqlite") as db:
            source.backup(db)
            for number, body in db.execute("SELECT id, body FROM conditions").fetchall():
                changed = json.dumps({**json.loads(body), **(condition or {})})
                db.execute("UPDATE conditions SET body = ? WHERE id = ?", (changed, number))
            for number, snapshot in db.execute("SELECT id, snapshot FROM runs").fetchall():
                found = json.loads(snapshot)
                found["configuration"].update(configuration or {})
                db.execute("UPDATE runs SET snapshot = ? WHERE id = ?", (json.dumps(found), number))
        source.close()
        db.close()
        return folder / "store.sqlite"

    return make


def told(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a command and what it says."""
    ended = CliRunner().invoke(app, list(arguments))
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


@pytest.mark.slow
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_result_that_names_code_is_refused_and_reported(
    name: str, poisoned: Callable[..., Path], folder: Path
) -> None:
    store = str(poisoned(CONDITIONS[name]))
    replayed = (
        "replay",
        "--store",
        store,
        *(["--strategy", "best_of_n | weighted"] if "verifiers" in CONDITIONS[name] else []),
    )
    for command in (replayed, ("runs", "--check", "--store", store)):
        code, text = told(*command)
        assert code in (1, 2), text
        assert "--trust-places" in text, text
    assert not (folder / "sang").exists()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_that_names_code_is_refused_and_reported(
    name: str, poisoned: Callable[..., Path], folder: Path
) -> None:
    store = poisoned(configuration=CONFIGURATIONS[name])
    code, text = told("runs", "--check", "--store", str(store))
    assert code == 1
    assert "--trust-places" in text
    with pytest.raises(tts.ConfigError, match="--trust-places"):
        _ = tts.Study.from_store(store=store).config
    assert not (folder / "sang").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_runs_what_a_store_names(command: list[str], poisoned: Callable[..., Path], folder: Path) -> None:
    for condition, configuration in [
        *((one, None) for one in CONDITIONS.values()),
        *((None, one) for one in CONFIGURATIONS.values()),
    ]:
        store = poisoned(condition, configuration)
        told(*command, "--store", str(store))
        if command[0] in ("replay", "fit"):  # what was merged is as foreign as before
            told("merge", str(store), "--store", "merged.sqlite")
            told(*command, "--store", "merged.sqlite")
            for file in folder.glob("merged.sqlite*"):
                file.unlink()
        assert not (folder / "sang").exists(), (command, condition, configuration)


@pytest.mark.slow
def test_the_clean_store_passes_every_check(poisoned: Callable[..., Path]) -> None:
    store = poisoned()
    assert told("runs", "--check", "--store", str(store)) == (0, "20 results are as they were written\n")
    assert told("replay", "--store", str(store))[0] == 0
    assert told("fit", "--store", str(store))[0] == 0
    assert tts.Study.from_store(store=store).config.name == "toy"


def test_trust_lets_a_store_name_places_for_one_command(poisoned: Callable[..., Path], folder: Path) -> None:
    store = str(poisoned(CONDITIONS["strategy"]))
    told("replay", "--trust-places", "--store", store)
    assert (folder / "sang").exists()
    sys.modules.pop("canary", None)
    (folder / "sang").unlink()
    assert "--trust-places" in told("replay", "--store", store)[1]
    assert not (folder / "sang").exists()
    assert told("runs", "--check", "--trust-places", "--store", store)[0] == 0


@pytest.mark.slow
def test_a_run_resumes_places_of_its_own_file_and_refuses_those_of_the_store(folder: Path) -> None:
    own = "tests.search.places:Pair(n=2) | majority"
    yaml = "name: own\nmodels: toy\nproblems: {dataset: arithmetic, limit: 2, operators: +-, parentheses: false}\n"
    yaml += f"strategies: ['{own}']\nbudgets: {{samples: 2}}\n"
    Path("study.yaml").write_text(yaml)
    assert told("run", "study.yaml")[0] == 0
    with sqlite3.connect(".tts/store.sqlite") as db:
        db.execute("DELETE FROM results")
        db.execute("INSERT INTO unfinished SELECT study, cell FROM members")
    db.close()
    assert told("run", "study.yaml")[0] == 0
    with sqlite3.connect(".tts/store.sqlite") as db:
        for number, body in db.execute("SELECT id, body FROM conditions").fetchall():
            db.execute(
                "UPDATE conditions SET body = ? WHERE id = ?",
                (json.dumps({**json.loads(body), "strategy": PLACE}), number),
            )
        db.execute("UPDATE members SET condition = (SELECT min(id) FROM conditions WHERE body LIKE '%canary%')")
        db.execute("DELETE FROM results")
        db.execute("INSERT INTO unfinished SELECT study, cell FROM members")
    db.close()
    told("run", "study.yaml")
    assert not (folder / "sang").exists()


def test_a_stored_study_that_calls_servers_runs_only_where_it_is_trusted(poisoned: Callable[..., Path]) -> None:
    url = "http://127.0.0.1:9/v1"
    nested = f"ensemble(members=({f'reward(url={url!r})'!r},))"
    for changes in ({"models": {"toy": {"model": {"policy": "m"}, "url": [url]}}}, {"verifiers": {"main": nested}}):
        study = tts.Study.from_store(store=poisoned(configuration=changes))
        assert study.config.name == "toy"
        for act in (lambda one: one.run(progress=False), lambda one: one.sample(2, progress=False)):
            with pytest.raises(tts.ConfigError, match="may not choose servers"):
                act(study)


@pytest.mark.slow
def test_a_performance_model_names_registered_strategies_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = json.loads((FOLDER / "pocket-countdown.json").read_text())
    for text in (PLACE, f"best_of_n | medoid(embedder={PLACE!r})", "auto(model='canary.py')"):
        curves = {**shipped["curves"], text: shipped["curves"]["rebase | weighted"]}
        Path("shared.json").write_text(json.dumps({**shipped, "curves": curves}))
        with pytest.raises(tts.ConfigError, match="--trust-places"):
            PerformanceModel.load("shared.json")
        with pytest.raises(tts.ConfigError, match="--trust-places"):
            tts.solve("3 + 4", 400, model="toy", verifier="toy", strategy="auto(model='shared.json')")
        assert (
            "--trust-places" in told("solve", "3 + 4", "--model", "toy", "--strategy", "auto(model='shared.json')")[1]
        )
    assert not (folder / "sang").exists()
    monkeypatch.setenv(TRUST_PLACES, "1")
    curves = {**shipped["curves"], "tests.search.places:Pair": shipped["curves"]["rebase | weighted"]}
    Path("shared.json").write_text(json.dumps({**shipped, "curves": curves}))
    assert "tests.search.places:Pair" in PerformanceModel.load("shared.json").curves
    assert tts.solve("3 + 4", 400, model="toy", verifier="toy", strategy="auto(model='shared.json')").usage.samples
    monkeypatch.delenv(TRUST_PLACES)
    # what was loaded with trust is not kept for those without
    with pytest.raises(tts.ConfigError, match="--trust-places"):
        tts.solve("3 + 4", 400, model="toy", verifier="toy", strategy="auto(model='shared.json')")


def test_checks_of_texts_make_nothing() -> None:
    scope = RegisteredNames()
    list(condition_faults({"strategy": "best_of_n | majority", "verifiers": {"main": "toy"}}, scope))
    with audit.events() as seen:
        for one in CONDITIONS.values():
            assert list(condition_faults(one, scope)), one
        for one in CONFIGURATIONS.values():
            assert list(configuration_faults(one, scope)), one
        for odd in (
            None,
            3,
            [],
            {"strategy": 3},
            {"strategy": [PLACE]},
            {"verifiers": [3]},
            {"problems": {"dataset": 3}},
        ):
            list(condition_faults(odd, scope))
            list(configuration_faults(odd, scope))
    assert not seen


def test_a_row_of_a_file_of_problems_names_no_task(folder: Path) -> None:
    rows = [{"problem": f"{n} + 1", "answer": str(n + 1), "task": PLACE, "metadata": {"task": PLACE}} for n in range(2)]
    Path("problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = tts.Study(
        name="rows", models="toy", problems={"dataset": "problems.jsonl"}, strategies=["single"], budgets={"samples": 1}
    )
    assert study.run(progress=False).counts.done == 2
    assert not (folder / "sang").exists()


UNSCOPED = {
    ("pools.py", "parse(text)"),  # of a study, whose texts were checked where it was read
    ("replay.py", "parse(strategy)"),  # of the caller
    ("rollouts.py", "parse(strategy)"),  # of the caller
    ("selection_effect.py", "parse(text)"),  # of a constant
    ("recorded_search.py", "made(verifier)"),  # checked before
    ("scores.py", "made(verifier)"),  # checked before
    ("steps.py", "tasks.get(trace.task)"),  # of three names
    ("writing.py", "tasks.get(trace.task)"),  # of a trace that its owner exports
    ("performance_fit.py", "tasks.get(problem.task or config.task or policy.task)"),  # of a study, as above
    # of an import, whose texts `imported_settings` has checked
    ("performance_fit.py", "tasks.get(settings.get('task', 'math'))"),
}


@pytest.mark.parametrize(
    "folder_of",
    [
        "tts/experiments/analysis",
        "tts/experiments/store",
        "tts/experiments/verifier_report",
        "tts/experiments/output",
        "tts_addons/training",
    ],
)
def test_modules_that_read_stored_texts_resolve_them_in_a_scope(folder_of: str) -> None:
    """A text that is no literal, no constant and no argument of the caller's is read with a scope."""
    for file in (PACKAGE.parent / folder_of).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "parse",
                "parse_call",
                "made",
                "make_verifier",
                "tasks.get",
            ):
                assert "scope" in (text := ast.unparse(node)) or (file.name, text) in UNSCOPED, f"{file.name}: {text}"
