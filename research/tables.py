"""Long tables of result pages, as CSV files beside the pages.

    python -m research.tables PAGE [PAGE ...]

A table with more than six rows moves as a whole into `PAGE.csv`, or `PAGE_2.csv` and so on. Tables with equal titles
move together. The page keeps a part of it with a link. `KEPT` names the rows of a page that stay, by the values of
their columns. Other tables keep the rows with the greatest value of the first column of sizes, such as `budget`. A
table with columns for sizes keeps the first and the last of them. A table that no rule shortens stays as it is.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

MOST = 6  # rows of a table that stays
SIZES = ("budget", "limit", "total, samples' worth", "samples a problem")
_SECTION = re.compile(r"^(?:#+ .*|\*\*.*\*\*)$", re.MULTILINE)
_SIZE = re.compile(r"(N = )?[\d,]+( tokens)?")  # the title of a column for a size
# by page and column, the values of rows that stay; patterns as of file names
KEPT: Mapping[str, Mapping[str, Collection[str]]] = {
    "claims.md": {"verifier": ("learnt",), "budget": ("248",), "plan": ()},
    "methods.md": {"budget": ("16",), "plan": (), "stopped by": ()},
    "recorded.md": {
        "selection": ("pass@k", "majority", "weighted", "best_of_majority"),
        "stop rule": ("never", "sprt(preset='consol')", "auto, at most*"),
    },
    "selections.md": {"selection": ("random choice", "majority", "best", "weighted", "best_of_majority", "pass@k")},
    "confidences.md": {"selection": ("random choice", "majority", "best*", "rpc*", "deepconf*")},
    "verifiers.md": {"search": ("beam*", "best_of_n*"), "limit": ("816",)},
    "new_methods.md": {"selection": ("majority", "best", "weighted", "knockout", "swiss", "league(opponents=2)")},
    "allocator_votes.md": {"success rates": ("half .9, half .15",)},
    "methods_by_verifier.md": {"search": ("best_of_n | weighted", "beam*", "rebase*", "a_star(goals=1)", "particle*")},
    "gateway.md": {"connections": ("1, kept", "64, kept")},
    "allocator.md": {"": ("auto", "single*", "best_of_n | majority"), "run": ()},
}
_TABLE = re.compile(r"(?:^\|.*\n){3,}", re.MULTILINE)
BAR, NL = r"\|", "\n"  # a bar within a cell
Row = Sequence[str]


def move_tables(page: Path) -> None:
    """Move the long tables of a page into CSV files beside it, and write the page again.

    Tables with equal titles are one table, whose file has the section of each row.
    """
    text = page.read_text(encoding="utf-8")
    tables: dict[tuple[str, ...], list[Row]] = {}
    for found in _TABLE.finditer(text):
        titles, _, *rows = _read(found[0])
        section = (_SECTION.findall(text[: found.start()]) or [""])[-1].strip("#* ")
        tables.setdefault(tuple(titles), []).extend([section, *row] for row in rows)
    files: dict[tuple[str, ...], Path] = {}
    num_before = len(set(re.findall(rf"\({page.stem}\w*\.csv\)", text)))  # files of tables that have moved already

    def move(found: re.Match[str]) -> str:
        titles, aligned, *rows = _read(found[0])
        columns, kept = _shorten(titles, rows, KEPT.get(page.name, {}))
        every = tables[tuple(titles)]
        if len(every) <= MOST or (len(columns) == len(titles) and len(kept) == len(rows)):
            return found[0]
        place = num_before + len(files) + 1
        path = files.setdefault(tuple(titles), page.with_name(f"{page.stem}{f'_{place}' if place > 1 else ''}.csv"))
        first = int(len({section for section, *_ in every}) == 1)  # one section needs no column
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(row[first:] for row in (["section", *titles], *every))
        lines = [[row[column] for column in columns] for row in (titles, aligned, *kept)] if kept else []
        shown = "".join(f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |\n" for line in lines)
        return f"{shown}{NL if shown else ''}All {len(rows)} rows: [{path.name}]({path.name}).\n"

    page.write_text(_TABLE.sub(move, text), encoding="utf-8")


def _read(table: str) -> list[list[str]]:
    """Return the cells of a table's lines."""
    return [
        [c.strip().replace(BAR, "|") for c in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in table.splitlines()
    ]


def _shorten(titles: Row, rows: Sequence[Row], keep: Mapping[str, Collection[str]]) -> tuple[Sequence[int], list[Row]]:
    """Return the columns and the rows of a table that stay on the page."""
    named = [(titles.index(column), patterns) for column, patterns in keep.items() if column in titles]
    size = next((titles.index(title) for title in SIZES if title in titles), None)
    columns: Sequence[int] = range(len(titles))
    shown = list(rows)
    if named:
        shown = [
            row
            for row in rows
            if all(any(fnmatchcase(row[c].strip("`"), pattern) for pattern in patterns) for c, patterns in named)
        ]
    elif size is not None and all(re.fullmatch(r"[\d.,]+", row[size]) for row in rows):
        greatest = max(float(row[size].replace(",", "")) for row in rows)
        shown = [row for row in rows if float(row[size].replace(",", "")) == greatest]
    sizes = [column for column in columns if _SIZE.fullmatch(titles[column])]
    return [column for column in columns if column not in sizes[1:-1]], shown


def main() -> None:
    """Move the long tables of the named pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    for page in parser.parse_args().pages:
        move_tables(page)


if __name__ == "__main__":
    main()
