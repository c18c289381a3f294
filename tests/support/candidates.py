"""Candidates, and a search that knows their scores, for tests without a model.

They serve tests of selections and stop rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.search.algorithms.embedding import Embedder, HashedNgrams
from tts.search.ends import Notes
from tts.types import Candidate, Problem, Trajectory

_ROOT = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)


def candidates(answers: Sequence[str | None], truncated: Sequence[int] = ()) -> list[Candidate]:
    """Return candidates with some answers; classes are numbered by first appearance.

    Args:
        answers: The answers.
        truncated: The indices of truncated candidates.
    """
    classes: dict[str, int] = {}
    every: list[Candidate] = []
    for index, answer in enumerate(answers):
        status = "truncated" if index in truncated else "finished"
        trajectory = Trajectory(_ROOT, f"A: {answer}\n", (), (), status, index, index + 1, 1, 1)
        kind = None if answer is None else classes.setdefault(answer, len(classes))
        every.append(Candidate(trajectory, answer, kind, index, index))
    return every


def reorder(of: Sequence[Candidate], order: Sequence[int]) -> list[Candidate]:
    """Return the same candidates as if they had come in another order."""
    again = candidates([of[i].answer for i in order], [place for place, i in enumerate(order) if of[i].truncated])
    return [
        Candidate(of[i].trajectory, new.answer, new.answer_class, new.index, new.group)
        for i, new in zip(order, again, strict=True)
    ]


class ScoredSearch:
    """As much of a search as a selection uses.

    Args:
        scores: The scores, by answer or by node.
        of: The candidates.
        bounds: The range of the scores.

    Attributes:
        asked: The nodes that were asked about.
    """

    def __init__(
        self,
        scores: Mapping[Any, float] | Sequence[float] = (),
        of: Sequence[Candidate] = (),
        bounds: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        by_answer = isinstance(scores, Mapping)
        self._scores = {
            c.trajectory.node: (scores.get(c.answer, math.nan) if by_answer else scores[i])  # type: ignore[union-attr]
            for i, c in enumerate(of)
        }
        self.asked: list[int] = []
        self.problem = Problem("p")
        self.notes = Notes()
        self.scoring = SimpleNamespace(
            get=lambda role: SimpleNamespace(range=bounds, name="scores"),
            range_of=lambda role: bounds,
            verifiers={"main": None},
            compare=self._compare,
            choose=self._choose,
            given_roles={},
            embedder=HashedNgrams(),
            scores_of=lambda t, role: None,  # its verifiers run no tests
        )

    async def score(
        self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last", *, required: bool = True
    ) -> NDArray[np.float64]:
        self.asked += [t.node for t in ts]
        return np.array([self._scores.get(t.node, math.nan) for t in ts], dtype=np.float64)

    async def run(self, fn: Any, *args: Any) -> Any:
        return fn(*args)

    async def embed(self, texts: Sequence[str], embedder: Embedder) -> NDArray[np.float64]:
        return await embedder.embed(texts)

    async def _choose(self, ts: Sequence[Trajectory], role: str, problem: Problem, by: str) -> list[float]:
        """Name those of the highest score."""
        self.asked += [t.node for t in ts]
        scores = np.array([self._scores.get(t.node, math.nan) for t in ts])
        if np.isnan(scores).all():
            return [math.nan] * len(ts)
        best = scores == np.nanmax(scores)
        return (best / best.sum()).tolist()

    async def _compare(
        self, pairs: Sequence[tuple[Trajectory, Trajectory]], role: str, problem: Problem
    ) -> list[float]:
        """Prefer the higher score."""
        self.asked += [t.node for pair in pairs for t in pair]
        gaps = [self._scores.get(a.node, math.nan) - self._scores.get(b.node, math.nan) for a, b in pairs]
        return [gap if math.isnan(gap) else 0.5 + 0.5 * (gap > 0) - 0.5 * (gap < 0) for gap in gaps]
