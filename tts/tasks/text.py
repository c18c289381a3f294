"""Free text: the answer is the written text, and answers are equal if their words are equal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from tts.checks import check_parameters, choice
from tts.tasks.base import Task, fold_text
from tts.tasks.extraction import clean, last_marker, last_tag

_WRAPPING = (
    ("**", "**"),
    ("__", "__"),
    ("*", "*"),
    ("_", "_"),
    ("`", "`"),
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("‘", "’"),
    ("«", "»"),
)
_MOST_LAYERS = 4


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Questions without a format of their own: the prompt is passed on as it is, and steps are paragraphs.

    Two answers are equal if their words are equal. Case, spaces, bold and quotes around the whole answer, and its full
    stop make no difference.

    Args:
        match: The rule by which an answer is right. "words": its words are those of the reference. "includes": the
            words of the reference stand somewhere in it, so that "not Paris" is right too.

    Raises:
        ConfigError: `match` is another text.
    """

    match: Annotated[Literal["words", "includes"], choice("words", "includes")] = "words"

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The task's text form, by which results are distinguished."""
        return "text" if self.match == "words" else f"text(match={self.match!r})"

    def extract(self, text: str) -> str | None:
        """Return the answer of a text, or None where it is empty.

        The answer is the content of `<answer>`, else what follows the last answer marker, else the whole text. After a
        marker, the answer is the rest of the last line, or all lines below a line that ends with the marker. So a
        letter with "the answer is" in its middle is whole.
        """
        tagged = last_tag(text)
        if tagged is not None:
            return tagged
        marker_end = last_marker(text)
        first_line, has_more, _ = text[marker_end:].rstrip().partition("\n")
        if marker_end is None or (has_more and first_line.strip(" *_")):
            return text.strip() or None
        stated = text[marker_end:].strip()
        return (stated if stated.count("$") % 2 else clean(stated)) or None  # a single dollar sign is money

    def accepts(self, answer: str, reference: str) -> bool:
        """Whether an answer has the words of the reference, and by "words" no others."""
        if self.match == "words":
            return self.canonical(answer) == self.canonical(reference)
        words = re.escape(self.canonical(reference))
        return re.search(rf"(?<!\w){words}(?!\w)", fold_text(answer)) is not None

    def canonical(self, answer: str) -> str:
        """Return an answer in folded case, without bold, quotes, and the full stop or exclamation mark."""
        text = fold_text(answer)
        for _ in range(_MOST_LAYERS):
            shorter = text if text.endswith("..") else text.rstrip(".。").rstrip()
            if shorter.endswith("!") and shorter[-2:-1].isalpha() and len(shorter) > 2:  # `n!` and `5!` are factorials
                shorter = shorter[:-1]
            for opening, closing in _WRAPPING:
                content = shorter.removeprefix(opening).removesuffix(closing).strip()
                is_long_enough = len(shorter) > len(opening) + len(closing)
                is_enclosed = is_long_enough and shorter.startswith(opening) and shorter.endswith(closing)
                if is_enclosed and opening not in content:
                    shorter = content
            if not shorter or shorter == text:
                return text
            text = shorter
        return text
