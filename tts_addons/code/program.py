"""Runs a program and the steps of its tests in this process, and reports their values as plain data.

It imports only the standard library: the sandbox loads it by its path, and a container gets its text. For a step that
compares, the process evaluates the program's side alone and knows nothing of the value that is expected. `steps`
decides the comparison elsewhere.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import errno
import json
import math
import numbers
import os
import signal
import subprocess
import sys
import types
from collections.abc import Mapping, Set
from decimal import Decimal
from fractions import Fraction
from typing import Any

# kept before the program can replace them
_exec, _eval, _compile, _dumps, _write = builtins.exec, builtins.eval, builtins.compile, json.dumps, os.write
_DEEPEST = 200  # containers around a value
_DIGITS = 4096  # of a decimal number in the report
_FAULT = 200  # characters of an error or a type's name in the report
_LAST = 1 << 16  # bytes of a run's error output that are read
# kinds such as numpy's
_OTHER_NUMBERS: dict[Any, Any] = {numbers.Integral: int, numbers.Real: float, numbers.Complex: complex}
_LARGE = "otoo large or too deep"
Wire = Any  # None, True or False, or what `encode` writes; {"e": error} where the program raised


def run_program(
    program: str, steps: list[dict[str, Any]], room: int, folder: str, seconds: float = 0.0
) -> dict[str, Any]:
    """Run a program as the module `solution`, then the steps in its namespace; return the report.

    Args:
        program: The text of the program.
        steps: The steps, each with one of these keys. "do": a statement. "values": expressions, each with a name that
            keeps its value here or None, and whether only its truth is asked. "unittest": names of test cases.
            "doctest": docstrings. "stdin": a text, on which the program's file is run. Each step also has "test":
            whether it is a test. A step that is no test and fails ends the run.
        room: Largest size of the values, in characters.
        folder: Where the program's file is written.
        seconds: Limit of each step; 0: none. A step in this process that passes it ends the process by SIGALRM.
    """
    if any("stdin" in step for step in steps):
        return _run_file(program, steps, folder, seconds)
    prepared_steps = [(step, _prepare(step)) for step in steps]
    module = types.ModuleType("solution")
    scope = module.__dict__
    try:
        path = _as_module(module, program, folder)
        _exec(_compile(program, path, "exec", dont_inherit=True), scope)
    except BaseException as failure:  # noqa: BLE001 - whatever the program raises, it has failed
        # the tests may run the program's file themselves, with an input
        run_by_tests = type(failure) in (EOFError, SystemExit) and any("solution.py" in _dumps(step) for step in steps)
        if not run_by_tests:
            is_full = isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
            return {"error": _line(failure), "kind": "disk" if is_full else type(failure).__name__}
    reports: list[dict[str, Any]] = []
    room_left = [room]
    for step, codes in prepared_steps:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        reports.append(_step(step, codes, scope, room_left))
        signal.setitimer(signal.ITIMER_REAL, 0)
        if "error" in reports[-1] and not step["test"]:
            break
    return {"steps": reports}


def _run_file(program: str, steps: list[dict[str, Any]], folder: str, seconds: float) -> dict[str, Any]:
    """Run the program's file on the text of each step, until a run takes too long.

    Return the report, whose values are the outputs.
    """
    path = f"{folder}/solution.py"
    try:
        _compile(program, path, "exec", dont_inherit=True)
        with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:  # noqa: PTH123 - a text
            file.write(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as failure:
        return {"error": _line(failure), "kind": type(failure).__name__}
    reports: list[dict[str, Any]] = []
    for step in steps:
        reports.append(_run_step(step, path, folder, seconds))
        if reports[-1].pop("late", False):
            break
    return {"steps": reports}


def _run_step(step: dict[str, Any], path: str, folder: str, seconds: float) -> dict[str, Any]:
    """Return the output of one run of the program's file, cut to the step's bytes, or its error."""
    with (
        open(f"{folder}/.in", "w+b") as input_file,  # noqa: PTH123
        open(f"{folder}/.out", "w+b") as output_file,  # noqa: PTH123
        open(f"{folder}/.err", "w+b") as error_file,  # noqa: PTH123
    ):
        input_file.write(step["stdin"].encode("utf-8", "surrogatepass"))
        input_file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", path],
            stdin=input_file,
            stdout=output_file,
            stderr=error_file,
            cwd=folder,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds or None)
        except subprocess.TimeoutExpired:
            return {"error": f"it ran for more than {seconds:g} seconds", "late": True}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it left running, too
            process.wait()
        error_file.seek(max(0, os.fstat(error_file.fileno()).st_size - _LAST))
        error_text = error_file.read().decode("utf-8", "replace")
        if code < 0:
            ending_signal = signal.Signals(-code)
            return {"error": f"it was ended by {ending_signal.name}", "late": ending_signal == signal.SIGXCPU}
        if code and ("Traceback (most recent call last)" in error_text or len(error_text) >= _LAST):
            return {"error": error_text.strip().splitlines()[-1][:_FAULT]}
        output_file.seek(0)
        return {"values": [output_file.read(step["most"]).decode("utf-8", "replace")]}


def _as_module(module: types.ModuleType, program: str, folder: str) -> str:
    """Register the program's module, write its file, and return the path of the file.

    The module is registered under its own name and as the main module. Imports find the file.
    """
    path = f"{folder}/solution.py"
    with (
        contextlib.suppress(OSError),  # a folder that cannot be written: only the source is missing
        open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as file,  # noqa: PTH123 - a text
    ):
        file.write(program)
    module.__file__ = path
    sys.modules["solution"] = sys.modules["__main__"] = module
    sys.path.insert(0, folder)
    sys.argv = ["solution.py"]
    return path


def _prepare(step: dict[str, Any]) -> list[Any]:
    """Return the compiled parts of a step, or the fault of each that does not compile."""
    parts = [step["do"]] if "do" in step else [source for source, *_ in step.get("values", [])]
    codes: list[Any] = []
    for source in parts:
        try:
            codes.append(_compile(source, "tests.py", "exec" if "do" in step else "eval", dont_inherit=True))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
            codes.append(_line(failure))
    return codes


def _step(step: dict[str, Any], codes: list[Any], scope: dict[str, Any], room_left: list[int]) -> dict[str, Any]:
    """Run a step in the program's namespace, and return its report."""
    try:
        if "values" in step:
            values = zip(codes, step["values"], strict=True)
            return {"values": [_value(code, scope, room_left, name, truth=truth) for code, (_, name, truth) in values]}
        if "unittest" in step:
            return _unittest([scope[name] for name in step["unittest"]])
        if "doctest" in step:
            return _doctest(step["doctest"], scope)
        if isinstance(codes[0], str):
            return {"error": codes[0]}
        value = _exec(codes[0], scope)
        del value
    except BaseException as failure:  # noqa: BLE001 - whatever a test raises, it has failed
        return {"error": _line(failure)}
    return {}


