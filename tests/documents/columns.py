"""Check the names of columns in documents against the columns that the code writes and reads.

A page names a column in backticks beside the word "column", below a heading "column" or "columns" of a table, behind
the option `--columns`, and as a key of a line of JSON. The columns are those of the tables of studies, of their CSV and
Parquet, of exported samples, of training rows, and of the files that data sets and imports read.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tts
from tests.documents.names import pieces, rows_of_tables
from tts.experiments.analysis.points import points_of
from tts.experiments.datasets import rows as problem_files
from tts.experiments.output import tables
from tts_addons.logs import fields as imports
from tts_addons.training.forms import FORMS

_NAMES = r"`[^`]+`(?:(?:, | and | or |, and |, or )`[^`]+`)*"
_BESIDE = re.compile(rf"\b[Cc]olumns? ({_NAMES})|({_NAMES}) columns?\b")


@dataclass(frozen=True)
class Columns:
    """The columns that the code knows.

    Attributes:
        titles: Those of tables, and the words that stand for them in `--columns`.
        forms: Those of training rows, by the form.
        lines: Those of lines of JSON that data sets and imports read.
        others: Those of exported results and samples, and of tables as CSV.
    """

    titles: frozenset[str] = field(default_factory=frozenset)
    forms: dict[str, frozenset[str]] = field(default_factory=dict)
    lines: frozenset[str] = field(default_factory=frozenset)
    others: frozenset[str] = field(default_factory=frozenset)

    @property
    def every(self) -> frozenset[str]:
        """All of them."""
        return self.titles.union(self.lines, self.others, *self.forms.values())


def known_columns(folder: Path) -> Columns:
    """Return the columns, read from the code and from what a small study writes.

    Args:
        folder: A folder for the study and what it writes.
    """
    study = tts.Study(
        name="columns",
        models="toy-thinking",
        verifiers="toy",
        problems={"dataset": "arithmetic", "operators": "+-", "parentheses": False, "limit": 4},
        strategies=["best_of_n | majority", "best_of_n | weighted"],
        budgets=[{"samples": 2}],
        record={"candidates": True},
    )
    study.run(folder / "store.sqlite", progress=False)
    rows: list[tables.Rows] = [
        study.rows(),
        study.pairs("best_of_n | majority", "best_of_n | weighted"),
        points_of(study.curves()),
    ]
    titles = {title for some in rows for title in tables.columns(some)}
    written = {name for some in rows for name in tables.as_csv(some).splitlines()[0].split(",")}
    for name, form in (("results.csv", None), ("samples.csv", "samples"), ("samples.jsonl", "samples")):
        study.export(folder / name, form=form)
        text = (folder / name).read_text(encoding="utf-8").splitlines()[0]
        written |= set(json.loads(text) if name.endswith("jsonl") else next(csv.reader([text])))
    read = {name for table in (problem_files.USUAL, imports.USUAL) for names in table.values() for name in names}
    return Columns(
        titles=frozenset(titles | {title.partition(" [")[0].partition(",")[0] for title in titles}),
        forms={name: frozenset(form.columns) for name, form in FORMS.items()},
        lines=frozenset(read | imports.USUAL.keys()),
        others=frozenset(written),
    )


def column_faults(text: str, columns: Columns) -> list[str]:
    """Return the names of columns on a page that the code does not have."""
    own = {name for row in rows_of_tables(text) for heading in row for name in re.findall(r"`([^`]+)`", heading)}
    found = list[str]()
    prose = " ".join(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).split())
    for before, after in _BESIDE.findall(prose):
        for name in re.findall(r"`([^`]+)`", before or after):
            if not name.startswith("-") and name not in columns.every | own:
                found.append(f"{name}: nothing has such a column")
    for row in rows_of_tables(text):
        form = row.get("form", "").strip("`")
        known = columns.forms.get(form, columns.every | own)
        for name in re.findall(r"`([^`]+)`", row.get("columns", "") + row.get("column", "")):
            if name not in known:
                where = f"the form {form} has no such" if form in columns.forms else "nothing has such a"
                found.append(f"{name}: {where} column")
    for piece in pieces(text):
        found += _chosen_faults(piece.text, columns)
        if piece.block == "json":
            found += _line_faults(piece.text, columns)
    return list(dict.fromkeys(found))


def _chosen_faults(text: str, columns: Columns) -> Iterator[str]:
    """Yield the titles behind `--columns` and `columns=` that no table has."""
    chosen = [one.split(",") for one in re.findall(r"--columns '?([a-z][\w ,]*)", text)]
    chosen += [re.findall(r"[\"']([^\"']+)[\"']", one) for one in re.findall(r"columns=[(\[]([^)\]]*)", text)]
    for title in (title.strip() for titles in chosen for title in titles):
        if title not in columns.titles:
            yield f"{title}: no table has such a column"


def _line_faults(text: str, columns: Columns) -> Iterator[str]:
    """Yield the keys of lines of JSON that no data set and no import reads."""
    for line in text.splitlines():
        yield from (f"{key}: no file of rows has such a column" for key in json.loads(line) if key not in columns.lines)
