"""The logits processor that runs inside vLLM.

The processor draws a token by the row's own stream, and raises its logit above all others. vLLM's own draws come from
one generator, in the order of its batch, or from a seed for each request. A row drawn so cannot be continued where it
stopped, and seeds end the engine on CPUs in version 0.32. Here every draw has an address, as on every other backend.
The engine's greedy choice is the drawn token. Log-probabilities are taken before, from the untempered distribution.
Measured with vLLM 0.32 on CPUs. On GPUs the same model runner calls the processor (`VLLM_USE_V2_MODEL_RUNNER=0`), which
was not tried.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor  # pyright: ignore[reportMissingImports]
from vllm.v1.sample.logits_processor.builtin import process_dict_updates  # pyright: ignore[reportMissingImports]

from tts.backends.base import Sampling
from tts.backends.vllm.backend import DRAWS
from tts.backends.vllm.draw import draw_tokens
from tts.backends.vllm.engine import STARTER
from tts.randomness import uniforms

_WATCH_S = 2.0  # seconds between two looks for the process that started vLLM


class _DrawnRow(NamedTuple):
    """A row of vLLM's batch whose tokens are drawn here: the address of its draws, and its generated tokens.

    The list `written` is vLLM's own, and grows. The next draw is at `position` plus the list's length.
    """

    stream: int
    position: int
    word: int
    sampling: Sampling
    written: list[int]


class Streams(LogitsProcessor):  # pyright: ignore[reportUntypedBaseClass]
    """Draws tokens for the rows of vLLM's batch that have an address; other rows keep their logits."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: Any) -> None:
        del vllm_config, device, is_pin_memory
        _end_with(int(os.environ.get(STARTER, "0")))
        self._rows: dict[int, _DrawnRow] = {}  # by place in the batch

    def is_argmax_invariant(self) -> bool:
        """Whether the most likely token stays the same: no."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Record which row is at which place of the batch."""
        process_dict_updates(self._rows, batch_update, _read_request)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Draw a token for each row, and raise its logit above all others."""
        if not self._rows:
            return logits
        places = list(self._rows)
        rows = list(self._rows.values())
        streams = np.array([row.stream for row in rows], np.uint64)
        positions = np.array([row.position + len(row.written) for row in rows], np.int64)
        words = np.array([row.word for row in rows], np.uint64)
        samplings = [row.sampling for row in rows]
        tokens = draw_tokens(logits[places], samplings, uniforms(streams, positions, words))
        logits[places, tokens] = torch.finfo(logits.dtype).max
        return logits


def _end_with(starter: int) -> None:
    """Watch the process `starter`, which started vLLM, and end vLLM after it; 0: nothing is watched.

    Otherwise the engine of a killed process would wait for ever. The caller is a worker, which is the engine's child,
    or the engine itself.
    """
    parent = os.getppid()

    def watch() -> None:
        with suppress(ProcessLookupError):
            while True:
                os.kill(starter, 0)  # sends nothing, and raises once the process has ended
                time.sleep(_WATCH_S)
        if parent not in (starter, 0) and os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)
        os._exit(1)

    if starter:
        threading.Thread(target=watch, name="tts-starter", daemon=True).start()


def _read_request(params: Any, prompt: Any, written: list[int]) -> _DrawnRow | None:
    """Return the row of a request; None where vLLM draws the row's tokens itself."""
    del prompt
    draws = (params.extra_args or {}).get(DRAWS)
    if draws is None:
        return None
    stream, position, word, temperature, top_p, top_k, min_p = draws
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    return _DrawnRow(stream, position, word, sampling, written)
