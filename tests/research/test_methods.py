"""The comparison of methods (`research/methods/__main__.py`): what it decides and says of given figures."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research.methods", reason="research is no part of the wheel")

from research.methods import choosing, plans, running, writing
from research.methods.choosing import Choices, Level, Tried
from research.methods.claims import FAILS, HOLDS, HOLDS_IN_THE_MEAN, UNSEEN, Claim, claims, judge_factor
from research.methods.measuring import Measured, Names, Row, _add_differences
from tts.experiments.analysis.curves import Curve, accuracies, curves_of
from tts.experiments.study.record import Cell, Result
from tts.search.plan import parse
from tts.statistics import Estimate
from tts.types import Usage

ROOT = Path(__file__).parents[2]
PROBLEMS = 200
SIZES = {**dict.fromkeys([*plans.REPLAYED, "random choice", "pass@k"], (1, 2, 4, 8, 16, 32))}


def level(operations: int, one: float, vote: float, coverage: float) -> Level:
    return Level(
        operations=operations,
        problems=30,
        one=one,
        vote=vote,
        coverage=coverage,
        generated=10.0 * operations,
        total=90.0,
    )


def curve_of(name: str, solved: Sequence[float], cost: Sequence[float], kind: str) -> Curve:
    """Return a curve of a method that solves the first problems, as large a share of them as is given at each point."""
    shares = np.array([np.arange(PROBLEMS) < share * PROBLEMS for share in solved], float)
    costs = {axis: np.array(cost, float) for axis in ("tokens", "generated_tokens", "samples", "flops")}
    names = [str(i) for i in range(PROBLEMS)]
    return Curve(
        label=name,
        dataset="sums",
        model="pocket",
        costs=costs,
        accuracy=accuracies(shares, np.random.default_rng(0)),
        shares=shares,
        problems=names,
        seeds=[0],
        kind=kind,  # pyright: ignore[reportArgumentType]
    )


def measured(solved: Mapping[str, Sequence[float]], kept: Mapping[str, float], calls: Mapping[str, float]) -> Measured:
    """Return a comparison in which methods solve as many problems as is said, at budgets of one token a sample."""
    curves: dict[str, Curve] = {}
    rows: list[Row] = []
    for name in [*SIZES, *(name for of in plans.PANELS.values() for name in of)]:
        sizes, kind = SIZES.get(name, plans.BUDGETS), "replayed" if name in SIZES else "live"
        shares = solved.get(name, [0.3 + 0.05 * i for i in range(len(sizes))])
        curves[name] = curve_of(name, shares, sizes, kind)
        for i, size in enumerate(sizes):
            rows.append(
                Row(
                    name=name,
                    size=size,
                    kind=kind,
                    accuracy=curves[name].accuracy[i],
                    generated=size,
                    verifier=0.0,
                    total=size,
                    calls=calls.get(name, 1.0) * size,
                    limit=2 * size if kind == "live" else None,
                    stops={"done": 3},
                )
            )
    live = {
        (name, size): {str(i): tokens for i in range(PROBLEMS)}
        for name, tokens in kept.items()
        for size in plans.BUDGETS
    }
    return Measured(
        rows=_add_differences(rows, curves),
        curves=curves,
        kept=live,
        copies={("ets", 16): Estimate(0.7, 0.5, 0.9)},
        problems=PROBLEMS,
        seeds=1,
    )


def verdicts(of: Measured) -> list[str]:
    return [claim.verdict for claim in claims(of)]


def test_the_range_is_where_a_search_has_something_to_find() -> None:
    easy, good, hopeless, agreed = (
        level(1, 0.9, 0.9, 1.0),
        level(3, 0.6, 0.7, 0.9),
        level(9, 0.1, 0.2, 0.5),
        level(5, 0.5, 0.6, 0.7),
    )
    choices = Choices(levels=[easy, good, hopeless, agreed])
    assert choices.operations == [3]
    assert choices.sample == 30
    assert choices.budgets([1, 4]) == {"generated_tokens": [30, 120]}


def test_the_most_accurate_plan_is_taken_and_the_first_among_equals(tmp_path: Path) -> None:
    tried = [
        Tried(plan=plan, accuracy=Estimate(value, 0, 1), generated=1, total=2)
        for plan, value in (("a", 0.5), ("b", 0.6), ("c", 0.6))
    ]
    choices = Choices(levels=[level(3, 0.6, 0.7, 0.9)], problems=4, seeds=2, tried={"beam": tried})
    assert choices.chosen["beam"] == "b"
    choices.save(tmp_path)
    assert Choices.load(tmp_path) == choices


def test_every_plan_of_the_grids_is_one_and_every_method_has_a_panel() -> None:
    first = plans.first_grids()
    chosen = {name: of[0] for name, of in first.items()}
    grids = {**first, **plans.second_grids(chosen), **plans.self_evaluated_grids()}
    assert {*plans.LIVE, *plans.add_variants({name: of[0] for name, of in grids.items()})} == {
        name for of in plans.PANELS.values() for name in of
    }
    for of in grids.values():
        assert len({str(parse(plan)) for plan in of}) == len(of) > 1


def test_a_plan_is_found_by_its_canonical_text() -> None:
    named = {"a_star | best": 0, "a_star(branching=2) | best": 1}
    assert choosing.canonical_name("a_star(branching=4, edge_cost='drop')", named) == "a_star | best"
    assert choosing.canonical_name("a_star(branching=2)", named) == "a_star(branching=2) | best"
    names = Names({"beam | best": "beam", "a_star(branching=2)": "a_star"})
    assert [names[name] for name in ("a_star(branching=2) | best", "beam | best")] == ["a_star", "beam"]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (None, FAILS),
        (Estimate(2.9, 2, 5), FAILS),
        (Estimate(3.5, 2, 5), HOLDS_IN_THE_MEAN),
        (Estimate(4.0, 3, 5), HOLDS),
    ],
)
def test_a_factor_is_reached_by_its_interval_or_in_the_mean(found: Estimate | None, verdict: str) -> None:
    assert judge_factor(3.0, found) == verdict


def test_claims_hold_where_the_figures_say_so() -> None:
    cheap, dear = [0.6, 0.6, 0.6, 0.6, 0.6], [0.2, 0.3, 0.4, 0.5, 0.6]
    falling, steady = [0.3, 0.5, 0.5, 0.45, 0.4, 0.3], [0.3, 0.5, 0.5, 0.5, 0.5, 0.5]
    good = {
        "a_star": cheap,
        "particle_filter": cheap,
        "beam": dear,
        "dvts": dear,
        "best": falling,
        "best of majority": steady,
    }
    kept = {"rebase": 20.0, "ets": 10.0}
    assert verdicts(measured(good, kept, {"a_star": 0.5})) == [HOLDS, HOLDS_IN_THE_MEAN, *[HOLDS] * 5, UNSEEN, HOLDS]
    assert verdicts(measured(good, kept, {"a_star": 2.0}))[1] == FAILS
    assert (
        verdicts(measured({**good, "ets": [0.1] * 5, "rebase": [0.6] * 5}, {"rebase": 11.0, "ets": 10.0}, {}))[4:6]
        == [FAILS] * 2
    )
    assert verdicts(measured({**good, "best of majority": falling}, kept, {}))[-1] == FAILS
    assert verdicts(measured({**good, "best": steady}, kept, {}))[-1] == UNSEEN


def test_differences_are_to_the_better_baseline_at_the_same_budget_and_corrected_over_all_methods() -> None:
    better = {"best_of_n": [0.3, 0.35, 0.4, 0.3, 0.2], "best_of_n, best": [0.1, 0.2, 0.3, 0.45, 0.5]}
    made = measured({"beam": [0.3, 0.35, 0.4, 0.45, 0.6], "weighted": [0.2] * 6, **better}, {}, {})
    beam = made.rows_of("beam")
    assert [round(row.difference.mean.value, 9) for row in beam if row.difference] == [0, 0, 0, 0, 0.1]
    assert beam[-1].difference is not None
    every = [row for row in made.rows if row.difference is not None]
    smaller = sum(row.difference.p < beam[-1].difference.p for row in every if row.difference is not None)
    assert beam[-1].p >= (len(every) - smaller) * beam[-1].difference.p - 1e-12
    assert [round(row.difference.mean.value, 9) for row in made.rows_of("best_of_n") if row.difference] == [
        0.1,
        0.15,
        0.2,
        0.1,
        0.0,
    ]
    assert all(row.difference is None for row in made.rows_of("weighted"))


def test_the_page_says_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    tried = {
        name: [Tried(plan="single", accuracy=Estimate(0.5, 0, 1), generated=1, total=2)] for name in ("beam", "ets")
    }
    choices = Choices(levels=[level(3, 0.6, 0.7, 0.9), level(4, 0.6, 0.7, 0.9)], problems=4, seeds=2, tried=tried)
    writing.write(choices, measured({}, {"rebase": 20.0, "ets": 10.0}, {}), tmp_path)
    page = (tmp_path / "methods.md").read_text()
    assert "expressions of 3 to 4 operations" in page
    assert page.count("| beam | live |") == len(plans.BUDGETS)
    assert page.count("| weighted | replayed |") == 6
    assert "| 70 [50, 90] % |" in page
    assert "| mcts | 50.0 % | 1.00 [1.00, 1.00] |" in page
    assert "| beam | 4 | 50% | done 100% |" in page
    for name in writing.FIGURES.values():
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.svg").stat().st_size > 10_000


@pytest.mark.slow
def test_the_comparison_runs_from_nothing_to_its_page(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    common = ["--store", str(tmp_path / "s.sqlite"), "--out", str(tmp_path), "--jobs", "1"]
    chosen = dataclasses.replace(Choices(levels=[level(3, 0.6, 0.7, 0.9)]))
    chosen.save(tmp_path)
    for options in (["--choose-parameters", "--limit", "1", "--seeds", "1"], ["--limit", "2", "--seeds", "1"]):
        command = [sys.executable, "-m", "research.methods", *options, *common]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert "| particle_filter | live | 16 |" in (tmp_path / "methods.md").read_text()


def test_a_claim_is_shown_with_its_figures() -> None:
    assert list(writing._claims([Claim("It rains", FAILS, ["a", "b"])])) == [
        "- It rains: **does not hold**.",
        "  - a",
        "  - b",
    ]


def test_a_row_of_each_budget_is_kept_where_budgets_made_no_difference() -> None:
    results = [
        Result(
            cell=Cell(
                key=f"{problem}/{limit}",
                dataset="sums",
                problem=problem,
                model="toy",
                setting="a1b2c3d4e5f6",
                strategy="single",
                budget={"generated_tokens": limit},
                seed=0,
            ),
            answer="1",
            right=problem == "p",
            confidence=1.0,
            stopped_by="single draws one sample",
            usage=Usage(generated_tokens=10, samples=1, flops=None, usd=0.0),
        )
        for limit in (40, 10, 20)
        for problem in ("p", "q")
    ]
    (pooled,) = curves_of(results, rng=np.random.default_rng(0))
    assert len(pooled.accuracy) == 1
    found = running.curves_by_budget(results)
    assert list(found) == [("single", "toy")]
    curve = found["single", "toy"]
    assert [point.value for point in curve.accuracy] == [0.5, 0.5, 0.5]
    assert curve.shares.tolist() == [[1.0, 0.0]] * 3
    assert curve.costs["generated_tokens"].tolist() == [10.0, 10.0, 10.0]
