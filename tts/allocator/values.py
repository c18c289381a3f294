"""What the next samples of each problem are worth: three estimates behind one protocol.

    Checked   a perfect checker ends a problem at its first right sample: the expected success rate after the failures
    so far Voted     no verifier: the exact index of the votes so far (`tts.allocator.votes`)
    Curved    any strategies, by their measured accuracy at each difficulty and size (`tts.allocator.performance`)

Shapes: P problems, Z kinds, G success rates, B sizes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from tts.allocator.difficulty import RATES, Floats, Population, Whole
from tts.allocator.performance import MOST, PerformanceModel
from tts.allocator.performance_file import answers_alone
from tts.allocator.votes import Votes
from tts.search.plan import parse

_FAILURES = 1024  # of a problem, that are told apart where a price is sought
_ROWS = 4096  # problems whose tables are made at once
_TILTS = (-24.0, -8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0, 24.0)  # of populations, by evidence beside votes
_TILTED_ROOM = 64  # votes that their tables tell apart
_NOISE = 1e-12  # of a rise, by rounding
# at which problems are asked what they would take
_PRICES: Floats = np.concatenate([[0.0], np.geomspace(1e-4, 0.5, 24)])
_UNTILTED = -1  # the table of the population as it is


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemStates:
    """What is known of P problems between two waves.

    Args:
        samples: [P], drawn so far.
        leader: [P], of them those that gave the most frequent answer.
        second: [P], of them those that gave the second most frequent answer.
        solved: [P], whether a checker has accepted one.
        open: [P], whether it may still be served (not ended, not failed).
        cost: [P], what one more sample of it costs, in the unit of `left`; above 0.
        left: What there is to divide.
        evidence: [P, Z], log-likelihood of other evidence (a guess, a probe; see `tts.allocator.gauges`), beside votes
            and checks; None: nothing.
        checked: Whether a checker has judged the samples, so that those of a problem that is not solved are wrong.
        waves: How many more waves there is time for, at least 1; infinite: time is no matter.
        most: [P], what one sample of it may need, at least `cost`; None: no more than `cost`.
        had: [P, K], the greatest size at which it has had each of K plans, 0: not yet; None: none has had another than
            plain samples.
        beside: [P], candidates that other models than the policy wrote, which are not among the samples; None: none.
    """

    samples: Whole
    leader: Whole
    second: Whole
    solved: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    open: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    cost: Floats
    left: float
    evidence: Floats | None = None
    checked: bool = False
    waves: float = math.inf
    most: Floats | None = None
    had: Whole | None = None
    beside: Whole | None = None

    @classmethod
    def of(
        cls,
        samples: ArrayLike,
        left: float,
        *,
        leader: ArrayLike = 0,
        second: ArrayLike = 0,
        solved: ArrayLike = False,
        is_open: ArrayLike = True,
        cost: ArrayLike = 1.0,
        **more: Any,
    ) -> ProblemStates:
        """Return a state of lists; a single value stands for all problems.

        Args:
            samples: As the field of this name.
            left: As the field of this name.
            leader: As the field of this name.
            second: As the field of this name.
            solved: As the field of this name.
            is_open: The field `open`.
            cost: As the field of this name.
            more: The other fields by name.
        """
        sample_counts = np.atleast_1d(np.asarray(samples, np.int64))  # [P]

        def for_all_problems(values: ArrayLike, kind: type) -> Any:
            return np.broadcast_to(np.asarray(values, kind), sample_counts.shape)

        return cls(
            samples=sample_counts,
            leader=for_all_problems(leader, np.int64),
            second=for_all_problems(second, np.int64),
            solved=for_all_problems(solved, np.bool_),
            open=for_all_problems(is_open, np.bool_),
            cost=for_all_problems(cost, np.float64),
            left=left,
            **more,
        )

    def due(self, samples: Whole) -> Floats:
        """Return the amounts that pay the given numbers of further samples of each problem.

        The first sample of a problem is paid with all that it may need.
        """
        first = 0.0 if self.most is None else np.where((self.samples == 0) & (samples > 0), self.most - self.cost, 0.0)
        return samples * self.cost + first

    def votes(self) -> tuple[Whole, Whole, Whole]:
        """Return leading votes, second votes and samples."""
        return self.leader, self.second, self.samples


@dataclass(frozen=True, slots=True)
class Worth:
    """What going on is worth.

    Args:
        rate: [P], right answers by each further sample, at best.
        block: [P], samples that must be granted together to get it; 1: any number.
        plan: [P], what to do with them: 0 plain samples, else the number of another strategy.
        cost: [P], what a block is expected to cost, in samples of the problem. A search costs more on a hard problem
            than on an easy one of the same size.
    """

    rate: Floats
    block: Whole
    plan: Whole
    cost: Floats


def plain_worth(rate: Floats) -> Worth:
    """Return the worth of plain samples, each granted alone, from their rates [P]."""
    ones = np.ones(len(rate), np.int64)
    return Worth(rate=rate, block=ones, plan=ones * 0, cost=np.ones(len(rate)))


class Values(Protocol):
    """What an allocator goes by."""

    def worth(self, state: ProblemStates, price: float = 0.0) -> Worth:
        """Return the worth of the next samples of each problem.

        Args:
            state: The state of the problems.
            price: The right answers that a cost of 1 must bring, at least 0. It decides between strategies of several
                sizes.
        """
        ...

    def chance(self, state: ProblemStates) -> Floats:
        """Return the chance [P] that each problem's answer is right as it stands."""
        ...

    def price(self, samples: float) -> float:
        """Return the price at which plain samples come to a mean number per problem.

        Problems are taken to be served one at a time.
        """
        ...

    def adapt(self, state: ProblemStates) -> Values:
        """Return values whose population has learnt from these problems' first samples."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Values with a perfect checker: the chance that a sample is right, and 0 after the first right one.

    Idea: the chance only falls with each failure, so the most promising problem now was so in any order: to serve the
        highest first is best for any total (a bandit whose arms only get worse).

    Args:
        population: The population of the problems.
    """

    population: Population

    def worth(self, state: ProblemStates, price: float = 0.0) -> Worth:
        """Return the expected success rate of each unsolved problem; 0 for a solved one."""
        del price
        if state.evidence is None:
            failures, place = np.unique(state.samples, return_inverse=True)  # each number of failures once
            rate = self._rates(failures, None)[place]
        else:
            rate = self._rates(state.samples, state.evidence)
        return plain_worth(np.where(state.solved, 0.0, rate))

    def _rates(self, failures: Whole, evidence: Floats | None) -> Floats:
        known = self.population.verdict_likelihood(np.zeros_like(failures), failures)
        return self.population.mean_rate(self.population.posterior(known if evidence is None else known + evidence))

    def chance(self, state: ProblemStates) -> Floats:
        """Return 1 for what is solved."""
        return state.solved.astype(np.float64)

    def price(self, samples: float) -> float:
        """Return the rate after as many failures as bring the samples of all to so many on average."""
        failures = np.arange(_FAILURES)
        reached = np.exp(self.population.verdict_likelihood(0 * failures, failures)) @ self.population.weight
        return float(np.interp(samples, np.cumsum(reached), self._rates(failures, None)))

    def adapt(self, state: ProblemStates) -> Checked:
        """Learn from which problems were solved, at their last sample, and which not at all."""
        population = fit_population(self.population, dataclasses.replace(state, checked=True))
        return self if population is self.population else Checked(population)


