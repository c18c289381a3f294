"""Runs best-of-n on recorded samples, with a live search's selections and stop rules."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tts._common.scopes import check_calls, file_scope
from tts.errors import ConfigError
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.scoring_cost import cost_of
from tts.experiments.study.record import RecordedSample
from tts.registry import Registry, Scope, parse_call
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
from tts.verifiers.ranges import range_of

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
        path_tokens: The tokens that are written one after another in this run, which decide its time. Samples are
            written at once, or, under a stop rule that reads them in draw order, each after the last.
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


class Spend(NamedTuple):
    """The cost of drawn samples: their tokens, those written one after another, and dollars; NaN: unknown."""

    tokens: int
    path: int
    usd: float

    @property
    def known_usd(self) -> float | None:
        """The dollars; None: unknown."""
        return None if math.isnan(self.usd) else self.usd


def prefix_spends(samples: Sequence[RecordedSample], *, at_once: bool) -> list[Spend]:
    """Return the cost of the first 0, 1, … samples, up to all; `at_once`: whether all begin at once."""
    tokens = [sample.tokens for sample in samples]
    token_sums = list(accumulate(tokens, initial=0))
    paths = accumulate(tokens, max, initial=0) if at_once else token_sums
    usd_sums = accumulate(map(usd_of, samples), initial=0.0)
    return [Spend(*spend) for spend in zip(token_sums, paths, usd_sums, strict=True)]


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
        self._stop_rule = plan.stopping
        self._draws_at_once = plan.stopping is None or plan.stopping.registered_as == "never"
        self._stop_rule_scores = _stop_rule_scores(pool, plan.stopping)
        self._is_answer_right = {sample.answer: sample.right for sample in pool.drawn}
        # whether samples with the same answer have different verdicts
        self._has_disputed_answer = any(self._is_answer_right[sample.answer] != sample.right for sample in pool.drawn)

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
        """Return the outcomes of drawing the first samples of an order, one outcome for each count of samples.

        One pass over the order suffices for all counts. A stop rule reads only samples that are drawn before. So a
        rule that ends one run ends all longer runs at the same sample.

        Raises:
            ConfigError: as `run`.
        """
        order = order[: max(counts, default=0)]
        if self._stop_rule is not None and self._stop_rule.order == "finished":
            outcome_of = {count: self._write_at_once(order[:count]) for count in dict.fromkeys(counts)}
            return [outcome_of[count] for count in counts]
        is_vote = type(self.selection) is Majority
        # the answer of a vote without a stop rule is read from `leaders`, without candidates
        candidates = [] if is_vote and self._stop_rule is None else self._candidates(order)
        num_drawn, decision = self._stop(candidates) if candidates else (len(order), None)
        leaders = self._leaders(order[:num_drawn]) if is_vote else None
        samples = [self.pool.drawn[i] for i in order[:num_drawn]]
        spends = prefix_spends(samples, at_once=self._draws_at_once)
        outcomes: dict[int, ReplayOutcome] = {}  # by the number of drawn samples
        for count in dict.fromkeys(min(count, num_drawn) for count in counts):
            count_decision = decision if count == num_drawn else None
            outcomes[count] = self._outcome(order[:count], candidates, count_decision, leaders, spends[count])
        return [outcomes[min(count, num_drawn)] for count in counts]

    def _write_at_once(self, order: Sequence[int]) -> ReplayOutcome:
        """Return the outcome of samples that are written at once, and that a rule reads in finish order.

        A sample costs its tokens, but at most the tokens of the last sample that the rule waits for.

        Raises:
            ConfigError: No sample has a count of tokens.
        """
        drawn = self.pool.drawn
        if order and not any(drawn[i].tokens for i in order):
            raise ConfigError(
                f"{self._stop_rule} orders samples by their tokens, but those of the problem "
                f"{self.pool.cell.problem!r} have no counts",
                hint="record tokens with the samples, or choose a stop rule that reads answers",
            )
        finish_order = sorted(order, key=lambda i: drawn[i].tokens)
        candidates = self._candidates(finish_order)
        num_finished, decision = self._stop(candidates)
        longest = max((drawn[i].tokens for i in finish_order[:num_finished]), default=0)
        tokens: list[int] = []
        usd: list[float] = []
        for i in finish_order:
            full_tokens = drawn[i].tokens
            written_tokens = full_tokens if decision is None else min(full_tokens, longest)
            tokens.append(written_tokens)
            usd.append(usd_of(drawn[i]) * (written_tokens / full_tokens if full_tokens else 1.0))
        spend = Spend(tokens=sum(tokens), path=longest, usd=sum(usd))
        outcome = self._outcome(finish_order[:num_finished], candidates, decision, None, spend)
        return dataclasses.replace(outcome, samples=len(order))

    def _outcome(
        self,
        order: Sequence[int],
        candidates: Sequence[Candidate],
        decision: StopDecision | None,
        leaders: Sequence[str | None] | None,
        spend: Spend,
    ) -> ReplayOutcome:
        """Return the outcome where the samples of an order are drawn.

        Args:
            order: The numbers of the samples, in the order in which they are drawn.
            candidates: The candidates of all samples, of which the first ones are drawn.
            decision: The decision of a stop rule; None: no rule ended the run.
            leaders: The majority's answer after each number of samples; None: the selection is no vote.
            spend: The cost of the samples.
        """
        scored_samples: set[int] = set(order) if self._stop_rule_scores else set()
        answer = None if decision is None else decision.answer
        best: Candidate | None = None
        uses_all_samples = decision is None or decision.used == slice(None)
        if leaders is not None and (answer is not None or uses_all_samples):
            answer = leaders[len(order)] if answer is None else answer
        else:
            scores = RecordedScores(self.pool, scored_samples)
            used_candidates = candidates[: len(order)][slice(None) if decision is None else decision.used]
            selected = choose_by_scores(self.selection, used_candidates, scores)
            if answer is None and selected.answers:
                answer = selected.answers[0]
            best = next(iter(selected.ranked), None)
        return ReplayOutcome(
            answer=answer,
            right=answer is not None and self._verdict(answer, order, best),
            samples=len(order),
            generated_tokens=spend.tokens,
            verifier_tokens=cost_of(self.pool.drawn, scored_samples) if scored_samples else 0,
            path_tokens=spend.path,
            usd=spend.known_usd,
            stopped_by="done" if decision is None else decision.reason,
        )

    def _verdict(self, answer: str, order: Sequence[int], best: Candidate | None) -> bool | None:
        """Return the recorded verdict on an answer; None: the problem has no reference answer.

        Samples with this answer may have different verdicts. Then the verdict of the best candidate counts if the
        candidate has this answer, else the verdict of the first drawn sample with this answer.

        Args:
            answer: The answer of one of the drawn samples.
            order: The numbers of the drawn samples, in the order of drawing.
            best: The candidate that a selection ranks first; None: there is none.
        """
        if not self._has_disputed_answer:
            return self._is_answer_right[answer]
        if best is not None and best.answer == answer:
            sample_number = best.trajectory.node  # see `_trajectories`
        else:
            sample_number = next(i for i in order if self.pool.drawn[i].answer == answer)
        return self.pool.drawn[sample_number].right

    def _leaders(self, order: Sequence[int]) -> list[str | None]:
        """Return the majority's answer after each number of samples, from 0 to all samples of an order.

        Of classes (groups of equal answers) with equal votes, the class that appears first wins.
        """
        drops_truncated = cast("Majority", self.selection).truncated == "drop"
        answers: dict[int, str | None] = {}  # by class, the answer of its first vote
        class_order: dict[int, int] = {}
        votes: Counter[int] = Counter()
        leaders: list[str | None] = [None]
        leader, leader_votes = -1, 0  # no class has the number -1
        for i in order:
            sample = self.pool.drawn[i]
            class_ = sample.answer_class
            if class_ is not None:
                class_order.setdefault(class_, len(class_order))
            if class_ is not None and not (drops_truncated and sample.status == "truncated"):
                answers.setdefault(class_, sample.answer)
                votes[class_] += 1
                is_tie = votes[class_] == leader_votes
                if votes[class_] > leader_votes or (is_tie and class_order[class_] < class_order[leader]):
                    leader, leader_votes = class_, votes[class_]
            leaders.append(answers.get(leader))
        return leaders

    @cached_property
    def _trajectories(self) -> list[Trajectory]:
        """The samples as trajectories, whose texts are equal where the recorded texts were equal."""
        first_of_text = [i if sample.same is None else sample.same for i, sample in enumerate(self.pool.drawn)]
        return [
            Trajectory(
                parent=_ROOT,
                text=f"sample {first_of_text[i]}",
                token_ids=(),
                logprobs=(),
                status=cast("Status", sample.status),
                stream=i,
                node=i,
                num_tokens=sample.tokens,
                depth=1,
            )
            for i, sample in enumerate(self.pool.drawn)
        ]

    def _candidates(self, order: Sequence[int]) -> list[Candidate]:
        """Return the samples as candidates. Classes are numbered anew by first appearance, which decides ties."""
        classes: dict[int, int] = {}
        candidates: list[Candidate] = []
        for position, i in enumerate(order):
            sample = self.pool.drawn[i]
            class_ = sample.answer_class
            new_class = None if class_ is None else classes.setdefault(class_, len(classes))
            candidates.append(
                Candidate(
                    trajectory=self._trajectories[i],
                    answer=sample.answer,
                    answer_class=new_class,
                    index=position,
                    group=i,
                    scores=self._stop_rule_scores[i] if self._stop_rule_scores else {},
                )
            )
        return candidates

    def _stop(self, candidates: list[Candidate]) -> tuple[int, StopDecision | None]:
        """Return the number of drawn candidates, and the stop rule's decision; None: the rule did not fire."""
        if self._stop_rule is not None and not self._draws_at_once:
            drawn_candidates = Candidates()  # this list counts the votes of each class as candidates are appended
            for candidate in candidates:
                drawn_candidates.append(candidate)
                decision = self._stop_rule.should_stop(drawn_candidates)
                if decision is not None:
                    return len(drawn_candidates), decision
        return len(candidates), None


