"""The operations of a decoder layer other than matrix products, on a CPU.

Shapes: T tokens of a step, K hidden size, F intermediate size, H key-value heads, G query heads for each key-value
head, d head size, N blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.planning import StepPlan
from tts.backends.engine.pool import kernel_array
from tts.backends.kernels import attention_strict, layers
from tts.backends.kernels.draw import DrawRequest, HostDraws, LogitReading, ReadRequest, draw_rows, read_rows
from tts.backends.kernels.host import Team

AttentionExecutor = Literal["strict", "triton", "triton_strict"]
_NO_ROWS = np.empty((0, 0), np.float32)


class Operations(Protocol):
    """The operations of a decoder layer other than matrix products.

    `begin` opens a step. The other operations belong to the last opened step.
    """

    @property
    def on_device(self) -> bool:
        """Whether draws take numbers that are packed for a device."""
        ...

    @property
    def nbytes(self) -> int:
        """The bytes of buffers on a device."""
        ...

    def reserve(self, most_slots: int) -> None:
        """Make room on a device for the partial results of a step's attention, at least one for each token."""
        ...

    def begin(self, planned: StepPlan, arrays: Sequence[NDArray[np.int64]] = ()) -> list[Tensor]:
        """Prepare a step, and return arrays where the model runs, each of one dimension, until the next step."""
        ...

    def norm(self, hidden: Tensor, change: Tensor | None, weight: Tensor) -> Tensor:
        """Add `change` to `hidden`, in place, and return its RMS norm times `weight`."""
        ...

    def attend(self, qkv: Tensor, norms: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Rotate, write keys and values to the layer's pool, and return each token's attention, [T, H G d]."""
        ...

    def gate(self, both: Tensor) -> Tensor:
        """Return silu(gate) * up from [T, 2 F]."""
        ...

    def draw(self, logits: Tensor, request: DrawRequest, packed: Tensor | None = None) -> HostDraws:
        """Draw a token for each row of a request, from logits [L, V].

        `packed` is the result of `request.pack()`, on a device.
        """
        ...

    def read(self, logits: Tensor, request: ReadRequest, packed: Tensor | None = None) -> list[LogitReading | None]:
        """Return what is read of each row of a request, from logits [L, V]; None for a row that is not valid.

        `packed` is the result of `request.pack()`, on a device.
        """
        ...


def rotary_tables(config: DecoderConfig) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, rounded as the transformers library rounds them.

    Each is [context, d / 2] float32.
    """
    angles = torch.arange(config.context).float()[:, None] * torch.from_numpy(config.frequencies)[None, :]
    return angles.cos() * config.amplitude, angles.sin() * config.amplitude


class HostOperations:
    """The operations on a CPU: compiled kernels, each row bit for bit as it would be alone.

    Args:
        config: The shapes and constants of the model.
        team: The threads that share a call.
    """

    on_device = False
    nbytes = 0

    def __init__(self, config: DecoderConfig, team: Team) -> None:
        self._config = config
        self._team = team
        self._tables = [table.numpy() for table in rotary_tables(config)]

    def reserve(self, most_slots: int) -> None:
        """Make no room, since a CPU's attention has no partial results."""

    def begin(self, planned: StepPlan, arrays: Sequence[NDArray[np.int64]] = ()) -> list[Tensor]:
        """Prepare a step, and return the arrays as tensors."""
        self._planned = planned
        return [torch.from_numpy(array.ravel()) for array in arrays]

    def norm(self, hidden: Tensor, change: Tensor | None, weight: Tensor) -> Tensor:
        """Add `change` to `hidden`, in place, and return its RMS norm times `weight`."""
        out = torch.empty_like(hidden)
        change_array = _NO_ROWS if change is None else change.numpy()
        args = (hidden.numpy(), change_array, weight.numpy(), self._config.eps, out.numpy())
        self._share_rows(layers.add_norm, args, *hidden.shape)
        return out

    def attend(self, qkv: Tensor, norms: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Rotate, write keys and values to the layer's pool, and return each token's attention, [T, H G d]."""
        config = self._config
        cosines, sines = self._tables
        plan, places = self._planned.plan, self._planned.places
        heads, group, head_size = config.kv_heads, config.group, config.head_size
        rows, columns = qkv.shape
        queries = np.empty((heads, rows, group, head_size), np.float32)
        kv_arrays = kernel_array(keys), kernel_array(values)
        args = (qkv.numpy(), plan.positions, cosines, sines, places, norms.numpy(), config.eps, *kv_arrays, queries)
        self._share_rows(layers.rotate_write, args, rows, columns)
        out = torch.empty(rows, heads, group, head_size)
        attention_strict.attend(plan, queries, *kv_arrays, out.numpy(), self._team)
        return out.view(rows, -1)

    def gate(self, both: Tensor) -> Tensor:
        """Return silu(gate) * up from [T, 2 F]."""
        out = torch.empty(len(both), both.shape[1] // 2)
        self._share_rows(layers.gate, (both.numpy(), out.numpy()), *both.shape)
        return out

    def draw(self, logits: Tensor, request: DrawRequest, packed: Tensor | None = None) -> HostDraws:
        """Draw a token for each row of a request, from logits [L, V]."""
        del packed
        return draw_rows(logits.numpy(), request, self._team)

    def read(self, logits: Tensor, request: ReadRequest, packed: Tensor | None = None) -> list[LogitReading | None]:
        """Return what is read of each row of a request, from logits [L, V]; None for a row that is not valid."""
        del packed
        return read_rows(logits.numpy(), request)

    def _share_rows(self, kernel: Callable[..., None], args: tuple[Any, ...], rows: int, columns: int) -> None:
        """Call a kernel for [rows, columns] numbers, with intervals of rows on several threads where this pays."""
        intervals = self._team.cuts(rows, rows * columns, worth=1 << 17)
        self._team.run(kernel, [(*args, begin, end) for begin, end in intervals])
