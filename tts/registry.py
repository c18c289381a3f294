"""Registries of names, places, and text forms.

A text gives the object that it writes, and an object gives its text.

A registry resolves a name on use, never at import, here or in another package. A place, "package.module:name", stands
for what is defined there. A text form is "name" or "name(parameter=value, …)", where the name is one of a registry, or
a place. Parameters are named and literal. Whoever reads a text that another person wrote gives a `Scope`, which says
what the text may name.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from tts.checks import check_complete
from tts.errors import ConfigError, MissingDependency, TTSError, nearest_names, unknown_name

_ADDONS = "tts_addons"  # the package of the products that are built on this one
_MOVED = {  # places that studies name -> where they are
    "tts.backends.workspace.repositories:Repositories": "tts_addons.agents.repositories:Repositories"
}
_INNER = "<locals>"  # in the qualified name of what a function defines
FORM = "write NAME(parameter=value) | STOP RULE | SELECTION, for example best_of_n(n=8) | majority"
_MADE_FROM = "_tts_made_from"  # attribute: the text that an object was made from, where its fields do not give it


class ClassName:
    """The default of an attribute for a part's name: the name of its class in snake case."""

    def __get__(self, part: object, owner: type) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", owner.__name__).lower()


class Registry:
    """A table from names to "module:attribute", which other packages extend through an entry-point group.

    A name with a colon is a place itself ("package.module:attribute") and needs no registration. Our own names cannot
    be taken: an entry point of the same name is never loaded. A name that two other packages define is refused when it
    is used.

    Args:
        kind: What the names are, for messages.
        group: The entry-point group.
        entries: Our own.
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self.entries = dict(entries)

    def names(self) -> list[str]:
        """Return every name, ours and third parties', sorted; nothing is loaded."""
        return sorted({*self.entries, *(entry.name for entry in entry_points(group=self.group))})

    def __contains__(self, name: str) -> bool:
        return name in self.entries or name in entry_points(group=self.group).names

    def is_name_of(self, name: str, found: Any) -> bool:
        """Whether a name stands for this very object."""
        try:
            return name in self and self.get(name) is found
        except TTSError:
            return False

    def get(self, name: str) -> Any:
        """Return the class or function that a name or a place stands for.

        Raises:
            ConfigError: nothing has that name or is at that place (the hint has the nearest names); several packages
                define the name; or the name stands for something that cannot be called.
            MissingDependency: another package's module cannot be imported.
        """
        if name in self.entries:
            return find_own(self.entries[name])
        if ":" in name:
            return load_place(self.kind, name)
        entries = {entry.value: entry for entry in entry_points(group=self.group) if entry.name == name}
        if not entries:
            unknown = unknown_name(self.kind, name, self.names())
            raise ConfigError(unknown.cause, hint=dotted_hint(name) or unknown.hint)
        if len(entries) > 1:
            packages = " and ".join(sorted(map(_package, entries.values())))
            raise ConfigError(
                f"{self.kind} {name!r} is in the packages {packages}, but only one may give it",
                hint="uninstall the others",
            )
        return self._load(*entries.values())

    def _load(self, entry: EntryPoint) -> Any:
        entry_text = f"{self.kind} {entry.name!r} of the package {_package(entry)}"
        try:
            loaded = entry.load()
        except Exception as failure:  # the boundary: other people's modules may raise anything when imported
            reason = " ".join(f"{type(failure).__name__}: {failure}".split())
            raise MissingDependency(
                f"{entry_text} cannot be loaded: {reason}", hint=f"repair or uninstall {_package(entry)}"
            ) from failure
        if not callable(loaded):
            raise ConfigError(
                f"{entry_text} is {entry.value}, a {type(loaded).__name__}, but must be a class or a function"
            )
        return loaded


def find_own(place: str) -> Any:
    """Return what this library, or one of its add-ons, defines.

    Args:
        place: The place, "package.module:name".

    Raises:
        MissingDependency: The place is in an add-on, which is not installed.
    """
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as failure:
        if failure.name is None or failure.name.split(".")[0] != _ADDONS:
            raise
        raise MissingDependency(
            f"{name} is in the add-on {'.'.join(module.split('.')[:2])}, which is not installed",
            hint="install the whole of test-time-search",
        ) from None


