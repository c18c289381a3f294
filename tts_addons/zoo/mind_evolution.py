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
from itertools import chain, repeat

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
Scored = tuple[Candidate, float]  # a solution and its fitness


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
        return Needs(verifiers=(self.verifier,), scaled=True, prompts=() if self.generations == 1 else prompts)

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Evolve islands; if n is None, again until the budget is used up."""
        for round_number in rounds(search, None if self.n is None else 1):
            await self._evolve(search, self.n or await self._affordable(search), round_number)
        return search.candidates

    async def _evolve(self, search: Search, n: int, round_number: int) -> None:
        """Draw plain solutions for all islands, and evolve them over the generations.

        Raises:
            SearchEnded: the budget is used up, or a solution has the verifier's greatest score.
        """
        # the first round counts a solution that was drawn to learn its length
        start = 0 if round_number == 0 else len(search.candidates)
        num_drawn = len(search.candidates) - start
        await draw(search, repeat(search.root, min(n * self.islands - num_drawn, sys.maxsize)), self.temperature)
        children = list(search.candidates[start:])
        for generation in range(1, self.generations + 1):
            paths = [c.trajectory for c in children]
            scores = await search.estimate(paths, self.verifier, self.aggregate, scale="unit")
            if (scores >= 1).any():
                raise SearchEnded("a solution has the greatest score that the verifier gives")
            if generation == self.generations:
                return
            scored = list(zip(children, scores.tolist(), strict=True))
            islands = self._migrate([scored[i * n : (i + 1) * n] for i in range(self.islands)])
            families = [
                self._parents(search, island, n, round_number, generation, i) for i, island in enumerate(islands)
            ]
            children = await self._children(search, list(chain.from_iterable(families)))

    def _migrate(self, islands: Sequence[Sequence[Scored]]) -> list[list[Scored]]:
        """Return the islands after the best of each have replaced the worst of the next."""
        ranked = [sorted(island, key=lambda scored: -scored[1]) for island in islands]  # the fittest first
        if len(ranked) == 1 or not self.migrants:
            return ranked
        # before the first island comes the last
        return [
            [*ranked[i - 1][: self.migrants], *island[: max(0, len(island) - self.migrants)]]
            for i, island in enumerate(ranked)
        ]

    def _parents(
        self, search: Search, island: Sequence[Scored], n: int, round_number: int, generation: int, island_number: int
    ) -> list[list[Candidate]]:
        """Return the parents of each of n children, the fittest first; an orphan has none."""
        rng = search.rng("mind_evolution", round_number, generation, island_number)
        fitnesses = np.array([fitness for _, fitness in island])
        weights = np.exp((fitnesses - fitnesses.max()) / self.pressure)
        p = weights / weights.sum()
        most_parents = min(self.parents, len(island))
        solutions = [solution for solution, _ in island]
        couples: list[list[Candidate]] = []
        for _ in range(n):
            num_parents = int(rng.integers(1, most_parents + 1))
            places = rng.choice(len(island), num_parents, replace=False, p=p).tolist()
            couples.append([solutions[i] for i in sorted(places, key=lambda i: -fitnesses[i])])
        are_orphans = rng.random(n) < self.orphans
        return [[] if is_orphan else parents for is_orphan, parents in zip(are_orphans, couples, strict=True)]

    async def _children(self, search: Search, couples: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """Return a child of each couple.

        The critic reads the fittest parent. The author reads all parents and the critique.
        """
        texts = [[c.trajectory.response.rstrip() for c in parents if not c.truncated] for parents in couples]
        roots: dict[int, Trajectory] = {}  # the critic's prompt, by the place of the couple
        for i, parent_texts in enumerate(texts):
            root = await open_prompt(search, "critique", [parent_texts[0]]) if parent_texts else None
            if root is not None:
                roots[i] = root
        critiques = await search.expand([*roots.values()], 1, END, temperature=self.temperature)
        for i, replies in zip(roots, critiques, strict=True):
            if replies and replies[0].status == "finished":
                texts[i][0] = f"{texts[i][0]}\n\nCritique of it:\n{replies[0].response.strip()}"
        search.drop([*roots.values(), *chain.from_iterable(critiques)])
        author_roots = [await root_showing(search, "fuse", parent_texts) for parent_texts in texts]
        return await draw(search, author_roots, self.temperature)

    async def _affordable(self, search: Search) -> int:
        """Return the number of an island's solutions by the budget. A critique costs as much as a solution."""
        affordable = await affordable_width(search, self.temperature, stepwise=False)
        replies_per_place = 2 * self.generations - 1  # the first generation has no critiques
        return max(1, self.migrants, min(_MOST, affordable // (self.islands * replies_per_place)))
