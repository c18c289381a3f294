"""The search: what a strategy and a selection work with.

The search hides batching, accounts, tracing and cancellation. One call of a search is in flight at a time, often with
several trajectories. A call raises `SearchEnded`, for the solver alone, if no row can start or the stop rule fires.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import numpy as np

from tts import randomness
from tts._common.characters import join_surrogates
from tts.backends.base import Sampling
from tts.backends.capabilities import require
from tts.backends.metadata import metadata_of
from tts.budget.account import Exhausted
from tts.checks import check_int, check_prompt, check_text
from tts.errors import ConfigError
from tts.search.answers import Answers
from tts.search.completion import learn_length
from tts.search.context import SearchContext
from tts.search.ends import (
    END,
    ROWS_FAILED,
    STEP,
    SearchEnded,
    Share,
    Stops,
    Tokens,
    Until,
    end_of,
)
from tts.search.finishing import CandidateStream, Finishing, Show
from tts.search.lengths import MOST_ROWS
from tts.search.prompts import Prompts, content_of
from tts.search.rows import Order, RequestedRow, RowRequest
from tts.search.scoring import Scoring
from tts.search.writer import Done, Writer
from tts.thoughts import THINK
from tts.types import Candidate, Message, Problem, Prompt, Trajectory

T = TypeVar("T")
_CLOSING_S = 2e-5  # seconds a candidate that selection and solution take after the search
_TRIES = 3  # consecutive calls without one good row that end a search
_FREE = 8  # consecutive waves without a token that end a search; each is twice as wide as the wave before


class Search(Finishing):
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
        context: SearchContext,
        prompts: Prompts,
        scoring: Scoring,
        answers: Answers,
        *,
        seed: int,
        sampling: Sampling,
        on_call: Callable[[Search], None] | None = None,
        expected_tokens: int | None = None,
        portion: int | None = None,
        sampling_logprobs: bool = False,
        **finishing: Any,
    ) -> None:
        super().__init__(context, prompts, scoring, answers, **finishing)
        self.problem = context.problem
        self.task = context.task
        self.rows = Writer(
            context,
            prompts,
            sampling=sampling,
            unscorable=scoring.unscorable,
            sampling_logprobs=sampling_logprobs,
            expected=expected_tokens,
            portion=portion,
        )
        self._seed = seed
        self._key = randomness.problem_key(self.problem, self.task.name)
        self._on_call = on_call
        self._times_opened: Counter[tuple[str, ...]] = Counter()  # by the address of a prompt: its roots
        self._root: Trajectory | None = None
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

        async def add_child(row: RequestedRow) -> None:
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
        ask.is_streamed, ask.together = True, False  # the loop may be left before the last row
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

    async def _ask_to_end(
        self, ts: Sequence[Trajectory], n: int | None, model: str, *sampling: Any
    ) -> RowRequest | None:
        """Return the request of whole solutions; None where there is nothing to complete."""
        check_int("n", n, 1)
        await self._leave_stream()
        if not ts:
            return None
        order: Order = self._order
        if order == "finished" and metadata_of(self._backends[model]).arrivals:
            order = "arrived"  # servers show no streams by which rows could be compared
        is_drawn = order == "drawn"
        self.rows.begins_all_at_once = self.rows.begins_all_at_once or (n is None and not is_drawn)
        ask = self.rows.ask(
            ts,
            n,
            END,
            sampling=self.rows.sampling_at(*sampling),
            model=model,
            width=1 if self._judges and is_drawn else MOST_ROWS,  # one by one where each score may stop the search
            redraws=is_drawn,
            completes=True,
            together=n is not None and self._decide is None,
            order=order,
        )
        self.notes.timed = self.notes.timed or ask.order == "arrived"
        return ask

    async def _complete(self, ask: RowRequest, show: Show | None = None) -> None:
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
                raise SearchEnded(ROWS_FAILED)
            if ask.n is None and paths and not ask.begun:
                free_waves = self._count_free_waves(free_waves, spent_before)
        if ask.given_up or (ask.n is not None and ask.count < ask.n * len(ask.paths)):
            given_up = f"{ask.given_up} were given up for others"
            why = given_up if ask.given_up else "budget: the others could not begin at once"
            self._warn_short(ask, num_before, why)

    async def _write(self, ask: RowRequest, done: Done) -> None:
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

    async def _finish_rows(self, ask: RowRequest, paths: list[Trajectory], show: Show | None) -> None:
        """Make one call for rows of a request, and finish the rows that have ended; append their paths to `paths`."""

        async def finish(t: Trajectory) -> None:
            candidate = self.finish(t)
            if show is not None and candidate is not None:
                was_busy, self.is_busy = self.is_busy, False  # other calls may read while the request rests
                await show(candidate)
                self.is_busy = was_busy

        async def add(row: RequestedRow) -> None:
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

    def _leave(self, ask: RowRequest, num_before: int, reason: str) -> None:
        """Cancel the open rows of a request after a stop rule; otherwise keep them for a later request."""
        if self.notes.stop is not None:
            self.drop(self.rows.discard(ask))
        else:
            self.rows.interrupt(ask)
            self._warn_short(ask, num_before, reason)

    def _warn_short(self, ask: RowRequest, num_before: int, why: str) -> None:
        """Warn if not all of a fixed number of rows came to their end; `num_before`: the candidates before them."""
        paths = [c.trajectory for c in self.candidates[num_before:]]
        paths += [row.path for row in ask.begun if row.path is not None]
        num_ended, wanted = sum(t.status == "finished" for t in paths), (ask.n or 0) * len(ask.paths)
        is_limited = ask.given_up or why.startswith("budget")
        if self._root in ask.paths and wanted > 1 and num_ended < wanted and is_limited:
            self.notes.warn(f"{num_ended} of {wanted} samples were completed, {why}")

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
        from tts.search.forks import check_fork, fork_path  # few searches fork

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

            async def replace(row: RequestedRow, indices: Sequence[int] = indices) -> None:
                if row.made is not None:
                    ends[indices[row.place]] = row.made

            while not ask.is_done:
                await self._write(ask, replace)
                if ask.is_cut and not ask.open_rows and not self.rows.fills_context(ask):
                    break
        return ends

    # The live set -----------------------------------------------------------------------------------------------------

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

    # Its life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _failure: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the strategy: unless a stop rule ended it, the interrupted rows become candidates."""
        try:
            with suppress(asyncio.CancelledError):  # the strategy is over: the rest is to book what was written
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
