"""Texts in whole characters.

Models, functions and servers may give halves of surrogate pairs, which no encoding can write.
"""

from __future__ import annotations

import dataclasses
import re

from tts.types import Prompt

HALVES = re.compile("[\ud800-\udfff]")


def join_surrogates(text: str) -> str:
    """Return a text with each surrogate pair as one character.

    Lone halves are replaced by U+FFFD.
    """
    if text.isascii() or not HALVES.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def prompt_in_whole_characters(prompt: Prompt) -> Prompt:
    """Return a prompt whose texts are all in whole characters."""
    if isinstance(prompt, str):
        return join_surrogates(prompt)
    return tuple(
        dataclasses.replace(turn, role=join_surrogates(turn.role), content=join_surrogates(turn.content))
        for turn in prompt
    )
