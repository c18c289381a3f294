"""What a verifier is: something that scores trajectories of a problem in a stated range, and says beforehand what it may cost."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend, Reply, Sampling
from tts.budget import Rates
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

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling) -> list[str | None]:
        """Return one generated text a prompt; None where the model failed, which is counted already (see `failed`).

        Args:
            prompts: a reply depends on its prompt alone, never on what is asked beside it or before.
            max_tokens: of a reply. sampling: of its tokens.
        """
        ...

    async def replies(self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling) -> list[tuple[str | None, ...]]:
        """Return several generated texts a prompt, which is read once; the first are those of fewer votes. Else as `generate`."""
        ...

    def count(self, prompt: Prompt) -> int:
        """Return the number of tokens that a prompt is to the model; nothing is computed."""
        ...

    def unread(self, what: str, number: int, of: int) -> None:
        """Say that of so many things ("replies that could not be read") so many were; the solution's warnings have the sums."""
        ...

    def failed(self, error: str, number: int = 1) -> None:
        """Say that a model or its server failed in so many replies or scores, so that they are unknown; for failures of its own.

        Args:
            error: "kind: cause", as `Sample.error`; the solution counts them by kind, as it counts failed rows.
        """
        ...

    def part(self, verifier: Verifier) -> Calls:
        """Return the same calls for a verifier that this one is made of, so that what is computed has that one's price."""
        ...

    def charge(self, replies: Sequence[Reply[Any]], *, estimated: bool = False) -> list[Any]:
        """Charge what a model of the verifier's own computed (see `OwnModel`), and return the replies' values.

        Args:
            estimated: whether that is the most that it may have computed, for nobody said.
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


@runtime_checkable
class GoesByGroups(Protocol):
    """A verifier that goes by groups of tokens: of a path that is shorter than one its score says little."""

    @property
    def window(self) -> int:
        """The tokens of a group."""
        ...


@runtime_checkable
class Compares(Protocol):
    """A verifier that can also say of two paths which is better."""

    async def compare(self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls) -> list[float]:
        """Return, for each pair, how far the first is better, from 0 to 1; NaN where unknown. The other way round it is 1 less that."""
        ...

    def pair_bound(self) -> int:
        """Return the most verifier tokens that comparing one pair computes."""
        ...


@runtime_checkable
class Composed(Protocol):
    """A verifier that is made of others, which it asks one after another, each by its own part of the calls."""

    @property
    def members(self) -> tuple[Verifier, ...]:
        """The verifiers it asks."""
        ...

    def of(self, members: Sequence[Verifier]) -> Verifier:
        """Return the same made of others in their places."""
        ...


@runtime_checkable
class OwnModel(Protocol):
    """A verifier with a model of its own, which stands in no role; it charges what that computes by `Calls.charge`."""

    @property
    def rates(self) -> Rates:
        """What a token of that model costs."""
        ...

    def opened(self) -> Verifier:
        """Return it for one problem's search, with room for what its model has read there; both are given up with the search."""
        ...


@runtime_checkable
class ChecksProblem(Protocol):
    """A verifier that cannot score every problem: it is shown each before anything is spent on it."""

    def check(self, problem: Problem) -> None:
        """Refuse a problem, stripped unless this is an oracle.

        Raises:
            ConfigError: its solutions cannot be scored.
        """
        ...


# A verifier bound to its problem: what a search holds, so that nothing it holds leads to the reference answer.
Scorer = Callable[[Sequence[Trajectory], Calls], Awaitable[list[StepScores]]]


def bind(verifier: Verifier, problem: Problem) -> Scorer:
    """Return a verifier as a function of trajectories; only an oracle is shown the answer and the metadata.

    Raises:
        ConfigError: an oracle meets a problem without a reference answer, or a verifier refuses it (`ChecksProblem`).
    """
    if verifier.oracle and problem.answer is None:
        raise ConfigError(
            f"the verifier {verifier.name!r} needs the reference answer, but problem {problem.id or problem.text[:40]!r} has none",
            hint="give Problem(answer=…), or another verifier",
        )
    shown = problem if verifier.oracle else problem.stripped()
    _check_problem(verifier, problem)
    asked = _opened(verifier)

    async def scorer(trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        scores = await asked.score(shown, trajectories, calls)
        if len(scores) != len(trajectories):
            raise VerifierError(f"the verifier {verifier.name!r} returned {len(scores)} scores for {len(trajectories)} trajectories")
        for trajectory, score in zip(trajectories, scores, strict=True):
            _check(verifier, trajectory, score, calls.task)
        return scores

    return scorer


def _check_problem(verifier: Verifier, problem: Problem) -> None:
    for member in verifier.members if isinstance(verifier, Composed) else ():
        _check_problem(member, problem)
    if isinstance(verifier, ChecksProblem):
        verifier.check(problem if verifier.oracle else problem.stripped())


def _opened(verifier: Verifier) -> Verifier:
    if isinstance(verifier, Composed):
        return verifier.of([_opened(member) for member in verifier.members])
    return verifier.opened() if isinstance(verifier, OwnModel) else verifier


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
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0))))  # beyond, exp overflows
    return (scores - low) / (high - low)


def check_text(name: str, value: Any) -> None:
    """Raise ConfigError where a verifier's parameter is not a text, or is empty."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} is {shown(value)}, but must be a text that is not empty")
