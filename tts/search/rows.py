"""How rows become trajectories: what a call may spend, where its rows end, and the nodes they leave in the tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice, repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Extension, Sample, Sampling, StopCondition
from tts.backends.protocol import BackendProtocol, require
from tts.budget.meter import Exhausted
from tts.errors import ConfigError, EngineError, shown
from tts.randomness import MAIN_WORD, SCRATCH_WORD
from tts.search.accounting import Accounting
from tts.search.answers import Answers
from tts.search.ends import END, STEP, SearchEnded, StopDecision, Tokens, Until
from tts.search.prompts import Prompts
from tts.search.row_batch import OUT_OF_TIME, RowBatch, RowBatchSpec, RowTask, branches_of, tasks_for
from tts.search.scoring import Scoring
from tts.search.tree import Tree
from tts.tasks.base import TaskProtocol
from tts.types import Candidate, Status, Trajectory

_FIRST_WIDTH = 4  # rows to begin with where a time is given
_MOST_ROWS = 1024  # of a wave of `complete`: a budget for millions is spent in waves that can be stopped
_UNBOUNDED_WIDTH = 64  # rows of a wave where no limit counts rows or tokens
_NO_CAP = 1 << 20  # of a row on a backend without a context limit
_STATUS: Mapping[str, Status] = {
    "eos": "finished", "answer": "finished", "stop": "active", "length": "truncated", "cancelled": "truncated", "error": "failed",
}  # fmt: skip

# Called with the index of a row and the child it became, in row order.
OnChild = Callable[[int, Trajectory], Awaitable[None]]
# Appends a text behind trajectories on a model, for so many samples.
Extend = Callable[[Sequence[Trajectory], str, str, int], Awaitable[list[Extension]]]


class RowOwner(Protocol):
    """What rows need of the search that they belong to; see `Search` for each."""

    tree: Tree
    accounting: Accounting
    prompts: Prompts
    answers: Answers
    scoring: Scoring
    candidates: list[Candidate]
    answered: bool
    judges: bool
    stopped: StopDecision | None
    failures: Counter[str]
    causes: dict[str, str]
    unscorable: set[int]

    @property
    def root_tokens(self) -> int:
        """The tokens of the "solve" prompt."""
        ...

    def finish(self, t: Trajectory) -> Candidate | None:
        """Return the candidate of a trajectory that has ended."""
        ...

    async def judge(self, ts: Sequence[Trajectory]) -> None:
        """Score trajectories for a stop rule that uses scores."""
        ...

    async def score_affordable(self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last") -> NDArray[np.float64]:
        """Return scores, NaN where unknown or not affordable."""
        ...


class RowRunner:
    """Writes rows behind trajectories of one search.

    Args:
        search: the owner of the tree, the accounting and the answers. sampling: of rows that name none.
        asked_of_all: roles that will score every candidate for which scores are held.
    """

    def __init__(
        self,
        search: RowOwner,
        task: TaskProtocol,
        backends: Mapping[str, BackendProtocol],
        sampling: Sampling,
        clock: Callable[[], float],
        asked_of_all: Sequence[str] = (),
    ) -> None:
        self._search = search
        self._asked_of_all = asked_of_all
        self._spreads = any({"spreads", "tops"} & set(verifier.needs) for verifier in search.scoring.verifiers.values())
        self._task = task
        self._backends = backends
        self._sampling = sampling
        self._clock = clock
        self._scratch: list[Trajectory] = []
        self._scratch_children: dict[int, int] = {}
        self._to_step = StopCondition(task.step_stop, at_step=True, finished=task.is_finished)
        self._to_end = StopCondition(task.step_stop, at_step=False, finished=task.is_finished)
        self.timed_out = False

    async def wave(
        self,
        parents: Sequence[Trajectory],
        until: Until | Tokens,
        on_child: OnChild,
        *,
        sampling: Sampling | None = None,
        model: str = "policy",
        scratch: bool = False,
        whole_first: bool = True,
    ) -> int:
        """Start rows behind `parents`, as many as are granted, hand each child on in row order; return how many started.

        Args:
            whole_first: whether, until there is a candidate, a first row to END is granted all that it may need.

        Raises:
            Exhausted: not one may start. CapabilityError: the backend cannot stop at a step.
        """
        search = self._search
        self.check_usable(parents)
        spec = self._spec(parents, until, sampling or self._sampling, model, scratch=scratch, whole_first=whole_first)
        longest = max(map(search.tree.path_tokens, parents))
        cost = search.accounting.row_cost(spec.backend, longest, search.prompts.recomputed(parents, model))
        prompts = {root: search.tree.prompt_tokens[root] for root in {search.tree.root_of(t) for t in parents}}
        call = RowBatch(spec, search.accounting, search.accounting.before_prompts(cost, prompts), self._clock)
        counter = self._scratch_index if scratch else search.tree.next_child
        branches = branches_of(parents, self._children_of if scratch else search.tree.children_of)
        grant = call.grant(branches)
        started = parents[: len(grant.caps)]
        try:
            handles = await search.prompts.handles(started, model)
        except BaseException:
            search.accounting.meter.settle(grant, {})
            raise
        tasks = tasks_for([(t, handle, self.room(model, t)) for t, handle in zip(started, handles, strict=True)], branches, counter)
        children: list[Trajectory] = []

        async def on_row(task: RowTask, sample: Sample, cap: int) -> None:
            place = len(children)
            paused = sample.finish == "length" and sample.handle is not None and _pauses(until, cap, spec.cap)
            child = self._child(task, sample, model, paused=paused, scratch=scratch)
            children.append(child)
            if child.status == "failed":
                return
            if not scratch:
                await search.answers.add([child])
            await on_child(place, child)

        try:
            await call.run(tasks, grant, on_row)
        finally:
            self.timed_out = self.timed_out or call.timed_out
            to_score = [child for child in children if child.status != "failed" and child.node not in search.unscorable]
            for root in sorted({search.tree.root_of(child) for child in to_score}):
                search.accounting.reserve_prompt(root, prompts[root])
            for child in to_score:
                search.accounting.reserve(child.node, cost, search.tree.own_tokens(child))
        return len(tasks)

    def _count_failure(self, sample: Sample) -> None:
        if sample.error != OUT_OF_TIME:
            kind, _, cause = (sample.error or "error").partition(": ")
            self._search.failures[kind] += 1
            self._search.causes.setdefault(kind, cause)

    async def waves(
        self, parents: Sequence[Trajectory], until: Until | Tokens, on_child: OnChild, *, sampling: Sampling | None, model: str
    ) -> None:
        """Start rows behind `parents` in one wave, or, to END, in as many as it takes: what a row leaves over starts the next.

        Raises:
            Exhausted: not one may start.
        """
        started = 0
        while started < len(parents):

            async def on_row(place: int, child: Trajectory, before: int = started) -> None:
                await on_child(before + place, child)

            try:
                started += await self.wave(parents[started:], until, on_row, sampling=sampling, model=model, whole_first=not started)
            except Exhausted:
                if not started:
                    raise
                return
            if until is not END:
                return

    async def complete(
        self,
        ts: Sequence[Trajectory],
        n: int | None,
        *,
        sampling: Sampling | None,
        model: str,
        call: Callable[..., AbstractContextManager[None]],
    ) -> list[Candidate]:
        """See `Search.complete`; `call` holds the one call in flight.

        Scores that are held for, and will be asked for anyway, are made when nothing more can be paid: what they cost less than their
        bound pays more rows.
        """
        search, first = self._search, len(self._search.candidates)
        barren, waiting = 0, list[Trajectory]()
        fresh = chain.from_iterable(repeat(ts) if n is None and ts else repeat(ts, n or 0))

        async def on_child(index: int, child: Trajectory) -> None:
            ended[index] = child
            if not search.judges:
                search.finish(child)

        while True:
            width = 1 if search.judges else _MOST_ROWS if n is not None else self._next_width()
            waiting += islice(fresh, max(0, width - len(waiting)))
            if not waiting:
                return search.candidates[first:]
            ended, spent = dict[int, Trajectory](), dict(search.accounting.meter.spent)
            try:
                with call(writes=True):
                    await self.wave(waiting, END, on_child, sampling=sampling, model=model)
            except SearchEnded:
                if search.stopped or not await self._score_held():
                    raise
                continue
            waiting = [t for i, t in enumerate(waiting) if i not in ended]  # rows that did not start, or failed
            await search.judge(list(ended.values()))
            for child in ended.values():
                search.finish(child)
            if (barren := 0 if ended else barren + 1) == 3:
                raise SearchEnded("every row failed")
            if n is None and ended and search.accounting.meter.deadline is None and spent == search.accounting.meter.spent:
                raise SearchEnded("nothing is spent any more")

    async def _score_held(self) -> bool:
        """Score the candidates whose scores are held for; return whether there were any."""
        search = self._search
        held = [c.trajectory for c in search.candidates if search.accounting.is_reserved(c.trajectory.node)] if self._asked_of_all else []
        for role in self._asked_of_all if held else ():
            await search.score_affordable(held, role)
        return bool(held)

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """Return the plain samples of typical length that are left in the budget; None: it does not bound them.

        Where only time does, nobody knows how many they are: as many again as there are candidates, so that rounds double until it is
        over, and a given seed draws the same, however far it comes.

        Args:
            stepwise: each is written, and verified, step by step.
        """
        search = self._search
        cost = search.accounting.row_cost(self._backends["policy"], search.root_tokens)
        whole = max(1, self._task.typical_tokens("solve"))
        step = min(whole, max(1, self._task.typical_tokens("step"))) if stepwise else whole
        rows = -(-whole // step)
        each = {unit: 1 if unit == "samples" else rows * cost.of(unit, step) for unit in search.accounting.meter.limits}
        units = [search.accounting.meter.left(unit) // amount for unit, amount in each.items() if amount > 0]
        if units:
            return max(1, min(units))
        return None if search.accounting.meter.deadline is None else self._doubled()

    def _next_width(self) -> int:
        """Return the rows of the next wave of as many as the budget pays; towards a deadline, which cuts a wave, they double."""
        units = min(self.affordable_samples() or _UNBOUNDED_WIDTH, _MOST_ROWS)
        return units if self._search.accounting.meter.deadline is None else min(units, self._doubled())

    def _doubled(self) -> int:
        return max(_FIRST_WIDTH, len(self._search.candidates))

    def _spec(
        self, parents: Sequence[Trajectory], until: Until | Tokens, sampling: Sampling, model: str, *, scratch: bool, whole_first: bool
    ) -> RowBatchSpec:
        backend = self._backends[model]
        deepest = max(t.num_tokens for t in parents)
        cap = min(sampling.max_tokens or _NO_CAP, max(self.room(model, t) for t in parents))
        step, whole = self._task.typical_tokens("step"), self._task.typical_tokens(parents[0].root_kind)
        to_end = max(step, whole - deepest)
        nothing_yet = not self._search.candidates
        unanswered = not self._search.answered
        typical = to_end
        if until is STEP:
            require(backend, ["steps"], "expanding step by step")
            typical = step
        elif isinstance(until, Tokens):
            typical = cap = min(cap, until.count)
        return RowBatchSpec(
            kind="rollout" if scratch else "expand",
            model=model,
            backend=backend,
            sampling=sampling,
            stop=self._to_step if until is STEP else self._to_end,
            cap=cap,
            typical=typical,
            hold=to_end if unanswered and until is not END else 0,
            whole_first=whole_first and nothing_yet and until is END,
            word=SCRATCH_WORD if scratch else MAIN_WORD,
            spreads=self._spreads,
        )

    def room(self, model: str, t: Trajectory) -> int:
        """Return the tokens that a model's context leaves behind a trajectory."""
        backend = self._backends[model]
        return _NO_CAP if backend.context is None else backend.context - self._search.tree.path_tokens(t)

    def _child(self, task: RowTask, sample: Sample, model: str, *, paused: bool, scratch: bool) -> Trajectory:
        if sample.finish not in _STATUS:
            raise EngineError(
                f"the backend {self._backends[model].name!r} ended a row with the finish {shown(sample.finish)}, "
                f"but must end it with one of {', '.join(_STATUS)}"
            )
        status = "active" if paused else _STATUS[sample.finish]
        kept = sample.num_tokens - sample.lost_tokens
        if status == "active" and task.room <= kept:
            status = "truncated"  # the context is full
        if sample.error or status == "failed":  # also where another try of the backend's made the row good
            self._count_failure(sample)
        parent, tree = task.parent, self._search.tree
        child = Trajectory(
            parent, sample.text, sample.token_ids, sample.logprobs, status, task.stream, len(tree.nodes),
            parent.num_tokens + kept, parent.depth + 1, parent.root_kind, model, sample.handle, sample.spreads,
        )  # fmt: skip
        tree.add(child, 0)
        if scratch:
            tree.scratch.add(child.node)
            self._scratch.append(child)
        elif status == "failed":
            tree.count_failed_child(parent)
        return child

    async def forced(self, ts: Sequence[Trajectory], text: str, model: str, extend: Extend) -> list[Trajectory]:
        """Return one child of each trajectory with forced text behind it."""
        tree = self._search.tree
        self.check_usable(ts)
        branches = branches_of(ts, tree.children_of)
        made = await extend(ts, text, model, sum(branches))
        tasks = tasks_for([(t, None, self.room(model, t)) for t in ts], branches, tree.next_child)
        return [
            self._child(task, Sample(text, one.token_ids, (), "stop", one.handle, len(one.token_ids)), model, paused=False, scratch=False)
            for task, one in zip(tasks, made, strict=True)
        ]

    async def look_ahead(self, ends: list[Trajectory], going: Sequence[int], sampling: Sampling | None) -> None:
        """Put the next step of a rollout in the place of each end that is going on; those that could not start stay."""

        async def on_child(index: int, child: Trajectory) -> None:
            ends[going[index]] = child

        await self.wave([ends[i] for i in going], STEP, on_child, sampling=sampling, scratch=True)

    def check_usable(self, ts: Sequence[Trajectory]) -> None:
        """Raise ConfigError for a trajectory that cannot be continued."""
        for t in ts:
            if t.status != "active":
                raise ConfigError(f"node {t.node} is {t.status}, but only an active trajectory can be continued")
            if t.node in self._search.tree.pruned:
                raise ConfigError(f"node {t.node} was pruned by keep(), but only a live trajectory can be continued")

    def drop_scratch(self) -> list[Trajectory]:
        """Return the nodes of the last rollout, which are to be dropped."""
        dropped, self._scratch = self._scratch, []
        return dropped

    def _children_of(self, t: Trajectory) -> int:
        """Return a rollout's children as its cost counts them: the first row of one is a branch beside the path's own."""
        return self._scratch_children.get(t.node, 0) if t.node in self._search.tree.scratch else 1

    def _scratch_index(self, t: Trajectory) -> int:
        """Return the index of a rollout: rollouts have streams of their own and leave those of the children alone."""
        index = self._scratch_children.get(t.node, 0)
        self._scratch_children[t.node] = index + 1
        return index


def _pauses(until: Until | Tokens, cap: int, most: int) -> bool:
    """Whether a row that met its cap may go on later: it was asked for so many tokens, or the budget cut a part of a solution short.

    Args:
        cap: of this row. most: what the caller and the context would have let it write.
    """
    return until is not END and (cap < most or (isinstance(until, Tokens) and cap == until.count))
