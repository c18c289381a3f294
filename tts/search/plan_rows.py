"""The plan of one call: how many rows begin or go on, and how far each may be written.

All is a pure function of values: the price of a row, the known lengths, and the amount left of each limit.

Until there is a candidate, one row gets all that is left, or as many rows begin as can be paid whatever their length. A
later call begins at most twice the rows begun so far. The budget must pay each of its rows to the expected end. Where
it pays each row of a fixed number 16 expected lengths, and no stop rule may end the search, all begin at once. While
more rows may follow, a row is given up once it is longer than four expected lengths and has taken half of the amount
that was left when it began.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tts.budget.account import Exhausted
from tts.budget.budget import Rates
from tts.budget.ledger import Amounts
from tts.budget.units import GENERATED_UNITS, LENGTH_UNITS, PLACE_UNITS, PRICED_UNITS
from tts.search.lengths import NO_CAP
from tts.types import Trajectory

_LENGTHS_PER_ROW = 4  # expected lengths that a row may take before it is given up
_LENGTHS_TO_BEGIN = 16  # expected lengths that the budget must pay each row of a fixed number, for all to begin at once
_MOST_SHARERS = 64  # rows among which a row that cannot be continued gets an equal part of what is left
_LEASED_UNITS = (*PRICED_UNITS, "requests")  # that a program may spend beside its tokens
SHARED_UNITS = (*LENGTH_UNITS, "requests")  # of which programs get equal parts
_SHARE = 0.5  # the part of the amount left at its beginning that a row may take in any case

_NO_RATES = Rates()

Scores = Callable[[str, int], int]  # the most that a row's scores cost, by unit and the row's new tokens


class Goal(Enum):
    """The goal up to which the rows of a call are written."""

    TOKENS = "a number of tokens"
    STEP = "the end of a step"
    ROLLOUT = "the end of a step, for a score alone"
    SOLUTION = "the end of a solution"


class Price:
    """The most that one row may cost, by limited unit, as a function of the tokens that it may generate.

    Args:
        units: The limited units.
        rates: The rates of the model that writes.
        computed: The most input tokens that are computed when the row begins.
        reused: The most input tokens that are reused when the row begins.
        scores: The most that declared verifiers cost for the row, never decreasing; None: nothing is scored.
        reading: The most that verifiers' own models cost to read the row's prompt first, by unit.
    """

    __slots__ = ("_base", "_reading", "_scores", "_slope")

    def __init__(
        self,
        units: Iterable[str],
        rates: Rates = _NO_RATES,
        computed: int = 0,
        reused: int = 0,
        scores: Scores | None = None,
        reading: Amounts | None = None,
    ) -> None:
        self._scores = scores
        self._reading = reading or {}
        self._base: dict[str, int] = {}
        self._slope: dict[str, int] = {}
        for unit in units:
            is_priced = unit in PRICED_UNITS
            self._base[unit] = rates.cost(unit, computed=computed, reused=reused) if is_priced else 0
            self._slope[unit] = rates.cost(unit, generated=1) if is_priced else int(unit in GENERATED_UNITS)

    def bare(self) -> Price:
        """Return the price without scores."""
        if self._scores is None:
            return self
        bare = Price(())
        bare._base, bare._slope = self._base, self._slope
        return bare

    def scores(self, tokens: int) -> dict[str, int]:
        """Return the bound of scoring the row, by unit, without reading its prompt."""
        scores = self._scores
        return {} if scores is None else {unit: scores(unit, tokens) for unit in self._base}

    def reserve(self, unit: str, tokens: int) -> int:
        """Return the part of the bound that verification costs, reading the prompt included."""
        return (0 if self._scores is None else self._scores(unit, tokens)) + self._reading.get(unit, 0)

    def amount(self, unit: str, tokens: int) -> int:
        """Return the bound in one unit for a row of some tokens; 0 in a unit without a limit."""
        amount = self._base.get(unit, 0) + self._slope.get(unit, 0) * tokens
        if self._scores is None:
            return amount
        return amount + self._scores(unit, tokens) + self._reading.get(unit, 0)

    def generation(self, unit: str, tokens: int) -> int:
        """Return the part of the bound that generation spends, in a limited unit."""
        return self._base[unit] + self._slope[unit] * tokens

    def amounts(self, tokens: int) -> dict[str, int]:
        """Return the bound by limited unit for a row of some tokens."""
        slope, scores, reading = self._slope, self._scores, self._reading
        if scores is None:
            return {unit: base + slope[unit] * tokens for unit, base in self._base.items()}
        return {
            unit: base + slope[unit] * tokens + scores(unit, tokens) + reading.get(unit, 0)
            for unit, base in self._base.items()
        }

    def rows(self, tokens: int, left: Amounts) -> float:
        """Return the number of rows of some tokens that the limits pay, units by place apart."""
        return min(
            [left[unit] // amount for unit, amount in self.amounts(tokens).items() if amount > 0], default=math.inf
        )

    def scarcest_unit(self, tokens: int, left: Amounts) -> str:
        """Return the limit that pays the fewest rows of some tokens."""
        amounts = {unit: amount for unit, amount in self.amounts(tokens).items() if amount > 0}
        return min(amounts, key=lambda unit: left[unit] / amounts[unit])

    def tokens(self, cap: int, left: Amounts, *, part: float) -> int:
        """Return the most tokens, up to `cap`, of a row that costs at most a part of each amount left."""
        for unit, amount in left.items():
            if unit not in PLACE_UNITS:
                cap = self.largest(unit, cap, int(amount * part))
        return cap

    def largest(self, unit: str, cap: int, amount: int) -> int:
        """Return the most tokens, up to `cap`, of a row that costs at most `amount`; below 1 where none fits."""
        base, slope = self._base[unit], self._slope[unit]
        if self._scores is None:
            if slope:
                return max(0, min(cap, (amount - base) // slope))
            return cap if base <= amount else 0
        high = max(0, min(cap, (amount - base) // slope)) if slope else cap
        if high < 1 or self.amount(unit, high) <= amount:
            return high
        # a bound that grows evenly is met at the first guess; any other by bisection
        first, last = self.amount(unit, 0), self.amount(unit, high)
        low, guess = 0, (amount - first) * high // (last - first) if last > first else 0
        while low < high:
            guess = max(low, min(guess, high - 1))
            if self.amount(unit, guess + 1) > amount:
                high = guess
                if guess == low or self.amount(unit, guess) <= amount:
                    return guess
            else:
                low = guess + 1
            guess = (low + high) // 2
        return low


class Wave(NamedTuple):
    """The rows that one call writes.

    Args:
        rows: The number of rows, counted from the first of the request.
        grant: The tokens that each row may generate.
        reserve: The amounts that are held for the call, by limited unit.
        limit: The tokens after which an unfinished row is given up; None: no row is given up.
        lease: The flops, dollars and requests that each row may spend, where rows are programs.
        pays_scores: Whether `reserve` pays the scores of the rows too.
    """

    rows: int
    grant: int
    reserve: Amounts
    limit: int | None = None
    lease: Amounts = {}  # noqa: RUF012 - it is never written
    pays_scores: bool = True


def plan_rows(  # noqa: PLR0913 - what a plan depends on, by name
    price: Price,
    places: Mapping[str, Sequence[int]],
    count: int,
    left: Amounts,
    *,
    goal: Goal,
    cap: int,
    needed: int,
    step: int = 1,
    goes_on: bool = False,
    begun: int = 0,
    is_completed: bool = False,
    resumes: bool = True,
    longest: int = 0,
    closing: int = 0,
    wanted: float = math.inf,
    portion: int = NO_CAP,
    at_once: bool = False,
    together: bool = False,
) -> Wave:
    """Return the next call of a request: its rows, and the tokens that each may generate.

    Args:
        price: The price of one row.
        places: The amounts that rows cost by their place in the call, in draw order, by unit.
        count: The number of rows that may be written.
        left: The amount of each limit that is neither spent nor held, in whole units.
        goal: The goal of the rows.
        cap: The most tokens that a row may take.
        needed: The tokens that a row is expected to take until its end.
        step: The expected tokens of a step.
        goes_on: Whether the rows are open already; otherwise they begin.
        begun: The solutions that were begun so far.
        is_completed: Whether there is a candidate.
        resumes: Whether a row that its grant cuts can be continued.
        longest: The tokens of the longest solution so far.
        closing: The tokens that must stay unspent, to bring an open path to its end.
        wanted: The number of rows of the request that are still to begin, with the rows of this call.
        portion: The most tokens of a row in one call.
        at_once: Whether no row may begin after this call.
        together: Whether all wanted rows may begin at once; see `pays_plenty`.

    Raises:
        Exhausted: The amounts left do not pay a single row.
    """
    count = _payable_places(price, places, count, left)
    left = _less_places(price, places, count, left)
    free = _less_closing(price, closing, left)
    typical, limit = needed, None  # the tokens that must be payable for each row, and those of a row that is given up
    if at_once or (goal is Goal.STEP and not goes_on):
        count = int(min(count, max(1, price.rows(needed, left))))
        typical = 1 if at_once else step
    elif goal is not Goal.SOLUTION and not goes_on:
        typical = cap if goal is Goal.TOKENS else step
    elif not goes_on:
        at_cap = price.rows(cap, left)
        if at_cap >= count or math.isinf(price.rows(NO_CAP, left)):
            typical = cap
        elif not (begun and is_completed):
            count, typical = max(1, int(at_cap)), cap
            if count == 1:  # the first row is written even where its score cannot be paid
                return _plan_first_row(price, places, free, min(cap, portion))
        else:
            least = max(_LENGTHS_PER_ROW * needed, 2 * longest)
            whole_row = 0 if resumes else min(cap, max(least, _share(price, cap, left, max(count, wanted))))
            begun = count if together and pays_plenty(price, needed, wanted, left) else begun
            count, typical = _size_by_lengths(
                price, count, left, needed=needed, whole_row=whole_row, begun=begun, at_cap=at_cap
            )
            cap = typical if typical == whole_row else cap
            if count < wanted:  # more rows may follow, so that none of these rows may take all that is left
                limit = max(_LENGTHS_PER_ROW * needed, price.tokens(cap, left, part=_SHARE))
    cap = min(cap, portion)
    for unit, amount in price.amounts(max(1, min(cap, typical))).items():
        if amount > 0:
            count = min(count, max(1, free[unit] // amount))
    grant = _grant(price, count, cap, free)
    return Wave(count, grant, _reserve(price, places, count, grant), limit)


def _share(price: Price, cap: int, left: Amounts, sharers: float) -> int:
    """Return the tokens, up to `cap`, that an equal part of what is left pays, for up to 64 rows."""
    return price.tokens(cap, left, part=1 / min(sharers, _MOST_SHARERS))


def pays_plenty(price: Price, needed: int, wanted: float, left: Amounts) -> bool:
    """Whether what is left pays each wanted row many times its expected length."""
    return price.rows(_LENGTHS_TO_BEGIN * needed, left) >= wanted


def _size_by_lengths(
    price: Price, count: int, left: Amounts, *, needed: int, whole_row: int, begun: int, at_cap: float
) -> tuple[int, int]:
    """Return the number of rows of a call once lengths were learnt, and the tokens that must be payable for each.

    Args:
        price: The price of one row.
        count: The number of rows that may be written.
        left: The amount left of each limit.
        needed: The tokens that a row is expected to take.
        whole_row: The tokens to grant in one call, since a cut row could not go on; 0: cut rows go on.
        begun: The solutions that were begun so far.
        at_cap: The number of rows that the limits pay to their cap.

    Raises:
        Exhausted: The amounts left do not pay one row to its expected end.
    """
    typical, at_expected = needed, price.rows(needed, left)
    if at_expected < 1:
        raise Exhausted(price.scarcest_unit(needed, left))
    if whole_row:
        at_whole = price.rows(whole_row, left)
        if at_whole >= 1:
            typical, at_expected, at_cap = whole_row, at_whole, at_whole
    return int(min(count, max(at_cap, min(2 * begun, at_expected)))), typical


def _less_closing(price: Price, closing: int, left: Amounts) -> Amounts:
    """Return the amounts left less what bringing an open path to its end costs."""
    if not closing:
        return left
    kept = price.bare().amounts(closing)
    return {unit: amount - kept[unit] for unit, amount in left.items()}


def _plan_first_row(price: Price, places: Mapping[str, Sequence[int]], free: Amounts, cap: int) -> Wave:
    """Return the call of a search's first row, with a reserve for its scores if they can be paid too."""
    grant = _grant(price.bare(), 1, cap, free)
    pays_scores = all(amount <= free[unit] for unit, amount in price.amounts(grant).items())
    reserve = _reserve(price if pays_scores else price.bare(), places, 1, grant)
    return Wave(1, grant, reserve, pays_scores=pays_scores)


