"""Random models of every kind that the engine runs, and the same in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}

# kind, layers, query heads, key-value heads, head size, and what else is special
KINDS: dict[str, dict[str, Any]] = {
    "llama, tied, a key head for each query head": {"heads": 4, "kv_heads": 4, "size": 32, "tie_word_embeddings": True},
    "llama, groups of 2": {"heads": 4, "kv_heads": 2, "size": 64},
    "llama, groups of 3, tied, attention bias": {
        "layers": 3,
        "heads": 6,
        "kv_heads": 2,
        "size": 16,
        "tie_word_embeddings": True,
        "attention_bias": True,
    },
    "llama, groups of 6, biases everywhere": {
        "heads": 6,
        "kv_heads": 1,
        "size": 32,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama, groups of 7": {"heads": 7, "kv_heads": 1, "size": 128, "hidden": 112},
    "llama, llama3 positions": {"layers": 4, "heads": 4, "kv_heads": 2, "size": 32, "rope_parameters": LLAMA3},
    "llama, yarn positions": {"heads": 4, "kv_heads": 2, "size": 32, "rope_parameters": YARN},
    "llama, linear positions": {"heads": 4, "kv_heads": 2, "size": 32, "rope_parameters": LINEAR},
    "qwen2": {"kind": "qwen2", "heads": 14, "kv_heads": 2, "size": 64, "hidden": 112, "tie_word_embeddings": True},
    "qwen3": {"kind": "qwen3", "layers": 3, "heads": 4, "kv_heads": 2, "size": 128},
    "mistral": {"kind": "mistral", "heads": 8, "kv_heads": 2, "size": 32, "sliding_window": None},
}

_CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
}


def random_model(
    kind: str = "llama",
    *,
    vocab: int = 289,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    size: int = 32,
    hidden: int = 96,
    intermediate: int = 160,
    context: int = 512,
    seed: int = 1,
    **more: Any,
) -> Any:
    """Return a model whose weights, biases and norms are all random; the end of sequence (0) is never its likeliest
    token.
    """
    config_class, model_class = _CLASSES[kind]
    settings = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "max_position_embeddings": context,
    }
    more = {"eos_token_id": 0, "bos_token_id": None, "tie_word_embeddings": False, **more}
    model = model_class(config_class(vocab_size=vocab, **settings, **more)).eval()
    draw = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=draw)
        if "norm" in name:
            weight.data = 1 + 0.2 * noise
        elif name.endswith("bias"):
            weight.data = 0.3 * noise
        else:
            weight.data = noise * (1.4 if "embed" in name else 2.0) * weight.shape[1] ** -0.5
    model.lm_head.weight.data[0] = 0  # which is the embedding where they are tied
    return model


def in_float64(model: Any) -> Any:
    """Return a float64 copy of a model, whose norms are float64 too; its rotary tables stay those of float32, as the
    model has them.
    """
    wide = copy.deepcopy(model).double()
    for module in wide.modules():
        if "RMSNorm" in type(module).__name__:
            module.forward = _wide_norm(module)
    return wide


def _wide_norm(module: Any) -> Any:
    return lambda x: module.weight * (x * (x.square().mean(-1, keepdim=True) + module.variance_epsilon).rsqrt())
