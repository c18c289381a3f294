from __future__ import annotations

import dataclasses
import math
from itertools import combinations, permutations

import numpy as np
import pytest

import tts
from tests.experiments.pools import SEEDS, live, sums, written
from tts.errors import ConfigError
from tts.experiments.analysis.points import points_of
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import RecordedScores, RecordedSearch, imported_scores
from tts.experiments.analysis.replay import COVERAGE, ReplayedCurve, fitting_strategies, problems_without_answer, replay
from tts.search.parts import SELECTIONS, STOP_RULES, Selected
from tts.search.plan import parse
from tts.search.selections.majority import Majority
from tts.statistics import pass_at_k
from tts.types import Problem

SIZES = (1, 3, 7)
CUT = 21  # tokens, which the toy's solutions of three and four numbers fit in, and those of five do not
# selections that ask a model about answers, which no recorded score says
LIVE_ONLY = ("genselect", "knockout", "league", "pairwise", "pivot", "swiss")
REPLAYED = "what is replayed is pass@k, pass^k, random choice, best_of_n without its n, or auto"
SELECTED = [
    *(name for name in SELECTIONS.entries if name not in LIVE_ONLY),
    # what a rule of finish order cancels, a live run books apart: its replay is tested in test_prefixes.py
    *(f"{rule} | weighted" for rule in STOP_RULES.entries if STOP_RULES.get(rule).order == "drawn"),
    "majority(truncated='drop')",
    "best(aggregate='min', truncated='drop')",
    "weighted(aggregate='prod')",
    "best_of_majority(alpha=0.3, asked=1, k=2)",
    "unanimous(window=2) | majority",
    "score_threshold(threshold=0.6) | majority",
]


@pytest.fixture(scope="module", params=[None, CUT], ids=["whole", "cut"])
def drawn(request) -> tuple[int | None, list[ProblemPool]]:
    """Pools of seven samples, and where these are cut."""
    return request.param, list(pools_of(live("best_of_n | weighted", max(SIZES), max_tokens=request.param)).pools)


def only(found: list[ReplayedCurve]) -> ReplayedCurve:
    (one,) = found
    return one


@pytest.mark.slow
@pytest.mark.parametrize("selected", SELECTED)
def test_the_first_n_samples_come_to_what_a_live_run_of_n_does(drawn, selected):
    """Answer, verdict and cost, of every problem and seed at every size; and so does the curve."""
    max_tokens, pools = drawn
    problems = sums(8 if max_tokens is None else 4)
    pools = [pool for pool in pools if pool.cell.problem in {problem.id for problem in problems}]
    by_key = {
        (pool.cell.problem, pool.cell.seed): RecordedSearch(pool, parse(f"best_of_n | {selected}")) for pool in pools
    }
    replayed = only(replay(pools, [f"best_of_n | {selected}"], SIZES, first=True))
    for point, n in enumerate(SIZES):
        results = live(f"best_of_n(n={n}) | {selected}", n, problems, max_tokens=max_tokens)
        for result in results:
            outcome = by_key[result.cell.problem, result.cell.seed].run(range(n))
            assert (outcome.answer, outcome.right) == (result.answer, result.right)
            assert outcome.generated_tokens == result.usage.generated_tokens
            assert outcome.verifier_tokens == pytest.approx(result.usage.verifier_tokens)
            assert outcome.stopped_by == result.stopped_by
        by_problem = {
            problem.id: [result.right for result in results if result.cell.problem == problem.id]
            for problem in problems
        }
        assert dict(zip(replayed.curve.problems, replayed.curve.shares[point], strict=True)) == {
            problem: sum(right) / len(SEEDS) for problem, right in by_problem.items()
        }
        tokens = [result.usage.generated_tokens + result.usage.verifier_tokens for result in results]
        assert replayed.curve.costs["tokens"][point] == pytest.approx(np.mean(tokens))
    assert replayed.errors.tolist() == [0.0] * len(SIZES)


@pytest.mark.parametrize("selected", LIVE_ONLY)
def test_a_selection_that_asks_for_more_than_scores_is_refused(drawn, selected):
    _, pools = drawn
    with pytest.raises(ConfigError, match=r"recorded.*scores") as caught:
        replay(pools, [f"best_of_n | {selected}"], [7])
    assert caught.value.hint == "run it live, with tts run"


