"""The common part of verifiers that show a problem and a solution to a model and read its replies."""

from __future__ import annotations

import copy
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Self, TypeVar

from tts.backends.base import Backend, OpenTemperature, Sampling
from tts.backends.capabilities import require_sampling
from tts.checks import Text, number, whole
from tts.errors import ConfigError
from tts.models.registry import ModelRecord
from tts.thoughts import THINK
from tts.types import Message, Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, Traits, Verifier

T = TypeVar("T")
ROOM = 1024
MOST_VOTES, _MOST_TOKENS = 1024, 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingVerifier(Verifier):
    """The parameters of a verifier that asks a model.

    A path whose prompt is longer than `prompt_tokens` is not cut: its score is NaN.

    Args:
        model: The role of the model that is asked.
        prompt_tokens: The most tokens of a prompt; None: what the model's context leaves, at most 1,024.
    """

    # the parameters that must fit the model's context together
    sizes: ClassVar[tuple[str, ...]] = ("prompt_tokens",)
    model: Text = "policy"
    prompt_tokens: Annotated[int, whole(1, _MOST_TOKENS)] | None = None
    reads: int | None = field(default=None, init=False)  # how often a prompt is read; None: unknown

    @property
    def traits(self) -> Traits:
        """A prompt size that depends on the backend, and the requests of a score."""
        return Traits(filled=self.fill, requests=self.requests)

    @property
    def requests(self) -> int:
        """The most prompts to which the model replies for one score."""
        return 1

    @property
    def behind_prompt(self) -> int:
        """The most tokens after a prompt in the model's context: one, from which a verdict is read."""
        return 1

    def fill(self, record: ModelRecord | None, backend: Backend) -> Self:
        """Return the verifier with `prompt_tokens` set.

        The verifier also gets the number of times that the backend reads a prompt.

        Raises:
            ConfigError: prompt and reply do not fit in the model's context, or a parameter does not fit the model.
        """
        del record
        self.check_model(backend)
        room = self.room
        if backend.context is not None:
            most_prompt_tokens = backend.context - self.behind_prompt
            least_prompt_tokens = 1 if self.prompt_tokens is None else room
            if most_prompt_tokens < least_prompt_tokens:
                size = self.sizes[0]
                value = room if size == "prompt_tokens" else getattr(self, size)
                raise ConfigError(
                    f"{size} is {value}, but must leave room for a prompt in the model's context of {backend.context} "
                    "tokens",
                    hint=f"give {self.name}({', '.join(f'{name}=…' for name in self.sizes)}) that fit",
                )
            room = min(room, most_prompt_tokens)
        verifier = copy.copy(self)
        object.__setattr__(verifier, "prompt_tokens", room)
        object.__setattr__(verifier, "reads", 1 if backend.caps.fork == "native" else None)
        return verifier

    def check_model(self, backend: Backend) -> None:
        """Raise ConfigError where a parameter does not fit the model; here every parameter fits."""

    def fits(self, prompts: Sequence[Prompt], calls: Calls) -> list[bool]:
        """Return whether each prompt is short enough, and record the prompts that are too long."""
        sizes = [calls.count(prompt) for prompt in prompts]
        fits = [size <= self.room for size in sizes]
        label = f"prompts were longer than the {self.name}'s prompt_tokens={self.room}, and not shown"
        calls.note_unread(label, fits.count(False), len(prompts))
        for prompt, size, fit in zip(prompts, sizes, fits, strict=True):
            if not fit:
                calls.leave_out(label, prompt, size - self.room)
        return fits

    @property
    def room(self) -> int:
        """The most tokens of a prompt."""
        return ROOM if self.prompt_tokens is None else self.prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyingVerifier(AskingVerifier):
    """The parameters of a verifier that samples replies to a prompt.

    Args:
        model: The role or record of the model; see `AskingVerifier`.
        prompt_tokens: The tokens of a prompt; see `AskingVerifier`.
        votes: The replies for each prompt.
        max_tokens: The most tokens of a reply.
        temperature: The temperature of replies; at 0 all are equal. Where none is named, it is 0.7, or 1 where the
            model's server takes 1 alone.
    """

    sizes = ("max_tokens", "prompt_tokens")
    votes: Annotated[int, whole(1, MOST_VOTES)] = 3
    max_tokens: Annotated[int, whole(1, _MOST_TOKENS)] = 256
    temperature: Annotated[float, number(0, 100)] = OpenTemperature(0.7)

    @property
    def behind_prompt(self) -> int:
        """The most tokens after a prompt in the model's context."""
        return self.max_tokens

    def check_model(self, backend: Backend) -> None:
        """Raise CapabilityError where the model does not take the temperature."""
        require_sampling(backend, Sampling(temperature=self.temperature))

    def empty_prompts(self, problem: Problem) -> Sequence[Prompt]:
        """Return the prompts that score a solution without text; here none.

        Prompts of a solution are longer by its tokens.
        """
        del problem
        return ()

    async def replies_to(
        self, prompts: Sequence[Prompt], read: Callable[[str], T | None], calls: Calls
    ) -> list[list[T]]:
        """Return the verdicts that are read from the replies to each prompt.

        Failed and unreadable replies are left out, as are replies without a response. A prompt that is too long has [].

        Args:
            prompts: The prompts to ask.
            read: A function that returns the verdict of a reply; None: the reply is counted as unreadable.
            calls: The models that the verifier may call.
        """
        fits = self.fits(prompts, calls)
        shown_prompts = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        sampling = Sampling(temperature=self.temperature)
        readings: list[list[T | None]] = []  # for each shown prompt, the verdict of each reply
        if shown_prompts:
            replies_by_prompt = await calls.replies(
                shown_prompts, votes=self.votes, max_tokens=self.max_tokens, sampling=sampling
            )
            for replies in replies_by_prompt:
                responses = [THINK.response(reply) for reply in replies if reply is not None]
                readings.append([read(response) if response.strip() else None for response in responses])
        num_unread = sum(verdicts.count(None) for verdicts in readings)
        calls.note_unread(f"replies of the {self.name} could not be read", num_unread, sum(map(len, readings)))
        known_verdicts = iter([[verdict for verdict in verdicts if verdict is not None] for verdicts in readings])
        return [next(known_verdicts) if fit else [] for fit in fits]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the most tokens that are read of the prompt and written in all replies, a constant."""
        del prefix_tokens, new_tokens
        num_reads = self.votes + 1 if self.reads is None else self.reads
        return num_reads * self.room + self.votes * self.max_tokens


def asking(question: str, problem: Problem, *solutions: tuple[str, str]) -> tuple[Message, ...]:
    """Return a prompt: the question, the problem, and solutions under titles."""
    parts = [question, f"Problem:\n{problem.text}", *(f"{title}:\n{text}" for title, text in solutions)]
    return (Message("user", "\n\n".join(parts)),)


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without such values."""
    known_values = [value for value in values if not math.isnan(value)]
    return math.fsum(known_values) / len(known_values) if known_values else math.nan


