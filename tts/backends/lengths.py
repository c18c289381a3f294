"""What does not fit a model's context is refused before anything is computed, in the same words by every backend."""

from __future__ import annotations

from tts.errors import PromptTooLong


def check_prompt(tokens: int, context: int) -> None:
    """Refuse a prompt that leaves no room for one more token.

    Raises:
        PromptTooLong: it does.
    """
    if tokens >= context:
        raise PromptTooLong(
            f"the prompt renders to {tokens} tokens, but the model's context of {context} must hold it and an answer",
            hint="shorten the prompt, or choose a model with a longer context",
        )


def check_text(path: int, text: int, context: int) -> None:
    """Refuse a text that makes its path longer than the context.

    Raises:
        PromptTooLong: it does.
    """
    if path + text > context:
        raise PromptTooLong(
            f"a path of {path} tokens and a text of {text} pass the model's context of {context}",
            hint="shorten the text, or choose a model with a longer context",
        )
