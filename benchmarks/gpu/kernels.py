"""What a card reaches at best, and each kernel: against float64, and between guard zones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import triton
from torch.overrides import TorchFunctionMode

from benchmarks.gpu.ceilings import measure_ceilings
from benchmarks.gpu.day import Case, Day
from benchmarks.gpu.shapes import LLAMA_8B, QWEN_HALF, TINY, Heads, Pool, attend_exactly, compare, make_pool
from tests.backends.kernels.rope import rope_reference
from tests.backends.kernels.rotations import cos_and_sin
from tests.backends.kernels.trees import Node, chain, make_plan, star
from tts import randomness
from tts.backends import sampling
from tts.backends.base import Sampling
from tts.backends.kernels import attention_triton, draw_triton
from tts.backends.kernels.lowering import KernelWork, lower
from tts.backends.kernels.norm_triton import add_norm
from tts.backends.kernels.plan import BLOCK, AttentionPlan
from tts.backends.kernels.rope_triton import rope
from tts.types import TOP_TOKENS

# type -> the largest error of attention, and of one rounding, which the interpreter makes towards zero
TYPES = {torch.float32: (2e-6, 4e-6), torch.float16: (2e-3, 2e-3), torch.bfloat16: (1e-2, 2**-6)}
_LAWS = (Sampling(temperature=0.8), Sampling(temperature=1.0, top_k=50, top_p=0.9, min_p=0.01), Sampling(temperature=0))
_ZONE, _MARK = 4096, 0xA5  # bytes of a guard zone, and what each of them is


# ceilings -------------------------------------------------------------------------------------------------------------


def list_ceilings(day: Day) -> list[Case]:
    """Return the case that measures the card, on which the shares of later parts stand."""

    def measure() -> dict[str, Any]:
        day.known.update(measure_ceilings(day.device, "bfloat16", smoke=day.smoke))
        return dict(day.known)

    return [("copy and read in bytes/s, bfloat16 in FLOP/s", measure)]


# kernels --------------------------------------------------------------------------------------------------------------


def edge_trees(*, smoke: bool) -> dict[str, list[Node]]:
    """Return trees at the edges of blocks, tiles and runs, by name."""
    lengths = (15, 65) if smoke else (15, 16, 17, 255, 256, 257, 511, 512, 513)
    rows, longest = (7, 280) if smoke else (1000, 100_000)
    return {
        "one row": chain([17]),
        "a prefix of 0 tokens": [(-1, 1, 1)] * 3,
        "a prefix of 1 token": star(1, [1, 1, 1]),
        **{f"a prefix of {length} tokens": star(length, [1, 17, 33]) for length in lengths},
        f"{rows} rows on one prefix": star(300 if not smoke else 40, [1] * rows),
        "depth 12": chain([17] * 12),
        "a prompt": chain([200 if not smoke else 40], queries=150 if not smoke else 22),
        f"a context of {longest}": star(longest, [1, 17]),
    }


def lower_ways(plan: AttentionPlan, heads: Heads, dtype: torch.dtype) -> dict[str, KernelWork]:
    """Return a plan's work in each way that the engine has, by name."""
    shape: dict[str, Any] = {"group": heads.group, "element_bytes": dtype.itemsize, "heads": heads.heads}
    least = len(plan.positions)
    return {
        "fast": lower(plan, split=None, most_slots=64 * least, **shape),
        "folded": lower(plan, split=None, most_slots=least, **shape),
        "strict": lower(plan, strict=True, most_slots=64 * least, **shape),
        "strict folded": lower(plan, strict=True, most_slots=least, **shape),
    }


def attend(work: KernelWork, pool: Pool) -> torch.Tensor:
    """Return attention by the kernels [T, H, G, d], in memory that was NaN."""
    heads, rows, group, size = pool.queries.shape
    out = torch.full((rows, heads, group, size), torch.nan, dtype=pool.queries.dtype, device=pool.queries.device)
    attention_triton.attend(work, *pool, out)
    return out


def _check_attention(nodes: Sequence[Node], heads: Heads, dtype: torch.dtype, day: Day, spread: int) -> dict[str, Any]:
    plan, num_blocks = make_plan(nodes)
    pool = make_pool(plan, num_blocks, heads, dtype, day.device)
    if spread:
        pool = Pool(pool.queries, *(_spread_apart(numbers, spread) for numbers in pool[1:]))
    wanted = attend_exactly(plan, pool)
    ways = lower_ways(plan, heads, dtype)
    found = {name: compare(attend(work, pool), wanted, TYPES[dtype][0]) for name, work in ways.items()}
    return {
        "error": {name: one["error"] for name, one in found.items()},
        "tiles": {name: f"{work.num_narrow} + {len(work.items) - work.num_narrow}" for name, work in ways.items()},
        "agrees": all(one["agrees"] for one in found.values()),
    }


