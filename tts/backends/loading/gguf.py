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
from tts.errors import ConfigError, missing_extra, quote

_DAMAGED = "the GGUF file is damaged"
_MOST_ENTRIES = 65_536  # entries of metadata, and tensors
_MOST_VALUES = 1 << 22  # values of a list in the metadata, such as tokens and merges
_MOST_DIMENSIONS = 4
_MOST_CONTEXT = 1 << 27
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
    try:
        import gguf
    except ModuleNotFoundError as failure:
        raise missing_extra("gguf", "engine", f"the file {path}") from failure
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
    """Return a class of readers of GGUF files, which refuses some damaged files.

    The library's own reader would not end on a file that states more entries than it has.
    """
    import gguf

    class BoundedReader(gguf.GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            values = super()._get(offset, dtype, count, override_order)
            if len(values) != int(count):
                raise ValueError("it ends too early")
            return values

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type == gguf.GGUFValueType.ARRAY:
                kind = int(self._get(orig_offs, np.uint32)[0])
                count = int(self._get(orig_offs + 4, np.uint64)[0])
                if count > _MOST_VALUES or kind == gguf.GGUFValueType.ARRAY:
                    raise ValueError(f"it states a list of {count} values, or one of lists")
            return super()._get_field_parts(orig_offs, raw_type)

        def _build_fields(self, offs: int, count: int) -> int:
            return super()._build_fields(offs, _entries(count))

        def _build_tensor_info(self, offs: int, count: int) -> Any:
            end, fields = super()._build_tensor_info(offs, _entries(count))
            for field in fields:
                num_dimensions = field.parts[2][0]
                if num_dimensions > _MOST_DIMENSIONS:
                    raise ValueError(f"a tensor has more than {_MOST_DIMENSIONS} dimensions")
            return end, fields

    return BoundedReader


def _entries(count: int) -> int:
    if count > _MOST_ENTRIES:
        raise ValueError(f"it states {count} entries, but at most {_MOST_ENTRIES} are read")
    return int(count)


def llama_from_gguf(file: GGUFFile, dtype: torch.dtype) -> Any:
    """Return a Llama model with the weights of a GGUF file.

    Raises:
        ConfigError: The file holds another architecture, or is damaged.
    """
    config, weights = llama_weights(file)
    with one_error(_DAMAGED):
        return transformers.LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)


def llama_weights(file: GGUFFile) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the configuration in a GGUF file, and its weights by transformers' names.

    Raises:
        ConfigError: The file holds another architecture, or its weights do not match its metadata.
    """
    metadata = file.metadata
    with one_error(_DAMAGED):
        if metadata["general.architecture"] != "llama":
            raise ConfigError(
                f"the GGUF file holds the architecture {metadata['general.architecture']!r}, but only llama is read"
            )
        shape = _LlamaShape.of(file)
        shape.check(file.tensors)
        config = transformers.LlamaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.inner,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=_whole(metadata, "llama.context_length", _MOST_CONTEXT),
            rms_norm_eps=_positive(metadata, "llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": _positive(metadata, "llama.rope.freq_base")},
            tie_word_embeddings=shape.tied,
            bos_token_id=metadata["tokenizer.ggml.bos_token_id"],
            eos_token_id=metadata["tokenizer.ggml.eos_token_id"],
        )
        weights = {_weight_name(name): torch.from_numpy(values) for name, values in file.tensors.items()}
        for name, tensor in weights.items():
            if name.endswith("q_proj.weight"):
                weights[name] = _unpermute(tensor, shape.heads)
            elif name.endswith("k_proj.weight"):
                weights[name] = _unpermute(tensor, shape.kv_heads)
    return config, weights


@dataclass(frozen=True, slots=True, kw_only=True)
class _LlamaShape:
    """The sizes in the metadata, from which the shapes of all tensors follow."""

    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool

    @classmethod
    def of(cls, file: GGUFFile) -> _LlamaShape:
        """Return the sizes of a file.

        Raises:
            ValueError: A size is no positive whole number, or the sizes do not fit each other.
        """
        metadata = file.metadata
        shape = cls(
            vocabulary=len(metadata["tokenizer.ggml.tokens"]),
            hidden=_whole(metadata, "llama.embedding_length"),
            inner=_whole(metadata, "llama.feed_forward_length"),
            layers=_whole(metadata, "llama.block_count", len(file.tensors)),
            heads=_whole(metadata, "llama.attention.head_count"),
            kv_heads=_whole(metadata, "llama.attention.head_count_kv"),
            head_dim=_whole(metadata, "llama.rope.dimension_count"),
            tied="output.weight" not in file.tensors,
        )
        if shape.heads % shape.kv_heads or shape.head_dim % 2:
            raise ValueError(f"it has {shape.heads} heads of size {shape.head_dim}, and {shape.kv_heads} heads of keys")
        return shape

    def check(self, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        """Check that the file has exactly the tensors of these sizes.

        Raises:
            ValueError: A tensor is missing, superfluous, or of another shape.
        """
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer_shapes = {
            "attn_norm": (self.hidden,), "attn_q": (queries, self.hidden), "attn_k": (keys, self.hidden),
            "attn_v": (keys, self.hidden), "attn_output": (self.hidden, queries), "ffn_norm": (self.hidden,),
            "ffn_gate": (self.inner, self.hidden), "ffn_up": (self.inner, self.hidden),
            "ffn_down": (self.hidden, self.inner),
        }  # fmt: skip
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocabulary, self.hidden),
            "output_norm.weight": (self.hidden,),
        }
        if not self.tied:
            shapes["output.weight"] = (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            shapes |= {f"blk.{layer}.{part}.weight": shape for part, shape in layer_shapes.items()}
        for name in shapes.keys() ^ tensors.keys():  # the names that only one of both has
            raise ValueError(f"the tensor {quote(name)} is {'missing' if name in shapes else 'none of a Llama'}")
        for name, shape in shapes.items():
            if tensors[name].shape != shape:
                raise ValueError(
                    f"the tensor {name} has the shape {tensors[name].shape}, but its metadata state {shape}"
                )


def _whole(metadata: Mapping[str, Any], key: str, most: int = 1 << 31) -> int:
    value = metadata[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise ValueError(f"{key} is {quote(value)}, but must be a whole number from 1 to {most}")
    return value


def _positive(metadata: Mapping[str, Any], key: str) -> float:
    value = metadata[key]
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{key} is {quote(value)}, but must be a number above 0")
    return value


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


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Return query or key weights with rows in transformers' order.

    GGUF interleaves the two halves of a head, which transformers rotates against each other.
    """
    rows, columns = weight.shape
    interleaved = weight.view(heads, rows // heads // 2, 2, columns)  # [heads, rows of a half, halves, columns]
    return interleaved.transpose(1, 2).reshape(rows, columns)


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
