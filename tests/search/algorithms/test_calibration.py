"""Calibrated thresholds keep their level in all but a share delta of the calibrations, whatever the population is."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.search.algorithms.calibration import calibrate_chain, least_answers, proposers, upper_bounds

LEVEL, DELTA, TIMES = 0.1, 0.1, 2000
Error = Callable[[NDArray[np.float64]], NDArray[np.float64]]
GRID = (np.arange(100_000) + 0.5) / 100_000


def steps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.floor(values * 8) / 8


# the chance of a wrong answer at each confidence, which is uniform on [0, 1]
POPULATIONS: dict[str, Error] = {
    "votes of eight": lambda c: 0.25 * (1 - steps(c)),
    "just above the level": lambda c: np.full_like(c, LEVEL + 1e-9),
    "a step at the level": lambda c: np.where(c > 0.6, LEVEL - 0.02, 0.4),
    "wrong where it is surest": lambda c: np.where(c > 0.9, 0.3, np.where(c > 0.4, 0.02, 0.5)),
    "waves": lambda c: 0.11 + 0.1 * np.sin(20 * c),
    "falling": lambda c: 0.3 * (1 - c),
}


def true_risk(error: Error, threshold: float, *, votes: bool) -> float:
    """Return the share of wrong ones among the answers from a threshold on."""
    answered = (steps(GRID) if votes else GRID) >= threshold
    return float(error(GRID)[answered].mean()) if answered.any() else 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if place < 2 else [pytest.mark.slow]) for place, name in enumerate(POPULATIONS)],
)
def test_the_true_risk_exceeds_the_level_in_at_most_a_share_delta_of_calibrations(name: str) -> None:
    error, votes = POPULATIONS[name], name.startswith("votes")
    rng = np.random.Generator(np.random.Philox(1))
    proposes, exceeded, kept = np.arange(240) % 3 == 0, 0, 0
    for _ in range(TIMES):
        confidence = rng.random(240)
        right = rng.random(240) >= error(confidence)
        try:
            found = calibrate_chain([steps(confidence) if votes else confidence], [right], proposes, LEVEL, DELTA)
        except ConfigError:
            continue
        assert found.bound <= LEVEL
        kept += 1
        exceeded += true_risk(error, found.thresholds[0], votes=votes) > LEVEL
    assert exceeded / TIMES <= DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / TIMES)
    assert kept > 0


@pytest.mark.slow
def test_the_risk_of_a_chain_exceeds_the_level_in_at_most_a_share_delta_of_calibrations() -> None:
    """A cheap link with an error of .4 (1 - c), and a dear one with .1 (1 - c), drawn independently of each other."""
    rng = np.random.Generator(np.random.Philox(2))
    fresh = rng.random((2, 200_000))
    chances = np.array([[0.4], [0.1]])
    exceeded, kept, proposes = 0, 0, np.arange(240) % 3 == 0
    for _ in range(TIMES):
        confidence = rng.random((2, 240))
        right = rng.random((2, 240)) >= chances * (1 - confidence)
        try:
            found = calibrate_chain(confidence, right, proposes, LEVEL, DELTA)
        except ConfigError:
            continue
        kept += 1
        first, second = (fresh[i] >= found.thresholds[i] for i in range(2))
        wrong = np.where(first, 0.4 * (1 - fresh[0]), 0.1 * (1 - fresh[1]))
        exceeded += float(wrong[first | second].mean()) > LEVEL
    assert kept > TIMES / 2
    assert exceeded / TIMES <= DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / TIMES)


@pytest.mark.slow
def test_more_problems_answer_more() -> None:
    rng = np.random.Generator(np.random.Philox(3))
    answered: list[float] = []
    for count in (600, 2000, 20_000):
        shares: list[float] = []
        for _ in range(10):
            confidence = rng.random(count)
            right = rng.random(count) >= 0.3 * (1 - confidence)
            shares.append(0.0)
            with suppress(ConfigError):
                shares[-1] = (
                    1 - calibrate_chain([confidence], [right], np.arange(count) % 3 == 0, LEVEL, DELTA).thresholds[0]
                )
        answered.append(float(np.mean(shares)))
    assert answered == sorted(answered)
    # from c on, answers are wrong .15 (1 - c) of the time: c = 1/3 at best
    assert answered[-1] == pytest.approx(2 / 3, abs=0.08)


def test_a_link_without_an_answer_passes_the_problem_on() -> None:
    confidence = np.stack([np.full(300, math.nan), np.ones(300)])
    right = np.stack([np.zeros(300), np.ones(300)])
    found = calibrate_chain(confidence, right, np.arange(300) % 3 == 0, LEVEL, DELTA)
    assert found.thresholds == (math.inf, 1.0)
    assert (found.tested, found.answered, found.wrong) == (200, 200, 0)


def test_shares_are_tested_by_all_problems_from_the_greatest_down() -> None:
    confidence = np.repeat([1.0, 0.75, 0.5, 0.25], 100)
    right = np.arange(400) % 100 >= np.repeat([0, 4, 60, 80], 100)
    proposes = np.arange(400) % 3 == 0
    found = calibrate_chain([confidence], [right], proposes, LEVEL, DELTA)
    assert (found.thresholds, found.tested, found.answered, found.wrong) == ((0.75,), 400, 200, 4)
    assert found.delta == pytest.approx(DELTA * (8 + 4) / 15)  # the parts of the first two
    assert found.bound == pytest.approx(float(upper_bounds(4, 200, found.delta)))
    surest_wrong = np.arange(400) % 100 >= np.repeat([30, 0, 0, 0], 100)  # 30 of 400: the least threshold passes alone
    found = calibrate_chain([confidence], [surest_wrong], proposes, 0.12, DELTA)
    assert (found.thresholds, found.answered) == ((0.25,), 400)
    assert found.delta == pytest.approx(DELTA / 15)  # all others failed, and lost their parts


def test_too_few_problems_and_levels_out_of_reach_say_what_would_do() -> None:
    sure = np.linspace(0.5, 0.99, 33)  # no shares of few samples: a third of the problems proposes
    few = np.arange(30) % 3 == 0
    with pytest.raises(ConfigError, match=r"risk.*0\.1,.*30.*calibrate"):
        calibrate_chain([sure[:30]], [np.ones(30)], few, LEVEL, DELTA)
    enough = np.arange(33) % 3 == 0
    assert calibrate_chain([sure], [np.ones(33)], enough, LEVEL, DELTA).bound <= LEVEL
    with pytest.raises(ConfigError, match=r"risk.*0\.1,.*21.*calibrate on 22"):
        calibrate_chain([np.ones(21)], [np.ones(21)], few[:21], LEVEL, DELTA)
    assert calibrate_chain([np.ones(22)], [np.ones(22)], few[:22], LEVEL, DELTA).bound <= LEVEL
    many, rng = np.arange(300) % 3 == 0, np.random.Generator(np.random.Philox(4))
    with pytest.raises(ConfigError, match="keeps it: "):
        calibrate_chain([np.ones(300)], [rng.random(300) < 0.5], many, LEVEL, DELTA)
    right = np.arange(300) % 13 > 0  # one in thirteen is wrong
    with pytest.raises(ConfigError, match=r"about (\d+)") as refusal:
        calibrate_chain([np.ones(300)], [right], many, LEVEL, DELTA)
    need = int(str(refusal.value).partition("about ")[2].split()[0])
    right = np.arange(need) % 13 > 0
    assert calibrate_chain([np.ones(need)], [right], np.arange(need) % 3 == 0, LEVEL, DELTA).bound <= LEVEL


@pytest.mark.parametrize(
    ("name", "numbers"), [("risk", (0, 0.1)), ("risk", (1, 0.1)), ("delta", (0.1, 0)), ("delta", (0.1, 1.5))]
)
def test_numbers_out_of_range_are_refused(name: str, numbers: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*but must be"):
        calibrate_chain([np.ones(60)], [np.ones(60)], np.arange(60) % 3 == 0, *numbers)


def test_the_exact_bound() -> None:
    assert upper_bounds([0, 3], [10, 3], 0.05).tolist() == pytest.approx([1 - 0.05**0.1, 1.0])
    assert least_answers(0.05, 0.05) == 59
    assert float(upper_bounds(0, 59, 0.05)) <= 0.05 < float(upper_bounds(0, 58, 0.05))


def test_a_third_proposes_whatever_the_order_is() -> None:
    names = [f"problem {i}" for i in range(90)]
    chosen = dict(zip(names, proposers(names).tolist(), strict=True))
    assert sum(chosen.values()) == 30
    backwards: Any = dict(zip(names[::-1], proposers(names[::-1]).tolist(), strict=True))
    assert backwards == chosen