def _spread_apart(numbers: torch.Tensor, stride: int) -> torch.Tensor:
    """Return the same numbers with a stride between the entries of the first dimension, and NaN between them."""
    count = (len(numbers) - 1) * stride + numbers[0].numel()
    memory = torch.full((count,), torch.nan, dtype=numbers.dtype, device=numbers.device)
    return memory.as_strided(numbers.shape, (stride, *numbers[0].stride())).copy_(numbers)


def _check_merge(dtype: torch.dtype, day: Day) -> dict[str, Any]:
    rows, heads = (3, TINY) if day.smoke else (40, LLAMA_8B)
    first_slots = torch.arange(rows + 1, dtype=torch.int32, device=day.device) * 5
    shape = (5 * rows, heads.heads, heads.group)
    partials = torch.randn(*shape, heads.size, device=day.device)
    weights = 20 * torch.randn(*shape, device=day.device)
    out = torch.full((rows, *shape[1:], heads.size), torch.nan, dtype=dtype, device=day.device)
    attention_triton.launch_at(attention_triton.merge, rows, heads.heads)(
        out,
        partials,
        weights,
        first_slots,
        group=heads.group,
        rows=triton.next_power_of_2(heads.group),
        size=heads.size,
        padded=heads.size,
        num_warps=2,
        enable_fp_fusion=True,
    )
    shares = (weights.double() * np.log(2)).unflatten(0, (rows, 5)).softmax(1)
    wanted = (shares[..., None] * partials.double().unflatten(0, (rows, 5))).sum(1)
    return compare(out, wanted, TYPES[dtype][1])


