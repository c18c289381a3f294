"""The oracles of phi-decoding (algorithm B7), Guided by Gut (B5) and MUR (B24): laws of their steps on the toy,
enumerated.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from tests.support.repeats import check_law, repeats
from tests.support.runs import Solved, copies, search_many, solution_of
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies.guided.mur import running_mean
from tts.types import Trajectory
from tts.verifiers.toy import ToyVerifier

LANGUAGE = ToyLanguage(accuracy=0.5)  # offsets 0, 1, -1, 10 with probabilities .5, .25, .15, .1
PROBLEM, CHANGES = "3 + 4 - 2", (4, -2)
OUTCOMES = dict(LANGUAGE.outcomes())
LINE = 6  # tokens of a line, of which one is drawn


def runs(plan: str, count: int, **more: Any) -> list[Solved]:
    return search_many(copies(PROBLEM, count), Budget(samples=300), plan, ToyBackend(LANGUAGE), **more)


def offsets(text: str) -> tuple[int, ...]:
    """Return by how much each result of a text is off."""
    found, value = list[int](), 3
    for line, change in zip(text.splitlines(), CHANGES, strict=False):
        result = int(line.split(" = ")[1])
        found.append(result - value - change)
        value = result
    return tuple(found)


def best_of(count: int) -> dict[int, float]:
    """Return the law of the most likely of some draws."""
    ranked = sorted(OUTCOMES.items(), key=lambda one: -one[1])
    law, above = {}, 1.0  # `above`: the mass of this outcome and those less likely
    for offset, p in ranked:
        law[offset] = above**count - (above - p) ** count
        above -= p
    return law


# Phi-decoding ---------------------------------------------------------------------------------------------------------


def phi_law() -> dict[int, float]:
    """Return the law of a first step, drawn of two by the log-probability of one more step behind each, in one
    group.
    """
    law: defaultdict[int, float] = defaultdict(float)
    for (a, pa), (b, pb), (_, fa), (_, fb) in itertools.product(OUTCOMES.items(), repeat=4):
        gain = [math.exp(math.log(f) / LINE / 0.1) for f in (fa, fb)]
        chance = (gain[0] / sum(gain) + 0.5) / 2  # the shares are equal, and so are their weights
        law[a] += pa * pb * fa * fb * chance
        law[b] += pa * pb * fa * fb * (1 - chance)
    return dict(law)


@repeats(100, 300, "count")
def test_foresight_of_one_step_alone_follows_the_law_of_the_model(count: int) -> None:
    """What comes next is independent of the step's slip, so that the gain is: the law is the model's, whatever the
    weights.
    """
    plan = "phi_decoding(n=1, beams=1, branching=2, clusters=1, deviations=99, foresight=1, least=0, most=1)"
    law = phi_law()
    assert law == pytest.approx(OUTCOMES)
    check_law(
        Counter(offsets(end.solution.candidates[0].trajectory.full_text)[0] for end in runs(plan, count)),
        law,
        best_of(2),
    )


def last_law() -> dict[int, float]:
    """Return the law of the last result: the continuation is the answer, which is sure, and the advantage is over the
    step before.
    """
    law: defaultdict[int, float] = defaultdict(float)
    for (a, pa), (b, pb) in itertools.product(OUTCOMES.items(), repeat=2):
        kept = [a] if pa > pb else [b] if pb > pa else [a, b]  # above the mean less no deviation
        for one in kept:
            law[one] += pa * pb / len(kept)
    return dict(law)


@repeats(80, 200, "count")
def test_steps_below_the_mean_are_left_out(count: int) -> None:
    plan = (
        "phi_decoding(n=1, beams=1, branching=2, clusters=1, deviations=0, foresight=1, least=0, most=2, agreement=1)"
    )
    law = last_law()
    assert law == pytest.approx(best_of(2))
    seen = Counter(offsets(end.solution.candidates[0].trajectory.full_text)[0] for end in runs(plan, count))
    check_law(seen, law, OUTCOMES)


def test_the_width_is_pruned_by_the_deviation_and_filled_again() -> None:
    from tts_addons.zoo.phi_decoding import wide_enough

    rng = np.random.Generator(np.random.Philox(1))
    steps = np.array([-0.1, -0.2, -0.3, -5.0])
    assert wide_enough(steps, 2, 1.0, rng) == [0, 1, 2]
    assert wide_enough(steps, 2, math.inf, rng) == [0, 1, 2, 3]
    assert wide_enough(steps, 4, 1.0, rng) == [0, 1, 2, 3]
    assert wide_enough(np.array([-1.0, -1.0]), 1, 0.0, rng) == [0, 1]
    filled = Counter(tuple(wide_enough(np.array([0.0, -9.0, -9.05, -9.1]), 2, 0.0, rng)) for _ in range(600))
    weights = np.exp([0.0, -0.5, -1.0])
    for place, p in enumerate(weights / weights.sum(), start=1):
        assert filled[0, place] / 600 == pytest.approx(p, abs=3 * math.sqrt(p * (1 - p) / 600))


def test_a_continuation_is_worth_its_mean_log_probability() -> None:
    from tts_addons.zoo.phi_decoding import mean_continuation_logprob

    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    step = Trajectory(root, "ab", (1, 2), (-3.0, -1.0), "active", 0, 1, 2, 1)
    more = Trajectory(step, "c", (3,), (-0.5,), "active", 0, 2, 3, 2)
    end = Trajectory(more, "de", (4, 5), (-1.0, -1.5), "finished", 0, 3, 5, 3)
    assert mean_continuation_logprob(step, end) == pytest.approx(-1.0)
    assert mean_continuation_logprob(step, step) == pytest.approx(-2.0)


# Guided by Gut --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@repeats(80, 200, "count")
def test_without_novelty_the_likeliest_sibling_goes_on(count: int) -> None:
    ends = runs("guided_by_gut(n=3, branching=3, novelty=0)", count)
    seen = Counter(offsets(end.solution.candidates[0].trajectory.full_text) for end in ends)
    one = best_of(3)
    pairs = list(itertools.product(OUTCOMES, repeat=2))
    check_law(seen, {(a, b): one[a] * one[b] for a, b in pairs}, {(a, b): OUTCOMES[a] * OUTCOMES[b] for a, b in pairs})


def test_new_words_and_confidence_by_hand() -> None:
    from tts_addons.zoo.guided_by_gut import confidence, new_words

    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    first = Trajectory(root, "so two, yes", (1, 2), (0.0, math.log(0.5)), "active", 0, 1, 2, 1)
    second = Trajectory(first, "two so so nine", (3,), (math.log(0.25),), "active", 0, 2, 3, 2)
    assert new_words(first, {"two"}) == pytest.approx(3 / 4)  # so , yes
    assert new_words(second, {"nine"}) == 0.0
    assert new_words(second, ()) == pytest.approx(1 / 4)
    assert confidence(second.path) == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert confidence([root]) == 0.0


def test_its_candidates_have_their_confidence_as_scores() -> None:
    from tts_addons.zoo.guided_by_gut import confidence

    for plan in ("guided_by_gut(n=4)", "guided_by_gut"):
        solution = solution_of(PROBLEM, 1500, f"{plan} | weighted(verifier='gut')", ToyBackend(LANGUAGE))
        assert solution.error is None
        weights: defaultdict[str | None, float] = defaultdict(float)
        for c in solution.candidates:
            assert c.scores["gut"] == pytest.approx(confidence([c.trajectory])), "of its last step"
            weights[c.answer] += c.scores["gut"]
        assert weights[solution.answer] == max(weights.values())


# MUR ------------------------------------------------------------------------------------------------------------------


def mur_law(gamma: float, momentum: float, branching: int) -> dict[tuple[int, int], float]:
    """Return the law of both results: the second is the likeliest of several where it is less certain than the mean
    allows.
    """
    law: defaultdict[tuple[int, int], float] = defaultdict(float)
    others = best_of(branching - 1)
    for (a, pa), (b, pb) in itertools.product(OUTCOMES.items(), repeat=2):
        u1, u2 = -math.log(pa) / LINE, -math.log(pb) / LINE
        if u2 <= (1 - momentum) * u1 - math.log(gamma):
            law[a, b] += pa * pb
            continue
        for c, pc in others.items():
            law[a, b if pb >= OUTCOMES[c] else c] += pa * pb * pc
    return dict(law)


@pytest.mark.slow
@repeats(120, 300, "count")
@pytest.mark.parametrize(("gamma", "momentum"), [(1.0, 0.2), (1e6, 0.9)])
def test_uncertain_steps_are_the_best_of_several(gamma: float, momentum: float, count: int) -> None:
    law, plain = (
        mur_law(gamma, momentum, 4),
        {(a, b): OUTCOMES[a] * OUTCOMES[b] for a, b in itertools.product(OUTCOMES, repeat=2)},
    )
    if gamma > 1:
        assert law == pytest.approx({(a, b): OUTCOMES[a] * best_of(4)[b] for a, b in law})
    ends = runs(f"mur(n=1, branching=4, gamma={gamma}, momentum={momentum})", count)
    check_law(
        Counter(offsets(end.solution.candidates[0].trajectory.full_text) for end in ends),
        law,
        {key: plain[key] for key in law},
    )
    # the first step never is
    assert all(len([t for t in end.search.tree.nodes if t.depth == 1]) == 1 for end in ends if end.search)


@pytest.mark.slow
@repeats(80, 200, "count")
def test_a_verifier_chooses_among_the_candidates_where_one_is_named(count: int) -> None:
    ends = runs("mur(n=1, branching=3, gamma=1e9, verifier='main')", count, verifiers=ToyVerifier())
    first_right = [offsets(end.solution.candidates[0].trajectory.full_text) for end in ends]
    second = [b == 0 for a, b in first_right if a == 0]
    p = 1 - 0.5**3  # behind a right first step, the verifier finds a right second one
    assert np.mean(second) == pytest.approx(p, abs=3 * math.sqrt(p * (1 - p) / len(second)))
    assert all(end.solution.usage.verifier_calls > 0 for end in ends)


def test_the_running_mean_rises_from_zero() -> None:
    t = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    means: list[float] = []
    for depth in range(1, 30):
        t = Trajectory(t, "a", (1,), (-2.0,), "active", 0, depth, depth, depth)
        means.append(running_mean(t, 0.9))
    assert means[:2] == pytest.approx([0.2, 0.38])
    assert means == sorted(means)
    assert means[-1] == pytest.approx(2 * (1 - 0.9**29))
