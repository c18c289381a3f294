"""`tts sample`: draws pools of samples once, for any number of replays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts.cli.model_options import ExtraBody, KeyFrom, ModelName, NoProbe, Rpm, Settings, Tpm, Url, settings_of
from tts.cli.run import Batch, BatchFiles, CancelBatches, batch_use, carry_out
from tts.cli.runs import DryRun, StoreFile, TrustPlaces

if TYPE_CHECKING:
    from tts.experiments.study.config import StudyConfig


def sample(  # noqa: PLR0913 - the options of the command
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY.yaml]", help="Whose models, problems and seeds are taken.")
    ] = None,
    *,
    n: Annotated[int, typer.Option("--n", help="Samples of each problem with each seed.")] = 32,
    dataset: Annotated[
        str | None, typer.Option(help="In place of a study: a name of `tts datasets`, or a file: problems.jsonl.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The most problems of it.")] = None,
    model: ModelName = None,
    url: Url = None,
    model_option: Settings = None,
    key_from: KeyFrom = None,
    no_probe: NoProbe = False,
    rpm: Rpm = None,
    tpm: Tpm = None,
    extra_body: ExtraBody = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from 0; else one.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="In place of what the study says: problems.split=validation."),
    ] = None,
    dry_run: DryRun = False,
    store: StoreFile = None,
    batch: Batch = False,
    batch_files: BatchFiles = None,
    cancel_batches: CancelBatches = False,
    _: TrustPlaces = False,
) -> None:
    """Draw n samples of each problem, score them, and store them.

    Samples in the store are not drawn again, whichever study drew them, and the runs of a study are not samples of a
    pool. A larger n is another pool, which begins with the smaller one. The pool is stored as STUDY-pool, or
    DATASET-pool; --set name=NAME gives another name.
    """
    from tts.errors import ConfigError
    from tts.experiments.analysis.pools import pool_study
    from tts.experiments.study.file import read_study

    options = {"dataset": dataset, "limit": limit, "model": model, "url": url, "seeds": seeds}
    given_options = {name: value for name, value in options.items() if value is not None}
    if study is not None and given_options:
        name = next(iter(given_options))
        raise ConfigError(
            f"--{name} was given beside the study {str(study)!r}, which has its own", hint="use --set to change a study"
        )
    if study is None and dataset is None:
        raise ConfigError(
            "there is neither a study nor a data set to draw samples of", hint="give STUDY.yaml, or --dataset NAME"
        )
    config = _dataset_study(given_options, changes or ()) if study is None else read_study(study, changes or ())
    config = config.with_settings(
        settings_of(model_option, key_from=key_from, no_probe=no_probe, rpm=rpm, tpm=tpm, extra_body=extra_body)
    )
    pool = pool_study(config, n)
    if not any(change.partition("=")[0].strip() == "name" for change in changes or ()):
        pool = pool.model_copy(update={"name": f"{config.name}-pool"})  # so that it is not taken for the study's runs
    carry_out(pool, store, dry_run=dry_run, batches=batch_use(batch=batch, files=batch_files, cancel=cancel_batches))


def _dataset_study(options: dict[str, Any], changes: list[str] | tuple[()]) -> StudyConfig:
    """Return the study of a data set alone."""
    from tts.experiments.study import config
    from tts.experiments.study.file import put
    from tts.solver.solver import DEFAULT_MODEL

    problems = {name: options[name] for name in ("dataset", "limit") if name in options}
    models: Any = options.get("model", DEFAULT_MODEL)
    if "url" in options:
        name = options.get("model", "")
        models = {name or "served": {"model": name, "url": options["url"]}}
    study_data: dict[str, Any] = {
        "name": Path(options["dataset"]).stem,
        "models": models,
        "problems": problems,
        "strategies": "best_of_n",
        "budgets": {"samples": 1},
        "seeds": options.get("seeds", 1),
    }
    for change in changes:
        put(study_data, change)
    return config.study_config(study_data)
