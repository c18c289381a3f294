"""`tts.Study`: a study as one object, from its settings to its table, figure, page and replay."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.experiments.studies import PLAIN, SUMS
from tests.support.guard import LIMIT_S
from tts.experiments.api import PartialResults
from tts.experiments.run.runner import RunSummary
from tts.experiments.store.store import Store

YAML = """
name: toy
models: toy
verifiers: toy(error=0.2)
problems: {dataset: arithmetic, operators: +-, parentheses: false, operations: [2, 4], limit: 6, group_by: operations}
strategies: [best_of_n | majority, best_of_n | best]
budgets: {samples: [1, 4]}
"""
SETTINGS: dict[str, Any] = {**PLAIN, "problems": {**SUMS, "limit": 6, "group_by": "operations"}}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def study() -> tts.Study:
    """A finished study in the default store."""
    made = tts.Study(**SETTINGS)
    made.run(progress=False)
    return made


# making one


def test_a_study_is_its_settings_or_its_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "toy.yaml").write_text(YAML)
    of_settings = tts.Study(**SETTINGS).config
    assert tts.Study.from_yaml("toy.yaml").config == of_settings
    assert tts.Study.from_yaml(tmp_path / "toy.yaml").config == of_settings
    assert tts.Study.from_yaml(YAML).config == of_settings
    assert (
        tts.Study.from_yaml(
            "{name: toy, models: toy, problems: {dataset: arithmetic}, strategies: single, budgets: 50}"
        ).name
        == "toy"
    )


def test_settings_stand_in_place_of_the_files() -> None:
    pytest.importorskip("yaml")
    found = tts.Study.from_yaml(YAML, seeds=3, budgets=[100], **{"problems.limit": 2, "record.traces": 1})
    assert found.config.seeds == [0, 1, 2]
    assert found.config.budgets == [{"tokens": 100}]
    assert [one.limit for one in found.config.problems] == [2]
    assert found.config.record.traces == 1


@pytest.mark.parametrize(
    ("change", "cause", "hint"),
    [
        (
            {"strateges": "single"},
            "key of the study is 'strateges', but no key of the study has that name",
            "did you mean strategies?",
        ),
        ({"strategies": "best_of"}, "strategy is 'best_of', but no strategy has that name", "did you mean best_of_n?"),
        ({"seeds": 0}, "seeds is 0, but must be from 1", "give how many"),
        (
            {"problems": {"dataset": "arithmetik"}},
            "data set is 'arithmetik', but no data set has that name",
            "did you mean arithmetic?",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_cure(change: dict[str, Any], cause: str, hint: str) -> None:
    with pytest.raises(tts.ConfigError) as caught:
        tts.Study(**{**SETTINGS, **change})
    assert cause in caught.value.cause
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_wrong_yaml_is_refused_with_its_cure() -> None:
    pytest.importorskip("yaml")
    for text, settings, told in (
        ("none.yaml", {}, r"study.*'none.yaml',.*read:.*file"),
        ("name: toy\nmodels: [toy", {}, r"study: this.*YAML.*2"),
        (YAML, {"name.x": 1}, r"study:.*setting 'name.x'.*1"),
        (YAML, {"seed": 1}, r"study:.*study.*'seed'"),
    ):
        with pytest.raises(tts.ConfigError, match=told):
            tts.Study.from_yaml(text, **settings)


# running one


def test_a_run_ends_in_results_and_another_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    study = tts.Study(**SETTINGS)
    summary = study.run("mine.sqlite")
    assert (summary.counts.done, summary.counts.failed, summary.counts.pending) == (24, 0, 0)
    assert "toy: 24 of 24" in capsys.readouterr().err
    again = tts.Study(**SETTINGS)
    assert again.run("mine.sqlite").counts.done == 24
    assert "toy: 24 of 24 · 0 tokens" in capsys.readouterr().err
    assert again.table() == study.table()
    assert not Path(".tts").exists()
    study.run(progress=False)
    assert capsys.readouterr().err == ""


def test_a_run_that_is_stopped_says_so_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    study = tts.Study(**SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(
            "tts.experiments.api.run", lambda _, store, **__: RunSummary(1, store.counts(1), interrupted=True)
        )
        with pytest.raises(KeyboardInterrupt, match=r"'toy'.*stopped"):
            study.run(progress=False)
    assert study.run(progress=False).counts.done == 24


KILLED = """
import sys, tts
print("here", flush=True)
tts.Study.from_yaml(sys.argv[1], concurrency=1, seeds=40).run("killed.sqlite")
"""


def _done(path: Path) -> int:
    with Store(path) as opened:
        return sum(study.done for study in opened.studies())


@pytest.mark.slow
def test_a_run_that_is_killed_is_resumed() -> None:
    pytest.importorskip("yaml")
    path = Path("killed.sqlite")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, YAML], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        until = time.monotonic() + LIMIT_S
        while not path.exists() or _done(path) < 20:
            assert time.monotonic() < until, "the run never began"
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    with Store(path) as opened:
        before = opened.find()
        finished = {result.cell.key: result for result in opened.results(before.id)}
    assert 20 <= before.done < before.cells == 960
    study = tts.Study.from_store("toy", store=path)
    with Store(path) as opened:  # its leases, which would otherwise run out after half a minute
        opened._connection.execute("UPDATE attempts SET ends = 0")
    assert study.run(progress=False).counts.done == 960
    after = {result.cell.key: result for result in study.results()}
    assert {key: after[key] for key in finished} == finished


def test_parts_of_a_study_are_run_apart() -> None:
    study = tts.Study(**SETTINGS)
    done = [study.run(f"{i}.sqlite", shard=(i, 2), progress=False).counts.done for i in (1, 2)]
    assert sum(done) == 24
    assert all(done)
    with pytest.raises(tts.ConfigError, match=r"shard.*\(3, 2\)"):
        study.run(shard=(3, 2))


def test_a_stored_study_is_read_and_resumed(study: tts.Study) -> None:
    stored = tts.Study.from_store("toy")
    assert stored.table() == tts.Study(**SETTINGS).table() == study.table()
    assert stored.config == study.config
    assert stored.name == "toy"
    assert stored.run(progress=False).counts.done == 24
    assert tts.Study.from_store("1").table() == study.table()
    with pytest.raises(tts.ConfigError, match=r"study.*'toi',.*study"):
        tts.Study.from_store("toi").table()
    with pytest.raises(tts.ConfigError, match=r"store none.sqlite is not there"):
        tts.Study.from_store(store="none.sqlite").table()


# reading one


@pytest.mark.slow
def test_the_table_is_that_of_the_command_line(study: tts.Study) -> None:
    from typer.testing import CliRunner

    from tts.cli.app import app

    for form, option in (("text", []), ("csv", ["--csv"]), ("json", ["--json"])):
        shown = CliRunner().invoke(app, ["show", *option])
        assert shown.stdout.rstrip("\n") == study.table(form).rstrip("\n")
    rows = study.rows()
    assert [row.strategy for row in rows] == ["best_of_n | majority"] * 2 + ["best_of_n | best"] * 2
    assert [float(row["accuracy"]) for row in csv.DictReader(io.StringIO(study.table("csv")))] == [
        row.accuracy.value for row in rows
    ]
    assert len(json.loads(study.table("json"))) == len(rows)
    with pytest.raises(tts.ConfigError, match=r"form.*'html',.*form"):
        study.table("html")


def test_a_notebook_shows_its_name_and_its_table(study: tts.Study) -> None:
    assert repr(study) == "Study('toy', store='.tts/store.sqlite')"
    assert repr(tts.Study.from_store("sums", store="other.sqlite")) == "Study('sums', store='other.sqlite')"
    shown = study._repr_html_()
    assert shown.startswith("<p>Study(&#x27;toy&#x27;, store=&#x27;.tts/store.sqlite&#x27;)</p><table>")
    assert study.table()._repr_html_() in shown
    assert "<table>" not in tts.Study.from_store(store="none.sqlite")._repr_html_()


def test_a_figure_goes_somewhere() -> None:
    study = tts.Study(**SETTINGS)
    with pytest.raises(tts.ConfigError, match=r"there.*somewhere"):
        study.plot()


@pytest.mark.slow
def test_a_study_without_results_says_so() -> None:
    study = tts.Study(**SETTINGS)
    for read in (
        study.table,
        study.results,
        study.curves,
        study.replay,
        lambda: study.plot("x.png"),
        lambda: study.report("x.html"),
    ):
        with pytest.raises(tts.ConfigError, match=r"'toy'.*results.*\.tts/store\.sqlite") as caught:
            read()
        assert caught.value.hint == "call its run() first"
    tts.Study(**{**SETTINGS, "seeds": [7]}).run(progress=False)
    with pytest.raises(tts.ConfigError, match="has no results"):  # those of another configuration are not its own
        study.table()


def test_an_unfinished_study_is_read_with_a_warning() -> None:
    study = tts.Study(**SETTINGS)
    study.run(shard=(1, 2), progress=False)
    with Store(study.store) as opened:
        opened.add(1, _cells(study))
    for read, what in (
        (study.table, "its final table"),
        (study.curves, "its final figure"),
        (study.results, "all its results"),
    ):
        with pytest.warns(PartialResults, match=rf"study toy: \d+ of 24 cells are done, so .* not {what}"):
            read()


def _cells(study: tts.Study) -> list[Any]:
    from tts.experiments.run.runner import PreparedStudy

    with PreparedStudy(study.config) as prepared:
        return list(prepared.cells())


@pytest.mark.slow
def test_a_figure_is_written(study: tts.Study) -> None:
    pytest.importorskip("matplotlib")
    assert study.plot("curve.svg", x="samples") == []
    drawn = Path("curve.svg").read_text()
    for words in ("best_of_n | majority", "samples per problem", "6 problems"):
        assert words in drawn
    (compared,) = study.plot("compared.png", baseline="best_of_n | majority")
    assert (compared.label, compared.base) == ("best_of_n | best", "best_of_n | majority")
    assert Path("compared.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(tts.ConfigError, match=r"axis.*'token',.*axis"):
        study.plot("curve.svg", x="token")
    with pytest.raises(tts.ConfigError, match=r"figure.*'curve.jpg'"):
        study.plot("curve.jpg")
    with pytest.raises(tts.ConfigError, match="baseline is 'single'"):
        study.plot("curve.svg", baseline="single")


@pytest.mark.slow
def test_a_page_is_written(study: tts.Study) -> None:
    pytest.importorskip("matplotlib")
    study.report("page.html", x="samples")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<title>toy" in page
    assert "best_of_n | majority" in page
    with pytest.raises(tts.ConfigError, match=r"page.*'page.txt'"):
        study.report("page.txt")
    with pytest.raises(tts.ConfigError, match=r"axis.*'token',.*axis"):
        study.report("page.html", x="token")
    with pytest.raises(tts.ConfigError, match=r"page 'none/page.html'.*written"):
        study.report("none/page.html")


def test_results_are_exported(study: tts.Study) -> None:
    assert study.export("all.jsonl") == 24
    assert len(Path("all.jsonl").read_text().splitlines()) == len(study.results()) == 24


# pools


@pytest.mark.slow
def test_a_pool_is_drawn_and_replayed_at_every_size(study: tts.Study) -> None:
    pool = study.sample(8, progress=False)
    assert pool.name == "toy-pool"
    assert [len(result.drawn or ()) for result in pool.results()] == [8] * 6
    selections = ["majority", "best", "weighted", "best_of_majority"]
    strategies = ["pass@k", "random choice", *(f"best_of_n | {selection}" for selection in selections)]
    replayed = pool.replay()
    assert [one.curve.label for one in replayed] == strategies
    assert [list(one.sizes) for one in replayed] == [[1, 2, 4, 8]] * 6
    (vote,) = pool.replay(["best_of_n | majority"], [2])
    assert vote.curve.accuracy[0] == replayed[2].curve.accuracy[1]
    text = study.points(replayed)
    assert len(re.findall(r" live$", text, re.MULTILINE)) == 4
    assert text.count("replayed, ") == 24
    assert len(list(csv.DictReader(io.StringIO(study.points(replayed, form="csv"))))) == 28


@pytest.mark.slow
def test_a_figure_has_replayed_curves_too(study: tts.Study) -> None:
    pytest.importorskip("matplotlib")
    study.plot("both.svg", replayed=study.sample(4, progress=False).replay(["pass@k"]))
    assert "hollow markers: replayed from recorded samples" in Path("both.svg").read_text()


@pytest.mark.slow
def test_what_cannot_be_replayed_is_refused(study: tts.Study) -> None:
    with pytest.raises(tts.ConfigError, match=r"samples: 24.*record"):
        study.replay()
    pool = study.sample(4, name="mine", progress=False)
    assert tts.Study.from_store("mine").name == pool.name == "mine"
    with pytest.raises(tts.ConfigError, match=r"size.*8.*largest.*4"):
        pool.replay(sizes=[8])
    with pytest.raises(tts.ConfigError, match=r"strategy.*'beam',.*what.*replayed"):
        pool.replay(["beam"])
    with pytest.raises(tts.ConfigError, match=r"n.*0,.*whole.*1"):
        study.sample(0)


def test_results_that_are_no_pools_are_counted() -> None:
    strategies = ["best_of_n", "best_of_n | unanimous(window=2) | majority"]
    study = tts.Study(**{**SETTINGS, "strategies": strategies, "record": {"candidates": True}})
    study.run(progress=False)
    with pytest.warns(PartialResults, match="12.*samples: 12.*ended"):
        study.replay(["best_of_n | majority"])
