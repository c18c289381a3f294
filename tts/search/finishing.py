"""The candidates of a search: their scores, the stop rule that reads them, and streams of them."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from tts.errors import ConfigError
from tts.search.answers import Answers, Candidates
from tts.search.context import SearchContext
from tts.search.ends import SearchEnded, StopDecision
from tts.search.prompts import Prompts
from tts.search.reading import ReadingCalls
from tts.search.scoring import Scoring, check_given
from tts.types import Candidate, Trajectory

Decide = Callable[[Sequence[Candidate]], StopDecision | None]
Show = Callable[[Candidate], Awaitable[None]]
REMARKS = frozenset({"critique", "verify"})  # kinds of prompts after which no solutions are written


class Finishing(ReadingCalls):
    """The calls of a search that make candidates.

    Args:
        context: What the parts of the search share.
        prompts: The prompts that were read.
        scoring: The verifiers by role.
        answers: The answers of paths that have ended.
        decide: The stop rule; None: there is none.
        order: The order in which the stop rule reads whole solutions.
        judged: The role and the aggregation of the scores that the stop rule reads; None: it reads none.
        may_score: Whether the selection may score a candidate; None: the strategy scores.
        asked_of_all: The roles that will score every candidate.
    """

    def __init__(  # noqa: PLR0913 - the parts of a search, by name
        self,
        context: SearchContext,
        prompts: Prompts,
        scoring: Scoring,
        answers: Answers,
        *,
        decide: Decide | None = None,
        order: Literal["drawn", "finished"] = "drawn",
        judged: tuple[str, str] | None = None,
        may_score: Callable[[Candidate, int], bool] | None = None,
        asked_of_all: Sequence[str] = (),
    ) -> None:
        super().__init__(context, prompts, scoring)
        self.candidates = Candidates()
        self.notes = context.notes
        self._answers = answers
        self._decide = decide
        self._order: Literal["drawn", "finished"] = order
        self._judged = judged
        self._may_score = may_score
        self._asked_of_all = asked_of_all
        self._judges = judged is not None
        self._stop_rule_scores: dict[int, dict[str, float]] = {}  # by node: the scores that the stop rule reads
        self._agreeing: dict[int | None, int] = {}  # by class of answers: the candidates that were not truncated
        self._finished: dict[int, Candidate] = {}
        self._unreleased: list[Trajectory] = []  # candidates whose state is still held

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
        if given:
            self._note_given(given)
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
        if self._may_score is not None and not self._may_score(candidate, self._agreeing.get(answer_class, 0)):
            self.scoring.unscorable.add(t.node)
            if self._costs.keeps_scores:
                self._costs.free([t.node])
        self._agreeing[answer_class] = self._agreeing.get(answer_class, 0) + (t.status == "finished")
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

    async def _score_candidates(self) -> bool:
        """Score the candidates that have a reserve for a score; return whether a reserve was freed."""
        reserved = [c.trajectory for c in self.candidates if self._costs.is_owed(c.trajectory.node)]
        if not reserved or not self._asked_of_all:
            return False
        for role in self._asked_of_all:
            await self.score(reserved, role, required=False)
        return not all(self._costs.is_owed(t.node) for t in reserved)

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


class CandidateStream:
    """The candidates of one request, handed over one by one.

    The request runs in a task. After each candidate it rests until the next one is asked for, while the model goes on
    writing. So what the books say between two candidates depends on no timing.

    Args:
        complete: Completes the request, and awaits its argument with each candidate.
    """

    def __init__(self, complete: Callable[[Show], Awaitable[object]]) -> None:
        self._complete = complete
        self._task: asyncio.Task[None] | None = None
        self._shown: asyncio.Future[Candidate | None] | None = None  # the next candidate; None: there is none
        self._asked: asyncio.Future[None] | None = None  # done when the next candidate is asked for

    async def next(self) -> Candidate | None:
        """Return the next candidate; None after the last.

        Raises:
            SearchEnded: The request has ended otherwise, such as by a stop rule.
        """
        if self._task is not None and self._task.done():
            return None
        self._shown = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        elif self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
        return await self._shown

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            await self._complete(self._show)
        except BaseException as error:  # noqa: BLE001 - raised where the next candidate is asked for
            failure = error
        if self._shown is not None and not self._shown.done():
            if failure is None:
                self._shown.set_result(None)
            elif isinstance(failure, asyncio.CancelledError):
                self._shown.cancel()
            else:
                self._shown.set_exception(failure)

    async def _show(self, candidate: Candidate) -> None:
        """Hand over a candidate, and rest until the next one is asked for."""
        self._asked = asyncio.get_running_loop().create_future()
        assert self._shown is not None, "a candidate was asked for"
        self._shown.set_result(candidate)
        await self._asked

    async def close(self) -> None:
        """Leave the request: its open rows are cancelled and charged.

        If the caller is cancelled meanwhile, it is cancelled after that.
        """
        if self._task is None or self._task.done():
            return
        self._task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not self._task.done():
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
