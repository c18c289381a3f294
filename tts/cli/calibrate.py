"""`tts calibrate`: thresholds of confidence that keep the share of wrong answers below a level."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.runs import RunStudy, StoreFile, TrustPlaces
from tts.display import visible


def calibrate(
    *,
    risk: Annotated[float, typer.Option(help="The share of given answers that may be wrong, above 0 and below 1.")],
    run: RunStudy = None,
    strategy: Annotated[str | None, typer.Option(help="The strategy of the study; of a pool: best_of_n | majority.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Samples of each problem from a pool (tts sample).")] = None,
    model: Annotated[str | None, typer.Option(help="The model of the study, if it has several.")] = None,
    delta: Annotated[float, typer.Option(help="The probability, over sets of problems, that the risk is exceeded.")] = 0.05,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The thresholds, JSON.")] = Path("thresholds.json"),
    store: StoreFile = None,
    _: TrustPlaces = False,
) -> None:
    """Calibrate how sure an answer must be to be given, so that the share of wrong ones stays below a risk.

    The problems must be like those to come, and are not reported on. Then tts.solve(..., risk=0.1, calibration=FILE) gives no answer that
    is less sure.
    """
    from tts.experiments.api import Study
    from tts.experiments.calibration import calibrate_study

    found = calibrate_study(Study.stored(run, store=store), risk, delta=delta, strategy=strategy, n=n, model=model)
    found.save(out)
    typer.echo(visible(found.guarantee))
    for link in found.links:
        least = "never" if link.threshold is None else f"from a confidence of {link.threshold:.4g} on"
        typer.echo(visible(f"{link.model}, {link.strategy}: answers {least}"))
    typer.echo(f"of {found.tested} problems {found.answered} are answered, {found.wrong} of them wrongly: at most {found.bound:.3g}")
    typer.echo(str(out))
