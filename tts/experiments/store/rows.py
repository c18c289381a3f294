"""The format of cells and results in the store.

Cells and results are JSON objects with field names, where default values are left out. A field with a default can
therefore be added to a record, and older stores stay readable. NaN and infinities are written as null. Texts are
escaped to ASCII, so that any text of a model or data set is restored exactly, lone surrogates included.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tts.errors import quote
from tts.experiments.datasets.unpacking import LARGEST_ROW, largest_row, pack
from tts.experiments.store.bodies import damage_error, packed_value, reading, source_in, value_in, whole_record
from tts.experiments.study.record import Cell, RecordedSample, Result, StoredRun
from tts.trace.trace import plain_values
from tts.types import Usage

CONDITION: Final = ("dataset", "model", "setting", "verifiers", "strategy", "budget")
_OTHER_COLUMNS: Final = 4096  # bytes beside the large columns of a row
# fields of a result that `result_body` does not write by the general rule
_SEPARATE_FIELDS: Final = frozenset({"cell", "usage", "confidence", "lost_tokens", "drawn"})


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Return the default of each field of a record; MISSING for required fields."""
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(kind)
    }


_USAGE: Final = _defaults(Usage)
_RESULT: Final = {name: default for name, default in _defaults(Result).items() if name not in _SEPARATE_FIELDS}


def to_json(value: Any) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def identity_of(snapshot: Mapping[str, Any]) -> str:
    """Return the identity of a study beside its name: configuration, checksums of problems and models."""
    data = {title: entry["sha256"] for title, entry in snapshot.get("data", {}).items()}
    return to_json({"configuration": snapshot.get("configuration"), "data": data, "models": snapshot.get("models")})


def condition_body(cell: Cell) -> str:
    """Return a cell's condition: the fields that it shares with its row of the table, such as the model."""
    return to_json({name: plain_values(getattr(cell, name)) for name in CONDITION})


def cell_body(cell: Cell) -> str:
    """Return the fields that are a cell's own: problem, group and seed."""
    return to_json([cell.problem, cell.group, cell.seed])


def runs_of(study: int, name: Any, rows: Sequence[tuple[int, float, str]]) -> tuple[StoredRun, ...]:
    """Return the runs of a study; a run is one start of the study.

    Args:
        study: The study's number in the store.
        name: The study's name.
        rows: The number, time and snapshot of each run.

    Raises:
        ConfigError: A run is damaged, or there is none.
    """
    if not rows or not isinstance(name, str):
        raise damage_error("studies", study, f"its name is {quote(name)}, and it has {len(rows)} runs")
    runs = list[StoredRun]()
    for number, begun_at, snapshot in rows:
        with reading("runs", number):
            runs.append(StoredRun(float(begun_at), value_in(snapshot, dict)))
    return tuple(runs)


def condition_of(row: int, body: str) -> dict[str, Any]:
    """Return the fields that the cells of a condition share.

    Args:
        row: The condition's number in the store.
        body: The condition's body.

    Raises:
        ConfigError: The condition is damaged.
    """
    with reading("conditions", row):
        condition = value_in(body, dict)
        whole_record(Cell(key="", problem="", seed=0, **condition))
        return condition


def cell_of(row: int, key: str, condition: Mapping[str, Any], body: str) -> Cell:
    """Return a cell.

    Args:
        row: The cell's number in the store.
        key: The cell's key.
        condition: The parsed condition, which all its cells share.
        body: The cell's own body.

    Raises:
        ConfigError: The cell is damaged.
    """
    with reading("members", row):
        problem, group, seed = value_in(body, list)
        return whole_record(Cell(key=key, problem=problem, group=group, seed=seed, **condition))


def result_body(result: Result) -> str:
    """Return a result without its cell, candidates and lost tokens, which the store keeps elsewhere."""
    body = _nondefault_fields(result, _RESULT)
    body["confidence"] = plain_values(result.confidence)
    body["usage"] = {**_nondefault_fields(result.usage, _USAGE), "requests": result.usage.requests}
    return to_json(body)


