"""Reading of a record's configuration, weights and tokenizer. No code from the model's files is run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from safetensors.torch import load_file

from tts.backends.engine.heads import HeadReadout, LikelihoodReadout, ValueHead
from tts.backends.loading.digests import file_digest, tensors_digest
from tts.backends.loading.gguf import llama_weights, read_gguf, tokenizer_from_gguf
from tts.backends.loading.hub import NOT_LOADED, first_line, local_first, quiet, transformers, unavailable
from tts.backends.loading.models import check_weights, weight_files
from tts.errors import ConfigError
from tts.models.registry import ModelRecord, head_path, locate

_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The contents of a model's files.

    Args:
        config: The settings of the model, as the transformers library has them.
        weights: The weights by transformers' names.
        tokenizer: The tokenizer of the transformers library.
        generation: The generation settings, or None.
        digest: A checksum of the exact weights before any cast.
    """

    config: Any
    weights: dict[str, torch.Tensor]
    tokenizer: Any
    generation: Any
    digest: str


def read_checkpoint(record: ModelRecord) -> Checkpoint:
    """Read the files of a record.

    The weights are a package's GGUF file, dequantised, or safetensors in this package, in a folder or on the Hub.

    Raises:
        ConfigError: the record has no weights, or the weights cannot be found or read.
    """
    path = _place(record)
    if path.suffix == ".gguf":
        file = read_gguf(path)
        config, weights = llama_weights(file)
        digest = record.sha256 or file_digest(path)
        return Checkpoint(config, weights, tokenizer_from_gguf(file), generation=None, digest=digest)
    return read_folder(record, path)


def num_weights(record: ModelRecord) -> int:
    """Return the number of a record's weights, of safetensors by the headers of its files.

    Raises:
        ConfigError: the record has no weights, or the weights cannot be found or read.
    """
    path = _place(record)
    if path.suffix == ".gguf":
        return sum(tensor.size for tensor in read_gguf(path).tensors.values())
    count = 0
    try:
        for file in weight_files(path):
            with safe_open(file, framework="pt") as tensors:
                count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    except NOT_LOADED as failure:
        raise unavailable(record, failure) from failure
    return count


def _place(record: ModelRecord) -> Path:
    """Return the file or folder of a record's weights, which are fetched from the Hub if they are nowhere here."""
    path = locate(record)
    if path is None and record.source != "hub":
        raise ConfigError(
            f"model {record.name!r} has no weights to load", hint="leave the backend out: the model's record names one"
        )
    if path is None:
        path = Path(local_first(record, partial(snapshot_download, record.location, allow_patterns=_FILES)))
    return path


def read_folder(record: ModelRecord, folder: Path) -> Checkpoint:
    """Read a folder of the transformers library: config.json, the tokenizer's files, and safetensors.

    Raises:
        ConfigError: a file is missing, broken, or of another format.
    """
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            generation = _generation(folder)
        check_weights(record.name, config)
        weights = _weights(folder)
        check_weights(record.name, config, weights)
    except ConfigError:
        raise
    except NOT_LOADED as failure:
        raise unavailable(record, failure) from failure
    return Checkpoint(config, weights, tokenizer, generation, tensors_digest(config, weights))


def read_heads(record: ModelRecord) -> dict[str, ValueHead]:
    """Read the value heads that a record names. Each has the tensors "weight" [hidden] and "bias" [1].

    Raises:
        ConfigError: a file is missing or broken, or a tensor is missing, of another shape, or not finite.
    """
    return {name: _head(*_tensors(record, file), record.step) for name, file in record.heads}


def read_readout(record: ModelRecord, file: str) -> HeadReadout | LikelihoodReadout:
    """Read the readout of a process model: a linear head, or a likelihood.

    A likelihood has the tensors "scale" [1] and "shift" [1].

    Raises:
        ConfigError: for the reasons of `read_heads`; a scale is not above 0; or the file has tensors of both readouts.
    """
    subject, tensors = _tensors(record, file)
    if {"scale", "weight"} <= set(tensors):
        raise ConfigError(
            f"{subject} has the tensors 'scale' of a likelihood and 'weight' of a linear head, but must be one of them"
        )
    if "scale" not in tensors:
        return HeadReadout(_head(subject, tensors, record.step))
    _check(subject, tensors, {"scale": "[1]", "shift": "[1]"})
    scale = float(tensors["scale"])
    if scale <= 0:
        raise ConfigError(f"{subject} has a scale of {scale:g}, but it must be above 0")
    return LikelihoodReadout(scale, float(tensors["shift"]))


def _tensors(record: ModelRecord, file: str) -> tuple[str, dict[str, torch.Tensor]]:
    """Return the name of a head's file for messages, and the file's tensors."""
    path = head_path(record, file)
    subject = f"the head {path} of model {record.name!r}"
    try:
        return subject, load_file(path)
    except NOT_LOADED as failure:
        raise ConfigError(f"{subject} could not be read: {first_line(failure)}") from failure


def _head(subject: str, tensors: Mapping[str, torch.Tensor], step: tuple[str, ...]) -> ValueHead:
    _check(subject, tensors, {"weight": "[hidden]", "bias": "[1]"})
    return ValueHead(tensors["weight"].float().numpy(), float(tensors["bias"]), step=step)


def _check(subject: str, tensors: Mapping[str, torch.Tensor], rules: Mapping[str, str]) -> None:
    """Check tensors against `rules`, which have the shape of each needed tensor by its name.

    A tensor must have one dimension and finite numbers, and for the shape "[1]" one number.
    """
    for name, shape in rules.items():
        tensor = tensors.get(name)
        if tensor is None:
            needed = " and ".join(f"{needed_name} {needed_shape}" for needed_name, needed_shape in rules.items())
            raise ConfigError(f"{subject} lacks the tensor {name!r}, but needs {needed}")
        if tensor.ndim != 1 or (shape == "[1]" and tensor.numel() != 1):
            raise ConfigError(f"{subject} has a {name} of shape {tuple(tensor.shape)}, but it must be {shape}")
        if not tensor.is_floating_point() or not torch.isfinite(tensor.double()).all():
            raise ConfigError(f"{subject} has a {name} that is not of finite numbers")


def _generation(folder: Path) -> Any:
    if not (folder / "generation_config.json").is_file():
        return None
    return transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a folder."""
    return {name: tensor for file in weight_files(folder) for name, tensor in load_file(file).items()}
