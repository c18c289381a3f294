"""One total for many problems: `auto` searches that take their turns from a common purse, in waves that only their state decides.

A wave begins when every problem that still goes on has come back from the one before. So all that the allocator sees, and all that
it gives, is a function of the problems and the seed, never of timing. At any moment the limits of all problems together are at most the
total: what a problem may spend in a wave is its credit, and what it did not spend of it is in the purse again at the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tts.allocator.allocate import Grant
from tts.allocator.auto import Auto, Found, Turn, state_of
from tts.allocator.difficulty import Floats, shift
from tts.allocator.values import Curved, State
from tts.backends.base import Backend
from tts.budget import USD_UNIT, Budget
from tts.errors import ConfigError
from tts.search.base import SearchEnded, Selection
from tts.types import Candidate

if TYPE_CHECKING:
    from tts.search.search import Search

_FOREIGN = 0.001  # p-value below which votes are not those of the problems that the model was fitted to
_FEWEST = 20  # problems whose votes are compared
_BEFORE = ("flops", "usd")  # units that a prompt costs, so that they are spent before a problem has come to the purse


def opening(total: Budget, count: int) -> Budget:
    """Return what each of `count` problems may spend before its first turn: an even share of what prompts cost; of the rest, nothing is."""
    return Budget(**{unit: value / count if unit in _BEFORE else value for unit, value in total.limits.items()})  # type: ignore[arg-type]


def divide(total: Budget, parts: int) -> list[Budget]:
    """Return shares of a budget that sum to it: counts differ by at most one; `seconds` is not divided, it holds for all.

    Raises:
        ConfigError: a count is smaller than the number of parts.
    """
    shares: list[dict[str, float]] = [{} for _ in range(parts)]
    for unit, value in total.limits.items():
        if isinstance(value, int) and unit not in ("flops", "seconds", "usd"):
            if value < parts:
                raise ConfigError(f"the total of {value} {unit} is too small for {parts} problems", hint=f"give at least {parts}")
            for i in range(parts):
                shares[i][unit] = value // parts + (1 if i < value % parts else 0)
        else:
            for share in shares:
                share[unit] = value if unit == "seconds" else value / parts
    return [Budget(**share) for share in shares]  # type: ignore[arg-type]


@dataclass(slots=True)
class Place:
    """One problem of a purse. away: whether it is at work, so that no wave begins without it."""

    search: Search | None = None
    found: Found = field(default_factory=lambda: Found(0, 0, 0))
    typical: Mapping[str, float] = field(default_factory=dict[str, float])
    granted: int = 0
    away: bool = True
    waiting: asyncio.Future[Turn] | None = None


class Purse:
    """The common budget of problems that are solved by `auto`.

    Args:
        auto: the strategy. total: for all; `seconds` are not divided. count: of problems. policy: what draws samples.
        gate: held by every search that is at work.
    """

    def __init__(self, auto: Auto, total: Budget, count: int, policy: Backend, gate: asyncio.Semaphore) -> None:
        self._auto = auto
        self._allocator = auto.allocator(alone=False)
        self._total = {unit: int(v * USD_UNIT) if unit == "usd" else int(v) for unit, v in total.limits.items() if unit != "seconds"}
        self._policy = policy
        self._gate = gate
        self._places = [Place() for _ in range(count)]
        self._away = count
        self._seen = 0  # samples when the allocator last learnt
        self._foreign = ""

    def strategy(self, place: int) -> Served:
        """Return the strategy of the problem at a place."""
        return Served(self._auto, self, place)

    async def turn(self, place: int, search: Search, found: Found) -> Turn:
        """Give back what the last turn left, and wait for the next; meanwhile another problem may be at work."""
        mine = self._places[place]
        meter = search.spending.meter
        for unit in meter.limits:
            meter.limits[unit] = meter.spent[unit] + meter.held[unit]
        if mine.search is None:
            mine.search, mine.typical = search, self._typical(search)
        barren, mine.found = mine.granted > 0 and found.samples == mine.found.samples, found
        if barren or (self._auto.n is not None and found.samples >= self._auto.n):
            return Turn(0, why="budget: it paid for no further sample" if barren else "samples drawn")
        mine.waiting = asyncio.get_running_loop().create_future()
        self._gate.release()
        try:
            self._back(mine)
            return await mine.waiting
        finally:
            mine.waiting = None
            await self._gate.acquire()

    def leave(self, place: int) -> None:
        """Note that a problem is over, in whatever way."""
        self._back(self._places[place])

    def _back(self, mine: Place) -> None:
        self._away -= mine.away
        mine.away = False
        if not self._away:
            try:
                self._wave([each for each in self._places if each.waiting is not None and not each.waiting.done()])
            except Exception as failure:  # noqa: BLE001 - whoever came back last must not be the only one to hear of it
                for each in self._places:
                    if each.waiting is not None and not each.waiting.done():
                        each.waiting.set_exception(failure)

    def _wave(self, waiting: Sequence[Place]) -> None:
        """Divide what is left over the problems that wait."""
        if not waiting:
            return
        left = self._left()
        if min(left.values(), default=0) <= 0:
            self._end(waiting, "budget: it is used up")
            return
        cost = self._costs(waiting, left)
        state = state_of([each.found for each in waiting], cost.tolist(), 1.0)
        self._learn(waiting, state)
        grant = self._allocator.next(state)
        if grant.reason:
            self._end(waiting, f"settled: {grant.reason}" if "price" in grant.reason else f"budget: {grant.reason}")
            return
        self._give(waiting, grant, cost, left)

    def _give(self, waiting: Sequence[Place], grant: Grant, cost: Floats, left: Mapping[str, int]) -> None:
        """Share out credit in proportion to what was granted: all that is left, so that no sample is cut short for want of it."""
        served = np.flatnonzero(grant.samples)
        weight = (grant.samples * cost)[served]
        parts = (weight / weight.sum() * 2**40).astype(np.int64).tolist()
        self._away = len(served)
        for i, part in zip(served.tolist(), parts, strict=True):
            mine, samples, plan = waiting[i], int(grant.samples[i]), int(grant.plan[i])
            if mine.search is None or mine.waiting is None:
                raise AssertionError("who waits has a search")
            if self._auto.n is not None:
                samples = min(samples, self._auto.n - mine.found.samples)
            for unit, amount in left.items():
                mine.search.spending.meter.limits[unit] += amount * part >> 40
            mine.away, mine.granted = True, samples
            why = "pilots, to see how hard it is"
            if grant.rate[i]:
                name, least = self._auto.plans()[plan], grant.price * cost[i]
                why = f"{name}: each further sample adds {grant.rate[i]:.2g}; the least that was served, at this cost, {least:.2g}"
            mine.waiting.set_result(Turn(samples, plan, why))

    def _end(self, waiting: Sequence[Place], why: str) -> None:
        for each in waiting:
            if each.waiting is not None:
                each.waiting.set_result(Turn(0, why=why))

    def _typical(self, search: Search) -> Mapping[str, float]:
        """Return what one sample of typical length costs in each unit, in whole units of the meter."""
        cost = search.spending.row_cost(self._policy, search.root_tokens)
        length = max(1, search.task.typical_tokens("solve"))
        return {unit: 1.0 if unit == "samples" else float(cost.of(unit, length)) for unit in self._total}

    def _left(self) -> dict[str, int]:
        """Return what is neither spent nor held by anybody; of a problem that never came here, what it might have spent is gone."""
        came = [place.search.spending.meter.limits for place in self._places if place.search is not None]
        lost = len(self._places) - len(came)
        return {
            unit: amount - sum(each[unit] for each in came) - (-(-amount * lost // len(self._places)) if unit in _BEFORE else 0)
            for unit, amount in self._total.items()
        }

    def _costs(self, waiting: Sequence[Place], left: Mapping[str, int]) -> Floats:
        """Return what a sample of each problem costs, as a share of what is left of the unit that it uses up first.

        What its own samples cost counts as often as there are any, the typical cost as two samples.
        """
        found = np.full(len(waiting), 1e-12)
        for i, each in enumerate(waiting):
            meter, n = (None if each.search is None else each.search.spending.meter), each.found.samples
            for unit, amount in left.items():
                own = 0 if meter is None else meter.spent[unit] + meter.held[unit]
                found[i] = max(found[i], ((own if n else 0) + 2 * each.typical[unit]) / (n + 2) / amount)
        return found

    def _learn(self, waiting: Sequence[Place], state: State) -> None:
        """Let the allocator learn from all problems whenever they have twice the samples of the last time; see whether they are others."""
        drawn = int(state.samples.sum())
        if drawn < max(2 * len(waiting), 2 * self._seen):
            return
        values = self._allocator.values
        if isinstance(values, Curved) and not self._seen:
            alike = (state.samples == np.bincount(state.samples).argmax()) & (state.samples > 1)
            if alike.sum() >= _FEWEST and (p := shift(values.population, *(votes[alike] for votes in state.votes()))) < _FOREIGN:
                self._foreign = f"the votes are not like those of the problems that the performance model was fitted to (p = {p:.1g})"
        for each in waiting:
            if self._foreign and each.search is not None:
                each.search.notes.add(self._foreign)
        self._seen = drawn
        self._allocator = self._allocator.adapted(state)


@dataclass(frozen=True, slots=True)
class Served:
    """`auto` for one of many problems: a strategy whose turns come from a purse.

    Args:
        auto: what it is, and is written as. purse: where its turns come from. place: of the problem.
    """

    auto: Auto
    purse: Purse
    place: int

    registered_as = "auto"

    @property
    def needs(self) -> tuple[str, ...]:
        """As `Auto`."""
        return self.auto.needs

    @property
    def verifiers(self) -> tuple[str, ...]:
        """As `Auto`."""
        return self.auto.verifiers

    def __str__(self) -> str:
        return str(self.auto)

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Take turns from the purse."""
        return await self.auto.served(search, self)

    async def turn(self, search: Search, found: Found) -> Turn:
        """Wait for the next turn."""
        return await self.purse.turn(self.place, search, found)

    def goes_on(self, end: SearchEnded) -> bool:
        """Return whether the search may go on behind the end of a turn: its credit was used up, not its time, and no rule stopped it."""
        return end.stop is None and end.reason.startswith("budget") and end.reason != "budget: seconds"

    def size(self, units: int | None) -> Served:
        """Return itself: the purse decides."""
        del units
        return self

    def default_selection(self, *, verified: bool) -> Selection:
        """As `Auto`."""
        return self.auto.default_selection(verified=verified)
