"""Checks of prompts and texts against a model's context and vocabulary, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from tts.errors import ConfigError, PromptTooLong


def check_prompt(tokens: int, context: int) -> None:
    """Check that a prompt leaves room for one more token.

    Raises:
        PromptTooLong: The prompt leaves no room.
    """
    if tokens >= context:
        raise PromptTooLong(
            f"the prompt renders to {tokens} tokens, but the model's context of {context} must hold it and an answer",
            hint="shorten the prompt, or choose a model with a longer context",
        )


def check_text(path: int, text: int, context: int) -> None:
    """Check that a path with a text fits the context.

    Args:
        path: The tokens of the path.
        text: The tokens of the text.
        context: The most tokens of the model.

    Raises:
        PromptTooLong: Path and text do not fit.
    """
    if path + text > context:
        raise PromptTooLong(
            f"a path of {path} tokens and a text of {text} pass the model's context of {context}",
            hint="shorten the text, or choose a model with a longer context",
        )


def check_some(ids: Sequence[int] | str) -> None:
    """Check that a prompt has a token.

    Raises:
        ConfigError: The prompt has no token.
    """
    if not ids:
        raise ConfigError("the prompt renders to no token, but needs at least one", hint="give the prompt some text")


def check_read(tokens: int, context: int) -> None:
    """Check that a prompt that is only read fits the context.

    Raises:
        PromptTooLong: The prompt does not fit.
    """
    if tokens > context:
        raise PromptTooLong(
            f"the prompt has {tokens} tokens, but the model's context is {context}",
            hint="shorten the prompt, or choose a model with a longer context",
        )


def check_known(ids: Sequence[int], vocab: int) -> None:
    """Check that the model has an embedding for every token.

    Args:
        ids: The tokens.
        vocab: The number of embeddings.

    Raises:
        ConfigError: A token has no embedding.
    """
    for token in ids:
        if not 0 <= token < vocab:
            raise ConfigError(
                f"the text has the token {token}, but the model knows those from 0 to {vocab - 1}",
                hint="the tokenizer is another model's, or has added tokens",
            )
