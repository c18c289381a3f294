"""Power-SMC: particles whose law is the model's own, sharpened to p^alpha over whole texts.

There is no verifier. N texts are written block by block at temperature 1 / alpha, and weighed for what that temperature
misses. Texts whose beginnings weigh little give way to copies of others.

    gamma_t(x) = p(x)^a_t / q(x)      q: the law that drew the tokens of x; a_t: alpha, or before `ramp` tokens less
    until all N texts have ended:
        draw the next block of each open text at temperature 1 / alpha
        W_i <- W_i gamma_t(x_i) / gamma_t-1(x_i before the block)
        if (sum W)^2 / sum W^2 <= kappa N:
            draw N ancestors in proportion to W, and W_i <- mean of W
    vote by W

A block of one token with a_t = alpha weighs sum_v p(v)^alpha, whatever its token: of all proposals that see the prefix
alone, temperature 1 / alpha has the least variance.

Source: Azizi et al., "Power-SMC: Low-Latency Sequence-Level Power Sampling for Training-Free LLM Reasoning"
(2602.10273); the target is its equation 1. The rest was read in the authors' code (`smc_power_sample_memopt`) and its
README: alpha 4, 64 particles, kappa 0.5, blocks of 64 of 3,072 tokens, systematic resampling, a ramp of 400 tokens.
The text of the paper behind its introduction was not read.

Differs:
- All texts vote by their weights. The code returns one text, drawn by weight.
- The exponent has no ramp by default, for 400 tokens are more than many texts have. A ramp moves the exponent of the
  target alone, as in the code. The README also moves the temperature.
- Nothing keeps a text from ending early. The code forbids the end within the first 100 tokens.
- Several sweeps vote by W together, each with its estimate of the normalizing constant, as in the code's rounds.
- A text that a cap cut gives way to any that ended.
- A particle whose row failed, or could not start within the budget, dies. The law is that of the particles that live.
- Where the run filters tokens (top_p, top_k, min_p), the law is p^alpha over the texts that the filters leave.
- Servers that show the 20 most likely tokens alone give the tempered probability within a bound: see
  `top_sampling_logprob`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated

import numpy as np

from tts.checks import Count, Natural, Proportion, member, number
from tts.search.algorithms.resampling import SCHEMES
from tts.search.ends import SearchEnded, Share, Tokens
from tts.search.lengths import NO_CAP
from tts.search.needs import Needs
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.guided import MOST_WIDTH
from tts.search.strategies._common.particles import Particle, log_normalizer, sweep
from tts.search.strategies._common.stepping import advance, affordable_width, rounds
from tts.types import Candidate, Trajectory
from tts.verifiers.base import estimate_unknown

_PART = 1 / 16  # the default part of a solution that is a block
_CUT = -1e9  # the log-weight of a text that a cap cut, below that of any text that ended


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSmc(Strategy):
    """One sweep of N particles whose weighted law is p^alpha.

    Each particle is a text.

    Args:
        n: The particles (N in the paper), at least 1; None: half of what the budget pays, then half of the rest, and so
            on. A first solution at temperature 1 / alpha shows the length. It has no vote once a sweep has ended.
        alpha: The exponent of the model's law, at least 1; 1 is plain sampling.
        block: The tokens between two weighings, at least 1; None: a sixteenth of the expected length of a solution.
        resampling: "multinomial", "stratified", "systematic" or "residual".
        resample_below: The largest effective sample size, as a share of N in [0, 1], at which particles are resampled
            (kappa); 0 never resamples.
        ramp: The tokens over which the exponent of the weights rises from 1 to alpha; 0: it is alpha from the start.

    Cost: about n x mean length generated tokens, in as many rounds as the longest text has blocks. In samples: n, plus
    one for each copy that goes on. A block reads prompt and prefix anew, as input. A sweep that the budget cuts gives
        candidates only where there are no others. Not nested in `n`.
    Random: the ancestors, addressed by sweep and block.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="power_smc(n=4)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 4, 84)
    """

    registered_as = "power_smc"
    always_votes = True
    n: Count | None = None
    alpha: Annotated[float, number(1)] = 4.0
    block: Count | None = None
    resampling: Annotated[str, member(SCHEMES)] = "systematic"
    resample_below: Proportion = 0.5
    ramp: Natural = 0

    @property
    def is_fixed(self) -> bool:
        """As in `Swept`: False, for the weights are relative to the tempered law."""
        return False

    def needs(self) -> Needs:
        """Return the needs: blocks of tokens with log-probabilities, of the model and of the sampling law."""
        return Needs(capabilities=("steps", "token_ids", "logprobs", "sampling_logprobs"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Sweep, and return each text with its weight; if n is None, again until the budget is used up."""
        num_earlier = len(search.candidates)
        log_weights: dict[int, float] = {}  # by the last node of a text, over its copies
        for round_number in rounds(search, None if self.n is None else 1):
            n = self.n or await self._width(search)
            num_levels = len(search.notes.levels)
            try:
                particles = await sweep(search, self, n, lambda _log_weights, _t: 1.0, address=(0, round_number))
            except SearchEnded:
                if not log_weights:  # no sweep has come to its end
                    for t in search.tree.nodes:
                        if t.node not in search.tree.pruned:
                            search.finish(t)
                raise
            scale = log_normalizer(search.notes.levels[num_levels:-1])
            for t, log_weight in zip(particles.paths, (particles.log_weights + scale).tolist(), strict=True):
                log_weights[t.node] = float(np.logaddexp(log_weights.get(t.node, -math.inf), log_weight))
            greatest = max(log_weights.values())
            earlier_texts = [c.trajectory for c in search.candidates[num_earlier:]]
            for t in {t.node: t for t in chain(earlier_texts, particles.paths)}.values():
                search.finish(t, weight=math.exp(log_weights.get(t.node, -math.inf) - greatest))
        return search.candidates[num_earlier:]

    async def _width(self, search: Search) -> int:
        """Return the particles of the next sweep: half of what the budget pays, but 2 rather than 1."""
        affordable = await affordable_width(search, 1 / self.alpha, stepwise=False)
        return min(MOST_WIDTH, max(min(2, affordable), affordable // 2))

    async def grow(self, search: Search, paths: Iterable[Trajectory]) -> list[list[Trajectory]]:
        """Return the next block of each open text."""
        block = Share(_PART) if self.block is None else Tokens(self.block)
        return await advance(search, paths, max_steps=NO_CAP, temperature=1 / self.alpha, until=block, finishes=False)

    async def weigh(self, search: Search, particles: Sequence[Particle]) -> list[Particle]:
        """Multiply each weight by what gamma has gained, at the exponent of the longest open text."""
        open_lengths = [particle.path.num_tokens for particle in particles if particle.path.status == "active"]
        exponent = self.alpha
        if open_lengths and self.ramp:
            exponent = 1 + (self.alpha - 1) * min(1.0, max(open_lengths) / self.ramp)
        log_gammas = np.array([log_gamma(particle.path, exponent) for particle in particles])
        if np.isnan(log_gammas).any():
            search.notes.warn(
                "a text came without the log-probability of each of its tokens: it weighs as the mean of the others"
            )
        potentials = estimate_unknown(log_gammas, otherwise=0.0).tolist()
        return [
            replace(particle, carried=particle.carried + now - particle.potential, potential=now, total=now)
            for particle, now in zip(particles, potentials, strict=True)
        ]


def log_gamma(t: Trajectory, exponent: float) -> float:
    """Return ln of p^exponent / q for the tokens of a text; NaN where a log-probability was not given."""
    pieces = t.path[1:]
    if any(not len(node.token_ids) == len(node.logprobs) == len(node.sampling_logprobs) for node in pieces):
        return math.nan
    log_p = math.fsum(value for node in pieces for value in node.logprobs)
    log_q = math.fsum(value for node in pieces for value in node.sampling_logprobs)
    return exponent * log_p - log_q + (0.0 if t.status in ("active", "finished") else _CUT)
