"""The full state of a search: the tree, the account, the rows and the candidates of one problem.

Strategies and selections use it through `tts.search.search.Search`. Batching, metering, tracing and cancellation happen here. One call
of a search is in flight at a time, often with several trajectories. A call raises `SearchEnded` if no row can start or if the stop rule
fires; only the solver catches it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts import randomness
from tts.backends.base import Backend, Caps, Sampling
from tts.backends.capabilities import require
from tts.backends.metadata import metadata_of
from tts.budget.account import Account, Exhausted
from tts.budget.ledger import Call
from tts.characters import in_whole_characters
from tts.checks import check_int, check_number, check_text, checked_prompt
from tts.errors import ConfigError, shown
from tts.search.algorithms.aggregation import aggregate_scores, check_aggregate
from tts.search.algorithms.embedding import CountedEmbedder, Embedder, HashedNgrams, refuse_unpriced
from tts.search.answers import Answers
from tts.search.costs import Costs
from tts.search.ends import END, STEP, SearchEnded, Share, StopDecision, Stops, Tokens, Until
from tts.search.forks import check_fork, forked
from tts.search.prompts import Prompts
from tts.search.row_queue import MOST_ROWS, QueuedRow, RowQueue
from tts.search.rows import RowRunner
from tts.search.scoring import Scoring
from tts.search.tree import Tree
from tts.search.votes import Candidates
from tts.tasks.base import Task
from tts.tasks.isolation import isolate
from tts.thoughts import THINK
from tts.threads import in_thread
from tts.types import Candidate, Problem, Prompt, Trajectory, Usage
from tts.verifiers.base import Scorer, Verifier

T = TypeVar("T")
_FEW_CHARACTERS = 20_000  # that are embedded in the event loop
_CLOSING_S = 2e-5  # a candidate, for the selection and the solution
_TRIES = 3  # calls in a row of which every row fails
_FREE = 8  # waves in a row without a token, each twice as wide as the one before
REMARKS = frozenset({"critique", "verify"})  # kinds of prompts after which no solutions are written


class SearchState:
    """The full state of one problem's search. The solver makes it, and opens `root` before the strategy runs.

    Attributes:
        problem: the problem without reference answer and metadata. task: its task. root: the root of the "solve" prompt, read once.
        candidates: the candidates so far, in order. failures: numbers of failed rows by kind. causes: the first cause of each kind.
        answered: whether a candidate has an answer. stopped: the decision of the stop rule, once it has stopped.
        judges: whether the stop rule uses scores. unscorable: nodes of candidates that no verifier will score.
        warnings: lines for the solution, each once. reasons: reasons of decisions, for the trace.
        timed: whether any decision depended on elapsed time. unbegun: rows that `expand` was asked for and the budget did not begin.
        tree, costs, prompts, scoring: parts of the search, for the solver and the trace.
    """

    def __init__(  # noqa: PLR0913 - the solver's parts, by name
        self,
        *,
        problem: Problem,
        task: Task,
        backends: Mapping[str, Backend],
        verifiers: Mapping[str, Verifier],
        scorers: Mapping[str, Scorer],
        costs: Costs,
        seed: int,
        decide: Callable[[Sequence[Candidate]], StopDecision | None],
        judged: tuple[str, str] | None = None,
        sampling: Sampling,
        clock: Callable[[], float],
        on_call: Callable[[SearchState], None] | None = None,
        embedder: Embedder | None = None,
        may_score: Callable[[Candidate, int], bool] | None = None,
        asked_of_all: Sequence[str] = (),
        expected_tokens: int | None = None,
        portion: int | None = None,
        gives_scores: Sequence[str] = (),
    ) -> None:
        self.problem = problem
        self.task = task = isolate(task, self.warn)
        self.candidates: list[Candidate] = Candidates()
        self.tree = Tree()
        self.costs = costs
        self._key = randomness.problem_key(problem, task.name)
        self.prompts = Prompts(backends, costs, self.tree, clock)
        self.scoring = Scoring(
            verifiers, scorers, task=task, backends=backends, costs=costs, tree=self.tree, prompts=self.prompts,
            stream=randomness.hash64("judge", seed, self._key), clock=clock,
        )  # fmt: skip
        self._backends = backends
        self._seed = seed
        self._sampling = sampling
        self._decide = decide
        self._judged = judged
        self.judges = judged is not None
        self._judged_by: dict[int, dict[str, float]] = {}  # by node, what that rule goes by
        self._on_call = on_call
        self.embedder = embedder or HashedNgrams()
        self._clock = clock
        self.warnings: list[str] = []
        self.reasons: list[str] = []
        self.timed = False
        self.unscorable: set[int] = set()
        self.answers = Answers(task, lambda: costs.account.seconds_left)
        self._asked_of_all = asked_of_all
        self._gives_scores = gives_scores
        self.rows = RowRunner(
            task=task, backends=backends, sampling=sampling, costs=costs, tree=self.tree, prompts=self.prompts, clock=clock,
            spreads=any({"spreads", "tops"} & set(verifier.needs) for verifier in verifiers.values()), unscorable=self.unscorable,
            expected=expected_tokens, portion=portion,
        )  # fmt: skip
        self._may_score = may_score
        self._agreeing: Counter[int | None] = Counter()  # untruncated candidates by answer
        self._finished: dict[int, Candidate] = {}
        self.answered = False
        self.ended = False  # whether the strategy has ended, so that a selection chooses
        self.stopped: StopDecision | None = None
        self._opened: Counter[tuple[str, ...]] = Counter()  # roots by kind and texts
        self._ended: list[Trajectory] = []  # candidates whose state is still held
        self._root: Trajectory | None = None
        self.unbegun = 0
        self._busy = False
        self._waiter: asyncio.Future[None] | None = None

    # What a strategy may read ---------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Trajectory:
        """The root of the "solve" prompt."""
        assert self._root is not None, "the solver opens the root before the strategy runs"
        return self._root

    @property
    def left(self) -> dict[str, float]:
        """See `Search.left`."""
        account, seconds = self.account, self.account.seconds_left
        timed = {} if seconds is None else {"seconds": seconds}
        return {unit: float(account.available(unit)) for unit in account.units} | timed

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """See `Search.affordable_samples`."""
        return self.rows.sizes.affordable_samples(self.root_tokens, stepwise=stepwise)

    def sample_cost(self, role: str, unit: str) -> int:
        """Return the cost of a plain sample of expected length by the model of a role, in whole units."""
        return self.rows.sizes.sample_cost(self.root_tokens, role, unit)

    @property
    def given_roles(self) -> dict[str, bool]:
        """The roles of scores that the strategy itself gives, and whether all scores of a role lie in [0, 1]."""
        roles: dict[str, bool] = dict.fromkeys(self._gives_scores, True)
        for role, score in ((role, score) for c in self.candidates for role, score in c.scores.items()):
            if role not in self.scoring.verifiers:
                roles[role] = roles.get(role, True) and not (score < 0 or score > 1)
        return roles

    @property
    def account(self) -> Account:
        """The account that pays now."""
        return self.costs.account

    def _limited_spend(self) -> dict[str, int]:
        return {unit: self.costs.whole.paid(unit) for unit in self.account.units}

    @property
    def timed_out(self) -> bool:
        """Whether the `seconds` limit cut a call short."""
        return self.rows.timed_out or self.answers.timed_out or self.scoring.timed_out

    def caps_of(self, model: str) -> Caps:
        """Return the capabilities of a role's model."""
        return self._backends[model].caps

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        while self._busy:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    @property
    def root_tokens(self) -> int:
        """The tokens of the "solve" prompt. They are counted by the tokenizer until the prompt is read."""
        if self._root is None:
            return self._backends["policy"].count(self.task.prompt(self.problem, "solve", ()))
        return self.tree.prompt_tokens[self._root.node]

    def rng(self, purpose: str, *address: int | str) -> np.random.Generator:
        """See `Search.rng`."""
        return randomness.generator(self._seed, self._key, purpose, *address)

    def sampling_at(self, temperature: float | None, max_tokens: int | None = None, effort: str | None = None) -> Sampling:
        """Return the run's sampling with another temperature, cap of a row or effort; None: unchanged."""
        given = (("temperature", temperature), ("max_tokens", max_tokens), ("effort", effort))
        changed = {name: value for name, value in given if value is not None}
        return dataclasses.replace(self._sampling, **changed) if changed else self._sampling

    # Writing --------------------------------------------------------------------------------------------------------------------

    async def open(self, kind: str, *texts: str, prompt: object = None, group: int | None = None) -> Trajectory:
        """See `Search.open`."""
        check_text("kind", kind)
        if prompt is not None and texts:
            raise ConfigError("a prompt of one's own was given with texts, but those are for the task's prompts", hint="write them into it")
        own = None if prompt is None else checked_prompt(prompt)
        address = (kind, *texts) if own is None else _content(own)
        with self._call(writes=True):
            try:
                asked = self.task.prompt(self.problem, kind, texts) if own is None else own
                opened = await self.prompts.read("policy", asked)
            except ConfigError as refusal:
                if texts:
                    self.warn(f"earlier solutions were not shown: {refusal.cause}")
                raise
            again = self._opened[address]
            self._opened[address] += 1
            stream = randomness.root_stream(self._seed, self._key, *address, *([str(again)] if again else []))
            marks = (metadata_of(self._backends["policy"]).thoughts or THINK).behind(asked)
            root = Trajectory(None, "", (), (), "active", stream, len(self.tree.nodes), 0, 0, kind, "policy", opened.handle, marks=marks)
            self.tree.add(root, opened.tokens, group)
            if own is not None:
                self.tree.own_prompts[root.node] = Problem(own).text
            self.prompts.remember(root, asked)
            self._root = self._root or root
            return root

    async def expand(
        self,
        ts: Sequence[Trajectory],
        n: int = 1,
        until: Until | Tokens | Share | Stops = STEP,
        sampling: Sampling | None = None,
        model: str = "policy",
    ) -> list[list[Trajectory]]:
        """See `Search.expand`."""
        check_int("n", n, 1, optional=False)
        children: list[list[Trajectory]] = [[] for _ in ts]
        if not ts:
            return children
        queue = self.rows.queue(ts, n, until, sampling=sampling, model=model)
        while not queue.is_done:
            try:
                with self._call(writes=True):
                    async with aclosing(self.rows.wave(queue, answered=self.answered, completed=bool(self.candidates))) as rows:
                        async for row in rows:
                            await self._add_child(children, row)
            except SearchEnded:
                if not queue.count:
                    raise
                break
            if until is not END and not queue.open_rows and queue.is_cut and not self.rows.fills_context(queue):
                break
        self.unbegun += int(queue.left)
        for row in self.rows.leave_off(queue) if until is END else queue.begun:
            await self._add_child(children, row)
        await self.judge([t for of in children for t in of])
        return children

    async def _add_child(self, children: list[list[Trajectory]], row: QueuedRow) -> None:
        """Put the path of a row into its place, unless the row failed."""
        if (path := row.made) is not None:
            await self.answers.add([path])
            children[row.place % len(children)].append(path)

    async def complete(
        self, ts: Sequence[Trajectory], n: int | None = 1, sampling: Sampling | None = None, model: str = "policy"
    ) -> list[Candidate]:
        """See `Search.complete`."""
        check_int("n", n, 1)
        first, barren, free = len(self.candidates), 0, 0
        if not ts:
            return []
        queue = self.rows.queue(ts, n, END, sampling=sampling, model=model, width=1 if self.judges else MOST_ROWS, redraw=True)
        spent, tokens = self._limited_spend(), self.costs.whole.paid("tokens")
        while not queue.is_done:
            made: list[Trajectory] = []
            if not queue.begun:
                spent, tokens = self._limited_spend(), self.costs.whole.paid("tokens")
            try:
                await self._completed(queue, made)
            except SearchEnded as end:
                if self.stopped is None and await self._score_held():
                    continue
                self._leave(queue, first, n, ts, end)
                raise
            except BaseException:  # what was written is kept
                queue.put_back([t for t in made if t.node not in self._finished])
                self.rows.interrupt(queue, ts)
                raise
            barren = 0 if made or queue.begun else barren + 1
            if barren == _TRIES:
                raise SearchEnded("every row failed")
            if n is None and made and not queue.begun:
                free = self._free_waves(free, spent, tokens)
        if queue.given_up:
            self._count_short(queue, first, n, ts, f"{queue.given_up} were given up for others")
        return self.candidates[first:]

    def _free_waves(self, free: int, spent: Mapping[str, int], tokens: int) -> int:
        """Return the number of consecutive waves without cost, given that `free` such waves came before the last wave.

        Args:
            spent, tokens: of the limits, and in all, before the last wave.

        Raises:
            SearchEnded: a wave spent nothing that is limited, or many in a row no token, where time is limited.
        """
        free = free + 1 if tokens == self.costs.whole.paid("tokens") else 0
        if spent == self._limited_spend() and (self.account.deadline is None or free == _FREE):
            raise SearchEnded("nothing is spent any more")
        return free

    async def _completed(self, queue: RowQueue, made: list[Trajectory]) -> None:
        """Make one call for rows of a queue, and finish the rows that have ended; `made`: their paths."""
        with self._call(writes=True):
            async with aclosing(self.rows.wave(queue, answered=self.answered, completed=bool(self.candidates))) as rows:
                async for row in rows:
                    if (path := row.made) is None:
                        continue
                    made.append(path)
                    await self.answers.add([path])
                    if not self.judges:
                        self.finish(path)
        if self.judges:
            await self.judge(made)
            for t in made:
                self.finish(t)

    async def _score_held(self) -> bool:
        """Score candidates whose scores are needed in any case and whose cost is reserved; return whether there were any.

        If they cost less than reserved, the difference pays more rows.
        """
        held = [c.trajectory for c in self.candidates if self.account.keeps(c.trajectory.node)] if self._asked_of_all else []
        for role in self._asked_of_all if held else ():
            await self.score_affordable(held, role)
        return bool(held)

    def _leave(self, queue: RowQueue, first: int, n: int | None, ts: Sequence[Trajectory], end: SearchEnded) -> None:
        """Cancel the rows of a queue that are useless after a stop rule; keep rows that the budget left open."""
        if self.stopped is not None:
            self.drop(self.rows.discard(queue))
        else:
            self.rows.interrupt(queue, ts)
            self._count_short(queue, first, n, ts, end.reason)

    def _count_short(self, queue: RowQueue, first: int, n: int | None, ts: Sequence[Trajectory], why: str) -> None:
        """Warn if not all of a fixed number of rows were finished; `first`: the first candidate of these rows."""
        made = [c.trajectory for c in self.candidates[first:]] + [row.path for row in queue.begun if row.path is not None]
        ended, wanted = sum(t.status == "finished" for t in made), (n or 0) * len(ts)
        if self._root in ts and wanted > 1 and ended < wanted and (queue.given_up or why.startswith("budget")):
            self.warn(f"{ended} of {wanted} samples came to their end, {why}")

    async def conclude(self) -> None:
        """Make candidates of all rows that were begun: rows that wait for others, and rows that the budget leaves open."""
        for row in list(self.rows.conclude()):
            if (path := row.made) is not None:
                await self.answers.add([path])
                self._add_candidate(path)

    def finish(self, t: Trajectory, scores: Mapping[str, float] | None = None, weight: float | None = None) -> Candidate | None:
        """See `Search.finish`."""
        if t.node in self.tree.scratch:
            raise ConfigError(f"node {t.node} is of a rollout, which is scored and dropped, but only a path of the tree can be finished")
        if scores is not None or weight is not None:
            self._check_given(scores, weight)
        if (known := self._finished.get(t.node)) is not None:
            return known if scores is None and weight is None else self._with_given(known, scores or {}, weight)
        if t.status not in ("finished", "truncated"):
            return None
        candidate = self._add_candidate(t, scores or {}, weight)
        self.stopped = self.stopped or self._decide(self.candidates)
        self._check_going()
        return candidate

    def _check_given(self, scores: object, weight: float | None) -> None:
        """Raise ConfigError for scores and a weight that a strategy cannot give."""
        if not isinstance(scores, Mapping | None):
            raise ConfigError(f"scores is {shown(scores)}, but must be a mapping of roles to numbers", hint="for example {'own': 0.7}")
        given: Mapping[object, Any] = scores or {}
        for role, score in given.items():
            check_text("the role of a score", role)
            if role in self.scoring.verifiers:
                raise ConfigError(f"the score of the role {role!r} is a verifier's, but was given", hint="give it a role of its own")
            check_number(f"the score of the role {role!r}", score, optional=False)
        check_number("weight", weight, 0)

    def _with_given(self, candidate: Candidate, scores: Mapping[str, float], weight: float | None) -> Candidate:
        """Put scores and a weight that a strategy gives into its candidate."""
        weight = candidate.weight if weight is None else weight
        given = dataclasses.replace(candidate, scores={**candidate.scores, **scores}, weight=weight)
        self._finished[given.trajectory.node] = self.candidates[given.index] = given
        return given

    def _add_candidate(self, t: Trajectory, given: Mapping[str, float] | None = None, weight: float | None = None) -> Candidate:
        answer, kind = self.answers.of(t)
        place, scores = len(self.candidates), {**self._judged_by.get(t.node, {}), **(given or {})}
        candidate = self._finished[t.node] = Candidate(
            t, answer, kind, place, self.tree.group_of(t), scores, math.nan if weight is None else weight
        )
        self.candidates.append(candidate)
        self.costs.whole.keep_for_closing(_CLOSING_S * len(self.candidates))
        self.answered = self.answered or answer is not None
        self._ended.append(t)
        if self._may_score is not None and not self._may_score(candidate, self._agreeing[kind]):
            self.unscorable.add(t.node)
            self.account.free(t.node)
        self._agreeing[kind] += t.status == "finished"
        return candidate

    def _check_going(self) -> None:
        if self.stopped is not None:
            raise SearchEnded(self.stopped.reason, self.stopped)

    async def judge(self, ts: Sequence[Trajectory]) -> None:
        """Score ended trajectories for a stop rule that uses scores, before `finish` calls it. Do nothing for other stop rules."""
        if self._judged is None:
            return
        role, aggregate = self._judged
        if ended := [t for t in ts if t.status in ("finished", "truncated") and t.root_kind not in REMARKS]:
            scores = await self.score_affordable(ended, role, aggregate)
            self._judged_by |= {t.node: {role: score} for t, score in zip(ended, scores.tolist(), strict=True)}

    async def extend(self, ts: Sequence[Trajectory], text: str, model: str = "policy") -> list[Trajectory]:
        """See `Search.extend`."""
        require(self._backends[model], ["extend"], "appending a text to a path")
        with self._call(writes=True):
            children = await self.rows.forced(ts, in_whole_characters(text), model, self.prompts.extend)
            await self.answers.add(children)  # a text that fills the context ends its path
            return children

    async def fork(self, t: Trajectory, at: int | str) -> Trajectory:
        """See `Search.fork`."""
        place = check_fork(t, at, self._backends[t.model], self.tree)
        with self._call(writes=True):
            return await forked(t, place, self.tree, self.prompts)

    async def rollout(self, ts: Sequence[Trajectory], steps: int, sampling: Sampling | None = None) -> list[Trajectory]:
        """See `Search.rollout`."""
        self.drop(self.rows.drop_scratch())
        ends = list(ts)
        for _ in range(steps):
            going = [i for i, t in enumerate(ends) if t.status == "active"]
            if not going:
                break
            queue = self.rows.queue([ends[i] for i in going], 1, STEP, sampling=sampling, model="policy", scratch=True)
            while not queue.is_done:
                with self._call(writes=True):
                    async with aclosing(self.rows.wave(queue, answered=self.answered, completed=bool(self.candidates))) as rows:
                        async for row in rows:
                            if (path := row.made) is not None:
                                ends[going[row.place]] = path
                if not queue.open_rows and queue.is_cut and not self.rows.fills_context(queue):
                    break
        return ends

    # Judging --------------------------------------------------------------------------------------------------------------------

    async def score(self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last") -> NDArray[np.float64]:
        """See `Search.score`."""
        known, stopped = await self._scored(ts, verifier, aggregate)
        if stopped is not None and not self.ended and np.isnan(known).all():
            raise SearchEnded(f"budget: {stopped.unit}")
        return known

    async def score_affordable(self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last") -> NDArray[np.float64]:
        """Return the scores like `score`, but NaN if the budget cannot pay: selections run after the end of the search."""
        return (await self._scored(ts, verifier, aggregate))[0]

    async def _scored(self, ts: Sequence[Trajectory], verifier: str, aggregate: str) -> tuple[NDArray[np.float64], Exhausted | None]:
        check_aggregate(aggregate)
        with self._call():
            stopped = await self.scoring.score(ts, verifier)
        known = [self.tree.scores.get((t.node, verifier)) for t in ts]
        scores = [np.nan if one is None else aggregate_scores(one, aggregate) for one in known]
        return np.array(scores, dtype=np.float64), stopped

    def step_scores(self, t: Trajectory, verifier: str = "main") -> tuple[float, ...] | None:
        """See `Search.step_scores`."""
        scores = self.tree.scores.get((t.node, verifier))
        return None if scores is None else scores.steps

    def test_outcomes(self, t: Trajectory, verifier: str) -> tuple[float, ...] | None:
        """Return the outcomes of the tests that a role's verifier ran (`StepScores.tests`); None: there are none."""
        scores = self.tree.scores.get((t.node, verifier))
        return None if scores is None else scores.tests

    async def ask(self, ts: Sequence[Trajectory], text: str, tokens: Sequence[str], model: str = "policy") -> NDArray[np.float64]:
        """See `Search.ask`."""
        require(self._backends[model], ["next_logprobs"], "asking for the next token")
        with self._call():
            return await self.prompts.ask(ts, in_whole_characters(text), tokens, model)

    async def hidden(self, ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        """See `Search.hidden`."""
        require(self._backends["policy"], ["hidden"], "reading hidden states")
        with self._call():
            return await self.prompts.hidden(ts)

    async def embed(self, texts: Sequence[str], embedder: Embedder | None = None) -> NDArray[np.float64]:
        """See `Search.embed`."""
        chosen = embedder or self.embedder
        if isinstance(chosen, HashedNgrams) and sum(map(len, texts)) > _FEW_CHARACTERS:
            return await self.run(chosen.vectors, texts)
        if not isinstance(chosen, CountedEmbedder):
            with self._call():
                return await self._within_time(chosen.embed(texts))
        refuse_unpriced(chosen, self.account.units)
        with self._call():
            vectors, tokens = await self._within_time(chosen.embed_counted(texts))
            bound = sum(len(text.encode()) for text in texts)
            usage = Usage(prompt_tokens=bound if tokens is None else tokens, estimated=tokens is None, flops=None, usd=None)
            self.account.book(Call("embed", "", len(texts), 0, usage))
            return vectors

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """See `Search.run`."""
        with self._call():
            return await self._within_time(in_thread(fn, *args))

    async def _within_time(self, work: Awaitable[T]) -> T:
        """Await work outside of models, within the time that is left, and book its seconds.

        Raises:
            Exhausted: the time is over; a thread cannot be stopped and ends by itself.
        """
        account, started = self.account, self._clock()
        try:
            return await asyncio.wait_for(work, account.seconds_left)
        except TimeoutError:
            account.check_time()
            raise
        finally:
            seconds = self._clock() - started
            account.book(Call("search", "", 0, 0, Usage(seconds=seconds, work_seconds=seconds)))

    def warn(self, line: str, *, timed: bool = False) -> None:
        """Add a line to the solution's warnings, once; `timed`: whether it depends on elapsed time."""
        self.timed = self.timed or timed
        if line not in self.warnings:
            self.warnings.append(line)

    # Forgetting -----------------------------------------------------------------------------------------------------------------

    def keep(self, ts: Sequence[Trajectory]) -> None:
        """See `Search.keep`."""
        self.tree.kept.append(self.tree.distinct_tokens(ts))
        kept = [*ts, *(candidate.trajectory for candidate in self.candidates), *self.rows.open_paths]
        needed = self.tree.above(kept) if self.account.kept else set[int]()  # whose scores read what is held above them
        for t in self.tree.doomed([t.node for t in kept]):
            self._prune(t, needed)

    def drop(self, ts: Sequence[Trajectory]) -> None:
        """See `Search.drop`."""
        for t in (one for one in ts if one.node not in self._finished):
            self._prune(t)

    def _prune(self, t: Trajectory, needed: Container[int] = ()) -> None:
        self.tree.pruned.add(t.node)
        if t.node not in needed:
            self.account.free(t.node)
        self.prompts.release(t)

    # Within ---------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self, *, writes: bool = False) -> Generator[None]:
        """Ensure that one call is in flight at a time; end the search if a limit is reached."""
        if writes:
            self._check_going()
        if self._busy:
            raise ConfigError("two calls of one search are in flight", hint="await one before the next; width is several rows in one call")
        self._busy = True
        if self._ended and not self.scoring.verifiers:  # no verifier will score them
            for t in self._ended:
                self.prompts.release(t)
            self._ended = []
        try:
            yield
        except Exhausted as end:
            raise SearchEnded(f"budget: {end.unit}") from None
        finally:
            self._busy = False
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            if self._on_call is not None:
                self._on_call(self)


def _content(prompt: Prompt) -> tuple[str, ...]:
    """Return the address of a caller's own prompt. It differs from the addresses of all prompts of a task."""
    if isinstance(prompt, str):
        return ("\0text", prompt)
    return ("\0messages", *(part for turn in prompt for part in (turn.role, turn.content)))
