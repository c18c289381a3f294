"""Compilation of all kernels while a model is loaded, so that no problem waits for the compiler."""

from __future__ import annotations

from typing import Final, cast

import torch

from tts.backends.base import Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.engine.core import Runner
from tts.backends.engine.decoder import Decoder
from tts.backends.engine.device.graphs import LOG, Capture, FixedRoom, FixedSteps
from tts.backends.engine.device.operations import DeviceOperations
from tts.backends.engine.pool import BlockPool
from tts.backends.engine.scheduler import SchedulerLimits
from tts.backends.engine.tree import KVTree
from tts.backends.engine.work import PrefillJob, SampleJob
from tts.backends.kernels.plan import BLOCK
from tts.backends.text.row_state import PathText
from tts.errors import ConfigError

_PROMPT: Final = 100  # tokens for a device: enough for a wide tile, and for a run that rows share
_BLOCKS: Final = 16
_LAWS: Final = (Sampling(), Sampling(top_k=4, top_p=0.9, min_p=0.01))  # without a cut, and with every cut


def compile_kernels(decoder: Decoder, room: FixedRoom | None = None) -> None:
    """Run each kernel once in each of its forms: a prompt, rows behind it, and their draws.

    Args:
        decoder: The model.
        room: The sizes of the buffers for steps in fixed shapes; None: there are none.

    Raises:
        ConfigError: A kernel cannot be compiled, or cannot run on the device.
    """
    has_triton = decoder.executor in ("triton", "triton_strict")
    prompt, row = (_PROMPT, 3) if has_triton else (BLOCK, 1)
    tree = KVTree(decoder.pool(_BLOCKS))
    limits = SchedulerLimits(rows=min(2, room.tokens) if room else 2, tokens=prompt)
    runner = Runner(decoder, tree, limits, decode=lambda _: "", eos=frozenset())
    failures: list[str] = []
    for fixed in (None,) if room is None else (None, fixed_steps(decoder, tree.pool, room)):
        runner.fixed = fixed
        for size in (prompt, 1):  # a prompt of one token has kernels of its own on a CPU
            ids = [0] * max(1, min(size, decoder.config.context - row))
            node = tree.add(None, ids)
            if decoder.has_output_layer:
                reads = PrefillJob(tree.retain(node), len(ids), len(ids) - 1, lambda _: None, [(0,)])
                runner.add_prefill(reads)
                for law in _LAWS:
                    rows = Row(0, 0, row), Row(1, 0, row)
                    request = SampleRequest(None, rows, law, StopCondition(), spreads=True)
                    ended = lambda end: failures.append(end.error)  # noqa: E731
                    runner.add_samples(SampleJob(RowSet(request), tree.retain(node), PathText.skip(ids), ended))
                    while runner.busy:
                        runner.step()
            else:
                ended = lambda job: failures.append(str(job.failure or ""))  # noqa: E731
                runner.add_prefill(PrefillJob(tree.retain(node), len(ids), len(ids) - 1, ended))
            while runner.busy:
                runner.step()
            tree.release(node)
    failure = next(filter(None, failures), "")
    if failure:
        raise ConfigError(
            f"the engine's kernels cannot run on {decoder.device}: {failure}",
            hint="install a C compiler (gcc) if none was found, or run the model by the backend vllm",
        )


def fixed_steps(decoder: Decoder, pool: BlockPool, room: FixedRoom, capture: Capture | None = None) -> FixedSteps:
    """Return the runner of a model's decode steps in fixed shapes over a pool.

    Args:
        decoder: The decoder with Triton kernels.
        pool: The pool of key and value blocks.
        room: The sizes of the steps' buffers.
        capture: Captures a step as a graph; None: the steps run kernel by kernel.
    """
    return FixedSteps(cast("DeviceOperations", decoder.operations), decoder.feed, pool, room, capture=capture)


def check_card(device: torch.device, precision: str) -> None:
    """Warn of a CUDA device without tensor cores for a precision."""
    if device.type != "cuda" or precision != "bfloat16":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        LOG.warning(
            "%s (compute capability %d.%d) has no tensor cores for bfloat16, so that steps are slow: give "
            "precision='float32', or run the model in float16 by the backend vllm",
            torch.cuda.get_device_name(device),
            *capability,
        )
