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
            value = _FreeTexts(schema).leave_out(value, schema)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return fold_text(answer)


class _FreeTexts:
    """The free texts of a schema, which do not vote beside other members.

    A free text is a text of any content, or a list or an object of such texts alone. A part that contains itself is
    none. Each part is looked at once.

    Args:
        schema: The schema.
    """

    __slots__ = ("_free", "_parts", "_schema")

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._free: dict[int, bool] = {}  # by the identity of a part
        self._parts: dict[str, Any] = {}  # by reference

    def leave_out(self, value: Any, given: Any) -> Any:
        """Return a value of a part of the schema without the free texts that do not vote in it."""
        part = self._resolve(given)
        if not isinstance(part, dict):
            return value
        if isinstance(value, list):
            return [self.leave_out(item, part.get("items")) for item in value]
        properties: Any = part.get("properties")
        if not isinstance(value, dict) or not isinstance(properties, dict):
            return value
        names = {name for name, member in properties.items() if not self._is_free(member)}
        if not names:
            return value
        is_left_out = properties.keys() - names
        members = {n: self.leave_out(member, properties.get(n)) for n, member in value.items() if n not in is_left_out}
        return members or value

    def _is_free(self, given: Any) -> bool:
        part = self._resolve(given)
        if id(part) not in self._free:
            self._free[id(part)] = False  # where it is asked from within
            self._free[id(part)] = self._looks_free(part)
        return self._free[id(part)]

    def _looks_free(self, part: Any) -> bool:
        if not isinstance(part, dict) or part.keys() & {"enum", "const", "format", "pattern"}:
            return False
        kinds, properties = part.get("type"), part.get("properties")
        options = [option for word in ("anyOf", "oneOf", "allOf") for option in part.get(word) or ()]
        return (
            kinds == "string"
            or (isinstance(kinds, list) and "string" in kinds)
            or (kinds == "array" and self._is_free(part.get("items")))
            or (bool(properties) and all(map(self._is_free, properties.values())))
            or any(map(self._is_free, options))
        )

    def _resolve(self, given: Any) -> Any:
        """Return the part that a reference leads to; a part without one is unchanged, and None stands for no part."""
        for _ in range(_MOST_REFERENCES):
            reference = given.get("$ref") if isinstance(given, dict) else None
            if not isinstance(reference, str):
                return given
            if reference not in self._parts:
                part = self._schema if reference.partition("/")[0] == "#" else None
                for name in reference.split("/")[1:]:
                    part = part.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else None
                self._parts[reference] = part
            given = self._parts[reference]
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
    is_json = schema_source.lstrip().startswith("{")
    text = schema_source if is_json else read_text("the file of the schema", schema_source, "give its path, or JSON")
    try:
        schema = _read(text)
    except (ValueError, RecursionError) as failure:
        raise ConfigError(f"schema is {quote(text)}, but must be JSON: {failure}") from None
    if not isinstance(schema, dict):
        raise ConfigError(
            f"schema is {quote(schema)}, but must be a JSON object", hint="for example {'type': 'object'}"
        )
    return schema