def _value(code: Any, scope: dict[str, Any], room_left: list[int], name: str | None, *, truth: bool) -> Wire:
    """Return the value of an expression for the report, or keep the value under a name and return None.

    Args:
        code: The compiled expression, or the error of compiling it as text.
        scope: The namespace of the program.
        room_left: As `left` in `encode`.
        name: The name; None: the value is reported.
        truth: Whether only the truth of the value is reported.
    """
    if isinstance(code, str):
        return {"e": code}
    try:
        value = _eval(code, scope)
        if name is not None:
            scope[name] = value
            return None
        return bool(value) if truth else wire(value, room_left)
    except BaseException as failure:  # noqa: BLE001 - whatever the program raises, the value is its error
        return {"e": _line(failure)}


def _unittest(cases: list[Any]) -> dict[str, Any]:
    """Run test cases of `unittest`."""
    import unittest

    result = unittest.TestResult()
    unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases)).run(result)
    faults = [*result.failures, *result.errors]
    if faults:
        _case, traceback = faults[0]
        return {"error": traceback.strip().splitlines()[-1][:_FAULT]}
    if result.unexpectedSuccesses:
        return {"error": "AssertionError: a test that must fail passes"}
    return {} if result.testsRun > len(result.skipped) else {"error": "AssertionError: unittest ran no test"}


def _doctest(texts: list[str], scope: dict[str, Any]) -> dict[str, Any]:
    """Run the examples of docstrings."""
    import doctest

    failures: list[str] = []
    for text in texts:
        examples = doctest.DocTestParser().get_doctest(text, scope, "tests", None, None)
        doctest.DocTestRunner(verbose=False).run(examples, out=failures.append, clear_globs=False)
    if not failures:
        return {}
    return {"error": " ".join(("AssertionError: " + failures[0]).split())[:_FAULT]}


