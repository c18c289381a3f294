"""Power sampling by lookahead: its weights are those of p^alpha, and its law comes near it on a language that is
enumerated.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tests.support.letters import TEXTS, Letters, law_at_temperature, letter_law, mass, power_law, total_variation
from tests.support.runs import check_books, make_run, solve_and_show
from tts.budget.budget import Budget
from tts_addons.zoo.lookahead_power_sampling import choice_law


def test_zeta_is_the_mean_of_what_continuations_weigh() -> None:
    """The identity of Theorem 3.1, enumerated: the power law of the first letter is p^alpha times zeta."""
    alpha = 3.0
    zeta = {letter: sum(mass(letter_law, t, 1) ** alpha for t in TEXTS if t[0] == letter) for letter in ("a", "b")}
    weights = {letter: mass(letter_law, (letter,)) ** alpha * zeta[letter] for letter in zeta}
    law = power_law(alpha)
    for letter, weight in weights.items():
        assert weight / sum(weights.values()) == pytest.approx(sum(p for t, p in law.items() if t[0] == letter))
        # the mean over continuations drawn at temperature 1 / alpha of p^alpha / q
        futures = [t for t in TEXTS if t[0] == letter]
        drawn = [mass(letter_law, t, 1, 1 / alpha) for t in futures]
        assert sum(
            q * mass(letter_law, t, 1) ** alpha / q for q, t in zip(drawn, futures, strict=True)
        ) == pytest.approx(zeta[letter])


def test_a_choice_without_continuations_is_by_the_weights_of_the_blocks() -> None:
    blocks = [math.log(0.2), math.log(0.6)]
    assert choice_law(blocks, np.zeros((2, 0))) == pytest.approx([0.25, 0.75])
    assert choice_law(blocks, np.zeros((2, 1))) == pytest.approx([0.25, 0.75])
    assert choice_law(blocks, np.log([[0.5], [0.1]])) == pytest.approx([0.1 / 0.16, 0.06 / 0.16])


def test_the_jackknife_by_hand() -> None:
    futures = np.log([[0.2, 0.6], [0.5, 0.1]])
    whole = np.array([0.4, 0.3]) / 0.7
    without = (np.array([0.6, 0.1]) / 0.7 + np.array([0.2, 0.5]) / 0.7) / 2
    wanted = 2 * whole - without
    assert choice_law([0.0, 0.0], futures) == pytest.approx(wanted / wanted.sum())


@pytest.mark.slow
def test_the_jackknife_takes_bias_away() -> None:
    """Of 4 continuations: the mean of the corrected share is nearer to the exact one than that of the plain share."""
    rng, exact = np.random.default_rng(0), 0.5 / (0.5 + 0.2)
    plain, corrected = [], []
    for _ in range(4000):
        futures = np.log(np.stack([rng.exponential(0.5, 4), rng.exponential(0.2, 4)]))
        means = np.exp(futures).mean(axis=1)
        plain.append(means[0] / means.sum())
        corrected.append(choice_law([0.0, 0.0], futures)[0])
    assert abs(np.mean(corrected) - exact) < abs(np.mean(plain) - exact) - 3 * np.std(corrected) / 4000**0.5


def distance(branching: int, alpha: float = 3.0, count: int = 250) -> float:
    """Return how far the law of its texts is from p^alpha, in total variation, with the noise of a sample in it."""
    plan = f"lookahead_power_sampling(n={count}, alpha={alpha}, block=1, branching={branching}, rollouts=4, horizon=5)"
    end = solve_and_show(make_run("write", Budget(samples=10**6), plan, Letters(letter_law)))
    assert end.solution.error is None
    assert end.search is not None
    check_books(end.search)
    seen = Counter(c.trajectory.full_text for c in end.solution.candidates)
    return total_variation({text: seen["".join(text)] / count for text in TEXTS}, power_law(alpha))


@pytest.mark.slow
def test_more_candidates_bring_its_law_from_the_tempered_one_to_the_power() -> None:
    noise = 0.5 * sum(math.sqrt(p * (1 - p) / 250) for p in power_law(3.0).values())  # of a draw of so many texts
    far, few, many = total_variation(law_at_temperature(3.0), power_law(3.0)), distance(3), distance(16)
    assert many < few - noise < far - 2 * noise
    assert many < 0.05 + 2 * noise


def test_continuations_are_charged_and_dropped() -> None:
    plan = "lookahead_power_sampling(n=2, block=2, branching=3, rollouts=2)"
    end = solve_and_show(make_run("write", Budget(samples=10**4), plan, Letters(letter_law)))
    assert end.search is not None
    written = sum(call.usage.generated_tokens for call in end.search.account.ledger.calls)
    assert end.solution.usage.generated_tokens == written
    live = {node.node for c in end.solution.candidates for node in c.trajectory.path}
    assert len(end.solution.candidates) == 2
    assert {t.node for t in end.search.tree.nodes} - live <= end.search.tree.pruned
