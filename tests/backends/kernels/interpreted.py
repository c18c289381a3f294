"""The Triton kernels against their references, on CPU tensors in Triton's interpreter.

Collected only by name, in a process whose environment has TRITON_INTERPRET=1 (test_triton.py); the interpreter runs one
program after the other in numpy, so that a launch here has at most about 50.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.backends.kernels.attention import attend_reference, merge_reference
from tests.backends.kernels.rope import rope_reference
from tests.backends.kernels.rotations import rotation_case
from tests.backends.kernels.row_bits import BATCHES, written
from tests.backends.kernels.trees import (
    EDGES,
    FORESTS,
    Case,
    blind_case,
    branching,
    chain,
    forest,
    make_tree,
    ragged,
    star,
)
from tts import randomness
from tts.backends import sampling
from tts.backends.base import Sampling
from tts.backends.kernels import attention_triton, draw_triton
from tts.backends.kernels.attention_triton import attend, upload
from tts.backends.kernels.lowering import lower
from tts.backends.kernels.norm_triton import add_norm
from tts.backends.kernels.plan import BLOCK, AttentionPlan
from tts.backends.kernels.rope_triton import rope

assert attention_triton.is_interpreted(), "run this in a process with TRITON_INTERPRET=1"


def attended(case: Case, dtype: Any = torch.float32, split: int = 256) -> tuple[float, float]:
    """Return the largest errors against the oracle: of the result, relative to values above 1, and of the
    log-sum-exp.
    """
    queries, keys, values = (torch.from_numpy(array).to(dtype) for array in case[1:])
    out = torch.full((queries.shape[1], queries.shape[0], *queries.shape[2:]), torch.nan, dtype=dtype)
    launch = attend(case.plan, queries, keys, values, out, split=split)
    assert len(launch.work.items) * queries.shape[0] <= 100
    want, want_lse = attend_reference(case.plan, queries.double(), keys.double(), values.double())
    first, weights = launch.work.first_slots, launch.weights.double().numpy() * np.log(2)
    lse = np.stack([merge_reference(np.zeros((*part.shape, 1)), part)[1] for part in np.split(weights, first[1:-1])])
    return float((np.abs(out.double().numpy() - want) / np.maximum(1, np.abs(want))).max()), float(
        np.abs(lse - want_lse).max()
    )


def assert_exact(case: Case, split: int = 256) -> None:
    out, lse = attended(case, split=split)
    assert out < 2e-6
    assert lse < 5e-6


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("split", [32, 256])
def test_attention_equals_the_oracle(name: str, split: int) -> None:
    assert_exact(make_tree(FORESTS[name], heads=1, group=3), split)


@pytest.mark.parametrize("name", ["one tree with all", "mixture"])
@pytest.mark.parametrize(
    ("group", "size"), [(1, 64), (1, 128), (2, 64), (3, 128), (4, 64), (4, 128), (6, 128), (7, 64), (7, 128), (20, 64)]
)
def test_attention_of_every_group_and_size(name: str, group: int, size: int) -> None:
    assert_exact(make_tree(FORESTS[name], heads=2 if name == "mixture" else 1, group=group, size=size, seed=group), 64)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("size", [64, 128])
def test_attention_of_64_query_heads_on_one_key_value_head(size: int, strict: bool) -> None:
    case = make_tree(star(40, [3, 17]), heads=1, group=64, size=size)
    queries, keys, values = map(torch.from_numpy, case[1:])
    work = lower(case.plan, group=64, split=32, element_bytes=4, strict=strict)
    assert (work.narrow, work.num_narrow) == (64, len(work.items))  # a query fills a narrow tile
    out = torch.full((queries.shape[1], 1, 64, size), torch.nan)
    attend(work, queries, keys, values, out)
    assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < 2e-6


@pytest.mark.parametrize("length", EDGES)
def test_attention_around_the_borders_of_blocks(length: int) -> None:
    assert_exact(make_tree(star(length, [1, length, 2, length + 1]), heads=1, group=2), 32)
    assert_exact(make_tree(chain([length, length], queries=min(length, 17)), heads=1, group=2), 32)


@pytest.mark.parametrize("seed", range(4))
def test_attention_on_random_forests(seed: int) -> None:
    assert_exact(make_tree(forest(ragged(seed, 8), ragged(seed + 50, 4)), heads=1, group=4, size=80, seed=seed), 48)


@pytest.mark.parametrize("nodes", [[90], [20, 45, 70]])
def test_attention_of_folded_paths_has_the_bits_of_merged_results(nodes: list[int]) -> None:
    """The tiles begin at the same queries, since numpy's products give the rows of a tile bits by their places."""
    case = make_tree(chain(nodes, queries=22), heads=2, group=3)
    queries, keys, values = map(torch.from_numpy, case[1:])
    results = []
    for most in (None, 22):
        work = lower(case.plan, group=3, split=32, element_bytes=4, strict=True, most_slots=most)
        assert (len(work.slots) == 22) == (most is not None)
        out = torch.full((22, 2, 3, queries.shape[3]), torch.nan)
        attend(work, queries, keys, values, out)
        results.append(out)
    merged, folded = results
    assert torch.equal(merged, folded)
    assert np.abs(folded.numpy() - attend_reference(*case)[0]).max() < 2e-6


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["mixture", "one tree with all"])
def test_attention_where_results_have_little_room(name: str, strict: bool) -> None:
    case = make_tree(FORESTS[name], heads=1, group=3)
    queries, keys, values = map(torch.from_numpy, case[1:])
    num_queries = queries.shape[1]
    split = 32 if strict else None
    work = lower(case.plan, group=3, split=split, element_bytes=4, strict=strict, most_slots=num_queries + 9)
    assert len(work.slots) <= num_queries + 9
    out = torch.full((num_queries, 1, 3, queries.shape[3]), torch.nan)
    attend(work, queries, keys, values, out)
    assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < 2e-6


