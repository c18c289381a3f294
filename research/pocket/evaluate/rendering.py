"""Tables for a terminal, a document and a program."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from research.pocket.evaluate.tables import Entry, Table
from tts.statistics import Estimate

_UNDEFINED = "–"
_WIDTH = 200  # of text that goes to no terminal, in characters
_HEADING = 16  # of a line of a heading, so that no column is wider than its numbers


def format_entry(entry: Entry) -> str:
    """Return an entry for people.

    Shares have two digits, an estimate has its interval, and an undefined value is a dash.
    """
    if isinstance(entry, Estimate):
        if math.isnan(entry.value):
            return _UNDEFINED
        return f"{_number(entry.value)} [{_number(entry.low)}, {_number(entry.high)}]"
    return _number(entry) if isinstance(entry, float) else f"{entry:,}" if isinstance(entry, int) else entry


def print_text(tables: Sequence[Table], console: Console) -> None:
    """Print tables on a terminal."""
    if not console.is_terminal:
        console.width = _WIDTH
    narrow = console.width < _WIDTH
    for table in tables:
        table_text = RichTable(
            title=table.title, caption=table.note, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left"
        )
        for i, heading in enumerate(table.columns.values()):
            table_text.add_column(
                textwrap.fill(heading, _HEADING), justify="right" if i else "left", no_wrap=not (i and narrow)
            )
        for row in table.rows:
            table_text.add_row(*map(format_entry, row))
        console.print(table_text)


def markdown(tables: Sequence[Table]) -> str:
    """Return tables for a document."""
    parts: list[str] = []
    for table in tables:
        lines = [
            list(table.columns.values()),
            [":--", *["--:"] * (len(table.columns) - 1)],
            *(list(map(format_entry, row)) for row in table.rows),
        ]
        parts.append(
            "\n".join([f"**{table.title}**", "", *(f"| {' | '.join(cells)} |" for cells in lines), "", table.note, ""])
        )
    return "\n".join(parts)


def make_json(tables: Sequence[Table]) -> dict[str, object]:
    """Return tables for JSON, by name; an undefined value is null."""
    return {
        table.name: {
            "title": table.title,
            "note": table.note,
            "columns": dict(table.columns),
            "rows": [
                {key: _make_json_entry(entry) for key, entry in zip(table.columns, row, strict=True)}
                for row in table.rows
            ],
        }
        for table in tables
    }


def restore_tables(stored: Mapping[str, Any]) -> list[Table]:
    """Return the tables that `make_json` gave, from JSON."""
    return [
        Table(
            name,
            one["title"],
            one["note"],
            one["columns"],
            [[_restore_entry(row[key]) for key in one["columns"]] for row in one["rows"]],
        )
        for name, one in stored.items()
    ]


def _restore_entry(entry: Any) -> Entry:
    if isinstance(entry, Mapping):
        ends = {key: math.nan if entry[key] is None else entry[key] for key in ("value", "low", "high")}
        return Estimate(**ends, level=entry["level"], num=entry["num"])
    return math.nan if entry is None else entry


def _make_json_entry(entry: Entry) -> object:
    if isinstance(entry, Estimate):
        ends = {"value": entry.value, "low": entry.low, "high": entry.high}
        return {**{key: _make_json_entry(value) for key, value in ends.items()}, "level": entry.level, "num": entry.num}
    return None if isinstance(entry, float) and math.isnan(entry) else entry


def _number(value: float) -> str:
    return _UNDEFINED if math.isnan(value) else f"{value:.2f}"
