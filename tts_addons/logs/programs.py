"""Verdicts on imported programs.

Each program runs once with the tests of its problem, contained, and its verdict is kept in a file. Tests that a model
wrote run in one more process, which reports the outcome of each test.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tts.errors import ConfigError
from tts_addons.code.sandbox import ProgramOutcome
from tts_addons.code.verifier import Code
from tts_addons.code.written import HARNESS, SECONDS, read_outcomes, with_tests

WRITTEN: Final = "tests"  # the verifier role of tests that a model wrote
_NO_TESTS: Final = "assert True"  # the tests of a program that contains its tests and prints their outcomes

_PROGRAM: Final = re.compile(r"\b(?:def|class|assert)\b|#include|\b(?:using|public|fn|func|function)\b")
_OTHER: Final = re.compile(
    r"^\s*(?:#include\b|using namespace\b|public (?:static|class)\b|(?:fn|func|function) \w+\s*\()", re.MULTILINE
)


def program_kind(text: str | None) -> str:
    """Return the kind of a text: "tests" in Python, "a program" without asserts, or "" for another text."""
    if text is None or not _PROGRAM.search(text):
        return ""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "a program" if _OTHER.search(text) else ""
    if any(isinstance(node, ast.Assert) and not isinstance(node.test, ast.Name) for node in nodes):
        return "tests"
    return "a program" if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in nodes) else ""


class ProgramVerdicts:
    """A file of verdicts by program and tests.

    All tests of a program run in one process. An import that was interrupted resumes.

    Args:
        path: The file, created where missing.
        code: The verifier that runs programs; its limits are part of a verdict's key.

    Raises:
        ConfigError: the file cannot be opened.
        CapabilityError: programs cannot be contained on this machine.
    """

    def __init__(self, path: str | Path, code: Code | None = None) -> None:
        self._code = Code() if code is None else code
        self._code.check_sandbox()
        try:
            with ExitStack() as failing:
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                failing.callback(self._db.close)
                self._db.execute("CREATE TABLE IF NOT EXISTS outcomes (program BLOB PRIMARY KEY, passed TEXT NOT NULL)")
                failing.pop_all()
        except sqlite3.Error as failure:
            raise ConfigError(
                f"the file of verdicts {str(path)!r} cannot be opened: {failure}", hint="name another file"
            ) from failure

    def passes(self, program: str, tests: str) -> bool:
        """Return whether a program passes all tests.

        Raises:
            VerifierError: the tests are no Python, or test nothing.
        """
        passed = self._load_or_run(
            (program, tests, self._code),
            lambda: str(int(self._code.outcome(program, tests).outcome is ProgramOutcome.PASSED)),
        )
        return passed == "1"

    def outcomes(self, program: str, written: Sequence[str]) -> tuple[float, ...]:
        """Return the outcome of each written test: 1: passed; 0: failed.

        Equal tests run once. A program that raises before its tests, or takes over a minute for them, passes none.
        """
        tests = list(dict.fromkeys(written))
        digits = self._load_or_run(
            (program, tests, self._code, HARNESS),
            lambda: read_outcomes(
                self._code.outcome(with_tests(program, tests), _NO_TESTS, SECONDS).output, len(tests)
            ),
        )
        digit_of = dict(zip(tests, digits, strict=False))
        return tuple(float(digit_of.get(test) == "1") for test in written)

    def _load_or_run(self, run: tuple[Any, ...], outcomes: Callable[[], str]) -> str:
        """Return the outcomes of a run, from the file if they are there, else by a function.

        Args:
            run: The values that decide the outcomes.
            outcomes: A function that runs the program and returns a digit for each test: "1": passed.
        """
        key = hashlib.sha256(repr(run).encode()).digest()
        row = self._db.execute("SELECT passed FROM outcomes WHERE program = ?", (key,)).fetchone()
        if row is not None:
            return row[0]
        digits = outcomes()
        self._db.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?)", (key, digits))
        return digits

    def close(self) -> None:
        """Close the file."""
        self._db.close()
