"""`tts sample`: draws pools of samples once, for any number of replays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.model_options import Settings, settings_of
from tts.cli.run import Batch, BatchFiles, CancelBatches, batch_use, carry_out
from tts.cli.runs import DryRun, StoreFile, TrustPlaces


def sample(  # noqa: PLR0913 - the options of the command
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="Whose models, problems and seeds are taken.")],
    *,
    n: Annotated[int, typer.Option("--n", help="Samples of each problem with each seed.")] = 32,
    model_option: Settings = None,
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
    pool. A larger n is another pool, which begins with the smaller one. The pool is stored as STUDY-pool;
    --set name=NAME gives another name.
    """
    from tts.experiments.analysis.pools import pool_study
    from tts.experiments.study.file import read_study

    config = read_study(study, changes or ()).with_settings(settings_of(model_option))
    pool = pool_study(config, n)
    if not any(change.partition("=")[0].strip() == "name" for change in changes or ()):
        pool = pool.model_copy(update={"name": f"{config.name}-pool"})  # so that it is not taken for the study's runs
    carry_out(pool, store, dry_run=dry_run, batches=batch_use(batch=batch, files=batch_files, cancel=cancel_batches))
