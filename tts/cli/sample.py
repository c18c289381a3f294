"""`tts sample`: pools of samples, drawn once, for `tts replay` to choose among as often as wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts.cli.boundary import Debug, boundary
from tts.cli.run import carry_out
from tts.cli.runs import StoreFile

if TYPE_CHECKING:
    from tts.experiments.config import StudyConfig


def sample(  # noqa: PLR0913 - the options of the command
    study: Annotated[Path | None, typer.Argument(metavar="[STUDY.yaml]", help="Whose models, problems and seeds are taken.")] = None,
    *,
    n: Annotated[int, typer.Option("--n", help="Samples of each problem with each seed.")] = 32,
    dataset: Annotated[str | None, typer.Option(help="In place of a study: a name of `tts datasets`.")] = None,
    limit: Annotated[int | None, typer.Option(help="The most problems of it.")] = None,
    model: Annotated[str | None, typer.Option(help="A name of `tts models`, a folder, or a Hub name; else pocket.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from 0; else one.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="In place of what the study says: problems.split=validation.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, spend nothing, and write nothing.")] = False,
    store: StoreFile = None,
    debug: Debug = False,
) -> None:
    """Draw n samples of each problem, score them, and keep them.

    What the store has is not drawn again; a larger n is another pool, of which the smaller is the beginning. It is kept as STUDY-pool,
    or DATASET-pool; --set name=NAME gives it another name.
    """
    with boundary(debug=debug):
        from tts.errors import ConfigError
        from tts.experiments.pool import pool_study
        from tts.experiments.study_file import read

        options = {"dataset": dataset, "limit": limit, "model": model, "seeds": seeds}
        given = {name: value for name, value in options.items() if value is not None}
        if study is not None and given:
            name = next(iter(given))
            raise ConfigError(f"--{name} was given beside the study {str(study)!r}, which has its own", hint="use --set to change a study")
        if study is None and dataset is None:
            raise ConfigError("there is neither a study nor a data set to draw samples of", hint="give STUDY.yaml, or --dataset NAME")
        config = _of_dataset(given, changes or ()) if study is None else read(study, changes or ())
        pool = pool_study(config, n)
        if not any(change.partition("=")[0].strip() == "name" for change in changes or ()):
            pool = pool.model_copy(update={"name": f"{config.name}-pool"})  # so that nobody takes it for the study's runs
        carry_out(pool, store, dry_run=dry_run)


def _of_dataset(given: dict[str, Any], changes: list[str] | tuple[()]) -> StudyConfig:
    """Return the study of a data set alone."""
    from tts.experiments import config
    from tts.experiments.study_file import put
    from tts.solver import DEFAULT_MODEL

    problems = {name: given[name] for name in ("dataset", "limit") if name in given}
    data: dict[str, Any] = {
        "name": given["dataset"],
        "models": given.get("model", DEFAULT_MODEL),
        "problems": problems,
        "strategies": "best_of_n",
        "budgets": {"samples": 1},
        "seeds": given.get("seeds", 1),
    }
    for change in changes:
        put(data, change)
    return config.study(data)
