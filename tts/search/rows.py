"""How rows become trajectories: their calls, and the nodes that they leave in the tree.

*Row law.* The text of row j after a path is a function of the problem, the seed, the sampling and j. Budgets, widths
and lengths decide only how many rows begin and how far each is written. A row that its cap cuts stays open. A later
call continues the row where it was: same stream, absolute positions, same node, no further sample. The caller gets the
row once it has ended or was given up. Open rows go on before others begin. `tts.search.waves` decides how many rows
begin, and when a row is given up.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, repeat
from typing import Any

from tts._common.blame import Blame
from tts.backends.base import (
    Backend,
    Caps,
    Draft,
    Extension,
    Row,
    RowSet,
    Sample,
    SampleRequest,
    Sampling,
    StopCondition,
    sampling_with,
)
from tts.backends.metadata import metadata_of
from tts.backends.reads import cancelled_and_done, wait_for_change
from tts.budget.account import Account, Exhausted, Lease
from tts.budget.budget import RowCost
from tts.budget.ledger import Amounts, sum_known
from tts.errors import EngineError, quote
from tts.randomness import MAIN_WORD, SCRATCH_WORD, child_stream
from tts.search.costs import Costs
from tts.search.ends import END, STEP, SearchEnded, Share, Stops, Thought, Tokens, Until
from tts.search.lengths import MOST_ROWS, NO_CAP
from tts.search.prompts import Prompts
from tts.search.queue import Order, QueuedRow, RowQueue
from tts.search.tree import Tree
from tts.search.waves import PlannedWave, RowSizes, branches_of
from tts.tasks.base import Task
from tts.thoughts import THINK, ThoughtMarks
from tts.types import Problem, Status, Trajectory

# the error of a row that timed out before producing text; such a row is neither a candidate nor a failure
OUT_OF_TIME = "out of time"
_TRIES = 3  # failures of continuations that fail a row
_SHORT = 256  # short replies that end a row; a short reply has less than half of the tokens it was granted
_COUNTED = ("samples", "verifier_calls", "verifier_tokens")  # units that no generated token uses
_STATUS: Mapping[str, Status] = {
    "eos": "finished", "answer": "finished", "stop": "active", "length": "active", "cancelled": "truncated",
    "error": "failed",
}  # fmt: skip

# Appends a text after trajectories on a model. The last argument is the number of samples that this costs.
Extend = Callable[[Sequence[Trajectory], str, str, int], Awaitable[list[Extension]]]


class RowCall:
    """One call of rows: sent at once, received in draw order, and closed with its cost.

    Args:
        rows: The rows, in draw order.
        handles: The state of each path on the backend.
        backend: The model that writes.
        sampling: The sampling of every row.
        stop: The stop condition of every row.
        word: The part of the random stream: that of solutions or that of rollouts.
        spreads: Whether `Sample.spreads` are wanted.
        sampling_logprobs: Whether `Sample.sampling_logprobs` are wanted.
        account: The account whose deadline ends the call.
        clock: The clock, in seconds.
        lease: The amounts that each row may spend, where rows are programs.
        expected: See `SampleRequest.expected`.

    Attributes:
        timed_out: Whether the time was over before every row had ended.
    """

    def __init__(  # noqa: PLR0913 - what rows of one call have in common
        self,
        rows: Sequence[QueuedRow],
        handles: Sequence[object],
        *,
        backend: Backend,
        sampling: Sampling,
        stop: StopCondition,
        word: int,
        spreads: bool,
        sampling_logprobs: bool,
        account: Account,
        clock: Callable[[], float],
        lease: Amounts,
        expected: int,
    ) -> None:
        self.timed_out = False
        self._rows = [*rows]
        self._backend = backend
        self._lease = lease
        self._blame = Blame(f"the backend {backend.name!r}", EngineError)
        self._clock = clock
        self._started = clock()
        self._received = 0
        self._rowsets: list[RowSet] = []
        self._places: list[tuple[int, int]] = []  # for each row: its request, and its place in the request
        self._timer = self._set_timer(account.seconds_left)
        request_of: dict[int, int] = {}  # by the last node of a path: the index of the request for its rows
        starts: list[tuple[Trajectory, object]] = []  # by request: the path that its rows continue, and the handle
        request_rows: list[list[Row]] = []  # by request
        for row, handle in zip(rows, handles, strict=True):
            path = row.end
            if path.node not in request_of:
                request_of[path.node] = len(starts)
                starts.append((path, handle))
                request_rows.append([])
            request = request_of[path.node]
            self._places.append((request, len(request_rows[request])))
            request_rows[request].append(Row(row.stream, path.num_tokens, row.cap, word))
        rereads = not any(unit in account.units and backend.rates.cost(unit, computed=1) for unit in ("flops", "usd"))
        limited = any(unit not in _COUNTED for unit in account.units)
        self._requests = [
            SampleRequest(
                handle,
                tuple(rows_after),
                sampling,
                stop,
                text=path.full_text,
                spreads=spreads,
                rereads=rereads,
                sampling_logprobs=sampling_logprobs,
                limited=limited,
                expected=expected,
                lease=lease,
            )
            for (path, handle), rows_after in zip(starts, request_rows, strict=True)
        ]

    def _set_timer(self, seconds_left: float | None) -> asyncio.TimerHandle | None:
        """Cancel all rows after some seconds; None: never. Return the timer, if there is one."""
        if seconds_left is None:
            return None

        def stop() -> None:
            self.timed_out = True
            for row_set in self._rowsets:
                row_set.cancel()

        return asyncio.get_running_loop().call_later(seconds_left, stop)

    def send(self) -> None:
        """Start the rows."""
        with self._blame:
            for request in self._requests:
                self._rowsets.append(self._backend.sample(request))

    async def next_row(self, order: Order) -> QueuedRow:
        """Return the row to receive next: the next in draw order, or, by arrival, the first that has ended."""
        while order == "arrived":
            for index in range(self._received, len(self._rows)):
                request, place = self._places[index]
                if self._rowsets[request].samples[place] is not None:
                    self._rows.insert(self._received, self._rows.pop(index))
                    self._places.insert(self._received, self._places.pop(index))
                    return self._rows[self._received]
            with self._blame:
                await wait_for_change(self._rowsets)
        return self._rows[self._received]

    async def receive(self) -> Sample:
        """Wait for the row of `next_row`, and return its sample."""
        request, place = self._places[self._received]
        sample = self._rowsets[request].samples[place]
        if sample is None:
            with self._blame:
                sample = await self._rowsets[request].row(place)
        if self.timed_out and sample.finish == "cancelled":
            if sample.text:
                sample = dataclasses.replace(sample, finish="length")
            else:
                sample = dataclasses.replace(sample, finish="error", error=OUT_OF_TIME)
        self._received += 1
        return sample

    def draft(self) -> Draft:
        """Return the text of the leading row with its path, and the tokens of all rows.

        The leading row is the first that has not ended. Rows that the backend does not show have no text and no tokens.
        """
        leading_text, marks, tokens = "", THINK, 0
        for row, (request, place) in zip(self._rows, self._places, strict=True):
            if request >= len(self._rowsets):  # never sent
                continue
            sample = self._rowsets[request].samples[place]
            if sample is not None:
                tokens += sample.num_tokens
                continue
            row_draft = self._rowsets[request].draft(place)
            if row_draft is None:
                continue
            tokens += row_draft.tokens
            if not leading_text:
                leading_text = row.end.full_text + row_draft.text
                marks = row.end.marks
        return Draft(leading_text, tokens, marks)

    async def cancel(self) -> None:
        """Cancel the rows that have not ended, and wait until the backend has dropped them."""
        await cancelled_and_done(self._rowsets)

    def close(self, lease: Lease) -> None:
        """Charge the call's cost to the lease, and free the states of rows that were not received."""
        if self._timer is not None:
            self._timer.cancel()
        unused_handles: list[Any] = []  # of rows that ended but were not received
        for request, place in self._places[self._received :]:
            sample = self._rowsets[request].samples[place] if request < len(self._rowsets) else None
            if sample is not None and sample.handle is not None:
                unused_handles.append(sample.handle)
        try:
            if unused_handles:
                with self._blame:
                    self._backend.release(unused_handles)
        finally:
            lease.spend(**self._counts())

    def _most_tokens(self, row: QueuedRow) -> int:
        """Return the most tokens that a row may have generated: its cap, or as many as its lease pays."""
        most_tokens = row.cap
        for unit, amount in self._lease.items():
            token_cost = self._backend.rates.cost(unit, generated=1)
            if token_cost:
                most_tokens = min(most_tokens, amount // token_cost)
        return most_tokens

    def _counts(self) -> dict[str, Any]:
        """Return the call's cost, by the fields of a ledger's row. Rows that were not received count as cancelled."""
        samples = generated = cancelled = 0
        work_seconds, is_estimated = 0.0, False
        for index, (row, (request, place)) in enumerate(zip(self._rows, self._places, strict=True)):
            if request >= len(self._rowsets):  # never sent
                continue
            samples += row.branch
            sample = self._rowsets[request].samples[place]
            if sample is None:  # the backend broke: the row's cost is unknown, so charge the most it may have cost
                generated += self._requests[request].unseen_cost(self._most_tokens(row))
                is_estimated = True
                continue
            work_seconds += sample.seconds
            is_estimated = is_estimated or sample.estimated
            if index >= self._received:
                cancelled += sample.num_tokens
            else:
                generated += sample.num_tokens
        return {
            "readings": sum(row_set.readings or 0 for row_set in self._rowsets) or None,
            "prompt_tokens": sum([row_set.prompt_tokens for row_set in self._rowsets]),
            "reused_tokens": sum_known([row_set.reused_tokens for row_set in self._rowsets]),
            "generated_tokens": generated,
            "cancelled_tokens": cancelled,
            "samples": samples,
            "seconds": self._clock() - self._started,
            "work_seconds": work_seconds,
            "kv_bytes_per_token": self._backend.kv_bytes_per_token,
            "estimated": is_estimated,
        }


class RowRunner:
    """Writes rows after trajectories of one search.

    Args:
        problem: The problem.
        task: The problem's task.
        backends: The models by role.
        sampling: The sampling of the run.
        costs: The cost bounds of rows, and the account that pays.
        tree: The nodes that were written.
        prompts: The prompts that were read.
        clock: The clock, in seconds.
        spreads: Whether `Sample.spreads` are wanted.
        sampling_logprobs: Whether `Sample.sampling_logprobs` are wanted.
        unscorable: Nodes whose scores need no reserve.
        expected: The tokens of a solution that the caller expects; None: the task's constant.
        portion: The most tokens of a row in one call; None: no such cap. Results do not depend on it.

    Attributes:
        sizes: The known lengths, and the number of tokens that rows may take.
        sampling: The sampling of the run.
        unbegun: The number of rows of `expand` calls that the budget did not begin.
        begins_all_at_once: Whether some request had as many rows as the budget pays, and all of them began at once.
        failures: The failed rows by kind.
        causes: The cause of the first failure of each kind.
        retry_s: The longest wait before a retry that a server asked for, in seconds; 0: none asked.
        timed_out: Whether the time cut a row short.
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
        sampling_logprobs: bool,
        unscorable: set[int],
        expected: int | None = None,
        portion: int | None = None,
    ) -> None:
        self.sizes = RowSizes(problem, task, backends, costs, tree, prompts, expected, portion or NO_CAP)
        self.sampling = sampling
        self.unbegun = 0
        self.begins_all_at_once = False
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.retry_s = 0.0
        self.timed_out = False
        self._task = task
        self._backends = backends
        self._costs = costs
        self._tree = tree
        self._prompts = prompts
        self._clock = clock
        self._spreads = spreads
        self._sampling_logprobs = sampling_logprobs
        self._unscorable = unscorable
        self._interrupted: dict[tuple[object, ...], deque[QueuedRow]] = {}  # by `RowQueue.key`
        self._rollout_paths: list[Trajectory] = []  # the nodes of the last rollout
        self._stops: dict[tuple[ThoughtMarks, str | tuple[str, ...]], StopCondition] = {}  # by marks and kind of end
        self._took_assumption = False
        self._calls: list[RowCall] = []  # under way

    def sampling_at(
        self,
        temperature: float | None = None,
        max_tokens: int | None = None,
        effort: str | None = None,
        thought_tokens: int | None = None,
    ) -> Sampling:
        """Return the run's sampling with other values of some parameters; None: unchanged."""
        return sampling_with(
            self.sampling, temperature=temperature, max_tokens=max_tokens, effort=effort, thought_tokens=thought_tokens
        )

    def caps_of(self, model: str) -> Caps:
        """Return the capabilities of a role's model."""
        return self._backends[model].caps

    def pay_from(self, part: Account) -> AbstractContextManager[Account]:
        """Let a part of the account pay for everything in the block. The part is closed after the block."""
        return self._costs.pay_from(part)

    def draft(self) -> Draft:
        """Return the text of the leading row under way, and the tokens of all calls under way.

        Text and tokens are known as far as the backends show them.
        """
        drafts = [call.draft() for call in self._calls]
        all_tokens = sum(draft.tokens for draft in drafts)
        for draft in drafts:
            if draft.text:
                return draft._replace(tokens=all_tokens)
        return Draft("", all_tokens)

    # One call ---------------------------------------------------------------------------------------------------------

    async def write(self, queue: RowQueue, *, answered: bool, completed: bool) -> AsyncGenerator[QueuedRow, None]:
        """Make one call for rows of a queue, and yield the rows that are over.

        Rows come in the queue's order. The call continues the open rows. Where no row is open, new rows begin. Closing
        the generator cancels the rows that are not over.

        Args:
            queue: The request.
            answered: Whether there is an answer. If not, the call keeps enough unspent to end the best open path.
            completed: Whether there is a candidate. If not, the first row to the end is granted all that it may need.

        Raises:
            Exhausted: The budget pays neither open nor new rows.
            CapabilityError: The backend cannot stop at a step.
            SearchEnded: A whole wave of rows had no room in the context, which costs nothing.
        """
        going_on = queue.open_rows
        if not going_on:
            for _ in range(MOST_ROWS):
                if not self.fills_context(queue):
                    break
                yield self._unwritten(queue)
                if queue.is_done or queue.most is None:
                    return
            else:
                raise SearchEnded("nothing is spent any more")
            await self._open_abroad(queue)
        wave = await self._plan(queue, going_on, answered=answered, completed=completed)
        call: RowCall | None = None
        try:
            with self._lease(queue, wave) as lease:
                self._put_back(queue, wave.rest, wave)  # the wave's reserve comes before that of other rows' scores
                call = await self._begin_rows(queue, wave)
                self._calls.append(call)
                try:
                    call.send()
                    for place in range(len(wave.rows)):
                        row = await call.next_row(queue.order)
                        self._take(queue, row, await call.receive(), timed_out=call.timed_out)
                        for complete in queue.pop_over(row, ends=place + 1 == len(wave.rows)):
                            yield complete
                except BaseException:
                    await call.cancel()
                    raise
                finally:
                    self._calls.remove(call)
                    call.close(lease)
        finally:
            if call is None:
                self._put_back(queue, [*wave.rows, *wave.rest], wave)
            else:
                self.timed_out = self.timed_out or call.timed_out
                self._keep_scores(wave.rows, wave.cost)

    async def _open_abroad(self, queue: RowQueue) -> None:
        """Let the model read the next path, if another model wrote the path.

        The reading is paid before a row is granted all that is left.
        """
        parent = queue.peek()
        if parent is not None and parent.model != queue.model:
            self._tree.check_usable([parent])
            await self._prompts.handles([parent], queue.model)

    async def _plan(
        self, queue: RowQueue, going_on: list[QueuedRow], *, answered: bool, completed: bool
    ) -> PlannedWave:
        """Plan the next call. Where other searches hold the lacking amounts for now, wait until they free some.

        Raises:
            Exhausted: The budget does not pay the call.
        """
        is_patient = True  # whether to wait for all that a row is expected to need
        while True:
            try:
                return self.sizes.plan(queue, going_on, answered=answered, completed=completed, is_patient=is_patient)
            except Exhausted as shortage:
                try:
                    await self._costs.account.wait_for_more(shortage.unit)
                except Exhausted as failed_wait:
                    if not is_patient or failed_wait.unit == "seconds":
                        raise
                    is_patient = False

    def _lease(self, queue: RowQueue, wave: PlannedWave) -> Lease:
        """Return the lease of a wave's reserve."""
        return self._costs.account.lease(
            wave.reserve,
            kind="rollout" if queue.scratch else "expand",
            model=queue.model,
            rows=len(wave.rows),
            granted=sum([row.cap for row in wave.rows]),
            rates=self._backends[queue.model].rates,
        )

    async def _begin_rows(self, queue: RowQueue, wave: PlannedWave) -> RowCall:
        """Return the call of a wave, and note its rows as begun.

        Each new row takes the next child index of its parent, and with the index its random stream.
        """
        handles = await self._prompts.handles([row.end for row in wave.rows], queue.model)
        if not wave.goes_on:
            for row in wave.rows:
                self._draw_stream(queue, row)
            queue.begin(wave.rows)
        return RowCall(
            wave.rows,
            handles,
            backend=self._backends[queue.model],
            sampling=queue.sampling,
            stop=self._stop_of(queue),
            word=SCRATCH_WORD if queue.scratch else MAIN_WORD,
            spreads=self._spreads,
            sampling_logprobs=self._sampling_logprobs,
            account=self._costs.account,
            clock=self._clock,
            lease=wave.lease,
            expected=self._longest_length(wave.rows[0].end.root_kind),
        )

    def _longest_length(self, kind: str) -> int:
        """Return the tokens of the longest path after one kind of prompt, else those that the task's paths have."""
        lengths = self.sizes.lengths(kind)
        return lengths.longest or lengths.expected_length()

    def _draw_stream(self, queue: RowQueue, row: QueuedRow) -> None:
        parent = row.parent
        row.stream = child_stream(parent.stream, parent.num_tokens, self.sizes.next_child(queue, parent))

    def _stop_of(self, queue: RowQueue) -> StopCondition:
        """Return the stop condition of a queue's rows, besides their caps. The task never sees a thought."""
        marks = queue.marks
        end: str | tuple[str, ...] = "end"
        if isinstance(queue.until, Stops):
            end = queue.until.texts
        elif isinstance(queue.until, Thought):
            end = "thought"
        elif queue.until is STEP:
            end = "step"
        if (marks, end) not in self._stops:
            if end == "thought":
                stop = StopCondition((marks.close.strip(),), at_step=True)
            else:
                texts = end if isinstance(end, tuple) else ()
                stop = StopCondition(
                    (*self._task.step_stop, *texts),
                    at_step=end != "end",
                    finished=lambda text: self._task.is_finished(marks.response(text)),
                    at=texts or None,
                )
            self._stops[marks, end] = stop
        return self._stops[marks, end]

    def _put_back(self, queue: RowQueue, rows: list[QueuedRow], wave: PlannedWave) -> None:
        """Put rows of a wave back that did not begin, or did not go on, and empty `wave.rest`.

        In finish order, open rows that the call leaves out would fall behind the others, and are given up.
        """
        if wave.goes_on:
            self._keep_scores(rows, wave.cost)
            if queue.order == "finished" and rows is wave.rest:
                for row in rows:
                    self.give_up(row)
                    queue.given_up += 1
        else:
            queue.give_back(rows)
        wave.rest.clear()

    def _keep_scores(self, rows: Sequence[QueuedRow], cost: RowCost) -> None:
        """Reserve what scoring the written part of these rows may cost."""
        if not self._costs.keeps_scores:
            return
        paths = [row.made for row in rows if row.made is not None and row.made.node not in self._unscorable]
        node_tokens = {t.node: self._tree.own_tokens(t) for t in paths}
        prompts = {root: self._tree.prompt_tokens[root] for root in map(self._tree.root_of, paths)}
        self._costs.keep_scores(cost, node_tokens, prompts)

    # What becomes of a sample -----------------------------------------------------------------------------------------

    def _take(self, queue: RowQueue, row: QueuedRow, sample: Sample, *, timed_out: bool) -> None:
        """Add a call's sample of a row to the tree."""
        if sample.error or sample.finish == "error":  # counted also where a retry of the backend succeeded
            self._count_failure(sample)
        if sample.finish == "error" and row.path is not None:  # the row keeps the text of its earlier calls
            row.failures += 1
            if sample.error == OUT_OF_TIME:
                self.give_up(row)
            elif row.failures == _TRIES:
                self.give_up(row, "failed")
                self._note_failed(queue, row)
            return
        if sample.finish not in _STATUS:
            raise EngineError(
                f"the backend {self._backends[queue.model].name!r} ended a row with the finish {quote(sample.finish)}, "
                f"but must end it with one of {', '.join(_STATUS)}"
            )
        written_before = row.written
        path = row.path = self._grow(queue, row, sample)
        row.over = sample.finish != "length" or self._is_over(queue, row, written_before, timed_out=timed_out)
        stopped_early = sample.finish == "stop" and queue.until is END
        if path.status == "active" and (stopped_early or self.sizes.room(queue.model, path) <= 0):
            self.give_up(row)
        if path.status == "failed":
            self._note_failed(queue, row)
        elif not queue.scratch:
            self.sizes.learn(queue, row, row.path)

    def fills_context(self, queue: RowQueue) -> bool:
        """Whether the next row has no room in the context: a model with a longer context wrote its path."""
        parent = queue.peek() if queue.left > 0 else None
        return parent is not None and self.sizes.fills(queue, parent)

    def _unwritten(self, queue: RowQueue) -> QueuedRow:
        """Begin the next row and end it without a token, because the context is full."""
        (row,) = queue.take(1)
        self._tree.check_usable([row.parent])
        queue.count += 1
        self._draw_stream(queue, row)
        empty_sample = Sample(text="", token_ids=(), logprobs=(), finish="cancelled", handle=None, num_tokens=0)
        self._take(queue, row, empty_sample, timed_out=False)
        return row

    def _note_failed(self, queue: RowQueue, row: QueuedRow) -> None:
        """Note a failed row, and, if the queue redraws, let another row be drawn in its place."""
        if not queue.scratch:
            self._tree.count_failed_child(row.parent)
        if queue.redraw:
            queue.count -= 1
            queue.give_back([row])

    def _is_over(self, queue: RowQueue, row: QueuedRow, written_before: int, *, timed_out: bool) -> bool:
        """Return whether a row that met its cap ends there. The row is given up, unless `until` asks for this length.

        Args:
            queue: The request.
            row: The row, with the text of the call.
            written_before: The tokens of the row before the call.
            timed_out: Whether the time is over.
        """
        if (
            isinstance(queue.until, Tokens)
            and row.written >= queue.until.count
            and self.sizes.cap_remainder(queue, row) > 0
        ):
            return True
        path = row.path
        written_now = row.written - written_before
        granted = min(row.room, self.sizes.portion_of(queue, written_before))
        if written_now < granted // 2:
            row.short += 1
        if row.written >= row.limit:
            queue.given_up += 1
        is_capped = self.sizes.row_remainder(queue, row) <= 0 or written_now == 0 or row.short >= _SHORT
        is_late = timed_out and queue.until is END
        can_go_on = path is not None and path.handle is not None and self.sizes.resumes(queue.model)
        if is_capped or is_late or not can_go_on:
            self.give_up(row)
        return row.over or timed_out

    def give_up(self, row: QueuedRow, status: Status = "truncated") -> None:
        """End a row at its present length."""
        row.over = True
        if row.path is not None and row.path.status == "active":
            row.path = self._tree.replace(dataclasses.replace(row.path, status=status))

    def _grow(self, queue: RowQueue, row: QueuedRow, sample: Sample) -> Trajectory:
        """Return the path of a row with a sample appended: the row's node grows, or begins."""
        new_tokens = sample.num_tokens - sample.lost_tokens
        status, tree = _STATUS[sample.finish], self._tree
        path = row.path
        if path is not None:
            longer_path = dataclasses.replace(
                path,
                text=path.text + sample.text,
                token_ids=path.token_ids + sample.token_ids,
                logprobs=path.logprobs + sample.logprobs,
                spreads=path.spreads + sample.spreads,
                sampling_logprobs=path.sampling_logprobs + sample.sampling_logprobs,
                status=status,
                num_tokens=path.num_tokens + new_tokens,
                handle=sample.handle,
            )
            tree.replace(longer_path)
            self._backends[queue.model].release([path.handle])
            return longer_path
        parent = row.parent
        child = Trajectory(
            parent=parent,
            text=sample.text,
            token_ids=sample.token_ids,
            logprobs=sample.logprobs,
            status=status,
            stream=row.stream,
            node=len(tree.nodes),
            num_tokens=parent.num_tokens + new_tokens,
            depth=parent.depth + 1,
            root_kind=parent.root_kind,
            model=queue.model,
            handle=sample.handle,
            spreads=sample.spreads,
            marks=parent.marks,
            sampling_logprobs=sample.sampling_logprobs,
        )
        tree.add(child, root_tokens=0)
        if queue.scratch:
            tree.scratch.add(child.node)
            self._rollout_paths.append(child)
        return child

    def _count_failure(self, sample: Sample) -> None:
        """Count a failure by its kind, unless the time was over."""
        if sample.error != OUT_OF_TIME:
            kind, _colon, cause = (sample.error or "error").partition(": ")
            self.failures[kind] += 1
            self.causes.setdefault(kind, cause)
            self.retry_s = max(self.retry_s, sample.retry_s)

    # What is written in one go ----------------------------------------------------------------------------------------

    def queue(  # noqa: PLR0913 - what the rows of one request have in common
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
        order: Order = "drawn",
    ) -> RowQueue:
        """Return the queue of `most` rows after each parent.

        First children of all parents come before second children. Interrupted rows of an earlier request lead the
        queue.

        Args:
            parents: The paths that the rows continue.
            most: The number of rows after each parent; None: as many as the budget pays.
            until: The end of each row.
            sampling: The sampling of all rows; None: that of the run.
            model: The role that writes.
            scratch: As in `RowQueue`, like the parameters after it.
            width: The most rows of a wave.
            redraw: Whether another row is drawn in the place of a failed row.
            order: The order in which rows are returned.
        """
        if isinstance(until, Share):
            solution_tokens = self.sizes.lengths(parents[0].root_kind).expected_length()
            until = Tokens(max(1, round(until.part * solution_tokens)))
        rounds = repeat(parents) if most is None and parents else repeat(parents, most or 0)
        num_rows = None if most is None else most * len(parents)
        queue = RowQueue(
            parents=chain.from_iterable(rounds),
            most=num_rows,
            until=until,
            sampling=sampling or self.sampling,
            model=model,
            marks=parents[0].marks if parents else THINK,
            scratch=scratch,
            width=width,
            redraw=redraw,
            distinct=len({t.node for t in parents}),
            order=order,
        )
        if not redraw and any(t.parent is not None for t in parents):
            # rows that cost no sample begin first: paths go on before copies of them branch off
            first_rows = queue.take(min(num_rows or 0, len(parents)))  # in later rounds every row costs a sample
            branches = self.sizes.branches(queue, [row.parent for row in first_rows])
            free_rows = [row for row, branch in zip(first_rows, branches, strict=True) if not branch]
            paid_rows = [row for row, branch in zip(first_rows, branches, strict=True) if branch]
            queue.give_back([*free_rows, *paid_rows])
        interrupted_rows = self._interrupted.pop(queue.key(parents), deque[QueuedRow]())
        while interrupted_rows and queue.left > 0:
            row = interrupted_rows.popleft()
            row.place = queue.count
            queue.begun.append(row)
            queue.take(1)
            queue.count += 1
        if interrupted_rows:
            self._interrupted[queue.key(parents)] = interrupted_rows
        return queue

    def queue_to_end(
        self,
        parents: Sequence[Trajectory],
        most: int | None,
        *,
        sampling: Sampling,
        model: str,
        order: Order,
        judges: bool,
    ) -> RowQueue:
        """Return the queue of whole solutions, in the order that a stop rule reads.

        In draw order failed rows are drawn anew.

        Args:
            parents: The paths that the solutions continue.
            most: The number of solutions of each path; None: as many as the budget pays.
            sampling: The sampling of all solutions.
            model: The role that writes.
            order: The order of the stop rule. On servers "finished" becomes "arrived".
            judges: Whether the stop rule needs the score of a solution before the next solution begins.
        """
        if order == "finished" and metadata_of(self._backends[model]).arrivals:
            order = "arrived"
        is_drawn = order == "drawn"
        width = 1 if judges and is_drawn else MOST_ROWS
        self.begins_all_at_once = self.begins_all_at_once or (most is None and not is_drawn)
        return self.queue(parents, most, END, sampling=sampling, model=model, width=width, redraw=is_drawn, order=order)

    def interrupt(self, queue: RowQueue, parents: Sequence[Trajectory]) -> None:
        """Keep the rows of a queue that are not over, for a later request of the same key.

        These rows come before the rows that already wait under this key.
        """
        if queue.begun:
            key = queue.key(parents)
            self._interrupted[key] = queue.begun + self._interrupted.get(key, deque())

    def discard(self, queue: RowQueue) -> list[Trajectory]:
        """Book the rows that wait in a queue as cancelled, after a stop rule fired, and return their nodes."""
        written_rows = [row for row in queue.begun if row.path is not None]
        tokens = sum(row.written for row in written_rows)
        if tokens:
            self._costs.account.book(
                "cancel", queue.model, rows=len(written_rows), generated_tokens=-tokens, cancelled_tokens=tokens
            )
        queue.begun.clear()
        return [row.path for row in written_rows if row.path is not None]

    def leave_off(self, queue: RowQueue) -> Iterator[QueuedRow]:
        """Give up the open rows of a queue; yield its written rows, in draw order."""
        for row in queue.open_rows:
            self.give_up(row)
        while queue.begun:
            row = queue.begun.popleft()
            if row.path is not None:
                yield row

    @property
    def open_paths(self) -> list[Trajectory]:
        """The paths of interrupted rows, which wait for a later request."""
        interrupted_rows = chain.from_iterable(self._interrupted.values())
        return [row.path for row in interrupted_rows if row.path is not None]

    def conclude(self) -> Iterator[QueuedRow]:
        """Give up every interrupted row; yield the rows that have text, in draw order."""
        for rows in self._interrupted.values():
            queue = RowQueue(
                parents=iter(()), most=0, until=END, sampling=self.sampling, model="", marks=THINK, begun=rows
            )
            yield from self.leave_off(queue)
        self._interrupted.clear()

    async def force(self, ts: Sequence[Trajectory], text: str, model: str, extend: Extend) -> list[Trajectory]:
        """Return one child of each trajectory with forced text after it.

        A trajectory that has ended goes on without its end of sequence.
        """
        tree = self._tree
        tree.check_usable(ts, ended=True)
        rereads = await self._prompts.reopen(ts, model)
        branches = branches_of(ts, tree.children_of)
        extensions = await extend(ts, text, model, sum(branches))
        children: list[Trajectory] = []
        for parent, extension, reread_tokens in zip(ts, extensions, rereads, strict=True):
            text_tokens = len(extension.token_ids)
            fills_context = self.sizes.room(model, parent) <= text_tokens
            child = Trajectory(
                parent=parent,
                text=text,
                token_ids=extension.token_ids,
                logprobs=(),
                status="truncated" if fills_context else "active",
                stream=child_stream(parent.stream, parent.num_tokens, tree.next_child(parent)),
                node=len(tree.nodes),
                num_tokens=parent.num_tokens + text_tokens,
                depth=parent.depth + 1,
                root_kind=parent.root_kind,
                model=model,
                handle=extension.handle,
                marks=parent.marks,
            )
            tree.add(child, root_tokens=0, reread=reread_tokens)
            self.sizes.exclude(child.node)
            children.append(child)
        return children

    def stop_assuming(self) -> None:
        """Let no assumed length be a reason to complete a path, because a path is completed already."""
        self._took_assumption = True

    def take_assumption(self) -> bool:
        """Return whether an assumed length kept the last call's rows from beginning.

        After the first True, or after `stop_assuming`, the result is False.
        """
        is_first = self.sizes.assumes and not self._took_assumption
        self._took_assumption = self._took_assumption or self.sizes.assumes
        return is_first

    def drop_scratch(self) -> list[Trajectory]:
        """Return the nodes of the last rollout, which are to be dropped."""
        dropped_paths, self._rollout_paths = self._rollout_paths, []
        return dropped_paths
