"""Loading of an engine's parts by record, with the precision, executor and memory for this machine."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import torch

from tts.backends.engine.compiling import check_card, compile_kernels, fixed_steps
from tts.backends.engine.config import read_config
from tts.backends.engine.core import Runner
from tts.backends.engine.decoder import Decoder
from tts.backends.engine.device.graphs import LOG, CudaCapture, FixedRoom
from tts.backends.engine.device.memory import held_models, hold, loading_on, pool_bytes, resolve_device
from tts.backends.engine.heads import HeadReadout, LikelihoodReadout, StepTemplate, ValueHead, needs_logits
from tts.backends.engine.int8 import check_int8
from tts.backends.engine.linear import Precision
from tts.backends.engine.operations import AttentionExecutor
from tts.backends.engine.pool import KVPrecision
from tts.backends.engine.reward import RewardModel
from tts.backends.engine.scheduler import SchedulerLimits
from tts.backends.engine.tree import KVTree
from tts.backends.engine.weights import Checkpoint, num_weights, read_checkpoint, read_heads, read_readout
from tts.backends.kernels.plan import BLOCK
from tts.backends.loading.cpu import check_bfloat16
from tts.backends.loading.expected import expected_models
from tts.backends.text.rendering import Renderer, eos_ids
from tts.budget.budget import Rates
from tts.errors import ConfigError, KVBudgetError
from tts.models.registry import ModelRecord, process_records, rates, refuse_url

EXECUTORS = ("strict", "triton", "triton_strict")
PRECISIONS = ("float32", "int8", "bfloat16")
_SLOTS = 64  # room for partial results of attention, a row


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of how a model runs.

    Args:
        device: A torch device; None: "cuda" where there is one, else "cpu".
        precision: "float32"; "int8" (on a CPU, all linear layers but the output layer); "bfloat16" (on a CPU the linear
            layers, on other devices everything). None: float32 on a CPU, bfloat16 elsewhere. A precision in which this
            CPU would be slower than in float32 is refused.
        executor: What computes attention: "strict", "triton" or "triton_strict". None: strict on a CPU, triton
            elsewhere. With "strict" a row's numbers do not depend on its batch; on a GPU "strict" stands for
            "triton_strict".
        kv_precision: The type of keys and values on a CPU: "float32", or "float16" for half the memory (executor
            "strict"). None: float32 on a CPU, the model's elsewhere.
        threads: The threads that share a step on a CPU; None: torch's number of threads.
        max_rows: Most rows under way at once; None: 64 on a CPU, 256 elsewhere. Further rows wait.
        step_tokens: Most prefill tokens of a step; None: 256 on a CPU, 2,048 elsewhere.
        kv_budget: Bytes for keys and values of each model; None: 2 GiB on a CPU. Elsewhere all models of the run share
            80 % of the memory beside their weights. A CPU's memory is allocated on use.
        share: Whether rows read common ancestors together; False reads every path alone, for comparison.
        cuda_graphs: Whether a CUDA device replays decode steps as graphs, which launch all kernels of a step at once.
            The graphs' buffers count as a part of `kv_budget`. None: graphs on a CUDA device.

    Raises:
        ConfigError: a value is not valid, or does not fit the device.
    """

    device: str | None = None
    precision: str | None = None
    executor: str | None = None
    kv_precision: str | None = None
    threads: int | None = None
    max_rows: int | None = None
    step_tokens: int | None = None
    kv_budget: int | None = None
    share: bool = True
    cuda_graphs: bool | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "max_rows", "step_tokens", "kv_budget"):
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if value is not None and not is_count:
                raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1, or None")
        for name, choices in (
            ("precision", PRECISIONS),
            ("executor", EXECUTORS),
            ("kv_precision", get_args(KVPrecision)),
        ):
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{name} is {value!r}, but must be {', '.join(choices)} or None")
        on_cpu = self.place.type == "cpu"
        if on_cpu and self.precision == "bfloat16":
            check_bfloat16("precision", "'float32' or 'int8'")
        if on_cpu and self.precision == "int8":
            check_int8()
        if not on_cpu and self.precision == "int8":
            raise ConfigError(f"precision 'int8' is for a CPU, but the device is {self.place}", hint="leave it out")
        self._check_graphs()
        self._check_kv_precision()

    def _check_graphs(self) -> None:
        """Raise a `ConfigError` for graphs that the device does not have."""
        if self.cuda_graphs not in (None, True, False):
            raise ConfigError(f"cuda_graphs is {self.cuda_graphs!r}, but must be True, False or None")
        if self.cuda_graphs and self.place.type != "cuda":
            raise ConfigError(
                f"cuda_graphs is True, but the device is {self.place}, which has none", hint="leave it out"
            )

    def _check_kv_precision(self) -> None:
        """Raise a `ConfigError` for a `kv_precision` that the device, the executor or the CPU does not support."""
        if self.kv_precision is not None and self.place.type != "cpu":
            raise ConfigError(
                f"kv_precision is {self.kv_precision!r}, which is for a CPU, but the device is {self.place}",
                hint="leave it out: keys and values have the model's precision there",
            )
        if self.kv_precision != "float16":
            return
        if self.attention != "strict":
            raise ConfigError(
                f"kv_precision is 'float16', but the executor {self.attention!r} reads float32 alone",
                hint="use the executor strict",
            )
        from tts.backends.kernels.target import WIDENS_HALVES

        if not WIDENS_HALVES:
            raise ConfigError("kv_precision is 'float16', but this CPU has no F16C to widen it", hint="use 'float32'")

    def resolve(self) -> EngineOptions:
        """Return the options with the index of their device, so that every thread means the same one.

        Raises:
            ConfigError: torch sees no such device.
        """
        return dataclasses.replace(self, device=str(resolve_device(self.place)))

    @property
    def exact(self) -> bool:
        """Whether a row's numbers do not depend on its batch."""
        return self.attention in ("strict", "triton_strict")

    @property
    def graphs(self) -> bool:
        """Whether decode steps are replayed as CUDA graphs."""
        return self.place.type == "cuda" and self.cuda_graphs is not False

    @property
    def attention(self) -> AttentionExecutor:
        """The executor of attention on this device."""
        on_cpu = self.place.type == "cpu"
        if not on_cpu and self.executor == "strict":
            return "triton_strict"
        default = "strict" if on_cpu else "triton"
        return cast("AttentionExecutor", self.executor or default)

    @property
    def place(self) -> torch.device:
        """The device, as it was named.

        Raises:
            ConfigError: torch knows no such device.
        """
        name = self.device
        if not name:
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return torch.device(name)
        except RuntimeError as failure:
            raise ConfigError(f"device is {self.device!r}, which torch does not know", hint="cpu, or cuda") from failure


