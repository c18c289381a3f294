"""Waves: how many rows of a request begin or go on in the next call, and how far each may be written.

Everything here is a pure function of values: the rows, what is known of lengths, and what is left of each limit. `RowWriter` takes a lease
of what a wave reserves, and sends it.

Until there is a candidate, one row gets all that is left, or as many rows begin as can be paid however long they are. A later wave begins
at most twice the rows begun so far, and only rows that what is left pays to their expected end. While more rows may follow, a row is given
up once it has taken half of what was left when it began, and four expected lengths.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tts.budget.account import Exhausted
from tts.budget.books import Amounts
from tts.budget.budget import RowCost

NO_CAP = 1 << 20  # tokens of a row on a backend without a context limit
_PATIENCE = 4  # expected lengths that a row may take without being given up
_SHARE = 0.5  # of what was left when a row began, that it may take in any case


class Goal(Enum):
    """What the rows of a wave are written towards."""

    TOKENS = "a number of tokens"
    STEP = "the end of a step"
    ROLLOUT = "the end of a step, for a score alone"
    SOLUTION = "the end of a solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRequest:
    """What a wave is planned for.

    Args:
        goal: What the rows are written towards.
        branches: The samples that each row costs, in draw order; 0 for rows that go on.
        cost: The bound of one row by the tokens that it may generate.
        cap: The most tokens that a row may take.
        goes_on: Whether the rows are open already; otherwise they begin.
        wanted: The rows of the request that are still to begin, those of this wave included.
        needed: The tokens that a row is expected to take until its goal.
        step: The expected tokens of a step.
        longest: The tokens of the longest solution so far.
        begun: The solutions that were begun so far.
        is_completed: Whether there is a candidate.
        resumes: Whether a row that its cap cuts can be continued.
        held: The tokens that must stay unspent, to bring an open path to its end.
        portion: The most tokens of a row in one call.
    """

    goal: Goal
    branches: Sequence[int]
    cost: RowCost
    cap: int
    goes_on: bool = False
    wanted: float = math.inf
    needed: int
    step: int = 1
    longest: int = 0
    begun: int = 0
    is_completed: bool = False
    resumes: bool = True
    held: int = 0
    portion: int = NO_CAP


@dataclass(frozen=True, slots=True)
class Wave:
    """What the next call may write.

    Args:
        rows: The number of rows, the first of the request.
        cap: The tokens that each may generate.
        reserve: What is reserved for the call, by limited unit.
        limit: The tokens after which a row that does not end is given up; None: it is not.
        why: The reason for the number of rows.
    """

    rows: int
    cap: int
    reserve: Mapping[str, int]
    limit: int | None
    why: str


@dataclass(frozen=True, slots=True)
class _Size:
    """How many rows begin, their cap, the tokens that each must be sure of, and whether one has all that is left."""

    rows: int
    cap: int
    typical: int
    why: str
    is_whole: bool = False
    limit: int | None = None


def plan_rows(request: WaveRequest, left: Amounts) -> Wave:
    """Return the next wave of a request.

    Args:
        request: The rows, and what is known of lengths.
        left: What is neither spent nor held of each limit, in whole units.

    Raises:
        Exhausted: What is left does not pay a single row.
    """
    payable = payable_branches(request.branches, left.get("samples"))
    size = _size(request, payable, left)
    cost, cap = request.cost, min(size.cap, request.portion)
    free = {unit: amount - (cost.bare().of(unit, request.held) if request.held else 0) for unit, amount in left.items()}
    if size.is_whole:  # a first row, which comes before its score
        rows, cap = _fit(cost.bare(), 1, cap, 1, free)
        is_verified = all(cost.of(unit, cap) <= free[unit] for unit in free)
    else:
        rows, cap = _fit(cost, size.rows, cap, size.typical, free)
        is_verified = True
    reserve = {unit: rows * (cost.of(unit, cap) if is_verified else cost.generation(unit, cap)) for unit in left}
    if "samples" in reserve:
        reserve["samples"] = sum(request.branches[:rows])
    return Wave(rows, cap, reserve, size.limit, size.why)


def limit_to_share(cost: RowCost, needed: int, held: int, left: Amounts, shares: Amounts) -> dict[str, int]:
    """Return what one of the searches that share limits may plan with: its share, or more where a long row needs more.

    Args:
        cost: The bound of one row by the tokens that it may generate.
        needed: The tokens that the row is expected to take.
        held: The tokens that must stay unspent.
        left: What is neither spent nor held of each limit, in whole units.
        shares: The equal part of one search, by shared limit.
    """
    rows = {unit: 1 if unit == "samples" else cost.of(unit, held + _PATIENCE * needed) for unit in shares}
    return {unit: min(amount, max(shares[unit], rows[unit])) if unit in shares else amount for unit, amount in left.items()}


def _size(request: WaveRequest, rows: int, left: Amounts) -> _Size:
    cost, cap = request.cost, request.cap
    if request.goes_on:
        return _Size(rows, cap, request.needed, "open rows go on")
    if request.goal is Goal.TOKENS:
        return _Size(rows, cap, cap, "rows of a number of tokens")
    if request.goal is Goal.ROLLOUT:
        return _Size(rows, cap, min(cap, request.step), "rollouts")
    if request.goal is Goal.STEP:
        count = int(min(rows, max(1, payable_rows(cost, request.needed, left))))
        return _Size(count, cap, min(cap, request.step), "rows that can be paid to the end of a solution")
    surely = payable_rows(cost, cap, left)
    if surely >= rows or math.isinf(payable_rows(cost, NO_CAP, left)):
        return _Size(rows, cap, cap, "all can be paid, however long they are")
    if not (request.begun and request.is_completed):
        count = max(1, int(surely))
        return _Size(count, cap, cap, "rows that can be paid, however long they are", is_whole=count == 1)
    return _size_by_lengths(request, rows, surely, left)


def _size_by_lengths(request: WaveRequest, rows: int, surely: float, left: Amounts) -> _Size:
    """Return the size of a wave once lengths were learnt.

    Args:
        request: The request.
        rows: The rows that the limit on samples pays.
        surely: The rows that can be paid to the cap.
        left: What is left of each limit.

    Raises:
        Exhausted: What is left does not pay one row to its expected end.
    """
    cost, cap, expected = request.cost, request.cap, request.needed
    if (typically := payable_rows(cost, expected, left)) < 1:
        raise Exhausted(scarcest_unit(cost, expected, left))
    typical = expected
    if not request.resumes:  # written in one call, or with what is left where that does not pay it any more
        whole = min(cap, max(_PATIENCE * expected, 2 * request.longest))
        if (wholly := payable_rows(cost, whole, left)) >= 1:
            typical = cap = whole
            typically = surely = wholly
    count = int(min(rows, max(surely, min(2 * request.begun, typically))))
    more = count < request.wanted  # so that none may take all
    limit = max(_PATIENCE * expected, payable_tokens(cost, _SHARE, cap, left)) if more else None
    return _Size(count, cap, typical, "rows that can be paid to their expected end", limit=limit)


# What limits pay ----------------------------------------------------------------------------------------------------------------


def payable_branches(branches: Sequence[int], left: int | None) -> int:
    """Return how many rows of these costs in samples may begin, in order; `left` None: samples are not limited.

    Raises:
        Exhausted: None may.
    """
    if left is None:
        return len(branches)
    count = bisect.bisect_right(list(itertools.accumulate(branches)), left)
    if branches and not count:
        raise Exhausted("samples")
    return count


def payable_rows(cost: RowCost, tokens: int, left: Amounts) -> float:
    """Return how many rows of so many tokens the limits other than samples pay; infinity where there is no such limit."""
    each = {unit: cost.of(unit, tokens) for unit in left if unit != "samples"}
    return min((left[unit] // amount for unit, amount in each.items() if amount > 0), default=math.inf)


def scarcest_unit(cost: RowCost, tokens: int, left: Amounts) -> str:
    """Return the limit that pays the fewest rows of so many tokens."""
    each = {unit: amount for unit in left if unit != "samples" and (amount := cost.of(unit, tokens)) > 0}
    return min(each, key=lambda unit: left[unit] / each[unit])


def payable_tokens(cost: RowCost, part: float, cap: int, left: Amounts) -> int:
    """Return the most tokens, at most `cap`, of a row that costs no more than a part of what is left of each limit."""
    for unit, amount in left.items():
        cap = _largest(cost, unit, cap, int(amount * part)) if unit != "samples" else cap
    return cap


def _fit(cost: RowCost, rows: int, cap: int, typical: int, left: Amounts) -> tuple[int, int]:
    """Return how many rows fit, at least one, and the cap of each.

    Raises:
        Exhausted: None fits.
    """
    typical = max(1, min(cap, typical))
    count = rows
    for unit, amount in left.items():
        if (each := cost.of(unit, typical)) > 0:
            count = min(count, max(1, amount // each))
    for unit, amount in left.items():
        cap = _largest(cost, unit, cap, amount // count)
        if cap < 1:
            raise Exhausted(unit)
    return count, cap


def _largest(cost: RowCost, unit: str, cap: int, each: int) -> int:
    """Return the largest k <= cap with cost(k) <= each, by bisection: the cost never decreases in k. 0: none."""
    low, high = 0, min(cap, each) if unit in ("tokens", "generated_tokens") else cap
    if cost.of(unit, high) <= each:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost.of(unit, middle) <= each else (low, middle - 1)
    return low
