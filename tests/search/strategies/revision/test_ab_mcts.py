"""The oracles of AB-MCTS: its posteriors against formulas and numerical integrals, and the tree that its draws grow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.repeats import repeats
from tests.support.revising import RevisingTask, revising  # noqa: F401 - a fixture
from tests.support.runs import Solved, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.algorithms.thompson import beta_draw, mixed_draws, normal_draw, normal_posterior
from tts.search.strategies.revision.ab_mcts import AbMcts, AnswerNode, _are_alike, _grow
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

pytestmark = pytest.mark.usefixtures("revising")
LANGUAGE = ToyLanguage(accuracy=0.5)
PROBLEM = "10 - 7 + 5 - 20"


def grow(plan: str, seed: int = 0, verifiers: Any = None) -> Solved:
    scores = verifiers or {"main": ToyVerifier(error=0.2)}
    return search_one(PROBLEM, Budget(samples=60), plan, ToyBackend(LANGUAGE), verifiers=scores, seed=seed)


def draws(count: int, of: object, *args: object) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(key=5))
    return np.array([of(*args, rng) for _ in range(count)])


# Posteriors -----------------------------------------------------------------------------------------------------------


def test_the_normal_posterior_is_that_of_the_formula() -> None:
    assert normal_posterior((0.5, 0.7)) == pytest.approx((0.4, 3, 3, 0.12))
    assert normal_posterior(()) == pytest.approx((0, 1, 1, 0.1))


def test_normal_draws_have_the_marginal_law_of_the_mean() -> None:
    """A scaled and shifted Student t with nu degrees of freedom: its quantiles are known."""
    m, kappa, nu, tau2 = normal_posterior((0.2, 0.9, 0.4, 0.8))
    found = (draws(20_000, normal_draw, (0.2, 0.9, 0.4, 0.8)) - m) / math.sqrt(tau2 / kappa)
    assert nu == 5
    for level, quantile in ((0.95, 2.015), (0.9, 1.476), (0.75, 0.727)):
        assert np.mean(found < quantile) == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 20_000))


def test_beta_draws_have_the_mean_and_variance_of_the_posterior() -> None:
    found = draws(20_000, beta_draw, (1.0, 0.0, 0.5))
    assert found.mean() == pytest.approx(0.5, abs=0.01)
    assert found.var() == pytest.approx(0.25 / 5, rel=0.05)


def mixed_moments(arms: list[list[float]]) -> list[tuple[float, float]]:
    """Return mean and variance of the next score of each arm, and of a new one, by importance sampling from the
    prior.
    """
    rng = np.random.Generator(np.random.Philox(key=9))
    count = 400_000
    mu, between, within = (
        rng.normal(0.5, 0.2, count),
        np.abs(rng.normal(0, 0.2, count)),
        np.abs(rng.normal(0, 0.3, count)),
    )
    levels = mu[:, None] + between[:, None] * rng.normal(size=(count, len(arms)))
    log = np.zeros(count)
    for j, arm in enumerate(arms):
        for y in arm:
            log += -np.log(within) - 0.5 * ((y - levels[:, j]) / within) ** 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    assert 1 / (weights**2).sum() > 1000, "too few effective samples to judge by"
    places = [*levels.T, mu]
    spreads = [within**2] * len(arms) + [within**2 + between**2]
    means = [float(weights @ place) for place in places]
    return [
        (mean, float(weights @ (spread + (place - mean) ** 2)))
        for mean, place, spread in zip(means, places, spreads, strict=True)
    ]


@repeats(1500, 6000, "count")
@pytest.mark.parametrize(
    "arms",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param([[0.9]], marks=pytest.mark.slow),
        [[0.2, 0.9], [0.4]],
        pytest.param([[0.7, 0.6, 0.8], [0.1, 0.3], [0.5]], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_mixed_draws_have_the_moments_of_the_posterior(arms: list[list[float]], count: int) -> None:
    wider = math.sqrt(6000 / count)  # standard errors are those of so many draws
    rng = np.random.Generator(np.random.Philox(key=5))
    found = mixed_draws(arms, rng, count)
    for j, (mean, variance) in enumerate(mixed_moments(arms)):
        assert found[:, j].mean() == pytest.approx(mean, abs=0.02 * wider)
        assert found[:, j].var() == pytest.approx(variance, rel=0.12 * wider)


# P(new) of treequest 0.3.3 (AB-MCTS-M, before anything is skipped): the mean over chains of 5,000 draws, four a fit, of
# as many fits as bring its standard error below 0.007. Where all scores of every arm are equal it has no stable value:
# its posterior has no finite mass.
TREEQUEST: list[tuple[list[list[float]], float]] = [
    ([[0.5, 0.5, 0.5, 0.5], [0.6, 0.4], [0.1]], 0.2875),
    ([[0.2, 0.9], [0.4]], 0.3378),
    ([[0.9, 0.9, 0.9, 0.9], [0.2, 0.4]], 0.1859),
    ([[0.0, 0.0, 0.0, 0.0, 1.0]], 0.5405),
    ([[0.7]], 0.4644),
    ([[0.3, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3, 0.5]], 0.4018),
    ([[0.7, 0.6, 0.8], [0.1, 0.3], [0.5]], 0.2480),
    ([[0.1], [0.2], [0.3], [0.4]], 0.2447),
    ([[0.95, 0.9, 0.97], [0.9, 0.92]], 0.2810),
    ([[1.0, 1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], 0.3238),
    ([[0.5, 0.5, 0.5, 0.5], [0.5, 0.7]], 0.3534),
    ([[0.0], [0.0], [1.0], [0.0]], 0.2088),
]


@pytest.mark.parametrize(("arms", "known"), TREEQUEST, ids=str)
def test_a_new_child_is_as_likely_as_in_the_reference(arms: list[list[float]], known: float) -> None:
    draws = mixed_draws(arms, np.random.Generator(np.random.Philox(key=3)), 40_000)
    assert (draws[:, -1] >= draws[:, :-1].max(1)).mean() == pytest.approx(known, abs=0.02)


# The tree -------------------------------------------------------------------------------------------------------------


def test_a_score_is_an_observation_of_new_of_its_arm_and_of_all_above() -> None:
    root = AnswerNode()
    _grow(root, None, 0.1)
    [a] = root.children
    _grow(a, None, 0.2)
    [b] = a.children
    _grow(b, None, 0.3)
    _grow(root, None, math.nan)
    assert (root.new, root.below, root.all) == ([0.1], [0.2, 0.3], [])
    assert (a.new, a.below, a.all) == ([0.2], [0.3], [0.1, 0.2, 0.3])
    assert (b.new, b.below, b.all) == ([0.3], [], [0.2, 0.3])
    assert (len(root.children), root.children[1].all) == (2, [])


@pytest.mark.parametrize("posterior", ["normal", "beta", "mixed"])
def test_it_writes_n_solutions_wider_and_deeper(posterior: str) -> None:
    plain = revised = 0
    for seed in range(6):
        end = grow(f"ab_mcts(n=12, posterior='{posterior}')", seed)
        assert len(end.search.candidates) == end.solution.usage.samples == 12
        kinds = [c.trajectory.root_kind for c in end.search.candidates]
        assert kinds[0] == "solve"
        plain, revised = plain + kinds.count("solve"), revised + kinds.count("revise")
        task = end.search.task
        assert isinstance(task, RevisingTask)
        written = {c.trajectory.full_text for c in end.search.candidates}
        assert all(len(shown) == 1 and shown[0] in written for _, shown in task.prompted)
        assert end.solution.answer == end.solution.candidates[0].answer
    assert plain > 6
    assert revised > 6


@pytest.mark.parametrize("posterior", ["normal", "beta", "mixed"])
def test_it_is_nested_in_n_and_one_is_a_plain_sample(posterior: str) -> None:
    long = [c.trajectory.full_text for c in grow(f"ab_mcts(n=9, posterior='{posterior}')").search.candidates]
    for n in (1, 4, 7):
        end = grow(f"ab_mcts(n={n}, posterior='{posterior}')")
        assert [c.trajectory.full_text for c in end.search.candidates] == long[:n]
    assert long[:1] == [c.trajectory.full_text for c in grow("single(temperature=1.0)").search.candidates]


@pytest.mark.parametrize("posterior", ["normal", "beta", "mixed"])
def test_equal_scores_and_unknown_scores_break_nothing(posterior: str) -> None:
    for score in (0.5, 0.0, 1.0, math.nan):
        verifiers = {"main": FunctionVerifier(lambda problem, text, score=score: score)}
        end = grow(f"ab_mcts(n=15, posterior='{posterior}')", verifiers=verifiers)
        assert len(end.search.candidates) == 15


def test_a_subtree_of_equal_scores_is_left_alone() -> None:
    assert _are_alike([0.5, 0.501, 0.499, 0.9])
    assert not _are_alike([0.5, 0.5, 0.5])
    assert not _are_alike([0.5, 0.5, 0.6, 0.9])


def root_of(*arms: list[float]) -> AnswerNode:
    """Return a root whose children have subtrees of these scores."""
    root = AnswerNode()
    for arm in arms:
        _grow(root, None, arm[0])
        for score in arm[1:]:
            _grow(root.children[-1], None, score)
    return root


def chosen_from(root: AnswerNode, count: int = 400) -> list[AnswerNode]:
    """Return the nodes that are given a new child, by so many generators."""
    strategy = AbMcts(posterior="mixed")
    return [strategy._select(root, np.random.Generator(np.random.Philox(key=k))) for k in range(count)]


def test_a_skipped_subtree_takes_part_in_the_draws_and_gives_way_to_the_next_child() -> None:
    root = root_of([0.9, 0.9, 0.9, 0.9], [0.2])
    chosen = chosen_from(root)
    new = chosen.count(root) / len(chosen)
    draws = mixed_draws([[0.9] * 4, [0.2]], np.random.Generator(np.random.Philox(key=3)), 40_000)
    law = (draws[:, -1] >= draws[:, :-1].max(1)).mean()
    assert new == pytest.approx(law, abs=4 * math.sqrt(law * (1 - law) / len(chosen)))
    assert law < 0.2, "without the equal scores a new child would be drawn far more often"
    assert set(chosen) <= {root, root.children[1]}, "the next child is taken in place of the skipped one"


def test_where_every_subtree_is_skipped_a_new_child_is_made() -> None:
    root = root_of([0.9, 0.9, 0.9, 0.9], [0.2, 0.2, 0.2, 0.2])
    assert set(chosen_from(root, 50)) == {root}


def test_the_mixed_posterior_chooses_among_models_by_a_fit_over_models() -> None:
    scores = ([0.9, 0.8, 0.85], [0.1, 0.2, 0.15], [])
    rng = np.random.Generator(np.random.Philox(key=1))
    drawn = [int(np.argmax(AbMcts(posterior="mixed")._draws(scores, rng))) for _ in range(500)]
    law = np.bincount(mixed_draws(scores, rng, 40_000)[:, :-1].argmax(1), minlength=3) / 40_000
    for place in range(3):
        p = float(law[place])
        assert drawn.count(place) / 500 == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 500))
    assert law[0] > law[2] > law[1]


@pytest.mark.parametrize(
    ("posterior", "deeper"), [("normal", True), ("normal", False), ("beta", True), ("beta", False), ("mixed", True)]
)
def test_good_scores_below_draw_it_deeper_and_bad_ones_wider(posterior: str, deeper: bool) -> None:
    strategy, root = AbMcts(posterior=posterior), AnswerNode()
    first, second = ((0.1, 0.2), (0.9, 0.8)) if deeper else ((0.9, 0.8), (0.1, 0.2))
    for i in range(6):
        _grow(root, None, first[i % 2])
        for j in range(3):
            _grow(root.children[-1], None, second[j % 2])
    chosen = [strategy._select(root, np.random.Generator(np.random.Philox(key=k))) for k in range(300)]
    below = sum(node is not root for node in chosen) / 300
    assert below > (0.75 if posterior == "mixed" else 0.95) if deeper else below < 0.05
