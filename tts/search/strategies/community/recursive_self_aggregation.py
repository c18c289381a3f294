"""Recursive self-aggregation: a population of solutions that is renewed by fusion.

Each new solution fuses a random subset of the population before it.

    P_1 = n plain solutions
    for t = 2 .. rounds: the prompt of each member of P_t shows `subset` random members of P_(t-1), drawn without
    replacement the answer is the vote of the last population

Source: Venkatraman et al., "Recursive Self-Aggregation Unlocks Deep Thinking in Large Language Models" (2509.26626).
Read in the abstract, the figures' captions and the README of the authors' code: n = 16, subset = 4, 2 to 10 rounds; the
loop is from memory. Differs:
- `rounds` counts populations, the plain one included.
- The prompts are the task's "fuse" and, for a subset of one, "revise", in place of the paper's own.
- A solution is shown without its thought. One that was cut short is not drawn; where none is left, a member is a plain
  solution.
- Where the budget ends the search within a population, its members vote together with the population before.
- The model is not trained for aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, check_parameters
from tts.errors import ConfigError
from tts.search.ends import SearchEnded
from tts.search.lengths import waves_of
from tts.search.needs import Needs
from tts.search.parameters import Shown, Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import root_showing, whole
from tts.search.strategies._common.stepping import affordable_width, draw, rounds
from tts.types import Candidate, Trajectory

_SUBSET = 4  # the subset of the paper
_MOST = 1024  # the most members of a population that the budget sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecursiveSelfAggregation(Strategy):
    """Populations of solutions, each fused from the population before. The last population votes.

    Args:
        n: The members of a population, at least 1; None: as many as the budget pays over the rounds, and at least
            `subset`. The last population then takes all that is left.
        rounds: The populations, with the plain one, at least 1; None: as many as the budget pays. If n is None too, n
            is the root of the number of solutions that the budget pays.
        subset: The solutions that a member fuses, from 1 to n; None: four, or n if n is smaller.
        prompt: The task's kind of prompt that shows several solutions: "fuse" or "revise".
        temperature: The temperature of all rounds; None: the run's.

    Cost: n x rounds samples; after the first population each reads its own prompt, with `subset` solutions.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> plan = "recursive_self_aggregation(n=3, rounds=2, subset=2)"
        >>> found = tts.solve("What is 3 + 4?", tts.Budget(samples=12), backend=model, task="math", strategy=plan)
        >>> found.answer, found.usage.samples
        ('7', 6)
    """

    registered_as = "recursive_self_aggregation"
    sized_by_budget = ("n", "rounds")
    always_votes = True  # no reserve is held to score the populations before the last
    n: Count | None = None
    rounds: Count | None = None
    subset: Count | None = None
    prompt: Shown = "fuse"
    temperature: Temperature | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.n is not None and self.subset is not None and self.subset > self.n:
            raise ConfigError(
                f"subset is {self.subset}, but must be at most n, which is {self.n}",
                hint="give a larger n or a smaller subset",
            )

    def needs(self) -> Needs:
        """Return the needs: the prompt that shows solutions."""
        if self.rounds == 1:
            return Needs()
        shows_one = self.n == 1 or self.subset == 1
        return Needs(prompts=("revise",) if shows_one else (self.prompt,))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Fuse population after population. The last population votes."""
        previous_start, start, n = 0, 0, self.n
        try:
            for k in rounds(search, self.rounds):
                previous_start, start = start, len(search.candidates)
                texts = whole(search.candidates[previous_start:start])
                n = self.n or await self._size(search, k, n)
                if self.n is None and k + 1 == self.rounds:
                    await self._rest(search, k, texts)
                # a plain solution that was written to learn its length belongs to the first population
                num_missing = n if k else n - len(search.candidates)
                for wave in waves_of(range(num_missing)):
                    await draw(
                        search, [await self._root(search, k, member, texts) for member in wave], self.temperature
                    )
        except SearchEnded as end:
            raise end.restrict_candidates(slice(previous_start, None)) from None
        return search.candidates[start:]

    async def _size(self, search: Search, k: int, n: int | None) -> int:
        """Return the size of population k by the budget; `n`: the size of the population before, if any."""
        if self.rounds is None and n is not None:
            return n
        units = await affordable_width(search, self.temperature, stepwise=False)
        share = math.isqrt(units) if self.rounds is None else units // (self.rounds - k)
        return min(_MOST, max(self.subset or _SUBSET, share))

    async def _rest(self, search: Search, k: int, texts: Sequence[str]) -> None:
        """Spend the rest of the budget on members of population k, each time as many as the budget pays.

        Raises:
            SearchEnded: always.
        """
        num_members = 0
        for _ in rounds(search, None):
            width = min(_MOST, search.affordable_samples() or 1)
            members = range(num_members, num_members + width)
            await draw(search, [await self._root(search, k, member, texts) for member in members], self.temperature)
            num_members += width

    async def _root(self, search: Search, k: int, member: int, texts: Sequence[str]) -> Trajectory:
        """Return the prompt of one member of population k, which shows a random subset of texts."""
        size = min(self.subset or _SUBSET, len(texts))
        places: list[int] = []
        if size:
            places = search.rng("subset", k, member).choice(len(texts), size, replace=False).tolist()
        return await root_showing(search, self.prompt, [texts[i] for i in places])
