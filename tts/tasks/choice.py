r"""Choice: the answer is one of a few given texts, stated and not only mentioned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tts.errors import ConfigError, quote
from tts.tasks.base import Task, fold_text
from tts.tasks.extraction import clean, last_box, last_marker, last_tag, own_turn
from tts.tasks.framing import short_answers
from tts.types import Problem, Prompt


@dataclass(frozen=True, kw_only=True)
class ChoiceTask(Task):
    r"""Questions whose answer is one of a few texts, such as labels of a classification.

    The answer is the choice in `<answer>`, else in the last box (`\boxed{yes}`), else after the last marker ("Answer:
    yes"). Without these it is the choice that is the whole text or its last line. A choice may be in quotes or bold,
    and in upper or lower case. A text that only mentions a choice has no answer. For letters of a list A to J use the
    task `multiple_choice`.

    Args:
        choices: The texts, at least two, which differ after folding of case and spaces.

    Raises:
        ConfigError: `choices` is no sequence of at least two different texts.
    """

    choices: tuple[str, ...] = ("yes", "no")

    def __post_init__(self) -> None:
        choices: Any = self.choices
        texts = tuple(choices) if isinstance(choices, tuple | list) else ()
        if len(texts) < 2 or not all(isinstance(text, str) and fold_text(text) for text in texts):
            raise ConfigError(
                f"choices is {quote(choices)}, but must be at least two texts",
                hint="for example choices=('yes', 'no')",
            )
        if len({fold_text(text) for text in texts}) < len(texts):
            raise ConfigError(f"choices is {quote(choices)}, but two of them differ in case or spaces only")
        object.__setattr__(self, "choices", texts)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The task's text form, by which results are distinguished."""
        return "choice" if self.choices == ("yes", "no") else f"choice(choices={self.choices!r})"

    def prompt(self, problem: Problem, kind: str = "solve", texts: Any = ()) -> Prompt:
        """Return chat messages that end with the choices and the form of the answer."""
        request = f'Choose one of: {", ".join(self.choices)}. End with a line "Answer: " and your choice.'
        return short_answers(request).prompt(self.name, problem, kind, texts)

    def extract(self, text: str) -> str | None:
        """Return the choice that the text states, as it was written; None where it states none."""
        text = own_turn(text)
        marker_end = last_marker(text)
        after_marker = "" if marker_end is None else text[marker_end:].lstrip().partition("\n")[0]
        last_line = text.rstrip().rpartition("\n")[2]
        for candidate in (last_tag(text) or "", last_box(text) or "", after_marker, text, last_line):
            answer = clean(candidate)
            if self._choose(answer) is not None:
                return answer
        return None

    def canonical(self, answer: str) -> str:
        """Return the choice that an answer states, and any other text folded."""
        return self._choose(clean(answer)) or fold_text(answer)

    def _choose(self, answer: str) -> str | None:
        """Return the choice that an answer is, folded; None for any other answer."""
        folded = fold_text(re.sub(r"\\text\{(.*)\}", r"\1", answer))
        return folded if folded in map(fold_text, self.choices) else None
