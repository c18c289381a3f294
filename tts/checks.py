"""Checks of parameters: each raises one line that names the parameter, its value and the rule."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

from tts._common.characters import HALVES
from tts.errors import ConfigError, nearest_names, quote, unknown_name
from tts.types import Message, Problem, Prompt


def check_complete(part: Any) -> None:
    """Raise ConfigError where a class leaves out a method that its base class needs."""
    if not (isinstance(part, type) and inspect.isabstract(part)):
        return
    missing = sorted(part.__abstractmethods__)
    own_names = [name for name in vars(part) if not name.startswith("_")]
    shown_names = nearest_names(missing[0], own_names)[:1] or own_names
    raise ConfigError(
        f"the class {part.__module__}:{part.__qualname__} has no method {' and no '.join(missing)}, but must define it",
        hint=f"it has {', '.join(shown_names) or 'nothing of its own'}; see tts.{part.__mro__[1].__name__}",
    )


def check_part(part: Any, base: type, what: str, awaited: str = "") -> None:
    """Raise ConfigError unless a part is an object of a base class, with methods of the same kind.

    Callers must be able to call and await its methods in the same way as those of the base class.

    Args:
        part: The object that a caller gave.
        base: The base class of such parts.
        what: The part in the error, such as "the verifier".
        awaited: The name of the method that must be async; "": none. Where the base class has other async methods, the
            part's methods may be plain functions that return an awaitable.
    """
    if not isinstance(part, base):
        raise ConfigError(
            f"{what} is {quote(part)}, but must be a tts.{base.__name__}",
            hint=f"write class {type(part).__name__}(tts.{base.__name__})",
        )
    _check_methods(type(part), base, awaited)


@functools.lru_cache(maxsize=256)
def _check_methods(cls: type, base: type, awaited: str) -> None:
    """Check each method that both classes have.

    A closure passes, because it may return the coroutine of the function that it wraps.
    """
    for name, contract in inspect.getmembers(base, inspect.isfunction):
        method = inspect.unwrap(getattr(cls, name))
        if name.startswith("_") or not isinstance(method, FunctionType):
            continue
        is_closure = bool({*method.__code__.co_freevars} - {"__class__"})  # `super()` alone makes none
        if is_closure:
            continue
        method_text = f"the method {cls.__module__}:{cls.__qualname__}.{name}"
        is_async = inspect.iscoroutinefunction(method)
        is_bound = not isinstance(inspect.getattr_static(cls, name), staticmethod)
        if not _takes(inspect.signature(getattr(cls, name)), contract, is_bound=is_bound):
            prefix = "async " if inspect.iscoroutinefunction(contract) else ""
            raise ConfigError(
                f"{method_text} has the parameters {_plain(method)}, but will be called with others",
                hint=f"write {prefix}def {name}{_plain(contract)}",
            )
        if name == awaited and not is_async:
            raise ConfigError(
                f"{method_text} is not async, but will be awaited", hint=f"write async def {name}, without yield"
            )
        if is_async and not inspect.iscoroutinefunction(contract):
            raise ConfigError(f"{method_text} is async, but will not be awaited", hint=f"write def {name}")


def _takes(given: inspect.Signature, contract: FunctionType, *, is_bound: bool) -> bool:
    """Return whether a method takes the arguments of its contract, in their order.

    Args:
        given: The signature of the method.
        contract: The method of the base class.
        is_bound: Whether the object itself is an argument, too.
    """
    _, *parameters = inspect.signature(contract).parameters.values()
    own_object = (None,) if is_bound else ()
    keyword_only = {
        parameter.name: None for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    positional = [parameter.name for parameter in parameters if parameter.name not in keyword_only]
    try:
        given.bind(*own_object, *positional, **keyword_only)
    except TypeError:
        return False
    return True


def _plain(function: Any) -> str:
    """Return the parameters of a function as text, without annotations."""
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


_LARGE = 2**63  # what no count and no other number of a search reaches


def check_int(name: str, value: Any, least: int, most: int | None = None, *, optional: bool = True) -> None:
    """Raise ConfigError unless a parameter is a whole number from `least` to `most`.

    None passes where `optional` is true.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upper_bound = "" if most is None else f" and at most {most}"
        raise _refuse(name, value, f"a whole number of at least {least}{upper_bound}")
    if value >= _LARGE:
        raise _refuse(name, value, "below 2**63")


