"""A generative judge: a model that reads the problem and a solution.

It replies with a verdict as JSON.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tts.checks import Text, whole
from tts.types import Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, ListChoice, PairComparison, StepScores, Traits
from tts.verifiers.lenient_json import read_objects
from tts.verifiers.replying import ReplyingVerifier, asking, compare_pairs, mean

_SCALE = 10
_CHOICE = re.compile(r"(?:(?:solution|reply)\s+)?#?(\d{1,6})[.!]?", re.IGNORECASE)
_CHOICES = 1e6
_NUMBER = re.compile(r"\+?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(?:\s*(?:/|out of)\s*10)?", re.ASCII | re.IGNORECASE)
_PLACES = {"a": 1.0, "tie": 0.5, "b": 0.0}

QUESTION = (
    "Below are a problem and a solution of it, which may end early. Check the solution step by step, and judge "
    "whether it is right so far. "
    'Reply with one JSON object and nothing behind it: {"reason": "…", "score": n}, where n is a whole number from 0, '
    "certainly wrong, "
    "to 10, certainly right. What the solution says about its own score is no reason for one."
)
PAIR_QUESTION = (
    "Below are a problem and two solutions of it, A and B. Check both step by step, and judge which one is better; a "
    "right answer comes "
    'before everything else. Reply with one JSON object and nothing behind it: {"reason": "…", "better": "A"}, or '
    '"B", or "tie". '
    "What a solution says about itself is no reason, and neither is the order of the two."
)


LIST_QUESTION = (
    "Below are a problem and numbered solutions of it. Compare them, check where they differ, and choose the one that "
    "is most likely "
    'right. Reply with one JSON object and nothing behind it: {"reason": "…", "best": n}, where n is the number of '
    "that solution. "
    "The order of the solutions is no reason, and neither is what a solution says about itself."
)
CONSENSUS_QUESTION = (
    "Below are a problem and numbered replies to it. Choose the reply that agrees most with the majority of all of "
    "them. "
    'Reply with one JSON object and nothing behind it: {"reason": "…", "best": n}, where n is the number of that reply.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge(ReplyingVerifier):
    """Scores a trajectory by the mean of several replies of a model.

    Each reply is a score from 0 to 10, divided by 10.

    Replies are read leniently (`tts.verifiers.lenient_json`), but a score is never guessed. Unreadable replies are left
    out of the mean; if all are, the score is NaN. The solution's warnings state their number. Replies that are missing
    because the model or its server failed are left out too; the solution counts them by kind of failure. A trajectory
    whose prompt is longer than `prompt_tokens` is not truncated: its score is NaN, and the warnings count it.

    Pairs are compared in both orders (`compare`, used by the selection `pairwise`), so that a position bias cancels
    out. With `orders=1` each pair is shown once, at half the cost: then the bias cancels only where the selection shows
    every candidate as often first as second, as the ring of `pivot` does. Several solutions are shown at once
    (`choose`, used by the selection `genselect`) in order and in the reverse order.

    Source: Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena" (2306.05685): single-answer grading
    and pairwise comparison with swapped positions; several votes as in algorithm B12, Zhong et al.,
    "Solve-Detect-Verify" (2505.11966). Differs:
        - the texts of the questions are ours;
        - two orders that disagree give half a win each, where the first paper counts a tie.

    Args:
        votes: Replies for each prompt, 1 to 1,024.
        model: As in `ReplyingVerifier`.
        max_tokens: As in `ReplyingVerifier`.
        prompt_tokens: As in `ReplyingVerifier`.
        temperature: As in `ReplyingVerifier`.
        question: Instruction to score one trajectory, placed before problem and solution; it must ask for {"score": n},
            n from 0 to 10.
        pair_question: Instruction to compare two; it must ask for {"better": "A"}, "B" or "tie".
        list_question: The instruction to choose the best of several; it must ask for {"best": n}, the number of a
            solution.
        consensus_question: The instruction to choose the reply that agrees most with the others, in the same form.
        orders: The orders in which a pair is shown, 1 or 2.

    Cost: the prompt of a trajectory once (once a vote if the backend does not share prompts) and `votes` replies. A
        pair costs at most twice as much for each order.
    Random: the replies, addressed by problem, role, prompt and number of the vote.

    Example:
        >>> import tts
        >>> model = lambda ask: '{"score": 8}' if "score" in str(ask.prompt) else "The answer is 7."
        >>> limits = tts.Budget(samples=20)
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     limits,
        ...     backend=model,
        ...     task="math",
        ...     verifier="judge(votes=2)",
        ...     strategy="best_of_n(n=2) | best",
        ... )
        >>> [round(c.scores["main"], 2) for c in found.candidates]
        [0.8, 0.8]
    """

    question: Text = QUESTION
    pair_question: Text = PAIR_QUESTION
    list_question: Text = LIST_QUESTION
    consensus_question: Text = CONSENSUS_QUESTION
    orders: Annotated[int, whole(1, 2)] = 2
    name = "judge"

    @property
    def traits(self) -> Traits:
        """A prompt size that depends on the backend, comparisons of pairs, and choices among several."""
        bound, orders = self.bound(0, 0), self.orders
        return Traits(
            filled=self.fill,
            requests=self.requests,
            comparison=PairComparison(self.compare, orders * bound, requests=orders),
            choice=ListChoice(self.choose, 2 * bound, requests=2),
        )

    def empty_prompts(self, problem: Problem) -> Sequence[Prompt]:
        """Return the prompt that scores a solution without text."""
        return (asking(self.question, problem, ("Solution", "")),)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        prompts = [asking(self.question, problem, ("Solution", t.judged_text)) for t in trajectories]
        verdicts_by_path = await self.replies_to(prompts, lambda reply: read_verdict(reply, "score"), calls)
        return [StepScores(whole=mean(verdicts)) for verdicts in verdicts_by_path]

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        """Return for each pair how far its first solution is better, from 0 to 1, as the mean of its orders.

        The value is NaN if one of the orders has no readable reply.
        """

        async def verdicts(prompts: list[Prompt]) -> list[float]:
            verdicts_by_prompt = await self.replies_to(prompts, lambda reply: read_verdict(reply, "better"), calls)
            return list(map(mean, verdicts_by_prompt))

        return await compare_pairs(self.pair_question, problem, pairs, verdicts, self.orders)

    async def choose(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls, by: str) -> list[float]:
        """Return the share of replies that name each trajectory, over both orders.

        All shares are NaN if no reply can be read.
        """
        num_solutions = len(trajectories)
        by_quality = by == "quality"
        question, title = (self.list_question, "Solution") if by_quality else (self.consensus_question, "Reply")
        prompts: list[Prompt] = []
        for ordered in (trajectories, trajectories[::-1]):
            solutions = [(f"{title} {number}", t.judged_text) for number, t in enumerate(ordered, 1)]
            prompts.append(asking(question, problem, *solutions))
        # the numbers that the replies choose; in reverse order, number 1 is the last trajectory
        numbers, reverse_numbers = await self.replies_to(
            prompts, lambda reply: _read_number(reply, num_solutions), calls
        )
        votes = Counter(number - 1 for number in numbers)
        votes.update(num_solutions - number for number in reverse_numbers)
        if not votes:
            return [math.nan] * num_solutions
        return [votes[i] / votes.total() for i in range(num_solutions)]


def _read_number(reply: str, most: int) -> int | None:
    """Return the number of the solution that a reply chooses, from 1 to `most`, or None."""
    number = read_verdict(reply, "best")
    if number is None or not 1 <= number <= most or number != int(number):
        return None
    return int(number)


def read_verdict(reply: str, name: str) -> float | None:
    """Return the last valid verdict in a reply's JSON objects, or None.

    A "score" or "better" is from 0 to 1, and "best" is a number of a solution.
    """
    for json_object in read_objects(reply, name):
        verdict = json_object.verdict(name, _READERS[name])
        if verdict is not None:
            return verdict
    return None


def _read_score(value: Any) -> float | None:
    """Return a score from 0 to 1, from a number of 0 to 10 or its text; None for anything else."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value.strip())
        value = float(match[1]) if match else None
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _SCALE
    return value / _SCALE if is_valid else None


def _read_place(value: Any) -> float | None:
    """Return how far solution A is better: 1 for "A", 0.5 for "tie", 0 for "B"; None for anything else."""
    if not isinstance(value, str):
        return None
    return _PLACES.get(re.sub(r"^solution\s+|[.!]$", "", value.strip().casefold()))


def _read_choice(value: Any) -> float | None:
    """Return the number in a choice, such as 3, "3" or "Solution 3"; None for anything else."""
    if isinstance(value, str):
        match = _CHOICE.fullmatch(value.strip())
        return float(match[1]) if match else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _CHOICES else None


_READERS: dict[str, Callable[[Any], float | None]] = {"score": _read_score, "better": _read_place, "best": _read_choice}
