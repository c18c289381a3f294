"""Waves: how many rows of a request begin or go on in the next call, and how far each may be written.

`plan_rows` and its helpers are pure functions of values: the rows, the known lengths, and the amount left of each
limit. `RowSizes` has these values for the rows of one search. `RowRunner` takes a lease of the wave's reserve, and
sends the wave.

Until there is a candidate, one row gets all that is left, or as many rows begin as can be paid whatever their length. A
later wave begins at most twice the rows begun so far. The budget must pay each of its rows to the expected end. While
more rows may follow, a row is given up once it is longer than four expected lengths and has taken half of the amount
that was left when it began.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from tts.backends.base import Backend
from tts.backends.capabilities import count_tokens, require
from tts.backends.metadata import metadata_of
from tts.budget.account import Exhausted
from tts.budget.budget import Rates, RowCost
from tts.budget.ledger import Amounts
from tts.errors import ConfigError
from tts.search.costs import Costs
from tts.search.ends import END, STEP, Thought, Tokens
from tts.search.lengths import NO_CAP, Lengths
from tts.search.prompts import Prompts
from tts.search.queue import NextRows, QueuedRow, RowQueue
from tts.search.tree import Tree
from tts.tasks.base import Task
from tts.types import Problem, Trajectory

_PATIENCE = 4  # expected lengths that a row may take before it is given up
_SHARE = 0.5  # the part of the amount left at its beginning that a row may take in any case
_RESPONSE = 0.25  # the part of the amount left before a thought that is reserved for the response
_FIRST_WIDTH = 4  # rows of the first wave where time is limited
_PIECE = 16  # the fewest tokens of a piece of rows in finish order
_PIECE_SHARE = 16  # a longer piece of these rows is this part of their length
_LEASED = ("flops", "usd")  # units whose spend depends on all that a program reads and writes, not on its tokens alone
_SHARED = ("tokens", "generated_tokens", *_LEASED)  # units that are divided among programs
_UNBOUNDED_WIDTH = 64  # rows of a wave where no limit counts rows or tokens


class Goal(Enum):
    """The goal up to which the rows of a wave are written."""

    TOKENS = "a number of tokens"
    STEP = "the end of a step"
    ROLLOUT = "the end of a step, for a score alone"
    SOLUTION = "the end of a solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRequest:
    """The request that a wave is planned for.

    Args:
        goal: The goal of the rows.
        branches: The samples that each row costs, in draw order; 0 for rows that go on.
        cost: The bound of one row by the tokens that it may generate.
        cap: The most tokens that a row may take.
        goes_on: Whether the rows are open already; otherwise they begin.
        wanted: The number of rows of the request that are still to begin, with the rows of this wave.
        needed: The tokens that a row is expected to take until its goal.
        step: The expected tokens of a step.
        longest: The tokens of the longest solution so far.
        begun: The solutions that were begun so far.
        is_completed: Whether there is a candidate.
        resumes: Whether a row that its cap cuts can be continued.
        held: The tokens that must stay unspent, to bring an open path to its end.
        portion: The most tokens of a row in one call.
        at_once: Whether no row may begin after this wave.
        programs: The most rows at once, where rows are programs with leases; 0: rows are written token by token.
        spent: The mean cost of a row so far, by limited unit, where rows are programs.
    """

    goal: Goal
    branches: Sequence[int]
    cost: RowCost
    cap: int
    goes_on: bool = False
    wanted: float = math.inf
    needed: int
    step: int = 1
    longest: int = 0
    begun: int = 0
    is_completed: bool = False
    resumes: bool = True
    held: int = 0
    portion: int = NO_CAP
    at_once: bool = False
    programs: int = 0
    spent: Amounts = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Wave:
    """The rows and tokens that the next call may write.

    Args:
        rows: The number of rows, counted from the first of the request.
        cap: The tokens that each row may generate.
        reserve: The amounts that are reserved for the call, by limited unit.
        limit: The tokens after which an unfinished row is given up; None: no row is given up.
        why: The reason for the number of rows.
        lease: The flops and dollars that each row may spend, where rows are programs.
    """

    rows: int
    cap: int
    reserve: Mapping[str, int]
    limit: int | None
    why: str
    lease: Amounts = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a wave before the amounts left are counted.

    Args:
        rows: The number of rows.
        cap: The most tokens of each row.
        typical: The tokens that must be payable for each row.
        why: The reason for the number of rows.
        is_whole: Whether a single row gets all that is left.
        limit: The tokens after which an unfinished row is given up; None: no row is given up.
    """

    rows: int
    cap: int
    typical: int
    why: str
    is_whole: bool = False
    limit: int | None = None


