"""Selective answering: another selection's answer where the confidence suffices, else no answer.

Where there is no answer, the reason is given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tts.checks import Amount, Text, check_parameters, choice
from tts.errors import ConfigError, quote
from tts.search.needs import Needs, needs_of
from tts.search.parameters import Aggregate, Truncated
from tts.search.parts import SELECTIONS, Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import bounds_of
from tts.types import Candidate
from tts.verifiers.base import is_half_infinite, to_unit
from tts.verifiers.ranges import no_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Selective(Selection):
    """Chooses by another selection, and answers only where the confidence reaches a threshold.

    A threshold of your own keeps no stated risk. `tts.solve(…, risk=…, calibration=FILE)` does, by a threshold of
    `tts calibrate`.

    Source: algorithm B20, Jurayj, Cheng, Van Durme, "Is That Your Final Answer? Test-Time Scaling Improves Selective
    Question Answering" (2502.13962): answer iff the confidence is at least the threshold. Differs: the confidence is
    the selection's or a verifier's, where the paper takes the probability of the answer's digits in one trace.

    Args:
        threshold: The least confidence that is answered, at least 0; 0 answers all problems, above 1 none. An unknown
            confidence reaches only 0.
        by: The selection that chooses, by name: "majority", "weighted", "best", "borda", …
        on: "share": the winner's share of all weight, as `Solution.confidence`; "score": the highest score, mapped to
            [0, 1], among the candidates with the chosen answer.
        verifier: As in the selection `by`; a selection without scores takes no verifier.
        aggregate: As in the selection `by`; a selection without scores takes no aggregate.
        truncated: As in the selection `by`.

    Cost: the cost of the selection `by`.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | selective(threshold=0.9)")
        >>> found.answer, found.confidence, found.abstained
        (None, 0.875, 'no answer is given: the confidence is 0.875, but 0.9 is wanted')
    """

    registered_as = "selective"
    threshold: Amount = 0.0
    by: Text = "majority"
    on: Annotated[str, choice("share", "score")] = "share"
    verifier: Text = "main"
    aggregate: Aggregate = "last"
    truncated: Truncated = "vote"

    def __post_init__(self) -> None:
        check_parameters(self)
        uses_scores = bool(needs_of(self.inner).verifiers)
        if not uses_scores and self.on == "score":
            raise ConfigError(
                f"on is 'score', but the selection {self.by!r} asks no verifier",
                hint="name one that does, such as 'best'",
            )
        if not uses_scores and (self.verifier, self.aggregate) != ("main", "last"):
            raise ConfigError(f"by is {self.by!r}, but that selection takes no verifier and no aggregate")

    def needs(self) -> Needs:
        """Return the needs of the other selection."""
        return needs_of(self.inner)

    @property
    def inner(self) -> Selection:
        """The selection that chooses, with this selection's parameters as far as it has them.

        Raises:
            ConfigError: there is no such selection.
        """
        if self.by == self.registered_as or self.by not in SELECTIONS:
            known = ", ".join(name for name in SELECTIONS.names() if name != self.registered_as)
            raise ConfigError(
                f"by is {quote(self.by)}, but must be the name of another selection", hint=f"known: {known}"
            )
        inner = SELECTIONS.get(self.by)()
        inner_names = [field.name for field in dataclasses.fields(inner)]
        shared = [name for name in ("verifier", "aggregate", "truncated") if name in inner_names]
        return dataclasses.replace(inner, **{name: getattr(self, name) for name in shared})

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Whether the selection that chooses may score the candidate."""
        return self.inner.may_score(candidate, agreeing)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by the inner selection, and abstain if the confidence is below the threshold or unknown."""
        selected = await self.inner.select(candidates, search)
        if not selected.answers or self.threshold == 0:
            return selected
        confidence = selected.confidence if self.on == "share" else self._score(selected, search)
        if confidence >= self.threshold:
            return selected
        shown_confidence = "unknown" if math.isnan(confidence) else f"{confidence:.3g}"
        reason = f"no answer is given: the confidence is {shown_confidence}, but {self.threshold:.3g} is wanted"
        return dataclasses.replace(selected, answers=(), abstained=reason)

    def _score(self, selected: Selected, search: Search) -> float:
        """Return the highest score in [0, 1] among the candidates with the chosen answer; NaN without a score.

        Raises:
            ConfigError: The scores have no scale, so that no threshold can be stated.
        """
        bounds = bounds_of(search, self.verifier)
        if is_half_infinite(bounds):
            raise no_scale(search.scoring.get(self.verifier), bounds)
        scores = [c.scores.get(self.verifier, math.nan) for c in selected.ranked]
        chosen_class = selected.ranked[0].answer_class
        units = to_unit(np.array(scores), bounds)[[c.answer_class == chosen_class for c in selected.ranked]]
        return math.nan if np.isnan(units).all() else float(np.nanmax(units))
