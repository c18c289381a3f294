"""Scores of nodes. A verifier scores each node once.

The reserve that was made with the node pays for its score. A score that cannot be paid is unknown (NaN).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts._common.blame import Blame
from tts.backends.capabilities import text_bound
from tts.budget.account import Exhausted
from tts.budget.units import PRICED_UNITS
from tts.checks import check_number, check_text
from tts.errors import ConfigError, EngineError, VerifierError, quote, unknown_name
from tts.randomness import hash64
from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.algorithms.embedding import NGRAMS, Embedder
from tts.search.context import SearchContext
from tts.search.ends import CallNotes
from tts.search.prompts import Prompts
from tts.types import Problem, Trajectory
from tts.verifiers.base import (
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
from tts.verifiers.ranges import no_scale, range_of

if TYPE_CHECKING:
    from tts.search.calls import MeteredCalls

T = TypeVar("T")
# trajectories of a call where time is limited: time is checked between calls, because a verifier may never pause
_IN_TIME = 1024


class Scoring:
    """Asks the verifiers of one search and books their tokens.

    Args:
        context: What the parts of the search share.
        prompts: The prompts that were read.
        scorers: The verifiers' scorers, bound to the problem, by role.
        stream: The address of the judges' own draws.
        gives_scores: The roles of scores that the strategy gives its candidates itself.
        embedder: The embedder that compares texts; None: the default.

    Attributes:
        verifiers: The verifiers by role.
        given_roles: The roles of the strategy's own scores, each with whether all its scores lie in [0, 1].
        embedder: The embedder that compares texts.
        unscorable: The nodes of candidates that no verifier will score.
        unpaid: The nodes whose scores were wanted and could not be paid.
        asked: The roles that were asked.
        timed_out: Whether the time was over before a score was known.
        notes: What the calls of the verifiers left beside scores and costs.
        strays: The first score of each role outside of the range that its earlier scores had, which count as the
            nearest end.
    """

    def __init__(
        self,
        context: SearchContext,
        prompts: Prompts,
        scorers: Mapping[str, Scorer],
        *,
        stream: int,
        gives_scores: Sequence[str] = (),
        embedder: Embedder | None = None,
    ) -> None:
        self.embedder = embedder or NGRAMS
        self.verifiers = context.verifiers
        self.unscorable: set[int] = set()
        self.given_roles: dict[str, bool] = dict.fromkeys(gives_scores, True)
        self._scorers = scorers
        self._task = context.task
        self._backends = context.backends
        self._costs = context.costs
        self._tree = context.tree
        self._prompts = prompts
        self._stream = stream
        self._clock = context.clock
        self.unpaid: set[int] = set()
        self.asked: set[str] = set()
        self.timed_out = False
        self.notes = CallNotes()
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
            if traits_of(self.get(role)).range_by_scores:
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
        self.unpaid.update([t.node for t in unscored])
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
        calls = self._calls(role, amounts.pop("bound"), amounts.pop("prompts"), amounts.get("requests"))
        scorer = self._scorers[role]
        self.unpaid.difference_update([t.node for t in paid])
        try:
            scores = await self._verify("score", role, len(paid), amounts, calls, partial(scorer, paid))
        # the time is over, or the verifier's reading of other paths or prompts cannot be paid
        except Exhausted as call_shortage:
            self.unpaid.update(t.node for t in paid)
            self.timed_out = self.timed_out or call_shortage.unit == "seconds"
            return call_shortage
        except EngineError as failure:
            self.notes.note_failures(failure.kind, failure.cause, len(paid))
            return shortage
        self._costs.note_prompts_read(role, read_roots, calls.prompt)
        is_late = self._costs.account.seconds_left == 0
        for t, t_scores in zip(paid, scores, strict=True):
            if is_late and all(map(math.isnan, _values_of(t_scores))):  # it may be known later: there was no time
                self.unpaid.add(t.node)
                self.timed_out = True
                continue
            self._tree.scores[t.node, role] = t_scores
            if role in self._ranges and role not in self.strays:
                low, high = self._ranges[role]
                outside = [value for value in _values_of(t_scores) if value < low or value > high]
                self.strays.update({role: outside[0]} if outside else {})
        return shortage

    async def compare(self, pairs: Sequence[tuple[Trajectory, Trajectory]], role: str, problem: Problem) -> list[float]:
        """Return a verifier's verdicts on as many pairs, in order, as can be paid; NaN for the other pairs.

        The call is for selections. The reserves for scores of these trajectories pay for the verdicts, because a
        selection that compares does not score.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        verifier = self.get(role)
        comparison = traits_of(verifier).comparison
        if comparison is None:
            raise ConfigError(
                f"the verifier {verifier.name!r} compares no pairs", hint="give one that does, such as 'judge'"
            )
        self._costs.free(dict.fromkeys(t.node for pair in pairs for t in pair))
        bound, requests = comparison.pair_bound, comparison.most_requests
        num_paid = await self._payable_judgements(role, bound, requests, len(pairs))

        async def compare(calls: MeteredCalls) -> Sequence[float]:
            return _verdicts(role, num_paid, await comparison.compare(problem, pairs[:num_paid], calls))

        verdicts = await self._judge("compare", role, bound, requests, num_paid, compare) if num_paid else []
        return [*verdicts, *[math.nan] * (len(pairs) - len(verdicts))]

    async def choose(self, ts: Sequence[Trajectory], role: str, problem: Problem, by: str) -> list[float]:
        """Return the share of a verifier's votes for each trajectory when all are shown at once.

        The shares are NaN where the choice cannot be paid or is unknown. The reserves for scores and comparisons of
        these trajectories pay for the choice.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        verifier = self.get(role)
        choice = traits_of(verifier).choice
        if choice is None:
            raise ConfigError(
                f"the verifier {verifier.name!r} chooses among no lists", hint="give one that does, such as 'judge'"
            )
        self._costs.free({t.node for t in ts})

        async def choose(calls: MeteredCalls) -> Sequence[float]:
            return _verdicts(role, len(ts), await choice.choose(problem, ts, calls, by))

        bound, requests = choice.bound, choice.most_requests
        is_paid = await self._payable_judgements(role, bound, requests, 1)
        shares = await self._judge("choose", role, bound, requests, 1, choose) if is_paid else []
        return [*shares] or [math.nan] * len(ts)

    async def _payable_judgements(self, role: str, bound: int, requests: int, count: int) -> int:
        """Return how many of `count` judgements can be paid; wait for other searches.

        Each judgement takes at most `bound` tokens and `requests` requests.
        """
        account = self._costs.account

        def lacking_unit(number: int) -> str | None:
            cost = self._costs.score_cost(role, bound * number, number, paths=0, prompts=0, requests=requests)
            return account.short_of(cost)

        while (unit := lacking_unit(count)) is not None and await self._has_waited(unit):
            pass
        return bisect_left(range(1, count + 1), True, key=lambda n: lacking_unit(n) is not None)  # noqa: FBT003 - the value to find

    async def _judge(
        self,
        kind: str,
        role: str,
        bound: int,
        requests: int,
        count: int,
        judge: Callable[[MeteredCalls], Awaitable[Sequence[float]]],
    ) -> Sequence[float]:
        """Return the verdicts of one call for `count` judgements; none where the time is over or a model failed."""
        amounts = self._costs.score_cost(role, bound * count, count, paths=0, prompts=0, requests=requests)
        calls = self._calls(role, bound * count, 0, amounts.get("requests"))
        try:
            return await self._verify(kind, role, count, amounts, calls, judge)
        except Exhausted as shortage:
            self.timed_out = self.timed_out or shortage.unit == "seconds"
        except EngineError as failure:
            self.notes.note_failures(failure.kind, failure.cause, count)
        return []

    async def _verify(
        self,
        kind: str,
        role: str,
        rows: int,
        amounts: Mapping[str, int],
        calls: MeteredCalls,
        verify: Callable[[MeteredCalls], Awaitable[T]],
    ) -> T:
        """Return the result of one call of a verifier, which is paid also after a failure.

        Raises:
            VerifierError: The verifier failed or broke its contract.
            Exhausted: The amounts cannot be paid, or the time is over.
            EngineError: A model failed.
        """
        rates = self._costs.rates[role]
        with await self._costs.account.lease_in_turn(amounts, kind=kind, model=role, rows=rows, rates=rates) as lease:
            started = self._clock()
            self.asked.add(role)
            try:
                with Blame(f"the verifier {role!r}", VerifierError, (Exhausted,)):
                    return await verify(calls)
            finally:
                lease.spend(
                    priced={unit: calls.cost(unit, rates) for unit in PRICED_UNITS},
                    prompt_tokens=calls.prompt,
                    verifier_tokens=calls.computed,
                    verifier_reused_tokens=calls.reused,
                    verifier_calls=rows if calls.is_shown else 0,
                    requests=calls.requests,
                    seconds=self._clock() - started,
                    work_seconds=calls.seconds,
                    estimated=calls.estimated,
                )

    def _calls(self, role: str, granted: int, granted_prompt: int, granted_requests: int | None) -> MeteredCalls:
        """Return the calls of a verifier's model, within grants of tokens and requests (see `MeteredCalls`)."""
        from tts.search.calls import MeteredCalls  # most searches have no verifier

        model = self.get(role).model
        return MeteredCalls(
            self._backends[model],
            self._task,
            granted,
            lambda ts, charge: self._prompts.handles(ts, model, charge),
            hash64(self._stream, role),
            seconds_left=lambda: self._costs.account.seconds_left,
            granted_prompt=granted_prompt,
            role=role,
            granted_requests=granted_requests,
            notes=self.notes,
        )

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
        reads_prompts, reads_paths = self._costs.reads_prompts(role), _reads_paths(self.verifiers[role])
        for t in unscored:
            if shortage is not None and (t.node in freed or not self._costs.is_owed(t.node)):
                continue
            can_resume, root = self._can_resume(t, role), tree.root_of(t) if reads_prompts else 0
            if owes:
                self._free_path(t, role, left, freed)
            size = tree.path_tokens(t)
            next_tokens = tokens + self._score_tokens(t, role, size, can_resume=can_resume, reads_paths=reads_paths)
            next_path_tokens = path_tokens + size
            next_prompt_tokens = prompt_tokens
            if reads_prompts and (root not in resumed_roots or not can_resume):
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

    def _score_tokens(self, t: Trajectory, role: str, size: int, *, can_resume: bool, reads_paths: bool) -> int:
        """Return the most tokens of scoring a trajectory, whose path has `size` tokens with its prompt.

        A path that the verifier cannot resume is opened again: its whole text is read, from the prompt on.
        """
        verifier = self.verifiers[role]
        num_scored = self._tree.scored_tokens(t, role) if can_resume else 0
        num_new = t.num_tokens - num_scored
        if not can_resume:
            num_new = max(t.num_tokens, text_bound(self._backends[verifier.model], t.full_text))
        num_prompt = size - t.num_tokens
        opening = self._prompts.unopened_tokens(t, verifier.model) if reads_paths else 0
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
            self._costs.add_reserve(node.node, left)
            if node.parent is None:
                return
            node = node.parent


def _reads_paths(verifier: Verifier) -> bool:
    """Whether a verifier may ask its model about paths, and not only about prompts of its own."""
    return not {"value", "next_logprobs"}.isdisjoint(verifier.needs)


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
