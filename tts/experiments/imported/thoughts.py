"""The marks of thoughts in recorded texts, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tts.errors import ConfigError, unknown_name
from tts.thoughts import THINK, ThoughtMarks

NO_THOUGHTS: Final = "none"
# Marks by the opening mark; "harmony" is the format of gpt-oss, whose answer is the message of the channel `final`.
THOUGHTS: Final[Mapping[str, ThoughtMarks | None]] = {
    "<think>": THINK,
    "<thinking>": ThoughtMarks("<thinking>", "</thinking>"),
    "[THINK]": ThoughtMarks("[THINK]", "[/THINK]"),
    "<seed:think>": ThoughtMarks("<seed:think>", "</seed:think>"),
    "harmony": ThoughtMarks("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    NO_THOUGHTS: None,
}
_KNOWN_MARKS: Final = {marks.open: marks for marks in THOUGHTS.values() if marks is not None}  # by the opening mark
LONGEST_MARK: Final = max(map(len, _KNOWN_MARKS))


def marks_in(text: str) -> ThoughtMarks | None:
    """Return the marks of thoughts that a text names or spells out; None: the samples have no thoughts.

    Args:
        text: A name in `THOUGHTS`, the opening mark of one of these names, or two marks. Two marks are an opening and a
            closing mark with a space between.

    Raises:
        ConfigError: the text is neither a name, nor a known opening mark, nor two marks.
    """
    if text in THOUGHTS:
        return THOUGHTS[text]
    if text in _KNOWN_MARKS:
        return _KNOWN_MARKS[text]
    opening, space, closing = text.strip().partition(" ")
    if not space:
        failure = unknown_name("marks of thoughts", text, THOUGHTS)
        raise ConfigError(failure.cause, hint=f"{failure.hint}; or two marks and a space, such as '<reason> </reason>'")
    return ThoughtMarks(opening, closing.strip())
