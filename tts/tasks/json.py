"""JSON: the answer is a JSON value, which fits a schema if there is one; other text is no answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from tts.checks import read_text
from tts.errors import ConfigError, quote, unknown_name
from tts.tasks.base import Task, fold_text
from tts.tasks.extraction import last_marker
from tts.tasks.framing import short_answers
from tts.tasks.schemas.validation import Allowance, Schema
from tts.tasks.schemas.values import normal
from tts.types import AnswerForm, Problem, Prompt

_FENCED = re.compile(r"```[ \t]*+(?:json)?[ \t]*+\n(.*?)```", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"[{\[]")
_NEWLINE = "\n"
_MOST_REFERENCES = 100  # one after the other


@dataclass(frozen=True, kw_only=True)
class JsonTask(Task):
    """Structured answers: one JSON value.

    The answer is the first of these texts that is JSON and fits the schema: the whole text; the last fenced block; the
    line after the last answer marker; the last object or list in the text. A candidate without such a text has no
    answer and cannot win. Answers are equal as values, whatever the order of members, the spaces and the form of
    numbers (1, 1.0, 1e0). Case and the order in lists count.

    Args:
        schema: A JSON schema, as a mapping, a `Schema`, JSON text or the path of a file; None: any JSON value. A schema
            needs the extra `json`. Validation is bounded by `tts.tasks.schemas.validation`; a candidate that would take
            longer has no answer.
        vote: The names of the members that vote, such as ("answer",): answers that agree on them are one answer, and
            are right if they agree with the reference on them. None: whole values are right or wrong, and all members
            vote but free texts, which the schema has beside members of other kinds. A free text is a string without
            enum, const, format or pattern, or a list or an object of such strings alone.

    Raises:
        ConfigError: `schema` is of another type, or no valid schema; or `vote` has a name that the schema has not.
        MissingDependency: jsonschema is not installed.
    """

    schema: Any = None
    vote: Sequence[str] | None = None

    _schema: Schema | None = field(default=None, init=False, repr=False, compare=False)
    _form: Any = field(
        default_factory=lambda: lru_cache(maxsize=16_384)(_canonical), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.schema is not None:
            schema = self.schema if isinstance(self.schema, Schema) else Schema(_read_schema(self.schema))
            object.__setattr__(self, "_schema", schema)
        if self.vote is not None:
            names: Any = self.vote
            if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
                raise ConfigError(f"vote is {quote(names)}, but must have names of members", hint="such as ('answer',)")
            object.__setattr__(self, "vote", tuple(names))
            known_names = {} if self._schema is None else self._schema.schema.get("properties", {})
            unknown_names = [name for name in names if known_names and name not in known_names]
            if unknown_names:
                raise unknown_name("member in vote", unknown_names[0], known_names)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The task's text form, with the schema itself, by which results are distinguished."""
        arguments = [] if self.vote is None else [f"vote={self.vote!r}"]
        if self._schema is not None:
            arguments.insert(0, f"schema={json.dumps(self._schema.schema, sort_keys=True)!r}")
        return f"json({', '.join(arguments)})" if arguments else "json"

    def prompt(self, problem: Problem, kind: str = "solve", texts: Any = ()) -> Prompt:
        """Return chat messages that end with the request for JSON, and the schema."""
        request = "Answer with one JSON value and nothing else."
        if self._schema is not None:
            schema_text = json.dumps(self._schema.schema, ensure_ascii=False)
            request += f" It must be valid under this JSON schema:\n\n{schema_text}"
        *turns, last_turn = short_answers(request, "answer").prompt(self.name, problem, kind, texts)
        if kind == "critique":
            return (*turns, last_turn)
        form = AnswerForm("" if self._schema is None else json.dumps(self._schema.schema))
        return (*turns, last_turn.append(form))

    def extract(self, text: str) -> str | None:
        """Return the JSON text of the answer, as it was written; None where no JSON text fits.

        Raises:
            ValidationLimitError: The schema took too many steps on a text, or too long.
        """
        marker_end = last_marker(text)
        after_marker = "" if marker_end is None else text[marker_end:].lstrip().partition(_NEWLINE)[0]
        last_fenced = [block[1] for block in _FENCED.finditer(text)][-1:]  # one block or none
        allowance = Allowance()
        for candidate in (text, *last_fenced, after_marker):
            answer = candidate.strip()
            if answer and self._fits(answer, allowance):
                return answer
        for answer in reversed(list(_embed(text))):
            if self._fits(answer, allowance):
                return answer
        return None

    def canonical(self, answer: str) -> str:
        """Return JSON with sorted members and one form of each number; any other text folded.

        Of an object, only the members that `vote` names are part of it.
        """
        return self._form(answer, self.vote)

    def known_key(self, answer: str) -> str:
        """See `key`."""
        return self.key(answer)

    def key(self, answer: str) -> str:
        """Return the form of what votes."""
        return self._form(answer, self.vote, None if self._schema is None else self._schema.text)

    def _fits(self, answer: str, allowance: Allowance) -> bool:
        try:
            value = _read(answer)
            return self._schema is None or self._schema.is_valid(value, allowance)
        except (ValueError, RecursionError):
            return False