@pytest.mark.parametrize("programs", [4, 64])
def test_attention_in_runs_that_fill_the_card(programs: int) -> None:
    case = make_tree(forest(star(90, [5] * 6), chain([70, 30], queries=24)), heads=1, group=3)
    queries, keys, values = map(torch.from_numpy, case[1:])
    work = lower(case.plan, group=3, split=None, element_bytes=4, programs=programs, most_slots=2 * queries.shape[1])
    out = torch.full((queries.shape[1], 1, 3, queries.shape[3]), torch.nan)
    attend(work, queries, keys, values, out)
    assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < 2e-6


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("size", [64, 128])
def test_attention_in_half_types(dtype: Any, tolerance: float, size: int) -> None:
    assert attended(make_tree(FORESTS["mixture"], heads=1, group=3, size=size), dtype, 64)[0] < tolerance


def test_attention_with_scores_of_eighty() -> None:
    case = make_tree(star(40, [1, 17, 33]), heads=1, group=7, scale=25.0)
    out, lse = attended(case, split=32)
    assert out < 2e-5  # float32's rounding of scores of 80
    assert lse < 5e-5


def test_attention_never_reads_slots_without_a_key() -> None:
    case = make_tree(FORESTS["mixture"], heads=1)
    held = np.zeros(case.keys.shape[1:3], bool)
    held[case.plan.blocks[:, 0]] = np.arange(BLOCK) < case.plan.blocks[:, 2:]
    queries, keys, values = map(torch.from_numpy, case[1:])
    out = torch.empty(queries.shape[1], 1, 2, 64)
    dirty = (pool.masked_fill(torch.from_numpy(~held)[..., None], torch.nan) for pool in (keys, values))
    attend(case.plan, queries, *dirty, out, split=64)
    assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < 2e-6


def test_attention_takes_any_layout_of_the_pool() -> None:
    case = make_tree(FORESTS["one tree with all"], heads=2)
    queries, keys, values = map(torch.from_numpy, case[1:])
    results = []
    for order in ((0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0)):  # the order of the dimensions in memory
        views = (pool.permute(order).contiguous().permute(*np.argsort(order).tolist()) for pool in (keys, values))
        out = torch.empty(queries.shape[1], 2, 2, 64)
        attend(case.plan, queries, *views, out)
        results.append(out)
    assert all(torch.equal(out, results[0]) for out in results)


def test_attention_of_queries_that_see_nothing_of_a_run() -> None:
    case = make_tree([(-1, 20, 0), (0, 40, 30), (0, 30, 1)], heads=1)
    positions = case.plan.positions.copy()
    positions[:5] = 4  # in the root: nothing of their node is seen, though they share its runs
    assert_exact(case._replace(plan=case.plan._replace(positions=positions)), 32)


