"""Verifiers that read a value head of the model.

The head is a probe on the policy's hidden states, or a process model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Text
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier


class _HeadVerifier(Verifier):
    """Returns the readings of the value head `head`, one for each step."""

    __slots__ = ()
    head: Text
    needs = ("value",)

    @property
    def traits(self) -> Traits:
        """The head."""
        return Traits(head=self.head)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score for each step, in [0, 1]; NaN where the reading is not a number."""
        del problem
        return [StepScores(steps=tuple(reading.tolist())) for reading in await calls.value(trajectories, self.head)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(_HeadVerifier):
    """Estimates after each step the probability that the solution ends right, by a probe.

    The probe reads the policy's hidden state at the step's end.

    Source: Zhang et al., "Reasoning Models Know When They're Right: Probing Hidden States for Self-Verification"
    (2504.05419), a classifier on the states of a frozen model. Differs:
        - one linear layer on the last hidden state, as the output layer reads it;
        - it is read at the end of each step;
        - the labels are those that the model's card states.

    Args:
        head: The name of the value head in the model's record.

    Cost: no tokens; one verifier call a trajectory.

    Example:
        >>> import tts
        >>> found = tts.solve("What is 12 + 7 * 3?", 400, verifier="probe", strategy="best_of_n(n=2) | best")
        >>> found.answer, found.usage.verifier_calls
        ('33', 2)
    """

    head: str = "probe"
    name = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessVerifier(_HeadVerifier):
    """Estimates after each step the probability that the solution still leads to the right answer.

    A process model estimates this probability.

    Source: Lightman et al., "Let's Verify Step by Step" (2305.20050); trained on the policy's own rollouts as in Wang
    et al., "Math-Shepherd" (2312.08935). Differs: soft labels, and what else the model's card states.

    Args:
        head: The name of the process model in the model's record.

    Cost: the new tokens of each trajectory, once however many trajectories share them, as verifier tokens at the
    process model's FLOPs;
        and the tokens of the prompt, once each time it is opened, as prompt tokens, which no limit on tokens counts.

    Example:
        >>> import tts
        >>> found = tts.solve("What is 12 + 7 * 3?", 400, verifier="process", strategy="best_of_n(n=2) | best")
        >>> found.answer, found.usage.verifier_calls
        ('33', 2)
    """

    head: str = "process"
    name = "process"

    @property
    def traits(self) -> Traits:
        """The head, and the bound of a prompt."""
        return Traits(head=self.head, prompt_bound=self.prompt_bound, requests=0)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the new tokens: the process model has the policy's tokenizer and reads each token once."""
        del prefix_tokens
        return new_tokens

    def prompt_bound(self, prompt_tokens: int) -> int:
        """Return the tokens of the prompt."""
        return prompt_tokens
