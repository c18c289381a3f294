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
from typing import Any, NamedTuple

from tts.errors import ConfigError, quote

codes: Any = importlib.import_module("re._constants")  # without types
parser: Any = importlib.import_module("re._parser")


class _Place(NamedTuple):
    """What anchors test about a place between two characters of a text."""

    is_start: bool
    is_end_of_line: bool  # the end of the text, or before its last newline
    is_end: bool
    is_word_boundary: bool


_Key = tuple[frozenset[int], _Place, str]  # states, the place, and the character after the place
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
    codes.AT_BEGINNING: lambda place: place.is_start,
    codes.AT_BEGINNING_STRING: lambda place: place.is_start,
    codes.AT_END: lambda place: place.is_end_of_line,
    codes.AT_END_STRING: lambda place: place.is_end,
    codes.AT_BOUNDARY: lambda place: place.is_word_boundary,
    # `re` finds no place of this kind in an empty text
    codes.AT_NON_BOUNDARY: lambda place: not place.is_word_boundary and not (place.is_start and place.is_end),
}
_WORD = re.compile(r"\w")


class Pattern:
    """A regular expression that is searched in time proportional to the text.

    Args:
        text: The pattern, in the syntax of `re`.

    Raises:
        ConfigError: The text is no regular expression, is too large, or has parts that need backtracking.
    """

    def __init__(self, text: str) -> None:
        # by state, the transition that reads a character: the test of the character, and the next state
        self._character_transitions: list[tuple[_Test, int] | None] = []
        # by state, the transitions without a character: an anchor or None, and the next state
        self._empty_transitions: list[list[tuple[Any, int]]] = []
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
        self._known_steps: dict[_Key, frozenset[int] | None] = {}
        self._num_known_states = 0

    def search(self, text: str, spend: Callable[[int], None] = lambda _: None) -> bool:
        """Whether the pattern matches somewhere in a text, as `re.search`.

        Args:
            text: The text.
            spend: A function that gets the steps which the search takes; what it raises ends the search.
        """
        states = frozenset[int]()
        length = len(text)
        spend(length // _CHARACTERS_PER_STEP)
        is_word = False
        for index in range(length + 1):
            character = text[index] if index < length else ""
            was_word, is_word = is_word, bool(character) and _WORD.match(character) is not None
            is_end = index == length
            place = _Place(
                is_start=index == 0,
                is_end_of_line=is_end or (index == length - 1 and character == "\n"),
                is_end=is_end,
                is_word_boundary=was_word != is_word,
            )
            key = (states, place, character)
            if key in self._known_steps:
                next_states = self._known_steps[key]
            else:
                next_states = self._step(states, place, character, spend)
                self._keep(key, next_states)
            if next_states is None:
                return True
            states = next_states
        return False

    def _keep(self, key: _Key, next_states: frozenset[int] | None) -> None:
        """Keep a step of the search for the same states, place and character; too many kept steps are dropped."""
        states, _place, _character = key
        self._num_known_states += 1 + len(states)
        if self._num_known_states > _MAX_KEPT:
            self._known_steps.clear()
            self._num_known_states = 0
        self._known_steps[key] = next_states

    def _step(
        self, states: frozenset[int], place: _Place, character: str, spend: Callable[[int], None]
    ) -> frozenset[int] | None:
        """Return the states after a character; None where the pattern has matched before the character."""
        reachable = {self._start, *states}
        unvisited = [self._start, *states]
        while unvisited:
            for anchor, target in self._empty_transitions[unvisited.pop()]:
                if target not in reachable and (anchor is None or _ANCHORS[anchor](place)):
                    reachable.add(target)
                    unvisited.append(target)
        spend(1 + len(reachable) // _STATES_PER_STEP)
        if self._end in reachable:
            return None
        next_states: set[int] = set()
        for state in reachable:
            transition = self._character_transitions[state]
            if transition is not None and character:
                accepts, target = transition
                if accepts(character):
                    next_states.add(target)
        return frozenset(next_states)

    # The automaton ----------------------------------------------------------------------------------------------------

    def _state(self) -> int:
        """Add a state without transitions, and return its number."""
        if len(self._empty_transitions) == _MAX_STATES:
            raise _Refusal(f"has more than {_MAX_STATES} states with its repetitions written out")
        self._character_transitions.append(None)
        self._empty_transitions.append([])
        return len(self._empty_transitions) - 1

    def _join(self, start: int, end: int, anchor: Any = None) -> None:
        """Add a transition without a character, which an anchor may restrict."""
        self._empty_transitions[start].append((anchor, end))

    def _sequence(self, items: Iterable[tuple[Any, Any]], start: int) -> int:
        """Add the states of parts that follow each other, from the state `start` on. Return the last state."""
        end = start
        for code, value in items:
            end = self._part(code, value, end)
        return end

    def _part(self, code: Any, value: Any, start: int) -> int:
        """Add the states of one part of the tree, from the state `start` on. Return the last state."""
        end = self._state()
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
            before_character = self._state()
            self._join(start, before_character)
            self._character_transitions[before_character] = (_test(code, value), end)
        elif code is codes.AT and value in _ANCHORS:
            self._join(start, end, value)
        elif code is codes.BRANCH:
            _, branches = value
            for branch in branches:
                branch_start = self._state()
                self._join(start, branch_start)
                branch_end = self._sequence(branch, branch_start)
                self._join(branch_end, end)
        elif code is codes.SUBPATTERN and not value[1] and not value[2]:
            _group, _added_flags, _removed_flags, items = value
            self._join(self._sequence(items, start), end)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            minimum, maximum, items = value
            self._join(self._repeat(minimum, maximum, items, start), end)
        else:
            raise _Refusal(f"has {_NAMES.get(code, 'a part')}, which cannot be matched in linear time")
        return end

    def _repeat(self, minimum: int, maximum: Any, items: Any, start: int) -> int:
        """Add the states of a repetition, from the state `start` on. Return the last state."""
        repetition_end = start
        for _ in range(minimum):
            repetition_end = self._sequence(items, self._copy(repetition_end))
        if maximum is codes.MAXREPEAT:
            loop_start = self._copy(repetition_end)
            self._join(self._sequence(items, loop_start), loop_start)
            return self._copy(loop_start)
        end = self._state()
        for _ in range(maximum - minimum):
            self._join(repetition_end, end)  # the further repetitions may be left out
            repetition_end = self._sequence(items, self._copy(repetition_end))
        self._join(repetition_end, end)
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
    """Return the test of one character for a part of the tree: a character, any character, or a set."""
    if code is codes.LITERAL:
        expected = chr(value)
        return lambda character: character == expected
    if code is codes.NOT_LITERAL:
        excluded = chr(value)
        return lambda character: character != excluded
    if code is codes.ANY:
        return lambda character: character != "\n"
    is_negated = any(kind is codes.NEGATE for kind, _content in value)
    ranges = [(chr(content), chr(content)) for kind, content in value if kind is codes.LITERAL]
    ranges += [(chr(content[0]), chr(content[1])) for kind, content in value if kind is codes.RANGE]
    classes = [re.compile(_CATEGORIES[content]) for kind, content in value if kind is codes.CATEGORY]

    def is_in_set(character: str) -> bool:
        is_in_range = any(first <= character <= last for first, last in ranges)
        is_inside = is_in_range or any(character_class.match(character) for character_class in classes)
        return is_inside != is_negated

    return is_in_set
