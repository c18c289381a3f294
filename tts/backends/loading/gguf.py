"""GGUF files: their metadata and dequantised tensors.

The module turns them into a Llama model and a tokenizer of the transformers library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tts.backends.loading.hub import one_error, transformers
from tts.errors import ConfigError, quote, require_extra

_DAMAGED = "the GGUF file is damaged"
_CONTROL_TOKEN = 3  # GGUF's token type of ends of sequence and the like
# GGUF's names of a Llama layer's weights -> transformers' names
_LAYER_WEIGHTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """The contents of a GGUF file: `metadata` by key, and dequantised `tensors` by name.

    The tensors are float32, with rows first.
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.float32]]


def read_gguf(path: Path) -> GGUFFile:
    """Return the contents of a GGUF file.

    Raises:
        ConfigError: The file is not a GGUF file, is damaged, or has weights that the gguf library cannot dequantise.
        MissingDependency: The gguf library is not installed; models in other formats do not need it.
    """
    with require_extra("gguf", "engine", f"the file {path}"):
        import gguf
    with one_error(f"{path} is no GGUF file that can be read"):
        reader = bounded_reader()(path)
        if sum(int(tensor.n_bytes) for tensor in reader.tensors) > len(reader.data):
            raise ValueError("its tensors overlap")
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {
            tensor.name: np.array(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)
            for tensor in reader.tensors
        }
    return GGUFFile(metadata, tensors)


@cache
def bounded_reader() -> Any:
    """Return a class of readers of GGUF files, which refuses a file that states more than it has.

    The library's own reader would not end on it.
    """
    import gguf

    class BoundedReader(gguf.GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            values = super()._get(offset, dtype, count, override_order)
            if len(values) != int(count):
                raise ValueError("it ends too early")
            return values

    return BoundedReader


def llama_from_gguf(file: GGUFFile, dtype: torch.dtype) -> Any:
    """Return a Llama model with the weights of a GGUF file.

    Raises:
        ConfigError: The file holds another architecture, or is damaged.
    """
    config, weights = llama_weights(file)
    with one_error(_DAMAGED):
        model, loaded = transformers.LlamaForCausalLM.from_pretrained(
            None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True
        )
        wrong = sorted(name for names in loaded.values() for name in names)
        if wrong:  # transformers draws weights that are missing
            raise ValueError(f"the weight {wrong[0]} is missing, or none of a Llama")
    return model


def llama_weights(file: GGUFFile) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the configuration in a GGUF file, and its weights by transformers' names.

    Raises:
        ConfigError: The file holds another architecture, or is damaged.
    """
    metadata = file.metadata
    with one_error(_DAMAGED):
        if metadata["general.architecture"] != "llama":
            raise ConfigError(
                f"the GGUF file holds the architecture {metadata['general.architecture']!r}, but only llama is read"
            )
        tensors = file.tensors
        vocabulary, hidden = tensors["token_embd.weight"].shape
        head_dim, context = (int(metadata[f"llama.{key}"]) for key in ("rope.dimension_count", "context_length"))
        theta = float(metadata["llama.rope.freq_base"])
        if context < 1 or not 0 < theta < math.inf:
            raise ValueError(f"its context is {context}, and the base of its frequencies {theta}")
        heads, kv_heads = (len(tensors[f"blk.0.attn_{part}.weight"]) // head_dim for part in "qk")
        config = transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=len(tensors["blk.0.ffn_gate.weight"]),
            num_hidden_layers=sum(name.endswith("attn_norm.weight") for name in tensors),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=context,
            rms_norm_eps=metadata["llama.attention.layer_norm_rms_epsilon"],
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            tie_word_embeddings="output.weight" not in tensors,
            bos_token_id=metadata["tokenizer.ggml.bos_token_id"],
            eos_token_id=metadata["tokenizer.ggml.eos_token_id"],
        )
        weights = {_weight_name(name): torch.from_numpy(values) for name, values in tensors.items()}
        for name, tensor in weights.items():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weights[name] = _unpermute(tensor, head_dim)
    return config, weights


def _weight_name(name: str) -> str:
    """Return transformers' name of a weight, given GGUF's name."""
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in names:
        return names[name]
    _block, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER_WEIGHTS[part]}.{kind}"


def _unpermute(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Return query or key weights with rows in transformers' order.

    GGUF interleaves the two halves of a head, which transformers rotates against each other.
    """
    columns = weight.shape[1]
    interleaved = weight.view(-1, head_dim // 2, 2, columns)  # [heads, rows of a half, halves, columns]
    return interleaved.transpose(1, 2).reshape(-1, columns)


def tokenizer_from_gguf(file: GGUFFile) -> Any:
    """Return the tokenizer of a GGUF file: byte-level BPE that splits numbers into digits.

    Differs: transformers' own GGUF reader leaves out the split at digits, so after two spaces it encodes a number
    otherwise than the model was trained.

    Raises:
        ConfigError: The file's tokenizer is of another kind, or damaged.
    """
    with one_error(_DAMAGED):
        return _tokenizer(file.metadata)


def _tokenizer(metadata: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a GGUF file's metadata.

    Raises:
        ConfigError: The tokenizer is of another kind.
        ValueError: The metadata are damaged.
    """
    kind = (metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ConfigError(f"the GGUF file's tokenizer is {kind}, but only ('gpt2', 'smollm') is read")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for key in ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"):
        if not 0 <= metadata[key] < len(tokens):
            raise ValueError(f"{key} is {quote(metadata[key])}, but there are {len(tokens)} tokens")
    if len(set(tokens)) < len(tokens):
        raise ValueError("a token comes twice")
    token_types: list[int] = metadata["tokenizer.ggml.token_type"]
    control_tokens = [
        token for token, token_type in zip(tokens, token_types, strict=True) if token_type == _CONTROL_TOKEN
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control_tokens])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[metadata["tokenizer.ggml.eos_token_id"]],
        chat_template=metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )
