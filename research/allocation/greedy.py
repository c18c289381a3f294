"""Division of a total by marginal gains: the next unit goes to the problem that it helps most.

Idea: where a problem's gains fall from unit to unit, taking the greatest gain of all, again and again, is optimal.
Where gains do not fall (a second vote alone never changes a majority), their isotonic regression replaces them. The
regression has the slopes of the least concave curve above the sums of the gains. Then greedy is optimal but for the
one block of units that the total may cut.

Source: algorithm A16, Damani et al., "Learning How Hard to Think" (2410.04707). The greedy rule, its optimality for
falling gains and the isotonic regression are as there. The table for problems served one at a time ("offline") is
unverified (from memory). Differs: no heap, all units of all problems at once, by a threshold.

Shapes: P problems, B units that each may get at most, U bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tts.allocator.difficulty import RATES, Floats, Whole
from tts.allocator.performance import falling
from tts.errors import ConfigError, quote


def coverage_gains(rate: ArrayLike = RATES, most: int = 128) -> Floats:
    """Return the gains [.., B] of sampling until one sample is right: rate (1 - rate)^b.

    Args:
        rate: The known success rates of the problems.
        most: The units B.
    """
    known = np.asarray(rate, np.float64)[..., None]
    return known * (1 - known) ** np.arange(most)


def greedy_counts(
    gains: Floats, total: float, *, cost: ArrayLike | None = None, least: int = 0, price: float = 0.0
) -> Whole:
    """Return how many units [P] each problem gets.

    Among equal gains per cost, earlier units come first, then earlier problems. A block of pooled units is finished
    before
    another problem gets units of the same gain.

    Args:
        gains: The gains [P, B] of each problem's units in order, in right answers.
        total: The units to divide, or what the units may cost.
        cost: The cost [P] of one unit of each problem, above 0; None: 1.
        least: The units that every problem gets first (b_min).
        price: The gain per cost that a unit must exceed.

    Raises:
        ConfigError: The gains are no table of numbers, a cost is not above 0, or the total does not pay `least` for
            all.
    """
    if gains.ndim != 2 or np.isnan(gains).any():
        raise ConfigError(f"gains is of shape {gains.shape}, but must be a table [problems, units] without NaN")
    rows, units = gains.shape
    unit_cost = np.ones(rows) if cost is None else np.asarray(cost, np.float64)
    if unit_cost.shape != (rows,) or not ((unit_cost > 0) & np.isfinite(unit_cost)).all():
        raise ConfigError(f"cost is {quote(cost)}, but must be a number above 0 for each of {rows} problems")
    if not 0 <= least <= units or unit_cost.sum() * least > total + 1e-9:
        raise ConfigError(
            f"the total of {total:g} does not pay {least} units for each of {rows} problems",
            hint="give more, or fewer at least",
        )
    slopes, start = falling(gains[:, least:])
    value = slopes if cost is None else slopes / unit_cost[:, None]
    rest = total - unit_cost.sum() * least
    wanted = value > price
    counts = np.full(rows, least, np.int64)
    spent = float((wanted.sum(axis=1) * unit_cost).sum())
    if spent <= rest:
        return counts + wanted.sum(axis=1)
    threshold = _threshold(value[wanted], np.broadcast_to(unit_cost[:, None], value.shape)[wanted], rest)
    above = value > threshold
    counts += above.sum(axis=1)
    rest -= float((above.sum(axis=1) * unit_cost).sum())
    row, unit = np.nonzero(value == threshold)
    order = np.lexsort((unit, row, start[row, unit]))
    pays = np.cumsum(unit_cost[row[order]]) <= rest + 1e-9
    np.add.at(counts, row[order][pays], 1)
    rest -= float(unit_cost[row[order][pays]].sum())
    return counts + _remnant(value, counts - least, unit_cost, rest, price)


def _remnant(value: Floats, taken: Whole, cost: Floats, rest: float, price: float) -> Whole:
    """Return the units that a rest pays where it is too small for the next unit in order.

    The best units that it can pay are taken.
    """
    more = np.zeros_like(taken)
    padded = np.concatenate([value, np.full((len(value), 1), -np.inf)], axis=1)
    while rest >= cost.min(initial=np.inf):
        upcoming = np.where(cost <= rest, padded[np.arange(len(value)), taken + more], -np.inf)
        chosen = int(upcoming.argmax())
        if upcoming[chosen] <= price:
            break
        more[chosen] += 1
        rest -= float(cost[chosen])
    return more


def _threshold(value: Floats, cost: Floats, rest: float) -> float:
    """Return the value above which all units can be paid, while all at least as great cannot."""
    if (cost == 1).all():
        place = min(len(value) - 1, int(rest))  # from 0: the first that does not fit any more
        return float(-np.partition(-value, place)[place])
    order = np.argsort(-value, kind="stable")
    fitting = int(np.searchsorted(np.cumsum(cost[order]), rest + 1e-9, side="right"))
    return float(value[order[min(fitting, len(order) - 1)]])


def offline_counts(gains: Floats, share: ArrayLike, mean: float) -> Whole:
    """Return how many units [U] a problem of each bin gets, where problems are served one at a time.

    Idea: the table is made beforehand, from the bins of problems like those to come. Greedy divides over bins, where a
    unit for a bin costs as many units as the bin has problems.

    Args:
        gains: The gains [U, B] of a problem of each bin.
        share: The number of problems in each bin [U], above 0, in any unit.
        mean: The units of a problem, on average over problems.
    """
    size = np.asarray(share, np.float64)
    return greedy_counts(gains * size[:, None], mean * float(size.sum()), cost=size)
