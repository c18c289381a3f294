"""Multiple choice: the answer is a letter from A to J that was stated, never one that was only mentioned."""

from __future__ import annotations

import re

from tts.tasks.base import Task, folded
from tts.tasks.extraction import last_boxed, last_marker
from tts.tasks.framing import CHECK_STEPS, CRITIQUE_END, Framing

_FORMAT = 'Reason step by step and separate the steps by a blank line. End with a line "Answer: " and the letter of your choice.'
_FRAMING = Framing(
    requests={
        "solve": _FORMAT,
        "revise": f"Check the earlier solution of this question, correct what is wrong in it, and answer anew. {_FORMAT}",
        "fuse": f"Compare these solutions of the question, keep what is right in them, and give one answer. {_FORMAT}",
        "critique": f"{CHECK_STEPS} {CRITIQUE_END}",
    },
    tokens={"solve": 256, "step": 48, "revise": 256, "fuse": 256, "critique": 128},
)

_WRAPPER = r"[\s*_`\"'$]*"
# A letter alone: "B", "(b)", "B)", "**B**", "\text{B}", "option B", and what follows it in `rest`.
_CHOICE = re.compile(
    rf"{_WRAPPER}(?:(?:option|choice)\s{_WRAPPER})?(?:\\(?:text|textbf|mathrm|mathbf)\s*\{{)?"
    rf"(?:\(\s*(?P<enclosed>[A-Ja-j])\s*\)|(?P<bare>[A-J])(?![\w'’]))\}}?(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)
_ALTERNATIVE = re.compile(r"[\s*.,)\]]*(?:or|and|/|,|&|\+|-|=|<|>)\s*\(?[A-J0-9](?!\w)", re.IGNORECASE)
_BOLD = re.compile(r"\*\*\s*\(?([A-J])\)?[.:)]?\s*\*\*")
_PARENTHESISED = re.compile(r"\(([A-J])\)")
# "A" and "I" are words too: before a small letter they are a choice only where the sentence goes on with a reason.
_REASON = re.compile(r"\s*(?:because|since|as|for|due|which)\b")


class MultipleChoiceTask(Task):
    r"""Questions with choices A to J.

    The answer is the last boxed choice (`\boxed{B}`), else the one after the last marker ("Answer: (B)", "the answer is B."), else the
    last bold one (`**C**`), else a letter alone on the last line. Two letters at once ("B or C") are no choice.
    """

    name: str = "multiple_choice"
    answer_cue: str = "\n\nAnswer: "
    framing = _FRAMING

    def is_finished(self, text: str) -> bool:
        """Whether a choice is boxed, or the last line that is not empty states one after a marker and its newline is there."""
        if _boxed_choice(text) is not None:
            return True
        return text.endswith("\n") and _marked_choice(_last_line(text)) is not None

    def extract(self, text: str) -> str | None:
        """Return the letter of the last choice that was stated, or None."""
        for choice_in in (_boxed_choice, _marked_choice, _bold_choice):
            choice = choice_in(text)
            if choice is not None:
                return choice
        return _lone_choice(_last_line(text))

    def canonical(self, answer: str) -> str:
        """Return the letter of a choice however it is dressed ("(b)", "B.", "B) Paris"), and any other text folded."""
        choice = _stated_choice(answer)
        return folded(answer) if choice is None else choice


def _boxed_choice(text: str) -> str | None:
    boxed = last_boxed(text)
    return None if boxed is None else _stated_choice(boxed)


def _marked_choice(text: str) -> str | None:
    end = last_marker(text)
    if end is None:
        return None
    rest = text[end:].split("\n", 1)[0]
    choice = _stated_choice(rest)
    if choice is None:
        named = set(_PARENTHESISED.findall(rest))
        return named.pop() if len(named) == 1 else None
    return choice


def _bold_choice(text: str) -> str | None:
    letters = _BOLD.findall(text)
    return letters[-1] if letters else None


def _lone_choice(line: str) -> str | None:
    match = _CHOICE.fullmatch(line)
    return _letter(match) if match is not None and not match["rest"].strip(" \t\r.)*_`$\"'}") else None


def _stated_choice(text: str) -> str | None:
    """Return the choice that a text begins with, unless it names another beside it or its letter is a word."""
    match = _CHOICE.fullmatch(text)
    if match is None or _ALTERNATIVE.match(match["rest"]):
        return None
    if match["bare"] in ("A", "I") and re.match(r"\s+[a-z]", match["rest"]) and not _REASON.match(match["rest"]):
        return None
    return _letter(match)


def _letter(match: re.Match[str]) -> str | None:
    """Return the letter as a capital; a small one counts only in parentheses."""
    if match["enclosed"] is not None:
        return match["enclosed"].upper()
    return match["bare"] if match["bare"].isupper() else None


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]