def _package(entry: EntryPoint) -> str:
    return "of an unknown name" if entry.dist is None else entry.dist.name


def place_of(cls: type) -> str:
    """Return the place of a class: "module:Class" or "module:Outer.Inner".

    The place of a class within a function cannot be read back.
    """
    # a spawned process names the main module __mp_main__
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    return f"{module}:{cls.__qualname__}"


def is_at_its_place(cls: type) -> bool:
    """Whether the place of a class stands for that class."""
    try:
        return _INNER not in cls.__qualname__ and attrgetter(cls.__qualname__)(sys.modules[cls.__module__]) is cls
    except (KeyError, AttributeError):
        return False


def load_place(kind: str, place: str) -> Any:
    """Return the class or function at a place, "module:name".

    Raises:
        ConfigError: nothing is at the place (the hint has the nearest names); the value at the place cannot be called;
            or another module of the same name hides that of the current folder.
        MissingDependency: the module exists, but importing it fails.
    """
    module, _, attribute = _MOVED.get(place, place).partition(":")
    part_text = f"the {kind} {place!r}"
    if _INNER in attribute:
        raise ConfigError(
            f"{part_text} is defined within a function, where no name reaches it",
            hint="define it at the top of its module",
        )
    names = attribute.split(".")
    if not all(name.isidentifier() for name in (*names, *module.split("."))):
        raise ConfigError(f"{part_text} cannot be read", hint="write package.module:name")
    try:
        home = importlib.import_module(module)
    except (Exception, SystemExit) as failure:  # the boundary: other people's modules may raise anything when imported
        missing = failure.name if isinstance(failure, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):  # any other is one that the module imports in vain
            raise ConfigError(
                f"{part_text} cannot be loaded: no module {module!r} is in the current folder or installed",
                hint=_nearest_module(module, attribute),
            ) from None
        reason = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise MissingDependency(
            f"{part_text} cannot be loaded: {reason}", hint=f"repair the module {module}"
        ) from failure
    value: Any = home
    for name in names:
        if not hasattr(value, name):
            raise _missing_name_error(part_text, place, home, value, name)
        value = getattr(value, name)
    if not callable(value):
        raise ConfigError(
            f"{part_text} is a {type(value).__name__}, but must be a class or a function",
            hint="write a function that returns it",
        )
    return value


def _missing_name_error(part_text: str, place: str, home: ModuleType, owner: Any, name: str) -> ConfigError:
    """Return the error for a name that a module, or a class in a module, does not have.

    Args:
        part_text: The part in the error.
        place: The place of the part.
        home: The module of the place.
        owner: The module or the class that lacks the name.
        name: The name.
    """
    members = vars(owner) if hasattr(owner, "__dict__") else {}
    public_names = [
        member for member, value in members.items() if not isinstance(value, ModuleType) and not member.startswith("_")
    ]
    defined_here = [member for member in public_names if getattr(members[member], "__module__", None) == home.__name__]
    shown_names = nearest_names(name, public_names) or sorted(defined_here or public_names)[:8]
    file = getattr(home, "__file__", None) or "built in"
    owner_name = home.__name__ if owner is home else place.rpartition(".")[0]
    return ConfigError(
        f"{part_text} cannot be loaded: {owner_name!r} ({file}) has no {name!r}",
        hint=f"it has {', '.join(shown_names) or 'nothing'}",
    )


def _nearest_module(module: str, attribute: str) -> str:
    """Return the hint for a module that is not there."""
    if module.endswith(".py"):
        return f"write {module.removesuffix('.py')}:{attribute}, without .py"
    own_modules = [*Path().glob("*.py"), *(package.parent for package in Path().glob("*/__init__.py"))]
    near = nearest_names(module, {path.stem for path in own_modules})
    return f"did you mean {' or '.join(f'{name}:{attribute}' for name in near)}?" if near else "check its name"


def dotted_hint(name: str) -> str:
    """Return the hint for a dotted name that may have been meant as a place; "" where it was not."""
    module, dot, attribute = name.rpartition(".")
    return f"a place is written {module}:{attribute}" if dot and all(map(str.isidentifier, name.split("."))) else ""


# From an object to its text -------------------------------------------------------------------------------------------


