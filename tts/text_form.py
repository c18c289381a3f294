"""Text forms: "name" or "name(parameter=value, …)" to the object that it writes, by any registry, and an object to its text.

The name is one of a registry, or a place, "package.module:name". Parameters are named and literal.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.checks import check_complete
from tts.errors import ConfigError, TTSError, unknown_name
from tts.places import dotted, is_at_its_place, place_of
from tts.registry import Registry

FORM = "write NAME(parameter=value) | STOP RULE | SELECTION, for example best_of_n(n=8) | majority"
_MADE_FROM = "_tts_made_from"  # attribute: the text that an object was made from, where its fields do not give it


# From an object to its text -----------------------------------------------------------------------------------------------------


def text_of(part: Any, tables: Sequence[Registry]) -> str:
    """Return the text form of an object: its name, and the parameters that differ from their defaults.

    An object that was made from a text, and whose parameters are not known, is written as in that text. Without such a text it is
    written as "name(...)", which cannot be read back.

    Args:
        tables: that may have its name; an object that is in none of them is named by its place.
    """
    if (made_from := getattr(part, "__dict__", {}).get(_MADE_FROM)) is not None:
        return made_from
    name, fields = _name_of(type(part), tuple(tables)), _fields_of(type(part))
    if fields is None:
        return f"{name}(...)" if state_of(part) else name
    values = {f.name: getattr(part, f.name) for f in fields}
    return _call(name, {f.name: values[f.name] for f in fields if values[f.name] != _default(f)})


def state_of(part: object) -> Any:
    """Return the state of an object, which is equal for equal objects of one class; it is empty where the object has none."""
    state: Any = part.__getstate__()  # of its dictionary, its slots, or both
    return {name: value for name, value in state.items() if name != _MADE_FROM} if isinstance(state, dict) else state


def remember(part: Any, name: str, parameters: dict[str, Any]) -> None:
    """Keep the text that an object was made from, for a class whose parameters or place are not known from it.

    An object without a dictionary cannot keep it, so that its text form cannot be read back.
    """
    if hasattr(part, "__dict__") and not isinstance(part, type):
        part.__dict__[_MADE_FROM] = _call(name, parameters)


def made_of(cls: type) -> Any:
    """Return an object of a class, with every parameter at its default.

    Raises:
        TypeError: a parameter has no default.
    """
    part = cls()
    if _fields_of(cls) is None:
        remember(part, place_of(cls), {})
    return part


def _call(name: str, parameters: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in parameters.items())})" if parameters else name


@functools.lru_cache(maxsize=256)
def _name_of(cls: type, tables: tuple[Registry, ...]) -> str:
    """Return the name that stands for this very class in a table, else its place."""
    own = cls.__dict__.get("registered_as")
    return own if isinstance(own, str) and any(table.names_it(own, cls) for table in tables) else place_of(cls)


@functools.lru_cache(maxsize=256)
def _fields_of(cls: type) -> tuple[dataclasses.Field[Any], ...] | None:
    """Return the fields of a dataclass that are all its parameters; None: its parameters are not known from its objects."""
    if not dataclasses.is_dataclass(cls):
        return None
    fields = tuple(f for f in dataclasses.fields(cls) if f.init)
    return fields if {f.name for f in fields} == set(inspect.signature(cls).parameters) else None


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


# From a text to objects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One "name(parameter=value, …)" of a text."""

    text: str  # the whole text, shielded
    node: ast.expr

    @property
    def name(self) -> str:
        """Its name, or its place.

        Raises:
            ConfigError: there is none.
        """
        called = self.node.func if isinstance(self.node, ast.Call) else self.node
        if not isinstance(called, ast.Name):
            written = self.text.encode()[called.col_offset : called.end_col_offset].decode()
            raise self.malformed("a name belongs here", hint=dotted(_unshielded(written)))
        return _unshielded(called.id)

    def make(self, table: Registry) -> Any:
        """Return the object that it writes.

        Raises:
            ConfigError: the name or a parameter is unknown, or a parameter is given twice or out of range.
        """
        name = self.name
        try:
            made = table.get(name)
        except ConfigError as failure:
            raise self.placed(failure) from None
        check_complete(made)
        parameters = self._parameters(table.kind, made)
        try:
            part = made(**parameters)
        except TTSError:
            raise
        except (Exception, SystemExit) as failure:  # the boundary: other people's classes and functions may raise anything
            why = str(failure) if isinstance(failure, TypeError | ValueError) else repr(failure)
            raise ConfigError(f"the {table.kind} {name} cannot be made with these parameters: {why}") from failure
        told = type(part) is made and _fields_of(made) is not None and (":" not in name or is_at_its_place(made))
        if not told:
            remember(part, name, parameters)
        return part

    def _parameters(self, kind: str, made: Any) -> dict[str, Any]:
        """Return its parameters: named, each once, known, their values literal."""
        if not isinstance(self.node, ast.Call):
            return {}
        parameters: dict[str, Any] = {}
        for argument in self.node.args:
            if isinstance(argument, ast.Constant) and argument.value is ...:
                why = f"the parameters of {self.name} are not known: it was no dataclass"
                raise self.malformed(why, argument, hint="make its class a frozen dataclass, or write its parameters")
            raise self.malformed("parameters are named: write name=value", argument)
        for keyword in self.node.keywords:
            if keyword.arg is None:
                raise self.malformed("parameters are named: write name=value", keyword.value)
            if keyword.arg in parameters:
                raise self.malformed(f"the parameter {keyword.arg} is given twice", keyword)
            try:
                parameters[keyword.arg] = ast.literal_eval(keyword.value)
            except (ValueError, TypeError, MemoryError, RecursionError):
                raise self.malformed(f"the value of {keyword.arg} must be a number, a quoted text or None", keyword.value) from None
        self._check_known(kind, made)
        return parameters

    def _check_known(self, kind: str, made: Any) -> None:
        try:
            known = inspect.signature(made).parameters
        except (TypeError, ValueError):  # of a class or function in C: the call itself fails
            return
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            return
        for keyword in self.node.keywords if isinstance(self.node, ast.Call) else ():
            if not known:
                raise self.malformed(f"the {kind} {self.name} takes no parameters", keyword)
            if keyword.arg not in known:
                raise self.placed(unknown_name(f"parameter of the {kind} {self.name}", str(keyword.arg), known), keyword)

    def malformed(self, why: str, node: ast.expr | ast.keyword | None = None, hint: str = "") -> ConfigError:
        """Return the error for what is wrong at a node; None: at its beginning."""
        return _at(self.text, _column(self.text, node or self.node), why, hint)

    def placed(self, failure: ConfigError, node: ast.expr | ast.keyword | None = None) -> ConfigError:
        """Return an error with the position it is about; what begins the text needs none."""
        column = _column(self.text, node or self.node)
        where = f" (character {column + 1} of {_unshielded(self.text)!r})" if column else ""
        return ConfigError(f"{failure.cause}{where}", hint=failure.hint)


