"""The operations of a decoder layer other than matrix products, on a GPU: Triton kernels.

The kernels also run on a CPU in Triton's interpreter, to be tested without a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.operations import AttentionExecutor, rotary_tables
from tts.backends.engine.planning import StepPlan
from tts.backends.kernels.draw import DrawRequest, HostDraws
from tts.backends.kernels.lowering import KernelWork, lower
from tts.backends.kernels.plan import AttentionPlan
from tts.errors import missing_extra

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

    def begin(self, planned: StepPlan) -> None:
        """Prepare a step: its plan is copied to the device once, for all layers."""
        config, plan = self.config, planned.plan
        self._positions = torch.from_numpy(plan.positions).to(self.device)
        places = torch.from_numpy(planned.places).to(self.device)
        self._places = (places[:, 0].contiguous(), places[:, 1].contiguous())
        self._work: Any = self.kernels.upload(
            self.lower_plan(plan),
            num_heads=config.kv_heads,
            size=config.head_size,
            device=self.device,
            room=self.room,
        )

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

    def draw(self, logits: Tensor, request: DrawRequest) -> HostDraws:
        """Draw a token for each row of a request, from logits [L, V]."""
        num_rows = len(request.rows)
        tokens, logprobs = np.empty(num_rows, np.int64), np.empty(num_rows, np.float64)
        for word in np.unique(request.words):  # a kernel call has one word of the random numbers' addresses
            indices = np.flatnonzero(request.words == word)
            draws = self._draw_rows(logits, request.take_rows(indices), int(word))
            tokens[indices] = draws.tokens
            logprobs[indices] = draws.logprobs
        return HostDraws(tokens, logprobs)

    def _draw_rows(self, logits: Tensor, request: DrawRequest, word: int) -> HostDraws:
        """Draw a token for each row of a request whose random numbers have the same word."""
        kernels, device = self.kernels, self.device
        samplings = request.samplings
        temperatures = torch.tensor([s.temperature for s in samplings], dtype=torch.float32, device=device)
        rows = torch.from_numpy(request.rows).to(device)
        kept = None
        if any(s.top_k or s.top_p < 1 or s.min_p for s in samplings):
            top_k = torch.tensor([min(s.top_k, logits.shape[1]) for s in samplings], device=device)
            top_p = torch.tensor([s.top_p for s in samplings], dtype=torch.float64, device=device)
            min_p = torch.tensor([s.min_p for s in samplings], dtype=torch.float64, device=device)
            kept = kernels.cut(logits[rows], temperatures, top_k, top_p, min_p)
        streams = torch.from_numpy(request.streams.view(np.int64)).to(device)
        positions = torch.from_numpy(request.positions).to(device)
        draws = kernels.draw(logits, temperatures, streams, positions, rows=rows, word=word, kept=kept)
        return HostDraws(draws.tokens.cpu().numpy(), draws.logprobs.cpu().numpy())


class _Kernels:
    """The Triton kernels, imported on use."""

    def __init__(self) -> None:
        from tts.backends.kernels import attention_triton, draw_triton, norm_triton, rope_triton

        self.attend = attention_triton.attend
        self.upload = attention_triton.upload
        self.make_room = attention_triton.make_room
        self.launch = attention_triton.KernelLaunch
        self.rope = rope_triton.rope
        self.draw = draw_triton.draw
        self.cut = draw_triton.cut
        self.norm = norm_triton.add_norm


def _triton() -> _Kernels:
    try:
        return _Kernels()
    except ModuleNotFoundError as failure:
        raise missing_extra("triton", "engine", "the executor 'triton'") from failure
