"""The search: what a strategy and a selection work with.

The search hides batching, accounts, tracing and cancellation. One call of a search is in flight at a time, often with
several trajectories. A call raises `SearchEnded`, for the solver alone, if no row can start or the stop rule fires.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts import randomness
from tts._common.characters import join_surrogates
from tts._core.threads import run_in_thread
from tts.backends.base import Backend, Sampling
from tts.backends.capabilities import require
from tts.backends.metadata import metadata_of
from tts.budget.account import Account, Exhausted
from tts.checks import check_int, check_prompt, check_text
from tts.errors import ConfigError
from tts.search.algorithms.aggregation import aggregate_scores, check_aggregate
from tts.search.algorithms.embedding import CountedEmbedder, Embedder, HashedNgrams, refuse_unpriced
from tts.search.answers import Answers, Candidates
from tts.search.costs import Costs
from tts.search.ends import (
    END,
    MOST_TOKENS,
    STEP,
    Notes,
    SearchEnded,
    Share,
    StopDecision,
    Stops,
    Thought,
    Tokens,
    Until,
    end_of,
)
from tts.search.forks import check_fork, fork_path
from tts.search.prompts import Prompts, content_of
from tts.search.rows import Ask, Row
from tts.search.scoring import Scoring, check_given
from tts.search.streaming import CandidateStream, Show
from tts.search.tree import Tree
from tts.search.writer import Done, Writer
from tts.tasks.base import Task
from tts.thoughts import THINK
from tts.types import Candidate, Message, Problem, Prompt, Trajectory
from tts.verifiers.base import Scale, estimate_unknown

T = TypeVar("T")
Decide = Callable[[Sequence[Candidate]], StopDecision | None]
_CLOSING_S = 2e-5  # seconds a candidate that selection and solution take after the search
_TRIES = 3  # consecutive calls without one good row that end a search
_FREE = 8  # consecutive waves without a token that end a search; each is twice as wide as the wave before
_FEW_CHARACTERS = 20_000  # texts up to this size are embedded as n-grams without a thread
REMARKS = frozenset({"critique", "verify"})  # kinds of prompts after which no solutions are written


class Search:
    """One problem's search, as strategies and selections use it.

    The solver makes the search and opens `root`. In `async with search:` the strategy runs. After the block every row
    that was begun is a candidate, and a selection chooses.

    Attributes:
        problem: The problem, without its reference answer and metadata.
        task: The problem's task.
        candidates: The candidates of `finish` and `complete` so far, in draw order. The list grows.
        tree: The nodes that were written. `tree.distinct_tokens(ts)` counts the tokens that trajectories keep alive.
        rows: The writer of rows, with the known lengths and costs of rows.
        scoring: The verifiers by role, their scores and comparisons.
        notes: Warnings and reasons.

    Example:
        >>> import tts
        >>> class Seen(tts.Strategy):
        ...     async def run(self, search):
        ...         made = await search.complete([search.root], n=2)
        ...         print(search.problem.text, search.left["tokens"], search.account.spent["samples"])
        ...         return made
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Seen()).answer
        3 + 4 - 2 370.0 2
        '5'
    """

    def __init__(  # noqa: PLR0913 - the parts of a search, by name
        self,
        *,
        problem: Problem,
        task: Task,
        backends: Mapping[str, Backend],
        costs: Costs,
        tree: Tree,
        prompts: Prompts,
        answers: Answers,
        scoring: Scoring,
        notes: Notes,
        seed: int,
        decide: Decide | None = None,
        judged: tuple[str, str] | None = None,
        sampling: Sampling,
        clock: Callable[[], float],
        on_call: Callable[[Search], None] | None = None,
        may_score: Callable[[Candidate, int], bool] | None = None,
        asked_of_all: Sequence[str] = (),
        expected_tokens: int | None = None,
        portion: int | None = None,
        sampling_logprobs: bool = False,
        order: Literal["drawn", "finished"] = "drawn",
    ) -> None:
        self.problem = problem
        self.task = task
        self.candidates = Candidates()
        self.tree = tree
        self.scoring = scoring
        self.notes = notes
        self.rows = Writer(
            problem=problem,
            task=task,
            backends=backends,
            sampling=sampling,
            costs=costs,
            tree=tree,
            prompts=prompts,
            clock=clock,
            spreads=any({"spreads", "tops"} & set(verifier.needs) for verifier in scoring.verifiers.values()),
            sampling_logprobs=sampling_logprobs,
            unscorable=scoring.unscorable,
            expected=expected_tokens,
            portion=portion,
        )
        self._costs = costs
        self._prompts = prompts
        self._answers = answers
        self._backends = backends
        self._seed = seed
        self._key = randomness.problem_key(problem, task.name)
        self._decide = decide
        self._judged = judged
        self._order: Literal["drawn", "finished"] = order
        self._clock = clock
        self._on_call = on_call
        self._may_score = may_score
        self._asked_of_all = asked_of_all
        self._judges = judged is not None
        self._stop_rule_scores: dict[int, dict[str, float]] = {}  # by node: the scores that the stop rule reads
        self._agreeing: Counter[int | None] = Counter()  # by class of answers: the candidates that were not truncated
        self._finished: dict[int, Candidate] = {}
        self._times_opened: Counter[tuple[str, ...]] = Counter()  # by the address of a prompt: its roots
        self._unreleased: list[Trajectory] = []  # candidates whose state is still held
        self._root: Trajectory | None = None
        self._is_over = False  # whether the strategy has ended, so that a selection chooses
        self.is_busy = False
        self._waiter: asyncio.Future[None] | None = None
        self._stream: CandidateStream | None = None  # the last one, if it was not left

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a search has no attribute {name!r}")

    # What may be read -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Trajectory:
        """The root of the "solve" prompt, which is read once."""
        assert self._root is not None, "the solver opens the root before the strategy runs"
        return self._root

    @property
    def account(self) -> Account:
        """The account that pays: limits, spend and what is left."""
        return self._costs.account

    @property
    def left(self) -> Mapping[str, float]:
        """The amounts left by limited unit, in whole units (dollars in 1e-15), and `seconds` of limited time."""
        account = self.account
        amounts = {unit: float(account.available(unit)) for unit in account.units}
        if account.seconds_left is not None:
            amounts["seconds"] = account.seconds_left
        return amounts

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """Return the number of plain samples of expected length that the budget still pays; None: no limit.

        The search learns the expected length. At first the caller, the model's record or the task states this length.
        If only time is limited, the result is the number of samples that have ended, and at least 4.

        Args:
            stepwise: Whether samples are scored at each step instead of once.
        """
        return self.rows.affordable_samples(stepwise=stepwise)

    def rng(self, purpose: str, *address: int | str) -> np.random.Generator:
        """Return the generator of an address. Each call restarts its draws: loops pass their step number."""
        return randomness.generator(self._seed, self._key, purpose, *address)

    # Writing ----------------------------------------------------------------------------------------------------------

    async def open(
        self,
        kind: str = "solve",
        *texts: str,
        prompt: Prompt | Sequence[Message] | None = None,
        group: int | None = None,
    ) -> Trajectory:
        """Return a new root, from a prompt of the task or of the caller's own.

        The task makes its prompt from a kind and earlier texts. A prompt that is opened again has draws of its own: the
        random stream depends on seed, problem, content and the number of times that the prompt was opened.

        Args:
            kind: One of the task's prompts ("revise", "fuse", "critique", …). With `prompt` any name: lengths are
                learnt by kind, at first from the task's constant for the kind, or for "solve". Texts after "critique"
                or "verify" are no solutions, and are not scored for a stop rule.
            texts: Earlier solutions that the task's prompt shows.
            prompt: The prompt in place of the task's: exact text, or chat messages.
            group: The group of the root's candidates, where they belong to the group of earlier candidates.

        Raises:
            ConfigError: the task has no such prompt; `prompt` is empty, of another type, or given with texts.
            PromptTooLong: the prompt leaves no room. SearchEnded: the budget cannot pay the prompt.
        """
        check_text("kind", kind)
        if prompt is not None and texts:
            raise ConfigError(
                "a prompt of one's own was given with texts, but those are for the task's prompts",
                hint="write them into it",
            )
        own_prompt = None if prompt is None else check_prompt(prompt)
        address = (kind, *texts) if own_prompt is None else content_of(own_prompt)
        await self._leave_stream()
        with self._call(writes=True):
            try:
                content = self.task.prompt(self.problem, kind, texts) if own_prompt is None else own_prompt
                opened = await self._prompts.read("policy", content)
            except ConfigError as refusal:
                if texts:
                    self.notes.warn(f"earlier solutions were not shown: {refusal.cause}")
                raise
            times_opened = self._times_opened[address]
            self._times_opened[address] += 1
            repeat = [str(times_opened)] if times_opened else []
            marks = metadata_of(self._backends["policy"]).thoughts or THINK
            root = Trajectory(
                parent=None,
                text="",
                token_ids=(),
                logprobs=(),
                status="active",
                stream=randomness.root_stream(self._seed, self._key, *address, *repeat),
                node=len(self.tree.nodes),
                num_tokens=0,
                depth=0,
                root_kind=kind,
                handle=opened.handle,
                marks=marks.continue_prompt(content),
            )
            self.tree.add(root, opened.tokens, group)
            if own_prompt is not None:
                self.tree.own_prompts[root.node] = Problem(own_prompt).text
            self._prompts.remember(root, content)
            self._root = self._root or root
            return root

    async def expand(
        self,
        ts: Sequence[Trajectory],
        n: int = 1,
        until: Until | Tokens | Share | Stops = STEP,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model: str = "policy",
    ) -> list[list[Trajectory]]:
        """Return up to n children of each trajectory, in order.

        Failed rows are left out, charged and counted by kind. Rows that cost no sample begin first. Then come the first
        children of all trajectories, and so on. As many rows begin as the budget pays to their end. Rows that a grant
        cuts are continued within the call.

        Args:
            ts: Active trajectories; a trajectory listed twice is two requests.
            n: The children of each trajectory.
            until: The end of a row: STEP, END, Tokens, Share, Stops or Thought.
            temperature: The temperature; None: the run's.
            max_tokens: The most tokens of a row; None: the run's.
            model: The role that writes.

        Raises:
            SearchEnded: not one row can start.
        """
        check_int("n", n, 1, optional=False)
        await self._leave_stream()
        sampling = self.rows.sampling_at(temperature, max_tokens)
        try:
            return await self._expand(ts, n, until, sampling, model)
        except SearchEnded as end:
            if not await learn_length(self, end):
                raise
        return await self._expand(ts, n, until, sampling, model)

    async def _expand(
        self, ts: Sequence[Trajectory], n: int, until: Until | Tokens | Share | Stops, sampling: Sampling, model: str
    ) -> list[list[Trajectory]]:
        children: list[list[Trajectory]] = [[] for _ in ts]
        if not ts:
            return children
        ask = self.rows.ask(ts, n, until, sampling=sampling, model=model)

        async def add_child(row: Row) -> None:
            """Put the path of a row among the children of its parent, unless the row failed."""
            path = row.path
            if path is not None and path.status != "failed":
                await self._answers.add([path])
                children[row.place % len(children)].append(path)

        while not ask.is_done:
            try:
                await self._write(ask, add_child)
            except SearchEnded:
                if not ask.count:
                    raise
                break
            if until is not END and ask.is_cut and not ask.open_rows and not self.rows.fills_context(ask):
                break
        self.rows.unbegun += int(ask.left)
        for row in self.rows.leave_off(ask.begun) if until is END else ask.begun:
            await add_child(row)
        await self._judge(list(chain.from_iterable(children)))
        return children

    async def complete(
        self,
        ts: Sequence[Trajectory],
        n: int | None = 1,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        effort: str | None = None,
        thought_tokens: int | None = None,
        model: str = "policy",
    ) -> list[Candidate]:
        """Expand to the end and finish, in waves; return the new candidates.

        Waves go on until each trajectory has n continuations. The candidates come in draw order. Under a stop rule of
        finish order (`StopRule.order`) they are ordered by tokens, then by draw.

        Args:
            ts: The trajectories to complete.
            n: The continuations of each trajectory, without failed rows; None: as many as the budget pays.
            temperature: As in `expand`.
            max_tokens: As in `expand`.
            model: As in `expand`.
            effort: See `Sampling`; None for the run's.
            thought_tokens: See `Sampling`; None for the run's.

        Raises:
            SearchEnded: the budget is used up before the last row, all rows of three waves failed, or the stop rule
                fired. `candidates` has what was finished.
        """
        num_before = len(self.candidates)
        if ask := await self._ask_to_end(ts, n, model, temperature, max_tokens, effort, thought_tokens):
            await self._complete(ask)
        return self.candidates[num_before:]

    async def stream(
        self,
        ts: Sequence[Trajectory],
        n: int | None = 1,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        effort: str | None = None,
        thought_tokens: int | None = None,
        model: str = "policy",
    ) -> AsyncGenerator[Candidate]:
        """Yield each candidate of `complete` as soon as it is there.

        The k-th candidate is that of `complete`, whatever the rows after it cost. In the loop `score`, `ask`, `hidden`,
        `embed` and `run` may be called. Leaving the loop cancels the open rows, which are charged as after a stop rule:
        they are no candidates. A `break` does so at the latest with the next call that writes.

        Args:
            ts: As in `complete`, like all parameters.
            n: See `complete`.
            temperature: See `complete`.
            max_tokens: See `complete`.
            effort: See `complete`.
            thought_tokens: See `complete`.
            model: See `complete`.

        Raises:
            SearchEnded: As in `complete`.

        Example:
            >>> import tts
            >>> class Agreed(tts.Strategy):
            ...     async def run(self, search):
            ...         seen = []
            ...         async for candidate in search.stream([search.root], n=None):
            ...             if candidate.answer is not None and candidate.answer in seen:
            ...                 break  # the second equal answer
            ...             seen.append(candidate.answer)
            >>> found = tts.solve("3 + 4 - 2", 400, model="toy", strategy=Agreed())
            >>> found.answer, len(found.candidates)
            ('5', 2)
        """
        ask = await self._ask_to_end(ts, n, model, temperature, max_tokens, effort, thought_tokens)
        if ask is None:
            return
        ask.is_streamed = True
        stream = self._stream = CandidateStream(partial(self._complete, ask))
        try:
            while (candidate := await stream.next()) is not None:
                yield candidate
        finally:
            await stream.close()

    async def _leave_stream(self) -> None:
        """Cancel what an open stream still writes, because another call is to write, or the strategy has ended."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _ask_to_end(self, ts: Sequence[Trajectory], n: int | None, model: str, *sampling: Any) -> Ask | None:
        """Return the request of whole solutions; None where there is nothing to complete."""
        check_int("n", n, 1)
        await self._leave_stream()
        if not ts:
            return None
        ask = self.rows.ask_to_end(
            ts, n, sampling=self.rows.sampling_at(*sampling), model=model, order=self._order, judges=self._judges
        )
        self.notes.timed = self.notes.timed or ask.order == "arrived"
        return ask

    async def _complete(self, ask: Ask, show: Show | None = None) -> None:
        """Write a request of whole solutions, in calls; `show` gets each candidate. See `complete`."""
        num_before, failed_waves, free_waves = len(self.candidates), 0, 0
        spent_before = self._spend()
        while not ask.is_done:
            paths: list[Trajectory] = []  # of the rows that this call brings to their end
            if ask.n is None and not ask.begun:
                spent_before = self._spend()
            try:
                await self._finish_rows(ask, paths, show)
            except SearchEnded as end:
                if self.notes.stop is None and await self._score_candidates():
                    continue  # scores may cost less than their reserves, so that more rows can be paid
                self._leave(ask, num_before, end.reason)
                raise
            except BaseException:
                if ask.is_streamed:  # nobody asks for them any more
                    self.drop(self.rows.discard(ask))
                else:  # keep the written rows for a later call
                    ask.put_back([t for t in paths if t.node not in self._finished])
                    self.rows.interrupt(ask)
                raise
            failed_waves = 0 if paths or ask.begun else failed_waves + 1
            if failed_waves == _TRIES:
                raise SearchEnded("every row failed")
            if ask.n is None and paths and not ask.begun:
                free_waves = self._count_free_waves(free_waves, spent_before)
        if ask.given_up or (ask.n is not None and ask.count < ask.n * len(ask.paths)):
            given_up = f"{ask.given_up} were given up for others"
            why = given_up if ask.given_up else "budget: the others could not begin at once"
            self._warn_short(ask, num_before, why)

    async def _write(self, ask: Ask, done: Done) -> None:
        """Make one call for rows of a request; `done` gets the rows that are over."""
        with self._call(writes=True):
            has_answer = self.candidates.votes.total > 0
            await self.rows.write(ask, done, answered=has_answer, completed=bool(self.candidates))

    def _spend(self) -> dict[str, int]:
        """Return the search's spend of tokens and of each limited unit."""
        return {unit: self._costs.whole.spending(unit) for unit in {"tokens", *self.account.units}}

    def _count_free_waves(self, free_waves: int, spent_before: Mapping[str, int]) -> int:
        """Return the number of consecutive waves that spent no token, up to the last wave.

        Args:
            free_waves: The number before the last wave.
            spent_before: The spend before the last wave, by unit.

        Raises:
            SearchEnded: A wave spent no limited unit. Where time is limited: many consecutive waves spent no token.
        """
        spent_after = self._spend()
        free_waves = free_waves + 1 if spent_before["tokens"] == spent_after["tokens"] else 0
        is_free = all(spent_before[unit] == spent_after[unit] for unit in self.account.units)
        if is_free and (self.account.deadline is None or free_waves == _FREE):
            raise SearchEnded("nothing is spent any more")
        return free_waves

    async def _finish_rows(self, ask: Ask, paths: list[Trajectory], show: Show | None) -> None:
        """Make one call for rows of a request, and finish the rows that have ended; append their paths to `paths`."""

        async def finish(t: Trajectory) -> None:
            candidate = self.finish(t)
            if show is not None and candidate is not None:
                was_busy, self.is_busy = self.is_busy, False  # other calls may read while the request rests
                await show(candidate)
                self.is_busy = was_busy

        async def add(row: Row) -> None:
            path = row.path
            if path is not None and path.status != "failed":
                paths.append(path)
                await self._answers.add([path])
                if not self._judges:
                    await finish(path)

        await self._write(ask, add)
        if self._judges:
            await self._judge(paths)
            for t in paths:
                await finish(t)

    async def _score_candidates(self) -> bool:
        """Score the candidates that have a reserve for a score; return whether there were such candidates."""
        reserved = [c.trajectory for c in self.candidates if self._costs.is_owed(c.trajectory.node)]
        if not reserved or not self._asked_of_all:
            return False
        for role in self._asked_of_all:
            await self.score(reserved, role, required=False)
        return True

    def _leave(self, ask: Ask, num_before: int, reason: str) -> None:
        """Cancel the open rows of a request after a stop rule; otherwise keep them for a later request."""
        if self.notes.stop is not None:
            self.drop(self.rows.discard(ask))
        else:
            self.rows.interrupt(ask)
            self._warn_short(ask, num_before, reason)

    def _warn_short(self, ask: Ask, num_before: int, why: str) -> None:
        """Warn if not all of a fixed number of rows came to their end; `num_before`: the candidates before them."""
        paths = [c.trajectory for c in self.candidates[num_before:]]
        paths += [row.path for row in ask.begun if row.path is not None]
        num_ended, wanted = sum(t.status == "finished" for t in paths), (ask.n or 0) * len(ask.paths)
        is_limited = ask.given_up or why.startswith("budget")
        if self._root in ask.paths and wanted > 1 and num_ended < wanted and is_limited:
            self.notes.warn(f"{num_ended} of {wanted} samples came to their end, {why}")

    def finish(
        self, t: Trajectory, *, scores: Mapping[str, float] | None = None, weight: float | None = None
    ) -> Candidate | None:
        """Return the candidate of a finished or truncated trajectory; None for any other trajectory.

        The candidate has the trajectory's answer if there is one. If the path is a candidate already, this candidate
        takes the scores and the weight and keeps its place among `candidates`.

        Args:
            t: The trajectory that ended.
            scores: Finite scores of the strategy's own, by a role that no verifier has. Selections by score read them
                at no cost, where the strategy names the role in `Needs.scores`. Sums take scores below 0 or above 1 as
                log-odds.
            weight: The candidate's number of votes in `majority`, at least 0; None: 1.

        Raises:
            SearchEnded: the stop rule fires on the candidates so far. Every later call that would write raises it too.
            ConfigError: the trajectory is a rollout; a score or the weight is no such number; the role is a verifier's.
        """
        if t.node in self.tree.scratch:
            raise ConfigError(
                f"node {t.node} is of a rollout, which is scored and dropped, but only a path of the tree can be "
                "finished"
            )
        if scores is not None or weight is not None:
            check_given(scores, weight, self.scoring.verifiers)
        if t.node in self._finished:
            earlier = self._finished[t.node]
            return earlier if scores is None and weight is None else self._attach_scores(earlier, scores or {}, weight)
        if t.status not in ("finished", "truncated"):
            return None
        candidate = self._add_candidate(t, scores or {}, weight)
        if self._decide is not None:
            self.notes.stop = self.notes.stop or self._decide(self.candidates)
            self._check_going()
        return candidate

    def _note_given(self, scores: Mapping[str, float]) -> None:
        for role, score in scores.items():
            self.scoring.given_roles[role] = self.scoring.given_roles.get(role, True) and 0 <= score <= 1

    def _attach_scores(self, candidate: Candidate, scores: Mapping[str, float], weight: float | None) -> Candidate:
        """Put scores and a weight that a strategy gives into its candidate."""
        self._note_given(scores)
        weight = candidate.weight if weight is None else weight
        updated = dataclasses.replace(candidate, scores={**candidate.scores, **scores}, weight=weight)
        self._finished[updated.trajectory.node] = self.candidates[updated.index] = updated
        return updated

    def _add_candidate(
        self, t: Trajectory, given: Mapping[str, float] | None = None, weight: float | None = None
    ) -> Candidate:
        """Return a new candidate, and free the reserve for its score if no verifier may score the candidate."""
        self._note_given(given or {})
        answer, answer_class = self._answers.answer_of(t)
        candidate = self._finished[t.node] = Candidate(
            trajectory=t,
            answer=answer,
            answer_class=answer_class,
            index=len(self.candidates),
            group=self.tree.group_of(t),
            scores={**self._stop_rule_scores.get(t.node, {}), **(given or {})},
            weight=math.nan if weight is None else weight,
        )
        self.candidates.append(candidate)
        self._unreleased.append(t)
        if self._may_score is not None and not self._may_score(candidate, self._agreeing[answer_class]):
            self.scoring.unscorable.add(t.node)
            if self._costs.keeps_scores:
                self._costs.free([t.node])
        self._agreeing[answer_class] += t.status == "finished"
        return candidate

    def _check_going(self) -> None:
        if self.notes.stop is not None:
            raise SearchEnded(self.notes.stop.reason, self.notes.stop)

    async def _judge(self, ts: Sequence[Trajectory]) -> None:
        """Score ended trajectories if the stop rule reads scores, before `finish` asks this rule."""
        if self._judged is None:
            return
        role, aggregate = self._judged
        ended = [t for t in ts if t.status in ("finished", "truncated") and t.root_kind not in REMARKS]
        if ended:
            scores = await self.score(ended, role, aggregate, required=False)
            for t, score in zip(ended, scores.tolist(), strict=True):
                self._stop_rule_scores[t.node] = {role: score}

    async def extend(self, ts: Sequence[Trajectory], text: str, *, model: str = "policy") -> list[Trajectory]:
        """Return one child of each trajectory with forced text after it (an answer cue, "Wait").

        The text is charged as input, not as generated tokens. A finished trajectory goes on without its end of
        sequence, which stays charged. Prompt and path are then read anew, as input. A candidate stays a candidate, and
        its continuations belong to its group.

        Raises:
            ConfigError: a trajectory is truncated, failed or pruned. SearchEnded: the budget cannot pay the text.
            CapabilityError: the backend cannot append text; nothing is spent.
        """
        require(self._backends[model], ["extend"], "appending a text to a path")
        await self._leave_stream()
        with self._call(writes=True):
            children = await self.rows.force(ts, join_surrogates(text), model, self._prompts.extend)
            await self._answers.add(children)  # a text that fills the context ends its path
            return children

    async def fork(self, t: Trajectory, at: int | str) -> Trajectory:
        """Return the path up to a place in a trajectory's last piece, to branch off there.

        The returned path is the prefix, and `expand([prefix], n)` makes n forks. The node is divided. The text after
        the place is the first child of the prefix, so that every fork costs a sample. Fork j >= 1 has a stream of its
        own, by (stream, position, j), where j counts the forks of one place over all calls. The state is read anew, as
        input. The caller's trajectories, candidates and scores stay as they are.

        Args:
            t: The trajectory to fork.
            at: The number of tokens of the last piece (`token_ids`) that the prefix keeps, at least 1 and below all. Or
                a text: the prefix ends before its last occurrence in that piece. A text serves where tokens are not
                shown too; the number of tokens is then an estimate.

        Raises:
            CapabilityError: the backend shows no token ids (for a number), or cannot append text; nothing is spent.
            ConfigError: there is no such place, or the place is inside of a character. SearchEnded: the budget cannot
                pay the reading.
        """
        place = check_fork(t, at, self._backends[t.model], self.tree)
        await self._leave_stream()
        with self._call(writes=True):
            return await fork_path(t, place, self.tree, self._prompts)

    async def rollout(
        self, ts: Sequence[Trajectory], steps: int, *, temperature: float | None = None
    ) -> list[Trajectory]:
        """Return each trajectory continued by up to `steps` steps, for `score` alone.

        The steps are charged. The next call of this method drops them. A trajectory that has ended, or whose rollout
        could not start, is returned as it is.
        """
        await self._leave_stream()
        self.drop(self.rows.drop_scratch())
        ends = list(ts)
        for _ in range(steps):
            indices = [i for i, t in enumerate(ends) if t.status == "active"]  # of the paths that go on
            if not indices:
                break
            sampling, parents = self.rows.sampling_at(temperature), [ends[i] for i in indices]
            ask = self.rows.ask(parents, 1, STEP, sampling=sampling, model="policy", scratch=True)

            async def replace(row: Row, indices: Sequence[int] = indices) -> None:
                if row.made is not None:
                    ends[indices[row.place]] = row.made

            while not ask.is_done:
                await self._write(ask, replace)
                if ask.is_cut and not ask.open_rows and not self.rows.fills_context(ask):
                    break
        return ends

    # Judging ----------------------------------------------------------------------------------------------------------

    async def score(
        self,
        ts: Sequence[Trajectory],
        verifier: str = "main",
        aggregate: str = "last",
        *,
        scale: Scale = "raw",
        required: bool = True,
    ) -> NDArray[np.float64]:
        """Return one score a trajectory, NaN where unknown. Each node is scored once, and its score is kept.

        Args:
            ts: The trajectories.
            verifier: The role.
            aggregate: "last", "min", "prod", "mean" or "model".
            scale: "raw": the verifier's own scale. "unit": mapped from the verifier's range to [0, 1]. "log_odds":
                ln(r / (1 - r)) of the unit score r; an unbounded score is a log-odds already.
            required: Whether the search ends where the budget cannot pay for a single score, in place of NaN.

        Raises:
            SearchEnded: The budget cannot pay for a single score.
            ConfigError: The scores are to be mapped, but have no scale.
        """
        check_aggregate(aggregate)
        with self._call():
            shortage = await self.scoring.score(ts, verifier)
        scores = np.full(len(ts), np.nan)
        for i, t in enumerate(ts):
            if (t.node, verifier) in self.tree.scores:
                scores[i] = aggregate_scores(self.tree.scores[t.node, verifier], aggregate)
        if shortage is not None and required and not self._is_over and np.isnan(scores).all():
            raise SearchEnded(f"budget: {shortage.unit}")
        return self.scoring.map_scores(scores, verifier, scale)

    async def estimate(
        self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last", *, scale: Scale = "raw"
    ) -> NDArray[np.float64]:
        """Return scores as `score` does, with estimates for unknown ones; see `Scoring.with_estimates`."""
        scores = await self.score(ts, verifier, aggregate, scale=scale)
        return self.scoring.with_estimates(scores, verifier, aggregate, scale)

    async def ask(
        self, ts: Sequence[Trajectory], text: str, tokens: Sequence[str], *, model: str = "policy"
    ) -> NDArray[np.float64]:
        """Return the probabilities [trajectories, tokens] of next tokens after an appended text, untempered.

        The text is charged as verifier tokens. It does not become part of the path.
        """
        require(self._backends[model], ["next_logprobs"], "asking for the next token")
        with self._call():
            return await self._prompts.ask(ts, join_surrogates(text), tokens, model)

    async def hidden(self, ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the policy's last hidden state at each path's end [trajectories, width]; paid as `extend`."""
        require(self._backends["policy"], ["hidden"], "reading hidden states")
        with self._call():
            return await self._prompts.hidden(ts)

    async def embed(self, texts: Sequence[str], embedder: Embedder | None = None) -> NDArray[np.float64]:
        """Return the unit vectors [texts, dimensions] of texts, by an embedder or by default the solver's."""
        embedder = embedder or self.scoring.embedder
        if isinstance(embedder, HashedNgrams) and sum(map(len, texts)) > _FEW_CHARACTERS:
            return await self.run(embedder.vectors, texts)
        if not isinstance(embedder, CountedEmbedder):
            with self._call():
                return await self._within_time(embedder.embed(texts))
        refuse_unpriced(embedder, self.account.units)
        with self._call():
            vectors, counted = await self._within_time(embedder.embed_and_count(texts))
            tokens = sum(len(text.encode()) for text in texts) if counted is None else counted
            is_estimated = counted is None
            self.account.book(
                "embed", rows=len(texts), prompt_tokens=tokens, estimated=is_estimated, flops=None, usd=None
            )
            return vectors

    # The rest ---------------------------------------------------------------------------------------------------------

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run CPU work (an integer program, clustering) beside the event loop, booked as "search".

        Raises:
            SearchEnded: the time is over. The function cannot be stopped, but the search no longer waits for it.
        """
        with self._call():
            return await self._within_time(run_in_thread(fn, *args))

    async def _within_time(self, work: Awaitable[T]) -> T:
        """Await work within the time left, and book its seconds. The work calls no model.

        Raises:
            Exhausted: the time is over. A thread cannot be stopped and ends by itself.
        """
        account, started = self.account, self._clock()
        try:
            return await asyncio.wait_for(work, account.seconds_left)
        except TimeoutError:
            account.check_time()
            raise
        finally:
            seconds = self._clock() - started
            account.book("search", seconds=seconds, work_seconds=seconds)

    def keep(self, ts: Sequence[Trajectory]) -> None:
        """Make `ts` the live set: prune other unfinished paths and release their state. Candidates stay."""
        self.tree.kept.append(self.tree.distinct_tokens(ts))
        paths = [*ts, *(candidate.trajectory for candidate in self.candidates), *self.rows.open_paths]
        # pending scores of the kept paths read the states of their ancestors
        scored_ancestors = self.tree.path_nodes(paths) if self._costs.owes else set[int]()
        self._prune(self.tree.nodes_to_drop([t.node for t in paths]), scored_ancestors)

    def drop(self, ts: Sequence[Trajectory]) -> None:
        """Prune the unfinished paths among `ts`, and no others."""
        self._prune([t for t in ts if t.node not in self._finished])

    def _prune(self, ts: Sequence[Trajectory], keep_reserves: Container[int] = ()) -> None:
        self.tree.pruned.update(t.node for t in ts)
        self._costs.free([t.node for t in ts if t.node not in keep_reserves])
        self._prompts.release(ts)

    def _note_time(self) -> None:
        self._costs.whole.keep_for_closing(_CLOSING_S * len(self.candidates))
        self.notes.timed_out = self.rows.timed_out or self._answers.timed_out or self.scoring.timed_out

    @contextmanager
    def stop_rule(self, should_stop: Decide, order: Literal["drawn", "finished"]) -> Generator[None]:
        """Let a further rule end what is written in the block.

        Args:
            should_stop: The rule, a function of the candidates of the block.
            order: The order of whole solutions in the block (`StopRule.order`).
        """
        num_before, outer_decide, outer_order = len(self.candidates), self._decide, self._order
        decisions: list[StopDecision] = []  # of the further rule

        def decide(candidates: Sequence[Candidate]) -> StopDecision | None:
            decision = should_stop(candidates[num_before:])
            if decision is not None:
                decisions.append(decision)
            if decisions:
                return decisions[-1]
            return None if outer_decide is None else outer_decide(candidates)

        self._decide, self._order = decide, order
        try:
            yield
        finally:
            self._decide, self._order = outer_decide, outer_order
            if self.notes.stop in decisions:
                self.notes.stop = None

    # Its life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _failure: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the strategy: unless a stop rule ended it, the interrupted rows become candidates."""
        try:
            await self._leave_stream()
            if self.notes.stop is None:
                for row in list(self.rows.conclude()):
                    if row.made is not None:
                        await self._answers.add([row.made])
                        self._add_candidate(row.made)
        finally:
            self._is_over = True
            self._note_time()
            while self.is_busy:  # a call that the strategy did not await; its cost must still be booked
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter

    @contextmanager
    def _call(self, *, writes: bool = False) -> Generator[None]:
        """Ensure that one call is in flight at a time; end the search if a limit is reached."""
        if writes:
            self._check_going()
        if self.is_busy:
            raise ConfigError(
                "two calls of one search are in flight",
                hint="await one before the next; width is several rows in one call",
            )
        self.is_busy = True
        if self._unreleased and not self.scoring.verifiers:  # no verifier will need the candidates' states
            self._prompts.release(self._unreleased)
            self._unreleased = []
        try:
            yield
        except Exhausted as end:
            raise end_of(end, has_candidates=bool(self.candidates)) from None
        finally:
            self.is_busy = False
            self._note_time()
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            if self._on_call is not None:
                self._on_call(self)


# How a search comes to an answer where its strategy cannot ------------------------------------------------------------


async def responding(search: Search, t: Trajectory) -> Trajectory:
    """End an open thought that leaves room for a response, and return the path with its thought ended.

    Other paths, and thoughts that met the end of the context or whose rows failed, are returned as they are. So is a
    thought for which no request of its own is left: one request then writes thought and response.

    Raises:
        SearchEnded: the budget cannot pay the rest of the thought.
    """
    caps = search.rows.caps_of(t.model)
    if not (t.num_tokens and t.is_thinking and caps.thoughts) or caps.extend == "absent":
        return t
    try:
        (children,) = await search.expand([t], 1, Thought(MOST_TOKENS), model=t.model)
    except SearchEnded as end:
        if end.out_of_budget and search.left.get("requests", 0) > 0:
            return t
        raise
    path = children[0] if children else t
    if path.is_thinking and path.status in ("active", "finished"):
        (path,) = await search.extend([path], path.marks.close, model=path.model)
    return path


def best_active(search: Search) -> Trajectory:
    """Return the live trajectory most worth completing, or the root.

    The greatest score by the first verifier decides, then whether the path is the plain sample's, then its length.
    """
    tree = search.tree
    excluded = tree.scratch | {t.node for t in search.rows.open_paths}
    paths = [t for t in tree.held.values() if t.status == "active" and t.parent is not None and t.node not in excluded]
    leaves = [t for t in paths if not tree.children_of(t)]  # another child would cost a sample
    scores = [[tree.scores[t.node, r] for r in search.scoring.verifiers if (t.node, r) in tree.scores] for t in leaves]
    known = np.array([aggregate_scores(first[0], "last") if first else math.nan for first in scores])
    estimates = estimate_unknown(known, otherwise=0.0).tolist()
    order = [(s, t.stream == t.root.stream, t.num_tokens, -t.node) for s, t in zip(estimates, leaves, strict=True)]
    return leaves[order.index(max(order))] if leaves else search.root


async def complete_best(search: Search) -> None:
    """Complete the best active trajectory, or draw a plain sample. The reserve for this purpose pays.

    Raises:
        SearchEnded: the budget cannot pay the path, or the stop rule fires.
    """
    search.rows.stop_assuming()
    best = await responding(search, best_active(search))
    if best.status == "active":
        await search.complete([best])
    else:
        search.finish(best)


async def learn_length(search: Search, end: SearchEnded) -> bool:
    """Complete a path where only an assumed length keeps rows from beginning; return whether it did.

    This happens once in a search. Until a path has ended, the reserve for the end of a path is the task's constant.
    Small budgets may not pay this reserve, although they pay many solutions. Afterwards lengths are known.

    Args:
        search: The search.
        end: The end of the request for rows.

    Raises:
        SearchEnded: the budget cannot pay the path, or the stop rule fires.
    """
    if not end.out_of_budget or not search.rows.take_assumption():
        return False
    await complete_best(search)
    return True
