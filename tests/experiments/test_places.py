"""`module:name` wherever a study accepts a name: accepted, kept, part of its keys, and refused on one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.experiments.studies import toy
from tests.search import places
from tests.support.guard import LIMIT_S
from tts._common.scopes import TRUST_PLACES
from tts.backends.function import FunctionBackend
from tts.cli.app import app
from tts.experiments.datasets import GIVEN as HELD
from tts.experiments.datasets import get, load
from tts.experiments.run.runner import PreparedStudy
from tts.experiments.store.store import Store
from tts.verifiers.function import FunctionVerifier

PARTS, DATA = "tests.search.places", "tests.experiments.places"
YAML = f"""
name: own
models:
  mine: {{model: toy, backend: "tts.backends.toy.backend:ToyBackend", verifiers: "{PARTS}:likes_length"}}
problems: {{dataset: "{DATA}:sums", limit: 2, first: 2, group_by: size}}
task: arithmetic
strategies:
  - "{PARTS}:Pair(n=3) | weighted"
  - "best_of_n(n=2) | {PARTS}:Enough(k=2) | {PARTS}:Newest"
budgets: 200
seeds: 2
record: {{candidates: true, traces: 1}}
"""
pytest.importorskip("yaml")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_yaml_names_own_parts_of_every_kind() -> None:
    study = tts.Study.from_yaml(YAML)
    counts = study.run(progress=False).counts
    assert (counts.done, counts.failed) == (8, 0)
    results = study.results()
    assert {result.cell.strategy for result in results} == {
        f"{PARTS}:Pair(n=3) | weighted", f"best_of_n(n=2) | {PARTS}:Enough | {PARTS}:Newest",
    }  # fmt: skip
    assert {result.cell.dataset for result in results} == {f"{DATA}:sums"}
    assert {result.cell.problem for result in results} == {"sums/2", "sums/3"}
    assert {result.cell.group for result in results} == {"size small", "size large"}
    assert {str(result.cell.verifiers) for result in results} == {str({"main": f"{PARTS}:likes_length"})}
    assert all(set(one.scores) <= {"main"} for result in results for one in result.drawn or ())
    assert "enough" in {result.stopped_by for result in results}
    assert f"{PARTS}:Pair(n=3) | weighted" in study.table()


@pytest.mark.slow
def test_own_parts_are_in_the_snapshot_and_the_study_resumes_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    study = tts.Study.from_yaml(YAML)
    study.run(shard=(1, 2), progress=False)
    with pytest.raises(tts.ConfigError, match="TTS_TRUST_PLACES=1"):  # whoever wrote a store may not name code
        _ = tts.Study.from_store("own").config
    monkeypatch.setenv(TRUST_PLACES, "1")
    stored = tts.Study.from_store("own")
    assert stored.config == study.config
    assert stored.config.strategies[0] == f"{PARTS}:Pair(n=3) | weighted"
    assert stored.run(progress=False).counts.done == 8


WORDS = f"""
name: words
models: {{words: {{backend: "{PARTS}:writes", verifiers: none}}}}
problems: {{dataset: "{DATA}:plain"}}
strategies: best_of_n(n=3) | majority
budgets: 300
"""


def test_a_backend_is_a_function_that_needs_no_model_and_a_task_is_a_class() -> None:
    study = tts.Study.from_yaml(WORDS, task=f"{PARTS}:Spoken")
    assert study.run(progress=False).counts.failed == 0
    assert {result.answer for result in study.results()} <= {"0", "1"}
    assert tts.Study.from_yaml(WORDS).run(progress=False).counts.failed == 0


def keys(**changes: Any) -> set[str]:
    with PreparedStudy(toy(**changes)) as prepared:
        return {cell.key for cell in prepared.cells()}


OWN = {
    "strategies": [f"{PARTS}:Pair | weighted"],
    "verifiers": f"{PARTS}:likes_length",
    "problems": {"dataset": f"{DATA}:plain"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"task": f"{PARTS}:Spoken"},
        {"strategies": [f"{PARTS}:Pair(n=3) | weighted"]},
        {"verifiers": "toy(error=0.2)"},
        {"models": {"toy": {"model": "toy", "backend": "tts.backends.toy.backend:ToyBackend"}}},
        {"problems": {"dataset": f"{DATA}:sums"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_keys_tell_own_parts_apart(change: dict[str, Any]) -> None:
    assert keys(**OWN).isdisjoint(keys(**{**OWN, **change}))


def test_functions_are_told_apart_by_their_places() -> None:
    def asked(function: str) -> set[str]:
        models = {"mine": {"backend": f"{PARTS}:{function}"}}
        return keys(models=models, verifiers="none", strategies="single", problems={"dataset": f"{DATA}:plain"})

    assert asked("writes") == asked("writes")
    assert asked("writes").isdisjoint(asked("writes_no"))


@pytest.mark.slow
def test_keys_are_those_of_other_processes() -> None:
    code = "from tests.experiments.test_places import OWN, keys; print(sorted(keys(**OWN)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(sorted(keys(**OWN)))


def test_a_data_set_is_the_same_whatever_names_it() -> None:
    """Problems are what keys are made of: a place and a name of the same problems ask for the same cells."""
    assert keys(problems={"dataset": f"{DATA}:sums"}) == keys(problems={"dataset": f"{DATA}:SUMS", "name": "sums"})


@pytest.mark.slow
def test_parameters_that_are_no_fields_are_part_of_text_and_key() -> None:
    study = tts.Study.from_yaml(YAML, strategies=[f"{PARTS}:Init(n=4) | weighted", f"{PARTS}:init(n=3) | weighted"])
    assert study.config.strategies == [f"{PARTS}:Init(n=4) | weighted", f"{PARTS}:init(n=3) | weighted"]
    study.run(progress=False)
    assert {(result.cell.strategy, len(result.drawn or ())) for result in study.results()} == {
        (f"{PARTS}:Init(n=4) | weighted", 4),
        (f"{PARTS}:init(n=3) | weighted", 3),
    }
    assert keys(strategies=[f"{PARTS}:BestOfN(n=2) | majority"]).isdisjoint(
        keys(strategies=["best_of_n(n=2) | majority"])
    )


def test_a_study_takes_objects_that_a_text_gives_again() -> None:
    given = [tts.BestOfN(n=2) | places.Newest(), places.Pair(n=3), tts.Single]
    assert toy(strategies=given).strategies == [f"best_of_n(n=2) | {PARTS}:Newest", f"{PARTS}:Pair(n=3)", "single"]


def _local() -> tts.Strategy:
    class Local(places.Pair):
        pass

    return Local()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (places.Init(4), f"{PARTS}:Init(...)"),
        (tts.BestOfN(n=2) | places.Nth(1), f"best_of_n(n=2) | {PARTS}:Nth(...)"),
        (places.Bare(), f"{PARTS}:Bare"),
        (_local(), f"{__name__}:_local.<locals>.Local"),
        (places.Pair(word=Path()), f"{PARTS}:Pair(word=PosixPath('.'))"),  # type: ignore[arg-type]
        (f"{PARTS}:local(n=3)", f"{PARTS}:local.<locals>.Local(n=3)"),
    ],
)
def test_a_part_whose_text_gives_no_equal_one_is_refused(given: Any, text: str) -> None:
    with pytest.raises(tts.ConfigError) as caught:
        toy(strategies=[given])
    assert f"strategies: the strategy is {text}, but its text must be read back as the same strategy" in str(
        caught.value
    )
    assert "frozen dataclass" in caught.value.hint
    assert "\n" not in str(caught.value)


# objects of a program


def writes(ask: Any) -> str:
    return "7"


def scores(problem: tts.Problem, text: str) -> float:
    return float(len(text))


ROWS = [{"question": "3 + 4", "answer": 7}, {"question": "5 - 2", "answer": 3}]
COLUMNS = {"question": ["3 + 4", "5 - 2"], "answer": [7, 3]}
GIVEN: dict[str, Any] = {"task": "arithmetic", "verifiers": "none", "strategies": "single"}


class Frame:
    """A data frame: it iterates over the names of its columns."""

    columns = ("question", "answer")

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        return self.rows if orient == "records" else []


def test_problems_are_tables_rows_or_objects_and_equal_ones_have_equal_keys() -> None:
    problems = [tts.Problem("3 + 4", answer="7"), tts.Problem("5 - 2", answer="3")]
    asked = keys(**GIVEN, problems=problems)
    renamed = [{"text": row["question"], "answer": row["answer"]} for row in ROWS]
    for same in (
        ROWS,
        COLUMNS,
        Frame(ROWS),
        iter(problems),
        {"dataset": Frame(ROWS), "name": "mine"},
        {"dataset": renamed, "fields": {"problem": "text"}},
    ):
        assert keys(**GIVEN, problems=same) == asked
    assert keys(**GIVEN, problems=[*problems[:1], tts.Problem("5 - 2", answer="4")]) - asked
    assert keys(**GIVEN, problems={"dataset": ROWS, "limit": 1}) < asked
    assert toy(problems=ROWS).plain_settings() != toy(problems=ROWS[:1]).plain_settings()


def test_a_study_of_objects_runs_and_reads_its_results() -> None:
    study = tts.Study(
        name="given",
        models=[writes],
        problems=[{"dataset": Frame(ROWS)}, {"dataset": f"{DATA}:sums", "limit": 2}],
        verifiers=scores,
        task="text",
        strategies="best_of_n(n=2) | best",
        budgets={"samples": 2},
    )
    assert study.run(progress=False).counts.done == 4
    assert [(row.model, row.dataset, row.accuracy and row.accuracy.value) for row in study.rows()] == [
        ("writes", "problems", 0.5),
        ("writes", f"{DATA}:sums", 0.0),
    ]
    assert study.config.verifiers == {"main": f"{__name__}:scores"}
    HELD.clear()  # as in another process
    with pytest.raises(tts.ConfigError, match=r"another process.*problems=") as caught:
        tts.Study(name="again", **{**GIVEN, "problems": study.config.problems[0].dataset}, models="toy", budgets=9)
    assert "given-" in caught.value.cause


@pytest.mark.parametrize("name_of_module", ["__main__", "parts_of_a_user"])
def test_functions_are_told_apart_by_their_source(monkeypatch: pytest.MonkeyPatch, name_of_module: str) -> None:
    """All scripts share the name of the main module, and a module may be edited between two runs on one store."""
    module = sys.modules.get(name_of_module, ModuleType(name_of_module))
    monkeypatch.setitem(sys.modules, name_of_module, module)

    def asked(reply: str, code: str = "def ask(_):\n    return helper()") -> set[str]:
        names: dict[str, Any] = {"__name__": name_of_module}
        exec(f"def helper():\n    return REPLY\nREPLY = {reply!r}\n{code}", names)
        for name in ("ask", "helper", "REPLY"):
            monkeypatch.setattr(module, name, names[name], raising=False)
        asked_keys = keys(**GIVEN, models=names["ask"], problems=ROWS)
        assert asked_keys == keys(**GIVEN, models={"another": {"backend": f"{name_of_module}:ask"}}, problems=ROWS)
        return asked_keys

    first = asked("7")
    assert first == asked("7")
    assert first.isdisjoint(asked("8"))  # of what it names
    assert first.isdisjoint(asked("7", "def ask(_):\n    return helper() + '!'"))
    with pytest.raises(tts.ConfigError, match=r"'__main__:ask'.*Ray.*'module:name'"):
        PreparedStudy(toy(models={"mine": {"backend": "__main__:ask"}}), "ray")


@pytest.mark.slow
def test_results_of_changed_parts_are_of_a_new_study(tmp_path: Path) -> None:
    parts = (
        "import tts\n\n\nclass Own(tts.Strategy):\n    async def run(self, search):\n"
        "        await search.complete([search.root], n={n})\n\n\n"
        "class Sum(tts.Task):\n    def extract(self, text):\n        return text[{n}:]\n"
    )
    (tmp_path / "problems.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n')
    (tmp_path / "study.yaml").write_text(
        "name: edited\nmodels: toy\nproblems: {dataset: problems.jsonl, task: 'edited:Sum'}\nbudgets: {samples: 2}\n"
        "strategies: ['edited:Own | majority', 'best_of_n(n=2) | majority']\n"
    )
    for n in (1, 2):
        (tmp_path / "edited.py").write_text(parts.format(n=n))
        command = [sys.executable, "-B", "-m", "tts", "run", "study.yaml"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=LIMIT_S)
    with Store(tmp_path / ".tts/store.sqlite") as store:
        results = [[*store.results(study.id)] for study in store.studies()]
    assert [sorted(one.usage.samples for one in of_study) for of_study in results] == [[1, 2], [2, 2]]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"models": lambda _: "7"}, "models: the model is"),
        ({"models": {"mine": {"backend": FunctionBackend(writes)}}}, "models.mine: the backend is"),
        ({"verifiers": lambda _problem, _text: 0.5}, "verifiers: the verifier is"),
        ({"verifiers": FunctionVerifier(scores)}, "define a function"),
        ({"task": places.Spoken()}, "give the class, task=Spoken, or"),
        ({"problems": 5}, "problems[0]"),
        ({"problems": type("Splits", (), {"column_names": {"test": []}})()}, "split"),
    ],
)
def test_objects_that_no_name_leads_to_are_refused_with_their_cure(change: dict[str, Any], place: str) -> None:
    with pytest.raises(tts.ConfigError) as caught, PreparedStudy(toy(**change)):
        pass
    assert place in str(caught.value)


# data sets


def test_a_data_set_is_a_function_or_an_object_at_a_place() -> None:
    assert [problem.id for problem in load(f"{DATA}:sums", limit=2)] == ["sums/1", "sums/2"]
    assert load(f"{DATA}:SUMS", first=3) == load(f"{DATA}:sums", first=3) == load(f"{DATA}:whatever", first=3)
    assert len(load(f"{DATA}:endless")) == 9
    assert get(f"{DATA}:SUMS").licence == "CC0"
    assert (get(f"{DATA}:sums").source, get(f"{DATA}:sums").licence) == (f"the function {DATA}:sums", "not stated")


def test_a_limit_holds_for_data_sets_that_know_none() -> None:
    with PreparedStudy(toy(problems={"dataset": f"{DATA}:endless", "limit": 3})) as prepared:
        assert len(prepared.problems[f"{DATA}:endless"]) == 3


@pytest.mark.slow
def test_a_data_set_of_ones_own_is_in_snapshot_and_page() -> None:
    pytest.importorskip("matplotlib")
    study = tts.Study.from_yaml(YAML)
    study.run(progress=False)
    with tts.experiments.store.Store(study.store) as opened:
        data = opened.find("own").runs[0].snapshot["data"][f"{DATA}:sums"]
    assert (data["dataset"], data["source"], data["licence"]) == (
        f"{DATA}:sums",
        f"the function {DATA}:sums",
        "not stated",
    )
    study.report("page.html")
    assert f"the function {DATA}:sums" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_line_shows_a_data_set_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the current folder, from the list of data sets to a run."""
    (tmp_path / "mine.py").write_text((Path(__file__).parent / "places.py").read_text())
    (tmp_path / "own.yaml").write_text(YAML.replace(DATA, "mine"))
    code = (
        f"import sys; from tts.cli import main; sys.path.append({str(Path(__file__).parents[2])!r}); sys.argv[0] = "
        "'tts'; main()"
    )

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    shown = command("datasets", "mine:SUMS")
    assert shown.returncode == 0, shown.stderr
    assert all(
        words in shown.stdout for words in ("mine:SUMS", "made here", "CC0", "small ones", "limit = 4", "first = 1")
    )
    done = command("run", "own.yaml")
    assert done.returncode == 0, done.stderr
    assert "mine:sums" in done.stdout
    monkeypatch.syspath_prepend(tmp_path)  # what it refuses needs no process
    for arguments in (["datasets", "mine:SUM"], ["run", "own.yaml", "--set", "problems.dataset=mine:SUM"]):
        missing = CliRunner().invoke(app, arguments)
        assert missing.exit_code == 2
        assert "the data set 'mine:SUM' cannot be loaded: 'mine' (" in missing.stderr
        assert "has no 'SUM'" in missing.stderr
        assert missing.stderr.splitlines()[1].startswith("hint: it has SUMS")
    del sys.modules["mine"]


