"""How many rows begin and how long they may become: the queue of a request, and lengths learnt from what a search has written.

Open solutions count as well. Source: Kaplan and Meier (1958), the product-limit estimator. A solution that is still open is a censored
observation. The mean of those that have ended would be biased short, for short ones end first.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Sampling
from tts.backends.capabilities import require
from tts.backends.metadata import metadata_of
from tts.budget.budget import RowCost
from tts.errors import ConfigError
from tts.search.costs import Costs
from tts.search.ends import END, STEP, Stops, Tokens, Until
from tts.search.tree import Tree
from tts.search.waves import NO_CAP, Goal, WaveRequest, payable_rows
from tts.tasks.base import Task
from tts.thoughts import ThoughtMarks
from tts.types import Problem, Trajectory

QUANTILE = 0.85  # of the solutions end within the expected length
_NOTHING_OPEN = np.ones(1)
_LONGER = 1 - QUANTILE + 1e-9  # share of the solutions that may be longer
T = TypeVar("T")
MOST_ROWS = 1024  # of a wave: a width that no budget pays is begun wave by wave, until the search is ended or stopped
_FIRST_WIDTH = 4  # rows to begin with where a time is given
_UNBOUNDED_WIDTH = 64  # rows of a wave where no limit counts rows or tokens


class Lengths:
    """Lengths of the paths after one kind of prompt.

    Of n paths, let i have ended at some length or before, and let o open ones be shorter. The estimated share of longer solutions is
    (n - i - o) / n, times the product of r / (r - 1) over these o. Here r counts the paths that are at least as long as the open one.
    A note moves some numbers. The products are computed once for all notes before an estimate, which is a binary search.

    Args:
        prior: tokens that are expected before any path was written, at least 1.
    """

    __slots__ = ("_ended", "_longer", "_open", "_paths", "_prior", "_products")

    def __init__(self, prior: int) -> None:
        self.assume(prior)
        self._paths: dict[int, tuple[int, bool]] = {}  # by node: tokens, and whether it is open
        self._ended = array("q")  # sorted lengths
        self._open = array("q")
        self._longer = array("q")  # of each open path: how many ended ones are longer
        self._products: NDArray[np.float64] | None = None  # over the first o open paths, from 0 on; None: not computed yet

    def assume(self, prior: int) -> None:
        """Replace what is expected before any path has ended."""
        self._prior = max(1, prior)

    def note(self, node: int, tokens: int, *, ended: bool) -> None:
        """Note the length of a path; a later note of the same node replaces it. `ended`: by itself, not by a cap."""
        self.forget(node)
        self._paths[node] = (tokens, not ended)
        self._products = None
        if ended:
            insort(self._ended, tokens)
            self._count_ended(tokens, 1)
        else:
            place = bisect_right(self._open, tokens)
            self._open.insert(place, tokens)
            self._longer.insert(place, len(self._ended) - bisect_right(self._ended, tokens))

    def forget(self, node: int) -> None:
        """Drop a path that was continued as another."""
        if (path := self._paths.pop(node, None)) is None:
            return
        tokens, is_open = path
        self._products = None
        if is_open:
            place = bisect_left(self._open, tokens)
            del self._open[place], self._longer[place]
        else:
            del self._ended[bisect_left(self._ended, tokens)]
            self._count_ended(tokens, -1)

    def _count_ended(self, tokens: int, by: int) -> None:
        """Count an ended path for the open ones that are shorter."""
        if shorter := bisect_left(self._open, tokens):
            np.frombuffer(self._longer, np.int64)[:shorter] += by

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ended(self) -> int:
        """Paths that have ended by themselves."""
        return len(self._ended)

    @property
    def longest(self) -> int:
        """Tokens of the longest path; 0 without any."""
        return max(self._ended[-1] if self._ended else 0, self._open[-1] if self._open else 0)

    def expected(self, written: int = 0) -> int:
        """Return the tokens within which a path ends with probability `QUANTILE`, given that it has `written` and is open.

        Where the observations do not identify the quantile, it is twice the longest path. Without an ended path, or where no path has a
        token (empty or cached replies), it is at least the prior. It is never below 1.
        """
        ended, open_ = self._ended, self._open
        doubled = 2 * max(written, self.longest)
        if not ended or not doubled:
            return max(doubled, self._prior)
        first, shorter = (bisect_right(ended, written), bisect_right(open_, written)) if written else (0, 0)
        products, count = self._known_products(), len(ended) - first + len(open_) - shorter

        def is_within(place: int) -> bool:
            """Whether the share of longer paths is small enough after the ended path at a place."""
            before = bisect_left(open_, ended[place])
            left = count - (place - first + 1) - (before - shorter)
            return left / count * float(products[before] / products[shorter]) <= _LONGER

        places = range(first, len(ended))
        found = bisect_left(places, True, key=is_within)  # noqa: FBT003 - the value that is looked for
        if found < len(places):
            return max(1, ended[places[found]])
        return doubled

    def _known_products(self) -> NDArray[np.float64]:
        """Return the products of factors, [open paths + 1]."""
        if not self._open:
            return _NOTHING_OPEN
        if self._products is None:
            at_risk = np.arange(len(self._open), 0, -1) + np.array(self._longer)
            # where the longest path is open, its factor is infinite and no ended path comes after it
            self._products = np.concatenate(([1.0], np.cumprod(at_risk / np.maximum(at_risk - 1, 0.5))))
        return self._products


def waves_of(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in lists of at most `MOST_ROWS`, each made when it is asked for."""
    rest = iter(items)
    while wave := list(islice(rest, MOST_ROWS)):
        yield wave


