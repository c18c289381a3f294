"""Free text: the answer is the written text, and answers are equal if their words are equal."""

from __future__ import annotations

from tts.tasks.base import Task, fold_text
from tts.tasks.extraction import clean, last_marker, last_tag

_DRESS = (
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


class TextTask(Task):
    """Questions without a format of their own: the prompt is passed on as it is, and steps are paragraphs.

    Two answers are equal if their words are equal. Case, spaces, bold and quotes around the whole answer, and its full
    stop make no difference.
    """

    name: str = "text"

    def extract(self, text: str) -> str | None:
        """Return the answer of a text, or None where it is empty.

        The answer is the content of `<answer>`, else all text after the last answer marker, else the whole text.
        """
        if (tagged := last_tag(text)) is not None:
            return tagged
        end = last_marker(text)
        return (text.strip() if end is None else clean(text[end:])) or None

    def canonical(self, answer: str) -> str:
        """Return an answer in folded case, without bold, quotes, and the full stop or exclamation mark."""
        text = fold_text(answer)
        for _ in range(_MOST_LAYERS):
            bare = text.rstrip(".。").rstrip() if not text.endswith("..") else text
            if bare.endswith("!") and bare[-2:-1].isalpha() and len(bare) > 2:  # `n!` and `5!` are factorials
                bare = bare[:-1]
            for opening, closing in _DRESS:
                inner = bare.removeprefix(opening).removesuffix(closing).strip()
                if (
                    len(bare) > len(opening) + len(closing)
                    and bare.startswith(opening)
                    and bare.endswith(closing)
                    and opening not in inner
                ):
                    bare = inner
            if not bare or bare == text:
                return text
            text = bare
        return text
