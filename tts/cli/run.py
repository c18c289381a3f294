"""`tts run`: runs a study and prints its table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tts._core.display import visible
from tts.cli.boundary import FAILED, INTERRUPTED, raise_at_sigterm, warn
from tts.cli.model_options import Settings, settings_of
from tts.cli.runs import AllowCommands, DryRun, StoreFile, TrustPlaces
from tts.cli.terminal import print_note, table_width
from tts.errors import TROUBLES

if TYPE_CHECKING:
    from tts.experiments.run.batch_executor import BatchExecutor
    from tts.experiments.run.runner import PreparedStudy, RunSummary
    from tts.experiments.store.store import Store
    from tts.experiments.study.config import StudyConfig


_FEWEST_RUNS = 3  # runs without a right answer that make a row suspicious

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

    config = read_study(study, changes or ()).with_settings(settings_of(model_option))
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
    """Return how batches answer a study; None: no batches are asked for.

    Raises:
        ConfigError: options exclude each other.
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
    """Run the cells of a study that have no result, and print its table; with `dry_run` only a forecast.

    Raises:
        typer.Exit: the command was stopped, or cells failed. Finished cells are kept.
    """
    from tts.cli.forecast import print_forecast
    from tts.experiments.run.progress import show_progress
    from tts.experiments.run.runner import PreparedStudy
    from tts.experiments.store.store import Store, default_store

    file = store or default_store()
    batch_folder = None
    if batches is not None:
        config = config.with_settings({"batch": True})
        batch_folder = batches.files or file.with_name("batches")
    # loading problems and models may take a while
    with raise_at_sigterm(lambda _: KeyboardInterrupt()), show_progress():
        study = PreparedStudy(config, executor, batches=batch_folder)
    with study as prepared:
        if dry_run:
            print_forecast(prepared, file, part)
            return
        if batches is not None and batches.cancel:
            _cancel(cast("BatchExecutor", prepared.executor))
            return
        with Store(file) as opened:
            is_stopped = _run_in_store(prepared, opened, part, batches, retry_failed=retry_failed)
    if is_stopped:
        raise typer.Exit(INTERRUPTED)


def _run_in_store(
    prepared: PreparedStudy, store: Store, part: tuple[int, int], batches: BatchUse | None, *, retry_failed: bool
) -> bool:
    """Run the cells of a study without a result, and print its table.

    Args:
        prepared: The study.
        store: The open store of the results.
        part: The number of the part that this process runs, and the number of parts.
        batches: How batches answer the study; None: no batches are asked for.
        retry_failed: Whether failed cells run again.

    Returns:
        Whether the user or a signal stopped the command.
    """
    from tts.experiments.run.progress import show_progress
    from tts.experiments.run.runner import run

    signals: list[int] = []  # the numbers of received signals

    def interrupt(number: int) -> KeyboardInterrupt:
        # a scheduler that sends SIGTERM kills soon after, so running cells do not end first
        signals.append(number)
        return KeyboardInterrupt()

    def run_cells(*, retries_failed: bool = False) -> RunSummary:
        with raise_at_sigterm(interrupt), show_progress() as report:
            return run(
                prepared, store, part=part, retry_failed=retries_failed, report=report, is_patient=lambda: not signals
            )

    summary = run_cells(retries_failed=retry_failed)
    if batches is not None and summary.unpaid and not summary.interrupted:
        with raise_at_sigterm(interrupt):
            summary = _answer_batches(cast("BatchExecutor", prepared.executor), batches, run_cells, summary)
    num_open = summary.counts.pending + summary.counts.leased
    if num_open and summary.interrupted:
        warn(f"stopped: {num_open:,} cells are left; what is done is kept, and the same command goes on from here")
        return True
    try:
        _conclude(store, summary, is_waited_for=batches is None or batches.files is None)
    except KeyboardInterrupt:
        warn("stopped: all cells are done and kept; `tts show` prints their table")
        return True
    return False


def _conclude(store: Store, summary: RunSummary, *, is_waited_for: bool) -> None:
    """Print the table of a study, and warn of failed cells.

    Args:
        store: The store.
        summary: The summary of the run.
        is_waited_for: Whether open cells are a failure of the command.

    Raises:
        typer.Exit: cells failed or are open.
    """
    if summary.counts.done + summary.counts.failed:
        _print_table(store, summary.study)
    if summary.counts.failed:
        _warn_of_failures(store, summary)
    if summary.not_reached:
        warn(
            f"{summary.unpaid:,} cells are left, whose requests no server took ({summary.not_reached}); the same "
            "command goes on"
        )
    if summary.counts.failed or (summary.unpaid and is_waited_for):
        raise typer.Exit(FAILED)


