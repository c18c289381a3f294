"""Common code of particle methods: the weight of a particle, and one sweep of the filter.

A sweep is free, or conditional on a reference. A particle is a trajectory with a log-weight: the log-odds of the
verifier's score of the whole prefix.

Source: algorithm A9, lines 1-8, and A10, lines 3-5 (Puri et al., "A Probabilistic Inference Approach to Inference-Time
Scaling of LLMs using Particle-Based Monte Carlo Methods", 2502.01618; read in the paper and its code). Weights are not
accumulated: each level's weight is the score of the whole prefix. Particles that have stopped take part in every later
resampling with their last weight. The last level is not followed by a resampling.

Beyond the paper, each off by default, and all from memory:
- `target="last"` weighs a step by what it adds to the score. The law is the model's times the odds of whole solutions,
  whatever their numbers of steps (incremental weights: Del Moral, Doucet, Jasra, "Sequential Monte Carlo samplers",
  2006).
- There a `twist` changes the way to the law, not the law. Feng et al. (2410.01920) take the square root of the value,
  0.5.
- `resample_below` resamples where few particles weigh, and else carries the weights on (Liu, Chen, 1998).
- `lookahead` weighs a particle by where greedy writing leads, in the sense of the look-ahead modulation of Giannone et
  al. (2510.05825), whose formula was not read.

Differs:
- An unknown score (NaN) weighs as the mean of the known log-weights. All weigh the same where none is known.
- A particle whose row failed, or could not start within the budget, dies. The next resampling fills its place.
- The step at `max_steps`, and the one after a step without a token, runs to the end of the solution.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from tts.checks import Amount, Count, Natural, Proportion, check_parameters, choice, member, number
from tts.errors import ConfigError
from tts.search.algorithms.resampling import SCHEMES, effective_sample_size, softmax
from tts.search.ends import Level
from tts.search.lengths import MOST_ROWS
from tts.search.search import Search
from tts.search.strategies._common.guided import MOST_WIDTH, Guided
from tts.search.strategies._common.stepping import advance, affordable_width, rounds
from tts.types import Candidate, Trajectory

LogWeights = NDArray[np.float64]  # [N] particles, natural
# A function of the log-weights and the number of steps so far: the temperature of the resampling.
Temperature = Callable[[LogWeights, int], float]


WeightTemperature = Annotated[float, number(0.001)]


@dataclass(frozen=True, slots=True)
class Particles:
    """The particles after a sweep, in order, with copies.

    Args:
        paths: The paths of the particles; the reference, if there is one, comes last.
        log_weights: The log-weights since the last resampling.
        totals: The sum of all levels' log-weights of each path, by which the target differs from the model's law.
    """

    paths: tuple[Trajectory, ...]
    log_weights: LogWeights
    totals: LogWeights


@dataclass(frozen=True, slots=True)
class Particle:
    """A path with its weights.

    Args:
        path: The path.
        carried: Its log-weight since the last resampling.
        potential: The potential of its last level, the log-odds of the score.
        total: The sum of the log-weights of its levels, each step once.
        num_weighed: The number of its steps in `total`.
    """

    path: Trajectory
    carried: float = 0.0
    potential: float = 0.0
    total: float = 0.0
    num_weighed: int = 0


class Swept(Protocol):
    """A method whose particles `sweep` moves: how they grow, how they weigh, and when they are resampled.

    Attributes:
        resampling: As in `ParticleMethod`.
        resample_below: As in `ParticleMethod`.
        is_fixed: Whether the weights of paths are fixed factors by which their law differs from the model's.
    """

    @property
    def resampling(self) -> str: ...
    @property
    def resample_below(self) -> float: ...
    @property
    def is_fixed(self) -> bool: ...

    async def grow(self, search: Search, paths: Iterable[Trajectory]) -> list[list[Trajectory]]:
        """Return the next piece of each active path, as `advance` does."""
        ...

    async def weigh(self, search: Search, particles: Sequence[Particle]) -> list[Particle]:
        """Return the particles with the weight of this level added to their log-weights."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleMethod(Guided):
    """The parameters of every particle method.

    Args:
        n: The particles (N in the paper), at least 1; None: as many as the budget pays over the sweeps. The lengths of
            a plain solution that is written first, and of later solutions, decide. The rest pays another search.
        resampling: "multinomial", "stratified", "systematic" or "residual". Methods of several sweeps, which are
            conditioned on a reference, take "multinomial" alone.
        resample_below: The largest effective sample size, as a share of N in [0, 1], at which particles are resampled;
            1: after every step.
        target: The factor by which the target distribution differs from the model's. "levels": the product of the odds
            of all prefixes. "last": the odds of the whole solution alone.
        twist: The exponent of the odds of an unfinished prefix, at least 0. The odds of a whole solution have none.
        lookahead: The greedy steps that are written after a prefix, scored with it, and then dropped; 0: none.
        temperature: As in `Guided`.
        max_steps: As in `Guided`.
        verifier: As in `Guided`.
        aggregate: As in `Guided`.
    """

    maps_scores = True
    n: Count | None = None
    resampling: Annotated[str, member(SCHEMES)] = "multinomial"
    resample_below: Proportion = 1.0
    target: Annotated[str, choice("levels", "last")] = "levels"
    twist: Amount = 1.0
    lookahead: Natural = 0

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.sweeps_in_all > 1 and self.resampling != "multinomial":
            raise ConfigError(
                f"resampling is {self.resampling!r}, but must be 'multinomial' for sweeps around a reference: with "
                "another scheme they do not keep their law",
                hint="leave it out, or take particle_filter",
            )

    @property
    def has_fixed_temperature(self) -> bool:
        """Whether the temperature is independent of the weights."""
        return True

    @property
    def is_fixed(self) -> bool:
        """As in `Swept`. With the target "levels" weights depend on the steps of other paths."""
        return self.has_fixed_temperature and self.target == "last" and not self.lookahead

    @property
    def sweeps_in_all(self) -> int:
        """The number of sweeps that share the budget."""
        return 1

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Sweep; if n is None, again and again until the budget is used up.

        Returns:
            The candidates of the stopped particles, without copies, in order of their first particle.

        Raises:
            SearchEnded: n is None, and the budget is used up.
        """
        paths: list[Trajectory] = []
        for round_number in rounds(search, None if self.n is None else 1):
            n = self.n
            if n is None:
                affordable = max(1, await affordable_width(search, self.temperature) // (1 + self.lookahead))
                fewest = min(2, affordable)  # a single particle is never resampled
                n = min(MOST_WIDTH, max(fewest, affordable // self.sweeps_in_all))
            paths += await self.sweep(search, n, round_number * self.sweeps_in_all)
        distinct_paths = {t.node: t for t in paths}.values()
        candidates = [search.finish(t) for t in distinct_paths]
        return [candidate for candidate in candidates if candidate is not None]

    @abstractmethod
    async def sweep(self, search: Search, n: int, first: int) -> Sequence[Trajectory]:
        """Return the paths of the particles of one search with n particles.

        `first` is the number of the search's first sweep.
        """
        ...

    async def grow(self, search: Search, paths: Iterable[Trajectory]) -> list[list[Trajectory]]:
        """Return the next step of each active path."""
        return await advance(search, paths, max_steps=self.max_steps, temperature=self.temperature)

    async def weigh(self, search: Search, particles: Sequence[Particle]) -> list[Particle]:
        """Score the whole prefix of each particle, and add the weight of this level to its log-weight."""
        paths = [particle.path for particle in particles]
        steps = min(self.lookahead, self.max_steps)
        ends = await search.rollout(paths, steps, temperature=0.0) if steps else paths
        all_log_odds = await search.estimate(ends, self.verifier, self.aggregate, scale="log_odds")
        weighed: list[Particle] = []
        for particle, log_odds in zip(particles, all_log_odds.tolist(), strict=True):
            potential = log_odds * self.twist if particle.path.status == "active" else log_odds
            gain = potential - particle.potential if self.target == "last" else potential
            total = particle.total + gain if particle.path.depth > particle.num_weighed else particle.total
            weighed.append(Particle(particle.path, particle.carried + gain, potential, total, particle.path.depth))
        return weighed


async def sweep(
    search: Search,
    method: Swept,
    n: int,
    temperature: Temperature,
    *,
    address: tuple[int, int] = (0, 0),
    reference: Trajectory | None = None,
    beside: Sequence[Trajectory] = (),
) -> Particles:
    """Run the filter once from the root, until every particle has stopped.

    Args:
        search: The search.
        method: The method.
        n: The number of particles, the reference included.
        temperature: The function that returns the temperature of each resampling.
        address: The chain and the sweep, as an address of the draws.
        reference: A finished path that keeps the last place and is never replaced. Free particles may become copies of
            its first t steps, and go on from there.
        beside: Paths of other sweeps to keep alive.

    Raises:
        SearchEnded: the budget is used up, the stop rule fires, or every particle has died (see `advance`).
    """
    num_free = n if reference is None else n - 1
    families = await method.grow(search, repeat(search.root, num_free))
    particles = [Particle(path) for path in chain.from_iterable(families)]
    reference_particle, num_steps = Particle(search.root), 1
    while True:
        cloud = particles  # all particles, with the reference as the last
        if reference is not None:
            cloud = [*particles, replace(reference_particle, path=_cut(reference, num_steps))]
        cloud = await method.weigh(search, cloud)
        log_weights = np.array([particle.carried for particle in cloud])
        nodes = tuple(particle.path.node for particle in cloud)
        num_active = sum(particle.path.status == "active" for particle in cloud)
        is_fixed = method.is_fixed and reference is None and len(cloud) == n
        level_temperature = temperature(log_weights, num_steps)
        level = Level("ended", address, nodes, tuple(log_weights.tolist()), level_temperature, is_fixed=is_fixed)
        if not num_active:
            search.notes.levels.append(level)
            return Particles(
                paths=tuple(particle.path for particle in cloud),
                log_weights=log_weights,
                totals=np.array([particle.total for particle in cloud]),
            )
        p = softmax(log_weights, level_temperature)
        if effective_sample_size(p) <= method.resample_below * len(p) * (1 + 1e-9):  # equal but for rounding counts
            width = min(num_free, max(MOST_ROWS, search.rows.most_rows(len(cloud))))
            ancestors = SCHEMES[method.resampling](p, width, search.rng("resample", *address, num_steps)).tolist()
            particles = [replace(cloud[i], carried=0.0) for i in ancestors]
            search.notes.levels.append(replace(level, kind="resampled", ancestors=tuple(ancestors)))
            reference_particle = replace(cloud[-1], carried=0.0)
        else:
            particles, reference_particle = cloud[: len(particles)], cloud[-1]
            search.notes.levels.append(replace(level, kind="carried", ancestors=tuple(range(len(particles)))))
        kept_paths = [particle.path for particle in particles]
        if reference is not None:
            kept_paths.append(reference)
        kept_paths += beside
        search.keep(list(chain.from_iterable(path.path for path in kept_paths)))
        particles = await _step(search, particles, method)
        num_steps += 1


def _cut(reference: Trajectory, steps: int) -> Trajectory:
    """Return the first steps of a path; the whole path where it has fewer."""
    return reference.path[min(steps, reference.depth)]


async def _step(search: Search, particles: Sequence[Particle], method: Swept) -> list[Particle]:
    """Continue the particles that have not stopped. Particles that failed or could not start are left out."""
    active = [particle.path for particle in particles if particle.path.status == "active"]
    families = iter(await method.grow(search, active))
    continued: list[Particle] = []
    for particle in particles:
        if particle.path.status != "active":
            continued.append(particle)
            continue
        children = next(families, [])  # particles that the budget does not pay have no list
        continued += [replace(particle, path=child) for child in children]
    return continued


def log_normalizer(levels: Iterable[Level]) -> float:
    """Return the natural logarithm of the product of mean weights over levels of one sweep.

    Levels that carry their weights on are left out. For a whole sweep, the product is an unbiased estimate of the
    normalizing constant of the law.
    """
    total = 0.0
    for level in levels:
        if level.kind in ("resampled", "ended"):
            log_weights = np.array(level.log_weights) / level.temperature
            total += float(np.logaddexp.reduce(log_weights) - np.log(len(log_weights)))
    return total


def draw_reference(search: Search, particles: Particles, temperature: float, address: tuple[int, int]) -> int:
    """Return the place of the next sweep's reference, a particle drawn by weight."""
    probabilities = softmax(particles.log_weights, temperature)
    return int(SCHEMES["multinomial"](probabilities, 1, search.rng("reference", *address))[0])
