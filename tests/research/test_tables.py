"""Long tables of result pages move into CSV files, and the page keeps the rows that a reader decides by."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

from research.tables import MOST, move_tables


def table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, [":--"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_a_long_table_moves_and_its_greatest_size_stays(tmp_path: Path) -> None:
    page = tmp_path / "claims_like.md"
    rows = [[f"`a \\| {name}`", size, "1 [0, 2]"] for name in ("x", "y", "z") for size in ("62", "1,240", "248")]
    page.write_text("# One\n\n" + table(["plan", "budget", "accuracy"], rows) + "\nThe end.\n")
    move_tables(page)
    text = page.read_text()
    assert text.count("| 1,240 |") == 3
    assert "| 62 |" not in text
    assert "All 9 rows: [claims_like.csv](claims_like.csv)." in text
    assert text.endswith("\n\nThe end.\n")
    with (tmp_path / "claims_like.csv").open(newline="") as file:
        assert list(csv.reader(file))[:2] == [["plan", "budget", "accuracy"], ["`a | x`", "62", "1 [0, 2]"]]
    page.write_text(text + "\n" + table(["search", "budget"], [["beam", str(size)] for size in range(9)]))
    move_tables(page)
    assert page.read_text().startswith(text), "what was moved stays moved"
    assert "All 9 rows: [claims_like_2.csv](claims_like_2.csv)." in page.read_text()


def test_tables_with_equal_titles_have_one_file_and_short_ones_stay(tmp_path: Path) -> None:
    page = tmp_path / "pools.md"
    sized = table(["selection", "1", "2", "4", "8"], [["majority", "1", "2", "3", "4"]] * (MOST - 1))
    short = table(["gate", "found"], [["AUC", "0.9"]] * 2)
    page.write_text(f"## First\n\n{sized}\n## Second\n\n{sized}\n{short}")
    move_tables(page)
    text = page.read_text()
    assert text.count("| selection | 1 | 8 |") == text.count("[pools.csv](pools.csv)") == 2
    assert short in text
    rows = list(csv.reader((tmp_path / "pools.csv").read_text().splitlines()))
    assert rows[0] == ["section", "selection", "1", "2", "4", "8"]
    assert [row[0] for row in rows[1:]] == ["First"] * (MOST - 1) + ["Second"] * (MOST - 1)
