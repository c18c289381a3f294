"""The marks of thoughts in recorded texts, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tts.errors import ConfigError, unknown_name
from tts.thoughts import KNOWN, ThoughtMarks

NO_THOUGHTS: Final = "none"
THOUGHTS: Final[Mapping[str, ThoughtMarks | None]] = {**KNOWN, NO_THOUGHTS: None}


def marks_in(text: str) -> ThoughtMarks | None:
    """Return the marks of thoughts that a text names or spells out; None: the samples have no thoughts.

    Args:
        text: A name in `THOUGHTS`, or an opening and a closing mark with a space between. All known marks count beside
            the marks that are returned.

    Raises:
        ConfigError: the text is neither a name nor two marks.
    """
    if text in THOUGHTS:
        return THOUGHTS[text]
    opening, space, closing = text.strip().partition(" ")
    if not space:
        failure = unknown_name("marks of thoughts", text, THOUGHTS)
        raise ConfigError(failure.cause, hint=f"{failure.hint}; or two marks and a space, such as '<reason> </reason>'")
    return ThoughtMarks(opening, closing.strip())
