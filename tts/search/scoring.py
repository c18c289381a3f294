"""Scores: asked once a node and verifier, paid from what was reserved with the node, unknown (NaN) where not affordable."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tts.backends.base import Backend
from tts.backends.capabilities import text_bound
from tts.blame import Blame
from tts.budget.account import Exhausted, Lease
from tts.errors import ConfigError, EngineError, VerifierError, shown, unknown_name
from tts.randomness import hash64
from tts.search.algorithms.embedding import Embedder, HashedNgrams
from tts.search.costs import Costs
from tts.search.metered_calls import MeteredCalls
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.tasks.base import Task
from tts.types import Problem, Trajectory, Usage
from tts.verifiers.base import Scorer, StepScores, Verifier, stated_bound, traits_of
from tts.verifiers.ranges import range_of

_IN_TIME = 1024  # trajectories of a call where time is limited: it is looked at between calls, and a verifier may not wait for anything


class Scoring:
    """Asks the verifiers of one search and books what they compute.

    Args:
        verifiers: what they are, by role. scorers: the same, bound to the problem.

    Attributes:
        given_roles: roles of scores that the strategy itself gives, and whether all scores of a role lie in [0, 1].
        embedder: what compares texts. unscorable: nodes of candidates that no verifier will score.
        unpaid: nodes that were asked about and could not be paid. asked: the roles that were asked.
        timed_out: whether the time was over before a score was known. unknown: what verifiers could not read (see `Calls.unread`).
        failures: replies and scores that a model, or its server, failed in, by kind. causes: of the first of each.
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
        self.embedder = embedder or HashedNgrams()
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
        self.failures: Counter[str] = Counter()
        self.causes: dict[str, str] = {}

    def get(self, role: str) -> Verifier:
        """Return the verifier of a role.

        Raises:
            ConfigError: there is none.
        """
        if not self.verifiers:
            raise ConfigError(f"the role {role!r} has no verifier", hint="give verifier=…, or choose a selection that needs none")
        if role not in self.verifiers:
            raise unknown_name("verifier role", role, self.verifiers)
        return self.verifiers[role]

    def scores_of(self, t: Trajectory, role: str = "main") -> StepScores | None:
        """Return what a role's verifier has said of a trajectory; None: it was not asked."""
        return self._tree.scores.get((t.node, role))

    def range_of(self, role: str) -> tuple[float, float]:
        """Return the range by which a role's scores are mapped, by all its scores so far where its verifier states none."""
        verifier = self.get(role)
        if not traits_of(verifier).range_by_scores:
            return range_of(verifier, np.empty(0))
        every = [value for (_, of), score in self._tree.scores.items() if of == role for value in _values_of(score)]
        return range_of(verifier, np.array(every, np.float64))

    async def score(self, ts: Sequence[Trajectory], role: str) -> Exhausted | None:
        """Score those of `ts` that are not scored yet, as many, in order, as can be paid; what stopped it, if anything.

        A call in which a model failed (an `EngineError`) leaves its scores unknown, counted by kind; asked again, it is made again.

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
        opened = {self._tree.root_of(t) for t in own if t.judged_text.strip() and self._reads_on(t, role)}
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
        except Exhausted as end:  # the time is over, or what the verifier reads of other paths or prompts cannot be paid
            self.unpaid.update(t.node for t in paid)
            self.timed_out = self.timed_out or end.unit == "seconds"
            return end
        except EngineError as failure:
            self._note_failed(failure, len(paid))
            return stopped
        self._costs.prompts_were_read(role, opened, calls.prompt)
        late = self._costs.account.seconds_left == 0
        for t, score in zip(paid, scores, strict=True):
            if late and all(map(math.isnan, _values_of(score))):  # time, not the verifier, left it so
                self.unpaid.add(t.node)
                self.timed_out = True
            else:
                self._tree.scores[t.node, role] = score
        return stopped

    async def compare(self, pairs: Sequence[tuple[Trajectory, Trajectory]], role: str, problem: Problem) -> list[float]:
        """Return the verdicts of a role's verifier on as many pairs, in order, as can be paid; NaN for the others. For selections.

        What is held for scores of these trajectories pays for it: a selection that compares does not score.

        Raises:
            VerifierError: the verifier failed or broke its contract.
        """
        verifier, account = self.get(role), self._costs.account
        comparison = traits_of(verifier).comparison
        if comparison is None:
            raise ConfigError(f"the verifier {verifier.name!r} compares no pairs", hint="give one that does, such as 'judge'")
        for t in {t.node: t for pair in pairs for t in pair}.values():
            account.free(t.node)
        each = comparison.pair_bound

        def amounts(count: int) -> dict[str, int]:
            return self._costs.score_cost(role, each * count, count, 0, 0)

        while (short := account.short_of(amounts(len(pairs)))) is not None and await self._has_waited(short):
            pass
        paid = bisect_left(range(1, len(pairs) + 1), 1, key=lambda count: int(account.short_of(amounts(count)) is not None))
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
        self.unknown.update(calls.unknown)
        self.failures.update(calls.failures)
        self.causes = calls.causes | self.causes

    def _affordable(self, todo: Sequence[Trajectory], role: str) -> tuple[list[Trajectory], dict[str, int], Exhausted | None]:
        """Return the trajectories that can be paid, freeing what was reserved for them, and their bound by unit.

        In order, until one cannot be paid; after that one, those alone for which something was held.
        """
        account, verifier, tree = self._costs.account, self.get(role), self._tree
        paid: list[Trajectory] = []
        total: dict[str, int] = {}
        tokens = paths = prompts = 0
        opened: set[int] = set()
        stopped: Exhausted | None = None
        for t in todo:
            if stopped is not None and not account.keeps(t.node):
                continue
            # a path of another model, or whose state is gone, is opened again, and read from its prompt on, as its text is spelled
            held = self._reads_on(t, role)
            known = tree.scored_tokens(t, role) if held else 0
            new = t.num_tokens - known if held else max(t.num_tokens, text_bound(self._backends[verifier.model], t.full_text))
            if account.has_kept:
                self._free_path(t, role)
            root, path = tree.root_of(t), tree.path_tokens(t)
            opening = self._prompts.unopened_tokens(t, verifier.model) if _reads_paths(verifier) else 0
            bound = tokens + opening + stated_bound(verifier, path - t.num_tokens + known, new)
            unread = self._costs.unread_prompt(role, root, tree.prompt_tokens[root], again=not held)
            shown = prompts + (unread if root not in opened or not held else 0)
            wanted = self._costs.score_cost(role, bound, len(paid) + 1, paths + path, shown)
            if (short := account.short_of(wanted)) is not None:
                stopped = stopped or Exhausted(short)
                continue
            tokens, prompts, paths = bound, shown, paths + path
            paid.append(t)
            opened |= {root} if held else set()
            total = wanted | {"bound": tokens, "prompts": prompts}
        return paid, total, stopped

    def _reads_on(self, t: Trajectory, role: str) -> bool:
        """Whether a role's verifier reads a path on from where it was: its own model wrote it, and its state is held."""
        return t.model == self.verifiers[role].model and self._tree.reads_on(t, role)

    def _free_path(self, t: Trajectory, role: str) -> None:
        """Free what is held for this node and for those of its ancestors that its score will cover."""
        node: Trajectory | None = t
        while node is not None and (node.node, role) not in self._tree.scores:
            self._costs.account.free(node.node)
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
        raise VerifierError(f"the verifier {role!r} returned {shown(verdicts)} for pairs, but must return numbers between 0 and 1, or NaN")
    return verdicts


def _values_of(score: StepScores) -> list[float]:
    return [*(score.steps or ()), *([] if score.whole is None else [score.whole])]