def text_of(part: Any, tables: Sequence[Registry]) -> str:
    """Return the text form of an object: its name, and the parameters that differ from their defaults.

    An object that was made from a text, and whose parameters are not known, is written as in that text. Without such a
    text it is written as "name(...)", which cannot be read back.

    Args:
        part: The object to write.
        tables: The registries that may have its name; an object that is in none of them is named by its place.
    """
    made_from = getattr(part, "__dict__", {}).get(_MADE_FROM)
    if made_from is not None:
        return made_from
    name, fields = _name_of(type(part), tuple(tables)), _fields_of(type(part))
    if fields is None:
        return f"{name}(...)" if state_of(part) else name
    defaults = {field.name: _default(field) for field in fields}
    values = {field.name: getattr(part, field.name) for field in fields}
    return _call(name, {parameter: value for parameter, value in values.items() if value != defaults[parameter]})


def state_of(part: object) -> Any:
    """Return the state of an object, which is equal for equal objects of one class.

    It is empty where the object has none.
    """
    state: Any = part.__getstate__()  # of its dictionary, its slots, or both
    return {name: value for name, value in state.items() if name != _MADE_FROM} if isinstance(state, dict) else state


def remember(part: Any, name: str, parameters: dict[str, Any]) -> None:
    """Keep the text that an object was made from.

    It serves classes whose parameters or place cannot be read from the object.

    An object without a `__dict__` cannot keep the text, so its text form cannot be read back.
    """
    if hasattr(part, "__dict__") and not isinstance(part, type):
        part.__dict__[_MADE_FROM] = _call(name, parameters)


def make_default(cls: type) -> Any:
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
    return own if isinstance(own, str) and any(table.is_name_of(own, cls) for table in tables) else place_of(cls)


@functools.lru_cache(maxsize=256)
def _fields_of(cls: type) -> tuple[dataclasses.Field[Any], ...] | None:
    """Return the fields of a dataclass, if they are exactly the parameters of its constructor.

    None: the class is no dataclass, or its constructor has other parameters.
    """
    if not dataclasses.is_dataclass(cls):
        return None
    fields = tuple(field for field in dataclasses.fields(cls) if field.init)
    field_names = {field.name for field in fields}
    return fields if field_names == set(inspect.signature(cls).parameters) else None


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


# From a text to objects -----------------------------------------------------------------------------------------------


