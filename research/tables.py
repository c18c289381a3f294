"""Long tables of result pages, as CSV files beside the pages.

    python -m research.tables PAGE [PAGE ...]

A table with more than six rows moves as a whole into `PAGE.csv`, or `PAGE_2.csv` and so on. Tables with equal titles
move together. The page keeps a part of it with a link. `KEPT` names the rows of a page that stay, by the values of
their columns; then a shorter table moves too. Other tables keep the rows with the greatest value of the first column of
sizes, such as `budget`. A table with columns for sizes keeps the first and the last of them. A table that has a column
of `LEFT` moves too, and the page leaves the column out. A table that no rule shortens stays as it is.
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
    "claims.md": {"section": ("Accuracy",), "budget": ("248",), "plan": ()},
    "claims_auto.md": {"budget": ("248",)},
    "methods.md": {
        "budget": ("16",),
        "method": ("majority", "best", "best_of_n*", "a_star", "beam", "ets", "greedy", "particle_filter", "rebase"),
        "plan": (),
        "stopped by": (),
    },
    "methods_by_verifier.md": {
        "search": ("best_of_n | weighted", "rebase*", "particle*"),
        "against": ("beam*",),
        "charge": (),
    },
    "allocator.md": {
        "run": ("single*", "auto"),
        "total": ("8",),
        "strategy": ("single*", "*threshold=0.9)*", "best*"),
        "costs": (),
        "waves": (),
    },
    "allocator_countdown.md": {
        "method": ("weighted best-of-N", "auto", "best single*", "hindsight*"),
        "budget": ("124", "1000"),
    },
    "allocator_votes.md": {"success rates": ("half .9, half .15",), "samples a problem": ("8",), "estimated": ()},
    "recorded.md": {"samples a problem": (), "stop rule": ("sprt", "sprt(preset='consol')", "auto, at most*")},
    "risk.md": {"answers by": ("tts calibrate", "selective")},
    "signal.md": {"first": ("4",)},
    "selections.md": {
        "selection": ("random choice", "majority", "best, process*", "*, log-prob*plus*", "*alpha max(0.1, 3/N)"),
        "verifier": ("[*][*]*", "process model, N = 64", "Skywork*"),
    },
    "confidences.md": {
        "confidence": ("inverse*", "joint*", "*lowest group"),
        "selection": ("random*", "majority", "best, [ij]*", "best, *lowest*", "weighted, inv*", "*10, inv*"),
        "plan": ("majority", "*keep 50"),
    },
    "splits.md": {"C": ("8", "16", "32")},
    "verifiers.md": {
        "search": ("beam, best", "best_of_n, *"),
        "guide": ("process model", "probe", "confidence"),
        "limit": ("816",),
    },
    "second_wave.md": {
        "plan": ("best*", "mur*| majority", "phi*", "power*(moves=2) *", "ab_mcts", "*_filter | w*", "*(lookahead=1)*"),
        "budget": ("816",),
    },
    "new_methods.md": {
        "selection": ("majority", "best", "weighted"),
        "stop rule": ("never", "*0.01,*"),
        "tournament": ("knockout", "swiss"),
        "budget": ("900",),
    },
    "grpo.md": {"step": ("0", "20")},
    "pair_gates_arithmetic.md": {"gate": ("AUC*, process", "best of 32*", "one sample of*", "solve*")},
    "pair_gates_countdown.md": {"gate": ("AUC among all*", "best of 32*", "solve*")},
    "gateway.md": {"connections": ("1, kept", "64, kept"), "": ("asolve", "chat", "Responses*", "Messages")},
    "gpu.md": {"tree": ("2,048 + *", "REBASE")},
    "search_cost.md": {
        "problems at once": ("64",),
        "plan": ("beam(n=16*", "ets*", "a_star*", "best_of_n*", "its_hub*"),
    },
    "store.md": {
        "a million rows": ("lease*", "*tabulate"),
        "step": ("a table*", "law*", "selections*"),
        "interval of": ("accuracy", "difference", "AUC"),
        "form": ("CSV", "Parquet"),
    },
}
# by page, the titles of columns that are in the file alone
LEFT: Mapping[str, Collection[str]] = {
    "allocator.md": ("spent",),
    "allocator_votes.md": ("uniform", "*known − fitted", "Blend*"),
    "claims.md": ("verifier", "generated", "MFLOPs"),
    "claims_auto.md": ("verifier", "generated", "MFLOPs"),
    "confidences.md": ("N = 4", "to `best`*"),
    "gpu.md": ("copies", "partials, MB", "programs", "us gathered"),
    "methods.md": ("points", "generated", "verifier", "calls", "KV*"),
    "methods_by_verifier.md": ("1",),
    "new_methods.md": ("tokens",),
    "recorded.md": ("tokens", "in recorded order", "samples in it"),
    "search_cost.md": ("model", "steps", "tokens", "of the search", "before, us"),
    "selections.md": ("N = 4", "2/N", "max(0.03*"),
    "servers.md": ("tokens", "others*"),
    "splits.md": ("V = [1248]",),
    "verifiers.md": ("generated", "verifier", "price", "FLOPs"),
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
        section = _section(text, found)
        tables.setdefault(tuple(titles), []).extend([section, *row] for row in rows)
    files: dict[tuple[str, ...], Path] = {}
    num_before = len(set(re.findall(rf"\({page.stem}\w*\.csv\)", text)))  # files of tables that have moved already

    def move(found: re.Match[str]) -> str:
        titles, aligned, *rows = _read(found[0])
        left = [place for place, title in enumerate(titles) if _matches(title, LEFT.get(page.name, ()))]
        columns, kept = _shorten(titles, rows, KEPT.get(page.name, {}), _section(text, found))
        every = tables[tuple(titles)]
        is_named = bool(KEPT.get(page.name, {}).keys() & {*titles})
        is_whole = len(columns) == len(titles) and len(kept) == len(rows)
        if not left and (is_whole or (len(every) <= MOST and not is_named)):
            return found[0]
        place = num_before + len(files) + 1
        path = files.setdefault(tuple(titles), page.with_name(f"{page.stem}{f'_{place}' if place > 1 else ''}.csv"))
        first = int(len({section for section, *_ in every}) == 1)  # one section needs no column
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(row[first:] for row in (["section", *titles], *every))
        lines = [[row[c] for c in columns if c not in left] for row in (titles, aligned, *kept)] if kept else []
        shown = "".join(f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |\n" for line in lines)
        return f"{shown}{NL if shown else ''}All {len(rows)} rows: [{path.name}]({path.name}).\n"

    page.write_text(_TABLE.sub(move, text), encoding="utf-8")


def _section(text: str, found: re.Match[str]) -> str:
    """Return the heading above a table."""
    return (_SECTION.findall(text[: found.start()]) or [""])[-1].strip("#* ")


def _matches(cell: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(cell.strip("`"), pattern) for pattern in patterns)


def _read(table: str) -> list[list[str]]:
    """Return the cells of a table's lines."""
    return [
        [c.strip().replace(BAR, "|") for c in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in table.splitlines()
    ]


def _shorten(
    titles: Row, rows: Sequence[Row], keep: Mapping[str, Collection[str]], section: str
) -> tuple[Sequence[int], list[Row]]:
    """Return the columns and the rows of a table that stay on the page."""
    named = [(titles.index(column), patterns) for column, patterns in keep.items() if column in titles]
    size = next((titles.index(title) for title in SIZES if title in titles), None)
    columns: Sequence[int] = range(len(titles))
    shown = list(rows)
    if not _matches(section, keep.get("section", ("*",))):
        shown = []
    elif named:
        shown = [row for row in rows if all(_matches(row[column], patterns) for column, patterns in named)]
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