async def compare_pairs(
    question: str,
    problem: Problem,
    pairs: Sequence[tuple[Trajectory, Trajectory]],
    verdicts: Callable[[list[Prompt]], Awaitable[list[float]]],
    orders: int = 2,
) -> list[float]:
    """Return how far the first solution of each pair is better, from 0 to 1, as the mean over its orders.

    The value is NaN if the verdict on one of the orders is unknown.

    Prompts that begin with the same solution follow one another, so that a server with a prefix cache reads that
    solution once.

    Args:
        question: The instruction to compare two solutions.
        problem: The problem.
        pairs: The solutions to compare.
        verdicts: A function that returns, for each prompt, how far its solution A is better, from 0 to 1; NaN where
            unknown.
        orders: 2: each pair is shown in both orders; 1: in the given one alone.
    """
    comparisons: list[tuple[str, str]] = []  # solutions A and B of each prompt, `orders` prompts for a pair
    for first, second in pairs:
        shown = [(first.judged_text, second.judged_text), (second.judged_text, first.judged_text)]
        comparisons += shown[:orders]
    first_solutions = dict.fromkeys(solution_a for solution_a, _solution_b in comparisons)
    rank_of_a = {solution_a: rank for rank, solution_a in enumerate(first_solutions)}  # by its first occurrence
    asking_order = sorted(range(len(comparisons)), key=lambda i: rank_of_a[comparisons[i][0]])
    ordered = [comparisons[i] for i in asking_order]
    prompts: list[Prompt] = [asking(question, problem, ("Solution A", a), ("Solution B", b)) for a, b in ordered]
    verdict_by_comparison = dict(zip(asking_order, await verdicts(prompts), strict=True))
    means: list[float] = []
    for i in range(0, len(comparisons), orders):
        a_is_better = verdict_by_comparison[i]
        means.append(a_is_better if orders == 1 else (a_is_better + 1 - verdict_by_comparison[i + 1]) / 2)
    return means