def check_number(
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    optional: bool = True,
    hint: str = "",
) -> None:
    """Raise ConfigError unless a parameter is a finite number from `least` to `most`.

    None passes where `optional` is true.
    """
    if value is None and optional:
        return
    if least is None:
        rule = "a number"
    elif most is None:
        rule = f"a number of at least {least}"
    else:
        rule = f"a number between {least} and {most}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGE:
        raise _refuse(name, value, rule, hint)
    if (least is not None and value < least) or (most is not None and value > most):
        raise _refuse(name, value, rule, hint)


def check_flag(name: str, value: Any) -> None:
    """Raise ConfigError where a parameter is neither True nor False."""
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")


def check_text(name: str, value: Any, *, optional: bool = False) -> None:
    """Raise ConfigError where a parameter is not a text, or is empty; `optional`: whether it may be None."""
    if not (optional and value is None) and (not isinstance(value, str) or not value):
        raise _refuse(name, value, "a text that is not empty")


def check_known(name: str, value: Any, known: Collection[str]) -> None:
    """Raise ConfigError where a parameter is no name of a table; the hint has the nearest names."""
    check_text(name, value)
    if value not in known:
        raise unknown_name(name, value, known)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ConfigError where a parameter is none of some texts, of which there are two or more."""
    check_text(name, value)
    if value not in choices:
        *first, last = map(repr, choices)
        raise _refuse(name, value, f"{', '.join(first)} or {last}")


# Parameters that are checked from their annotations -------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A rule of a parameter, in the annotation of its field: `n: Annotated[int, whole(1)] | None = None`.

    Args:
        check: A function of the parameter's name and value. It raises ConfigError for a value that breaks the rule.
            What it returns is kept in place of the value, unless it is None.
    """

    check: Callable[[str, Any], Any]


def whole(least: int, most: int | None = None) -> Rule:
    """Return the rule of whole numbers from `least` to `most`."""
    return Rule(lambda name, value: check_int(name, value, least, most, optional=False))


def number(least: float | None = None, most: float | None = None, *, hint: str = "") -> Rule:
    """Return the rule of finite numbers from `least` to `most`."""
    return Rule(lambda name, value: check_number(name, value, least, most, optional=False, hint=hint))


def choice(*names: str) -> Rule:
    """Return the rule of texts that are one of some names."""
    return Rule(lambda name, value: check_choice(name, value, names))


def member(names: Collection[str]) -> Rule:
    """Return the rule of the names of a table; the hint of its error has the nearest ones."""
    return Rule(lambda name, value: check_known(name, value, names))


def number_above(least: float, below: float | None = None, written: str = "") -> Rule:
    """Return the rule of numbers above `least` and below another one, `below`.

    The text `written` stands for `below` in the error.
    """

    def check(name: str, value: Any) -> None:
        upper_bound = _LARGE if below is None else below
        if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < upper_bound:
            bound_text = "" if below is None else f" and below {written or below}"
            raise _refuse(name, value, f"a number above {least:g}{bound_text}")

    return Rule(check)


Count = Annotated[int, whole(1)]
Natural = Annotated[int, whole(0)]
Proportion = Annotated[float, number(0, 1)]
Amount = Annotated[float, number(0)]
Text = Annotated[str, Rule(check_text)]


def check_parameters(part: Any) -> None:
    """Check each field of a dataclass by the rules in its annotation.

    None passes where the annotation has it.

    Raises:
        ConfigError: a value breaks its rule.
    """
    for name, rule, optional in declared_rules(type(part)):
        value = getattr(part, name)
        if value is None and optional:
            continue
        replacement = rule.check(name, value)
        if replacement is not None:
            object.__setattr__(part, name, replacement)  # the dataclass may be frozen


@functools.lru_cache(maxsize=256)
def declared_rules(cls: type) -> tuple[tuple[str, Rule, bool], ...]:
    """Return the rules of a dataclass.

    A rule comes with the name of its parameter, and whether the parameter may be None.
    """
    rules: list[tuple[str, Rule, bool]] = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        for base in cls.__mro__:  # a subclass that gives a parameter another default need not repeat its rule
            annotated = _rule_in(_hints(base).get(field.name))
            if annotated is not None:
                rule, is_optional = annotated
                rules.append((field.name, rule, is_optional))
                break
    return tuple(rules)


