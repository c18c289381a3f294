"""What a search knows of the lengths of its rows, and what a wave of them is planned for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tts.backends.base import Backend
from tts.backends.capabilities import require
from tts.backends.metadata import metadata_of
from tts.budget.budget import RowCost
from tts.errors import ConfigError
from tts.search.costs import Costs
from tts.search.ends import END, STEP, Tokens
from tts.search.lengths import Lengths
from tts.search.row_queue import QueuedRow, RowQueue
from tts.search.tree import Tree
from tts.search.waves import NO_CAP, Goal, WaveRequest, payable_rows
from tts.tasks.base import Task
from tts.types import Problem, Trajectory

_FIRST_WIDTH = 4  # rows to begin with where a time is given
_UNBOUNDED_WIDTH = 64  # rows of a wave where no limit counts rows or tokens


class RowSizes:
    """Sizes of one search's rows.

    Args:
        expected: tokens of a solution that the caller expects; None: the task's constant.
    """

    def __init__(
        self, problem: Problem, task: Task, backends: Mapping[str, Backend], costs: Costs, tree: Tree, expected: int | None
    ) -> None:
        self._problem = problem
        self._task = task
        self._backends = backends
        self._costs = costs
        self._tree = tree
        self._scale = 1.0 if expected is None else expected / max(1, task.typical_tokens("solve"))
        self._lengths: dict[str, Lengths] = {}
        self._assumed: set[str] = set()  # kinds whose prior is the task's constant, for no solution had ended
        self._steps = [0, 0]  # tokens and number of the steps that have ended
        self._chains: dict[int, tuple[int | None, int]] = {}  # of nodes that end pieces of given sizes: the cap of a row, and their tokens
        self._forced: set[int] = set()  # nodes of forced text, and what was written after them: no measure of lengths

    # What is known --------------------------------------------------------------------------------------------------------------

    def lengths(self, kind: str) -> Lengths:
        """Return what is known of the lengths of paths after a kind of prompt."""
        if (known := self._lengths.get(kind)) is None:
            known = self._lengths[kind] = Lengths(self._prior(kind))
            if kind != "solve" and not self._lengths["solve"].ended:
                self._assumed.add(kind)
        elif kind in self._assumed and self._lengths["solve"].ended:
            self._assumed.remove(kind)
            known.assume(self._prior(kind))
        return known

    def _prior(self, kind: str) -> int:
        """Return the tokens that a path is expected to take before one of its kind was written: by the solutions, else by the task."""
        if kind == "solve":
            return round(self._typical(kind) * self._scale)
        return round(self.lengths("solve").expected() * self._typical(kind) / max(1, self._typical("solve")))

    def _typical(self, kind: str) -> int:
        """Return the task's constant for a kind of prompt: that of "solve" for a kind of the caller's own, which the task has not."""
        try:
            return self._task.typical_tokens(kind)
        except ConfigError:
            return self._task.typical_tokens("solve")

    @property
    def _begun(self) -> int:
        """Paths that were begun."""
        return sum(map(len, self._lengths.values()))

    @property
    def expected_step(self) -> int:
        """The mean tokens of a step; before any has ended, the task's constant."""
        tokens, number = self._steps
        return max(1, round(tokens / number) if number else round(self._task.typical_tokens("step") * self._scale))

    @property
    def root_tokens(self) -> int:
        """The tokens of the "solve" prompt. They are counted by the tokenizer until the prompt is read."""
        if not self._tree.nodes:
            return self._backends["policy"].count(self._task.prompt(self._problem, "solve", ()))
        return self._tree.prompt_tokens[0]

    def sample_bound(self, model: str = "policy") -> RowCost:
        """Return the bound of a plain sample by a model, by its tokens."""
        return self._costs.row_cost(self._backends[model], self.root_tokens)

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """See `Search.affordable_samples`."""
        cost = self.sample_bound()
        whole = self.lengths("solve").expected()
        step = min(whole, self.expected_step) if stepwise else whole
        rows = -(-whole // step)
        account = self._costs.account
        each = {unit: 1 if unit == "samples" else rows * cost.of(unit, step) for unit in account.units}
        units = [account.available(unit) // amount for unit, amount in each.items() if amount > 0]
        if units:
            return max(1, min(units))
        return None if account.deadline is None else self._doubled()

    def most_rows(self, live: int) -> int:
        """Return a number of rows of the policy that no limit pays, were each of one token.

        Args:
            live: The paths that go on, whose first children cost no sample.
        """
        account, rates = self._costs.account, RowCost(self._backends["policy"].rates)
        left = {unit: account.limit(unit) - account.paid(unit) for unit in account.units}
        paid = [amount // each for unit, amount in left.items() if (each := rates.of(unit, 1)) > 0]
        if "samples" in left:
            paid.append(left["samples"] + live)
        return 1 + min(paid, default=NO_CAP)

    def sample_cost(self, model: str, unit: str) -> int:
        """Return what a plain sample of expected length by a model costs, in whole units."""
        return self.sample_bound(model).of(unit, self.lengths("solve").expected())

    def _doubled(self) -> int:
        """Return the rows of a wave towards a deadline, which cuts it: as many again as there were."""
        return max(_FIRST_WIDTH, sum(known.ended for known in self._lengths.values()))

    def room(self, model: str, t: Trajectory) -> int:
        """Return the tokens that a model's context leaves after a trajectory."""
        backend = self._backends[model]
        return NO_CAP if backend.context is None else backend.context - self._tree.path_tokens(t)

    def learn(self, queue: RowQueue, row: QueuedRow, path: Trajectory) -> None:
        """Learn from the length of a row, of which `path` is written."""
        if row.parent.node in self._forced:
            self._forced.add(path.node)
            return
        lengths = self.lengths(path.root_kind)
        lengths.forget(row.parent.node)
        lengths.note(path.node, path.num_tokens, ended=path.status == "finished")
        if isinstance(queue.until, Tokens):
            self._chains[path.node] = (queue.sampling.max_tokens, self._chained(queue, row) + row.written)
        if queue.until is STEP and row.over:
            self._steps[0] += row.written
            self._steps[1] += 1

    def exclude(self, node: int) -> None:
        """Take what is written after a node, which is forced text, for no measure of lengths."""
        self._forced.add(node)

    # What may begin, and go on --------------------------------------------------------------------------------------------------

    def width(self, queue: RowQueue) -> int:
        """Return the most rows that may begin now, whatever their lengths."""
        account = self._costs.account
        most = min(queue.left, queue.width)
        if queue.most is None and "samples" in account.units:
            most = min(most, max(1, account.available("samples")))
        if queue.most is None and (account.deadline is not None or math.isinf(most)):
            most = min(most, _UNBOUNDED_WIDTH if account.deadline is None else self._doubled())
        if queue.until is END and most > 2 * self._begun and (parent := queue.peek()) is not None:  # as `sized` has it
            cost = self._costs.row_cost(self._backends[queue.model], self._tree.path_tokens(parent))
            cap = min(queue.sampling.max_tokens or NO_CAP, self.room(queue.model, parent))
            most = min(most, max(1, 2 * self._begun, payable_rows(cost, cap, {unit: account.available(unit) for unit in account.units})))
        return int(most)

    def wave_request(
        self,
        queue: RowQueue,
        rows: Sequence[QueuedRow],
        branches: Sequence[int],
        bound: RowCost,
        *,
        held: int,
        portion: int,
        completed: bool,
    ) -> WaveRequest:
        """Return what the next wave is planned for.

        Args:
            queue: The request.
            rows: The rows that may begin, or the open ones that go on.
            branches: The samples that each costs.
            bound: The bound of a row.
            held: The tokens that must stay unspent.
            portion: The most tokens of a row in one call.
            completed: Whether there is a candidate.
        """
        lengths, until = self.lengths(rows[0].parent.root_kind), queue.until
        goes_on = bool(queue.open_rows)
        cap, needed = self.cap(queue, rows), self.needed(queue, rows)
        if until is STEP and not goes_on:
            require(self._backends[queue.model], ["steps"], "expanding step by step")
        goal = Goal.TOKENS if isinstance(until, Tokens) else Goal.SOLUTION
        if until is STEP:
            goal = Goal.ROLLOUT if queue.scratch else Goal.STEP
        return WaveRequest(
            goal=goal, branches=branches, cost=bound, cap=cap, goes_on=goes_on, wanted=queue.left, needed=needed, step=self.expected_step,
            longest=lengths.longest, begun=self._begun, is_completed=completed, resumes=self.resumes(queue.model), held=held,
            portion=portion,
        )  # fmt: skip

    def cap(self, queue: RowQueue, rows: Sequence[QueuedRow]) -> int:
        """Return the most tokens that a row of the next wave may take."""
        if queue.open_rows:
            return max(self.left_of(queue, row) for row in rows)
        cap = min(queue.sampling.max_tokens or NO_CAP, max(self.room(queue.model, row.parent) for row in rows))
        return min(cap, queue.until.count) if isinstance(queue.until, Tokens) else cap

    def needed(self, queue: RowQueue, rows: Sequence[QueuedRow]) -> int:
        """Return the tokens that a row of the next wave is expected to take."""
        if queue.open_rows:
            return self.remaining(queue, rows)
        written = max(row.parent.num_tokens for row in rows)
        return max(1, min(self.cap(queue, rows), self.lengths(rows[0].parent.root_kind).expected(written) - written))

    def remaining(self, queue: RowQueue, rows: Sequence[QueuedRow]) -> int:
        """Return the tokens that open rows still need: the most that is expected of one, given what it has written."""
        if isinstance(queue.until, Tokens):
            return max(queue.until.count - row.written for row in rows)
        tokens = {row.path.num_tokens for row in rows if row.path is not None}
        lengths = self.lengths(rows[0].parent.root_kind)
        return max(1, *(lengths.expected(written) - written for written in tokens))

    def to_end_of(self, parents: Sequence[Trajectory]) -> int:
        """Return the tokens that bring the longest of some paths to its end."""
        written = max(t.num_tokens for t in parents)
        return max(self.expected_step, self.lengths(parents[0].root_kind).expected(written) - written)

    def left_of(self, queue: RowQueue, row: QueuedRow) -> int:
        """Return the tokens that a row may still take. Pieces of given sizes that follow each other are one row for the cap of a row."""
        capped = min(self.uncapped(queue, row), row.limit - row.written)
        if isinstance(queue.until, Tokens):
            capped = min(capped, queue.until.count - row.written)
        return min(capped, self.room(queue.model, row.path or row.parent))

    def uncapped(self, queue: RowQueue, row: QueuedRow) -> int:
        """Return the tokens that the cap of a row leaves it."""
        return (queue.sampling.max_tokens or NO_CAP) - self._chained(queue, row) - row.written

    def _chained(self, queue: RowQueue, row: QueuedRow) -> int:
        """Return the tokens of the pieces, written under the same cap, that a row goes on with."""
        if not self._chains:
            return 0
        cap, tokens = self._chains.get(row.parent.node, (None, 0))
        return tokens if cap == queue.sampling.max_tokens and queue.until is not STEP else 0

    def resumes(self, model: str) -> bool:
        """Whether a row that its cap cut can be continued."""
        backend = self._backends[model]
        return backend.caps.steps != "absent" and metadata_of(backend).resumes()