def rotation(dtype: torch.dtype, heads: Heads, count: int, day: Day) -> tuple[tuple[Any, ...], Any]:
    """Return arguments of `rope` for some tokens, of which the last writes no key, and weights of norms."""
    context = 4 * BLOCK * count
    blocks = -(-count // BLOCK)
    draw = torch.Generator().manual_seed(count)
    columns = heads.heads * (heads.group + 2) * heads.size
    qkv = torch.randn(count, columns, generator=draw).to(day.device, dtype)
    norms = torch.randn(2, heads.size, generator=draw).to(day.device, dtype)
    positions = torch.randint(context, (count,), generator=draw).to(day.device)
    token = torch.randperm(count, generator=draw)
    numbers = torch.where(torch.arange(count) == count - 1, -1, token // BLOCK) if count > 1 else token // BLOCK
    pool = (torch.full((heads.heads, blocks, BLOCK, heads.size), 7.0, dtype=dtype, device=day.device) for _ in range(2))
    tables = tuple(table.to(day.device) for table in cos_and_sin(heads.size, context))
    places = (numbers.to(day.device), (token % BLOCK).to(day.device))
    return (qkv, positions, tables, places, *pool), tuple(norms)


def _check_rope(dtype: torch.dtype, heads: Heads, count: int, day: Day) -> dict[str, Any]:
    (qkv, positions, tables, places, keys, values), norms = rotation(dtype, heads, count, day)
    queries = rope(qkv, positions, tables, places, keys, values, norms=norms)
    is_written = places[0] >= 0
    wide = [torch.full_like(keys, 7.0, dtype=torch.float64) for _ in range(2)]
    double_norms = tuple(norm.double() for norm in norms)
    wide_tables = tuple(table.double() for table in tables)
    wanted = rope_reference(
        qkv.double()[is_written],
        positions[is_written],
        wide_tables,
        tuple(place[is_written] for place in places),
        *wide,
        norms=double_norms,
    )
    pairs = ((queries[:, is_written], wanted), (keys, wide[0]), (values, wide[1]))
    found = [compare(got, exact, TYPES[dtype][1]) for got, exact in pairs]
    return max(found, key=lambda one: (not one["agrees"], one["error"]))


def _check_norm(dtype: torch.dtype, rows: int, day: Day) -> dict[str, Any]:
    size = 96 if day.smoke else 4096
    hidden, change = (torch.randn(rows, size, device=day.device).to(dtype) for _ in range(2))
    weight = torch.randn(size, device=day.device).to(dtype)
    added = (hidden.float() + change.float()).to(dtype).double()
    wanted = added * (added.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
    return compare(add_norm(hidden, change, weight, 1e-6), wanted, 2 * TYPES[dtype][1])


def _check_draws(dtype: torch.dtype, law: Sampling, stride: int, day: Day) -> dict[str, Any]:
    """Check tokens by the edges of the cumulated law in float64, and their log-probabilities."""
    rows, vocabulary = (3, 1500) if day.smoke else (32, 128_256)
    logits = (4 * torch.randn(rows, vocabulary, device=day.device)).to(dtype)
    logits = _spread_apart(logits, stride) if stride else logits
    arguments = draw_arguments(law, rows, day.device)
    kept = draw_triton.cut(logits, *arguments[:4])
    drawn = draw_triton.draw(logits, arguments[0], *arguments[4:], kept=kept)
    past, off = 0.0, 0.0
    for row, (token, logprob) in enumerate(zip(drawn.tokens.tolist(), drawn.logprobs.tolist(), strict=True)):
        plain = logits[row].double().cpu().numpy()
        off = max(off, abs(logprob - sampling.log_softmax(plain)[token]))
        if law.temperature == 0:
            past = max(past, float(token != plain.argmax()))
            continue
        edges = np.cumsum(sampling.filtered_distribution(plain, law))
        u = randomness.uniform(7919 * row, row)
        past = max(past, u - edges[token], (edges[token - 1] if token else 0.0) - u)
    return {"error": off, "past_the_edge": past, "agrees": bool(off <= 1e-5 and past <= 3e-6)}


def _check_readings(dtype: torch.dtype, day: Day) -> dict[str, Any]:
    """Check log-probabilities that are read, the most likely tokens, and the spreads of rows."""
    rows, vocabulary = (3, 1500) if day.smoke else (32, 128_256)
    logits = (4 * torch.randn(rows, vocabulary, device=day.device)).to(dtype)
    number = torch.arange(rows, device=day.device)
    found, likely = draw_triton.read(logits, number, number, number + 1024, top=TOP_TOKENS)
    totals, tops = draw_triton.spreads(logits, number)
    laws = logits.double().log_softmax(1)
    exact = laws.sort(dim=1, descending=True, stable=True).indices[:, :TOP_TOKENS]
    wanted = torch.cat([laws[number, number + 1024], laws.gather(1, exact).ravel()])
    sums = torch.stack([laws.mean(1), (laws.exp() * laws).sum(1) / vocabulary], 1)
    pairs = (found, wanted), (totals / vocabulary, sums), (tops, laws.gather(1, exact))
    off = max(float((mine - theirs).abs().max()) for mine, theirs in pairs)
    return {"error": off, "agrees": bool(off <= 1e-5 and torch.equal(likely, exact))}


def draw_arguments(law: Sampling, rows: int, device: str) -> tuple[torch.Tensor, ...]:
    """Return temperatures, top-k, top-p, min-p, streams and positions of some rows under one law."""
    values = (float(law.temperature), law.top_k, law.top_p, law.min_p)
    number = torch.arange(rows, device=device)
    return *(torch.full((rows,), value, device=device) for value in values), 7919 * number, number


def _check_uniforms(day: Day) -> dict[str, Any]:
    generator = np.random.Generator(np.random.Philox(key=1))
    count = 3000 if day.smoke else 100_000
    streams, positions = generator.integers(0, 2**64, count, dtype=np.uint64), generator.integers(0, 2**40, count)
    places = (torch.from_numpy(streams.view(np.int64)).to(day.device), torch.from_numpy(positions).to(day.device))
    found = draw_triton.uniforms(*places).cpu().numpy()
    return {"agrees": bool((found == randomness.uniforms(streams, positions)).all())}


def list_kernels(day: Day) -> list[Case]:
    """Return the cases of every kernel against float64, the most used type first."""
    heads = TINY if day.smoke else LLAMA_8B
    far = 1 << 14 if day.smoke else 2**31 + 4096  # numbers; above what int32 addresses
    cases: list[Case] = [("uniforms", lambda: _check_uniforms(day))]
    for dtype in reversed(TYPES):
        name = str(dtype).removeprefix("torch.")
        trees = edge_trees(smoke=day.smoke)

        def add(label: str, check: Callable[..., dict[str, Any]], *given: Any, name: str = name) -> None:
            cases.append((f"{label}, {name}", lambda: check(*given, day)))

        for tree, nodes in trees.items():
            add(f"attention, {tree}", lambda *given: _check_attention(*given, 0), nodes, heads, dtype)
        few = Heads(2, 4, 32) if day.smoke else QWEN_HALF
        add("attention, other heads", lambda *given: _check_attention(*given, 0), star(65, [1, 17]), few, dtype)
        add("attention, long strides", lambda *given: _check_attention(*given, far), star(65, [1, 17]), few, dtype)
        add("merge", _check_merge, dtype)
        for count in (1, 17) if day.smoke else (1, 17, 1000):
            add(f"rope, {count} tokens", _check_rope, dtype, heads, count)
            add(f"norm, {count} rows", _check_norm, dtype, count)
        for law in _LAWS:
            add(f"draw, temperature {law.temperature}, top_p {law.top_p}", _check_draws, dtype, law, 0)
        add("draw, long strides", _check_draws, dtype, _LAWS[1], far // 8)
        add("readings and spreads", _check_readings, dtype)
    return cases


# memory ---------------------------------------------------------------------------------------------------------------


class Guards(TorchFunctionMode):
    """Memory between guard zones: what `torch.empty` makes within the block, and copies of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms: list[torch.Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function not in (torch.empty, torch.empty_like):
            return made
        return self.copy(made.fill_(torch.nan) if made.is_floating_point() else made.fill_(-1))

    def copy(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return a contiguous copy of a tensor between two zones."""
        room = torch.full((numbers.nbytes + 2 * _ZONE,), _MARK, dtype=torch.uint8, device=numbers.device)
        self.rooms.append(room)
        return room[_ZONE : _ZONE + numbers.nbytes].view(numbers.dtype).view(numbers.shape).copy_(numbers)

    def count_breaches(self) -> int:
        """Return the bytes of all zones that were changed."""
        zones = [zone for room in self.rooms for zone in (room[:_ZONE], room[-_ZONE:])]
        return sum(int((zone != _MARK).sum()) for zone in zones)


def _guard(run: Callable[..., Sequence[torch.Tensor]], *given: torch.Tensor) -> dict[str, Any]:
    """Run a kernel on copies between guard zones; its results must have the bits of a run without zones."""
    plain = run(*(numbers.clone() for numbers in given))
    guards = Guards()
    copies = [guards.copy(numbers) for numbers in given]
    with guards:
        found = run(*copies)
    breaches = guards.count_breaches()
    alike = all(
        torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
        for one, other in zip(plain, found, strict=True)
    )
    figures = {"zones": 2 * len(guards.rooms), "changed_bytes": breaches, "same_bits": alike}
    return {**figures, "agrees": alike and not breaches}


def list_memory(day: Day) -> list[Case]:
    """Return the cases that look for writes outside of a kernel's arrays."""
    heads = TINY if day.smoke else LLAMA_8B
    cases: list[Case] = []
    for dtype in (torch.bfloat16,) if day.smoke else reversed(TYPES):
        plan, num_blocks = make_plan(star(40 if day.smoke else 300, [1, 17, 33, *[5] * 3]))
        pool = make_pool(plan, num_blocks, heads, dtype, day.device)
        for way, work in lower_ways(plan, heads, dtype).items():
            cases.append(
                (f"attention {way}, {dtype}", lambda pool=pool, work=work: _guard(_pick_attention(work), *pool))
            )
        (qkv, positions, tables, places, *kv), norms = rotation(dtype, heads, 17, day)
        whole = (qkv, positions, *tables, *places, *kv, *norms)
        cases.append((f"rope, {dtype}", lambda whole=whole: _guard(_run_rope, *whole)))
        hidden = torch.randn(2, 5, 96, device=day.device).to(dtype)
        cases.append((f"norm, {dtype}", lambda rows=hidden: _guard(_run_norm, *rows, rows[0, 0])))
        logits = torch.randn(3, 1500, device=day.device).to(dtype)
        drawn = (logits, *draw_arguments(_LAWS[1], 3, day.device))
        cases.append((f"draw, uniforms and readings, {dtype}", lambda drawn=drawn: _guard(_run_draw, *drawn)))
    return cases


def _pick_attention(work: KernelWork) -> Callable[..., Sequence[torch.Tensor]]:
    def run(*pool: torch.Tensor) -> Sequence[torch.Tensor]:
        heads, rows, group, size = pool[0].shape
        out = torch.empty(rows, heads, group, size, dtype=pool[0].dtype, device=pool[0].device)
        attention_triton.attend(work, *pool, out)
        return (*pool, out)

    return run


def _run_rope(qkv: Any, positions: Any, cos: Any, sin: Any, number: Any, offset: Any, *rest: Any) -> Sequence[Any]:
    keys, values, *norms = rest
    queries = rope(qkv, positions, (cos, sin), (number, offset), keys, values, norms=(norms[0], norms[1]))
    return qkv, keys, values, queries


def _run_norm(hidden: torch.Tensor, change: torch.Tensor, weight: torch.Tensor) -> Sequence[torch.Tensor]:
    return add_norm(hidden, change, weight, 1e-6), hidden, change


def _run_draw(logits: torch.Tensor, *arguments: torch.Tensor) -> Sequence[torch.Tensor]:
    kept, positions = draw_triton.cut(logits, *arguments[:4]), arguments[5]
    drawn = draw_triton.draw(logits, arguments[0], *arguments[4:], kept=kept)
    read = draw_triton.read(logits, positions, positions, positions, top=2)
    return *drawn, draw_triton.uniforms(*arguments[4:]), *read, *draw_triton.spreads(logits, positions)
