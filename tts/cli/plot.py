"""`tts plot`: a study's scaling curves as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts._core.display import visible
from tts.cli.runs import Labels, StoreFile, StudyName, labels_of
from tts.cli.terminal import table_width


def plot(  # noqa: PLR0913 - the options of the command
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
    linear: Annotated[bool, typer.Option("--linear", help="No logarithmic axis.")] = False,
    bands: Annotated[bool, typer.Option("--bands/--no-bands", help="Show 95 % intervals over problems.")] = True,
    front: Annotated[bool, typer.Option("--front/--no-front", help="Mark the Pareto front.")] = True,
    caption: Annotated[
        bool, typer.Option("--caption/--no-caption", help="Name problems, seeds and model below the figure.")
    ] = True,
    print_front: Annotated[
        bool, typer.Option("--print-front", help="Print the points of the Pareto front as a table.")
    ] = False,
    title: Annotated[str, typer.Option(help="Above the figure.")] = "",
    single_column: Annotated[
        bool, typer.Option("--single-column", help="For a paper's column of 3.35 inches.")
    ] = False,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Inches: 6x4.")] = None,
    xlim: Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="Least and greatest cost.")] = None,
    ylim: Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="Least and greatest accuracy: 0.2,0.8.")] = None,
    legend: Annotated[str, typer.Option(help="beside, above, below, inside, ends (of the lines) or none.")] = "auto",
    label: Labels = None,
    store: StoreFile = None,
) -> None:
    """Draw accuracy against cost, a line for each strategy.

    With a baseline, also print comparisons with it: how much cheaper the others reach the same accuracy, how much
    better they are at the same cost, and where they cross it.
    """
    from tts.experiments.analysis.comparing import describe_result
    from tts.experiments.api import Study

    stored = Study.from_store(study, store=store)
    comparisons = stored.plot(
        out,
        x,
        strategies=strategy or (),
        caption=caption,
        baseline=baseline,
        by_group=by_group,
        title=title,
        scale="linear" if linear else "auto",
        bands=bands,
        front=front,
        single_column=single_column,
        size=_pair("--size", size, "x"),
        xlim=_pair("--xlim", xlim),
        ylim=_pair("--ylim", ylim),
        legend=legend,
        labels=labels_of(label),
    )
    has_several_datasets = len({comparison.dataset for comparison in comparisons}) > 1
    for comparison in comparisons:
        gains = [comparison.gain] if comparison.gain else []
        parts = [*gains, *comparison.differences[-1:], *comparison.crossings]  # the difference at the largest cost
        described = "; ".join(describe_result(part, x) for part in parts) or "not comparable"
        where = f"{comparison.dataset}: " if has_several_datasets else ""
        if comparison.group is not None:
            where += f"{comparison.group}: "
        against = "" if comparison.base == baseline else f" against {comparison.base}"
        typer.echo(visible(f"{where}{comparison.label}{against}: {described}"))
    if print_front:
        typer.echo(visible(stored.front(x, width=table_width()).rstrip("\n")))
    typer.echo(f"{out}")


def _pair(option: str, text: str | None, separator: str = ",") -> tuple[float, float] | None:
    """Return the two numbers of "6x4" or "0.2,0.8"."""
    from tts.errors import ConfigError

    if text is None:
        return None
    try:
        low, high = map(float, text.split(separator))
    except ValueError:
        raise ConfigError(f"{option} is {text!r}, but must be two numbers with {separator!r} between them") from None
    return low, high