def _canonical(answer: str, vote: Sequence[str] | None, schema_text: str | None = None) -> str:
    try:
        value = normal(_read(answer))
        if vote is not None and isinstance(value, dict):
            value = {name: member for name, member in cast("dict[str, Any]", value).items() if name in vote} or value
        elif schema_text is not None:
            schema = json.loads(schema_text)
            value = _without_free_texts(value, schema, {}, schema)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return fold_text(answer)


def _without_free_texts(value: Any, given: Any, free: dict[str, bool], root: Any) -> Any:
    """Return a value without the free texts that its objects have beside other members; see `_is_free_text`."""
    schema = _resolve(given, root)
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_without_free_texts(item, schema.get("items"), free, root) for item in value]
    properties: Any = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    is_left_out = {name: _is_free_text(part, free, root) for name, part in properties.items()}
    if all(is_left_out.values()):
        return value
    members = {n: _without_free_texts(member, properties.get(n), free, root) for n, member in value.items()}
    return {name: member for name, member in members.items() if not is_left_out.get(name)} or value


def _is_free_text(given: Any, free: dict[str, bool], root: Any) -> bool:
    """Return whether a schema describes a text of any content, or a list or an object of such texts alone.

    Args:
        given: The schema, or a part of it.
        free: What is known, by reference; it is added to. So each part is looked at once, and a part may have itself.
        root: The whole schema.
    """
    reference = given.get("$ref") if isinstance(given, dict) else None
    if isinstance(reference, str):
        if reference not in free:
            free[reference] = True
            free[reference] = _is_free_text(_resolve(given, root), free, root)
        return free[reference]
    if not isinstance(given, dict) or given.keys() & {"enum", "const", "format", "pattern"}:
        return False
    kinds, properties = given.get("type"), given.get("properties")
    options = [option for word in ("anyOf", "oneOf", "allOf") for option in given.get(word) or ()]
    is_text = kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    return (
        is_text
        or (kinds == "array" and _is_free_text(given.get("items"), free, root))
        or (bool(properties) and all(_is_free_text(part, free, root) for part in properties.values()))
        or any(_is_free_text(option, free, root) for option in options)
    )


def _resolve(given: Any, root: Any) -> Any:
    """Return the part of the whole schema that a schema refers to; the schema itself without a reference."""
    for _ in range(_MOST_REFERENCES):
        reference = given.get("$ref") if isinstance(given, dict) else None
        if not isinstance(reference, str):
            return given
        given = root
        for name in reference.removeprefix("#").split("/")[1:]:
            given = given.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(given, dict) else None
    return None


def _read(text: str) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the value is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _embed(text: str) -> Iterator[str]:
    """Yield the outermost JSON objects and lists of a text, in order.

    A value that is nested too deeply ends the search.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    index = 0
    while (opening := _OPENING.search(text, index)) is not None:
        try:
            _value, index = decoder.raw_decode(text, opening.start())
        except ValueError:
            index = opening.end()
        except RecursionError:
            return
        else:
            yield text[opening.start() : index]


def _read_schema(schema_source: Any) -> Any:
    """Return a schema as a mapping."""
    if isinstance(schema_source, Mapping):
        return dict(schema_source)
    if not isinstance(schema_source, str) or not schema_source.strip():
        raise ConfigError(f"schema is {quote(schema_source)}, but must be a mapping, JSON text or the path of a file")
    text = schema_source
    if not schema_source.lstrip().startswith("{"):
        text = read_text("the file of the schema", schema_source, "give its path, or JSON")
    try:
        schema = _read(text)
    except (ValueError, RecursionError) as failure:
        raise ConfigError(f"schema is {quote(text)}, but must be JSON: {failure}") from None
    if not isinstance(schema, dict):
        raise ConfigError(
            f"schema is {quote(schema)}, but must be a JSON object", hint="for example {'type': 'object'}"
        )
    return schema
