"""Self-evaluation: the policy predicts whether it would do better if it started over."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts.backends.protocol import BackendProtocol, counts_texts, text_bound
from tts.checks import check_text
from tts.errors import ConfigError, PromptTooLong, shown
from tts.models.registry import ModelRecord
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfEvaluation(Verifier):
    """Appends the question whether the policy would do better if it started over, to a complete or partial solution.

    score = P(no) / (P(yes) + P(no)), the predicted probability that the solution does at least as well as a new one.

    Source: algorithm A13, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute: LLMs Can Predict if They Can Do Better, Even
    Mid-Generation" (2410.02725). Differs:
        - the question is a text appended to the solution, as the model was trained on it, and not a chat turn;
        - the paper's wording is not sourced, so none is built in: question and answers are fields of the model's record.

    Args:
        question: appended to the solution. yes, no: the two answers, one token each. tokens: the most tokens of the question.
            A solver fills what is None from the model's record, and the tokens from its tokenizer.

    Cost: the question's tokens for each trajectory, as verifier tokens. The score is NaN if the context has no room for the question.

    Example:
        >>> import tts
        >>> found = tts.solve("What is 12 + 7 * 3?", 400, verifier="self_evaluation", strategy="best_of_n(n=2) | best")
        >>> found.answer, found.usage.verifier_calls
        ('33', 2)
    """

    question: str | None = None
    yes: str | None = None
    no: str | None = None
    tokens: int | None = None
    name = "self_evaluation"
    needs = ("next_logprobs",)

    def __post_init__(self) -> None:
        for part in ("question", "yes", "no"):
            if (given := getattr(self, part)) is not None:
                check_text(part, given)
        if self.tokens is not None and (type(self.tokens) is not int or not 1 <= self.tokens < 2**63):
            raise ConfigError(f"tokens is {shown(self.tokens)}, but must be a whole number of at least 1 and below 2**63, or None")

    @property
    def traits(self) -> Traits:
        """Parameters that the model's record has."""
        return Traits(filled=self.filled)

    def filled(self, record: ModelRecord | None, backend: BackendProtocol) -> SelfEvaluation:
        """Return the verifier with all parameters set.

        Raises:
            ConfigError: the model's record has no question, an answer is not exactly one token, or `tokens` is too small.
        """
        known = None if record is None else record.self_evaluation
        parts = {
            part: getattr(self, part) if known is None or getattr(self, part) is not None else getattr(known, part)
            for part in ("question", "yes", "no")
        }
        missing = [part for part, value in parts.items() if value is None]
        if missing:
            model = "the model" if record is None else f"the record of the model {record.name!r}"
            raise ConfigError(
                f"the verifier 'self_evaluation' needs {', '.join(missing)}, but {model} says nothing of it",
                hint="give self_evaluation(question='…', yes='…', no='…'), in words that the model was trained on",
            )
        for part in ("yes", "no"):
            if (size := text_bound(backend, str(parts[part]))) != 1 and counts_texts(backend):
                raise ConfigError(
                    f"{part} is {shown(parts[part])}, which is {size} tokens to this model, but must be exactly one",
                    hint="choose another word",
                )
        return dataclasses.replace(self, **parts, tokens=self._size(str(parts["question"]), backend))

    def _size(self, question: str, backend: BackendProtocol) -> int:
        """Return the most tokens that the question is."""
        size = text_bound(backend, question)
        if self.tokens is not None and self.tokens < size:
            raise ConfigError(f"tokens is {self.tokens}, but the question {question!r} may be {size} to this model", hint="leave it out")
        return size if self.tokens is None else self.tokens

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        del problem
        try:
            return await self._asked(trajectories, calls)
        except PromptTooLong:  # nothing was computed; asked one by one, only those without room are NaN
            return [await self._alone(t, calls) for t in trajectories]

    async def _alone(self, t: Trajectory, calls: Calls) -> StepScores:
        try:
            return (await self._asked([t], calls))[0]
        except PromptTooLong:
            return StepScores(whole=math.nan)

    async def _asked(self, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        found = await calls.next_logprobs(trajectories, self.question or "", (self.yes or "", self.no or ""))
        better = 1.0 / (1.0 + np.exp(np.clip(found[:, 0] - found[:, 1], -700, 700)))
        return [StepScores(whole=score) for score in better.tolist()]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the tokens of the question; its bytes, an upper bound, if they are not counted."""
        del prefix_tokens, new_tokens
        return len((self.question or "").encode()) if self.tokens is None else self.tokens
