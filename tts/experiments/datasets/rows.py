"""Reads problems from rows of other sources.

Rows that cannot be read are left out, and a warning names them. The other rows are used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, cast

from tts.checks import USUAL_FIELDS, check_problem
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments import datasets
from tts.experiments.datasets import DataSet, identity
from tts.randomness import hash64
from tts.registry import find_own
from tts.types import Message, Problem, Prompt

_TESTS = ("public_test_cases", "private_test_cases", "input_output")  # fields with tests of programs
_MOST_NAMED = 100  # rows named in one warning


class BadRow(ValueError):
    """A row that cannot be read as a problem. Its text is the reason."""


class RowsLeftOut(UserWarning):
    """Rows of a data set were left out. The text names each, with its reason."""


# The place of a row ("line 7"), and the row by field, or the reason why the row cannot be read.
PlacedRow = tuple[str, Mapping[str, Any] | BadRow]


class Fields:
    """The meaning of a row's fields. Fields that are not used become metadata.

    `problem` is the text, or chat messages (a list of objects with role and content). `answer` is the reference answer:
    a text, a number, or JSON as in `reference_in`. `id` is a text or a whole number. Answer and id may be missing,
    empty or null: without an id, the problem's hash is used.

    Args:
        names: The names of fields: {"problem": …, "answer": …, "id": …}. For each other field, the first usual name
            that a row has is used for all rows.
        task: The task of every problem; None: the study's, else the model's.

    Raises:
        ConfigError: another key, or a name that is no text.
    """

    def __init__(self, names: Mapping[str, Any] | None, task: str | None) -> None:
        self.named: dict[str, str] = {}
        for key, name in (names or {}).items():
            if key not in USUAL_FIELDS:
                raise unknown_name("key of fields", key, USUAL_FIELDS)
            if not isinstance(name, str):
                raise ConfigError(f"fields has {quote(name)} for {key!r}, but must have the name of a field")
            self.named[key] = name
        self.task = task
        self._met_names: set[str] = set()  # names of fields in the rows read so far
        self._field_of = dict(self.named)  # by meaning, the named field, or the usual field of the first row with one

    def read(self, row: Mapping[str, Any]) -> Problem:
        """Return the problem of a row.

        Raises:
            BadRow: a field is missing or has another kind of value.
        """
        self.meet(row)
        for meaning, usual_names in USUAL_FIELDS.items():
            names_in_row = [name for name in usual_names if name in row]
            if meaning not in self._field_of and names_in_row:
                self._field_of[meaning] = names_in_row[0]
        if "problem" not in self._field_of:
            fields = ", ".join(map(repr, row)) or "none at all"
            raise BadRow(f"it has none of the fields {', '.join(USUAL_FIELDS['problem'])}, only {fields}")
        problem_field = self._field_of["problem"]
        answer_field = self._field_of.get("answer", "answer")
        id_field = self._field_of.get("id", "id")
        used_fields = (problem_field, answer_field, id_field)
        return Problem(
            prompt=prompt_in(row, problem_field),
            answer=reference_in(row, answer_field, self.task),
            id=answer_in(row, id_field),
            task=self.task,
            metadata={name: value for name, value in row.items() if name not in used_fields},
        )

    def meet(self, row: Mapping[str, Any]) -> None:
        """Record the names of a row's fields."""
        self._met_names |= row.keys()

    def check_met(self, where: str) -> None:
        """Refuse a named field for answers or ids that no row has.

        A typing error would otherwise remove all answers.

        Raises:
            ConfigError: no row has a named field.
        """
        for meaning in ("answer", "id"):
            name = self.named.get(meaning)
            if name is not None and (name,) != USUAL_FIELDS[meaning] and name not in self._met_names:
                raise unknown_name(f"field of {where}", name, self._met_names)


