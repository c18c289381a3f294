"""Runs of an agent as a model: `AgentRuns`, whose states are commits and whose answers are patches.

`tts.Workspace` adds a model that the agent calls.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from tts._core.threads import run_in_thread
from tts.backends.base import (
    Backend,
    Caps,
    Counters,
    Finish,
    Reply,
    RowSet,
    Sample,
    SampleRequest,
    StopCondition,
    TaskRows,
)
from tts.backends.batching import TurnQueue, closed_error
from tts.backends.metadata import BackendMetadata
from tts.backends.text.row_state import error_line, failed_row
from tts.budget.ledger import sum_known
from tts.checks import check_int, check_number
from tts.errors import ConfigError, EngineError
from tts.randomness import uniform
from tts.tasks.patch import format_turn
from tts.types import Prompt, Usage, prompt_text
from tts_addons.agents.agents import Agent, AgentTurn, TurnFiles, find_agent
from tts_addons.agents.leases import Door, Loan
from tts_addons.agents.processes import Process
from tts_addons.agents.store import Checkout, State, StateStore, remove
from tts_addons.agents.suites import Suite, SuiteOutcome, SuiteRunner

_SEED_BITS = 53


@dataclass(frozen=True, slots=True, eq=False)
class WorkspaceHandle:
    """A state that an agent left, from which a run can go on.

    Attributes:
        prompt: The task.
        state: The state of the files.
        session: The content of the agent's session file, for its next run.
    """

    prompt: str
    state: State
    session: bytes = b""


class _AgentRows(TaskRows):
    """Rows whose agents are stopped as soon as the rows are cancelled or have failed.

    Each row ends when its agent has ended.
    """

    __slots__ = ("begun", "lock", "processes")

    def __init__(self, request: SampleRequest, counters: Counters) -> None:
        super().__init__(request, counters)
        self.begun: set[int] = set()
        self.lock = threading.Lock()
        self.processes: set[Process] = set()  # the running programs, added and removed by threads

    def cancel(self) -> None:
        """Stop the agents. Rows that have not begun end at once, without text."""
        self.cancelled = True
        empty_sample = Sample.empty("cancelled")
        for index in range(len(self.request.rows)):
            if index not in self.begun:
                self.settle(index, empty_sample)
        self._stop()

    def _stop(self) -> None:
        with self.lock:
            for process in self.processes:
                process.stop()

    def track(self, process: Process) -> None:
        """Note that a program runs for one of the rows, and stop it if the rows have ended."""
        with self.lock:
            self.processes.add(process)
            if self.cancelled or self.done:
                process.stop()

    def forget(self, process: Process) -> None:
        """Note that a program has ended."""
        with self.lock:
            self.processes.discard(process)


@dataclass(slots=True)
class _Run:
    """The progress of a row: its fork, its text and its costs so far."""

    fork: Checkout
    session: bytes
    loan: Loan | None = None
    text: str = ""
    tokens: int = 0
    error: str = ""
    deadline: float = math.inf  # of time.monotonic


class AgentRuns(Backend):
    r"""Runs of an agent in forks of a repository, which is only read.

    A row is a run, its text ends in a patch, and a handle is a commit. A fork is a folder with the files of a state.
    When the agent's run ends, the files are the next state. The repository's own `.git`, files and settings do not
    change. The agent runs with your permissions: a fork is no sandbox.

    Close the backend, or use it in a `with` block, to remove its states. Otherwise they are removed when the
    interpreter ends.

    Args:
        repo: A folder in a repository of git, or a plain folder. Agents and tests start in this folder of a fork.
        agent: The agent, or its name (`tts_addons.agents.agents.find_agent`).
        revision: The revision from which the agents begin. A plain folder has only `HEAD`.
        include_changes: Whether changed tracked files belong to the root. If not, a repository with changed tracked
            files is refused.
        jobs: The most agents at once, at least 1. Without a model, results do not depend on this number.
        run_seconds: The most seconds of a run, at least 0.1. A run that takes longer is cut. None: there is no limit.
        door: The entrance to a model that agents call; None: they call no model of the workspace.

    Attributes:
        agent: The agent.
        store: The store of the states.

    Raises:
        ConfigError: There is no such agent, or the repository cannot be forked. The error says why.
    """

    name = "workspace"
    caps = Caps(fork="native", stop_predicate=True)
    metadata = BackendMetadata(task="patch")

    def __init__(
        self,
        repo: str | Path = ".",
        *,
        agent: str | Agent,
        revision: str = "HEAD",
        include_changes: bool = False,
        jobs: int = 4,
        run_seconds: float | None = None,
        door: Door | None = None,
    ) -> None:
        check_int("jobs", jobs, 1, optional=False)
        check_number("run_seconds", run_seconds, 0.1, threading.TIMEOUT_MAX)
        self.agent = find_agent(agent)
        self.store = StateStore(repo, revision, include_changes=include_changes)
        self.identity = f"workspace {self.agent.name} {self.store.root.tree}"
        self.metadata = dataclasses.replace(type(self).metadata, target=self.store.target)
        self._door = door
        self._jobs = jobs
        self._run_seconds = threading.TIMEOUT_MAX if run_seconds is None else run_seconds
        self._suites = SuiteRunner(self.store)
        self._waiting = TurnQueue[tuple[_AgentRows, int]]()
        self._running: dict[asyncio.Task[None], _AgentRows] = {}
        self._live: set[WorkspaceHandle] = set()
        self._closed = False
        self._remove = weakref.finalize(self, _close, self.store, door, os.getpid())
        self.caps = dataclasses.replace(
            type(self).caps,
            steps="native" if self.agent.resumes else "absent",
            streams=self.agent.draws_by_seed,
            usage=self.agent.counts_tokens,
        )
        if door is not None:
            self.identity += f" {door.backend.identity}"
            self.rates = door.backend.rates
            self.caps = dataclasses.replace(self.caps, streams=False, usage=door.backend.caps.usage)
            self.metadata = dataclasses.replace(self.metadata, programs=jobs, notes=_note_own_calls)

    @classmethod
    def from_record(cls, record: object, **options: object) -> Self:
        """Refuse records: no model is a repository.

        Raises:
            ConfigError: Always. The hint has an example of a workspace.
        """
        del record, options
        raise ConfigError(
            "backend is 'workspace', but a workspace is an object with a repository and an agent",
            hint="give backend=tts.Workspace('.', agent='toy')",
        )

    def count(self, prompt: Prompt) -> int:  # noqa: ARG002 - what agents read is counted with their runs
        """Return 0: no model reads the prompt when it is opened."""
        return 0

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return handles at the root; nothing is run."""
        handles = [WorkspaceHandle(prompt_text(prompt), self.store.root) for prompt in prompts]
        return [Reply(self._copy(handle), 0) for handle in handles]

    def sample(self, request: SampleRequest) -> RowSet:
        """Run the agent once for each row, at most `jobs` at once.

        At temperature 0 all rows have equal seeds.

        Raises:
            EngineError: The backend was closed.
        """
        if self._closed:
            raise closed_error()
        rows = _AgentRows(request, self.counters)
        rows.requests = int(self._door is None)  # agents' calls are the requests
        self._waiting.add(rows, [(rows, index) for index in range(len(request.rows))])
        self._start()
        return rows

    def run_suite(self, suite: Suite, patch: str | None, seconds: float | None = None) -> SuiteOutcome:
        """Run a test suite on the root with a patch, in a fork of its own.

        Equal files are tested once: a second run returns the first outcome.

        Args:
            suite: The suite.
            patch: The patch; None or "" for the root as it is.
            seconds: The most seconds of the run; None: only the suite's own limit holds.
        """
        return self._suites.run(suite, patch, seconds)

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles of the same state that are released separately."""
        return [self._copy(handle) for _ in range(count)]

    def release(self, handles: Sequence[Any]) -> None:
        """Release the states of handles."""
        released = self._live.intersection(handles)
        self._live -= released
        if not self._closed:
            self.store.release(*(handle.state for handle in released))

    async def close(self) -> None:
        """Stop every agent, fail its row with an EngineError, and remove all states and forks."""
        self._closed = True
        waiting_rows = {rows for rows, _index in self._waiting.clear()}
        for rows in {*self._running.values(), *waiting_rows}:
            rows.fail(closed_error())
        if self._running:
            await asyncio.wait([*self._running])
        await run_in_thread(self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all states and forks; no search may still run."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        """Close the door, and remove the store."""
        if self._door is not None:
            self._door.close()
        self._remove()

    def _copy(self, handle: WorkspaceHandle) -> WorkspaceHandle:
        """Return a new handle of the same state, and keep the state for this handle."""
        copy = dataclasses.replace(handle)
        self.store.keep(copy.state)
        self._live.add(copy)
        return copy

    def _start(self) -> None:
        """Start waiting rows, the searches in turn, while there is room."""
        while self._waiting and len(self._running) < self._jobs:
            rows, index = self._waiting.take()
            if rows.waits(index):
                rows.begun.add(index)
                task = asyncio.get_running_loop().create_task(self._row(rows, index))
                self._running[task] = rows
                task.add_done_callback(partial(self._finish_task, rows, index))

    def _finish_task(self, rows: _AgentRows, index: int, task: asyncio.Task[None]) -> None:
        del self._running[task]
        rows.end_task(index, task)
        self._start()

    async def _row(self, rows: _AgentRows, index: int) -> None:
        """Run the agent for a row, and resolve it."""
        sample, usage = await run_in_thread(self._run, rows, index)
        if usage is not None and rows.waits(index):
            rows.prompt_tokens += usage.prompt_tokens
            rows.requests += usage.requests or 0
            rows.reused_tokens = sum_known([rows.reused_tokens, usage.reused_tokens])
            self.counters.prompt_tokens += usage.prompt_tokens
            self.counters.reused_tokens += usage.reused_tokens or 0
        if sample.handle is not None:
            self._live.add(sample.handle)
            if not rows.waits(index):  # the row has failed meanwhile, and nobody gets the handle
                self.release([sample.handle])
        rows.settle(index, sample)

    def _run(self, rows: _AgentRows, index: int) -> tuple[Sample, Usage | None]:
        """Run the agent for a row with a key of its own, and return the row and the usage of its model calls.

        The method runs in a thread of its own. When it ends, the key is invalid. The usage is None if the agent calls
        no model of the workspace.
        """
        row = rows.request.rows[index]
        loan: Loan | None = None
        usage: Usage | None = None
        stream = row.stream if rows.request.sampling.temperature else 0
        try:
            if self._door is not None:
                limits = {"generated_tokens": row.max_tokens, **rows.request.lease}
                loan = self._door.lend(limits, _seed(stream, row.position, row.word))
            sample = self._run_agent(rows, index, stream, loan)
        except Exception as failure:  # noqa: BLE001 - whatever an agent leaves fails its own row alone
            sample = dataclasses.replace(failed_row(failure), error=f"Workspace: {error_line(failure)}")
        finally:
            usage = None if loan is None else loan.end()
        if usage is not None:
            num_tokens = usage.generated_tokens + usage.cancelled_tokens
            sample = dataclasses.replace(
                sample, num_tokens=num_tokens, estimated=usage.estimated, seconds=usage.work_seconds
            )
        return sample, usage

    def _run_agent(self, rows: _AgentRows, index: int, stream: int, loan: Loan | None) -> Sample:
        """Run the agent in a fork, turn by turn, until the row ends, and return the row.

        Args:
            rows: The rows of the request.
            index: The index of the row.
            stream: The stream of the seeds.
            loan: The key of the row; None: the agent calls no model of the workspace.
        """
        request, row = rows.request, rows.request.rows[index]
        progress = _Run(self.store.fork(request.handle.state), request.handle.session, loan)
        progress.deadline = time.monotonic() + self._run_seconds
        self.store.keep(progress.fork.state)
        try:
            while True:
                seed = _seed(stream, row.position + progress.tokens, row.word)
                turn = self._turn(rows, progress, seed, row.max_tokens - progress.tokens)
                self._add(progress, turn)
                finish = _finish(turn, progress, request.stop, request.text, row.max_tokens)
                if finish is not None:
                    return self._sample(request.handle.prompt, progress, finish)
        finally:
            self.store.release(progress.fork, progress.fork.state)

    def _turn(self, rows: _AgentRows, progress: _Run, seed: int, max_tokens: int) -> AgentTurn:
        """Run the agent's program once in the row's fork, and update the fork's state.

        Args:
            rows: The rows of the request.
            progress: The progress of the row.
            seed: The seed of the turn.
            max_tokens: The most tokens of the turn.
        """
        with self.store.scratch() as folder:
            files = TurnFiles(folder, rows.request.handle.prompt, progress.session, progress.loan)
            command = files.begin(self.agent)
            environment = files.environment(self.agent, seed, max_tokens)
            process = Process(command, progress.fork.start, environment, stdin=files.prompt)
            rows.track(process)
            if progress.loan is not None:
                progress.loan.stop = process.stop
            try:
                end = process.wait(max(0.0, progress.deadline - time.monotonic()))
            finally:
                rows.forget(process)
            is_told = rows.cancelled or rows.done
            for pattern in self.agent.leaves:
                for path in progress.fork.path.glob(pattern):
                    remove(path)
            try:
                state = self.store.commit(progress.fork)
            except EngineError as failure:
                turn = files.read(self.agent, end, max_tokens, changed=False, is_told=is_told)
                if turn.status == "failed":
                    return turn
                return dataclasses.replace(turn, status="failed", error=f"Workspace: {failure.cause}")
            has_changed = state.tree != progress.fork.state.tree
            self.store.release(progress.fork.state)
            progress.fork = dataclasses.replace(progress.fork, state=state)
            return files.read(self.agent, end, max_tokens, changed=has_changed, is_told=is_told)

    def _add(self, progress: _Run, turn: AgentTurn) -> None:
        """Add a turn to the progress of a row."""
        progress.session = turn.session
        progress.error = turn.error
        progress.tokens += turn.tokens
        if turn.status == "cut" and self.agent.resumes:
            progress.text += turn.message
        elif turn.status != "failed":
            patch = self.store.text_patch(progress.fork.state)
            progress.text += format_turn(turn.message, patch, is_last=turn.status != "turn")

    def _sample(self, prompt: str, progress: _Run, finish: Finish) -> Sample:
        """Return the sample of an ended row, with a handle of its last state unless the row failed."""
        handle = None
        if finish not in ("error", "cancelled"):
            handle = WorkspaceHandle(prompt, progress.fork.state, progress.session)
            self.store.keep(handle.state)
        return Sample(
            text=progress.text,
            token_ids=(),
            logprobs=(),
            finish=finish,
            handle=handle,
            num_tokens=progress.tokens,
            estimated=self.agent.trusted is not None,
            error=progress.error,
        )


def _note_own_calls(usage: Usage) -> list[str]:
    """Return a note where agents with a model did not call it, so that what they spent is not known."""
    return [] if usage.requests else ["no agent called its model: calls of models of their own are not counted"]


def _seed(stream: int, position: int, word: int) -> int:
    """Return the seed of a turn: the random number at the turn's position in its stream, as a whole number."""
    return int(uniform(stream, position, word) * 2**_SEED_BITS)


def _finish(turn: AgentTurn, progress: _Run, stop: StopCondition, before: str, max_tokens: int) -> Finish | None:
    """Return the finish of a row that ends after a turn; None: the row goes on.

    Args:
        turn: The turn.
        progress: The progress of the row, the turn included.
        stop: The stop condition of the row.
        before: The text of the path before the row.
        max_tokens: The most tokens of the row.
    """
    if turn.status == "failed":
        return "error"
    if turn.status == "stopped":
        return "cancelled"
    if turn.status == "finished":
        return "eos"
    if turn.status == "turn" and stop.at_step:
        return "stop"
    if turn.status == "turn" and stop.finished is not None and stop.finished(before + progress.text):
        return "answer"
    return "length" if turn.status == "cut" or progress.tokens >= max_tokens else None


def _close(store: StateStore, door: Door | None, process: int) -> None:
    """Close a door and remove a store, in the process that made both.

    A forked process, which shares them, does nothing.

    Args:
        store: The store.
        door: The door; None: there is none.
        process: The id of the process that made both.
    """
    if os.getpid() == process:
        if door is not None:
            door.close(waits=False)
        store.close()
