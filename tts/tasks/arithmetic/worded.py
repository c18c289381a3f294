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
        """Return the number of things after the event, as an expression of the number `before` it."""
        if len(self.kind) == 1:
            return Operation(self.kind, before, self.first)
        product = Operation("*", self.first, self.second)
        return Operation(self.kind[0], before, product)

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
        start = _render_story(_START, self, self.start)
        events = [event.tell(self) for event in self.events]
        question = _render_story(_QUESTION, self)
        return " ".join([start, *events, question])


def _render_story(template: str, story: Story, first: int = 0, second: int = 0) -> str:
    numbered = re.sub(r"\bN\b", str(first), re.sub(r"\bM\b", str(second), template))
    return numbered.replace("{they}", NAMES[story.name]).replace("{items}", story.items).replace("{name}", story.name)


def words() -> list[str]:
    """Return every word that a story can hold, sorted, in upper or lower case as stories write it."""
    templates = [_START, _QUESTION, *(template for of_event in EVENTS.values() for template in of_event)]
    # words outside of braces, without the letters that stand for numbers
    template_words = set(re.findall(r"(?<!\{)\b[A-Za-z]+\b(?!\})", " ".join(templates))) - {"N", "M"}
    return sorted(template_words | set(NAMES) | set(NAMES.values()) | set(ITEMS))


def tell(chain: tuple[tuple[str, int, int], ...], start: int, rng: np.random.Generator) -> Story:
    """Return a story of a chain of events (kind, N, M), with random name, things and sentences."""
    name = list(NAMES)[rng.integers(len(NAMES))]
    items = ITEMS[rng.integers(len(ITEMS))]
    events = tuple(StoryEvent(kind, int(rng.integers(len(EVENTS[kind]))), n, m) for kind, n, m in chain)
    return Story(name, items, start, events)


def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of the sentences of a template, with groups for N, M, items and name."""
    pattern = re.escape(template)
    for slot, group in (
        ("\\{they\\}", "(?:She|He)"),
        ("\\{items\\}", "(?P<items>[a-z]+)"),
        ("\\{name\\}", "(?P<name>[A-Z][a-z]+)"),
    ):
        unnamed_group = group.replace("P<items>", ":")  # a pattern may have each name once
        pattern = pattern.replace(slot, group, 1).replace(slot, unnamed_group)
    number = "[0-9]{1,9}"  # no story has longer numbers
    pattern = re.sub(r"\bN\b", f"(?P<N>{number})", pattern)
    return re.compile(re.sub(r"\bM\b", f"(?P<M>{number})", pattern))


_SENTENCE_END = re.compile(r"(?<=[.?])\s+")
_READ_START, _READ_QUESTION = _pattern(_START), _pattern(_QUESTION)
_READ_EVENTS = [
    (kind, template_index, _pattern(template))
    for kind, templates in EVENTS.items()
    for template_index, template in enumerate(templates)
]


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
    patterns = [_READ_START, _READ_QUESTION, *(pattern for _kind, _template_index, pattern in _READ_EVENTS)]
    sentences = _sentences(written)
    return any(pattern.fullmatch(sentence) for pattern in patterns for sentence in sentences)


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
    expected_start = _render_story(_START, story, story.start)
    if first_sentence != expected_start:
        return f"{first_sentence!r} would be {expected_start!r}"
    expected_question = _render_story(_QUESTION, story)
    last_sentence = later_sentences[-1] if later_sentences else first_sentence
    if last_sentence != expected_question:
        return f"it ends with {quote(last_sentence)}, not with {expected_question!r}"
    events: list[StoryEvent] = []
    for sentence in later_sentences[:-1]:
        event = _event(sentence)
        if event is None:
            return f"the sentence {quote(sentence)} is not in its stories"
        expected_sentence = event.tell(story)
        if sentence != expected_sentence:
            return f"the sentence {sentence!r} would be {expected_sentence!r} in this story"
        events.append(event)
    return Story(story.name, story.items, story.start, tuple(events))


def _event(sentence: str) -> StoryEvent | None:
    """Return the event that a sentence tells, or None."""
    for kind, template_index, pattern in _READ_EVENTS:
        match = pattern.fullmatch(sentence)
        if match is not None:
            m = int(match["M"]) if "M" in pattern.groupindex else 0
            return StoryEvent(kind, template_index, int(match["N"]), m)
    return None
