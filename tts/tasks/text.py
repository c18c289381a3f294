"""Free text: the answer is what was written, and equal answers are equal words."""

from __future__ import annotations

from collections.abc import Sequence

from tts.tasks.base import split_at
from tts.tasks.extraction import clean, last_marker
from tts.tasks.framing import Framing
from tts.types import Message, Problem

_FRAMING = Framing(
    task="text",
    requests={
        "solve": "",
        "revise": "Check the earlier solution, correct what is wrong in it, and answer anew.",
        "fuse": "Compare these solutions, keep what is right in them, and give one answer.",
        "critique": "Check the earlier solution. Say what is wrong in it and why, or say that nothing is.",
    },
    tokens={"solve": 256, "step": 64, "revise": 256, "fuse": 256, "critique": 128},
)


class TextTask:
    """Questions without a format of their own: the prompt is passed on as it is, and steps are paragraphs."""

    name: str = "text"
    step_stop: tuple[str, ...] = ("\n\n",)

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> tuple[Message, ...]:
        """Return the problem as chat messages, with earlier solutions and a request behind it for kinds other than "solve"."""
        return _FRAMING.prompt(problem, kind, texts)

    def split(self, text: str) -> list[str]:
        """Return the paragraphs of a text, each with the blank line behind it."""
        return split_at(text, self.step_stop)

    def is_finished(self, text: str) -> bool:  # noqa: ARG002 - the protocol has it
        """Return False: only an end of sequence ends free text."""
        return False

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return the usual length in tokens of a solution of some kind, or of a "step"."""
        return _FRAMING.typical_tokens(kind)

    def extract(self, text: str) -> str | None:
        """Return all that stands behind the last answer marker, without one the whole text; None where that is empty."""
        end = last_marker(text)
        return (text.strip() if end is None else clean(text[end:])) or None

    def canonical(self, answer: str) -> str:
        """Return an answer with its spaces and case folded."""
        return " ".join(answer.split()).casefold()

    def decide(self, a: str, b: str) -> bool | None:
        """Whether two answers are the same words; always decided."""
        return self.canonical(a) == self.canonical(b)

    def equivalent(self, a: str, b: str) -> bool:
        """Whether two answers are the same words."""
        return self.canonical(a) == self.canonical(b)

    def close(self) -> None:
        """Do nothing: there is nothing to free."""
