"""Posteriors over kinds of problems: against Bayes's rule by enumeration, closed forms, and data drawn from the model
itself.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tts.allocator.difficulty import LURES, RATES, Population, shift
from tts.errors import ConfigError

KINDS = Population(np.array([0.6, 0.2, 0.0]), np.array([0.1, 0.5, 0.3]), np.array([0.5, 0.3, 0.2]))


def draw(population, kinds, samples, rng):
    """Votes (leading, second, samples) of problems of given kinds."""
    votes = []
    for z in kinds:
        drawn = rng.random(samples)
        right = int((drawn < population.rate[z]).sum())
        lure = int((drawn < population.rate[z] + population.lure[z]).sum()) - right
        counts = sorted([right, lure] + [1] * (samples - right - lure), reverse=True)[:2]
        votes.append((counts[0], counts[1] if counts[1] > 1 else 0, samples))
    return np.array(votes).T


def enumerated(population, samples):
    """The chance of each state of votes under each kind, from every row of samples (right, lure, something new)."""
    found = {}
    for row in itertools.product("RLN", repeat=samples):
        counts = Counter(row)
        chance = population.rate ** counts["R"] * population.lure ** counts["L"] * population.scattered ** counts["N"]
        classes = sorted([counts["R"], counts["L"]] + [1] * counts["N"], reverse=True)
        state = (classes[0], classes[1] if classes[1] > 1 else 0)
        found[state] = found.get(state, 0.0) + chance
    return found


@pytest.mark.parametrize("samples", [1, 2, 3, 5])
def test_votes_have_the_posterior_that_enumeration_gives(samples):
    for (leader, second), chance in enumerated(KINDS, samples).items():
        posterior = KINDS.posterior(KINDS.vote_likelihood([leader], [second], [samples]))[0]
        expected = chance * KINDS.weight / (chance @ KINDS.weight)
        assert posterior == pytest.approx(expected), (leader, second)


def test_checked_samples_have_the_posterior_of_a_beta_law():
    flat = Population.beta(0.5, 2.0, hopeless=0.0, trivial=0.0)
    posterior = flat.posterior(flat.verdict_likelihood([3, 0, 0], [5, 0, 40]))
    assert flat.mean_rate(posterior) == pytest.approx([4 / 10, 1 / 2, 1 / 42], abs=0.01)
    certain = Population.beta(0.5, 2.0, hopeless=0.3, trivial=0.3)
    assert certain.posterior(certain.verdict_likelihood([1], [0]))[0][certain.rate == 0].sum() == 0
    assert certain.posterior(certain.verdict_likelihood([0], [1]))[0][certain.rate == 1].sum() == 0


def test_what_no_kind_can_have_made_leaves_the_prior():
    sure = Population(np.array([1.0]), np.array([0.0]), np.array([1.0]))
    assert sure.posterior(sure.verdict_likelihood([0], [1])).tolist() == [[1.0]]


def test_thousands_of_votes_do_not_underflow():
    posterior = Population.beta().posterior(Population.beta().vote_likelihood([4000], [1000], [6000]))
    assert np.isfinite(posterior).all()
    assert posterior.sum() == pytest.approx(1)


def test_a_population_is_learnt_from_many_problems_of_few_samples():
    rng = np.random.default_rng(0)
    rates = rng.choice([0.1, 0.9], 3000)
    right = rng.binomial(4, rates)
    prior = Population.beta(0.5, 2.0)
    fitted = prior.fit(prior.verdict_likelihood(right, 4 - right))
    assert fitted.weight @ fitted.rate == pytest.approx(rates.mean(), abs=0.02)
    assert fitted.weight @ fitted.rate**2 == pytest.approx((rates**2).mean(), abs=0.02)
    assert fitted.problems == 3000
    assert (
        fitted.weight[(fitted.rate > 0.3) & (fitted.rate < 0.7)].sum()
        < 0.1
        < prior.weight[abs(prior.rate - 0.5) < 0.2].sum()
    )
    alike = prior.fit(prior.verdict_likelihood([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]), np.bincount(right))
    assert alike.weight == pytest.approx(fitted.weight, abs=1e-4)


def test_posteriors_are_calibrated_where_the_population_is_right():
    rng = np.random.default_rng(1)
    population = Population.beta(0.4, 1.0)
    kinds = rng.choice(len(population.weight), 1500, p=population.weight)
    votes = draw(population, kinds, 4, rng)
    expected = population.mean_rate(population.posterior(population.vote_likelihood(*votes)))
    for level in np.unique(expected):
        group = expected == level
        error = population.rate[kinds][group].std() / np.sqrt(group.sum())
        assert abs(population.rate[kinds][group].mean() - level) <= 4 * error + 1e-9


def test_a_check_tells_problems_of_another_kind_and_not_those_of_its_own():
    rng = np.random.default_rng(2)
    population, other = Population.beta(0.5, 1.0), Population.beta(0.15, 3.0)
    own = rng.choice(len(population.weight), 500, p=population.weight)
    foreign = rng.choice(len(other.weight), 500, p=other.weight)
    values = [shift(population, *draw(population, rng.permutation(own)[:300], 4, rng)) for _ in range(20)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.25)
    assert shift(population, *draw(other, foreign, 4, rng)) < 1e-4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Population.beta(1.5), "mean is 1.5"),
        (lambda: Population.beta(0.5, float("nan")), "strength nan"),
        (lambda: Population.beta(hopeless=0.9, trivial=0.2), "hopeless is 0.9"),
        (lambda: Population.from_rates([1.0]), f"must be {len(RATES)} numbers"),
        (lambda: Population.from_rates(np.ones(len(RATES)), np.zeros(len(LURES))), "not all 0"),
        (lambda: Population(np.array([0.9]), np.array([0.2]), np.array([1.0])), "sum to at most 1"),
        (lambda: Population(np.array([0.9]), np.array([0.1]), np.array([0.5])), "sum to 0.5"),
        (lambda: Population(np.array([0.9]), np.array([0.1, 0.1]), np.array([1.0])), "shapes"),
        (lambda: KINDS.verdict_likelihood([float("nan")], [1]), "right is .* whole numbers"),
        (lambda: KINDS.vote_likelihood([1], [2], [3]), "second must be at most leader"),
        (lambda: KINDS.vote_likelihood([3], [2], [4]), "both together at most samples"),
        (lambda: shift(KINDS, [1], [0], [1]), "below 2"),
    ],
)
def test_what_is_no_population_and_no_count_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_check_takes_rare_votes_together_with_their_neighbours():
    """Eight samples of sixty problems: that all of a problem's agree is expected of fewer than the five that the
    statistic needs.
    """
    rng = np.random.default_rng(3)
    population, other = Population.beta(0.5, 40.0, hopeless=0.0, trivial=0.0), Population.beta(0.9, 8.0)
    kinds, foreign = (rng.choice(len(each.weight), 60, p=each.weight) for each in (population, other))
    assert shift(population, *draw(population, kinds, 8, rng)) > 0.01 > shift(population, *draw(other, foreign, 8, rng))


def test_votes_never_tell_a_kind_from_its_twin():
    """However many problems are seen, the two keep the proportion that the prior gave them."""
    prior = Population.beta().with_twins()
    half = len(prior.rate) // 2
    assert prior.rate[:half].tolist() == prior.lure[half:].tolist()
    assert prior.weight.sum() == pytest.approx(1)
    rng = np.random.default_rng(0)
    right = rng.binomial(8, 0.15, 300)
    lure = rng.binomial(8 - right, 0.6)
    leader, second = np.maximum(right, lure), np.minimum(right, lure)
    seen = prior.vote_likelihood(np.maximum(leader, 1), np.where(second > 1, second, 0), np.full(300, 8))
    learnt = prior.fit(seen)
    assert np.abs(learnt.weight - prior.weight).sum() > 0.5, "it has learnt how they agree"
    known = (prior.weight[:half] > 1e-12) & (prior.weight[half:] > 1e-12)
    before, after = (each.weight[:half][known] / each.weight[half:][known] for each in (prior, learnt))
    assert after == pytest.approx(before, rel=1e-6)


def test_an_answer_of_half_the_votes_beside_one_of_a_seventh_is_right_as_often_as_not():
    prior = Population.beta().with_twins()
    posterior = prior.posterior(prior.vote_likelihood([128], [37], [256]))[0]
    leads = prior.rate > prior.lure
    assert 0.35 < posterior[leads].sum() < 0.55
    sure = prior.posterior(prior.vote_likelihood([250], [0], [256]))[0]
    assert sure[leads].sum() > 0.75
