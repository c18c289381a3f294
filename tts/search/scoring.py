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

from tts.backends.base import Backend, Reply, Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.capabilities import text_bound
from tts.backends.finite import clean_law
from tts.backends.prompt_logprobs import law_of_tops
from tts.backends.reads import cancelled_and_done, read
from tts.blame import Blame
from tts.budget.account import Exhausted, Lease
from tts.budget.budget import Rates
from tts.characters import join_surrogates, prompt_in_whole_characters
from tts.checks import check_number, check_text
from tts.errors import BudgetExceeded, ConfigError, EngineError, VerifierError, quote, unknown_name
from tts.randomness import hash64
from tts.renamed import refuse_old_members
from tts.search.algorithms.embedding import NGRAMS, Embedder
from tts.search.costs import Costs
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.tasks.base import Task
from tts.types import Problem, Prompt, Trajectory, Usage, prompt_text
from tts.verifiers.base import Judgement, Scorer, StepScores, Verifier, stated_bound, traits_of
from tts.verifiers.compatibility import token_rates
from tts.verifiers.ranges import range_of

# trajectories of a call where time is limited: time is checked between calls, as a verifier may never pause
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

        If the verifier states no range, all scores of the role so far decide.
        """
        verifier = self.get(role)
        if not traits_of(verifier).range_by_scores:
            return range_of(verifier, np.empty(0))
        scores = [score for (_, scorer), score in self._tree.scores.items() if scorer == role]
        return range_of(verifier, np.array([value for score in scores for value in _values_of(score)], np.float64))

    async def score(self, ts: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score the unscored trajectories of `ts`, in order, as many as can be paid; return the lacking limit.

        A call in which a model failed (an `EngineError`) leaves its scores unknown. The failure is counted by kind. A
        later request for these scores repeats the call.

        Returns:
            The exhausted limit that left some unscored; None if no limit did.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        self.get(role)  # raises for a wrong role, even where nothing is to be scored
        todo = list({t.node: t for t in ts if (t.node, role) not in self._tree.scores}.values())
        self.unpaid.update(t.node for t in todo)
        shortage: Exhausted | None = None
        size = _IN_TIME if self._costs.account.deadline is not None else max(1, len(todo))
        for first in range(0, len(todo), size):
            chunk = todo[first : first + size]
            while (short := await self._score(chunk, role)) is not None and await self._has_waited(short.unit):
                chunk = [t for t in chunk if t.node in self.unpaid]
            shortage = short or shortage
            if shortage is not None and shortage.unit == "seconds":
                break
        return shortage

    async def _has_waited(self, unit: str) -> bool:
        """Wait until other searches free some of a unit; return whether they did."""
        try:
            await self._costs.account.wait_for_more(unit)
        except Exhausted as end:
            self.timed_out = self.timed_out or end.unit == "seconds" != unit
            return False
        return True

    async def _score(self, todo: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score trajectories by one call; see `score`."""
        paid, amounts, shortage = self._affordable(todo, role)
        if not paid:
            return shortage
        readers = paid if self._costs.reads_prompts(role) else ()
        read_roots = {self._tree.root_of(t) for t in readers if t.judged_text.strip() and self._can_resume(t, role)}
        calls = self._calls(role, amounts["bound"], amounts["prompts"])
        try:
            async with self._lease("score", role, len(paid), amounts) as lease:
                self.unpaid.difference_update(t.node for t in paid)
                self.asked.add(role)
                started = self._clock()
                try:
                    with _blame(role):
                        scores = await self._scorers[role](paid, calls)
                finally:
                    self._spend(lease, role, len(paid), calls, started)
        # the time is over, or the verifier's reading of other paths or prompts cannot be paid
        except Exhausted as end:
            self.unpaid.update(t.node for t in paid)
            self.timed_out = self.timed_out or end.unit == "seconds"
            return end
        except EngineError as failure:
            self._note_failed(failure, len(paid))
            return shortage
        self._costs.note_prompts_read(role, read_roots, calls.prompt)
        is_late = self._costs.account.seconds_left == 0
        for t, score in zip(paid, scores, strict=True):
            if is_late and all(map(math.isnan, _values_of(score))):  # time is over, so the verifier is not to blame
                self.unpaid.add(t.node)
                self.timed_out = True
            else:
                self._tree.scores[t.node, role] = score
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
        for t in {t.node: t for pair in pairs for t in pair}.values():
            account.free(t.node)
        pair_bound = comparison.pair_bound

        def amounts(count: int) -> dict[str, int]:
            return self._costs.score_cost(role, pair_bound * count, count, 0, 0)

        while (short := account.short_of(amounts(len(pairs)))) is not None and await self._has_waited(short):
            pass
        paid = bisect_left(
            range(1, len(pairs) + 1), 1, key=lambda count: int(account.short_of(amounts(count)) is not None)
        )
        verdicts = [math.nan] * len(pairs)
        if not paid:
            return verdicts
        calls = self._calls(role, pair_bound * paid, 0)
        try:
            async with self._lease("compare", role, paid, amounts(paid)) as lease:
                started = self._clock()
                self.asked.add(role)
                try:
                    with _blame(role):
                        verdicts[:paid] = _verdicts(role, paid, await comparison.compare(problem, pairs[:paid], calls))
                finally:
                    self._spend(lease, role, paid, calls, started)
        except Exhausted as end:
            self.timed_out = self.timed_out or end.unit == "seconds"
        except EngineError as failure:
            self._note_failed(failure, paid)
        return verdicts

    async def choose(self, ts: Sequence[Trajectory], role: str, problem: Problem, by: str) -> list[float]:
        """Return the number of times that a verifier names each trajectory when all are shown at once.

        The numbers are NaN where the choice cannot be paid or is unknown. The reserves for scores and comparisons of
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
        for node in {t.node for t in ts}:
            account.free(node)
        amounts = self._costs.score_cost(role, choice.bound, 1, 0, 0)
        while (short := account.short_of(amounts)) is not None:
            if not await self._has_waited(short):
                return unknown
        calls = self._calls(role, choice.bound, 0)
        try:
            async with self._lease("choose", role, 1, amounts) as lease:
                started = self._clock()
                self.asked.add(role)
                try:
                    with _blame(role):
                        return list(_verdicts(role, len(ts), await choice.choose(problem, ts, calls, by)))
                finally:
                    self._spend(lease, role, 1, calls, started)
        except Exhausted as end:
            self.timed_out = self.timed_out or end.unit == "seconds"
        except EngineError as failure:
            self._note_failed(failure, 1)
        return unknown

    def _lease(self, kind: str, role: str, rows: int, amounts: Mapping[str, int]) -> Lease:
        return self._costs.account.lease(amounts, kind=kind, model=role, rows=rows, rates=self._costs.rates[role])

    def _note_failed(self, failure: EngineError, number: int) -> None:
        self.failures[failure.kind] += number
        self.causes.setdefault(failure.kind, failure.cause)

    def _calls(self, role: str, granted: int, prompts: int) -> MeteredCalls:
        model = self.get(role).model
        return MeteredCalls(
            self._backends[model],
            self._task,
            granted,
            lambda ts, charge: self._prompts.handles(ts, model, charge),
            hash64(self._stream, role),
            lambda: self._costs.account.seconds_left,
            prompts,
        )

    def _spend(self, lease: Lease, role: str, rows: int, calls: MeteredCalls, started: float) -> None:
        """Charge a verifier's calls to a lease, also after a failure, and keep the counts of the calls."""
        usage = Usage(
            prompt_tokens=calls.prompt,
            verifier_tokens=calls.computed,
            verifier_reused_tokens=calls.reused,
            verifier_calls=rows,
            seconds=self._clock() - started,
            work_seconds=calls.seconds,
            estimated=calls.estimated,
        )
        lease.spend(usage, priced={unit: calls.cost(unit, self._costs.rates[role]) for unit in ("flops", "usd")})
        _add_unknown(self.unknown, calls.unknown)
        self.judgements += [dataclasses.replace(judgement, role=role) for judgement in calls.judgements]
        self.failures.update(calls.failures)
        self.causes = calls.causes | self.causes

    def _affordable(
        self, todo: Sequence[Trajectory], role: str
    ) -> tuple[list[Trajectory], dict[str, int], Exhausted | None]:
        """Return the trajectories that can be paid, their bound by unit, and the limit that left some out.

        The reserves of these trajectories are freed. After the first trajectory that cannot be paid, only trajectories
        with a reserve follow.
        """
        account, verifier, tree = self._costs.account, self.get(role), self._tree
        reads_paths = _reads_paths(verifier)
        paid: list[Trajectory] = []
        total: dict[str, int] = {}
        tokens = paths = prompts = 0
        counted_roots: set[int] = set()
        shortage: Exhausted | None = None
        left, freed, is_kept = account.all_available(), dict[int, None](), account.has_kept
        for t in todo:
            if shortage is not None and (t.node in freed or not account.keeps(t.node)):
                continue
            # a path of another model, or without its state, is opened again: its whole text is read, from the prompt on
            can_resume = self._can_resume(t, role)
            num_scored = tree.scored_tokens(t, role) if can_resume else 0
            num_new = (
                t.num_tokens - num_scored
                if can_resume
                else max(t.num_tokens, text_bound(self._backends[verifier.model], t.full_text))
            )
            if is_kept:
                self._free_path(t, role, left, freed)
            root, path = tree.root_of(t), tree.path_tokens(t)
            opening = self._prompts.unopened_tokens(t, verifier.model) if reads_paths else 0
            bound = tokens + opening + stated_bound(verifier, path - t.num_tokens + num_scored, num_new)
            unread = self._costs.unread_prompt(role, root, tree.prompt_tokens[root], again=not can_resume)
            prompt_bound = prompts + (unread if root not in counted_roots or not can_resume else 0)
            amounts = self._costs.score_cost(role, bound, len(paid) + 1, paths + path, prompt_bound)
            if (short := next((unit for unit, amount in amounts.items() if amount > left[unit]), None)) is not None:
                shortage = shortage or Exhausted(short)
                continue
            tokens, prompts, paths = bound, prompt_bound, paths + path
            paid.append(t)
            counted_roots |= {root} if can_resume else set()
            total = amounts | {"bound": tokens, "prompts": prompts}
        account.free(*freed)
        return paid, total, shortage

    def _can_resume(self, t: Trajectory, role: str) -> bool:
        """Whether a verifier reads only the new part of a path: its own model wrote the path and holds its state."""
        return t.model == self.verifiers[role].model and self._tree.can_resume(t, role)

    def _free_path(self, t: Trajectory, role: str, left: dict[str, int], freed: dict[int, None]) -> None:
        """Add the reserves of a node, and of the ancestors that its score will cover, to the amounts left.

        Args:
            t: The path.
            role: The role that will score the path.
            left: The amount left of each limit; the reserves are added here.
            freed: The nodes whose reserves were added; new ones are added here.
        """
        account, scores, node = self._costs.account, self._tree.scores, t
        while node.node not in freed and (node.node, role) not in scores:
            freed[node.node] = None
            for unit, amount in account.amounts_under(node.node).items():
                left[unit] += amount
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
    """Return a verifier's verdicts on pairs once they are checked.

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


def _values_of(score: StepScores) -> list[float]:
    return [*(score.steps or ()), *([] if score.whole is None else [score.whole])]


def _add_unknown(total: Counter[tuple[str, str]], more: Mapping[tuple[str, str], int]) -> None:
    """Add counts of unknown texts to a total. Of excesses ("over") the greatest stays."""
    for (what, kind), amount in more.items():
        total[what, kind] = max(total[what, kind], amount) if kind == "over" else total[what, kind] + amount


@refuse_old_members
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
        self._whole: MeteredCalls | None = None
        self._parts: list[tuple[Rates, MeteredCalls]] = []

    def part(self, verifier: Verifier) -> MeteredCalls:
        """See `Calls.part`. The part's tokens count here as well, within the same grants."""
        part = MeteredCalls(
            self._backend,
            self.task,
            self._granted - self.computed,
            self._handles,
            hash64("part", self._stream, len(self._parts)),
            self.seconds_left,
            self._granted_prompt - self.prompt,
        )
        part._whole = self
        self._parts.append((token_rates(verifier, self._backend), part))
        return part

    def cost(self, unit: str, rates: Rates) -> int:
        """Return the cost of all tokens so far, in `flops` or `usd`.

        The parts' tokens cost the parts' own rates, all other tokens cost `rates`.
        """
        own = {name: getattr(self, name) - sum(getattr(part, name) for _, part in self._parts) for name in _COUNTS}
        computed = own["prompt"] + own["computed"] - own["written"]
        own_cost = rates.cost(unit, computed=computed, reused=own["reused"], generated=own["written"])
        return own_cost + sum(part.cost(unit, part_rates) for part_rates, part in self._parts)

    def _add(self, name: str, amount: float) -> None:
        """Add an amount to a counter, here and in the whole."""
        setattr(self, name, getattr(self, name) + amount)
        if self._whole is not None:
            self._whole._add(name, amount)

    async def value(self, trajectories: Sequence[Trajectory], head: str) -> list[NDArray[np.float64]]:
        """See `Calls.value`."""
        return await self._read(self._backend.value(await self._handles(trajectories, self.charge), head))

    async def next_logprobs(
        self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]
    ) -> NDArray[np.float64]:
        """See `Calls.next_logprobs`."""
        handles, text = await self._handles(trajectories, self.charge), join_surrogates(text)
        self._check(text_bound(self._backend, text) * len(handles))
        logprobs = await self._read(self._backend.next_logprobs(handles, [text] * len(handles), tokens))
        return clean_law(logprobs).reshape(len(handles), len(tokens))

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling) -> list[str | None]:
        """See `Calls.generate`."""
        return [first for (first,) in await self.replies(prompts, votes=1, max_tokens=max_tokens, sampling=sampling)]

    async def replies(
        self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling
    ) -> list[tuple[str | None, ...]]:
        """See `Calls.replies`."""
        samples = await self._sample(prompts, votes, max_tokens, sampling)
        by_prompt = [tuple(None if sample.finish == "error" else sample.text for sample in draws) for draws in samples]
        for prompt, replies in zip(prompts, by_prompt, strict=True):
            self._keep(Judgement("", prompt_text(prompt_in_whole_characters(prompt)), replies))
        return by_prompt

    async def _sample(
        self, prompts: Sequence[Prompt], votes: int, max_tokens: int, sampling: Sampling, *, tops: bool = False
    ) -> list[list[Sample]]:
        """Return `votes` rows for each prompt."""
        seconds = self.seconds_left()
        prompts = [prompt_in_whole_characters(prompt) for prompt in prompts]
        handles = await self._open_prompts(prompts, votes * max_tokens)
        rowsets: list[RowSet] = []
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, _cancel, rowsets)
        try:
            for handle, prompt in zip(handles, prompts, strict=True):
                rows = tuple(
                    Row(hash64("reply", self._stream, str(prompt), draw), 0, max_tokens) for draw in range(votes)
                )
                # no prompt may be read again, because that would exceed the bound
                with self._blame:
                    rowsets.append(
                        self._backend.sample(
                            SampleRequest(handle, rows, sampling, StopCondition(), rereads=False, tops=tops)
                        )
                    )
            with self._blame:
                samples = [[await rows.row(draw) for draw in range(votes)] for rows in rowsets]
        finally:
            if timer is not None:
                timer.cancel()
            try:
                await self._end(rowsets)
            finally:
                self._backend.release(handles)
        if any(sample.finish == "cancelled" for draws in samples for sample in draws):
            raise Exhausted("seconds")
        return samples

    def _keep(self, judgement: Judgement) -> None:
        """Keep the judgement of a prompt, here and in the whole."""
        self.judgements.append(judgement)
        if self._whole is not None:
            self._whole._keep(judgement)

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
            laws = await self.choices(prompts, tokens)
            return laws, np.where(np.isnan(laws).any(axis=1), 1.0, 0.0)
        samples = await self._sample(prompts, 1, 1, Sampling(), tops=True)
        laws = [law_of_tops(sample.tops[0] if sample.tops else (), tokens) for (sample,) in samples]
        return clean_law([law for law, _ in laws]).reshape(len(prompts), len(tokens)), np.array(
            [missing for _, missing in laws]
        )

    def count(self, prompt: Prompt) -> int:
        """See `Calls.count`."""
        return self._backend.count(prompt)

    def note_unread(self, what: str, number: int, of: int) -> None:
        """See `Calls.note_unread`."""
        if self._whole is not None:
            self._whole.note_unread(what, number, of)
        self.unknown[what, "of"] += of
        self.unknown[what, "number"] += number

    def leave_out(self, what: str, prompt: Prompt, over: int) -> None:
        """See `Calls.leave_out`."""
        self._keep(Judgement("", prompt_text(prompt), over=over))
        calls: MeteredCalls | None = self
        while calls is not None:
            _add_unknown(calls.unknown, Counter({(what, "over"): over}))
            calls = calls._whole

    def note_failures(self, error: str, number: int = 1) -> None:
        """See `Calls.note_failures`."""
        if self._whole is not None:
            self._whole.note_failures(error, number)
        kind, _, cause = error.partition(": ")
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
        self._check(sum(self._backend.count(prompt) + written for prompt in prompts))
        return await self._read(self._backend.open(prompts), opens=True)

    async def _end(self, rowsets: Sequence[RowSet]) -> None:
        """Charge all written tokens, also after a failure, and release their states. A lost row is charged in full."""
        try:
            await cancelled_and_done(rowsets)
        finally:
            self._charge_rows(rowsets)

    def _charge_rows(self, rowsets: Sequence[RowSet]) -> None:
        """Charge rows that are done."""
        for rows in rowsets:
            self._add("computed", rows.prompt_tokens)
            self._add("reused", rows.reused_tokens or 0)
            for row, sample in zip(rows.request.rows, rows.samples, strict=True):
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
        if self._whole is not None:
            self._whole._estimate()

    async def _read(self, call: Awaitable[Any], *, opens: bool = False) -> list[Any]:
        """Await a call that only reads, and return its values. The call is charged also if the search is cancelled."""
        replies: list[Reply[Any]] = []
        try:
            await read(self._backend, call, replies, opens=opens)
        finally:
            values = self.charge(replies)
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
        ConfigError: The scores are no finite numbers by role; a role is a verifier's; the weight is below 0.
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


def _cancel(rowsets: Sequence[RowSet]) -> None:
    for rows in rowsets:
        rows.cancel()