@dataclass(frozen=True, kw_only=True)
class EngineParts:
    """The parts of an `EngineBackend`."""

    runner: Runner
    renderer: Renderer
    identity: str
    rates: Rates
    reward_models: Mapping[str, RewardModel]


def load_parts(
    record: ModelRecord,
    *,
    heads: Mapping[str, ValueHead] | None = None,
    reward_models: Mapping[str, RewardModel] | None = None,
    output_layer: bool = True,
    **options: Any,
) -> EngineParts:
    """Load a model with the value heads and the process models that its record names.

    Args and errors are those of `EngineBackend.from_record`.
    """
    refuse_url(record)
    settings = EngineOptions(**options).resolve()
    all_models = dict(reward_models or {})
    own_records = {name: process for name, process in process_records(record).items() if name not in all_models}
    checkpoint = read_checkpoint(record)
    all_heads = {**read_heads(record), **(heads or {})}
    process_models = {
        name: _ProcessModel(process, read_checkpoint(process), read_readout(process, process.readout))
        for name, process in own_records.items()
    }
    for process_model in process_models.values():
        _check_beside(record, checkpoint, process_model)
    checkpoints = {record.name: checkpoint}
    checkpoints |= {f"{record.name} {name}": model.checkpoint for name, model in process_models.items()}
    pool = _pool_bytes(settings, checkpoints, record)
    runner, renderer = make_runner(
        checkpoint, settings, heads=all_heads, pool=pool, output_layer=output_layer, name=record.name
    )
    identity = _identity(checkpoint.digest, runner.decoder)
    with ExitStack() as unless_all_load:  # closes the models that are loaded, if a later one cannot be loaded
        unless_all_load.callback(runner.decoder.close)
        for name, process_model in process_models.items():
            all_models[name] = _load_process_model(process_model, settings, pool)
            unless_all_load.callback(all_models[name].runner.decoder.close)
            identity += f" {name}={process_model.checkpoint.digest},{process_model.digest}"
        unless_all_load.pop_all()
    for name, head in sorted(all_heads.items()):
        identity += f" {name}={_digest(head)}"
    return EngineParts(
        runner=runner, renderer=renderer, identity=identity, rates=rates(record), reward_models=all_models
    )


