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
import difflib
import functools
import importlib
import inspect
import io
import re
import sys
import tokenize
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from tts.checks import check_complete
from tts.errors import ConfigError, MissingDependency, TTSError, unknown_name
from tts.renamed import warn_of_defaults

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
            ConfigError: nothing has that name or is at that place (the hint has the nearest names), several packages
                define the name, or it stands for something that cannot be called.
            MissingDependency: another package's module cannot be imported.
        """
        if name in self.entries:
            module, _, attribute = self.entries[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        if ":" in name:
            return load_place(self.kind, name)
        found = {entry.value: entry for entry in entry_points(group=self.group) if entry.name == name}
        if not found:
            unknown = unknown_name(self.kind, name, self.names())
            raise ConfigError(unknown.cause, hint=dotted_hint(name) or unknown.hint)
        if len(found) > 1:
            packages = " and ".join(sorted(map(_package, found.values())))
            raise ConfigError(
                f"{self.kind} {name!r} is in the packages {packages}, but only one may give it",
                hint="uninstall the others",
            )
        return self._load(*found.values())

    def _load(self, entry: EntryPoint) -> Any:
        what = f"{self.kind} {entry.name!r} of the package {_package(entry)}"
        try:
            loaded = entry.load()
        except Exception as failure:  # the boundary: other people's modules may raise anything when imported
            why = " ".join(f"{type(failure).__name__}: {failure}".split())
            raise MissingDependency(
                f"{what} cannot be loaded: {why}", hint=f"repair or uninstall {_package(entry)}"
            ) from failure
        if not callable(loaded):
            raise ConfigError(f"{what} is {entry.value}, a {type(loaded).__name__}, but must be a class or a function")
        return loaded


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
    """Return what a place stands for.

    Raises:
        ConfigError: nothing is there (the hint has the nearest names), what is there cannot be called, or another
            module of the same name hides that of the current folder.
        MissingDependency: the module is there, but importing it fails.
    """
    module, _, attribute = place.partition(":")
    what = f"the {kind} {place!r}"
    if _INNER in attribute:
        raise ConfigError(
            f"{what} is defined within a function, where no name reaches it", hint="define it at the top of its module"
        )
    path = attribute.split(".")
    if not all(part.isidentifier() for part in (*path, *module.split("."))):
        raise ConfigError(f"{what} cannot be read", hint="write package.module:name")
    _check_not_hidden(what, module)
    if not _is_module(module):
        raise ConfigError(
            f"{what} cannot be loaded: no module {module!r} is in the current folder or installed",
            hint=_nearest_module(module, attribute),
        )
    try:
        home = importlib.import_module(module)
    except (Exception, SystemExit) as failure:  # the boundary: other people's modules may raise anything when imported
        why = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise MissingDependency(f"{what} cannot be loaded: {why}", hint=f"repair the module {module}") from failure
    found: Any = home
    for name in path:
        if not hasattr(found, name):
            raise _missing_name_error(what, place, home, found, name)
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(
            f"{what} is a {type(found).__name__}, but must be a class or a function",
            hint="write a function that returns it",
        )
    return found


def _missing_name_error(what: str, place: str, home: ModuleType, owner: Any, name: str) -> ConfigError:
    found = vars(owner) if hasattr(owner, "__dict__") else {}
    own = [name for name, value in found.items() if not isinstance(value, ModuleType) and not name.startswith("_")]
    made_here = [name for name in own if getattr(found[name], "__module__", None) == home.__name__]
    near = difflib.get_close_matches(name, own, n=3) or sorted(made_here or own)[:8]
    where = getattr(home, "__file__", None) or "built in"
    holder = home.__name__ if owner is home else place.rpartition(".")[0]
    return ConfigError(
        f"{what} cannot be loaded: {holder!r} ({where}) has no {name!r}", hint=f"it has {', '.join(near) or 'nothing'}"
    )


def _is_module(name: str) -> bool:
    """Whether a module can be found, without importing it; its parent packages are imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as missing:  # a parent is absent, or is no package
        # else a parent fails to import something: shown later
        return not (missing.name and f"{name}.".startswith(f"{missing.name}."))
    except (Exception, SystemExit):  # noqa: BLE001 - a parent fails to import: importing the module shows how
        return True


def _check_not_hidden(what: str, module: str) -> None:
    """Refuse a module where the current folder has another one of that name.

    Modules are imported from that folder.
    """
    top = module.partition(".")[0]
    here = next((path for path in (Path(f"{top}.py"), Path(top, "__init__.py")) if path.is_file()), None)
    if here is None or not _imports_from_here():
        return
    loaded = sys.modules.get(top)
    spec = None if top == "__main__" else getattr(loaded, "__spec__", None) if loaded is not None else find_spec(top)
    origin = None if spec is None else spec.origin
    if spec is None or (origin is not None and Path(origin).exists() and here.samefile(origin)):
        return
    where = "built into Python" if origin in {"built-in", "frozen"} else origin or "another package"
    raise ConfigError(
        f"{what} cannot be loaded: {top!r} is {where}, which hides ./{here}: rename it", hint=f"for example my_{here}"
    )


