"""Trying until a verifier accepts: the oracles of algorithm A19, by formula and by drawing."""

from __future__ import annotations

import numpy as np
import pytest

from tts.errors import ConfigError
from tts.statistics import accuracy_given_acceptance, attempt_values, best_tries, clustered_ceiling

TYPES = ((0.87, 0.13), (0.58, 0.42))  # shares right and prior of the paper's toy, with c = 1 and s = 0.75


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_what_is_accepted_is_right_as_often_after_any_number_of_tries() -> None:
    rate, complete, sound = 0.6, 1.0, 0.75
    assert accuracy_given_acceptance(rate, complete, sound) == pytest.approx(0.857, abs=1e-3)
    made = rng()
    right = made.random((40_000, 8)) < rate
    accepted = made.random((40_000, 8)) < np.where(right, complete, 1 - sound)
    first = accepted.argmax(axis=1)
    for tries in (1, 3, 8):
        ended = accepted[:, :tries].any(axis=1)
        found = right[np.arange(len(right)), first][ended].mean()
        assert found == pytest.approx(6 / 7, abs=4 * np.sqrt(6 / 49 / ended.sum()))


def test_a_sound_verifier_is_always_right_and_a_blind_one_never_better_than_chance() -> None:
    assert accuracy_given_acceptance(0.3, 0.4, 1.0) == 1
    assert accuracy_given_acceptance(0.3, 0.4, 0.6) == pytest.approx(0.3)
    assert np.isnan(accuracy_given_acceptance(0.3, 0.0, 1.0))


def test_values_of_attempts_are_those_of_drawn_attempts() -> None:
    rates, prior = TYPES
    made, num, count = rng(), 4, 60_000
    rate = made.choice(rates, count, p=prior)[:, None]
    right = made.random((count, num)) < rate
    accepted = made.random((count, num)) < np.where(right, 0.9, 0.25)
    first = np.cumsum(np.cumsum(accepted, axis=1), axis=1) == 1
    worth = np.where(right, 1.0, -2.0) * first
    found = attempt_values(rates, 0.9, 0.75, num, prior=prior, wrong=-2.0)
    assert (np.abs(found - worth.mean(axis=0)) < 4 * worth.std(axis=0) / np.sqrt(count)).all()


@pytest.mark.parametrize(("wrong", "best"), [(0.0, 200), (-0.7, 3), (-1.0, 2), (-2.0, 1)])
def test_the_more_a_wrong_answer_costs_the_fewer_tries_pay(wrong: float, best: int) -> None:
    values = attempt_values(TYPES[0], 1.0, 0.75, 200, prior=TYPES[1], wrong=wrong)
    sums = [values[:k].sum() for k in range(201)]
    assert best_tries(values) == best
    assert sums[best] == pytest.approx(max(sums))


@pytest.mark.parametrize(("wrong", "best"), [(-0.1, 50), (-50.0, 0)])
def test_of_one_type_all_attempts_pay_or_none(wrong: float, best: int) -> None:
    values = attempt_values([0.5], 0.8, 0.7, 50, wrong=wrong)
    assert (values > 0).all() or (values < 0).all()
    assert best_tries(values) == best


def test_the_ceiling_is_what_ever_more_attempts_come_to() -> None:
    num, good = np.array([10, 10, 10, 10]), np.array([8, 5, 2, 0])
    taken, mistaken = np.array([6, 5, 1, 0]), np.array([1, 0, 2, 3])
    found = clustered_ceiling(num, good, taken, mistaken, rng=rng())
    complete, sound = taken.sum() / good.sum(), 1 - mistaken.sum() / (num - good).sum()
    reached = np.cumsum(attempt_values(good / num, complete, sound, 500))
    assert found.value == pytest.approx(reached[-1])
    assert (reached <= found.value + 1e-12).all()
    assert found.low < found.value < found.high <= 1
    one_type = clustered_ceiling([10], [6], [6], [1], rng=rng())
    assert one_type.value == pytest.approx(accuracy_given_acceptance(0.6, 1, 0.75))
    assert np.isnan(one_type.low)


def test_where_there_is_no_right_or_no_wrong_or_nothing_is_accepted() -> None:
    assert clustered_ceiling([4, 4], [0, 0], [0, 0], [1, 2], rng=rng()).value == 0
    assert clustered_ceiling([4, 4], [4, 4], [1, 0], [0, 0], rng=rng()).value == 1
    assert clustered_ceiling([4, 4], [2, 2], [0, 0], [0, 0], rng=rng()).value == 0


def test_what_is_not_valid_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"soundness.*2,.*0"):
        accuracy_given_acceptance(0.5, 0.5, 2)
    with pytest.raises(ConfigError, match="0 rates"):
        attempt_values([], 0.5, 0.5, 3)
    with pytest.raises(ConfigError, match="do not fit each other"):
        clustered_ceiling([4], [2], [3], [0], rng=rng())
    with pytest.raises(ConfigError, match="one length"):
        clustered_ceiling([4, 5], [2], [1], [0], rng=rng())
