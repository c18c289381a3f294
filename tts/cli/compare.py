"""`tts compare`: two strategies of a study on the same problems."""

from __future__ import annotations

from typing import Annotated

import typer

from tts.cli.runs import AsCsv, AsJson, RunStudy, StoreFile
from tts.cli.terminal import table_width
from tts.display import visible

First = Annotated[str, typer.Argument(metavar="A", help="A strategy, as tts show writes it.")]
Second = Annotated[str, typer.Argument(metavar="B", help="Another one.")]


def compare(
    first: First,
    second: Second,
    *,
    run: RunStudy = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table of the package booktabs.")] = False,
    store: StoreFile = None,
) -> None:
    """Compare two strategies on the problems that both have finished, under each budget.

    A row has the difference in accuracy with its 95 % interval over problems, its p-value, this p-value adjusted for the number of rows
    (Holm), the problems on which each is better, and McNemar's exact test of them. Seeds of a problem are averaged first.
    """
    from tts.errors import ConfigError
    from tts.experiments.api import Study

    forms = [form for form, asked in (("csv", as_csv), ("json", as_json), ("markdown", markdown), ("latex", latex)) if asked]
    if len(forms) > 1:
        raise ConfigError(f"--{forms[0]} and --{forms[1]} were asked for at once, but only one can be", hint="leave one out")
    text = Study.stored(run, store=store).compare(first, second, form=forms[0] if forms else "text", width=table_width()).rstrip("\n")  # pyright: ignore[reportArgumentType]
    typer.echo(text if forms else visible(text))
