from __future__ import annotations

import dataclasses
import math

import pytest

from tests.experiments.pools import live, result_of, sums
from tts import tasks
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.experiments.analysis.pools import pool_study, pools_of
from tts.experiments.run.candidates import judge_answer, record_candidates
from tts.experiments.study.config import StudyConfig, study_config
from tts.experiments.study.record import RecordedSample, Result
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.solver.solver import Solver
from tts.types import Problem


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return live("best_of_n(n=6) | weighted", 6)


def test_a_pool_has_every_candidate_in_the_order_of_drawing(results):
    """Fewer samples are the beginning of more, so the pool of three is the beginning of the pool of six."""
    for small, large in zip(live("best_of_n(n=3) | weighted", 3), results, strict=True):
        assert small.drawn == large.drawn[:3]


def test_its_tokens_are_those_of_the_run(results):
    for result in results:
        assert sum(one.tokens for one in result.drawn) == result.usage.generated_tokens > 0
        assert sum(one.verifier_tokens for one in result.drawn) == result.usage.verifier_tokens > 0


def test_a_verifier_that_reads_all_of_each_sample_shares_nothing(results):
    assert {(one.like, one.shared) for result in results for one in result.drawn} == {(None, 0)}


def test_what_was_not_scored_has_no_score_and_cost_nothing():
    """Best-of-majority asks about the answers that come at least three times, else about the most frequent ones."""
    asked = 0
    for result in live("best_of_n(n=6) | best_of_majority", 6):
        assert sum(one.verifier_tokens for one in result.drawn) == result.usage.verifier_tokens
        counts = [sum(other.answer_class == one.answer_class for other in result.drawn) for one in result.drawn]
        most = max(
            (count for one, count in zip(result.drawn, counts, strict=True) if one.answer_class is not None), default=0
        )
        for one, count in zip(result.drawn, counts, strict=True):
            frequent = one.answer_class is not None and count >= min(3, most)
            assert bool(one.scores) <= frequent
            assert bool(one.verifier_tokens) == bool(one.scores)
            asked += bool(one.scores)
    assert asked > 0


def test_steps_are_kept_where_the_verifier_scores_steps(results):
    """A line for each operation and one for the answer, which may be missing; the score is that of the last."""
    operations = {problem.id: problem.text.count("+") + problem.text.count("-") for problem in sums()}
    for result in results:
        for one in result.drawn:
            assert len(one.steps["main"]) == operations[result.cell.problem] + 1
            assert one.scores["main"] == one.steps["main"][-1]


def test_a_score_of_the_whole_is_no_step():
    """Also where a solution happens to be a single line, as some are here."""
    for result in live("best_of_n(n=6) | weighted", 6, verifier=lambda problem, text: len(text) / 1000, max_tokens=8):
        for one in result.drawn:
            assert one.steps == {}
            assert 0 < one.scores["main"] < 1


def test_verdicts(results):
    seen = set()
    for result in results:
        truth = next(problem.answer for problem in sums() if problem.id == result.cell.problem)
        for one in result.drawn:
            assert one.right is (one.answer == truth)
            assert (one.answer is None) == (one.answer_class is None)
            seen.add((one.answer is None, one.right))
    assert seen == {(False, True), (False, False), (True, False)}


def test_without_a_reference_answer_nobody_knows_what_is_right():
    results = live("best_of_n(n=4) | majority", 4, [Problem("3 + 4 - 2", id="a")])
    assert {one.right for result in results for one in result.drawn} == {None}


@pytest.mark.parametrize(("answer", "right"), [("7.0", True), ("8", False), (None, False)])
def test_judge_answer(answer, right):
    task = tasks.get("arithmetic")
    assert judge_answer(answer, task, Problem("3 + 4", answer="7")) is right
    assert judge_answer(answer, task, Problem("3 + 4")) is None


def test_a_class_is_judged_by_its_first_writing():
    """So whichever of its members wins, the verdict is that of the live run, which answers as the first wrote it."""

    class Counting(type(tasks.get("arithmetic"))):
        judged = 0

        def decide(self, a: str, b: str) -> bool | None:
            Counting.judged += b == "5"
            return super().decide(a, b)

    problem = Problem("3 + 4 - 2", answer="5", id="a")
    with Solver(
        ToyBackend(ToyLanguage(accuracy=0.8)), {}, task="arithmetic", strategy="best_of_n(n=20) | majority"
    ) as solver:
        drawn = record_candidates(solver.solve(problem, Budget(samples=20)), Counting(), problem)
    assert 1 < Counting.judged == len({one.answer_class for one in drawn}) < len(drawn)


