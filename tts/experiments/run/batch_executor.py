"""Runs cells whose requests are answered by batches.

A cell that has all its replies runs exactly as it would against a live server. Until then, running the cell only
collects its requests. All requests must therefore be known before any reply. Strategies, stop rules, budgets and
verifiers whose next call depends on earlier replies are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.batch_book import BatchBook, Unanswered
from tts.backends.openai.batches import BatchEnds, Batches, BatchRecord, Report
from tts.budget.budget import format_limits
from tts.errors import ConfigError
from tts.experiments.run.local_executor import LocalExecutor
from tts.experiments.run.runner import RunSummary
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems
from tts.models.registry import SERVER
from tts.search.needs import needs_of
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.search.strategies.samples.single import Single
from tts.solver.setup import ProblemRun
from tts.types import Solution

_MOST_ROUNDS: Final = 4  # a search asks once, and three times more where all its rows failed
_REASON = "but a batch needs all requests before the first reply"


class BatchExecutor(LocalExecutor):
    """Runs cells on replies of batches, in this process.

    Args:
        config: The study, whose models have the option `batch`.
        problems: The problems of the study.
        folder: The folder for the files of batches.

    Raises:
        ConfigError: As `LocalExecutor`, or a part of the study does not know its requests before a reply. Nothing has
            been spent.
    """

    def __init__(self, config: StudyConfig, problems: Problems, *, folder: Path) -> None:
        self._folder = folder
        self._backends: dict[str, OpenAIBackend] = {}  # by model of the study
        for name, model in config.models.items():
            backend = model.records()["policy"].backend
            if backend != SERVER:
                raise ConfigError(
                    f"the model {name!r} runs on the backend {backend!r}, but batches are of servers",
                    hint="give its url",
                )
            if len(model.url) > 1:
                raise ConfigError(
                    f"the model {name!r} has {len(model.url)} urls, but a batch is of one server", hint="give one url"
                )
        super().__init__(config, problems)

    def _check(self, name: str, run: ProblemRun) -> None:
        """Refuse a run whose requests depend on replies, and give the model's backend a book of requests."""
        super()._check(name, run)
        check_known_requests(run)
        backend = run.setup.backends["policy"]
        assert isinstance(backend, OpenAIBackend), "the model is on a server"
        if backend.book is None:
            backend.book = BatchBook(self._folder)
        self._backends[name] = backend

    def _waits(self, solution: Solution) -> bool:
        return isinstance(solution.error, Unanswered)

    def answer(self, report: Report) -> BatchEnds:
        """Send the requests of the cells as batches, and wait for the replies.

        Args:
            report: A function that gets each line of progress.

        Raises:
            TTSError: A server has no batches, refuses a batch, or does not answer.
        """
        ends = BatchEnds()
        with self._batches(report) as books_and_batches:
            all_requests = [book.take_requests() for book, _ in books_and_batches]  # of each model
            all_batches = [batches for _, batches in books_and_batches]
            # all batches are sent before the first wait
            all_records = [batches.send(requests) for batches, requests in zip(all_batches, all_requests, strict=True)]
            for batches, records, requests in zip(all_batches, all_records, all_requests, strict=True):
                ends.add(batches.receive(records, requests))
        return ends

    def cancel(self) -> list[BatchRecord]:
        """Cancel the batches of this study that have not ended, and return their records.

        Raises:
            TTSError: A server does not answer.
        """
        records: list[BatchRecord] = []
        with self._batches(lambda _: None) as books_and_batches:
            for _, batches in books_and_batches:
                records += batches.cancel()
        return records

    def write_requests(self) -> list[tuple[Path, str]]:
        """Write the requests of the cells as files, and return the path and model of each file.

        The files are for a program that answers the requests.
        """
        files: list[tuple[Path, str]] = []
        for backend in self._backends.values():
            files += _book(backend).write_requests()
        return files

    @contextmanager
    def _batches(self, report: Report) -> Generator[list[tuple[BatchBook, Batches]]]:
        """Yield the book and the batches of each model."""
        with ExitStack() as stack:
            books_and_batches: list[tuple[BatchBook, Batches]] = []
            for backend in self._backends.values():
                book = _book(backend)
                api = stack.enter_context(closing(backend.batch_api()))
                books_and_batches.append((book, Batches(api, book, self._config.name, report=report)))
            yield books_and_batches


def check_known_requests(run: ProblemRun) -> None:
    """Refuse a run whose next request depends on an earlier reply.

    Args:
        run: The run.

    Raises:
        ConfigError: A part of the run, which the error names, depends on replies.
    """
    setup, plan = run.setup, run.setup.plan
    cure = "use best_of_n with a budget of samples, and leave --batch out for others"
    if type(plan.strategy) not in (BestOfN, Single) or needs_of(plan.strategy).models:
        raise ConfigError(f"the strategy {plan.strategy} decides by earlier replies, {_REASON}", hint=cure)
    if plan.stopping is not None and plan.stopping.registered_as != "never":
        raise ConfigError(
            f"the stop rule {plan.stopping} ends a search by earlier replies, {_REASON}",
            hint="draw all samples, and replay it",
        )
    if set(run.limits) != {"samples"}:
        raise ConfigError(
            f"the budget is {format_limits(run.limits)}, whose rows depend on the tokens of earlier ones, {_REASON}",
            hint=cure,
        )
    for role in setup.declared:
        verifier = setup.verifiers[role]
        asks_model = bool(verifier.needs) or verifier.bound(1, 1) > 0
        if verifier.model == "policy" and asks_model:
            raise ConfigError(
                f"the verifier {verifier.name!r} asks the model about its replies, {_REASON}",
                hint="give none, or one with a model of its own",
            )


def _book(backend: OpenAIBackend) -> BatchBook:
    assert backend.book is not None, "the executor has given it one"
    return backend.book


def run_by_batches(
    ended: RunSummary, run_cells: Callable[[], RunSummary], executor: BatchExecutor, report: Callable[[str], None]
) -> tuple[RunSummary, BatchEnds]:
    """Send the requests of cells as batches and run the cells again, until all cells have their replies.

    The loop also ends after lost requests, and after four rounds.

    Args:
        ended: The summary of the run that collected the requests.
        run_cells: A function that runs the cells without a result. Cells without replies stay open.
        executor: The executor of the cells.
        report: A function that gets each line of progress.

    Returns:
        The summary of the last run, and the ends of the last batches.

    Raises:
        TTSError: A server has no batches, refuses a batch, or does not answer.
    """
    ends = BatchEnds()
    for _ in range(_MOST_ROUNDS):
        if not ended.unpaid or ended.interrupted or ends.lost:
            return ended, ends
        ends = executor.answer(report)
        ended = run_cells()
    if ended.unpaid:
        ends.notes.append(f"{ended.unpaid:,} cells ask for other requests each time; is a prompt of the task random?")
    return ended, ends
