"""`tts run`: runs a study and prints its table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tts.cli.boundary import FAILED, INTERRUPTED, raise_at_sigterm, warn
from tts.cli.model_options import ExtraBody, KeyFrom, NoProbe, Rpm, Settings, Tpm, settings_of
from tts.cli.runs import AllowCommands, DryRun, StoreFile, TrustPlaces
from tts.cli.terminal import messages, table_width
from tts.display import visible
from tts.errors import TROUBLES

if TYPE_CHECKING:
    from tts.experiments.run.batch_executor import BatchExecutor
    from tts.experiments.run.runner import RunSummary
    from tts.experiments.store.store import Store
    from tts.experiments.study.config import StudyConfig


_FEWEST_RUNS = 3  # of which none is right, before a table is called suspicious

Batch = Annotated[
    bool,
    typer.Option(
        "--batch", help="Let the server's batch API answer, within a day and at its prices. The same command resumes."
    ),
]
BatchFiles = Annotated[
    Path | None,
    typer.Option(
        "--batch-files",
        metavar="FOLDER",
        help="Write files of requests for `vllm run-batch`, and read the replies there.",
    ),
]
CancelBatches = Annotated[
    bool, typer.Option("--cancel-batches", help="Cancel this study's batches that have not ended.")
]


def run(  # noqa: PLR0913 - the options of the command
    study: Annotated[
        Path, typer.Argument(metavar="STUDY.yaml", help="The study to run; examples/*.yaml are whole ones.")
    ],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="In place of what the file says: problems.limit=20."),
    ] = None,
    model_option: Settings = None,
    key_from: KeyFrom = None,
    no_probe: NoProbe = False,
    rpm: Rpm = None,
    tpm: Tpm = None,
    extra_body: ExtraBody = None,
    dry_run: DryRun = False,
    store: StoreFile = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Run part I of N only, from 1: for arrays of jobs.")
    ] = "1/1",
    executor: Annotated[str, typer.Option(help="Where cells run: local, or ray for a cluster.")] = "local",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed before.")] = False,
    batch: Batch = False,
    batch_files: BatchFiles = None,
    cancel_batches: CancelBatches = False,
    _: TrustPlaces = False,
    __: AllowCommands = False,
) -> None:
    """Run a study, or the cells of it that have no result yet.

    Interrupted and killed runs resume. Several processes may run a study at once on one store. --model-option sets what
    it names for every model of the study; --set models.NAME.usd_out=0.60/M for one.
    """
    from tts.experiments.study.file import read_study

    config = read_study(study, changes or ()).with_settings(
        settings_of(model_option, key_from=key_from, no_probe=no_probe, rpm=rpm, tpm=tpm, extra_body=extra_body)
    )
    carry_out(
        config,
        store,
        dry_run=dry_run,
        part=_part(shard),
        executor=executor,
        retry_failed=retry_failed,
        batches=batch_use(batch=batch, files=batch_files, cancel=cancel_batches),
    )


@dataclass(frozen=True, slots=True)
class BatchUse:
    """How batches answer a study.

    Args:
        files: The folder for files that another program answers; None: the server's batch API answers.
        cancel: Whether batches are only cancelled.
    """

    files: Path | None = None
    cancel: bool = False


def batch_use(*, batch: bool, files: Path | None, cancel: bool) -> BatchUse | None:
    """Return how batches answer a study; None: they do not.

    Raises:
        ConfigError: Options exclude each other.
    """
    from tts.errors import ConfigError

    if files is not None and (batch or cancel):
        raise ConfigError(
            f"--batch-files was given beside {'--batch' if batch else '--cancel-batches'}", hint="leave one out"
        )
    return BatchUse(files, cancel) if batch or cancel or files is not None else None


def carry_out(
    config: StudyConfig,
    store: Path | None,
    *,
    dry_run: bool = False,
    part: tuple[int, int] = (1, 1),
    executor: str = "local",
    retry_failed: bool = False,
    batches: BatchUse | None = None,
) -> None:
    """Run the cells of a study without a result and print its table, or with `dry_run` their forecast.

    Raises:
        typer.Exit: it was stopped, or cells failed. Finished cells are kept.
    """
    from tts.cli.forecast import print_forecast
    from tts.experiments.run.progress import show_progress
    from tts.experiments.run.runner import PreparedStudy, run
    from tts.experiments.store.store import Store, default_store

    file, folder = store or default_store(), None
    if batches is not None:
        config, folder = config.with_settings({"batch": True}), batches.files or file.with_name("batches")
    # loading problems and models may take a while
    with raise_at_sigterm(lambda _: KeyboardInterrupt()), show_progress():
        made = PreparedStudy(config, executor, batches=folder)
    with made as prepared:
        if dry_run:
            print_forecast(prepared, file, part)
            return
        if batches is not None and batches.cancel:
            _cancel(cast("BatchExecutor", prepared.executor))
            return
        with Store(file) as opened:
            terminated: list[int] = []

            def end(number: int) -> KeyboardInterrupt:
                # a scheduler that sends SIGTERM kills soon after, so running cells do not end first
                terminated.append(number)
                return KeyboardInterrupt()

            def run_cells(*, again: bool = False) -> RunSummary:
                with raise_at_sigterm(end), show_progress() as report:
                    return run(
                        prepared,
                        opened,
                        part=part,
                        retry_failed=again,
                        report=report,
                        is_patient=lambda: not terminated,
                    )

            ended = run_cells(again=retry_failed)
            if batches is not None and ended.unpaid and not ended.interrupted:
                with raise_at_sigterm(end):
                    ended = _answer_batches(cast("BatchExecutor", prepared.executor), batches, run_cells, ended)
            if (left := ended.counts.pending + ended.counts.leased) and ended.interrupted:
                warn(f"stopped: {left:,} cells are left; what is done is kept, and the same command goes on from here")
            else:
                try:
                    _conclude(opened, ended, is_waited_for=batches is None or batches.files is None)
                except KeyboardInterrupt:
                    warn("stopped: all cells are done and kept; `tts show` prints their table")
                else:
                    return
    raise typer.Exit(INTERRUPTED)


def _conclude(store: Store, ended: RunSummary, *, is_waited_for: bool) -> None:
    """Print the table of a study, and warn of failed cells.

    Args:
        store: The store.
        ended: How the run ended.
        is_waited_for: Whether open cells are a failure of the command.

    Raises:
        typer.Exit: Cells failed, or are open.
    """
    if ended.counts.done + ended.counts.failed:
        _print_table(store, ended.study)
    if ended.counts.failed:
        _warn_of_failures(store, ended)
    if ended.not_reached:
        warn(
            f"{ended.unpaid:,} cells are left, whose requests no server took ({ended.not_reached}); the same command "
            "goes on"
        )
    if ended.counts.failed or (ended.unpaid and is_waited_for):
        raise typer.Exit(FAILED)


def _answer_batches(
    executor: BatchExecutor, use: BatchUse, run_cells: Callable[[], RunSummary], ended: RunSummary
) -> RunSummary:
    """Have batches answer what cells have asked for, and return how the last run of the cells ended.

    Args:
        executor: The executor of the cells.
        use: How batches answer.
        run_cells: Runs the cells that have their replies.
        ended: How the run ended in which cells asked.
    """
    from tts.experiments.run.runner import run_by_batches

    if use.files is not None:
        for path, model in executor.write_requests():
            output = path.with_name(path.name.replace(".requests.", ".output."))
            typer.echo(visible(f"vllm run-batch -i {path} -o {output} --served-model-name {model} --model …"))
        messages().print(
            f"{ended.unpaid:,} cells wait for these files of replies; the same command reads them", soft_wrap=True
        )
        return ended
    told: list[str] = []

    def report(line: str) -> None:
        if told[-1:] != [line]:
            told.append(line)
            messages().print(line, soft_wrap=True)

    try:
        ended, ends = run_by_batches(ended, run_cells, executor, report)
    except KeyboardInterrupt:
        messages().print("batches that were sent go on at the server; --cancel-batches cancels them", soft_wrap=True)
        return dataclasses.replace(ended, interrupted=True)
    for line in ends.notes:
        warn(line)
    if ends.lost:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in ends.lost.most_common())
        warn(f"{ends.lost.total():,} requests ended without a reply ({kinds}); the same command asks for them again")
    return ended


def _cancel(executor: BatchExecutor) -> None:
    """Cancel the batches of a study that have not ended."""
    for record in (cancelled := executor.cancel()):
        typer.echo(
            visible(
                f"cancelled {record.id}: {record.done:,} of {record.requests:,} requests were done, which --batch "
                "fetches"
            )
        )
    typer.echo(f"{len(cancelled):,} batch{'' if len(cancelled) == 1 else 'es'} cancelled")


def _part(text: str) -> tuple[int, int]:
    """Return i and n of "i/n".

    Raises:
        ConfigError: it has another form, or i is not from 1 to n.
    """
    from tts.errors import ConfigError

    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ConfigError(
            f"--shard is {text!r}, but must be I/N with I from 1 to N", hint="for example --shard 1/8, for jobs 1 to 8"
        )
    return int(index), int(count)


def _warn_of_failures(store: Store, ended: RunSummary) -> None:
    """Warn of failed cells, with the first error of each kind."""
    reasons: dict[str, str] = {}
    for result in store.results(ended.study, drawn=False):
        if result.error is not None:
            reasons.setdefault(result.error.partition(":")[0], result.error)
    warn(f"{ended.counts.failed:,} cells failed (--retry-failed runs them again): {'; '.join(reasons.values())}")


def _print_table(store: Store, study: int) -> None:
    import numpy as np

    from tts.experiments.analysis.table import table
    from tts.experiments.api import SEED
    from tts.experiments.output import tables

    rows = table(store.results(study, drawn=False), rng=np.random.default_rng(SEED))
    typer.echo(visible(tables.as_text(rows, table_width()).rstrip("\n")))
    if wrong := [
        row
        for row in rows
        if row.accuracy is not None and not row.accuracy.value and row.runs - row.failed >= _FEWEST_RUNS
    ]:
        count = "all rows" if len(wrong) == len(rows) else f"{len(wrong):,} of {len(rows):,} rows"
        cut = [row for row in wrong if row.generated_tokens and 2 * row.truncated_tokens >= row.generated_tokens]
        if len(cut) == len(wrong):
            cause = "the budget, or max_tokens, cut most of what was written short, so give more"
        else:
            cause = "--dry-run shows how the task reads references"
        warn(f"no answer is right in {count}: {cause}; see {TROUBLES}")