def _imports_from_here() -> bool:
    here = Path.cwd()
    return any(not entry or Path(entry).resolve() == here for entry in sys.path)


def _nearest_module(module: str, attribute: str) -> str:
    """Return the hint for a module that is not there."""
    if module.endswith(".py"):
        return f"write {module.removesuffix('.py')}:{attribute}, without .py"
    near = difflib.get_close_matches(module, _modules_here(), n=3)
    return f"did you mean {' or '.join(f'{name}:{attribute}' for name in near)}?" if near else "check its name"


def _modules_here() -> Iterable[str]:
    return sorted(
        {path.stem for path in (*Path().glob("*.py"), *(found.parent for found in Path().glob("*/__init__.py")))}
    )


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
    if (made_from := getattr(part, "__dict__", {}).get(_MADE_FROM)) is not None:
        return made_from
    name, fields = _name_of(type(part), tuple(tables)), _fields_of(type(part))
    if fields is None:
        return f"{name}(...)" if state_of(part) else name
    values = {f.name: getattr(part, f.name) for f in fields}
    return _call(name, {f.name: values[f.name] for f in fields if values[f.name] != _default(f)})


def state_of(part: object) -> Any:
    """Return the state of an object, which is equal for equal objects of one class.

    It is empty where the object has none.
    """
    state: Any = part.__getstate__()  # of its dictionary, its slots, or both
    return {name: value for name, value in state.items() if name != _MADE_FROM} if isinstance(state, dict) else state


def remember(part: Any, name: str, parameters: dict[str, Any]) -> None:
    """Keep the text that an object was made from.

    A class needs this whose parameters or place are not known from the object.

    An object without a dictionary cannot keep it, so that its text form cannot be read back.
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
    """Return the fields of a dataclass that are all its parameters.

    None stands for a class whose parameters are not known from its objects.
    """
    if not dataclasses.is_dataclass(cls):
        return None
    fields = tuple(f for f in dataclasses.fields(cls) if f.init)
    return fields if {f.name for f in fields} == set(inspect.signature(cls).parameters) else None


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
        """Return the object that it writes.

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
            made = table.get(name)
        except ConfigError as failure:
            raise self.add_position(failure) from None
        check_complete(made)
        self._check_known(table.kind, made)
        warn_of_defaults(name, parameters)
        try:
            part = made(**parameters)
        except TTSError:
            raise
        # the boundary: other people's classes and functions may raise anything
        except (Exception, SystemExit) as failure:
            why = str(failure) if isinstance(failure, TypeError | ValueError) else repr(failure)
            raise ConfigError(f"the {table.kind} {name} cannot be made with these parameters: {why}") from failure
        told = type(part) is made and _fields_of(made) is not None and (":" not in name or is_at_its_place(made))
        if not told:
            remember(part, name, parameters)
        return part

    def parameters(self) -> dict[str, Any]:
        """Return its parameters by name.

        Raises:
            ConfigError: A parameter has no name, is given twice, or its value is not literal.
        """
        if self.arguments is None:
            return {}
        parameters: dict[str, Any] = {}
        for argument in self.arguments.args:
            if isinstance(argument, ast.Constant) and argument.value is ...:
                why = f"the parameters of {self.name} are not known: it was no dataclass"
                raise self.syntax_error(
                    why, argument, hint="make its class a frozen dataclass, or write its parameters"
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

    def _check_known(self, kind: str, made: Any) -> None:
        try:
            known = inspect.signature(made).parameters
        except (TypeError, ValueError):  # of a class or function in C: the call itself fails
            return
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            return
        for keyword in () if self.arguments is None else self.arguments.keywords:
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


def calls_in(text: str) -> list[WrittenCall]:
    """Return the calls of a text, which are joined by `|`; a line break counts as a space.

    Raises:
        ConfigError: The text is malformed; the position is shown.
    """
    text = text.strip()
    parts: list[list[tokenize.TokenInfo]] = [[]]
    depth = 0
    for token in _tokens(text):
        depth += (token.string in _OPENING) - (token.string in _CLOSING) if token.type == tokenize.OP else 0
        if token.string == "|" and depth == 0:
            parts[-1].append(token._replace(type=tokenize.ENDMARKER))  # where a part is missing, its place is here
            parts.append([])
        else:
            parts[-1].append(token)
    return [_call_of(text, part) for part in parts]


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a text, read as one line; the last one is an ENDMARKER at its end."""
    line = text.translate(_ONE_LINE)
    tokens: list[tokenize.TokenInfo] = []
    opened: list[int] = []  # where parentheses begin that are still open
    unreadable: int | None = None  # where
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.OP and token.string in _OPENING:
                opened.append(token.start[1])
            closes = token.type == tokenize.OP and token.string in _CLOSING
            if (token.type == tokenize.ERRORTOKEN and not token.string.isspace()) or (closes and not opened):
                unreadable = token.start[1]
                break
            if closes:
                opened.pop()
            if token.type not in _SPACE:
                tokens.append(token)
    except (tokenize.TokenError, SyntaxError):  # a parenthesis or quotation mark is still open
        unreadable = opened[-1] if opened else len(text)
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {text[:60]!r} cannot be read", hint=FORM) from None
    if unreadable is not None:
        raise _syntax_error(text, min(unreadable, len(text)), _UNREADABLE)
    end = (1, len(text))
    return [*tokens, tokenize.TokenInfo(tokenize.ENDMARKER, "", end, end, line)]


def _parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    CPython before 3.11.5 counts the depth of all threads' trees in one place, and raises SystemError where two threads
    parse at once. Such a call is made again.
    """
    for _ in range(100):
        try:
            return ast.parse(text, mode="eval").body
        except SystemError:
            continue
    return ast.parse(text, mode="eval").body


def _call_of(text: str, tokens: Sequence[tokenize.TokenInfo]) -> WrittenCall:
    """Return the call that tokens write: a name or a place, and its arguments; the last token ends it."""
    start = tokens[0].start[1]
    length = _length_of_name(tokens)
    name = unicodedata.normalize("NFKC", "".join(token.string for token in tokens[:length]))  # as Python reads names
    rest = tokens[length]
    shift, end = rest.start[1], tokens[-1].start[1]
    if not length:
        first = next(token for token in tokens if token.string != "(")
        raise _syntax_error(
            text, first.start[1], _UNREADABLE if first.type in (tokenize.ENDMARKER, tokenize.OP) else _NO_NAME
        )
    if rest.string == ":" or rest.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING):
        raise _syntax_error(text, shift, _UNREADABLE)
    if ("." in name and ":" not in name) or (rest.type != tokenize.ENDMARKER and rest.string != "("):
        raise _syntax_error(text, start, _NO_NAME, hint=dotted_hint(name))
    if rest.type == tokenize.ENDMARKER:
        return WrittenCall(text, name, start)
    arguments = _READ_AS + text[shift:end].translate(_ONE_LINE)
    try:
        node = _parse_expression(arguments)
    except SyntaxError as failure:
        column = shift + max(0, (failure.offset or 1) - 1 - len(_READ_AS))
        raise _syntax_error(text, min(column, len(text)), _UNREADABLE) from None
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {text[:60]!r} cannot be read", hint=FORM) from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _syntax_error(text, start, _NO_NAME)
    return WrittenCall(text, name, start, node, shift)


