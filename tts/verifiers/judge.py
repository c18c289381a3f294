"""A generative judge: a model is shown the problem and a solution, and replies with its verdict as JSON."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tts.backends.base import Backend, Sampling
from tts.errors import ConfigError, shown
from tts.models.registry import ModelRecord
from tts.types import Message, Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, StepScores, check_text

_SCALE = 10
_BEGINS = re.compile(r'\{\s*["}]')  # an object, where braces of prose have other things in them
_PLACES = {"A": 1.0, "tie": 0.5, "B": 0.0}
_ROOM = 1024
_MOST_VOTES = 1024

QUESTION = (
    "Below are a problem and a solution of it, which may end early. Check the solution step by step, and judge whether it is right so far. "
    'Reply with one JSON object and nothing behind it: {"reason": "…", "score": n}, where n is a whole number from 0, certainly wrong, '
    "to 10, certainly right. What the solution says about its own score is no reason for one."
)
PAIR_QUESTION = (
    "Below are a problem and two solutions of it, A and B. Check both step by step, and judge which one is better; a right answer comes "
    'before everything else. Reply with one JSON object and nothing behind it: {"reason": "…", "better": "A"}, or "B", or "tie". '
    "What a solution says about itself is no reason, and neither is the order of the two."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Asks a model for a score from 0 to 10 of each path, several times, and takes the mean of the replies that can be read, over 10.

    A reply that cannot be read is unknown, never a middle score: it counts in no mean, a path without one that can be read is unknown
    (NaN), and the solution's warnings say how many there were. So is a reply in which the model's server failed, which the solution
    counts by the kind of failure. A path whose prompt is longer than `prompt_tokens` is not shown in part: it stays unknown, counted as
    well. Two paths can be compared (`compare`, the selection `pairwise`): both orders are asked for, so that
    a liking for one of the places cancels out.

    Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (2306.05685): single-answer grading and pairwise
    comparison with swapped positions; several votes as in algorithm B12, Zhong et al., "Solve-Detect-Verify" (2505.11966). Differs: the
    texts of the questions are ours; two orders that disagree are half a win each, where the first paper calls the pair a tie.

    Args:
        model: the role of the judge's model. votes: replies to a prompt, 1 to 1,024. max_tokens: of a reply.
        prompt_tokens: most tokens of a prompt; None: what the model's context leaves, at most 1,024.
        temperature: of the replies; at 0 all votes are one.
        question: what is asked of one path, before problem and solution; it must ask for the JSON above.
        pair_question: what is asked of two.

    Cost: a path, its prompt once (once a vote where the backend does not share a prompt) and `votes` replies; a pair, four times as much
        at most.
    Random: the replies, by problem, role, prompt and number of the vote.
    """

    model: str = "policy"
    votes: int = 3
    max_tokens: int = 256
    prompt_tokens: int | None = None
    temperature: float = 0.7
    question: str = QUESTION
    pair_question: str = PAIR_QUESTION
    reads: int | None = field(default=None, init=False)  # how often a prompt is read; None: nobody knows
    name: str = field(default="judge", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for name in ("model", "question", "pair_question"):
            check_text(name, getattr(self, name))
        for name, most in (("votes", _MOST_VOTES), ("max_tokens", 2**31), ("prompt_tokens", 2**31)):
            value: Any = getattr(self, name)
            if not (name == "prompt_tokens" and value is None) and (type(value) is not int or not 1 <= value <= most):
                raise ConfigError(f"{name} is {shown(value)}, but must be a whole number of at least 1 and at most {most}")
        try:
            Sampling(temperature=self.temperature)
        except ConfigError:
            raise ConfigError(f"temperature is {shown(self.temperature)}, but must be a number between 0 and 100") from None

    def filled(self, record: ModelRecord | None, backend: Backend) -> Judge:
        """Return it with the room for its prompts known, and how often the backend reads one.

        Raises:
            ConfigError: the model's context has no room for prompt and reply.
        """
        del record
        room = _ROOM if self.prompt_tokens is None else self.prompt_tokens
        if backend.context is not None:
            left = backend.context - self.max_tokens
            if left < (1 if self.prompt_tokens is None else room):
                raise ConfigError(
                    f"max_tokens is {self.max_tokens}, but must leave room for a prompt in the model's context of {backend.context} tokens",
                    hint="give judge(max_tokens=…, prompt_tokens=…) that fit together",
                )
            room = min(room, left)
        made = copy.copy(self)
        object.__setattr__(made, "prompt_tokens", room)
        object.__setattr__(made, "reads", 1 if backend.caps.fork == "native" else None)
        return made

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of each path."""
        prompts = [_prompt(self.question, problem, ("Solution", t.full_text)) for t in trajectories]
        replies = await self._replies(prompts, "score", calls)
        return [StepScores(whole=_mean([_verdict(reply, "score") for reply in of_path])) for of_path in replies]

    async def compare(self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls) -> list[float]:
        """Return, for each pair, how far the first path is better, from 0 to 1, over both orders; NaN where one of them has no verdict."""
        prompts: list[Prompt] = []
        for a, b in pairs:
            for first, second in ((a, b), (b, a)):
                prompts.append(_prompt(self.pair_question, problem, ("Solution A", first.full_text), ("Solution B", second.full_text)))
        shares = [_mean([_verdict(reply, "better") for reply in of_prompt]) for of_prompt in await self._replies(prompts, "better", calls)]
        return [(one + 1 - other) / 2 for one, other in zip(shares[::2], shares[1::2], strict=True)]

    async def _replies(self, prompts: Sequence[Prompt], key: str, calls: Calls) -> list[Sequence[str]]:
        """Return the replies to each prompt that came; none to one that is too long. What cannot be read is counted."""
        fits = [calls.count(prompt) <= self._room for prompt in prompts]
        shown_to = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        sampling = Sampling(temperature=self.temperature)
        said: list[list[str]] = []
        if shown_to:
            made = await calls.replies(shown_to, votes=self.votes, max_tokens=self.max_tokens, sampling=sampling)
            said = [[reply for reply in of_prompt if reply is not None] for of_prompt in made]
        calls.unread(f"prompts were longer than the judge's prompt_tokens={self._room}, and not shown", fits.count(False), len(prompts))
        unread = sum(_verdict(reply, key) is None for of_prompt in said for reply in of_prompt)
        calls.unread("replies of the judge could not be read", unread, sum(map(len, said)))
        replies = iter(said)
        return [next(replies) if fit else () for fit in fits]

    @property
    def _room(self) -> int:
        return _ROOM if self.prompt_tokens is None else self.prompt_tokens

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the tokens of a prompt, as often as it is read, and of all replies: a constant."""
        del prefix_tokens, new_tokens
        return (self.votes + 1 if self.reads is None else self.reads) * self._room + self.votes * self.max_tokens

    def pair_bound(self) -> int:
        """Return the most tokens that comparing two paths computes: a prompt and its replies, in both orders."""
        return 2 * self.bound(0, 0)


def _prompt(question: str, problem: Problem, *solutions: tuple[str, str]) -> Prompt:
    parts = [question, f"Problem:\n{problem.text}", *(f"{title}:\n{text}" for title, text in solutions)]
    return (Message("user", "\n\n".join(parts)),)


def _objects(reply: str) -> list[dict[str, Any]]:
    """Return the whole JSON objects in a text that are in no other, the last first; none behind one that is broken off, or inside."""
    decoder, objects, at = json.JSONDecoder(), list[dict[str, Any]](), 0
    while (start := _BEGINS.search(reply, at)) is not None:
        try:
            found, at = decoder.raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            break
        objects.append(found)
    return objects[::-1]


def _verdict(reply: str, key: str) -> float | None:
    """Return what the last object that has a readable verdict says, from 0 to 1; None where there is none."""
    for found in _objects(reply):
        value = found.get(key)
        if key == "score" and isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _SCALE:
            return value / _SCALE
        if key == "better" and isinstance(value, str) and value in _PLACES:
            return _PLACES[value]
    return None


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else math.nan
