"""The oracles of particle Gibbs, parallel tempering and entropic particle filtering (algorithms A10-A12)."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.search.strategies.particles.test_particle_filter import CONSTANT, LANGUAGE
from tests.support.repeats import check_law
from tests.support.runs import Solved, copies, search_many, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.algorithms.resampling import effective_sample_size, softmax
from tts.search.strategies.particles.parallel_tempering import ParallelTempering, swap_chance
from tts.verifiers.base import to_log_odds
from tts.verifiers.toy import ToyVerifier

PROBLEM = "10 - 7 + 5 - 20"
NOISY = ToyVerifier(error=0.2)


def swept(plan: str, seed: int = 0, verifiers: Any = None, samples: int = 400, problem: str = PROBLEM) -> Solved:
    return search_one(
        problem, Budget(samples=samples), plan, ToyBackend(LANGUAGE), seed=seed, verifiers=verifiers or NOISY
    )


def nodes(end: Solved) -> list[tuple[str, int]]:
    return [(t.text, t.stream) for t in end.search.tree.nodes]


# One method is another ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "same"),
    [
        ("particle_gibbs(n=5, sweeps=1)", "particle_filter(n=5)"),
        ("parallel_tempering(n=4, chains=1, sweeps=3)", "particle_gibbs(n=4, sweeps=3)"),
        ("parallel_tempering(n=5, chains=1, sweeps=1)", "particle_filter(n=5)"),
        ("entropic_particle_filter(n=5, least_ess=0.0, resampling='multinomial')", "particle_filter(n=5)"),
        ("entropic_particle_filter(n=5, early=0.0)", "particle_filter(n=5, resampling='systematic')"),
        ("entropic_particle_filter(n=1)", "particle_filter(n=1)"),
    ],
)
def test_seed_for_seed(plan: str, same: str) -> None:
    for seed in range(6):
        assert nodes(swept(plan, seed)) == nodes(swept(same, seed))


# The reference --------------------------------------------------------------------------------------------------------


def test_the_second_sweep_has_one_free_particle_less() -> None:
    end = swept("particle_gibbs(n=4, sweeps=2)", verifiers=CONSTANT)
    first_steps = [t for t in end.search.tree.nodes if t.depth == 1]
    assert len(first_steps) == 4 + 3


def test_copies_of_the_reference_go_on_from_its_first_steps() -> None:
    """A branch behind an inner node of a finished path of an earlier sweep is such a copy."""
    copies = 0
    for seed in range(12):
        end = swept("particle_gibbs(n=4, sweeps=3)", seed)
        before = [t for t in end.search.tree.nodes if t.depth == 1][3].node
        finished = {c.trajectory.node: c.trajectory for c in end.solution.candidates}
        for t in end.search.tree.nodes:
            if t.parent is not None and t.parent.depth >= 1:
                siblings = [s for s in end.search.tree.nodes if s.parent is t.parent]
                copies += (
                    t is not siblings[0] and any(t.parent in c.path for c in finished.values()) and t.node > before
                )
        for path in finished.values():  # the text of a path is what its nodes wrote, whatever became of its copies
            assert path.full_text == "".join(node.text for node in path.path[1:])
    assert copies > 5


def test_all_or_the_last_sweeps_particles_are_returned() -> None:
    everything, last = (swept(f"particle_gibbs(n=4, sweeps=3, returned={which!r})", 2) for which in ("all", "last"))
    assert nodes(everything) == nodes(last)
    some, many = ({c.trajectory.node for c in end.solution.candidates} for end in (last, everything))
    assert some < many
    assert len(some) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["particle_gibbs(n=3, sweeps=2, returned='last')", "parallel_tempering(n=2)"])
def test_under_a_constant_verifier_what_is_found_follows_the_law_of_the_model(plan: str) -> None:
    problems = copies("3 + 4 - 2", 5000)
    ends = search_many(problems, Budget(samples=99), f"{plan} | majority", ToyBackend(LANGUAGE), verifiers=CONSTANT)
    seen = Counter(max(end.solution.candidates, key=lambda c: c.index).answer for end in ends)
    check_law(seen, LANGUAGE.answer_distribution("3 + 4 - 2"))


@pytest.mark.parametrize(
    ("plan", "free"),
    [
        ("particle_filter", 31),
        ("particle_gibbs", 7),
        ("particle_gibbs(sweeps=8)", 3),
        ("parallel_tempering(chains=4, sweeps=2)", 3),
    ],
)
def test_sizes_left_out_are_shared_over_the_sweeps_and_what_is_left_is_searched_again(plan: str, free: int) -> None:
    # a typical solution is 4 steps of 16 tokens, written and scored; this one is 21
    end = search_one(PROBLEM, 16 * 4 * (16 + 16), plan, ToyBackend(LANGUAGE), verifiers=NOISY)
    calls = [call for call in end.search.account.ledger.calls if call.kind == "expand"]
    # a plain solution first, whose length says how many the budget pays
    assert [call.rows for call in calls[:2]] == [1, free]
    assert end.solution.stopped_by == "budget: tokens"
    assert end.solution.usage.tokens > 0.8 * 16 * 4 * 32
    alone = search_one(PROBLEM, Budget(samples=1), plan, ToyBackend(LANGUAGE), verifiers=NOISY)
    assert len(alone.solution.candidates) == 1


# Tempering ------------------------------------------------------------------------------------------------------------


def test_the_swap_ratio_is_that_of_the_tempered_targets() -> None:
    assert swap_chance(3.0, -2.0, 1.5, 1.5) == 1.0  # equal temperatures
    for hot, cold, t_hot, t_cold in (
        (0.3, 1.2, 4.0, 1.0),
        (1.2, 0.3, 4.0, 1.0),
        (-2.0, 2.0, 2.0, 0.5),
        (2.0, -2.0, 2.0, 0.5),
    ):
        ratio = math.exp(cold / t_hot + hot / t_cold) / math.exp(hot / t_hot + cold / t_cold)
        assert swap_chance(hot, cold, t_hot, t_cold) == pytest.approx(min(1.0, ratio))
    assert swap_chance(5.0, 0.0, 4.0, 1.0) == 1.0  # the better find goes to the colder chain


def test_the_ladder_falls_from_the_hottest_to_the_last() -> None:
    assert ParallelTempering(chains=3, hottest=4.0).temperatures == pytest.approx((4.0, 2.0, 1.0))
    assert ParallelTempering(chains=2, hottest=3.0, weight_temperature=0.5).temperatures == pytest.approx((1.5, 0.5))
    assert ParallelTempering(chains=1, hottest=9.0).temperatures == (1.0,)


def test_chains_keep_their_references_alive_for_one_another() -> None:
    for seed in range(6):
        end = swept("parallel_tempering(n=3, chains=3, sweeps=3)", seed, samples=900)
        assert end.solution.stopped_by == "done"
        assert len(end.solution.candidates) >= 9


# Annealing ------------------------------------------------------------------------------------------------------------

VECTOR = to_log_odds(np.array([0.9, 0.6, 0.3, 0.1]), (0.0, 1.0))


def test_the_temperatures_of_the_vector() -> None:
    from tts_addons.zoo.entropic_particle_filter import annealing_temperature

    assert effective_sample_size(softmax(VECTOR)) == pytest.approx(1.4605, abs=5e-5)
    assert annealing_temperature(VECTOR, 0.25, "ess") == pytest.approx(2.054, abs=5e-4)
    assert annealing_temperature(VECTOR, 0.25, "entropy") == pytest.approx(1.724, abs=5e-4)
    assert annealing_temperature(VECTOR, 0.25, "base") == 1.75


@example(weights=[0.0] * 5, progress=2.0, annealing="entropy")
@given(
    weights=st.lists(st.floats(-20, 20), min_size=1, max_size=9),
    progress=st.floats(0, 3),
    annealing=st.sampled_from(["ess", "entropy", "base"]),
)
@settings(deadline=None)
def test_a_temperature_is_never_below_one(weights: list[float], progress: float, annealing: str) -> None:
    from tts_addons.zoo.entropic_particle_filter import annealing_temperature

    temperature = annealing_temperature(np.array(weights), progress, annealing)
    assert 1.0 <= temperature < math.inf
    if progress >= 1:
        assert temperature == 1.0


@pytest.mark.slow
def test_annealing_keeps_more_first_steps_alive_than_particle_filtering_does() -> None:
    language = ToyLanguage(accuracy=0.3)
    kept: dict[str, float] = {}
    for plan in ("particle_filter(n=12, resampling='systematic')", "entropic_particle_filter(n=12, horizon=40)"):
        ends = [
            search_one(
                PROBLEM, Budget(samples=400), plan, ToyBackend(language), seed=seed, verifiers=ToyVerifier(error=0.01)
            )
            for seed in range(15)
        ]
        second = [
            {t.parent.node for t in end.search.tree.nodes if t.depth == 2 and t.parent} for end in ends if end.search
        ]
        kept[plan] = float(np.mean([len(parents) for parents in second]))
    plain, annealed_ = kept.values()
    assert annealed_ > plain + 1
