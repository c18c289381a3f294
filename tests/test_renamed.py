"""Names of the last version: each is refused in one line that says what to use now."""

from __future__ import annotations

import importlib
import sys

import pytest

import tts
from tts import renamed

ROWS = [*renamed.MODULES.items(), *renamed.NAMES.items()]


def found(name: str) -> object:
    """Return what a full name stands for: a module, or a name in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, last = name.rpartition(".")
        return getattr(importlib.import_module(parent), last)


@pytest.mark.parametrize(("old", "now"), ROWS, ids=[old for old, _ in ROWS])
def test_an_old_name_is_refused_with_what_to_use_now(old: str, now: str) -> None:
    parent, _, last = old.rpartition(".")
    try:
        importlib.import_module(parent)
        successors = [] if now.startswith("removed: ") else [found(name) for name in now.split(" and ")]
    except tts.MissingDependency as missing:
        pytest.skip(f"{missing} is not installed")
    with pytest.raises(ImportError) as refused:
        exec(f"from {parent} import {last}", {})
    assert str(refused.value) == (f"{old} was {now}" if now.startswith("removed: ") else f"{old} is {now} since 0.3")
    assert "\n" not in now
    assert None not in successors


def test_a_module_that_moved_is_refused_however_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(renamed.MODULES, "tts.search.gone", "tts.search.plan and tts.search.ends")
    for code in (
        "import tts.search.gone",
        "from tts.search import gone",
        "from tts.search.gone import Plan",
        "import tts.search.gone as gone",
    ):
        with pytest.raises(ImportError, match=r"^tts.search.gone is tts.search.plan and tts.search.ends since 0.3$"):
            exec(code, {})


def test_a_name_that_changed_is_refused_as_an_attribute_and_as_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(renamed.NAMES, "tts.Gone", "tts.Plan")
    with pytest.raises(AttributeError, match=r"^tts.Gone is tts.Plan since 0.3$"):
        _ = tts.Gone
    with pytest.raises(ImportError, match=r"^tts.Gone is tts.Plan since 0.3$"):
        exec("from tts import Gone", {})
    assert not hasattr(tts, "Gone")


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'tts[.]search[.]never_was'$"):
        importlib.import_module("tts.search.never_was")
    with pytest.raises(AttributeError, match="module 'tts' has no attribute 'never_was'"):
        _ = tts.never_was


def test_names_are_refused_by_one_finder() -> None:
    before = list(sys.meta_path)
    renamed.install()
    assert sys.meta_path == before
