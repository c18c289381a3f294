"""The CPU's row-wise kernels against plain arithmetic, and bit for bit the same for a row in any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

from tests.backends.kernels.rope import rope_reference  # noqa: E402
from tests.backends.kernels.rotations import rotation_case  # noqa: E402
from tts.backends.kernels import layers  # noqa: E402
from tts.backends.kernels.host import Team, compile_function, exponential  # noqa: E402
from tts.backends.kernels.plan import BLOCK  # noqa: E402

NONE = np.empty((0, 0), np.float32)
SIZES = (1, 15, 16, 96, 576, 1_000, 4_864)


@compile_function
def exponentials(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = exponential(x[i])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key=seed)).standard_normal(shape, np.float32)


def test_the_exponential_is_exact_to_a_ten_millionth_everywhere() -> None:
    x = np.concatenate([np.linspace(-87, 0, 2_000_001), -np.logspace(-30, 1.9, 100_001), [-0.0, 0.0]]).astype(
        np.float32
    )
    out = np.empty_like(x)
    exponentials(x, out)
    wanted = np.exp(x.astype(np.float64))
    assert np.abs(out / wanted - 1).max() < 1e-7
    assert out[-2:].tolist() == [1, 1]
    assert out.max() == 1
    exponentials(np.array([-87.0, -87.1, -1e30, -np.inf], np.float32), out)
    assert out[:4].tolist() == [out[0]] * 4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_norms_are_those_of_torch(size: int, scale: float) -> None:
    hidden, change, weight = (
        normal(9, size) * np.float32(scale),
        normal(9, size, seed=1) * np.float32(scale),
        1 + normal(size, seed=2),
    )
    for added in (NONE, change):
        summed, out = hidden.copy(), np.full_like(hidden, np.nan)
        layers.add_norm(summed, added, weight, 1e-5, out, 0, 9)
        plain = hidden + added if len(added) else hidden
        assert np.array_equal(summed, plain)
        wide = torch.from_numpy(plain).double()
        wanted = torch.nn.functional.rms_norm(wide, (size,), torch.from_numpy(weight).double(), 1e-5).numpy()
        assert np.abs(out - wanted).max() < 1e-6 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize("size", SIZES)
def test_gates_are_silu_times_up(size: int) -> None:
    both = normal(7, 2 * size) * 6
    both[0, 0], both[1, 0], both[2, 0], both[3, 0] = 0, 200, -200, -86
    out = np.full((7, size), np.nan, np.float32)
    layers.gate(both, out, 0, 7)
    gates, up = torch.from_numpy(both).double().split(size, 1)
    wanted = (torch.nn.functional.silu(gates) * up).numpy()
    assert np.abs(out - wanted).max() < 1e-6 * np.abs(wanted).max()
    assert np.allclose(out, wanted, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(("heads", "group", "size"), [(2, 3, 64), (1, 7, 128), (3, 1, 80), (2, 2, 16)])
@pytest.mark.parametrize("has_norms", [False, True])
def test_the_rotation_and_the_write_are_those_of_the_reference(
    heads: int, group: int, size: int, has_norms: bool
) -> None:
    (qkv, positions, tables, places), norms = rotation_case(heads, group, size, torch.float32)
    pool = torch.full((2, heads, 6, BLOCK, size), 7.0)
    queries = rope_reference(qkv, positions, tables, places, *pool, norms=norms if has_norms else None, eps=1e-5)

    keys, values = np.full((heads, 6, size, BLOCK), 7.0, np.float32), np.full((heads, 6, BLOCK, size), 7.0, np.float32)
    found = np.full((heads, 5, group, size), np.nan, np.float32)
    weights = torch.stack(norms).numpy() if has_norms else np.empty((0, size), np.float32)
    where = torch.stack(places, 1).numpy()
    cosines, sines = (table.numpy() for table in tables)
    for begin, end in ((3, 5), (0, 3)):
        layers.rotate_write(
            qkv.numpy(), positions.numpy(), cosines, sines, where, weights, 1e-5, keys, values, found, begin, end
        )
    assert np.abs(found - queries.numpy()).max() < 2e-6
    assert np.abs(keys.swapaxes(2, 3) - pool[0].numpy()).max() < 2e-6  # places that nobody wrote included
    assert np.array_equal(values, pool[1].numpy())


@pytest.mark.parametrize("size", SIZES)
def test_a_row_has_the_same_bits_in_any_batch(size: int) -> None:
    hidden, change, weight = normal(33, size), normal(33, size, seed=1), 1 + normal(size, seed=2)
    both = normal(33, 2 * size, seed=3) * 4

    def normed(rows: Any, begin: int = 0) -> tuple[bytes, bytes]:
        summed = hidden[rows].copy()
        out = np.zeros_like(summed)
        layers.add_norm(summed, change[rows].copy(), weight, 1e-5, out, begin, len(out))
        return summed[begin:].tobytes(), out[begin:].tobytes()

    def gated(rows: Any, begin: int = 0) -> bytes:
        out = np.zeros((len(both[rows]), size), np.float32)
        layers.gate(both[rows].copy(), out, begin, len(out))
        return out[begin:].tobytes()

    whole, gates = normed(slice(None)), gated(slice(None))
    stride = 4 * size
    for row in range(33):
        for batch, begin in (([row], 0), ([0, 32, row], 2), ([7] * 9 + [row], 9)):
            assert normed(batch, begin) == tuple(part[stride * row : stride * (row + 1)] for part in whole)
            assert gated(batch, begin) == gates[stride * row : stride * (row + 1)]


@pytest.mark.parametrize(("heads", "group", "size"), [(2, 3, 64), (3, 1, 80)])
def test_a_rotated_row_has_the_same_bits_in_any_batch(heads: int, group: int, size: int) -> None:
    (qkv, positions, tables, places), norms = rotation_case(heads, group, size, torch.float32)
    where, weights = torch.stack(places, 1).numpy(), torch.stack(norms).numpy()

    def rotated(rows: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        keys, values = np.zeros((heads, 6, size, BLOCK), np.float32), np.zeros((heads, 6, BLOCK, size), np.float32)
        queries = np.zeros((heads, len(rows), group, size), np.float32)
        cosines, sines = (table.numpy() for table in tables)
        args = (
            qkv.numpy()[rows],
            positions.numpy()[rows],
            cosines,
            sines,
            where[rows],
            weights,
            1e-6,
            keys,
            values,
            queries,
        )
        layers.rotate_write(*args, 0, len(rows))
        return (
            keys[:, where[rows, 0], :, where[rows, 1]],
            values[:, where[rows, 0], where[rows, 1]],
            queries.swapaxes(0, 1),
        )

    whole = rotated([0, 1, 2, 3, 4])
    for rows in ([3], [4, 0], [2, 1, 0]):
        keys, values, queries = rotated(rows)
        assert np.array_equal(keys, whole[0][rows])
        assert np.array_equal(values, whole[1][:, rows])
        assert np.array_equal(queries, whole[2][rows])


def test_a_team_covers_every_row_once_and_in_order() -> None:
    for threads in (1, 2, 3, 8):
        team = Team(threads)
        for rows in (0, 1, 2, 7, 64):
            cuts = team.cuts(rows, 1 << 30)
            assert [row for begin, end in cuts for row in range(begin, end)] == list(range(rows))
            assert len(cuts) <= max(1, threads)
            assert team.cuts(rows, 10) == [(0, rows)]
        team.close()


def test_a_failure_in_any_thread_is_raised() -> None:
    def fails(part: int, bad: int) -> None:
        if part == bad:
            raise ZeroDivisionError

    team = Team(3)
    for bad in range(3):
        with pytest.raises(ZeroDivisionError):
            team.run(fails, [(part, bad) for part in range(3)])
    team.close()
