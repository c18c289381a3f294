"""Cells and results as the store writes them: JSON that says its own names, with what is at its default left out.

So a field with a default can be added to a record and older stores stay readable. What is NaN is written as null, and texts are
escaped to ASCII: whatever a model or a data set wrote, lone surrogates included, comes back as it was.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tts.experiments.record import Cell, Drawn, Result
from tts.types import Usage

_CONDITION: Final = ("dataset", "model", "setting", "verifiers", "strategy", "budget")
_APART: Final = frozenset({"cell", "usage", "confidence", "lost_tokens", "drawn"})  # fields of a result with a form of their own


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a record and what each is where nothing else is said; MISSING: something always is."""
    factories = {f.name: f.default_factory for f in dataclasses.fields(kind) if f.default_factory is not dataclasses.MISSING}
    return {f.name: factories[f.name]() if f.name in factories else f.default for f in dataclasses.fields(kind)}


_USAGE: Final = _defaults(Usage)
_RESULT: Final = {name: default for name, default in _defaults(Result).items() if name not in _APART}


def to_json(value: Any) -> str:
    """Return the one text that stands for a value: keys in order, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def condition_body(cell: Cell) -> str:
    """Return what a cell shares with all others of its row in the table, names of data set and model included."""
    return to_json({name: plain(getattr(cell, name)) for name in _CONDITION})


def cell_body(cell: Cell) -> str:
    """Return what is a cell's own: problem, group and seed."""
    return to_json([cell.problem, cell.group, cell.seed])


def cell_of(key: str, condition: Mapping[str, Any], body: str) -> Cell:
    """Return the cell of a key, its condition (parsed: all its cells share the one object) and its own body."""
    problem, group, seed = json.loads(body)
    return Cell(key=key, problem=problem, group=group, seed=seed, **condition)


def result_body(result: Result) -> str:
    """Return a result without its cell and its candidates. What was lost is the store's to know, and is left out."""
    body = _told(result, _RESULT)
    body["confidence"] = plain(result.confidence)
    body["usage"] = _told(result.usage, _USAGE)
    return to_json(body)


def _told(record: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, default in defaults.items() if (value := getattr(record, name)) != default}


def result_of(cell: Cell, body: str, drawn: bytes | None, lost_tokens: int) -> Result:
    """Return the result of a cell, its body and its packed candidates."""
    fields = json.loads(body)
    fields["usage"] = Usage(**fields["usage"])
    fields["warnings"] = tuple(fields.get("warnings", ()))
    fields["confidence"] = _number(fields["confidence"])
    return Result(cell=cell, lost_tokens=lost_tokens, drawn=None if drawn is None else _unpacked(drawn), **fields)


def tokens_of(body: str) -> int:
    """Return what a result has spent, from its body."""
    return Usage(**json.loads(body)["usage"]).tokens


def packed(drawn: Sequence[Drawn] | None) -> bytes | None:
    """Return candidates as compressed bytes; None: they were not recorded."""
    if drawn is None:
        return None
    rows = [{f.name: plain(getattr(one, f.name)) for f in dataclasses.fields(Drawn)} for one in drawn]
    return zlib.compress(to_json(rows).encode("ascii"), 1)


def _unpacked(drawn: bytes) -> tuple[Drawn, ...]:
    rows = json.loads(zlib.decompress(drawn))
    for row in rows:
        row["scores"] = {role: _number(score) for role, score in row["scores"].items()}
        row["steps"] = {role: tuple(map(_number, scores)) for role, scores in row["steps"].items()}
    return tuple(Drawn(**row) for row in rows)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: mappings and sequences of the plainest kind, NaN as None."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value
