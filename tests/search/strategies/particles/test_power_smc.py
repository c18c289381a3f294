"""Power-SMC: its weights are those of p^alpha on a small language, enumerated, for every size and every scheme."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.support.letters import (
    TEXTS,
    Letters,
    Text,
    law_at_temperature,
    letter_law,
    power_law,
    power_masses,
    total_variation,
)
from tests.support.repeats import check_law, repeats
from tests.support.runs import Solved, change_setup, check_books, copies, make_run, search_many, search_one, solve_runs
from tts.backends.base import Sampling
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies._common.particles import log_normalizer
from tts.search.strategies.particles.power_smc import log_gamma
from tts.types import Trajectory

LANGUAGE = ToyLanguage(accuracy=0.5, mute=0.2)  # texts without an answer are one token shorter
PROBLEM = "3 + 4 - 2"
ENOUGH = Budget(samples=10**6)


def estimates(end: Solved) -> dict[str, float]:
    """Return the estimate of p^alpha of each text, from the weights of a sweep: their sum is that of the constant."""
    assert end.search is not None
    levels = end.search.notes.levels
    scale = log_normalizer(levels[:-1])
    masses: dict[str, float] = {}
    for node, log_weight in zip(levels[-1].nodes, levels[-1].log_weights, strict=True):
        text = end.search.tree.nodes[node].full_text
        masses[text] = masses.get(text, 0.0) + math.exp(log_weight + scale) / len(levels[-1].nodes)
    return masses


def p_value(ends: list[Solved], target: Mapping[Text, float]) -> float:
    """Return the p-value of independent estimates whose mean is the target, by the test of Hotelling.

    Texts of less than a fiftieth of the whole are counted together.
    """
    by_text = {"".join(text): value for text, value in target.items()}
    seen = [estimates(end) for end in ends]
    assert {text for each in seen for text in each} <= by_text.keys(), "a text that the filters do not leave"
    common = [text for text, value in by_text.items() if value > sum(by_text.values()) / 50]
    rows = [[*(each.get(text, 0.0) for text in common), sum(each.values())] for each in seen]
    wanted = np.array([*(by_text[text] for text in common), sum(by_text.values())])
    found: NDArray[np.float64] = np.array(rows)
    off, spread = found.mean(axis=0) - wanted, np.linalg.pinv(np.cov(found.T))
    runs, size = found.shape
    return float(stats.f.sf(runs * off @ spread @ off * (runs - size) / size / (runs - 1), size, runs - size))


def swept(plan: str, runs: int, **filters: float) -> list[Solved]:
    """Return independent sweeps on the small language."""
    made = [
        change_setup(make_run(problem, ENOUGH, plan, Letters(letter_law)), sampling=Sampling(**filters))
        for problem in copies("write", runs)
    ]
    ends = asyncio.run(solve_runs(made))
    for end in ends:
        check_books(end.search)
    return ends


CASES = [
    "power_smc(n=4, alpha=3, block=1)",
    "power_smc(n=3, alpha=2, block=2, resample_below=1)",
    "power_smc(n=4, alpha=3, block=1, resample_below=1, ramp=3)",
    "power_smc(n=5, alpha=3, block=1, resample_below=0.8, resampling='multinomial', ramp=10)",
    "power_smc(n=8, alpha=3, block=1, resample_below=0)",
]


@repeats(300, 3000)
@pytest.mark.parametrize("plan", CASES)
def test_the_weights_of_a_few_particles_are_those_of_the_power_in_the_mean(plan: str, runs: int) -> None:
    alpha = 2.0 if "alpha=2" in plan else 3.0
    ends = swept(plan, runs)
    assert {len(text) for text in TEXTS} == {2, 3, 4, 5}
    assert p_value(ends, power_masses(alpha)) > 1e-3
    constant = sum(power_masses(alpha).values())
    if alpha == 3.0:
        for law in (law_at_temperature(alpha), power_law(1.0)):
            assert p_value(ends, {text: p * constant for text, p in law.items()}) < 1e-6, "it could not tell the laws"


@repeats(300, 3000)
@pytest.mark.parametrize("filters", [{"top_p": 0.8}, {"top_k": 2}, {"min_p": 0.3}])
def test_under_filters_the_weights_are_those_of_the_power_over_the_texts_that_are_left(
    filters: dict[str, float], runs: int
) -> None:
    left = power_masses(3.0, **filters)
    assert 3 < len(left) < len(TEXTS)
    ends = swept("power_smc(n=4, alpha=3, block=1, resample_below=0.9)", runs, **filters)
    assert p_value(ends, left) > 1e-3
    other = {text: p * 1.3 if i % 2 else p for i, (text, p) in enumerate(left.items())}
    assert p_value(ends, other) < 1e-6, "it could not tell the laws"


@repeats(800, 3000, "n")
def test_the_votes_of_many_particles_follow_the_power(n: int) -> None:
    end = search_one("write", ENOUGH, f"power_smc(n={n}, alpha=3, block=1)", Letters(letter_law))
    votes: dict[Text, float] = dict.fromkeys(TEXTS, 0.0)
    for c in end.solution.candidates:
        votes[*c.trajectory.full_text, ""] += c.weight
    law = {text: vote / sum(votes.values()) for text, vote in votes.items()}
    assert total_variation(law, power_law(3.0)) < 0.04 * math.sqrt(3000 / n)
    assert total_variation(law_at_temperature(3.0), power_law(3.0)) > 0.2, "the test could not tell the laws apart"


@repeats(400, 3000, "n")
def test_the_power_one_is_the_law_of_the_model_without_weights(n: int) -> None:
    end = search_one("write", ENOUGH, f"power_smc(n={n}, alpha=1, block=1)", Letters(letter_law))
    assert {c.weight for c in end.solution.candidates} == {1.0}
    seen = [(*c.trajectory.full_text, "") for c in end.solution.candidates]
    check_law(Counter(seen), power_law(1.0))


def test_what_a_text_weighs_by_hand() -> None:
    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    half = Trajectory(root, "a", (1,), (-1.0,), "active", 0, 1, 1, 1, sampling_logprobs=(-0.5,))
    whole = Trajectory(half, "bc", (2, 3), (-2.0, -0.25), "finished", 0, 2, 3, 2, sampling_logprobs=(-1.5, 0.0))
    assert log_gamma(root, 4.0) == 0.0
    assert log_gamma(half, 4.0) == -4.0 + 0.5
    assert log_gamma(whole, 2.0) == 2 * -3.25 + 2.0
    assert log_gamma(dataclasses.replace(whole, status="truncated"), 2.0) < -1e8
    for short in ({"logprobs": (-1.0,)}, {"sampling_logprobs": ()}, {"token_ids": (1,)}):
        assert math.isnan(log_gamma(dataclasses.replace(whole, **short), 2.0))


def test_several_sweeps_vote_by_weights_of_one_scale_and_the_first_solution_has_no_vote() -> None:
    end = search_one("write", 400, "power_smc(alpha=2, block=1)", Letters(letter_law))
    assert end.search is not None
    # as no letters are an answer, the solver completes one path more
    first, *others, _completed = sorted(end.solution.candidates, key=lambda c: c.index)
    assert first.weight == 0.0
    log_weights: dict[int, float] = {}
    sweeps = {level.sweep for level in end.search.notes.levels if level.kind == "ended"}
    assert len(sweeps) > 1
    for one in sweeps:
        *before, last = [level for level in end.search.notes.levels if level.sweep == one]
        for node, log_weight in zip(last.nodes, last.log_weights, strict=True):
            total = log_weight + log_normalizer(before)
            log_weights[node] = float(np.logaddexp(log_weights.get(node, -math.inf), total))
    assert {c.trajectory.node for c in others} == log_weights.keys()
    greatest = max(log_weights.values())
    for c in others:
        assert c.weight == pytest.approx(math.exp(log_weights[c.trajectory.node] - greatest))
    assert len({round(c.weight, 9) for c in others}) > 3


def test_a_sweep_that_the_budget_cuts_gives_candidates_only_where_none_has_ended() -> None:
    plan = "power_smc(n=6, block=4, alpha=1.5)"
    whole = search_one(PROBLEM, Budget(samples=99), plan, ToyBackend(LANGUAGE)).solution
    limit = Budget(generated_tokens=whole.usage.generated_tokens - 30)
    cut = search_one(PROBLEM, limit, plan, ToyBackend(LANGUAGE))
    assert cut.search is not None
    assert cut.solution.stopped_by == "budget: generated_tokens"
    assert cut.solution.candidates
    assert not any(level.kind == "ended" for level in cut.search.notes.levels)
    num_dropped = 0
    for seed in range(8):
        end = search_one("write", 100, "power_smc(alpha=2, block=1)", Letters(letter_law), seed=seed)
        assert end.search is not None
        assert end.solution.stopped_by == "budget: tokens"
        ended = {node for level in end.search.notes.levels if level.kind == "ended" for node in level.nodes}
        first, *others, _completed = sorted(end.solution.candidates, key=lambda c: c.index)
        assert first.weight == 0.0
        assert ended == {c.trajectory.node for c in others}
        alive = {t.node for t in end.search.tree.nodes if t.status == "finished"} - end.search.tree.pruned
        num_dropped += len(alive - ended) - 2  # but for the first and the completed one
    assert num_dropped > 0


def test_a_copy_of_an_ended_text_is_one_candidate_with_the_weight_of_all() -> None:
    ends = search_many(
        copies("write", 60), ENOUGH, "power_smc(n=8, alpha=6, block=1, resample_below=1)", Letters(letter_law)
    )
    num_copies = 0
    for end in ends:
        assert end.search is not None
        last = end.search.notes.levels[-1]
        assert {c.trajectory.node for c in end.solution.candidates} == set(last.nodes)
        num_copies += len(last.nodes) - len(set(last.nodes))
        for c in end.solution.candidates:
            weight = sum(
                math.exp(w) for node, w in zip(last.nodes, last.log_weights, strict=True) if node == c.trajectory.node
            )
            totals = [
                sum(math.exp(w) for other, w in zip(last.nodes, last.log_weights, strict=True) if other == node)
                for node in set(last.nodes)
            ]
            assert c.weight == pytest.approx(weight / max(totals))
    assert num_copies > 30
