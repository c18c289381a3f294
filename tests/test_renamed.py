"""Names of the last version: each is refused in one line that says what to use now."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import warnings

import pytest

import tts
from tts import renamed
from tts.registry import parse_call
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES

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


MEMBERS = [(kind, old, now) for kind, rows in renamed.MEMBERS.items() for old, now in rows.items()]


@pytest.mark.parametrize(("kind", "old", "now"), MEMBERS, ids=[f"{kind}.{old}" for kind, old, _ in MEMBERS])
def test_an_old_member_is_refused_with_what_to_use_now(kind: str, old: str, now: str) -> None:
    owner = found(kind)
    assert isinstance(owner, type)
    assert callable(getattr(owner, now))
    assert not hasattr(owner, old)
    with pytest.raises(AttributeError) as refused:
        getattr(owner, old)
    assert str(refused.value) == f"{owner.__name__}.{old} is {owner.__name__}.{now} since 0.3"


def test_an_old_member_is_refused_of_an_object() -> None:
    problem = tts.Problem("1 + 1", answer="2")
    with pytest.raises(AttributeError, match=r"^Problem[.]stripped is Problem[.]without_answer since 0[.]3$"):
        _ = problem.stripped
    assert problem.without_answer().answer is None


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'tts[.]search[.]never_was'$"):
        importlib.import_module("tts.search.never_was")
    with pytest.raises(AttributeError, match="module 'tts' has no attribute 'never_was'"):
        _ = tts.never_was


def test_names_are_refused_by_one_finder() -> None:
    before = list(sys.meta_path)
    renamed.install()
    assert sys.meta_path == before


def known_parts() -> list[tuple[str, type]]:
    return [(name, table.get(name)) for table in (STRATEGIES, STOP_RULES, SELECTIONS) for name in table.names()]


@pytest.mark.parametrize("key", renamed.DEFAULTS)
def test_a_text_that_relies_on_a_changed_default_works_and_says_so(key: str) -> None:
    name, _, parameter = key.partition(".")
    (part,) = [part for known, part in known_parts() if known == name]
    assert parameter in {f.name for f in dataclasses.fields(part)}
    other = next(f for f in dataclasses.fields(part) if f.init and f.name != parameter)
    table = next(table for table in (STRATEGIES, STOP_RULES, SELECTIONS) if name in table.names())
    with pytest.warns(
        renamed.ChangedDefault, match=rf"^{name} has {parameter}=.* by default since 0.3; write {parameter}="
    ):
        assert parse_call(table, f"{name}({other.name}={other.default!r})") == part()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_call(table, name) == part()
        changed = [key.partition(".")[2] for key in renamed.DEFAULTS if key.startswith(f"{name}.")]
        given = ", ".join(f"{one}={getattr(part(), one)!r}" for one in changed)
        assert parse_call(table, f"{name}({given})") == part()
