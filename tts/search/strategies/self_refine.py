"""Self-refine: the model criticizes its own solution and writes it anew, until it finds nothing wrong.

    y_0 = a plain solution
    for t = 1 .. rounds: critique = the model on y_(t-1) ; stop where it finds nothing wrong
                         y_t = the model on y_(t-1) and the critique

Source: Madaan et al., "Self-Refine: Iterative Refinement with Self-Feedback" (2303.17651), from memory: one model gives feedback and
refines, at most four times, and the feedback says when to stop. Differs:
- The prompts are the task's "critique" and "revise"; the critique stands after the solution that "revise" shows.
- A prompt shows the last solution and its critique alone, not all earlier ones.
- Several chains are written side by side and vote. A solution that was refined has no vote once its successor has an answer.
- A chain ends at a solution or critique that was cut short or failed, and where the task refuses to show one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from tts.checks import Count, Natural, Text
from tts.search.ends import END
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import opened
from tts.search.strategies._common.stepping import affordable_width, draw, rounds
from tts.types import Candidate, Trajectory

_MOST = 1024  # chains, where the budget decides


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRefine(Strategy):
    """Chains of solutions, each refined by a critique of the one before.

    Args:
        n: chains, at least 1; None: as many as the budget pays, again and again.
        rounds: most refinements of a chain, at least 0.
        stop: a critique that has this text, in any case, ends its chain.
        temperature: None: the run's.

    Cost: at most n x (1 + 2 rounds) samples; each critique and each refinement reads its prompt, with one solution.
    Random: none of its own.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?", tts.Budget(samples=12), backend=model, task="math", strategy="self_refine(n=2, rounds=1)"
        ... )
        >>> found.answer, found.usage.samples
        ('7', 6)
    """

    registered_as = "self_refine"
    always_votes = True
    n: Count | None = None
    rounds: Natural = 4
    stop: Text = "nothing is wrong"
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Prompts to criticise and revise."""
        return Needs(prompts=("critique", "revise") if self.rounds else ())

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write chains; with n left out, again for what is left."""
        for _ in rounds(search, None if self.n is None else 1):
            first = len(search.candidates)
            n = self.n or max(1, min(_MOST, await affordable_width(search, self.temperature, stepwise=False) // (1 + 2 * self.rounds)))
            begun = len(search.candidates) - first  # one that was drawn to learn its length begins a chain
            await draw(search, repeat(search.root, n - begun), self.temperature)
            going = list(search.candidates[first:])
            for _ in range(self.rounds):
                if not (going := await self._refined(search, going)):
                    break
        return search.candidates

    async def _refined(self, search: Search, chains: Sequence[Candidate]) -> list[Candidate]:
        """Return the successors of the solutions that are refined."""
        shown = [
            (c, root) for c in chains if not c.truncated if (root := await opened(search, "critique", [c.trajectory.response], c.group))
        ]
        said = await search.expand([root for _, root in shown], 1, END, temperature=self.temperature)
        going: list[tuple[Candidate, Trajectory]] = []
        for (c, _), made in zip(shown, said, strict=True):
            if not made or made[0].status != "finished" or self.stop.casefold() in made[0].response.casefold():
                continue
            criticized = f"{c.trajectory.response.rstrip()}\n\nCritique of it:\n{made[0].response.strip()}"
            if root := await opened(search, "revise", [criticized], c.group):
                going.append((c, root))
        search.drop([*(root for _, root in shown), *(t for made in said for t in made)])
        better = await draw(search, [root for _, root in going], self.temperature)
        for (c, _), made in zip(going, better, strict=True):
            if made.answer is not None:
                search.finish(c.trajectory, weight=0.0)
        return better
