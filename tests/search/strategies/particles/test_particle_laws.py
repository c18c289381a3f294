"""The laws of particle methods under a verifier that is not constant, enumerated: particle Gibbs sweep by sweep, and
all new weights.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import tts.search.strategies.particles.parallel_tempering
import tts.search.strategies.particles.particle_gibbs
from tests.search.strategies.particles.test_particle_filter import LANGUAGE, SCORES, asked_of, judged, result_of
from tests.support.repeats import repeats
from tests.support.runs import copies, make_run, search_many, search_one, solve_and_show
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.plan import parse
from tts.search.strategies._common.particles import Particles, draw_reference
from tts.types import Problem, Trajectory
from tts.verifiers.function import FunctionVerifier

PROBLEM = "3 + 4 - 2"
State = tuple[bool, ...]  # which results are right, each with probability one half
STATES: list[State] = list(itertools.product((True, False), repeat=2))
End = tuple[float, list[State], list[float]]  # its chance, the particles, and their log-weights
VERIFIED = FunctionVerifier(judged)


def log_odds(state: State) -> float:
    r = (0.8 if state[0] else 0.4) if len(state) == 1 else SCORES[state[0], state[1]]
    return math.log(r / (1 - r))


class Enumerated:
    """Two particles, of which the last may be a reference, by their definition: a step, a weight, and maybe a
    resampling, three times.

    Args:
        target, twist, below: as `ParticleMethod` has them; the third step is the answer, which changes no score.
    """

    def __init__(self, target: str, twist: float, below: float) -> None:
        self.target, self.twist, self.below = target, twist, below

    def weights(self, states: list[State], carried: list[float], level: int) -> list[float]:
        found: list[float] = []
        for state, before in zip(states, carried, strict=True):
            now = log_odds(state) * (self.twist if level < 3 else 1.0)
            past = 0.0 if level == 1 else log_odds(state[: min(level - 1, 2)]) * self.twist
            found.append(before + now - (past if self.target == "last" else 0.0))
        return found

    def sweep(self, reference: State | None) -> dict[State, float]:
        """Return the law of the particle that is drawn at the end of a sweep."""
        law: defaultdict[State, float] = defaultdict(float)
        free = 2 if reference is None else 1
        for chance, states, carried in self._levels([()] * free, [0.0] * 2, reference, 1):
            p = np.exp(np.array(carried) - max(carried))
            for state, share in zip(states, p / p.sum(), strict=True):
                law[state] += chance * share
        return dict(law)

    def _levels(
        self, free: list[State], carried: list[float], reference: State | None, level: int
    ) -> Iterator[tuple[float, list[State], list[float]]]:
        grown = itertools.product((True, False), repeat=len(free)) if level < 3 else [()]
        for results in grown:
            chance = 0.5 ** len(results)
            states = [(*state, result) for state, result in zip(free, results, strict=True)] if results else list(free)
            everyone = states + ([] if reference is None else [reference[: min(level, 2)]])
            after = self.weights(everyone, carried, level)
            if level == 3:
                yield chance, everyone, after
                continue
            p = np.exp(np.array(after) - max(after))
            p /= p.sum()
            if 1 / float(np.square(p).sum()) > self.below * 2 * (1 + 1e-9):
                rest = self._levels(states, after, reference, level + 1)
                yield from ((chance * more, *end) for more, *end in rest)
                continue
            for ancestors in itertools.product(range(2), repeat=len(free)):
                share = math.prod(p[a] for a in ancestors)
                rest = self._levels([everyone[a] for a in ancestors], [0.0, 0.0], reference, level + 1)
                yield from ((chance * share * more, *end) for more, *end in rest)

    def law(self, sweeps: int) -> dict[State, float]:
        law = self.sweep(None)
        for _ in range(sweeps - 1):
            after: defaultdict[State, float] = defaultdict(float)
            for state, p in law.items():
                for then, share in self.sweep(state).items():
                    after[then] += p * share
            law = dict(after)
        return law

    def posterior(self) -> dict[State, float]:
        """Return what the sweeps leave as it is: the model's law times the odds of all levels, or of the last."""
        if self.target == "last":
            mass = {state: math.exp(log_odds(state)) for state in STATES}
        else:
            mass = {s: math.exp(self.twist * (log_odds(s[:1]) + log_odds(s)) + log_odds(s)) for s in STATES}
        return {state: one / sum(mass.values()) for state, one in mass.items()}


CASES = [("levels", 1.0, 1.0), ("last", 1.0, 1.0), ("last", 0.5, 1.0), ("last", 1.0, 0.8), ("levels", 1.0, 0.0)]


@pytest.mark.parametrize("case", CASES)
def test_the_oracle_keeps_the_posterior(case: tuple[str, float, float]) -> None:
    oracle = Enumerated(*case)
    target = oracle.posterior()
    after: defaultdict[State, float] = defaultdict(float)
    for state, p in target.items():
        for then, share in oracle.sweep(state).items():
            after[then] += p * share
    assert dict(after) == pytest.approx(target)
    assert sum(oracle.law(3).values()) == pytest.approx(1)


def state_of(t: Trajectory) -> State:
    lines = t.full_text.splitlines()
    return tuple(result_of(line) == asked_of(line) for line in lines[:2])


