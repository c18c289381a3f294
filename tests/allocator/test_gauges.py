"""Estimators of difficulty: fitted to problems that are known only in part, calibrated on others, silent where nothing
is known.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.allocator.test_performance import COVERAGE, model
from tts.allocator.difficulty import RATES, Population
from tts.allocator.gauges import Gauge, Guess, PromptProbe, evidence_of
from tts.allocator.performance import PerformanceModel
from tts.allocator.values import _TILTS, ProblemStates, Voted, _tilt
from tts.allocator.votes import Votes
from tts.errors import ConfigError

POPULATION = Population.beta(0.4, 1.5)
LAW = Gauge(0.2, 0.5, 0.1, 0.2, -9.0, 9.0)


def problems(count, samples, rng):
    """True rates, mean readings of so many samples by `LAW`, and posteriors from four checked samples."""
    rates = POPULATION.rate[rng.choice(len(POPULATION.weight), count, p=POPULATION.weight)]
    noise = rng.normal(0, LAW.deviation, count) + rng.normal(0, LAW.spread / math.sqrt(samples), count)
    right = rng.binomial(4, rates)
    posterior = (
        POPULATION.posterior(POPULATION.verdict_likelihood(right, 4 - right)).reshape(count, len(RATES), -1).sum(axis=2)
    )
    return rates, LAW.intercept + LAW.slope * np.arcsin(np.sqrt(rates)) * 2 / np.pi + noise, posterior


def test_a_gauge_is_learnt_from_problems_whose_difficulty_is_only_estimated():
    _, reading, posterior = problems(2000, 4, np.random.default_rng(0))
    reading[::50] = math.nan
    fitted = Gauge.fit(reading, posterior, spread=LAW.spread, samples=4)
    assert fitted.intercept == pytest.approx(LAW.intercept, abs=0.02)
    assert fitted.slope == pytest.approx(LAW.slope, abs=0.04)
    assert fitted.deviation == pytest.approx(LAW.deviation, abs=0.02)


def test_what_a_gauge_says_of_other_problems_is_calibrated():
    rng = np.random.default_rng(1)
    _, reading, posterior = problems(1500, 2, rng)
    fitted = Gauge.fit(reading, posterior, spread=LAW.spread, samples=2)
    rates, reading, _ = problems(3000, 8, rng)
    expected = POPULATION.mean_rate(POPULATION.posterior(fitted.evidence(POPULATION, reading, np.full(3000, 8.0))))
    for part in np.array_split(np.argsort(expected), 6):
        assert expected[part].mean() == pytest.approx(rates[part].mean(), abs=0.05)
    assert expected.std() > 0.15


def test_what_is_not_known_is_no_evidence_and_what_is_unheard_of_proves_nothing_more():
    gauge = dataclasses.replace(LAW, low=0.1, high=0.8)
    found = gauge.evidence(POPULATION, np.array([math.nan, 0.8, 50.0]), np.ones(3))
    assert (found[0] == 0).all()
    assert (found[1] == found[2]).all()
    assert evidence_of({}, POPULATION, {}, np.ones(3)) is None
    both = evidence_of({"score": gauge, "guess": Guess(0.3)}, POPULATION, {}, np.ones(2))
    assert both == pytest.approx(Guess(0.3).evidence(POPULATION, np.zeros(2), np.ones(2)))  # nothing was read


def test_a_guess_is_worth_so_many_samples():
    flat = Population.beta(0.5, 2.0, hopeless=0.0, trivial=0.0)
    for mean, strength in ((0.25, 4.0), (0.9, 10.0)):
        known = flat.posterior(Guess(mean, strength).evidence(flat, np.zeros(1), np.zeros(1)))
        assert flat.mean_rate(known)[0] == pytest.approx((mean * strength + 1) / (strength + 2), abs=0.01)


def test_a_probe_reads_difficulty_from_states_that_it_was_not_fitted_to():
    rng = np.random.default_rng(2)
    rates, reading, posterior = problems(600, 64, rng)
    hidden = rng.normal(size=(600, 40))
    hidden[:, 3] += 16 * reading
    probe, left_out = PromptProbe.fit(hidden[:300], posterior[:300])
    told = probe.reading(hidden[300:])
    assert np.corrcoef(told, rates[300:])[0, 1] > 0.6
    assert np.corrcoef(left_out, rates[:300])[0, 1] > 0.6
    assert np.corrcoef(probe.reading(hidden[:300]), left_out)[0, 1] > 0.8
    noise = rng.normal(size=(300, 400))
    _, nothing = PromptProbe.fit(noise, posterior[:300])
    assert nothing.std() < 0.1  # where nothing is to be seen it says the same of all
    assert np.isnan(probe.reading(np.zeros((2, 7)))).all()


def test_evidence_tilts_the_population_that_votes_are_read_under():
    voted = Voted(POPULATION, 16)
    votes = np.array([2, 1, 5]), np.array([0, 0, 3]), np.array([2, 1, 9])
    for strength in (_TILTS[2], 1.0):
        tilted = Votes.of(_tilt(POPULATION, strength), 16).look(*votes)
        at = ProblemStates.of(
            votes[2],
            1.0,
            leader=votes[0],
            second=votes[1],
            evidence=np.tile(strength * (POPULATION.rate - 0.5), (3, 1)),
        )
        tolerance = 1e-6 if strength in _TILTS else 0.02
        assert voted.chance(at) == pytest.approx(tilted[0], abs=tolerance)
        assert voted.worth(at).rate == pytest.approx(tilted[1], abs=tolerance)


def test_a_model_keeps_its_gauges_and_its_probe(tmp_path):
    plain = model(**{"best_of_n | majority": COVERAGE})
    made = dataclasses.replace(
        plain, gauges={"logprob": LAW, "probe": LAW}, probe=PromptProbe(np.array([0.5, -2.0]), 0.25)
    )
    made.save(tmp_path / "model.json")
    read = PerformanceModel.load(tmp_path / "model.json")
    assert read.gauges == made.gauges
    assert read.probe is not None
    assert read.probe.reading(np.array([[1.0, 1.0]])).tolist() == [-1.25]
    assert PerformanceModel.from_json(plain.to_json()).probe is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Guess(1.0), r"mean is 1\.0"),
        (lambda: Guess(0.5, math.inf), "strength inf"),
        (lambda: Gauge.fit([1.0, math.nan, 2.0], np.ones((3, len(RATES)))), "2 readings"),
        (lambda: Gauge.fit([1.0, 1.0, 1.0], np.ones((3, len(RATES)))), "1 of them different"),
        (lambda: dataclasses.replace(LAW, deviation=0.0), "deviation above 0"),
        (lambda: PromptProbe.fit(np.zeros((3, 4)), np.ones((3, len(RATES)))), "at least 10 problems"),
        (lambda: PromptProbe.fit(np.full((20, 4), math.nan), np.ones((20, len(RATES)))), "must be numbers"),
    ],
)
def test_what_makes_no_estimator_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
