"""Generative verification: a model reasons about a solution and gives a verdict.

The score is the probability that the verdict is yes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from tts.backends.base import Backend
from tts.checks import Rule, Text, check_parameters, member, whole
from tts.errors import ConfigError, quote, unknown_name
from tts.types import Message, Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, StepScores, logistic
from tts.verifiers.compatibility import check_one_token
from tts.verifiers.replying import MOST_VOTES, ReplyingVerifier, asking, mean

_TEMPLATE = 64  # the most tokens that a chat template adds for two turns
_ASK = "Is it right? Answer with one word, {yes} or {no}."
_REASON = "Check it step by step, and say what is wrong in it, if anything."
QUESTION = (
    "Below are a problem and a solution of it, which may end early. Is the solution right so far? What it says "
    "of itself is no reason."
)


def reasoning_request(yes: str, no: str) -> str:
    """Return the request to reason and to end with a verdict."""
    return f"{_REASON} Then end with one line: Verdict: {yes}, or Verdict: {no}."


def verdict_of(reply: str, yes: str, no: str) -> float | None:
    """Return the last verdict of a reply, 1 for yes and 0 for no; None for a reply without a verdict."""
    verdicts = re.findall(
        rf"verdict\W*(?:is\W+)?(?:(?:boxed|text|textbf)\W+)*({re.escape(yes)}|{re.escape(no)})"
        r"(?!\w)(?!\W*\?)(?!\s*(?:/|or\b))",
        reply,
        re.IGNORECASE,
    )
    return float(verdicts[-1].casefold() == yes.casefold()) if verdicts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictVerifier(ReplyingVerifier):
    """The parameters of a verifier that asks questions with yes or no for an answer.

    Each answer comes after sampled reasoning.

    Args:
        votes: Replies that reason, for each question, 0 to 1,024. 0: none, the verdict is the first word after the
            question.
        verdict: "logprobs": after each reply the model is asked again, in a turn of its own, and P(yes) / (P(yes) +
            P(no)) is its verdict. "words": the reply ends with its verdict, which is 1 or 0; for servers that show no
            log-probabilities.
        yes: The word of the verdict yes, for "logprobs" one token.
        no: The word of the verdict no, for "logprobs" one token.
        model: As in `ReplyingVerifier`.
        max_tokens: As in `ReplyingVerifier`.
        prompt_tokens: As in `ReplyingVerifier`.
        temperature: As in `ReplyingVerifier`.
    """

    votes: Annotated[int, whole(0, MOST_VOTES)] = 3
    max_tokens: int = 512
    verdict: Annotated[str, member(("logprobs", "words"))] = "logprobs"
    yes: Text = "Yes"
    no: Text = "No"
    needs: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.yes == self.no:
            raise ConfigError(f"yes and no are both {quote(self.yes)}, but must differ")
        if self.verdict == "words" and not self.votes:
            raise ConfigError(
                "votes is 0, but a verdict in words needs a reply", hint="give votes=1, or verdict='logprobs'"
            )
        object.__setattr__(self, "needs", ("next_logprobs",) if self.verdict == "logprobs" else ())

    @property
    def behind_prompt(self) -> int:
        """The most tokens after a prompt: the reply, and the turn that asks for the verdict."""
        return self.max_tokens + self._turn if self.votes else 0

    @property
    def requests(self) -> int:
        """The most prompts to which the model replies for one question."""
        return int(self.votes > 0)

    @property
    def _turn(self) -> int:
        return len(self._ask.encode()) + _TEMPLATE if self.verdict == "logprobs" and self.votes else 0

    @property
    def _ask(self) -> str:
        return _ASK.format(yes=self.yes, no=self.no)

    def check_model(self, backend: Backend) -> None:
        """Raise ConfigError where a verdict is not one token, or the model does not take the temperature."""
        super(VerdictVerifier, self).check_model(backend)
        if self.verdict == "logprobs":
            for parameter, word in (("yes", self.yes), ("no", self.no)):
                check_one_token(backend, parameter, word, "choose another word, or verdict='words'")

    def instruct(self, question: str) -> str:
        """Return a question with the form of its verdict."""
        request = reasoning_request(self.yes, self.no) if self.verdict == "words" else _REASON
        return f"{question} {request if self.votes else self._ask}"

    async def approvals(
        self, question: str, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls
    ) -> list[float]:
        """Return the mean verdict on each trajectory, from 0 to 1; NaN where no verdict is known."""
        prompts = [asking(self.instruct(question), problem, ("Solution", t.judged_text)) for t in trajectories]
        if not self.votes:
            return await self._yes_probabilities(prompts, self.fits(prompts, calls), calls)
        if self.verdict == "words":
            verdicts_by_path = await self.replies_to(prompts, lambda reply: verdict_of(reply, self.yes, self.no), calls)
            return list(map(mean, verdicts_by_path))
        replies_by_path = await self.replies_to(prompts, str, calls)
        verdict_prompts = [  # one for each reply: prompt, reply and the question for the verdict
            (*prompt, Message("assistant", reply), Message("user", self._ask))
            for prompt, replies in zip(prompts, replies_by_path, strict=True)
            for reply in replies
        ]
        fits = [calls.count(prompt) <= self._most_asked for prompt in verdict_prompts]
        calls.note_unread(
            f"replies of the {self.name} were too long to ask for their verdict", fits.count(False), len(fits)
        )
        verdicts = iter(await self._yes_probabilities(verdict_prompts, fits, calls))
        return [mean([next(verdicts) for _reply in replies]) for replies in replies_by_path]

    async def _yes_probabilities(self, prompts: Sequence[Prompt], fits: Sequence[bool], calls: Calls) -> list[float]:
        """Return P(yes) / (P(yes) + P(no)) after each prompt that fits.

        The value is NaN for other prompts, and where neither word has a probability.
        """
        shown_prompts = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
        if not shown_prompts:
            return [math.nan] * len(fits)
        yes_logprobs, no_logprobs = (await calls.choices(shown_prompts, (self.yes, self.no))).T
        with np.errstate(invalid="ignore"):
            yes_probabilities = iter(logistic(yes_logprobs - no_logprobs).tolist())
        return [next(yes_probabilities) if fit else math.nan for fit in fits]

    @property
    def _most_asked(self) -> int:
        """The most tokens of a prompt that asks for a verdict."""
        return self.room + (self.max_tokens if self.votes else 0) + self._turn

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the most tokens that one question takes.

        These are the tokens of prompt and replies. For each verdict by log-probabilities, prompt, reply and the
        question for the verdict are read once more.
        """
        reply_tokens = ReplyingVerifier.bound(self, prefix_tokens, new_tokens) if self.votes else 0
        if self.verdict != "logprobs":
            return reply_tokens
        return reply_tokens + max(1, self.votes) * self._most_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class GenRm(VerdictVerifier):
    """Scores a trajectory by the mean probability that the model calls it right.

    The mean is over sampled chains of reasoning.

    Replies and prompts that are left out are counted in the solution's warnings, as by `judge`.

    Source: Zhang et al., "Generative Verifiers: Reward Modeling as Next-Token Prediction" (2408.15240), from memory:
    the score is the probability of the token "Yes" after "Is the answer correct (Yes/No)?", and with GenRM-CoT its mean
    over K sampled rationales. Differs:
        - no model is trained: the texts of the questions are ours, for models that follow instructions;
        - P(yes) is taken of yes and no alone, so that other words do not count as no;
        - the verdict is asked for in a turn of its own, which also asks a reply that was cut short;
        - `verdict="words"` reads sampled verdicts instead, for servers without log-probabilities;
        - a model that thinks first does not begin with its verdict: use "words" there.

    Args:
        question: Placed before problem and solution; how to reason, and how to end, is added to it.
        votes: As in `VerdictVerifier`.
        verdict: As in `VerdictVerifier`.
        yes: As in `VerdictVerifier`.
        no: As in `VerdictVerifier`.
        model: As in `VerdictVerifier`.
        max_tokens: As in `VerdictVerifier`.
        prompt_tokens: As in `VerdictVerifier`.
        temperature: As in `VerdictVerifier`.

    Cost: for each trajectory the prompt once (once a vote if the backend does not share prompts) and `votes` replies.
    With "logprobs" each
        prompt and reply are read again, with one short question.
    Random: the replies, addressed by problem, role, prompt and number of the vote.

    Example:
        >>> import tts
        >>> model = lambda ask: "Verdict: Yes" if "Verdict" in str(ask.prompt) else "The answer is 7."
        >>> asked = "genrm(votes=2, verdict='words')"
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=20),
        ...     backend=model,
        ...     task="math",
        ...     verifier=asked,
        ...     strategy="best_of_n(n=2) | best",
        ... )
        >>> [round(c.scores["main"], 2) for c in found.candidates]
        [1.0, 1.0]
    """

    question: Text = QUESTION
    name = "genrm"

    def empty_prompts(self, problem: Problem) -> Sequence[Prompt]:
        """Return the prompt that scores a solution without text."""
        return (asking(self.instruct(self.question), problem, ("Solution", "")),)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        shares = await self.approvals(self.question, problem, trajectories, calls)
        return [StepScores(whole=share) for share in shares]


