"""`tts datasets`: the data sets, with their sources and licences."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from tts.cli.boundary import Debug, boundary

if TYPE_CHECKING:
    from rich.table import Table

    from tts.experiments.datasets import DataSet

Name = Annotated[str | None, typer.Argument(help="Show one data set, with its parameters.", show_default=False)]


def datasets(name: Name = None, *, debug: Debug = False) -> None:
    """List the data sets, or show one with its parameters, which a study names under `problems:`.

    "package.module:name" is one of your own.
    """
    with boundary(debug=debug):
        from tts.cli.terminal import output
        from tts.experiments.datasets import get

        output().print(_all() if name is None else _one(name, get(name)))


def _all() -> Table:
    from tts.experiments.datasets import DATASETS, get

    table = _table("data set", "source", "licence")
    for name in DATASETS.names():
        dataset = get(name)
        table.add_row(name, dataset.source, dataset.licence)
    return table


def _one(name: str, dataset: DataSet) -> Table:
    table = _table("data set", name)
    table.add_row("source", dataset.source)
    table.add_row("licence", dataset.licence)
    if dataset.note:
        table.add_row("note", dataset.note)
    for parameter in inspect.signature(dataset).parameters.values():
        table.add_row("parameter", f"{parameter.name} = {parameter.default!r}")
    return table


def _table(*titles: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.ROUNDED)
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title == "data set")
    return table
