"""The forecast of a study's cost as a table, a row for each row of its final table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tts.experiments.run.forecast import RowForecast
    from tts.experiments.run.runner import PreparedStudy


def print_forecast(prepared: PreparedStudy, file: Path, part: tuple[int, int]) -> None:
    """Print the expected cost of a study, given the results in a store. The store is only read."""
    from tts.budget.budget import Budget
    from tts.cli.terminal import messages, one_line
    from tts.experiments.output.tables import text_of
    from tts.experiments.run.forecast import EarlierResults, forecast
    from tts.experiments.store.store import Store

    earlier = EarlierResults()
    if file.exists():
        with Store(file) as opened:
            for study in opened.studies():
                earlier.add(opened.results(study.id, drawn=False))
    rows = forecast(prepared.cells(part), prepared.executor.settings, earlier, slots=prepared.executor.slots)
    labels: dict[str, Callable[[RowForecast], str]] = {
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


def _costs(rows: Sequence[RowForecast]) -> dict[str, str]:
    """Return the expected total cost of rows, by title."""
    from tts.experiments.run.forecast import total
    from tts.experiments.run.progress import duration

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
