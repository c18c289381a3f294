"""How rows become trajectories: their calls, and the nodes that they leave in the tree.

*Row law.* The text of row j after a path is a function of the problem, the seed, the sampling and j. Budgets, widths
and lengths decide only how many rows begin and how far each is written. A row that met its grant stays open. A later
call continues the row where it was: same stream, absolute positions, same node, no further sample. The caller gets the
row once it has ended or was given up. Open rows go on before others begin. `tts.search.plan_rows` decides how many rows
begin, and when a row is given up.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

from tts.backends.base import Caps, Draft, Extension, Sample, Sampling, StopCondition, sampling_with
from tts.budget.account import Account, Exhausted, Lease
from tts.budget.units import COUNT_UNITS, PRICED_UNITS
from tts.errors import EngineError, quote
from tts.randomness import MAIN_WORD, SCRATCH_WORD, child_stream
from tts.search.context import SearchContext
from tts.search.ends import END, STEP, SearchEnded, Share, Stops, Tokens, Until, stop_of
from tts.search.lengths import MOST_ROWS
from tts.search.plan_rows import Price, Wave, branches_of
from tts.search.prompts import Prompts
from tts.search.rows import OUT_OF_TIME, RequestedRow, RowCall, RowRequest
from tts.search.sizes import Sizes
from tts.thoughts import ThoughtMarks
from tts.types import Status, Trajectory

_TRIES = 3  # failures of continuations that fail a row
_MOST_SHORT_REPLIES = 256  # short replies that end a row; a short reply has less than half of the tokens it was granted
_STATUS: Mapping[str, Status] = {
    "eos": "finished", "answer": "finished", "stop": "active", "length": "active", "cancelled": "truncated",
    "error": "failed",
}  # fmt: skip

Done = Callable[[RequestedRow], Awaitable[None]]  # gets a row that is over
# Appends a text after trajectories on a model. The last argument is the number of samples that this costs.
Extend = Callable[[Sequence[Trajectory], str, str, int], Awaitable[list[Extension]]]


class Writer(Sizes):
    """Writes rows after trajectories of one search.

    Args:
        context: What the parts of the search share.
        prompts: The prompts that were read.
        sampling: The sampling of the run.
        unscorable: Nodes whose scores need no reserve.
        sampling_logprobs: Whether `Sample.sampling_logprobs` are wanted.
        sizes: The further arguments of `Sizes`.

    Attributes:
        sampling: The sampling of the run.
        unbegun: The number of rows of `expand` calls that the budget did not begin.
        begins_all_at_once: Whether some request had as many rows as the budget pays, and all of them began at once.
        failures: The rows that failed or were repeated, by kind.
        repeats: Those of them that were repeated, by kind.
        causes: The cause of the first failure of each kind.
        retry_s: The longest wait before a retry that a server asked for, in seconds; 0: none asked.
        timed_out: Whether the time cut a row short.
    """

    def __init__(
        self,
        context: SearchContext,
        prompts: Prompts,
        *,
        sampling: Sampling,
        unscorable: set[int],
        sampling_logprobs: bool,
        **sizes: int | None,
    ) -> None:
        super().__init__(context, prompts, **sizes)
        self.sampling = sampling
        self.unbegun = 0
        self.begins_all_at_once = False
        self.failures: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.retry_s = 0.0
        self.timed_out = False
        self._clock = context.clock
        spreads = any(not {"spreads", "tops"}.isdisjoint(verifier.needs) for verifier in context.verifiers.values())
        self._sample_options = {"spreads": spreads, "sampling_logprobs": sampling_logprobs}
        self._unscorable = unscorable
        self._interrupted: dict[tuple[object, ...], deque[RequestedRow]] = {}  # by `RowRequest.key`
        self._rollout_paths: list[Trajectory] = []  # the nodes of the last rollout
        self._stops: dict[tuple[ThoughtMarks, object], StopCondition] = {}  # by marks and kind of end
        self._took_assumption = False
        self._calls: list[RowCall] = []  # under way
        self._handed: set[int] = set()  # nodes whose scores were owed while their call went on

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

    # Requests ---------------------------------------------------------------------------------------------------------

    def ask(
        self, paths: Sequence[Trajectory], n: int | None, until: Until | Tokens | Share | Stops, **options: Any
    ) -> RowRequest:
        """Return the request of n rows after each path. Interrupted rows of an earlier request lead it.

        Args:
            paths: The paths that the rows continue.
            n: The number of rows after each path; None: as many as the budget pays.
            until: The end of each row.
            options: Further arguments of `RowRequest`.
        """
        if isinstance(until, Share):
            solution_tokens = self.lengths.get(paths[0].root_kind).expected_length()
            until = Tokens(max(1, round(until.part * solution_tokens)))
        ask = RowRequest(paths, n, until, **options)
        if not ask.redraws and any(t.parent is not None for t in paths):
            # rows that cost no sample begin first: paths go on before copies of them branch off
            first_rows = ask.take(len(paths))  # in later rounds every row costs a sample
            branches = self._branches(ask, [row.parent for row in first_rows])
            ask.give_back(
                [row for paid in (0, 1) for row, branch in zip(first_rows, branches, strict=True) if branch == paid]
            )
        if self._interrupted:
            self._take_waiting_rows(ask)
        return ask

    def _take_waiting_rows(self, ask: RowRequest) -> None:
        interrupted_rows = self._interrupted.pop(ask.key, deque[RequestedRow]())
        while interrupted_rows and ask.left > 0:
            row = interrupted_rows.popleft()
            row.place = ask.count
            ask.begun.append(row)
            ask.take(1)
            ask.count += 1
        if interrupted_rows:
            self._interrupted[ask.key] = interrupted_rows

    def interrupt(self, ask: RowRequest) -> None:
        """Keep the rows of a request that were not returned, for a later request of the same key.

        These rows come before the rows that already wait under this key.
        """
        if ask.begun:
            self._interrupted[ask.key] = ask.begun + self._interrupted.get(ask.key, deque())

    def discard(self, ask: RowRequest) -> list[Trajectory]:
        """Book the rows that wait in a request as cancelled, after a stop rule fired, and return their nodes."""
        written_rows = [row for row in ask.begun if row.path is not None]
        tokens = sum(row.written for row in written_rows)
        if tokens:
            self._costs.account.book(
                "cancel", ask.model, rows=len(written_rows), generated_tokens=-tokens, cancelled_tokens=tokens
            )
        ask.begun.clear()
        return [row.path for row in written_rows if row.path is not None]

    def leave_off(self, rows: deque[RequestedRow]) -> Iterator[RequestedRow]:
        """Give up the open rows of a request; yield its written rows, in draw order."""
        for row in rows:
            if not row.over:
                self._give_up(row)
        while rows:
            row = rows.popleft()
            if row.path is not None:
                yield row

    @property
    def open_paths(self) -> list[Trajectory]:
        """The paths of interrupted rows, which wait for a later request."""
        interrupted_rows = chain.from_iterable(self._interrupted.values())
        return [row.path for row in interrupted_rows if row.path is not None]

    def conclude(self) -> Iterator[RequestedRow]:
        """Give up every interrupted row; yield the rows that have text, in draw order."""
        for rows in self._interrupted.values():
            yield from self.leave_off(rows)

    # One call ---------------------------------------------------------------------------------------------------------

    async def write(self, ask: RowRequest, done: Done, *, answered: bool, completed: bool) -> None:
        """Make one call for rows of a request, and hand out the rows that are over, in the request's order.

        The call continues the open rows. Where no row is open, new rows begin. Whatever `done` raises cancels the rows
        that are not over.

        Args:
            ask: The request.
            done: A function that gets each row that is over.
            answered: Whether there is an answer. If not, the call keeps enough unspent to end the best open path.
            completed: Whether there is a candidate. If not, the first row to the end is granted all that it may need.

        Raises:
            Exhausted: The budget pays neither open nor new rows.
            CapabilityError: The backend cannot stop at a step.
            SearchEnded: A whole call of rows had no room in the context, which costs nothing.
        """
        goes_on = any(not row.over for row in ask.begun)
        if not goes_on:
            if await self._end_full_rows(ask, done):
                return
            await self._read_foreign_path(ask)
        rows, rest, wave, price, lease = await self._admit(ask, goes_on=goes_on, answered=answered, completed=completed)
        call: RowCall | None = None
        try:
            with lease:
                # the lease comes before reserves of other scores
                self._put_back(ask, rest, price, goes_on=goes_on, are_behind=ask.order == "finished")
                handles = await self._prompts.handles([row.path or row.parent for row in rows], ask.model)
                if not goes_on:
                    for row in rows:
                        self._draw_stream(ask, row)
                    ask.begin(rows)
                call = self._call(ask, rows, handles, wave)
                try:
                    hands_scores = ask.is_streamed and wave.pays_scores
                    hand_out = self._handing(lease, rows, price, done) if hands_scores else done
                    await self._receive(ask, call, len(rows), hand_out)
                finally:
                    try:
                        call.release()
                    finally:
                        lease.spend(**call.close())
        finally:
            if call is None:
                self._put_back(ask, rows, price, goes_on=goes_on)
            else:
                self.timed_out = self.timed_out or call.timed_out
                self._owe_scores(rows, price)

    async def _receive(self, ask: RowRequest, call: RowCall, num_rows: int, done: Done) -> None:
        """Send a call, add its rows to the tree, and hand out those that are over; a failure cancels the others."""
        self._calls.append(call)
        try:
            call.send()
            for number in range(1, num_rows + 1):
                row = await call.next_row(ask.order)
                self._take(ask, row, await call.receive(), timed_out=call.timed_out)
                if ask.order == "drawn":
                    while ask.begun and ask.begun[0].over:
                        await done(ask.begun.popleft())
                    continue
                for complete in ask.pop_over(row, ends=number == num_rows):
                    await done(complete)
        except BaseException:
            await call.cancel()
            raise
        finally:
            self._calls.remove(call)

    def _handing(self, lease: Lease, rows: Sequence[RequestedRow], price: Price, done: Done) -> Done:
        """Return a function that hands rows out, and lets their scores be paid while the call goes on.

        What the lease holds for the scores of a row of this call is then owed by its node. Rows of earlier calls, which
        waited for the order, owe theirs already.
        """
        of_call = {id(row) for row in rows}

        async def hand_out(row: RequestedRow) -> None:
            path = row.path
            if id(row) in of_call and path is not None and self._costs.keeps_scores and path.status != "failed":
                scores = price.scores(row.written)
                if lease.reduce(scores):
                    self._owe_scores([row], price)
                    self._handed.add(path.node)
            await done(row)

        return hand_out

    async def _end_full_rows(self, ask: RowRequest, done: Done) -> bool:
        """End the next rows whose context is full; return whether no other row is to begin in this call.

        Raises:
            SearchEnded: A whole call of rows had no room.
        """
        for _ in range(MOST_ROWS):
            if not self.fills_context(ask):
                return False
            await done(self._end_unwritten(ask))
            if ask.is_done or ask.most is None:
                return True
        raise SearchEnded("nothing is spent any more")

    async def _read_foreign_path(self, ask: RowRequest) -> None:
        """Let the model read the next path, if another model wrote the path.

        The reading is paid before a row is granted all that is left.
        """
        path = ask.next_path
        if path is not None and path.model != ask.model:
            self._tree.check_usable([path])
            await self._prompts.handles([path], ask.model)

    async def _admit(
        self, ask: RowRequest, *, goes_on: bool, answered: bool, completed: bool
    ) -> tuple[list[RequestedRow], list[RequestedRow], Wave, Price, Lease]:
        """Return the rows of the next call, the rows that it leaves out, its plan, the price of scores and its lease.

        Where other searches hold the lacking amounts for now, wait until they free some.

        Raises:
            Exhausted: The budget does not pay the call.
        """
        account, is_patient = self._costs.account, True  # whether to wait for all that a row is expected to need
        while True:
            try:
                return self._plan(ask, goes_on=goes_on, answered=answered, completed=completed, is_patient=is_patient)
            except Exhausted as shortage:
                if not account.is_shared:
                    raise
                try:
                    await account.wait_for_more(shortage.unit)
                except Exhausted as failed_wait:
                    if not is_patient or failed_wait.unit == "seconds":
                        raise
                    is_patient = False

    def _plan(
        self, ask: RowRequest, *, goes_on: bool, answered: bool, completed: bool, is_patient: bool
    ) -> tuple[list[RequestedRow], list[RequestedRow], Wave, Price, Lease]:
        """Plan the next call and lease its reserve: the open rows, or else new rows; see `_admit`.

        Args:
            ask: The request.
            goes_on: Whether rows are open.
            answered: As in `write`, like `completed`.
            completed: See above.
            is_patient: Whether to raise Exhausted where a shared limit does not pay a row to its expected end.

        Raises:
            Exhausted: The budget does not pay the rows.
        """
        self._costs.account.check_time()
        rows = ask.open_rows if goes_on else self._upcoming(ask, completed=completed)
        try:
            wave, branches, price = self._size(
                ask, rows, goes_on=goes_on, answered=answered, completed=completed, is_patient=is_patient
            )
        except BaseException:
            if not goes_on:
                ask.give_back(rows)  # a later call may begin the new rows
            raise
        rows, rest = rows[: wave.rows], rows[wave.rows :]
        if goes_on and self._costs.owes:
            self._costs.free([row.path.node for row in (*rows, *rest) if row.path is not None])
        rooms: dict[int, int] = {}  # by parent
        for row, branch in zip(rows, branches, strict=False):
            if wave.limit is not None:
                row.limit = wave.limit
            node = row.parent.node
            if goes_on or node not in rooms:  # new rows after the same path have the same room
                rooms[node] = self._remainder(ask, row)
            row.branch = branch
            row.room = rooms[node]
            row.grant = min(wave.grant, row.room)
            assert row.grant >= 1, f"a row was granted {row.grant} tokens"
        try:
            lease = self._costs.account.lease(
                wave.reserve,
                kind="rollout" if ask.scratch else "expand",
                model=ask.model,
                rows=len(rows),
                granted=sum([row.grant for row in rows]),
                rates=self._backends[ask.model].rates,
            )
        except BaseException:  # another thread took the amounts meanwhile
            self._put_back(ask, [*rows, *rest], price, goes_on=goes_on)
            raise
        return rows, rest, wave, price, lease

    def _draw_stream(self, ask: RowRequest, row: RequestedRow) -> None:
        """Take the next child index of a row's parent, and with the index the row's random stream."""
        parent = row.parent
        if ask.scratch:  # rollouts have their own indices
            index = self._scratch_children.get(parent.node, 0)
            self._scratch_children[parent.node] = index + 1
        else:
            index = self._tree.next_child(parent)
        row.stream = child_stream(parent.stream, parent.num_tokens, index)

    def _call(self, ask: RowRequest, rows: Sequence[RequestedRow], handles: Sequence[object], wave: Wave) -> RowCall:
        """Return the call for rows that have begun."""
        backend, account = self._backends[ask.model], self._costs.account
        of_kind = self.lengths.get(rows[0].end.root_kind)
        request = {
            **self._sample_options,
            "sampling": ask.sampling,
            "stop": self._stop_of(ask),
            "rereads": not any(unit in account.units and backend.rates.cost(unit, computed=1) for unit in PRICED_UNITS),
            "limited": not set(account.units).issubset(COUNT_UNITS),
            "expected": of_kind.longest or of_kind.expected_length(),
        }
        return RowCall(
            rows, handles, backend, clock=self._clock, seconds=account.seconds_left, lease=wave.lease,
            word=SCRATCH_WORD if ask.scratch else MAIN_WORD, request=request,
        )  # fmt: skip

    def _stop_of(self, ask: RowRequest) -> StopCondition:
        """Return the stop condition of a request's rows, besides their grants."""
        key = (ask.paths[0].marks, ask.until if not isinstance(ask.until, Tokens) else type(ask.until))
        stop = self._stops.get(key)
        if stop is None:
            stop = self._stops[key] = stop_of(ask.until, ask.paths[0].marks, self._task)
        return stop

    def _put_back(
        self, ask: RowRequest, rows: list[RequestedRow], price: Price, *, goes_on: bool, are_behind: bool = False
    ) -> None:
        """Put rows back that did not begin, or did not go on, and empty the list.

        Open rows that a call leaves out are given up where they would fall behind the others (`are_behind`).
        """
        if goes_on:
            self._owe_scores(rows, price)
            if are_behind:
                for row in rows:
                    self._give_up(row)
                    ask.given_up += 1
        else:
            ask.give_back(rows)
        rows.clear()

    def _owe_scores(self, rows: Sequence[RequestedRow], price: Price) -> None:
        """Hold what scoring the written part of these rows may cost."""
        if self._costs.keeps_scores:
            tokens: dict[int, int] = {}
            prompts: dict[int, int] = {}
            reads = self._costs.reads
            for row in rows:
                path = row.path
                if (
                    path is None
                    or path.status == "failed"
                    or path.node in self._unscorable
                    or path.node in self._handed
                    or all((path.node, role) in self._tree.scores for role in self._costs.declared)
                ):  # a loop over a stream may have paid the scores already
                    continue
                tokens[path.node] = path.num_tokens - row.parent.num_tokens
                if reads:
                    root = self._tree.root_of(path)
                    prompts[root] = self._tree.prompt_tokens[root]
            self._costs.owe(price, tokens, prompts)

    # What becomes of a sample -----------------------------------------------------------------------------------------

    def _take(self, ask: RowRequest, row: RequestedRow, sample: Sample, *, timed_out: bool) -> None:
        """Add a call's sample of a row to the tree."""
        finish = sample.finish
        if sample.error or finish == "error":  # counted also where a retry of the backend succeeded
            is_repeated = finish != "error" or (row.path is not None and row.failures + 1 < _TRIES)
            self._count_failure(sample, is_repeated=is_repeated)
        if finish == "error" and row.path is not None:  # the row keeps the text of its earlier calls
            row.failures += 1
            if sample.error == OUT_OF_TIME:
                self._give_up(row)
            elif row.failures == _TRIES:
                self._give_up(row, "failed")
                self._note_failed(ask, row)
            return
        if finish not in _STATUS:
            raise EngineError(
                f"the backend {self._backends[ask.model].name!r} ended a row with the finish {quote(finish)}, "
                f"but must end it with one of {', '.join(_STATUS)}"
            )
        written_before = row.written if finish == "length" else 0
        path = row.path = self._grow(ask, row, sample)
        row.over = finish != "length" or self._is_over(ask, row, path, written_before, timed_out=timed_out)
        stopped_early = finish == "stop" and ask.until is END
        if path.status == "active" and (stopped_early or self._fills(ask, path)):
            self._give_up(row)
        if path.status == "failed":
            self._note_failed(ask, row)
        elif not ask.scratch:
            self._learn(ask, row, row.path)

    def _learn(self, ask: RowRequest, row: RequestedRow, path: Trajectory) -> None:
        """Learn from the length of a row whose written path is `path`."""
        if not self.lengths.note(path, above=row.parent.node):
            return
        if isinstance(ask.until, Tokens):
            self._chains[path.node] = (ask.sampling.max_tokens, self._chain(ask, row) + row.written)
        if ask.until is STEP and row.over:
            self.lengths.note_step(path.num_tokens - row.parent.num_tokens)

    def fills_context(self, ask: RowRequest) -> bool:
        """Whether the next row has no room in the context: a model with a longer context wrote its path."""
        if self._backends[ask.model].context is None:
            return False
        path = ask.next_path if ask.left > 0 else None
        return path is not None and self._fills(ask, path)

    def _end_unwritten(self, ask: RowRequest) -> RequestedRow:
        """Begin the next row and end it without a token, because the context is full."""
        (row,) = ask.take(1)
        self._tree.check_usable([row.parent])
        ask.count += 1
        self._draw_stream(ask, row)
        empty_sample = Sample.empty("cancelled")
        self._take(ask, row, empty_sample, timed_out=False)
        return row

    def _note_failed(self, ask: RowRequest, row: RequestedRow) -> None:
        """Note a failed row, and, if the request redraws, let another row be drawn in its place."""
        if not ask.scratch:
            self._tree.count_failed_child(row.parent)
        if ask.redraws:
            ask.count -= 1
            ask.give_back([row])

    def _is_over(
        self, ask: RowRequest, row: RequestedRow, path: Trajectory, written_before: int, *, timed_out: bool
    ) -> bool:
        """Return whether a row that met its grant ends there. The row is given up, unless `until` asks for this length.

        Args:
            ask: The request.
            row: The row, with the text of the call.
            path: The row's path.
            written_before: The tokens of the row before the call.
            timed_out: Whether the time is over.
        """
        until, written = ask.until, row.written
        if isinstance(until, Tokens) and written >= until.count and self._cap_remainder(ask, row) > 0:
            return True
        written_now = written - written_before
        if written_now < min(row.room, self._portion_of(ask, written_before)) // 2:
            row.short += 1
        if written >= row.limit:
            ask.given_up += 1
        is_capped = self._remainder(ask, row) <= 0 or written_now == 0 or row.short >= _MOST_SHORT_REPLIES
        is_late = timed_out and until is END
        if is_capped or is_late or path.handle is None or not self._resumes(ask.model):
            self._give_up(row)
        return row.over or timed_out

    def _give_up(self, row: RequestedRow, status: Status = "truncated") -> None:
        """End a row at its present length."""
        row.over = True
        if row.path is not None and row.path.status == "active":
            row.path = self._tree.replace(dataclasses.replace(row.path, status=status))

    def _grow(self, ask: RowRequest, row: RequestedRow, sample: Sample) -> Trajectory:
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
            self._backends[ask.model].release([path.handle])
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
            model=ask.model,
            handle=sample.handle,
            spreads=sample.spreads,
            marks=parent.marks,
            sampling_logprobs=sample.sampling_logprobs,
        )
        tree.add(child, root_tokens=0)
        if ask.scratch:
            tree.scratch.add(child.node)
            self._rollout_paths.append(child)
        return child

    def _count_failure(self, sample: Sample, *, is_repeated: bool) -> None:
        """Count a failure by its kind, unless the time was over; `is_repeated`: whether the row was tried again."""
        if sample.error != OUT_OF_TIME:
            kind, _colon, cause = (sample.error or "error").partition(": ")
            self.failures[kind] += 1
            self.repeats[kind] += is_repeated
            self.causes.setdefault(kind, cause)
            self.retry_s = max(self.retry_s, sample.retry_s)

    # Forced text, and what a search assumes ---------------------------------------------------------------------------

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
            fills_context = self.room(model, parent) <= text_tokens
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
            self.lengths.forced.add(child.node)
            children.append(child)
        return children

    def stop_assuming(self) -> None:
        """Let no assumed length be a reason to complete a path, because a path is completed already."""
        self._took_assumption = True

    def take_assumption(self) -> bool:
        """Return whether an assumed length kept the last call's rows from beginning.

        After the first True, or after `stop_assuming`, the result is False.
        """
        is_first = self._assumes and not self._took_assumption
        self._took_assumption = self._took_assumption or self._assumes
        return is_first

    def drop_scratch(self) -> list[Trajectory]:
        """Return the nodes of the last rollout, which are to be dropped."""
        dropped_paths, self._rollout_paths = self._rollout_paths, []
        return [self._tree.nodes[t.node] for t in dropped_paths]  # a row that went on has another state since
