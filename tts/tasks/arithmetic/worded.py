"""Arithmetic told as a story of one person who gains and loses things: written from templates, and read back without loss.

A story is a start and a chain of events, each of which is one or two operations on what there is; so its expression leans left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tts.tasks.arithmetic.expression import Expression, Operation

NAMES: Final = {
    "Anna": "She", "Ben": "He", "Carla": "She", "David": "He", "Emma": "She", "Felix": "He", "Grace": "She", "Hugo": "He", "Iris": "She",
    "Jonas": "He", "Kira": "She", "Leo": "He",
}  # fmt: skip
ITEMS: Final = ("apples", "books", "cards", "coins", "cookies", "marbles", "pencils", "shells", "stamps", "stickers")

# What happens, by the operations it is: N is the event's number, M a second one. {they} is "She" or "He".
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
class Event:
    """One event of a story. kind: a key of `EVENTS`. template: index among them. first, second: N and M; second is 0 without M."""

    kind: str
    template: int
    first: int
    second: int = 0

    def after(self, before: Expression) -> Expression:
        """Return the expression of what there is behind the event."""
        if len(self.kind) == 1:
            return Operation(self.kind, before, self.first)
        return Operation(self.kind[0], before, Operation("*", self.first, self.second))


@dataclass(frozen=True, slots=True)
class Story:
    """A worded problem. name, items: whose, and what. start: how many at first. events: what happens then."""

    name: str
    items: str
    start: int
    events: tuple[Event, ...]

    def expression(self) -> Expression:
        """Return what is asked for."""
        found: Expression = self.start
        for event in self.events:
            found = event.after(found)
        return found

    def __str__(self) -> str:
        told = [_told(EVENTS[event.kind][event.template], self, event.first, event.second) for event in self.events]
        return " ".join([_told(_START, self, self.start, 0), *told, _told(_QUESTION, self, 0, 0)])


def _told(template: str, story: Story, first: int, second: int) -> str:
    numbered = re.sub(r"\bN\b", str(first), re.sub(r"\bM\b", str(second), template))
    return numbered.replace("{they}", NAMES[story.name]).replace("{items}", story.items).replace("{name}", story.name)


def words() -> list[str]:
    """Return every word that a story can hold, as it stands there first in a text or behind a space; sorted."""
    templates = [_START, _QUESTION, *(template for kind in EVENTS.values() for template in kind)]
    plain = {word for template in templates for word in re.findall(r"(?<!\{)\b[A-Za-z]+\b(?!\})", template)} - {"N", "M"}
    return sorted(plain | set(NAMES) | set(NAMES.values()) | set(ITEMS))


def tell(chain: tuple[tuple[str, int, int], ...], start: int, rng: np.random.Generator) -> Story:
    """Return a story of a chain of events (kind, N, M), its names, things and words drawn."""
    name, items = list(NAMES)[rng.integers(len(NAMES))], ITEMS[rng.integers(len(ITEMS))]
    events = [Event(kind, int(rng.integers(len(EVENTS[kind]))), first, second) for kind, first, second in chain]
    return Story(name, items, start, tuple(events))


def _pattern(template: str) -> str:
    escaped = re.escape(template)
    for mark, group in (("\\{they\\}", "(?:She|He)"), ("\\{items\\}", "(?P<items>[a-z]+)"), ("\\{name\\}", "(?P<name>[A-Z][a-z]+)")):
        escaped = escaped.replace(mark, group, 1).replace(mark, group.replace("P<items>", ":"))
    return re.sub(r"\bM\b", "(?P<M>[0-9]+)", re.sub(r"\bN\b", "(?P<N>[0-9]+)", escaped))


_READ_START = re.compile(_pattern(_START))
_READ_QUESTION = re.compile(_pattern(_QUESTION))
_READ_EVENTS = [(kind, i, re.compile(_pattern(one))) for kind, templates in EVENTS.items() for i, one in enumerate(templates)]


def read(written: str) -> Story | None:
    """Return the story that a text tells, or None where it is none of ours; spaces and line breaks count alike."""
    start, *told, question = re.split(r"(?<=[.?])\s+", " ".join(written.split())) or [""]
    opened = _READ_START.fullmatch(start)
    if opened is None or opened["name"] not in NAMES or opened["items"] not in ITEMS or not _READ_QUESTION.fullmatch(question):
        return None
    events: list[Event] = []
    for sentence in told:
        matches = ((kind, i, pattern.fullmatch(sentence)) for kind, i, pattern in _READ_EVENTS)
        event = next((Event(kind, i, int(m["N"]), int(m["M"]) if "M" in m.groupdict() else 0) for kind, i, m in matches if m), None)
        if event is None:
            return None
        events.append(event)
    story = Story(opened["name"], opened["items"], int(opened["N"]), tuple(events))
    return story if str(story) == " ".join(written.split()) else None
