"""The law that tokens are drawn from, at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tts.backends.base import Sampling
from tts.backends.sampling import (
    draw,
    filtered_distribution,
    inverse_cdf,
    log_softmax,
    sampling_logprob,
    spread,
    top_sampling_logprob,
)
from tts.errors import EngineError
from tts.randomness import uniform

ONE = Sampling(temperature=1.0)


def logits(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities)).astype(np.float64)


def test_without_filters_the_law_is_softmax_of_logits_over_temperature() -> None:
    raw = np.array([0.5, -1.0, 3.0, 2.0], np.float32)
    for temperature in (0.1, 0.8, 1.0, 100.0):
        want = np.exp(raw.astype(np.float64) / temperature)
        assert filtered_distribution(raw, Sampling(temperature=temperature)) == pytest.approx(
            want / want.sum(), abs=1e-15
        )


def test_temperature_zero_takes_the_lowest_id_among_equals() -> None:
    raw = np.array([1.0, 4.0, 4.0, 0.0], np.float32)
    assert filtered_distribution(raw, Sampling(temperature=0)).tolist() == [0, 1, 0, 0]
    assert all(draw(raw, Sampling(temperature=0), u).token == 1 for u in (0.0, 0.5, 1 - 2**-53))


@pytest.mark.filterwarnings("error")
def test_tiny_temperatures_neither_overflow_nor_warn() -> None:
    raw = np.array([-30.0, 80.0, 79.99], np.float32)
    assert filtered_distribution(raw, Sampling(temperature=1e-300)).tolist() == [0, 1, 0]


def test_top_k_keeps_k_and_breaks_ties_by_id() -> None:
    raw = logits(0.1, 0.3, 0.3, 0.3)
    assert np.flatnonzero(filtered_distribution(raw, Sampling(temperature=1, top_k=2))).tolist() == [1, 2]
    assert np.flatnonzero(filtered_distribution(raw, Sampling(temperature=1, top_k=1))).tolist() == [1]
    for top_k in (0, 4, 9):
        assert np.count_nonzero(filtered_distribution(raw, Sampling(temperature=1, top_k=top_k))) == 4


def test_top_p_keeps_the_fewest_that_reach_the_mass() -> None:
    raw = np.log(np.array([0.125, 0.5, 0.125, 0.25]))

    def kept(top_p: float) -> list[int]:
        return np.flatnonzero(filtered_distribution(raw, Sampling(temperature=1, top_p=top_p))).tolist()

    assert kept(1e-9) == [1]
    assert kept(0.5) == [1]  # exactly reached
    assert kept(0.5000001) == [1, 3]
    assert kept(0.75) == [1, 3]
    assert kept(0.8) == [0, 1, 3]  # the lower id among equals
    assert kept(0.999) == kept(1.0) == [0, 1, 2, 3]


def test_min_p_keeps_what_is_exactly_at_the_edge() -> None:
    raw = np.log(np.array([0.5, 0.25, 0.125, 0.125]))
    assert np.count_nonzero(filtered_distribution(raw, Sampling(temperature=1, min_p=0.25))) == 4
    assert np.count_nonzero(filtered_distribution(raw, Sampling(temperature=1, min_p=0.26))) == 2
    assert np.count_nonzero(filtered_distribution(raw, Sampling(temperature=1, min_p=0.999))) == 1


def test_a_filter_sees_the_law_that_the_one_before_left() -> None:
    raw = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    # of top-k's two, the first has 4/7 of the mass: enough for 0.57, not for 0.58
    assert np.count_nonzero(filtered_distribution(raw, Sampling(temperature=1, top_k=2, top_p=0.57))) == 1
    assert np.count_nonzero(filtered_distribution(raw, Sampling(temperature=1, top_k=2, top_p=0.58))) == 2
    law = filtered_distribution(raw, Sampling(temperature=1, top_k=2))
    assert law == pytest.approx([4 / 7, 3 / 7, 0, 0])


def test_the_cdf_runs_in_id_order_and_skips_what_has_no_mass() -> None:
    law = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    drawn = [inverse_cdf(law, u) for u in (0.0, 0.2499999, 0.25, 0.7499999, 0.75, 1 - 2**-53)]
    assert drawn == [1, 1, 3, 3, 4, 4]


def test_the_largest_uniform_number_stays_inside_whatever_the_rounding() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 1000):
        for _ in range(200):
            law = rng.random(size) ** 20 + (rng.random(size) > 0.5)
            law[-1] = 0.0 if size > 1 else 1.0
            law[0] += law.sum() == 0
            assert law[inverse_cdf(law, 1 - 2**-53)] > 0


def test_the_log_probability_is_of_the_untempered_unfiltered_law() -> None:
    raw = np.array([2.0, 1.0, 0.0, -1.0], np.float32)
    drawn = draw(raw, Sampling(temperature=0.3, top_k=2, top_p=0.9, min_p=0.1), 0.4)
    assert drawn.logprob == log_softmax(raw)[drawn.token]
    assert np.exp(log_softmax(raw)).sum() == pytest.approx(1, abs=1e-15)
    assert log_softmax(np.array([0.0, -np.inf]))[1] == -math.inf


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
def test_logits_that_are_no_law_are_an_engine_error(bad: list[float]) -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(EngineError, match="largest logit"):
            draw(np.array(bad, np.float32), Sampling(temperature=temperature), 0.5)


@pytest.mark.parametrize(
    "sampling",
    [
        ONE,
        Sampling(temperature=0.7),
        Sampling(temperature=1.3, top_k=4),
        Sampling(temperature=1, top_p=0.8),
        Sampling(temperature=1, min_p=0.3),
    ],
)
def test_frequencies_follow_the_law(sampling: Sampling) -> None:
    raw = np.array([0.0, 1.0, -1.0, 1.5, 0.2, -3.0], np.float32)
    law = filtered_distribution(raw, sampling)
    counts = np.bincount([draw(raw, sampling, uniform(77, position)).token for position in range(5000)], minlength=6)
    kept = law > 0
    assert counts[~kept].sum() == 0
    # fixed draws, so the test cannot flicker; 1e-3 says they are no freak
    assert stats.chisquare(counts[kept], law[kept] * 5000).pvalue > 1e-3


def test_how_spread_a_law_is() -> None:
    assert spread(log_softmax(np.zeros(50))) == pytest.approx((0, math.log(50), math.log(50)), abs=1e-12)
    law = np.log([0.7, 0.1, 0.1, 0.1])
    assert spread(law).certainty == pytest.approx(0.4298, abs=1e-4)  # algorithm B4's own figure
    assert spread(law).top == pytest.approx(-law.mean())  # fewer than twenty tokens: all of them
    many = np.log(np.concatenate((np.full(20, 0.04), np.full(80, 0.0025))))
    assert spread(many).top == pytest.approx(-math.log(0.04))
    assert 700 < spread(np.array([0.0, -np.inf])).certainty * 2 < 745
    raw = np.array([2.0, 1.0, 0.0, -1.0], np.float32)
    assert draw(raw, Sampling(temperature=0.3, top_k=2), 0.4).spread == spread(log_softmax(raw))


@pytest.mark.parametrize(
    "sampling",
    [
        ONE,
        Sampling(temperature=0.25),
        Sampling(temperature=2.0),
        Sampling(top_k=2),
        Sampling(top_p=0.6),
        Sampling(min_p=0.5),
    ],
    ids=str,
)
def test_the_log_probability_under_the_law_drawn_from(sampling: Sampling) -> None:
    law = logits(0.4, 0.3, 0.2, 0.1)
    for token, p in enumerate(filtered_distribution(law, sampling)):
        if p > 0:
            assert sampling_logprob(law, sampling, token) == pytest.approx(math.log(p))
    drawn = draw(law, sampling, 0.1)
    assert drawn.sampling_logprob == pytest.approx(sampling_logprob(law, sampling, drawn.token))
    assert sampling_logprob(law, Sampling(temperature=0), 0) == 0.0
    assert math.isfinite(sampling_logprob(law, sampling, 3)), "a token that rounding kept at the edge of a filter"


def test_twenty_tokens_bound_the_law_drawn_from_below_temperature_one() -> None:
    law = log_softmax(np.random.default_rng(1).normal(0, 3, 1000))
    top = np.sort(law)[-20:].tolist()
    for temperature in (0.25, 0.5, 0.9):
        sampling = Sampling(temperature=temperature)
        exact = sampling_logprob(law, sampling, int(law.argmax()))
        bound = top_sampling_logprob(top, float(law.max()), sampling)
        shown, rest = np.exp(top), 1 - float(np.exp(top).sum())
        most = rest * float(shown.min()) ** (1 / temperature - 1) / float((shown ** (1 / temperature)).sum())
        assert exact - math.log1p(most) <= bound <= exact + 1e-9
    assert top_sampling_logprob(top, -1.5, ONE) == -1.5
    assert top_sampling_logprob(top, -1.5, Sampling(temperature=0)) == 0.0
    for sampling in (
        Sampling(temperature=2.0),
        Sampling(temperature=0.5, top_p=0.9),
        Sampling(temperature=0.5, top_k=5),
    ):
        assert math.isnan(top_sampling_logprob(top, -1.5, sampling)), "what is not shown has no bound"
