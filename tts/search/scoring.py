"""Scores of nodes. A verifier scores each node once.

The reserve that was made with the node pays for its score. A score that cannot be paid is unknown (NaN).

`MeteredCalls` gives a verifier its model. The verifier's tokens are charged to its problem, and never exceed its grant.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts._common.blame import Blame
from tts._common.characters import join_surrogates, prompt_in_whole_characters
from tts.backends.base import Backend, Reply, Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.capabilities import count_tokens, text_bound
from tts.backends.finite import clean_law
from tts.backends.metadata import metadata_of
from tts.backends.prompt_logprobs import law_of_tops
from tts.backends.reads import cancelled_and_done, read
from tts.budget.account import Exhausted, Lease
from tts.budget.budget import Rates
from tts.checks import check_number, check_text
from tts.errors import BudgetExceeded, ConfigError, EngineError, VerifierError, quote, unknown_name
from tts.randomness import hash64
from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.algorithms.embedding import NGRAMS, Embedder
from tts.search.costs import Costs
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.tasks.base import Task
from tts.thoughts import THINK
from tts.types import Problem, Prompt, Trajectory, prompt_text
from tts.verifiers.base import (
    Judgement,
    Scale,
    Scorer,
    StepScores,
    Verifier,
    estimate_unknown,
    is_half_infinite,
    stated_bound,
    to_log_odds,
    to_unit,
    traits_of,
)
from tts.verifiers.compatibility import token_rates
from tts.verifiers.ranges import no_scale, range_of

# trajectories of a call where time is limited: time is checked between calls, because a verifier may never pause
_IN_TIME = 1024
_COUNTS = ("computed", "written", "prompt", "reused")


class Scoring:
    """Asks the verifiers of one search and books their tokens.

    Args:
        verifiers: The verifiers by role.
        scorers: The verifiers' scorers, bound to the problem, by role.

    Attributes:
        given_roles: The roles of the strategy's own scores, each with whether all its scores lie in [0, 1].
        embedder: The embedder that compares texts.
        unscorable: The nodes of candidates that no verifier will score.
        unpaid: The nodes whose scores were wanted and could not be paid.
        asked: The roles that were asked.
        timed_out: Whether the time was over before a score was known.
        unknown: The counts of texts that verifiers could not read (see `Calls.note_unread`).
        judgements: The verifiers' prompts to models, with the replies.
        failures: The number of replies and scores in which a model or its server failed, by kind.
        causes: The cause of the first failure of each kind.
        strays: The first score of each role outside of the range that its earlier scores had, which count as the
            nearest end.
    """

    def __init__(  # noqa: PLR0913 - the parts of a search
        self,
        verifiers: Mapping[str, Verifier],
        scorers: Mapping[str, Scorer],
        *,
        task: Task,
        backends: Mapping[str, Backend],
        costs: Costs,
        tree: Tree,
        prompts: Prompts,
        stream: int,
        clock: Callable[[], float],
        gives_scores: Sequence[str] = (),
        embedder: Embedder | None = None,
    ) -> None:
        self.embedder = embedder or NGRAMS
        self.verifiers = verifiers
        self.unscorable: set[int] = set()
        self.given_roles: dict[str, bool] = dict.fromkeys(gives_scores, True)
        self._scorers = scorers
        self._task = task
        self._backends = backends
        self._costs = costs
        self._tree = tree
        self._prompts = prompts
        self._stream = stream
        self._clock = clock
        self.unpaid: set[int] = set()
        self.asked: set[str] = set()
        self.timed_out = False
        self.unknown: Counter[tuple[str, str]] = Counter()
        self.judgements: list[Judgement] = []
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self.strays: dict[str, float] = {}
        self._ranges: dict[str, tuple[float, float]] = {}

    def get(self, role: str) -> Verifier:
        """Return the verifier of a role.

        Raises:
            ConfigError: there is no such verifier.
        """
        if not self.verifiers:
            raise ConfigError(
                f"the role {role!r} has no verifier", hint="give verifier=…, or choose a selection that needs none"
            )
        if role not in self.verifiers:
            raise unknown_name("verifier role", role, self.verifiers)
        return self.verifiers[role]

    def scores_of(self, t: Trajectory, role: str = "main") -> StepScores | None:
        """Return a verifier's scores of a trajectory; None if the trajectory was not scored."""
        return self._tree.scores.get((t.node, role))

    def range_of(self, role: str) -> tuple[float, float]:
        """Return the range by which a role's scores are mapped.

        If the verifier states no range, all scores of the role at the first use decide for the whole search.
        """
        if role not in self._ranges:
            values: list[float] = []
            for (_node, scorer), scores in self._tree.scores.items():
                if scorer == role:
                    values += _values_of(scores)
            bounds = range_of(self.get(role), np.array(values, np.float64))
            if all(map(math.isnan, values)):
                return bounds
            self._ranges[role] = bounds
        return self._ranges[role]

    def map_scores(self, scores: NDArray[np.float64], role: str, scale: Scale) -> NDArray[np.float64]:
        """Return a role's scores on a scale (see `Search.score`).

        Raises:
            ConfigError: The scores are to be mapped, but have no scale.
        """
        if scale == "raw":
            return scores
        bounds = self.range_of(role)
        if is_half_infinite(bounds):
            raise no_scale(self.get(role), bounds)
        return to_unit(scores, bounds) if scale == "unit" else to_log_odds(scores, bounds)

    def with_estimates(
        self, scores: NDArray[np.float64], role: str, aggregate: str, scale: Scale
    ) -> NDArray[np.float64]:
        """Return a role's scores with the mean of the known ones in place of each unknown one.

        If none is known, the estimate is the mean of all that the role has scored in the search. Without any known
        score it is the middle of the unit scale, and 0 on other scales.
        """
        if not np.isnan(scores).any():
            return scores
        every = [aggregate_scores(s, aggregate) for (_, scorer), s in self._tree.scores.items() if scorer == role]
        known = self.map_scores(np.array(every, np.float64), role, scale)
        return estimate_unknown(scores, known, otherwise=0.5 if scale == "unit" else 0.0)

    async def score(self, ts: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score the unscored trajectories of `ts`, in order, as many as can be paid.

        A call in which a model failed (an `EngineError`) leaves its scores unknown. The failure is counted by kind. A
        later request for these scores repeats the call.

        Returns:
            The exhausted limit that left some trajectories unscored; None if no limit did.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        self.get(role)  # raises for a wrong role, even where nothing is to be scored
        unscored = list({t.node: t for t in ts if (t.node, role) not in self._tree.scores}.values())
        self.unpaid.update(t.node for t in unscored)
        shortage: Exhausted | None = None
        chunk_size = _IN_TIME if self._costs.account.deadline is not None else max(1, len(unscored))
        for start in range(0, len(unscored), chunk_size):
            chunk = unscored[start : start + chunk_size]
            chunk_shortage = await self._score(chunk, role)
            while chunk_shortage is not None and await self._has_waited(chunk_shortage.unit):
                chunk = [t for t in chunk if t.node in self.unpaid]
                chunk_shortage = await self._score(chunk, role)
            shortage = chunk_shortage or shortage
            if shortage is not None and shortage.unit == "seconds":
                break
        return shortage

    async def _has_waited(self, unit: str) -> bool:
        """Wait until other searches free some of a unit, and return whether they did before the time was over."""
        try:
            await self._costs.account.wait_for_more(unit)
        except Exhausted as failed_wait:
            if failed_wait.unit == "seconds" and unit != "seconds":
                self.timed_out = True
            return False
        return True

    async def _score(self, unscored: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score trajectories by one call; see `score`."""
        paid, amounts, shortage = self._affordable(unscored, role)
        if not paid:
            return shortage
        readers = paid if self._costs.reads_prompts(role) else ()
        read_roots = {self._tree.root_of(t) for t in readers if t.judged_text.strip() and self._can_resume(t, role)}
        calls = self._calls(role, amounts["bound"], amounts["prompts"])
        try:
            with self._lease("score", role, len(paid), amounts) as lease:
                self.unpaid.difference_update(t.node for t in paid)
                self.asked.add(role)
                started = self._clock()
                try:
                    with _blame(role):
                        scores = await self._scorers[role](paid, calls)
                finally:
                    self._spend(lease, role, len(paid), calls, started)
        # the time is over, or the verifier's reading of other paths or prompts cannot be paid
        except Exhausted as call_shortage:
            self.unpaid.update(t.node for t in paid)
            self.timed_out = self.timed_out or call_shortage.unit == "seconds"
            return call_shortage
        except EngineError as failure:
            self._note_failed(failure, len(paid))
            return shortage
        self._costs.note_prompts_read(role, read_roots, calls.prompt)
        is_late = self._costs.account.seconds_left == 0
        for t, t_scores in zip(paid, scores, strict=True):
            is_unknown = all(map(math.isnan, _values_of(t_scores)))
            if is_late and is_unknown:  # the score may be known later: the verifier had no time
                self.unpaid.add(t.node)
                self.timed_out = True
            else:
                self._tree.scores[t.node, role] = t_scores
                low, high = self._ranges.get(role, (-math.inf, math.inf))
                outside = [value for value in _values_of(t_scores) if value < low or value > high]
                self.strays.update({role: outside[0]} if outside and role not in self.strays else {})
        return shortage

    async def compare(self, pairs: Sequence[tuple[Trajectory, Trajectory]], role: str, problem: Problem) -> list[float]:
        """Return a verifier's verdicts on as many pairs, in order, as can be paid; NaN for the other pairs.

        The call is for selections. The reserves for scores of these trajectories pay for the verdicts, because a
        selection that compares does not score.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        verifier, account = self.get(role), self._costs.account
        comparison = traits_of(verifier).comparison
        if comparison is None:
            raise ConfigError(
                f"the verifier {verifier.name!r} compares no pairs", hint="give one that does, such as 'judge'"
            )
        self._costs.free(dict.fromkeys(t.node for pair in pairs for t in pair))

        def amounts(count: int) -> dict[str, int]:
            """Return the bound of the cost of comparing the first `count` pairs."""
            return self._costs.score_cost(role, comparison.pair_bound * count, calls=count, paths=0, prompts=0)

        def is_too_dear(count: int) -> bool:
            return account.short_of(amounts(count)) is not None

        lacking_unit = account.short_of(amounts(len(pairs)))
        while lacking_unit is not None and await self._has_waited(lacking_unit):
            lacking_unit = account.short_of(amounts(len(pairs)))
        num_paid = bisect_left(range(1, len(pairs) + 1), True, key=is_too_dear)  # noqa: FBT003 - the value to find
        verdicts = [math.nan] * len(pairs)
        if not num_paid:
            return verdicts
        calls = self._calls(role, comparison.pair_bound * num_paid, 0)
        try:
            with self._lease("compare", role, num_paid, amounts(num_paid)) as lease:
                started = self._clock()
                self.asked.add(role)
                try:
                    with _blame(role):
                        given_verdicts = await comparison.compare(problem, pairs[:num_paid], calls)
                        verdicts[:num_paid] = _verdicts(role, num_paid, given_verdicts)
                finally:
                    self._spend(lease, role, num_paid, calls, started)
        except Exhausted as shortage:
            self.timed_out = self.timed_out or shortage.unit == "seconds"
        except EngineError as failure:
            self._note_failed(failure, num_paid)
        return verdicts

    async def choose(self, ts: Sequence[Trajectory], role: str, problem: Problem, by: str) -> list[float]:
        """Return the share of a verifier's votes for each trajectory when all are shown at once.

        The shares are NaN where the choice cannot be paid or is unknown. The reserves for scores and comparisons of
        these trajectories pay for the choice.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        verifier, account = self.get(role), self._costs.account
        choice = traits_of(verifier).choice
        if choice is None:
            raise ConfigError(
                f"the verifier {verifier.name!r} chooses among no lists", hint="give one that does, such as 'judge'"
            )
        unknown = [math.nan] * len(ts)
        self._costs.free({t.node for t in ts})
        amounts = self._costs.score_cost(role, choice.bound, calls=1, paths=0, prompts=0)
        lacking_unit = account.short_of(amounts)
        while lacking_unit is not None:
            if not await self._has_waited(lacking_unit):
                return unknown
            lacking_unit = account.short_of(amounts)
        calls = self._calls(role, choice.bound, 0)
        try:
            with self._lease("choose", role, 1, amounts) as lease:
                started = self._clock()
                self.asked.add(role)
                try:
                    with _blame(role):
                        return list(_verdicts(role, len(ts), await choice.choose(problem, ts, calls, by)))
                finally:
                    self._spend(lease, role, 1, calls, started)
        except Exhausted as shortage:
            self.timed_out = self.timed_out or shortage.unit == "seconds"
        except EngineError as failure:
            self._note_failed(failure, 1)
        return unknown

    def _lease(self, kind: str, role: str, rows: int, amounts: Mapping[str, int]) -> Lease:
        return self._costs.account.lease(amounts, kind=kind, model=role, rows=rows, rates=self._costs.rates[role])

    def _note_failed(self, failure: EngineError, number: int) -> None:
        self.failures[failure.kind] += number
        self.causes.setdefault(failure.kind, failure.cause)

    def _calls(self, role: str, granted: int, granted_prompt: int) -> MeteredCalls:
        """Return the calls of a verifier's model, within grants of tokens (see `MeteredCalls`)."""
        model = self.get(role).model
        return MeteredCalls(
            self._backends[model],
            self._task,
            granted,
            handles=lambda ts, charge: self._prompts.handles(ts, model, charge),
            stream=hash64(self._stream, role),
            seconds_left=lambda: self._costs.account.seconds_left,
            granted_prompt=granted_prompt,
        )

    def _spend(self, lease: Lease, role: str, rows: int, calls: MeteredCalls, started: float) -> None:
        """Charge a verifier's calls to a lease, also after a failure, and add up the counts of the calls."""
        lease.spend(
            priced={unit: calls.cost(unit, self._costs.rates[role]) for unit in ("flops", "usd")},
            prompt_tokens=calls.prompt,
            verifier_tokens=calls.computed,
            verifier_reused_tokens=calls.reused,
            verifier_calls=rows,
            seconds=self._clock() - started,
            work_seconds=calls.seconds,
            estimated=calls.estimated,
        )
        _add_unknown(self.unknown, calls.unknown)
        self.judgements += [dataclasses.replace(judgement, role=role) for judgement in calls.judgements]
        self.failures.update(calls.failures)
        self.causes = {**calls.causes, **self.causes}  # the first cause of each kind stays

    def _affordable(
        self, unscored: Sequence[Trajectory], role: str
    ) -> tuple[list[Trajectory], dict[str, int], Exhausted | None]:
        """Return the trajectories that can be paid, their bound by unit, and the limit that left some out.

        The bound has two entries more: "bound", the verifier's tokens, and "prompts", the tokens of prompts. The
        reserves of these trajectories are freed. After the first trajectory that cannot be paid, only trajectories with
        a reserve follow.
        """
        account, tree = self._costs.account, self._tree
        paid: list[Trajectory] = []
        paid_amounts: dict[str, int] = {}
        tokens = path_tokens = prompt_tokens = 0  # of the paid trajectories together
        resumed_roots: set[int] = set()  # roots whose prompt is counted already
        shortage: Exhausted | None = None
        left, freed, owes = account.all_available(), dict[int, None](), self._costs.owes
        for t in unscored:
            if shortage is not None and (t.node in freed or not self._costs.is_owed(t.node)):
                continue
            can_resume, root = self._can_resume(t, role), tree.root_of(t)
            if owes:
                self._free_path(t, role, left, freed)
            next_tokens = tokens + self._score_tokens(t, role, can_resume=can_resume)
            next_path_tokens = path_tokens + tree.path_tokens(t)
            next_prompt_tokens = prompt_tokens
            if root not in resumed_roots or not can_resume:
                next_prompt_tokens += self._costs.unread_prompt(
                    role, root, tree.prompt_tokens[root], again=not can_resume
                )
            amounts = self._costs.score_cost(role, next_tokens, len(paid) + 1, next_path_tokens, next_prompt_tokens)
            lacking_units = [unit for unit, amount in amounts.items() if amount > left[unit]]
            if lacking_units:
                shortage = shortage or Exhausted(lacking_units[0])
                continue
            tokens, path_tokens, prompt_tokens = next_tokens, next_path_tokens, next_prompt_tokens
            paid.append(t)
            if can_resume:
                resumed_roots.add(root)
            paid_amounts = {**amounts, "bound": tokens, "prompts": prompt_tokens}
        self._costs.free(freed)
        return paid, paid_amounts, shortage

    def _score_tokens(self, t: Trajectory, role: str, *, can_resume: bool) -> int:
        """Return the most tokens of scoring a trajectory.

        A path that the verifier cannot resume is opened again: its whole text is read, from the prompt on.
        """
        verifier = self.get(role)
        num_scored = self._tree.scored_tokens(t, role) if can_resume else 0
        num_new = t.num_tokens - num_scored
        if not can_resume:
            num_new = max(t.num_tokens, text_bound(self._backends[verifier.model], t.full_text))
        num_prompt = self._tree.path_tokens(t) - t.num_tokens
        opening = self._prompts.unopened_tokens(t, verifier.model) if _reads_paths(verifier) else 0
        return opening + stated_bound(verifier, num_prompt + num_scored, num_new)

    def _can_resume(self, t: Trajectory, role: str) -> bool:
        """Whether a verifier reads only the new part of a path: its own model wrote the path and holds its state."""
        return t.model == self.verifiers[role].model and self._tree.can_resume(t, role)

    def _free_path(self, t: Trajectory, role: str, left: dict[str, int], freed: dict[int, None]) -> None:
        """Add the reserves of a node, and of the ancestors that its score will cover, to the amounts left.

        Args:
            t: The path.
            role: The role that will score the path.
            left: The amount left of each limit, to which the reserves are added.
            freed: The nodes whose reserves were added. The method adds nodes here.
        """
        scores, node = self._tree.scores, t
        while node.node not in freed and (node.node, role) not in scores:
            freed[node.node] = None
            self._costs.add_owed(node.node, left)
            if node.parent is None:
                return
            node = node.parent


def _reads_paths(verifier: Verifier) -> bool:
    """Whether a verifier may ask its model about paths, and not only about prompts of its own."""
    return not {"value", "next_logprobs"}.isdisjoint(verifier.needs)


def _blame(role: str) -> Blame:
    """Return the context for a verifier's code: its errors become `VerifierError`, but `Exhausted` passes."""
    return Blame(f"the verifier {role!r}", VerifierError, (Exhausted,))


def _verdicts(role: str, count: int, verdicts: Sequence[float]) -> Sequence[float]:
    """Return a verifier's verdicts, once they are checked.

    Raises:
        VerifierError: The verdicts are not `count` numbers between 0 and 1, or NaN.
    """
    if len(verdicts) != count:
        raise VerifierError(f"the verifier {role!r} returned {len(verdicts)} verdicts for {count} pairs")
    if not all(math.isnan(verdict) or 0 <= verdict <= 1 for verdict in verdicts):
        raise VerifierError(
            f"the verifier {role!r} returned {quote(verdicts)} for pairs, but must return numbers between 0 and 1, or "
            "NaN"
        )
    return verdicts


def _values_of(scores: StepScores) -> list[float]:
    """Return the scores of the steps and of the whole, without those that a verifier does not give."""
    values = list(scores.steps or ())
    if scores.whole is not None:
        values.append(scores.whole)
    return values


def _add_unknown(total: Counter[tuple[str, str]], more: Mapping[tuple[str, str], int]) -> None:
    """Add counts of unknown texts to a total. Of the excesses of tokens (the kind "over") the greatest stays."""
    for (what, kind), amount in more.items():
        if kind == "over":
            total[what, kind] = max(total[what, kind], amount)
        else:
            total[what, kind] += amount


class MeteredCalls:
    """Implements `tts.verifiers.base.Calls` for one scoring call.

    Args:
        backend: The model.
        task: The task of the problem.
        granted: The most tokens that may be computed.
        granted_prompt: The most tokens of prompts that a process model may read first.
        handles: A function that returns the handles of trajectories on this backend, and charges what it must read.
        stream: The address of the judge's own draws.
        seconds_left: A function that returns the seconds left; None: time is not limited.

    Attributes:
        computed: The tokens so far, with those of `written`.
        written: The generated tokens so far.
        prompt: The tokens of prompts that a process model read; `computed` does not contain them.
        reused: The tokens that were read again.
        seconds: The seconds of the model's work.
        estimated: Whether a part of the tokens is a bound, because the model reported no number.
        unknown: The counts of texts that could not be read (see `Calls.note_unread`).
        failures: The number of the model's failures, by kind.
        causes: The cause of the first failure of each kind.
        judgements: The prompts to the model, with its replies.
    """

    def __init__(
        self,
        backend: Backend,
        task: Task,
        granted: int,
        handles: Callable[[Sequence[Trajectory], Callable[[Sequence[Reply[Any]]], object]], Awaitable[list[Any]]],
        stream: int,
        seconds_left: Callable[[], float | None] = lambda: None,
        granted_prompt: int = 0,
    ) -> None:
        self.task = task
        self.seconds_left = seconds_left
        self.computed = 0
        self.written = 0
        self.prompt = 0
        self.reused = 0
        self.seconds = 0.0
        self.estimated = False
        self.unknown: Counter[tuple[str, str]] = Counter()
        self.judgements: list[Judgement] = []
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}
        self._backend = backend
        self._granted = granted
        self._granted_prompt = granted_prompt
        self._handles = handles
        self._stream = stream
        self._parent: MeteredCalls | None = None  # the calls that these calls are a part of
        self._parts: list[tuple[Rates, MeteredCalls]] = []

    def part(self, verifier: Verifier) -> MeteredCalls:
        """See `Calls.part`. The part's tokens count here as well, within the same grants."""
        part = MeteredCalls(
            self._backend,
            self.task,
            granted=self._granted - self.computed,
            handles=self._handles,
            stream=hash64("part", self._stream, len(self._parts)),
            seconds_left=self.seconds_left,
            granted_prompt=self._granted_prompt - self.prompt,
        )
        part._parent = self
        self._parts.append((token_rates(verifier, self._backend), part))
        return part

    def cost(self, unit: str, rates: Rates) -> int:
        """Return the cost of all tokens so far, in `flops` or `usd`.

        The parts' tokens cost the parts' own rates, all other tokens cost `rates`.
        """
        own_counts: dict[str, int] = {}  # without the tokens of the parts
        for name in _COUNTS:
            in_parts = sum(getattr(part, name) for _rates, part in self._parts)
            own_counts[name] = getattr(self, name) - in_parts
        computed = own_counts["prompt"] + own_counts["computed"] - own_counts["written"]
        own_cost = rates.cost(unit, computed=computed, reused=own_counts["reused"], generated=own_counts["written"])
        return own_cost + sum(part.cost(unit, part_rates) for part_rates, part in self._parts)

    def _add(self, name: str, amount: float) -> None:
        """Add an amount to a counter, here and in the parent."""
        setattr(self, name, getattr(self, name) + amount)
        if self._parent is not None:
            self._parent._add(name, amount)

    async def value(self, trajectories: Sequence[Trajectory], head: str) -> list[NDArray[np.float64]]:
        """See `Calls.value`."""
        return await self._read(self._backend.value(await self._handles(trajectories, self.charge), head))

    async def next_logprobs(
        self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]
    ) -> NDArray[np.float64]:
        """See `Calls.next_logprobs`."""
        handles = await self._handles(trajectories, self.charge)
        joined_text = join_surrogates(text)
        self._check(text_bound(self._backend, joined_text) * len(handles))
        logprobs = await self._read(self._backend.next_logprobs(handles, [joined_text] * len(handles), tokens))
        return clean_law(logprobs).reshape(len(handles), len(tokens))

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling) -> list[str | None]:
        """See `Calls.generate`."""
        replies = await self.replies(prompts, votes=1, max_tokens=max_tokens, sampling=sampling)
        return [reply for (reply,) in replies]

    async def replies(
        self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling
    ) -> list[tuple[str | None, ...]]:
        """See `Calls.replies`."""
        replies_by_prompt: list[tuple[str | None, ...]] = []
        for prompt, samples in zip(prompts, await self._sample(prompts, votes, max_tokens, sampling), strict=True):
            replies = tuple(None if sample.finish == "error" else sample.text for sample in samples)
            self._keep(Judgement("", prompt_text(prompt_in_whole_characters(prompt)), replies))
            marks = (metadata_of(self._backend).thoughts or THINK).continue_prompt(prompt)
            replies_by_prompt.append(tuple(None if reply is None else marks.response(reply) for reply in replies))
        return replies_by_prompt

    async def _sample(
        self, prompts: Sequence[Prompt], votes: int, max_tokens: int, sampling: Sampling, *, tops: bool = False
    ) -> list[list[Sample]]:
        """Return the samples of `votes` rows for each prompt.

        Raises:
            Exhausted: the time is over.
        """
        seconds = self.seconds_left()
        prompts = [prompt_in_whole_characters(prompt) for prompt in prompts]
        handles = await self._open_prompts(prompts, votes * max_tokens)
        row_sets: list[RowSet] = []
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, _cancel, row_sets)
        samples: list[list[Sample]] = []  # [prompts][votes]
        try:
            for handle, prompt in zip(handles, prompts, strict=True):
                streams = [hash64("reply", self._stream, str(prompt), vote) for vote in range(votes)]
                rows = tuple(Row(stream, position=0, max_tokens=max_tokens) for stream in streams)
                # no prompt may be read again, because a second reading would exceed the bound
                request = SampleRequest(handle, rows, sampling, StopCondition(), rereads=False, tops=tops)
                with self._blame:
                    row_sets.append(self._backend.sample(request))
            with self._blame:
                for row_set in row_sets:
                    samples.append([await row_set.row(vote) for vote in range(votes)])
        finally:
            if timer is not None:
                timer.cancel()
            try:
                await self._end(row_sets)
            finally:
                self._backend.release(handles)
        for prompt_samples in samples:
            if any(sample.finish == "cancelled" for sample in prompt_samples):
                raise Exhausted("seconds")
        return samples

    def _keep(self, judgement: Judgement) -> None:
        """Keep the judgement of a prompt, here and in the parent."""
        self.judgements.append(judgement)
        if self._parent is not None:
            self._parent._keep(judgement)

    @property
    def _blame(self) -> Blame:
        return Blame(f"the backend {self._backend.name!r}", EngineError)

    async def choices(self, prompts: Sequence[Prompt], tokens: Sequence[str]) -> NDArray[np.float64]:
        """See `Calls.choices`."""
        handles = await self._open_prompts([prompt_in_whole_characters(prompt) for prompt in prompts])
        try:
            logprobs = await self._read(self._backend.next_logprobs(handles, [""] * len(handles), tokens))
        finally:
            self._backend.release(handles)
        return clean_law(logprobs).reshape(len(handles), len(tokens))

    async def bounded_choices(
        self, prompts: Sequence[Prompt], tokens: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """See `Calls.bounded_choices`."""
        if self._backend.caps.next_logprobs != "absent":
            logprobs = await self.choices(prompts, tokens)
            is_unknown = np.isnan(logprobs).any(axis=1)
            return logprobs, np.where(is_unknown, 1.0, 0.0)
        shown_logprobs: list[list[float]] = []  # by prompt: the log-probabilities of the tokens that are shown
        missing_mass: list[float] = []  # by prompt: the most probability that the other tokens may have
        for (sample,) in await self._sample(prompts, votes=1, max_tokens=1, sampling=Sampling(), tops=True):
            prompt_logprobs, prompt_missing = law_of_tops(sample.tops[0] if sample.tops else (), tokens)
            shown_logprobs.append(prompt_logprobs)
            missing_mass.append(prompt_missing)
        return clean_law(shown_logprobs).reshape(len(prompts), len(tokens)), np.array(missing_mass)

    def count(self, prompt: Prompt) -> int:
        """See `Calls.count`."""
        return count_tokens(self._backend, prompt)

    def note_unread(self, what: str, number: int, of: int) -> None:
        """See `Calls.note_unread`."""
        if self._parent is not None:
            self._parent.note_unread(what, number, of)
        self.unknown[what, "of"] += of
        self.unknown[what, "number"] += number

    def leave_out(self, what: str, prompt: Prompt, over: int) -> None:
        """See `Calls.leave_out`."""
        self._keep(Judgement("", prompt_text(prompt), over=over))
        calls: MeteredCalls | None = self
        while calls is not None:
            _add_unknown(calls.unknown, Counter({(what, "over"): over}))
            calls = calls._parent

    def note_failures(self, error: str, number: int = 1) -> None:
        """See `Calls.note_failures`."""
        if self._parent is not None:
            self._parent.note_failures(error, number)
        kind, _colon, cause = error.partition(": ")
        self.failures[kind] += number
        self.causes.setdefault(kind, cause)

    async def _open_prompts(self, prompts: Sequence[Prompt], written: int = 0) -> list[Any]:
        """Return the handles of prompts. After each prompt `written` tokens may follow.

        Raises:
            Exhausted: the time is over. BudgetExceeded: the bound does not cover these tokens.
        """
        seconds = self.seconds_left()
        if seconds is not None and seconds <= 0:
            raise Exhausted("seconds")
        self._check(sum(count_tokens(self._backend, prompt) + written for prompt in prompts))
        return await self._read(self._backend.open(prompts), opens=True)

    async def _end(self, row_sets: Sequence[RowSet]) -> None:
        """Cancel the rows that have not ended, and charge all rows."""
        try:
            await cancelled_and_done(row_sets)
        finally:
            self._charge_rows(row_sets)

    def _charge_rows(self, row_sets: Sequence[RowSet]) -> None:
        """Charge rows that are done, and release their states. A row without a sample is charged in full."""
        for row_set in row_sets:
            self._add("computed", row_set.prompt_tokens)
            self._add("reused", row_set.reused_tokens or 0)
            for row, sample in zip(row_set.request.rows, row_set.samples, strict=True):
                if sample is None or sample.estimated:
                    self._estimate()
                if sample is None:
                    self._write(row.max_tokens)
                    continue
                self._write(sample.num_tokens)
                self._add("seconds", sample.seconds)
                if sample.error or sample.finish == "error":  # counted also where a retry of the backend succeeded
                    self.note_failures(sample.error or "error")
                if sample.handle is not None:
                    self._backend.release([sample.handle])

    def _write(self, tokens: int) -> None:
        self._add("computed", tokens)
        self._add("written", tokens)

    def _estimate(self) -> None:
        self.estimated = True
        if self._parent is not None:
            self._parent._estimate()

    async def _read(self, call: Awaitable[Any], *, opens: bool = False) -> list[Any]:
        """Await a call that only reads, and return its values. The call is charged also if the search is cancelled."""
        replies: list[Reply[Any]] = []
        try:
            await read(self._backend, call, replies, opens=opens)
        finally:
            values = self.charge(replies)  # the replies are paid whether the call succeeds or not
        return values

    def _check(self, needed: int) -> None:
        if self.computed + needed > self._granted:
            raise BudgetExceeded(
                f"a verifier asks for {needed} tokens, but {self._granted - self.computed} are left of its bound"
            )

    def charge(self, replies: Sequence[Reply[Any]], *, estimated: bool = False) -> list[Any]:
        """See `Calls.charge`."""
        if estimated:
            self._estimate()
        for reply in replies:
            self._add("computed", reply.computed - reply.prompt)
            self._add("prompt", reply.prompt)
            self._add("reused", reply.reused or 0)
            self._add("seconds", reply.seconds)
        if self.computed > self._granted:
            raise BudgetExceeded(
                f"a verifier computed {self.computed} tokens, but states a bound of {self._granted}",
                hint="its bound(prefix_tokens, new_tokens) must cover what it reads and writes, prompts of its own "
                "included",
            )
        if self.prompt > self._granted_prompt:
            raise BudgetExceeded(
                f"a verifier's own model read {self.prompt} tokens of prompts, but states a bound of "
                f"{self._granted_prompt}",
                hint="its prompt_bound(prompt_tokens) must cover what its model reads when a prompt was opened",
            )
        return [reply.value for reply in replies]


def check_given(scores: object, weight: float | None, verifiers: Collection[str]) -> None:
    """Refuse scores and a weight that a strategy cannot give.

    Args:
        scores: The scores by role, as given.
        weight: The weight of the candidate; None: 1.
        verifiers: The roles of verifiers, which a strategy may not score.

    Raises:
        ConfigError: The scores are no finite numbers by role, a role is a verifier's, or the weight is below 0.
    """
    if not isinstance(scores, Mapping | None):
        raise ConfigError(
            f"scores is {quote(scores)}, but must be a mapping of roles to numbers",
            hint="for example {'own': 0.7}",
        )
    given: Mapping[object, Any] = scores or {}
    for role, score in given.items():
        check_text("the role of a score", role)
        if role in verifiers:
            raise ConfigError(
                f"the score of the role {role!r} is a verifier's, but was given", hint="give it a role of its own"
            )
        check_number(f"the score of the role {role!r}", score, optional=False)
    check_number("weight", weight, 0)


def _cancel(row_sets: Sequence[RowSet]) -> None:
    for row_set in row_sets:
        row_set.cancel()
