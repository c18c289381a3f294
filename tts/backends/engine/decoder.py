"""The decoder: Llama, Qwen2, Qwen3, SmolLM2 and Mistral with full attention.

The decoder works on the ragged tokens of a step, over a block pool.

Shapes: T tokens of a step, W tokens with wanted hidden states, L tokens with wanted logits (L of the W), K hidden size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts.backends.engine.config import DecoderConfig
from tts.backends.engine.linear import HostLinear, Linear, Precision, make_linear
from tts.backends.engine.operations import AttentionExecutor, HostOperations, Operations, rotary_tables
from tts.backends.engine.planning import StepPlan
from tts.backends.engine.pool import BlockPool, KVPrecision, KVShape, kernel_array
from tts.backends.kernels.host import Team
from tts.backends.kernels.stack import Stack, pass_layers
from tts.errors import ConfigError

if TYPE_CHECKING:
    from tts.backends.engine.device.graphs import FixedSteps

Weights = Mapping[str, Tensor]

_CACHED_BYTES = 24 << 20  # bytes of weights that stay in a CPU's caches, so that reading them once a thread is cheap
_LEAST_COMPILED_ROWS = 4  # least rows a thread, for threads that each run all layers in one compiled call
_LEAST_SHARED_TOKENS = 16  # least tokens for threads to share products, in a step whose tokens read each other's keys


class _Layer(NamedTuple):
    attention_norm: Tensor
    qkv: Linear
    head_norms: Tensor
    out: Linear
    feed_norm: Tensor
    gate_up: Linear
    down: Linear


class Output(NamedTuple):
    """The results of a step.

    Args:
        logits: [L, V].
        hidden: [W, K], as the output layer reads them.
        numbers: The numbers that were given for what follows, on a device.
    """

    logits: Tensor
    hidden: Tensor
    numbers: Sequence[Tensor] = ()


class Decoder:
    """A model's weights and its forward pass.

    Args:
        config: The shapes and constants of the model.
        weights: The weights by their names in the transformers library; a missing or misshapen one is refused.
        precision: "float32"; "int8" (all linear layers but the output layer, on a CPU); "bfloat16" (on a CPU, linear
            layers alone).
        executor: What computes attention; see `EngineOptions`.
        threads: The threads that share a step on a CPU, at least 1.
        device: Where the model runs.
        kv_precision: The type of keys and values on a CPU; "float16" with the executor "strict".
            On other devices keys and values have the model's type.
        output_layer: Whether the model gives logits. Classifiers have no output layer, and models that a head reads
            need none.

    Attributes:
        kv_shape: The layers, heads and head size of a token's keys and values.
        products: Weights that every token passes, and those of the output layer.

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
        self.operations: Operations = _operations(config, executor, self.team, device, self.dtype)
        maker = _Maker(
            config, weights, precision, self.dtype, strict=executor != "triton", team=self.team, device=device
        )
        self._embedding = maker.tensor("model.embed_tokens.weight", config.vocab, config.hidden)
        self._layers = [maker.layer(f"model.layers.{number}.") for number in range(config.layers)]
        self._norm = maker.tensor("model.norm.weight", config.hidden)
        self._head = maker.head(self._embedding) if output_layer else None
        self.parameters = maker.parameters
        linears = [linear for layer in self._layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        layer_bytes = sum(linear.weight_bytes for linear in linears)
        is_small = layer_bytes <= _CACHED_BYTES
        self._stack = self._stack_linears(linears) if is_small else None
        head_bytes = self._head.weight_bytes if self._head else 0
        self.weight_bytes = layer_bytes + head_bytes
        layer_weights = sum(linear.in_features * linear.out_features for linear in linears)
        head_weights = self._head.in_features * self._head.out_features if self._head else 0
        self.products = (layer_weights, head_weights)

    def _stack_linears(self, linears: Sequence[Linear]) -> Stack | None:
        """Return the weights of all layers, stacked for one compiled call; None where they cannot be.

        The call has the strict executor's attention, and needs all products in float32.
        """
        if self.executor != "strict" or not all(isinstance(linear, HostLinear) for linear in linears):
            return None
        arrays: dict[str, NDArray[Any]] = {}
        for name in ("qkv", "out", "gate_up", "down"):
            products: list[Any] = [getattr(layer, name) for layer in self._layers]
            stacked_panels = np.stack([product.panels for product in products])
            arrays[name] = stacked_panels
            arrays[f"{name}_bias"] = np.stack([product.outputs for product in products])
            for product, panels in zip(products, stacked_panels, strict=True):
                product.panels = panels  # a view of the stack, so that each weight is in memory once
        for name in ("attention_norm", "feed_norm", "head_norms"):
            arrays[name] = np.stack([getattr(layer, name).numpy() for layer in self._layers])
        cosines, sines = (table.numpy() for table in rotary_tables(self.config))
        return Stack(**arrays, cosines=cosines, sines=sines)

    @property
    def has_output_layer(self) -> bool:
        """Whether the model gives logits."""
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
        numbers: Sequence[NDArray[np.int64]] = (),
        apart: bool = False,
        fixed: FixedSteps | None = None,
    ) -> Output:
        """Feed a step's tokens: write their keys and values, and return the wanted results.

        Args:
            ids: [T] tokens in the plan's order.
            planned: The plan of this step.
            wanted: [W] indices of the tokens whose hidden states are returned.
            with_logits: [L] indices into `wanted` of the tokens whose logits are returned; none without output layer.
            pool: The blocks that hold this model's keys and values.
            numbers: What draws and readings on a device need, which is copied there with the step.
            apart: Whether no token of this step reads another's keys, so that threads may divide the tokens.
            fixed: Runs the layers in fixed shapes, where the step fits its buffers.
        """
        arrays = (wanted, with_logits, *numbers)
        ran = None if fixed is None else fixed.run(ids, planned, arrays)
        if ran is None:
            token_ids, *indices = self.operations.begin(planned, (ids, *arrays))
            hidden = self._run_layers(token_ids, planned, pool, apart=apart)
        else:
            hidden, indices = ran
        wanted_hidden = hidden[indices[0]]  # [W, K]
        normed = self.operations.norm(wanted_hidden, None, self._norm)
        logits = normed.new_empty(0, 0) if self._head is None else self._head(normed[indices[1]])
        return Output(logits, normed, indices[2:])

    def feed(self, ids: Tensor, hidden: Tensor, pool: BlockPool) -> None:
        """Pass tokens through all layers into `hidden`, in the step that the operations have begun.

        The tokens `ids` [T] are on the device. `hidden` is [T, K].
        """
        hidden.copy_(self._embedding[ids])
        self._run(self.operations, hidden, pool)

    def _run_layers(self, ids: Tensor, planned: StepPlan, pool: BlockPool, *, apart: bool) -> Tensor:
        """Return tokens' hidden states after the last layer, [T, K], by the fastest way for the step's size."""
        hidden = self._embedding[ids]
        if self._stack is not None and (apart or self.team.threads == 1 or len(ids) < _LEAST_SHARED_TOKENS):
            self._run_compiled(self._stack, hidden, planned, pool, apart=apart)
        else:
            self._run(self.operations, hidden, pool)
        return hidden

    def _run(self, operations: Operations, hidden: Tensor, pool: BlockPool) -> None:
        """Pass the tokens of the step that the operations have begun through all layers.

        `hidden` [T, K] is changed in place. The `change` of each sublayer is added by the norm before the next one.
        """
        change: Tensor | None = None
        for number, layer in enumerate(self._layers):
            normed = operations.norm(hidden, change, layer.attention_norm)
            qkv = layer.qkv(normed)
            attended = operations.attend(qkv, layer.head_norms, pool.keys[number], pool.values[number])
            change = layer.out(attended)
            normed = operations.norm(hidden, change, layer.feed_norm)
            gate_up = layer.gate_up(normed)
            gated = operations.gate(gate_up)
            change = layer.down(gated)
        if change is not None:
            hidden += change

    def _run_compiled(self, stack: Stack, hidden: Tensor, planned: StepPlan, pool: BlockPool, *, apart: bool) -> None:
        """Pass tokens through all layers in one compiled call, or with `apart` in one call a thread."""
        rows = len(hidden)
        threads = max(1, min(self.team.threads, rows // _LEAST_COMPILED_ROWS)) if apart else 1
        edges = [rows * index // threads for index in range(threads + 1)]
        hidden_array, keys, values = hidden.numpy(), kernel_array(pool.keys), kernel_array(pool.values)
        shared_args = (keys, values, stack, self.config.eps, self.config.group, self.config.intermediate)
        parts: list[tuple[Any, ...]] = []
        for begin, end in pairwise(edges):
            part = planned if threads == 1 else planned.part(begin, end)
            parts.append((hidden_array[begin:end], *part.plan, part.places, *shared_args))
        self.team.run(pass_layers, parts)

    def drop(self) -> None:
        """Free the memory of the weights, after which nothing can be computed."""
        self._embedding = self._norm = torch.empty(0)
        self._layers, self._head, self._stack = [], None, None
        vars(self).pop("operations", None)  # with its buffers

    def close(self) -> None:
        """End the threads of the decoder."""
        self.team.close()


@dataclass
class _Maker:
    """Makes layers from weights, and counts the parameters that a token passes."""

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
            ConfigError: the weight is missing, has another shape, or is not finite.
        """
        weight = self.weights.get(name)
        if weight is None:
            raise ConfigError(
                f"the model's files lack the weight {name}",
                hint="get the files again, or name the model they belong to",
            )
        if tuple(weight.shape) != shape:
            raise ConfigError(
                f"the weight {name} has the shape {tuple(weight.shape)}, but the configuration says {shape}"
            )
        # a finite sum shows cheaply that all numbers are finite; another sum may have overflowed
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise ConfigError(
                f"the weight {name} is not finite, but must hold numbers alone", hint="get the files again"
            )
        self.parameters += weight.numel()
        return weight.to(self.device, self.dtype)

    def linear(self, names: list[str], rows: list[int], columns: int, *, precision: Precision | None = None) -> Linear:
        """Return one layer of matrices that read the same input.

        Args:
            names: The names of the matrices.
            rows: The number of rows of each matrix.
            columns: The number of columns of all.
            precision: The precision of the layer; None: the model's.
        """
        matrices = list(zip(names, rows, strict=True))
        weight = torch.cat([self.tensor(f"{name}.weight", count, columns) for name, count in matrices])
        bias: Tensor | None = None
        if any(f"{name}.bias" in self.weights for name in names):
            biases = [
                self.tensor(f"{name}.bias", count) if f"{name}.bias" in self.weights else weight.new_zeros(count)
                for name, count in matrices
            ]
            bias = torch.cat(biases)
        return self._product(weight, bias, precision or self.precision)

    def _product(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> Linear:
        return make_linear(
            weight, bias, precision=precision, strict=self.strict, threads=self.team.threads, team=self.team
        )

    def layer(self, prefix: str) -> _Layer:
        """Return the layer whose weights' names begin with `prefix`."""
        config, attention, feed = self.config, f"{prefix}self_attn.", f"{prefix}mlp."
        query_rows, key_rows = config.heads * config.head_size, config.kv_heads * config.head_size
        if config.head_norms:
            norm_names = (f"{attention}q_norm.weight", f"{attention}k_norm.weight")
            head_norms = torch.stack([self.tensor(name, config.head_size) for name in norm_names])
        else:
            head_norms = torch.empty(0, config.head_size, device=self.device)
        qkv_names = [f"{attention}{part}_proj" for part in ("q", "k", "v")]
        return _Layer(
            attention_norm=self.tensor(f"{prefix}input_layernorm.weight", config.hidden),
            qkv=self.linear(qkv_names, [query_rows, key_rows, key_rows], config.hidden),
            head_norms=head_norms,
            out=self.linear([f"{attention}o_proj"], [config.hidden], query_rows),
            feed_norm=self.tensor(f"{prefix}post_attention_layernorm.weight", config.hidden),
            gate_up=self.linear([f"{feed}gate_proj", f"{feed}up_proj"], [config.intermediate] * 2, config.hidden),
            down=self.linear([f"{feed}down_proj"], [config.hidden], config.intermediate),
        )

    def head(self, embedding: Tensor) -> Linear:
        """Return the output layer, in float32 where the other layers are int8."""
        precision = "float32" if self.precision == "int8" else self.precision
        if not self.config.tied:
            return self.linear(["lm_head"], [self.config.vocab], self.config.hidden, precision=precision)
        return self._product(embedding, None, precision)


def _operations(
    config: DecoderConfig, executor: AttentionExecutor, team: Team, device: torch.device, dtype: torch.dtype
) -> Operations:
    """Return the operations of the executor: the CPU's kernels, or Triton's."""
    if device.type == "cpu" and executor not in ("triton", "triton_strict"):
        return HostOperations(config, team)
    from tts.backends.engine.device.operations import DeviceOperations

    return DeviceOperations(config, executor, device, dtype)
