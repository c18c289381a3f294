"""What a newcomer gets: `solve` and `solve_many` without options, against one sample and a vote.

The baselines have the FLOPs that the default strategy spent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.problems import Item
from research.pocket.gates.gates import Gate, format_estimate
from tts.budget.budget import Budget
from tts.solver.solver import Solver
from tts.types import Solution

SAMPLES_WORTH = 8  # of a problem's budget


def gates(solver: Solver, items: Sequence[Item], what: str, intervals: Intervals, seed: int = 0) -> list[Gate]:
    """Return the gates of one task.

    Both baselines are given, problem by problem, at most the mean FLOPs that the default strategy spent. Problems with
    a
    budget each are solved in one call, which gives what `solve` gives of each: results do not depend on the batch.

    Args:
        solver: The solver of the pair, without options.
        items: The problems.
        what: The name of the problems.
        intervals: What makes estimates.
        seed: The seed of the samples.
    """
    problems = [item.problem for item in items]
    single = solver.solve_many(problems, each=Budget(samples=1), strategy="single", seed=seed)
    each = SAMPLES_WORTH * float(np.mean([one.usage.flops or 0 for one in single]))
    alone = solver.solve_many(problems, each=Budget(flops=each), seed=seed)
    together = solver.solve_many(problems, Budget(flops=each * len(problems)), seed=seed)
    rows: list[Gate] = []
    for name, solutions in (("solve", alone), ("solve_many", together)):
        spent = float(np.mean([one.usage.flops or 0 for one in solutions]))
        voted = solver.solve_many(problems, each=Budget(flops=spent), strategy="best_of_n | majority", seed=seed)
        mine = _right_shares(solver, items, solutions)
        for base, others in (("one sample", single), ("best_of_n | majority at equal FLOPs", voted)):
            theirs = _right_shares(solver, items, others)
            gained = intervals.difference(mine, theirs, "gate", "newcomer", what, name, base)
            text = (
                f"{np.mean(mine):.3f} against {np.mean(theirs):.3f}, {format_estimate(gained)}, {len(items)} problems"
            )
            rows.append(Gate(f"{name} beats {base}, {what}", text, gained.low > 0))
    return rows


def _right_shares(solver: Solver, items: Sequence[Item], found: Sequence[Solution]) -> list[float]:
    from tts import tasks

    task = tasks.get(items[0].problem.task or "pocket")
    return [
        float(one.answer is not None and task.equivalent(one.answer, item.problem.answer or ""))
        for item, one in zip(items, found, strict=True)
    ]
