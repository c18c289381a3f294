"""Tests of programs as JSON.

Tests are texts on standard input with the expected output, and calls of a function with its result.

    [{"stdin": "3 4", "stdout": "7"}, …]
    [{"function": "add", "arguments": [3, 4], "returns": 7}, …]

A test of standard input runs the program's file as a process of its own. A test of a call runs in the program's
process; the function is a method of the class `Solution` where the program has one. What is expected stays in this
process.

Source: the forms and comparisons of LiveCodeBench (lcb_runner/evaluation/testing_util.py) and APPS. Differs:
    - a program is run as it is, in a process of its own, and not wrapped in a function;
    - `"compare": "tokens"`, the default, takes any white space between words; "lines" keeps lines apart, as
      LiveCodeBench does, but not the number of blanks within one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from tts.errors import quote
from tts_addons.code.conditions import Clause, read_value
from tts_addons.code.program import Wire
from tts_addons.code.values import equal, wire

TOLERANCE: Final = 1e-6  # the tolerance of a real number in an output: relative, and below 1 absolute
HOW: Final = '[{"stdin": "3 4", "stdout": "7"}] or [{"function": "add", "arguments": [3, 4], "returns": 7}]'
_INPUT, _CALL = frozenset({"stdin", "stdout"}), frozenset({"function", "arguments", "returns"})
_OPTIONS: Final = frozenset({"compare", "tolerance"})
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SPARE: Final = 1 << 16  # bytes that an output may have beyond several times what is expected


class BadTestError(ValueError):
    """A test in JSON has another form. The text is the reason."""


def parse_json_tests(tests: str) -> list[Mapping[str, Any]] | None:
    """Return tests in JSON, each checked; None where the text is no list or object of JSON.

    Raises:
        BadTestError: a test has another form, or the two forms are mixed.
    """
    if tests.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value: Any = json.loads(tests, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    items = value if isinstance(value, list) else [value]
    for number, test in enumerate(items, 1):
        _check_test(number, test)
    if len({"stdin" in test for test in items}) > 1:
        raise BadTestError("it mixes tests of standard input and of calls")
    return items


def step_of(test: Mapping[str, Any]) -> tuple[dict[str, Any], Clause]:
    """Return the request of a test to the program's process, and the condition on its report."""
    if "stdin" in test:
        return _input_step(test)
    name, returns = test["function"], _as_lists(wire(test["returns"]))
    arguments = ", ".join(map(repr, test["arguments"]))
    call = f"(Solution().{name} if 'Solution' in globals() else {name})({arguments})"

    def accepts(values: Sequence[Wire]) -> bool:
        value = read_value(values, 0)
        try:
            return equal(_as_lists(value), returns)
        except RecursionError:
            return False

    clause = Clause(accepts, f"{name} does not return {quote(test['returns'])}", of=(0,))
    return {"values": [[call, None, False]], "test": True}, clause


def _input_step(test: Mapping[str, Any]) -> tuple[dict[str, Any], Clause]:
    """Return the request and the condition of a test of standard input."""
    expected = str(test["stdout"])
    is_same = _same_output(
        expected, by_line=test.get("compare") == "lines", tolerance=float(test.get("tolerance", TOLERANCE))
    )
    request = {"stdin": test["stdin"], "most": 4 * len(expected.encode()) + _SPARE, "test": True}
    clause = Clause(lambda values: is_same(read_value(values, 0)), f"the output is not {quote(expected)}", of=(0,))
    return request, clause


def _check_test(number: int, test: Any) -> None:
    """Refuse a test of another form than the two forms; `number` names the test in messages."""
    keys = frozenset(test) if isinstance(test, dict) else frozenset[str]()
    if not (_INPUT <= keys <= _INPUT | _OPTIONS or keys == _CALL):
        raise BadTestError(f"test {number} is {quote(test)}, but must be as in {HOW}")
    if "stdin" in keys:
        if not (isinstance(test["stdin"], str) and isinstance(test["stdout"], str)):
            raise BadTestError(f"test {number} has {quote(test)}, but stdin and stdout must be texts")
        if test.get("compare", "tokens") not in ("tokens", "lines"):
            raise BadTestError(
                f"test {number} has compare {quote(test['compare'])}, but it must be 'tokens' or 'lines'"
            )
        tolerance = test.get("tolerance", TOLERANCE)
        if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
            raise BadTestError(
                f"test {number} has tolerance {quote(tolerance)}, but it must be a number from 0 to below 1"
            )
    elif not (
        isinstance(test["function"], str) and test["function"].isidentifier() and isinstance(test["arguments"], list)
    ):
        raise BadTestError(f"test {number} is {quote(test)}, but function must be a name, and arguments a list")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _as_lists(value: Wire) -> Wire:
    """Return a value with lists in place of tuples, which JSON does not tell apart."""
    if not isinstance(value, list) or not value:
        return value
    kind, *items = value
    return ["l" if kind == "t" else kind, *map(_as_lists, items)]


def _same_output(expected: str, *, by_line: bool, tolerance: float) -> Callable[[Wire], bool]:
    """Return a function that tells whether an output equals the expected output."""

    def split_words(text: str) -> list[list[str]]:
        """Return the words of each line, or all words as one line."""
        return [line.split() for line in text.strip().split("\n")] if by_line else [text.split()]

    expected_lines = split_words(expected)

    def is_same(output: Wire) -> bool:
        lines = split_words(output) if isinstance(output, str) else []
        if list(map(len, lines)) != list(map(len, expected_lines)):
            return False
        words = [word for line in lines for word in line]
        expected_words = [word for line in expected_lines for word in line]
        pairs = zip(words, expected_words, strict=True)
        return all(_same_word(word, expected_word, tolerance) for word, expected_word in pairs)

    return is_same


def _same_word(word: str, expected: str, tolerance: float) -> bool:
    """Whether two words are equal as texts or as numbers; a real number may differ by the tolerance."""
    if word == expected:
        return True
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)):
        return False
    if Decimal(word) == Decimal(expected):
        return True
    is_real = not expected.lstrip("+-").isdecimal()
    if not is_real or not tolerance:
        return False
    return math.isclose(float(word), float(expected), rel_tol=tolerance, abs_tol=tolerance)
