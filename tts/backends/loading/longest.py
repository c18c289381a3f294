"""The longest path that a model of the transformers library can read."""

from __future__ import annotations

from typing import Any

from tts.errors import ConfigError


def longest_path(config: Any, reader: str, hint: str) -> int:
    """Return the most tokens of a path.

    The model's positions limit the number, and so does the window of layers with sliding attention.

    Args:
        config: The config of the text model.
        reader: The backend, for messages.
        hint: The hint of errors, which names another backend for such a model.

    Raises:
        ConfigError: A layer keeps another state than keys and values of the whole path, or the configuration names no
            longest path.
    """
    kinds: set[str] = set(getattr(config, "layer_types", None) or ())
    other_kinds = kinds - {"full_attention", "sliding_attention"}
    if other_kinds:
        raise ConfigError(
            f"the model has layers of the kind {', '.join(sorted(other_kinds))}, but {reader} needs attention to the "
            "whole path",
            hint=hint,
        )
    longest: int | None = getattr(config, "max_position_embeddings", None)
    if longest is None:
        raise ConfigError(
            f"the model's configuration names no longest path (max_position_embeddings), but {reader} needs one"
        )
    window: int | None = getattr(config, "sliding_window", None)
    may_slide = "sliding_attention" in kinds or not kinds  # a configuration without kinds may have the window
    return min(longest, window) if may_slide and window else longest
