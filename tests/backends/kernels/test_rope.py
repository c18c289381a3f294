"""The plain rotation and pool write against transformers' own layers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.kernels.rope import rope_reference  # noqa: E402
from tests.backends.kernels.rotations import cos_and_sin, rotation_case  # noqa: E402
from tts.backends.kernels.plan import BLOCK  # noqa: E402


@pytest.mark.parametrize(("heads", "group", "size"), [(2, 3, 64), (1, 7, 128), (3, 1, 80)])
@pytest.mark.parametrize("has_norms", [False, True])
def test_it_is_the_rotation_of_llama_and_the_norm_of_qwen3(heads: int, group: int, size: int, has_norms: bool) -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    (qkv, positions, tables, places), norms = rotation_case(heads, group, size, torch.float32)
    keys, values = torch.full((2, heads, 6, BLOCK, size), 7.0)
    queries = rope_reference(qkv, positions, tables, places, keys, values, norms=norms if has_norms else None, eps=1e-5)

    split = [size * num for num in (heads * group, heads, heads)]
    q, k, v = (part.view(1, 5, -1, size).transpose(1, 2) for part in qkv.split(split, 1))  # [1, heads, T, d]
    if has_norms:
        layers = [Qwen3RMSNorm(size, eps=1e-5) for _ in norms]
        for layer, weight in zip(layers, norms, strict=True):
            layer.weight.data = weight
        q, k = (layer(part) for layer, part in zip(layers, (q, k), strict=True))
    cos, sin = (torch.cat([table, table], -1)[positions][None] for table in tables)
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    assert queries.shape == (heads, 5, group, size)
    assert (queries - q[0].view(heads, group, 5, size).transpose(1, 2) * size**-0.5).abs().max() < 2e-6
    numbers, offsets = places
    assert (keys[:, numbers, offsets] - k[0]).abs().max() < 2e-6
    assert torch.equal(values[:, numbers, offsets], v[0])
    written = torch.zeros(6, BLOCK, dtype=torch.bool)
    written[numbers, offsets] = True
    assert (keys[:, ~written] == 7).all()
    assert (values[:, ~written] == 7).all()


def test_scores_depend_on_the_distance_alone() -> None:
    size = 64
    qkv = torch.randn(1, 3 * size, generator=torch.Generator().manual_seed(0), dtype=torch.float64).repeat(4, 1)
    pool = torch.zeros(2, 1, 1, BLOCK, size, dtype=torch.float64)
    places = (torch.zeros(4, dtype=torch.int64), torch.arange(4))
    tables = tuple(table.double() for table in cos_and_sin(size))
    queries = rope_reference(qkv, torch.tensor([3, 10, 50, 57]), tables, places, *pool)
    scores = queries[0, :, 0] @ pool[0, 0, 0, :4].T
    assert scores[1, 0] == pytest.approx(float(scores[3, 2]), rel=1e-5)  # seven apart, both; the tables are float32's
    assert scores[0, 0] == pytest.approx(float((qkv[0, :size] * qkv[0, size : 2 * size]).sum()) * size**-0.5, rel=1e-5)