def calls_in(text: str) -> list[WrittenCall]:
    """Return the calls of a text, which are joined by `|`; a line break counts as a space.

    Raises:
        ConfigError: the text is malformed; the position is shown.
    """
    text = _shielded(text.strip())
    try:
        node = ast.parse(text.translate(_ONE_LINE), mode="eval").body
    except SyntaxError as failure:
        raise _at(text, min(max(0, (failure.offset or 1) - 1), len(text)), "it cannot be read here") from None
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {_unshielded(text[:60])!r} cannot be read", hint=FORM) from None
    calls: list[WrittenCall] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        calls.append(WrittenCall(text, node.right))
        node = node.left
    return [WrittenCall(text, node), *reversed(calls)]


def parse_call(table: Registry, text: str) -> Any:
    """Return the object that "name" or "name(parameter=value, …)" writes, from any table.

    Raises:
        ConfigError: the text is malformed, a name is unknown (the nearest are named), or a parameter is unknown, given twice or
            out of range. Where it is not the beginning that is wrong, the position is shown.
    """
    calls = calls_in(text)
    if len(calls) > 1:
        raise calls[1].malformed(f"a {table.kind} is one name, without |")
    return calls[0].make(table)


def _shielded(text: str) -> str:
    """Return a text with every "package.module:name" outside of quotes as one identifier of the same length, which Python can parse."""
    return _PLACE.sub(lambda found: found[0].translate(_SHIELD) if found["place"] else found[0], text)


def _unshielded(text: str) -> str:
    return text.translate(_UNSHIELD)


_PLACE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?P<place>\b[^\W\d][\w.]*:[^\W\d]\w*(?:\.(?:[^\W\d]\w*|<[^\W\d]\w*>))*)""")
_SHIELD = str.maketrans(".:<>", "ǀǃǁǂ")  # letters, to Python
_UNSHIELD = str.maketrans("ǀǃǁǂ", ".:<>")
_ONE_LINE = str.maketrans("\r\n", "  ")  # positions stay what they are


def _at(text: str, column: int, why: str, hint: str = "") -> ConfigError:
    text = _unshielded(text)
    return ConfigError(
        f"the text {text!r} is malformed at character {column + 1} ({text[column : column + 12]!r}): {why}", hint=hint or FORM
    )


def _column(text: str, node: ast.expr | ast.keyword) -> int:
    """Return the characters before a node: the parser counts bytes."""
    return len(text.encode()[: node.col_offset].decode())
