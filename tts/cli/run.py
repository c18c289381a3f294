"""`tts run`: a study from its file to its table."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tts.cli.boundary import FAILED, INTERRUPTED, Debug, boundary, warn
from tts.cli.runs import StoreFile

if TYPE_CHECKING:
    from tts.experiments.config import StudyConfig
    from tts.experiments.runner import Ended
    from tts.experiments.store import Store


def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="What is to be run; examples/*.yaml are whole studies.")],
    *,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="In place of what the file says: problems.limit=20.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, spend nothing, and write nothing.")] = False,
    store: StoreFile = None,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Run part I of N only, from 1: for arrays of jobs.")] = "1/1",
    executor: Annotated[str, typer.Option(help="Where cells are run: local, or ray for a cluster.")] = "local",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed before.")] = False,
    debug: Debug = False,
) -> None:
    """Run a study, or what is missing of it: what the store has is never paid for again.

    It may be stopped (Ctrl-C), killed, and run by several processes at once on one store; each goes on where others stopped.
    """
    with boundary(debug=debug):
        from tts.experiments.study_file import read

        carry_out(read(study, changes or ()), store, dry_run=dry_run, part=_part(shard), executor=executor, retry_failed=retry_failed)


def carry_out(
    config: StudyConfig,
    store: Path | None,
    *,
    dry_run: bool = False,
    part: tuple[int, int] = (1, 1),
    executor: str = "local",
    retry_failed: bool = False,
) -> None:
    """Run what is missing of a study and print its table, or with `dry_run` what that would cost.

    Raises:
        typer.Exit: it was stopped, or cells failed; what is done is kept.
    """
    from tts.cli.forecast import print_forecast
    from tts.experiments.progress import shown
    from tts.experiments.runner import Prepared, run
    from tts.experiments.store import Store, default_store

    file = store or default_store()
    with _stoppable(), shown():  # problems may take a while to be drawn, and models to be loaded
        made = Prepared(config, executor)
    with made as prepared:
        if dry_run:
            print_forecast(prepared, file, part)
            return
        with Store(file) as opened:
            with _stoppable(), shown() as report:
                ended = run(prepared, opened, part=part, retry_failed=retry_failed, report=report)
            if not ended.interrupted:
                _print_table(opened, ended.study)
                if ended.counts.failed:
                    _warn_of_failures(opened, ended)
                    raise typer.Exit(FAILED)
                return
            left = ended.counts.pending + ended.counts.leased
            warn(f"stopped: {left:,} cells are left; what is done is kept, and the same command goes on from here")
    raise typer.Exit(INTERRUPTED)


@contextmanager
def _stoppable() -> Generator[None]:
    """Let a polite end of the process, as schedulers send it, be what Ctrl-C is."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _part(text: str) -> tuple[int, int]:
    """Return i and n of "i/n".

    Raises:
        ConfigError: it is not that, or i is not from 1 to n.
    """
    from tts.errors import ConfigError

    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ConfigError(f"--shard is {text!r}, but must be I/N with I from 1 to N", hint="for example --shard 1/8, for jobs 1 to 8")
    return int(index), int(count)


def _warn_of_failures(store: Store, ended: Ended) -> None:
    """Say how many cells failed, and the first reason of each kind."""
    reasons: dict[str, str] = {}
    for result in store.results(ended.study, drawn=False):
        if result.error is not None:
            reasons.setdefault(result.error.partition(":")[0], result.error)
    warn(f"{ended.counts.failed:,} cells failed (--retry-failed runs them again): {'; '.join(reasons.values())}")


def _print_table(store: Store, study: int) -> None:
    import numpy as np

    from tts.cli.show import SEED
    from tts.cli.terminal import visible
    from tts.experiments import table

    rows = table.table(store.results(study, drawn=False), rng=np.random.default_rng(SEED))
    typer.echo(visible(table.as_text(rows).rstrip("\n")))
