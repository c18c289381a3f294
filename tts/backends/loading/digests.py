"""Checksums of weights and files, which are parts of a backend's identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_DIGEST_VALUES = 4096  # values of each tensor that a checksum of weights reads


def weights_digest(model: Any) -> str:
    """Return a checksum of a model's configuration, and of up to 4,096 values of every tensor.

    The values are evenly spaced.
    """
    return tensors_digest(model.config, model.state_dict())


def tensors_digest(configuration: Any, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the checksum of `weights_digest` for a configuration of the transformers library and tensors."""
    settings = dict(configuration.to_dict())
    for name in ("_name_or_path", "transformers_version"):  # they change without the model
        settings.pop(name, None)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().reshape(-1)
        step = max(1, len(values) // _DIGEST_VALUES)
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(values[::step].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