def collect(
    rows: Iterable[PlacedRow],
    read: Callable[[Mapping[str, Any]], Problem],
    *,
    where: str,
    name: str,
    limit: int | None,
    seed: int | None,
) -> list[Problem]:
    """Return the different problems of rows.

    Args:
        rows: The rows in the order of the source.
        read: A function that returns a row's problem, or raises `BadRow`.
        where: The source, for messages.
        name: The prefix of the hash that is the id of problems without an id.
        limit: The most problems; None: all.
        seed: The seed of a random order, of which a limit takes the first problems; None: the source's order.

    Raises:
        ConfigError: two problems have one id, there is no problem, or `limit` or `seed` is not valid.

    Warns:
        RowsLeftOut: rows are no problems, or have the problem of an earlier row.
    """
    _check_choice(limit, seed)
    problems: list[Problem] = []
    left_out: list[str] = []
    place_of_id: dict[str, str] = {}
    place_of_identity: dict[str, str] = {}
    for place, row in rows:
        try:
            problem = _problem(row, read)
        except BadRow as failure:
            left_out.append(f"{place}: {failure}")
            continue
        if problem.id is not None and problem.id in place_of_id:
            raise ConfigError(
                f"{where}, {place}: the id {quote(problem.id)} is that of {place_of_id[problem.id]} already, but must "
                "be unique",
                hint="correct the ids, or leave them out: the hash of a problem is then its id",
            )
        problem_identity = identity(problem)
        if problem_identity in place_of_identity:
            left_out.append(f"{place}: it is the problem of {place_of_identity[problem_identity]} again")
            continue
        if problem.id is None:
            problem = dataclasses.replace(problem, id=f"{name}/{hash64(problem_identity):016x}")
        place_of_id[problem.id or ""] = place
        place_of_identity[problem_identity] = place
        problems.append(problem)
        if seed is None and len(problems) == limit:
            break
    if not problems:
        reason = f"; {left_out[0]}" if left_out else ""
        raise ConfigError(
            f"{where} has no problem, but must have one{reason}",
            hint="correct the rows, or name other columns with fields="
            if left_out
            else "give it rows that each have a problem",
        )
    if left_out:
        warnings.warn(RowsLeftOut(_name(where, left_out)), stacklevel=2)
    if seed is not None:
        problems.sort(key=lambda problem: hash64("order", seed, problem.id or ""))
    return problems[:limit]


def hold(given: Any) -> str:
    """Keep problems that were given as an object, and return the name of their data set in this process.

    The name has a hash of all rows, so that different problems never have the same name.

    Args:
        given: A data frame, a data set of the package `datasets`, a mapping of columns, or an iterable of rows, texts
            and `Problem`s.

    Raises:
        ConfigError: The value has several splits.
    """
    rows = _rows_of(given)
    content = json.dumps(rows, default=lambda value: value.tolist() if hasattr(value, "tolist") else repr(value))
    name = f"{datasets.GIVEN_PREFIX}{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def load(
        *,
        limit: int | None = None,
        seed: int | None = None,
        task: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Problem]:
        field_meanings, where = Fields(fields, task), "the problems that were given"

        def read(row: Any) -> Problem:
            if isinstance(row, Problem):
                check_problem(row)
                return dataclasses.replace(row, task=row.task or task)
            row = {"problem": row} if isinstance(row, str) else row
            if not isinstance(row, Mapping):
                raise BadRow(f"it is {quote(row)}, but must be a row, a text or a problem")
            return read_row(cast("Mapping[str, Any]", row), field_meanings)

        placed_rows = ((f"row {i}", row) for i, row in enumerate(rows))
        problems = collect(placed_rows, read, where=where, name="given", limit=limit, seed=seed)
        if not all(isinstance(row, Problem) for row in rows):
            field_meanings.check_met(where)
        return problems

    datasets.GIVEN[name] = DataSet(load=load, source=f"{type(given).__name__} given in Python", licence="not stated")
    return name


def _rows_of(given: Any) -> list[Any]:
    """Return the rows of a table, or the members of an iterable."""
    for method in ("to_pylist", "to_dicts"):  # of pyarrow, of polars
        if hasattr(given, method):
            return getattr(given, method)()
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # of pandas
        return given.to_dict("records")
    if isinstance(getattr(given, "column_names", None), Mapping):
        raise ConfigError(
            f"problems is {quote(given)}, but must be one split of it", hint="for example problems['test']"
        )
    if isinstance(given, Mapping):
        columns = cast("Mapping[str, list[Any]]", given)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return list(cast("Iterable[Any]", given))