def changed(result: Result, **cell: object) -> Result:
    return dataclasses.replace(result, cell=dataclasses.replace(result.cell, **cell))


def test_of_several_pools_the_largest_is_kept_and_of_equal_ones_the_one_with_scores(results):
    small, unscored = live("best_of_n(n=3) | weighted", 3), live("best_of_n(n=6) | majority", 6)
    for order in ([*small, *unscored, *results], [*results, *unscored, *small]):
        found = pools_of(order)
        assert {(pool.cell.problem, pool.cell.seed): pool.drawn for pool in found.pools} == {
            (result.cell.problem, result.cell.seed): result.drawn for result in results
        }
        assert found.passed_over == {}


def test_samples_of_another_temperature_model_or_setting_are_another_pool(results):
    (first, *_) = results
    hotter = changed(first, strategy="best_of_n(n=6, temperature=2.0) | weighted")
    others = [hotter, changed(first, model="other"), changed(first, setting="there"), changed(first, dataset="others")]
    found = pools_of([first, *others]).pools
    assert len(found) == 5
    assert {pool.law for pool in found} == {BestOfN(), BestOfN(temperature=2.0)}


def test_what_is_no_pool_is_passed_over_and_counted(results):
    first, second, *rest = results
    others = [
        dataclasses.replace(first, error="EngineError: it broke"),
        dataclasses.replace(second, drawn=None),
        *(changed(result, strategy="best_of_n | unanimous(window=3) | majority") for result in rest[:3]),
        *(changed(result, budget={"tokens": 500}) for result in rest[:2]),
        changed(first, strategy="single | majority"),
    ]
    found = pools_of([*others, first])
    assert [pool.drawn for pool in found.pools] == [first.drawn]
    assert found.passed_over == {
        "failed": 1,
        "did not record their candidates": 1,
        "were ended by a stop rule": 3,
        "had another limit than one on samples": 2,
        "are of another strategy than best_of_n": 1,
    }


def test_a_study_without_a_pool_is_refused_with_the_reasons(results):
    with pytest.raises(ConfigError) as refused:
        pools_of([dataclasses.replace(result, drawn=None) for result in results[:3]])
    assert refused.value.cause == "the study has no pool of samples: 3 did not record their candidates"
    assert (
        refused.value.hint
        == "name one (tts sample keeps it as STUDY-pool), draw one, or record the candidates of best_of_n"
    )
    with pytest.raises(ConfigError, match="there are no results"):
        pools_of([])


def test_a_score_that_the_verifier_did_not_know_is_kept_as_unknown():
    results = live("best_of_n(n=3) | weighted", 3, sums(2), verifier=lambda problem, text: math.nan)
    assert all(math.isnan(one.scores["main"]) for result in results for one in result.drawn)


def test_an_oracle_is_marked(results):
    problem = sums(1)[0]
    with Solver(
        ToyBackend(), "checker", task="arithmetic", strategy="best_of_n(n=2) | weighted", allow_oracle=True
    ) as solver:
        result = result_of(problem, solver.solve(problem, Budget(samples=2)), {"samples": 2}, "checker")
    assert pools_of([result]).pools[0].oracle
    assert not pools_of(results).pools[0].oracle


def test_has(results):
    pool = pools_of(results).pools[0]
    assert pool.has("main")
    assert not pool.has("other")
    lacking = dataclasses.replace(
        pool,
        drawn=(*pool.drawn, RecordedSample(answer=None, answer_class=None, right=False, status="finished", tokens=1)),
    )
    assert not lacking.has("main")


def study_of(*strategies: str) -> StudyConfig:
    problems = {"dataset": "arithmetic", "limit": 2}
    budgets = [{"tokens": 100}, {"samples": 2}]
    return study_config(
        {
            "name": "a",
            "models": "toy",
            "problems": problems,
            "strategies": list(strategies),
            "budgets": budgets,
            "seeds": 2,
        }
    )


def test_the_study_of_pools_draws_each_law_of_another_once():
    given = study_of("best_of_n(n=2) | majority", "best_of_n | weighted", "best_of_n(temperature=0.5) | best", "single")
    made = pool_study(given, 9)
    assert made.strategies == ["best_of_n", "best_of_n(temperature=0.5)"]
    assert made.budgets == [{"samples": 9}]
    assert made.record.candidates
    assert (made.models, made.problems, made.seeds) == (given.models, given.problems, given.seeds)
    assert not given.record.candidates


def test_a_study_without_best_of_n_has_pools_of_it():
    assert pool_study(study_of("single"), 3).strategies == ["best_of_n"]
