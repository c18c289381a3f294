"""Thresholds of cascades: their costs, the choice among all of them, and the router in hindsight, on problems written
by hand.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

from research.allocation.cascades import Asked, Chosen, choose, hindsight_accuracy, replay_cascade

CHEAP = Asked(np.array([True, False, True, False]), np.array([1.0, 0.5, 0.5, 1.0]), np.full(4, 1.0))
DEAR = Asked(np.array([True, True, True, False]), np.ones(4), np.full(4, 10.0))


def test_a_cascade_pays_every_model_that_it_asks() -> None:
    right, cost = replay_cascade([CHEAP, DEAR], [1.0])
    assert right.tolist() == [True, True, True, False]
    assert cost.tolist() == [1, 11, 11, 1]
    right, cost = replay_cascade([CHEAP, DEAR], [0.5])
    assert (right.tolist(), cost.tolist()) == (CHEAP.right.tolist(), [1, 1, 1, 1])


def test_the_best_cascade_within_a_limit_is_chosen() -> None:
    assert choose([CHEAP, DEAR], 0.9) is None
    assert choose([CHEAP, DEAR], 5.9) == Chosen((0,), ())
    assert choose([CHEAP, DEAR], 6.0) == Chosen((0, 1), (1.0,)), "as right as the dear model alone, and cheaper"
    assert choose([CHEAP, DEAR], 99.0) == Chosen((0, 1), (1.0,))
    sure = Asked(CHEAP.right, np.ones(4), CHEAP.cost)
    assert choose([sure, DEAR], 99.0) == Chosen((1,), ()), "a model that is always sure is left out"


def test_hindsight_asks_the_cheapest_model_that_is_right() -> None:
    assert math.isnan(hindsight_accuracy([CHEAP, DEAR], 0.5))
    assert hindsight_accuracy([CHEAP, DEAR], 1.0) == 0.5
    assert hindsight_accuracy([CHEAP, DEAR], 1 + 9 / 4) == 0.75, (
        "one problem is asked of the dear model in the cheap one's place"
    )
    assert hindsight_accuracy([CHEAP, DEAR], 99.0) == 0.75, "one no model solves"