class Scope:
    """What a text may name: everything, as for texts of the user's own command line, Python and YAML.

    A subclass refuses words. It sees a call as it was parsed, before anything is looked up, imported or made.
    """

    def names(self, table: Registry) -> list[str]:
        """Return the names of a registry that a text may write."""
        return table.names()

    def check(self, table: Registry, name: str, parameters: dict[str, Any]) -> None:
        """Raise ConfigError unless a text may write this call.

        Args:
            table: The registry of the kind of part that is called.
            name: The name or the place of the part.
            parameters: The literal values of its parameters.

        Raises:
            ConfigError: The text may not name this part, or not with this value.
        """


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """One "name(parameter=value, …)" of a text.

    Args:
        text: The whole text.
        name: The name or the place that is called.
        start: The characters before the name.
        arguments: The arguments in parentheses, parsed; None where the text has no parentheses.
        shift: The characters of the text before the first one of `arguments`.
    """

    text: str
    name: str
    start: int
    arguments: ast.Call | None = None
    shift: int = 0

    def make(self, table: Registry, scope: Scope = EVERYTHING) -> Any:
        """Return the object that the call writes.

        Args:
            table: The registry that may have its name.
            scope: What the text may name.

        Raises:
            ConfigError: The name or a parameter is unknown or outside of the scope, or a parameter is given twice or
                out of range.
        """
        name = self.name
        parameters = self.parameters()
        try:
            scope.check(table, name, parameters)
            factory = table.get(name)
        except ConfigError as failure:
            raise self.add_position(failure) from None
        check_complete(factory)
        self._check_known(table.kind, factory)
        try:
            part = factory(**parameters)
        except TTSError:
            raise
        # the boundary: other people's classes and functions may raise anything
        except (Exception, SystemExit) as failure:
            reason = str(failure) if isinstance(failure, TypeError | ValueError) else repr(failure)
            raise ConfigError(f"the {table.kind} {name} cannot be made with these parameters: {reason}") from failure
        shows_parameters = type(part) is factory and _fields_of(factory) is not None
        shows_place = ":" not in name or (isinstance(factory, type) and is_at_its_place(factory))
        if not (shows_parameters and shows_place):
            remember(part, name, parameters)
        return part

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the call by name.

        Raises:
            ConfigError: A parameter has no name, is given twice, or its value is not literal.
        """
        if self.arguments is None:
            return {}
        parameters: dict[str, Any] = {}
        for argument in self.arguments.args:
            if isinstance(argument, ast.Constant) and argument.value is ...:
                raise self.syntax_error(
                    f"the parameters of {self.name} are not known: it was no dataclass",
                    argument,
                    hint="make its class a frozen dataclass, or write its parameters",
                )
            raise self.syntax_error("parameters are named: write name=value", argument)
        for keyword in self.arguments.keywords:
            if keyword.arg is None:
                raise self.syntax_error("parameters are named: write name=value", keyword.value)
            if keyword.arg in parameters:
                raise self.syntax_error(f"the parameter {keyword.arg} is given twice", keyword)
            try:
                parameters[keyword.arg] = ast.literal_eval(keyword.value)
            except (ValueError, TypeError, MemoryError, RecursionError):
                raise self.syntax_error(
                    f"the value of {keyword.arg} must be a number, a quoted text or None", keyword.value
                ) from None
        return parameters

    def _check_known(self, kind: str, factory: Any) -> None:
        """Refuse a parameter that a class or function does not have."""
        if self.arguments is None:
            return
        try:
            known = inspect.signature(factory).parameters
        except (TypeError, ValueError):  # written in C: the call itself refuses an unknown parameter
            return
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            return
        for keyword in self.arguments.keywords:
            if not known:
                raise self.syntax_error(f"the {kind} {self.name} takes no parameters", keyword)
            if keyword.arg not in known:
                raise self.add_position(
                    unknown_name(f"parameter of the {kind} {self.name}", str(keyword.arg), known), keyword
                )

    def syntax_error(self, why: str, node: ast.expr | ast.keyword | None = None, hint: str = "") -> ConfigError:
        """Return the error for what is wrong at a node; None: at its beginning."""
        return _syntax_error(self.text, self._column(node), why, hint)

    def add_position(self, failure: ConfigError, node: ast.expr | ast.keyword | None = None) -> ConfigError:
        """Return an error with the position it is about; what begins the text needs none."""
        column = self._column(node)
        where = f" (character {column + 1} of {self.text!r})" if column else ""
        return ConfigError(f"{failure.cause}{where}", hint=failure.hint)

    def _column(self, node: ast.expr | ast.keyword | None) -> int:
        """Return the characters of the text before a node; None: before the name."""
        if node is None:
            return self.start
        arguments = _READ_AS + self.text[self.shift :]
        return self.shift + len(arguments.encode()[: node.col_offset].decode()) - len(_READ_AS)


_QUOTED = (
    r"'{3}(?:[^'\\]|\\.|'(?!''))*'{3}",
    r'"{3}(?:[^"\\]|\\.|"(?!""))*"{3}',
    r"'(?!'')(?:[^'\\]|\\.)*'",
    r'"(?!"")(?:[^"\\]|\\.)*"',
)
# what divides a text into calls; a quotation mark alone is never closed
_DIVIDER = re.compile(rf"(?:{'|'.join(_QUOTED)})|[|()\[\]{{}}]|'{{3}}|\"{{3}}|['\"]")
_WORD = r"[^\W\d]\w*"
_NAME = re.compile(rf"\s*({_WORD}(?:\.{_WORD})*(?::{_WORD}(?:\.(?:{_WORD}|<\w+>))*)?)\s*")
_BEFORE_NAME = re.compile(r"[\s(]*")


def calls_in(text: str) -> list[WrittenCall]:
    """Return the calls of a text, which are joined by `|`; a line break counts as a space.

    Python's own `tokenize` reads texts otherwise in each version, and opens a file to explain some errors.

    Raises:
        ConfigError: The text is malformed; the position is shown.
    """
    text = text.strip()
    line = text.translate(_ONE_LINE)
    begin, calls = 0, list[tuple[int, int]]()
    open_columns: list[int] = []  # the columns of parentheses that are still open
    for divider in _DIVIDER.finditer(line):
        mark, column = divider[0], divider.start()
        if mark in _OPENING:
            open_columns.append(column)
        elif mark in _CLOSING and open_columns:
            open_columns.pop()
        elif mark in _CLOSING or mark in "'\"":
            raise _syntax_error(text, column, _UNREADABLE)
        elif mark in _UNCLOSED:
            raise _syntax_error(text, open_columns[-1] if open_columns else len(text), _UNREADABLE)
        elif mark == "|" and not open_columns:
            calls.append((begin, column))
            begin = column + 1
    if open_columns:
        raise _syntax_error(text, open_columns[-1], _UNREADABLE)
    return [_call_of(text, start, end) for start, end in [*calls, (begin, len(text))]]


def _parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    CPython before 3.11.5 counts the depth of all threads' trees in one place, and raises SystemError where two threads
    parse at once. Parsing is then tried again.
    """
    for _ in range(100):
        with suppress(SystemError):
            return ast.parse(text, mode="eval").body
    return ast.parse(text, mode="eval").body


