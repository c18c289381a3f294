"""The decoder: Llama, Qwen2, Qwen3, SmolLM2 and Mistral with full attention.

It works on the ragged tokens of a step, over a block pool.

Shapes: T tokens of a step, W of them with wanted hidden states, L of those with wanted logits, K hidden size, V
vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.int8 import HostInt8Linear
from tts.backends.engine.linear import HostLinear, Linear, Precision, SharedLinear, make_linear, torch_threads
from tts.backends.engine.operations import AttentionExecutor, HostOperations, Operations, rotary_tables
from tts.backends.engine.planning import StepPlan
from tts.backends.engine.pool import BlockPool, KVPrecision, KVShape, kernel_array
from tts.backends.kernels.host import Team
from tts.backends.kernels.stack import Stack, pass_layers
from tts.errors import ConfigError

Weights = Mapping[str, Tensor]

_CACHED = 24 << 20  # bytes of weights that stay in a CPU's caches, so that reading them once a thread is cheap
_APART_ROWS = 8  # rows a thread from which on a step is taken apart
_COMPILED_ROWS = 4  # the same where all layers are one compiled call
_TOGETHER = 16  # tokens from which on threads share the products of a step that reads keys of its own


class _Layer(NamedTuple):
    attention_norm: Tensor
    qkv: Linear
    head_norms: Tensor
    out: Linear
    feed_norm: Tensor
    gate_up: Linear
    down: Linear


class Output(NamedTuple):
    """The results of a step. logits: [L, V]; hidden: [W, K], as the output layer reads them."""

    logits: Tensor
    hidden: Tensor


@dataclass(slots=True)
class Spans:
    """Seconds spent so far, by part of a step."""

    linear: float = 0.0
    attention: float = 0.0
    other: float = 0.0

    def share(self, seconds: float, ticks: Sequence[int]) -> None:
        """Add seconds in proportion to the ticks of the parts, in this order."""
        linear, attention, other = (seconds * tick / max(1, sum(ticks)) for tick in ticks)
        self.linear, self.attention, self.other = self.linear + linear, self.attention + attention, self.other + other


class Decoder:
    """A model's weights and its forward pass.

    Args:
        config: The shapes and constants of the model.
        weights: The weights by their names in the transformers library; a missing or misshapen one is refused.
        precision: "float32"; "int8" (linear layers but the output layer, on a CPU); "bfloat16" (on a CPU linear layers
            alone).
        executor: What computes attention; see `EngineOptions`.
        threads: The threads that share a step on a CPU, at least 1.
        device: Where it runs.
        kv_precision: The type of keys and values on a CPU; "float16" with the executors "strict" and "reference".
            Elsewhere they have the model's.
        output_layer: Whether it gives logits. Classifiers have no such layer, and models that a head reads need none.

    Attributes:
        kv_shape: The layers, heads and head size of a token's keys and values.
        products: Weights that every token passes, and those of the output layer.
        spans: Adds up the seconds of steps, if set.

    Raises:
        ConfigError: a weight is missing, has another shape or is not finite, or rows cannot be exact on the device.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        *,
        precision: Precision,
        executor: AttentionExecutor,
        threads: int,
        device: torch.device,
        kv_precision: KVPrecision = "float32",
        output_layer: bool = True,
    ) -> None:
        self.config = config
        self.precision = precision
        self.executor: AttentionExecutor = executor
        self.device = device
        self.kv_precision = kv_precision
        self.dtype = torch.bfloat16 if precision == "bfloat16" and device.type != "cpu" else torch.float32
        self._kv_dtype = torch.float16 if kv_precision == "float16" else self.dtype
        self.kv_shape = KVShape(config.layers, config.kv_heads, config.head_size, self._kv_dtype.itemsize)
        self.team = Team(threads)
        self.spans: Spans | None = None
        self.operations: Operations = _operations(config, executor, self.team, device, self.dtype)
        make = _Maker(
            config, weights, precision, self.dtype, strict=executor != "triton", team=self.team, device=device
        )
        self._embedding = make.tensor("model.embed_tokens.weight", config.vocab, config.hidden)
        self._layers = [make.layer(f"model.layers.{number}.") for number in range(config.layers)]
        self._norm = make.tensor("model.norm.weight", config.hidden)
        self._head = make.head(self._embedding) if output_layer else None
        self.parameters = make.parameters
        linears = [linear for layer in self._layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        size = sum(linear.weight_bytes for linear in linears)
        self._stack = self._stack_linears(linears) if size <= _CACHED else None
        self._apart = self._operations_apart(linears) if size <= _CACHED and threads > 1 and self._stack is None else []
        self.weight_bytes = size + (self._head.weight_bytes if self._head else 0)
        head = self._head.in_features * self._head.out_features if self._head else 0
        self.products = (sum(linear.in_features * linear.out_features for linear in linears), head)

    def _stack_linears(self, linears: Sequence[Linear]) -> Stack | None:
        """Return small weights for one compiled call, if it has their products. For larger weights, threads share each
        product.
        """
        of_one_kind = any(all(isinstance(each, kind) for each in linears) for kind in (HostLinear, HostInt8Linear))
        if self.executor != "strict" or not of_one_kind:
            return None
        found: dict[str, NDArray[Any]] = {}
        for name in ("qkv", "out", "gate_up", "down"):
            products: list[Any] = [getattr(layer, name) for layer in self._layers]
            found[name] = np.stack([product.panels for product in products])
            outputs = [product.outputs for product in products]
            found[f"{name}_bias"] = np.stack(outputs)
            for product, panels in zip(products, found[name], strict=True):
                product.panels = panels  # the same memory
        for name in ("attention_norm", "feed_norm", "head_norms"):
            found[name] = np.stack([getattr(layer, name).numpy() for layer in self._layers])
        cosines, sines = (table.numpy() for table in rotary_tables(self.config))
        return Stack(**found, cosines=cosines, sines=sines)

    def _operations_apart(self, linears: Sequence[Linear]) -> list[Operations]:
        """Return operations for each thread where a step is faster split by rows: for weights that fit every cache.

        It needs layers with the same bits on one thread and on several, as these have.
        """
        if not isinstance(self.operations, HostOperations) or not all(
            isinstance(each, HostLinear | SharedLinear) for each in linears
        ):
            return []
        return [HostOperations(self.config, self.executor, self.team) for _ in range(self.team.threads)]

    @property
    def has_output_layer(self) -> bool:
        """Whether it gives logits."""
        return self._head is not None

    def pool(self, num_blocks: int) -> BlockPool:
        """Return an empty pool for this model."""
        return BlockPool(self.kv_shape, num_blocks, device=self.device, dtype=self._kv_dtype)

    def forward(
        self,
        ids: NDArray[np.int64],
        planned: StepPlan,
        wanted: NDArray[np.int64],
        with_logits: NDArray[np.int64],
        pool: BlockPool,
        *,
        apart: bool = False,
        hidden: Tensor | None = None,
    ) -> Output:
        """Feed a step's tokens: write their keys and values, and return the wanted results.

        Args:
            ids: [T] tokens in the plan's order.
            planned: The plan of this step.
            wanted: [W] which of them to return hidden states of.
            with_logits: [L] which of those to return logits of; none where there is no output layer.
            pool: The blocks that hold this model's keys and values.
            apart: Whether no token of this step reads another's keys, so that the threads may each take some of them.
            hidden: [T, K] after the last layer, where the layers have run (`feed`); else they run.
        """
        if hidden is None:
            hidden = self._run_layers(ids, planned, pool, apart=apart)
        timed = _Timer(self.spans)
        last = self.operations.norm(hidden[torch.from_numpy(wanted).to(self.device)], None, self._norm)
        logits = (
            last.new_empty(0, 0)
            if self._head is None
            else self._head(last[torch.from_numpy(with_logits).to(self.device)])
        )
        timed("linear")
        return Output(logits, last)

    def feed(self, ids: Tensor, hidden: Tensor, pool: BlockPool) -> None:
        """Pass tokens through all layers into `hidden`, in the step that the operations are in.

        The tokens `ids` [T] are on the device. `hidden` is [T, K].
        """
        hidden.copy_(self._embedding[ids])
        self._run(self.operations, hidden, pool, _Timer(None))

    def _run_layers(self, ids: NDArray[np.int64], planned: StepPlan, pool: BlockPool, *, apart: bool) -> Tensor:
        """Return tokens' hidden states after the last layer, [T, K]."""
        hidden = self._embedding[torch.from_numpy(ids).to(self.device)]
        if self._stack is not None and (apart or self.team.threads == 1 or len(ids) < _TOGETHER):
            self._run_compiled(self._stack, hidden, planned, pool, apart=apart)
        elif apart and self._apart and len(ids) >= _APART_ROWS * len(self._apart):
            self._run_apart(hidden, planned, pool)
        else:
            self.operations.begin(planned)
            self._run(self.operations, hidden, pool, _Timer(self.spans))
        return hidden

    def _run(self, operations: Operations, hidden: Tensor, pool: BlockPool, timed: _Timer) -> None:
        """Pass tokens of the step that the operations are in through all layers; `hidden` is changed in place."""
        change: Tensor | None = None
        for number, layer in enumerate(self._layers):
            normed = operations.norm(hidden, change, layer.attention_norm)
            timed("other")
            qkv = layer.qkv(normed)
            timed("linear")
            read = operations.attend(qkv, layer.head_norms, pool.keys[number], pool.values[number])
            timed("attention")
            change = layer.out(read)
            timed("linear")
            normed = operations.norm(hidden, change, layer.feed_norm)
            timed("other")
            both = layer.gate_up(normed)
            timed("linear")
            gated = operations.gate(both)
            timed("other")
            change = layer.down(gated)
            timed("linear")
        if change is not None:
            hidden += change

    def _run_compiled(self, stack: Stack, hidden: Tensor, planned: StepPlan, pool: BlockPool, *, apart: bool) -> None:
        """Pass tokens through all layers in one call; where they are apart, each thread some of them."""
        threads = max(1, min(self.team.threads, len(hidden) // _COMPILED_ROWS)) if apart else 1
        edges = [len(hidden) * part // threads for part in range(threads + 1)]
        numbers, keys, values = hidden.numpy(), kernel_array(pool.keys), kernel_array(pool.values)
        rest = (keys, values, stack, self.config.eps, self.config.group, self.config.intermediate)
        ticks = [np.zeros(3, np.int64) for _ in range(threads)]
        parts: list[tuple[Any, ...]] = []
        for begin, end, counted in zip(edges, edges[1:], ticks, strict=False):
            part = planned if threads == 1 else planned.part(begin, end)
            parts.append((numbers[begin:end], *part.plan, part.places, *rest, counted))
        began = time.perf_counter()
        self.team.run(pass_layers, parts)
        if self.spans is not None:
            self.spans.share(time.perf_counter() - began, ticks[-1].tolist())

    def _run_apart(self, hidden: Tensor, planned: StepPlan, pool: BlockPool) -> None:
        """Let each thread pass some of the tokens through all layers, without waiting for other threads between
        them.
        """
        edges = [len(hidden) * part // len(self._apart) for part in range(len(self._apart) + 1)]
        timers = [_Timer(None)] * (len(self._apart) - 1) + [_Timer(self.spans)]  # the last part is this thread's

        def run(operations: Operations, timed: _Timer, begin: int, end: int) -> None:
            with torch.inference_mode(), torch_threads(1):
                operations.begin(planned.part(begin, end))
                self._run(operations, hidden[begin:end], pool, timed)

        self.team.run(run, list(zip(self._apart, timers, edges, edges[1:], strict=False)))

    def close(self) -> None:
        """End its threads."""
        self.team.close()


class _Timer:
    """Adds the time since the last call to a span; does nothing without spans."""

    def __init__(self, spans: Spans | None) -> None:
        self._spans = spans
        self._last = time.perf_counter() if spans else 0.0

    def __call__(self, part: str) -> None:
        if self._spans is not None:
            now = time.perf_counter()
            setattr(self._spans, part, getattr(self._spans, part) + now - self._last)
            self._last = now


@dataclass
class _Maker:
    """Makes layers of weights, and counts the parameters that a token passes."""

    config: DecoderConfig
    weights: Weights
    precision: Precision
    dtype: torch.dtype
    strict: bool = field(kw_only=True)
    team: Team = field(kw_only=True)
    device: torch.device = field(kw_only=True)
    parameters: int = 0

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Return a weight of a known shape.

        Raises:
            ConfigError: it is missing, has another shape, or is not finite.
        """
        found = self.weights.get(name)
        if found is None:
            raise ConfigError(
                f"the model's files lack the weight {name}",
                hint="get the files again, or name the model they belong to",
            )
        if tuple(found.shape) != shape:
            raise ConfigError(
                f"the weight {name} has the shape {tuple(found.shape)}, but the configuration says {shape}"
            )
        if not found.sum().isfinite() and not found.isfinite().all():  # a sum is cheap, but may overflow
            raise ConfigError(
                f"the weight {name} is not finite, but must hold numbers alone", hint="get the files again"
            )
        self.parameters += found.numel()
        return found.to(self.device, self.dtype)

    def linear(self, names: list[str], rows: list[int], columns: int, *, precision: Precision | None = None) -> Linear:
        """Return matrices that read the same input as one product."""
        weight = torch.cat(
            [self.tensor(f"{name}.weight", count, columns) for name, count in zip(names, rows, strict=True)]
        )
        biases = [
            self.tensor(f"{name}.bias", count) if f"{name}.bias" in self.weights else weight.new_zeros(count)
            for name, count in zip(names, rows, strict=True)
        ]
        given = any(f"{name}.bias" in self.weights for name in names)
        return self._product(weight, torch.cat(biases) if given else None, precision or self.precision)

    def _product(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> Linear:
        return make_linear(
            weight, bias, precision=precision, strict=self.strict, threads=self.team.threads, team=self.team
        )

    def layer(self, prefix: str) -> _Layer:
        """Return a layer."""
        c, attn, mlp = self.config, f"{prefix}self_attn.", f"{prefix}mlp."
        queries, keys = c.heads * c.head_size, c.kv_heads * c.head_size
        norms = [self.tensor(f"{attn}{part}_norm.weight", c.head_size) for part in ("q", "k")] if c.head_norms else []
        return _Layer(
            attention_norm=self.tensor(f"{prefix}input_layernorm.weight", c.hidden),
            qkv=self.linear([f"{attn}{part}_proj" for part in "qkv"], [queries, keys, keys], c.hidden),
            head_norms=torch.stack(norms) if norms else torch.empty(0, c.head_size, device=self.device),
            out=self.linear([f"{attn}o_proj"], [c.hidden], queries),
            feed_norm=self.tensor(f"{prefix}post_attention_layernorm.weight", c.hidden),
            gate_up=self.linear([f"{mlp}gate_proj", f"{mlp}up_proj"], [c.intermediate] * 2, c.hidden),
            down=self.linear([f"{mlp}down_proj"], [c.hidden], c.intermediate),
        )

    def head(self, embedding: Tensor) -> Linear:
        """Return the output layer, float32 where the others are int8."""
        precision = "float32" if self.precision == "int8" else self.precision
        if not self.config.tied:
            return self.linear(["lm_head"], [self.config.vocab], self.config.hidden, precision=precision)
        return self._product(embedding, None, precision)


def _operations(
    config: DecoderConfig, executor: AttentionExecutor, team: Team, device: torch.device, dtype: torch.dtype
) -> Operations:
    if device.type == "cpu" and executor not in ("triton", "triton_strict"):
        return HostOperations(config, executor, team)
    from tts.backends.engine.device.operations import DeviceOperations

    return DeviceOperations(config, executor, device, dtype)