def usd_of(drawn: RecordedSample) -> float:
    """Return the cost of a sample in dollars; NaN: unknown."""
    return math.nan if drawn.usd is None else drawn.usd


def _stop_rule_scores(pool: ProblemPool, stop_rule: StopRule | None) -> list[dict[str, float]]:
    """Return for each sample of a pool the score that a stop rule reads, by role.

    The list is empty where there is no rule, or the rule reads no scores.
    """
    needs = Needs() if stop_rule is None else needs_of(stop_rule)
    if not needs.verifiers:
        return []
    role = needs.verifiers[0]  # a stop rule reads the scores of at most one role
    scores = RecordedScores(pool).aggregates_of(range(len(pool.drawn)), role, needs.aggregate)
    return [{role: score} for score in scores.tolist()]


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

    def range_of(self, role: str) -> tuple[float, float]:
        """Return the range by which a role's scores are mapped, by all samples of the pool if none is stated."""
        values = [score_of(sample, role, "last") for sample in self._pool.drawn if role in sample.scores]
        return range_of(self.get(role), np.array(values, np.float64))

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
        """Return the scores of samples, [len(nodes)], with step scores aggregated as `aggregate` names.

        Args:
            nodes: The numbers of the samples in the pool.
            role: The role of the verifier.
            aggregate: The aggregate of step scores, such as "last".

        Raises:
            ConfigError: the role did not score one of the samples.
        """
        drawn = [self._pool.drawn[i] for i in nodes]
        if not all(role in sample.scores for sample in drawn):
            raise self._missing_scores_error(role)
        return np.array([score_of(sample, role, aggregate) for sample in drawn], dtype=np.float64)

    def _missing_scores_error(self, role: str) -> ConfigError:
        others = sorted({name for sample in self._pool.drawn for name in sample.scores})
        scored = f"name a role of the pool: weighted(verifier={others[0]!r})" if others else _SCORED
        return ConfigError(
            f"the selection scores with the role {role!r}, but the pool of problem {self._pool.cell.problem!r} lacks "
            "such scores",
            hint="import programs with the field written_tests and --programs FILE" if role == "tests" else scored,
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


def imported_scores(*, low: float = -math.inf, high: float = math.inf, unbounded: bool = False) -> Verifier:
    """Return a verifier that stands for imported scores.

    The verifier states the range of the scores, and refuses to score a text. Without a stated range the scores of a
    problem decide, as for functions.

    The text of this verifier in a cell (one run of a study) is such as `recorded(low=0, high=1)`.

    Args:
        low: The least possible score.
        high: The greatest possible score.
        unbounded: Whether no range is a statement, so that all scores are log-odds.
    """

    def refuse(problem: Problem, text: str) -> float:
        del text
        raise ConfigError(
            f"problem {problem.id!r}: the verifier of imported scores has these scores alone", hint=RUN_LIVE
        )

    return FunctionVerifier(refuse, range=(low, high), inferred=not unbounded and math.isinf(low) and math.isinf(high))


_IMPORTED: Final = Registry("verifier", "tts.imported", {"recorded": f"{__name__}:imported_scores"})


_SCORED: Final = "draw a pool with that verifier, or choose a selection that needs none, such as majority"
