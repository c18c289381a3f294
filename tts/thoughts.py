"""The thought that a path may begin with, and the marks that separate it from the response."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.errors import ConfigError
from tts.renamed import refuse_old_members

HOW_MARKS = 'such as ("<think>", "</think>"), or ("", "</think>") where the prompt of a server has opened the thought'


@refuse_old_members
@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """The texts between which a model thinks before it responds.

    A path begins with a thought where its prompt ends with `open`, where its text begins with `open`, or where `close`
    stands in its text. The thought ends at the first `close`.

    Args:
        open: Begins a thought; "": what opens it is in no text, and every path begins inside of its thought.
        close: Ends it.
        opened: Whether the prompt ends with `open`, as some chat templates have it; then a path begins inside of its
            thought.

    Raises:
        ConfigError: `open` and `close` are not two different texts with more than blanks.
    """

    open: str = "<think>"
    close: str = "</think>"
    opened: bool = False

    def __post_init__(self) -> None:
        marks: tuple[Any, ...] = (self.open, self.close)
        if problem := refusal_of(marks):
            raise ConfigError(f"the marks of a thought are {marks!r}, but {problem}", hint=HOW_MARKS)
        if not self.open:
            object.__setattr__(self, "opened", True)

    def split(self, text: str) -> tuple[int, int]:
        """Return where the thought of a path's text ends, and where its response begins.

        Both are 0 where the text has no thought. While the thought goes on, both are the length of the text.
        """
        close = self.close.strip()
        end = text.find(close)
        if end >= 0:
            return end, end + len(close)
        if self.opened or text.lstrip().startswith(self.open.strip()):
            return len(text), len(text)
        return 0, 0

    def thought(self, text: str) -> str:
        """Return the thought of a path's text as far as it is written, without its marks; "" if there is none."""
        return text[: self.split(text)[0]].strip().removeprefix(self.open.strip()).strip()

    def split_settled_text(self, text: str) -> tuple[str, str]:
        """Return thought and response of an unfinished text.

        A last piece of the text that may yet become a mark is left out.
        """
        opening, close = self.open.strip(), self.close.strip()
        if close not in text:
            longest_first = range(len(close) - 1, 0, -1)
            num_unsettled = next((size for size in longest_first if text.endswith(close[:size])), 0)
            text = text[: len(text) - num_unsettled]
            if not self.opened and opening.startswith(text.strip()):
                return "", ""
        return self.thought(text), self.response(text)

    def response(self, text: str) -> str:
        """Return what stands after the thought of a path's text; "" while the thought goes on."""
        begin = self.split(text)[1]
        return text[begin:].lstrip() if begin else text

    def continue_prompt(self, prompt: object) -> ThoughtMarks:
        """Return these marks for the paths after a prompt.

        A text prompt is not rendered, so its end decides whether a thought is open.
        """
        opened = prompt.rstrip().endswith(self.open.strip()) if isinstance(prompt, str) else self.opened
        return self if opened == self.opened else dataclasses.replace(self, opened=opened)


def refusal_of(marks: Sequence[Any]) -> str:
    """Return why marks cannot divide a text; "": they can."""
    texts = len(marks) == 2 and all(
        isinstance(mark, str) and (mark.strip() or (mark == "" and not at)) for at, mark in enumerate(marks)
    )
    return "" if texts and marks[0].strip() != marks[1].strip() else "must be two different texts"


THINK = ThoughtMarks()  # where a model's own are not known
