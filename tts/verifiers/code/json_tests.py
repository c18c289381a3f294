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
from tts.verifiers.code.conditions import Clause, read_value
from tts.verifiers.code.program import Wire
from tts.verifiers.code.values import equal, wire

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
        expected = str(test["stdout"])
        same = _same_output(
            expected, by_line=test.get("compare") == "lines", tolerance=float(test.get("tolerance", TOLERANCE))
        )
        request = {"stdin": test["stdin"], "most": 4 * len(expected.encode()) + _SPARE, "test": True}
        return request, Clause(
            lambda values: same(read_value(values, 0)), f"the output is not {quote(expected)}", of=(0,)
        )
    name, returns = test["function"], wire(test["returns"])
    call = f"(Solution().{name} if 'Solution' in globals() else {name})({', '.join(map(repr, test['arguments']))})"
    condition: Callable[[Sequence[Wire]], bool] = lambda values: equal(_as_lists(read_value(values, 0)), returns)  # noqa: E731 - of this type
    return {"values": [[call, None, False]], "test": True}, Clause(
        condition, f"{name} does not return {quote(test['returns'])}", of=(0,)
    )


def _check_test(number: int, test: Any) -> None:
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
    if isinstance(value, list):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict) and isinstance(inner := value.get("t"), list):
        return [_as_lists(item) for item in inner]
    return value


def _same_output(expected: str, *, by_line: bool, tolerance: float) -> Callable[[Wire], bool]:
    """Return a predicate of outputs that equal the expected one."""

    def words(text: str) -> list[list[str]]:
        return [line.split() for line in text.strip().split("\n")] if by_line else [text.split()]

    expected_words = words(expected)

    def same(written: Wire) -> bool:
        written_words = words(written) if isinstance(written, str) else []
        return list(map(len, written_words)) == list(map(len, expected_words)) and all(
            _same_word(one, other, tolerance)
            for found_line, line in zip(written_words, expected_words, strict=True)
            for one, other in zip(found_line, line, strict=True)
        )

    return same


def _same_word(found: str, wanted: str, tolerance: float) -> bool:
    """Whether two words are equal as texts or as numbers, real numbers within the tolerance."""
    if found == wanted:
        return True
    if not (_NUMBER.fullmatch(found) and _NUMBER.fullmatch(wanted)):
        return False
    if Decimal(found) == Decimal(wanted):
        return True
    is_real = not wanted.lstrip("+-").isdecimal()
    return (
        is_real and bool(tolerance) and math.isclose(float(found), float(wanted), rel_tol=tolerance, abs_tol=tolerance)
    )
