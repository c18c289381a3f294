"""Runs best-of-n on recorded samples, with a live search's selections and stop rules."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.scoring_cost import cost_of
from tts.experiments.study.record import RecordedSample
from tts.registry import Registry, Scope, parse_call
from tts.scopes import check_calls, file_scope
from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.answers import Candidates
from tts.search.ends import StopDecision
from tts.search.needs import Needs, needs_of
from tts.search.parts import Plan, StopRule
from tts.search.recorded import RUN_LIVE, KnownScores, choose_by_scores
from tts.search.selections.majority import Majority
from tts.solver.model_cache import make_verifiers
from tts.types import Candidate, Problem, Status, Trajectory
from tts.verifiers import VERIFIERS
from tts.verifiers.base import StepScores, Verifier
from tts.verifiers.function import FunctionVerifier

T = TypeVar("T")
_ROOT: Final = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The outcome of a run on recorded samples.

    Args:
        answer: The chosen answer; None: there is none.
        right: Whether the answer is right, or a measure's value; None: the problem has no reference answer.
        samples: The number of samples that were drawn.
        generated_tokens: The tokens that were generated for these samples.
        verifier_tokens: The tokens that verifiers computed for the scores that were read.
        path_tokens: The tokens of the longest drawn sample, which decide the time where samples are written at once.
        usd: The cost of the samples in dollars, as their source states; None: unknown.
        stopped_by: The stop rule's reason, or "done".
    """

    answer: str | None
    right: bool | float | None
    samples: int
    generated_tokens: int
    verifier_tokens: float
    path_tokens: int
    stopped_by: str
    usd: float | None = None


