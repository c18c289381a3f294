"""Every public name states its parameters, and has an example that prints what it shows."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tts
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.verifiers import VERIFIERS

pytestmark = pytest.mark.docs
WITHOUT = {  # names without an example, and why
    "selections": "a module, whose names have examples",
    "stop_rules": "a module, whose names have examples",
    "strategies": "a module, whose names have examples",
    "telemetry": "a module; the page on telemetry runs its lines",
    "Interrupted": "raised by Ctrl-C alone",
}
# of the embedded models, which the extra engine runs
EMBEDDED = {"Probe", "ProcessVerifier", "SelfEvaluation", "Reward"}
OTHERS = r"`(?:solve|solve_many|Solver\.solve_many)`"  # of functions that have the options of another
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@cache
def public() -> dict[str, Any]:
    """Every public name: those of `tts`, and the classes of all built-in parts."""
    found: dict[str, Any] = {}
    for module in (tts, tts.strategies, tts.selections, tts.stop_rules):
        for name in module.__all__:
            if module is not tts or name not in WITHOUT:
                with suppress(ModuleNotFoundError):  # of an add-on that is not installed
                    found[name] = getattr(module, name)
    for registry in (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS):
        found |= {place.rpartition(":")[2]: registry.get(name) for name, place in registry.entries.items()}
    return found


def described(name: str) -> str:
    """What the docstrings of a public name and of its bases say."""
    value = public()[name]
    if not inspect.isclass(value):
        return docstring(name)
    own = [base for base in value.__mro__ if base.__module__.split(".")[0] in ("tts", "tts_addons")]
    return "\n".join(inspect.getdoc(base) or "" for base in own)


def docstring(name: str) -> str:
    """The docstring of a public name; of a constant, the text below it."""
    value = public()[name]
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    body = ast.parse(Path(inspect.getfile(type(value))).read_text(encoding="utf-8")).body
    place = next(
        i for i, node in enumerate(body) if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    (text,) = [ast.literal_eval(node.value) for node in body[place + 1 : place + 2] if isinstance(node, ast.Expr)]
    return inspect.cleandoc(text)


def test_no_other_name_is_without_an_example() -> None:
    assert [name for name in public() if "\nExample:\n    >>> " not in docstring(name)] == []
    assert set(WITHOUT) <= set(tts.__all__)
    assert len(public()) > 120


@pytest.mark.parametrize("name", sorted(public()))
def test_an_example_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in EMBEDDED:
        pytest.importorskip("torch", reason="the embedded pair needs the extra engine")
    monkeypatch.chdir(tmp_path)
    text = docstring(name).partition("\nExample:\n")[2]
    examples = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, name, None, None)
    assert any(each.want for each in examples.examples), "nothing is shown"
    told: list[str] = []
    done = doctest.DocTestRunner(optionflags=OPTIONS).run(examples, out=told.append)
    assert done.failed == 0, "".join(told)


@pytest.mark.parametrize("name", sorted(public()))
def test_each_parameter_is_described(name: str) -> None:
    """Those of what a caller makes: a `Search` is made by the solver."""
    value, text = public()[name], described(name)
    if not callable(value) or name == "Search" or (re.search(OTHERS, text) and "\nArgs:\n" not in text):
        return
    parameters = inspect.signature(value).parameters.values()
    named = [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL]
    assert [each for each in named if not re.search(rf"\b{each}\b", text)] == []


def test_modules_that_are_public_are_those_of_the_list() -> None:
    modules = {name for name in tts.__all__ if inspect.ismodule(getattr(tts, name))}
    assert modules == {name for name, why in WITHOUT.items() if why.startswith("a module")}
    for name in modules:
        importlib.import_module(getattr(tts, name).__name__)
