"""`tts runs`: the studies of a store."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tts.cli.boundary import Debug, boundary

StoreFile = Annotated[Path | None, typer.Option("--store", metavar="FILE", help="Where results are kept, if not .tts/store.sqlite.")]


def runs(*, store: StoreFile = None, debug: Debug = False) -> None:
    """List the studies that have been run, the newest last."""
    with boundary(debug=debug):
        from rich import box
        from rich.table import Table

        from tts.cli.terminal import one_line, output
        from tts.experiments.store.store import Store, default_store

        table = Table(box=box.ROUNDED)
        for title in ("id", "study", "begun", "cells", "done", "failed", "lost tokens"):
            table.add_column(title, justify="left" if title in ("study", "begun") else "right", overflow="fold")
        with Store.existing(store or default_store()) as opened:
            for study in opened.studies():
                begun = datetime.fromtimestamp(study.created_at).astimezone().isoformat(sep=" ", timespec="minutes")
                counts = (study.cells, study.done, study.failed, opened.lost_tokens(study.id))
                table.add_row(str(study.id), one_line(study.name), begun[:16], *(f"{count:,}" for count in counts))
        output().print(table)
