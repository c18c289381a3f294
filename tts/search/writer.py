"""How rows become trajectories: their calls, and the nodes that they leave in the tree.

*Row law.* The text of row j after a path is a function of the problem, the seed, the sampling and j. Budgets, widths
and lengths decide only how many rows begin and how far each is written. A row that met its grant stays open. A later
call continues the row where it was: same stream, absolute positions, same node, no further sample. The caller gets the
row once it has ended or was given up. Open rows go on before others begin. `tts.search.plan_rows` decides how many rows
begin, and when a row is given up.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

from tts.backends.base import Backend, Caps, Draft, Extension, Sample, Sampling, StopCondition, sampling_with
from tts.backends.capabilities import count_tokens, require
from tts.backends.metadata import metadata_of
from tts.budget.account import Account, Exhausted, Lease
from tts.budget.units import COUNT_UNITS, LENGTH_UNITS, PLACE_UNITS, PRICED_UNITS
from tts.errors import EngineError, quote
from tts.randomness import MAIN_WORD, SCRATCH_WORD, child_stream
from tts.search.costs import Costs
from tts.search.ends import END, STEP, SearchEnded, Share, Stops, Thought, Tokens, Until
from tts.search.lengths import MOST_ROWS, NO_CAP, KnownLengths, Lengths
from tts.search.plan_rows import Goal, Price, Wave, branches_of, limit_to_share, plan_programs, plan_rows
from tts.search.prompts import Prompts
from tts.search.rows import OUT_OF_TIME, Ask, Call, Order, Row
from tts.search.tree import Tree
from tts.tasks.base import Task
from tts.thoughts import ThoughtMarks
from tts.types import Problem, Status, Trajectory

_TRIES = 3  # failures of continuations that fail a row
_SHORT = 256  # short replies that end a row; a short reply has less than half of the tokens it was granted
_RESPONSE = 0.25  # the part of the amount left before a thought that is reserved for the response
_FIRST_WIDTH = 4  # rows of the first call where time is limited
_PIECE = 16  # the fewest tokens of a piece of rows in finish order
_PIECE_SHARE = 16  # a longer piece of these rows is this part of their length
_STATUS: Mapping[str, Status] = {
    "eos": "finished", "answer": "finished", "stop": "active", "length": "active", "cancelled": "truncated",
    "error": "failed",
}  # fmt: skip

Done = Callable[[Row], Awaitable[None]]  # gets a row that is over
# Appends a text after trajectories on a model. The last argument is the number of samples that this costs.
Extend = Callable[[Sequence[Trajectory], str, str, int], Awaitable[list[Extension]]]


def _goal(ask: Ask) -> Goal:
    if ask.until is STEP:
        return Goal.ROLLOUT if ask.scratch else Goal.STEP
    return Goal.TOKENS if isinstance(ask.until, Tokens) else Goal.SOLUTION


def _requests(rows: Sequence[Row]) -> list[int]:
    """Return the cost of each row in requests: the rows of one call after the same path are one request."""
    asked: set[int] = set()
    costs: list[int] = []
    for row in rows:
        node = row.end.node
        costs.append(int(node not in asked))
        asked.add(node)
    return costs


class Writer:
    """Writes rows after trajectories of one search.

    Args:
        problem: The problem.
        task: The problem's task.
        backends: The models by role.
        sampling: The sampling of the run.
        costs: The prices of rows, and the account that pays.
        tree: The nodes that were written.
        prompts: The prompts that were read.
        clock: The clock, in seconds.
        spreads: Whether `Sample.spreads` are wanted.
        sampling_logprobs: Whether `Sample.sampling_logprobs` are wanted.
        unscorable: Nodes whose scores need no reserve.
        expected: The tokens of a solution that the caller expects; None: the task's constant.
        portion: The most tokens of a row in one call; None: no such cap. Results do not depend on it.

    Attributes:
        lengths: The known lengths of paths and steps.
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
        self.lengths = KnownLengths(task, expected)
        self.sampling = sampling
        self.unbegun = 0
        self.begins_all_at_once = False
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.retry_s = 0.0
        self.timed_out = False
        self._portion = portion or NO_CAP
        self._problem = problem
        self._task = task
        self._backends = backends
        self._costs = costs
        self._tree = tree
        self._prompts = prompts
        self._clock = clock
        self._sample_options = {"spreads": spreads, "sampling_logprobs": sampling_logprobs}
        self._unscorable = unscorable
        self._interrupted: dict[tuple[object, ...], deque[Row]] = {}  # by `Ask.key`
        self._rollout_paths: list[Trajectory] = []  # the nodes of the last rollout
        self._scratch_children: dict[int, int] = {}  # by node: the number of its children in rollouts
        # by node that ends pieces of given sizes: the cap of a row, and the tokens of these pieces
        self._chains: dict[int, tuple[int | None, int]] = {}
        self._stops: dict[tuple[ThoughtMarks, str | tuple[str, ...]], StopCondition] = {}  # by marks and kind of end
        self._assumes = False  # whether an assumed length kept the rows of the last call from beginning
        self._took_assumption = False
        self._calls: list[Call] = []  # under way
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

    # What limits pay --------------------------------------------------------------------------------------------------

    @property
    def root_tokens(self) -> int:
        """The tokens of the "solve" prompt. The tokenizer counts them until the prompt is read."""
        if not self._tree.nodes:
            return count_tokens(self._backends["policy"], self._task.prompt(self._problem, "solve", ()))
        return self._tree.prompt_tokens[0]

    def sample_price(self, model: str = "policy") -> Price:
        """Return the price of a plain sample by a model."""
        return self._costs.price(self._backends[model], self.root_tokens)

    def sample_cost(self, model: str, unit: str) -> int:
        """Return the cost of a plain sample of expected length by a model, in whole units."""
        return self.sample_price(model).amount(unit, self.lengths.of("solve").expected_length())

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """See `Search.affordable_samples`."""
        price, account = self.sample_price(), self._costs.account
        solution_tokens = self.lengths.of("solve").expected_length()
        call_tokens = min(solution_tokens, self.lengths.step) if stepwise else solution_tokens
        num_calls = -(-solution_tokens // call_tokens)  # rounded up
        payable: list[int] = []  # by limit: the samples that the limit pays
        for unit in account.units:
            sample_cost = num_calls * price.amount(unit, call_tokens)
            if unit in PLACE_UNITS:  # a sample is one branch, and at most one request for each of its calls
                sample_cost += 1 if unit == "samples" else num_calls
            if sample_cost > 0:
                payable.append(account.available(unit) // sample_cost)
        if payable:
            return max(1, min(payable))
        return None if account.deadline is None else self._timed_width()

    def most_rows(self, live: int) -> int:
        """Return a number of the policy's rows that no limit pays, even if each row has one token.

        Args:
            live: The number of paths that go on. Their first children cost no sample.
        """
        account = self._costs.account
        price = Price(account.units, self._backends["policy"].rates)
        payable: list[int] = []  # by limit: the rows of one token that the limit pays
        for unit in account.units:
            amount_left = account.limit(unit) - account.spending(unit)
            row_cost = price.amount(unit, 1)
            if row_cost > 0:
                payable.append(amount_left // row_cost)
            if unit == "samples":
                payable.append(amount_left + live)
        return 1 + min(payable, default=NO_CAP)

    def _timed_width(self) -> int:
        """Return the number of rows of a call that a deadline may cut: as many as have ended, at least 4."""
        return max(_FIRST_WIDTH, self.lengths.ended)

    def room(self, model: str, t: Trajectory) -> int:
        """Return the tokens that a model's context leaves after a trajectory."""
        context = self._backends[model].context
        return NO_CAP if context is None else context - self._tree.path_tokens(t)

    # Requests ---------------------------------------------------------------------------------------------------------

    def ask(
        self, paths: Sequence[Trajectory], n: int | None, until: Until | Tokens | Share | Stops, **options: Any
    ) -> Ask:
        """Return the request of n rows after each path. Interrupted rows of an earlier request lead it.

        Args:
            paths: The paths that the rows continue.
            n: The number of rows after each path; None: as many as the budget pays.
            until: The end of each row.
            options: Further arguments of `Ask`.
        """
        if isinstance(until, Share):
            solution_tokens = self.lengths.of(paths[0].root_kind).expected_length()
            until = Tokens(max(1, round(until.part * solution_tokens)))
        ask = Ask(paths, n, until, **options)
        if not ask.redraws and any(t.parent is not None for t in paths):
            # rows that cost no sample begin first: paths go on before copies of them branch off
            first_rows = ask.take(len(paths))  # in later rounds every row costs a sample
            branches = self._branches(ask, [row.parent for row in first_rows])
            ask.give_back(
                [row for paid in (0, 1) for row, branch in zip(first_rows, branches, strict=True) if branch == paid]
            )
        if self._interrupted:
            self._take_interrupted(ask)
        return ask

    def _take_interrupted(self, ask: Ask) -> None:
        interrupted_rows = self._interrupted.pop(ask.key, deque[Row]())
        while interrupted_rows and ask.left > 0:
            row = interrupted_rows.popleft()
            row.place = ask.count
            ask.begun.append(row)
            ask.take(1)
            ask.count += 1
        if interrupted_rows:
            self._interrupted[ask.key] = interrupted_rows

    def ask_to_end(
        self, paths: Sequence[Trajectory], n: int | None, *, sampling: Sampling, model: str, order: Order, judges: bool
    ) -> Ask:
        """Return the request of whole solutions, in the order that a stop rule reads.

        In draw order failed rows are drawn anew.

        Args:
            paths: The paths that the solutions continue.
            n: The number of solutions of each path; None: as many as the budget pays.
            sampling: The sampling of all solutions.
            model: The role that writes.
            order: The order of the stop rule. On servers "finished" becomes "arrived".
            judges: Whether the stop rule needs the score of a solution before the next solution begins.
        """
        if order == "finished" and metadata_of(self._backends[model]).arrivals:
            order = "arrived"
        is_drawn = order == "drawn"
        width = 1 if judges and is_drawn else MOST_ROWS
        self.begins_all_at_once = self.begins_all_at_once or (n is None and not is_drawn)
        return self.ask(
            paths, n, END, sampling=sampling, model=model, width=width, redraws=is_drawn, order=order, completes=True
        )

    def interrupt(self, ask: Ask) -> None:
        """Keep the rows of a request that were not returned, for a later request of the same key.

        These rows come before the rows that already wait under this key.
        """
        if ask.begun:
            self._interrupted[ask.key] = ask.begun + self._interrupted.get(ask.key, deque())

    def discard(self, ask: Ask) -> list[Trajectory]:
        """Book the rows that wait in a request as cancelled, after a stop rule fired, and return their nodes."""
        written_rows = [row for row in ask.begun if row.path is not None]
        tokens = sum(row.written for row in written_rows)
        if tokens:
            self._costs.account.book(
                "cancel", ask.model, rows=len(written_rows), generated_tokens=-tokens, cancelled_tokens=tokens
            )
        ask.begun.clear()
        return [row.path for row in written_rows if row.path is not None]

    def leave_off(self, rows: deque[Row]) -> Iterator[Row]:
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

    def conclude(self) -> Iterator[Row]:
        """Give up every interrupted row; yield the rows that have text, in draw order."""
        for rows in self._interrupted.values():
            yield from self.leave_off(rows)
        self._interrupted.clear()

    # One call ---------------------------------------------------------------------------------------------------------

    async def write(self, ask: Ask, done: Done, *, answered: bool, completed: bool) -> None:
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
            await self._open_abroad(ask)
        rows, rest, wave, price, lease = await self._admit(ask, goes_on=goes_on, answered=answered, completed=completed)
        call: Call | None = None
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
                    await self._receive(
                        ask, call, len(rows), self._handing(lease, price, done) if ask.is_streamed else done
                    )
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

    async def _receive(self, ask: Ask, call: Call, num_rows: int, done: Done) -> None:
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

    def _handing(self, lease: Lease, price: Price, done: Done) -> Done:
        """Return a function that hands rows out, and lets their scores be paid while the call goes on.

        What the lease holds for a row's scores is then owed by its node.
        """

        async def hand_out(row: Row) -> None:
            path = row.path
            if path is not None and self._costs.keeps_scores and path.status != "failed":
                scores = price.scores(row.written)
                if lease.reduce(scores):
                    self._owe_scores([row], price)
                    self._handed.add(path.node)
            await done(row)

        return hand_out

    async def _end_full_rows(self, ask: Ask, done: Done) -> bool:
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

    async def _open_abroad(self, ask: Ask) -> None:
        """Let the model read the next path, if another model wrote the path.

        The reading is paid before a row is granted all that is left.
        """
        path = ask.next_path
        if path is not None and path.model != ask.model:
            self._tree.check_usable([path])
            await self._prompts.handles([path], ask.model)

    async def _admit(
        self, ask: Ask, *, goes_on: bool, answered: bool, completed: bool
    ) -> tuple[list[Row], list[Row], Wave, Price, Lease]:
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
        self, ask: Ask, *, goes_on: bool, answered: bool, completed: bool, is_patient: bool
    ) -> tuple[list[Row], list[Row], Wave, Price, Lease]:
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

    def _size(
        self, ask: Ask, rows: Sequence[Row], *, goes_on: bool, answered: bool, completed: bool, is_patient: bool
    ) -> tuple[Wave, Sequence[int], Price]:
        """Return the plan of a call, the samples that its rows cost, and the price of a row from its parent on."""
        until, lengths, backend = ask.until, self.lengths, self._backends[ask.model]
        parents = list({row.parent.node: row.parent for row in rows}.values())
        of_kind, longest = lengths.of(parents[0].root_kind), max([t.num_tokens for t in parents])
        price, call_price = self._prices(ask, rows, parents, goes_on=goes_on)
        cap, needed = self._expected(ask, rows, parents, of_kind, goes_on=goes_on)
        closing = 0
        if not (answered or until is END):
            if not (goes_on and ask.closing):  # all calls of a row have the same reserve: results depend on no cuts
                ask.closing = max(lengths.step, of_kind.expected_length(longest) - longest)
            closing = ask.closing
        left = self._allowance(rows if goes_on else (), call_price, needed, closing, is_patient=is_patient)
        if isinstance(until, Thought):
            if not ask.response:
                ask.response = call_price.tokens(closing, left, part=_RESPONSE)
            closing = ask.response
        branches = [0] * len(rows) if goes_on else self._branches(ask, [row.parent for row in rows])
        places: dict[str, Sequence[int]] = {"samples": branches}
        resumes = self._resumes(ask.model)
        if "requests" in left:
            places["requests"] = _requests(rows)
            if not (answered or ask.completes):  # one request brings a path to its end
                left = {**left, "requests": left["requests"] - 1}
            resumes = resumes and left["requests"] > sum(places["requests"])  # after the last request no row goes on
        # true only if the plan raises: then an assumed length may be the reason
        self._assumes = closing > 0 and not of_kind.ended
        programs, at_once = metadata_of(backend).programs, ask.order != "drawn"
        if programs:
            wave = plan_programs(
                call_price, places, len(rows), left, most=programs, cap=cap, wanted=ask.left, goes_on=goes_on,
                spent=self._row_costs(), at_once=at_once,
            )  # fmt: skip
        else:
            wave = plan_rows(
                call_price, places, len(rows), left, goal=_goal(ask), cap=cap, needed=needed,
                step=lengths.step if until is STEP else 1, goes_on=goes_on, begun=lengths.begun,
                is_completed=completed, resumes=resumes, longest=of_kind.longest, closing=closing,
                wanted=ask.left, at_once=at_once,
                portion=self._portion_of(ask, max([row.written for row in rows]) if goes_on else 0),
            )  # fmt: skip
        self._assumes = False
        return wave, branches, price

    def _expected(
        self, ask: Ask, rows: Sequence[Row], parents: Sequence[Trajectory], of_kind: Lengths, *, goes_on: bool
    ) -> tuple[int, int]:
        """Return the most tokens that a row of the next call may take, and those that it is expected to take.

        For open rows this is the largest expected remainder of a row; for new rows, that of the longest parent.
        """
        until = ask.until
        if goes_on:
            cap = max([self._remainder(ask, row) for row in rows])
            if isinstance(until, Tokens):
                return cap, max([until.count - row.written for row in rows])
            path_lengths = {row.end.num_tokens for row in rows}
            return cap, max(1, *[of_kind.expected_length(written) - written for written in path_lengths])
        cap = min(ask.sampling.max_tokens or NO_CAP, max([self.room(ask.model, t) for t in parents]))
        cap = min(cap, until.count) if isinstance(until, Tokens) else cap
        longest = max([t.num_tokens for t in parents])
        return cap, max(1, min(cap, of_kind.expected_length(longest) - longest))

    def _allowance(
        self, open_rows: Sequence[Row], price: Price, needed: int, closing: int, *, is_patient: bool
    ) -> Mapping[str, int]:
        """Return the amounts that a call is planned with: all that is left, but only an equal part of a shared limit.

        Rows that go on may use what is owed for their scores.

        Raises:
            Exhausted: A shared limit is exhausted for now.
        """
        account = self._costs.account
        left = account.all_available()
        if self._costs.owes:
            for row in open_rows:
                if row.path is not None:
                    self._costs.add_owed(row.path.node, left)
        shares = account.fair_shares() if account.is_shared else {}
        if not shares:
            return left
        for unit in shares if is_patient else ():
            if price.amount(unit, closing + needed) > left[unit]:
                raise Exhausted(unit)
        return limit_to_share(price, needed, closing, left, shares)

    def _prices(
        self, ask: Ask, rows: Sequence[Row], parents: Sequence[Trajectory], *, goes_on: bool
    ) -> tuple[Price, Price]:
        """Return the price of a row from its parent on, and the price of the row's next call."""
        backend, tree, costs = self._backends[ask.model], self._tree, self._costs
        prefix = max([tree.path_tokens(t) for t in parents])
        unread = max([tree.unread_tokens(t) for t in parents])
        computed = self._prompts.recomputation(parents, ask.model)
        prompts = {root: tree.prompt_tokens[root] for root in map(tree.root_of, parents)} if costs.reads else None
        price = costs.price(backend, prefix, computed, unread)
        if not goes_on:
            return price, price if prompts is None else costs.price(backend, prefix, computed, unread, prompts)
        computed = self._prompts.recomputation([row.end for row in rows], ask.model)
        written = max([row.written for row in rows])
        return price, costs.price(backend, prefix, computed, written + unread, prompts)

    def _upcoming(self, ask: Ask, *, completed: bool) -> list[Row]:
        """Take the rows of a request that may begin now, up to the first that fills the context."""
        if ask.until is STEP:
            require(self._backends[ask.model], ["steps"], "expanding step by step")
        rows = ask.take(self._width(ask, completed=completed))
        self._tree.check_usable([row.parent for row in rows])
        if self._backends[ask.model].context is not None:
            for place, row in enumerate(rows):
                if self._fills(ask, row.parent):
                    ask.give_back(rows[place:])  # a later call ends the rows that fill the context
                    return rows[:place]
        return rows

    def _width(self, ask: Ask, *, completed: bool) -> int:
        """Return the most rows that may begin now. The plan of a call may begin fewer."""
        account = self._costs.account
        width = min(ask.left, ask.width)
        if ask.most is None:
            if "samples" in account.units:
                width = min(width, max(1, account.available("samples")))
            elif "requests" in account.units and set(account.units).isdisjoint(LENGTH_UNITS):
                # nothing else bounds the rows of a request: as many as there would be with one row each
                width = min(width, max(1, account.available("requests")))
            if account.deadline is not None:
                width = min(width, self._timed_width())
        programs = metadata_of(self._backends[ask.model]).programs
        if programs and ask.order == "drawn" and not set(account.units).isdisjoint(LENGTH_UNITS):
            return int(min(width, programs))
        path = ask.next_path if width > ask.distinct else None
        if path is not None:
            width = min(width, max(ask.distinct, self._payable(ask, path, completed=completed)))
        return int(width)

    def _payable(self, ask: Ask, path: Trajectory, *, completed: bool) -> float:
        """Return the most rows after a path that `plan_rows` begins, where it begins more than one row."""
        left = self._costs.account.all_available()
        price = self._costs.price(self._backends[ask.model], self._tree.path_tokens(path))
        by_samples = left.get("samples", math.inf) + ask.distinct  # the first child of a path costs no sample
        if ask.until is not END:
            return min(by_samples, price.rows(1, left))
        cap = min(ask.sampling.max_tokens or NO_CAP, self.room(ask.model, path))
        if ask.order != "drawn":
            needed = self.lengths.of(path.root_kind).expected_length(path.num_tokens) - path.num_tokens
            return min(by_samples, price.rows(max(1, min(cap, needed)), left))
        doubled = 2 * self.lengths.begun if completed else 0
        return min(by_samples, max(doubled, price.rows(cap, left)))

    def _row_costs(self) -> dict[str, int]:
        """Return the mean cost of a row so far, by limit; the whole limit where rows began but none has ended."""
        account, num_begun = self._costs.account, self.lengths.begun
        if num_begun and not self.lengths.ended:
            return {unit: account.limit(unit) for unit in account.units}
        return {unit: account.spending(unit) // max(1, num_begun) for unit in account.units}

    def _portion_of(self, ask: Ask, written: int) -> int:
        """Return the most tokens of a row in one call, after `written` tokens.

        In finish order a call writes all rows to one length, piece by piece.
        """
        if "requests" in self._costs.account.units:  # each piece would cost a request
            return self._portion
        if ask.order == "finished" and self._backends[ask.model].caps.streams and self._resumes(ask.model):
            return min(self._portion, max(_PIECE, written // _PIECE_SHARE))
        return self._portion

    def _resumes(self, model: str) -> bool:
        """Whether a row that its grant cut can be continued."""
        backend = self._backends[model]
        return backend.caps.steps != "absent" and metadata_of(backend).resumes()

    def _branches(self, ask: Ask, parents: Sequence[Trajectory]) -> list[int]:
        """Return the cost of each row in samples, if all rows were started in this order."""
        return branches_of(parents, self._scratch_children_of if ask.scratch else self._tree.children_of)

    def _scratch_children_of(self, t: Trajectory) -> int:
        """Return the number of a path's children that count for the cost of a rollout's next row.

        A path outside of rollouts goes on beside the rollout, and so counts as one child.
        """
        return self._scratch_children.get(t.node, 0) if t.node in self._tree.scratch else 1

    def _draw_stream(self, ask: Ask, row: Row) -> None:
        """Take the next child index of a row's parent, and with the index the row's random stream."""
        parent = row.parent
        if ask.scratch:  # rollouts have their own indices
            index = self._scratch_children.get(parent.node, 0)
            self._scratch_children[parent.node] = index + 1
        else:
            index = self._tree.next_child(parent)
        row.stream = child_stream(parent.stream, parent.num_tokens, index)

    def _call(self, ask: Ask, rows: Sequence[Row], handles: Sequence[object], wave: Wave) -> Call:
        """Return the call for rows that have begun."""
        backend, account = self._backends[ask.model], self._costs.account
        of_kind = self.lengths.of(rows[0].end.root_kind)
        request = {
            **self._sample_options,
            "sampling": ask.sampling,
            "stop": self._stop_of(ask),
            "rereads": not any(unit in account.units and backend.rates.cost(unit, computed=1) for unit in PRICED_UNITS),
            "limited": not set(account.units).issubset(COUNT_UNITS),
            "expected": of_kind.longest or of_kind.expected_length(),
        }
        return Call(
            rows, handles, backend, clock=self._clock, seconds=account.seconds_left, lease=wave.lease,
            word=SCRATCH_WORD if ask.scratch else MAIN_WORD, request=request,
        )  # fmt: skip

    def _stop_of(self, ask: Ask) -> StopCondition:
        """Return the stop condition of a request's rows, besides their grants. The task never sees a thought."""
        marks, until = ask.paths[0].marks, ask.until
        end: str | tuple[str, ...] = "end"
        if isinstance(until, Stops):
            end = until.texts
        elif isinstance(until, Thought):
            end = "thought"
        elif until is STEP:
            end = "step"
        stop = self._stops.get((marks, end))
        if stop is None:
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
        return stop

    def _put_back(self, ask: Ask, rows: list[Row], price: Price, *, goes_on: bool, are_behind: bool = False) -> None:
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

    def _owe_scores(self, rows: Sequence[Row], price: Price) -> None:
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
                ):
                    continue
                tokens[path.node] = path.num_tokens - row.parent.num_tokens
                if reads:
                    root = self._tree.root_of(path)
                    prompts[root] = self._tree.prompt_tokens[root]
            self._costs.owe(price, tokens, prompts)

    # What becomes of a sample -----------------------------------------------------------------------------------------

    def _take(self, ask: Ask, row: Row, sample: Sample, *, timed_out: bool) -> None:
        """Add a call's sample of a row to the tree."""
        finish = sample.finish
        if sample.error or finish == "error":  # counted also where a retry of the backend succeeded
            self._count_failure(sample)
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

    def _learn(self, ask: Ask, row: Row, path: Trajectory) -> None:
        """Learn from the length of a row whose written path is `path`."""
        if not self.lengths.note(path, above=row.parent.node):
            return
        if isinstance(ask.until, Tokens):
            self._chains[path.node] = (ask.sampling.max_tokens, self._chain(ask, row) + row.written)
        if ask.until is STEP and row.over:
            self.lengths.note_step(row.written)

    def fills_context(self, ask: Ask) -> bool:
        """Whether the next row has no room in the context: a model with a longer context wrote its path."""
        if self._backends[ask.model].context is None:
            return False
        path = ask.next_path if ask.left > 0 else None
        return path is not None and self._fills(ask, path)

    def _fills(self, ask: Ask, path: Trajectory) -> bool:
        """Whether a path leaves no room in the context; False for a root, whose length was checked before."""
        context = self._backends[ask.model].context
        return context is not None and path.parent is not None and self._tree.path_tokens(path) >= context

    def _end_unwritten(self, ask: Ask) -> Row:
        """Begin the next row and end it without a token, because the context is full."""
        (row,) = ask.take(1)
        self._tree.check_usable([row.parent])
        ask.count += 1
        self._draw_stream(ask, row)
        empty_sample = Sample(text="", token_ids=(), logprobs=(), finish="cancelled", handle=None, num_tokens=0)
        self._take(ask, row, empty_sample, timed_out=False)
        return row

    def _note_failed(self, ask: Ask, row: Row) -> None:
        """Note a failed row, and, if the request redraws, let another row be drawn in its place."""
        if not ask.scratch:
            self._tree.count_failed_child(row.parent)
        if ask.redraws:
            ask.count -= 1
            ask.give_back([row])

    def _is_over(self, ask: Ask, row: Row, path: Trajectory, written_before: int, *, timed_out: bool) -> bool:
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
        is_capped = self._remainder(ask, row) <= 0 or written_now == 0 or row.short >= _SHORT
        is_late = timed_out and until is END
        if is_capped or is_late or path.handle is None or not self._resumes(ask.model):
            self._give_up(row)
        return row.over or timed_out

    def _remainder(self, ask: Ask, row: Row) -> int:
        """Return the tokens that a row may still take.

        Consecutive pieces of given sizes count as one row for the cap.
        """
        written = row.written
        remainder = min(self._cap_remainder(ask, row), row.limit - written)
        if isinstance(ask.until, Tokens):
            remainder = min(remainder, ask.until.count - written)
        return min(remainder, self.room(ask.model, row.end))

    def _cap_remainder(self, ask: Ask, row: Row) -> int:
        """Return the tokens that the cap of a row still allows."""
        return (ask.sampling.max_tokens or NO_CAP) - self._chain(ask, row) - row.written

    def _chain(self, ask: Ask, row: Row) -> int:
        """Return the tokens of the pieces before a row that were written under the same cap."""
        if not self._chains:
            return 0
        cap, tokens = self._chains.get(row.parent.node, (None, 0))
        return tokens if cap == ask.sampling.max_tokens and ask.until is not STEP else 0

    def _give_up(self, row: Row, status: Status = "truncated") -> None:
        """End a row at its present length."""
        row.over = True
        if row.path is not None and row.path.status == "active":
            row.path = self._tree.replace(dataclasses.replace(row.path, status=status))

    def _grow(self, ask: Ask, row: Row, sample: Sample) -> Trajectory:
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

    def _count_failure(self, sample: Sample) -> None:
        """Count a failure by its kind, unless the time was over."""
        if sample.error != OUT_OF_TIME:
            kind, _colon, cause = (sample.error or "error").partition(": ")
            self.failures[kind] += 1
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
        return dropped_paths
