"""Regular expressions in linear time.

Patterns of schemas are matched by an automaton, never by backtracking.

Idea: the pattern is parsed as `re` parses it, and its tree becomes an automaton. A search keeps the set of reachable
    states, so each character is read once. Only the parts of the tree that have such an automaton are allowed:
    characters, sets, alternatives, groups, counted repetitions and anchors. Lookarounds, references to groups, atomic
    groups and inline flags are refused.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from tts.errors import ConfigError, quote

codes: Any = importlib.import_module("re._constants")  # without types
parser: Any = importlib.import_module("re._parser")
# at the start; at the end or the last newline; at the very end; between a word and none
_Place = tuple[bool, bool, bool, bool]
_Key = tuple[frozenset[int], _Place, str]
_Test = Callable[[str], bool]
_MAX_CHARACTERS = 2_000
_MAX_STATES = 3_000
_MAX_KEPT = 200_000  # states in the transitions that are kept of one pattern
_STATES_PER_STEP = 8  # that one step of a meter pays
_CHARACTERS_PER_STEP = 16
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_WORD: r"\w", codes.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_NAMES = {
    codes.ASSERT: "a lookahead or lookbehind", codes.ASSERT_NOT: "a lookahead or lookbehind",
    codes.GROUPREF: "a reference to a group", codes.GROUPREF_EXISTS: "a reference to a group",
    codes.SUBPATTERN: "flags", codes.ATOMIC_GROUP: "an atomic group",
    codes.POSSESSIVE_REPEAT: "a possessive repetition",
}  # fmt: skip
_ANCHORS: dict[Any, Callable[[_Place], bool]] = {
    codes.AT_BEGINNING: lambda place: place[0],
    codes.AT_BEGINNING_STRING: lambda place: place[0],
    codes.AT_END: lambda place: place[1],
    codes.AT_END_STRING: lambda place: place[2],
    codes.AT_BOUNDARY: lambda place: place[3],
    # an empty text has no such place
    codes.AT_NON_BOUNDARY: lambda place: not place[3] and not (place[0] and place[2]),
}
_WORD = re.compile(r"\w")


class Pattern:
    """A regular expression that is searched in time proportional to the text.

    Args:
        text: The pattern, in the syntax of `re`.

    Raises:
        ConfigError: It is no regular expression, is too large, or has parts that need backtracking.
    """

    def __init__(self, text: str) -> None:
        # by state, the character that leaves it, and where it leads
        self._characters: list[tuple[_Test, int] | None] = []
        self._free: list[list[tuple[Any, int]]] = []  # by state, transitions without a character: their anchor or None
        if len(text) > _MAX_CHARACTERS:
            raise ConfigError(f"pattern has {len(text)} characters, but may have at most {_MAX_CHARACTERS}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = parser.parse(text)
            if tree.state.flags != re.UNICODE.value:
                raise ConfigError(f"pattern {quote(text)} has flags, but must have none", hint="write [aA] for (?i:a)")
            self._start = self._state()
            self._end = self._sequence(tree, self._start)
        except (re.error, OverflowError) as failure:
            raise ConfigError(f"pattern {quote(text)} is no regular expression: {failure}") from None
        except RecursionError:
            raise ConfigError(
                f"pattern {quote(text)} is nested too deeply", hint="write it without groups in groups"
            ) from None
        except _Refusal as refusal:
            raise ConfigError(
                f"pattern {quote(text)} {refusal}", hint="state it with sets, alternatives and repetitions"
            ) from None
        self._next: dict[_Key, frozenset[int] | None] = {}
        self._kept = 0

    def search(self, text: str, spend: Callable[[int], None] = lambda _: None) -> bool:
        """Whether the pattern matches somewhere in a text, as `re.search`.

        Args:
            text: The text.
            spend: A function that gets the steps which the search takes; what it raises ends the search.
        """
        states, size = frozenset[int](), len(text)
        spend(size // _CHARACTERS_PER_STEP)
        is_word = False
        for index in range(size + 1):
            character = text[index] if index < size else ""
            was_word, is_word = is_word, bool(character) and _WORD.match(character) is not None
            place = (
                index == 0,
                index == size or (index == size - 1 and character == "\n"),
                index == size,
                was_word != is_word,
            )
            key = (states, place, character)
            if key in self._next:
                next_states = self._next[key]
            else:
                next_states = self._step(*key, spend)
                self._keep(key, next_states)
            if next_states is None:
                return True
            states = next_states
        return False

    def _keep(self, key: _Key, next_states: frozenset[int] | None) -> None:
        """Keep a transition, with room for all that may be needed often."""
        self._kept += 1 + len(key[0])
        if self._kept > _MAX_KEPT:
            self._next.clear()
            self._kept = 0
        self._next[key] = next_states

    def _step(
        self, states: frozenset[int], place: _Place, character: str, spend: Callable[[int], None]
    ) -> frozenset[int] | None:
        """Return the states behind a character; None where the pattern has matched before it."""
        reachable, waiting = {self._start, *states}, [self._start, *states]
        while waiting:
            for anchor, target in self._free[waiting.pop()]:
                if target not in reachable and (anchor is None or _ANCHORS[anchor](place)):
                    reachable.add(target)
                    waiting.append(target)
        spend(1 + len(reachable) // _STATES_PER_STEP)
        if self._end in reachable:
            return None
        leaving = (self._characters[state] for state in reachable)
        return frozenset(step[1] for step in leaving if step is not None and character and step[0](character))

    # The automaton ----------------------------------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self._free) == _MAX_STATES:
            raise _Refusal(f"has more than {_MAX_STATES} states with its repetitions written out")
        self._characters.append(None)
        self._free.append([])
        return len(self._free) - 1

    def _join(self, start: int, end: int, anchor: Any = None) -> None:
        self._free[start].append((anchor, end))

    def _sequence(self, items: Iterable[tuple[Any, Any]], start: int) -> int:
        """Add the states of parts that follow each other. Return the last."""
        for code, value in items:
            start = self._part(code, value, start)
        return start

    def _part(self, code: Any, value: Any, start: int) -> int:
        """Add the states of one part of the tree. Return the last."""
        end = self._state()
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
            middle = self._state()
            self._join(start, middle)
            self._characters[middle] = (_test(code, value), end)
        elif code is codes.AT and value in _ANCHORS:
            self._join(start, end, value)
        elif code is codes.BRANCH:
            for branch in value[1]:
                begin = self._state()
                self._join(start, begin)
                self._join(self._sequence(branch, begin), end)
        elif code is codes.SUBPATTERN and not value[1] and not value[2]:
            self._join(self._sequence(value[3], start), end)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            self._join(self._repeat(value[0], value[1], value[2], start), end)
        else:
            raise _Refusal(f"has {_NAMES.get(code, 'a part')}, which cannot be matched in linear time")
        return end

    def _repeat(self, least: int, most: Any, items: Any, start: int) -> int:
        """Add the states of a repetition. Return the last."""
        for _ in range(least):
            start = self._sequence(items, self._copy(start))
        if most is codes.MAXREPEAT:
            start = self._copy(start)
            self._join(self._sequence(items, start), start)
            return self._copy(start)
        end = self._state()
        for _ in range(most - least):
            self._join(start, end)
            start = self._sequence(items, self._copy(start))
        self._join(start, end)
        return end

    def _copy(self, start: int) -> int:
        """Add a state that is reached from another without a character."""
        end = self._state()
        self._join(start, end)
        return end


class _Refusal(Exception):
    """A pattern has a part that the automaton cannot have."""


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Pattern:
    """Return the automaton of a pattern; see `Pattern`."""
    return Pattern(text)


def _test(code: Any, value: Any) -> _Test:
    """Return the test of one character."""
    if code is codes.LITERAL:
        expected = chr(value)
        return lambda character: character == expected
    if code is codes.NOT_LITERAL:
        excluded = chr(value)
        return lambda character: character != excluded
    if code is codes.ANY:
        return lambda character: character != "\n"
    is_negated = any(kind is codes.NEGATE for kind, _ in value)
    ranges = [(chr(content), chr(content)) for kind, content in value if kind is codes.LITERAL]
    ranges += [(chr(content[0]), chr(content[1])) for kind, content in value if kind is codes.RANGE]
    classes = [re.compile(_CATEGORIES[content]) for kind, content in value if kind is codes.CATEGORY]

    def is_in_set(character: str) -> bool:
        inside = any(first <= character <= last for first, last in ranges) or any(
            each.match(character) for each in classes
        )
        return inside != is_negated

    return is_in_set
