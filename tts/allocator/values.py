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
        """Return a state from lists, or from one value for all problems; `more`: the other fields."""
        drawn = np.atleast_1d(np.asarray(samples, np.int64))

        def each(values: ArrayLike, kind: type) -> Any:
            return np.broadcast_to(np.asarray(values, kind), drawn.shape)

        return cls(
            samples=drawn,
            leader=each(leader, np.int64),
            second=each(second, np.int64),
            solved=each(solved, np.bool_),
            open=each(is_open, np.bool_),
            cost=each(cost, np.float64),
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


class Values(Protocol):
    """What an allocator goes by."""

    def worth(self, state: ProblemStates, price: float = 0.0) -> Worth:
        """Return what the next samples of each problem are worth.

        Args:
            state: The problems.
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
        """Return the expected success rate of those that are not solved."""
        del price
        if state.evidence is None:
            failures, place = np.unique(state.samples, return_inverse=True)
            rate = self._rates(failures, None)[place]
        else:
            rate = self._rates(state.samples, state.evidence)
        one = np.ones(len(state.samples), np.int64)
        return Worth(np.where(state.solved, 0.0, rate), one, one * 0, np.ones(len(one)))

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
        one = np.ones(len(state.samples), np.int64)
        return Worth(np.where(state.solved, 0.0, self._look(state)[1]), one, one * 0, np.ones(len(one)))

    def chance(self, state: ProblemStates) -> Floats:
        """Return the chance that the leading answer is right."""
        return np.where(state.solved, 1.0, self._look(state)[0])

    def _look(self, state: ProblemStates) -> tuple[Floats, Floats]:
        """Return chance and index [P], between tables where there is evidence beside the votes."""
        if state.evidence is None:
            return self.table.look(*state.votes())
        tilts = [_tilt(self.population, strength) for strength in _TILTS]
        means = np.array([each.weight @ each.rate for each in tilts])
        place = np.interp(
            self.population.mean_rate(self.population.posterior(state.evidence)), means, np.arange(len(tilts))
        )
        low = np.minimum(np.floor(place).astype(np.int64), len(tilts) - 2)
        found = np.zeros((2, len(place)))
        for number in np.union1d(low, low + 1).tolist():
            table = self._table(number, tilts[number], min(self.most, _TILTED_ROOM))
            share = np.maximum(0.0, 1.0 - np.abs(place - number))
            rows = np.flatnonzero(share > 0)
            found[:, rows] += share[rows] * np.stack(table.look(*(votes[rows] for votes in state.votes())))
        return found[0], found[1]

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
    return Population(population.rate, population.lure, weight / weight.sum(), population.problems)


def evidence_of(state: ProblemStates) -> Whole:
    """Return the evidence of problems' difficulty.

    Its rows are right and wrong samples where a checker judged them, else votes.
    """
    if not state.checked:
        return np.stack(state.votes())
    # else another model's was accepted
    own = state.solved if state.beside is None else state.solved & (state.beside == 0)
    right = own.astype(np.int64)  # of the first that was right: what came after it was not waited for
    return np.stack([right, np.maximum(0, state.samples - right)])


def likelihood(population: Population, seen: Whole, *, checked: bool) -> Floats:
    """Return the log-likelihood [S, Z] of what `evidence_of` returned."""
    return population.verdict_likelihood(*seen) if checked else population.vote_likelihood(*seen)


def fit_population(population: Population, state: ProblemStates) -> Population:
    """Return the population that what was observed of problems is most likely from."""
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

        A strategy that uses models beside the policy, or whose stop rule chooses by finish order, has no vote beside
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

        It is the index of plain samples, or another strategy's mean gain a sample where that gains more.
        """
        plain = (Checked(self.population) if state.checked else self.votes).worth(state)
        over = (self._chance_of_others(state) > 0) & (not state.checked)
        if len(self.plans) == 1:
            return Worth(np.where(over, 0.0, plain.rate), plain.block, plain.plan, plain.cost)
        prices = np.unique(np.maximum(_PRICES, price))
        asked = [self._best_offers(state, slice(at, at + _ROWS), prices) for at in range(0, len(plain.rate), _ROWS)]
        sizes, plans, costs, rises = (np.concatenate(each, axis=1) for each in zip(*asked, strict=True))  # [prices, P]
        payable = np.flatnonzero((costs * state.cost * state.open).sum(axis=1) <= state.left)
        # what is asked for beyond what is left is not served
        at = max(0, int(payable[0]) - 1) if len(payable) else len(prices) - 1
        others = (plans[at] > 0) & ~state.solved
        return Worth(
            np.where(others, rises[at] / np.maximum(1.0, costs[at]), np.where(over, 0.0, plain.rate)),
            np.where(others, sizes[at], plain.block),
            np.where(others, plans[at], plain.plan),
            np.where(others, costs[at], plain.cost),
        )

    def _best_offers(self, state: ProblemStates, rows: slice, prices: Floats) -> tuple[Whole, Whole, Floats, Floats]:
        """Return size, plan, cost and gain [prices, rows] of what each problem asks for at each price; the size 0:
        nothing.
        """
        offers = [
            self._more_samples(state, rows),
            *(self._search(state, rows, number) for number in range(1, len(self.plans))),
        ]
        known, own, place = self._over_rates(state, rows), state.cost[rows, None], np.arange(len(state.cost[rows]))
        sizes, plans = (np.zeros((len(prices), len(place)), np.int64) for _ in range(2))
        costs, gains, best = np.zeros((3, len(prices), len(place)))
        for number, (size, gain) in enumerate(offers):
            limit = self.model.limit(self.plans[number], size)
            rise = np.where(own * limit <= state.left, gain, -np.inf)
            table = self.model.cost(self.plans[number])
            spent = np.broadcast_to(size.astype(np.float64), rise.shape) if table is None else known @ table[:, 1:]
            for i, price in enumerate(prices.tolist()):
                net = rise - price * own * spent
                top = net.argmax(axis=1)
                better = net[place, top] > best[i] + _NOISE
                best[i] = np.where(better, net[place, top], best[i])
                gains[i], costs[i] = (
                    np.where(better, rise[place, top], gains[i]),
                    np.where(better, spent[place, top], costs[i]),
                )
                sizes[i], plans[i] = np.where(better, size[top], sizes[i]), np.where(better, number, plans[i])
        idle = state.solved[rows] | ~state.open[rows]
        return np.where(idle, 0, sizes), np.where(idle, 0, plans), np.where(idle, 0.0, costs), gains

    def _more_samples(self, state: ProblemStates, rows: slice) -> tuple[Whole, Floats]:
        """Return numbers of further plain samples [B], and what each number gains for each problem [rows, B].

        Gains follow from the checker's verdicts if it judges samples, else from the curve of plain samples. They are 0
        where a strategy with other models has answered.
        """
        posterior, (sizes, table) = self._over_rates(state, rows), self.model.table(self.plans[0])
        more, drawn = sizes[1 : MOST + 1], np.minimum(state.samples[rows], MOST)
        if state.checked:
            return more, posterior @ (1.0 - (1.0 - RATES[:, None]) ** more)
        right = posterior @ table
        rise = np.take_along_axis(right, np.minimum(drawn[:, None] + more, MOST), axis=1) - np.take_along_axis(
            right, drawn[:, None], axis=1
        )
        return more, np.where(self._chance_of_others(state)[rows, None] > 0, 0.0, rise)

    def _search(self, state: ProblemStates, rows: slice, number: int) -> tuple[Whole, Floats]:
        """Return the sizes [B] of another strategy, and the gain [rows, B] of each; minus infinity: it is not
        offered.
        """
        known, said, apart = self._over_rates(state, rows), self._chance_of_others(state), self.apart[number]
        sizes, table = self.model.table(self.plans[number])
        now, over = self._unsolved_chances(state, said), (said > 0) & (not state.checked)
        stands = (np.maximum(now, said) if apart else now)[rows]
        # its answer is there already, and the votes alone may give it a smaller chance
        if not apart and state.had is not None:
            at = np.searchsorted(sizes, np.minimum(state.had[rows, number], sizes[-1]))
            stands = np.maximum(stands, (known * table[:, at].T).sum(axis=1))
        rise = known @ table[:, 1:] - stands[:, None]
        least = self.model.curves[self.plans[number]].sizes[0]  # below it nothing was measured
        rise = np.where((sizes[1:] >= least) & (apart | ~over[rows, None]), rise, -np.inf)
        if state.had is not None:  # a strategy with other models begins anew: a little more of it adds nothing
            had = state.had[rows, number, None] * (2 if apart else 1)
            rise = np.where((sizes[1:] > had) & (rise > _NOISE), rise, -np.inf)
        return sizes[1:], rise

    def chance(self, state: ProblemStates) -> Floats:
        """Return the chance that the answer is right as it stands."""
        return self._unsolved_chances(state, self._chance_of_others(state))

    def _unsolved_chances(self, state: ProblemStates, said: Floats) -> Floats:
        known = (Checked(self.population) if state.checked else self.votes).chance(state)
        return known if state.checked else np.where((said > 0) & ~state.solved, said, known)

    def _chance_of_others(self, state: ProblemStates) -> Floats:
        """Return the chance [P] that the answer of strategies with other models is right, by their curves; 0: it has
        had none.
        """
        found = np.zeros(len(state.samples))
        if state.had is None:
            return found
        for number, had in enumerate(state.had.T):
            rows = np.flatnonzero(had).astype(np.int64)
            if self.apart[number] and len(rows):
                size, table = self.model.table(self.plans[number])
                at = np.searchsorted(size, np.minimum(had[rows], size[-1]))
                found[rows] = np.maximum(found[rows], (self._over_rates(state, rows) * table[:, at].T).sum(axis=1))
        return found

    def price(self, samples: float) -> float:
        """Return the price of votes; other strategies compete at it."""
        return self.votes.price(samples)

    def adapt(self, state: ProblemStates) -> Curved:
        """Learn from what was observed of all problems together."""
        population = fit_population(self.population, state)
        return self if population is self.population else dataclasses.replace(self, population=population)

    def _over_rates(self, state: ProblemStates, rows: slice | Whole) -> Floats:
        """Return the posterior over the grid of success rates, [rows, G]."""
        seen, place = np.unique(evidence_of(state)[:, rows], axis=1, return_inverse=True)
        known = likelihood(self.population, seen, checked=state.checked)
        if state.evidence is None:
            posterior = self.population.posterior(known)[place.ravel()]
        else:
            posterior = self.population.posterior(known[place.ravel()] + state.evidence[rows])
        return posterior.reshape(len(posterior), len(RATES), -1).sum(axis=2)