def test_attention_of_a_query_that_sees_nothing_at_all_is_zero() -> None:
    case = blind_case()
    out = torch.full((2, 1, 2, 64), torch.nan)
    launch = attend(case.plan, *map(torch.from_numpy, case[1:]), out)
    assert launch.work.first_slots.tolist() == [0, 1, 2]
    assert launch.weights[0].tolist() == [[pytest.approx(-1e30)] * 2]
    assert (out[0] == 0).all()
    # a weight's logarithm is a float: half a unit of its last place is what the weight is uncertain by
    bits = np.log2(np.e) * np.abs(np.einsum("htgd,hnbd->htgnb", case.queries, case.keys)).max()
    bound = bits * 2**-24 * np.abs(case.values).max()
    assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < bound < 1e-5


def test_attention_of_queries_that_no_item_names_is_zero() -> None:
    plan = AttentionPlan(np.array([0, 0]), np.array([[0, 1, 0, 1]]), np.array([[0, 0, 1]]))
    out = torch.full((2, 1, 1, 64), torch.nan)
    attend(plan, torch.ones(1, 2, 1, 64), torch.ones(1, 1, BLOCK, 64), torch.ones(1, 1, BLOCK, 64), out)
    assert out[:, 0, 0, 0].tolist() == [1, 0]
    nothing = AttentionPlan(np.zeros(0, np.int64), np.zeros((0, 4), np.int64), np.zeros((0, 3), np.int64))
    attend(
        nothing,
        torch.ones(1, 0, 1, 64),
        torch.ones(1, 1, BLOCK, 64),
        torch.ones(1, 1, BLOCK, 64),
        torch.empty(0, 1, 1, 64),
    )


def test_attention_of_every_layer_takes_one_launch() -> None:
    nodes = branching([40, 20], [3])
    layers = [make_tree(nodes, heads=1, scale=scale) for scale in (1.0, 2.0)]
    launch = upload(lower(layers[0].plan, group=2, split=32), num_heads=1, size=64, device="cpu")
    for case in layers:
        out = torch.empty(3, 1, 2, 64)
        assert attend(launch, *map(torch.from_numpy, case[1:]), out) is launch
        assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < 2e-6
    with pytest.raises(AssertionError, match="lowered for 2 query heads of each key-value head, not 1"):
        attend(
            launch,
            torch.ones(1, 3, 1, 64),
            torch.ones(1, 1, BLOCK, 64),
            torch.ones(1, 1, BLOCK, 64),
            torch.empty(3, 1, 1, 64),
        )


# the interpreter rounds bfloat16 towards zero: up to one unit in the last place, 2**-7, of numbers below 8
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float16, 4e-3), (torch.bfloat16, 2**-7 * 8)]
)
@pytest.mark.parametrize(("heads", "group", "size"), [(2, 3, 64), (1, 7, 128), (3, 1, 80)])
@pytest.mark.parametrize("has_norms", [False, True])
def test_rope_equals_its_reference(
    dtype: Any, tolerance: float, heads: int, group: int, size: int, has_norms: bool
) -> None:
    arguments, norms = rotation_case(heads, group, size, dtype)
    made = []
    for function in (rope_reference, rope):
        keys = torch.full((heads, 6, size, BLOCK), 7.0, dtype=dtype).transpose(2, 3)
        values = torch.full((heads, 6, BLOCK, size), 7.0, dtype=dtype)
        queries = function(*arguments, keys, values, norms=norms if has_norms else None, eps=1e-5)
        assert queries.is_contiguous()
        made.append((queries, keys, values))
    for want, got in zip(*made, strict=True):
        assert want.shape == got.shape
        assert want.dtype == got.dtype == dtype
        assert (want.float() - got.float()).abs().max() <= tolerance
        assert torch.equal(want == 7.0, got == 7.0)  # nothing else was written


def test_rope_of_no_token() -> None:
    pool = torch.zeros(1, 1, BLOCK, 64)
    none = torch.zeros(0, dtype=torch.int64)
    assert rope(torch.zeros(0, 192), none, (torch.zeros(4, 32),) * 2, (none, none), pool, pool).shape == (1, 0, 1, 64)


