"""`tts merge`: the results of several stores in one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.boundary import Debug, boundary
from tts.cli.runs import StoreFile


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Stores, such as those of the jobs of an array.")],
    *,
    store: StoreFile = None,
    debug: Debug = False,
) -> None:
    """Take what other stores have into one, which is made where there is none; they stay as they are.

    Results that are there already are kept, so it may be done again, and while the others are still growing.
    """
    with boundary(debug=debug):
        from tts.experiments.store import Store, default_store

        for file in files:
            Store.existing(file).close()  # before a store is made for them
        with Store(store or default_store()) as opened:
            for file in files:
                typer.echo(f"{opened.merge(file):,} results from {file}")
