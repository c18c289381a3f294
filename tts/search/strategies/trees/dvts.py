"""DVTS, diverse verifier tree search: independent greedy step searches.

One early favourite then cannot take all the beams.

The width n is split into n/M subtrees. Each subtree draws M next steps after its prefix and keeps the best-scored step,
until the kept path has ended. The M siblings of a subtree's last level are its candidates, so they have all but the
last step in common.

Source: algorithm A5, verified in search-and-learn's code (Beeching, Tunstall, Rush, "Scaling test-time compute with
open models", 2024). The lookahead is scored, as in the reference. Differs:
- Where n is no multiple of M, the last subtree is as narrow as what is left.
- Siblings that have not ended when their subtree closes are no candidates, because they have no answer.
- A subtree whose rows all failed closes without any candidate.
- A subtree of width 1 is not scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tts.search.search import Search
from tts.search.strategies._common.guided import WideAhead, promises
from tts.search.strategies._common.stepping import siblings_of, subtree_width
from tts.types import Candidate, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Dvts(WideAhead):
    """Greedy searches side by side. The finished paths of their last levels are the candidates.

    Args:
        branching: The next steps of a subtree's prefix (M in the papers); 1 prunes nothing: best-of-n.
        lookahead: The greedy steps that are written after a path, scored with the path, and dropped; 0: none.
        n: As in `Wide`.
        temperature: As in `Wide`.
        max_steps: As in `Wide`.
        verifier: As in `Wide`.
        aggregate: As in `Wide`.

    Cost: n steps a level, n (lookahead + 1) x the longest path's tokens, at most; a verifier call a step; in samples, n
        and M - 1 a level of each subtree. Nested in n at multiples of M.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="dvts(n=4, branching=2)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 6, 126)
    """

    registered_as = "dvts"

    async def explore(self, search: Search, n: int) -> Sequence[Candidate]:
        """Step, score and choose in every open subtree. Comments name the lines of algorithm A5."""
        prefixes: dict[int, Trajectory] | None = None  # line 1; None: all subtrees begin at the root
        last_levels: dict[int, list[Trajectory]] = {}
        while prefixes is None or prefixes:
            steps_of = await siblings_of(  # line 3
                search, prefixes, n, self.branching, max_steps=self.max_steps, temperature=self.temperature
            )
            best = await self._best(search, steps_of, n)
            last_levels |= steps_of  # line 5
            prefixes = {subtree: t for subtree, t in best.items() if t.status == "active"}  # line 6
            search.keep(list(prefixes.values()))
        last_steps = chain.from_iterable(last_levels[subtree] for subtree in sorted(last_levels))
        candidates = [search.finish(t) for t in last_steps]  # line 7
        return [candidate for candidate in candidates if candidate is not None]

    async def _best(
        self, search: Search, steps_of: Mapping[int, Sequence[Trajectory]], n: int
    ) -> dict[int, Trajectory]:
        """Return the first best-scored sibling of each subtree, by subtree (line 4)."""
        contested: list[Trajectory] = []
        for subtree, steps in steps_of.items():
            if subtree_width(n, self.branching, subtree) > 1:
                contested += steps
        contested_scores = await promises(search, self, contested, self.lookahead)
        scores = {t.node: score for t, score in zip(contested, contested_scores.tolist(), strict=True)}
        best: dict[int, Trajectory] = {}
        for subtree, steps in steps_of.items():
            if steps:
                place = int(np.argmax([scores.get(t.node, 0.0) for t in steps]))
                best[subtree] = steps[place]
        return best
