"""The tokenizer and the configuration of a reward model, as the transformers library reads them.

No weights are read.
"""

from __future__ import annotations

import importlib
from typing import Any

from tts.errors import ConfigError, missing_extra
from tts.models.registry import ModelRecord, locate


def tokenizer_of(model: ModelRecord) -> Any:
    """Return a model's tokenizer, from its folder, the local cache or the Hub.

    Raises:
        ConfigError: the tokenizer cannot be loaded, or is not a fast tokenizer.
    """
    try:
        transformers: Any = importlib.import_module("transformers")
    except ModuleNotFoundError as failure:
        raise missing_extra("transformers", "engine", "a reward model's tokenizer") from failure
    location = _location(model)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(location, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as failure:
        if model.source != "hub":
            raise _unavailable(model, "tokenizer", failure) from failure
        tokenizer = _download_tokenizer(model, transformers.AutoTokenizer)
    if not tokenizer.is_fast:
        raise ConfigError(
            f"the tokenizer of {model.name!r} is {type(tokenizer).__name__}, but must be a fast one (tokenizer.json)"
        )
    return tokenizer


def _download_tokenizer(model: ModelRecord, tokenizer_class: Any) -> Any:
    """Download a tokenizer from the Hub."""
    from huggingface_hub import constants

    from tts.backends.loading.hub import hub_answers

    if constants.HF_HUB_OFFLINE or not hub_answers():
        raise ConfigError(
            f"the tokenizer of the model {model.name!r} is not in the local cache, and {constants.ENDPOINT} does not "
            "answer",
            hint="give the local folder of a saved model",
        )
    try:
        return tokenizer_class.from_pretrained(model.location, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as failure:
        raise _unavailable(model, "tokenizer", failure) from failure


def config_of(model: ModelRecord) -> Any:
    """Return a model's configuration, from its folder or the local cache.

    Raises:
        ConfigError: the configuration cannot be loaded.
    """
    transformers: Any = importlib.import_module("transformers")
    try:
        return transformers.AutoConfig.from_pretrained(_location(model), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as failure:
        raise _unavailable(model, "configuration", failure) from failure


def _location(model: ModelRecord) -> str:
    path = locate(model)
    if path is not None and not path.is_dir():
        raise ConfigError(
            f"the model {model.name!r} is the file {path.name}, but a reward model is read from a folder or the Hub"
        )
    return model.location if path is None else str(path)


def _unavailable(model: ModelRecord, part: str, failure: Exception) -> ConfigError:
    first_line = " ".join(str(failure).partition("\n")[0].split())
    return ConfigError(
        f"the {part} of the model {model.name!r} could not be loaded: {first_line}",
        hint="give the local folder of a saved model",
    )
