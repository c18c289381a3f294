"""Loading of models and tokenizers of the transformers library by record, with one-line errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tts.backends.loading.digests import file_digest, weights_digest
from tts.backends.loading.gguf import llama_from_gguf, read_gguf, tokenizer_from_gguf
from tts.backends.loading.hub import local_first, quiet, transformers
from tts.errors import ConfigError
from tts.models.registry import ModelRecord, locate, resolve

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # of weights that are what they say


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer. `weights` is a checksum of the model's exact weights before any cast."""

    model: Any
    tokenizer: Any
    weights: str


def load(record: ModelRecord, *, device: str, dtype: torch.dtype) -> LoadedModel:
    """Load the model of a record.

    Args:
        record: The record of a package's GGUF file, a shipped model, a folder, or a Hub name.
        device: A torch device.
        dtype: The dtype of the weights.

    Raises:
        ConfigError: The record has no weights, or the weights cannot be found or read.
    """
    path = locate(record)
    if path is not None and path.suffix == ".gguf":
        file = read_gguf(path)
        with quiet():
            model = llama_from_gguf(file, dtype)
        loaded = LoadedModel(model, tokenizer_from_gguf(file), record.sha256 or file_digest(path))
    elif path is not None or record.source == "hub":
        loaded = local_first(record, partial(_read, str(path or record.location), dtype))
    else:
        raise ConfigError(
            f"model {record.name!r} has no weights to load", hint="leave the backend out: the model's record names one"
        )
    loaded.model.to(device)
    return loaded


def load_tokenizer(name: str) -> Any:
    """Return the tokenizer of a model: a registered name, a folder, or a Hub name.

    Raises:
        ConfigError: The model has no tokenizer.
    """
    record = resolve(name)
    path = locate(record)
    if path is not None and path.suffix == ".gguf":
        return tokenizer_from_gguf(read_gguf(path))
    if path is None and record.source != "hub":
        raise ConfigError(f"model {name!r} has no tokenizer to load", hint="name a folder, or a model of the Hub")
    read = partial(transformers.AutoTokenizer.from_pretrained, str(path or record.location), trust_remote_code=False)
    return local_first(record, read)


def _read(location: str, dtype: torch.dtype, *, local_files_only: bool) -> LoadedModel:
    """Return the model and the tokenizer at a location, a folder or a Hub name."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        location, local_files_only=local_files_only, trust_remote_code=False
    )
    config = transformers.AutoConfig.from_pretrained(
        location, local_files_only=local_files_only, trust_remote_code=False
    )
    check_weights(location, config)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        location, dtype=dtype, local_files_only=local_files_only, trust_remote_code=False
    )
    return LoadedModel(model, tokenizer, weights_digest(model))


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a folder's weights: those that its index names, or else all safetensors files.

    Raises:
        OSError: The folder has none.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        file_of_weight = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return [folder / name for name in sorted(set(file_of_weight.values()))]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise OSError(f"{folder} holds no weights in the format safetensors (save_pretrained writes it)")
    return files


def check_weights(name: str, config: Any, weights: Mapping[str, torch.Tensor] | None = None) -> None:
    """Raise ConfigError for a quantised checkpoint, whose numbers are no weights without their scales.

    Args:
        name: The name of the model, for the error.
        config: The configuration of the model, which names the method.
        weights: The tensors of the checkpoint; None: they are not read yet.
    """
    settings: Any = getattr(config, "quantization_config", None)
    method = settings.get("quant_method", "unknown") if isinstance(settings, Mapping) else settings and str(settings)
    if method is None:
        other = next((tensor.dtype for tensor in (weights or {}).values() if tensor.dtype not in _DTYPES), None)
        method = None if other is None else str(other).removeprefix("torch.")
    if method:
        raise ConfigError(
            f"model {name!r} is quantised ({method}), but its weights must be float32, float16 or bfloat16 here",
            hint="run it by the backend vllm or on a server, or name the checkpoint that is not quantised",
        )
