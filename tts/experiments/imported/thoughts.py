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
LONGEST_MARK: Final = max(len(each.open) for each in THOUGHTS.values() if each is not None)


def marks_in(text: str) -> ThoughtMarks | None:
    """Return the marks that a text names, or states with a space between; None: texts have no thoughts.

    Raises:
        ConfigError: the text is neither a name nor two marks.
    """
    if text in THOUGHTS:
        return THOUGHTS[text]
    if marks := next((each for each in THOUGHTS.values() if each is not None and text == each.open), None):
        return marks
    opening, space, closing = text.strip().partition(" ")
    if not space:
        failure = unknown_name("marks of thoughts", text, THOUGHTS)
        raise ConfigError(
            str(failure.args[0]), hint=f"{failure.hint}; or two marks and a space, such as '<reason> </reason>'"
        )
    return ThoughtMarks(opening, closing.strip())
