"""Curves from results, and what two of them say of each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.experiments import made
from tts.errors import ConfigError
from tts.experiments.analysis.comparing import (
    amount,
    compare,
    describe_result,
    differences,
    gain,
    pareto_front,
)
from tts.experiments.analysis.curves import AXES, Curve, curves_of
from tts.experiments.study.record import Cell, Result
from tts.statistics import Estimate
from tts.types import Usage

MAJORITY, WEIGHTED = "best_of_n | majority", "best_of_n | weighted"


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def result(
    problem: str, samples: int, *, right: bool | None, seed: int = 0, cost: int | None = None, **changes: object
) -> Result:
    own = {name: changes.pop(name) for name in tuple(changes) if name in Cell.__dataclass_fields__}
    usual = {"setting": "a1b2c3d4e5f6", "strategy": MAJORITY, "budget": {"samples": samples}}
    usage = Usage(generated_tokens=cost or 10 * samples, samples=samples, flops=None, usd=0.0)
    one = made.cell(f"{problem}/{samples}/{seed}", problem=problem, seed=seed, **{**usual, **own})
    return made.result(one, right=right, usage=usage, **changes)


def curve(costs: list[float], means: list[float], *, label: str = "a", num_problems: int = 200, seed: int = 0) -> Curve:
    """A curve whose problems each have a threshold: exactly the stated share is solved at each point, in an order of
    its own.
    """
    order = np.random.default_rng(seed).permutation(num_problems) / num_problems
    shares = (order[None, :] < np.asarray(means)[:, None] - 1e-9).astype(float)
    return made.made_curve(label, shares, costs={"tokens": np.asarray(costs, float)})


def test_a_point_is_the_mean_over_problems_of_their_means_over_seeds():
    results = [
        result("p", 1, right=True, seed=0),
        result("p", 1, right=False, seed=1),
        result("p", 1, right=False, seed=2, cost=40),
        result("q", 1, right=True),
        result("q", 4, right=True),
        result("p", 4, right=True),
    ]
    (found,) = curves_of(iter(results), rng=rng())
    assert [estimate.value for estimate in found.accuracy] == pytest.approx([(1 / 3 + 1) / 2, 1.0])
    assert found.shares == pytest.approx(np.array([[1 / 3, 1], [1, 1]]))
    assert (found.problems, found.seeds, found.label, found.verifier) == (["p", "q"], [0, 1, 2], MAJORITY, "none")
    assert found.costs["generated_tokens"] == pytest.approx([(20 + 10) / 2, 40])
    assert found.costs["samples"] == pytest.approx([1, 4])
    assert [estimate.num for estimate in found.accuracy] == [2, 2]
    # unknown for one result is unknown for the line
    assert set(AXES) - set(found.costs) == {"flops", "kv_bytes", "path_tokens"}


def test_what_ran_differently_is_never_averaged():
    results = [
        result("p", 1, right=True),
        result("p", 1, right=False, model="other"),
        result("p", 1, right=False, setting="ffff"),
        result("p", 1, right=True, verifiers={"main": "process", "guide": "probe"}),
        result("p", 1, right=True, strategy=WEIGHTED),
        result("p", 1, right=True, budget={"tokens": 50}),
        result("p", 1, right=True, dataset="words"),
    ]
    found = curves_of(results, rng=rng())
    assert [one.label for one in found] == [
        f"{MAJORITY}, on toy, with verifier none, by samples, setting a1b2c3d4",
        f"{MAJORITY}, on other",
        f"{MAJORITY}, on toy, with verifier none, by samples, setting ffff",
        f"{MAJORITY}, on toy, with verifier guide: probe, process",
        WEIGHTED,
        f"{MAJORITY}, on toy, with verifier none, by tokens",
        f"{MAJORITY}, on toy, with verifier none, by samples, setting a1b2c3d4",
    ]
    assert [one.dataset for one in found] == ["sums"] * 6 + ["words"]


def test_budgets_that_made_no_difference_are_one_point():
    once = [
        dataclasses.replace(found, stopped_by=reason, usage=dataclasses.replace(found.usage, samples=1))
        for budget, reason in ((1, "done"), (4, "single draws one sample"), (8, "single draws one sample"))
        for problem, right in (("p", budget == 8), ("q", True))
        for found in [result(problem, budget, right=right, cost=10)]
    ]
    (pooled,) = curves_of(once, rng=rng())
    assert [point.value for point in pooled.accuracy] == [pytest.approx(2 / 3)]
    assert pooled.costs["samples"].tolist() == [1]
    cut = [
        dataclasses.replace(one, stopped_by="budget: samples") if one.cell.budget == once[0].cell.budget else one
        for one in once
    ]
    (kept,) = curves_of(cut, rng=rng())
    assert len(kept.accuracy) == 2


def test_lines_are_told_apart_by_no_more_than_they_need():
    found = curves_of([result("p", 1, right=True), result("p", 1, right=True, setting="ffff")], rng=rng())
    assert [one.label for one in found] == [f"{MAJORITY}, setting a1b2c3d4", f"{MAJORITY}, setting ffff"]


def test_groups_are_curves_of_their_own_only_where_asked_for():
    results = [result("p", 1, right=True, group="2 steps"), result("q", 1, right=False, group="3 steps")]
    assert [one.group for one in curves_of(results, rng=rng())] == [None]
    found = curves_of(results, rng=rng(), by_group=True)
    assert [(one.group, one.label, one.accuracy[0].value) for one in found] == [
        ("2 steps", MAJORITY, 1.0),
        ("3 steps", MAJORITY, 0.0),
    ]


def test_failed_runs_are_counted_and_in_no_point():
    results = [result("p", 1, right=True), result("p", 1, right=None, seed=1, error="the server is gone")]
    (found,) = curves_of(results, rng=rng())
    assert (found.failed, found.accuracy[0].value) == (1, 1.0)


def test_what_saw_the_reference_answer_is_an_oracle():
    found = curves_of(
        [result("p", 1, right=True), result("p", 1, right=True, strategy=WEIGHTED, oracle=True)], rng=rng()
    )
    assert [one.role for one in found] == ["strategy", "oracle"]


def test_an_allocator_and_what_it_is_held_against_are_drawn_as_references():
    plans = ("best_of_n | majority", "auto | majority", "beam | best")
    found = curves_of([result("p", 1, right=True, strategy=plan) for plan in plans], rng=rng())
    assert [one.role for one in found] == ["uniform", "allocator", "strategy"]
    found = curves_of([result("p", 1, right=True, strategy=plan) for plan in plans[::2]], rng=rng())
    assert [one.role for one in found] == ["strategy", "strategy"]


def test_an_unfinished_study_has_points_on_different_problems():
    (found,) = curves_of(
        [result("p", 1, right=True), result("q", 1, right=False), result("p", 2, right=True)], rng=rng()
    )
    assert [estimate.num for estimate in found.accuracy] == [2, 1]
    assert found.shares == pytest.approx(np.array([[1, 0], [1, np.nan]]), nan_ok=True)


def test_accuracy_is_refused_where_answers_are_missing():
    results = [result("p", 1, right=True), result("q", 1, right=None), result("r", 1, right=None)]
    with pytest.raises(ConfigError, match=r"answer: 2.*'sums'; accuracy"):
        curves_of(results, rng=rng())


@pytest.mark.parametrize(
    ("results", "cause"),
    [([], "no run is finished"), ([result("p", 1, right=None, error="gone")], "all 1 runs failed")],
)
def test_nothing_to_draw_is_said(results, cause):
    with pytest.raises(ConfigError, match=cause):
        curves_of(results, rng=rng())


def test_an_axis_that_is_unknown_or_no_axis_is_refused():
    one = curve([1, 2], [0.5, 0.6])
    with pytest.raises(ConfigError, match=r"axis.*'usd',.*that.*unknown"):
        one.cost("usd")
    with pytest.raises(ConfigError, match="did you mean tokens"):
        one.cost("token")


def test_a_curve_of_other_shapes_is_refused():
    one = curve([1, 2], [0.5, 0.6])
    with pytest.raises(ConfigError, match=r"shares.*shape \(1, 200\)"):
        dataclasses.replace(one, shares=one.shares[:1])
    with pytest.raises(ConfigError, match="costs has 'tokens'"):
        dataclasses.replace(one, costs={"tokens": np.ones(3)})


# ---- comparing ----


def test_the_front_has_what_nothing_beats_and_no_oracle():
    a, b = curve([1, 10, 100], [0.2, 0.5, 0.5]), curve([1, 5, 50], [0.3, 0.4, 0.7], label="b")
    oracle = dataclasses.replace(curve([1, 2], [0.9, 1.0], label="o"), role="oracle")
    front = pareto_front([a, b, oracle], "tokens")
    assert [(point.cost, round(point.accuracy, 3), point.label) for point in front] == [
        (1, 0.3, "b"),
        (5, 0.4, "b"),
        (10, 0.5, "a"),
        (50, 0.7, "b"),
    ]
    brute = {
        (x, e.value)
        for one in (a, b)
        for x, e in zip(one.costs["tokens"], one.accuracy, strict=True)
        if not any(
            (y <= x and f.value >= e.value and (y, f.value) != (x, e.value))
            for other in (a, b)
            for y, f in zip(other.costs["tokens"], other.accuracy, strict=True)
        )
    }
    assert brute == {(point.cost, point.accuracy) for point in front}


def test_a_curve_that_is_shifted_in_cost_gains_that_factor():
    base = curve([100, 200, 400, 800], [0.2, 0.4, 0.6, 0.8])
    found = gain(curve([40, 80, 160, 320], [0.2, 0.4, 0.6, 0.8]), base, "tokens", rng=rng())
    assert found is not None
    assert found.accuracy == pytest.approx(0.8)
    assert found.ratio.value == pytest.approx(2.5)
    # the same problems are solved at each point
    assert (found.ratio.low, found.ratio.high) == pytest.approx((2.5, 2.5))
    assert not found.at_least
    back = gain(base, curve([40, 80, 160, 320], [0.2, 0.4, 0.6, 0.8]), "tokens", rng=rng(), accuracy=0.5)
    assert back is not None
    assert back.ratio.value == pytest.approx(0.4)
    assert back.cost == pytest.approx(np.sqrt(200 * 400))  # halfway in the logarithm


def test_a_gain_is_uncertain_where_other_problems_are_solved():
    base, other = curve([100, 200, 400], [0.2, 0.4, 0.6]), curve([50, 100, 200], [0.2, 0.4, 0.6], seed=1)
    found = gain(other, base, "tokens", rng=rng(), accuracy=0.5)
    assert found is not None
    assert found.ratio.value == pytest.approx(2)
    assert found.ratio.low < 1.8
    assert found.ratio.high > 2.2


def test_a_gain_is_at_least_so_much_where_the_cheapest_point_is_as_good():
    found = gain(curve([10, 20], [0.7, 0.8]), curve([10, 20, 40], [0.2, 0.4, 0.6]), "tokens", rng=rng())
    assert found is not None
    assert (found.accuracy, found.cost, found.base_cost, found.at_least) == pytest.approx((0.6, 10, 40, True))


def test_there_is_no_gain_at_an_accuracy_that_is_not_reached():
    assert gain(curve([1, 2], [0.2, 0.9]), curve([1, 2], [0.2, 0.4]), "tokens", rng=rng(), accuracy=0.5) is None


def test_order_of_points_and_problems_does_not_matter():
    base, other = curve([100, 200, 400], [0.2, 0.4, 0.6]), curve([50, 100, 200], [0.2, 0.4, 0.6], seed=1)
    turned = dataclasses.replace(
        other,
        costs={"tokens": other.costs["tokens"][::-1]},
        accuracy=other.accuracy[::-1],
        shares=other.shares[::-1, ::-1],
        problems=other.problems[::-1],
    )
    straight, again = (gain(one, base, "tokens", rng=rng()) for one in (other, turned))
    assert straight is not None
    assert again is not None
    assert again.ratio.value == pytest.approx(straight.ratio.value)


def test_costs_of_nothing_have_no_ratio():
    with pytest.raises(ConfigError, match=r"tokens.*0.*point.*'b'"):
        gain(curve([1, 2], [0.1, 0.2]), curve([0, 2], [0.1, 0.2], label="b"), "tokens", rng=rng())


def test_curves_without_a_problem_in_common_are_not_compared():
    one = curve([1, 2], [0.1, 0.2])
    with pytest.raises(ConfigError, match="no problem in common"):
        gain(one, dataclasses.replace(one, problems=[f"other {i}" for i in range(200)]), "tokens", rng=rng())
    with pytest.raises(ConfigError, match="no problem in common"):
        gain(one, dataclasses.replace(one, dataset="words"), "tokens", rng=rng())


def test_differences_are_paired_and_within_the_common_costs():
    base, other = curve([100, 400], [0.2, 0.6]), curve([50, 200, 800], [0.2, 0.5, 0.6])
    found = differences(other, base, "tokens", rng=rng())
    assert [one.cost for one in found] == [100, 200, 400]
    assert [one.value.value for one in found] == pytest.approx([0.35 - 0.2, 0.5 - 0.4, 0.55 - 0.6])
    unpaired = Estimate(0.1, *(0.1 + end for end in (-0.097, 0.097)))  # of two means of 200 at 0.5 and 0.4
    paired = found[1].value
    assert paired.high - paired.low < (unpaired.high - unpaired.low) * 0.7


@pytest.mark.parametrize(
    ("mean", "base_mean", "word"),
    [(1.0, 0.8, "at most 4 times "), (0.8, 1.0, "at least 4 times "), (0.8, 0.8, "4 times ")],
)
def test_points_above_the_accuracy_bound_the_ratio(mean: float, base_mean: float, word: str):
    found = gain(curve([400], [mean]), curve([100], [base_mean]), "tokens", rng=rng())
    assert found is not None
    assert describe_result(found, "tokens").startswith(word)


def test_a_comparison_is_said_in_words():
    flat, steep = curve([100, 10000], [0.5, 0.5], label="flat"), curve([100, 10000], [0.3, 0.7], label="steep")
    oracle = dataclasses.replace(steep, label="pass@k", role="oracle")
    (found,) = compare([flat, steep, oracle], "flat", "tokens", rng=rng())
    assert found.label == "steep"
    assert found.gain is not None
    assert describe_result(found.gain, "tokens") == "10 times [6, 17] the tokens for 50 %"
    assert describe_result(dataclasses.replace(found.gain, accuracy=1.0), "tokens").endswith("the tokens for 100 %")
    turned = gain(flat, steep, "tokens", rng=rng())
    assert turned is not None
    assert describe_result(turned, "tokens") == "at most 0.1 times [0.059, 0.16] the tokens for 50 %"
    assert describe_result(found.differences[-1], "tokens").startswith("+20.0 [+")
    assert describe_result(found.differences[-1], "tokens").endswith("] points at 10k tokens")


def test_an_accuracy_of_zero_is_no_gain():
    never, once = curve([100, 10000], [0.0, 0.0], label="never"), curve([110, 11000], [0.0, 0.0], label="as never")
    (found,) = compare([never, once], "never", "tokens", rng=rng())
    assert found.gain is None
    assert gain(once, never, "tokens", rng=rng(), accuracy=0.0) is None


def test_each_group_is_compared_within_itself():
    curves = [
        dataclasses.replace(curve([1, 2], [0.2, 0.4], label=label), group=group)
        for group in ("x", "y")
        for label in ("a", "b")
    ]
    assert [(one.label, one.group) for one in compare(curves, "a", "tokens", rng=rng())] == [("b", "x"), ("b", "y")]


def test_a_strategy_is_a_baseline_for_curves_that_were_run_alike():
    curves = [
        dataclasses.replace(
            curve([1, 2], [0.2, 0.4], label=f"{strategy}, {model}, by {units}"),
            strategy=strategy,
            model=model,
            units=units,
        )
        for units in ("samples", "tokens")
        for model in ("x", "y")
        for strategy in ("a", "b")
    ]
    compared = compare(
        [*curves[:-2], curves[-1]], "a", "tokens", rng=rng()
    )  # of the last one, nothing was run quite alike
    assert [(one.label, one.base) for one in compared] == [
        ("b, x, by samples", "a, x, by samples"),
        ("b, y, by samples", "a, y, by samples"),
        ("b, x, by tokens", "a, x, by tokens"),
        ("b, y, by tokens", "a, x, by tokens"),
    ]
    (first, *_) = compare(curves, "a, y, by tokens", "tokens", rng=rng())
    assert (first.label, first.base) == ("a, x, by samples", "a, y, by tokens")  # a label is that curve alone


def test_a_baseline_that_nothing_is_called_by_is_refused():
    with pytest.raises(ConfigError, match="baseline is 'aa'"):
        compare([curve([1, 2], [0.2, 0.4])], "aa", "tokens", rng=rng())


@pytest.mark.parametrize(
    ("value", "text"), [(0.0042, "0.0042"), (12, "12"), (1500, "1.5k"), (2e7, "20M"), (3.456e12, "3.46T")]
)
def test_costs_are_written_short(value: float, text: str):
    assert amount(value) == text