@dataclass(frozen=True, slots=True, eq=False)
class Voted:
    """By votes, plain or weighted.

    Further evidence tilts the population: it gives a problem an expected success rate before its votes. The problem is
    read between the two tables whose mean success rates are next to that one. Our choice: a table for each problem
    would be exact, and take seconds.

    Args:
        population: The population of the problems.
        most: Votes that are told apart exactly, 1 to 256; more are read in proportion.
    """

    population: Population
    most: int = 64
    _tables: dict[int, Votes] = field(init=False, default_factory=dict[int, Votes])  # by tilt

    @property
    def table(self) -> Votes:
        """The table of the population itself. It is made at its first use, for pilots need none."""
        return self._table(_UNTILTED, self.population, self.most)

    def _table(self, tilt: int, population: Population, most: int) -> Votes:
        if tilt not in self._tables:
            self._tables[tilt] = Votes.of(population, most)
        return self._tables[tilt]

    def worth(self, state: ProblemStates, price: float = 0.0) -> Worth:
        """Return the index of each problem's votes."""
        del price
        _chance, index = self._look(state)
        return plain_worth(np.where(state.solved, 0.0, index))

    def chance(self, state: ProblemStates) -> Floats:
        """Return the chance that the leading answer is right."""
        chance, _index = self._look(state)
        return np.where(state.solved, 1.0, chance)

    def _look(self, state: ProblemStates) -> tuple[Floats, Floats]:
        """Return the chance that each problem's leading answer is right, and the index of its votes, [P] each.

        Where there is evidence beside the votes, both are interpolated between the tables of two tilted populations.
        """
        if state.evidence is None:
            return self.table.look(*state.votes())
        tilted = [_tilt(self.population, strength) for strength in _TILTS]
        mean_rates = np.array([population.weight @ population.rate for population in tilted])
        expected_rate = self.population.mean_rate(self.population.posterior(state.evidence))  # [P]
        place = np.interp(expected_rate, mean_rates, np.arange(len(tilted)))  # [P], between the tables
        lower = np.minimum(np.floor(place).astype(np.int64), len(tilted) - 2)
        chance, index = np.zeros(len(place)), np.zeros(len(place))
        for number in np.union1d(lower, lower + 1).tolist():
            table = self._table(number, tilted[number], min(self.most, _TILTED_ROOM))
            share = np.maximum(0.0, 1.0 - np.abs(place - number))  # of this table, [P]
            rows = np.flatnonzero(share > 0)
            leader, second, samples = state.votes()
            table_chance, table_index = table.look(leader[rows], second[rows], samples[rows])
            chance[rows] += share[rows] * table_chance
            index[rows] += share[rows] * table_index
        return chance, index

    def price(self, samples: float) -> float:
        """Return the price of votes, from their table."""
        return self.table.price(samples)

    def adapt(self, state: ProblemStates) -> Voted:
        """Learn from the votes of all problems together."""
        population = fit_population(self.population, state)
        return self if population is self.population else Voted(population, self.most)


