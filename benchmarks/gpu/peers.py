"""Attention over search trees: the engine's kernels beside FlashInfer and gathered attention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.gpu.ceilings import least_seconds, wait
from benchmarks.gpu.day import Case, Day
from benchmarks.gpu.kernels import TYPES
from benchmarks.gpu.models import AbsentError
from benchmarks.gpu.shapes import (
    LLAMA_8B,
    SMOKE_TREES,
    TINY,
    TREES,
    Pool,
    attend_exactly,
    compare,
    lower_as_engine,
    make_pool,
    path_places,
)
from tests.backends.kernels.trees import Node, make_plan
from tts.backends.kernels import attention_triton
from tts.backends.kernels.plan import BLOCK, AttentionPlan

Attend = Callable[[int], torch.Tensor]  # the number of a layer -> attention there [T, H G, d]
_ROTATED = 200_000_000  # least bytes of the layers that are timed in turn, so that a cache holds none of them
_WORKSPACE = 256 << 20


class _Tree:
    """A tree in memory: its plan, and a few layers of keys and values.

    Args:
        nodes: The nodes of the tree, whose leaves have equal depth.
        day: The settings.
    """

    def __init__(self, nodes: Sequence[Node], day: Day) -> None:
        self.heads = TINY if day.smoke else LLAMA_8B
        self.dtype = torch.float32 if day.smoke else torch.bfloat16
        self.device = day.device
        self.nodes = nodes
        self.plan, num_blocks = make_plan(nodes, spare=0)
        per_token = 2 * self.heads.heads * self.heads.size * self.dtype.itemsize
        self.unique_bytes = int(self.plan.blocks[:, 2].sum()) * per_token
        count = 1 if day.smoke else max(1, -(-_ROTATED // self.unique_bytes))
        first = make_pool(self.plan, num_blocks, self.heads, self.dtype, day.device)
        others = [Pool(*(numbers.clone() for numbers in first)) for _ in range(count - 1)]
        self.layers = [first, *others]
        self.wanted = attend_exactly(self.plan, first).flatten(1, 2)

    @property
    def rows(self) -> int:
        """The queries of the tree."""
        return len(self.plan.positions)

    def put(self, numbers: Any) -> torch.Tensor:
        """Return whole numbers as int32 on the device."""
        return torch.as_tensor(np.asarray(numbers), dtype=torch.int32).to(self.device)


def _attend_by_engine(tree: _Tree, *, strict: bool) -> Attend:
    heads, is_cuda = tree.heads, tree.device == "cuda"
    processors = torch.cuda.get_device_properties(0).multi_processor_count if is_cuda else 132
    work = lower_as_engine(tree.plan, heads, tree.dtype.itemsize, processors=processors, strict=strict)
    launch = attention_triton.upload(work, num_heads=heads.heads, size=heads.size, device=tree.device)
    out = torch.empty(tree.rows, *heads, dtype=tree.dtype, device=tree.device)

    def attend(layer: int) -> torch.Tensor:
        attention_triton.attend(launch, *tree.layers[layer], out)
        return out.flatten(1, 2)

    return attend


def _attend_by_torch(tree: _Tree) -> Attend:
    """Return attention by torch on copies of each row's keys, which each call gathers."""
    places, lengths = path_places(tree.plan)
    numbers, offsets = torch.from_numpy(places).to(tree.device)
    is_seen = torch.arange(places.shape[2]) < torch.from_numpy(lengths)[:, None]
    mask = None if bool(is_seen.all()) else is_seen[:, None, None].to(tree.device)  # [T, 1, 1, L]

    def attend(layer: int) -> torch.Tensor:
        queries, keys, values = tree.layers[layer]
        # the query heads of a key-value head are as queries of one sequence
        near, far = (pool[:, numbers, offsets].transpose(0, 1) for pool in (keys, values))  # [T, H, L, d]
        found = torch.nn.functional.scaled_dot_product_attention(
            queries.transpose(0, 1), near, far, attn_mask=mask, scale=1.0
        )
        return found.flatten(1, 2)

    return attend


def _import_flashinfer() -> Any:
    try:
        import flashinfer  # pyright: ignore[reportMissingImports]
    except Exception as failure:
        raise AbsentError(f"FlashInfer cannot be imported: {failure}") from failure
    return flashinfer


def page_table(plan: AttentionPlan) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the pages of each query's path: beginnings [T + 1], numbers, and keys of last pages [T]."""
    pages: list[list[int]] = [[] for _ in plan.positions]
    lasts = np.zeros(len(pages), np.int64)
    for first_block, block_end, first_query, query_end in plan.items.tolist():
        for query in range(first_query, query_end):
            pages[query] += plan.blocks[first_block:block_end, 0].tolist()
        lasts[first_query:query_end] = plan.blocks[block_end - 1, 2]
    begins = np.cumsum([0, *map(len, pages)])
    return begins, np.concatenate([np.array(each, np.int64) for each in pages]), lasts