# what is refused


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"strategies": "nowhere.at_all:Pair"},
            "strategies: the strategy 'nowhere.at_all:Pair' cannot be loaded: no module 'nowhere.at_all'",
        ),
        ({"strategies": f"{PARTS}:Pear"}, "has no 'Pear' (hint: it has Pair"),
        ({"strategies": f"{PARTS}:Enough"}, "must begin with a strategy"),
        (
            {"strategies": f"best_of_n | {PARTS}:Gone"},
            "the stop rule or selection 'tests.search.places:Gone' cannot be loaded",
        ),
        ({"strategies": f"best_of_n | {PARTS}:Pair"}, "is a strategy, but only the first part may be one"),
        ({"strategies": f"{PARTS}:NUMBER"}, "is a int, but must be a class or a function"),
        ({"verifiers": "nowhere:score"}, "the verifier 'nowhere:score' cannot be loaded: no module 'nowhere'"),
        ({"verifiers": f"{PARTS}:likes_lenght"}, "has no 'likes_lenght' (hint: it has likes_length"),
        (
            {"verifiers": f"{PARTS}:Pair"},
            "the verifier 'tests.search.places:Pair' is Pair(n=2, word=''), but must be a tts.Verifier",
        ),
        (
            {"task": "nowhere:Task", "problems": {"dataset": f"{DATA}:open_questions"}},
            "the task 'nowhere:Task' cannot be loaded: no module 'nowhere'",
        ),
        (
            {"task": f"{PARTS}:Spken", "problems": {"dataset": f"{DATA}:open_questions"}},
            "has no 'Spken' (hint: it has Spoken",
        ),
        (
            {"task": f"{PARTS}:Pair", "problems": {"dataset": f"{DATA}:open_questions"}},
            "task 'tests.search.places:Pair' is Pair(n=2, word=''), but must be a tts.Task",
        ),
        (
            {"models": {"m": {"model": "toy", "backend": "nowhere:B"}}},
            "the backend 'nowhere:B' cannot be loaded: no module 'nowhere'",
        ),
        ({"models": {"m": {"backend": "toy"}}}, "models.m.model is missing, but must be given"),
        ({"models": {"m": {"backend": f"{PARTS}:Pair"}}}, "is the class Pair, which is no backend"),
        ({"models": {"m": {"model": "toy", "backend": f"{PARTS}:Pear"}}}, "has no 'Pear' (hint: it has Pair"),
        ({"models": {"m": {"model": "toy", "backend": f"{PARTS}:Pair"}}}, "is the class Pair, which is no backend"),
        (
            {"models": {"m": {"model": "toy", "backend": f"{PARTS}:writes"}}},
            "model is 'toy', but the backend 'tests.search.places:writes' is a",
        ),
        (
            {"models": [{"name": "m", "model": "toy"}]},
            "models is [{'name': 'm', 'model': 'toy'}], but must be a name, names, or settings by name",
        ),
        (
            {"problems": {"dataset": f"{DATA}:raises"}},
            "the data set 'tests.experiments.places:raises' cannot be loaded: ValueError('no such file')",
        ),
        (
            {"problems": {"dataset": "nowhere:sums"}},
            "the data set 'nowhere:sums' cannot be loaded: no module 'nowhere'",
        ),
        ({"problems": {"dataset": f"{DATA}:sms"}}, "has no 'sms' (hint: it has sums"),
        ({"problems": {"dataset": f"{DATA}:NUMBER"}}, "is a int, but must be a class or a function"),
        (
            {"problems": {"dataset": f"{PARTS}:Pair"}},
            "is the class Pair, but must be a tts.experiments.datasets.DataSet or a function",
        ),
        ({"problems": {"dataset": f"{DATA}:sums", "limt": 3}}, "did you mean limit?"),
        ({"problems": {"dataset": f"{DATA}:needs_a_path"}}, "argument: 'path' (hint: give it beside `dataset`)"),
        (
            {"problems": {"dataset": f"{DATA}:texts"}},
            "gave a str, but must give problems (hint: make each a tts.Problem)",
        ),
        (
            {"problems": {"dataset": f"{DATA}:nothing"}},
            "gave a NoneType, but must give problems (hint: return a list of them)",
        ),
        (
            {"problems": {"dataset": f"{DATA}:sums", "limit": 3, "first": 1, "group_by": "sze"}},
            "but no metadata of the data set",
        ),
        (
            {"problems": {"dataset": f"{DATA}:none"}},
            "the data set 'tests.experiments.places:none' has no problems, but a study needs",
        ),
        ({"problems": {"dataset": f"{DATA}:nameless"}}, "has no id, but every problem of a data set must have one"),
    ],
)
def test_what_is_not_there_or_does_not_fit_is_one_line(change: dict[str, Any], why: str) -> None:
    with pytest.raises(tts.ConfigError) as caught:
        tts.Study.from_yaml(YAML.replace(f', verifiers: "{PARTS}:likes_length"', ""), **change).run(progress=False)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path(".tts").exists()