def references(plan: str, count: int, last: int, monkeypatch: pytest.MonkeyPatch) -> Counter[State]:
    """Return which paths particle Gibbs draws at the end of a sweep, counted from 0."""
    seen: Counter[State] = Counter()

    def recording(search: Any, particles: Particles, temperature: float, address: tuple[int, int]) -> int:
        at = draw_reference(search, particles, temperature, address)
        seen[state_of(particles.paths[at])] += address[1] == last
        return at

    monkeypatch.setattr(tts.search.strategies.particles.particle_gibbs, "draw_reference", recording)
    search_many(copies(PROBLEM, count), Budget(samples=99), plan, ToyBackend(LANGUAGE), verifiers=VERIFIED)
    assert sum(seen.values()) == count
    return seen


@pytest.mark.slow
@repeats(120, 300)
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case != CASES[0])) for case in CASES])
def test_particle_gibbs_follows_its_exact_law(
    case: tuple[str, float, float], runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, twist, below = case
    plan = f"particle_gibbs(n=2, sweeps=3, target='{target}', twist={twist}, resample_below={below}) | majority"
    law = Enumerated(*case).law(3)
    seen = references(plan, runs, 2, monkeypatch)
    assert stats.chisquare([seen[state] for state in STATES], [law[state] * runs for state in STATES]).pvalue > 1e-3
    assert max(abs(law[state] - 0.25) for state in STATES) > 0.1, "the test could not tell the law from the model's"


@pytest.mark.slow
def test_many_particles_follow_the_odds_of_whole_solutions_where_these_are_the_target() -> None:
    n = 1000
    plan = f"particle_filter(n={n}, target='last') | majority"
    end = search_one(PROBLEM, Budget(samples=10 * n), plan, ToyBackend(LANGUAGE), verifiers=VERIFIED)
    seen = Counter(state_of(c.trajectory) for c in end.solution.candidates)
    assert sum(seen.values()) == n
    wanted, levels = Enumerated("last", 1.0, 1.0).posterior(), Enumerated("levels", 1.0, 1.0).posterior()
    # twice resampled with an effective sample size above n / 2: standard error at most 2 sqrt(.25 / 500) = .045
    assert all(abs(seen[state] / n - p) < 0.09 for state, p in wanted.items())
    assert max(abs(wanted[state] - p) for state, p in levels.items()) > 0.2, (
        "the test could not tell the two targets apart"
    )


def test_without_resampling_no_particle_has_copies() -> None:
    end = search_one(
        PROBLEM, Budget(samples=99), "particle_filter(n=6, resample_below=0)", ToyBackend(LANGUAGE), verifiers=VERIFIED
    )
    assert end.solution.usage.samples == 6
    parents = Counter(t.parent.node for t in end.search.tree.nodes if t.parent is not None and t.depth > 1)
    assert set(parents.values()) == {1}


def test_a_lookahead_weighs_particles_by_where_they_lead() -> None:
    """First steps are alike to the verifier, which sees in the second alone what the first was."""

    def late(problem: Problem, text: str) -> float:
        lines = text.splitlines()
        return 0.5 if len(lines) < 2 else 0.999 if result_of(lines[0]) == asked_of(lines[0]) else 0.001

    verifiers, right = {"main": FunctionVerifier(late)}, {}
    for lookahead in (0, 1):
        plan = f"particle_filter(n=40, lookahead={lookahead})"
        end = search_one(PROBLEM, Budget(samples=999), plan, ToyBackend(LANGUAGE), verifiers=verifiers)
        second = [t for t in end.search.tree.nodes if t.depth == 2 and t.node not in end.search.tree.scratch]
        right[lookahead] = float(np.mean([state_of(t)[0] for t in second]))
    assert 0.2 < right[0] < 0.8  # drawn before anything was seen
    assert right[1] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("target", ["levels", "last"])
def test_references_are_swapped_by_the_weights_of_all_their_levels(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target of a chain is the model's law times exp(w / T), with w the sum over levels: with it alone a swap keeps
    both laws.
    """
    module = tts.search.strategies.particles.parallel_tempering
    references: dict[int, State] = {}
    num_swaps = 0

    def recording(search: Any, particles: Particles, temperature: float, address: tuple[int, int]) -> int:
        place = draw_reference(search, particles, temperature, address)
        references[address[0]] = state_of(particles.paths[place])
        return place

    def checked(hot: float, cold: float, hot_temperature: float, cold_temperature: float) -> float:
        nonlocal num_swaps
        num_swaps += 1
        for weight, state in ((hot, references[0]), (cold, references[1])):
            levels = [log_odds(state[:1]), log_odds(state), log_odds(state)]
            assert weight == pytest.approx(sum(levels) if target == "levels" else levels[-1])
        return 0.0

    monkeypatch.setattr(module, "draw_reference", recording)
    monkeypatch.setattr(module, "swap_chance", checked)
    plan = f"parallel_tempering(n=3, chains=2, sweeps=6, target='{target}')"
    for seed in range(4):
        run = make_run(PROBLEM, Budget(samples=999), plan, ToyBackend(LANGUAGE), verifiers=VERIFIED, seed=seed)
        assert solve_and_show(run).solution.error is None
    assert num_swaps == 24


@pytest.mark.parametrize("plan", ["particle_gibbs(sweeps=2", "parallel_tempering(sweeps=2"])
@pytest.mark.parametrize("scheme", ["stratified", "systematic", "residual"])
def test_sweeps_around_a_reference_take_the_one_scheme_that_keeps_their_law(plan: str, scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"resampling.*multinomial"):
        parse(f"{plan}, resampling='{scheme}')")
    assert parse(f"particle_gibbs(sweeps=1, resampling='{scheme}')")
