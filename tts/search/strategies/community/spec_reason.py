"""SpecReason: a small model drafts each step, and the large one grades it with one question.

The large model writes the step itself where the draft is poor.

Reading a step costs a large model less than writing it. A step need not be worded as the large model would have worded
it.

Source: algorithm B11, Pan et al., "SpecReason: Fast and Accurate Inference-Time Compute via Speculative Reasoning"
(2504.07891), the loop and its settings from its code: grades 0 to 9 after a text, kept from 7 on; results from the
abstract.

Differs:
- The grade is asked inside the turn that writes the solution: the question follows the step. The code closes that turn,
  asks in a user's turn, and opens a turn of the model that begins with "I think the quality score is: ".
- A step has no cap of its own; the code's has 512 tokens. The run's `max_tokens` is the cap of each.
- A grade is the likeliest digit, or the mean over digits, whatever else is likelier; without any chance of a digit it
  is 0.
- A draft whose row failed is written by the policy. Rejected drafts are dropped, and stay charged.
- While no solution has an answer, steps are graded only where what is left pays two plain solutions beside; else drafts
  are kept.
- Several solutions are written side by side, and vote.
- Paths end as in all stepwise methods; a repeated step does not end one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tts.checks import Natural, Text, choice, number
from tts.search.ends import SearchEnded
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.two_models import TwoModels
from tts.types import Candidate, Trajectory

DIGITS = tuple("0123456789")
QUESTION = (
    "\n\nJudge the last step above by its correctness alone, with one digit: nine if it is surely right, zero if it "
    "is wrong. "
    "I think the quality score is: "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecReason(TwoModels):
    """Solutions whose steps are drafted by one model and judged by another.

    Args:
        threshold: The least grade of a draft that is kept, in [0, 10]. 0 keeps all without grading; above 9 the policy
            writes all.
        first: The number of first steps that the policy writes in any case, at least 0.
        question: The text after a step that asks for its grade. The next token should be a digit.
        grade: The grade of a step: the "likeliest" digit, or the "mean" over digits.
        n: As in `TwoModels`.
        draft: As in `TwoModels`.
        temperature: As in `TwoModels`.
        max_steps: As in `TwoModels`.

    Cost: for each step a draft and a question, which is charged as verifier tokens; the policy's tokens are those of
    rejected steps.
        The policy reads each kept draft, and the draft's model each rewritten step, as input.
    Random: none of its own.

    Example:
        >>> import tts
        >>> drafted = "spec_reason(n=2, threshold=5, question='Its digit is ')"
        >>> with tts.Solver({"policy": "toy", "draft": "toy"}, task="arithmetic") as solver:
        ...     found = solver.solve("3 + 4 - 2", 400, strategy=drafted)
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('5', 6, 84)
    """

    registered_as = "spec_reason"
    threshold: Annotated[float, number(0, 10)] = 7.0
    first: Natural = 0
    question: Text = QUESTION
    grade: Annotated[str, choice("likeliest", "mean")] = "likeliest"

    def needs(self) -> Needs:
        """Return the needs: steps of both models, and grades by the policy."""
        return Needs(capabilities=("steps", "extend", "next_logprobs"), models=self.draft_needs("steps", "extend"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Draft and grade steps, and rewrite poor ones."""
        return await self.waves(search, partial(self._step, search), cost=2)

    async def _step(self, search: Search, paths: Sequence[Trajectory]) -> list[Trajectory | None]:
        """Take paths one step further. Comments name the lines of algorithm B11."""
        steps: list[Trajectory | None] = [None] * len(paths)
        drafted_places = [i for i, t in enumerate(paths) if t.depth >= self.first]
        drafts = await self.write_step(search, [paths[i] for i in drafted_places], self.draft)  # line 2
        for i, t in zip(drafted_places, drafts, strict=True):
            steps[i] = t
        drafted = {i: t for i, t in enumerate(steps) if t is not None}
        if drafted and self._affords_grades(search, len(drafted)):
            p = await search.ask(list(drafted.values()), self.question, DIGITS)  # [drafts, digits]
            grades = grades_of(p, self.grade)  # line 3
            poor_places = [i for i, grade in zip(drafted, grades.tolist(), strict=True) if grade < self.threshold]
            search.drop([drafted[i] for i in poor_places])
            for i in poor_places:
                steps[i] = None
        missing = [i for i, t in enumerate(steps) if t is None]
        rewritten = await self.write_step(search, [paths[i] for i in missing], "policy")  # line 4
        for i, t in zip(missing, rewritten, strict=True):
            steps[i] = t
        return steps

    def _affords_grades(self, search: Search, count: int) -> bool:
        """Whether to grade drafts: only if some may be rejected, and the questions leave enough for a first answer.

        Raises:
            SearchEnded: there is an answer, and the rest of the budget does not pay the questions.
        """
        if self.threshold == 0:
            return False
        # the bytes of the question bound its tokens
        token_bound, tokens_left = count * len(self.question.encode()), search.left.get("tokens", math.inf)
        if any(c.answer is not None for c in search.candidates):
            if tokens_left < token_bound:
                raise SearchEnded("what is left does not pay the grades of the next drafts")
            return True
        payable = search.affordable_samples()  # plain solutions, two of which must stay paid
        if payable is None:
            return True
        return payable > 2 and tokens_left * (1 - 2 / payable) >= token_bound


def grades_of(p: NDArray[np.float64], by: str) -> NDArray[np.float64]:
    """Return grades [N] by the probabilities of the digits [N, 10]: the likeliest digit, or the mean.

    A grade is 0 where all probabilities are 0.
    """
    if by == "likeliest":
        return p.argmax(axis=1).astype(np.float64)
    total = p.sum(axis=1)
    return np.divide(p @ np.arange(10.0), total, out=np.zeros(len(p)), where=total > 0)