def read_row(row: Mapping[str, Any], fields: Fields) -> Problem:
    """Return the problem of a row.

    Tests of programs, as LiveCodeBench and APPS have them, are the answer unless `fields` names a field for answers.

    Args:
        row: The row, by field.
        fields: The meaning of fields.

    Raises:
        BadRow: A field is missing or has another form.
    """
    if "answer" in fields.named or not any(row.get(name) for name in _TESTS):
        return fields.read(row)
    return find_own("tts_addons.code.tested_rows:read_tested_row")(row, fields)


def prompt_in(row: Mapping[str, Any], name: str) -> Prompt:
    """Return the text or the chat messages of a field.

    Raises:
        BadRow: the field is missing, empty, or of another kind.
    """
    value = row.get(name)
    if not isinstance(value, list):
        return text_in(row, name)
    messages = cast("list[Any]", value)
    are_messages = all(
        isinstance(message, Mapping) and {"role", "content"} <= cast("Mapping[str, Any]", message).keys()
        for message in messages
    )
    if not messages or not are_messages:
        raise BadRow(f"its {name} is {quote(messages)}, but messages must have a role and a content")
    return tuple(Message(text_in(message, "role"), text_in(message, "content")) for message in messages)


def text_in(row: Mapping[str, Any], name: str) -> str:
    """Return the text of a field.

    Raises:
        BadRow: the field is missing, blank or no text.
    """
    if name not in row:
        fields = ", ".join(map(repr, row)) or "none at all"
        raise BadRow(f"it has no field {name!r}, only {fields}")
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"its {name} is {quote(value)}, but must be a text")
    return _writable(value, name)


def reference_in(row: Mapping[str, Any], name: str, task: str | None = None) -> str | None:
    """Return the reference in a field as text; None: the field is missing, blank or NaN.

    Objects and lists become JSON under the task "json". Without a task, objects and lists of objects do.

    Raises:
        BadRow: the field has another kind of value.
    """
    value = row.get(name)
    if not isinstance(value, Mapping | list | tuple):
        return answer_in(row, name)
    items = [value] if isinstance(value, Mapping) else cast("list[Any]", value)
    are_objects = bool(items) and all(isinstance(item, Mapping) for item in items)
    if (task or "").partition("(")[0] == "json" or (task is None and are_objects):
        return _writable(json.dumps(value, ensure_ascii=False, default=str), name)
    raise BadRow(
        f"its {name} is {quote(value)}, but must be a text or a number; with task: json beside the data set it may be "
        "an object or a list"
    )


def answer_in(row: Mapping[str, Any], name: str) -> str | None:
    """Return the text or the number of a field as text; None: the field is missing, blank or NaN.

    Whole numbers are written without a fraction.

    Raises:
        BadRow: the field has another kind of value.
    """
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return _writable(value.strip(), name) if value.strip() else None
    if isinstance(value, float) and math.isnan(value):
        return None
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and math.isinf(value)):
        raise BadRow(f"its {name} is {quote(value)}, but must be a text or a number")
    return str(int(value)) if value == int(value) else str(value)


def _problem(row: Mapping[str, Any] | BadRow, read: Callable[[Mapping[str, Any]], Problem]) -> Problem:
    if isinstance(row, BadRow):
        raise row
    return read(row)


def _writable(text: str, name: str) -> str:
    """Return a text unchanged, after a check that UTF-8 has all its characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRow(f"its {name} has characters that are no UTF-8") from None
    return text


def _name(where: str, left_out: list[str]) -> str:
    phrases = left_out[:_MOST_NAMED]
    num_others = len(left_out) - len(phrases)
    if num_others > 0:
        phrases.append(f"and {num_others} more")
    return f"{where}: rows left out: {len(left_out)}. {'; '.join(phrases)}"


def _check_choice(limit: int | None, seed: int | None) -> None:
    """Refuse a limit or a seed of another type or size."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigError(f"limit is {quote(limit)}, but must be a whole number of at least 1, or None for all")
    if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
        raise ConfigError(
            f"seed is {quote(seed)}, but must be a whole number from 0 to 2**64 - 1, or None for the order of the "
            "source"
        )