def _answer_batches(
    executor: BatchExecutor, use: BatchUse, run_cells: Callable[[], RunSummary], summary: RunSummary
) -> RunSummary:
    """Have batches answer the requests of cells, and return the summary of the cells' last run.

    Args:
        executor: The executor of the cells.
        use: How batches answer: at a server, or by files of requests and replies.
        run_cells: The function that runs the cells which have their replies.
        summary: The summary of the run in which cells made their requests.
    """
    from tts.experiments.run.batch_executor import run_by_batches

    if use.files is not None:
        for path, model in executor.write_requests():
            output = path.with_name(path.name.replace(".requests.", ".output."))
            typer.echo(visible(f"vllm run-batch -i {path} -o {output} --served-model-name {model} --model …"))
        print_note(f"{summary.unpaid:,} cells wait for these files of replies; the same command reads them")
        return summary
    printed_lines: list[str] = []

    def report(line: str) -> None:
        if printed_lines[-1:] != [line]:
            printed_lines.append(line)
            print_note(line)

    try:
        summary, batch_ends = run_by_batches(summary, run_cells, executor, report)
    except KeyboardInterrupt:
        print_note("batches that were sent go on at the server; --cancel-batches cancels them")
        return dataclasses.replace(summary, interrupted=True)
    for line in batch_ends.notes:
        warn(line)
    if batch_ends.lost:
        counts_text = ", ".join(f"{count:,} {kind}" for kind, count in batch_ends.lost.most_common())
        loss_text = f"{batch_ends.lost.total():,} requests ended without a reply ({counts_text})"
        warn(f"{loss_text}; the same command asks for them again")
    return summary


def _cancel(executor: BatchExecutor) -> None:
    """Cancel the batches of a study that have not ended."""
    cancelled = executor.cancel()
    for record in cancelled:
        done = f"{record.done:,} of {record.requests:,} requests were done, which --batch fetches"
        typer.echo(visible(f"cancelled {record.id}: {done}"))
    typer.echo(f"{len(cancelled):,} batch{'' if len(cancelled) == 1 else 'es'} cancelled")


def _part(text: str) -> tuple[int, int]:
    """Return the number i of a part and the number n of parts from "i/n".

    Raises:
        ConfigError: the text has another form, or i is not from 1 to n.
    """
    from tts.errors import ConfigError

    index, slash, count = text.partition("/")
    are_numbers = slash and index.isdecimal() and count.isdecimal()
    if not are_numbers or not 1 <= int(index) <= int(count):
        raise ConfigError(
            f"--shard is {text!r}, but must be I/N with I from 1 to N", hint="for example --shard 1/8, for jobs 1 to 8"
        )
    return int(index), int(count)


def _warn_of_failures(store: Store, summary: RunSummary) -> None:
    """Warn of failed cells, with the first error of each kind."""
    first_errors: dict[str, str] = {}
    for result in store.results(summary.study, drawn=False):
        if result.error is not None:
            kind = result.error.partition(":")[0]
            first_errors.setdefault(kind, result.error)
    warn(f"{summary.counts.failed:,} cells failed (--retry-failed runs them again): {'; '.join(first_errors.values())}")


def _print_table(store: Store, study: int) -> None:
    import numpy as np

    from tts.experiments.analysis.table import SEED, table
    from tts.experiments.output import tables

    rows = table(store.results(study, drawn=False), rng=np.random.default_rng(SEED))
    typer.echo(visible(tables.as_text(rows, table_width()).rstrip("\n")))
    wrong_rows = [
        row
        for row in rows
        if row.accuracy is not None and row.accuracy.value == 0 and row.runs - row.failed >= _FEWEST_RUNS
    ]
    if wrong_rows:
        shown_count = "all rows" if len(wrong_rows) == len(rows) else f"{len(wrong_rows):,} of {len(rows):,} rows"
        if all(row.generated_tokens and 2 * row.truncated_tokens >= row.generated_tokens for row in wrong_rows):
            cause = "the budget, or max_tokens, cut most of what was written short, so give more"
        else:
            cause = "--dry-run shows how the task reads references"
        warn(f"no answer is right in {shown_count}: {cause}; see {TROUBLES}")
