"""The arguments that commands of this folder share, and how the commands write a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs/results"


def parser(doc: str | None, *, limit: int, jobs: int = 1, **counts: int) -> argparse.ArgumentParser:
    """Return a parser with the arguments of a study of the embedded pair.

    Args:
        doc: The docstring of the command.
        limit: The default number of problems.
        jobs: The default number of processes.
        counts: The defaults of other numbers: seeds, samples or draws.
    """
    told = {"samples": "of a problem", "draws": "subsets of a pool"}
    command = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    command.add_argument("--limit", type=int, default=limit, help="problems")
    for name, default in counts.items():
        command.add_argument(f"--{name}", type=int, default=default, help=told.get(name))
    command.add_argument("--jobs", type=int, default=jobs, help="processes")
    command.add_argument("--store", type=Path)
    command.add_argument("--out", type=Path, default=RESULTS)
    command.add_argument("--choices", type=Path, default=RESULTS, help="folder of methods_choices.json")
    return command


def write_page(folder: Path, name: str, lines: Iterable[str]) -> None:
    """Write a page, and print where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(folder / name)