WRITTEN = [  # scores are eighths, whose sums are exact
    written((0, 0.875), (1, 0.125), (1, 0.75), (0, 0.25), (None, 1.0)),
    written((1, 0.5), (1, 0.5), (0, 0.5), (2, 0.5), (2, 0.5)),
    written((0, math.nan), (1, math.nan), (1, 0.125), (None, math.nan), (2, 0.125)),
    written((None, 0.25), (None, 0.5)),
    written((0, 0.125), (0, 0.125), (1, 0.25), (1, 0.125), (2, 0.0)),
]


@pytest.mark.parametrize("selected", ["majority", "best", "weighted"])
@pytest.mark.parametrize("pool", WRITTEN)
def test_means_in_closed_form_are_those_over_all_orders_of_live_selections(pool, selected):
    """Brute force: what the selection itself makes of every ordered subset."""
    plan = parse(f"best_of_n | {selected}")
    sizes = range(1, len(pool.drawn) + 1)
    curve = only(replay([pool], [str(plan)], sizes)).curve
    recorded = RecordedSearch(pool, plan)
    for point, n in enumerate(sizes):
        outcomes = [recorded.run(order) for order in permutations(range(len(pool.drawn)), n)]
        assert curve.shares[point, 0] == pytest.approx(np.mean([outcome.right for outcome in outcomes]), abs=1e-12)
        for name in ("generated_tokens", "verifier_tokens", "path_tokens"):
            assert curve.costs[name][point] == pytest.approx(np.mean([getattr(outcome, name) for outcome in outcomes]))
        assert curve.costs["samples"][point] == n


@pytest.mark.parametrize(("measure", "value"), [("pass@k", any), ("pass^k", all), ("random choice", np.mean)])
@pytest.mark.parametrize("pool", WRITTEN)
def test_measures_are_means_over_all_subsets_and_only_a_random_choice_sees_no_answers(pool, measure, value):
    sizes = range(1, len(pool.drawn) + 1)
    curve = only(replay([pool], [measure], sizes)).curve
    right = [drawn.right is True for drawn in pool.drawn]
    expected = [np.mean([value(subset) for subset in combinations(right, n)]) for n in sizes]
    assert curve.shares[:, 0] == pytest.approx(expected, abs=1e-12)
    assert curve.role == ("strategy" if measure == "random choice" else "oracle")
    longest = [np.mean([max(one.tokens for one in subset) for subset in combinations(pool.drawn, n)]) for n in sizes]
    assert curve.costs["path_tokens"] == pytest.approx(longest)
    first = only(replay([pool], [measure], sizes, first=True)).curve
    assert first.shares[:, 0] == pytest.approx([float(value(right[:n])) for n in sizes])
    assert first.costs["path_tokens"] == pytest.approx([max(one.tokens for one in pool.drawn[:n]) for n in sizes])


def test_a_random_choice_is_no_better_at_any_size_and_a_default_of_every_replay():
    pools = [written((0, 0.5), (1, 0.5), (0, 0.5), (1, 0.5)), written((1, 0.5), (1, 0.5), (1, 0.5), (0, 0.5))]
    curve = only(replay(pools[:1], ["random choice"], [1, 2, 4])).curve
    assert len(set(curve.shares[:, 0].tolist())) == 1
    assert fitting_strategies(pools)[:2] == ["pass@k", "random choice"]


def test_a_stop_rule_is_averaged_over_orders_of_all_samples():
    """Three of five samples agree; where the first two do, two are drawn. Over all orders that is known exactly."""
    pool = written((0, 0.5), (0, 0.5), (0, 0.5), (1, 0.5), (2, 0.5))
    plan = "best_of_n | in_a_row(k=2) | majority"
    runs = [RecordedSearch(pool, parse(plan)).run(order).samples for order in permutations(range(5))]
    found = only(replay([pool], [plan], [5], draws=600)).curve.costs["samples"][0]
    assert found == pytest.approx(np.mean(runs), abs=4 * float(np.std(runs)) / math.sqrt(600))
    assert only(replay([pool], [plan], [5], first=True)).curve.costs["samples"][0] == 2
    assert np.mean(runs) > 2.5


@pytest.mark.parametrize(
    "selected",
    ["posterior | majority", "unanimous(window=2) | majority", "reasc | majority", "best_of_majority", "borda"],
)
@pytest.mark.parametrize("pool", [WRITTEN[0], WRITTEN[1], WRITTEN[4]])
def test_means_are_those_over_all_orders_and_not_over_subsets_in_recorded_order(pool, selected):
    """Brute force over all ordered subsets, for what depends on the order: stop rules, and selections among equals."""
    plan, n = f"best_of_n | {selected}", len(pool.drawn)
    curve = only(replay([pool], [plan], range(1, n + 1), draws=math.factorial(n))).curve
    for size in range(1, n + 1):
        outcomes = [RecordedSearch(pool, parse(plan)).run(order) for order in permutations(range(n), size)]
        assert curve.shares[size - 1, 0] == pytest.approx(np.mean([outcome.right for outcome in outcomes]), abs=1e-12)
        assert curve.costs["samples"][size - 1] == pytest.approx(np.mean([outcome.samples for outcome in outcomes]))


