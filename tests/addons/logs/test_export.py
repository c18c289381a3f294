"""Recorded samples leave in the forms of other programs, and come back with the same figures."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.experiments.pools import live, written
from tts.errors import ConfigError
from tts.experiments.analysis.pools import pools_of
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.analysis.replay import ReplayedCurve, replay
from tts.experiments.api import Study
from tts.experiments.output.logs import export_samples
from tts.experiments.store.store import Store
from tts.search.plan import parse
from tts_addons.code import sandbox

SUMS = {"prompt": "1 + 1?", "reference": "2", "text": ["so #### 2", "#### 3", "?"], "scores": [0.5, 0.25, None]}
ROWS = [
    {"problem": "a", **SUMS},
    {
        "problem": "b/1",
        "prompt": "2 + 2?",
        "reference": "4",
        "text": ["#### 4", "#### 4.0", "#### 5"],
        "scores": [0.5, 0.2, 0.1],
    },
]
FILES = {
    "samples": "out.jsonl",
    "lm-eval": "samples_sums_2026-01-02T03-04-05.678.jsonl",
    "inspect": "log.json",
    "inspect eval": "log.eval",
}
STRATEGIES, SIZES = ("pass@k", "best_of_n | majority", "best_of_n | posterior | majority"), (1, 2, 3)


def assert_equal(before: Sequence[ReplayedCurve], after: Sequence[ReplayedCurve], *, first: bool = False) -> None:
    """Exact points are equal; random orders are addressed by the names of pool and problem."""
    compared = 0
    for one, other in zip(before, after, strict=True):
        if first or not one.errors.any():
            compared += 1
            np.testing.assert_array_equal(other.curve.shares, one.curve.shares)
            for cost in ("samples", "verifier_tokens"):
                np.testing.assert_allclose(other.curve.costs[cost], one.curve.costs[cost], rtol=1e-12)
    assert compared >= 2


@pytest.fixture
def study(tmp_path: Path) -> Study:
    rows = [{**row, "tokens": [3, 4, 5]} for row in ROWS]
    return tts.Pool.from_rows(rows, name="sums", model="org/small").save(tmp_path / "store.sqlite")


@pytest.mark.parametrize("form", FILES)
def test_what_was_exported_is_imported_with_the_same_figures(study: Study, tmp_path: Path, form: str):
    path = tmp_path / FILES[form]
    assert study.export(path, form.partition(" ")[0]) == 2
    again = tts.Pool.from_files(path)
    for first in (True, False):
        assert_equal(
            study.replay(STRATEGIES, SIZES, first=first), again.replay(STRATEGIES, SIZES, first=first), first=first
        )
    if form != "lm-eval":  # which has no place for tokens and scores
        assert [[each.tokens for each in one.drawn] for one in again.problems] == [[3, 4, 5]] * 2
        by_score = ["best_of_n | best", "best_of_n | weighted"]
        assert_equal(study.replay(by_score, SIZES), again.replay(by_score, SIZES))


@pytest.mark.slow
@pytest.mark.parametrize("form", FILES)
def test_answers_alone_come_back_with_the_same_figures(tmp_path: Path, form: str):
    """The answer stands for the text, and is no text that the task would have to read."""
    rows = [
        {"problem": "a", "reference": "2", "answer": ["2", "1/2", None, "2"]},
        {"problem": "b", "reference": "x", "answer": ["3"] * 4},
    ]
    study = tts.Pool.from_rows(rows, name="sums").save(tmp_path / "store.sqlite")
    study.export(path := tmp_path / FILES[form], form.partition(" ")[0])
    again = tts.Pool.from_files(path)
    assert [[each.answer for each in one.drawn] for one in again.problems] == [["2", "1/2", None, "2"], ["3"] * 4]
    assert_equal(
        study.replay(STRATEGIES, (1, 2, 4), first=True), again.replay(STRATEGIES, (1, 2, 4), first=True), first=True
    )


@pytest.mark.slow
def test_a_pool_of_our_own_comes_back_with_the_same_figures(tmp_path: Path):
    """Each seed is a pool of its own; answers, scores, tokens and verdicts are those of a live study."""
    results = [result for result in live("best_of_n(n=6) | weighted", 6) if result.cell.seed == 0]
    with Store(tmp_path / "own.sqlite") as store:
        found = store.begin("own", {"configuration": {}})
        store.add(found, [result.cell for result in results])
        for result in results:
            store.finish("worker", result)
    Study.from_store("own", store=tmp_path / "own.sqlite").export(tmp_path / "own.jsonl", "samples")
    again = tts.Pool.from_files(tmp_path / "own.jsonl", task="arithmetic")
    own = pools_of(results).pools
    plans = [*STRATEGIES, "best_of_n | best", "best_of_n | best_of_majority", "best_of_n | weighted(aggregate='min')"]
    for sizes in ((1, 2), (4, 6)):
        for first in (True, False):
            assert_equal(replay(own, plans, sizes, first=first), again.replay(plans, sizes, first=first), first=first)
    before, after = (
        replay(own, plans, (60, 150), unit="tokens", first=True),
        again.replay(plans, (60, 150), unit="tokens", first=True),
    )
    assert_equal(before, after, first=True)


def test_scores_of_shared_steps_cost_the_same_after_a_round_trip(tmp_path: Path):
    """A verifier that reads shared steps once reads less of two samples than of each alone."""
    row: dict[str, Any] = {
        "problem": "p",
        "reference": "1",
        "answer": ["1", "1", "2", "2"],
        "scores": [0.5, 0.4, 0.3, 0.2],
    }
    row |= {"tokens": [10, 10, 12, 8], "verifier_tokens": [10, 4, 7, 8]}
    row |= {"like": [None, 0, 1, None], "shared": [0, 6, 5, 0], "same": [None, 0, None, 2]}
    first = tts.Pool.from_rows([row], name="tree")
    drawn = first.problems[0].drawn
    assert all([getattr(one, name) for one in drawn] == row[name] for name in ("like", "shared", "same"))
    first.save(tmp_path / "store.sqlite").export(tmp_path / "out.jsonl", "samples")
    again = tts.Pool.from_files(tmp_path / "out.jsonl")
    # the form states our verdicts
    unjudged = tuple(dataclasses.replace(one, given=None) for one in again.problems[0].drawn)
    assert unjudged == drawn
    for options in ({}, {"first": True}):
        assert_equal(
            first.replay(["best_of_n | best"] * 2, SIZES, **options),
            again.replay(["best_of_n | best"] * 2, SIZES, **options),
        )


def test_an_id_with_half_a_character_is_exported(tmp_path: Path):
    results = [
        dataclasses.replace(one, cell=dataclasses.replace(one.cell, problem="\ud800"))
        for one in live("best_of_n(n=2)", 2)[:1]
    ]
    export_samples([(one, {}) for one in results], tmp_path / "log.eval", "inspect", "one")
    with zipfile.ZipFile(tmp_path / "log.eval") as archive:
        assert "samples/\ufffd_epoch_1.json" in archive.namelist()


def test_what_cannot_be_exported_is_named(study: Study, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"form is 'inspct'.*inspect"):
        study.export(tmp_path / "x.json", "inspct")
    with pytest.raises(ConfigError, match="form inspect"):
        study.export(tmp_path / "x.jsonl", "inspect")
    with pytest.raises(ConfigError, match=r"'one'.*exported"):
        export_samples([], tmp_path / "x.jsonl", "samples", "one")


def test_inspect_reads_its_form(study: Study, tmp_path: Path):
    log = pytest.importorskip("inspect_ai.log")
    for name in ("log.json", "log.eval"):
        study.export(tmp_path / name, "inspect")
        read = log.read_eval_log(str(tmp_path / name))
        assert (read.status, read.eval.model, len(read.samples)) == ("success", "org/small", 6)
        assert read.results.scores[0].metrics["accuracy"].value == 0.5
        assert len(log.read_eval_log_sample_summaries(str(tmp_path / name))) == 6


def test_lines_have_the_fields_of_the_harness(study: Study, tmp_path: Path):
    study.export(tmp_path / "samples_x.jsonl", "lm-eval")
    rows = [json.loads(line) for line in (tmp_path / "samples_x.jsonl").read_text().splitlines()]
    fields = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash"}
    assert all(fields <= row.keys() and set(row["metrics"]) <= row.keys() for row in rows)
    assert rows[0]["resps"] == [["so #### 2", "#### 3", "?"]]
    assert rows[0]["filtered_resps"] == [["2", "3", "[invalid]"]]


def programs(ask: tts.Ask) -> tts.Answer:
    """Write one of three programs, of which two agree on the tests."""
    return tts.Answer(f"```python\ndef f(x):\n    return {('x + 1', '1 + x', '2 * x')[ask.seed % 3]}\n```", tokens=9)


def brevity(problem: tts.Problem, text: str) -> float:
    return 1 / (1 + len(text))


@pytest.mark.slow
def test_a_pool_keeps_the_scores_of_all_verifiers_and_the_outcomes_of_tests(tmp_path: Path) -> None:
    if reason := sandbox.why_not():
        pytest.skip(reason)
    store = tmp_path / "store.sqlite"
    study = tts.Study(
        name="programs",
        models={"programs": {"backend": f"{__name__}:programs"}},
        task="text",
        problems={"dataset": "tests.experiments.places:plain"},
        strategies=["best_of_n | majority"],
        budgets={"samples": 1},
        verifiers={"main": r"code(tests='assert f(1) == 2\nassert f(2) == 3')", "short": f"{__name__}:brevity"},
    )
    study.sample(6, store, progress=False)
    with Store(store) as kept:
        drawn = [one for result in kept.results(kept.find("programs-pool").id) for one in result.drawn or ()]
    assert len(drawn) == 18
    assert {one.outcomes["main"] for one in drawn} == {(1.0, 1.0), (1.0, 0.0)}
    assert all(one.scores["main"] == float(one.outcomes["main"] == (1.0, 1.0)) for one in drawn)
    assert all(0 < one.scores["short"] < 0.1 for one in drawn)
    assert tts.Study.from_store("programs-pool", store=store).export(tmp_path / "rows.jsonl", "samples") == 3
    again = [one for pool in tts.Pool.from_files(tmp_path / "rows.jsonl", task="text").problems for one in pool.drawn]
    assert [(one.outcomes, one.scores) for one in again] == [(one.outcomes, one.scores) for one in drawn]

    passes, fails = (next(one for one in drawn if one.outcomes["main"][1] == outcome) for outcome in (1.0, 0.0))
    three = [
        dataclasses.replace(one, answer=name, answer_class=place, right=True)
        for place, (one, name) in enumerate(zip((fails, passes, passes), "abc", strict=True))
    ]
    pool = dataclasses.replace(written((0, 1.0)), drawn=tuple(three))
    # it agrees with "c" on both tests
    assert RecordedSearch(pool, parse("best_of_n | codet")).run(range(3)).answer == "b"
