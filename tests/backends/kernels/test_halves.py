"""Keys and values held as halves: what is read is exactly what was rounded, so that everything that holds for floats
holds for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numba")

from tests.backends.kernels.attention import attend_reference  # noqa: E402
from tests.backends.kernels.rotations import rotation_case  # noqa: E402
from tests.backends.kernels.trees import FORESTS, make_tree  # noqa: E402
from tts.backends.kernels import layers  # noqa: E402
from tts.backends.kernels.attention_strict import attend  # noqa: E402
from tts.backends.kernels.host import Team  # noqa: E402
from tts.backends.kernels.plan import BLOCK  # noqa: E402
from tts.backends.kernels.target import WIDENS_HALVES  # noqa: E402

pytestmark = pytest.mark.skipif(not WIDENS_HALVES, reason="this CPU has no F16C")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2, 64), (1, 7, 128), (3, 1, 80), (2, 3, 16)], ids=str)
@pytest.mark.parametrize("name", FORESTS)
def test_attention_to_halves_has_the_bits_of_attention_to_the_floats_that_they_are(
    name: str, shape: tuple[int, int, int]
) -> None:
    heads, group, size = shape
    case = make_tree(FORESTS[name], heads=heads, group=group, size=size, seed=3)
    keys, values = (np.ascontiguousarray(held).astype(np.float16) for held in (case.keys.swapaxes(2, 3), case.values))
    found = {}
    for as_held in (lambda held: held.view(np.int16), lambda held: held.astype(np.float32)):
        out = np.full((case.queries.shape[1], heads, group, size), np.nan, np.float32)
        attend(case.plan, np.ascontiguousarray(case.queries), as_held(keys), as_held(values), out, Team(1))
        found[len(found)] = out
    assert np.array_equal(found[0], found[1])
    wanted, _ = attend_reference(case.plan, case.queries, keys.swapaxes(2, 3), values)
    assert np.abs(found[0] - wanted).max() < 2e-6


@pytest.mark.parametrize(("heads", "group", "size"), [(2, 3, 64), (3, 1, 80)])
def test_what_is_written_is_the_nearest_finite_half(heads: int, group: int, size: int) -> None:
    (qkv, positions, tables, places), _ = rotation_case(heads, group, size, torch.float32)
    numbers = qkv.numpy().copy()
    numbers[:, -3:] = (1e6, -7e4, 1e-7)  # beyond the largest half, and below the smallest normal one
    where, (cosines, sines) = torch.stack(places, 1).numpy(), (table.numpy() for table in tables)
    written: dict[type, list[Any]] = {}
    for kind in (np.float32, np.int16):
        held = np.zeros((heads, 6, size, BLOCK), kind), np.zeros((heads, 6, BLOCK, size), kind)
        queries = np.zeros((heads, 5, group, size), np.float32)
        none = np.empty((0, size), np.float32)
        layers.rotate_write(numbers, positions.numpy(), cosines, sines, where, none, 1e-5, *held, queries, 0, 5)
        written[kind] = [*held, queries]
    for floats, halves in zip(written[np.float32][:2], written[np.int16][:2], strict=True):
        assert np.array_equal(halves, floats.clip(-65504, 65504).astype(np.float16).view(np.int16))
    assert np.array_equal(written[np.float32][2], written[np.int16][2])
