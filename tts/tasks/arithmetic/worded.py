"""Arithmetic as a story of a person who gains and loses things.

Stories are written from templates and read back exactly.

A story is a start and a chain of events. Each event is one or two operations on the result so far, so the expression
leans left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tts.errors import quote
from tts.tasks.arithmetic.expression import Expression, Operation

if TYPE_CHECKING:
    import numpy as np

NAMES: Final = {
    "Anna": "She", "Ben": "He", "Carla": "She", "David": "He", "Emma": "She", "Felix": "He", "Grace": "She",
    "Hugo": "He", "Iris": "She", "Jonas": "He", "Kira": "She", "Leo": "He",
}  # fmt: skip
ITEMS: Final = ("apples", "books", "cards", "coins", "cookies", "marbles", "pencils", "shells", "stamps", "stickers")

# Sentences of events, by the event's operations: N is the event's number, M a second number. {they} is "She" or "He".
EVENTS: Final = {
    "+": ("{they} buys N more.", "{they} finds N {items}.", "A friend gives N {items}."),
    "-": ("{they} loses N of them.", "{they} gives away N {items}.", "{they} sells N."),
    "*": ("Then the number of {items} grows to N times as many.", "{they} trades every one for N new {items}."),
    "+*": ("{they} buys N bags of M {items}.", "N friends bring M {items} each."),
    "-*": ("{they} fills N boxes with M {items} each and sells them.", "{they} gives M {items} to each of N friends."),
}
_START = "{name} has N {items}."
_QUESTION = "How many {items} are there now?"


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One event of a story.

    `kind` is a key of `EVENTS`, and `template` an index among its templates. `first` and `second` are N and M;
    `second` is 0 without M.
    """

    kind: str
    template: int
    first: int
    second: int = 0

    def apply(self, before: Expression) -> Expression:
        """Return the expression of the number of things after the event."""
        if len(self.kind) == 1:
            return Operation(self.kind, before, self.first)
        return Operation(self.kind[0], before, Operation("*", self.first, self.second))

    def tell(self, story: Story) -> str:
        """Return the event's sentence in a story."""
        return _render_story(EVENTS[self.kind][self.template], story, self.first, self.second)


@dataclass(frozen=True, slots=True)
class Story:
    """A worded problem: the person's name, the things, their number at the start, and the events."""

    name: str
    items: str
    start: int
    events: tuple[StoryEvent, ...]

    def expression(self) -> Expression:
        """Return the expression of the number of things after all events."""
        expression: Expression = self.start
        for event in self.events:
            expression = event.apply(expression)
        return expression

    def __str__(self) -> str:
        return " ".join(
            [
                _render_story(_START, self, self.start),
                *(event.tell(self) for event in self.events),
                _render_story(_QUESTION, self),
            ]
        )


def _render_story(template: str, story: Story, first: int = 0, second: int = 0) -> str:
    numbered = re.sub(r"\bN\b", str(first), re.sub(r"\bM\b", str(second), template))
    return numbered.replace("{they}", NAMES[story.name]).replace("{items}", story.items).replace("{name}", story.name)


def words() -> list[str]:
    """Return every word that a story can hold, sorted, in the case that it has in stories."""
    templates = [_START, _QUESTION, *(template for kind in EVENTS.values() for template in kind)]
    plain = {word for template in templates for word in re.findall(r"(?<!\{)\b[A-Za-z]+\b(?!\})", template)} - {
        "N",
        "M",
    }
    return sorted(plain | set(NAMES) | set(NAMES.values()) | set(ITEMS))


def tell(chain: tuple[tuple[str, int, int], ...], start: int, rng: np.random.Generator) -> Story:
    """Return a story of a chain of events (kind, N, M), with random name, things and sentences."""
    name, items = list(NAMES)[rng.integers(len(NAMES))], ITEMS[rng.integers(len(ITEMS))]
    events = [StoryEvent(kind, int(rng.integers(len(EVENTS[kind]))), first, second) for kind, first, second in chain]
    return Story(name, items, start, tuple(events))


def _pattern(template: str) -> re.Pattern[str]:
    pattern = re.escape(template)
    for mark, group in (
        ("\\{they\\}", "(?:She|He)"),
        ("\\{items\\}", "(?P<items>[a-z]+)"),
        ("\\{name\\}", "(?P<name>[A-Z][a-z]+)"),
    ):
        pattern = pattern.replace(mark, group, 1).replace(mark, group.replace("P<items>", ":"))
    number = "[0-9]{1,9}"  # no story has longer numbers
    return re.compile(re.sub(r"\bM\b", f"(?P<M>{number})", re.sub(r"\bN\b", f"(?P<N>{number})", pattern)))


_SENTENCE_END = re.compile(r"(?<=[.?])\s+")
_READ_START, _READ_QUESTION = _pattern(_START), _pattern(_QUESTION)
_READ_EVENTS = [(kind, i, _pattern(one)) for kind, templates in EVENTS.items() for i, one in enumerate(templates)]


def read(written: str) -> Story | None:
    """Return the story of a text, or None where the text is no story.

    Line breaks count as spaces.
    """
    result = _reading(written)
    return result if isinstance(result, Story) else None


def fault(written: str) -> str | None:
    """Return why a text is no story, with the first sentence that does not fit; None: the text is a story."""
    result = _reading(written)
    return None if isinstance(result, Story) else result


def is_meant(written: str) -> bool:
    """Return whether a text is meant as a story, right or not: one of its sentences could be in a story."""
    patterns = [_READ_START, _READ_QUESTION, *(pattern for _, _, pattern in _READ_EVENTS)]
    return any(pattern.fullmatch(sentence) for sentence in _sentences(written) for pattern in patterns)


def _sentences(text: str) -> list[str]:
    return _SENTENCE_END.split(" ".join(text.split()))


def _reading(text: str) -> Story | str:
    """Return the story of a text, or why the text is no story."""
    first_sentence, *later_sentences = _sentences(text)
    match = _READ_START.fullmatch(first_sentence)
    if match is None:
        return f"it begins with {quote(first_sentence)}, not with a sentence such as 'Anna has 12 apples.'"
    if match["name"] not in NAMES:
        return (
            f"nobody in its stories is called {quote(match['name'])}, as in {quote(first_sentence)}; there are "
            f"{', '.join(NAMES)}"
        )
    if match["items"] not in ITEMS:
        return (
            f"nothing in its stories is called {quote(match['items'])}, as in {quote(first_sentence)}; there are "
            f"{', '.join(ITEMS)}"
        )
    story = Story(match["name"], match["items"], int(match["N"]), ())
    if _render_story(_START, story, story.start) != first_sentence:
        return f"{first_sentence!r} would be {_render_story(_START, story, story.start)!r}"
    question = _render_story(_QUESTION, story)
    if not later_sentences or later_sentences[-1] != question:
        return f"it ends with {quote((later_sentences or [first_sentence])[-1])}, not with {question!r}"
    events: list[StoryEvent] = []
    for sentence in later_sentences[:-1]:
        event = _event(sentence)
        if event is None:
            return f"the sentence {quote(sentence)} is not in its stories"
        if (expected := event.tell(story)) != sentence:
            return f"the sentence {sentence!r} would be {expected!r} in this story"
        events.append(event)
    return Story(story.name, story.items, story.start, tuple(events))


def _event(sentence: str) -> StoryEvent | None:
    for kind, template, pattern in _READ_EVENTS:
        if match := pattern.fullmatch(sentence):
            return StoryEvent(kind, template, int(match["N"]), int(match["M"]) if "M" in pattern.groupindex else 0)
    return None
