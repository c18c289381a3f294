"""The tokenizer and the configuration of a reward model, as the transformers library reads them.

No weights are read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tts.errors import ConfigError, require_extra
from tts.models.registry import ModelRecord, locate


def tokenizer_of(model: ModelRecord) -> Any:
    """Return a model's tokenizer, from its folder, the local cache or the Hub.

    Raises:
        ConfigError: the tokenizer cannot be loaded, or is not a fast tokenizer.
    """
    tokenizer = _read(model, "AutoTokenizer")
    if not tokenizer.is_fast:
        raise ConfigError(
            f"the tokenizer of {model.name!r} is {type(tokenizer).__name__}, but must be a fast one (tokenizer.json)"
        )
    return tokenizer


def config_of(model: ModelRecord) -> Any:
    """Return a model's configuration, from where `tokenizer_of` reads.

    Raises:
        ConfigError: the configuration cannot be loaded.
    """
    return _read(model, "AutoConfig")


def _read(model: ModelRecord, reader: str) -> Any:
    """Return what a class of the transformers library reads of a model."""
    with require_extra("transformers", "engine", "a reward model's tokenizer"):
        from tts.backends.loading.hub import local_first, transformers
    path = locate(model)
    if path is not None and not path.is_dir():
        raise ConfigError(
            f"the model {model.name!r} is the file {path.name}, but a reward model is read from a folder or the Hub"
        )
    location = model.location if path is None else str(path)
    read = getattr(transformers, reader).from_pretrained
    return local_first(model, partial(read, location, trust_remote_code=False))