def addresses(num: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.Generator(np.random.Philox(key=seed))
    streams, positions = generator.integers(0, 2**64, num, dtype=np.uint64), generator.integers(0, 2**20, num)
    streams[:3], positions[:3] = (0, 2**64 - 1, 2**63), (0, 2**40 + 5, 2**32 - 1)
    return streams, positions


@pytest.mark.parametrize("word", [randomness.MAIN_WORD, randomness.SCRATCH_WORD])
def test_uniforms_are_those_of_the_project_bit_for_bit(word: int) -> None:
    streams, positions = addresses(3000)
    got = draw_triton.uniforms(torch.from_numpy(streams.view(np.int64)), torch.from_numpy(positions), word)
    assert (got.numpy() == randomness.uniforms(streams, positions, word)).all()
    assert got[0] == randomness.uniform(0, 0, word)
    assert len(draw_triton.uniforms(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))) == 0


SAMPLINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_k=40),
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, top_p=0.9),
    Sampling(temperature=0.3, min_p=0.1),
    Sampling(temperature=2.0, top_k=300, top_p=0.95, min_p=0.01),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=0.0, top_k=5),
    Sampling(temperature=1e-30),
    Sampling(temperature=50.0, min_p=0.5),
]


def cut_of(logits: torch.Tensor, samplings: list[Sampling]) -> draw_triton.Cut:
    columns = zip(*[(s.temperature, s.top_k, s.top_p, s.min_p) for s in samplings], strict=True)
    temperatures, top_k, top_p, min_p = (torch.tensor(column) for column in columns)
    return draw_triton.cut(logits, temperatures, top_k, top_p.double(), min_p.double())


def assert_drawn(
    logits: torch.Tensor, samplings: list[Sampling], seed: int, word: int = 0, rows: torch.Tensor | None = None
) -> None:
    """Assert that each row's token is the reference's; only a number within 1e-6 of an edge may fall on its other
    side.
    """
    streams, positions = addresses(len(samplings), seed)
    own = logits if rows is None else logits[rows]
    temperatures = torch.tensor([s.temperature for s in samplings])
    arrays = (torch.from_numpy(streams.view(np.int64)), torch.from_numpy(positions))
    drawn = draw_triton.draw(logits, temperatures, *arrays, rows=rows, word=word, kept=cut_of(own, samplings))
    for r, law in enumerate(samplings):
        plain = own[r].float().numpy()
        u = randomness.uniform(int(streams[r]), int(positions[r]), word)
        token = int(drawn.tokens[r])
        if law.temperature == 0:
            assert token == sampling.draw(plain, law, u).token
        else:
            kept = sampling.filtered_distribution(plain, law)
            edges = np.cumsum(kept)
            assert kept[token] > 0
            assert edges[token] - kept[token] - 1e-6 <= u <= edges[token] + 1e-6
        logprobs = sampling.log_softmax(plain)
        assert float(drawn.logprobs[r]) == pytest.approx(logprobs[token], abs=2e-6)
        law_logprob = sampling.sampling_logprob(logprobs, law, token)
        assert float(drawn.sampling_logprobs[r]) == pytest.approx(law_logprob, abs=2e-6 / max(law.temperature, 0.1))


