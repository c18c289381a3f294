"""Self-refine: the model criticizes its own solution and writes it anew, until it finds nothing wrong.

    y_0 = a plain solution
    for t = 1 .. rounds: critique = the model on y_(t-1) ; stop where it finds nothing wrong
                         y_t = the model on y_(t-1) and the critique

Source: Madaan et al., "Self-Refine: Iterative Refinement with Self-Feedback" (2303.17651), and its code for
mathematics: one model gives feedback and refines, at most four times, and the feedback says when to stop, there by the
words "it is correct". Differs:
- The critique and the new solution are two calls. The code for mathematics has both in one reply, and shows worked
  examples.
- The prompts are the task's "critique" and "revise"; the critique stands after the solution that "revise" shows.
- A critique ends with the line "Verdict: right" or "Verdict: wrong". Without it, a closing sentence such as "There is
  none." is read.
- A prompt shows the last solution and its critique alone, as that code does. Other tasks of the paper show all earlier
  ones.
- Several chains are written side by side and vote. A solution that was refined has no vote once its successor has an
  answer.
- A chain ends at a solution or critique that was cut short or failed, and where the task refuses to show one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from tts.checks import Count, Natural, Text
from tts.search.ends import END
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import open_prompt
from tts.search.strategies._common.stepping import affordable_width, draw, rounds
from tts.types import Candidate, Trajectory
from tts.verifiers.genrm import verdict_of

_MOST = 1024  # the most chains where the budget decides
# The end of a critique that finds nothing wrong, in small letters without punctuation.
_NO_FAULT = re.compile(
    r"(?:so |thus |hence |therefore |overall )?(?:"
    r"(?:there (?:is|are) |i (?:see|find) |we (?:see|find) )?(?:none|nothing wrong|no (?:errors?|mistakes?|wrong "
    r"steps?|step is wrong))"
    r"|nothing(?: is)?(?: wrong)?|no step is wrong"
    r"|(?:it|everything|(?:all|every|each) steps?|the (?:earlier )?(?:solution|answer)) (?:is|are) (?:right|correct)"
    r")(?: (?:in|with) (?:it|this|the (?:earlier )?(?:solution|answer)))?"
)
# what takes back a verdict before it
_REVOKED = re.compile(r"\b(?:wrong|incorrect|mistaken|(?:not|isn't) (?:right|correct))\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRefine(Strategy):
    """Chains of solutions, each refined by a critique of the solution before.

    Args:
        n: The number of chains, at least 1; None: as many as the budget pays, again and again.
        rounds: The most refinements of a chain, at least 0.
        stop: A text that ends a chain if a critique contains it, in small or capital letters; None: the critique's
            verdict decides (`finds_nothing_wrong`).
        temperature: The temperature of all calls; None: the run's.

    Cost: at most n x (1 + 2 rounds) samples; each critique and each refinement reads its prompt, with one solution.
    Random: none of its own.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=12),
        ...     backend=model,
        ...     task="math",
        ...     strategy="self_refine(n=2, rounds=1)",
        ... )
        >>> found.answer, found.usage.samples
        ('7', 6)
    """

    registered_as = "self_refine"
    always_votes = True
    n: Count | None = None
    rounds: Natural = 4
    stop: Text | None = None
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: prompts to criticise and revise."""
        return Needs(prompts=("critique", "revise") if self.rounds else ())

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write chains; if n is None, again until the budget is used up."""
        for _ in rounds(search, None if self.n is None else 1):
            start = len(search.candidates)
            n = self.n
            if n is None:
                affordable = await affordable_width(search, self.temperature, stepwise=False)
                n = max(1, min(_MOST, affordable // (1 + 2 * self.rounds)))
            num_drawn = len(search.candidates) - start  # a solution that was drawn to learn its length begins a chain
            await draw(search, repeat(search.root, n - num_drawn), self.temperature)
            chains = list(search.candidates[start:])
            for _ in range(self.rounds):
                chains = await self._refine(search, chains)
                if not chains:
                    break
        return search.candidates

    async def _refine(self, search: Search, chains: Sequence[Candidate]) -> list[Candidate]:
        """Refine solutions that a critique does not accept, and return their successors."""
        criticized: list[Candidate] = []
        critique_roots: list[Trajectory] = []
        for c in chains:
            if c.truncated:
                continue
            root = await open_prompt(search, "critique", [c.trajectory.response], c.group)
            if root is not None:
                criticized.append(c)
                critique_roots.append(root)
        critiques = await search.expand(critique_roots, 1, END, temperature=self.temperature)
        revised: list[Candidate] = []
        revision_roots: list[Trajectory] = []
        for c, replies in zip(criticized, critiques, strict=True):
            if not replies or replies[0].status != "finished" or self._accepts(replies[0].response):
                continue
            text = f"{c.trajectory.response.rstrip()}\n\nCritique of it:\n{replies[0].response.strip()}"
            root = await open_prompt(search, "revise", [text], c.group)
            if root is not None:
                revised.append(c)
                revision_roots.append(root)
        search.drop([*critique_roots, *chain.from_iterable(critiques)])
        successors = await draw(search, revision_roots, self.temperature)
        for c, successor in zip(revised, successors, strict=True):
            if successor.answer is not None:
                search.finish(c.trajectory, weight=0.0)
        return successors

    def _accepts(self, critique: str) -> bool:
        """Whether a critique ends its chain."""
        return finds_nothing_wrong(critique) if self.stop is None else self.stop.casefold() in critique.casefold()


def finds_nothing_wrong(critique: str) -> bool:
    """Return whether the last verdict of a critique is "right".

    Without a verdict, its last sentence must say that nothing is wrong.
    """
    verdict = verdict_of(critique, "right", "wrong")
    if verdict is not None:
        return verdict == 1 and not _REVOKED.search(_NO_FAULT.sub("", critique.casefold().rpartition("verdict")[2]))
    sentences = [part for part in re.split(r"[.!?:;\n]", critique.casefold()) if re.search(r"\w", part)]
    if not sentences:
        return False
    last_words = re.findall(r"[\w']+", sentences[-1])
    return _NO_FAULT.fullmatch(" ".join(last_words)) is not None