@pytest.mark.slow
@pytest.mark.parametrize("selected", ["weighted", "best_of_majority", "unanimous(window=2) | majority"])
def test_drawn_orders_come_to_the_mean_over_all_within_their_error(drawn, selected):
    """Seven samples have 840 ordered subsets of four: 20 are drawn, 840 are all. Four standard errors, once in
    16,000.
    """
    _, pools = drawn
    some = only(replay(pools, [f"best_of_n | {selected}"], [4], draws=20, seed=1))
    every = only(replay(pools, [f"best_of_n | {selected}"], [4], draws=840))
    assert every.errors[0] == 0 < some.errors[0] < 0.06
    assert some.curve.accuracy[0].value != every.curve.accuracy[0].value
    assert abs(some.curve.accuracy[0].value - every.curve.accuracy[0].value) < 4 * some.errors[0]


def test_the_error_is_that_of_a_mean_over_pools():
    """Two problems, one of which two seeds tell: (s1^2 / 4 + s2^2 / 4 + s3^2) / 4, and each pool has an error of its
    own draws.
    """
    pool = written(*[(i % 2, 0.1 * i) for i in range(9)])
    pools = [
        dataclasses.replace(pool, cell=dataclasses.replace(pool.cell, problem=p, seed=s))
        for p, s in (("a", 0), ("a", 1), ("b", 0))
    ]
    each = [float(only(replay([one], ["best_of_n | best_of_majority"], [5], draws=100)).errors[0]) for one in pools]
    assert min(each) > 0
    together = only(replay(pools, ["best_of_n | best_of_majority"], [5], draws=100)).errors[0]
    assert together == pytest.approx(math.sqrt((each[0] ** 2 + each[1] ** 2) / 4 + each[2] ** 2) / 2)


def test_the_same_seed_gives_the_same_curve_whatever_else_is_replayed(drawn):
    _, pools = drawn
    strategies = ["best_of_n | weighted", "best_of_n | best_of_majority"]
    together = replay(pools, strategies, [2, 4], draws=10)
    alone = only(replay(pools[3:], strategies[1:], [4], draws=10))
    at = [together[1].curve.problems.index(problem) for problem in alone.curve.problems]
    seeds = [len([pool for pool in pools[3:] if pool.cell.problem == problem]) for problem in alone.curve.problems]
    same = [place for place, count in enumerate(seeds) if count == len(SEEDS)]
    assert len(same) > 3
    assert [alone.curve.shares[0, i] for i in same] == [together[1].curve.shares[1, at[i]] for i in same]
    other = only(replay(pools, strategies[1:], [4], draws=10, seed=7))
    assert (other.curve.shares != together[1].curve.shares[1:]).any()


def test_coverage_is_pass_at_k(drawn):
    _, pools = drawn
    curve = only(replay(pools, [COVERAGE], SIZES)).curve
    right = [
        [sum(bool(one.right) for one in pool.drawn) for pool in pools if pool.cell.problem == problem]
        for problem in curve.problems
    ]
    for point, n in enumerate(SIZES):
        assert curve.shares[point] == pytest.approx(pass_at_k(7, right, n).mean(axis=1))
    assert curve.label == COVERAGE
    assert curve.role == "oracle"
    first = only(replay(pools, [COVERAGE], [3], first=True)).curve
    assert first.accuracy[0].value == pytest.approx(
        np.mean([any(one.right for one in pool.drawn[:3]) for pool in pools])
    )


def test_a_size_beyond_every_pool_is_refused():
    pools = pools_of(live("best_of_n | weighted", 7, sums(2))).pools
    with pytest.raises(ConfigError) as refused:
        replay(pools, ["best_of_n | majority"], [2, 8])
    assert refused.value.cause == "a size is 8 samples, but the largest pool has 7"
    assert "tts sample" in refused.value.hint


