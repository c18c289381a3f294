"""The models of a run: real weights that are on disk, and random ones in known shapes.

Random models are made from a configuration, without a download.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers import models as kinds

from tts.backends.engine.weights import Checkpoint, read_checkpoint
from tts.backends.loading.models import load
from tts.errors import TTSError
from tts.models import registry

# Qwen2.5's configurations, and Llama's where the name says so; "tiny" shows that a part works
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
    },
    "qwen2.5-7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
    },
    "llama-8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "small": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 4096,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 300,
    },
}
SHAPES["dot"] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 300,
}  # for Triton's interpreter
SHAPES.update({f"{name}-llama": SHAPES[name] for name in ("small", "dot")})
_LAYERS = {"qwen2.5-1.5b": 28, "qwen2.5-7b": 28, "llama-8b": 32, "small": 4, "small-llama": 4, "tiny": 2}
_LAYERS |= {"dot": 1, "dot-llama": 1}
_TIED = ("qwen2.5-1.5b", "tiny")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class AbsentError(Exception):
    """What a case needs is not here; the message says what."""


@dataclass(frozen=True)
class Loaded:
    """A model for both sides.

    Args:
        checkpoint: The checkpoint for the engine.
        model: The model of the transformers library, on the device, with the same weights.
    """

    checkpoint: Checkpoint
    model: Any

    @property
    def vocabulary(self) -> int:
        return self.checkpoint.config.vocab_size


def load_both(name: str, precision: str, device: str) -> Loaded:
    """Return a model of a shape in `SHAPES` with random weights, else one of the registry.

    Args:
        name: The name of the shape or of the model.
        precision: The precision of transformers' copy, "float32" or "bfloat16".
        device: The device of transformers' copy.

    Raises:
        AbsentError: The model's files are not on this machine.
    """
    if name in SHAPES:
        return _random(name, DTYPES[precision], device)
    try:
        record = registry.get(name)
        return Loaded(read_checkpoint(record), load(record, device=device, dtype=DTYPES[precision]).model.eval())
    except TTSError as failure:
        raise AbsentError(str(failure)) from failure


def _random(name: str, dtype: torch.dtype, device: str) -> Loaded:
    """Return a random model whose activations keep their size from layer to layer.

    Both sides share the same tensors.
    """
    kind = transformers.LlamaConfig if "llama" in name else transformers.Qwen2Config
    config = kind(
        **SHAPES[name],
        num_hidden_layers=_LAYERS[name],
        tie_word_embeddings=name in _TIED,
        max_position_embeddings=1024 if _LAYERS[name] < 4 else 1 << 16,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=0,  # no tree has it
    )
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    draw = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            spread, middle = (weight.shape[1] ** -0.5, 0.0) if weight.ndim > 1 else (0.1, 1.0)
            weight.normal_(middle, spread, generator=draw)
        for key, weight in model.named_parameters():
            if key.endswith(".bias"):
                weight.sub_(1.0)
    weights = {
        key: weight for key, weight in model.state_dict().items() if key != "lm_head.weight" or name not in _TIED
    }
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(kinds.BPE(vocab={"!": 0}, merges=[])))
    return Loaded(Checkpoint(config, weights, tokenizer, None, f"random {name} {dtype}"), model)
