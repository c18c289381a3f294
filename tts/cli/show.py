"""`tts show`: the results of a study as one table, or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.runs import AsCsv, AsJson, StoreFile, StudyName
from tts.display import visible


def show(
    study: StudyName = None,
    *,
    store: StoreFile = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every result to FILE.parquet, .csv or .jsonl instead.")] = None,
    form: Annotated[str | None, typer.Option(help="With --export, the recorded samples as samples, lm-eval or inspect.")] = None,
) -> None:
    """Print the table of a study: accuracy with its interval, and cost, by strategy and budget.

    A study may be unfinished.
    """
    from tts.errors import ConfigError
    from tts.experiments.api import Study

    if as_csv + as_json + (export is not None) > 1:
        raise ConfigError("--csv, --json and --export were asked for at once, but only one can be", hint="leave all but one out")
    if form is not None and export is None:
        raise ConfigError(f"--form {form} was given without --export, which it is for", hint="add --export FILE")
    found = Study.stored(study, store=store)
    if export is not None:
        typer.echo(f"{found.export(export, form):,} {'results' if form is None else 'problems with their samples'} in {export}")
        return
    text = found.table("csv" if as_csv else "json" if as_json else "text").rstrip("\n")
    typer.echo(text if as_csv or as_json else visible(text))
