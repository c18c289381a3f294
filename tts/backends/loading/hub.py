"""Helpers of all loaders: local files before the Hub, one-line errors, and no progress bars."""

from __future__ import annotations

import importlib
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from huggingface_hub import constants

from tts.errors import ConfigError, TTSError
from tts.models.registry import ModelRecord

T = TypeVar("T")
# untyped: to read the types of all its models takes an eighth of a check
transformers: Any = importlib.import_module("transformers")

# Libraries raise errors of any kind for models that are missing or damaged: tokenizers raises Exception itself.
NOT_LOADED = (Exception,)
HUB_HINT = "give the local folder of a saved model, or use smollm2"


def hub_answers() -> bool:
    """Whether the Hub can be reached, by one request with a short timeout.

    The transformers library would retry for a minute.
    """
    try:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def local_first(record: ModelRecord, read: Callable[..., T]) -> T:
    """Return the result of `read` for local files, or else for files of the Hub.

    Args:
        record: The record of the model.
        read: Reads the files, with the argument `local_files_only`: first True; then, if a model of the Hub is not in
            the local cache, False.

    Raises:
        ConfigError: The files are missing or broken.
    """
    try:
        with quiet():
            return read(local_files_only=True)
    except ConfigError:
        raise
    except NOT_LOADED as failure:
        if record.source != "hub" or constants.HF_HUB_OFFLINE:
            raise unavailable(record, failure) from failure
    if not hub_answers():
        raise ConfigError(
            f"model {record.name!r} is not in the local cache, and {constants.ENDPOINT} does not answer", hint=HUB_HINT
        )
    try:
        with quiet():
            return read(local_files_only=False)
    except ConfigError:
        raise
    except NOT_LOADED as failure:
        raise unavailable(record, failure) from failure


def unavailable(record: ModelRecord, failure: Exception) -> ConfigError:
    """Return the error for a model that could not be loaded, with the first line of the reason."""
    hint = HUB_HINT if record.source == "hub" else ""
    return ConfigError(f"model {record.name!r} could not be loaded: {first_line(failure)}", hint=hint)


@contextmanager
def one_error(what: str) -> Generator[None]:
    """Turn any exception of a library within the block into one ConfigError.

    Args:
        what: The beginning of the message, which says what is wrong.

    Raises:
        ConfigError: The block raised an exception that is no error of this package.
    """
    try:
        yield
    except TTSError:
        raise
    except Exception as failure:
        raise ConfigError(f"{what}: {first_line(failure) or type(failure).__name__}") from failure


def first_line(failure: Exception) -> str:
    """Return the first line of an exception's message."""
    return " ".join(str(failure).partition("\n")[0].split())


@contextmanager
def quiet() -> Generator[None]:
    """Silence transformers' progress bars and warnings within the block."""
    old_verbosity = transformers.utils.logging.get_verbosity()
    had_progress_bar = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(old_verbosity)
        if had_progress_bar:
            transformers.utils.logging.enable_progress_bar()
