"""The bytes that attention and decode steps move: a model of the kernels' work, no measurement.

The model has a card that reads and writes at its bandwidth, and keeps nothing in caches. Launches take no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.gpu.shapes import LLAMA_8B, TREES, Heads, grow_tree, lower_as_engine, path_places
from tests.backends.kernels.trees import make_plan
from tts.backends.kernels.lowering import KernelWork
from tts.backends.kernels.plan import AttentionPlan

_BF16, _FLOAT32 = 2, 4
ROWS = (1, 8, 64, 256)
_PROMPT, _OWN = 1024, 128  # tokens of the steps of the second table
_LAUNCH_S = 1.2e-6  # between two kernels of a graph
_HOST_S = 1e-3  # assumed of the host for a step of 256 rows: scheduling, plan, lowering, and text
_SORT_BYTES = 300  # of one logit in `cut`: 100 of the sort's passes, and 200 of the sums after it


class StepShape(NamedTuple):
    """The sizes of a decoder: layers, key-value heads, query heads of each, numbers of a head, and tokens."""

    layers: int
    heads: int
    group: int
    size: int
    vocabulary: int


LLAMA = StepShape(32, *LLAMA_8B, 128_256)
LLAMA_WEIGHTS = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14_336) + 128_256 * 4096


class Moved(NamedTuple):
    """The bytes of attention in one layer.

    Args:
        unique: Keys and values, each once.
        read: Keys and values that the tiles read.
        partials: Partial results, written and read.
        rows: Queries read, and results written.
        gathered: Keys and values of each row's path.
        programs: The programs of the kernel that reads keys.
    """

    unique: int
    read: int
    partials: int
    rows: int
    gathered: int
    programs: int

    @property
    def total(self) -> int:
        """All bytes of the engine's kernels."""
        return self.read + self.partials + self.rows


class StepBytes(NamedTuple):
    """The bytes of a decode step, by what they are; keys and values once, and as often as read."""

    weights: int
    unique: int
    read: int
    partials: int
    rows: int
    logits: int

    @property
    def floor(self) -> int:
        """The bytes that any engine reads: all weights, and each key and value once."""
        return self.weights + self.unique

    @property
    def total(self) -> int:
        """All bytes of the engine's kernels."""
        return self.weights + self.read + self.partials + self.rows + self.logits


def count_bytes(plan: AttentionPlan, work: KernelWork, heads: Heads) -> Moved:
    """Return the bytes of attention by some work of the kernels in bfloat16."""
    per_token = 2 * heads.heads * heads.size * _BF16
    keys_before = np.concatenate([[0], np.cumsum(work.blocks[:, 2], dtype=np.int64)])
    of_runs = np.diff(keys_before[work.runs], axis=1)[:, 0]
    keys_of_runs = np.concatenate([[0], np.cumsum(of_runs)])
    keys_read = int(np.diff(keys_of_runs[work.items[:, :2]], axis=1).sum())
    results = np.diff(work.first_slots)
    num_partials = int(results[results > 1].sum())  # a query's only result is written where it belongs
    per_row = heads.heads * heads.group * heads.size
    _, lengths = path_places(plan)
    return Moved(
        unique=int(plan.blocks[:, 2].sum()) * per_token,
        read=keys_read * per_token,
        partials=2 * num_partials * (per_row + heads.heads * heads.group) * _FLOAT32,
        rows=2 * len(plan.positions) * per_row * _BF16,
        gathered=int(lengths.sum()) * per_token,
        programs=len(work.items) * heads.heads,
    )


def step_bytes(
    shape: StepShape, weight_bytes: int, rows: int, prompt: int, own: int, *, strict: bool = False
) -> StepBytes:
    """Return the bytes of a decode step of rows behind one prompt.

    Args:
        shape: The sizes of the decoder.
        weight_bytes: The bytes of all weights that a step reads.
        rows: The rows.
        prompt: The tokens of the prompt.
        own: The tokens of each row.
        strict: Whether the work is that of the strict executor.
    """
    heads = Heads(shape.heads, shape.group, shape.size)
    plan, _ = make_plan(grow_tree([prompt, own], [[rows]]))
    moved = count_bytes(plan, lower_as_engine(plan, heads, _BF16, strict=strict), heads)
    logits = rows * shape.vocabulary * _BF16
    unique, read, partials, by_row = (
        shape.layers * each for each in (moved.unique, moved.read, moved.partials, moved.rows)
    )
    return StepBytes(weight_bytes, unique, read, partials, by_row, 2 * logits)  # written, and read by the draw


def tables(bandwidth: float) -> str:
    """Return the tables of the model as Markdown, for a bandwidth in bytes a second."""
    parts = (_tree_table(bandwidth), _step_table(bandwidth), _gain_table(bandwidth))
    return "\n\n".join(parts)


def _tree_table(bandwidth: float) -> str:
    columns = "tree|rows|unique, MB|read, MB|partials, MB|programs|us|gathered, MB|us gathered"
    lines = [columns.split("|")]
    for name, nodes in TREES.items():
        plan, _ = make_plan(nodes, spare=0)
        moved = count_bytes(plan, lower_as_engine(plan, LLAMA_8B, _BF16), LLAMA_8B)
        sizes = (moved.unique, moved.read, moved.partials)
        line = [name, f"{len(plan.positions):,}", *(f"{size / 1e6:,.1f}" for size in sizes), f"{moved.programs:,}"]
        gathered = moved.gathered + moved.rows
        line += [f"{1e6 * moved.total / bandwidth:,.0f}", f"{moved.gathered / 1e6:,.0f}"]
        lines.append([*line, f"{1e6 * gathered / bandwidth:,.0f}"])
    return _markdown(lines)


def _step_table(bandwidth: float) -> str:
    columns = "rows|weights, GB|keys and values, MB|partials, MB|logits, MB|copies|us|of the floor"
    lines = [columns.split("|")]
    for rows in ROWS:
        step = step_bytes(LLAMA, _BF16 * LLAMA_WEIGHTS, rows, _PROMPT, _OWN)
        sizes = (f"{size / 1e6:,.1f}" for size in (step.read, step.partials, step.logits))
        line = [f"{rows}", f"{step.weights / 1e9:.2f}", *sizes, "1 to the card, 1 back"]
        lines.append([*line, f"{1e6 * step.total / bandwidth:,.0f}", f"{step.floor / step.total:.0%}"])
    return _markdown(lines)


def _gain_table(bandwidth: float) -> str:
    rows = ROWS[-1]
    step = step_bytes(LLAMA, _BF16 * LLAMA_WEIGHTS, rows, _PROMPT, _OWN)
    step_s = step.total / bandwidth
    logits = rows * LLAMA.vocabulary
    strict, wide = (
        step_bytes(LLAMA, _BF16 * LLAMA_WEIGHTS, rows, _PROMPT, _OWN, strict=is_strict) for is_strict in (True, False)
    )
    gains = {
        "overlap of host and card": _HOST_S,
        "one launch for narrow tiles, wide tiles and merge": 2 * LLAMA.layers * _LAUNCH_S,
        "top-p by selection, without a sort": (_SORT_BYTES - 3 * _BF16) * logits / bandwidth,
        "wide tiles for strict above 128 rows": (strict.read - wide.read) / bandwidth,
    }
    lines = [["change", "us less in a step of 256 rows", "of the step above"]]
    lines += [[name, f"{1e6 * gain:,.0f}", f"{gain / step_s:.0%}"] for name, gain in gains.items()]
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    ruled = [lines[0], ["---", *["--:"] * (len(lines[0]) - 1)], *lines[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)