def _tilt(population: Population, strength: float) -> Population:
    """Return a population with its weight moved to high success rates, or to low ones (strength below 0)."""
    weight = population.weight * np.exp(strength * (population.rate - 0.5))
    return dataclasses.replace(population, weight=weight / weight.sum())


def evidence_of(state: ProblemStates) -> Whole:
    """Return the evidence of problems' difficulty, [2 or 3, P].

    The rows are numbers of right and wrong samples where a checker judged them. Otherwise they are leading votes,
    second votes and samples.
    """
    if not state.checked:
        return np.stack(state.votes())
    # where other models wrote candidates, the accepted answer may be theirs, which says nothing of the policy
    by_policy = state.solved if state.beside is None else state.solved & (state.beside == 0)
    right = by_policy.astype(np.int64)  # the first right sample alone counts, for it ends the problem
    return np.stack([right, np.maximum(0, state.samples - right)])


def likelihood(population: Population, seen: Whole, *, checked: bool) -> Floats:
    """Return the log-likelihood [S, Z] of the evidence that `evidence_of` returns."""
    return population.verdict_likelihood(*seen) if checked else population.vote_likelihood(*seen)


def fit_population(population: Population, state: ProblemStates) -> Population:
    """Return the population of maximum posterior for what was observed of problems."""
    tried = state.samples > (0 if state.checked else 1)  # one vote agrees with itself
    if not tried.any():
        return population
    seen, count = np.unique(evidence_of(state)[:, tried], axis=1, return_counts=True)
    return population.fit(likelihood(population, seen, checked=state.checked), count)


