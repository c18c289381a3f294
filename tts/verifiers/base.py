"""What a verifier is: something that scores trajectories of a problem in a stated range, and says beforehand what it may cost."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Sampling
from tts.errors import ConfigError, VerifierError, shown
from tts.models.registry import ModelRecord
from tts.tasks.base import Task
from tts.types import Problem, Prompt, Trajectory


@dataclass(frozen=True, slots=True)
class StepScores:
    """The scores of one trajectory; NaN is unknown, never a middle value.

    Args:
        steps: one score a step (a piece of `Task.split` of the path's text), or None where only the whole was judged.
        whole: one score of the whole, or None where only steps were judged.
    """

    steps: tuple[float, ...] | None = None
    whole: float | None = None


class Calls(Protocol):
    """The metered models that a verifier may call: everything is charged to the problem, as verifier tokens.

    Attributes:
        task: the task of the problem, for its meaning of answers.
        seconds_left: what is left of the budget's time, for verifiers that wait for something; None: it is not limited.
    """

    task: Task
    seconds_left: Callable[[], float | None]

    async def value(self, trajectories: Sequence[Trajectory], head: str) -> list[NDArray[np.float64]]:
        """Return a value head's readings at each step boundary of each path."""
        ...

    async def next_logprobs(self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]) -> NDArray[np.float64]:
        """Return log-probabilities [trajectories, tokens] behind an appended text."""
        ...

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling, draw: int = 0) -> list[str]:
        """Return one generated text a prompt, as a judge's reply.

        Args:
            prompts: a reply depends on its prompt and `draw` alone, never on what is asked beside it or before.
            max_tokens: of a reply. sampling: of its tokens. draw: which of a judge's several replies to one prompt.
        """
        ...


@runtime_checkable
class Verifier(Protocol):
    """Scores trajectories. One file, one class, one line in the table."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        ...

    @property
    def range(self) -> tuple[float, float]:
        """Its least and greatest score; infinite ends are allowed."""
        ...

    @property
    def oracle(self) -> bool:
        """Whether it needs the reference answer, which it alone is then shown."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """The capabilities of the backend behind `calls`."""
        ...

    @property
    def model(self) -> str:
        """The role of that backend."""
        ...

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return the scores of each trajectory, in order; independent of which others are scored with it."""
        ...

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the most verifier tokens that scoring one trajectory computes.

        Args:
            prefix_tokens: tokens, prompt included, up to the last ancestor that this verifier has scored (else to the root's prompt).
            new_tokens: tokens behind it. The bound never decreases in it. See `ReadsPrompt` for prompts.
        """
        ...


@runtime_checkable
class ReadsHead(Protocol):
    """A verifier that reads one value head; that the backend has it, and at which steps, is checked before anything is spent."""

    @property
    def head(self) -> str:
        """The value head's name."""
        ...


@runtime_checkable
class ReadsPrompt(Protocol):
    """A verifier whose own model must read a prompt, once each time that one is opened: booked as prompt tokens, beside `bound`."""

    def prompt_bound(self, prompt_tokens: int) -> int:
        """Return the most tokens of its own that a prompt of so many of the policy's tokens is."""
        ...


@runtime_checkable
class FromRecord(Protocol):
    """A verifier some of whose parameters stand in the record of the model it asks; a Solver has them filled when it is made."""

    def filled(self, record: ModelRecord | None, backend: Backend) -> Verifier:
        """Return it with every parameter known.

        Args:
            record: of its model; None: the caller gave a backend, which has none. backend: of its model.

        Raises:
            ConfigError: what was left out stands nowhere, or does not fit the model.
        """
        ...


# A verifier bound to its problem: what a search holds, so that nothing it holds leads to the reference answer.
Scorer = Callable[[Sequence[Trajectory], Calls], Awaitable[list[StepScores]]]


def bind(verifier: Verifier, problem: Problem) -> Scorer:
    """Return a verifier as a function of trajectories; only an oracle is shown the answer and the metadata.

    Raises:
        ConfigError: an oracle meets a problem without a reference answer.
    """
    if verifier.oracle and problem.answer is None:
        raise ConfigError(
            f"the verifier {verifier.name!r} needs the reference answer, but problem {problem.id or problem.text[:40]!r} has none",
            hint="give Problem(answer=…), or another verifier",
        )
    shown = problem if verifier.oracle else problem.stripped()

    async def scorer(trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        scores = await verifier.score(shown, trajectories, calls)
        if len(scores) != len(trajectories):
            raise VerifierError(f"the verifier {verifier.name!r} returned {len(scores)} scores for {len(trajectories)} trajectories")
        for trajectory, score in zip(trajectories, scores, strict=True):
            _check(verifier, trajectory, score, calls.task)
        return scores

    return scorer


def _check(verifier: Verifier, trajectory: Trajectory, score: StepScores, task: Task) -> None:
    low, high = verifier.range
    values = [*(score.steps or ()), *([] if score.whole is None else [score.whole])]
    for value in values:
        if not (math.isnan(value) or (math.isfinite(value) and low <= value <= high)):
            raise VerifierError(
                f"the verifier {verifier.name!r} returned {value}, but states the range [{low}, {high}]",
                hint="a score is finite, or NaN where it is unknown",
            )
    if score.steps is not None and len(score.steps) != (steps := len(task.split(trajectory.full_text))):
        raise VerifierError(
            f"the verifier {verifier.name!r} returned {len(score.steps)} step scores for a trajectory of {steps} steps "
            f"(node {trajectory.node})"
        )


def to_unit(scores: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Map scores from a verifier's range to [0, 1], so that they can be summed as weights.

    [0, high] is divided by high; a finite range is mapped linearly; an unbounded one by the logistic function.
    """
    low, high = bounds
    if math.isinf(low) or math.isinf(high):
        return np.asarray(1.0 / (1.0 + np.exp(-scores)))
    return (scores - low) / (high - low)


def check_text(name: str, value: Any) -> None:
    """Raise ConfigError where a verifier's parameter is not a text, or is empty."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} is {shown(value)}, but must be a text that is not empty")
