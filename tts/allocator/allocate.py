"""The allocator, a pure function: from the state of all problems to each one's samples in one wave.

Idea: problems are served in waves, so that many run at once and nothing depends on timing. In each wave the problems
    whose next samples are worth most for what they cost are served first, each with a part of what it already has, and
    the wave with a part of what is left: the values are seen again before the rest is given.
Source: algorithm A16 (Damani et al. 2410.04707) for the greedy rule over problems; serving again after each observation
    is the index rule of `tts.allocator.votes`. Waves are our choice: they lose less than a tenth of what the
    best policy with the same information gains (tests/allocator/test_allocate.py).

Shapes: P problems.
"""

from __future__ import annotations

import bisect
import dataclasses
from dataclasses import dataclass

import numpy as np

from tts.allocator.difficulty import Floats, Whole
from tts.allocator.values import ProblemStates, Values
from tts.checks import check_int, check_number
from tts.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class WaveGrant:
    """What one wave gives.

    Args:
        samples: [P], how many more each problem may draw.
        plan: [P], what to do with them; see `Worth`.
        rate: [P], what each further sample was worth.
        price: The least rate for a cost of 1 that was served.
        reason: Why the division is over; "" while it goes on.
        hurried: Whether the wave is wider because time presses.
        even: Whether the problems with fewest samples were served, because nothing is known to be worth its price.
    """

    samples: Whole
    plan: Whole
    rate: Floats
    price: float
    reason: str = ""
    hurried: bool = False
    even: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """Divides the rest of a budget among problems, wave by wave. `next` depends only on its argument.

    No problem gets a second sample before all have had a first. A first sample is granted all that it may need
    (`ProblemStates.most`). If the total does not cover that for all problems at once, the first problems are served
    first. What they leave pays for the next. If the total does not pay one sample for each problem, the first problems
    get one.

    With a deadline (`ProblemStates.waves`), a wave is wide enough to spend the rest in time. If there is no time for
    successive waves, their samples are drawn in one wave, with less evidence for the choice.

    Args:
        values: The values of samples.
        pilots: Samples that each problem gets before problems are compared, at least 1; fewer if the budget does not
            pay this number for all.
        growth: The growth of a problem's samples in one wave, as a share of those it has; at least one sample, and more
            where time presses.
        share: The part that one wave may spend of what is left, and of the cost of one round over all worthwhile
            problems, in (0, 1]. After a part of a round, the problems served first may again be worth more than the
            rest.
        price: Right answers that a cost of 1 must bring. Below this price, the rest is not spent.
        even: Whether the rest is then spent evenly instead, on the problems with fewest samples. No problem is favoured
            where votes do not show which of them would gain.

    Example:
        >>> import tts
        >>> from tts.allocator.difficulty import Population
        >>> from tts.allocator.values import ProblemStates, Voted
        >>> allocator = tts.Allocator(values=Voted(Population.beta(), 32))
        >>> at = ProblemStates.of(samples=[6, 6], leader=[6, 3], second=[0, 3], left=1)  # settled votes, and open ones
        >>> allocator.next(at).samples.tolist()
        [0, 1]
    """

    values: Values
    pilots: int = 1
    growth: float = 0.05
    share: float = 0.1
    price: float = 0.0
    even: bool = False

    def __post_init__(self) -> None:
        check_int("pilots", self.pilots, 1, optional=False)
        check_number("growth", self.growth, 0, optional=False)
        check_number("share", self.share, 0, 1, optional=False)
        check_number("price", self.price, 0, optional=False)
        if self.share == 0:
            raise ConfigError("share is 0, but must be above 0", hint="1 spends what is left in one wave")

    def next(self, state: ProblemStates) -> WaveGrant:
        """Return the grants of the next wave; they cost at most `state.left`.

        Raises:
            ConfigError: a cost is not above 0, `left` is not finite, `waves` is below 1, or evidence has a NaN.
        """
        _check(state)
        zeros = np.zeros_like(state.samples)  # [P]
        nothing = WaveGrant(samples=zeros, plan=zeros, rate=np.zeros(len(zeros)), price=0.0)
        if not state.open.any():
            return dataclasses.replace(nothing, reason="every problem has ended")
        if state.left < state.cost[state.open].min():
            return dataclasses.replace(nothing, reason="the budget is used up")
        pilots = self._pilots(state)
        if pilots.any():
            may_exceed_left = bool(pilots.sum() > 1 and state.due(pilots).sum() > state.left)
            return dataclasses.replace(nothing, samples=pilots, price=self.price, hurried=may_exceed_left)
        worth = self.values.worth(state, self.price)
        value = np.where(state.open, worth.rate / state.cost, 0.0)
        served = np.flatnonzero(value > self.price)
        if not len(served) and self.even:
            return self._spread(state, nothing)
        if not len(served):
            return dataclasses.replace(nothing, rate=worth.rate, reason="more samples are worth less than their price")
        served = served[np.argsort(-value[served], kind="stable")]
        growth = np.maximum(1, (state.samples * self.growth).astype(np.int64))
        wanted = np.where(worth.plan > 0, worth.block, growth)  # samples of each problem, [P]
        sample_cost = (state.cost * worth.cost / worth.block)[served]  # one sample's share of the cost of its block
        cost = wanted[served] * sample_cost
        paced_spending = state.left / state.waves  # a smaller wave would leave credit when the time ends
        if 0 < cost.sum() < paced_spending:
            wanted = np.ceil(wanted * (paced_spending / cost.sum()) - 1e-6).astype(np.int64)
            cost = wanted[served] * sample_cost
        unhurried_spending = self.share * min(state.left, float(cost.sum()))  # of a wave without a deadline
        wave_spending = max(unhurried_spending, paced_spending)
        cost_before = np.cumsum(cost) - cost  # the cost of the problems served earlier
        is_paid = (cost_before < wave_spending) & (cost_before + cost <= state.left)
        samples, plan = zeros.copy(), worth.plan
        samples[served[is_paid]] = wanted[served[is_paid]]
        if not is_paid.any():  # no block can be paid: one plain sample for the first problem that can pay it
            plan = zeros
            payable = served[state.cost[served] <= state.left]
            samples[payable[:1]] = 1
        if not samples.any():
            return dataclasses.replace(
                nothing, rate=worth.rate, reason="what is left pays for no sample where one would help"
            )
        return WaveGrant(
            samples=samples,
            plan=plan,
            rate=worth.rate,
            price=float(value[samples > 0].min()),
            hurried=paced_spending > unhurried_spending,
        )

    @staticmethod
    def _spread(state: ProblemStates, nothing: WaveGrant) -> WaveGrant:
        """Return a grant of one sample for each problem with the fewest, as far as the credit pays.

        Where time presses, each gets several.
        """
        has_fewest = state.open & (state.samples == state.samples[state.open].min())
        served = has_fewest & (np.cumsum(has_fewest * state.cost) <= state.left)
        if not served.any():
            return dataclasses.replace(
                nothing, reason="what is left pays for no sample of the problems that have fewest"
            )
        cost = float(state.cost[served].sum())
        rounds = max(1, int(state.left / state.waves / cost + 1e-6))
        return dataclasses.replace(nothing, samples=served * rounds, even=True, hurried=rounds > 1)

    def _pilots(self, state: ProblemStates) -> Whole:
        """Return the pilots that problems lack, [P].

        All problems get as many as the budget pays for all. If it does not pay one for all, some problems get one.
        """

        def missing_samples(wanted: int) -> Whole:
            return np.where(state.open, np.maximum(0, wanted - state.samples), 0)

        # the greatest number up to `pilots` that the budget pays for all; 0: not even one
        num_pilots = bisect.bisect_right(
            range(1, self.pilots + 1), state.left, key=lambda wanted: state.due(missing_samples(wanted)).sum()
        )
        if num_pilots:
            return missing_samples(num_pilots)
        missing_first = missing_samples(1)
        # Time may require a number of problems in this wave, and at least one is served: these are served even where
        # the credit pays only the usual cost of a sample, and not all that a first sample may need.
        num_required = max(1.0, missing_first.sum() / state.waves)
        pays_all_needs = np.cumsum(state.due(missing_first)) <= state.left
        is_required = np.cumsum(missing_first) <= num_required
        pays_usual_cost = np.cumsum(missing_first * state.cost) <= state.left
        return np.where((pays_all_needs | is_required) & pays_usual_cost, missing_first, 0)

    def adapt(self, state: ProblemStates) -> Allocator:
        """Return the allocator whose population has learnt from the problems' first samples."""
        return dataclasses.replace(self, values=self.values.adapt(state))


def _check(state: ProblemStates) -> None:
    """Raise ConfigError where a state has a number outside its range."""
    if not (np.isfinite(state.cost).all() and (state.cost > 0).all()):
        raise ConfigError("cost has a value that is not above 0, but every sample of a problem costs something")
    if not np.isfinite(state.left):
        raise ConfigError(f"left is {state.left}, but must be a number", hint="the allocator divides what is limited")
    if not state.waves >= 1:
        raise ConfigError(f"waves is {state.waves}, but must be at least 1: it counts the next wave too")
    if state.evidence is not None and np.isnan(state.evidence).any():
        raise ConfigError(
            "evidence has a NaN, but where nothing is known it must be 0", hint="evidence is a log-likelihood"
        )
