"""One total for many problems: a shared budget for many `auto` searches, in synchronous rounds.

A round begins when no search is running. So what the allocator sees and grants is a function of the problems and the
seed, never of timing. Each problem has a part of one account. A problem gets credit for each round; unspent credit
returns to the shared budget at the next one.

`Solution.stopped_by` has the rest of the total when all problems have ended, with the reason. No problem gets more than
16 samples, or eight times the total's mean if that is more, unless `auto(n=…)` allows it. A vote that stays open would
otherwise take whatever the others leave.

First samples come first. Each gets credit for all that a sample may need; problems that cannot be paid at once wait.
That need is estimated as four times the typical length, or twice the longest sample so far if that is more (our
choice).
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, cast

import numpy as np

from tts.allocator import shipped
from tts.allocator.allocate import Allocator, WaveGrant
from tts.allocator.auto import Auto
from tts.allocator.difficulty import Floats, Whole, shift
from tts.allocator.evidence import Evidence, Round
from tts.allocator.pace import Pace
from tts.allocator.performance_file import answers_alone
from tts.allocator.values import Curved, ProblemStates
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.ledger import Call
from tts.errors import ConfigError
from tts.search.ends import SearchEnded
from tts.search.plan import parse
from tts.search.search import Search

_FOREIGN = 0.001  # p-value below which votes are not those of the problems that the model was fitted to
_MOST, _OF_MEAN = 16, 8  # the most samples of one problem: 16, or 8 times the total's mean if that is more
_WORTH_SAYING = 0.1  # share of a total that may be left without a report
_FEWEST = 20  # problems from which the population is learnt
# what a first sample may need: 4 times the typical length, or 2 times the longest sample so far
_REACH, _AGAIN = 4, 2
_COUNTED = ("samples", "verifier_calls")  # units of which a long sample costs no more than a short one
_BEFORE = ("flops", "usd")  # units that a prompt costs, spent before the first round of a problem


def divide(total: Budget, parts: int) -> list[Budget]:
    """Return shares of a budget that sum to it.

    Counts differ by at most one. The limit `seconds` is not divided: it holds for all.

    Raises:
        ConfigError: a count is smaller than the number of parts.
    """
    shares: list[dict[str, float]] = [{} for _ in range(parts)]
    for unit, value in total.limits.items():
        if isinstance(value, int) and unit not in ("flops", "seconds", "usd"):
            if value < parts:
                raise ConfigError(
                    f"the total of {value} {unit} is too small for {parts} problems", hint=f"give at least {parts}"
                )
            for i in range(parts):
                shares[i][unit] = value // parts + (1 if i < value % parts else 0)
        else:
            for share in shares:
                share[unit] = value if unit == "seconds" else value / parts
    return [Budget(**share) for share in shares]  # type: ignore[arg-type]


def divide_account(total: Account, parts: int) -> list[Account]:
    """Return equal parts of what is left of an account.

    A part may have nothing, and a remainder goes to the first.
    """
    whole = {unit: total.available(unit) for unit in total.units}
    return [
        total.reserve_part({unit: amount // parts + (place < amount % parts) for unit, amount in whole.items()})
        for place in range(parts)
    ]


def _cut(amount: int, ends: Sequence[int]) -> list[int]:
    """Return whole parts that sum to an amount, in proportion to the steps between `ends`.

    Equal steps get equal parts where the amount divides evenly.
    """
    marks = [amount * end // ends[-1] for end in ends]
    return [mark - before for before, mark in itertools.pairwise([0, *marks])]


@dataclass(slots=True)
class Place:
    """One problem of a shared budget.

    Args:
        away: Whether its search is running; a wave begins when no search is running.
        granted: Samples of the last round.
        spent: What was spent before a round of another strategy than plain samples, by unit; None: the last round was
            of plain samples.
        beside: The cost of rounds of other strategies, by unit.
    """

    search: Search | None = None
    typical: Mapping[str, float] = field(default_factory=dict[str, float])
    granted: int = 0
    spent: Mapping[str, int] | None = None
    beside: Counter[str] = field(default_factory=Counter[str])
    away: bool = True
    waiting: asyncio.Future[Round] | None = None


class SharedBudget:
    """The common budget of problems that are solved by `auto`.

    Args:
        auto: The strategy.
        account: The account that all problems share.
        count: The number of problems.
        gate: A semaphore that every search holds while it is at work.

    Raises:
        ConfigError: the strategy has a mean, which is for problems that share nothing.
    """

    def __init__(self, auto: Auto, account: Account, count: int, gate: asyncio.Semaphore) -> None:
        if auto.mean is not None:
            raise ConfigError(
                f"mean is {auto.mean}, but budget is a total for all problems, which says what they may cost on "
                "average",
                hint="give each=…, a budget a problem, or leave mean out",
            )
        self.auto = auto
        self._account = account
        self._total = {unit: account.available(unit) for unit in account.units}
        self._gate = gate
        self._places = [Place() for _ in range(count)]
        # what each place has shown
        self._found = {f.name: np.full(count, f.default) for f in dataclasses.fields(Evidence)}
        self._cost = {unit: np.ones(count) for unit in self._total}  # the cost of one more sample of each problem
        self._had = np.zeros((count, len(auto.plans())), np.int64)  # the greatest size of each plan
        self._answers_alone = [answers_alone(parse(text)) for text in auto.plans()]
        self._length, self._longest = (
            np.ones(count),
            0,
        )  # tokens of a typical sample of each problem, and of the longest sample so far
        # alone: one problem is at work with all that is left; over: that did not pay for a sample
        self._alone = self._over = False
        self._waits = np.zeros(count, np.bool_)
        self._num_away = count
        self._pace = Pace()
        self._allocator: Allocator | None = None
        # samples of one problem; where n is None it is known in the first wave
        self._most = math.inf if auto.n is None else auto.n
        self._seen = 0  # samples when the allocator last learnt
        self._foreign = ""

    def strategy(self, place: int) -> BudgetShare:
        """Return the strategy of the problem at a place."""
        settings = {f.name: getattr(self.auto, f.name) for f in dataclasses.fields(self.auto)}
        return BudgetShare(**settings, shared=self, place=place)

    def open_account(self, noted: Callable[[Call], None]) -> Account:
        """Return the account of a problem before its first round.

        It has an even share of what its prompt costs, and nothing else.
        """
        amounts = {unit: amount // len(self._places) if unit in _BEFORE else 0 for unit, amount in self._total.items()}
        return self._account.reserve_part(amounts, noted=noted)

    async def next_round(self, place: int, search: Search, found: Evidence, had: Mapping[int, int]) -> Round:
        """Return the unspent credit of the last round and wait for the next; other searches may run meanwhile."""
        entry = self._places[place]
        if entry.search is None:
            self._length[place] = max(1, search.task.typical_tokens("solve"))
            entry.search, entry.typical = search, self._typical(search, int(self._length[place]))
        search.account.refund()
        num_drawn = found.samples + found.beside
        is_barren = entry.granted > 0 and num_drawn == self._found["samples"][place] + self._found["beside"][place]
        self._over = self._over or (is_barren and self._alone)
        self._note(place, search, found)
        for plan, size in had.items():
            self._had[place, plan] = size
        if is_barren or found.samples >= self._most:
            cap_reason = (
                "samples drawn"
                if self.auto.n is not None
                else f"samples drawn: the most of one problem, {self._most:g}; n= allows more"
            )
            return Round(0, why="budget: it paid for no further sample" if is_barren else cap_reason)
        entry.waiting = asyncio.get_running_loop().create_future()
        self._waits[place] = True
        self._gate.release()
        try:
            self._set_idle(entry)
            return await entry.waiting
        finally:
            entry.waiting, self._waits[place] = None, False
            await self._gate.acquire()

    def leave(self, place: int) -> None:
        """Mark a problem as ended; its account is closed."""
        self._set_idle(self._places[place])

    def _note(self, place: int, search: Search, found: Evidence) -> None:
        """Record what a problem has shown, and what a sample of it costs.

        The cost is a mean, in which the problem's own samples count once each, and the typical cost counts twice.
        """
        for name, values in self._found.items():
            values[place] = getattr(found, name)
        self._longest = max(self._longest, max((c.trajectory.num_tokens for c in search.candidates), default=0))
        account, n, entry = search.account, found.samples, self._places[place]
        if entry.spent is not None:
            entry.beside.update({unit: account.spending(unit) - before for unit, before in entry.spent.items()})
            entry.spent = None
        for unit, cost in self._cost.items():
            own_cost = account.spending(unit) + account.reservation(unit) - entry.beside[unit] if n else 0
            cost[place] = (own_cost + 2 * entry.typical[unit]) / (n + 2)

    def _set_idle(self, entry: Place) -> None:
        """Note that a problem's search no longer runs; the last one to stop begins the next wave."""
        if not entry.away:
            return  # its search ended while it waited for a round, or because the wave gave it none
        self._num_away -= 1
        entry.away = False
        if not self._num_away:
            try:
                self._wave(np.flatnonzero(self._waits))
            except Exception as failure:  # noqa: BLE001 - every problem that waits fails with it, not the last one alone
                for other in self._places:
                    if other.waiting is not None and not other.waiting.done():
                        other.waiting.set_exception(failure)

    def _wave(self, waiting: Whole) -> None:
        """Divide what is left over the problems that wait."""
        if not len(waiting):
            return
        available, seconds = self._available_amounts(), self._search(waiting[0]).account.seconds_left
        if self._over or min(available.values(), default=1) <= 0 or seconds == 0:
            self._end(waiting, "budget: it is used up" if seconds != 0 else "budget: seconds")
            return
        # the cost of one sample, as a share of what is left, in the unit where this share is greatest
        cost = most = np.full(len(waiting), 1e-12)
        reach = self._reach(waiting)
        for unit, amount in available.items():
            share = self._cost[unit][waiting] / amount
            cost, most = np.maximum(cost, share), np.maximum(most, share if unit in _COUNTED else share * reach)
        evidence = {name: values[waiting] for name, values in self._found.items()}
        # a first sample is tried with whatever is left
        cost = np.where(evidence["samples"] == 0, np.minimum(cost, 1.0), cost)
        waves, timed = math.inf, False
        if seconds is not None:
            self._pace.end(seconds)
            timed = bool((1 / self._pace.payable(seconds) > cost).any())
            cost, waves = np.maximum(cost, 1 / self._pace.payable(seconds)), self._pace.waves(seconds)
        mean, most = float(cost.mean()), np.maximum(cost, most)
        # the unit of the state is the mean cost of a sample
        state = self.auto.state(evidence, cost / mean, 1 / mean, waves=waves, most=most / mean, had=self._had[waiting])
        if self._allocator is None:
            # samples that a problem can have on average; 0: there is a time limit alone, and no wave was timed yet
            average = 1 / mean / len(waiting) if available else 0.0
            weighted = bool(evidence["weighted"].any())
            self._allocator = self.auto.allocator(alone=False, checked=state.checked, weighted=weighted, each=average)
            if self.auto.n is None and available:
                self._most = max(_MOST, int(_OF_MEAN * average + 1e-6))
        self._learn(waiting, state, evidence["agreeing"])
        grant = self._allocator.next(state)
        if grant.reason:
            self._end(
                waiting, f"settled: {grant.reason}" if "price" in grant.reason else f"budget: {grant.reason}", available
            )
            return
        self._give(waiting, grant, state, available, timed=timed or grant.hurried)
        if seconds is not None:
            self._pace.begin(seconds, int(grant.samples.sum()))

    def _give(
        self, waiting: Whole, grant: WaveGrant, state: ProblemStates, available: Mapping[str, int], *, timed: bool
    ) -> None:
        """Share out all credit that is left, in proportion to the grants.

        So no sample is cut short.
        """
        due = self._due(grant, state)
        served = self._payable(grant, due, state)
        weight = due[served]
        # whole numbers, so that equal weights get equal credit
        ends = list(itertools.accumulate(max(1, round(w * 2**40 / float(weight.max()))) for w in weight.tolist()))
        shares = {unit: _cut(amount, ends) for unit, amount in available.items()}
        self._num_away, self._alone = len(served), len(served) == 1 and not grant.plan[served[0]]
        for number, i in enumerate(served.tolist()):
            place, samples, plan = int(waiting[i]), int(grant.samples[i]), int(grant.plan[i])
            entry, search = self._places[place], self._search(place)
            if plan:
                entry.spent = {unit: search.account.spending(unit) for unit in self._total}
            if not self._answers_alone[plan]:
                samples = int(min(samples, self._most - int(self._found["samples"][place])))
            search.account.draw({unit: credit[number] for unit, credit in shares.items()})
            search.notes.timed |= timed
            entry.away, entry.granted = True, samples
            reason = (
                "an even share: votes do not show which problems would gain more"
                if grant.even
                else "pilots, to see how hard it is"
            )
            if grant.rate[i]:
                name, least = self.auto.plans()[plan], grant.price * state.cost[i]
                reason = (
                    f"{name}: each further sample adds {grant.rate[i]:.2g}; the least that was served, at this "
                    f"cost, {least:.2g}"
                )
            self._send(entry, Round(samples, plan, reason))

    def _due(self, grant: WaveGrant, state: ProblemStates) -> Floats:
        """Return the pay of each problem, in mean samples.

        A search is paid what it was allowed when its performance was measured.
        """
        due, plans, model = state.due(grant.samples), self.auto.plans(), self.auto.model
        for plan in sorted(set(grant.plan[grant.samples > 0].tolist()) - {0}):
            mask = (grant.plan == plan) & (grant.samples > 0)
            allowed = shipped.load(str(model)).limit(plans[plan], grant.samples[mask]) * state.cost[mask]
            due[mask] = np.maximum(due[mask], allowed)
        return due

    def _payable(self, grant: WaveGrant, due: Floats, state: ProblemStates) -> Whole:
        """Return the places in a wave that are served.

        Where what is left does not pay all searches, those that gain most are served.

        A search costs more on a hard problem than the mean that was measured. So it gets what it was allowed then, and
        what it leaves pays for the next ones. Without that, searches that all begin at once are all cut short.
        """
        served = np.flatnonzero(grant.samples)
        if due[served].sum() <= state.left or not grant.plan[served].any():
            return served
        order = served[np.argsort(-(grant.rate / state.cost)[served], kind="stable")]
        count = int(np.searchsorted(np.cumsum(due[order]), state.left, side="right"))
        return np.sort(order[: max(1, count)])

    def _end(self, waiting: Whole, why: str, available: Mapping[str, int] | None = None) -> None:
        unit, share = min(
            ((u, amount / self._total[u]) for u, amount in (available or {}).items()),
            key=lambda one: one[1],
            default=("", 0.0),
        )
        why = f"{why}; {share:.0%} of the total {unit} is left" if share >= _WORTH_SAYING else why
        for place in waiting.tolist():
            solved = self._found["solved"][place]
            self._send(
                self._places[place], Round(0, why="settled: the checker has accepted an answer" if solved else why)
            )

    def _send(self, entry: Place, granted: Round) -> None:
        cast("asyncio.Future[Round]", entry.waiting).set_result(granted)  # only waiting problems get rounds

    def _search(self, place: int) -> Search:
        """Return the search of a waiting problem, which always has one."""
        return cast("Search", self._places[place].search)

    def _typical(self, search: Search, length: int) -> Mapping[str, float]:
        """Return the cost of one sample of a length, by unit, in whole units."""
        cost = search.rows.sizes.sample_bound()
        return {unit: 1.0 if unit == "samples" else float(cost.bound(unit, length)) for unit in self._total}

    def _reach(self, waiting: Whole) -> Floats:
        """Return how many times the typical cost the first sample of each problem may need.

        The run's own cap of a sample is not exceeded.
        """
        typical, cap = self._length[waiting], self._search(waiting[0]).rows.sampling.max_tokens or math.inf
        return np.maximum(1.0, np.minimum(np.maximum(_REACH * typical, _AGAIN * self._longest), cap) / typical)

    def _available_amounts(self) -> dict[str, int]:
        """Return the amounts that are neither spent nor held, by unit."""
        return {unit: self._account.available(unit) for unit in self._total}

    def _learn(self, waiting: Whole, state: ProblemStates, agreeing: Whole) -> None:
        """Adapt the allocator whenever samples have doubled since the last time.

        Also check that the performance model fits these problems.
        """
        num_samples = int(state.samples.sum())
        if self._allocator is None or len(waiting) < _FEWEST or num_samples < max(len(waiting), 2 * self._seen):
            return
        values = self._allocator.values
        if isinstance(values, Curved) and not self._foreign:
            alike = (state.samples == np.bincount(state.samples).argmax()) & (state.samples > 1)
            if alike.sum() >= _FEWEST:
                p = shift(
                    values.model.population, agreeing[alike], np.zeros_like(agreeing[alike]), state.samples[alike]
                )
                if p < _FOREIGN:
                    self._foreign = (
                        "the votes are not like those of the problems that the performance model was "
                        f"fitted to (p = {p:.1g})"
                    )
                    for place in waiting.tolist():
                        self._search(place).notes.warn(self._foreign)
        self._seen = num_samples
        self._allocator = self._allocator.adapt(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShare(Auto):
    """`auto` for one of many problems: its rounds come from a shared budget.

    Args:
        shared: The source of its rounds.
        place: Index of the problem.
    """

    shared: SharedBudget
    place: int

    def __str__(self) -> str:
        return str(self.shared.auto)

    async def next_round(self, search: Search, found: Evidence, had: Mapping[int, int]) -> Round:
        """Wait for the next round."""
        return await self.shared.next_round(self.place, search, found, had)

    def may_continue(self, end: SearchEnded) -> bool:
        """Return whether the search may continue.

        It may continue where its credit was used up, but not its time, and no stop rule fired.
        """
        return end.out_of_budget

    def size(self, units: int | None) -> Self:
        """Return itself: the shared budget gives its rounds their sizes."""
        del units
        return self
