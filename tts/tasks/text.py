"""Free text: the answer is what was written, and equal answers are equal words."""

from __future__ import annotations

from tts.tasks.base import Task
from tts.tasks.extraction import clean, last_marker


class TextTask(Task):
    """Questions without a format of their own: the prompt is passed on as it is, and steps are paragraphs."""

    name: str = "text"

    def extract(self, text: str) -> str | None:
        """Return all that stands after the last answer marker, without one the whole text; None where that is empty."""
        end = last_marker(text)
        return (text.strip() if end is None else clean(text[end:])) or None