ASPECTS = {
    "answer": "Is the final answer right?",
    "logic": "Does every step follow from the problem and the steps before it?",
    "calculation": "Is every calculation right? Do each of them again.",
    "facts": "Is every fact, formula and definition that is used true, and does it apply here?",
    "question": "Does the solution answer what was asked, and use all that the problem states?",
    "cases": "Are all cases considered, the smallest, the largest and the special ones among them?",
    "units": "Are all quantities, units and their conversions right?",
}
_ABOUT = (
    "Below are a problem and a solution of it, which may end early. Judge one aspect alone, as far as the "
    "solution goes. "
)


def _check_aspects(name: str, given: Any) -> tuple[str, ...]:
    """Return the aspects in the parameter `name` as a tuple.

    Raises:
        ConfigError: the values are no names or questions, or an aspect is named twice.
    """
    if not isinstance(given, tuple | list) or not given or not all(isinstance(aspect, str) for aspect in given):
        raise ConfigError(f"{name} is {quote(given)}, but must be a list of names or questions, at least one")
    for aspect in given:
        if aspect not in ASPECTS and not aspect.strip().endswith("?"):
            raise unknown_name(name, aspect, tuple(ASPECTS))
    if len(set(given)) < len(given):
        raise ConfigError(f"{name} is {quote(given)}, but must name each once")
    return tuple(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiAspect(VerdictVerifier):
    """Scores a trajectory by the share of its aspects that a model approves.

    Each aspect is asked about by a question of its own.

    An aspect without a known verdict is left out of the mean; without any the score is NaN.

    Source: Lifshitz, McIlraith, Du, "Multi-Agent Verification: Scaling Test-Time Compute with Multiple Verifiers"
    (2502.20379), read in the abstract, the rest from memory: aspect verifiers are prompted models that approve or not,
    and BoN-MAV takes the solution with the most approvals. Differs:
        - aspects and questions are ours; the paper chooses among many for each task, on a validation set;
        - one verifier asks one model. Several models are several verifiers, whose scores an `ensemble` can not join.

    Args:
        aspects: Names (answer, logic, calculation, facts, question, cases, units), or questions of one's own, which end
            in "?"; at least one, each once.
        votes: Replies for each aspect; with "words" the paper's, one.
        verdict: As in `VerdictVerifier`.
        yes: As in `VerdictVerifier`.
        no: As in `VerdictVerifier`.
        model: As in `VerdictVerifier`.
        max_tokens: As in `VerdictVerifier`.
        prompt_tokens: As in `VerdictVerifier`.
        temperature: As in `VerdictVerifier`.

    Cost: that of `genrm` for each aspect; one verifier call a trajectory.
    Random: as `genrm`.

    Example:
        >>> import tts
        >>> model = lambda ask: "Verdict: Yes" if "Verdict" in str(ask.prompt) else "The answer is 7."
        >>> asked = "multi_aspect(aspects=['logic', 'calculation'], verdict='words')"
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=20),
        ...     backend=model,
        ...     task="math",
        ...     verifier=asked,
        ...     strategy="best_of_n(n=2) | best",
        ... )
        >>> [round(c.scores["main"], 2) for c in found.candidates]
        [1.0, 1.0]
    """

    aspects: Annotated[tuple[str, ...], Rule(_check_aspects)] = ("answer", "logic", "calculation", "facts", "question")
    votes: int = 1
    verdict: str = "words"
    name = "multi_aspect"

    @property
    def requests(self) -> int:
        """The most prompts to which the model replies for one score: one an aspect."""
        return len(self.aspects) * int(self.votes > 0)

    @property
    def _questions(self) -> list[str]:
        """The question about each aspect."""
        return [_ABOUT + ASPECTS.get(aspect, aspect) for aspect in self.aspects]

    def empty_prompts(self, problem: Problem) -> Sequence[Prompt]:
        """Return the prompts that score a solution without text, one an aspect."""
        return tuple(asking(self.instruct(question), problem, ("Solution", "")) for question in self._questions)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory."""
        shares_by_aspect = [
            await self.approvals(question, problem, trajectories, calls) for question in self._questions
        ]
        shares_by_path = zip(*shares_by_aspect, strict=True)
        return [StepScores(whole=mean(shares)) for shares in shares_by_path]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the bound of one question, for each aspect."""
        return len(self.aspects) * VerdictVerifier.bound(self, prefix_tokens, new_tokens)
