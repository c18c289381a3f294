"""The receipt of a search: what each of its phases cost.

The receipt also has the answers that parts of the search's samples would have given.

A phase is what one role did: the policy or another model that writes, a verifier that scores, the search's own work.
The sums of the phases are the sums of the ledger.

A part is the first quarter or half of the samples, chosen from as the search itself chose. A part's answer is known
where the samples are independent whole solutions, and where the selection needs no call for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tts.budget.ledger import Call, sum_known, sum_usage
from tts.errors import ConfigError, TTSError
from tts.search.algorithms.aggregation import aggregate_scores
from tts.search.needs import needs_of
from tts.search.parts import SELECTIONS, Plan, Selection
from tts.search.recorded import KnownScores, choose_by_scores
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.search.tree import Tree
from tts.types import Candidate, Trajectory, Usage
from tts.verifiers.base import StepScores, Verifier
from tts.verifiers.ranges import range_of

Work = Literal["write", "score", "search"]
SHARES: Final = (0.25, 0.5)
NOT_RECORDED: Final = "the trace does not say"
# all other kinds write
_WORK: Mapping[str, Work] = {"score": "score", "compare": "score", "embed": "search", "search": "search"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one role did in a search, and its cost.

    Args:
        role: The role in the ledger, such as "policy" or "main".
        work: "write": a model wrote or read texts; "score": a verifier scored; "search": the search's own work.
        calls: The number of rows of the ledger, in which reads of prompts, scores and the search's own work are calls.
        requests: The number of requests to models that write, as in `Budget`; None: not counted.
        prompt_tokens: The input tokens that were computed and are no part of `tokens`.
        reused_tokens: The input tokens that were read again, at a price of their own; None: not known.
        tokens: The tokens that count against the limit `tokens`.
        usd: Dollars; None without prices.
        seconds: The sum of the seconds of its calls, some of which may have run at the same time.
    """

    role: str
    work: Work
    calls: int
    requests: int | None
    prompt_tokens: int
    reused_tokens: int | None
    tokens: int
    usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAnswer:
    """What the first samples of a search would have answered alone.

    Args:
        share: The share of these samples in all samples.
        samples: The number of these samples.
        answer: The answer; None: the samples have none, or the selection abstains.
        confidence: The confidence, as `Solution.confidence`.
    """

    share: float
    samples: int
    answer: str | None
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a search cost, phase by phase, and what parts of its samples would have answered.

    Args:
        phases: The phases, in the order in which they began.
        tokens: The sum of their tokens.
        usd: The sum of their dollars; None without prices.
        seconds: The seconds from the first call to the last. The seconds of phases overlap where calls ran at the same
            time.
        parts: The answers of a quarter and of half of the samples; None where they are not known.
        reason: Why the parts are not known; "" where they are known.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | weighted", verifier="toy(error=0.1)"
        ... )
        >>> receipt = found.receipt()
        >>> [(phase.role, phase.work, phase.tokens) for phase in receipt.phases], receipt.tokens
        ([('policy', 'write', 168), ('main', 'score', 168)], 336)
        >>> [(part.samples, part.answer, round(part.confidence, 2)) for part in receipt.parts]
        [(2, '14', 1.0), (4, '14', 1.0)]
    """

    phases: tuple[Phase, ...]
    tokens: int
    usd: float | None
    seconds: float
    parts: tuple[PartAnswer, ...] | None
    reason: str


def receipt_of(calls: Sequence[Call], usage: Usage, parts: PartAnswers) -> Receipt:
    """Return the receipt of a search.

    Args:
        calls: The ledger.
        usage: Its total, with the seconds of the whole search.
        parts: What parts of the samples would have answered.
    """
    groups: dict[tuple[str, Work], list[Usage]] = {}
    for call in calls:
        work = _WORK.get(call.kind, "write")
        groups.setdefault((call.model, work), []).append(call.usage)
    phases = tuple(_phase(role, work, usages) for (role, work), usages in groups.items())
    answers = parts.answers_or_reason()
    return Receipt(
        phases=phases,
        tokens=sum(phase.tokens for phase in phases),
        usd=usage.usd,
        seconds=usage.seconds,
        parts=None if isinstance(answers, str) else answers,
        reason=answers if isinstance(answers, str) else "",
    )


def _phase(role: str, work: Work, usages: Sequence[Usage]) -> Phase:
    total = sum_usage(usages)
    return Phase(
        role=role,
        work=work,
        calls=len(usages),
        requests=total.requests,
        prompt_tokens=total.prompt_tokens,
        reused_tokens=sum_known([total.reused_tokens, total.verifier_reused_tokens]),
        tokens=total.tokens,
        usd=total.usd,
        seconds=total.seconds,
    )


class PartAnswers:
    """The answers that parts of the samples would have given, or the reason why none are known.

    The answers are computed on first use, as few receipts are read. Two objects are equal if their answers are equal.

    Args:
        given: The answers, or the reason, or a function that computes either.
    """

    def __init__(self, given: tuple[PartAnswer, ...] | str | Callable[[], tuple[PartAnswer, ...] | str]) -> None:
        self._source = given

    def answers_or_reason(self) -> tuple[PartAnswer, ...] | str:
        """Return the answers, or the reason why the answers are not known."""
        source = self._source  # another thread may replace it
        if callable(source):
            source = self._source = source()
        return source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartAnswers) and repr(self) == repr(other)  # an unknown confidence is NaN

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"PartAnswers({self.answers_or_reason()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PartAnswers, (self.answers_or_reason(),)


def part_answers(
    plan: Plan, selection: Selection, candidates: Sequence[Candidate], tree: Tree, verifiers: Mapping[str, Verifier]
) -> tuple[PartAnswer, ...] | str:
    """Return the answers of the first quarter and half of the samples, or the reason why none are known.

    Args:
        plan: The plan of the search.
        selection: The selection that chose.
        candidates: The candidates in the order of their samples, as the strategy left them.
        tree: The tree, with all scores.
        verifiers: The verifiers by role.
    """
    if len(candidates) < 2:
        return "a single sample has no parts"
    if type(plan.strategy) is not BestOfN:
        return f"samples of {plan.strategy.registered_as} are not independent whole solutions"
    needs = needs_of(selection)
    if selection.registered_as not in SELECTIONS.entries or needs.pairs or needs.vectors:
        return f"the selection {selection.registered_as} would need new calls"
    scores, answers = TreeScores(tree, verifiers), list[PartAnswer]()
    for share in SHARES:
        count = math.ceil(len(candidates) * share)
        try:
            selected = choose_by_scores(selection, candidates[:count], scores)
        except TTSError:  # the selection needs a score that is not known, or more of a search than scores
            return f"the selection {selection.registered_as} would need new calls"
        answer = selected.answers[0] if selected.answers else None
        answers.append(PartAnswer(share=share, samples=count, answer=answer, confidence=selected.confidence))
    return tuple(answers)


class TreeScores(KnownScores):
    """The scores of a search that is over.

    Args:
        tree: The tree, with all scores.
        verifiers: The verifiers by role.
    """

    def __init__(self, tree: Tree, verifiers: Mapping[str, Verifier]) -> None:
        super().__init__()
        self._tree, self._verifiers = tree, verifiers

    def get(self, role: str) -> Verifier:
        """Return the verifier of a role."""
        if role not in self._verifiers:
            raise _unknown_role(role)
        return self._verifiers[role]

    def range_of(self, role: str) -> tuple[float, float]:
        """Return the range by which a role's scores are mapped, by all scores if none is stated."""
        scores = [aggregate_scores(s, "last") for (_, scorer), s in self._tree.scores.items() if scorer == role]
        return range_of(self.get(role), np.array(scores, np.float64))

    def scores_of(self, t: Trajectory, role: str) -> StepScores:
        """Return the scores of a trajectory by a role's verifier."""
        return self._known_scores(t.node, role)

    def aggregates_of(self, nodes: Sequence[int], role: str, aggregate: str) -> NDArray[np.float64]:
        """Return a role's score of each node."""
        return np.array([aggregate_scores(self._known_scores(node, role), aggregate) for node in nodes], np.float64)

    def _known_scores(self, node: int, role: str) -> StepScores:
        scores = self._tree.scores.get((node, role))
        if scores is None:
            raise _unknown_role(role)
        return scores


def _unknown_role(role: str) -> ConfigError:
    return ConfigError(f"the role {role!r} has not scored this candidate")


def parts_of(record: Mapping[str, Any] | None) -> PartAnswers:
    """Return the answers of parts in the record of a receipt, as `dataclasses.asdict` and JSON have it."""
    if record is None:
        return PartAnswers(NOT_RECORDED)
    if record["parts"] is None:
        return PartAnswers(str(record["reason"]))
    return PartAnswers(tuple(_part(part) for part in record["parts"]))


def _part(record: Mapping[str, Any]) -> PartAnswer:
    confidence = math.nan if record["confidence"] is None else record["confidence"]
    return PartAnswer(share=record["share"], samples=record["samples"], answer=record["answer"], confidence=confidence)
