"""The operations of a decoder layer other than matrix products, on a GPU: Triton kernels.

The kernels also run on a CPU in Triton's interpreter, to be tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.device.memory import StepBuffer, download, starts_of
from tts.backends.engine.operations import AttentionExecutor, rotary_tables
from tts.backends.engine.planning import StepPlan
from tts.backends.kernels.draw import DrawRequest, HostDraws, LogitReading, ReadRequest
from tts.backends.kernels.lowering import KernelWork, lower
from tts.backends.kernels.plan import AttentionPlan
from tts.errors import MissingDependency

_NUMBERS = 1 << 16  # integers of a step; larger steps have larger buffers
_SLOTS = 640  # room for partial results, unless another number is reserved


class DeviceOperations:
    """The operations of a decoder layer on a GPU.

    With "triton_strict" a row's numbers do not depend on other rows. With "triton" their last bits may.

    Args:
        config: The shapes and constants of the model.
        executor: "triton" or "triton_strict".
        device: Where the model runs.
        dtype: The type of the model's numbers.

    Attributes:
        strict: Whether a row's numbers do not depend on other rows.
        kernels: The kernels, written in Triton.
        room: The partial results of a step's attention and their weights, which all layers and steps use.

    Raises:
        MissingDependency: triton is not installed.
    """

    on_device = True

    def __init__(
        self, config: DecoderConfig, executor: AttentionExecutor, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self.kernels = _triton()
        self.strict = executor == "triton_strict"
        cosines, sines = rotary_tables(config)
        self._tables = (cosines.to(device), sines.to(device))
        self.reserve(_SLOTS)
        self._numbers = StepBuffer(_NUMBERS, device)
        is_cuda = device.type == "cuda"
        processors = torch.cuda.get_device_properties(device).multi_processor_count if is_cuda else 132
        self._programs = 2 * processors  # a processor runs two of them at once

    @property
    def nbytes(self) -> int:
        """The bytes of the room for partial results."""
        return sum(part.nbytes for part in self.room)

    def reserve(self, most_slots: int) -> None:
        """Make room for the partial results of a step's attention, at least one for each token of a step."""
        config = self.config
        self.room = self.kernels.make_room(most_slots, config.kv_heads, config.group, config.head_size, self.device)

    def begin(self, planned: StepPlan, arrays: Sequence[NDArray[np.int64]] = ()) -> list[Tensor]:
        """Prepare a step, and return arrays on the device; all that the step needs is copied there at once."""
        plan, work = planned.plan, self.lower_plan(planned.plan)
        kernel_arrays = (work.positions, work.items, work.runs, work.blocks, work.slots, work.first_slots)
        own = (*kernel_arrays, plan.positions, *planned.places.T)
        uploaded = self.upload((*own, *arrays))
        kernel_tensors, (self._positions, blocks, offsets) = uploaded[:6], uploaded[6 : len(own)]
        self._places = (blocks, offsets)
        launch: Any = self.kernels.launch
        self._work = launch(work, *kernel_tensors, *self.room)
        return uploaded[len(own) :]

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
        """Return arrays on the device, copied there at once. They are valid until the next call."""
        needed = starts_of([array.nbytes // 4 for array in arrays])[-1]
        if needed > len(self._numbers.host):
            self._numbers = StepBuffer(2 * needed, self.device)
        return self._numbers.upload(arrays)

    def lower_plan(self, plan: AttentionPlan) -> KernelWork:
        """Return the Triton kernels' work for a plan."""
        return lower(
            plan,
            group=self.config.group,
            split=256 if self.strict else None,
            element_bytes=self.dtype.itemsize,
            strict=self.strict,
            heads=self.config.kv_heads,
            programs=self._programs,
            most_slots=len(self.room[0]),
        )

    def begin_on_device(self, positions: Tensor, places: tuple[Tensor, Tensor], launch: Any) -> None:
        """Prepare a step whose arrays are on the device, in the forms that `begin` makes.

        A token with block -1 writes no keys and values.
        """
        self._positions, self._places, self._work = positions, places, launch

    def norm(self, hidden: Tensor, change: Tensor | None, weight: Tensor) -> Tensor:
        """Add `change` to `hidden`, in place, and return its RMS norm times `weight`."""
        if self.strict:  # torch's sums of a row may depend on the number of rows
            return self.kernels.norm(hidden, change, weight, self.config.eps)
        if change is not None:
            hidden += change
        return functional.rms_norm(hidden, weight.shape, weight, self.config.eps)

    def attend(self, qkv: Tensor, norms: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Rotate, write keys and values to the layer's pool, and return each token's attention, [T, H G d]."""
        config = self.config
        if self.device.type == "cpu":
            keys = keys.transpose(-1, -2)  # the pool of a CPU has keys as [H, N, d, BLOCK]
        head_norms = (norms[0], norms[1]) if len(norms) else None
        queries = self.kernels.rope(
            qkv, self._positions, self._tables, self._places, keys, values, norms=head_norms, eps=config.eps
        )
        out = torch.empty(
            len(qkv), config.kv_heads, config.group, config.head_size, dtype=self.dtype, device=self.device
        )
        self.kernels.attend(self._work, queries, keys, values, out)
        return out.view(len(qkv), -1)

    def gate(self, both: Tensor) -> Tensor:
        """Return silu(gate) * up from [T, 2 F]."""
        gates, up = both.chunk(2, dim=-1)
        return functional.silu(gates) * up

    def draw(self, logits: Tensor, request: DrawRequest, packed: Tensor | None = None) -> HostDraws:
        """Draw a token for each row of a request, from logits [L, V].

        `packed` is what `request.pack()` gives, on the device. The results are copied to the host at once.
        """
        count, order = len(request.rows), request.by_word
        if packed is None:
            (packed,) = self.upload([request.pack()])
        numbers = packed.view(7, count)
        drawn = torch.empty(3, count, dtype=torch.int64, device=self.device)  # tokens, and bits of log-probabilities
        words = request.words[order]
        edges = [0, *(np.flatnonzero(np.diff(words)) + 1).tolist(), count]
        for begin, end in pairwise(edges):  # a kernel call has one word of the random numbers' addresses
            laws = [request.samplings[index] for index in order[begin:end].tolist()]
            is_cut = any(law.top_k or law.top_p < 1 or law.min_p for law in laws)
            self._draw_rows(logits, numbers[:, begin:end], drawn[:, begin:end], int(words[begin]), is_cut=is_cut)
        has_spreads = bool(request.spreads.any())
        spreads = self.kernels.spreads(logits, numbers[0]) if has_spreads else ()
        tokens, *found = self._download(drawn, *(part.view(torch.int64) for part in spreads))
        draws, (tokens, logprobs, laws) = HostDraws.empty(count), tokens.reshape(3, count)
        draws.tokens[order], draws.logprobs[order] = tokens, logprobs.view(np.float64)
        draws.sampling_logprobs[order] = laws.view(np.float64)
        if has_spreads:
            totals, likely = (numbers.view(np.float64).reshape(count, -1) for numbers in found)
            size = logits.shape[1]
            certainty = -totals[:, 0] / size - np.log(size)
            draws.spreads[order] = np.stack([certainty, -likely.mean(axis=1), -totals[:, 1]], axis=1).clip(min=0)
        return draws

    def read(self, logits: Tensor, request: ReadRequest, packed: Tensor | None = None) -> list[LogitReading | None]:
        """Return what is read of each row of a request, from logits [L, V]; None for a row that is not valid.

        `packed` is what `request.pack()` gives, on the device. The results are copied to the host at once.
        """
        if packed is None:
            (packed,) = self.upload([request.pack()])
        count, counts = len(request.rows), [len(ids) for ids in request.tokens]
        wanted = count + sum(counts)
        rows, indices, tokens = packed.split([count, wanted, wanted])
        found, likely = self.kernels.read(logits, rows, indices, tokens, top=request.top)
        numbers, ids = self._download(found.view(torch.int64), likely)
        logprobs, likely_logprobs = np.split(numbers.view(np.float64), [wanted])
        shape = (count, request.top)
        tops = zip(ids.reshape(shape).tolist(), likely_logprobs.reshape(shape).tolist(), strict=True)
        rows_of = np.split(logprobs, np.cumsum(np.array(counts) + 1)[:-1])  # each ends with that of token 0
        return [
            None if np.isnan(row[-1]) else LogitReading(row[:-1], tuple(zip(*top, strict=True)))
            for row, top in zip(rows_of, tops, strict=True)
        ]

    def _download(self, *parts: Tensor) -> list[NDArray[np.int64]]:
        """Return integers on the host, each of one dimension, copied at once."""
        host = download(torch.cat([part.ravel() for part in parts]))
        return np.split(host, np.cumsum([part.numel() for part in parts])[:-1])

    def _draw_rows(self, logits: Tensor, numbers: Tensor, drawn: Tensor, word: int, *, is_cut: bool) -> None:
        """Write the draws of rows whose random numbers have the same word.

        `numbers` [7, R] is as `DrawRequest.pack` gives it. `drawn` is [3, R].
        """
        rows, streams, positions, top_k = numbers[:4]
        temperatures, top_p, min_p = numbers[4:].view(torch.float64)
        temperatures, kept = temperatures.float(), None
        if is_cut:
            top_k = top_k.clamp(max=logits.shape[1])
            kept = self.kernels.cut(logits[rows], temperatures, top_k, top_p, min_p)
        out = self.kernels.draws(drawn[0], *drawn[1:].view(torch.float64))
        self.kernels.draw(logits, temperatures, streams, positions, rows=rows, word=word, kept=kept, out=out)


class _Kernels:
    """The Triton kernels, imported on use."""

    def __init__(self) -> None:
        from tts.backends.kernels import attention_triton, draw_triton, norm_triton, rope_triton

        self.attend = attention_triton.attend
        self.make_room = attention_triton.make_room
        self.launch = attention_triton.KernelLaunch
        self.rope = rope_triton.rope
        self.draw = draw_triton.draw
        self.draws = draw_triton.DeviceDraws
        self.cut = draw_triton.cut
        self.read = draw_triton.read
        self.spreads = draw_triton.spreads
        self.norm = norm_triton.add_norm


def _triton() -> _Kernels:
    try:
        return _Kernels()
    except ModuleNotFoundError as failure:
        raise MissingDependency(
            f"the executor 'triton' needs triton, and {failure.name} is not installed",
            hint="pip install triton (1 GB), which torch's builds for CUDA bring with them",
        ) from failure