@dataclass(frozen=True, slots=True, eq=False)
class Curved:
    """Values by votes or verdicts and by the measured accuracy of other strategies.

    They are averages under the posterior over success rates.

    Idea: every strategy is asked what it would gain at each size, less the price of what that costs, each averaged over
    the posterior.
        Of the sizes that what is left pays for, the one that gains most is taken, of the strategy that gains most. The
        price is the least at which all problems together ask for no more than what is left, or the next below it: then
        those that gain most a sample are served. So a search gets at once all that it is worth: a greater one begins
        anew, and what a smaller one has spent is lost. That is A14's choice with a posterior for the bin, and for many
        problems the Lagrangian of a division (Everett 1963). Plain samples compete by their own curve, from the samples
        drawn so far. Where they are chosen, votes or verdicts decide how they are drawn, as `Checked` or `Voted` has it
        under the model's population: the curve cannot tell settled votes from open ones. By it alone, allocation gained
        next to nothing over uniform on the toy world, where votes gained what the best policy does. The size at which a
        problem has had another strategy, and those below, are not offered to it again: that would repeat its answer,
        which is among the votes. The answer is right with the chance of the strategy's curve, or of the votes,
        whichever is greater. This is our choice.

        A strategy that uses models beside the policy, or whose stop rule chooses its solutions, has no vote beside
        the policy's samples: what it answers is the answer, without a checker. The problem is then right by that
        strategy's curve, and only another such strategy, or more of it, can add anything.

    Args:
        model: Fitted.
        plans: The strategies that may be chosen, the first of which draws plain samples of the policy.
        population: The population of the problems; by default the model's.
        most: As in `Voted`.
    """

    model: PerformanceModel
    plans: tuple[str, ...]
    population: Population
    most: int = 64
    votes: Voted = field(init=False)
    apart: tuple[bool, ...] = field(init=False)  # whether each plan answers by its own candidates alone

    def __post_init__(self) -> None:
        object.__setattr__(self, "votes", Voted(self.population, self.most))
        object.__setattr__(self, "apart", tuple(answers_alone(parse(text)) for text in self.plans))

    def worth(self, state: ProblemStates, price: float = 0.0) -> Worth:
        """Return the value of the best next samples of each problem at a price.

        It is the index of plain samples, or the mean gain a sample of another strategy where that is greater.
        """
        plain = (Checked(self.population) if state.checked else self.votes).worth(state)
        is_answered = (self._chance_of_others(state) > 0) & (not state.checked)  # by models beside the policy
        plain_rate = np.where(is_answered, 0.0, plain.rate)
        if len(self.plans) == 1:
            return Worth(rate=plain_rate, block=plain.block, plan=plain.plan, cost=plain.cost)
        prices = np.unique(np.maximum(_PRICES, price))
        first_rows = range(0, len(plain.rate), _ROWS)
        pieces = [self._best_offers(state, slice(row, row + _ROWS), prices) for row in first_rows]
        # one array of all prices and problems each
        sizes, plans, costs, gains = (np.concatenate(arrays, axis=1) for arrays in zip(*pieces, strict=True))
        total_costs = (costs * state.cost * state.open).sum(axis=1)
        payable = np.flatnonzero(total_costs <= state.left)
        # the price below the least payable one: there the problems want more than is left, and the best are served
        place = max(0, int(payable[0]) - 1) if len(payable) else len(prices) - 1
        wants_other = (plans[place] > 0) & ~state.solved
        return Worth(
            rate=np.where(wants_other, gains[place] / np.maximum(1.0, costs[place]), plain_rate),
            block=np.where(wants_other, sizes[place], plain.block),
            plan=np.where(wants_other, plans[place], plain.plan),
            cost=np.where(wants_other, costs[place], plain.cost),
        )

    def _best_offers(self, state: ProblemStates, rows: slice, prices: Floats) -> tuple[Whole, Whole, Floats, Floats]:
        """Return the offer that each problem takes at each price: its size, plan, cost and gain, [prices, rows].

        The size 0 stands for no offer.
        """
        offers = [
            self._more_samples(state, rows),
            *(self._search(state, rows, number) for number in range(1, len(self.plans))),
        ]
        posterior = self._over_rates(state, rows)  # [rows, G]
        sample_cost = state.cost[rows, None]
        row = np.arange(len(sample_cost))
        shape = len(prices), len(row)
        sizes, plans = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        costs, gains, best_net = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for number, (offer_sizes, offer_gains) in enumerate(offers):
            limit = self.model.limit(self.plans[number], offer_sizes)
            payable_gains = np.where(sample_cost * limit <= state.left, offer_gains, -np.inf)  # [rows, B]
            cost_table = self.model.cost(self.plans[number])
            if cost_table is None:
                offer_costs = np.broadcast_to(offer_sizes.astype(np.float64), payable_gains.shape)
            else:
                offer_costs = posterior @ cost_table[:, 1:]
            for i, price in enumerate(prices.tolist()):
                net = payable_gains - price * sample_cost * offer_costs
                best_size = net.argmax(axis=1)  # [rows], a place among the sizes
                row_net = net[row, best_size]
                is_better = row_net > best_net[i] + _NOISE
                best_net[i] = np.where(is_better, row_net, best_net[i])
                gains[i] = np.where(is_better, payable_gains[row, best_size], gains[i])
                costs[i] = np.where(is_better, offer_costs[row, best_size], costs[i])
                sizes[i] = np.where(is_better, offer_sizes[best_size], sizes[i])
                plans[i] = np.where(is_better, number, plans[i])
        is_over = state.solved[rows] | ~state.open[rows]
        return np.where(is_over, 0, sizes), np.where(is_over, 0, plans), np.where(is_over, 0.0, costs), gains

    def _more_samples(self, state: ProblemStates, rows: slice) -> tuple[Whole, Floats]:
        """Return numbers of further plain samples [B], and the gain of each number for each problem [rows, B].

        Gains follow from verdicts if a checker judges samples, else from the curve of plain samples. They are 0 where a
        strategy with other models has answered.
        """
        posterior = self._over_rates(state, rows)  # [rows, G]
        sizes, accuracy = self.model.table(self.plans[0])
        more = sizes[1 : MOST + 1]
        if state.checked:
            return more, posterior @ (1.0 - (1.0 - RATES[:, None]) ** more)
        expected_accuracy = posterior @ accuracy  # [rows, sizes from 0]
        num_drawn = np.minimum(state.samples[rows], MOST)[:, None]
        accuracy_then = np.take_along_axis(expected_accuracy, np.minimum(num_drawn + more, MOST), axis=1)
        accuracy_now = np.take_along_axis(expected_accuracy, num_drawn, axis=1)
        is_answered = self._chance_of_others(state)[rows, None] > 0
        return more, np.where(is_answered, 0.0, accuracy_then - accuracy_now)

    def _search(self, state: ProblemStates, rows: slice, number: int) -> tuple[Whole, Floats]:
        """Return the sizes [B] of another strategy, and the gain of each size for each problem [rows, B].

        The gain of a size that is not offered is minus infinity.
        """
        posterior = self._over_rates(state, rows)  # [rows, G]
        chance_of_others = self._chance_of_others(state)
        is_apart = self.apart[number]
        sizes, accuracy = self.model.table(self.plans[number])
        chance_now = self._unsolved_chances(state, chance_of_others)
        if is_apart:
            chance_now = np.maximum(chance_now, chance_of_others)
        chance_now = chance_now[rows]
        # an answer of this strategy is among the candidates, though the votes may give it a smaller chance
        if not is_apart and state.had is not None:
            place = np.searchsorted(sizes, np.minimum(state.had[rows, number], sizes[-1]))
            chance_now = np.maximum(chance_now, (posterior * accuracy[:, place].T).sum(axis=1))
        gain = posterior @ accuracy[:, 1:] - chance_now[:, None]
        is_answered = ((chance_of_others > 0) & (not state.checked))[rows, None]
        is_measured = sizes[1:] >= self.model.curves[self.plans[number]].sizes[0]
        gain = np.where(is_measured & (is_apart | ~is_answered), gain, -np.inf)
        if state.had is not None:
            # a strategy with other models begins anew, so a little more than its last size adds nothing
            least_size = state.had[rows, number, None] * (2 if is_apart else 1)
            gain = np.where((sizes[1:] > least_size) & (gain > _NOISE), gain, -np.inf)
        return sizes[1:], gain

    def chance(self, state: ProblemStates) -> Floats:
        """Return the chance that the answer is right as it stands."""
        return self._unsolved_chances(state, self._chance_of_others(state))

    def _unsolved_chances(self, state: ProblemStates, said: Floats) -> Floats:
        known = (Checked(self.population) if state.checked else self.votes).chance(state)
        return known if state.checked else np.where((said > 0) & ~state.solved, said, known)

    def _chance_of_others(self, state: ProblemStates) -> Floats:
        """Return the chance [P] that the answer of strategies with other models is right, by their curves.

        It is 0 for a problem that has had no such strategy.
        """
        chance = np.zeros(len(state.samples))
        if state.had is None:
            return chance
        for number, plan_sizes in enumerate(state.had.T):
            rows = np.flatnonzero(plan_sizes).astype(np.int64)
            if self.apart[number] and len(rows):
                sizes, accuracy = self.model.table(self.plans[number])
                place = np.searchsorted(sizes, np.minimum(plan_sizes[rows], sizes[-1]))
                plan_chance = (self._over_rates(state, rows) * accuracy[:, place].T).sum(axis=1)
                chance[rows] = np.maximum(chance[rows], plan_chance)
        return chance

    def price(self, samples: float) -> float:
        """Return the price of votes; other strategies compete at it."""
        return self.votes.price(samples)

    def adapt(self, state: ProblemStates) -> Curved:
        """Learn from what was observed of all problems together."""
        population = fit_population(self.population, state)
        return self if population is self.population else dataclasses.replace(self, population=population)

    def _over_rates(self, state: ProblemStates, rows: slice | Whole) -> Floats:
        """Return the posterior over the grid of success rates, [rows, G]."""
        # each combination once, and its place for each row
        observations, place = np.unique(evidence_of(state)[:, rows], axis=1, return_inverse=True)
        log_likelihood = likelihood(self.population, observations, checked=state.checked)
        if state.evidence is None:
            posterior = self.population.posterior(log_likelihood)[place.ravel()]
        else:
            posterior = self.population.posterior(log_likelihood[place.ravel()] + state.evidence[rows])
        return posterior.reshape(len(posterior), len(RATES), -1).sum(axis=2)  # over the lures of each rate
