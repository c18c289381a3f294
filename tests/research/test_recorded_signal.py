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
    return Recorded(tuple((rng.random(samples) < p).astype(float) for p in chances), tuple(rng.uniform(5, 15, samples) for _ in chances))


def test_groups_are_counted_by_hand() -> None:
    of = Recorded((np.array([1.0, 0, 1, 1]), np.array([0.0, 0, 0, 0])), (np.array([2.0, 3, 4, 5]), np.array([1.0, 1, 1, 1])))
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


@has_pools
@pytest.mark.slow
def test_the_command_has_a_row_for_each_pool_and_first_size() -> None:
    rows = [line for line in signal.page(2) if line.startswith(tuple(f"| {name} |" for name in signal.POOLS))]
    assert len(rows) == len(signal.POOLS) * len(signal.FIRSTS)
    assert all(line.count("|") == 10 for line in rows)