def _nondefault_fields(record: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults, as plain values."""
    values = {name: getattr(record, name) for name in defaults}
    return {name: plain_values(value) for name, value in values.items() if value != defaults[name]}


def result_of(row: int, cell: Cell, body: str, drawn: bytes | None, lost_tokens: int) -> Result:
    """Return a result.

    Args:
        row: The number of the result's cell in the store.
        cell: The result's cell.
        body: The result's body.
        drawn: The packed candidates; None: they were not recorded.
        lost_tokens: The tokens of earlier runs of the cell that were interrupted.

    Raises:
        ConfigError: The result is damaged, or too large.
    """
    with reading("results", row):
        fields = value_in(body, dict)
        fields["usage"] = whole_record(_usage_of(fields["usage"]))
        fields["warnings"] = tuple(fields.get("warnings", ()))
        fields["confidence"] = _number(fields["confidence"])
        rows = None if drawn is None else packed_value(f"the row {row} of the table results", drawn, list)
        candidates = None if rows is None else samples_in(rows)
        return whole_record(Result(cell=cell, lost_tokens=lost_tokens, drawn=candidates, **fields))


def tokens_of(row: int, body: str) -> int:
    """Return the tokens that a result spent.

    Args:
        row: The number of the result's cell in the store.
        body: The result's body.

    Raises:
        ConfigError: The result is damaged.
    """
    with reading("results", row):
        return whole_record(_usage_of(value_in(body, dict)["usage"])).tokens


def _usage_of(record: Mapping[str, Any]) -> Usage:
    """Return a usage from its stored fields. Requests are unknown where a version that did not count them wrote it."""
    return Usage(**dict[str, Any]({"requests": None, **record}))


class ResultRow(NamedTuple):
    """A result as its columns.

    Args:
        failed: Whether the result has an error.
        body: The result's body.
        drawn: The packed candidates; None: there are none.
        trace: The search; None: it is not recorded.
        texts: The packed texts of the model; None: they are not recorded.
        lines: The parts that were left out as too large for a row, one line each.
    """

    failed: bool
    body: str
    drawn: bytes | None
    trace: bytes | None
    texts: bytes | None
    lines: tuple[str, ...]


def row_of(result: Result, trace: bytes | None, texts: bytes | None = None) -> ResultRow:
    """Return the columns of a result.

    A part too large to be read again is left out, and the result has a warning about it.

    Args:
        result: The result.
        trace: The search; None: it is not recorded.
        texts: The texts of the model, as JSON; None: they are not recorded.
    """
    lines: list[str] = []
    max_size = largest_row() - _OTHER_COLUMNS

    def fits(part: str, size: int) -> bool:
        """Return whether a part of some bytes fits in a row, and add a line if it does not."""
        if size <= max_size:
            return True
        rule = f"more than the {largest_row() >> 20:,} MiB that one row may have"
        cure = f"before a run, {LARGEST_ROW}=256 in the environment (MiB) raises that"
        lines.append(
            f"{part} of the problem {quote(result.cell.problem)} was not stored: {size:,} bytes are {rule}; {cure}"
        )
        return False

    if not fits("the answer", len(result_body(result))):
        result = dataclasses.replace(
            result, answer=None, right=None, stopped_by="failed", error=lines[0], failures={}, warnings=()
        )
    drawn = None if result.drawn is None else _json_bytes(result.drawn)
    if drawn is not None and not fits("the list of candidates", len(result_body(result)) + len(drawn)):
        drawn = None
    if trace is not None and not fits("the search", len(trace)):
        trace = None
    if texts is not None and not fits("the list of texts", len(texts)):
        texts = None
    body = result_body(dataclasses.replace(result, warnings=(*result.warnings, *lines)))
    return ResultRow(
        failed=result.error is not None,
        body=body,
        drawn=None if drawn is None else pack("candidates", drawn),
        trace=trace,
        texts=None if texts is None else pack("texts", texts),
        lines=tuple(lines),
    )


def pack_candidates(place: str, drawn: Sequence[RecordedSample]) -> bytes:
    """Return candidates as compressed bytes.

    Args:
        place: The name of the candidates in an error.
        drawn: The candidates.

    Raises:
        ConfigError: The candidates are too large for one row.
    """
    return pack(place, _json_bytes(drawn))


def _json_bytes(drawn: Sequence[RecordedSample]) -> bytes:
    return to_json(plain_values(drawn)).encode("ascii")


def samples_in(rows: list[Any]) -> tuple[RecordedSample, ...]:
    """Return candidates from their plain values, which are changed in place.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: The candidates are damaged.
    """
    for row in rows:
        row["scores"] = {role: _number(score) for role, score in row["scores"].items()}
        for name in ("steps", "outcomes"):
            row[name] = {role: tuple(map(_number, scores)) for role, scores in row.get(name, {}).items()}
    return tuple(whole_record(RecordedSample(**row)) for row in rows)


def with_texts(result: Result, body: bytes | None) -> tuple[Result, dict[str, Any]]:
    """Return a result with its candidates, and their texts as `source_in` reads them; {}: none.

    Args:
        result: The result. Where it has no candidates, it gets the candidates of the texts.
        body: The row of the table `sources`; None: there is none.

    Raises:
        ConfigError: The body is damaged, or too large.
    """
    if body is None:
        return result, {}
    source = source_in(result.cell.key, body)
    with reading("sources", result.cell.key):
        if result.drawn is None and source.get("drawn") is not None:
            result = dataclasses.replace(result, drawn=samples_in(source["drawn"]))
        for name in ("texts", "thoughts"):
            texts = source.get(name)
            if result.drawn is not None and texts and len(texts) != len(result.drawn):
                raise ValueError(f"it has {len(texts)} {name} of {len(result.drawn)} candidates")
    return result, source


def _number(value: float | None) -> float:
    return math.nan if value is None else value
