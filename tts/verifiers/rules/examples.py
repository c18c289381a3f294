"""The rule of a program: the examples that its prompt shows, as tests."""

from __future__ import annotations

import ast
import doctest
import warnings


def asserted_examples(text: str) -> str | None:
    """Return the examples of a prompt as Python that asserts them, or None where it has none.

    Examples are doctests (">>> f(2)" with the result below), or without these lines "assert …". A result that is no
    literal is compared with the `repr` of the value. Doctests that are no expression, or show no result, are statements
    of the returned text.
    """
    assertions = [line.strip() for line in text.splitlines() if line.strip().startswith("assert ")]
    lines = [line for line in _doctest_examples(text) or assertions if _parses(line)]
    has_assertion = any(line.startswith("assert ") for line in lines)
    return "\n".join(lines) if has_assertion else None


def _doctest_examples(text: str) -> list[str]:
    try:
        examples = doctest.DocTestParser().get_examples(text)
    except ValueError:  # its indentation is broken
        return []
    return [_assert(example.source.strip(), example.want.strip()) for example in examples if example.exc_msg is None]


def _assert(source: str, want: str) -> str:
    """Return an assertion that a source has the wanted result; a source without a result as it is."""
    if not want:
        return source
    try:
        ast.parse(source, mode="eval")
    except SyntaxError:
        return source
    try:
        ast.literal_eval(want)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return f"assert repr({source}) == {want!r}"
    return f"assert ({source}) == ({want})"


def _parses(line: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(line)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
