"""Fits of the two laws: exact on exact curves, the least squares of another solver on others, honest where they tell
nothing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from tts.errors import ConfigError
from tts.statistics import fit_coverage, fit_saturation, pass_at_k, space_sizes

K = space_sizes(200)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def repeated(curve: np.ndarray) -> np.ndarray:
    return np.tile(curve, (3, 1))


def unequal(problems: int, seed: int = 0) -> np.ndarray:
    """Coverage of problems of very unequal difficulty, from 200 samples each."""
    draws = rng(seed)
    return pass_at_k(200, draws.binomial(200, draws.beta(0.3, 1.2, problems))[:, None], K)


@pytest.mark.parametrize(("a", "b"), [(-2.0, -0.6), (-0.05, -1.5), (-9.0, -0.2), (-0.7, -0.01)])
def test_the_law_of_coverage_is_found_again(a: float, b: float) -> None:
    law = fit_coverage(K, repeated(np.exp(a * K**b)), rng=rng(), resamples=5)
    assert (law.a.value, law.b.value) == (pytest.approx(a, rel=1e-6), pytest.approx(b, rel=1e-6))
    assert law.fit.r2 == pytest.approx(1)
    assert law.fit.gap < 1e-7
    np.testing.assert_allclose(law.predict([1, 10_000]), np.exp(a * np.array([1, 1e4]) ** b), rtol=1e-5)


@pytest.mark.parametrize(("ceiling", "chance"), [(0.8, 0.1), (0.3, 0.7), (0.95, 0.004), (1.0, 0.5), (0.6, 1.0)])
def test_the_saturating_law_is_found_again(ceiling: float, chance: float) -> None:
    law = fit_saturation(K, repeated(ceiling * (1 - (1 - chance) ** K)), rng=rng(), resamples=5)
    assert law.ceiling.value == pytest.approx(ceiling, abs=1e-5)
    assert law.chance.value == pytest.approx(chance, abs=1e-5)
    assert law.fit.gap < 1e-5


def test_the_point_of_saturation_by_hand() -> None:
    """F_max = .8 and p = .1: the twentieth sample gains .0108, one more .0097."""
    curve = repeated(0.8 * (1 - 0.9**K))
    points = {
        gain: fit_saturation(K, curve, rng=rng(), gain=gain, resamples=5).enough.value
        for gain in (0.1, 0.079, 0.05, 0.01, 0.001)
    }
    assert points[0.01] == 20
    assert points[0.1] == 0  # the first sample gains .08
    assert points[0.079] == 1
    for gain, n in points.items():
        gains = 0.8 * 0.1 * 0.9 ** np.array([n - 1, n])
        assert gains[1] <= gain
        assert n == 0 or gains[0] > gain
    assert list(points.values()) == sorted(points.values())


def test_a_first_sample_that_always_gets_there_is_enough() -> None:
    law = fit_saturation(K, repeated(np.ones(len(K))), rng=rng(), resamples=5)
    assert law.enough.value == 1
    assert law.predict(1) == pytest.approx(1, abs=1e-6)


def test_least_squares_are_those_of_another_solver() -> None:
    curves = unequal(60)
    mean = curves.mean(axis=0)
    law, saturation = fit_coverage(K, curves, rng=rng(), resamples=5), fit_saturation(K, curves, rng=rng(), resamples=5)
    other, _ = optimize.curve_fit(lambda k, a, b: np.exp(a * k**b), K.astype(float), mean, p0=[-1, -0.5])
    assert (law.a.value, law.b.value) == (pytest.approx(other[0], rel=1e-4), pytest.approx(other[1], rel=1e-4))
    other, _ = optimize.curve_fit(lambda k, f, p: f * (1 - (1 - p) ** k), K.astype(float), mean, p0=[0.5, 0.2])
    assert (saturation.ceiling.value, saturation.chance.value) == (
        pytest.approx(other[0], rel=1e-4),
        pytest.approx(other[1], rel=1e-4),
    )


def test_the_quality_of_a_fit_tells_the_laws_apart() -> None:
    curves = unequal(60)
    law, saturation = (
        fit_coverage(K, curves, rng=rng(), resamples=5).fit,
        fit_saturation(K, curves, rng=rng(), resamples=5).fit,
    )
    assert law.r2 > saturation.r2
    assert law.gap < saturation.gap
    np.testing.assert_allclose(law.observed, curves.mean(axis=0))
    assert law.gap == pytest.approx(np.abs(law.observed - law.fitted).max())
    missed, spread = ((law.observed - law.fitted) ** 2).sum(), ((law.observed - law.observed.mean()) ** 2).sum()
    assert law.r2 == pytest.approx(1 - missed / spread)


def test_more_problems_leave_less_doubt_and_one_leaves_no_interval() -> None:
    few, many = (fit_coverage(K, unequal(problems, 1), rng=rng(), resamples=300) for problems in (20, 320))
    for name in ("a", "b"):
        narrow, wide = getattr(many, name), getattr(few, name)
        # four times as narrow, up to what twenty problems make of it
        assert 0.1 < (narrow.high - narrow.low) / (wide.high - wide.low) < 0.5
        assert narrow.value in narrow
    alone = fit_coverage(K, unequal(1), rng=rng())
    assert math.isnan(alone.b.low)
    assert alone.b.num == 1


def test_one_generator_gives_one_fit() -> None:
    first, again = (fit_saturation(K, unequal(30), rng=rng(5), resamples=50) for _ in range(2))
    assert (first.ceiling, first.chance, first.enough) == (again.ceiling, again.chance, again.enough)
    assert first.enough.low == math.floor(first.enough.low)
    assert first.enough.low <= first.enough.value <= first.enough.high


def test_curves_that_tell_nothing_leave_the_law_unknown() -> None:
    unsolved, solved = repeated(np.zeros(len(K))), repeated(np.ones(len(K)))
    for curves in (unsolved, solved):
        law = fit_coverage(K, curves, rng=rng(), resamples=20)
        assert math.isnan(law.a.value)
        assert math.isnan(law.b.high)
        assert math.isnan(law.fit.r2)
    assert math.isnan(fit_saturation(K, unsolved, rng=rng(), resamples=20).enough.value)


def test_sizes_are_whole_spaced_by_ratio_and_reach_the_ends() -> None:
    sizes = space_sizes(10_000)
    assert (sizes[0], sizes[-1]) == (1, 10_000)
    assert len(sizes) <= 40
    assert (np.diff(sizes) > 0).all()
    np.testing.assert_array_equal(space_sizes(5), [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(space_sizes(1), [1])


@pytest.mark.parametrize(
    ("k", "curves", "told"),
    [
        ([1], [[0.5]], "at least two different sizes"),
        ([1, 1], [[0.5, 0.5]], "at least two different sizes"),
        ([0, 1], [[0.5, 0.5]], "of at least 1"),
        ([1, 2], [], "but must be"),
        ([1, 2], [[0.5]], "a value for each k"),
        ([1, 2], [[0.5, math.nan]], "not from 0 to 1"),
        ([1, 2], [[0.5, 1.5]], "not from 0 to 1"),
        ([1, math.nan], [[0.5, 0.5]], "NaN"),
    ],
)
def test_what_they_refuse(k: list[float], curves: list[list[float]], told: str) -> None:
    for fit in (fit_coverage, fit_saturation):
        with pytest.raises(ConfigError, match=told):
            fit(k, curves, rng=rng())


def test_what_else_they_refuse() -> None:
    for gain in (0, 1, -0.1, math.nan):
        with pytest.raises(ConfigError, match="gain is"):
            fit_saturation(K, repeated(np.full(len(K), 0.5)), rng=rng(), gain=gain)
    for arguments in ((0, 40), (10, 1)):
        with pytest.raises(ConfigError, match="but must be"):
            space_sizes(*arguments)
