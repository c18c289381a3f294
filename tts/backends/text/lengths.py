"""Checks of prompts and texts against a model's context and vocabulary, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from tts.errors import ConfigError, PromptTooLong


def check_prompt(tokens: int, context: int) -> None:
    """Check that a prompt leaves room for one more token.

    Raises:
        PromptTooLong: it does not.
    """
    if tokens >= context:
        raise PromptTooLong(
            f"the prompt renders to {tokens} tokens, but the model's context of {context} must hold it and an answer",
            hint="shorten the prompt, or choose a model with a longer context",
        )


def check_text(path: int, text: int, context: int) -> None:
    """Check that a path with a text fits the context.

    Raises:
        PromptTooLong: it does not.
    """
    if path + text > context:
        raise PromptTooLong(
            f"a path of {path} tokens and a text of {text} pass the model's context of {context}",
            hint="shorten the text, or choose a model with a longer context",
        )


def check_known(ids: Sequence[int], vocab: int) -> None:
    """Check that the model has an embedding for every token.

    Raises:
        ConfigError: it has none for one.
    """
    if max(ids, default=0) >= vocab:
        raise ConfigError(
            f"the text has the token {max(ids)}, but the model knows {vocab}", hint="the tokenizer is another model's, or was added to"
        )
