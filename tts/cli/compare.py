"""`tts compare`: two strategies of a study on the same problems."""

from __future__ import annotations

from typing import Annotated

import typer

from tts.cli.runs import (
    AsCsv,
    AsJson,
    AsLatex,
    AsMarkdown,
    Columns,
    RunStudy,
    StoreFile,
    columns_of,
    form_of,
    print_table,
)
from tts.cli.terminal import table_width

First = Annotated[str, typer.Argument(metavar="A", help="A strategy, as tts show writes it.")]
Second = Annotated[str, typer.Argument(metavar="B", help="Another one.")]


def compare(  # noqa: PLR0913 - the options of the command
    first: First,
    second: Second,
    *,
    run: RunStudy = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    columns: Columns = None,
    store: StoreFile = None,
) -> None:
    """Compare two strategies on the problems that both have finished, under each budget.

    On a pool of samples (tts sample, tts import), both strategies are replayed at each size.

    A row has the difference in accuracy with its 95 % interval over problems, its p-value, this p-value adjusted for
    the number of rows (Holm), the problems on which each is better, and McNemar's exact test of them. Seeds of a
    problem are averaged first.

    The interval and p are of the same resamples: p is below 5 % if and only if the interval leaves 0 out.
    """
    from tts.experiments.api import Study

    form = form_of(csv=as_csv, json=as_json, latex=as_latex, markdown=as_markdown)
    stored = Study.from_store(run, store=store)
    print_table(stored.compare(first, second, form, width=table_width(), columns=columns_of(columns)), form)
