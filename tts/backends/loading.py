"""Models and tokenizers for the transformers backend: from a record to weights in memory, quietly, with one-line errors."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from huggingface_hub import constants
from numpy.typing import NDArray
from safetensors import SafetensorError
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.utils import logging as transformers_logging

from tts.errors import ConfigError
from tts.models.registry import ModelRecord, locate

_CONTROL_TOKEN = 3  # GGUF's token type of ends of sequence and the like
_DIGEST_VALUES = 4096  # values of each tensor that a checksum of weights reads

# What transformers raises for models that are missing, broken or unknown to it.
NOT_LOADED = (OSError, ValueError, KeyError, RuntimeError)
HUB_HINT = "give the local folder of a saved model, or use smollm2"

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
class Loaded:
    """A model with its tokenizer. `weights` is a checksum that stands for the model's exact weights before any cast."""

    model: Any
    tokenizer: Any
    weights: str


@dataclass(frozen=True, slots=True)
class GGUF:
    """What a GGUF file says: `metadata` by key, and the dequantised `tensors` by name, rows first, float32."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.float32]]


def load(record: ModelRecord, *, device: str, dtype: torch.dtype) -> Loaded:
    """Load what a record names.

    Args:
        record: of a package's GGUF file, a shipped model, a folder, or a Hub name.
        device: a torch device.
        dtype: of the weights.

    Raises:
        ConfigError: the record has no weights, or they cannot be had or read.
    """
    path = locate(record)
    if path is not None and path.suffix == ".gguf":
        file = read_gguf(path)
        with quiet():
            model = llama_from_gguf(file, dtype)
        loaded = Loaded(model, tokenizer_from_gguf(file), record.sha256 or file_digest(path))
    elif path is not None:
        loaded = _from_folder(record, path, dtype)
    elif record.source == "hub":
        loaded = _from_hub(record, dtype)
    else:
        raise ConfigError(f"model {record.name!r} has no weights to load", hint="leave the backend out: the model's record names one")
    loaded.model.to(device)
    return loaded


def _from_folder(record: ModelRecord, folder: Path, dtype: torch.dtype) -> Loaded:
    try:
        return _read(str(folder), dtype, local=True)
    except (*NOT_LOADED, SafetensorError) as failure:
        raise unavailable(record, failure) from failure


def _from_hub(record: ModelRecord, dtype: torch.dtype) -> Loaded:
    """Load a Hub name: what lies in the local cache first, then from the Hub."""
    try:
        return _read(record.location, dtype, local=True)
    except NOT_LOADED as failure:
        if constants.HF_HUB_OFFLINE:
            raise unavailable(record, failure) from failure
    if not hub_answers():
        raise ConfigError(f"model {record.name!r} is not in the local cache, and {constants.ENDPOINT} does not answer", hint=HUB_HINT)
    try:
        return _read(record.location, dtype, local=False)
    except NOT_LOADED as failure:
        raise unavailable(record, failure) from failure


def _read(location: str, dtype: torch.dtype, *, local: bool) -> Loaded:
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(location, local_files_only=local)
        model = transformers.AutoModelForCausalLM.from_pretrained(location, dtype=dtype, local_files_only=local)
    return Loaded(model, tokenizer, weights_digest(model))


def hub_answers() -> bool:
    """Whether the Hub can be reached at all: asked once with a short wait, where transformers would retry for a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def unavailable(record: ModelRecord, failure: Exception) -> ConfigError:
    """Return the error for a model that could not be loaded, with the first line of the reason."""
    hint = HUB_HINT if record.source == "hub" else ""
    return ConfigError(f"model {record.name!r} could not be loaded: {first_line(failure)}", hint=hint)


def first_line(failure: Exception) -> str:
    """Return the first line of what a failure says."""
    return " ".join(str(failure).partition("\n")[0].split())


@contextmanager
def quiet() -> Generator[None]:
    """Silence transformers' progress bars and advice, and put both back as they were."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def read_gguf(path: Path) -> GGUF:
    """Return the contents of a GGUF file.

    Raises:
        ConfigError: it is no GGUF file, or holds weights of a format that the gguf library does not dequantise.
    """
    try:
        reader = gguf.GGUFReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {t.name: np.array(gguf.dequantize(t.data, t.tensor_type), np.float32) for t in reader.tensors}
    except (ValueError, IndexError, NotImplementedError) as failure:  # IndexError: it ends too soon
        raise ConfigError(f"{path} is no GGUF file that can be read: {failure}") from failure
    return GGUF(metadata, tensors)


def llama_from_gguf(file: GGUF, dtype: torch.dtype) -> Any:
    """Return a Llama model with the weights of a GGUF file.

    Raises:
        ConfigError: the file holds another architecture.
    """
    config, weights = llama_weights(file)
    return transformers.LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)


def llama_weights(file: GGUF) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the configuration in a GGUF file, and its weights by transformers' names.

    Raises:
        ConfigError: the file holds another architecture.
    """
    facts = file.metadata
    if facts["general.architecture"] != "llama":
        raise ConfigError(f"the GGUF file holds the architecture {facts['general.architecture']!r}, but only llama is read")
    heads, kv_heads = facts["llama.attention.head_count"], facts["llama.attention.head_count_kv"]
    config = transformers.LlamaConfig(
        vocab_size=len(facts["tokenizer.ggml.tokens"]),
        hidden_size=facts["llama.embedding_length"],
        intermediate_size=facts["llama.feed_forward_length"],
        num_hidden_layers=facts["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=facts["llama.rope.dimension_count"],
        max_position_embeddings=facts["llama.context_length"],
        rms_norm_eps=facts["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        tie_word_embeddings="output.weight" not in file.tensors,
        bos_token_id=facts["tokenizer.ggml.bos_token_id"],
        eos_token_id=facts["tokenizer.ggml.eos_token_id"],
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


def tokenizer_from_gguf(file: GGUF) -> Any:
    """Return the tokenizer of a GGUF file: byte-level BPE that splits numbers into digits.

    Differs: transformers' own GGUF reader leaves out the split at digits, so behind two spaces it encodes a number otherwise
    than the model was trained.

    Raises:
        ConfigError: the file's tokenizer is of another kind.
    """
    facts = file.metadata
    kind = (facts["tokenizer.ggml.model"], facts.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ConfigError(f"the GGUF file's tokenizer is {kind}, but only ('gpt2', 'smollm') is read")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, sort in zip(tokens, facts["tokenizer.ggml.token_type"], strict=True) if sort == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[facts["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[facts["tokenizer.ggml.eos_token_id"]],
        chat_template=facts.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )


def weights_digest(model: Any) -> str:
    """Return a checksum of a model: of its configuration, and of up to 4,096 evenly spaced values of every tensor."""
    return tensors_digest(model.config, model.state_dict())


def tensors_digest(configuration: Any, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a checksum of a configuration of the transformers library and of tensors, as `weights_digest` does."""
    config = {k: v for k, v in configuration.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().reshape(-1)
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(flat[:: max(1, len(flat) // _DIGEST_VALUES)].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
