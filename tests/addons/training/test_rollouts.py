"""Rollouts in groups: the total is hard, sizes follow expected variance, and advantages are those of GRPO."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import tts
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import ConfigError
from tts.experiments.datasets import countdown
from tts_addons.training.rollouts import (
    Rollout,
    RolloutGroup,
    Rollouts,
    SignalAllocator,
    expected_variance,
    fit_beta,
    rollouts,
)


def sums(count: int = 24, seed: int = 0) -> list[tts.Problem]:
    """Return sums of two to nine terms: some are nearly always right, others seldom."""
    rng = np.random.default_rng(seed)
    texts = [" + ".join(map(str, rng.integers(1, 10, int(rng.integers(2, 10))))) for _ in range(count)]
    return [tts.Problem(text, answer=str(eval(text)), id=f"{i}") for i, text in enumerate(texts)]


def countdowns(count: int) -> list[tts.Problem]:
    return list(countdown.load(limit=count, split="train", numbers=(2, 3, 4), seed=3))


def solver(**settings: Any) -> tts.Solver:
    return tts.Solver(ToyBackend(ToyLanguage(accuracy=0.85)), task="arithmetic", temperature=1.0, **settings)


def drawn(total: Any, seed: int = 0, **settings: Any) -> Rollouts:
    settings.setdefault("objective", "signal")
    with solver() as made:
        return rollouts(sums(), total, solver=made, seed=seed, **settings)


def group(*rewards: float) -> RolloutGroup:
    made = (Rollout(text="", answer=None, reward=one, tokens=None, num_tokens=1, truncated=False) for one in rewards)
    return RolloutGroup(problem=tts.Problem("1 + 1", answer="2"), rollouts=tuple(made))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["signal", "uniform"])
def test_no_total_is_ever_passed_and_the_spend_is_that_of_the_ledger(objective: str) -> None:
    for seed in range(12):
        tokens = int(np.random.default_rng(seed).integers(30, 4000))
        account = tts.Account(tts.Budget(tokens=tokens, samples=200))
        with solver() as made:
            found = rollouts(sums(8, seed), account, solver=made, objective=objective, n=4, seed=seed)
        assert found.spent["tokens"] == account.spent["tokens"] <= tokens
        assert found.spent["samples"] <= 200
        assert found.stopped_by


@pytest.mark.slow
def test_equal_seeds_draw_equal_groups_whatever_else_the_solver_did() -> None:
    first = drawn(5000, seed=3)
    with solver() as made:
        made.solve("3 + 4", 100, seed=9)
        again = rollouts(sums(), 5000, solver=made, seed=3, objective="signal")
    assert first == again
    assert first != drawn(5000, seed=4)


def test_uniform_groups_are_equal() -> None:
    found = drawn(100_000, objective="uniform", n=6)
    assert {len(one.rollouts) for one in found.groups} == {6}
    assert found.stopped_by == "samples drawn"


@pytest.mark.slow
def test_the_end_says_what_ended_it() -> None:
    assert drawn(10**6, most=2, n=2).stopped_by == "samples drawn"
    assert {len(one.rollouts) for one in drawn(10**6, most=3).groups} == {3}, "never more than most"
    assert drawn(700).stopped_by.startswith("budget: ")
    assert drawn(10**6, reward=lambda problem, text: 1.0).stopped_by.startswith("settled: ")
    assert min(drawn(3000, objective="uniform", reward=lambda problem, text: -2.0).groups[0].rewards) == -2


@pytest.mark.slow
def test_signal_draws_where_rewards_differ() -> None:
    uniform = [drawn(100_000, seed, objective="uniform", n=8) for seed in range(4)]
    for seed, one in enumerate(uniform):
        found = drawn(int(one.spent["tokens"]), seed, n=8)
        assert found.signal > 1.2 * one.signal
        sizes = np.array([len(of.rollouts) for of in found.groups])
        assert sizes.min() >= 4
        assert sizes.max() <= 32
        assert found.signal / found.spent["tokens"] > 1.2 * one.signal / one.spent["tokens"]


def test_rollouts_have_the_tokens_that_the_model_wrote() -> None:
    found = drawn(3000)
    for one in (rollout for of in found.groups for rollout in of.rollouts):
        assert one.tokens is not None
        assert len(one.tokens.ids) == len(one.tokens.logprobs) == one.num_tokens
    right = [(rollout.answer == of.problem.answer, rollout.reward) for of in found.groups for rollout in of.rollouts]
    assert all(float(is_right) == reward for is_right, reward in right)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["signal", "uniform"])
def test_a_sample_that_the_total_cuts_counts_in_no_group(objective: str) -> None:
    """Totals of all sizes cut samples at all places; each sample of a group is whole, and judged."""
    problems, judged, cut, num_rollouts = countdowns(6), list[str](), list[Rollout](), 0

    def reward(problem: tts.Problem, text: str) -> float:
        judged.append(text)
        return 0.25

    with tts.Solver("pocket", {}, task="countdown", temperature=1.0) as made:
        for total in range(25, 400, 15):
            found = rollouts(problems, total, solver=made, objective=objective, n=4, seed=total, reward=reward)
            assert found.spent["tokens"] <= total
            for of in found.groups:
                assert not any(one.truncated for one in of.rollouts)
                assert of.rewards.tolist() == [0.25] * len(of.rollouts)
                assert len(of.advantages()) == len(of.rollouts)
                cut += of.cut
                num_rollouts += len(of.rollouts)
    assert cut, "no total cut a sample, so that nothing was tested"
    assert all(one.truncated and math.isnan(one.reward) for one in cut)
    assert len(judged) == num_rollouts, "a cut sample is not judged"


def test_a_sample_that_max_tokens_cuts_counts_as_it_stands() -> None:
    with tts.Solver("pocket", {}, task="countdown", temperature=1.0, max_tokens=6) as made:
        found = rollouts(countdowns(3), 5000, solver=made, objective="uniform", n=4)
    assert [len(of.rollouts) for of in found.groups] == [4, 4, 4]
    assert all(one.truncated and one.reward == 0 and one.num_tokens == 6 for of in found.groups for one in of.rollouts)
    assert not any(of.cut for of in found.groups)


@pytest.mark.slow
def test_rollouts_have_the_law_that_drew_their_tokens() -> None:
    with tts.Solver("pocket", {}, task="countdown", temperature=0.5) as made:
        found = rollouts(countdowns(3), 2000, solver=made, n=4)
    tokens = [one.tokens for of in found.groups for one in of.rollouts]
    assert all(one is not None and one.sampling_logprobs is not None for one in tokens)
    assert any(one.sampling_logprobs != one.logprobs for one in tokens if one is not None)


def test_a_reward_of_ones_own_judges_texts() -> None:
    found = drawn(3000, reward=lambda problem, text: len(text) / 200 if problem.prompt else 0.0)
    assert all(rollout.reward == len(rollout.text) / 200 for of in found.groups for rollout in of.rollouts)


def test_advantages_are_those_of_grpo() -> None:
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 0.5])
    made = group(*rewards)
    std = math.sqrt(((rewards - rewards.mean()) ** 2).sum() / 4)
    np.testing.assert_allclose(made.advantages(), (rewards - rewards.mean()) / (std + 1e-4), rtol=1e-12)
    np.testing.assert_allclose(made.advantages(scaled=False), rewards - rewards.mean(), rtol=1e-12)
    others = [reward - np.delete(rewards, i).mean() for i, reward in enumerate(rewards)]
    np.testing.assert_allclose(made.advantages(baseline="others", scaled=False), others, rtol=1e-12)
    assert group(1.0, 1.0, 1.0).advantages().tolist() == [0, 0, 0]
    assert group(1.0).advantages().tolist() == [0]
    assert group().advantages().tolist() == []


def test_expected_variance_is_that_of_the_posterior() -> None:
    successes, samples = np.array([0.0, 2, 4, 7]), np.array([4, 4, 4, 8])
    a, b = fit_beta(successes, samples)
    draws = np.random.default_rng(0).beta(a + successes, b + samples - successes, (400_000, 4))
    np.testing.assert_allclose(expected_variance(successes, samples), (draws * (1 - draws)).mean(axis=0), atol=1e-3)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 2.0), (0.3, 1.5), (8.0, 4.0)])
def test_the_prior_is_that_of_the_prompts(a: float, b: float) -> None:
    rng = np.random.default_rng(1)
    samples = np.full(40_000, 4)
    found = fit_beta(rng.binomial(samples, rng.beta(a, b, len(samples))).astype(float), samples)
    np.testing.assert_allclose(found, (a, b), rtol=0.12)
    alike = fit_beta(rng.binomial(samples, 0.4).astype(float), samples)
    assert sum(alike) > 15, "prompts that differ by chance alone"


def test_the_allocator_serves_the_greatest_variance_for_its_cost_and_never_more_than_is_left() -> None:
    allocator, ones = SignalAllocator(first=4, most=16), np.ones(5)
    some = allocator.next(np.zeros(5), np.zeros(5, np.int64), ones, 9.0)
    assert some.tolist() == [4, 4, 0, 0, 0]
    samples, successes = np.full(5, 4), np.array([0.0, 1, 2, 3, 4])
    more = allocator.next(successes, samples, ones, 8.0)
    assert more.tolist() == [0, 0, 4, 0, 0]
    dear = allocator.next(successes, samples, np.array([1, 1, 9.0, 1, 1]), 8.0)
    assert dear[2] == 0
    assert dear.sum() == 4
    assert not allocator.next(np.array([0.0, 4000]), np.array([4000, 4000]), np.ones(2), 100.0).any()
    assert not dataclasses.replace(allocator, most=4).next(successes, samples, ones, 100.0).any()


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"objective": "accuracy"}, "objective is 'accuracy'"),
        ({"n": 1}, "n is 1"),
        ({"strategy": "single"}, "a group needs one with a size"),
        ({"reward": lambda problem, text: math.nan}, "the reward is nan"),
        ({"reward": lambda problem, text: 1.5, "objective": "signal"}, "the reward is 1.5, but objective"),
        ({"total": tts.Budget(samples=9)}, r"total limits \['samples'\], but must limit tokens"),
        ({"most": 8}, "most is 8, but belongs to objective"),
        ({"model": "toy"}, "model is given beside solver"),
    ],
)
def test_what_makes_no_group_is_refused(given: dict[str, Any], cause: str) -> None:
    total = given.pop("total", 500)
    with solver() as made, pytest.raises(ConfigError, match=cause):
        rollouts(sums(3), total, solver=made, **given)


def test_options_make_the_solver_and_tables_have_prompts_and_answers() -> None:
    columns = {"question": ["3 + 4", "5 - 2"], "answer": [7, 3]}
    rows = [{"question": "3 + 4", "answer": 7}, {"question": "5 - 2", "answer": 3}]
    for given in (columns, rows):
        found = rollouts(given, 5000, model="toy", task="arithmetic", temperature=1.0, n=5)
        assert [(of.problem.answer, len(of.rollouts)) for of in found.groups] == [("7", 5), ("3", 5)]
    with pytest.raises(ConfigError, match="no reference answer"):
        rollouts({"question": ["3 + 4"]}, 5000, model="toy")
    with pytest.raises(ConfigError, match="modle"):
        rollouts(columns, 5000, modle="toy")  # type: ignore[call-arg]


@pytest.mark.parametrize("total", [1500, 10**5])
def test_the_first_wave_draws_from_every_prompt(monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    waves: list[int] = []
    draw = tts.Solver.solve_for_training

    def noted(self: tts.Solver, problems: Any, *more: Any) -> Any:
        waves.append(len(problems))
        return draw(self, problems, *more)

    monkeypatch.setattr(tts.Solver, "solve_for_training", noted)
    found = drawn(total)
    assert waves[0] == len(found.groups) == 24
    assert all(of.rollouts or of.cut for of in found.groups)


@pytest.mark.parametrize("objective", ["signal", "uniform"])
def test_a_reward_that_raises_loses_no_rollout(objective: str) -> None:
    def reward(problem: tts.Problem, text: str) -> float:
        if problem.id == "1":
            raise ValueError("no reward\nfor you")
        return 0.5

    with solver() as made, pytest.raises(tts.TTSError, match=r"reward.*ValueError.*partial") as caught:
        rollouts(sums(3), 5000, solver=made, reward=reward, objective=objective, n=4)
    assert isinstance(caught.value.__cause__, ValueError)
    partial = caught.value.partial
    assert [(len(of.rollouts), len(of.cut)) for of in partial.groups] == [(4, 0), (0, 4), (4, 0)]
    assert all(one.text for one in partial.groups[1].cut)
    assert partial.spent["tokens"] > 0


def test_a_backend_without_token_ids_is_told_before_anything_is_spent() -> None:
    def write(ask: tts.Ask) -> str:
        asked.append(bool(told))
        return "The answer is 7."

    asked: list[bool] = []
    with pytest.warns(UserWarning, match="token ids") as told:
        found = rollouts([tts.Problem("3 + 4", answer="7")], 500, model=write, task="math", n=2)
    assert found.groups[0].rollouts[0].tokens is None
    assert asked == [True, True]
    assert found.spent.keys() >= {"tokens", "samples"}
    assert "usd" not in found.spent  # the function states no price


def test_prompts_without_a_reference_need_a_reward() -> None:
    with solver() as made:
        with pytest.raises(ConfigError, match="has no reference answer"):
            rollouts(["3 + 4"], 500, solver=made)
        with pytest.raises(ConfigError, match="there are no prompts"):
            rollouts([], 500, solver=made)
        assert rollouts(["3 + 4"], 500, solver=made, reward=lambda problem, text: 0.0).groups[0].variance == 0


@pytest.mark.parametrize("strategy", ["rebase", "beam", "particle_filter"])
def test_trees_make_groups_too(strategy: str) -> None:
    """Rollouts of a tree have their own tokens, prefixes that they share included."""
    with tts.Solver(
        ToyBackend(ToyLanguage(accuracy=0.85)), "toy(error=0.2)", task="arithmetic", temperature=1.0
    ) as made:
        found = rollouts(sums(4), 4000, solver=made, strategy=strategy, objective="uniform", n=4)
    assert found.spent["tokens"] <= 4000
    sizes = [len(of.rollouts) for of in found.groups]
    assert max(sizes) == 4
    for one in (rollout for of in found.groups for rollout in of.rollouts):
        assert one.tokens is not None
        assert len(one.tokens.ids) == one.num_tokens
        assert one.reward in (0.0, 1.0)
