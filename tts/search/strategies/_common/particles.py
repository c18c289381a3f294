"""What the particle methods share: the weight of a particle, and one sweep of the filter, free or conditional on a reference.

A particle is a trajectory with a log-weight: the log-odds of the verifier's score of the whole prefix.

Source: algorithm A9, lines 1-8, and A10, lines 3-5 (Puri et al., "A Probabilistic Inference Approach to Inference-Time Scaling
of LLMs using Particle-Based Monte Carlo Methods", 2502.01618; read in the paper and its code). Weights are not accumulated: each
level's weight is the score of the whole prefix. Particles that have stopped take part in every later resampling with their last
weight. The last level is not followed by a resampling.

Differs, all ours to decide: an unknown score (NaN) weighs as the mean of the known log-weights, and all are alike where none is
known; a particle whose row failed, or could not start within the budget, dies, and the next resampling fills its place; the
step at `max_steps`, and the one behind a step without a token, runs to the end of the solution.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.checks import check_int, check_number
from tts.search.algorithms.resampling import SCHEMES, check_scheme, softmax
from tts.search.parameters import check_bounded
from tts.search.strategies._common.guided import MOST_WIDTH, Guided
from tts.search.strategies._common.stepping import advance, affordable_width, rounds
from tts.types import Candidate, Trajectory

if TYPE_CHECKING:
    from tts.search.search import Search

LogWeights = NDArray[np.float64]  # [N] particles, natural
# From the log-weights and the steps taken so far to the temperature of the resampling.
Temperature = Callable[[LogWeights, int], float]


@dataclass(frozen=True, slots=True)
class Particles:
    """The particles after a sweep, in order, copies among them, the reference (if there is one) last."""

    paths: tuple[Trajectory, ...]
    log_weights: LogWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleMethod(Guided):
    """The parameters that every particle method has.

    Args:
        n: particles (N in the paper), at least 1; None: as many as the budget pays over the sweeps, by the length of a plain solution
            that is written first and of others seen. What one search leaves pays another.
        resampling: "multinomial", "stratified", "systematic" or "residual".
        temperature, max_steps, verifier, aggregate: as in `Guided`.
    """

    n: int | None = None
    resampling: str = "multinomial"

    def __post_init__(self) -> None:
        Guided.__post_init__(self)
        check_int("n", self.n, 1)
        check_scheme(self.resampling)

    def size(self, units: int | None) -> Self:
        """Return itself: what is left out is sized when the search begins, and again for what it leaves (see `explored`)."""
        if self.n is None:
            check_bounded(self.registered_as, "n", units)
        return self

    @property
    def sweeps_in_all(self) -> int:
        """The sweeps that share the budget."""
        return 1


def check_weight_temperature(value: float) -> None:
    """Raise ConfigError where a temperature of the weights is none."""
    check_number("weight_temperature", value, 0.001, optional=False)


def known_weights(log_odds: LogWeights) -> LogWeights:
    """Return log-odds, where an unknown one weighs the mean of the rest, or 0."""
    known = ~np.isnan(log_odds)
    return np.where(known, log_odds, log_odds[known].mean() if known.any() else 0.0)


async def weigh(search: Search, paths: Sequence[Trajectory], method: ParticleMethod) -> LogWeights:
    """Score the whole prefix of each particle and return the log-weights."""
    return known_weights(await search.score(paths, method.verifier, method.aggregate, scale="log_odds"))


async def sweep(
    search: Search,
    method: ParticleMethod,
    temperature: Temperature,
    *,
    address: tuple[int, int] = (0, 0),
    reference: Trajectory | None = None,
    beside: Sequence[Trajectory] = (),
) -> Particles:
    """Run the filter once from the root, until every particle has stopped.

    Args:
        temperature: of each resampling. address: chain and sweep, for the draws.
        reference: a finished path that keeps the last place and is never replaced; free particles may become copies of its first
            t steps, which go on as live particles. beside: paths to keep alive for others.

    Raises:
        SearchEnded: the budget is used up, the stop rule fires, or every particle has died (see `advance`).
    """
    kept = [] if reference is None else [reference]
    free = (method.n or 1) - len(kept)
    paths = await _stepped(search, [search.root] * free, method) if free else []
    t = 1
    while True:
        everyone = [*paths, *(_cut(one, t) for one in kept)]
        log_weights = await weigh(search, everyone, method)
        if all(one.status != "active" for one in everyone):
            return Particles(tuple(everyone), log_weights)
        p = softmax(log_weights, temperature(log_weights, t))
        ancestors = SCHEMES[method.resampling](p, free, search.rng("resample", *address, t))
        paths = [everyone[a] for a in ancestors.tolist()]
        search.keep([node for path in (*paths, *kept, *beside) for node in path.path])
        paths = await _stepped(search, paths, method)
        t += 1


def _cut(reference: Trajectory, steps: int) -> Trajectory:
    """Return the first steps of a path; all of it where it is shorter."""
    return reference.path[min(steps, reference.depth)]


async def _stepped(search: Search, paths: Sequence[Trajectory], method: ParticleMethod) -> list[Trajectory]:
    """Continue the particles that have not stopped; those that failed or could not start are left out."""
    active = [t for t in paths if t.status == "active"]
    children = iter(await advance(search, active, max_steps=method.max_steps, temperature=method.temperature))
    after = [next(children) if t.status == "active" else [t] for t in paths]
    return [t for of in after for t in of]


def drawn(search: Search, particles: Particles, temperature: float, address: tuple[int, int]) -> int:
    """Return the place of one particle, drawn by weight: the next sweep's reference."""
    p = softmax(particles.log_weights, temperature)
    return int(SCHEMES["multinomial"](p, 1, search.rng("reference", *address))[0])


M = TypeVar("M", bound=ParticleMethod)


async def explored(search: Search, method: M, explore: Callable[[M, int], Awaitable[Sequence[Trajectory]]]) -> list[Candidate]:
    """Return the candidates that stopped particles are, copies once, in order of their first particle.

    Args:
        explore: the search itself, from the method with its n and the number of the first sweep to the particles it returns.

    Raises:
        SearchEnded: n is None, and the budget is used up.
    """
    found: list[Trajectory] = []
    for r in rounds(search, None if method.n is None else 1):
        sized = method
        if method.n is None:
            units = await affordable_width(search, method.temperature)
            sized = replace(method, n=min(MOST_WIDTH, max(min(2, units), units // method.sweeps_in_all)))
        found += await explore(sized, r * method.sweeps_in_all)
    distinct = {t.node: t for t in found}.values()
    return [candidate for t in distinct if (candidate := search.finish(t)) is not None]
