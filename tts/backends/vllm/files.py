"""A model's files: configuration, tokenizer, number of weights, and a checksum."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import safe_open

from tts.backends.loading.hub import local_first, transformers
from tts.models.registry import ModelRecord

_SAMPLED = 64  # number of stretches of a file that a checksum reads
_SAMPLE_BYTES = 4096  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The contents of a model's files, without the weights.

    Args:
        config: The configuration, of the transformers library.
        generation: The generation settings, of the transformers library; None: there are none.
        tokenizer: The tokenizer, of the transformers library.
        weights: A checksum of the weights, or their location.
        parameters: Number of weights; None: not known.
    """

    config: Any
    generation: Any
    tokenizer: Any
    weights: str
    parameters: int | None

    @classmethod
    def of(cls, record: ModelRecord, location: str) -> ModelFiles:
        """Read a model's files; no weights are loaded.

        Raises:
            ConfigError: the files cannot be found or read.
        """
        config, generation, tokenizer = local_first(record, partial(_read, location))
        folder = Path(location)
        is_local = folder.is_dir()
        weights = record.sha256
        if not weights:
            weights = digest(folder) if is_local else location
        return cls(
            config=config,
            generation=generation,
            tokenizer=tokenizer,
            weights=weights,
            parameters=_parameters(folder) if is_local else None,
        )


def _read(location: str, *, local_files_only: bool) -> tuple[Any, Any, Any]:
    """Return a model's configuration, its generation settings or None, and its tokenizer."""
    config = transformers.AutoConfig.from_pretrained(
        location, local_files_only=local_files_only, trust_remote_code=False
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        location, local_files_only=local_files_only, trust_remote_code=False
    )
    try:
        generation = transformers.GenerationConfig.from_pretrained(location, local_files_only=local_files_only)
    except OSError:  # many models have none
        generation = None
    return config, generation, tokenizer


def digest(folder: Path) -> str:
    """Return a checksum of a folder's JSON files, and of evenly spaced stretches of its weights.

    Training changes all weights, and so the checksum.
    """
    checksum = hashlib.sha256()
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        size = path.stat().st_size
        checksum.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            if path.suffix == ".json":
                checksum.update(file.read())
                continue
            distance = max(1, size // _SAMPLED)
            for start in range(0, size, distance):
                file.seek(start)
                checksum.update(file.read(_SAMPLE_BYTES))
    return checksum.hexdigest()


def _parameters(folder: Path) -> int | None:
    """Return the number of weights in a folder's safetensors files; None where there are no such files."""
    files = list(folder.glob("*.safetensors"))
    total = 0
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - the file is no mapping
                total += math.prod(file.get_slice(name).get_shape())
    return total if files else None
