"""A process reward model: one score a step, of a model of its own that reads beside the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, check_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessVerifier:
    """Says of each step how likely the solution up to there still leads to the right answer.

    Source: Lightman et al., "Let's Verify Step by Step" (2305.20050); trained from the policy's own rollouts as Wang et al.,
    "Math-Shepherd" (2312.08935). Differs: soft labels, and whatever else the model's card says.

    Args:
        head: the name that the model's record serves the process model under.

    Cost: the new tokens of each path, read once however many paths share them, in verifier tokens at the process model's own FLOPs;
        and the prompt's, once each time that one is opened, in prompt tokens, which no limit on tokens counts.
    """

    head: str = "process"
    name: str = field(default="process", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=("value",), init=False)
    model: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        check_text("head", self.head)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score a step, in [0, 1]; unknown where the model's reading is no number."""
        del problem
        return [StepScores(steps=tuple(reading.tolist())) for reading in await calls.value(trajectories, self.head)]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the new tokens: the model has the policy's tokenizer, and reads what was written, once."""
        del prefix_tokens
        return new_tokens

    def prompt_bound(self, prompt_tokens: int) -> int:
        """Return the prompt's tokens."""
        return prompt_tokens
