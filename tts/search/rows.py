"""How rows become trajectories: their calls, and the nodes that they leave in the tree.

*Row law.* The text of row j after a path is a function of the problem, the seed, the sampling and j. Budgets, widths and lengths decide
only how many rows begin and how far each is written. A row that its cap cuts stays open and is continued where it was: same stream,
absolute positions, same node, no further sample. It is handed on once it has ended or was given up.
Open rows go on before others begin; `tts.search.lengths` has how many begin, and when one is given up.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from itertools import chain, repeat

from tts.backends.base import Backend, Caps, Extension, Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.reads import cancelled_and_done
from tts.blame import Blame
from tts.budget.account import Account, Exhausted, Lease
from tts.budget.books import Amounts
from tts.budget.budget import RowCost
from tts.budget.ledger import Call, sum_known
from tts.errors import ConfigError, EngineError, shown
from tts.randomness import MAIN_WORD, SCRATCH_WORD, child_stream
from tts.search.costs import Costs
from tts.search.ends import END, STEP, SearchEnded, Share, Stops, Thought, Tokens, Until
from tts.search.lengths import MOST_ROWS, QueuedRow, RowQueue, RowSizes
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.search.waves import NO_CAP, Wave, limit_to_share, payable_tokens, plan_rows
from tts.tasks.base import Task
from tts.thoughts import THINK, ThoughtMarks
from tts.types import Problem, Status, Trajectory, Usage

OUT_OF_TIME = "out of time"  # the error of a row that timed out before producing text: neither a candidate nor a failure
_TRIES = 3  # failures of continuations that fail a row
_RESPONSE = 0.25  # of what is left when a thought is written, that is kept for the response
_SHORT = 256  # replies that end a row: each was cut by the backend before half of what it was granted
_STATUS: Mapping[str, Status] = {
    "eos": "finished", "answer": "finished", "stop": "active", "length": "active", "cancelled": "truncated", "error": "failed",
}  # fmt: skip

# Appends a text after trajectories on a model, for so many samples.
Extend = Callable[[Sequence[Trajectory], str, str, int], Awaitable[list[Extension]]]


@dataclass(frozen=True, slots=True)
class RowTask:
    """One row to start, or to continue.

    Args:
        path: The path that it continues.
        handle: The path's state on the call's backend.
        stream: The stream of its draws.
        branch: What it costs in samples.
        cap: The tokens that it may take in this call.
        room: The tokens that it may take in all.
    """

    path: Trajectory
    handle: object
    stream: int
    branch: int
    cap: int
    room: int


@dataclass(slots=True, eq=False, kw_only=True)
class RowBatch:
    """One call of rows.

    Args:
        tasks: The rows, in draw order.
        account: The account whose deadline ends the call.
        clock: The clock, in seconds.
        backend: The model that writes.
        sampling: The sampling of every row.
        stop: Where every row ends.
        word: Which draws of a stream are meant.
        spreads: Whether `Sample.spreads` are wanted.

    Attributes:
        timed_out: Whether the time was over before every row had ended.
    """

    tasks: Sequence[RowTask]
    account: Account
    clock: Callable[[], float]
    backend: Backend
    sampling: Sampling
    stop: StopCondition
    word: int
    spreads: bool
    timed_out: bool = False

    async def samples(self, lease: Lease) -> AsyncGenerator[Sample, None]:
        """Start the rows and yield their samples in order; tell the lease what was spent even if the call breaks or is cancelled.

        Where the caller stops reading (and closes the generator), later rows are cancelled.
        """
        started = self.clock()
        requests, places = self._requests()
        rowsets: list[RowSet] = []
        timer = self._timer(rowsets)
        cancelled_from = 0
        try:
            for request in requests:
                with self._blame:
                    rowsets.append(self.backend.sample(request))
            for index, (which, row) in enumerate(places):
                if (sample := rowsets[which].samples[row]) is None:
                    with self._blame:
                        sample = await rowsets[which].row(row)
                if self.timed_out and sample.finish == "cancelled":
                    sample = dataclasses.replace(
                        sample, **({"finish": "length"} if sample.text else {"finish": "error", "error": OUT_OF_TIME})
                    )
                cancelled_from = index + 1
                yield sample
        except BaseException:
            await cancelled_and_done(rowsets)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            unread = [rowsets[which].samples[row] for which, row in places[cancelled_from:] if which < len(rowsets)]
            try:
                with self._blame:
                    self.backend.release([s.handle for s in unread if s is not None and s.handle is not None])
            finally:
                lease.spend(self._usage(rowsets, places, cancelled_from, self.clock() - started))

    @property
    def _blame(self) -> Blame:
        return Blame(f"the backend {self.backend.name!r}", EngineError)

    def _requests(self) -> tuple[list[SampleRequest], list[tuple[int, int]]]:
        """Return one request a parent, and the place (request, row) of each task."""
        by_parent: dict[int, tuple[int, list[Row]]] = {}
        places: list[tuple[int, int]] = []
        order: list[RowTask] = []
        for task in self.tasks:
            if (entry := by_parent.get(task.path.node)) is None:
                entry = by_parent[task.path.node] = (len(order), [])
                order.append(task)
            places.append((entry[0], len(entry[1])))
            entry[1].append(Row(task.stream, task.path.num_tokens, task.cap, self.word))
        priced = [unit for unit in ("flops", "usd") if unit in self.account.units and self.backend.rates.cost(unit, computed=1)]
        requests = [
            SampleRequest(task.handle, tuple(rows), self.sampling, self.stop, task.path.full_text, self.spreads, not priced)
            for task, (_, rows) in zip(order, by_parent.values(), strict=True)
        ]
        return requests, places

    def _timer(self, rowsets: Sequence[RowSet]) -> asyncio.TimerHandle | None:
        seconds_left = self.account.seconds_left
        if seconds_left is None:
            return None

        def stop() -> None:
            self.timed_out = True
            for rows in rowsets:
                rows.cancel()

        return asyncio.get_running_loop().call_later(seconds_left, stop)

    def _usage(self, rowsets: Sequence[RowSet], places: Sequence[tuple[int, int]], cancelled_from: int, seconds: float) -> Usage:
        """Return what the call has spent; rows from `cancelled_from` on were not read."""
        samples = generated = cancelled = 0
        work, estimated = 0.0, False
        for index, (which, row) in enumerate(places):
            if which >= len(rowsets):  # never sent
                continue
            samples += self.tasks[index].branch
            sample = rowsets[which].samples[row]
            if sample is None:  # the backend broke: the cost of the row is not known, so it is charged in full
                generated, estimated = generated + self.tasks[index].cap, True
                continue
            work += sample.seconds
            estimated = estimated or sample.estimated
            if index >= cancelled_from:
                cancelled += sample.num_tokens
            else:
                generated += sample.num_tokens
        computed = sum(rows.prompt_tokens for rows in rowsets)
        reused = sum_known([rows.reused_tokens for rows in rowsets])
        return Usage(
            prompt_tokens=computed,
            reused_tokens=reused,
            generated_tokens=generated,
            cancelled_tokens=cancelled,
            samples=samples,
            seconds=seconds,
            work_seconds=work,
            kv_bytes_per_token=self.backend.kv_bytes_per_token,
            estimated=estimated,
        )


def branches_of(parents: Sequence[Trajectory], children_of: Callable[[Trajectory], int]) -> list[int]:
    """Return what each row would cost in samples, were all of them started in this order."""
    seen: dict[int, int] = {}
    costs: list[int] = []
    for parent in parents:
        if (made := seen.get(parent.node)) is None:
            made = children_of(parent)
        seen[parent.node] = made + 1
        costs.append(1 if parent.parent is None or made > 0 else 0)
    return costs


@dataclass(frozen=True, slots=True)
class _Planned:
    """The rows of a wave, those that it leaves out, what each costs in samples, and the bound of a row from its parent on."""

    rows: list[QueuedRow]
    rest: list[QueuedRow]
    branches: Sequence[int]
    wave: Wave
    cost: RowCost


class RowRunner:
    """Writes rows after trajectories of one search.

    Args:
        spreads: whether `Sample.spreads` are wanted. unscorable: nodes for whose scores nothing is to be held.
        expected: tokens of a solution that the caller expects; None: the task's constant.
        portion: most tokens of a row in one call; None: no such cap. Results do not depend on it.

    Attributes:
        sampling: that of the run. unbegun: rows that `expand` was asked for and the budget did not begin.
        failures: failed rows by kind. causes: of the first of each. timed_out: whether the time cut a row short.
    """

    def __init__(  # noqa: PLR0913 - the parts of a search
        self,
        *,
        problem: Problem,
        task: Task,
        backends: Mapping[str, Backend],
        sampling: Sampling,
        costs: Costs,
        tree: Tree,
        prompts: Prompts,
        clock: Callable[[], float],
        spreads: bool,
        unscorable: set[int],
        expected: int | None = None,
        portion: int | None = None,
    ) -> None:
        self._task = task
        self._backends = backends
        self.sampling = sampling
        self.unbegun = 0
        self._costs = costs
        self._tree = tree
        self._prompts = prompts
        self._clock = clock
        self._spreads = spreads
        self._unscorable = unscorable
        self._portion = portion or NO_CAP
        self.sizes = RowSizes(problem, task, backends, costs, tree, expected)
        self._interrupted: dict[tuple[object, ...], deque[QueuedRow]] = {}
        self._scratch: list[Trajectory] = []
        self._scratch_children: dict[int, int] = {}
        self._stops: dict[tuple[ThoughtMarks, str | tuple[str, ...]], StopCondition] = {}
        self._assumes = False  # whether an assumed length kept the rows of the last call from beginning
        self._took_assumption = False
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.timed_out = False

    def sampling_at(self, temperature: float | None = None, max_tokens: int | None = None, effort: str | None = None) -> Sampling:
        """Return the run's sampling with another temperature, cap of a row or effort; None: unchanged."""
        given = (("temperature", temperature), ("max_tokens", max_tokens), ("effort", effort))
        changed = {name: value for name, value in given if value is not None}
        return dataclasses.replace(self.sampling, **changed) if changed else self.sampling

    def caps_of(self, model: str) -> Caps:
        """Return the capabilities of a role's model."""
        return self._backends[model].caps

    def paid_by(self, part: Account) -> AbstractContextManager[Account]:
        """Let a part of the account pay for everything, for the block; then it is closed."""
        return self._costs.paid_by(part)

    # One call -------------------------------------------------------------------------------------------------------------------

    async def wave(self, queue: RowQueue, *, answered: bool, completed: bool) -> AsyncGenerator[QueuedRow, None]:
        """Make one call for rows of a queue, and yield those that are over, in draw order: with each, all before it are over.

        Open rows are continued; where there are none, others begin.

        Args:
            answered: whether there is an answer; if not, enough is held back to bring the best open path to its end.
            completed: whether there is a candidate; if not, the first row to the end is granted all that it may need.

        Raises:
            Exhausted: the budget pays neither. CapabilityError: the backend cannot stop at a step.
            SearchEnded: a whole wave of rows had no room in the context, which costs nothing.
        """
        for _ in range(MOST_ROWS):
            if not self.fills_context(queue):
                break
            yield self._unwritten(queue)
            if queue.is_done or queue.most is None:
                return
        else:
            raise SearchEnded("nothing is spent any more")
        upcoming = None if queue.open_rows else queue.peek()
        if upcoming is not None and upcoming.model != queue.model:  # read before a row is granted all that is left
            self.check_usable([upcoming])
            await self._prompts.handles([upcoming], queue.model)
        planned = await self._plan(queue, answered=answered, completed=completed)
        rows, wave, backend = planned.rows, planned.wave, self._backends[queue.model]
        rooms = [self.sizes.left_of(queue, row) for row in rows]
        caps = [min(wave.cap, room) for room in rooms]
        assert min(caps) >= 1, f"a row was granted {min(caps)} tokens"
        kind = "rollout" if queue.scratch else "expand"
        lease = self._costs.account.lease(
            wave.reserve, kind=kind, model=queue.model, rows=len(rows), granted=sum(caps), rates=backend.rates
        )
        batch: RowBatch | None = None
        try:
            async with lease:
                self._undo(queue, planned.rest, planned.cost)  # once the wave's own part is reserved
                planned.rest.clear()
                tasks = await self._begin(queue, planned, zip(caps, rooms, strict=True), lease)
                batch = self._batch(queue, tasks)
                async with aclosing(batch.samples(lease)) as samples:
                    read = zip(rows, tasks, strict=True)
                    async for sample in samples:
                        row, task = next(read)
                        self._take(queue, row, task, sample, timed_out=batch.timed_out)
                        while queue.begun and queue.begun[0].over:  # the rows at the head are handed on
                            yield queue.begun.popleft()
        finally:
            if batch is None:
                self._undo(queue, [*rows, *planned.rest], planned.cost)
            else:
                self.timed_out = self.timed_out or batch.timed_out
                self._keep_scores(rows, planned.cost)

    async def _begin(self, queue: RowQueue, planned: _Planned, sizes: Iterable[tuple[int, int]], lease: Lease) -> list[RowTask]:
        """Return the tasks of a wave's rows, and note those that begin."""
        try:
            handles = await self._prompts.handles([row.path or row.parent for row in planned.rows], queue.model)
        except BaseException:
            lease.void()
            raise
        begin = zip(planned.rows, handles, planned.branches, sizes, strict=False)
        tasks = [self._task_of(queue, row, handle, branch, *size) for row, handle, branch, size in begin]
        if planned.rows[0].path is None:
            queue.begin(planned.rows)
        return tasks

    async def _plan(self, queue: RowQueue, *, answered: bool, completed: bool) -> _Planned:
        """Plan the next call; where other searches only hold what it lacks, wait until they free some.

        Raises:
            Exhausted: The budget does not pay it.
        """
        is_patient = True  # whether it waits for all that a row is expected to need
        while True:
            try:
                return self._planned(queue, answered=answered, completed=completed, is_patient=is_patient)
            except Exhausted as short:
                try:
                    await self._costs.account.wait_for_more(short.unit)
                except Exhausted as end:
                    if not is_patient or end.unit == "seconds":
                        raise
                    is_patient = False

    def _planned(self, queue: RowQueue, *, answered: bool, completed: bool, is_patient: bool) -> _Planned:
        """Choose the rows of the next call: those that are open, else new ones; and plan how far they are written."""
        account, going_on = self._costs.account, queue.open_rows
        account.check_time()
        rows = going_on or self._upcoming(queue, completed=completed)
        parents = [row.parent for row in rows]
        distinct = list({t.node: t for t in parents}.values())
        longest = max(map(self._tree.path_tokens, distinct))
        again = max(map(self._tree.unread_tokens, distinct))
        backend = self._backends[queue.model]
        cost = self._costs.row_cost(backend, longest, self._prompts.recomputed(distinct, queue.model), again)
        prompts = {root: self._tree.prompt_tokens[root] for root in map(self._tree.root_of, distinct)}
        try:
            if going_on:
                computed = self._prompts.recomputed([row.path or row.parent for row in rows], queue.model)
                written = max(row.written for row in rows) + again
                bound = self._costs.before_prompts(self._costs.row_cost(backend, longest, computed, written), prompts)
                branches = [0] * len(rows)
            else:
                bound = self._costs.before_prompts(cost, prompts)
                branches = branches_of(parents, self._scratch_children_of if queue.scratch else self._tree.children_of)
            held = 0 if answered or queue.until is END else self._held_for(queue, parents, going_on=bool(going_on))
            left = self._left_for(queue, rows, bound, held, is_patient=is_patient)
            if isinstance(queue.until, Thought):
                held = queue.response = queue.response or payable_tokens(bound, _RESPONSE, held, left)
            self._assumes = held > 0 and not self.sizes.lengths(parents[0].root_kind).ended
            request = self.sizes.wave_request(queue, rows, branches, bound, held=held, portion=self._portion, completed=completed)
            wave = plan_rows(request, left)
            self._assumes = False
        except BaseException:
            queue.give_back([row for row in rows if row.path is None])
            raise
        for row in going_on:
            if row.path is not None:
                account.free(row.path.node)
        if wave.limit is not None:
            for row in rows[: wave.rows]:
                row.limit = wave.limit
        return _Planned(rows[: wave.rows], rows[wave.rows :], branches, wave, cost)

    def _left_for(self, queue: RowQueue, rows: Sequence[QueuedRow], bound: RowCost, held: int, *, is_patient: bool) -> Amounts:
        """Return what a wave is planned with: what is left, and of limits that other searches share, no more than an equal part.

        Args:
            queue: The request.
            rows: The rows of the wave. What is kept for scoring those that go on is theirs.
            bound: The bound of a row.
            held: The tokens that must stay unspent.
            is_patient: Whether a shared limit that does not pay a row to its expected end is exhausted for now.

        Raises:
            Exhausted: So it is.
        """
        account = self._costs.account
        left = Counter({unit: account.available(unit) for unit in account.units})
        for path in (row.path for row in rows):
            left.update({} if path is None else account.kept_under(path.node))
        if not (shares := {unit: share for unit in account.units if (share := account.fair_share(unit)) is not None}):
            return left
        needed = self.sizes.needed(queue, rows)
        for unit in shares if is_patient else ():
            if bound.of(unit, held + needed) > left[unit]:
                raise Exhausted(unit)
        return limit_to_share(bound, needed, held, left, shares)

    def _upcoming(self, queue: RowQueue, *, completed: bool) -> list[QueuedRow]:
        """Take the rows of a queue that may begin now, up to the first that fills the context."""
        rows = queue.take(self.sizes.width(queue, completed=completed))
        self.check_usable([row.parent for row in rows])
        fits = next((i for i, row in enumerate(rows) if self._fills(queue, row.parent)), len(rows))
        queue.give_back(rows[fits:])  # a later wave ends those that fill the context
        return rows[:fits]

    def _held_for(self, queue: RowQueue, parents: Sequence[Trajectory], *, going_on: bool) -> int:
        """Return the tokens that are held to bring an open path to its end: the same for all calls of a row, however they cut it."""
        if not (going_on and queue.held):
            queue.held = self.sizes.to_end_of(parents)
        return queue.held

    def _batch(self, queue: RowQueue, tasks: Sequence[RowTask]) -> RowBatch:
        return RowBatch(
            tasks=tasks,
            account=self._costs.account,
            clock=self._clock,
            backend=self._backends[queue.model],
            sampling=queue.sampling,
            stop=self._stop_of(queue),
            word=SCRATCH_WORD if queue.scratch else MAIN_WORD,
            spreads=self._spreads,
        )

    def _stop_of(self, queue: RowQueue) -> StopCondition:
        """Return where the rows of a queue end, besides their caps; a task is given no thought."""
        marks, thought = queue.marks, isinstance(queue.until, Thought)
        texts = queue.until.texts if isinstance(queue.until, Stops) else ()
        key = (marks, texts or ("thought" if thought else "step" if queue.until is STEP else "end"))
        if key not in self._stops:
            steps = (marks.close.strip(),) if thought else (*self._task.step_stop, *texts)
            over = None if thought else lambda text: self._task.is_finished(marks.response(text))
            self._stops[key] = StopCondition(steps, at_step=thought or bool(texts) or queue.until is STEP, finished=over, at=texts or None)
        return self._stops[key]

    def _task_of(self, queue: RowQueue, row: QueuedRow, handle: object, branch: int, cap: int, room: int) -> RowTask:
        """Return the task of a row; one that begins takes a child index, hence a stream."""
        parent = row.parent
        if row.path is not None:
            return RowTask(row.path, handle, row.path.stream, branch, cap, room)
        if queue.scratch:
            index = self._scratch_children.get(parent.node, 0)
            self._scratch_children[parent.node] = index + 1
        else:
            index = self._tree.next_child(parent)
        stream = child_stream(parent.stream, parent.num_tokens, index)
        return RowTask(parent, handle, stream, branch, cap, room)

    def _undo(self, queue: RowQueue, rows: Sequence[QueuedRow], cost: RowCost) -> None:
        """Return rows that did not start, or did not go on, to what they were."""
        queue.give_back([row for row in rows if row.path is None])
        self._keep_scores([row for row in rows if row.path is not None], cost)

    def _keep_scores(self, rows: Sequence[QueuedRow], cost: RowCost) -> None:
        """Hold what scoring these rows may cost, so far as they were written."""
        written = [path for row in rows if (path := row.made) is not None]
        to_score = [t for t in written if t.node not in self._unscorable]
        for root in sorted({self._tree.root_of(t) for t in to_score}):
            self._costs.keep_prompt(root, self._tree.prompt_tokens[root])
        for t in to_score:
            self._costs.keep_score(t.node, cost, self._tree.own_tokens(t))

    # What becomes of a sample ---------------------------------------------------------------------------------------------------

    def _take(self, queue: RowQueue, row: QueuedRow, task: RowTask, sample: Sample, *, timed_out: bool) -> None:
        """Add what a call wrote of a row to the tree."""
        if sample.error or sample.finish == "error":  # also where another try of the backend's made the row good
            self._count_failure(sample)
        if sample.finish == "error" and row.path is not None:  # the row stays where it was
            row.failures += 1
            if sample.error == OUT_OF_TIME:
                self.give_up(row)
            elif row.failures == _TRIES:
                self.give_up(row, "failed")
                self._note_failed(queue, row)
            return
        if sample.finish not in _STATUS:
            raise EngineError(
                f"the backend {self._backends[queue.model].name!r} ended a row with the finish {shown(sample.finish)}, "
                f"but must end it with one of {', '.join(_STATUS)}"
            )
        before = row.written
        path = row.path = self._written(row, task, sample, queue)
        row.short += sample.finish == "length" and row.written - before < min(task.room, self._portion) // 2
        row.over = sample.finish != "length" or self._is_over(queue, row, before, timed_out=timed_out)
        if sample.finish == "stop" and queue.until is END:
            self.give_up(row)
            path = row.path
        if path.status == "active" and self.sizes.room(queue.model, path) <= 0:
            row.path, row.over = self._tree.replace(dataclasses.replace(path, status="truncated")), True  # the context is full
        if path.status == "failed":
            self._note_failed(queue, row)
        elif not queue.scratch:
            self.sizes.learn(queue, row, path)

    def fills_context(self, queue: RowQueue) -> bool:
        """Whether no row is open, and the next one has no room in the model's context: one with a longer context wrote its path."""
        return not queue.open_rows and queue.left > 0 and (parent := queue.peek()) is not None and self._fills(queue, parent)

    def _fills(self, queue: RowQueue, parent: Trajectory) -> bool:
        return parent.parent is not None and self.sizes.room(queue.model, parent) < 1  # prompts are refused where they are read

    def _unwritten(self, queue: RowQueue) -> QueuedRow:
        """Begin the next row, and end it without a token, for the context is full."""
        (row,) = queue.take(1)
        self.check_usable([row.parent])
        queue.count += 1
        self._take(queue, row, self._task_of(queue, row, None, 0, 0, 0), Sample("", (), (), "cancelled", None, 0), timed_out=False)
        return row

    def _note_failed(self, queue: RowQueue, row: QueuedRow) -> None:
        """Let another row be drawn in the place of one that failed."""
        if not queue.scratch:
            self._tree.count_failed_child(row.parent)
        if queue.redraw:
            queue.count -= 1
            queue.give_back([row])

    def _is_over(self, queue: RowQueue, row: QueuedRow, before: int, *, timed_out: bool) -> bool:
        """Whether a row that met its cap ends there; it is truncated, but where it was to end so."""
        if isinstance(queue.until, Tokens) and row.written >= queue.until.count and self.sizes.uncapped(queue, row) > 0:
            return True
        path = row.path
        capped = self.sizes.left_of(queue, row) <= 0 or row.written == before or row.short >= _SHORT
        late = timed_out and queue.until is END
        queue.given_up += row.written >= row.limit
        if path is None or path.handle is None or capped or late or not self.sizes.resumes(queue.model):
            self.give_up(row)
        return row.over or timed_out

    def give_up(self, row: QueuedRow, status: Status = "truncated") -> None:
        """End a row where it is."""
        row.over = True
        if row.path is not None and row.path.status == "active":
            row.path = self._tree.replace(dataclasses.replace(row.path, status=status))

    def _written(self, row: QueuedRow, task: RowTask, sample: Sample, queue: RowQueue) -> Trajectory:
        """Return the node of a row with what a sample adds to it."""
        kept = sample.num_tokens - sample.lost_tokens
        status, tree = _STATUS[sample.finish], self._tree
        if (so_far := row.path) is not None:
            path = self._tree.replace(
                dataclasses.replace(
                    so_far,
                    text=so_far.text + sample.text,
                    token_ids=so_far.token_ids + sample.token_ids,
                    logprobs=so_far.logprobs + sample.logprobs,
                    spreads=so_far.spreads + sample.spreads,
                    status=status,
                    num_tokens=so_far.num_tokens + kept,
                    handle=sample.handle,
                )
            )
            self._backends[queue.model].release([so_far.handle])
            return path
        parent = row.parent
        child = Trajectory(
            parent, sample.text, sample.token_ids, sample.logprobs, status, task.stream, len(tree.nodes),
            parent.num_tokens + kept, parent.depth + 1, parent.root_kind, queue.model, sample.handle, sample.spreads, parent.marks,
        )  # fmt: skip
        tree.add(child, 0)
        if queue.scratch:
            tree.scratch.add(child.node)
            self._scratch.append(child)
        return child

    def _count_failure(self, sample: Sample) -> None:
        if sample.error != OUT_OF_TIME:
            kind, _, cause = (sample.error or "error").partition(": ")
            self.failures[kind] += 1
            self.causes.setdefault(kind, cause)

    # What is written in one go --------------------------------------------------------------------------------------------------

    def queue(
        self,
        parents: Sequence[Trajectory],
        most: int | None,
        until: Until | Tokens | Share | Stops,
        *,
        sampling: Sampling | None,
        model: str,
        scratch: bool = False,
        width: int = MOST_ROWS,
        redraw: bool = False,
    ) -> RowQueue:
        """Return the queue of `most` rows after each parent, first children of all before second ones; open rows of before lead it."""
        if isinstance(until, Share):
            until = Tokens(max(1, round(until.part * self.sizes.lengths(parents[0].root_kind).expected())))
        turns = chain.from_iterable(repeat(parents) if most is None and parents else repeat(parents, most or 0))
        rows = None if most is None else most * len(parents)
        marks = parents[0].marks if parents else THINK
        distinct = len({t.node for t in parents})
        made = RowQueue(turns, rows, until, sampling or self.sampling, model, marks, scratch, width, redraw, distinct)
        if not redraw and any(t.parent is not None for t in parents):
            # rows that cost no sample begin first: paths go on before copies of them branch off
            waiting = made.take(min(rows or 0, len(parents)))  # in later turns every row is a further branch
            branches = branches_of([row.parent for row in waiting], self._scratch_children_of if scratch else self._tree.children_of)
            made.give_back([row for _, row in sorted(zip(branches, waiting, strict=True), key=lambda one: one[0])])
        waiting = self._interrupted.pop(made.key(parents), deque[QueuedRow]())
        while waiting and made.left > 0:
            row = waiting.popleft()
            row.place = made.count
            made.begun.append(row)
            made.take(1)
            made.count += 1
        if waiting:
            self._interrupted[made.key(parents)] = waiting
        return made

    def interrupt(self, queue: RowQueue, parents: Sequence[Trajectory]) -> None:
        """Keep the rows of a queue that are not over, before those that it left waiting; a later request of its kind continues them."""
        if queue.begun:
            key = queue.key(parents)
            self._interrupted[key] = queue.begun + self._interrupted.get(key, deque())

    def discard(self, queue: RowQueue) -> list[Trajectory]:
        """Book the rows that wait in a queue as cancelled, and return their nodes: a stop rule fired on earlier ones."""
        waiting = [row for row in queue.begun if row.path is not None]
        if tokens := sum(row.written for row in waiting):
            usage = Usage(generated_tokens=-tokens, cancelled_tokens=tokens)
            self._costs.account.book(Call("cancel", queue.model, len(waiting), 0, usage))
        queue.begun.clear()
        return [row.path for row in waiting if row.path is not None]

    def leave_off(self, queue: RowQueue) -> Iterator[QueuedRow]:
        """Give up the open rows of a queue; return those that were written, in draw order."""
        for row in queue.open_rows:
            self.give_up(row)
        while queue.begun:
            if (row := queue.begun.popleft()).path is not None:
                yield row

    @property
    def open_paths(self) -> list[Trajectory]:
        """The rows that wait for a request that continues them, or for others before them."""
        return [row.path for begun in self._interrupted.values() for row in begun if row.path is not None]

    def conclude(self) -> Iterator[QueuedRow]:
        """Give up every interrupted row, in draw order."""
        for begun in self._interrupted.values():
            yield from self.leave_off(RowQueue(iter(()), 0, END, self.sampling, "", THINK, begun=begun))
        self._interrupted.clear()

    async def forced(self, ts: Sequence[Trajectory], text: str, model: str, extend: Extend) -> list[Trajectory]:
        """Return one child of each trajectory with forced text after it; one that has ended goes on without its end of sequence."""
        tree = self._tree
        self.check_usable(ts, ended=True)
        reread = await self._prompts.reopened(ts, model)
        branches = branches_of(ts, tree.children_of)
        made = await extend(ts, text, model, sum(branches))
        children: list[Trajectory] = []
        for parent, one, more in zip(ts, made, reread, strict=True):
            size = len(one.token_ids)
            full = self.sizes.room(model, parent) <= size
            child = Trajectory(
                parent, text, one.token_ids, (), "truncated" if full else "active",
                child_stream(parent.stream, parent.num_tokens, tree.next_child(parent)), len(tree.nodes),
                parent.num_tokens + size, parent.depth + 1, parent.root_kind, model, one.handle, marks=parent.marks,
            )  # fmt: skip
            tree.add(child, 0, reread=more)
            self.sizes.exclude(child.node)
            children.append(child)
        return children

    def stop_assuming(self) -> None:
        """Let no assumed length be a reason to complete a path: one is completed already."""
        self._took_assumption = True

    def take_assumption(self) -> bool:
        """Return, once in a search, whether an assumed length keeps the rows of the last call from beginning."""
        taken, self._took_assumption = self._took_assumption, self._took_assumption or self._assumes
        return self._assumes and not taken

    def check_usable(self, ts: Sequence[Trajectory], *, ended: bool = False) -> None:
        """Raise ConfigError for a trajectory that cannot be continued; `ended`: whether a finished one can."""
        for t in ts:
            if t.status != "active" and not (ended and t.status == "finished"):
                hint = "search.extend([t], text) continues it" if t.status == "finished" else ""
                which = "an active or finished" if ended else "an active"
                raise ConfigError(f"node {t.node} is {t.status}, but only {which} trajectory can be continued", hint=hint)
            if t.node in self._tree.pruned:
                raise ConfigError(f"node {t.node} was pruned by keep(), but only a live trajectory can be continued")

    def drop_scratch(self) -> list[Trajectory]:
        """Return the nodes of the last rollout, which are to be dropped."""
        dropped, self._scratch = self._scratch, []
        return dropped

    def _scratch_children_of(self, t: Trajectory) -> int:
        """Return a rollout's children as its cost counts them: the first row of one is a branch beside the path's own."""
        return self._scratch_children.get(t.node, 0) if t.node in self._tree.scratch else 1
