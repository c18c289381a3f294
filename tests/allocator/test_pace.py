"""Waves towards a deadline: wide where width is free, narrow where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import Population
from tts.allocator.pace import Pace
from tts.allocator.values import Checked, ProblemStates
from tts.errors import ConfigError

ALLOCATOR = Allocator(values=Checked(Population.beta()), pilots=1)


def run(seconds, took):
    """Samples and widths of waves under a deadline alone, of a machine on which a wave of so many samples takes so
    long.
    """
    pace, left, samples, widths = Pace(), seconds, np.zeros(64, np.int64), []
    while left > 0:
        pace.end(left)
        grant = ALLOCATOR.next(
            ProblemStates.of(samples, 1.0, cost=min(1.0, 1 / pace.payable(left)) or 1e-9, waves=pace.waves(left))
        )
        if grant.reason:
            break
        widths.append(int(grant.samples.sum()))
        pace.begin(left, widths[-1])
        left -= took(widths[-1])
        samples = samples + (grant.samples if left >= 0 else 0)
    return samples, widths


def test_where_width_is_free_waves_double_and_where_it_is_not_they_stay_narrow():
    free, wide = run(12.0, lambda width: 1.0)
    busy, narrow = run(600.0, float)
    assert wide[:4] == [64, 128, 256, 512]
    assert free.sum() > 2000
    assert max(narrow[4:]) <= 16
    assert 560 <= busy.sum() <= 600


def test_a_wave_is_as_wide_as_the_time_asks_and_costs_no_more_than_is_left():
    at = ProblemStates.of([4] * 10, 100.0)
    calm, pressed, last = (ALLOCATOR.next(ProblemStates.of([4] * 10, 100.0, waves=waves)) for waves in (np.inf, 4, 1))
    assert calm.samples.sum() == ALLOCATOR.next(at).samples.sum() == 1
    assert not calm.hurried
    assert pressed.hurried
    assert 20 <= pressed.samples.sum() <= 30
    assert 90 <= last.samples.sum() <= 100


def test_before_anything_was_measured_there_is_no_hurry():
    pace = Pace()
    pace.end(1.0)
    assert pace.waves(1.0) == np.inf
    with pytest.raises(ConfigError, match=r"waves.*0\.5,.*least 1"):
        ALLOCATOR.next(ProblemStates.of([1], 1.0, waves=0.5))


def test_a_wave_that_took_no_time_says_nothing_of_the_speed():
    pace = Pace()
    pace.begin(10.0, 4)
    pace.end(10.0)
    assert (pace.speed, pace.width, pace.waves(10.0)) == (0.0, 1, float("inf"))
