"""From a record to a running engine: which precision, executor and memory it gets on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from tts.backends.base import Sampling
from tts.backends.engine.backend import EngineBackend
from tts.backends.engine.config import read_config
from tts.backends.engine.core import Runner
from tts.backends.engine.decoder import Decoder
from tts.backends.engine.heads import StepTemplate, ValueHead
from tts.backends.engine.linear import Precision, packs
from tts.backends.engine.operations import Executor
from tts.backends.engine.reward import RewardModel
from tts.backends.engine.scheduler import Limits
from tts.backends.engine.tree import KVTree
from tts.backends.engine.weights import Checkpoint, read_checkpoint
from tts.backends.engine.work import Reading
from tts.backends.kernels.draw import Asked
from tts.backends.kernels.plan import BLOCK
from tts.backends.rendering import Renderer, eos_ids
from tts.errors import ConfigError, KVBudgetError
from tts.models.registry import ModelRecord, rates, refuse_url

EXECUTORS = ("strict", "two_level", "triton", "reference")
PRECISIONS = ("float32", "int8", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How a model runs.

    Args:
        device: a torch device; None: "cuda" where there is one, else "cpu".
        precision: "float32"; "int8" (a CPU's linear layers, output layer apart); "bfloat16" (a CPU's linear layers, where it has
            instructions for it; everything on other devices). None: float32 on a CPU, bfloat16 elsewhere.
        executor: of attention: "strict" (a CPU), "two_level", "triton" or "reference"; None: strict on a CPU, triton elsewhere.
        threads: that share a step on a CPU; None: as many as torch has.
        max_rows: most rows written at once; None: 64 on a CPU, 256 elsewhere. Others wait.
        step_tokens: most tokens of prompts and texts read in a step beside them; None: 256 on a CPU, 2,048 elsewhere.
        kv_budget: bytes for keys and values; None: 2 GiB on a CPU, 80 % of what is free elsewhere. A CPU's memory is taken when it
            is used.
        share: whether rows read common ancestors together; False reads every path alone, to measure what sharing is worth.

    Raises:
        ConfigError: a value is not valid, or does not go with the device.
    """

    device: str | None = None
    precision: str | None = None
    executor: str | None = None
    threads: int | None = None
    max_rows: int | None = None
    step_tokens: int | None = None
    kv_budget: int | None = None
    share: bool = True

    def __post_init__(self) -> None:
        for name in ("threads", "max_rows", "step_tokens", "kv_budget"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1, or None")
        for name, known in (("precision", PRECISIONS), ("executor", EXECUTORS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise ConfigError(f"{name} is {value!r}, but must be {', '.join(known)} or None")
        host = self.place.type == "cpu"
        if host and self.precision == "bfloat16" and not packs(torch.bfloat16):
            raise ConfigError("precision is 'bfloat16', but this CPU has no instructions for it", hint="leave precision out")
        if not host and (self.precision == "int8" or self.executor == "strict"):
            raise ConfigError(f"precision 'int8' and executor 'strict' are a CPU's, but the device is {self.place}", hint="leave them out")

    @property
    def place(self) -> torch.device:
        """The device.

        Raises:
            ConfigError: torch knows no such device.
        """
        try:
            return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except RuntimeError as failure:
            raise ConfigError(f"device is {self.device!r}, which torch does not know", hint="cpu, or cuda") from failure


def build(
    record: ModelRecord,
    *,
    heads: Mapping[str, ValueHead] | None = None,
    reward_models: Mapping[str, RewardModel] | None = None,
    **options: Any,
) -> EngineBackend:
    """Load a model by its record.

    Args:
        record: with weights in a package, a folder or on the Hub.
        heads: value heads on the hidden states, by name. reward_models: process models, by name (see `build_reward_model`).
        options: see `EngineOptions`.

    Raises:
        ConfigError: the model cannot be had or is of a kind that the engine does not run, an option is not valid, or the
            record has a url.
    """
    refuse_url(record)
    checkpoint = read_checkpoint(record)
    runner, renderer = make_runner(checkpoint, EngineOptions(**options), heads=heads)
    identity = _identity(checkpoint.digest, runner.decoder)
    return EngineBackend(runner, renderer, identity=identity, rates=rates(record), reward_models=reward_models)


def build_reward_model(record: ModelRecord, template: Callable[[Renderer], StepTemplate], **options: Any) -> RewardModel:
    """Load a process model to stand beside a policy.

    Args:
        record: of a decoder of the kinds that the engine runs.
        template: makes the template from the model's renderer, which knows its tokens.
        options: see `EngineOptions`.

    Raises:
        ConfigError: as `build`.
    """
    refuse_url(record)
    runner, renderer = make_runner(read_checkpoint(record), EngineOptions(**options))
    return RewardModel(runner, template(renderer), renderer.prompt)


def make_runner(checkpoint: Checkpoint, options: EngineOptions, *, heads: Mapping[str, ValueHead] | None = None) -> tuple[Runner, Renderer]:
    """Return a model's step loop and its renderer.

    Raises:
        ConfigError: the model is of a kind that the engine does not run, or its files do not fit together.
        KVBudgetError: the memory for keys and values does not hold one block.
    """
    place, config = options.place, read_config(checkpoint.config)
    host = place.type == "cpu"
    for name, head in (heads or {}).items():
        if head.weight.shape != (config.hidden,):
            raise ConfigError(f"the value head {name!r} has a weight of shape {head.weight.shape}, but the hidden size is {config.hidden}")
    decoder = Decoder(
        config,
        checkpoint.weights,
        precision=cast("Precision", options.precision or ("float32" if host else "bfloat16")),
        executor=cast("Executor", options.executor or ("strict" if host else "triton")),
        threads=options.threads or torch.get_num_threads(),
        device=place,
    )
    if decoder.executor == "strict":
        _compile_kernels(decoder)
    eos = eos_ids(checkpoint.generation, checkpoint.config, checkpoint.tokenizer)
    renderer = Renderer(checkpoint.tokenizer, eos)
    limits = Limits(rows=options.max_rows or (64 if host else 256), tokens=options.step_tokens or (256 if host else 2048))
    tree = KVTree(decoder.pool(_num_blocks(decoder, options.kv_budget, place)))
    return Runner(decoder, tree, limits, decode=renderer.decode, eos=eos, heads=heads, share=options.share), renderer


def _compile_kernels(decoder: Decoder) -> None:
    """Read and draw one token, so that kernels are compiled while the model is loaded, and not in some problem's time."""
    tree = KVTree(decoder.pool(1))
    runner = Runner(decoder, tree, Limits(rows=1, tokens=1), decode=lambda _: "", eos=frozenset())
    reading = Reading(tree.add(None, [0]), 1, 0, lambda _: None)
    runner.read(reading)
    while runner.busy:
        runner.step()
    zero, address = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    decoder.operations.draw(torch.from_numpy(reading.result()), Asked(zero, [Sampling()], address, zero, address))


def _num_blocks(decoder: Decoder, budget: int | None, place: torch.device) -> int:
    """Return how many blocks a budget in bytes holds."""
    if budget is None:
        budget = 2 << 30 if place.type == "cpu" else int(torch.cuda.mem_get_info(place)[0] * 0.8)
    size = BLOCK * decoder.kv_shape.bytes_per_token
    if budget < size:
        raise KVBudgetError(f"kv_budget is {budget} bytes, but one block of {BLOCK} tokens takes {size}", hint="give it more")
    return budget // size


def _identity(digest: str, decoder: Decoder) -> str:
    return f"engine weights={digest} precision={decoder.precision} executor={decoder.executor} device={decoder.device.type}"
