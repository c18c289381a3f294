"""How rows become trajectories: how many begin, how far each is written, and the nodes they leave in the tree.

*Row law.* The text of row j behind a path is a function of the problem, the seed, the sampling and j. Budgets, widths and lengths decide
only how many rows begin and how far each is written. A row that its cap cuts stays open and is continued where it was: same stream,
absolute positions, same node, no further sample. It is handed on once it has ended or was given up.

Sizes are learnt (`tts.search.lengths`). The first row is granted all that is left; a later wave begins at most twice the rows begun so
far, and only rows that what is left pays to their expected end. Open rows go on before others begin.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain, islice, repeat

from tts.backends.base import Extension, Sample, Sampling, StopCondition
from tts.backends.metadata import metadata_of
from tts.backends.protocol import BackendProtocol, require
from tts.budget.meter import Exhausted, Grant, RowCost
from tts.errors import ConfigError, EngineError, shown
from tts.randomness import MAIN_WORD, SCRATCH_WORD, child_stream
from tts.search.accounting import Accounting
from tts.search.ends import END, STEP, Share, Tokens, Until
from tts.search.lengths import Lengths
from tts.search.prompts import Prompts
from tts.search.row_batch import OUT_OF_TIME, RowBatch, RowBatchSpec, RowTask, branches_of
from tts.search.tree import Tree
from tts.tasks.base import TaskProtocol
from tts.types import Status, Trajectory

_FIRST_WIDTH = 4  # rows to begin with where a time is given
MOST_ROWS = 1024  # of a wave of `complete`: a budget for millions is spent in waves that can be stopped
_UNBOUNDED_WIDTH = 64  # rows of a wave where no limit counts rows or tokens
_NO_CAP = 1 << 20  # of a row on a backend without a context limit
_PATIENCE = 4  # expected lengths that a row may take without being given up
_SHARE = 0.5  # of what was left when a row began, that it may take in any case
_TRIES = 3  # failures of continuations that fail a row
_STATUS: Mapping[str, Status] = {
    "eos": "finished", "answer": "finished", "stop": "active", "length": "active", "cancelled": "truncated", "error": "failed",
}  # fmt: skip

# Appends a text behind trajectories on a model, for so many samples.
Extend = Callable[[Sequence[Trajectory], str, str, int], Awaitable[list[Extension]]]


@dataclass(slots=True, eq=False)
class RowState:
    """One row, written in one call or in several.

    Args:
        place: its place in the request. parent: what it continues. path: what is written of it; None: nothing yet.
        limit: tokens of its own that it may take. failures: of continuations. over: whether it has ended, failed or was given up.
    """

    place: int
    parent: Trajectory
    path: Trajectory | None = None
    limit: int = _NO_CAP
    failures: int = 0
    over: bool = False

    @property
    def written(self) -> int:
        """Tokens of its own."""
        return 0 if self.path is None else self.path.num_tokens - self.parent.num_tokens


@dataclass(slots=True, eq=False)
class RowQueue:
    """The rows of one request, in draw order.

    Args:
        parents: what the rows continue, each as often as rows are wanted. most: rows wanted; None: as many as the budget pays.
        until: where they end. sampling, model: of all. scratch: whether they are of a rollout. width: most rows of a wave.
        redraw: whether a row that failed is drawn anew.

    Attributes:
        begun: rows that were begun and not handed on. count: rows that were begun, those that failed left out.
    """

    parents: Iterator[Trajectory]
    most: int | None
    until: Until | Tokens
    sampling: Sampling
    model: str
    scratch: bool = False
    width: float = math.inf
    redraw: bool = False
    begun: deque[RowState] = field(default_factory=deque[RowState])
    count: int = 0
    _next: int = 0
    _back: deque[RowState] = field(default_factory=deque[RowState])

    @property
    def left(self) -> float:
        """Rows that are still to begin."""
        return math.inf if self.most is None else self.most - self.count

    @property
    def is_done(self) -> bool:
        """Whether every row that was wanted has been handed on."""
        return not self.begun and self.left <= 0

    def key(self, parents: Sequence[Trajectory]) -> tuple[object, ...]:
        """Return what requests have in common of which one may continue the open rows of the other."""
        return (*(t.node for t in parents), self.until, self.sampling, self.model)

    def peek(self) -> Trajectory | None:
        """Return the parent of the next row to begin."""
        if not self._back:
            self.give_back(self.take(1))
        return self._back[0].parent if self._back else None

    def take(self, count: int) -> list[RowState]:
        """Return the next rows to begin."""
        rows = [self._back.popleft() for _ in range(min(count, len(self._back)))]
        for parent in islice(self.parents, count - len(rows)):
            rows.append(RowState(self._next, parent))
            self._next += 1
        return rows

    def give_back(self, rows: Sequence[RowState]) -> None:
        """Put rows back that did not begin."""
        self._back.extendleft(RowState(row.place, row.parent) for row in reversed(rows))


@dataclass(frozen=True, slots=True)
class _GrantedCall:
    """One call that may be made: its rows, what each costs in samples, and the bound of a row from its parent on."""

    call: RowBatch
    rows: list[RowState]
    branches: Sequence[int]
    grant: Grant
    cost: RowCost


class RowRunner:
    """Writes rows behind trajectories of one search.

    Args:
        spreads: whether `Sample.spreads` are wanted. unscorable: nodes for whose scores nothing is to be held.
        expected: tokens of a solution that the caller expects; None: the task's constant.
        portion: most tokens of a row in one call; None: no such cap. Results do not depend on it.

    Attributes:
        failures: failed rows by kind. causes: of the first of each. timed_out: whether the time cut a row short.
    """

    def __init__(  # noqa: PLR0913 - the parts of a search
        self,
        *,
        task: TaskProtocol,
        backends: Mapping[str, BackendProtocol],
        sampling: Sampling,
        accounting: Accounting,
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
        self._sampling = sampling
        self._accounting = accounting
        self._tree = tree
        self._prompts = prompts
        self._clock = clock
        self._spreads = spreads
        self._unscorable = unscorable
        self._scale = 1.0 if expected is None else expected / max(1, task.typical_tokens("solve"))
        self._portion = portion or _NO_CAP
        self._lengths: dict[str, Lengths] = {}
        self._steps = [0, 0]  # tokens and number of the steps that have ended
        self._interrupted: dict[tuple[object, ...], deque[RowState]] = {}
        self._forced: set[int] = set()  # nodes of forced text, and what was written behind them: no measure of lengths
        self._scratch: list[Trajectory] = []
        self._scratch_children: dict[int, int] = {}
        self._to_step = StopCondition(task.step_stop, at_step=True, finished=task.is_finished)
        self._to_end = StopCondition(task.step_stop, at_step=False, finished=task.is_finished)
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.timed_out = False

    # Sizes ----------------------------------------------------------------------------------------------------------------------

    def lengths(self, kind: str) -> Lengths:
        """Return what is known of the lengths of paths behind a kind of prompt."""
        if (known := self._lengths.get(kind)) is None:
            typical, solve = self._task.typical_tokens, self._lengths.get("solve")
            known = self._lengths[kind] = Lengths(
                round(typical(kind) * self._scale) if solve is None else round(solve.expected() * typical(kind) / max(1, typical("solve")))
            )
        return known

    @property
    def _begun(self) -> int:
        """Paths that were begun."""
        return sum(map(len, self._lengths.values()))

    @property
    def expected_step(self) -> int:
        """The mean tokens of a step; before any has ended, the task's constant."""
        tokens, number = self._steps
        return max(1, round(tokens / number) if number else round(self._task.typical_tokens("step") * self._scale))

    def affordable_samples(self, root_tokens: int, *, stepwise: bool = False) -> int | None:
        """See `Search.affordable_samples`."""
        cost = self._accounting.row_cost(self._backends["policy"], root_tokens)
        whole = self.lengths("solve").expected()
        step = min(whole, self.expected_step) if stepwise else whole
        rows = -(-whole // step)
        meter = self._accounting.meter
        each = {unit: 1 if unit == "samples" else rows * cost.of(unit, step) for unit in meter.limits}
        units = [meter.left(unit) // amount for unit, amount in each.items() if amount > 0]
        if units:
            return max(1, min(units))
        return None if meter.deadline is None else self._doubled()

    def _doubled(self) -> int:
        """Return the rows of a wave towards a deadline, which cuts it: as many again as there were."""
        return max(_FIRST_WIDTH, sum(known.ended for known in self._lengths.values()))

    def room(self, model: str, t: Trajectory) -> int:
        """Return the tokens that a model's context leaves behind a trajectory."""
        backend = self._backends[model]
        return _NO_CAP if backend.context is None else backend.context - self._tree.path_tokens(t)

    # One call -------------------------------------------------------------------------------------------------------------------

    async def wave(self, queue: RowQueue, *, answered: bool, completed: bool) -> AsyncGenerator[RowState, None]:
        """Make one call for rows of a queue, and yield those that are over, in draw order: with each, all before it are over.

        Open rows are continued; where there are none, others begin.

        Args:
            answered: whether there is an answer; if not, enough is held back to bring the best open path to its end.
            completed: whether there is a candidate; if not, the first row to the end is granted all that it may need.

        Raises:
            Exhausted: the budget pays neither. CapabilityError: the backend cannot stop at a step.
        """
        granted = self._granted(queue, answered=answered, completed=completed)
        call, rows = granted.call, granted.rows
        try:
            handles = await self._prompts.handles([row.path or row.parent for row in rows], queue.model)
        except BaseException:
            self._accounting.meter.settle(granted.grant, {})
            self._undo(queue, rows, granted.cost)
            raise
        begin = zip(rows, handles, granted.branches, strict=False)
        tasks = [self._task_of(queue, row, handle, branch) for row, handle, branch in begin]
        if rows[0].path is None:
            queue.begun.extend(rows)
            queue.count += len(rows)
        try:
            async with aclosing(call.samples(tasks, granted.grant)) as samples:
                read = zip(rows, tasks, strict=True)
                async for sample in samples:
                    row, task = next(read)
                    self._take(queue, row, task, sample, timed_out=call.timed_out)
                    for over in self._over(queue):
                        yield over
        finally:
            self.timed_out = self.timed_out or call.timed_out
            self._reserve(rows, granted.cost)

    def _over(self, queue: RowQueue) -> Iterator[RowState]:
        """Take the rows at the head of a queue that are over."""
        while queue.begun and queue.begun[0].over:
            yield queue.begun.popleft()

    def _granted(self, queue: RowQueue, *, answered: bool, completed: bool) -> _GrantedCall:
        """Choose the rows of the next call: those that are open, else new ones; and get their grant."""
        meter = self._accounting.meter
        if open_rows := [row for row in queue.begun if not row.over]:
            rows = open_rows
            for row in rows:
                if row.path is not None:
                    self._accounting.free(row.path.node)
        else:
            rows = queue.take(self._width(queue))
            self.check_usable([row.parent for row in rows])
        parents = [row.parent for row in rows]
        backend = self._backends[queue.model]
        longest = max(map(self._tree.path_tokens, parents))
        cost = self._accounting.row_cost(backend, longest, self._prompts.recomputed(parents, queue.model))
        prompts = {root: self._tree.prompt_tokens[root] for root in {self._tree.root_of(t) for t in parents}}
        bound = self._accounting.before_prompts(cost, prompts)
        whole = False
        try:
            if open_rows:
                written = max(row.written for row in rows)
                bound = self._accounting.before_prompts(self._continued(queue, rows, longest, written), prompts)
                cap, typical = max(self._room(queue, row) for row in rows), self._remaining(queue, rows)
                branches = [0] * len(rows)
            else:
                cap = min(queue.sampling.max_tokens or _NO_CAP, max(self.room(queue.model, t) for t in parents))
                branches = branches_of(parents, self._scratch_children_of if queue.scratch else self._tree.children_of)
                payable = meter.payable_samples(branches)
                queue.give_back(rows[payable:])
                rows, cap, typical, whole = self._sized(queue, rows[:payable], bound, cap, completed=completed)
                branches = branches[: len(rows)]
            call = RowBatch(self._spec(queue), self._accounting, bound, self._clock)
            held = 0 if answered or queue.until is END else self._to_end_of(parents)
            grant = meter.rows(bound, branches, cap=min(cap, self._portion), typical=typical, hold=held, whole=whole)
        except BaseException:
            self._undo(queue, rows, cost)
            raise
        started = rows[: len(grant.caps)]
        self._undo(queue, rows[len(grant.caps) :], cost)
        return _GrantedCall(call, started, branches, grant, cost)

    def _width(self, queue: RowQueue) -> int:
        """Return the most rows that may begin now, whatever their lengths."""
        meter = self._accounting.meter
        most = min(queue.left, queue.width)
        if queue.most is None and "samples" in meter.limits:
            most = min(most, max(1, meter.left("samples")))
        if queue.most is None and (meter.deadline is not None or math.isinf(most)):
            most = min(most, _UNBOUNDED_WIDTH if meter.deadline is None else self._doubled())
        if queue.until is END and most > 2 * self._begun and (parent := queue.peek()) is not None:  # as `_sized` has it
            cost = self._accounting.row_cost(self._backends[queue.model], self._tree.path_tokens(parent))
            cap = min(queue.sampling.max_tokens or _NO_CAP, self.room(queue.model, parent))
            most = min(most, max(1, 2 * self._begun, meter.payable(cost, cap)))
        return int(most)

    def _sized(
        self, queue: RowQueue, rows: list[RowState], cost: RowCost, cap: int, *, completed: bool
    ) -> tuple[list[RowState], int, int, bool]:
        """Return the rows that begin now, their cap, the tokens that each must be sure of, and whether one has all that is left."""
        meter, lengths, until = self._accounting.meter, self.lengths(rows[0].parent.root_kind), queue.until
        if isinstance(until, Tokens):
            cap = min(cap, until.count)
            return rows, cap, cap, False
        written = max(row.parent.num_tokens for row in rows)
        expected = max(1, min(cap, lengths.expected(written) - written))
        if until is STEP:
            require(self._backends[queue.model], ["steps"], "expanding step by step")
            count = len(rows) if queue.scratch else int(min(len(rows), max(1, meter.payable(cost, expected))))
            queue.give_back(rows[count:])
            return rows[:count], cap, min(cap, self.expected_step), False
        surely = meter.payable(cost, cap)  # rows that can be paid, however long they are
        if math.isinf(meter.payable(cost, _NO_CAP)) or surely >= len(rows):
            return rows, cap, cap, False
        if not (self._begun and completed):
            count = max(1, int(surely))
            queue.give_back(rows[count:])
            return rows[:count], cap, cap, count == 1
        return self._sized_by_lengths(queue, rows, cost, cap, expected)

    def _sized_by_lengths(
        self, queue: RowQueue, rows: list[RowState], cost: RowCost, cap: int, expected: int
    ) -> tuple[list[RowState], int, int, bool]:
        """Return what `_sized` does, once lengths were learnt.

        Raises:
            Exhausted: what is left does not pay one row to its expected end.
        """
        meter, lengths = self._accounting.meter, self.lengths(rows[0].parent.root_kind)
        if meter.payable(cost, expected) < 1:
            raise Exhausted(meter.scarcest(cost, expected))
        if self._resumes(queue.model):
            typical = expected
        else:  # granted whole, or what is left where that cannot be paid any more
            whole = min(cap, max(_PATIENCE * expected, 2 * lengths.longest))
            typical, cap = (whole, whole) if meter.payable(cost, whole) >= 1 else (expected, cap)
        count = int(min(len(rows), max(meter.payable(cost, cap), min(2 * self._begun, meter.payable(cost, typical)))))
        if count < queue.left + len(rows):  # more may follow, so that none may take all
            limit = max(_PATIENCE * expected, meter.share(cost, _SHARE, cap))
            for row in rows[:count]:
                row.limit = limit
        queue.give_back(rows[count:])
        return rows[:count], cap, typical, False

    def _remaining(self, queue: RowQueue, rows: Sequence[RowState]) -> int:
        """Return the tokens that open rows still need: the most that is expected of one, given what it has written."""
        if isinstance(queue.until, Tokens):
            return max(queue.until.count - row.written for row in rows)
        tokens = {row.path.num_tokens for row in rows if row.path is not None}
        lengths = self.lengths(rows[0].parent.root_kind)
        return max(1, max(lengths.expected(written) - written for written in tokens))

    def _to_end_of(self, parents: Sequence[Trajectory]) -> int:
        """Return the tokens that bring the longest of some paths to its end."""
        written = max(t.num_tokens for t in parents)
        return max(self.expected_step, self.lengths(parents[0].root_kind).expected(written) - written)

    def _room(self, queue: RowQueue, row: RowState) -> int:
        """Return the tokens that a row may still take."""
        cap = min(queue.sampling.max_tokens or _NO_CAP, row.limit)
        if isinstance(queue.until, Tokens):
            cap = min(cap, queue.until.count)
        return min(cap - row.written, self.room(queue.model, row.path or row.parent))

    def _resumes(self, model: str) -> bool:
        """Whether a row that its cap cut can be continued."""
        backend = self._backends[model]
        return backend.caps.steps != "absent" and metadata_of(backend).resumes()

    def _continued(self, queue: RowQueue, rows: Sequence[RowState], longest: int, written: int) -> RowCost:
        """Return the bound of continuing rows: what is computed again, and the verification of all that they will have written."""
        computed = self._prompts.recomputed([row.path or row.parent for row in rows], queue.model)
        return self._accounting.row_cost(self._backends[queue.model], longest, computed, written)

    def _spec(self, queue: RowQueue) -> RowBatchSpec:
        return RowBatchSpec(
            kind="rollout" if queue.scratch else "expand",
            model=queue.model,
            backend=self._backends[queue.model],
            sampling=queue.sampling,
            stop=self._to_step if queue.until is STEP else self._to_end,
            word=SCRATCH_WORD if queue.scratch else MAIN_WORD,
            spreads=self._spreads,
        )

    def _task_of(self, queue: RowQueue, row: RowState, handle: object, branch: int) -> RowTask:
        """Return the task of a row; one that begins takes a child index, hence a stream."""
        parent = row.parent
        if row.path is not None:
            return RowTask(row.path, handle, row.path.stream, branch, self._room(queue, row))
        if queue.scratch:
            index = self._scratch_children.get(parent.node, 0)
            self._scratch_children[parent.node] = index + 1
        else:
            index = self._tree.next_child(parent)
        return RowTask(parent, handle, child_stream(parent.stream, parent.num_tokens, index), branch, self._room(queue, row))

    def _undo(self, queue: RowQueue, rows: Sequence[RowState], cost: RowCost) -> None:
        """Return rows that did not start, or did not go on, to what they were."""
        queue.give_back([row for row in rows if row.path is None])
        self._reserve([row for row in rows if row.path is not None], cost)

    def _reserve(self, rows: Sequence[RowState], cost: RowCost) -> None:
        """Hold what scoring these rows may cost, so far as they were written."""
        written = [row.path for row in rows if row.path is not None and row.path.status != "failed"]
        to_score = [t for t in written if t.node not in self._unscorable]
        for root in sorted({self._tree.root_of(t) for t in to_score}):
            self._accounting.reserve_prompt(root, self._tree.prompt_tokens[root])
        for t in to_score:
            self._accounting.reserve(t.node, cost, self._tree.own_tokens(t))

    # What becomes of a sample ---------------------------------------------------------------------------------------------------

    def _take(self, queue: RowQueue, row: RowState, task: RowTask, sample: Sample, *, timed_out: bool) -> None:
        """Add what a call wrote of a row to the tree."""
        if sample.error or sample.finish == "error":  # also where another try of the backend's made the row good
            self._count_failure(sample)
        if sample.finish == "error" and row.path is not None:  # the row stays where it was
            row.failures += 1
            if row.failures == _TRIES or sample.error == OUT_OF_TIME:
                self.give_up(row, "truncated" if sample.error == OUT_OF_TIME else "failed")
            return
        if sample.finish not in _STATUS:
            raise EngineError(
                f"the backend {self._backends[queue.model].name!r} ended a row with the finish {shown(sample.finish)}, "
                f"but must end it with one of {', '.join(_STATUS)}"
            )
        before = row.written
        path = row.path = self._written(row, task, sample, queue)
        row.over = sample.finish != "length" or self._is_over(queue, row, before, timed_out=timed_out)
        if path.status == "active" and self.room(queue.model, path) <= 0:
            row.path, row.over = self._replaced(dataclasses.replace(path, status="truncated")), True  # the context is full
        if path.status == "failed":
            if not queue.scratch:
                self._tree.count_failed_child(row.parent)
            if queue.redraw:
                queue.count -= 1
                queue.give_back([row])
        elif not queue.scratch:
            self._measure(queue, row)

    def _is_over(self, queue: RowQueue, row: RowState, before: int, *, timed_out: bool) -> bool:
        """Whether a row that met its cap ends there; it is truncated, but where it was to end so."""
        if isinstance(queue.until, Tokens) and row.written >= queue.until.count:
            return True
        path = row.path
        capped = self._room(queue, row) <= 0 or row.written == before
        late = timed_out and queue.until is END
        if path is None or path.handle is None or capped or late or not self._resumes(queue.model):
            self.give_up(row)
        return row.over or timed_out

    def _measure(self, queue: RowQueue, row: RowState) -> None:
        """Learn from the length of a row."""
        path = row.path
        if path is None:
            return
        if row.parent.node in self._forced:
            self._forced.add(path.node)
            return
        lengths = self.lengths(path.root_kind)
        lengths.forget(row.parent.node)
        lengths.note(path.node, path.num_tokens, ended=path.status == "finished")
        if queue.until is STEP and row.over:
            self._steps[0] += row.written
            self._steps[1] += 1

    def give_up(self, row: RowState, status: Status = "truncated") -> None:
        """End a row where it is."""
        row.over = True
        if row.path is not None and row.path.status == "active":
            row.path = self._replaced(dataclasses.replace(row.path, status=status))

    def _replaced(self, t: Trajectory) -> Trajectory:
        """Put a trajectory in the place of the one of its node."""
        self._tree.replace(t)
        return t

    def _written(self, row: RowState, task: RowTask, sample: Sample, queue: RowQueue) -> Trajectory:
        """Return the node of a row with what a sample adds to it."""
        kept = sample.num_tokens - sample.lost_tokens
        status, tree = _STATUS[sample.finish], self._tree
        if (so_far := row.path) is not None:
            path = self._replaced(
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
            parent.num_tokens + kept, parent.depth + 1, parent.root_kind, queue.model, sample.handle, sample.spreads,
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
        until: Until | Tokens | Share,
        *,
        sampling: Sampling | None,
        model: str,
        scratch: bool = False,
        width: float = math.inf,
        redraw: bool = False,
    ) -> RowQueue:
        """Return the queue of `most` rows behind each parent, first children of all before second ones; open rows of before lead it."""
        if isinstance(until, Share):
            until = Tokens(max(1, round(until.part * self.lengths(parents[0].root_kind).expected())))
        turns = chain.from_iterable(repeat(parents) if most is None and parents else repeat(parents, most or 0))
        rows = None if most is None else most * len(parents)
        made = RowQueue(turns, rows, until, sampling or self._sampling, model, scratch, width, redraw)
        for place, row in enumerate(self._interrupted.pop(made.key(parents), ())):
            row.place = place
            made.begun.append(row)
            made.take(1)
            made.count += 1
        return made

    def interrupt(self, queue: RowQueue, parents: Sequence[Trajectory]) -> None:
        """Keep the rows of a queue that are not over: a later request of the same kind continues them."""
        if queue.begun:
            self._interrupted[queue.key(parents)] = queue.begun

    def discard(self, queue: RowQueue) -> list[Trajectory]:
        """Book the rows that wait in a queue as cancelled, and return their nodes: a stop rule fired on earlier ones."""
        waiting = [row for row in queue.begun if row.path is not None]
        if tokens := sum(row.written for row in waiting):
            self._accounting.cancel(queue.model, len(waiting), tokens)
        queue.begun.clear()
        return [row.path for row in waiting if row.path is not None]

    def leave_off(self, queue: RowQueue) -> Iterator[RowState]:
        """Give up the open rows of a queue; return those that were written, in draw order."""
        for row in queue.begun:
            if not row.over:
                self.give_up(row)
        while queue.begun:
            if (row := queue.begun.popleft()).path is not None:
                yield row

    @property
    def open_paths(self) -> list[Trajectory]:
        """The rows that wait for a request that continues them, or for others before them."""
        return [row.path for begun in self._interrupted.values() for row in begun if row.path is not None]

    def conclude(self) -> Iterator[RowState]:
        """Give up every interrupted row, in draw order."""
        for begun in self._interrupted.values():
            yield from self.leave_off(RowQueue(iter(()), 0, END, self._sampling, "", begun=begun))
        self._interrupted.clear()

    async def forced(self, ts: Sequence[Trajectory], text: str, model: str, extend: Extend) -> list[Trajectory]:
        """Return one child of each trajectory with forced text behind it."""
        tree = self._tree
        self.check_usable(ts)
        branches = branches_of(ts, tree.children_of)
        made = await extend(ts, text, model, sum(branches))
        children: list[Trajectory] = []
        for parent, one in zip(ts, made, strict=True):
            size = len(one.token_ids)
            full = self.room(model, parent) <= size
            child = Trajectory(
                parent, text, one.token_ids, (), "truncated" if full else "active",
                child_stream(parent.stream, parent.num_tokens, tree.next_child(parent)), len(tree.nodes),
                parent.num_tokens + size, parent.depth + 1, parent.root_kind, model, one.handle,
            )  # fmt: skip
            tree.add(child, 0)
            self._forced.add(child.node)
            children.append(child)
        return children

    def check_usable(self, ts: Sequence[Trajectory]) -> None:
        """Raise ConfigError for a trajectory that cannot be continued."""
        for t in ts:
            if t.status != "active":
                raise ConfigError(f"node {t.node} is {t.status}, but only an active trajectory can be continued")
            if t.node in self._tree.pruned:
                raise ConfigError(f"node {t.node} was pruned by keep(), but only a live trajectory can be continued")

    def drop_scratch(self) -> list[Trajectory]:
        """Return the nodes of the last rollout, which are to be dropped."""
        dropped, self._scratch = self._scratch, []
        return dropped

    def _scratch_children_of(self, t: Trajectory) -> int:
        """Return a rollout's children as its cost counts them: the first row of one is a branch beside the path's own."""
        return self._scratch_children.get(t.node, 0) if t.node in self._tree.scratch else 1