def plan_rows(request: WaveRequest, left: Amounts) -> Wave:
    """Return the next wave of a request.

    Args:
        request: The rows, and the known lengths.
        left: The amount of each limit that is neither spent nor held, in whole units.

    Raises:
        Exhausted: The amounts left do not pay a single row.
    """
    payable = payable_branches(request.branches, left.get("samples"))
    if request.programs:
        return _plan_programs(request, payable, left)
    size = _size(request, payable, left)
    cost, cap = request.cost, min(size.cap, request.portion)
    free = dict(left)  # the amounts less what bringing an open path to its end costs
    if request.held:
        for unit in free:
            free[unit] -= cost.bare().bound(unit, request.held)
    pays_scores = True
    if size.is_whole:  # the first row is written even where its score cannot be paid
        rows, cap = _fit(cost.bare(), rows=1, cap=cap, typical=1, left=free)
        pays_scores = all(cost.bound(unit, cap) <= free[unit] for unit in free)
    else:
        rows, cap = _fit(cost, rows=size.rows, cap=cap, typical=size.typical, left=free)
    reserved_cost = cost if pays_scores else cost.bare()
    reserve = {unit: rows * amount for unit, amount in reserved_cost.bounds(left, cap).items()}
    if "samples" in reserve:
        reserve["samples"] = sum(request.branches[:rows])
    return Wave(rows, cap, reserve, size.limit, size.why)


