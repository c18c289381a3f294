"""`tts report`: a study as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.boundary import Debug, boundary, warn
from tts.cli.runs import StoreFile
from tts.cli.show import SEED


def report(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="A name or id of `tts runs`; else the newest.")] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page: FILE.html.")] = Path("report.html"),
    x: Annotated[str, typer.Option(help="The axis that is shown first, and by which strategies are compared.")] = "tokens",
    baseline: Annotated[str | None, typer.Option(metavar="STRATEGY", help="What the others are compared with; else the first.")] = None,
    problem: Annotated[list[str] | None, typer.Option(metavar="ID", help="Show the searches of this problem; may be repeated.")] = None,
    store: StoreFile = None,
    debug: Debug = False,
) -> None:
    """Write one page that needs no network: figures, the table, and recorded searches side by side.

    Searches are recorded where the study's file says so: record: {traces: 3}.
    """
    with boundary(debug=debug):
        import numpy as np

        from tts.errors import ConfigError
        from tts.experiments.report import report
        from tts.experiments.store import Store, default_store

        if out.suffix != ".html":
            raise ConfigError(f"the page is {str(out)!r}, but must end in .html", hint="give a name such as report.html")
        with Store.existing(store or default_store()) as opened:
            found = opened.find(study)
            if (finished := found.done + found.failed) < found.cells:
                warn(f"study {found.name}: {finished:,} of {found.cells:,} cells are done, so this is not its final page")
            page = report(opened, found, rng=np.random.default_rng(SEED), x=x, baseline=baseline, problems=problem or ())
        try:
            out.write_text(page, encoding="utf-8")
        except OSError as failure:
            raise ConfigError(f"the page {str(out)!r} cannot be written: {failure.strerror}", hint="name a folder that exists") from None
        typer.echo(f"{out}")