@dataclass(slots=True, eq=False)
class QueuedRow:
    """One row, written in one call or in several.

    Args:
        place: its place in the request. parent: what it continues. path: what is written of it; None: nothing yet.
        limit: tokens of its own that it may take. failures: of continuations. over: whether it has ended, failed or was given up.
        short: replies that the backend cut long before their cap.
    """

    place: int
    parent: Trajectory
    path: Trajectory | None = None
    limit: int = NO_CAP
    failures: int = 0
    short: int = 0
    over: bool = False

    @property
    def made(self) -> Trajectory | None:
        """What is written of it; None where that is nothing, or it failed."""
        return None if self.path is None or self.path.status == "failed" else self.path

    @property
    def written(self) -> int:
        """Tokens of its own."""
        return 0 if self.path is None else self.path.num_tokens - self.parent.num_tokens


@dataclass(slots=True, eq=False)
class RowQueue:
    """The rows of one request, in draw order.

    Args:
        parents: what the rows continue, each as often as rows are wanted. most: rows wanted; None: as many as the budget pays.
        until: where they end. sampling, model: of all. marks: of the thoughts of the first.
        scratch: whether they are of a rollout. width: most rows of a wave; 1 where each is judged before the next.
        redraw: whether a row that failed is drawn anew.
        distinct: the number of different trajectories among the parents. A wave is planned by the longest of them.

    Attributes:
        begun: rows that were begun and not handed on. count: rows that were begun, those that failed left out. given_up: at their limit.
        last_wave: rows that the last wave began.
        held: tokens that are kept to bring an open path to its end. response: for what follows the thoughts.
    """

    parents: Iterator[Trajectory]
    most: int | None
    until: Until | Tokens | Stops
    sampling: Sampling
    model: str
    marks: ThoughtMarks
    scratch: bool = False
    width: int = MOST_ROWS
    redraw: bool = False
    distinct: int = 1
    begun: deque[QueuedRow] = field(default_factory=deque[QueuedRow])
    count: int = 0
    given_up: int = 0
    last_wave: int = 0
    held: int = 0
    response: int = 0
    _next: int = 0
    _back: deque[QueuedRow] = field(default_factory=deque[QueuedRow])

    @property
    def left(self) -> float:
        """Rows that are still to begin."""
        return math.inf if self.most is None else self.most - self.count

    @property
    def open_rows(self) -> list[QueuedRow]:
        """Rows that were begun and go on."""
        return [row for row in self.begun if not row.over]

    @property
    def is_done(self) -> bool:
        """Whether every row that was wanted has been handed on."""
        return not self.begun and self.left <= 0

    @property
    def is_cut(self) -> bool:
        """Whether the budget, and not the width of a wave, bounded the last rows that began."""
        return self.last_wave < self.width

    def key(self, parents: Sequence[Trajectory]) -> tuple[object, ...]:
        """Return what requests have in common of which one may continue the open rows of the other."""
        return (*(t.node for t in parents), self.until, self.sampling, self.model)

    def peek(self) -> Trajectory | None:
        """Return the parent of the next row to begin."""
        if not self._back:
            self.give_back(self.take(1))
        return self._back[0].parent if self._back else None

    def take(self, count: int) -> list[QueuedRow]:
        """Return the next rows to begin."""
        rows = [self._back.popleft() for _ in range(min(count, len(self._back)))]
        for parent in islice(self.parents, count - len(rows)):
            rows.append(QueuedRow(self._next, parent))
            self._next += 1
        return rows

    def begin(self, rows: Sequence[QueuedRow]) -> None:
        """Note rows as begun."""
        self.begun.extend(rows)
        self.count += len(rows)
        self.last_wave = len(rows)

    def put_back(self, paths: Sequence[Trajectory]) -> None:
        """Put rows that are over, and were handed on, back to the head."""
        self.begun.extendleft(QueuedRow(0, t.parent, t, over=True) for t in reversed(paths) if t.parent is not None)

    def give_back(self, rows: Sequence[QueuedRow]) -> None:
        """Put rows back that did not begin."""
        self._back.extendleft(QueuedRow(row.place, row.parent) for row in reversed(rows))


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

    def width(self, queue: RowQueue, *, completed: bool) -> int:
        """Return the most rows that may begin now: no fewer than are planned, and no more than can be.

        Args:
            queue: The request.
            completed: Whether there is a candidate.
        """
        account = self._costs.account
        most = min(queue.left, queue.width)
        if queue.most is None and "samples" in account.units:
            most = min(most, max(1, account.available("samples")))
        if queue.most is None and (account.deadline is not None or math.isinf(most)):
            most = min(most, _UNBOUNDED_WIDTH if account.deadline is None else self._doubled())
        if most > queue.distinct and (parent := queue.peek()) is not None:
            most = min(most, max(queue.distinct, self._payable(queue, parent, completed=completed)))
        return int(most)

    def _payable(self, queue: RowQueue, parent: Trajectory, *, completed: bool) -> float:
        """Return the most rows like one after `parent` that `plan_rows` begins, where it begins more than one."""
        left = {unit: self._costs.account.available(unit) for unit in self._costs.account.units}
        cost = self._costs.row_cost(self._backends[queue.model], self._tree.path_tokens(parent))
        sampled = left.get("samples", math.inf) + queue.distinct  # the first child of a path costs no sample
        if queue.until is not END:
            return min(sampled, payable_rows(cost, 1, left))
        cap = min(queue.sampling.max_tokens or NO_CAP, self.room(queue.model, parent))
        return min(sampled, max(2 * self._begun * completed, payable_rows(cost, cap, left)))

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
