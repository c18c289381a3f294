"""Calculated or looked up? Steps on pairs of operands that were held out of training, beside others.

The others are steps of the same sizes whose pair was not held out. A step is counted where the sample's lines before
it are right, with its operands as written. The step is right if its result is that of its operands. A pair counts once
for each problem, with the share of samples that got it right. A countdown is never counted, nor a pair that a
countdown of the training split may have had: those hold nothing out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.pools import Attempt, Pool
from research.pocket.evaluate.problems import Item, is_unseen, may_be_held_out
from research.pocket.evaluate.tables import Entry, Table
from tts.statistics import bootstrap, clustered_mean, ratio
from tts.tasks.arithmetic.expression import OPERATORS, Step, apply
from tts.tasks.arithmetic.lines import read_step

Floats = NDArray[np.float64]
_NOTE = (
    "Steps behind right lines, operands as written, at temperature 0.8; a pair counts once a problem. held out: pairs "
    "of operands that no "
    "worked solution of the training split has. others: pairs of the same kind that were not held out, weighted to "
    "the held-out ones' "
    "operators and numbers of digits. difference: held out less others. 95 % intervals, resampled by problem."
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of operands in a problem.

    Args:
        problem: The number of the problem.
        operator: The operator.
        size: The digits of the larger and of the smaller operand.
        unseen: Whether the pair was held out of training.
        share: The share of samples that got the step right.
    """

    problem: int
    operator: str
    size: tuple[int, int]
    unseen: bool
    share: float


def held_out_tables(pools: Sequence[Pool], intervals: Intervals) -> list[Table]:
    """Return the table of accuracy on held-out pairs and on others, by operator."""
    pairs = list(pairs_of(pools))
    rows: list[list[Entry]] = []
    for name, operators in (*((operator, operator) for operator in OPERATORS), ("all", "".join(OPERATORS))):
        rows.append([name, *_row([pair for pair in pairs if pair.operator in operators], intervals, name)])
    columns = {
        "operator": "operator",
        "held_out_pairs": "held out, pairs",
        "held_out": "held out, right",
        "other_pairs": "others, pairs",
        "other": "others, right",
        "difference": "difference",
    }
    return [Table("held_out_pairs", "Steps on pairs of operands that were held out of training", _NOTE, columns, rows)]


def pairs_of(pools: Sequence[Pool]) -> Iterator[Pair]:
    """Yield the pairs that count."""
    for number, pool in enumerate(pools):
        if pool.item.cell.kind == "countdown":
            continue
        found: dict[Step, list[bool]] = defaultdict(list)
        for attempt in pool.attempts:
            for step in _count(pool.item, attempt):
                result = apply(step.operator, step.left, step.right)
                found[Step(step.left, step.operator, step.right, result)].append(step.result == result)
        for step, right in found.items():
            digits = sorted((len(str(abs(step.left))), len(str(abs(step.right)))), reverse=True)
            yield Pair(number, step.operator, (digits[0], digits[1]), is_unseen(step), sum(right) / len(right))


def _count(item: Item, attempt: Attempt) -> Iterator[Step]:
    """Yield the steps of a sample that count: they follow right lines alone, and may be held out.

    The first wrong step is the last one.
    """
    for line, right in zip(attempt.lines, item.judge(attempt.lines), strict=True):
        step = read_step(line) if line.endswith("\n") else None
        if step is not None and may_be_held_out(step):
            yield step
        if not right:
            return


def _row(pairs: Sequence[Pair], intervals: Intervals, name: str) -> list[Entry]:
    problems = {number: i for i, number in enumerate(sorted({pair.problem for pair in pairs}))}
    sizes = {size: i for i, size in enumerate(sorted({(pair.operator, pair.size) for pair in pairs}))}
    # [held out or not, right or all, P, S]: sums over the pairs of a problem and a size
    sums = np.zeros((2, 2, len(problems), len(sizes)))
    for pair in pairs:
        at = problems[pair.problem], sizes[pair.operator, pair.size]
        sums[int(pair.unseen), 0][at] += pair.share
        sums[int(pair.unseen), 1][at] += 1
    kept = sums[1, 1].any(axis=0) & sums[0, 1].any(axis=0)  # sizes of which there are both
    sums = sums[..., kept]

    def other_accuracy(counts: Floats) -> Floats:
        """Return the accuracy on the others, weighted to the sizes of the held-out pairs."""
        weights = counts @ sums[1, 1]
        share = ratio(counts @ sums[0, 0], counts @ sums[0, 1])
        weights = np.where(np.isnan(share), 0, weights)
        return ratio((weights * np.nan_to_num(share)).sum(axis=-1), weights.sum(axis=-1))

    def difference(counts: Floats) -> Floats:
        return ratio((counts @ sums[1, 0]).sum(axis=-1), (counts @ sums[1, 1]).sum(axis=-1)) - other_accuracy(counts)

    held, size = sums[1, 0].sum(axis=-1), sums[1, 1].sum(axis=-1)
    return [
        int(sums[1, 1].sum()),
        clustered_mean(held, size, rng=intervals.rng("held out", name), bounds=(0, 1)),
        int(sums[0, 1].sum()),
        bootstrap(other_accuracy, len(problems), intervals.rng("others", name)),
        bootstrap(difference, len(problems), intervals.rng("difference", name)),
    ]
