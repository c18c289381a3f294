"""Self-evaluation: the policy predicts whether it would do better if it started over."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts.backends.base import Backend
from tts.backends.capabilities import text_bound
from tts.checks import Count, Text
from tts.errors import ConfigError, PromptTooLong
from tts.models.registry import ModelRecord
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier, logistic
from tts.verifiers.compatibility import check_one_token


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfEvaluation(Verifier):
    """Appends the question whether the policy would do better if it started over.

    The question is appended to a complete or partial solution.

    score = P(no) / (P(yes) + P(no)), the predicted probability that the solution does at least as well as a new one.

    Source: algorithm A13, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute: LLMs Can Predict if They Can Do
    Better, Even Mid-Generation" (2410.02725). Differs:
        - the question is a text appended to the solution, as the model was trained on it, and not a chat turn;
        - the paper's wording is not sourced, so none is built in: question and answers are fields of the model's
          record.

    Args:
        question: Appended to the solution.
        yes: The answer that a new start would do better, one token.
        no: The answer that a new start would not do better, one token.
        tokens: The most tokens of the question. A solver fills what is None from the model's record, and the tokens
            from its tokenizer.

    Cost: the question's tokens for each trajectory, as verifier tokens. The score is NaN if the context has no room for
    the question.

    Example:
        >>> import tts
        >>> found = tts.solve("What is 12 + 7 * 3?", 400, verifier="self_evaluation", strategy="best_of_n(n=2) | best")
        >>> found.answer, found.usage.verifier_calls
        ('33', 2)
    """

    question: Text | None = None
    yes: Text | None = None
    no: Text | None = None
    tokens: Count | None = None
    name = "self_evaluation"
    needs = ("next_logprobs",)

    @property
    def traits(self) -> Traits:
        """Parameters that the model's record has."""
        return Traits(filled=self.fill, requests=0)

    def fill(self, record: ModelRecord | None, backend: Backend) -> SelfEvaluation:
        """Return the verifier with all parameters set.

        Raises:
            ConfigError: the model's record has no question, an answer is not exactly one token, or `tokens` is too
                small.
        """
        settings = None if record is None else record.self_evaluation
        texts: dict[str, Any] = {  # by parameter
            parameter: getattr(self, parameter) or getattr(settings, parameter, None)
            for parameter in ("question", "yes", "no")
        }
        missing = [parameter for parameter, text in texts.items() if text is None]
        if missing:
            model = "the model" if record is None else f"the record of the model {record.name!r}"
            raise ConfigError(
                f"the verifier 'self_evaluation' needs {', '.join(missing)}, but {model} does not state them",
                hint="give self_evaluation(question='…', yes='…', no='…'), in words that the model was trained on",
            )
        for parameter in ("yes", "no"):
            check_one_token(backend, parameter, texts[parameter], "choose another word")
        return dataclasses.replace(self, **texts, tokens=self._size(texts["question"], backend))

    def _size(self, question: str, backend: Backend) -> int:
        """Return the most tokens that the question may have."""
        size = text_bound(backend, question)
        if self.tokens is not None and self.tokens < size:
            raise ConfigError(
                f"tokens is {self.tokens}, but the question {question!r} may be {size} to this model",
                hint="leave it out",
            )
        return size if self.tokens is None else self.tokens

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        try:
            return await self._ask_questions(trajectories, calls)
        except PromptTooLong:  # nothing was computed, since a trajectory of the batch has no room for the question
            if len(trajectories) == 1:
                return [StepScores(whole=math.nan)]
            scores: list[StepScores] = []
            for t in trajectories:
                scores += await self.score(problem, [t], calls)
            return scores

    async def _ask_questions(self, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return P(no) / (P(yes) + P(no)) after the question, for each trajectory."""
        log_probabilities = await calls.next_logprobs(
            trajectories, self.question or "", (self.yes or "", self.no or "")
        )
        yes_logprobs, no_logprobs = log_probabilities.T
        with np.errstate(invalid="ignore"):  # where neither token is possible, the score is NaN
            scores = logistic(no_logprobs - yes_logprobs).tolist()
        return [StepScores(whole=score) for score in scores]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the tokens of the question, or if they are not counted its bytes, an upper bound."""
        del prefix_tokens, new_tokens
        return len((self.question or "").encode()) if self.tokens is None else self.tokens
