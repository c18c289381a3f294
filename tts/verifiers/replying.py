"""The common part of verifiers that show a problem and a solution to a model and read its replies."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self, TypeVar

from tts.backends.base import Backend, Sampling
from tts.checks import Text, number, whole
from tts.errors import ConfigError
from tts.models.registry import ModelRecord
from tts.types import Message, Problem, Prompt
from tts.verifiers.base import Calls, Traits, Verifier

T = TypeVar("T")
ROOM = 1024
MOST_VOTES, _MOST_TOKENS = 1024, 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyingVerifier(Verifier):
    """The parameters of such a verifier. A path whose prompt is longer than `prompt_tokens` is not truncated: its score is NaN.

    Args:
        model: role of the model that replies. votes: replies for each prompt. max_tokens: limit of a reply.
        prompt_tokens: most tokens of a prompt; None: what the model's context leaves, at most 1,024.
        temperature: of the replies; at 0 all are equal.
    """

    model: Text = "policy"
    votes: Annotated[int, whole(1, MOST_VOTES)] = 3
    max_tokens: Annotated[int, whole(1, _MOST_TOKENS)] = 256
    prompt_tokens: Annotated[int, whole(1, _MOST_TOKENS)] | None = None
    temperature: Annotated[float, number(0, 100)] = 0.7
    reads: int | None = field(default=None, init=False)  # how often a prompt is read; None: unknown

    @property
    def traits(self) -> Traits:
        """A prompt size that depends on the backend."""
        return Traits(filled=self.filled)

    @property
    def behind_prompt(self) -> int:
        """The most tokens after a prompt in the model's context."""
        return self.max_tokens

    def filled(self, record: ModelRecord | None, backend: Backend) -> Self:
        """Return the verifier with `prompt_tokens` set, and with the number of times that the backend reads a prompt.

        Raises:
            ConfigError: prompt and reply do not fit in the model's context, or a parameter does not fit the model.
        """
        del record
        self.check_model(backend)
        room = self.room
        if backend.context is not None:
            left = backend.context - self.behind_prompt
            if left < (1 if self.prompt_tokens is None else room):
                raise ConfigError(
                    f"max_tokens is {self.max_tokens}, but must leave room for a prompt in the model's context of {backend.context} tokens",
                    hint=f"give {self.name}(max_tokens=…, prompt_tokens=…) that fit together",
                )
            room = min(room, left)
        made = copy.copy(self)
        object.__setattr__(made, "prompt_tokens", room)
        object.__setattr__(made, "reads", 1 if backend.caps.fork == "native" else None)
        return made

    def empty_prompts(self, problem: Problem) -> Sequence[Prompt]:
        """Return the prompts that score a solution without text: those of a solution are longer by its tokens. None, here."""
        del problem
        return ()

    def check_model(self, backend: Backend) -> None:
        """Raise ConfigError where a parameter does not fit the model; none, here."""

    async def replies_to(self, prompts: Sequence[Prompt], read: Callable[[str], T | None], calls: Calls) -> list[list[T]]:
        """Return what is read of the replies for each prompt; failed and unreadable ones are left out. [] for a prompt that is too long.

        Args:
            read: returns the verdict of a reply; replies for which it returns None are counted as unreadable.
        """
        fits = self.fits(prompts, calls)
        shown_to = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        sampling = Sampling(temperature=self.temperature)
        found: list[list[T | None]] = []
        if shown_to:
            made = await calls.replies(shown_to, votes=self.votes, max_tokens=self.max_tokens, sampling=sampling)
            found = [[read(reply) for reply in of_prompt if reply is not None] for of_prompt in made]
        unread = sum(of_prompt.count(None) for of_prompt in found)
        calls.unread(f"replies of the {self.name} could not be read", unread, sum(map(len, found)))
        verdicts = iter(found)
        return [[verdict for verdict in next(verdicts) if verdict is not None] if fit else [] for fit in fits]

    def fits(self, prompts: Sequence[Prompt], calls: Calls) -> list[bool]:
        """Return whether each prompt is short enough, and record those that are not."""
        sizes = [calls.count(prompt) for prompt in prompts]
        fits = [size <= self.room for size in sizes]
        what = f"prompts were longer than the {self.name}'s prompt_tokens={self.room}, and not shown"
        calls.unread(what, fits.count(False), len(prompts))
        for prompt, size, fit in zip(prompts, sizes, fits, strict=True):
            if not fit:
                calls.leave_out(what, prompt, size - self.room)
        return fits

    @property
    def room(self) -> int:
        """The most tokens of a prompt."""
        return ROOM if self.prompt_tokens is None else self.prompt_tokens

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the tokens of a prompt, times the number of times it is read, plus those of all replies: a constant."""
        del prefix_tokens, new_tokens
        return (self.votes + 1 if self.reads is None else self.reads) * self.room + self.votes * self.max_tokens


def asking(question: str, problem: Problem, *solutions: tuple[str, str]) -> tuple[Message, ...]:
    """Return a prompt: the question, the problem, and solutions under titles."""
    parts = [question, f"Problem:\n{problem.text}", *(f"{title}:\n{text}" for title, text in solutions)]
    return (Message("user", "\n\n".join(parts)),)


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
