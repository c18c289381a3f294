"""Mind Evolution: islands of solutions that evolve over generations.

In each generation fitter solutions become parents of new ones.

    on each island: n plain solutions ; score them
    for each further generation, until a solution has the greatest score:
        n children on each island: no parents with a chance of `orphans`, else 1 to `parents`, drawn by exp(score /
        pressure)
                                   the critic reads the fittest of them
                                   the author writes a child after the parents and the critique
        the best `migrants` of each island replace the worst of the next island

Source: Lee et al., "Evolving Deeper LLM Thinking" (2501.09891), from memory: a genetic search over solutions in words;
islands; a child has no parents with a chance of 1/6, else parents drawn by a softmax of their fitness; refinement
through a conversation of critic and author; migration from island to island. Differs:
- The fitness is a verifier's score in [0, 1]. The paper evaluates by a program, and shows its findings to the author in
  words.
- A child comes of one critique and one answer, in place of several turns. Prompts are the task's "critique", "revise"
  and "fuse".
- Islands are never reset. Children replace their generation; the selection chooses among all generations.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from tts.checks import Amount, Count, Natural, Proportion, check_parameters
from tts.errors import ConfigError
from tts.search.ends import END, SearchEnded
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import open_prompt, root_showing
from tts.search.strategies._common.judged import Judged
from tts.search.strategies._common.stepping import affordable_width, draw, rounds
from tts.types import Candidate, Trajectory

_MOST = 256  # the most solutions of an island where the budget decides
Scored = tuple[Candidate, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MindEvolution(Judged):
    """A genetic search over whole solutions.

    Args:
        n: The solutions of an island in a generation, at least 1; None: as many as the budget pays, again and again.
        islands: The number of islands, at least 1.
        generations: The number of generations, with the first, at least 1.
        parents: The most parents of a child, at least 1.
        orphans: The chance of a child without parents, in [0, 1]; it is a plain solution.
        migrants: The solutions of an island that go on to the next one, at least 0 and at most n.
        pressure: The temperature of the draw of parents, above 0. A small one favours the fittest.
        temperature: As in `Judged`.
        verifier: As in `Judged`.
        aggregate: As in `Judged`.

    Cost: n x islands solutions a generation, each scored once; after the first generation a critique for each.
    Random: parents, by round, generation and island.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> limits = tts.Budget(samples=12)
        >>> evolved = "mind_evolution(n=2, islands=1, generations=2)"
        >>> found = tts.solve(
        ...     "What is 3 + 4?", limits, backend=model, task="math", verifier=lambda p, t: 0.5, strategy=evolved
        ... )
        >>> found.answer, found.usage.samples
        ('7', 6)
    """

    registered_as = "mind_evolution"
    islands: Count = 2
    generations: Count = 4
    parents: Count = 2
    orphans: Proportion = 1 / 6
    migrants: Natural = 1
    pressure: Amount = 0.3

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.pressure == 0:
            raise ConfigError("pressure is 0, but must be above 0", hint="a small one draws the fittest alone")
        if self.n is not None and self.migrants > self.n and self.islands > 1:
            raise ConfigError(
                f"migrants is {self.migrants}, but an island has {self.n} solutions", hint="give fewer, or a larger n"
            )

    def needs(self) -> Needs:
        """Return the needs: a verifier, and prompts to criticise, revise and fuse."""
        prompts = ("critique", "revise", "fuse") if self.parents > 1 and self.n != 1 else ("critique", "revise")
        return Needs(verifiers=(self.verifier,), prompts=() if self.generations == 1 else prompts)

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Evolve islands; if n is None, again until the budget is used up."""
        for k in rounds(search, None if self.n is None else 1):
            await self._evolve(search, self.n or await self._affordable(search), k)
        return search.candidates

    async def _evolve(self, search: Search, n: int, k: int) -> None:
        first = 0 if k == 0 else len(search.candidates)  # a solution that was drawn to learn its length counts
        num_drawn = len(search.candidates) - first
        await draw(search, repeat(search.root, min(n * self.islands - num_drawn, sys.maxsize)), self.temperature)
        children = list(search.candidates[first:])
        for generation in range(1, self.generations + 1):
            scores = await search.score([c.trajectory for c in children], self.verifier, self.aggregate, scale="unit")
            if (scores >= 1).any():
                raise SearchEnded("a solution has the greatest score that the verifier gives")
            if generation == self.generations:
                return
            scored = list(zip(children, np.nan_to_num(scores, nan=0.0).tolist(), strict=True))
            islands = self._migrate([scored[i * n : (i + 1) * n] for i in range(self.islands)])
            couples = [
                parents
                for i, island in enumerate(islands)
                for parents in self._parents(search, island, n, k, generation, i)
            ]
            children = await self._children(search, couples)

    def _migrate(self, islands: Sequence[Sequence[Scored]]) -> list[list[Scored]]:
        """Return the islands after the best of each have replaced the worst of the next."""
        ranked = [sorted(island, key=lambda scored: -scored[1]) for island in islands]
        if len(ranked) == 1 or not self.migrants:
            return ranked
        return [
            [*ranked[i - 1][: self.migrants], *island[: max(0, len(island) - self.migrants)]]
            for i, island in enumerate(ranked)
        ]

    def _parents(
        self, search: Search, island: Sequence[Scored], n: int, k: int, generation: int, place: int
    ) -> list[list[Candidate]]:
        """Return the parents of each of n children, the fittest first; an orphan has none."""
        rng = search.rng("mind_evolution", k, generation, place)
        score = np.array([fitness for _, fitness in island])
        chance = np.exp((score - score.max()) / self.pressure)
        most = min(self.parents, len(island))
        draws = [
            rng.choice(len(island), int(rng.integers(1, most + 1)), replace=False, p=chance / chance.sum())
            for _ in range(n)
        ]
        couples = [[island[i][0] for i in sorted(places.tolist(), key=lambda i: -score[i])] for places in draws]
        are_orphans = rng.random(n) < self.orphans
        return [[] if is_orphan else parents for is_orphan, parents in zip(are_orphans, couples, strict=True)]

    async def _children(self, search: Search, couples: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """Return a child of each couple.

        The critic reads the fittest parent. The author reads all parents and the critique.
        """
        texts = [[c.trajectory.response.rstrip() for c in parents if not c.truncated] for parents in couples]
        roots: dict[int, Trajectory] = {}
        for i, shown in enumerate(texts):
            if shown and (root := await open_prompt(search, "critique", [shown[0]])):
                roots[i] = root
        critiques = await search.expand([*roots.values()], 1, END, temperature=self.temperature)
        for i, replies in zip(roots, critiques, strict=True):
            if replies and replies[0].status == "finished":
                texts[i][0] = f"{texts[i][0]}\n\nCritique of it:\n{replies[0].response.strip()}"
        search.drop([*roots.values(), *(t for replies in critiques for t in replies)])
        return await draw(search, [await root_showing(search, "fuse", shown) for shown in texts], self.temperature)

    async def _affordable(self, search: Search) -> int:
        """Return the number of an island's solutions by the budget. A critique costs as much as a solution."""
        units = await affordable_width(search, self.temperature, stepwise=False)
        return max(1, self.migrants, min(_MOST, units // (self.islands * (2 * self.generations - 1))))