def _length_of_name(tokens: Sequence[tokenize.TokenInfo]) -> int:
    """Return how many of the first tokens are a name; 0: none is.

    A name may be dotted ("a.b"), or a place: "package.module:name", or "module:f.<locals>.Name" of what a function
    defines.
    """
    strings = [token.string if token.type in (tokenize.NAME, tokenize.OP) else "" for token in tokens]
    if tokens[0].type != tokenize.NAME:
        return 0
    length = 1
    while strings[length] == "." and tokens[length + 1].type == tokenize.NAME:
        length += 2
    if strings[length] != ":" or tokens[length + 1].type != tokenize.NAME:
        return length
    length += 2
    while strings[length] == ".":
        if tokens[length + 1].type == tokenize.NAME:
            length += 2
        elif strings[length + 1] == "<" and strings[length + 3 : length + 4] == [">"]:
            length += 4
        else:
            break
    return length


def parse_call(table: Registry, text: str, scope: Scope = EVERYTHING) -> Any:
    """Return the object that "name" or "name(parameter=value, …)" writes, from any table.

    Args:
        table: The registry that may have the name.
        text: The text to read.
        scope: What the text may name.

    Raises:
        ConfigError: The text is malformed, a name is unknown (the nearest are named) or outside of the scope, or a
            parameter is unknown, given twice or out of range. Where it is not the beginning that is wrong, the position
            is shown.
    """
    calls = calls_in(text)
    if len(calls) > 1:
        raise calls[1].syntax_error(f"a {table.kind} is one name, without |")
    return calls[0].make(table, scope)


_READ_AS = "_"  # the name of a call whose arguments Python reads
_UNREADABLE = "it cannot be read here"
_NO_NAME = "a name belongs here"
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_SPACE = frozenset(
    {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ERRORTOKEN}
)
_ONE_LINE = str.maketrans("\r\n", "  ")  # positions stay what they are


def _syntax_error(text: str, column: int, why: str, hint: str = "") -> ConfigError:
    return ConfigError(
        f"the text {text!r} is malformed at character {column + 1} ({text[column : column + 12]!r}): {why}",
        hint=hint or FORM,
    )
