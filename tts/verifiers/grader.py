"""A grader: a judge whose grade is read from the probabilities of the first token.

No reply is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Backend
from tts.checks import Text, number, whole
from tts.errors import CapabilityError
from tts.models.registry import ModelRecord
from tts.types import Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, PairComparison, StepScores, Traits
from tts.verifiers.compatibility import check_one_token
from tts.verifiers.replying import AskingVerifier, asking, compare_pairs

QUESTION = (
    "Below are a problem and a solution of it, which may end early. Is the solution right so far? What it says of "
    "itself is no reason. "
    "Answer with one number from 1, certainly wrong, to {levels}, certainly right, and nothing else."
)
PAIR_QUESTION = (
    "Below are a problem and two solutions of it, A and B. Which one is better? A right answer comes before "
    "everything else. What a "
    "solution says about itself is no reason, and neither is the order of the two. "
    "Answer with one number from 1, certainly B, to {levels}, certainly A, and nothing else."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader(AskingVerifier):
    """Scores a trajectory by the expected grade.

    The expectation is over the probabilities that the model gives to each grade as its first token.

    The score is the mean of (grade - 1) / (levels - 1), weighted by the probabilities of the grades alone. So tokens
    that are no grade do not count. Nothing is sampled, and equal prompts have equal scores.

    An engine reads all logits. A server shows its 20 most likely tokens, for one written token. The probability of the
    grades that a server does not show is bounded by the tokens that it shows. Where the bound is more than `missing` of
    the probability of all grades, the score is NaN, and a warning counts it. So a score that is given differs from the
    score by all logits by at most `missing`.

    Pairs are compared in both orders, or in one, as by `judge`. Prompts that begin with the same solution follow one
    another, so that servers with a prefix cache read that solution once.

    Source: "LLM-as-a-Verifier: A General-Purpose Verification Framework" (2607.05391), read in its repository's
    description; the expectation over score tokens as in Liu et al., "G-Eval" (2303.16634), from memory. Differs:
        - grades are the numbers from 1, and 9 by default, where the paper has 20 letters;
        - a comparison is one grade of the pair, where the authors' code takes the logistic function of the difference
          of two grades in one reply. So a sure verdict is near 0 or 1 here, and between .27 and .73 there;
        - it is in both orders by default: `orders=1` is theirs;
        - one criterion, asked once: an `ensemble` of graders with questions of their own decomposes, and compares;
        - a model that thinks first does not begin with its grade: use `judge` there.

    Args:
        model: As in `AskingVerifier`.
        prompt_tokens: As in `AskingVerifier`.
        levels: The grades, from 1 to this number, 2 to 20. Each must be one token to the model, where its tokens are
            known.
        missing: The largest share of the grades' probability that a server may leave unshown, at least 0 and below 1.
        question: The instruction to grade one solution, before problem and solution; "{levels}" stands for the number
            of grades.
        pair_question: The instruction to compare two; the highest grade must mean solution A.
        orders: The orders in which a pair is shown, 1 or 2.

    Cost: the prompt of a trajectory once, and one token on servers. A pair costs at most twice as much for each order.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "What is 12 + 7 * 3?", 4000, verifier="grader(prompt_tokens=300)", strategy="best_of_n(n=2) | best"
        ... )
        >>> all(0 <= c.scores["main"] <= 1 for c in found.candidates), found.usage.verifier_calls
        (True, 2)
    """

    levels: Annotated[int, whole(2, 20)] = 9
    missing: Annotated[float, number(0, 1 - 1e-9)] = 0.01
    question: Text = QUESTION
    pair_question: Text = PAIR_QUESTION
    orders: Annotated[int, whole(1, 2)] = 2
    writes: bool = field(default=True, init=False, repr=False)
    name = "grader"

    @property
    def traits(self) -> Traits:
        """A prompt size that depends on the backend, and comparisons of pairs."""
        bound, orders = self.bound(0, 0), self.orders
        comparison = PairComparison(self.compare, 2 * orders * bound, requests=orders * self.requests)
        return Traits(filled=self.fill, requests=self.requests, comparison=comparison)

    @property
    def requests(self) -> int:
        """The most prompts to which the model replies for one score: none where it shows any probability."""
        return int(self.writes)

    def fill(self, record: ModelRecord | None, backend: Backend) -> Self:
        """Return the verifier as `AskingVerifier.fill` does.

        It knows then whether the model must write a token.
        """
        verifier = super(Grader, self).fill(record, backend)
        object.__setattr__(verifier, "writes", backend.caps.next_logprobs == "absent")
        return verifier

    @property
    def grades(self) -> tuple[str, ...]:
        """The texts of the grades."""
        return tuple(str(grade) for grade in range(1, self.levels + 1))

    def check_model(self, backend: Backend) -> None:
        """Raise an error where the model shows no probabilities, or a grade is not one token.

        Raises:
            CapabilityError: The model shows no probabilities.
            ConfigError: A grade is not one token.
        """
        if backend.caps.next_logprobs == "absent" and not backend.caps.top_texts:
            raise CapabilityError(
                f"the verifier {self.name!r} reads probabilities, but {backend.name!r} shows none of next tokens",
                hint="use 'judge', which reads replies, or a server that shows top_logprobs (see tts doctor --url)",
            )
        for grade in self.grades:
            check_one_token(backend, "levels", grade, "give levels=9 or fewer")

    def ask(self, question: str) -> str:
        """Return a question with the number of grades in its place."""
        return question.replace("{levels}", str(self.levels))

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        prompts = [asking(self.ask(self.question), problem, ("Solution", t.judged_text)) for t in trajectories]
        scores = await self._grades_of(prompts, calls)
        return [StepScores(whole=score) for score in scores]

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        """Return for each pair how far its first solution is better, from 0 to 1, as the mean of its orders.

        The value is NaN if the grade of one order is unknown.
        """
        question = self.ask(self.pair_question)
        return await compare_pairs(
            question, problem, pairs, lambda prompts: self._grades_of(prompts, calls), self.orders
        )

    async def _grades_of(self, prompts: Sequence[Prompt], calls: Calls) -> list[float]:
        """Return the expected grade after each prompt, from 0 to 1; NaN where it is unknown."""
        fits = self.fits(prompts, calls)
        shown_prompts = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        if not shown_prompts:
            return [math.nan] * len(prompts)
        logprobs, unseen = await calls.bounded_choices(shown_prompts, self.grades)
        scores, unseen_shares = expected_grades(logprobs, unseen)
        is_known = unseen_shares <= self.missing  # an array, one entry for each shown prompt
        label = f"grades of the {self.name} could lack more than {self.missing:g} of their probability, and are unknown"
        calls.note_unread(label, int((~is_known).sum()), len(shown_prompts))
        known_scores = iter(np.where(is_known, scores, math.nan).tolist())
        return [next(known_scores) if fit else math.nan for fit in fits]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the most tokens of a prompt, and the one token that a server writes: a constant."""
        del prefix_tokens, new_tokens
        return self.room + 1


def expected_grades(
    laws: NDArray[np.float64], unseen: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the expected grade by each law, from 0 to 1, and the share of probability that is not shown.

    A law is the distribution of the next token after one prompt. The share is an upper bound: the probability that
    unshown grades may have, of the probability of all grades. The expected grade by all grades differs from the
    returned one by at most this share. Where no grade has a probability, the results are NaN and 1.

    Args:
        laws: [prompts, levels] log-probabilities of the grades, the lowest grade first; -inf for an unshown grade.
        unseen: [prompts] the most probability that unshown grades have together.
    """
    probabilities = np.exp(laws)
    shown = probabilities.sum(axis=1)  # [prompts]
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = probabilities @ np.linspace(0.0, 1.0, laws.shape[1]) / shown
        unseen_shares = np.where(shown > 0, unseen / (shown + unseen), 1.0)
    scores = np.where(shown > 0, np.clip(scores, 0.0, 1.0), math.nan)
    return scores, np.where(np.isnan(unseen_shares), 1.0, unseen_shares)