@dataclass(frozen=True)
class _ProcessModel:
    """The files of a process model that reads the policy's own tokens."""

    record: ModelRecord
    checkpoint: Checkpoint
    readout: HeadReadout | LikelihoodReadout

    @property
    def digest(self) -> str:
        """The digest of the readout's weights or parameters."""
        if isinstance(self.readout, HeadReadout):
            return _digest(self.readout.head)
        return f"{self.readout.scale!r}:{self.readout.shift!r}"


def _check_beside(record: ModelRecord, policy: Checkpoint, process: _ProcessModel) -> None:
    """Check that a process model has the policy's tokenizer, and a readout that fits the model's hidden size."""
    if policy.tokenizer.get_vocab() != process.checkpoint.tokenizer.get_vocab():
        raise ConfigError(
            f"process_model of model {record.name!r} is {process.record.name!r}, whose tokenizer differs, but both "
            "must have the same",
            hint="serve it with build_reward_model, which shows it texts, and a verifier that knows its bound",
        )
    if isinstance(process.readout, HeadReadout):
        hidden = read_config(process.checkpoint.config).hidden
        _check_head(f"readout of model {process.record.name!r}", process.readout.head, hidden)


def _check_head(subject: str, head: ValueHead, hidden: int) -> None:
    if head.weight.shape != (hidden,):
        raise ConfigError(f"the {subject} has a weight of shape {head.weight.shape}, but the hidden size is {hidden}")


def _load_process_model(process: _ProcessModel, settings: EngineOptions, pool: int) -> RewardModel:
    """Return a process model that reads the policy's own tokens."""
    runner, _ = make_runner(
        process.checkpoint, settings, pool=pool, output_layer=needs_logits(process.readout), name=process.record.name
    )
    template = StepTemplate(encode=None, readout=process.readout, step=process.record.step)
    return RewardModel(runner, template, render=None, rates=rates(process.record))


def build_reward_model(
    record: ModelRecord, template: Callable[[Renderer], StepTemplate], **options: Any
) -> RewardModel:
    """Load a process model that runs beside a policy.

    Args:
        record: The record of a decoder of the kinds that the engine runs.
        template: Makes the template from the model's renderer.
        options: See `EngineOptions`.

    Raises:
        ConfigError: for the reasons of `load_parts`.
    """
    refuse_url(record)
    checkpoint = read_checkpoint(record)
    step_template = template(_renderer(checkpoint))
    settings = EngineOptions(**options).resolve()
    pool = _pool_bytes(settings, {record.name: checkpoint}, record)
    runner, renderer = make_runner(
        checkpoint, settings, pool=pool, output_layer=needs_logits(step_template.readout), name=record.name
    )
    return RewardModel(runner, step_template, renderer.prompt)


