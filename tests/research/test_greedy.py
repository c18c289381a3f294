"""Greedy division: equal to exhaustive search where it must be, and the oracles of algorithms A16 and A17."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("research.allocation", reason="research is no part of the wheel")

from research.allocation.baselines import bins
from research.allocation.greedy import coverage_gains, greedy_counts, offline_counts
from tts.allocator.performance import falling
from tts.errors import ConfigError


def best(gains, total, cost=None):
    """The greatest sum of gains, by trying everything."""
    cost = np.ones(len(gains)) if cost is None else cost
    sums = np.concatenate([np.zeros((len(gains), 1)), np.cumsum(gains, axis=1)], axis=1)
    counts = itertools.product(range(gains.shape[1] + 1), repeat=len(gains))
    return max(sum(sums[i, n] for i, n in enumerate(each)) for each in counts if np.dot(each, cost) <= total)


def value(gains, counts):
    return sum(gains[i, :n].sum() for i, n in enumerate(counts))


@pytest.mark.parametrize("seed", range(5))
def test_it_equals_exhaustive_search_where_gains_fall(seed):
    rng = np.random.default_rng(seed)
    gains = -np.sort(-rng.random((3, 4)), axis=1)
    for total in (0, 1, 3, 6, 11):
        counts = greedy_counts(gains, total)
        assert counts.sum() == total
        assert value(gains, counts) == pytest.approx(best(gains, total))


@pytest.mark.parametrize("seed", range(5))
def test_where_gains_rise_it_is_the_best_for_what_its_blocks_cost(seed):
    gains = np.random.default_rng(seed).random((3, 4))
    slopes, start = falling(gains)
    assert (np.diff(slopes, axis=1) <= 1e-12).all()
    assert slopes.sum() == pytest.approx(gains.sum())
    for total in range(13):
        counts = greedy_counts(gains, total)
        cut = [n < 4 and start[i, n] != n for i, n in enumerate(counts)]
        assert sum(cut) <= 1
        if not any(cut):
            assert value(gains, counts) == pytest.approx(best(gains, total))


def test_equal_problems_get_equal_shares():
    assert greedy_counts(np.tile(coverage_gains([0.3], 16), (7, 1)), 32).tolist() == [5, 5, 5, 5, 4, 4, 4]
    assert greedy_counts(np.full((3, 4), 0.1), 7).tolist() == [3, 2, 2]  # gains that do not fall at all


def test_a_block_of_votes_is_finished_before_another_is_begun():
    assert greedy_counts(np.tile([0.0, 0.2, 0.0], (5, 1)), 5).tolist() == [2, 2, 1, 0, 0]


def test_the_oracles_of_a16():
    gains = coverage_gains([0.9, 0.5, 0.1], 6)
    counts = greedy_counts(gains, 6)
    assert counts.tolist() == [1, 3, 2]
    assert value(gains, counts) / 3 == pytest.approx(0.655, abs=5e-4)
    assert value(gains, [2, 2, 2]) / 3 == pytest.approx(0.643, abs=5e-4)
    assert value(gains, counts) == pytest.approx(best(gains, 6))
    assert greedy_counts(coverage_gains([0.0, 1.0, 0.4], 8), 6).tolist() == [0, 1, 5]
    assert greedy_counts(coverage_gains([0.0, 1.0], 8), 6).tolist() == [0, 1]  # what helps nobody is not spent
    assert greedy_counts(coverage_gains([0.0, 1.0, 0.4], 8), 6, least=1).tolist() == [1, 1, 4]


def test_a_price_stops_where_a17_does():
    gains = 0.8 * coverage_gains([0.1], 40)
    assert greedy_counts(gains, 40, price=0.01).tolist() == [20]
    stops = [int(greedy_counts(gains, 40, price=price)[0]) for price in (0.001, 0.01, 0.02, 0.079, 0.081)]
    assert stops == sorted(stops, reverse=True)
    assert stops[-1] == 0
    assert greedy_counts(coverage_gains([1.0], 40), 40, price=0.01).tolist() == [1]


def test_costs_are_weighed_against_gains():
    gains = coverage_gains([0.5, 0.5, 0.2], 4)
    for total in (1, 2.5, 4, 7, 9):
        counts = greedy_counts(gains, total, cost=[1.0, 3.0, 1.0])
        assert counts @ [1, 3, 1] <= total
    assert greedy_counts(gains, 4, cost=[1.0, 3.0, 1.0]).tolist() == [2, 0, 2]


def test_a_table_for_problems_one_at_a_time_spends_the_mean():
    gains, size = coverage_gains([0.9, 0.4, 0.1], 32), np.array([10, 30, 60])
    table = offline_counts(gains, size, 6.0)
    assert 5.4 <= table @ size / 100 <= 6.0
    many = greedy_counts(np.repeat(gains, size, axis=0), 600)
    for i, bin_ in enumerate(np.split(many, [10, 40])):
        assert abs(bin_ - table[i]).max() <= 1


def test_a_hundred_thousand_problems_are_divided_alike_in_any_order():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 0.8, 5_000)
    gains, order = coverage_gains(rates, 32), rng.permutation(5_000)
    counts = greedy_counts(gains, 40_000)
    assert counts.sum() == 40_000
    assert (np.sort(greedy_counts(gains[order], 40_000)) == np.sort(counts)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gains": np.array([[np.nan, 0.1]])}, "without NaN"),
        ({"gains": np.zeros(3)}, "must be a table"),
        ({"cost": [1.0, 0.0]}, "cost is .* above 0"),
        ({"cost": [1.0]}, "for each of 2 problems"),
        ({"least": 2}, "does not pay 2 units for each of 2 problems"),
    ],
)
def test_what_is_no_table_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        greedy_counts(**{"gains": np.ones((2, 3)), "total": 3, **options})


def test_bins_are_equal_and_do_not_depend_on_the_order():
    difficulty = np.random.default_rng(0).random(53)
    found = bins(difficulty)
    sizes = np.bincount(found)
    assert sizes.max() - sizes.min() <= 1
    assert difficulty[found == 0].min() > difficulty[found == 4].max()
    order = np.random.default_rng(1).permutation(53)
    assert (bins(difficulty[order]) == found[order]).all()
