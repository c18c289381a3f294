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
from tts.budget.ledger import Call
from tts.budget.units import FIXED_UNITS, PLACE_UNITS, PRICED_UNITS
from tts.errors import ConfigError
from tts.search.ends import SearchEnded
from tts.search.plan import parse
from tts.search.search import Search

_FOREIGN = 0.001  # p-value below which votes are not those of the problems that the model was fitted to
_MOST, _OF_MEAN = 16, 8  # the most samples of one problem: 16, or 8 times the total's mean if that is more
_REPORTED_SHARE = 0.1  # share of a total that may be left without a report
_FEWEST = 20  # problems from which the population is learnt
# what a first sample may need: 4 times the typical length, or 2 times the longest sample so far
_REACH, _AGAIN = 4, 2


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
        # by field of `Evidence`: the values of all problems
        self._evidence = {field.name: np.full(count, field.default) for field in dataclasses.fields(Evidence)}
        self._sample_cost = {unit: np.ones(count) for unit in self._total}  # of one more sample of each problem
        self._plan_sizes = np.zeros((count, len(auto.plans())), np.int64)  # [problems, plans], the greatest sizes
        self._answers_alone = [answers_alone(parse(text)) for text in auto.plans()]
        self._typical_tokens = np.ones(count)  # of a sample of each problem
        self._longest_tokens = 0  # of any sample so far
        self._is_alone = False  # whether one problem is at work with all that is left
        self._is_over = False  # whether all that is left did not pay for a sample
        self._is_waiting = np.zeros(count, np.bool_)
        self._num_running = count  # searches at work
        self._pace = Pace()
        self._allocator: Allocator | None = None
        # of one problem; where n is None, the first wave determines the number
        self._max_samples = math.inf if auto.n is None else auto.n
        self._num_learnt = 0  # samples when the allocator last learnt
        self._misfit = ""  # the warning that the performance model does not fit these problems

    def share(self, place: int) -> BudgetShare:
        """Return the share of the problem at a place."""
        settings = {f.name: getattr(self.auto, f.name) for f in dataclasses.fields(self.auto)}
        return BudgetShare(**settings, shared=self, place=place)

    def open_account(self, noted: Callable[[Call], None] | None) -> Account:
        """Return the account of a problem before its first round.

        It has an even share of what its prompt costs, and nothing else.
        """
        amounts = {
            unit: amount // len(self._places) if unit in PRICED_UNITS else 0 for unit, amount in self._total.items()
        }
        return self._account.reserve_part(amounts, noted=noted)

    async def next_round(self, place: int, search: Search, found: Evidence, had: Mapping[int, int]) -> Round:
        """Give back the unspent credit of the last round, wait for the next round and return it.

        Other searches may run meanwhile.

        Args:
            place: The index of the problem.
            search: The search of the problem.
            found: The evidence so far.
            had: The greatest size of each plan that the search has run.
        """
        entry = self._places[place]
        if entry.search is None:
            self._typical_tokens[place] = max(1, search.task.typical_tokens("solve"))
            entry.search, entry.typical = search, self._typical(search, int(self._typical_tokens[place]))
        search.account.refund()
        num_candidates = found.samples + found.beside
        num_before = self._evidence["samples"][place] + self._evidence["beside"][place]
        is_barren = entry.granted > 0 and num_candidates == num_before  # the last round paid for no sample
        self._is_over = self._is_over or (is_barren and self._is_alone)
        self._note(place, search, found)
        for plan, size in had.items():
            self._plan_sizes[place, plan] = size
        if is_barren:
            return Round(0, why="budget: it paid for no further sample")
        if found.samples >= self._max_samples:
            cap_text = f": the most of one problem, {self._max_samples:g}; n= allows more"
            return Round(0, why="samples drawn" if self.auto.n is not None else f"samples drawn{cap_text}")
        entry.waiting = asyncio.get_running_loop().create_future()
        self._is_waiting[place] = True
        self._gate.release()
        try:
            self._set_idle(entry)
            return await entry.waiting
        finally:
            entry.waiting, self._is_waiting[place] = None, False
            await self._gate.acquire()

    def leave(self, place: int) -> None:
        """Mark a problem as ended; its account is closed."""
        self._set_idle(self._places[place])

    def _note(self, place: int, search: Search, evidence: Evidence) -> None:
        """Record the evidence of a problem, and the mean cost of one of its plain samples.

        The mean is over the problem's own samples and two samples of the typical cost.
        """
        for field_name, values in self._evidence.items():
            values[place] = getattr(evidence, field_name)
        lengths = [c.trajectory.num_tokens for c in search.candidates]
        self._longest_tokens = max([self._longest_tokens, *lengths])
        account, n, entry = search.account, evidence.samples, self._places[place]
        if entry.spent is not None:  # the last round was of another strategy than plain samples
            for unit, spent_before in entry.spent.items():
                entry.beside[unit] += account.spending(unit) - spent_before
            entry.spent = None
        for unit, mean_costs in self._sample_cost.items():
            samples_cost = 0
            if n:
                total_cost = account.spending(unit) + account.reservation(unit)
                samples_cost = total_cost - entry.beside[unit]  # without the rounds of other strategies
            mean_costs[place] = (samples_cost + 2 * entry.typical[unit]) / (n + 2)

    def _set_idle(self, entry: Place) -> None:
        """Note that a problem's search no longer runs; the last one to stop begins the next wave."""
        if not entry.away:
            return  # it was noted before: the search ended while it waited, or because the wave gave it no round
        self._num_running -= 1
        entry.away = False
        if not self._num_running:
            try:
                self._wave(np.flatnonzero(self._is_waiting))
            except Exception as failure:  # noqa: BLE001 - it fails every problem that waits, not the last one alone
                for place_entry in self._places:
                    if place_entry.waiting is not None and not place_entry.waiting.done():
                        place_entry.waiting.set_exception(failure)

    def _wave(self, waiting: Whole) -> None:
        """Divide the amounts that are left among the problems that wait.

        Args:
            waiting: The places of the problems.
        """
        if not len(waiting):
            return
        available, seconds = self._available_amounts(), self._search(waiting[0]).account.seconds_left
        if self._is_over or min(available.values(), default=1) <= 0 or seconds == 0:
            self._end(waiting, "budget: it is used up" if seconds != 0 else "budget: seconds")
            return
        # the cost of one sample of each problem, as a share of what is left, in the unit where this share is greatest
        cost = np.full(len(waiting), 1e-12)
        most = cost  # the greatest cost that a first sample may have
        reach = self._reach(waiting)
        for unit, amount in available.items():
            share = self._sample_cost[unit][waiting] / amount
            cost = np.maximum(cost, share)
            most = np.maximum(most, share if unit in FIXED_UNITS else share * reach)
        evidence = {name: values[waiting] for name, values in self._evidence.items()}
        # a first sample is tried with whatever is left
        cost = np.where(evidence["samples"] == 0, np.minimum(cost, 1.0), cost)
        waves, timed = math.inf, False
        if seconds is not None:
            self._pace.end(seconds)
            time_cost = 1 / self._pace.payable(seconds)  # one sample, as a share of the time that is left
            timed = bool((time_cost > cost).any())
            cost = np.maximum(cost, time_cost)
            waves = self._pace.waves(seconds)
        most = np.maximum(cost, most)
        mean = float(cost.mean())
        # the unit of the state is the mean cost of a sample
        state = self.auto.state(
            evidence, cost / mean, 1 / mean, waves=waves, most=most / mean, had=self._plan_sizes[waiting]
        )
        if self._allocator is None:
            # samples that a problem can have on average; 0: time alone is limited, and no wave was timed so far
            mean_samples = 1 / mean / len(waiting) if available else 0.0
            weighted = bool(evidence["weighted"].any())
            self._allocator = self.auto.allocator(
                alone=False, checked=state.checked, weighted=weighted, each=mean_samples
            )
            if self.auto.n is None and available:
                self._max_samples = max(_MOST, int(_OF_MEAN * mean_samples + 1e-6))
        self._learn(waiting, state, evidence["agreeing"])
        grant = self._allocator.next(state)
        if grant.reason:
            kind = "settled" if "price" in grant.reason else "budget"
            self._end(waiting, f"{kind}: {grant.reason}", available)
            return
        self._give(waiting, grant, state, available, timed=timed or grant.hurried)
        if seconds is not None:
            self._pace.begin(seconds, int(grant.samples.sum()))

    def _give(
        self, waiting: Whole, grant: WaveGrant, state: ProblemStates, available: Mapping[str, int], *, timed: bool
    ) -> None:
        """Share out all credit that is left, in proportion to the grants.

        Nothing is held back, so no sample is cut short.

        Args:
            waiting: The places of the problems that wait.
            grant: The samples and plans of the wave, one entry a waiting problem.
            state: The state that the grant was made from.
            available: The amounts that are left, by unit.
            timed: Whether the grant depends on the time that is left.
        """
        due = self._due(grant, state)
        served = self._payable(grant, due, state)
        # whole numbers, so that equal weights get equal credit
        weights = [max(1, round(amount * 2**40 / float(due[served].max()))) for amount in due[served].tolist()]
        ends = list(itertools.accumulate(weights))
        credit_by_unit = {unit: _cut(amount, ends) for unit, amount in available.items()}
        self._num_running = len(served)
        self._is_alone = len(served) == 1 and not grant.plan[served[0]]
        for number, i in enumerate(served.tolist()):
            place, samples, plan = int(waiting[i]), int(grant.samples[i]), int(grant.plan[i])
            entry, search = self._places[place], self._search(place)
            if plan:
                entry.spent = {unit: search.account.spending(unit) for unit in self._total}
            if not self._answers_alone[plan]:
                samples = int(min(samples, self._max_samples - int(self._evidence["samples"][place])))
            search.account.draw({unit: amounts[number] for unit, amounts in credit_by_unit.items()})
            search.notes.timed |= timed
            entry.away, entry.granted = True, samples
            if grant.rate[i]:
                name, least_rate = self.auto.plans()[plan], grant.price * state.cost[i]
                reason = (
                    f"{name}: each further sample adds {grant.rate[i]:.2g}; the least that was served, at this "
                    f"cost, {least_rate:.2g}"
                )
            elif grant.even:
                reason = "an even share: votes do not show which problems would gain more"
            else:
                reason = "pilots, to see how hard it is"
            self._send(entry, Round(samples, plan, reason))

    def _due(self, grant: WaveGrant, state: ProblemStates) -> Floats:
        """Return the credit that each problem needs, [waiting], in units of a mean sample.

        Another strategy than plain samples gets the limit that it had when its performance was measured.
        """
        due, plans, model = state.due(grant.samples), self.auto.plans(), self.auto.model
        granted_plans = set(grant.plan[grant.samples > 0].tolist())
        for plan in sorted(granted_plans - {0}):  # 0: plain samples
            has_plan = (grant.plan == plan) & (grant.samples > 0)
            measured_limit = shipped.load(str(model)).limit(plans[plan], grant.samples[has_plan])
            due[has_plan] = np.maximum(due[has_plan], measured_limit * state.cost[has_plan])
        return due

    def _payable(self, grant: WaveGrant, due: Floats, state: ProblemStates) -> Whole:
        """Return the indices of the waiting problems that are served.

        Where the credit does not pay all searches, those with the greatest gain for their cost are served.

        A search costs more on a hard problem than the mean that was measured. So it gets the limit of that measurement,
        and its unspent credit pays for later searches. If all searches began at once, all would be cut short.
        """
        served = np.flatnonzero(grant.samples)
        if due[served].sum() <= state.left or not grant.plan[served].any():
            return served
        gains = (grant.rate / state.cost)[served]
        order = served[np.argsort(-gains, kind="stable")]
        num_paid = int(np.searchsorted(np.cumsum(due[order]), state.left, side="right"))
        return np.sort(order[: max(1, num_paid)])

    def _end(self, waiting: Whole, why: str, available: Mapping[str, int] | None = None) -> None:
        """End the searches of all problems that wait.

        Args:
            waiting: The places of the problems.
            why: The reason.
            available: The amounts that are left, by unit; None: nothing is reported about them.
        """
        shares = {unit: amount / self._total[unit] for unit, amount in (available or {}).items()}
        if shares:
            scarcest_unit = min(shares, key=shares.__getitem__)
            share = shares[scarcest_unit]
            if share >= _REPORTED_SHARE:
                why = f"{why}; {share:.0%} of the total {scarcest_unit} is left"
        for place in waiting.tolist():
            is_solved = self._evidence["solved"][place]
            reason = "settled: the checker has accepted an answer" if is_solved else why
            self._send(self._places[place], Round(0, why=reason))

    def _send(self, entry: Place, granted: Round) -> None:
        cast("asyncio.Future[Round]", entry.waiting).set_result(granted)  # only waiting problems get rounds

    def _search(self, place: int) -> Search:
        """Return the search of a waiting problem, which always has one."""
        return cast("Search", self._places[place].search)

    def _typical(self, search: Search, length: int) -> Mapping[str, float]:
        """Return the cost of one sample of a length, by unit, in whole units."""
        price = search.rows.sample_price()
        return {unit: float(price.amount(unit, length) + int(unit in PLACE_UNITS)) for unit in self._total}

    def _reach(self, waiting: Whole) -> Floats:
        """Return how many times the typical cost the first sample of each problem may need.

        The run's own cap of a sample is not exceeded.
        """
        typical, cap = self._typical_tokens[waiting], self._search(waiting[0]).rows.sampling.max_tokens or math.inf
        return np.maximum(1.0, np.minimum(np.maximum(_REACH * typical, _AGAIN * self._longest_tokens), cap) / typical)

    def _available_amounts(self) -> dict[str, int]:
        """Return the amounts that are neither spent nor held, by unit."""
        return {unit: self._account.available(unit) for unit in self._total}

    def _learn(self, waiting: Whole, state: ProblemStates, agreeing: Whole) -> None:
        """Adapt the allocator to these problems, whenever their samples have doubled since the last time.

        Then a performance model is also checked: if its population does not fit the votes, every problem gets a
        warning.

        Args:
            waiting: The places of the problems that wait.
            state: Their state.
            agreeing: The samples of each that gave its most frequent answer.
        """
        num_samples = int(state.samples.sum())
        if self._allocator is None or len(waiting) < _FEWEST or num_samples < max(len(waiting), 2 * self._num_learnt):
            return
        values = self._allocator.values
        if isinstance(values, Curved) and not self._misfit:
            commonest_size = np.bincount(state.samples).argmax()
            is_tested = (state.samples == commonest_size) & (state.samples > 1)
            if is_tested.sum() >= _FEWEST:
                votes = agreeing[is_tested]
                p = shift(values.model.population, votes, np.zeros_like(votes), state.samples[is_tested])
                if p < _FOREIGN:
                    self._misfit = (
                        "the votes are not like those of the problems that the performance model was "
                        f"fitted to (p = {p:.1g})"
                    )
                    for place in waiting.tolist():
                        self._search(place).notes.warn(self._misfit)
        self._num_learnt = num_samples
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
