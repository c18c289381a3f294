"""`tts plot`: a study's scaling curves as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts._core.display import visible
from tts.cli.runs import Labels, StoreFile, StudyName, labels_of


def plot(
    study: StudyName = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The figure: FILE.png, FILE.svg or FILE.pdf.")] = Path(
        "curve.png"
    ),
    x: Annotated[
        str,
        typer.Option(
            help="What accuracy is drawn against: samples, tokens, generated_tokens, flops, seconds, usd, kv_bytes, …"
        ),
    ] = "tokens",
    baseline: Annotated[
        str | None, typer.Option(metavar="STRATEGY", help="Print the gains of all others over this one.")
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="STRATEGY", help="Draw only this strategy or line; again for others.")
    ] = None,
    by_group: Annotated[
        bool, typer.Option("--by-group", help="A panel for each group of problems, such as their difficulty.")
    ] = False,
    label: Labels = None,
    store: StoreFile = None,
) -> None:
    """Draw accuracy against cost, a line for each strategy.

    With a baseline, also print comparisons with it: how much cheaper the others reach the same accuracy, and how
    much better they are at the same cost.
    """
    from tts.experiments.analysis.comparing import describe_result
    from tts.experiments.api import Study

    stored = Study.from_store(study, store=store)
    comparisons = stored.plot(
        out,
        x,
        strategies=strategy or (),
        baseline=baseline,
        by_group=by_group,
        labels=labels_of(label),
    )
    has_several_datasets = len({comparison.dataset for comparison in comparisons}) > 1
    for comparison in comparisons:
        gains = [comparison.gain] if comparison.gain else []
        parts = [*gains, *comparison.differences[-1:]]  # the difference at the largest cost
        described = "; ".join(describe_result(part, x) for part in parts) or "not comparable"
        where = f"{comparison.dataset}: " if has_several_datasets else ""
        if comparison.group is not None:
            where += f"{comparison.group}: "
        against = "" if comparison.base == baseline else f" against {comparison.base}"
        typer.echo(visible(f"{where}{comparison.label}{against}: {described}"))
    typer.echo(f"{out}")
