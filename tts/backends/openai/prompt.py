"""Prompts and paths as a server takes them, as one text or as messages, and their greatest number of tokens."""

from __future__ import annotations

from tts.types import Message, Prompt

CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}


def joined(prompt: Prompt) -> str:
    """Return a prompt as one text."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)


def messages(prompt: Prompt, text: str = "") -> list[dict[str, str]]:
    """Return a prompt as messages, with the text of a path as the beginning of the assistant's message."""
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    said = (*turns, Message("assistant", text)) if text else turns
    return [{"role": turn.role, "content": turn.content} for turn in said]


def input_bound(prompt: Prompt, text: str, template_tokens: int) -> int:
    """Return the most tokens of a prompt and a path: their bytes, and `template_tokens`."""
    contents = [prompt] if isinstance(prompt, str) else [f"{message.role}{message.content}\n\n" for message in prompt]
    return sum(len(one.encode(errors="replace")) for one in (*contents, text)) + template_tokens
