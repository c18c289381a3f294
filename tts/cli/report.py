"""`tts report`: a study as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.runs import StoreFile, StudyName


def report(
    study: StudyName = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page: FILE.html.")] = Path("report.html"),
    x: Annotated[str, typer.Option(help="The cost that is shown first, and by which strategies are compared.")] = "tokens",
    baseline: Annotated[str | None, typer.Option(metavar="STRATEGY", help="The strategy to compare with; else the first.")] = None,
    problem: Annotated[list[str] | None, typer.Option(metavar="ID", help="Show the searches of this problem; may be repeated.")] = None,
    store: StoreFile = None,
) -> None:
    """Write one page that needs no network: figures, the table, and recorded searches side by side.

    Searches are recorded where the study's file has, for example, record: {traces: 3}.
    """
    from tts.experiments.api import Study

    Study.stored(study, store=store).report(out, x, baseline=baseline, problems=problem or ())
    typer.echo(f"{out}")
