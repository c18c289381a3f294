"""Every wait in tests has one generous limit: a machine under load is no fault of what is tested."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
LEAST_S = 600
SHORT = "# short on purpose"
# of the seconds among the arguments of a call
PLACES = {"wait": 0, "join": 0, "result": 0, "timeout": 0, "wait_for": 1}


def _limits(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the numbers of seconds that calls wait at most, and those that constants of the name say."""
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = [word.value for word in node.keywords if word.arg == "timeout"]
            given += node.args[PLACES[name] :][:1] if name in PLACES else []
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "LIMIT_S" for t in node.targets):
            given = [node.value]
        yield from (one for one in given if isinstance(one, ast.Constant) and isinstance(one.value, int | float))


def short_waits(text: str) -> list[int]:
    """Return the lines of a program that wait for less than the limit and do not say that this is meant."""
    # most of them, which need not be parsed
    if not re.search(r"timeout|wait_for|LIMIT_S|\.(wait|join|result)\(\s*[\d.]", text):
        return []
    lines = text.splitlines()
    return [
        one.lineno for one in _limits(ast.parse(text)) if one.value < LEAST_S and SHORT not in lines[one.lineno - 1]
    ]  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    ["e.wait(5)", "run(a, timeout=60)", "await wait_for(a, 30)", "t.join(1.5)", "LIMIT_S = 120.0", "f.result(9)"],
)
def test_a_short_wait_is_found(text: str) -> None:
    program = f"async def f():\n    {text}\n"
    assert short_waits(program) == [2]
    assert short_waits(program.rstrip() + f"  {SHORT}\n") == []
    assert short_waits("e.wait(LIMIT_S)\n','.join(many)\nrun(timeout=900)") == []


def test_no_test_waits_for_less_than_the_limit() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(ROOT.rglob("*.py"))
        for line in short_waits(path.read_text("utf-8"))
    ]
    assert not found, f"wait for tests.support.guard.LIMIT_S, or say {SHORT!r}: {', '.join(found)}"
