"""The forecast of a study as a table: what it would cost, row by row of its final table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tts.experiments.forecast import Expected
    from tts.experiments.runner import Prepared


def print_forecast(prepared: Prepared, file: Path, part: tuple[int, int]) -> None:
    """Write to standard output what a study would cost, given what a store already has; the store is only read."""
    from rich import box
    from rich.table import Table

    from tts.cli.terminal import messages, one_line, output
    from tts.experiments.forecast import Earlier, forecast
    from tts.experiments.store import Store

    earlier = Earlier()
    if file.exists():
        with Store(file) as opened:
            for each in opened.studies():
                earlier.add(opened.results(each.id, drawn=False))
    rows = forecast(prepared.cells(part), prepared.executor.settings, earlier, slots=prepared.executor.slots)
    table = Table(box=box.ROUNDED)
    for title in ("data set", "model", "strategy", "budget"):
        table.add_column(title, overflow="fold")
    for title in ("cells", "done", "tokens", "from", "at most", "time", "dollars"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        budget = ", ".join(f"{unit}={value:g}" for unit, value in row.budget.items())
        table.add_row(*map(one_line, (row.dataset, row.model, row.strategy, budget)), *_costs([row], row.basis))
    table.add_section()
    table.add_row("all", "", "", "", *_costs(rows, ""))
    output().print(table)
    if any(row.seconds is None for row in rows):
        messages().print(
            "time is unknown until something like it has been run: a few problems (--set problems.limit=5) are enough", soft_wrap=True
        )


def _costs(rows: Sequence[Expected], basis: str) -> list[str]:
    from tts.experiments.forecast import total
    from tts.experiments.progress import duration

    def told(value: float | None, form: Callable[[float], str]) -> str:
        return "unknown" if value is None else form(value)

    tokens, most, seconds, usd = (total(getattr(row, name) for row in rows) for name in ("tokens", "at_most", "seconds", "usd"))
    return [
        f"{sum(row.cells for row in rows):,}", f"{sum(row.done for row in rows):,}", told(tokens, "{:,.0f}".format), basis,
        told(most, "{:,.0f}".format), told(seconds, duration), told(usd, "${:,.2f}".format),
    ]  # fmt: skip
