"""GGUF files: their metadata and dequantised tensors, as a Llama model and a tokenizer of the transformers library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tts.errors import ConfigError, missing_extra

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
    """The contents of a GGUF file: `metadata` by key, and dequantised `tensors` by name, rows first, float32."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.float32]]


def read_gguf(path: Path) -> GGUFFile:
    """Return the contents of a GGUF file.

    Raises:
        ConfigError: it is not a GGUF file, or the gguf library cannot dequantise its weights.
        MissingDependency: the gguf library is not installed; models in other formats do without it.
    """
    try:
        import gguf
    except ModuleNotFoundError as failure:
        raise missing_extra("gguf", "engine", f"the file {path}") from failure
    try:
        reader = gguf.GGUFReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {t.name: np.array(gguf.dequantize(t.data, t.tensor_type), np.float32) for t in reader.tensors}
    except (ValueError, IndexError, NotImplementedError) as failure:  # IndexError: it ends too soon
        raise ConfigError(f"{path} is no GGUF file that can be read: {failure}") from failure
    return GGUFFile(metadata, tensors)


def llama_from_gguf(file: GGUFFile, dtype: torch.dtype) -> Any:
    """Return a Llama model with the weights of a GGUF file.

    Raises:
        ConfigError: the file holds another architecture.
    """
    config, weights = llama_weights(file)
    return transformers.LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)


def llama_weights(file: GGUFFile) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the configuration in a GGUF file, and its weights by transformers' names.

    Raises:
        ConfigError: the file holds another architecture.
    """
    metadata = file.metadata
    if metadata["general.architecture"] != "llama":
        raise ConfigError(f"the GGUF file holds the architecture {metadata['general.architecture']!r}, but only llama is read")
    heads, kv_heads = metadata["llama.attention.head_count"], metadata["llama.attention.head_count_kv"]
    config = transformers.LlamaConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=metadata["llama.embedding_length"],
        intermediate_size=metadata["llama.feed_forward_length"],
        num_hidden_layers=metadata["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=metadata["llama.rope.dimension_count"],
        max_position_embeddings=metadata["llama.context_length"],
        rms_norm_eps=metadata["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        tie_word_embeddings="output.weight" not in file.tensors,
        bos_token_id=metadata["tokenizer.ggml.bos_token_id"],
        eos_token_id=metadata["tokenizer.ggml.eos_token_id"],
    )
    weights = {_weight_name(name): torch.from_numpy(values) for name, values in file.tensors.items()}
    for name, tensor in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weights[name] = _unpermuted(tensor, heads if "q_proj" in name else kv_heads)
    return config, weights


def _weight_name(name: str) -> str:
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in whole:
        return whole[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_LAYER_WEIGHTS[part]}.{kind}"


def _unpermuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo GGUF's order of query and key rows: it interleaves the two halves that transformers rotates against each other."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def tokenizer_from_gguf(file: GGUFFile) -> Any:
    """Return the tokenizer of a GGUF file: byte-level BPE that splits numbers into digits.

    Differs: transformers' own GGUF reader leaves out the split at digits, so after two spaces it encodes a number otherwise
    than the model was trained.

    Raises:
        ConfigError: the file's tokenizer is of another kind.
    """
    metadata = file.metadata
    kind = (metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ConfigError(f"the GGUF file's tokenizer is {kind}, but only ('gpt2', 'smollm') is read")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, sort in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True) if sort == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[metadata["tokenizer.ggml.eos_token_id"]],
        chat_template=metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )
