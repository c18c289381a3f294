"""Names and objects: what can be written in a strategy's text, and back.

    best_of_n(n=64) | unanimous(window=8) | weighted

is one strategy, then at most one stop rule and one selection, joined by `|`; parameters are named and literal. `str` of the
parsed plan is the same text, less parameters that are at their defaults.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tts.errors import ConfigError, unknown_name
from tts.plugins import Table
from tts.search.base import Plan

STRATEGIES = Table(
    "strategy",
    "tts.strategies",
    {
        "best_of_n": "tts.search.best_of_n:BestOfN",
        "self_consistency": "tts.search.best_of_n:self_consistency",
        "single": "tts.search.single:Single",
    },
)
STOP_RULES = Table(
    "stop rule",
    "tts.stop_rules",
    {"never": "tts.search.stopping:Never", "unanimous": "tts.search.stopping:Unanimous"},
)
SELECTIONS = Table(
    "selection",
    "tts.selections",
    {
        "best": "tts.search.selection:Best",
        "best_of_majority": "tts.search.selection:BestOfMajority",
        "majority": "tts.search.selection:Majority",
        "weighted": "tts.search.selection:Weighted",
    },
)


def parse(text: str) -> Plan:
    """Return the plan that a text writes.

    Raises:
        ConfigError: the text is malformed (the position is shown), a name is unknown (the nearest are named), or a parameter is
            unknown or out of range.
    """
    parts = _parts(text)
    plan = Plan.of(_make(STRATEGIES, parts[0], text))
    for part in parts[1:]:
        name = _name(part, text)
        table = STOP_RULES if name in STOP_RULES.names() else SELECTIONS
        if name in STRATEGIES.names():
            raise _malformed(text, part, f"{name!r} is a strategy, but only the first part may be one")
        if table is SELECTIONS and name not in SELECTIONS.names():
            raise unknown_name("stop rule or selection", name, [*STOP_RULES.names(), *SELECTIONS.names()])
        plan = plan | _make(table, part, text)
    return plan


def parse_call(table: Table, text: str) -> Any:
    """Return the object that "name" or "name(parameter=value, …)" writes, from any table.

    Raises:
        ConfigError: as `parse`.
    """
    parts = _parts(text)
    if len(parts) > 1:
        raise _malformed(text, parts[1], f"a {table.kind} is one name, without |")
    return _make(table, parts[0], text)


def _parts(text: str) -> list[ast.expr]:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as failure:
        column = min(max(0, (failure.offset or 1) - 1), len(text.strip()))
        raise _at(text.strip(), column, "it cannot be read here") from None
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {text[:60]!r} cannot be read", hint=_FORM) from None
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


_FORM = "write NAME(parameter=value) | STOP RULE | SELECTION, for example best_of_n(n=8) | majority"


def _name(node: ast.expr, text: str) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    if not isinstance(called, ast.Name):
        raise _malformed(text, node, "a name belongs here")
    return called.id


def _make(table: Table, node: ast.expr, text: str) -> Any:
    name = _name(node, text)
    made = table.get(name)
    parameters: dict[str, Any] = {}
    if isinstance(node, ast.Call):
        if node.args:
            raise _malformed(text, node.args[0], "parameters are named: write name=value")
        for keyword in node.keywords:
            if keyword.arg is None:
                raise _malformed(text, keyword.value, "parameters are named: write name=value")
            try:
                parameters[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                raise _malformed(text, keyword.value, f"the value of {keyword.arg} must be a number, a quoted text or None") from None
    _check_parameters(table, name, made, parameters)
    return made(**parameters)


def _check_parameters(table: Table, name: str, made: Any, parameters: dict[str, Any]) -> None:
    known = [p.name for p in inspect.signature(made).parameters.values()]
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of the {table.kind} {name}", parameter, known)


def _malformed(text: str, node: ast.expr, why: str) -> ConfigError:
    return _at(text.strip(), node.col_offset, why)


def _at(text: str, column: int, why: str) -> ConfigError:
    return ConfigError(f"the text {text!r} is malformed at character {column + 1} ({text[column : column + 12]!r}): {why}", hint=_FORM)
