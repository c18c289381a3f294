"""A probe: a linear head on the policy's own hidden states, so that a score costs no tokens at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, check_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Says of each step how likely the solution up to there is to end well, from what the policy itself holds at the step's end.

    Source: Zhang et al., "Reasoning Models Know When They're Right: Probing Hidden States for Self-Verification" (2504.05419), a
    classifier on a frozen model's states. Differs: one linear layer on the last hidden state, as the output layer reads it; read at
    the end of each step; its labels are whatever the model's card says.

    Args:
        head: the name of the value head in the model's record.

    Cost: no tokens; one verifier call a path.
    """

    head: str = "probe"
    name: str = field(default="probe", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=("value",), init=False)
    model: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        check_text("head", self.head)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score a step, in [0, 1]; unknown where the reading is no number."""
        del problem
        return [StepScores(steps=tuple(reading.tolist())) for reading in await calls.value(trajectories, self.head)]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return 0."""
        del prefix_tokens, new_tokens
        return 0
