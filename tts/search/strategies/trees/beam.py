"""Beam search: at every step keep the best-scored prefixes, each with equally many continuations.

n beams take a step each; the n/M best of those that have not ended are kept, and each is continued M times. Paths that
end leave the beam and compete again only at the end. So a finished path neither takes a live one's place nor is lost to
it.

Source: algorithm A4, verified: Snell et al., "Scaling LLM Test-Time Compute Optimally can be More Effective than
Scaling Model Parameters" (2408.03314); search-and-learn's code, which is followed line by line. Differs:
- n need not be a multiple of M: ceil(n/M) paths are kept, and continued in turn until there are n.
- Among equal scores the earlier path is kept (the reference keeps the later), so a constant verifier keeps the plain
  sample.
- Copies are dropped before they are scored, not after.
- A beam that prunes nothing (M = 1 or n = 1) scores nothing.
- The reference's cyclic copies of finished paths, up to n, are left out.
- When the budget ends, what was held back completes the best live path, as for every method. This path is sampled, not
  greedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated

import numpy as np

from tts.checks import choice
from tts.search.search import Search
from tts.search.strategies._common.guided import WideAhead, distinct, promises, split
from tts.search.strategies._common.stepping import advance
from tts.types import Candidate, Trajectory
from tts.verifiers.base import estimate_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Beam(WideAhead):
    """Beam search over steps, with optional lookahead.

    The candidates are the n finished paths with the best scores.

    Args:
        branching: The continuations of each kept path (M in the papers; search-and-learn: beam width). The n / M best
            paths are kept. 1 keeps all: best-of-n, if all paths have the same number of steps and duplicates are kept.
            The place of an ended path goes to a further continuation of a live path, as in the reference.
        lookahead: The greedy steps that are written after a path, scored with the path, and then dropped (k); 0: none.
        duplicates: The rule for live paths with the same text. "drop": only the first is kept. "keep": all are kept.
        n: As in `Wide`.
        temperature: As in `Wide`.
        max_steps: As in `Wide`.
        verifier: As in `Wide`.
        aggregate: As in `Wide`.

    Cost: n steps a level while any path is live, so at most n (lookahead + 1) x the tokens of the longest path. One
        verifier call a step, at most n x max_steps. In samples: n, plus one for each continuation of a path beyond its
        first. A search with a larger n does not contain one with a smaller n.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="beam(n=4, branching=2)", verifier="toy(error=0.1)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 7, 102)
    """

    registered_as = "beam"
    duplicates: Annotated[str, choice("drop", "keep")] = "drop"

    async def explore(self, search: Search, n: int) -> Sequence[Candidate]:
        """Step, score and keep until no path is live. Comments name the lines of algorithm A4."""
        prefixes: list[Trajectory] = [search.root]
        finished: list[Trajectory] = []
        while prefixes:
            beams = islice(cycle(prefixes), n)  # line 3
            # lines 4 and 5
            live, ended = split(await advance(search, beams, max_steps=self.max_steps, temperature=self.temperature))
            finished += ended
            if self.duplicates == "drop":  # line 8
                live = distinct(live)
            prefixes = await self._best(search, live, ended, n)  # lines 6 and 9
            search.keep(prefixes)
        return await self._first(search, finished, n)

    async def _best(
        self, search: Search, live: Sequence[Trajectory], ended: Sequence[Trajectory], n: int
    ) -> list[Trajectory]:
        """Return the n/M live paths with the best scores, best first; paths that just ended are scored with them."""
        num_kept = -(-n // self.branching)  # rounded up
        if num_kept == n or not live:
            return list(live)
        scores = await promises(search, self, [*live, *ended], self.lookahead)
        best_first = np.argsort(-scores[: len(live)], kind="stable").tolist()
        return [live[i] for i in best_first[:num_kept]]

    async def _first(self, search: Search, finished: Sequence[Trajectory], n: int) -> list[Candidate]:
        """Return the candidates of the n best of the finished paths (line 10)."""
        if len(finished) > n:
            scores = estimate_unknown(
                await search.score(finished, self.verifier, self.aggregate, required=False), otherwise=0.0
            )
            finished = [finished[i] for i in np.argsort(-scores, kind="stable")[:n]]
        candidates = [search.finish(t) for t in finished]
        return [candidate for candidate in candidates if candidate is not None]