def test_a_pool_that_is_too_small_for_a_size_is_left_out_there_and_counted():
    """A seed without enough samples says nothing; a problem without such a seed is in no point."""
    large, small = written(*[(0, 0.5)] * 4, problem="large"), written(*[(0, 0.5)] * 2, problem="small")
    other = written(*[(1, 0.5)] * 2, problem="large", seed=1)
    replayed = only(replay([large, small, other], ["best_of_n | majority"], [2, 3]))
    assert replayed.curve.problems == ["large", "small"]
    assert replayed.curve.shares[0].tolist() == [0.5, 1.0]
    assert replayed.curve.shares[1, 0] == 1.0
    assert math.isnan(replayed.curve.shares[1, 1])
    assert replayed.too_small == [0, 1]
    assert [estimate.num for estimate in replayed.curve.accuracy] == [2, 1]
    assert replayed.curve.seeds == [0, 1]


def test_problems_without_a_reference_are_left_out():
    known = written((0, 0.5), (1, 0.5), problem="known")
    unknown = written((0, 0.5), (1, 0.5), problem="unknown")
    unknown = dataclasses.replace(unknown, drawn=tuple(dataclasses.replace(one, right=None) for one in unknown.drawn))
    assert problems_without_answer([known, unknown, unknown]) == ["unknown"]
    plans = [COVERAGE, "best_of_n | majority"]
    for found, alone in zip(replay([known, unknown], plans, [1, 2]), replay([known], plans, [1, 2]), strict=True):
        assert found.curve.problems == ["known"]
        assert found.curve.shares.tolist() == alone.curve.shares.tolist()
    with pytest.raises(ConfigError, match=r"1 pools.*'unknown'") as refused:
        replay([unknown], [COVERAGE], [1])
    assert refused.value.hint == "give the problems answers, or samples their verdicts"


@pytest.mark.parametrize(
    ("strategy", "cause"),
    [
        ("single", f"strategy is 'single', but {REPLAYED}"),
        ("best_of_n(n=4) | majority", f"strategy is 'best_of_n(n=4) | majority', but {REPLAYED}"),
        ("best_of_n(temperature=0.5) | majority", "no pool was drawn by best_of_n(temperature=0.5)"),
        ("best_of_n | best", "role 'main', but the pool of problem 'p' lacks such scores"),
        ("best_of_n | weighted(verifier='other')", "role 'other', but the pool of problem 'p' lacks such scores"),
        ("best_of_n | best_of_majority", "role 'main', but the pool of problem 'p' lacks such scores"),
    ],
)
def test_what_cannot_be_replayed_is_refused(strategy, cause):
    with pytest.raises(ConfigError) as refused:
        replay([written((0, None), (0, None))], [strategy], [2])
    assert cause in refused.value.cause
    assert refused.value.hint


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ({"pools": []}, "there are 0 pools, 1 strategies and 1 sizes, but must be some of each"),
        ({"sizes": []}, "there are 1 pools, 1 strategies and 0 sizes, but must be some of each"),
        ({"sizes": [0]}, "a size is 0, but must be a whole number of at least 1"),
        ({"draws": 1}, "draws is 1, but must be a whole number of at least 2"),
    ],
)
def test_values_that_are_refused(parts, cause):
    given = {"pools": [written((0, 0.5))], "strategies": [COVERAGE], "sizes": [1], **parts}
    with pytest.raises(ConfigError) as refused:
        replay(**given)
    assert refused.value.cause == cause


@dataclasses.dataclass(frozen=True)
class Curious(Majority):
    """A selection that asks a search for more than scores."""

    asks: str = "hidden"

    async def select(self, candidates, search) -> Selected:
        await getattr(search, self.asks)([candidate.answer for candidate in candidates])
        return await super().select(candidates, search)


@dataclasses.dataclass(frozen=True)
class Waiting(Majority):
    async def select(self, candidates, search) -> Selected:
        import asyncio

        await asyncio.sleep(0)
        return await super().select(candidates, search)


@pytest.mark.parametrize(
    ("selection", "cause"),
    [(Curious(), "uses 'hidden' of a search"), (Waiting(), "waits for something else than scores")],
)
def test_a_selection_that_needs_more_than_scores_is_refused(selection, cause):
    with pytest.raises(ConfigError, match=cause) as refused:
        RecordedSearch(written((0, 0.5)), parse("best_of_n") | selection).run([0])
    assert refused.value.hint == "run it live, with tts run"


def test_scores_without_their_verifier_have_no_range():
    pool = written((0, 0.5))
    unnamed = dataclasses.replace(pool, cell=dataclasses.replace(pool.cell, verifiers={}))
    with pytest.raises(ConfigError, match=r"'main',.*pool.*'p'"):
        RecordedScores(unnamed).get("main")


