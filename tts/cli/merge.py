"""`tts merge`: copies the results of several stores into one."""

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
    """Copy the results of other stores into one, which is created where missing. The others stay unchanged.

    Existing results are kept, so a merge may be repeated, and the other stores may still grow.
    """
    with boundary(debug=debug):
        from tts.experiments.store.store import Store, default_store

        for file in files:
            Store.existing(file).close()  # before a store is made for them
        with Store(store or default_store()) as opened:
            for file in files:
                typer.echo(f"{opened.merge(file):,} results from {file}")
