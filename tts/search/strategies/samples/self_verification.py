"""Self-verification: S solutions, each verified V times by the model itself.

The budget is split between solutions and verifications.

    split the budget C = S (1 + lambda V), in solutions, with V from a measured law
    draw S solutions ; for each draw V verifications, which reason and end with a verdict
    score = the share of the verdicts that are "yes" ; the answers are weighed by the scores

Source: Singhi et al., "When To Solve, When To Verify: Compute-Optimal Problem Solving and Generative Verification for
LLM Reasoning" (2504.01005), read in the abstract, in summaries and in its code for scores: S solutions with V
verifications each, the cost above, and the best S and V, which grow like C^.57 and C^.39 for the models of the paper.
Prompts are ours. Differs:
- Without a measured law nothing is verified: the scale of the paper's law is not known, and the law of another model is
  no law of this one.
- The answers are weighed by (yes + 1/2) / (V + 1), since few verdicts tie. The code has two choices by the share of yes
  among the verdicts: the answers weighed by it, and `| best(verifier='verified')`.
- V of a law is rounded. Where it is 0, the solutions vote.
- lambda is learnt as the search goes, from what solutions with their verifications have cost.
- A verification without a verdict is left out. Solutions that the budget leaves unverified have no vote, where others
  were verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tts.checks import Count, Natural, Rule, Text, check_parameters
from tts.errors import ConfigError, quote
from tts.search.ends import SearchEnded
from tts.search.needs import Needs, writers
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.asking import replies_to
from tts.search.strategies._common.stepping import affordable_width, rounds
from tts.types import Candidate
from tts.verifiers.genrm import QUESTION, reasoning_request, verdict_of
from tts.verifiers.replying import asking

_ROLE = "verified"
_MOST = 1024  # the most solutions of a round, and the most verifications of a solution


def _check(name: str, law: object) -> tuple[float, float]:
    """Return a law as two numbers, its scale and its exponent.

    Raises:
        ConfigError: the value is no such pair.
    """
    pair: Any = law
    numbers = pair if isinstance(pair, list | tuple) else ()
    are_in_range = all(type(number) in (int, float) and 0 <= number < 2**63 for number in numbers)
    if len(numbers) != 2 or not are_in_range or numbers[1] > 1:
        raise ConfigError(
            f"{name} is {quote(law)}, but must be a scale of at least 0 and an exponent between 0 and 1",
            hint="for example law=[1.0, 0.39]",
        )
    return float(numbers[0]), float(numbers[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfVerification(Strategy):
    """Solutions that the model verifies itself; the share of its verdicts weighs each.

    Args:
        n: The solutions (S), at least 1; None: as many as the budget pays with their verifications.
        verifications: The verifications of each solution (V), at least 0; None: by `law`.
        law: (scale, exponent), V = scale C^exponent where the budget pays C plain solutions;
            `python -m research.methods.splits` measures it. None: without `verifications` V is 0, the solutions vote,
            and a warning says so. The paper's exponent is .39.
        checker: The role of the model that verifies.
        question: The question to this model about problem and solution. A request for the verdict is appended.
        max_tokens: The most tokens of a verification; None: the run's.
        temperature: The temperature of solutions and verifications; None: the run's.

    Cost: n x (1 + V) samples; each solution is read once by the model that verifies. Candidates have the score
    "verified", in [0, 1]. Random: none of its own.

    Example:
        >>> import tts
        >>> model = lambda ask: "Verdict: Yes" if "Verdict" in str(ask.prompt) else "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=9),
        ...     backend=model,
        ...     task="math",
        ...     strategy="self_verification(n=3, verifications=2)",
        ... )
        >>> found.answer, found.usage.samples
        ('7', 9)
    """

    registered_as = "self_verification"
    sized_by_budget = ("n", "verifications")
    always_votes = True
    n: Count | None = None
    verifications: Natural | None = None
    law: Annotated[tuple[float, float], Rule(_check)] | None = None
    checker: Text = "policy"
    question: Text = QUESTION
    max_tokens: Count | None = None
    temperature: Temperature | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.law is not None and self.verifications is not None:
            raise ConfigError(
                f"law is {quote(self.law)}, but verifications is {self.verifications}", hint="give one of them"
            )

    def needs(self) -> Needs:
        """Return the needs: the model that verifies, and the role of its scores."""
        return Needs(scores=(_ROLE,), models=writers(self.checker))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Solve and verify; if n is None, again until the budget is used up."""
        votes = self.verifications
        if votes is None and self.law is None:
            search.notes.warn(
                "nothing was verified, for want of a measured law; give law=[scale, exponent], or verifications"
            )
            votes = 0
        if votes is None:
            votes = self.split(await affordable_width(search, self.temperature, stepwise=False))
        if votes == 0:
            # a first solution may have been drawn already, to learn its length
            num_missing = None if self.n is None else self.n - len(search.candidates)
            if num_missing != 0:
                await search.complete([search.root], num_missing, temperature=self.temperature)
            return search.candidates
        left_before, num_verified = dict(search.left), 0
        try:
            for _ in rounds(search, None if self.n is None else 1):
                width = self.n or _affordable(left_before, search.left, num_verified)
                num_unverified = len(search.candidates) - num_verified  # drawn to learn a length
                if width > num_unverified:
                    await search.complete([search.root], width - num_unverified, temperature=self.temperature)
                await self._verify(search, search.candidates[num_verified:], votes)
                num_verified = len(search.candidates)
        except SearchEnded as end:
            if not num_verified:
                raise
            raise end.restrict_candidates(slice(0, num_verified)) from None
        return search.candidates

    async def _verify(self, search: Search, candidates: Sequence[Candidate], votes: int) -> None:
        """Verify candidates, and give them their scores and weights."""
        question = f"{self.question} {reasoning_request('Yes', 'No')}"
        prompts = [asking(question, search.problem, ("Solution", c.trajectory.response)) for c in candidates]
        by_candidate = await replies_to(
            search, prompts, votes, temperature=self.temperature, max_tokens=self.max_tokens, model=self.checker
        )
        for c, replies in zip(candidates, by_candidate, strict=True):
            if replies is None:
                continue
            all_verdicts = [verdict_of(t.response, "Yes", "No") for t in replies]
            verdicts = [verdict for verdict in all_verdicts if verdict is not None]
            scores = {_ROLE: sum(verdicts) / len(verdicts)} if verdicts else {}
            search.finish(c.trajectory, scores=scores, weight=(sum(verdicts) + 0.5) / (len(verdicts) + 1))

    def split(self, units: int) -> int:
        """Return the verifications of each solution, where the budget pays `units` plain solutions."""
        scale, exponent = self.law or (0.0, 0.0)
        return min(_MOST, round(scale * units**exponent)) if units > 1 else 0


def _affordable(amounts_before: Mapping[str, float], amounts_left: Mapping[str, float], num_verified: int) -> int:
    """Return the number of further solutions that the budget pays with their verifications, at most `num_verified`.

    The spend on the first `num_verified` solutions decides. If they spent no limited unit, the number is 1.

    Raises:
        SearchEnded: the budget pays no further solution.
    """
    if not num_verified:
        return 1
    payable: list[int] = []  # by each limited unit
    for unit, amount in amounts_left.items():
        spent = amounts_before[unit] - amount
        if spent > 0:
            payable.append(int(amount * num_verified / spent))
    if not payable:
        return 1
    if min(payable) < 1:
        raise SearchEnded("what is left does not pay another solution with its verifications")
    return min([num_verified, _MOST, *payable])
