"""What the methods of a class ask of their search, read from their compiled code: `search.expand`, and names such as END."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

_PLACES = {"run": 1, "select": 2}  # where the search stands among the parameters of a method


@dataclass(frozen=True, slots=True)
class SearchUse:
    """What is asked.

    Args:
        members: attributes of the search that are used. names: all global and attribute names that are.
    """

    members: frozenset[str]
    names: frozenset[str]


@functools.lru_cache(maxsize=256)
def asked_by(part: type) -> SearchUse:
    """Return what the methods of a class, those of its bases and mixins included, ask of their search.

    The search is the parameter with that name, or annotated `Search`, or that of `run` and `select` which stands in its place. Functions
    within methods count, and so does what decorators wrap; functions outside of the class do not.
    """
    members: set[str] = set()
    names: set[str] = set()
    for cls in part.__mro__:
        for name, value in vars(cls).items():
            for function in _functions(value):
                names.update(_names(function.__code__))
                place = None if isinstance(value, staticmethod) else _PLACES.get(name)
                members.update(_members(function.__code__, _searches(function, place)))
    return SearchUse(frozenset(members), frozenset(names))


def _functions(value: Any, seen: frozenset[int] = frozenset()) -> Iterator[FunctionType]:
    """Yield the function of a method or property, and those that it wraps or encloses."""
    if isinstance(value, property):
        yield from _functions(value.fget, seen)
    elif isinstance(value, staticmethod | classmethod):
        yield from _functions(value.__func__, seen)
    elif isinstance(value, functools.cached_property | functools.partialmethod):
        yield from _functions(value.func, seen)
    elif isinstance(value, FunctionType) and id(value) not in seen:
        yield value
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # nothing is in it yet
                yield from _functions(cell.cell_contents, seen | {id(value)})
        yield from _functions(vars(value).get("__wrapped__"), seen | {id(value)})


def _searches(function: FunctionType, place: int | None) -> frozenset[str]:
    """Return the parameters that are the search."""
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    annotated = {name for name, kind in function.__annotations__.items() if str(getattr(kind, "__name__", kind)).endswith("Search")}
    placed = parameters[place : place + 1] if place is not None else ()
    return frozenset({"search", *annotated, *placed} & {*parameters})


def _members(code: CodeType, searches: frozenset[str]) -> Iterator[str]:
    """Yield the attributes that are loaded from a variable with the search."""
    is_search = False  # what the step before left on the stack
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        attribute = step.opname in {"LOAD_ATTR", "LOAD_METHOD"}
        if attribute and is_search:
            yield step.argval
        local = step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST"))
        loaded = step.argval[-1] if local and isinstance(step.argval, tuple) else step.argval  # from Python 3.13 on, a step may load two
        is_search = (local and loaded in searches) or (attribute and loaded == "search")  # a part may keep its search as an attribute
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            own = inner.co_varnames[: inner.co_argcount + inner.co_kwonlyargcount]
            yield from _members(inner, (searches & {*inner.co_freevars}) | ({"search"} & {*own}))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
