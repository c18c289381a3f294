"""Selections without a live search: they choose by known scores, and call no model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.search.algorithms.embedding import Embedder, HashedNgrams
from tts.search.parts import Selected, Selection
from tts.search.search import Search
from tts.types import Candidate, Trajectory
from tts.verifiers.base import StepScores, Verifier

T = TypeVar("T")
RUN_LIVE = "run it live, with tts run"


class KnownScores(ABC):
    """The part of a search that a selection may use without calls: known scores, and vectors by words.

    Attributes:
        given_roles: The roles of `Scoring.given_roles`: none, since a strategy of independent samples gives no scores.
    """

    def __init__(self) -> None:
        self.scoring = self.notes = self
        self.embedder = HashedNgrams()  # compares words without waiting for anything
        self.given_roles: dict[str, bool] = {}

    @abstractmethod
    def get(self, role: str) -> Verifier:
        """Return the verifier of a role.

        Raises:
            ConfigError: There is no such verifier.
        """

    @abstractmethod
    def range_of(self, role: str) -> tuple[float, float]:
        """Return the range by which a role's scores are mapped, as `Scoring.range_of` would."""

    @abstractmethod
    def scores_of(self, t: Trajectory, role: str) -> StepScores:
        """Return a verifier's scores of a trajectory.

        Raises:
            ConfigError: The trajectory was not scored.
        """

    @abstractmethod
    def aggregates_of(self, nodes: Sequence[int], role: str, aggregate: str) -> NDArray[np.float64]:
        """Return a role's score of each node.

        Raises:
            ConfigError: A node has no score.
        """

    async def score(
        self,
        ts: Sequence[Trajectory],
        verifier: str = "main",
        aggregate: str = "last",
        *,
        required: bool = True,  # noqa: ARG002 - as in `Search.score`; known scores cost nothing
    ) -> NDArray[np.float64]:
        """Return known scores, as `Search.score` would."""
        return self.aggregates_of([t.node for t in ts], verifier, aggregate)

    async def embed(self, texts: Sequence[str], embedder: Embedder | None = None) -> NDArray[np.float64]:
        """Return vectors, as `Search.embed` would."""
        return await (embedder or self.embedder).embed(texts)

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Return the result of a function, as `Search.run` would."""
        return fn(*args)

    def warn(self, line: str, *, timed: bool = False) -> None:
        """Drop a warning, because there is no solution that could show it."""
        del line, timed

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            f"the selection uses {name!r} of a search, but recorded samples have scores only", hint=RUN_LIVE
        )


def choose_by_scores(selection: Selection, candidates: Sequence[Candidate], scores: KnownScores) -> Selected:
    """Return the choice of a selection by known scores.

    Args:
        selection: The selection.
        candidates: The candidates, in the order of their samples.
        scores: The known scores of the candidates.

    Raises:
        ConfigError: The selection needs an unknown score, or more of a search than scores.
    """
    choice = selection.select(candidates, cast("Search", scores))
    try:
        choice.send(None)  # known scores wait for nothing, so that the coroutine ends at once
    except StopIteration as result:
        return result.value
    choice.close()
    raise ConfigError(
        f"{selection} waits for something else than scores, which recorded samples cannot give", hint=RUN_LIVE
    )
