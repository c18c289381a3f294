"""`tts datasets`: the data sets, with their sources and licences."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from tts.cli.terminal import output, table

if TYPE_CHECKING:
    from rich.table import Table

    from tts.experiments.datasets import DataSet

Name = Annotated[str | None, typer.Argument(help="Show one data set, with its parameters.", show_default=False)]


def datasets(name: Name = None) -> None:
    """List the data sets that a study may name under `problems:`, or show one with its parameters.

    A name of the form "package.module:name" stands for a data set of your own.
    """
    from tts.experiments.datasets import get

    output().print(_all() if name is None else _one(name, get(name)))


def _all() -> Table:
    from tts.experiments.datasets import DATASETS, get

    listing = table("data set", "source", "licence", whole="data set")
    for name in DATASETS.names():
        dataset = get(name)
        listing.add_row(name, dataset.source, dataset.licence)
    return listing


def _one(name: str, dataset: DataSet) -> Table:
    listing = table("data set", name, whole="data set")
    listing.add_row("source", dataset.source)
    listing.add_row("licence", dataset.licence)
    if dataset.note:
        listing.add_row("note", dataset.note)
    for parameter in inspect.signature(dataset).parameters.values():
        values = f" (of {', '.join(dataset.splits)})" if parameter.name == "split" and dataset.splits else ""
        listing.add_row("parameter", f"{parameter.name} = {parameter.default!r}{values}")
    return listing