def _grant(price: Price, count: int, cap: int, free: Amounts) -> int:
    """Return the most tokens, up to `cap`, that each of `count` rows may take.

    Raises:
        Exhausted: It is not one.
    """
    for unit, amount in free.items():
        cap = price.largest(unit, cap, amount // count)
        if cap < 1:
            raise Exhausted(unit)
    return cap


def _reserve(price: Price, places: Mapping[str, Sequence[int]], count: int, grant: int) -> dict[str, int]:
    """Return the amounts that are held for `count` rows."""
    reserve = {unit: count * amount for unit, amount in price.amounts(grant).items()}
    for unit, costs in places.items():
        if unit in reserve:
            reserve[unit] += sum(costs[:count])
    return reserve


def _less_places(price: Price, places: Mapping[str, Sequence[int]], count: int, left: Amounts) -> Amounts:
    """Return the amounts left for scores: without the costs by place of `count` rows, where scores cost the unit too.

    Other units are unchanged.
    """
    scored_units = [unit for unit in places if unit in left and price.reserve(unit, 0)]
    return {**left, **{unit: left[unit] - sum(places[unit][:count]) for unit in scored_units}} if scored_units else left


def _payable_places(price: Price, places: Mapping[str, Sequence[int]], count: int, left: Amounts) -> int:
    """Return the number of rows, from the first, whose costs by place can be paid, and whose scores too.

    The score of the first row need not be payable.

    Raises:
        Exhausted: Not one row can be paid.
    """
    for unit, costs in places.items():
        if unit in left:
            payable = bisect.bisect_right(list(itertools.accumulate(costs)), left[unit])
            if count and not payable:
                raise Exhausted(unit)
            count = min(count, payable)
            if score := price.reserve(unit, 0):
                scored = itertools.accumulate(cost + score for cost in costs)
                count = min(count, max(1, bisect.bisect_right(list(scored), left[unit])))
    return count


def plan_programs(  # noqa: PLR0913 - what a plan depends on, by name
    price: Price,
    places: Mapping[str, Sequence[int]],
    count: int,
    left: Amounts,
    *,
    most: int,
    cap: int,
    wanted: float,
    goes_on: bool,
    spent: Amounts,
    at_once: bool = False,
) -> Wave:
    """Return the next call of rows that are programs with leases.

    The remaining rows get equal parts of what is left, requests included. Where no limit is shared, all rows begin at
    once. Where the number of rows is open, the mean cost of a row so far limits how many begin. At most half of the
    part of a row is kept for the score of the row.

    Args:
        price: As in `plan_rows`, like `places`, `count`, `left`, `cap`, `wanted`, `goes_on` and `at_once`.
        places: See above.
        count: See above.
        left: See above.
        most: The most rows at once.
        cap: See above.
        wanted: See above.
        goes_on: See above.
        spent: The mean cost of a row so far, by limited unit.
        at_once: See above.

    Raises:
        Exhausted: The amounts left pay no row.
    """
    count = _payable_places(price, places, count, left)
    if not at_once and not left.keys().isdisjoint(SHARED_UNITS):
        count = min(count, most)
    if "samples" in places:  # further rows of a request cost no request
        wanted = min(wanted, left.get("samples", math.inf))
    sharers = _sharers(price, count, left, wanted=wanted, goes_on=goes_on, spent=spent)
    parts = {unit: amount // sharers for unit, amount in left.items() if unit not in places}
    for unit, part in parts.items():
        if unit in PRICED_UNITS:
            cap = Price(left, scores=price.reserve).largest(unit, cap, part // 2)
        else:
            cap = price.largest(unit, cap, part)
        if cap < 1:
            raise Exhausted(unit)
    count = min(count, sharers)
    reserve = {unit: count * part for unit, part in parts.items()}
    pays_scores = True
    for unit, costs in places.items():
        if unit in left:
            wanted_amount = sum(costs[:count]) + count * price.reserve(unit, 0)
            reserve[unit] = min(left[unit], wanted_amount)
            pays_scores = pays_scores and wanted_amount <= left[unit]
    lease = {unit: part - price.reserve(unit, cap) for unit, part in parts.items() if unit in _LEASED_UNITS}
    return Wave(count, cap, reserve, lease=lease, pays_scores=pays_scores)


def _sharers(price: Price, count: int, left: Amounts, *, wanted: float, goes_on: bool, spent: Amounts) -> int:
    """Return the number of programs that share the amounts left; see `plan_programs`."""
    is_open = math.isinf(wanted)
    sharers = count
    if not is_open:
        sharers = count + int(wanted) if goes_on else max(count, int(wanted))
    for unit, amount in left.items():
        row_need = price.amount(unit, 1) + (unit == "requests")
        if is_open:
            row_need = max(row_need, spent.get(unit, 0))
        if row_need and unit != "samples":
            sharers = min(sharers, amount // row_need)
        if sharers < 1:
            raise Exhausted(unit)
    return sharers


def limit_to_share(price: Price, needed: int, closing: int, left: Amounts, shares: Amounts) -> dict[str, int]:
    """Return the amounts that a search may plan with where several searches share limits.

    Of a shared limit this is the search's share, or more where a long row needs more. Other limits stay whole.

    Args:
        price: The price of one row.
        needed: The tokens that the row is expected to take.
        closing: The tokens that must stay unspent.
        left: The amount of each limit that is neither spent nor held, in whole units.
        shares: The equal part of one search, by shared limit.
    """
    allowance = dict(left)
    for unit in shares:
        if unit in allowance:
            tokens = closing + _LENGTHS_PER_ROW * needed
            long_row = price.amount(unit, tokens) + (1 if unit in PLACE_UNITS else 0)
            allowance[unit] = min(allowance[unit], max(shares[unit], long_row))
    return allowance


def branches_of(parents: Sequence[Trajectory], children_of: Callable[[Trajectory], int]) -> list[int]:
    """Return the cost of each row in samples, if all rows were started in this order.

    A row after a root costs 1. The first child of any other path costs 0, and each further child costs 1.
    """
    child_counts: dict[int, int] = {}
    costs: list[int] = []
    for parent in parents:
        num_children = child_counts.get(parent.node)
        if num_children is None:
            num_children = children_of(parent)
        child_counts[parent.node] = num_children + 1
        is_root = parent.parent is None
        costs.append(1 if is_root or num_children > 0 else 0)
    return costs
