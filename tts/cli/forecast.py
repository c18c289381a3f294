"""The forecast of a study as a table: what it would cost, row by row of its final table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tts.experiments.forecast import Expected
    from tts.experiments.runner import Prepared


def print_forecast(prepared: Prepared, file: Path, part: tuple[int, int]) -> None:
    """Write to standard output what a study would cost, given what a store already has; the store is only read."""
    from tts.budget import Budget
    from tts.cli.terminal import messages, one_line
    from tts.experiments.forecast import Earlier, forecast
    from tts.experiments.store import Store
    from tts.experiments.table import text_of

    earlier = Earlier()
    if file.exists():
        with Store(file) as opened:
            for study in opened.studies():
                earlier.add(opened.results(study.id, drawn=False))
    rows = forecast(prepared.cells(part), prepared.executor.settings, earlier, slots=prepared.executor.slots)
    labels: dict[str, Callable[[Expected], str]] = {
        "data set": lambda row: one_line(row.dataset),
        "model": lambda row: one_line(row.model),
        "strategy": lambda row: one_line(row.strategy),
        "budget": lambda row: str(Budget(**row.budget)),  # pyright: ignore[reportArgumentType]
        "from": lambda row: row.basis,
    }
    each = [_costs([row]) for row in rows]
    columns = {title: [show(row) for row in rows] for title, show in labels.items()}
    columns |= {title: [costs[title] for costs in each] for title in each[0]}
    typer.echo(text_of(columns))
    typer.echo("\nin all: " + ", ".join(f"{title} {cost}" for title, cost in _costs(rows).items()))
    if not all(row.whole for row in rows):
        hint = "'at least' is without what verifiers compute: that is unknown until a few of these cells have been run"
        messages().print(hint, soft_wrap=True)
    if any(row.seconds is None for row in rows):
        hint = "time is unknown until something like it has been run: a few problems (--set problems.limit=5) are enough"
        messages().print(hint, soft_wrap=True)


def _costs(rows: Sequence[Expected]) -> dict[str, str]:
    """Return what some rows are expected to cost together, by title."""
    from tts.experiments.forecast import total
    from tts.experiments.progress import duration

    def told(name: str, form: Callable[[float], str]) -> str:
        value = total(getattr(row, name) for row in rows)
        return "unknown" if value is None else form(value)

    least = "" if all(row.whole for row in rows) else "at least "

    return {
        "cells": f"{sum(row.cells for row in rows):,}",
        "done": f"{sum(row.done for row in rows):,}",
        "tokens": told("tokens", f"{least}{{:,.0f}}".format),
        "at most": told("at_most", "{:,.0f}".format),
        "time": told("seconds", duration),
        "dollars": told("usd", "${:,.2f}".format),
    }