class RecordedSearch:
    """A pool, and a plan that is run on its samples.

    Args:
        pool: The recorded samples.
        plan: The plan of best_of_n, with a selection.
    """

    def __init__(self, pool: ProblemPool, plan: Plan) -> None:
        assert plan.selection is not None, "a replayed plan has a selection"
        self.pool = pool
        self.selection = plan.selection
        self._stopping = plan.stopping
        self._judged = _rule_scores(pool, plan.stopping)
        self._right = {drawn.answer: drawn.right for drawn in pool.drawn}
        # whether samples with the same answer have different verdicts
        self._disputed = any(self._right[drawn.answer] != drawn.right for drawn in pool.drawn)

    def run(self, order: Sequence[int]) -> ReplayOutcome:
        """Return the outcome of drawing these samples in this order.

        Raises:
            ConfigError: the selection needs a score that was not recorded, or other parts of a live search.
        """
        return self.prefixes(order, [len(order)])[0]

    def sure(self, order: Sequence[int]) -> tuple[ReplayOutcome, float]:
        """Return the outcome of drawing these samples in this order, and the confidence of its answer.

        Raises:
            ConfigError: as `run`.
        """
        selected = choose_by_scores(self.selection, self._candidates(order), RecordedScores(self.pool))
        return self.run(order), selected.confidence

    def prefixes(self, order: Sequence[int], counts: Sequence[int]) -> list[ReplayOutcome]:
        """Return the outcomes of drawing the first samples of an order, one outcome for each count.

        One pass over the order suffices. A stop rule reads earlier samples only, so a rule that ends a run ends all
        longer runs at the same sample.

        Raises:
            ConfigError: as `run`.
        """
        order = order[: max(counts, default=0)]
        if self._stopping is not None and self._stopping.order == "finished":
            outcome_of = {count: self._write_at_once(order[:count]) for count in dict.fromkeys(counts)}
            return [outcome_of[count] for count in counts]
        # the leaders of a plain vote are counted without candidates
        is_vote = self._stopping is None and type(self.selection) is Majority
        candidates = [] if is_vote else self._candidates(order)
        end, stop = self._stop(candidates) if candidates else (len(order), None)
        leaders = self._leaders(order[:end]) if type(self.selection) is Majority else None
        tokens = [self.pool.drawn[i].tokens for i in order[:end]]
        dollars = accumulate((usd_of(self.pool.drawn[i]) for i in order[:end]), initial=0.0)
        spent = list(zip(accumulate(tokens, initial=0), accumulate(tokens, max, initial=0), dollars, strict=True))
        outcomes: dict[int, ReplayOutcome] = {}
        for count in dict.fromkeys(min(count, end) for count in counts if count < end or stop is None):
            outcomes[count] = self._outcome(order[:count], candidates, None, leaders, spent[count])
        stopped_outcome = (
            self._outcome(order[:end], candidates, stop, leaders, spent[end])
            if stop is not None and max(counts) >= end
            else None
        )
        return [
            outcomes[min(count, end)] if stopped_outcome is None or count < end else stopped_outcome for count in counts
        ]

    def _write_at_once(self, order: Sequence[int]) -> ReplayOutcome:
        """Return the outcome of samples that are written at once, and that a rule reads in finish order.

        A sample costs its tokens, but at most the tokens of the last sample that the rule waits for.

        Raises:
            ConfigError: No sample has a count of tokens.
        """
        drawn = self.pool.drawn
        if order and not any(drawn[i].tokens for i in order):
            raise ConfigError(
                f"{self._stopping} orders samples by their tokens, but those of the problem "
                f"{self.pool.cell.problem!r} have no counts",
                hint="record tokens with the samples, or choose a stop rule that reads answers",
            )
        finish_order = sorted(order, key=lambda i: drawn[i].tokens)
        candidates = self._candidates(finish_order)
        count, stop = self._stop(candidates)
        longest = max((drawn[i].tokens for i in finish_order[:count]), default=0)
        tokens_of = {i: min(drawn[i].tokens, longest) if stop is not None else drawn[i].tokens for i in finish_order}
        dollars = sum(
            usd_of(drawn[i]) * (tokens / drawn[i].tokens if drawn[i].tokens else 1.0) for i, tokens in tokens_of.items()
        )
        outcome = self._outcome(
            finish_order[:count], candidates, stop, None, (sum(tokens_of.values()), longest, dollars)
        )
        return dataclasses.replace(outcome, samples=len(order))

    def _outcome(
        self,
        order: Sequence[int],
        candidates: Sequence[Candidate],
        stop: StopDecision | None,
        leaders: Sequence[str | None] | None,
        spent: tuple[int, int, float],
    ) -> ReplayOutcome:
        """Return the outcome where the samples of an order are drawn.

        Args:
            order: The numbers of the samples, in the order in which they are drawn.
            candidates: The candidates of all samples, in the same order.
            stop: The decision of a stop rule; None: all samples were drawn.
            leaders: The majority's answer after each sample; None: the selection is no vote.
            spent: The sum of tokens, the tokens of the longest sample, and the dollars.
        """
        scored_samples: set[int] = set(order) if self._judged else set()
        answer, best = None if stop is None else stop.answer, None
        if leaders is not None and (answer is not None or stop is None or stop.used == slice(None)):
            answer = leaders[len(order)] if answer is None else answer
        else:
            scores = RecordedScores(self.pool, scored_samples)
            chosen_from = candidates[: len(order)] if stop is None else candidates[: len(order)][stop.used]
            chosen = choose_by_scores(self.selection, chosen_from, scores)
            answer = answer if answer is not None else chosen.answers[0] if chosen.answers else None
            best = chosen.ranked[0] if chosen.ranked else None
        return ReplayOutcome(
            answer=answer,
            right=answer is not None and self._verdict(answer, order, best),
            samples=len(order),
            generated_tokens=spent[0],
            verifier_tokens=cost_of(self.pool.drawn, scored_samples) if scored_samples else 0,
            path_tokens=spent[1],
            usd=None if math.isnan(spent[2]) else spent[2],
            stopped_by="done" if stop is None else stop.reason,
        )

    def _verdict(self, answer: str, order: Sequence[int], first: Candidate | None) -> bool | None:
        """Return whether an answer is right.

        Where samples with this answer have different verdicts, the best candidate's counts, else the first sample's.

        Args:
            answer: The answer to judge.
            order: The samples that were drawn.
            first: The best candidate of a selection.
        """
        if not self._disputed:
            return self._right[answer]
        drawn = self.pool.drawn
        best = first.trajectory.node if first is not None and first.answer == answer else None
        return drawn[next(i for i in order if drawn[i].answer == answer) if best is None else best].right

    def _leaders(self, order: Sequence[int]) -> list[str | None]:
        """Return the majority's answer before the first sample, and after each sample.

        Of classes with equal votes, the earliest class wins.
        """
        drops = cast("Majority", self.selection).truncated == "drop"
        answers: dict[int, str | None] = {}  # by class: its first vote
        class_order: dict[int, int] = {}
        votes: Counter[int] = Counter()
        leaders: list[str | None] = [None]
        leader, leader_votes = -1, 0
        for i in order:
            drawn = self.pool.drawn[i]
            class_ = drawn.answer_class
            if class_ is not None:
                class_order.setdefault(class_, len(class_order))
            if class_ is not None and not (drops and drawn.status == "truncated"):
                answers.setdefault(class_, drawn.answer)
                count = votes[class_] = votes[class_] + 1
                if count > leader_votes or (count == leader_votes and class_order[class_] < class_order[leader]):
                    leader, leader_votes = class_, count
            leaders.append(answers.get(leader))
        return leaders

    @cached_property
    def _trajectories(self) -> list[Trajectory]:
        """The samples as trajectories. Samples with equal texts have trajectories with equal texts."""
        return [
            Trajectory(
                _ROOT,
                f"sample {i if drawn.same is None else drawn.same}",
                (),
                (),
                cast("Status", drawn.status),
                i,
                i,
                drawn.tokens,
                1,
            )
            for i, drawn in enumerate(self.pool.drawn)
        ]

    def _candidates(self, order: Sequence[int]) -> list[Candidate]:
        """Return the samples as candidates. Classes are numbered anew by first appearance, which decides ties."""
        classes: dict[int, int] = {}
        candidates: list[Candidate] = []
        for place, i in enumerate(order):
            drawn = self.pool.drawn[i]
            class_ = None if drawn.answer_class is None else classes.setdefault(drawn.answer_class, len(classes))
            candidates.append(
                Candidate(
                    self._trajectories[i], drawn.answer, class_, place, i, self._judged[i] if self._judged else {}
                )
            )
        return candidates

    def _stop(self, candidates: list[Candidate]) -> tuple[int, StopDecision | None]:
        """Return the number of drawn candidates, and the stop rule's decision; None: the rule did not fire."""
        if self._stopping is not None and self._stopping.registered_as != "never":
            drawn_candidates = Candidates()  # counts votes as they come
            for candidate in candidates:
                drawn_candidates.append(candidate)
                if (verdict := self._stopping.should_stop(drawn_candidates)) is not None:
                    return len(drawn_candidates), verdict
        return len(candidates), None