def _line(failure: BaseException) -> str:
    name = type(failure).__name__
    try:
        return f"{name}: {failure}"[:_FAULT]
    except BaseException:  # noqa: BLE001 - the program's own text of its exception
        return name


def wire(value: Any, left: list[int]) -> Wire:
    """Return a value for the report: None, True and False as they are, else as `encode` writes them."""
    return value if value is None or value is True or value is False else encode(value, left)


def encode(value: Any, left: list[int], depth: int = 0) -> Wire:
    """Return the plain data of a value as texts and lists, which equal values have in common.

    A text begins with its kind: "s" a text, "n" a number as an exact ratio in base 16, "b" bytes, "z" None, "o" an
    object that is no plain data, and NaN. A list begins with "l" for a list, "t" a tuple, "S" a set, "d" a dict, or "c"
    a complex number. Members of sets and dicts are sorted.

    A subclass of a plain type is encoded by the data of that type, whatever methods it has. Numbers of other types are
    encoded by their exact value; mappings and sets of other types as dict and set.

    Args:
        value: The value to encode.
        left: [the room in characters], counted down; a value without room is encoded as an object.
        depth: The number of containers around the value.
    """
    if depth > _DEEPEST:
        return _LARGE
    if value is None:
        return "z"
    if isinstance(value, str):
        return _text("s", str.__str__(value), left)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text("b", bytes(value).hex(), left)
    if isinstance(value, numbers.Number):
        return _number(value, left)
    is_numpy = type(value).__module__ == "numpy"
    if is_numpy and type(value).__name__ in ("bool", "bool_"):
        return _number(bool(value), left)
    if is_numpy and type(value).__name__ == "ndarray" and value.ndim == 0 and not value.dtype.hasobject:
        return encode(value.item(), left, depth + 1)
    return _collection(value, left, depth + 1)


def _text(kind: str, content: str, left: list[int]) -> Wire:
    left[0] -= 8 + len(content)
    return kind + content if left[0] >= 0 else _LARGE


def _collection(value: Any, left: list[int], depth: int) -> Wire:
    """Return a collection as a list, by its items."""

    def inside(kind: str, items: Any) -> list[Wire]:
        left[0] -= 8
        encoded: list[Wire] = [kind]
        for item in items:
            encoded.append(encode(item, left, depth))
            if left[0] < 0:
                break
        return encoded

    if isinstance(value, list):
        return inside("l", list.__iter__(value))
    if isinstance(value, collections.UserList):
        return inside("l", value.data)
    if isinstance(value, tuple):
        return inside("t", tuple.__iter__(value))
    if isinstance(value, collections.UserString):
        return encode(value.data, left, depth)
    if isinstance(value, Mapping):
        items = dict.items(value) if isinstance(value, dict) else value.items()
        return ["d", *sorted((inside("t", pair) for pair in items), key=_dumps)]
    if isinstance(value, set | frozenset | Set):
        return ["S", *sorted(inside("", value)[1:], key=_dumps)]
    return f"o{type(value).__name__[:_FAULT]}"


def _number(value: Any, left: list[int]) -> Wire:
    """Return a number by its exact value."""
    if isinstance(value, complex):
        real = _number(value.real, left)
        return ["c", real, _number(value.imag, left)] if value.imag else real
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) >= _DIGITS:
        return "oDecimal"  # its ratio would be too long
    if not isinstance(value, int | float | Decimal | Fraction):
        for kind, exact in _OTHER_NUMBERS.items():
            if isinstance(value, kind):
                return _number(exact(value), left)
        return f"o{type(value).__name__[:_FAULT]}"
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        return "onan" if math.isnan(value) else f"n{float(value)}"
    numerator, denominator = value.as_integer_ratio()
    left[0] -= (numerator.bit_length() + denominator.bit_length()) // 4
    if left[0] < 0:
        return _LARGE
    return f"n{numerator:x}" if denominator == 1 else f"n{numerator:x}/{denominator:x}"


def send(report: dict[str, Any], end: int) -> None:
    """Write a report as one line of JSON, whole."""
    line = _dumps(report).encode() + b"\n"
    while line:
        line = line[_write(end, line) :]
