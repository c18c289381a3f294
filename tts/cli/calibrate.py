"""`tts calibrate`: thresholds of confidence that keep the share of wrong answers below a level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tts._core.display import visible
from tts.cli.runs import RunStudy, StoreFile, TrustPlaces

if TYPE_CHECKING:
    from tts.solver.thresholds import Thresholds


def calibrate(  # noqa: PLR0913 - the options of the command
    preset: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help="Of a gateway, MODEL:PRESET, with its escalations.")
    ] = None,
    *,
    risk: Annotated[float, typer.Option(help="The share of given answers that may be wrong, above 0 and below 1.")],
    run: RunStudy = None,
    strategy: Annotated[
        str | None, typer.Option(help="The strategy of the study; of a pool: best_of_n | majority.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="Samples of each problem from a pool (tts sample).")] = None,
    model: Annotated[str | None, typer.Option(help="The model of the study, if it has several.")] = None,
    delta: Annotated[
        float, typer.Option(help="The probability, over sets of problems, that the risk is exceeded.")
    ] = 0.05,
    of: Annotated[
        int, typer.Option("--of", metavar="K", help="Plans that are tried on these problems; delta is divided by K.")
    ] = 1,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="gateway.yaml, which has the preset.")] = None,
    problems: Annotated[
        str | None, typer.Option(metavar="FILE", help="Problems for the preset, with answers: problems.jsonl.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The thresholds, JSON.")] = Path("thresholds.json"),
    store: StoreFile = None,
    _: TrustPlaces = False,
) -> None:
    """Calibrate how sure an answer must be to be given.

    Then the share of wrong ones among the given answers stays below a risk.

    The problems must be like those to come, and are not reported on. Then tts.solve(..., risk=0.1, calibration=FILE)
    gives no answer that is less sure.
    """
    from tts.errors import ConfigError
    from tts.experiments.api import Study
    from tts.experiments.calibration import calibrate_study

    if preset is None:
        if config is not None or problems is not None:
            raise ConfigError(
                "--config and --problems belong to a preset, but none is named", hint="tts calibrate MODEL:PRESET …"
            )
        thresholds = calibrate_study(
            Study.from_store(run, store=store), risk, delta=delta, strategy=strategy, n=n, model=model, of=of
        )
    else:
        study_options = {"--run": run, "--strategy": strategy, "--n": n, "--model": model}
        given_options = [name for name, value in study_options.items() if value is not None]
        if given_options:
            raise ConfigError(
                f"{given_options[0]} belongs to a study, but the preset {preset!r} is named", hint="leave one out"
            )
        thresholds = _calibrate_preset(preset, config, problems, risk, delta, of)
    thresholds.save(out)
    typer.echo(visible(thresholds.guarantee))
    for link in thresholds.links:
        condition = "never" if link.threshold is None else f"from a confidence of {link.threshold:.4g} on"
        typer.echo(visible(f"{link.model}, {link.strategy}: answers {condition}"))
    typer.echo(
        f"of {thresholds.tested} problems {thresholds.answered} are answered, {thresholds.wrong} of them wrongly: "
        f"at most {thresholds.bound:.3g}"
    )
    typer.echo(str(out))


def _calibrate_preset(
    name: str, config: Path | None, problems: str | None, risk: float, delta: float, of: int
) -> Thresholds:
    """Run a preset on problems, and return its thresholds."""
    from tts.errors import ConfigError, missing_extra
    from tts.experiments import datasets
    from tts.registry import find_own

    if config is None or problems is None:
        missing = "--config" if config is None else "--problems"
        raise ConfigError(
            f"{missing} is missing, but a preset needs it",
            hint="tts calibrate MODEL:PRESET --config FILE --problems FILE",
        )
    try:
        read_config = find_own("tts_addons.gateway.config:read_config")
        calibrate_preset = find_own("tts_addons.gateway.risk.calibration:calibrate_preset")
    except ImportError as failure:
        if failure.name not in ("starlette", "uvicorn", "httptools"):
            raise
        raise missing_extra(failure.name, "serve", "tts calibrate PRESET") from None
    return calibrate_preset(read_config(config), name, datasets.load(problems), risk, delta, of)