def usd_of(drawn: RecordedSample) -> float:
    """Return the cost of a sample in dollars; NaN: unknown."""
    return math.nan if drawn.usd is None else drawn.usd


def _rule_scores(pool: ProblemPool, rule: StopRule | None) -> list[dict[str, float]]:
    """Return each sample's scores that a stop rule reads; empty: the rule reads answers only."""
    needs = Needs() if rule is None else needs_of(rule)
    if not needs.verifiers:
        return []
    role = needs.verifiers[0]
    return [
        {role: score}
        for score in RecordedScores(pool).aggregates_of(range(len(pool.drawn)), role, needs.aggregate).tolist()
    ]


class RecordedScores(KnownScores):
    """The recorded scores of a pool.

    Attributes:
        asked: The samples whose scores were read.
    """

    def __init__(self, pool: ProblemPool, asked: set[int] | None = None) -> None:
        super().__init__()
        self.asked = set[int]() if asked is None else asked
        self._pool = pool

    def get(self, role: str) -> Verifier:
        """Return the verifier of a role.

        Raises:
            ConfigError: there is no such verifier.
        """
        text = self._pool.cell.verifiers.get(role)
        if text is None:
            raise self._missing_scores_error(role)
        return _make_verifier(text, file_scope())

    async def score(
        self,
        ts: Sequence[Trajectory],
        verifier: str = "main",
        aggregate: str = "last",
        *,
        required: bool = True,
    ) -> NDArray[np.float64]:
        """Return recorded scores, and note the samples whose scores were read."""
        self.asked.update(t.node for t in ts)
        return await super().score(ts, verifier, aggregate, required=required)

    def scores_of(self, t: Trajectory, role: str) -> StepScores:
        """Return recorded outcomes of tests, as a live search has them."""
        drawn = self._pool.drawn[t.node]
        return StepScores(whole=drawn.scores.get(role, math.nan), tests=drawn.outcomes.get(role, drawn.steps.get(role)))

    def aggregates_of(self, nodes: Sequence[int], role: str, aggregate: str) -> NDArray[np.float64]:
        """Return the scores of samples.

        Raises:
            ConfigError: the role did not score one of the samples.
        """
        drawn = [self._pool.drawn[i] for i in nodes]
        if not all(role in sample.scores for sample in drawn):
            raise self._missing_scores_error(role)
        return np.array([score_of(sample, role, aggregate) for sample in drawn], dtype=np.float64)

    def _missing_scores_error(self, role: str) -> ConfigError:
        return ConfigError(
            f"the selection scores with the role {role!r}, but the pool of problem {self._pool.cell.problem!r} lacks "
            "such scores",
            hint="import programs with the field written_tests and --programs FILE" if role == "tests" else _SCORED,
        )


def score_of(drawn: RecordedSample, role: str, aggregate: str) -> float:
    """Return the score of a sample, with step scores aggregated as in a selection."""
    steps = drawn.steps.get(role)
    return aggregate_scores(
        StepScores(whole=drawn.scores[role]) if steps is None else StepScores(steps=steps), aggregate
    )


@cache
def _make_verifier(verifier: str, scope: Scope) -> Verifier:
    if verifier.startswith("recorded"):
        return parse_call(_IMPORTED, verifier, scope)
    check_calls(VERIFIERS, verifier, scope)
    return (make_verifiers(verifier) or {})["main"]  # its text is within the scope


def imported_scores(*, low: float = -math.inf, high: float = math.inf) -> Verifier:
    """Return a placeholder for the verifier of imported scores, which states their range.

    The text of this verifier in a cell is `recorded(low=0, high=1)`.
    """

    def refuse(problem: Problem, text: str) -> float:
        del text
        raise ConfigError(
            f"problem {problem.id!r}: the verifier of imported scores has these scores alone", hint=RUN_LIVE
        )

    return FunctionVerifier(refuse, range=(low, high))


_IMPORTED: Final = Registry("verifier", "tts.imported", {"recorded": f"{__name__}:imported_scores"})


_SCORED: Final = "draw a pool with that verifier, or choose a selection that needs none, such as majority"
