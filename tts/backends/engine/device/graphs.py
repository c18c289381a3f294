"""Decode steps in fixed shapes, which a GPU replays as CUDA graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.device.operations import DeviceOperations
from tts.backends.engine.planning import StepPlan
from tts.backends.engine.pool import BlockPool
from tts.backends.kernels.lowering import KernelWork, WorkShape, pad_work
from tts.logs import get_logger

Capture = Callable[[Callable[[], None]], Callable[[], None]]  # a function that launches kernels -> its replay
LOG = get_logger("tts.engine")

_TOKENS = (1, 2, 4, 8, *range(16, 257, 16))  # the numbers of tokens of fixed steps
_NARROW, _WIDE = 32, 8  # the fewest narrow and wide runs that a step is padded to
_SLOTS, _NUMBERS = 16, 2048  # room for partial results and for integers, a token; rooms have at least 16 tokens
_AFTER = 8  # steps of one shape until it is captured
_SHAPES = 128  # most shapes that are kept


class FixedRoom(NamedTuple):
    """The room of the buffers for fixed steps.

    The fields are the most tokens, the most partial results of attention, and the most integers of a step's arrays.
    """

    tokens: int
    slots: int
    numbers: int

    @classmethod
    def of(cls, rows: int) -> FixedRoom:
        """Return room for steps of so many rows, at most 256."""
        tokens = next(size for size in _TOKENS if size >= min(rows, _TOKENS[-1]))
        return cls(tokens, _SLOTS * max(tokens, 16), _NUMBERS * max(tokens, 16))

    def nbytes(self, config: DecoderConfig, dtype: torch.dtype) -> int:
        """Return the bytes of its buffers on the device."""
        partials = 4 * self.slots * config.heads * (config.head_size + 1)
        return 4 * self.numbers + partials + self.tokens * config.hidden * dtype.itemsize


@dataclass(slots=True, eq=False)
class _Shape:
    """A shape of steps.

    `run` runs the layers on the contents of the buffers. `replay` does the same by a captured graph; None: no graph.
    """

    run: Callable[[], None]
    replay: Callable[[], None] | None = None
    steps: int = 0


class FixedSteps:
    """Decode steps in fixed shapes, over buffers at fixed addresses.

    So a device can replay the steps as CUDA graphs.

    A graph has one grid for each kernel and one address for each array. So the tokens of a step are padded to one of a
    few numbers, and its runs of attention to a power of two. Padding tokens write no keys, and are not read; padding
    runs have no keys and no queries. A shape that occurred 8 times is captured. In strict mode a graph is refused whose
    replay has other bits than its kernels one by one.

    Args:
        operations: The operations with Triton kernels.
        feed: `Decoder.feed`.
        pool: The blocks that steps read and write.
        room: The sizes of the buffers.
        capture: Makes a replay of a function that launches kernels. None: every step runs kernel by kernel, in the same
            shapes.

    Attributes:
        replays: Steps that graphs ran.
    """

    def __init__(
        self,
        operations: DeviceOperations,
        feed: Callable[[Tensor, Tensor, BlockPool], None],
        pool: BlockPool,
        room: FixedRoom,
        *,
        capture: Capture | None = None,
    ) -> None:
        self.pool = pool
        self.replays = 0
        self._operations, self._feed, self._room, self._capture = operations, feed, room, capture
        self._host = np.zeros(room.numbers, np.int32)
        self._launch, config, device = operations.kernels.launch, operations.config, operations.device
        self._numbers = torch.zeros(room.numbers, dtype=torch.int32, device=device)
        self._hidden = torch.zeros(room.tokens, config.hidden, dtype=operations.dtype, device=device)
        self._partials = torch.zeros(room.slots, config.kv_heads, config.group, config.head_size, device=device)
        self._weights = torch.zeros(room.slots, config.kv_heads, config.group, device=device)
        self._shapes: OrderedDict[WorkShape, _Shape] = OrderedDict()

    def run(self, ids: NDArray[np.int64], planned: StepPlan) -> Tensor | None:
        """Run the layers of a step, and return its hidden states, or None where the step does not fit.

        The hidden states are [T, K], and are valid until the next step.

        Args:
            ids: [T] tokens in the plan's order.
            planned: The plan of the step.
        """
        count = len(ids)
        if not 0 < count <= self._room.tokens:
            return None
        work = self._operations.lower_plan(planned.plan)
        tokens = next(size for size in _TOKENS if size >= count)
        wide = len(work.items) - work.num_narrow
        shape = WorkShape(tokens, _power(work.num_narrow, _NARROW), _power(wide, _WIDE) if wide else 0)
        work, starts = pad_work(work, shape), self._starts(shape)
        if len(work.slots) > self._room.slots or starts[-1] + work.blocks.size > self._room.numbers:
            return None
        host, blocks = self._host, planned.places[:, 0]
        host[: starts[4]] = 0
        arrays = (
            ids,
            work.positions,
            blocks,
            planned.places[:, 1],
            work.first_slots,
            work.items,
            work.slots,
            work.blocks,
        )
        for start, array in zip(starts, arrays, strict=True):
            host[start : start + array.size] = array.ravel()
        host[starts[2] + count : starts[2] + tokens] = -1
        end = starts[-1] + work.blocks.size
        self._numbers[:end].copy_(torch.from_numpy(host[:end]))
        self._run(self._shape(shape, work, starts))
        return self._hidden[:count]

    def _starts(self, shape: WorkShape) -> list[int]:
        """Return the offsets of a step's arrays in the buffer of integers, multiples of 16 bytes as in `upload`."""
        tokens, items = shape.queries, shape.narrow + shape.wide
        lengths = (tokens, tokens, tokens, tokens, tokens + 1, 5 * items, self._room.slots)
        return [0, *np.cumsum([-(-length // 4) * 4 for length in lengths]).tolist()]

    def _shape(self, shape: WorkShape, work: KernelWork, starts: list[int]) -> _Shape:
        """Return a shape, made on its first use; of too many shapes the least recently used is dropped."""
        if shape not in self._shapes:
            ids, positions, blocks, offsets, *arrays = (self._numbers[start:] for start in starts)
            ids, positions, blocks, offsets = (part[: shape.queries] for part in (ids, positions, blocks, offsets))
            first_slots, items, slots, kv_blocks = arrays
            launch = self._launch(work, positions, items, kv_blocks, slots, first_slots, self._partials, self._weights)
            hidden = self._hidden[: shape.queries]

            def run() -> None:
                self._operations.begin_on_device(positions, (blocks, offsets), launch)
                self._feed(ids, hidden, self.pool)

            self._shapes[shape] = _Shape(run)
            if len(self._shapes) > _SHAPES:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(shape)
        return self._shapes[shape]

    def _run(self, shape: _Shape) -> None:
        shape.steps += 1
        if shape.replay is not None:
            shape.replay()
            self.replays += 1
            return
        shape.run()
        if self._capture is not None and shape.steps >= _AFTER:
            self._make_graph(shape, self._capture)

    def _make_graph(self, shape: _Shape, capture: Capture) -> None:
        """Capture a shape that has just run, and replay it on the same step.

        Where the replay fails or differs, no more graphs are made.
        """
        kernel_hidden = self._hidden.clone()
        replay: Callable[[], None] | None = None
        try:
            replay = capture(shape.run)
            replay()
            exact = not self._operations.strict or torch.equal(
                kernel_hidden.view(torch.uint8), self._hidden.view(torch.uint8)
            )
            fault = "" if exact else "a replay has other bits than its kernels one by one"
        except RuntimeError as failure:
            fault = str(failure).partition("\n")[0] or type(failure).__name__
        if not fault:
            shape.replay = replay
            return
        self._hidden.copy_(kernel_hidden)
        self._capture = None
        LOG.warning("decode steps run without further CUDA graphs: %s", fault)


class CudaCapture:
    """Captures of steps as CUDA graphs that share one pool of memory.

    The graphs never run at the same time, and no result of a graph is read after the next graph has run.

    Args:
        device: A CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return a replay of the kernels that `run` launches, on the same addresses."""
        graph = torch.cuda.CUDAGraph()
        # other threads may use the device meanwhile: a process model's, or the caller's
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"),
        ):
            run()
        return graph.replay


def _power(count: int, least: int) -> int:
    """Return the smallest power of two that is at least `count`, or `least` if that is larger."""
    return max(least, 1 << (count - 1).bit_length())
