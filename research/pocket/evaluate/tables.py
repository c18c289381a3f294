"""Tables as data: named columns, and rows of texts, numbers and estimates. Nothing here prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tts.statistics import Estimate

Entry = str | int | float | Estimate  # NaN: undefined


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Args:
        name: The name of the table in JSON.
        title: The title of the table for people.
        note: The sentences on what its numbers are.
        columns: The heading of each column for people, by its key in JSON.
        rows: The rows, each with an entry for every column.
    """

    name: str
    title: str
    note: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Entry]]

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        assert not wrong, f"table {self.name} has {len(self.columns)} columns, but a row of {len(wrong[0])}"