def make_runner(
    checkpoint: Checkpoint,
    options: EngineOptions,
    *,
    heads: Mapping[str, ValueHead] | None = None,
    pool: int | None = None,
    output_layer: bool = True,
    name: str = "the model",
) -> tuple[Runner, Renderer]:
    """Return a model's step loop and its renderer.

    Args:
        checkpoint: The files and the configuration of the model.
        options: The options of the engine.
        heads: The value heads on the model's hidden states, by name.
        pool: Bytes for keys and values; None: by `kv_budget`, for this model alone.
        output_layer: Whether the model gives logits.
        name: The name of the model, for messages.

    Raises:
        ConfigError: the model is of a kind that the engine does not run, or its files do not fit together; or its
            kernels cannot be compiled.
        KVBudgetError: the memory for keys and values does not hold one block, or the device's memory is used up.
    """
    options, config = options.resolve(), read_config(checkpoint.config)
    for head_name, head in (heads or {}).items():
        _check_head(f"value head {head_name!r}", head, config.hidden)
    if pool is None:
        pool = _pool_bytes(options, {name: checkpoint})
    with loading_on(options.place, name):
        place = options.place
        on_cpu = place.type == "cpu"
        default_precision = "float32" if on_cpu else "bfloat16"
        default_limits = SchedulerLimits(rows=64, tokens=256) if on_cpu else SchedulerLimits(rows=256, tokens=2048)
        limits = SchedulerLimits(
            rows=options.max_rows or default_limits.rows, tokens=options.step_tokens or default_limits.tokens
        )
        decoder = Decoder(
            config,
            checkpoint.weights,
            precision=cast("Precision", options.precision or default_precision),
            executor=options.attention,
            threads=options.threads or torch.get_num_threads(),
            device=place,
            kv_precision=cast("KVPrecision", options.kv_precision or "float32"),
            output_layer=output_layer,
        )
        decoder.operations.reserve(max(_SLOTS * limits.rows, 2 * (limits.rows + limits.tokens)))
        renderer = _renderer(checkpoint)
        room = FixedRoom.of(limits.rows) if options.graphs and output_layer else None
        if decoder.executor == "strict" or place.type == "cuda":
            check_card(place, decoder.precision)
            compile_kernels(decoder, room)
        num_blocks = _num_blocks(decoder, pool, room)
        tree = KVTree(decoder.pool(num_blocks))
        runner = Runner(
            decoder, tree, limits, decode=renderer.decode, eos=renderer.eos, heads=heads, share=options.share
        )
        runner.fixed = fixed_steps(decoder, tree.pool, room, CudaCapture(place)) if room else None
        hold(runner, place, name, decoder.weight_bytes + pool)
        if num_blocks * BLOCK < config.context:
            LOG.warning(
                "%s: the longest path that fits the memory for keys and values has %d tokens, of a context of %d "
                "(kv_budget=)",
                name,
                num_blocks * BLOCK,
                config.context,
            )
        return runner, renderer


def _renderer(checkpoint: Checkpoint) -> Renderer:
    return Renderer(checkpoint.tokenizer, eos_ids(checkpoint.generation, checkpoint.config, checkpoint.tokenizer))


def _pool_bytes(options: EngineOptions, own: Mapping[str, Checkpoint], record: ModelRecord | None = None) -> int:
    """Return the bytes of keys and values for each of some models, and count the models that are loaded later.

    Args:
        options: The options of the models, with a resolved device.
        own: The files of the models, by name.
        record: The record that the models are loaded by, so that it is not counted again.
    """
    place = options.place
    if place.type == "cpu":
        return pool_bytes(place, {}, {}, options.kv_budget)
    itemsize = _itemsize(options.precision)
    own_bytes = {name: itemsize * sum(map(torch.numel, one.weights.values())) for name, one in own.items()}
    held = {*held_models(place), *own_bytes}
    later_bytes: dict[str, int] = {}
    for one in expected_models():
        settings: dict[str, Any] = dict(one.options)
        if one.backend != "engine" or one is record or one.name in held:
            continue
        if EngineOptions(device=settings.get("device")).resolve().place == place:
            later_bytes[one.name] = _itemsize(settings.get("precision")) * num_weights(one)
    return pool_bytes(place, own_bytes, later_bytes, options.kv_budget)


def _itemsize(precision: str | None) -> int:
    """Return the bytes of a weight on a device."""
    return 4 if precision == "float32" else 2


def _num_blocks(decoder: Decoder, budget: int, room: FixedRoom | None) -> int:
    """Return the number of blocks that fit a budget in bytes, less the buffers of steps and their graphs."""
    block_bytes = BLOCK * decoder.kv_shape.bytes_per_token
    buffer_bytes = decoder.operations.nbytes
    if room is not None:
        buffer_bytes += room.nbytes(decoder.config, decoder.dtype)
    if budget < buffer_bytes + block_bytes:
        buffer_text = f", and the buffers of steps {buffer_bytes}" if buffer_bytes else ""
        raise KVBudgetError(
            f"kv_budget is {budget} bytes, but one block of {BLOCK} tokens takes {block_bytes}{buffer_text}",
            hint="give it more, or a smaller max_rows" if buffer_bytes else "give it more",
        )
    return (budget - buffer_bytes) // block_bytes


def _digest(head: ValueHead) -> str:
    return hashlib.sha256(head.weight.tobytes() + np.float64(head.bias).tobytes()).hexdigest()


def _identity(digest: str, decoder: Decoder) -> str:
    kv_text = "" if decoder.kv_precision == "float32" else f" kv={decoder.kv_precision}"
    return (
        f"engine weights={digest} precision={decoder.precision}{kv_text} executor={decoder.executor} "
        f"device={decoder.device.type}"
    )
