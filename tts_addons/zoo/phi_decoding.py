"""Phi-decoding: steps are drawn by the likelihood and the agreement of their continuations.

Each of M paths proposes N next steps. Unlikely steps are left out, and each other step is continued once, as foresight.
M steps are drawn by two weights: the gain of the continuation's log-probability over that of the path, and the share of
continuations that are alike.

Source: algorithm B7, Xu et al., "phi-Decoding: Adaptive Foresight Sampling for Balanced Inference-Time Exploration and
Exploitation" (2503.13288), read in the paper and its code. The weights are the code's, half softmax(A / 0.1) and half
softmax(C); the paper has softmax(R / 0.6) of the sum of both at 0.6.

Differs:
- Steps and continuations are drawn at the run's temperature. The code draws steps at 0.6 and continuations at 1, as
  `temperature=0.6` with `foresight_temperature=1.0` does.
- Steps whose advantage is not above 0 stay. The code leaves them out where enough others are left.
- Continuations are grouped by average linkage of their vectors into at most K groups, in place of k-means on TF-IDF.
- A step that ended its solution is its own continuation. Drawn, it is a candidate, and its place is not filled again.
- The solutions of a search vote. The code draws one of them, by its advantage, in the larger of two groups.
- Continuations are dropped: what they answered has no vote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from tts.checks import Amount, Count, Natural, Proportion
from tts.search.algorithms.clustering import most_clusters
from tts.search.algorithms.resampling import softmax
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.side_by_side import step_logprob
from tts.search.strategies._common.stepping import MAX_STEPS, advance, draw, rounds
from tts.types import Candidate, Trajectory

_LOW_TEMPERATURE = 0.1  # the temperature of advantages, and of steps that fill the width again
_ROUNDING_ERROR = 1e-9  # the rounding error of a mean of equal numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class PhiDecoding(Strategy):
    """Searches of some paths whose steps are drawn by foresight.

    Args:
        n: The solutions, at least 1; None: as many as the budget pays, in one search after another.
        beams: The paths of a search (M), at least 1.
        branching: The next steps of each path (N), at least 1.
        clusters: The most groups of continuations (K), at least 1.
        foresight: The steps of a continuation, at least 1, within `max_steps`. The code's continuations run to the end.
        deviations: The number of standard deviations below the mean log-probability at which steps are left out, at
            least 0.
        least: The least number of steps drawn by foresight, at least 0.
        most: The greatest number of steps drawn by foresight, at least 1.
        agreement: The share of alike continuations that ends the foresight after `least` steps, in [0, 1].
        temperature: The temperature of steps and solutions; None: the run's.
        foresight_temperature: The temperature of continuations; None: that of steps.
        max_steps: The most steps of a path.

    Cost: for each of up to `most` steps, M N steps and up to M N continuations; then M solutions. In samples, all of
    them. Random: what is drawn, addressed by search and step. Not nested in n.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 600, model="toy", strategy="phi_decoding(n=2, beams=2, branching=2)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 20, 180)
    """

    registered_as = "phi_decoding"
    n: Count | None = None
    beams: Count = 4
    branching: Count = 4
    clusters: Count = 3
    foresight: Count = MAX_STEPS
    deviations: Amount = 1.0
    least: Natural = 4
    most: Count = 8
    agreement: Proportion = 0.7
    temperature: Temperature | None = None
    foresight_temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps with log-probabilities."""
        return Needs(capabilities=("steps", "logprobs"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search; if n is None, again until the budget is used up."""
        for round_number in rounds(search, self.n):
            num_missing = self.beams if self.n is None else min(self.beams, self.n - len(search.candidates))
            if num_missing <= 0:
                break
            await self._explore(search, round_number, num_missing)
        return search.candidates

    async def _explore(self, search: Search, round_number: int, beams: int) -> None:
        """Draw steps by foresight, then write the paths to their ends. Comments name the lines of algorithm B7."""
        paths: Iterable[Trajectory] = repeat(search.root, beams)
        values: Iterable[float] = repeat(0.0)  # of the paths: mean log-probabilities of their continuations
        for level in range(min(self.most, self.max_steps)):
            foresight = min(self.foresight, max(1, self.max_steps - level - 1))
            # line 1
            families = await advance(
                search, paths, self.branching, max_steps=self.max_steps, temperature=self.temperature, finishes=False
            )
            proposals = list(chain.from_iterable(families))
            # of the path before each proposed step
            earlier_values = [value for siblings, value in zip(families, values, strict=False) for _ in siblings]
            rng = search.rng("phi", round_number, level)
            likely = wide_enough(np.array([step_logprob(t) for t in proposals]), beams, self.deviations, rng)
            steps = [proposals[i] for i in likely]
            temperature = self.temperature if self.foresight_temperature is None else self.foresight_temperature
            ends = await search.rollout(steps, foresight, temperature=temperature)  # line 2
            texts = [end.full_text[len(t.full_text) :] or t.text for t, end in zip(steps, ends, strict=True)]
            step_values = [mean_continuation_logprob(t, end) for t, end in zip(steps, ends, strict=True)]
            groups = most_clusters(await search.embed(texts), min(self.clusters, len(texts)))  # line 3
            shares = np.bincount(groups)[groups] / len(steps)
            gains = [value - earlier_values[i] for value, i in zip(step_values, likely, strict=True)]
            chosen_places = draw_places(gains, shares, min(beams, len(steps)), rng)  # line 4
            for i in chosen_places:
                search.finish(steps[i])
            chosen_places = [i for i in chosen_places if steps[i].status == "active"]
            paths, values = [steps[i] for i in chosen_places], [step_values[i] for i in chosen_places]
            beams = len(chosen_places)
            search.keep(paths)
            continuations_agree = len({*texts}) == 1 or shares.max() >= self.agreement
            if not paths or (level + 1 >= self.least and continuations_agree):  # line 5
                break
        await draw(search, paths, self.temperature)  # line 6


def mean_continuation_logprob(t: Trajectory, end: Trajectory) -> float:
    """Return the mean log-probability of a path's continuation; without one, of the path's last step."""
    later_steps = end.path[t.depth + 1 :]
    logprobs = list(chain.from_iterable(step.logprobs for step in later_steps))
    return math.fsum(logprobs) / len(logprobs) if logprobs else step_logprob(t)


def draw_places(gains: Sequence[float], shares: NDArray[np.float64], n: int, rng: np.random.Generator) -> list[int]:
    """Return the places of n steps, in order, drawn by what they gain and by how many continue alike.

    Args:
        gains: How much each step raises the value of its path.
        shares: The share of steps in each step's cluster.
        n: How many steps are drawn.
        rng: What draws.
    """
    weights = (softmax(np.array(gains), _LOW_TEMPERATURE) + softmax(shares)) / 2
    return sorted(rng.choice(len(gains), n, replace=False, p=weights).tolist())


def wide_enough(logprobs: NDArray[np.float64], beams: int, deviations: float, rng: np.random.Generator) -> list[int]:
    """Return the places, in order, of the likely steps, and of further steps up to `beams` in all.

    A step is likely if its log-probability s is above the mean less some standard deviations. Further steps are drawn
    by softmax(s / 0.1).
    """
    likely = np.flatnonzero(logprobs >= logprobs.mean() - deviations * logprobs.std() - _ROUNDING_ERROR)
    num_missing = min(beams, len(logprobs)) - len(likely)
    if num_missing <= 0:
        return likely.tolist()
    unlikely = np.setdiff1d(np.arange(len(logprobs)), likely)
    p = softmax(logprobs[unlikely], _LOW_TEMPERATURE)
    if np.count_nonzero(p) < num_missing:  # too few steps have a weight, so take the likeliest
        likeliest_first = unlikely[np.argsort(-logprobs[unlikely], kind="stable")]
        return sorted([*likely.tolist(), *likeliest_first[:num_missing].tolist()])
    drawn = rng.choice(unlikely, num_missing, replace=False, p=p)
    return sorted([*likely.tolist(), *drawn.tolist()])
