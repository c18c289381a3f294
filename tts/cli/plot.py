"""`tts plot`: a study's scaling curves as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.boundary import Debug, boundary, warn
from tts.cli.runs import StoreFile
from tts.cli.show import SEED


def plot(  # noqa: PLR0913 - the options of the command
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="A name or id of `tts runs`; else the newest.")] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The figure: FILE.png, FILE.svg or FILE.pdf.")] = Path("curve.png"),
    x: Annotated[
        str, typer.Option(help="What accuracy is drawn against: samples, tokens, generated_tokens, flops, seconds, usd, kv_bytes, …")
    ] = "tokens",
    baseline: Annotated[str | None, typer.Option(metavar="STRATEGY", help="Say what all others gain over this one.")] = None,
    by_group: Annotated[bool, typer.Option("--by-group", help="A panel for each group of problems, such as their difficulty.")] = False,
    linear: Annotated[bool, typer.Option("--linear", help="No logarithmic axis.")] = False,
    bands: Annotated[bool, typer.Option("--bands/--no-bands", help="Show 95 % intervals over problems.")] = True,
    front: Annotated[bool, typer.Option("--front/--no-front", help="Mark the points that no other beats.")] = True,
    title: Annotated[str, typer.Option(help="Above the figure.")] = "",
    store: StoreFile = None,
    debug: Debug = False,
) -> None:
    """Draw accuracy against cost, a line for each strategy.

    With a baseline it also says how much cheaper the others reach the same accuracy, how much better they are at the same cost, and
    where they cross it.
    """
    with boundary(debug=debug):
        import numpy as np

        from tts.cli.terminal import visible
        from tts.experiments import plots
        from tts.experiments.comparing import compare, in_words
        from tts.experiments.gathering import curves_of
        from tts.experiments.store import Store, default_store

        plots.check_path(out)
        rng = np.random.default_rng(SEED)
        with Store.existing(store or default_store()) as opened:
            found = opened.find(study)
            if (finished := found.done + found.failed) < found.cells:
                warn(f"study {found.name}: {finished:,} of {found.cells:,} cells are done, so this is not its final figure")
            curves = curves_of(opened.results(found.id, drawn=False), rng=rng, by_group=by_group)
        compared = [] if baseline is None else compare(curves, baseline, x, rng=rng)
        gains = [one.gain for one in compared if one.gain is not None and one.gain.ratio.low > 1]
        shown = max(gains, key=lambda gain: gain.ratio.value) if gains and len({one.group for one in compared}) == 1 else None
        figure = plots.draw(curves, x, title=title, scale="linear" if linear else "auto", bands=bands, front=front, gained=shown)
        plots.save(figure, out)
        for one in compared:
            parts = [*([one.gain] if one.gain else []), *one.differences[-1:], *one.crossings]
            where = f"{one.dataset}: " if len({each.dataset for each in compared}) > 1 else ""
            where += "" if one.group is None else f"{one.group}: "
            against = "" if one.base == baseline else f" against {one.base}"
            typer.echo(visible(f"{where}{one.label}{against}: {'; '.join(in_words(part, x) for part in parts) or 'not comparable'}"))
        typer.echo(f"{out}")
