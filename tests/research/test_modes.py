"""Short and full thought of simulated thinkers: hindsight by enumeration, budgets that are kept, and searches that are
not cut short.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

import tts
from research.allocation import modes
from research.allocation.modes import (
    ESCALATION,
    LONGEST,
    Kind,
    World,
    fit_modes,
    least_tokens,
    outcome,
    ratio,
    vote_accuracy,
)

WORLD = World("test", (Kind((0.97, 0.98), (150, 1500)), Kind((0.1, 0.9), (200, 6000))), (0.5, 0.5))


def test_hindsight_is_the_cheapest_mixture_of_options() -> None:
    options = [[(100.0, 0.5), (300.0, 0.9), (250.0, 0.6)], [(200.0, 0.1), (1000.0, 0.8)]]
    shares = [0.4, 0.6]
    for accuracy in (0.1, 0.2, 0.36, 0.5, 0.84):
        best = np.inf
        grid = np.linspace(0, 1, 41)
        for a, b in itertools.combinations([(0.0, 0.0), *options[0]], 2):
            for c, d in itertools.combinations([(0.0, 0.0), *options[1]], 2):
                for s, t in itertools.product(grid, grid):
                    reached = shares[0] * ((1 - s) * a[1] + s * b[1]) + shares[1] * ((1 - t) * c[1] + t * d[1])
                    cost = shares[0] * ((1 - s) * a[0] + s * b[0]) + shares[1] * ((1 - t) * c[0] + t * d[0])
                    if reached >= accuracy - 1e-9:
                        best = min(best, cost)
        least = least_tokens(options, shares, accuracy)
        assert least <= best + 1e-9
        assert least == pytest.approx(best, rel=0.06), "the grid has steps of a fortieth"
    assert np.isnan(least_tokens(options, shares, 0.9))


def test_the_accuracy_of_a_vote_is_that_of_its_law() -> None:
    exact = 0.0
    for answers in itertools.product(range(4), repeat=3):
        chance = float(np.prod([0.4 if answer == 0 else 0.2 for answer in answers]))
        counts = np.bincount(answers, minlength=4)
        exact += chance * (counts[0] == counts.max()) / (counts == counts.max()).sum()
    assert vote_accuracy(0.4, 3, 3) == pytest.approx(exact, abs=4 * 0.5 / 4000**0.5)


def test_searches_under_a_total_are_not_all_cut_short(tmp_path: Path) -> None:
    """The total pays a full thought for a part of the hard problems: these are solved, where an even division would
    solve none.
    """
    file = tmp_path / "modes.json"
    fit_modes(WORLD, WORLD.problems(60, 1000), 0).save(file)
    given = WORLD.problems(60, 1)
    total = 60 * 2200  # an even division has 4,000 tokens for each hard problem, and a full thought takes 6,000
    with tts.Solver({"policy": WORLD.backend(0), "full": WORLD.backend(1)}, {}, task="math") as solver:
        solutions = solver.solve_many(
            given, tts.Budget(tokens=total), strategy=f"auto(model={str(file)!r}) | majority", seed=0
        )
    assert sum(s.usage.tokens for s in solutions) <= total
    hard = [s.answer == p.answer for s, p in zip(solutions, given, strict=True) if str(p.prompt).endswith("1")]
    assert sum(hard) >= 0.4 * total / 6600


def test_a_cascade_of_modes_keeps_its_budget_and_is_near_hindsight() -> None:
    found = []
    with tts.Solver({"policy": WORLD.backend(0), "full": WORLD.backend(1)}, {}, task="math") as solver:
        for seed in range(4):
            given = WORLD.problems(100, seed)
            solutions = solver.solve_many(
                given, each=tts.Budget(samples=3, tokens=LONGEST), strategy=ESCALATION, seed=seed
            )
            assert all(s.usage.tokens <= LONGEST and s.usage.samples <= 3 for s in solutions)
            assert {s.usage.samples for s in solutions} == {2, 3}
            found.append(outcome(WORLD, given, solutions))
    times, error = ratio(WORLD, found)
    assert times <= 1.1 + 4 * error


@pytest.mark.slow
def test_the_command_has_a_row_for_each_method_and_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "modes.md"
    monkeypatch.setattr("sys.argv", ["modes", "--problems", "24", "--seeds", "2", "--out", str(out)])
    modes.main()
    page = out.read_text(encoding="utf-8")
    assert page.count("\n| one short sample | ") == page.count("\n| `cascade` | ") == len(modes.WORLDS)
    assert page.count("\n| `auto`, ") == 2 * len(modes.WORLDS)