def _rule_in(hint: Any) -> tuple[Rule, bool] | None:
    """Return the rule in an annotation, and whether the annotation has None."""
    kinds: tuple[Any, ...] = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    rules = [
        rule for kind in kinds if get_origin(kind) is Annotated for rule in get_args(kind)[1:] if isinstance(rule, Rule)
    ]
    return (rules[0], NoneType in kinds) if rules else None


@functools.lru_cache(maxsize=256)
def _hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a class.

    The class `_Unknown` stands for a name that is imported for types alone, or is local to a function.
    """
    unknown: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(cls, localns=unknown, include_extras=True)
        except NameError as missing:
            name = missing.name
            if name is None or name in unknown:
                raise
            unknown[name] = _Unknown


class _Unknown:
    def __class_getitem__(cls, key: Any) -> type:
        return cls


def read_text(what: str, path: str | Path, hint: str = "") -> str:
    """Return the text of a file that a user named.

    Args:
        what: The name of the file in an error, such as "the study".
        path: The path of the file.
        hint: The cure in the error.

    Raises:
        ConfigError: the file cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise ConfigError(f"{what} is {str(path)!r}, but it cannot be read: {reason}", hint=hint) from None


def _refuse(name: str, value: Any, rule: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{name} is {quote(value)}, but must be {rule}", hint=hint)


def check_problem(problem: Problem) -> None:
    """Refuse a problem that no prompt can be made from.

    The class `Problem` cannot check itself, because `tts.types` imports nothing of the package.

    Raises:
        ConfigError: the prompt is neither text nor messages of text, or another field is not of its type.
    """
    prompt: Any = problem.prompt
    if not isinstance(prompt, str | tuple):
        raise _refuse("the problem", prompt, "text or a list of chat messages", _MESSAGES)
    turns: tuple[Any, ...] = () if isinstance(prompt, str) else prompt
    texts: list[Any] = [prompt] if isinstance(prompt, str) else []
    for turn in turns:
        words: list[Any] = [turn.role, turn.content] if isinstance(turn, Message) else []
        if not words or not all(isinstance(text, str) for text in words):
            raise _refuse("a message of the problem", turn, "a role and a content, both text", _MESSAGES)
        texts += words
    for text in texts:
        if HALVES.search(text):
            raise _refuse(
                "the problem",
                text,
                "text that can be written",
                "it holds half of a character (a lone surrogate): decode it anew",
            )
    for name, example in (("answer", "7"), ("id", "train/12"), ("task", "math")):
        value = getattr(problem, name)
        if not isinstance(value, str | None):
            raise _refuse(
                f"the {name} of the problem", value, "text or None", f"for example Problem('3 + 4', {name}={example!r})"
            )
    metadata: Any = problem.metadata
    if not isinstance(metadata, Mapping):
        raise _refuse("the metadata of the problem", metadata, "a mapping", "for example {'level': 3}")


# the usual names of fields and columns, by their meaning
USUAL_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "problem": ("problem", "question", "prompt", "input"),
    "answer": ("answer", "target", "solution"),
    "id": ("id",),
}
DATA_FILES: Final = (".jsonl", ".csv", ".parquet")


def read_problem(given: Any, name: str = "the problem") -> Problem:
    """Return the problem that a caller gave, after a check.

    Args:
        given: Text, chat messages or a `Problem`.
        name: The value in the error.

    Raises:
        ConfigError: The value is none of these; the hint has the line that works for rows, tables and lists of texts.
    """
    value, hint = given, ""
    if isinstance(given, str):
        if given.endswith(DATA_FILES) and len(given.split()) == 1:
            hint = f"call solve_many(tts.experiments.datasets.load({given!r}), …)"
    elif columns_in(given) is not None:
        hint = f"call solve_many({_problem_lines(given, 'table')}, …)"
    elif isinstance(given, Mapping):
        hint = _problem_lines(given, "row")
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        value = list(cast("Iterable[Any]", given))
        if value and all(isinstance(text, str) for text in value):
            hint = "call solve_many for a list of texts"
    if hint:
        raise _refuse(name, value, "text or a list of chat messages", hint)
    problem: Problem = given if isinstance(given, Problem) else Problem(value)  # pyright: ignore[reportArgumentType]
    check_problem(problem)
    return problem


