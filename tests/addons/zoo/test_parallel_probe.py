"""Parallel-Probe against a plain simulation of the authors' controller on scripted branches, and on the toy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.repeats import repeats
from tests.support.runs import Solved, check_books, make_run, solve_and_show
from tts.backends.base import RowSet, Sample, SampleRequest
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget

PROBLEM = "10 - 7 + 5 - 20 + 3 + 8 - 2"


def run(plan: str, seed: int = 0, language: ToyLanguage | None = None, budget: Budget | None = None) -> Solved:
    made = make_run(
        PROBLEM, budget or Budget(samples=4000), plan, ToyBackend(language or ToyLanguage(accuracy=0.7)), seed=seed
    )
    end = solve_and_show(made)
    assert end.search is not None
    assert end.solution.error is None
    check_books(end.search)
    return end


class TabledBranches(ToyBackend):
    """Writes a mark of its branch, then a dot in each period; after a cue, the answer that a table has for branch and
    period.
    """

    def __init__(self, table: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.table, self.begun = table, 0

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for index, _ in enumerate(request.rows):
            text, finish = ".", "length"
            if request.text.endswith("A: "):
                branch, period = int(request.text[1 : request.text.index(";")]), request.text.count(".")
                text, finish = self.table[branch][period], "answer"
            elif not request.text:
                text, self.begun = f"b{self.begun};", self.begun + 1
            handle = request.handle.child()
            self.counters.generated_tokens += 1
            rows.resolve(index, Sample(text, (), (), finish, handle, 1))  # type: ignore[arg-type]
        return rows


def simulated(
    table: Sequence[Sequence[str]], n: int, stable: int, warmup: int, differing: int, share: float, least: int
) -> tuple[str, int, set[int]]:
    """Return the majority, the period and the pruned branches of the authors' controller on a table of answers,
    [branches, periods].
    """
    pruned: set[int] = set()
    streak, before = 1, None
    off = [0] * n
    for period in range(1, len(table[0]) + 1):
        now = [row[period - 1] for row in table]
        voters = [i for i in range(n) if i not in pruned]
        leader, count = Counter(now[i] for i in voters).most_common(1)[0]
        streak = streak + 1 if leader == before else 1
        before = leader
        if period - 1 < warmup or period == 1:  # the first probe is no trigger
            continue
        if count / len(voters) >= share:
            for i in voters:
                off[i] = off[i] + 1 if now[i] != leader else 0
            for i in voters:
                if off[i] >= differing and n - len(pruned) > least:
                    pruned.add(i)
        if streak >= stable:
            return leader, period, pruned
    return before or "", len(table[0]), pruned


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("stable", "warmup", "differing", "share", "least"), [(3, 2, 2, 0.5, 2), (4, 0, 1, 0.3, 1), (2, 4, 3, 0.6, 3)]
)
def test_it_decides_as_the_authors_controller_on_the_same_answers(
    seed: int, stable: int, warmup: int, differing: int, share: float, least: int
) -> None:
    """Branches that say what a table says: a model of pieces without end, whose probes have the answer of their branch
    and period.
    """
    rng = np.random.default_rng(seed)
    n, periods = 6, 12
    table = [
        [str(rng.choice(["3", "4", "5"], p=[0.5, 0.3, 0.2])) for _ in range(periods)] + ["3"] * 12 for _ in range(n)
    ]
    leader, period, pruned = simulated(table, n, stable, warmup, differing, share, least)
    backend = TabledBranches(table)
    plan = (
        f"parallel_probe(n={n}, every=1, stable={stable}, warmup={warmup}, differing={differing}, share={share}, "
        f"least={least}, "
        r"cue='\nA: ', tokens=4)"
    )
    end = solve_and_show(make_run("1 + 1", Budget(samples=1000), plan, backend))
    found = end.solution
    assert found.error is None
    assert max(c.trajectory.full_text.count(".") for c in found.candidates) == period - 1
    votes = Counter(c.answer for c in found.candidates)
    expected = Counter(table[i][period - 1] for i in range(n) if i not in pruned)
    assert votes == expected
    assert votes[found.answer] == votes[leader]


def test_branches_that_agree_end_early_and_cost_less_than_whole_ones() -> None:
    sure = ToyLanguage(accuracy=1.0)
    early, whole = (
        run("parallel_probe(n=6, every=5, stable=2, warmup=1, tokens=1)", language=sure),
        run("best_of_n(n=6)", language=sure),
    )
    assert early.solution.answer == whole.solution.answer
    never = run("parallel_probe(n=6, every=5, stable=1000, warmup=1000, tokens=1)", language=sure)
    texts = sorted(c.trajectory.full_text for c in never.search.candidates)  # type: ignore[union-attr]
    assert texts == sorted(c.trajectory.full_text for c in whole.search.candidates)  # type: ignore[union-attr]


@pytest.mark.slow
@repeats(60, 600, "seeds")
def test_without_a_stop_the_branches_have_the_law_of_plain_samples(seeds: int) -> None:
    probed = [run("parallel_probe(n=4, every=4, stable=1000, warmup=1000, tokens=1)", seed) for seed in range(seeds)]
    plain = [run("best_of_n(n=4)", 10_000 + seed) for seed in range(seeds)]
    shares = [np.mean([c.answer == "-3" for end in ends for c in end.search.candidates]) for ends in (probed, plain)]  # type: ignore[union-attr]
    chance = float(np.mean(shares))
    assert abs(shares[0] - shares[1]) < 4 * math.sqrt(2 * chance * (1 - chance) / (4 * seeds))


def test_where_the_budget_ends_it_the_last_probes_vote() -> None:
    end = run("parallel_probe(n=6, every=4, stable=1000, warmup=1000, tokens=1)", budget=Budget(tokens=200))
    assert end.solution.candidates
    assert end.solution.usage.tokens <= 200


def test_a_task_without_a_cue_is_refused_before_anything_is_spent() -> None:
    asked: list[Any] = []
    with pytest.raises(tts.ConfigError, match="cue is not given"):
        tts.solve(
            "What?",
            tts.Budget(samples=9),
            backend=lambda ask: asked.append(ask) or "x",
            task="text",
            strategy="parallel_probe(n=2)",
        )
    assert not asked


@pytest.mark.parametrize("seed", range(8))
def test_branches_whose_first_row_failed_are_neither_probed_nor_dropped(seed: int) -> None:
    backend = ChaosBackend(ToyBackend(ToyLanguage(accuracy=0.5)), seed=seed, fail=0.4)
    plan = "parallel_probe(n=6, every=3, stable=2, warmup=1, differing=1, least=1, tokens=1)"
    end = solve_and_show(make_run(PROBLEM, Budget(tokens=900), plan, backend, seed=seed))
    assert end.search is not None
    assert end.solution.error is None
    assert 0 not in end.search.tree.pruned
