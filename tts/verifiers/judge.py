"""A generative judge: a model that reads the problem and a solution and replies with a verdict as JSON."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tts.backends.base import Sampling
from tts.backends.protocol import BackendProtocol
from tts.checks import check_text
from tts.errors import ConfigError, shown
from tts.models.registry import ModelRecord
from tts.types import Message, Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, PairComparison, StepScores, Traits, Verifier

_SCALE = 10
_BEGINS = re.compile(r'\{\s*["}]')  # the start of a JSON object; braces in prose are followed by other characters
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
class Judge(Verifier):
    """Scores a trajectory by the mean of several replies of a model, each a score from 0 to 10, divided by 10.

    Unparsable replies are left out of the mean; if all are, the score is NaN. The solution's warnings state their number. Replies that
    are missing because the model or its server failed are left out too; the solution counts them by kind of failure. A trajectory whose
    prompt is longer than `prompt_tokens` is not truncated: its score is NaN, and the warnings count it.

    Pairs are compared in both orders (`compare`, used by the selection `pairwise`), so that a position bias cancels out.

    Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (2306.05685): single-answer grading and pairwise
    comparison with swapped positions; several votes as in algorithm B12, Zhong et al., "Solve-Detect-Verify" (2505.11966). Differs:
        - the texts of the questions are ours;
        - two orders that disagree give half a win each, where the first paper counts a tie.

    Args:
        model: role of the judge's model. votes: replies for each prompt, 1 to 1,024. max_tokens: limit of a reply.
        prompt_tokens: most tokens of a prompt; None: what the model's context leaves, at most 1,024.
        temperature: of the replies; at 0 all votes are equal.
        question: instruction to score one trajectory, placed before problem and solution; it must ask for {"score": n}, n from 0 to 10.
        pair_question: instruction to compare two; it must ask for {"better": "A"}, "B" or "tie".

    Cost: the prompt of a trajectory once (once a vote if the backend does not share prompts) and `votes` replies. A pair costs at most
        four times as much.
    Random: the replies, addressed by problem, role, prompt and number of the vote.
    """

    model: str = "policy"
    votes: int = 3
    max_tokens: int = 256
    prompt_tokens: int | None = None
    temperature: float = 0.7
    question: str = QUESTION
    pair_question: str = PAIR_QUESTION
    reads: int | None = field(default=None, init=False)  # how often a prompt is read; None: unknown
    name = "judge"

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

    @property
    def traits(self) -> Traits:
        """A prompt size that depends on the backend, and comparisons of pairs."""
        return Traits(filled=self.filled, comparison=PairComparison(self.compare, self.pair_bound()))

    def filled(self, record: ModelRecord | None, backend: BackendProtocol) -> Judge:
        """Return the judge with `prompt_tokens` set, and with the number of times that the backend reads a prompt.

        Raises:
            ConfigError: prompt and reply do not fit in the model's context.
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
        """Return one score of the whole for each trajectory."""
        prompts = [_prompt(self.question, problem, ("Solution", t.judged_text)) for t in trajectories]
        replies = await self._replies(prompts, "score", calls)
        return [StepScores(whole=_mean([_verdict(reply, "score") for reply in of_path])) for of_path in replies]

    async def compare(self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls) -> list[float]:
        """Return for each pair how far the first is better, the mean of both orders; NaN if an order has no parsable reply."""
        prompts: list[Prompt] = []
        for a, b in pairs:
            for first, second in ((a, b), (b, a)):
                prompts.append(_prompt(self.pair_question, problem, ("Solution A", first.judged_text), ("Solution B", second.judged_text)))
        shares = [_mean([_verdict(reply, "better") for reply in of_prompt]) for of_prompt in await self._replies(prompts, "better", calls)]
        return [(one + 1 - other) / 2 for one, other in zip(shares[::2], shares[1::2], strict=True)]

    async def _replies(self, prompts: Sequence[Prompt], key: str, calls: Calls) -> list[Sequence[str]]:
        """Return the replies for each prompt, failed ones left out; () for a prompt that is too long. Records what is unparsable."""
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
        """Return the tokens of a prompt, times the number of times it is read, plus those of all replies: a constant."""
        del prefix_tokens, new_tokens
        return (self.votes + 1 if self.reads is None else self.reads) * self._room + self.votes * self.max_tokens

    def pair_bound(self) -> int:
        """Return the most tokens of comparing one pair: a prompt and its replies, in both orders."""
        return 2 * self.bound(0, 0)


def _prompt(question: str, problem: Problem, *solutions: tuple[str, str]) -> Prompt:
    parts = [question, f"Problem:\n{problem.text}", *(f"{title}:\n{text}" for title, text in solutions)]
    return (Message("user", "\n\n".join(parts)),)


def _objects(reply: str) -> list[dict[str, Any]]:
    """Return the outermost JSON objects in a text, the last first; the search ends at the first object that is incomplete."""
    decoder, objects, at = json.JSONDecoder(), list[dict[str, Any]](), 0
    while (start := _BEGINS.search(reply, at)) is not None:
        try:
            found, at = decoder.raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            break
        objects.append(found)
    return objects[::-1]


def _verdict(reply: str, key: str) -> float | None:
    """Return the verdict of the last object that has a valid one, from 0 to 1; None if there is none."""
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