def _call_of(text: str, begin: int, end: int) -> WrittenCall:
    """Return the call in a part of a text: a name or a place, and its arguments.

    A name may be dotted ("a.b"), or a place: "package.module:name". The place of a class within a function is
    "module:f.<locals>.Name".
    """
    line = text.translate(_ONE_LINE)
    match = _NAME.match(line, begin, end)
    if match is None:
        column = min(_BEFORE_NAME.match(line, begin).end(), end)  # pyright: ignore[reportOptionalMemberAccess]
        is_word = column < end and (line[column].isalnum() or line[column] in "_'\"")
        raise _syntax_error(text, column, _NO_NAME if is_word else _UNREADABLE)
    name = unicodedata.normalize("NFKC", match[1])  # as Python reads names
    start, shift = match.start(1), match.end()
    if shift == end and not _is_dotted(name):
        return WrittenCall(text, name, start)
    if shift < end and (line[shift] in ":'\"" or line[shift].isalnum()):
        raise _syntax_error(text, shift, _UNREADABLE)
    if _is_dotted(name) or line[shift] != "(":
        raise _syntax_error(text, start, _NO_NAME, hint=dotted_hint(name))
    try:
        node = _parse_expression(_READ_AS + line[shift:end])
    except SyntaxError as failure:
        column = shift + max(0, (failure.offset or 1) - 1 - len(_READ_AS))
        raise _syntax_error(text, min(column, len(text)), _UNREADABLE) from None
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {text[:60]!r} cannot be read", hint=FORM) from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _syntax_error(text, start, _NO_NAME)
    return WrittenCall(text, name, start, node, shift)


def _is_dotted(name: str) -> bool:
    return "." in name and ":" not in name


def parse_call(table: Registry, text: str, scope: Scope = EVERYTHING) -> Any:
    """Return the object that "name" or "name(parameter=value, …)" writes.

    Args:
        table: The registry that may have the name.
        text: The text to read.
        scope: What the text may name.

    Raises:
        ConfigError: The text is malformed, a name is unknown (the nearest are named) or outside of the scope, or a
            parameter is unknown, given twice or out of range. The error shows the position of a mistake after the
            beginning.
    """
    calls = calls_in(text)
    if len(calls) > 1:
        raise calls[1].syntax_error(f"a {table.kind} is one name, without |")
    return calls[0].make(table, scope)


_READ_AS = "_"  # the name of a call whose arguments Python reads
_UNREADABLE = "it cannot be read here"
_NO_NAME = "a name belongs here"
_OPENING, _CLOSING, _UNCLOSED = frozenset("([{"), frozenset(")]}"), frozenset(("'''", '"""'))
_ONE_LINE = str.maketrans("\r\n", "  ")  # positions stay what they are


def _syntax_error(text: str, column: int, why: str, hint: str = "") -> ConfigError:
    return ConfigError(
        f"the text {text!r} is malformed at character {column + 1} ({text[column : column + 12]!r}): {why}",
        hint="maj@k is best_of_n | majority" if text.startswith("maj@") else hint or FORM,
    )
