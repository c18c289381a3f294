"""Self-evaluation: the policy itself says whether a fresh start would do better."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tts.backends.base import Backend
from tts.backends.facts import counts_texts, text_bound
from tts.errors import ConfigError, PromptTooLong, shown
from tts.models.registry import ModelRecord
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, check_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfEvaluation:
    """Asks the policy behind a solution, whole or partial, whether it would do better if it started over; scores its "no".

    score = P(no) / (P(yes) + P(no)), the predicted probability that the solution does at least as well as a fresh one.

    Source: algorithm A13, Manvi, Singh, Ermon, "Adaptive Inference-Time Compute: LLMs Can Predict if They Can Do Better, Even
    Mid-Generation" (2410.02725). Differs: the question is a text behind the solution, not a turn of its own, as the model was
    trained on it; the paper's own wording is not sourced, so none is built in: question and answers stand in the model's record.

    Args:
        question: appended to the solution. yes, no: the two answers, one token each. tokens: that the question is at most.
            What is None is filled from the record of the model, and the tokens from its tokenizer, when a Solver is made.

    Cost: the question's tokens a path, in verifier tokens. A path that leaves no room for it in the context stays unknown.
    """

    question: str | None = None
    yes: str | None = None
    no: str | None = None
    tokens: int | None = None
    name: str = field(default="self_evaluation", init=False)
    range: tuple[float, float] = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=("next_logprobs",), init=False)
    model: str = field(default="policy", init=False)

    def __post_init__(self) -> None:
        for part in ("question", "yes", "no"):
            if (given := getattr(self, part)) is not None:
                check_text(part, given)
        if self.tokens is not None and (type(self.tokens) is not int or not 1 <= self.tokens < 2**63):
            raise ConfigError(f"tokens is {shown(self.tokens)}, but must be a whole number of at least 1 and below 2**63, or None")

    def filled(self, record: ModelRecord | None, backend: Backend) -> SelfEvaluation:
        """Return it with every parameter known.

        Raises:
            ConfigError: the model's record has no question, or an answer is not exactly one token.
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

    def _size(self, question: str, backend: Backend) -> int:
        """Return the most tokens that the question is."""
        size = text_bound(backend, question)
        if self.tokens is not None and self.tokens < size:
            raise ConfigError(f"tokens is {self.tokens}, but the question {question!r} may be {size} to this model", hint="leave it out")
        return size if self.tokens is None else self.tokens

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole path."""
        del problem
        try:
            return await self._asked(trajectories, calls)
        except PromptTooLong:  # nothing has been computed: each is asked by itself, so that one without room costs the others nothing
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
        """Return the question's tokens; its bytes, where nobody has counted them."""
        del prefix_tokens, new_tokens
        return len((self.question or "").encode()) if self.tokens is None else self.tokens
