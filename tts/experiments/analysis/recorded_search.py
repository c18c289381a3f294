"""Runs of best-of-n on recorded samples, with the selections and stop rules of a live search and the recorded scores."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.experiments.analysis.pools import Pool
from tts.experiments.analysis.scoring_cost import cost_of
from tts.experiments.study.record import RecordedSample
from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.algorithms.embedding import Embedder, HashedNgrams
from tts.search.ends import GoesByScores, StopDecision, StopRuleProtocol
from tts.search.plan import Plan
from tts.search.protocols import Selected, SelectionProtocol
from tts.search.search import Search
from tts.solver.verifier_roles import made
from tts.types import Candidate, Status, Trajectory
from tts.verifiers.base import StepScores, VerifierProtocol

_ROOT: Final = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The outcome of a run on recorded samples.

    Args:
        answer: the chosen one; None: there is none. right: whether it is right; None: the problem has no reference answer.
        samples: drawn. generated_tokens, verifier_tokens: the cost of these, and of the scores that were asked for.
        stopped_by: the stop rule's reason, or "done".
    """

    answer: str | None
    right: bool | None
    samples: int
    generated_tokens: int
    verifier_tokens: float
    stopped_by: str


class RecordedSearch:
    """A pool, and a plan that is run on its samples.

    Args:
        pool: recorded. plan: of best_of_n, with a selection.
    """

    def __init__(self, pool: Pool, plan: Plan) -> None:
        if plan.selection is None:
            raise AssertionError("a replayed plan has a selection")
        self.pool = pool
        self.selection = plan.selection
        self._stopping = plan.stopping
        self._judged = _judged(pool, plan.stopping)
        self._right = {drawn.answer: drawn.right for drawn in pool.drawn}
        # equal where those of the candidates were
        texts = [f"sample {i if drawn.same is None else drawn.same}" for i, drawn in enumerate(pool.drawn)]
        self._trajectories = [
            Trajectory(_ROOT, texts[i], (), (), cast("Status", drawn.status), i, i, drawn.tokens, 1) for i, drawn in enumerate(pool.drawn)
        ]

    def run(self, order: Sequence[int]) -> ReplayOutcome:
        """Return the outcome of drawing these samples in this order.

        Raises:
            ConfigError: the selection needs a score that was not recorded, or other parts of a live search.
        """
        candidates = self._candidates(order)
        count, stop = self._stop(candidates)
        used = candidates[:count] if stop is None else candidates[:count][stop.used]
        scores = RecordedScores(self.pool)
        scores.asked.update(order[:count] if self._judged else ())
        answers = _finished(self.selection.select(used, cast("Search", scores)), self.selection).answers
        if stop is not None and stop.answer is not None:
            answers = (stop.answer, *answers)
        answer = answers[0] if answers else None
        return ReplayOutcome(
            answer=answer,
            right=answer is not None and self._right[answer],
            samples=count,
            generated_tokens=sum(candidate.trajectory.num_tokens for candidate in candidates[:count]),
            verifier_tokens=cost_of(self.pool.drawn, scores.asked),
            stopped_by="done" if stop is None else stop.reason,
        )

    def _candidates(self, order: Sequence[int]) -> list[Candidate]:
        """Return the samples as candidates. Classes are numbered anew by first appearance, which decides ties."""
        classes: dict[int, int] = {}
        made: list[Candidate] = []
        for place, i in enumerate(order):
            drawn = self.pool.drawn[i]
            kind = None if drawn.answer_class is None else classes.setdefault(drawn.answer_class, len(classes))
            made.append(Candidate(self._trajectories[i], drawn.answer, kind, place, i, self._judged[i] if self._judged else {}))
        return made

    def _stop(self, candidates: list[Candidate]) -> tuple[int, StopDecision | None]:
        """Return how many candidates are drawn, and the stop rule's decision if it fires."""
        if self._stopping is not None:
            for count in range(1, len(candidates) + 1):
                if (verdict := self._stopping.should_stop(candidates[:count])) is not None:
                    return count, verdict
        return len(candidates), None


def _judged(pool: Pool, rule: StopRuleProtocol | None) -> list[dict[str, float]]:
    """Return the scores of each sample that a stop rule reads; none where it reads answers only."""
    if not isinstance(rule, GoesByScores):
        return []
    scores = RecordedScores(pool).of(range(len(pool.drawn)), rule.verifier, rule.aggregate).tolist()
    return [{rule.verifier: score} for score in scores]


class RecordedScores:
    """The part of a search that selections may use on recorded samples: scores, and vectors by words.

    Attributes:
        asked: the samples whose scores were asked for.
    """

    def __init__(self, pool: Pool) -> None:
        self.scoring = self._state = self
        self.asked: set[int] = set()
        self.embedder = HashedNgrams()  # compares words without waiting for anything
        self.given_roles: dict[str, bool] = {}  # a recorded strategy gave no scores of its own
        self._pool = pool

    def get(self, role: str) -> VerifierProtocol:
        """Return the verifier of a role.

        Raises:
            ConfigError: there is none.
        """
        text = self._pool.cell.verifiers.get(role)
        if text is None:
            raise self._unscored(role)
        return _made(text)

    async def embed(self, texts: Sequence[str], embedder: Embedder | None = None) -> NDArray[np.float64]:
        """Return vectors, as `Search.embed` would."""
        return await (embedder or self.embedder).embed(texts)

    def warn(self, line: str, *, timed: bool = False) -> None:
        """Do nothing: a replay has no solution to warn in."""

    async def score_affordable(self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last") -> NDArray[np.float64]:
        """Return recorded scores, as `Search.score_affordable` would."""
        self.asked.update(t.node for t in ts)
        return self.of([t.node for t in ts], verifier, aggregate)

    def of(self, samples: Sequence[int], role: str, aggregate: str) -> NDArray[np.float64]:
        """Return the scores of samples.

        Raises:
            ConfigError: one was not scored by the role.
        """
        return np.array([self._score(self._pool.drawn[i], role, aggregate) for i in samples], dtype=np.float64)

    def _score(self, drawn: RecordedSample, role: str, how: str) -> float:
        if role not in drawn.scores:
            raise self._unscored(role)
        steps = drawn.steps.get(role)
        return aggregate_scores(StepScores(whole=drawn.scores[role]) if steps is None else StepScores(steps=steps), how)

    def _unscored(self, role: str) -> ConfigError:
        return ConfigError(
            f"the selection scores with the role {role!r}, but the pool of problem {self._pool.cell.problem!r} lacks such scores",
            hint="draw a pool with that verifier, or choose a selection that needs none, such as majority",
        )

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(f"the selection asks a search for {name!r}, but of recorded samples only scores are known", hint=_LIVE)


@cache
def _made(verifier: str) -> VerifierProtocol:
    return (made(verifier) or {})["main"]


def covered(pool: Pool, order: Sequence[int]) -> ReplayOutcome:
    """Return the outcome of a perfect selection: right where any of the samples is."""
    drawn = [pool.drawn[i] for i in order]
    chosen = next((one for one in drawn if one.right), None)
    tokens = sum(one.tokens for one in drawn)
    return ReplayOutcome(None if chosen is None else chosen.answer, chosen is not None, len(drawn), tokens, 0, "done")


_LIVE: Final = "run it live, with tts run"


def _finished(work: Coroutine[Any, Any, Selected], selection: SelectionProtocol) -> Selected:
    """Return the choice of a selection, which has nothing to await on recorded scores."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise ConfigError(f"{selection} waits for something else than scores, which recorded samples cannot give", hint=_LIVE)