@pytest.mark.parametrize("vocabulary", [1, 1000, 1024, 1025, 3000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_are_those_of_the_reference(vocabulary: int, dtype: Any) -> None:
    generator = np.random.Generator(np.random.Philox(key=vocabulary))
    # bfloat16 has ties
    logits = torch.from_numpy(generator.standard_normal((len(SAMPLINGS), vocabulary), np.float32) * 3).to(dtype)
    assert_drawn(logits, SAMPLINGS, seed=vocabulary)


def test_draws_from_one_row_of_logits_by_many_children() -> None:
    logits = torch.randn(2, 1500, generator=torch.Generator().manual_seed(0)).T.contiguous().T  # strided
    assert_drawn(
        logits, [Sampling(temperature=1.0), *SAMPLINGS[:5]], seed=9, word=1, rows=torch.tensor([1, 0, 0, 1, 1, 1])
    )


def test_a_draw_does_not_depend_on_the_other_rows() -> None:
    logits = torch.randn(4, 2100, generator=torch.Generator().manual_seed(1)) * 4
    streams, positions = torch.tensor([5, 6, 7, 8]), torch.tensor([1, 2, 3, 4])
    together = draw_triton.draw(logits, torch.ones(4), streams, positions)
    for r in range(4):
        alone = draw_triton.draw(logits[r : r + 1], torch.ones(1), streams[r : r + 1], positions[r : r + 1])
        assert alone.tokens[0] == together.tokens[r]
        assert alone.logprobs[0] == together.logprobs[r]


def test_tokens_of_probability_zero_are_never_drawn() -> None:
    logits = torch.full((8, 2500), -torch.inf)
    logits[:, [3, 1023, 1024, 2499]] = 0.0
    streams = torch.arange(8) + 100
    drawn = draw_triton.draw(logits, torch.ones(8), streams, torch.zeros(8, dtype=torch.int64))
    u = randomness.uniforms(streams.numpy().astype(np.uint64), np.zeros(8, np.int64))
    assert drawn.tokens.tolist() == [[3, 1023, 1024, 2499][int(4 * number)] for number in u]
    assert drawn.logprobs.tolist() == pytest.approx([np.log(0.25)] * 8)


@triton.jit
def _position_as_uniform(stream, position, word):  # in the place of the kernel's own
    return position.to(tl.float64) * 1.1102230246251565e-16


def test_numbers_on_an_edge_of_the_law_take_the_token_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw_triton, "_uniform", _position_as_uniform)
    numbers = [0.0, 0.25 - 2.0**-53, 0.25, 0.5, 0.75 - 2.0**-53, 0.75, 1 - 2.0**-53]
    logits = torch.full((len(numbers), 2500), -torch.inf)
    logits[:, [3, 9, 1500, 2300]] = 0.0
    positions = (torch.tensor(numbers, dtype=torch.float64) * 2.0**53).long()
    drawn = draw_triton.draw(logits, torch.ones(len(numbers)), torch.zeros_like(positions), positions)
    assert drawn.tokens.tolist() == [3, 3, 9, 1500, 1500, 2300, 2300]
    assert drawn.tokens.tolist() == [sampling.draw(logits[0].numpy(), SAMPLINGS[0], u).token for u in numbers]


def test_rows_that_are_no_law_are_flagged_and_leave_the_others_alone() -> None:
    logits = torch.zeros(7, 1100)
    logits[0, 1050], logits[1, 3], logits[2], logits[3, :1024], logits[4, 1024:] = (
        torch.nan,
        torch.inf,
        -torch.inf,
        -torch.inf,
        -torch.inf,
    )
    logits[5, 7], logits[5, 9] = torch.inf, torch.nan
    for temperature in (0.0, 1.0):
        drawn = draw_triton.draw(logits, torch.full((7,), temperature), torch.arange(7), torch.arange(7))
        assert (
            (drawn.tokens < 0).tolist()
            == drawn.logprobs.isnan().tolist()
            == [True, True, True, False, False, True, False]
        )
        assert drawn.logprobs[[3, 4, 6]].tolist() == pytest.approx([-np.log(76), -np.log(1024), -np.log(1100)])


@pytest.mark.parametrize("batches", [BATCHES[:2], BATCHES], ids=["few", "all"])
def test_a_row_of_the_strict_executor_has_the_same_bits_in_every_batch(batches: tuple[int, ...]) -> None:
    alone, *others = (written(batch, tokens=2, device="cpu", executor="triton_strict") for batch in batches)
    assert others == [alone] * (len(batches) - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_equals_its_reference(dtype: Any) -> None:
    hidden, change = (torch.randn(3, 80, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    weight = torch.randn(80, generator=torch.Generator().manual_seed(3)).to(dtype)
    for added in (change, None):
        summed = hidden.clone()
        got = add_norm(summed, added, weight, 1e-5)
        want = hidden if added is None else hidden + added
        if dtype == torch.float32:
            assert torch.equal(summed, want)
        exact = torch.nn.functional.rms_norm(summed.double(), (80,), weight.double(), 1e-5)
        assert ((got.double() - exact).abs() <= exact.abs() * (2e-6 if dtype == torch.float32 else 2**-7)).all()
        assert (summed.double() - want.double()).abs().max() <= (0 if dtype == torch.float32 else 2**-6)
    assert add_norm(hidden[:0], None, weight, 1e-5).shape == (0, 80)
