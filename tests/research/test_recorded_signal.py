"""Tokens for an equal signal on recorded pools: the command at a small size, and the groups that it compares."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

from research.recorded import signal
from research.recorded.signal import Groups, Recorded

has_pools = pytest.mark.skipif(
    not (Path(os.environ.get("TTS_DATA_DIR", "none")) / "pools").is_dir(), reason="TTS_DATA_DIR has no recorded pools"
)


def recorded(prompts: int = 40, samples: int = 64, seed: int = 0) -> Recorded:
    rng = np.random.default_rng(seed)
    chances = rng.beta(0.3, 1.5, prompts)
    return Recorded(
        tuple((rng.random(samples) < p).astype(float) for p in chances),
        tuple(rng.uniform(5, 15, samples) for _ in chances),
    )


def test_groups_are_counted_by_hand() -> None:
    of = Recorded(
        (np.array([1.0, 0, 1, 1]), np.array([0.0, 0, 0, 0])), (np.array([2.0, 3, 4, 5]), np.array([1.0, 1, 1, 1]))
    )
    found = Groups.of(of, np.array([4, 2]))
    assert (found.tokens, found.signal, found.variances, found.silent) == (16.0, 4 * 0.1875, 0.1875, 0.5)


def test_the_allocator_stops_once_it_has_the_signal_of_equal_groups() -> None:
    of = recorded()
    equal = Groups.of(of, np.full(40, signal.GROUP))
    found = signal.divide(of, equal.signal, 4)
    assert found is not None
    assert found.signal >= equal.signal
    assert found.tokens < equal.tokens
    assert signal.divide(of, 1e9, 4) is None, "the recorded samples are too few"


def test_the_allocator_stops_once_it_has_the_variances_of_equal_groups() -> None:
    of = recorded()
    equal = Groups.of(of, np.full(40, signal.GROUP))
    found = signal.divide(of, equal.variances / 2, 4, "variances")
    assert found is not None
    assert found.variances >= equal.variances / 2
    ratios, some, divided = signal.measure(of, 6, 2, "variances")
    assert len(some) == len(divided) == np.isfinite(ratios).sum()
    assert all(b.variances >= a.variances for a, b in zip(some, divided, strict=True))


def test_a_share_that_is_never_reached_is_called_so() -> None:
    assert signal.share(np.array([0.5, 0.75, np.inf])) == "0.75 [0.50, never], 2 of 3"


def test_the_pair_is_drawn_with_verdicts_and_scores() -> None:
    pytest.importorskip("torch")
    verdicts, scores = (Recorded.from_pair(reward, 6, 5) for reward in signal.REWARDS)
    assert [len(one) for one in verdicts.right] == [5] * 6
    assert {value for one in verdicts.right for value in one.tolist()} <= {0.0, 1.0}
    assert all(0 < value < 1 for one in scores.right for value in one.tolist())
    assert all(np.array_equal(a, b) for a, b in zip(verdicts.tokens, scores.tokens, strict=True))


@has_pools
@pytest.mark.slow
def test_the_command_has_a_row_for_each_pool_and_first_size() -> None:
    names = (*signal.POOLS, *(f"pair, {reward}" for reward in signal.REWARDS))
    rows = [line for line in signal.page(2, 20, 24) if line.startswith(tuple(f"| {name} |" for name in names))]
    assert len(rows) == len(names) * len(signal.FIRSTS)
    assert all(line.count("|") == 10 for line in rows)