def cascade_tables(plan: AttentionPlan, nodes: Sequence[Node]) -> list[tuple[list[int], ...]]:
    """Return for each depth beginnings of queries and of pages, the pages, and keys of last pages."""
    depths: list[int] = []
    for parent, _, _ in nodes:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    levels: list[tuple[list[int], ...]] = [([0], [0], [], []) for _ in range(max(depths) + 1)]
    for depth, (first_block, block_end, _, query_end) in zip(depths, plan.items.tolist(), strict=True):
        queries, begins, numbers, lasts = levels[depth]
        queries.append(query_end)
        numbers += plan.blocks[first_block:block_end, 0].tolist()
        begins.append(len(numbers))
        lasts.append(int(plan.blocks[block_end - 1, 2]))
    return levels


def _attend_by_flashinfer(tree: _Tree, *, cascade: bool) -> Attend:
    """Return attention by FlashInfer's paged decode, or by its cascade of one level a depth.

    Its pages lie as [page, head, token, number], so each layer is copied once, before anything is timed.
    """
    flashinfer = _import_flashinfer()
    heads = tree.heads
    layers = [
        (layer.queries.transpose(0, 1).flatten(1, 2).contiguous(), tuple(_pages(pool) for pool in layer[1:]))
        for layer in tree.layers
    ]
    workspace = torch.zeros(_WORKSPACE, dtype=torch.uint8, device=tree.device)
    shape = (heads.heads * heads.group, heads.heads, heads.size, BLOCK)
    options: dict[str, Any] = {"sm_scale": 1.0, "q_data_type": tree.dtype, "kv_data_type": tree.dtype}
    if cascade:
        tables = cascade_tables(tree.plan, tree.nodes)
        wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(len(tables), workspace, "HND")
        wrapper.plan(*([tree.put(table[part]) for table in tables] for part in range(4)), *shape, **options)
    else:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
        wrapper.plan(*map(tree.put, page_table(tree.plan)), *shape, **options)
    return lambda layer: wrapper.run(*layers[layer])


def _pages(pool: torch.Tensor) -> torch.Tensor:
    """Return keys or values [H, N, BLOCK, d] as pages [N, H, BLOCK, d], with 0 where nobody holds a key."""
    return pool.nan_to_num(0.0).transpose(0, 1).contiguous()


WAYS: dict[str, Callable[[_Tree], Attend]] = {
    "engine": functools.partial(_attend_by_engine, strict=False),
    "engine, strict": functools.partial(_attend_by_engine, strict=True),
    "gathered": _attend_by_torch,
    "FlashInfer paged": functools.partial(_attend_by_flashinfer, cascade=False),
    "FlashInfer cascade": functools.partial(_attend_by_flashinfer, cascade=True),
}


def _seconds_of(attend: Attend, layers: int, device: str) -> tuple[float, bool]:
    """Return the seconds of attention on one layer, and whether a CUDA graph ran it, as it does in decode steps."""

    def run() -> None:
        for layer in range(layers):
            attend(layer)

    if device != "cuda":
        return least_seconds(run, device, 1) / layers, False
    run()
    wait(device)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:  # a peer may ask the host for something
        return least_seconds(run, device) / layers, False
    return least_seconds(graph.replay, device) / layers, True


def _measure(name: str, way: str, day: Day) -> dict[str, Any]:
    tree = _tree_of(name, day)
    try:
        attend = WAYS[way](tree)
    except AbsentError as reason:
        return {"absent": str(reason)}
    found = compare(attend(0), tree.wanted, TYPES[tree.dtype][0])
    seconds, has_graph = _seconds_of(attend, len(tree.layers), day.device)
    speed = tree.unique_bytes / seconds
    figures: dict[str, Any] = {"rows": tree.rows, "us": seconds * 1e6, "unique_GBps": speed / 1e9, "graph": has_graph}
    if "copy" in day.known:
        figures["of_copy"] = speed / day.known["copy"]
    return {**figures, **found}


_kept: dict[str, _Tree] = {}


def _tree_of(name: str, day: Day) -> _Tree:
    """Return a tree in memory; one at a time is kept."""
    if name not in _kept:
        _kept.clear()
        _kept[name] = _Tree((SMOKE_TREES if day.smoke else TREES)[name], day)
    return _kept[name]


def list_trees(day: Day) -> list[Case]:
    """Return a case for each tree and each way of attention; FlashInfer, which may compile, is last."""
    trees, ways = SMOKE_TREES if day.smoke else TREES, list(WAYS)
    pairs = [(name, way) for some in (ways[:3], ways[3:]) for name in trees for way in some]
    return [(f"{name}, {way}", functools.partial(_measure, name, way, day)) for name, way in pairs]
