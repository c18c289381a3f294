"""A decoder's shapes and constants, read from its configuration.

Unsupported architectures are refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tts.backends.loading.longest import longest_path
from tts.errors import ConfigError

SUPPORTED = ("llama", "qwen2", "qwen3", "mistral")
_ROPES = ("default", "linear", "llama3", "yarn")  # kinds whose frequencies do not depend on a path's length
_HINT = "run it by the backend vllm, or by transformers"


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A decoder's shapes and constants.

    Args:
        vocab: The number of tokens in the vocabulary.
        hidden: The size of a hidden state.
        intermediate: The inner size of a feed-forward layer.
        layers: The number of layers.
        heads: The number of query heads.
        kv_heads: The number of key-value heads, a divisor of `heads`.
        head_size: The numbers in a query, key or value of one head; a multiple of 16.
        eps: The number that norms add to the mean square before its root.
        tied: Whether the output layer is the embedding.
        head_norms: Whether queries and keys are normed (Qwen3).
        context: The most tokens of a path.
        frequencies: [head_size / 2] frequencies of the rotary positions.
        amplitude: The factor of the cosines and sines of rotary positions.
    """

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    eps: float
    tied: bool
    head_norms: bool
    context: int
    frequencies: NDArray[np.float32]
    amplitude: float

    @property
    def group(self) -> int:
        """Query heads for each key-value head."""
        return self.heads // self.kv_heads


def read_config(config: Any) -> DecoderConfig:
    """Return the shapes and constants in a configuration of the transformers library.

    Raises:
        ConfigError: the architecture, its activation, its rotary positions or its attention are of a kind that is not
            supported.
    """
    kind = config.model_type
    if kind not in SUPPORTED:
        raise ConfigError(f"the architecture is {kind!r}, but the engine runs {', '.join(SUPPORTED)}", hint=_HINT)
    if config.hidden_act != "silu":
        raise ConfigError(f"the activation is {config.hidden_act!r}, but the engine has silu only", hint=_HINT)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head_size % 16:
        raise ConfigError(f"the head size is {head_size}, but must be a multiple of 16", hint=_HINT)
    if config.num_attention_heads % config.num_key_value_heads:
        raise ConfigError(
            f"{config.num_attention_heads} query heads do not divide among {config.num_key_value_heads} key-value "
            "heads",
            hint=_HINT,
        )
    frequencies, amplitude = _rotary(config, head_size)
    return DecoderConfig(
        vocab=config.vocab_size,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=head_size,
        eps=config.rms_norm_eps,
        tied=config.tie_word_embeddings,
        head_norms=kind == "qwen3",
        context=longest_path(config, "the engine", _HINT),
        frequencies=frequencies,
        amplitude=amplitude,
    )


def _rotary(config: Any, head_size: int) -> tuple[NDArray[np.float32], float]:
    """Return the frequencies of the rotary positions, and the factor of their cosines and sines.

    Raises:
        ConfigError: the rotary positions are of a kind that is not supported.
    """
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind not in _ROPES or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ConfigError(
            f"the rotary positions are {kind!r}, but the engine has {', '.join(_ROPES)} over whole heads", hint=_HINT
        )
    if kind == "default":
        exponents = np.arange(0, head_size, 2, dtype=np.int64).astype(np.float32) / np.float32(head_size)
        return (np.float32(1) / np.float32(rope["rope_theta"]) ** exponents).astype(np.float32), 1.0
    frequencies, amplitude = ROPE_INIT_FUNCTIONS[kind](config, None)
    return frequencies.float().numpy(), float(amplitude)