def read_problems(given: Any, name: str = "problems") -> list[Problem]:
    """Return the problems that a caller gave, as a list.

    Problems that are not valid are kept where others are valid, so that each fails alone.

    Args:
        given: An iterable of texts, chat messages or `Problem`s, such as a list, a generator or a column.
        name: The argument in the error.

    Raises:
        ConfigError: The value is no such iterable, or none of its members can be solved.
    """
    if columns_in(given) is not None:
        raise _refuse(name, given, "a list of problems", f"give {_problem_lines(given, name)}")
    if isinstance(given, str | bytes | Mapping | Problem) or not isinstance(given, Iterable):
        is_path = str(given).endswith(DATA_FILES)
        hint = f"tts.experiments.datasets.load({str(given)!r})" if is_path else "a list of one, or call solve"
        raise _refuse(name, given, "a list of problems", f"give {hint}")
    problems: list[Problem] = []
    refusals: list[ConfigError] = []
    for member in cast("Iterable[Any]", given):
        try:
            problems.append(read_problem(member, f"a member of {name}"))
        except ConfigError as refusal:
            refusals.append(refusal)
            problems.append(member if isinstance(member, Problem) else Problem(member))
    if problems and len(refusals) == len(problems):
        raise refusals[0]
    return problems


def columns_in(given: Any) -> list[str] | None:
    """Return the names of a table's columns, or of its splits; None: the value is no table.

    Tables are data frames, data sets of the package `datasets`, and mappings of columns.
    """
    names = getattr(given, "column_names", getattr(given, "columns", None))
    if isinstance(given, Mapping) and given and all(isinstance(column, list) for column in given.values()):
        names = given
    return None if names is None or isinstance(given, type) else [str(name) for name in names]


def _problem_lines(given: Any, name: str) -> str:
    """Return the expression that makes the problem of a row, or the problems of a table."""
    columns = columns_in(given)
    names: Any = given if columns is None else columns
    if columns is None and {"role", "content"} <= given.keys():
        return 'chat messages are a list: give [{"role": …, "content": …}]'
    if isinstance(getattr(given, "column_names", None), Mapping):
        return f"the problems of {name}[{', '.join(names)}], a split"
    problem, answer = (
        next((usual_name for usual_name in USUAL_FIELDS[meaning] if usual_name in names), None)
        for meaning in ("problem", "answer")
    )
    column = "{}[{!r}].to_pylist()" if hasattr(given, "to_pylist") else "{}[{!r}]"  # pyarrow has scalars of its own
    text, reference = column.format(name, problem or "COLUMN"), column.format(name, answer)
    if columns is None:
        return f"give tts.Problem({text}" + (f", answer=str({reference}))" if answer else ")")
    if answer is None:
        return f"list({text})"
    return f"[tts.Problem(text, answer=str(answer)) for text, answer in zip({text}, {reference})]"


def check_prompt(given: Any) -> Prompt:
    """Return a prompt that a caller gave, after a check.

    A prompt is text, or chat messages as `Message` or mappings of a role and a content.

    Raises:
        ConfigError: the prompt is neither, or is empty.
    """
    prompt = Problem(given).prompt
    try:
        check_problem(Problem(prompt))
    except ConfigError as refusal:
        raise ConfigError(refusal.cause.replace("the problem", "the prompt"), hint=refusal.hint or "") from None
    contents = [prompt] if isinstance(prompt, str) else [turn.content for turn in prompt]
    if not "".join(contents).strip():
        raise _refuse("the prompt", given, "text or chat messages that are not empty")
    return prompt


_MESSAGES = 'a message is {"role": "user", "content": "…"}'


def without_duplicates(what: str, values: list[Any], hint: str = "leave one out") -> list[Any]:
    """Return values unchanged, after a check that none comes twice.

    Raises:
        ConfigError: a value comes twice; the error names it.
    """
    seen: set[str] = set()
    for value in values:
        if repr(value) in seen:
            raise ConfigError(f"{what} has {value} twice, but each may be there once", hint=hint)
        seen.add(repr(value))
    return values