def test_the_verifier_of_imported_scores_has_their_range_and_scores_nothing_else():
    verifier = imported_scores(low=0.0, high=1.0)
    assert verifier.range == (0.0, 1.0)
    with pytest.raises(ConfigError, match=r"'p':.*imported"):
        verifier.fn(Problem("1 + 1", id="p"), "2")


def test_a_strategy_without_a_selection_has_its_default():
    scored, unscored = written((0, 0.5)), written((0, None))
    assert only(replay([scored], ["best_of_n"], [1])).curve.label == "best_of_n | weighted"
    assert only(replay([unscored], ["best_of_n"], [1])).curve.label == "best_of_n | majority"


def test_each_data_set_model_setting_and_law_has_its_own_curve():
    pool = written((0, 0.5))
    others = [dataclasses.replace(pool.cell, **{name: "other"}) for name in ("dataset", "model", "setting")]
    pools = [pool, *(dataclasses.replace(pool, cell=cell) for cell in others)]
    assert len(replay(pools, [COVERAGE], [1])) == 4
    hotter = dataclasses.replace(pool, law=parse("best_of_n(temperature=2.0)").strategy)
    found = replay([pool, hotter], ["best_of_n | majority", "best_of_n(temperature=2.0) | majority"], [1])
    assert [one.curve.label for one in found] == [
        "best_of_n | majority", "best_of_n(temperature=2.0) | majority", "best_of_n(temperature=2.0) | majority",
    ]  # fmt: skip


def test_groups_have_curves_of_their_own_where_they_are_asked_for():
    pools = [written((i % 2, 0.5), problem=f"p{i}", group=f"{i % 2} operations") for i in range(4)]
    assert only(replay(pools, [COVERAGE], [1])).curve.accuracy[0].value == 0.5
    found = replay(pools, [COVERAGE], [1], by_group=True)
    assert [(one.curve.group, one.curve.accuracy[0].value) for one in found] == [
        ("0 operations", 1.0),
        ("1 operations", 0.0),
    ]


def test_curves_say_what_they_are():
    curve = only(replay([written((0, 0.5), seed=3)], ["best_of_n | best"], [1])).curve
    facts = (curve.kind, curve.role, curve.dataset, curve.model, curve.verifier)
    assert facts == ("replayed", "strategy", "written", "none", "toy(error=0.3)")
    assert curve.seeds == [3]


def test_what_an_oracle_scored_is_an_oracle_where_its_scores_are_used():
    pool = dataclasses.replace(written((0, 0.5)), oracle=True)
    found = replay([pool], ["best_of_n | best", "best_of_n | majority"], [1])
    assert [one.curve.role for one in found] == ["oracle", "strategy"]


ROWS = [
    {"problem": f"p{i}", "reference": "4", "answer": ["4"] * k + ["5"] * (4 - k), "scores": [0.9] * k + [0.1] * (4 - k)}
    for i, k in enumerate((4, 3, 2, 1, 0))
]


def test_a_plan_that_abstains_has_the_share_of_answers_and_of_right_ones_among_them():
    pool = tts.Pool.from_rows(ROWS, task="math")
    (curve,) = pool.replay(["best_of_n | selective(threshold=0.7)"], [4])
    (point,) = points_of([curve])
    assert (point.coverage, point.answered, point.accuracy.value) == pytest.approx((4 / 5, 2 / 4, 2 / 5))
    (nothing,) = points_of(pool.replay(["best_of_n | selective(threshold=2)"], [4]))
    assert (nothing.coverage, nothing.answered) == (0, None)
    (vote,) = points_of(pool.replay(["best_of_n | majority"], [4]))
    assert (vote.coverage, vote.answered) == (None, None)
    assert "coverage" in pool.table([curve])


def test_two_strategies_are_compared_on_a_pool_by_replaying_both(tmp_path):
    study = tts.Pool.from_rows(ROWS, name="own", task="math").save(tmp_path / "store.sqlite")
    rows = study.pairs("best_of_n | best", "best_of_n | majority")
    assert [dict(row.budget) for row in rows] == [{"samples": 1}, {"samples": 2}, {"samples": 4}]
    assert [row.problems for row in rows] == [5, 5, 5]
    assert (rows[0].difference.value, rows[-1].first_accuracy, rows[-1].first_better) == (0, pytest.approx(0.8), 2)
    with pytest.raises(ConfigError, match="both strategies are"):
        study.pairs("best_of_n | majority", "best_of_n | majority")
    with pytest.raises(ConfigError, match="no strategy has that name"):
        study.pairs("best_of_x", "best_of_n | majority")
