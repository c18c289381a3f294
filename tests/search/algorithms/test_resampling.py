"""Resampling is unbiased, no scheme scatters more than multinomial where that is proved, and no edge of floating point
breaks it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.search.algorithms.resampling import SCHEMES, effective_sample_size, softmax
from tts.search.plan import parse

P = np.array([0.05, 0.0, 0.4, 0.3, 0.25])
REPEATS = 4000


def counts_of(scheme: str, p: np.ndarray, count: int, repeats: int = REPEATS) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(7))
    return np.array([np.bincount(SCHEMES[scheme](p, count, rng), minlength=len(p)) for _ in range(repeats)])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_unbiased(scheme: str) -> None:
    for count in (1, 5, 8):
        counts = counts_of(scheme, P, count)
        assert (counts.sum(axis=1) == count).all()
        assert (counts[:, 1] == 0).all(), "a weight of zero was drawn"
        # the variance of a count is at most that of the binomial law
        tolerance = 4 * np.sqrt(count * P * (1 - P) / REPEATS) + 1e-12
        assert (np.abs(counts.mean(axis=0) - count * P) <= tolerance).all()


@pytest.mark.parametrize("scheme", ["stratified", "residual", "systematic"])
def test_none_scatters_more_than_multinomial(scheme: str) -> None:
    variance, most = (counts_of(name, P, 8).var(axis=0) for name in (scheme, "multinomial"))
    # a sample variance over 4000 has a relative standard error of about .03 (kurtosis of a binomial included)
    assert (variance <= most * 1.12 + 1e-12).all()
    assert variance.sum() < 0.8 * most.sum()


def test_systematic_copies_are_the_floor_or_the_ceiling() -> None:
    counts = counts_of("systematic", P, 7, 500)
    assert ((counts == np.floor(7 * P)) | (counts == np.ceil(7 * P))).all()


def test_equal_weights_leave_systematic_and_residual_the_identity() -> None:
    for n in range(1, 40):
        for scheme in ("systematic", "residual"):
            for seed in range(3):
                rng = np.random.Generator(np.random.Philox(seed))
                assert SCHEMES[scheme](np.full(n, 1 / n), n, rng).tolist() == list(range(n))


def test_residual_gives_whole_shares_without_a_draw() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    assert SCHEMES["residual"](np.array([0.5, 0.25, 0.25]), 4, rng).tolist() == [0, 0, 1, 2]


@given(
    log_weights=st.lists(st.floats(-800, 800), min_size=1, max_size=12),
    count=st.integers(1, 12),
    scheme=st.sampled_from(sorted(SCHEMES)),
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([0.001, 0.5, 1.0, 50.0]),
)
@settings(deadline=None)
def test_any_weights_give_so_many_ancestors_in_order(
    log_weights: list[float], count: int, scheme: str, seed: int, temperature: float
) -> None:
    p = softmax(np.array(log_weights), temperature)
    assert p.sum() == pytest.approx(1)
    assert 1 - 1e-9 <= effective_sample_size(p) <= len(p) + 1e-9
    ancestors = SCHEMES[scheme](p, count, np.random.Generator(np.random.Philox(seed)))
    assert len(ancestors) == count
    assert (np.diff(ancestors) >= 0).all()
    assert (p[ancestors] > 0).all()


class Last:
    """A generator whose every number is the last below 1."""

    def random(self, count: int | None = None) -> np.ndarray | float:
        last = math.nextafter(1.0, 0.0)
        return last if count is None else np.full(count, last)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_last_number_below_one_falls_on_the_last_particle_that_weighs_anything(scheme: str) -> None:
    p = np.array([0.1] * 10 + [0.0])  # whose cumulative sum is below 1
    assert p.cumsum()[-1] < 1
    assert SCHEMES[scheme](p, 3, Last())[-1] == 9  # type: ignore[arg-type]


def test_a_scheme_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'sistematic'") as refused:
        parse("particle_filter(resampling='sistematic')")
    assert "systematic" in str(refused.value)
