"""Selective answering: another selection's answer where it is sure enough, else none.

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
from tts.search.selections._common import units_of
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Selective(Selection):
    """Chooses by another selection, and answers only where the confidence reaches a threshold.

    A threshold of your own keeps no stated risk. `tts.solve(…, risk=…, calibration=FILE)` does, by a threshold of
    `tts calibrate`.

    Source: algorithm B20, Jurayj, Cheng, Van Durme, "Is That Your Final Answer? Test-Time Scaling Improves Selective
    Question Answering" (2502.13962): answer iff the confidence is at least the threshold. Differs: the confidence is
    the selection's or a verifier's, where the paper takes the probability of the answer's digits in one trace.

    Args:
        threshold: The least confidence that is answered, at least 0; 0 answers all, above 1 none. An unknown one
            reaches only 0.
        by: The selection that chooses, by name: "majority", "weighted", "best", "borda", …
        on: "share": the winner's share of all weight, as `Solution.confidence`; "score": the highest score, mapped to
            [0, 1], among the candidates with the chosen answer.
        verifier: As in that selection; a selection without scores takes none.
        aggregate: As in that selection; a selection without scores takes none.
        truncated: As in that selection.

    Cost: that selection's.

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
        scored = bool(needs_of(self.inner).verifiers)
        if not scored and self.on == "score":
            raise ConfigError(
                f"on is 'score', but the selection {self.by!r} asks no verifier",
                hint="name one that does, such as 'best'",
            )
        if not scored and (self.verifier, self.aggregate) != ("main", "last"):
            raise ConfigError(f"by is {self.by!r}, but that selection takes no verifier and no aggregate")

    def needs(self) -> Needs:
        """Return the needs of the other selection."""
        return needs_of(self.inner)

    @property
    def inner(self) -> Selection:
        """The selection that chooses."""
        if self.by == self.registered_as or self.by not in SELECTIONS:
            known = ", ".join(name for name in SELECTIONS.names() if name != self.registered_as)
            raise ConfigError(
                f"by is {quote(self.by)}, but must be the name of another selection", hint=f"known: {known}"
            )
        made = SELECTIONS.get(self.by)()
        mine = {name: getattr(self, name) for name in ("verifier", "aggregate", "truncated")}
        return dataclasses.replace(made, **{f.name: mine[f.name] for f in dataclasses.fields(made) if f.name in mine})

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """It asks about those that the other selection asks about."""
        return self.inner.may_score(candidate, agreeing)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose, or abstain."""
        selected = await self.inner.select(candidates, search)
        if not selected.answers or self.threshold == 0:
            return selected
        confidence = selected.confidence if self.on == "share" else self._score(selected, search)
        if confidence >= self.threshold:
            return selected
        said = "unknown" if math.isnan(confidence) else f"{confidence:.3g}"
        why = f"no answer is given: the confidence is {said}, but {self.threshold:.3g} is wanted"
        return dataclasses.replace(selected, answers=(), abstained=why)

    def _score(self, selected: Selected, search: Search) -> float:
        chosen = selected.ranked[0].answer_class
        scores = [c.scores.get(self.verifier, math.nan) for c in selected.ranked if c.answer_class == chosen]
        known = [score for score in scores if not math.isnan(score)]
        if not known:
            return math.nan
        return float(units_of(np.array([max(known)]), search, self.verifier)[0])
