"""Decode steps in fixed shapes, which a GPU replays as CUDA graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts._core.logs import get_logger
from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.device.memory import StepBuffer, starts_of
from tts.backends.engine.device.operations import DeviceOperations
from tts.backends.engine.planning import StepPlan
from tts.backends.engine.pool import BlockPool
from tts.backends.kernels.lowering import KernelWork, WorkShape, pad_work

Capture = Callable[[Callable[[], None]], Callable[[], None]]  # a function that launches kernels -> its replay
LOG = get_logger("tts.engine")

_TOKENS = (1, 2, 4, 8, *range(16, 257, 16))  # the numbers of tokens of fixed steps
_NARROW, _WIDE = 32, 8  # the fewest narrow and wide runs of attention that a step is padded to
_NUMBERS = 2048  # room for integers, a token; counted for at least 16 tokens
_STEPS_BEFORE_CAPTURE = 8  # steps of one shape until it is captured
_SHAPES = 128  # most shapes that are kept


class FixedRoom(NamedTuple):
    """The room of the buffers for fixed steps.

    The fields are the most tokens, and the most integers of a step's arrays.
    """

    tokens: int
    numbers: int

    @classmethod
    def of(cls, rows: int) -> FixedRoom:
        """Return room for steps of up to `rows` rows, at most 256."""
        tokens = next(size for size in _TOKENS if size >= min(rows, _TOKENS[-1]))
        return cls(tokens, numbers=_NUMBERS * max(tokens, 16))

    def nbytes(self, config: DecoderConfig, dtype: torch.dtype) -> int:
        """Return the bytes of the buffers on the device."""
        return 4 * self.numbers + self.tokens * config.hidden * dtype.itemsize


@dataclass(slots=True, eq=False)
class _Shape:
    """A shape of steps.

    `run` runs the layers on the contents of the buffers. `replay` does the same by a captured graph; None: no graph.
    """

    run: Callable[[], None]
    replay: Callable[[], None] | None = None
    steps: int = 0


class FixedSteps:
    """Decode steps in fixed shapes, over buffers at fixed addresses, so that CUDA graphs can replay them.

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
        misses: Steps that did not fit the buffers.
        refusal: Why no more graphs are made; "": they are made.
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
        self.misses = 0
        self.refusal = ""
        self._operations = operations
        self._feed = feed
        self._room = room
        self._capture = capture
        self._launch = operations.kernels.launch
        config, device = operations.config, operations.device
        self._numbers = StepBuffer(room.numbers, device)
        self._hidden = torch.zeros(room.tokens, config.hidden, dtype=operations.dtype, device=device)
        self._shapes: OrderedDict[WorkShape, _Shape] = OrderedDict()

    def run(
        self, ids: NDArray[np.int64], planned: StepPlan, others: Sequence[NDArray[np.int64]] = ()
    ) -> tuple[Tensor, list[Tensor]] | None:
        """Run the layers of a step, and return its hidden states; None where the buffers are too small.

        The hidden states are [T, K]. They and the other arrays are valid until the next step.

        Args:
            ids: [T] tokens in the plan's order.
            planned: The plan of the step.
            others: Further arrays, which are copied to the device and returned with the hidden states.
        """
        num_tokens = len(ids)
        if not 0 < num_tokens <= self._room.tokens:
            return self._miss()
        work = self._operations.lower_plan(planned.plan)
        # the sizes of the padded step
        padded_tokens = next(size for size in _TOKENS if size >= num_tokens)
        num_wide = len(work.items) - work.num_narrow
        shape = WorkShape(
            queries=padded_tokens,
            narrow=_power_of_two(work.num_narrow, _NARROW),
            wide=_power_of_two(num_wide, _WIDE) if num_wide else 0,
        )
        work, starts = pad_work(work, shape), self._starts(shape)
        other_numbers = [np.ascontiguousarray(array).ravel().view(np.int32) for array in others]
        other_starts = starts_of([work.blocks.size, *map(len, other_numbers)])
        end = starts[-1] + other_starts[-1]
        if len(work.runs) > len(work.items) or end > self._room.numbers:
            return self._miss()
        blocks, offsets = planned.places[:, 0], planned.places[:, 1]
        arrays = (
            ids,
            work.positions,
            blocks,
            offsets,
            work.first_slots,
            work.items,
            work.runs,
            work.slots,
            work.blocks,
        )
        _, _, blocks_start, _, slots_start, *_ = starts
        self._numbers.wait()
        host_numbers = self._numbers.host
        host_numbers[:slots_start] = 0  # the padding of the first four arrays, one number a token
        for start, array in zip(starts, arrays, strict=True):
            host_numbers[start : start + array.size] = array.ravel()
        host_numbers[blocks_start + num_tokens : blocks_start + padded_tokens] = -1  # padding writes no keys
        tensors: list[Tensor] = []
        for start, array in zip(other_starts[1:], other_numbers, strict=False):
            place = slice(starts[-1] + start, starts[-1] + start + len(array))
            host_numbers[place] = array
            tensors.append(self._numbers.device[place].view(torch.int64))
        self._numbers.copy(end)
        self._run(self._shape(shape, work, starts))
        return self._hidden[:num_tokens], tensors

    def _miss(self) -> None:
        self.misses += 1

    def _starts(self, shape: WorkShape) -> list[int]:
        """Return the offsets of a step's nine arrays in the buffer of integers.

        The arrays are those of `run`. Their offsets are multiples of 16 bytes, as in `upload`.
        """
        tokens, items = shape.queries, shape.narrow + shape.wide
        most_slots = len(self._operations.room[0])
        lengths = (tokens, tokens, tokens, tokens, tokens + 1, 5 * items, 2 * items, most_slots)
        return starts_of(lengths)

    def _shape(self, shape: WorkShape, work: KernelWork, starts: list[int]) -> _Shape:
        """Return a shape, made on its first use; of too many shapes the least recently used is dropped."""
        if shape not in self._shapes:
            arrays = [self._numbers.device[start:] for start in starts]
            ids, positions, blocks, offsets = (array[: shape.queries] for array in arrays[:4])
            first_slots, items, runs, slots, kv_blocks = arrays[4:]
            launch = self._launch(work, positions, items, runs, kv_blocks, slots, first_slots, *self._operations.room)
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
        """Run the step in the buffers, by the shape's graph where there is one."""
        shape.steps += 1
        if shape.replay is not None:
            shape.replay()
            self.replays += 1
            return
        shape.run()
        if self._capture is not None and shape.steps >= _STEPS_BEFORE_CAPTURE:
            self._make_graph(shape, self._capture)

    def _make_graph(self, shape: _Shape, capture: Capture) -> None:
        """Capture a shape that has just run, and replay the step as a test.

        Where the capture or the replay fails, or its bits differ in strict mode, no more graphs are made.
        """
        kernel_hidden = self._hidden.clone()
        replay: Callable[[], None] | None = None
        try:
            replay = capture(shape.run)
            replay()
            fault = ""
            if self._operations.strict:
                kernel_bits, replay_bits = kernel_hidden.view(torch.uint8), self._hidden.view(torch.uint8)
                if not torch.equal(kernel_bits, replay_bits):
                    fault = "a replay has other bits than its kernels one by one"
        except RuntimeError as failure:
            fault = str(failure).partition("\n")[0] or type(failure).__name__
        if not fault:
            shape.replay = replay
            return
        self._hidden.copy_(kernel_hidden)
        self._capture, self.refusal = None, fault
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
        # "thread_local", since other threads may use the device meanwhile: a process model's, or the caller's
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"),
        ):
            run()
        return graph.replay


def _power_of_two(count: int, least: int) -> int:
    """Return the smallest power of two that is at least `count`, or `least` if that is larger."""
    return max(least, 1 << (count - 1).bit_length())