def _plan_programs(request: WaveRequest, payable: int, left: Amounts) -> Wave:
    """Return a wave of programs (rows that spend a lease). The remaining rows get equal parts of the amounts left.

    Where no limit is shared, all rows begin at once. Where the number of rows is open, the mean cost of a row so far
    limits how many begin. At most half of the part of a row is kept for the score of the row.

    Args:
        request: The rows.
        payable: The number of rows that the limit on samples pays.
        left: The amount left of each limit.

    Raises:
        Exhausted: The amounts left pay no row.
    """
    begins_all = request.at_once or left.keys().isdisjoint(_SHARED)
    count = payable if begins_all else min(payable, request.programs)
    wanted = min(request.wanted, left.get("samples", math.inf))
    is_open = math.isinf(wanted)
    sharers = count  # the number of rows that share the amounts left
    if not is_open:
        sharers = count + int(wanted) if request.goes_on else max(count, int(wanted))
    for unit, amount in left.items():
        row_need = request.cost.bound(unit, 1)
        if is_open:
            row_need = max(row_need, request.spent.get(unit, 0))
        if row_need and unit != "samples":
            sharers = min(sharers, amount // row_need)
        if sharers < 1:
            raise Exhausted(unit)
    parts = {unit: amount // sharers for unit, amount in left.items() if unit != "samples"}
    scoring_cost = replace(request.cost, rates=Rates(), computed=0, reused=0)
    cap = request.cap
    for unit, part in parts.items():
        if unit in _LEASED:
            cap = _largest(scoring_cost, unit, cap, part // 2)
        else:
            cap = _largest(request.cost, unit, cap, part)
        if cap < 1:
            raise Exhausted(unit)
    count = min(count, sharers)
    reserve = {unit: count * part for unit, part in parts.items()}
    if "samples" in left:
        reserve["samples"] = sum(request.branches[:count])
    lease = {unit: part - request.cost.reserve(unit, cap) for unit, part in parts.items() if unit in _LEASED}
    return Wave(count, cap, reserve, limit=None, why="programs share what is left", lease=lease)


def limit_to_share(cost: RowCost, needed: int, held: int, left: Amounts, shares: Amounts) -> dict[str, int]:
    """Return the amounts that a search may plan with where several searches share limits.

    Of a shared limit this is the search's share, or more where a long row needs more. Other limits stay whole.

    Args:
        cost: The bound of one row by the tokens that it may generate.
        needed: The tokens that the row is expected to take.
        held: The tokens that must stay unspent.
        left: The amount of each limit that is neither spent nor held, in whole units.
        shares: The equal part of one search, by shared limit.
    """
    allowance = dict(left)
    for unit in shares:
        if unit in allowance:
            long_row = 1 if unit == "samples" else cost.bound(unit, held + _PATIENCE * needed)
            allowance[unit] = min(allowance[unit], max(shares[unit], long_row))
    return allowance


def _size(request: WaveRequest, rows: int, left: Amounts) -> _Size:
    """Return the size of a wave of rows that are no programs; `rows`: as many as the limit on samples pays."""
    cost, cap = request.cost, request.cap
    if request.at_once:
        count = int(min(rows, max(1, payable_rows(cost, request.needed, left))))
        return _Size(count, cap, typical=1, why="rows of finish order that can be paid to their expected end")
    if request.goes_on:
        return _Size(rows, cap, typical=request.needed, why="open rows go on")
    if request.goal is Goal.TOKENS:
        return _Size(rows, cap, typical=cap, why="rows of a number of tokens")
    if request.goal is Goal.ROLLOUT:
        return _Size(rows, cap, typical=min(cap, request.step), why="rollouts")
    if request.goal is Goal.STEP:
        count = int(min(rows, max(1, payable_rows(cost, request.needed, left))))
        return _Size(count, cap, typical=min(cap, request.step), why="rows that can be paid to the end of a solution")
    rows_at_cap = payable_rows(cost, cap, left)
    if rows_at_cap >= rows or math.isinf(payable_rows(cost, NO_CAP, left)):
        return _Size(rows, cap, typical=cap, why="all can be paid, however long they are")
    if not (request.begun and request.is_completed):
        count = max(1, int(rows_at_cap))
        why = "rows that can be paid, however long they are"
        return _Size(count, cap, typical=cap, why=why, is_whole=count == 1)
    return _size_by_lengths(request, rows, rows_at_cap, left)


def _size_by_lengths(request: WaveRequest, rows: int, rows_at_cap: float, left: Amounts) -> _Size:
    """Return the size of a wave once lengths were learnt.

    Args:
        request: The request.
        rows: The number of rows that the limit on samples pays.
        rows_at_cap: The number of rows that the other limits pay to the cap.
        left: The amount left of each limit.

    Raises:
        Exhausted: The amounts left do not pay one row to its expected end.
    """
    cost, cap, expected = request.cost, request.cap, request.needed
    rows_at_expected = payable_rows(cost, expected, left)
    if rows_at_expected < 1:
        raise Exhausted(scarcest_unit(cost, expected, left))
    typical = expected
    if not request.resumes:  # a cut row could not go on: grant a whole row in one call if the limits pay it
        whole_row = min(cap, max(_PATIENCE * expected, 2 * request.longest))
        rows_at_whole = payable_rows(cost, whole_row, left)
        if rows_at_whole >= 1:
            typical = cap = whole_row
            rows_at_expected = rows_at_cap = rows_at_whole
    count = int(min(rows, max(rows_at_cap, min(2 * request.begun, rows_at_expected))))
    limit = None
    if count < request.wanted:  # more rows may follow, so that none of these rows may take all that is left
        limit = max(_PATIENCE * expected, payable_tokens(cost, _SHARE, cap, left))
    return _Size(count, cap, typical, "rows that can be paid to their expected end", limit=limit)


def branches_of(parents: Sequence[Trajectory], children_of: Callable[[Trajectory], int]) -> list[int]:
    """Return the cost of each row in samples, if all rows were started in this order.

    A row after a root costs 1. The first child of any other path costs 0, and each further child costs 1.
    """
    child_counts: dict[int, int] = {}
    costs: list[int] = []
    for parent in parents:
        num_children = child_counts.get(parent.node)
        if num_children is None:
            num_children = children_of(parent)
        child_counts[parent.node] = num_children + 1
        is_root = parent.parent is None
        costs.append(1 if is_root or num_children > 0 else 0)
    return costs


# What limits pay ------------------------------------------------------------------------------------------------------


def payable_branches(branches: Sequence[int], left: int | None) -> int:
    """Return the number of rows, from the first, whose costs in samples can be paid.

    `left` is None where samples have no limit.

    Raises:
        Exhausted: Not one row can be paid.
    """
    if left is None:
        return len(branches)
    count = bisect.bisect_right(list(itertools.accumulate(branches)), left)
    if branches and not count:
        raise Exhausted("samples")
    return count


def payable_rows(cost: RowCost, tokens: int, left: Amounts) -> float:
    """Return the number of rows of `tokens` tokens that the limits other than samples pay.

    The number is infinity where there is no such limit.
    """
    row_bounds = cost.bounds(left, tokens)
    return min([left[unit] // amount for unit, amount in row_bounds.items() if amount > 0], default=math.inf)


def scarcest_unit(cost: RowCost, tokens: int, left: Amounts) -> str:
    """Return the limit that pays the fewest rows of `tokens` tokens."""
    row_bounds = {unit: amount for unit, amount in cost.bounds(left, tokens).items() if amount > 0}
    return min(row_bounds, key=lambda unit: left[unit] / row_bounds[unit])


def payable_tokens(cost: RowCost, part: float, cap: int, left: Amounts) -> int:
    """Return the most tokens, up to `cap`, of a row that costs at most a part of each amount left."""
    for unit, amount in left.items():
        cap = _largest(cost, unit, cap, int(amount * part)) if unit != "samples" else cap
    return cap


def _fit(cost: RowCost, rows: int, cap: int, typical: int, left: Amounts) -> tuple[int, int]:
    """Return the number of rows that the amounts left pay, at least one, and the cap of each row.

    Args:
        cost: The bound of one row by the tokens that it may generate.
        rows: The most rows.
        cap: The most tokens of each row.
        typical: The tokens that must be payable for each row.
        left: The amount left of each limit.

    Raises:
        Exhausted: Not one row can be paid.
    """
    typical = max(1, min(cap, typical))
    count = rows
    for unit, row_bound in cost.bounds(left, typical).items():
        if row_bound > 0:
            count = min(count, max(1, left[unit] // row_bound))
    for unit, amount in left.items():
        cap = _largest(cost, unit, cap, amount // count)
        if cap < 1:
            raise Exhausted(unit)
    return count, cap


def _largest(cost: RowCost, unit: str, cap: int, amount: int) -> int:
    """Return the most tokens, up to `cap`, of a row that costs at most `amount`; 0 where one token costs more.

    The cost never decreases with the tokens, so that bisection finds them.
    """
    low, high = 0, cap
    if unit in ("tokens", "generated_tokens"):
        high = min(cap, amount)
    if cost.bound(unit, high) <= amount:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if cost.bound(unit, middle) <= amount:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class PlannedWave:
    """The rows of the next call, each with its cap.

    Args:
        rows: The rows, in draw order.
        rest: The rows that the plan was given and the call leaves out.
        goes_on: Whether the rows are open already; otherwise they begin.
        reserve: The amounts that are reserved for the call, by limited unit.
        cost: The bound of a row from its parent on.
        lease: The flops and dollars that each row may spend, where rows are programs.
    """

    rows: list[QueuedRow]
    rest: list[QueuedRow]
    goes_on: bool
    reserve: Mapping[str, int]
    cost: RowCost
    lease: Amounts


class RowSizes:
    """Sizes of one search's rows: their known lengths, and the tokens that the next call may write.

    Args:
        problem: The problem.
        task: The problem's task.
        backends: The models by role.
        costs: The cost bounds of rows, and the account that pays.
        tree: The nodes that were written.
        prompts: The prompts that were read.
        expected: The tokens of a solution that the caller expects; None: the task's constant.
        portion: The most tokens of a row in one call. Results do not depend on it.

    Attributes:
        assumes: Whether an assumed length kept the rows of the last call from beginning.
    """

    def __init__(
        self,
        problem: Problem,
        task: Task,
        backends: Mapping[str, Backend],
        costs: Costs,
        tree: Tree,
        prompts: Prompts,
        expected: int | None,
        portion: int,
    ) -> None:
        self.assumes = False
        self.portion = portion
        self._problem = problem
        self._task = task
        self._backends = backends
        self._costs = costs
        self._tree = tree
        self._prompts = prompts
        self._scratch_children: dict[int, int] = {}  # by node: the number of its children in rollouts
        self._scale = 1.0 if expected is None else expected / max(1, task.typical_tokens("solve"))
        self._lengths: dict[str, Lengths] = {}
        self._assumed: set[str] = set()  # kinds whose prior is the task's constant, because no solution had ended
        self._step_tokens = 0  # of all steps that have ended
        self._num_steps = 0  # steps that have ended
        # by node that ends pieces of given sizes: the cap of a row, and the tokens of these pieces
        self._chains: dict[int, tuple[int | None, int]] = {}
        self._forced: set[int] = set()  # nodes of forced text and their descendants: lengths are not learnt from them

    # What is known ----------------------------------------------------------------------------------------------------

    def lengths(self, kind: str) -> Lengths:
        """Return the known lengths of paths after a kind of prompt."""
        if kind not in self._lengths:
            self._lengths[kind] = Lengths(self._prior(kind))
            if kind != "solve" and not self._lengths["solve"].ended:
                self._assumed.add(kind)
        elif kind in self._assumed and self._lengths["solve"].ended:
            self._assumed.remove(kind)
            self._lengths[kind].assume(self._prior(kind))
        return self._lengths[kind]

    def _prior(self, kind: str) -> int:
        """Return the expected tokens of a path before any path after this kind of prompt was written.

        For "solve" this is the caller's number, else the task's constant. Other kinds scale the expected length of a
        solution by the ratio of the task's constants.
        """
        if kind == "solve":
            return round(self._typical(kind) * self._scale)
        solution_constant = max(1, self._typical("solve"))
        return round(self.lengths("solve").expected_length() * self._typical(kind) / solution_constant)

    def _typical(self, kind: str) -> int:
        """Return the task's constant for a kind of prompt; the constant of "solve" for a kind that the task lacks."""
        try:
            return self._task.typical_tokens(kind)
        except ConfigError:
            return self._task.typical_tokens("solve")

    @property
    def _begun(self) -> int:
        """The number of paths that were begun."""
        return sum(map(len, self._lengths.values()))

    @cached_property
    def _first_step(self) -> int:
        return max(1, round(self._task.typical_tokens("step") * self._scale))

    @property
    def expected_step(self) -> int:
        """The mean tokens of a step; before the first step has ended, the task's constant."""
        return max(1, round(self._step_tokens / self._num_steps)) if self._num_steps else self._first_step

    @property
    def root_tokens(self) -> int:
        """The tokens of the "solve" prompt. The tokenizer counts them until the prompt is read."""
        if not self._tree.nodes:
            return count_tokens(self._backends["policy"], self._task.prompt(self._problem, "solve", ()))
        return self._tree.prompt_tokens[0]

    def sample_bound(self, model: str = "policy") -> RowCost:
        """Return the cost bound of a plain sample by a model, as a function of tokens."""
        return self._costs.row_cost(self._backends[model], self.root_tokens)

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """See `Search.affordable_samples`."""
        cost = self.sample_bound()
        solution_tokens = self.lengths("solve").expected_length()
        call_tokens = min(solution_tokens, self.expected_step) if stepwise else solution_tokens
        num_calls = -(-solution_tokens // call_tokens)  # rounded up
        account = self._costs.account
        payable: list[int] = []  # by limit: the samples that the limit pays
        for unit in account.units:
            sample_cost = 1 if unit == "samples" else num_calls * cost.bound(unit, call_tokens)
            if sample_cost > 0:
                payable.append(account.available(unit) // sample_cost)
        if payable:
            return max(1, min(payable))
        return None if account.deadline is None else self._deadline_width()

    def most_rows(self, live: int) -> int:
        """Return a number of the policy's rows that no limit pays, even if each row has one token.

        Args:
            live: The number of paths that go on. Their first children cost no sample.
        """
        account, cost = self._costs.account, RowCost(self._backends["policy"].rates)
        payable: list[int] = []  # by limit: the rows of one token that the limit pays
        for unit in account.units:
            amount_left = account.limit(unit) - account.spending(unit)
            row_cost = cost.bound(unit, 1)
            if row_cost > 0:
                payable.append(amount_left // row_cost)
            if unit == "samples":
                payable.append(amount_left + live)
        return 1 + min(payable, default=NO_CAP)

    def sample_cost(self, model: str, unit: str) -> int:
        """Return the cost of a plain sample of expected length by a model, in whole units."""
        return self.sample_bound(model).bound(unit, self.lengths("solve").expected_length())

    def _deadline_width(self) -> int:
        """Return the number of rows of a wave that a deadline may cut: as many as have ended, at least 4."""
        return max(_FIRST_WIDTH, sum(lengths.ended for lengths in self._lengths.values()))

    def room(self, model: str, t: Trajectory) -> int:
        """Return the tokens that a model's context leaves after a trajectory."""
        backend = self._backends[model]
        return NO_CAP if backend.context is None else backend.context - self._tree.path_tokens(t)

    def learn(self, queue: RowQueue, row: QueuedRow, path: Trajectory) -> None:
        """Learn from the length of a row whose written path is `path`."""
        parent_node = row.parent.node
        if parent_node in self._forced:
            self._forced.add(path.node)
            return
        self.lengths(path.root_kind).note(
            path.node, path.num_tokens, ended=path.status == "finished", above=parent_node
        )
        if isinstance(queue.until, Tokens):
            self._chains[path.node] = (queue.sampling.max_tokens, self._chain(queue, row) + row.written)
        if queue.until is STEP and row.over:
            self._step_tokens += row.written
            self._num_steps += 1

    def exclude(self, node: int) -> None:
        """Learn no lengths from the paths after a node of forced text."""
        self._forced.add(node)

    # What may begin, and go on ----------------------------------------------------------------------------------------

    def plan(
        self, queue: RowQueue, going_on: list[QueuedRow], *, answered: bool, completed: bool, is_patient: bool
    ) -> PlannedWave:
        """Choose the rows of the next call, the open rows or else new rows, and plan how far they are written.

        Args:
            queue: The request.
            going_on: The open rows; if there are none, new rows of the request begin.
            answered: Whether there is an answer. If not, the call keeps enough unspent to end the best open path.
            completed: Whether there is a candidate. If not, the first row to the end is granted all that it may need.
            is_patient: Whether to raise Exhausted where a shared limit does not pay a row to its expected end.

        Raises:
            Exhausted: The budget does not pay the rows.
        """
        self._costs.account.check_time()
        rows = going_on or self._upcoming(queue, completed=completed)
        upcoming = NextRows.of(rows, goes_on=bool(going_on))
        try:
            return self._plan(queue, upcoming, answered=answered, completed=completed, is_patient=is_patient)
        except BaseException:
            if not going_on:
                queue.give_back(rows)  # a later call may begin the new rows
            raise

    def _plan(
        self, queue: RowQueue, upcoming: NextRows, *, answered: bool, completed: bool, is_patient: bool
    ) -> PlannedWave:
        """Plan how many of the upcoming rows the next call writes, and how far; see `plan`."""
        rows, goes_on = upcoming.rows, upcoming.goes_on
        cost, bound = self._bounds(queue, upcoming)
        held = 0 if answered or queue.until is END else self._closing_reserve(queue, upcoming)
        left = self._wave_allowance(queue, upcoming, bound, held, is_patient=is_patient)
        if isinstance(queue.until, Thought):
            if not queue.response:
                queue.response = payable_tokens(bound, _RESPONSE, held, left)
            held = queue.response
        # true only if `plan_rows` raises: then an assumed length may be the reason
        self.assumes = held > 0 and not self.lengths(upcoming.kind).ended
        branches = [0] * len(rows) if goes_on else self.branches(queue, [row.parent for row in rows])
        wave = plan_rows(self._request(queue, upcoming, branches, bound, held=held, completed=completed), left)
        self.assumes = False
        if goes_on:
            self._costs.free([row.path.node for row in rows if row.path is not None])
        chosen_rows, rooms = rows[: wave.rows], dict[int, int]()  # rooms: by parent
        for row, branch in zip(chosen_rows, branches, strict=False):
            if wave.limit is not None:
                row.limit = wave.limit
            if goes_on or row.parent.node not in rooms:  # new rows after the same path have the same room
                rooms[row.parent.node] = self.row_remainder(queue, row)
            row.branch = branch
            row.room = rooms[row.parent.node]
            row.cap = min(wave.cap, row.room)
            assert row.cap >= 1, f"a row was granted {row.cap} tokens"
        return PlannedWave(
            chosen_rows, rest=rows[wave.rows :], goes_on=goes_on, reserve=wave.reserve, cost=cost, lease=wave.lease
        )

    def _upcoming(self, queue: RowQueue, *, completed: bool) -> list[QueuedRow]:
        """Take the rows of a queue that may begin now, up to the first that fills the context."""
        rows = queue.take(self.width(queue, completed=completed))
        self._tree.check_usable([row.parent for row in rows])
        for place, row in enumerate(rows):
            if self.fills(queue, row.parent):
                queue.give_back(rows[place:])  # a later wave ends the rows that fill the context
                return rows[:place]
        return rows

    def fills(self, queue: RowQueue, parent: Trajectory) -> bool:
        """Whether a path leaves no room in the context; False for a root, whose length was checked before."""
        return parent.parent is not None and self.room(queue.model, parent) < 1

    def _bounds(self, queue: RowQueue, upcoming: NextRows) -> tuple[RowCost, RowCost]:
        """Return the cost bound of a row from its parent on, and the bound of the row's next call."""
        backend, tree, parents = self._backends[queue.model], self._tree, upcoming.parents
        prefix = max(map(tree.path_tokens, parents))
        unread = max(map(tree.unread_tokens, parents))
        computed = self._prompts.recomputation(parents, queue.model)
        cost = call_cost = self._costs.row_cost(backend, prefix, computed, unread)
        if upcoming.goes_on:
            computed = self._prompts.recomputation([row.end for row in upcoming.rows], queue.model)
            written = max(row.written for row in upcoming.rows)
            call_cost = self._costs.row_cost(backend, prefix, computed, written + unread)
        prompts = {root: tree.prompt_tokens[root] for root in map(tree.root_of, parents)}
        return cost, self._costs.add_prompt_reading(call_cost, prompts)

    def _closing_reserve(self, queue: RowQueue, upcoming: NextRows) -> int:
        """Return the tokens that are reserved to bring an open path to its end.

        All calls of a row have the same reserve, so that results do not depend on cuts.
        """
        if not (upcoming.goes_on and queue.held):
            written = max(t.num_tokens for t in upcoming.parents)
            queue.held = max(self.expected_step, self.lengths(upcoming.kind).expected_length(written) - written)
        return queue.held

    def _wave_allowance(
        self, queue: RowQueue, upcoming: NextRows, bound: RowCost, held: int, *, is_patient: bool
    ) -> Amounts:
        """Return the amounts that a wave is planned with: all that is left, but only an equal part of a shared limit.

        Args:
            queue: The request.
            upcoming: The rows of the wave. Rows that go on may use what is kept for their scores.
            bound: The bound of a row.
            held: The tokens that must stay unspent.
            is_patient: As in `plan`.

        Raises:
            Exhausted: A shared limit is exhausted for now.
        """
        account = self._costs.account
        left = account.all_available()
        if upcoming.goes_on:
            for row in upcoming.rows:
                if row.path is not None:
                    self._costs.add_owed(row.path.node, left)
        shares = account.fair_shares()
        if not shares:
            return left
        needed = self.next_row_tokens(queue, upcoming)
        if is_patient:
            for unit in shares:
                if bound.bound(unit, held + needed) > left[unit]:
                    raise Exhausted(unit)
        return limit_to_share(bound, needed, held, left, shares)

    def branches(self, queue: RowQueue, parents: Sequence[Trajectory]) -> list[int]:
        """Return the cost of each row in samples, if all rows were started in this order."""
        return branches_of(parents, self._scratch_children_of if queue.scratch else self._tree.children_of)

    def next_child(self, queue: RowQueue, parent: Trajectory) -> int:
        """Return the index of the next child of a path, and count this child. Rollouts have their own indices."""
        if not queue.scratch:
            return self._tree.next_child(parent)
        index = self._scratch_children.get(parent.node, 0)
        self._scratch_children[parent.node] = index + 1
        return index

    def _scratch_children_of(self, t: Trajectory) -> int:
        """Return the number of a path's children that count for the cost of a rollout's next row.

        A path outside of rollouts goes on beside the rollout, and so counts as one child.
        """
        return self._scratch_children.get(t.node, 0) if t.node in self._tree.scratch else 1

    def width(self, queue: RowQueue, *, completed: bool) -> int:
        """Return the most rows that may begin now. The plan of a wave may begin fewer.

        Args:
            queue: The request.
            completed: Whether there is a candidate.
        """
        account = self._costs.account
        width = min(queue.left, queue.width)
        if queue.most is None:
            if "samples" in account.units:
                width = min(width, max(1, account.available("samples")))
            if account.deadline is not None:
                width = min(width, self._deadline_width())
            elif math.isinf(width):
                width = _UNBOUNDED_WIDTH
        programs = metadata_of(self._backends[queue.model]).programs
        if programs and queue.order == "drawn" and not set(account.units).isdisjoint(_SHARED):
            return int(min(width, programs))
        parent = queue.peek() if width > queue.distinct else None
        if parent is not None:
            width = min(width, max(queue.distinct, self._payable(queue, parent, completed=completed)))
        return int(width)

    def _payable(self, queue: RowQueue, parent: Trajectory, *, completed: bool) -> float:
        """Return the most rows after `parent` that `plan_rows` begins, where it begins more than one row."""
        left = {unit: self._costs.account.available(unit) for unit in self._costs.account.units}
        cost = self._costs.row_cost(self._backends[queue.model], self._tree.path_tokens(parent))
        by_samples = left.get("samples", math.inf) + queue.distinct  # the first child of a path costs no sample
        if queue.until is not END:
            return min(by_samples, payable_rows(cost, 1, left))
        cap = min(queue.sampling.max_tokens or NO_CAP, self.room(queue.model, parent))
        if queue.order != "drawn":
            needed = self.lengths(parent.root_kind).expected_length(parent.num_tokens) - parent.num_tokens
            return min(by_samples, payable_rows(cost, max(1, min(cap, needed)), left))
        doubled = 2 * self._begun if completed else 0
        return min(by_samples, max(doubled, payable_rows(cost, cap, left)))

    def _request(
        self,
        queue: RowQueue,
        upcoming: NextRows,
        branches: Sequence[int],
        bound: RowCost,
        *,
        held: int,
        completed: bool,
    ) -> WaveRequest:
        """Return the request that the next wave is planned for.

        Args:
            queue: The request.
            upcoming: The rows that may begin, or the open rows that go on.
            branches: The samples that each row costs.
            bound: The bound of a row.
            held: The tokens that must stay unspent.
            completed: Whether there is a candidate.
        """
        until, goes_on = queue.until, upcoming.goes_on
        if until is STEP and not goes_on:
            require(self._backends[queue.model], ["steps"], "expanding step by step")
        goal = Goal.TOKENS if isinstance(until, Tokens) else Goal.SOLUTION
        if until is STEP:
            goal = Goal.ROLLOUT if queue.scratch else Goal.STEP
        return WaveRequest(
            goal=goal,
            branches=branches,
            cost=bound,
            cap=self.cap(queue, upcoming),
            goes_on=goes_on,
            wanted=queue.left,
            needed=self.next_row_tokens(queue, upcoming),
            step=self.expected_step,
            longest=self.lengths(upcoming.kind).longest,
            begun=self._begun,
            is_completed=completed,
            resumes=self.resumes(queue.model),
            held=held,
            portion=self.portion_of(queue, max((row.written for row in upcoming.rows), default=0)),
            at_once=queue.order != "drawn",
            programs=metadata_of(self._backends[queue.model]).programs,
            spent=self._row_costs(),
        )

    def _row_costs(self) -> dict[str, int]:
        """Return the mean cost of a row so far, by limit; the whole limit where rows began but none has ended."""
        account, num_begun = self._costs.account, self._begun
        has_ended = any(lengths.ended for lengths in self._lengths.values())
        if num_begun and not has_ended:
            return {unit: account.limit(unit) for unit in account.units}
        return {unit: account.spending(unit) // max(1, num_begun) for unit in account.units}

    def portion_of(self, queue: RowQueue, written: int) -> int:
        """Return the most tokens of a row in one call.

        In finish order a call writes all rows to one length, piece by piece.

        Args:
            queue: The request.
            written: The tokens that the queue's rows have.
        """
        if queue.order == "finished" and self._backends[queue.model].caps.streams and self.resumes(queue.model):
            return min(self.portion, max(_PIECE, written // _PIECE_SHARE))
        return self.portion

    def cap(self, queue: RowQueue, upcoming: NextRows) -> int:
        """Return the most tokens that a row of the next wave may take."""
        if upcoming.goes_on:
            return max(self.row_remainder(queue, row) for row in upcoming.rows)
        room = max(self.room(queue.model, parent) for parent in upcoming.parents)
        cap = min(queue.sampling.max_tokens or NO_CAP, room)
        return min(cap, queue.until.count) if isinstance(queue.until, Tokens) else cap

    def next_row_tokens(self, queue: RowQueue, upcoming: NextRows) -> int:
        """Return the tokens that a row of the next wave is expected to take.

        For open rows this is the largest expected remainder of a row; for new rows, that of the longest parent.
        """
        lengths = self.lengths(upcoming.kind)
        if not upcoming.goes_on:
            written = max(t.num_tokens for t in upcoming.parents)
            return max(1, min(self.cap(queue, upcoming), lengths.expected_length(written) - written))
        if isinstance(queue.until, Tokens):
            return max(queue.until.count - row.written for row in upcoming.rows)
        path_lengths = {row.end.num_tokens for row in upcoming.rows}
        return max(1, *(lengths.expected_length(written) - written for written in path_lengths))

    def row_remainder(self, queue: RowQueue, row: QueuedRow) -> int:
        """Return the tokens that a row may still take.

        Consecutive pieces of given sizes count as one row for the cap.
        """
        remainder = min(self.cap_remainder(queue, row), row.limit - row.written)
        if isinstance(queue.until, Tokens):
            remainder = min(remainder, queue.until.count - row.written)
        return min(remainder, self.room(queue.model, row.end))

    def cap_remainder(self, queue: RowQueue, row: QueuedRow) -> int:
        """Return the tokens that the cap of a row still allows."""
        return (queue.sampling.max_tokens or NO_CAP) - self._chain(queue, row) - row.written

    def _chain(self, queue: RowQueue, row: QueuedRow) -> int:
        """Return the tokens of the pieces before a row that were written under the same cap."""
        if not self._chains:
            return 0
        cap, tokens = self._chains.get(row.parent.node, (None, 0))
        return tokens if cap == queue.sampling.max_tokens and queue.until is not STEP else 0

    def resumes(self, model: str) -> bool:
        """Whether a row that its cap cut can be continued."""
        backend = self._backends[model]
        return backend.caps.steps != "absent" and metadata_of(backend).resumes()
