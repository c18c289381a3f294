"""`tts show`: what came of a study, as one table or as a file of its results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.boundary import Debug, boundary, warn
from tts.cli.runs import StoreFile

SEED = 0  # of the intervals' resamples: the same results give the same table


def show(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="A name or id of `tts runs`; else the newest.")] = None,
    *,
    store: StoreFile = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every result to FILE.parquet, FILE.csv or FILE.jsonl instead.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print the table of a study: accuracy with its interval, and what was spent, by strategy and budget.

    A study that is still running, or was cut off, is shown as far as it is.
    """
    with boundary(debug=debug):
        import numpy as np

        from tts.cli.terminal import visible
        from tts.errors import ConfigError
        from tts.experiments import table
        from tts.experiments.export import export as write
        from tts.experiments.store import Store, default_store

        if as_csv + as_json + (export is not None) > 1:
            raise ConfigError("--csv, --json and --export were asked for at once, but only one can be", hint="leave all but one out")
        with Store.existing(store or default_store()) as opened:
            found = opened.find(study)
            if (finished := found.done + found.failed) < found.cells:
                warn(f"study {found.name}: {finished:,} of {found.cells:,} cells are done, so this is not its final table")
            if export is not None:
                count = write(opened.results(found.id), export)
                typer.echo(f"{count:,} results in {export}")
                return
            rows = table.table(opened.results(found.id, drawn=False), rng=np.random.default_rng(SEED))
        form = table.as_csv if as_csv else table.as_json if as_json else table.as_text
        text = form(rows).rstrip("\n")
        typer.echo(text if as_csv or as_json else visible(text))
