"""The CPU's own matrix product against float64, and the bits of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from tts.backends.kernels.gemm import PANEL, multiply, pack
from tts.backends.kernels.host import Team

ROWS = [*range(1, 27), 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 128, 191, 192, 193, 300]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(x: Any, weight: Any, threads: int = 1) -> Any:
    out = np.full((len(x), -(-len(weight) // PANEL) * PANEL), np.nan, np.float32)
    team = Team(threads)
    multiply(x, pack(weight), out, team)
    team.close()
    return out


@pytest.mark.parametrize(
    ("outputs", "inputs"), [(64, 1), (1, 7), (65, 16), (128, 192), (94, 192), (576, 1536), (960, 576)]
)
def test_it_is_the_product_for_every_number_of_rows(outputs: int, inputs: int) -> None:
    weight, x = normal(outputs, inputs), normal(max(ROWS), inputs, seed=1)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    scale = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    for rows in ROWS:
        found = product(x[:rows], weight)
        assert np.abs(found[:, :outputs] - exact[:rows]).max() <= 1e-7 * np.sqrt(inputs) * scale.max() + 1e-12
        assert not found[:, outputs:].any()  # what fills the last panel


@pytest.mark.parametrize(("outputs", "inputs"), [(94, 192), (576, 1536), (960, 576)])
def test_a_row_has_the_same_bits_in_every_batch_at_every_place_on_any_threads(outputs: int, inputs: int) -> None:
    weight, x = normal(outputs, inputs), normal(max(ROWS), inputs, seed=1)
    whole = product(x, weight)
    for rows in ROWS:
        assert np.array_equal(product(x[:rows], weight), whole[:rows])
        assert np.array_equal(product(np.ascontiguousarray(x[-rows:]), weight), whole[-rows:])
    for threads in (2, 3, 5):
        assert np.array_equal(product(x, weight, threads), whole)


def test_a_row_that_is_not_finite_stays_by_itself() -> None:
    weight, x = normal(128, 64), normal(13, 64, seed=1)
    clean = product(x, weight)
    x[5, 3] = np.nan
    found = product(x, weight)
    assert np.isnan(found[5]).all()
    assert np.array_equal(np.delete(found, 5, 0), np.delete(clean, 5, 0))


def test_sums_run_over_the_inputs_in_ascending_order() -> None:
    """2**25 swallows a 1 that comes after it, and not one that comes before: the order of the additions shows."""
    weight = np.ones((64, 3), np.float32)
    ascending = product(np.array([[1, 2.0**25, -(2.0**25)]], np.float32), weight)
    other = product(np.array([[2.0**25, 1, -(2.0**25)]], np.float32), weight)
    assert (ascending == 0).all()
    assert (other == 0).all()
    assert (product(np.array([[2.0**25, -(2.0**25), 1]], np.float32), weight) == 1).all()
