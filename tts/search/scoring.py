"""Scores of nodes: each is asked once a node and verifier.

It is paid from what was reserved with the node, and unknown (NaN) where not affordable.

`MeteredCalls` are the models that a verifier may call: what it computes is charged to its problem, and never more than
was granted.
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

# trajectories of a call where time is limited: it is looked at between calls, and a verifier may not wait for anything
_IN_TIME = 1024
_COUNTS = ("computed", "written", "prompt", "reused")


class Scoring:
    """Asks the verifiers of one search and books what they compute.

    Args:
        verifiers: What they are, by role.
        scorers: The same, bound to the problem.

    Attributes:
        given_roles: Roles of scores that the strategy itself gives, and whether all scores of a role lie in [0, 1].
        embedder: What compares texts.
        unscorable: Nodes of candidates that no verifier will score.
        unpaid: Nodes that were asked about and could not be paid.
        asked: The roles that were asked.
        timed_out: Whether the time was over before a score was known.
        unknown: What verifiers could not read (see `Calls.note_unread`).
        judgements: Prompts of verifiers to models, with the replies.
        failures: Replies and scores that a model, or its server, failed in, by kind.
        causes: The causes of the first of each.
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
            ConfigError: there is none.
        """
        if not self.verifiers:
            raise ConfigError(
                f"the role {role!r} has no verifier", hint="give verifier=…, or choose a selection that needs none"
            )
        if role not in self.verifiers:
            raise unknown_name("verifier role", role, self.verifiers)
        return self.verifiers[role]

    def scores_of(self, t: Trajectory, role: str = "main") -> StepScores | None:
        """Return what a role's verifier has said of a trajectory; None: it was not asked."""
        return self._tree.scores.get((t.node, role))

    def range_of(self, role: str) -> tuple[float, float]:
        """Return the range by which a role's scores are mapped.

        It comes from all its scores so far where its verifier states none.
        """
        verifier = self.get(role)
        if not traits_of(verifier).range_by_scores:
            return range_of(verifier, np.empty(0))
        every = [value for (_, of), score in self._tree.scores.items() if of == role for value in _values_of(score)]
        return range_of(verifier, np.array(every, np.float64))

    async def score(self, ts: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score those of `ts` that are not scored yet, as many, in order, as can be paid.

        Returned is what stopped it, if anything.

        A call in which a model failed (an `EngineError`) leaves its scores unknown, counted by kind; asked again, it is
        made again.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        self.get(role)  # before anything else: a wrong role is a mistake even where nothing is to be scored
        todo = list({t.node: t for t in ts if (t.node, role) not in self._tree.scores}.values())
        self.unpaid.update(t.node for t in todo)
        stopped: Exhausted | None = None
        size = _IN_TIME if self._costs.account.deadline is not None else max(1, len(todo))
        for first in range(0, len(todo), size):
            chunk = todo[first : first + size]
            while (short := await self._score(chunk, role)) is not None and await self._has_waited(short.unit):
                chunk = [t for t in chunk if t.node in self.unpaid]
            stopped = short or stopped
            if stopped is not None and stopped.unit == "seconds":
                break
        return stopped

    async def _has_waited(self, unit: str) -> bool:
        """Wait until other searches free some of a unit that they hold; return whether they did."""
        try:
            await self._costs.account.wait_for_more(unit)
        except Exhausted as end:
            self.timed_out = self.timed_out or end.unit == "seconds" != unit
            return False
        return True

    async def _score(self, todo: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score trajectories by one call; see `score`."""
        paid, amounts, stopped = self._affordable(todo, role)
        if not paid:
            return stopped
        own = paid if self._costs.reads_prompts(role) else ()
        opened = {self._tree.root_of(t) for t in own if t.judged_text.strip() and self._can_resume(t, role)}
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
        # the time is over, or what the verifier reads of other paths or prompts cannot be paid
        except Exhausted as end:
            self.unpaid.update(t.node for t in paid)
            self.timed_out = self.timed_out or end.unit == "seconds"
            return end
        except EngineError as failure:
            self._note_failed(failure, len(paid))
            return stopped
        self._costs.note_prompts_read(role, opened, calls.prompt)
        late = self._costs.account.seconds_left == 0
        for t, score in zip(paid, scores, strict=True):
            if late and all(map(math.isnan, _values_of(score))):  # time, not the verifier, left it so
                self.unpaid.add(t.node)
                self.timed_out = True
            else:
                self._tree.scores[t.node, role] = score
        return stopped

    async def compare(self, pairs: Sequence[tuple[Trajectory, Trajectory]], role: str, problem: Problem) -> list[float]:
        """Return the verdicts of a role's verifier on as many pairs, in order, as can be paid.

        They are NaN for the other pairs. The call is for selections.

        What is held for scores of these trajectories pays for it: a selection that compares does not score.

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
        each = comparison.pair_bound

        def amounts(count: int) -> dict[str, int]:
            return self._costs.score_cost(role, each * count, count, 0, 0)

        while (short := account.short_of(amounts(len(pairs)))) is not None and await self._has_waited(short):
            pass
        paid = bisect_left(
            range(1, len(pairs) + 1), 1, key=lambda count: int(account.short_of(amounts(count)) is not None)
        )
        said = [math.nan] * len(pairs)
        if not paid:
            return said
        calls = self._calls(role, each * paid, 0)
        try:
            async with self._lease("compare", role, paid, amounts(paid)) as lease:
                started = self._clock()
                self.asked.add(role)
                try:
                    with _blame(role):
                        said[:paid] = _verdicts(role, paid, await comparison.compare(problem, pairs[:paid], calls))
                finally:
                    self._spend(lease, role, paid, calls, started)
        except Exhausted as end:
            self.timed_out = self.timed_out or end.unit == "seconds"
        except EngineError as failure:
            self._note_failed(failure, paid)
        return said

    async def choose(self, ts: Sequence[Trajectory], role: str, problem: Problem, by: str) -> list[float]:
        """Return how often a role's verifier, shown all these at once, names each.

        It is NaN where that cannot be paid or is unknown.

        What is held for scores and comparisons of these trajectories pays for it.

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
            lambda some, charge: self._prompts.handles(some, model, charge),
            hash64(self._stream, role),
            lambda: self._costs.account.seconds_left,
            prompts,
        )

    def _spend(self, lease: Lease, role: str, rows: int, calls: MeteredCalls, started: float) -> None:
        """Tell a lease what a verifier's calls computed, whatever became of them."""
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
        self.judgements += [dataclasses.replace(one, role=role) for one in calls.judgements]
        self.failures.update(calls.failures)
        self.causes = calls.causes | self.causes

    def _affordable(
        self, todo: Sequence[Trajectory], role: str
    ) -> tuple[list[Trajectory], dict[str, int], Exhausted | None]:
        """Return the trajectories that can be paid, freeing what was reserved for them, and their bound by unit.

        In order, until one cannot be paid; after that one, those alone for which something was held.
        """
        account, verifier, tree = self._costs.account, self.get(role), self._tree
        reads_paths = _reads_paths(verifier)
        paid: list[Trajectory] = []
        total: dict[str, int] = {}
        tokens = paths = prompts = 0
        opened: set[int] = set()
        stopped: Exhausted | None = None
        left, freed, is_kept = account.all_available(), dict[int, None](), account.has_kept
        for t in todo:
            if stopped is not None and (t.node in freed or not account.keeps(t.node)):
                continue
            # a path of another model, or whose state is gone, is opened again, and read from its prompt on, as its text
            # is spelled
            held = self._can_resume(t, role)
            known = tree.scored_tokens(t, role) if held else 0
            new = (
                t.num_tokens - known
                if held
                else max(t.num_tokens, text_bound(self._backends[verifier.model], t.full_text))
            )
            if is_kept:
                self._free_path(t, role, left, freed)
            root, path = tree.root_of(t), tree.path_tokens(t)
            opening = self._prompts.unopened_tokens(t, verifier.model) if reads_paths else 0
            bound = tokens + opening + stated_bound(verifier, path - t.num_tokens + known, new)
            unread = self._costs.unread_prompt(role, root, tree.prompt_tokens[root], again=not held)
            shown = prompts + (unread if root not in opened or not held else 0)
            wanted = self._costs.score_cost(role, bound, len(paid) + 1, paths + path, shown)
            if (short := next((unit for unit, amount in wanted.items() if amount > left[unit]), None)) is not None:
                stopped = stopped or Exhausted(short)
                continue
            tokens, prompts, paths = bound, shown, paths + path
            paid.append(t)
            opened |= {root} if held else set()
            total = wanted | {"bound": tokens, "prompts": prompts}
        account.free(*freed)
        return paid, total, stopped

    def _can_resume(self, t: Trajectory, role: str) -> bool:
        """Whether a role's verifier reads a path on from where it was: its own model wrote it, and its state is
        held.
        """
        return t.model == self.verifiers[role].model and self._tree.can_resume(t, role)

    def _free_path(self, t: Trajectory, role: str, left: dict[str, int], freed: dict[int, None]) -> None:
        """Add to what is left what is held for this node, and for those of its ancestors that its score will cover.

        Args:
            t: The path.
            role: The role that will score it.
            left: What is left of each limit; it grows.
            freed: The nodes whose amounts were added; it grows.
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
    """Whether a verifier may ask its model about paths, not only about prompts of its own."""
    return not {"value", "next_logprobs"}.isdisjoint(verifier.needs)


def _blame(role: str) -> Blame:
    """Return the context in which the code of a role's verifier runs; the end of a budget passes."""
    return Blame(f"the verifier {role!r}", VerifierError, (Exhausted,))


def _verdicts(role: str, count: int, verdicts: Sequence[float]) -> Sequence[float]:
    """Return a verifier's verdicts on pairs.

    Raises:
        VerifierError: They are not `count` numbers between 0 and 1, or NaN.
    """
    if len(verdicts) != count:
        raise VerifierError(f"the verifier {role!r} returned {len(verdicts)} verdicts for {count} pairs")
    if not all(math.isnan(one) or 0 <= one <= 1 for one in verdicts):
        raise VerifierError(
            f"the verifier {role!r} returned {quote(verdicts)} for pairs, but must return numbers between 0 and 1, or "
            "NaN"
        )
    return verdicts


def _values_of(score: StepScores) -> list[float]:
    return [*(score.steps or ()), *([] if score.whole is None else [score.whole])]


def _add_unknown(total: Counter[tuple[str, str]], more: Mapping[tuple[str, str], int]) -> None:
    """Add counts of what is unknown; of excesses ("over") the greatest stays."""
    for (what, kind), amount in more.items():
        total[what, kind] = max(total[what, kind], amount) if kind == "over" else total[what, kind] + amount


@refuse_old_members
class MeteredCalls:
    """Implements `tts.verifiers.base.Calls` for one scoring call.

    Args:
        backend: The model.
        task: The task of the problem.
        granted: Most tokens that may be computed.
        granted_prompt: Most tokens of prompts that a process model may read first.
        handles: Returns the handles of trajectories on this backend.
            It charges what it must read for them.
        stream: Address of the judge's own draws.
        seconds_left: The seconds left of the budget; None: it does not limit them.

    Attributes:
        computed: Tokens so far, of which `written` were generated.
        prompt: Tokens of prompts that a process model read, beside.
        reused: Tokens read again.
        seconds: The seconds of the model's work.
        estimated: Whether a part of that is a bound, for want of a report.
        unknown: What could not be read, and of how many (see `Calls.note_unread`).
        failures: What the model failed in, by kind.
        causes: The causes of the first of each.
        judgements: Prompts to the model, with its replies.
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
        """See `Calls.part`. What the part computes counts here as well, within the same grants."""
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
        """Return the cost of what was computed, in `flops` or `usd`.

        The parts cost their own rates, all else these.
        """
        own = {name: getattr(self, name) - sum(getattr(part, name) for _, part in self._parts) for name in _COUNTS}
        computed = own["prompt"] + own["computed"] - own["written"]
        mine = rates.cost(unit, computed=computed, reused=own["reused"], generated=own["written"])
        return mine + sum(part.cost(unit, of) for of, part in self._parts)

    def _add(self, name: str, amount: float) -> None:
        """Count something, here and in the whole that this is a part of."""
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
        found = [
            tuple(None if sample.finish == "error" else sample.text for sample in of_prompt) for of_prompt in samples
        ]
        for prompt, replies in zip(prompts, found, strict=True):
            self._keep(Judgement("", prompt_text(prompt_in_whole_characters(prompt)), replies))
        return found

    async def _sample(
        self, prompts: Sequence[Prompt], votes: int, max_tokens: int, sampling: Sampling, *, tops: bool = False
    ) -> list[list[Sample]]:
        """Return `votes` rows for each prompt."""
        left = self.seconds_left()
        prompts = [prompt_in_whole_characters(prompt) for prompt in prompts]
        handles = await self._open_prompts(prompts, votes * max_tokens)
        rowsets: list[RowSet] = []
        timer = None if left is None else asyncio.get_running_loop().call_later(left, _cancel, rowsets)
        try:
            for handle, prompt in zip(handles, prompts, strict=True):
                rows = tuple(
                    Row(hash64("reply", self._stream, str(prompt), draw), 0, max_tokens) for draw in range(votes)
                )
                # a prompt that is read again would pass the bound
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
        if any(sample.finish == "cancelled" for of_prompt in samples for sample in of_prompt):
            raise Exhausted("seconds")
        return samples

    def _keep(self, judgement: Judgement) -> None:
        """Keep what came of a prompt, here and in the whole that this is a part of."""
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
        """Return the handles of prompts, after each of which so many tokens may be written.

        Raises:
            Exhausted: the time is over. BudgetExceeded: the bound does not cover them.
        """
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise Exhausted("seconds")
        self._check(sum(self._backend.count(prompt) + written for prompt in prompts))
        return await self._read(self._backend.open(prompts), opens=True)

    async def _end(self, rowsets: Sequence[RowSet]) -> None:
        """Charge what was written, whatever happened, and give up its states; a row that was lost is charged in
        full.
        """
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
                if sample.error or sample.finish == "error":  # also where another try of the backend's made it good
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
        """Await a call that only reads, charge it also where the search is cancelled meanwhile, and return its
        values.
        """
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
        verifiers: Roles of verifiers, whose scores are not given.

    Raises:
        ConfigError: The scores are no finite numbers by role, or of the role of a verifier; the weight is below 0.
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
