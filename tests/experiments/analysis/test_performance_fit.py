"""A performance model from recorded pools: monotone curves of plain sampling, and what cannot be fitted is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from tests.experiments.pools import LANGUAGE, live, result_of, sums
from tts.allocator.difficulty import RATES
from tts.allocator.performance import PerformanceModel, costs_by_rate
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget, Rates
from tts.errors import ConfigError
from tts.experiments.analysis.performance_fit import PerformanceData
from tts.experiments.study.record import Result
from tts.solver.solver import Solver
from tts.types import Problem


@pytest.mark.slow
def test_a_study_of_pools_becomes_a_model_that_survives_its_file():
    results = live("best_of_n", 8, sums(24))
    model = PerformanceData.of(results).fit(model="toy", task="arithmetic", source="sums")
    assert model.problems == 24
    # scores cost as much as samples, and bring less
    assert list(model.curves) == ["best_of_n | majority", "best_of_n | weighted"]
    for curve in model.curves.values():
        assert curve.sizes.tolist() == [1, 2, 4, 8]
        assert (np.diff(curve.sizes) > 0).all()
        assert (np.diff(curve.accuracy, axis=0) >= -1e-5).all()
        assert (np.diff(curve.accuracy, axis=1) >= -1e-5).all()
    easy = model.curves["best_of_n | majority"].accuracy[-1, -1]
    assert easy > 0.8
    read = PerformanceModel.from_json(model.to_json())
    assert read.population.weight == pytest.approx(model.population.weight, abs=1e-5)
    for text, curve in model.curves.items():
        assert read.curves[text].accuracy == pytest.approx(curve.accuracy, abs=1e-5)


def test_too_few_problems_are_refused():
    with pytest.raises(ConfigError, match=r"pools.*8.*20"):
        PerformanceData.of(live("best_of_n", 4))


def test_pools_of_several_models_are_refused():
    first, *rest = live("best_of_n", 2)
    other = dataclasses.replace(first, cell=dataclasses.replace(first.cell, key="other", model="other"))
    with pytest.raises(ConfigError, match=r"2.*settings,.*model"):
        PerformanceData.of([first, other, *rest])


@pytest.mark.slow
def test_predictions_for_problems_held_out_are_calibrated():
    found = PerformanceData.of(live("best_of_n", 8, sums(40))).held_out()
    ruled = {f"best_of_n(n={n}) | sprt(preset='consol') | majority" for n in (4, 8)}
    assert {one.strategy for one in found} == {"best_of_n | weighted", "best_of_n | majority", *ruled}
    for one in found:
        assert one.sizes == (1, 8) or one.strategy in ruled
        assert one.predicted == pytest.approx(one.measured, abs=0.06)
        assert one.error < (0.25 if one.strategy in ruled else 0.15)  # one size alone: groups of four outcomes


@pytest.mark.slow
def test_a_better_first_sample_is_drawn_first_and_counted_in_every_curve():
    problems = sums(24)
    pools, greedy = live("best_of_n", 4, problems), live("single(temperature=0.0)", 1, problems)
    plain, begun = PerformanceData.of(pools), PerformanceData.of([*pools, *greedy])
    assert plain.first is None
    assert begun.first == 0.0
    assert list(begun.shares) == ["best_of_n | majority"]  # greedy samples had no score
    _, right = begun.shares["best_of_n | majority"]
    alone = [one.right for one in greedy if one.cell.seed == 0]
    assert right[:, 0].tolist() == [float(one) for one in alone]
    assert begun.fit(model="toy", task="arithmetic", source="sums").first == 0.0


@pytest.mark.slow
def test_budgets_that_buy_no_more_are_one_size():
    problems = sums(24)
    small, same = live("beam(n=2, branching=2)", 4, problems), live("beam(n=2, branching=2)", 4, problems)
    again = [dataclasses.replace(one, cell=dataclasses.replace(one.cell, budget={"samples": 5})) for one in same]
    found = PerformanceData.of([*live("best_of_n", 4, problems), *small, *again])
    [text] = [text for text in found.shares if text.startswith("beam")]
    sizes, right = found.shares[text]
    assert sizes.shape == (1,)
    assert right.shape == (24, 1)


@pytest.mark.slow
def test_what_a_search_was_allowed_is_kept_beside_what_it_spent():
    problems = sums(24)
    search = [
        dataclasses.replace(one, cell=dataclasses.replace(one.cell, budget={"tokens": 900.0}))
        for one in live("beam(n=2, branching=2)", 4, problems)
    ]
    found = PerformanceData.of([*live("best_of_n", 4, problems), *search])
    [text] = [text for text in found.limits if text.startswith("beam")]
    dearest = max(one.usage.tokens for one in search)
    assert dearest * 1.25 < 900
    assert found.limits[text] == pytest.approx([dearest * 1.25 / found.tokens]), (
        "no problem needed all that it was allowed"
    )
    tight = [
        dataclasses.replace(one, cell=dataclasses.replace(one.cell, budget={"tokens": float(dearest)}))
        for one in search
    ]
    assert PerformanceData.of([*live("best_of_n", 4, problems), *tight]).limits[text] == pytest.approx(
        [dearest / found.tokens]
    )
    assert (found.limits[text] >= found.shares[text][0]).all()
    counted = PerformanceData.of([*live("best_of_n", 4, problems), *live("beam(n=2, branching=2)", 4, problems)])
    assert text not in counted.limits, "samples are no tokens"


@pytest.mark.slow
def test_a_search_that_stops_early_on_easy_problems_costs_more_on_hard_ones():
    """One that spends 400 tokens on the harder half, and 100 on the easier one."""
    problems = sums(24)
    pools, search = live("best_of_n", 8, problems), live("beam(n=2, branching=2)", 4, problems)
    share = [np.mean([one.right is True for one in pool.drawn or ()]) for pool in pools]
    cost = np.where(share < np.median(share), 400, 100)
    search = [
        dataclasses.replace(
            one, usage=dataclasses.replace(one.usage, generated_tokens=int(each), verifier_tokens=0, prompt_tokens=0)
        )
        for one, each in zip(search, cost, strict=True)
    ]
    data = PerformanceData.of([*pools, *search])
    population, curves = data._fit_rows(np.arange(24), np.random.default_rng(0))
    [searched] = [curve for text, curve in curves.items() if text.startswith("beam")]
    assert searched.costs.shape == searched.accuracy.shape
    assert searched.costs[2, 0] > 1.5 * searched.costs[-3, 0]
    kept = dataclasses.replace(
        data.fit(model="toy", task="arithmetic", source="sums"), curves={**curves}, population=population
    )
    read = PerformanceModel.from_json(kept.to_json())
    for text, curve in read.curves.items():
        found = read.cost(text)
        assert (found is None) == (curve.costs is None)
        if found is not None:
            sizes, _ = read.table(text)
            assert found[:, 0].tolist() == [0.0] * len(found)
            assert found[:, -1] == pytest.approx(sizes[-1] * curve.costs[:, -1] / curve.sizes[-1])


def test_costs_by_success_rate_are_those_of_problems_with_that_rate():
    at = np.searchsorted(RATES, [0.1, 0.9])
    posterior = np.zeros((4, len(RATES)))
    posterior[[0, 1], at[0]] = posterior[[2, 3], at[1]] = 1.0
    spent = np.array([[8.0], [12.0], [2.0], [np.nan]])
    found = costs_by_rate(posterior, spent, plain=np.array([1.0, 1.0, 1.0, 50.0]))
    assert found[at[0], 0] == pytest.approx(10.0, rel=0.05)
    assert found[at[1], 0] == pytest.approx(2.0, rel=0.05)
    twice = costs_by_rate(posterior, spent, plain=np.array([2.0, 2.0, 1.0, 50.0]))
    assert twice[at[0], 0] == pytest.approx(5.0, rel=0.05), "in samples of such problems"


@pytest.mark.slow
def test_auto_is_none_of_the_strategies_that_it_chooses_among():
    problems = sums(24)
    found = PerformanceData.of([*live("best_of_n", 4, problems), *live("auto", 4, problems)])
    assert not [text for text in found.shares if text.startswith("auto")]


@pytest.mark.slow
def test_budgets_of_thoughts_are_plans_of_a_performance_model(tmp_path):
    """A model that thinks over and over what one round of 12 tokens has found."""
    problems = [
        dataclasses.replace(one, prompt=f"{i} + 7 - {i % 5}", answer=str(i + 7 - i % 5))
        for i, one in enumerate(sums(24))
    ]
    language = ToyLanguage(accuracy=0.8, thoughts=True, again=0.9, better=1.0)
    results = live("best_of_n", 4, problems, verifier=None, language=language)
    for samples in (1, 4, 16):
        results += live("budget_forcing(thought_tokens=12)", samples, problems, verifier=None, language=language)
    fitted = PerformanceData.of(results).fit(model="toy", task="arithmetic", source="sums")
    forced = fitted.curves["budget_forcing(thought_tokens=12) | majority"]
    assert forced.sizes[0] < 0.3  # of a plain sample
    name = str(tmp_path / "thoughts.json")
    fitted.save(name)
    with Solver(ToyBackend(language), {}, task="arithmetic", strategy=f"auto(model={name!r}) | majority") as solver:
        ends = solver.solve_many(problems[:4], each=Budget(tokens=800), seed=3)
    assert any("budget_forcing" in line for end in ends for line in end.trace.reasons)
    assert all(end.usage.tokens <= 800 for end in ends)


def priced(problems: Sequence[Problem], unit: float = 10**6) -> list[Result]:
    """Return pools of the policy, and runs of a model that is always right and costs ten times as much a token."""
    results: list[Result] = []
    models = {"policy": ToyBackend(LANGUAGE), "large": ToyBackend(ToyLanguage(accuracy=1.0))}
    for backend, price in zip(models.values(), (unit, 10 * unit), strict=True):
        backend.rates = Rates(flops=2, usd_in=0, usd_reused=0, usd_out=int(price)) if unit else Rates(flops=2)
    with Solver(models, {}, task="arithmetic") as solver:
        for plan, samples in (("best_of_n", 4), ("best_of_n(writer='large')", 1), ("best_of_n(writer='large')", 2)):
            solutions = solver.solve_many(problems, each=Budget(samples=samples), strategy=plan)
            results += [result_of(*pair, {"samples": samples}, None) for pair in zip(problems, solutions, strict=True)]
    return results


def test_models_beside_the_policy_are_compared_by_what_they_cost():
    problems = sums(24)
    results = priced(problems)
    data = PerformanceData.of(results)
    fitted = data.fit(model="toy", task="arithmetic", source="sums", models={"policy": "toy", "large": "big"})
    assert (fitted.unit, fitted.models) == ("usd", {"large": "big"})
    large = fitted.curves["best_of_n(writer='large') | majority"]
    assert large.sizes == pytest.approx([10, 20], rel=0.1), "in samples of the policy, which writes as long"
    assert large.accuracy.min() > 0.95
    assert next(iter(fitted.curves)) == "best_of_n | majority"
    assert PerformanceData.of(results, unit="tokens").shares["best_of_n(writer='large') | majority"][
        0
    ] == pytest.approx([1, 2], rel=0.1)


def test_models_without_prices_are_not_compared_in_dollars():
    with pytest.raises(ConfigError, match=r"cost.*compared"):
        PerformanceData.of(priced(sums(24), unit=0))
    with pytest.raises(ConfigError, match=r"unit.*'seconds',.*'tokens'"):
        PerformanceData.of([], unit="seconds")
