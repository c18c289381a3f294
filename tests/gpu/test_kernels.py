"""The Triton kernels on a GPU: their numbers, and how much of the memory's speed attention reaches."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from tests.backends.kernels.attention import attend_reference, visible_keys  # noqa: E402
from tests.backends.kernels.rope import rope_reference  # noqa: E402
from tests.backends.kernels.rotations import rotation_case  # noqa: E402
from tests.backends.kernels.trees import FORESTS, Case, branching, chain, forest, make_tree, ragged  # noqa: E402
from tts import randomness  # noqa: E402
from tts.backends import sampling  # noqa: E402
from tts.backends.base import Sampling  # noqa: E402
from tts.backends.kernels import attention_triton, draw_triton  # noqa: E402
from tts.backends.kernels.lowering import lower  # noqa: E402
from tts.backends.kernels.rope_triton import rope  # noqa: E402

pytestmark = pytest.mark.gpu
TYPES = [(torch.float32, 2e-6), (torch.float16, 2e-3), (torch.bfloat16, 1e-2)]


def error(attend: Any, case: Case, dtype: Any, **options: Any) -> float:
    """Return the largest error against the oracle on the same rounded inputs, relative to values above 1."""
    queries, keys, values = (torch.from_numpy(array).to("cuda", dtype) for array in case[1:])
    out = torch.full((queries.shape[1], queries.shape[0], *queries.shape[2:]), torch.nan, dtype=dtype, device="cuda")
    attend(case.plan, queries, keys, values, out, **options)
    want, _ = attend_reference(case.plan, *(tensor.double().cpu() for tensor in (queries, keys, values)))
    return float((np.abs(out.double().cpu().numpy() - want) / np.maximum(1, np.abs(want))).max())


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize(("group", "size"), [(1, 64), (3, 64), (6, 128), (7, 64)])
def test_attention_equals_the_oracle(name: str, dtype: Any, tolerance: float, group: int, size: int) -> None:
    case = make_tree(FORESTS[name], group=group, size=size)
    for split in (64, 256):
        assert error(attention_triton.attend, case, dtype, split=split) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
def test_attention_of_large_steps_equals_the_oracle(dtype: Any, tolerance: float) -> None:
    case = make_tree(
        forest(branching([400, 40, 40], [4, 8]), chain([700], queries=300), ragged(3, 40)), group=4, size=128
    )
    assert error(attention_triton.attend, case, dtype) < tolerance


# queries and keys are below 8 in size: half a unit in the last place is 2**-6 for bfloat16, and sums may round the
# other way
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.float16, 8e-3), (torch.bfloat16, 6.25e-2)]
)
@pytest.mark.parametrize("has_norms", [False, True])
def test_rope_equals_its_reference(dtype: Any, tolerance: float, has_norms: bool) -> None:
    (qkv, positions, tables, places), norms = rotation_case(2, 6, 128, dtype)
    made = []
    for function, device in ((rope_reference, "cpu"), (rope, "cuda")):
        pool = torch.full((2, 2, 6, 16, 128), 7.0, dtype=dtype, device=device)
        there = [[part.to(device) for part in pair] for pair in (tables, places, norms)]
        arguments = (qkv.to(device), positions.to(device), tuple(there[0]), tuple(there[1]), *pool)
        queries = function(*arguments, norms=tuple(there[2]) if has_norms else None)
        made.append((queries.cpu(), pool.cpu()))
    for want, got in zip(*made, strict=True):
        assert (want.float() - got.float()).abs().max() <= tolerance


def test_uniforms_are_those_of_the_project_bit_for_bit() -> None:
    generator = np.random.Generator(np.random.Philox(key=1))
    streams, positions = generator.integers(0, 2**64, 100_000, dtype=np.uint64), generator.integers(0, 2**40, 100_000)
    got = draw_triton.uniforms(torch.from_numpy(streams.view(np.int64)).cuda(), torch.from_numpy(positions).cuda())
    assert (got.cpu().numpy() == randomness.uniforms(streams, positions)).all()


@pytest.mark.parametrize(
    "law",
    [Sampling(temperature=0.8), Sampling(temperature=0), Sampling(temperature=1, top_k=50, top_p=0.9, min_p=0.01)],
)
def test_draws_are_those_of_the_reference(law: Sampling) -> None:
    num_rows, vocabulary = 64, 151_936
    logits = (torch.randn(num_rows, vocabulary, generator=torch.Generator().manual_seed(0)) * 4).bfloat16()
    temperatures = torch.full((num_rows,), law.temperature)
    limits = [torch.full((num_rows,), value).cuda() for value in (law.top_k, law.top_p, law.min_p)]
    streams, positions = torch.arange(num_rows) * 7919, torch.arange(num_rows)
    kept = draw_triton.cut(logits.cuda(), temperatures.cuda(), *limits)
    drawn = draw_triton.draw(logits.cuda(), temperatures.cuda(), streams.cuda(), positions.cuda(), kept=kept)
    for r, (token, logprob) in enumerate(zip(drawn.tokens.tolist(), drawn.logprobs.tolist(), strict=True)):
        plain, u = logits[r].float().numpy(), randomness.uniform(int(streams[r]), r)
        edges = np.cumsum(sampling.filtered_distribution(plain, law))
        assert (edges[token - 1] if token else 0) - 3e-6 <= u <= edges[token] + 3e-6 or law.temperature == 0
        assert token == sampling.draw(plain, law, u).token or law.temperature > 0
        assert logprob == pytest.approx(sampling.log_softmax(plain)[token], abs=1e-5)


def seconds(call: Any, repeats: int = 50) -> float:
    """Return the time of one call on the device, the best of five series."""
    call()
    best = float("inf")
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3 / repeats)
    return best


def plain_attention(case: Case, queries: Any, keys: Any, values: Any) -> Any:
    """Return attention in plain torch, as a function without arguments: the keys of each query are gathered, padded and
    masked.
    """
    places = [visible_keys(case.plan, query) for query in range(len(case.plan.positions))]
    longest = max(len(numbers) for numbers, _ in places)
    padded = np.array([[np.pad(part, (0, longest - len(part))) for part in place] for place in places])  # [T, 2, L]
    numbers, offsets = (torch.from_numpy(padded[:, part]).to("cuda") for part in (0, 1))
    lengths = torch.tensor([len(numbers) for numbers, _ in places], device="cuda")
    seen = (torch.arange(longest, device="cuda") < lengths[:, None])[None, :, None]  # [1, T, 1, L]

    def attend() -> Any:
        near, far = keys[:, numbers, offsets], values[:, numbers, offsets]  # [H, T, L, d]
        return torch.nn.functional.scaled_dot_product_attention(queries, near, far, attn_mask=seen, scale=1.0)

    return attend


@pytest.mark.parametrize("trees", [1, 8])
def test_attention_is_faster_than_plain_torch_and_says_how_fast(trees: int, capsys: pytest.CaptureFixture[str]) -> None:
    heads, group, size = 2, 6, 128
    case = make_tree(forest(*[branching([400, 40, 40, 40], [4, 4, 4])] * trees), heads=heads, group=group, size=size)
    queries, keys, values = (torch.from_numpy(array).to("cuda", torch.bfloat16) for array in case[1:])
    out = torch.empty(len(case.plan.positions), heads, group, size, dtype=torch.bfloat16, device="cuda")
    launch = attention_triton.upload(lower(case.plan, group=group), num_heads=heads, size=size, device="cuda")
    plain = seconds(plain_attention(case, queries, keys, values), 3)
    graph = torch.cuda.CUDAGraph()
    attention_triton.attend(launch, queries, keys, values, out)
    with torch.cuda.graph(graph):
        attention_triton.attend(launch, queries, keys, values, out)
    taken = seconds(graph.replay)
    unique = int(case.plan.blocks[:, 2].sum()) * 2 * heads * size * 2
    partial = 2 * launch.partials.numel() * 4
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(case.plan.positions)} rows: {taken * 1e6:.1f} us a layer, {unique / taken / 1e9:.0f} GB/s of "
            "unique keys and values, "
            f"{(unique + partial) / taken / 1e9:.0f} GB/s with partial results; plain torch {plain * 1e6:.0f} us\n"
        )
    assert taken < plain
