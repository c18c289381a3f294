"""Diverse beam search: groups of beams by log-probability, penalized for the steps of earlier groups.

    for each depth, for each group g = 1 .. G in order:
        score of a step = log-probability of the path - strength x number of beams of earlier groups that chose the same
        step there keep the best beams of the group

Source: algorithm B21, Vijayakumar et al., "Diverse Beam Search: Decoding Diverse Solutions from Neural Sequence Models"
(1610.02424), with the Hamming diversity of public implementations (transformers, fairseq). Differs:
- The unit is a step of the task, not a token, and its candidates are `branching` samples a beam, not the vocabulary:
  servers and the engine give the log-probabilities of what was drawn. So the search is random, and a strength of 0
  gives groups that differ by chance.
- Two steps are the same where their texts are, but for white space at the ends.
- A path that ended takes its place in its group for good, and votes. One that ended and was not kept has no vote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tts.checks import Amount, Count
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import MAX_STEPS, advance, affordable_width, rounds
from tts.types import Candidate, Trajectory

_MOST = 1024  # beams, where the budget decides


@dataclass(slots=True, eq=False)
class Group:
    """A group of beams.

    Args:
        width: The most beams of the group.
        beams: The open beams.
        ended: The number of beams that have ended.
    """

    width: int
    beams: list[Trajectory]
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiverseBeam(Strategy):
    """Groups of beams by log-probability.

    Args:
        n: The beams of all groups, at least 1 (B in the paper); None: as many as the budget pays, again and again.
        groups: The number of groups (G in the paper), at least 1, and at most n.
        branching: The steps that are drawn after each beam, at least 1.
        strength: The penalty for each beam of an earlier group that chose the same step, in nats, at least 0 (lambda in
            the paper).
        temperature: The temperature of the steps; None: the run's.
        max_steps: The most steps of a path, at least 1; the last runs to the end of the solution.

    Cost: n x branching steps a level; no verifier.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 600, model="toy", strategy="diverse_beam(n=4, groups=2, branching=3)")
        >>> found.answer, sum(c.weight for c in found.candidates)
        ('14', 4.0)
    """

    registered_as = "diverse_beam"
    always_votes = True
    n: Count | None = None
    groups: Count = 2
    branching: Count = 4
    strength: Amount = 0.5
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps, and their log-probabilities."""
        return Needs(capabilities=("steps", "logprobs"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search; if n is None, again until the budget is used up."""
        for _ in rounds(search, None if self.n is None else 1):
            n = self.n or max(1, min(_MOST, await affordable_width(search, self.temperature) // self.branching))
            count = min(self.groups, n)
            # made one by one, because n may be more than the budget pays
            groups: Iterable[Group] = (Group(n // count + (g < n % count), [search.root]) for g in range(count))
            while groups := await self._level(search, groups):
                pass
        return search.candidates

    async def _level(self, search: Search, groups: Iterable[Group]) -> list[Group]:
        """Draw the next steps of all groups in one call, choose group by group, and return the groups that go on."""
        rows: list[Group] = []  # the group of each row that advance asked for

        def paths() -> Iterator[Trajectory]:
            for group in groups:
                for t in group.beams:
                    for _ in range(self.branching * (group.width if t == search.root else 1)):
                        rows.append(group)
                        yield t

        families = await advance(search, paths(), max_steps=self.max_steps, temperature=self.temperature)
        steps: dict[Group, list[Trajectory]] = {}
        for group, children in zip(rows, families, strict=False):
            steps.setdefault(group, []).extend(children)
        chosen: Counter[str] = Counter()
        for group, group_steps in steps.items():
            best = self._best(group_steps, group.width - group.ended, chosen)
            chosen.update(t.text.strip() for t in best)
            group.ended += sum(t.status != "active" for t in best)
            for t in group_steps:
                if t.status != "active" and t not in best:
                    search.finish(t, weight=0.0)
            group.beams = [t for t in best if t.status == "active"]
        search.keep([t for group in steps for t in group.beams])
        return [group for group in steps if group.beams]

    def _best(self, steps: Sequence[Trajectory], width: int, chosen: Counter[str]) -> list[Trajectory]:
        """Return the best different steps of a group, after the penalty for the steps of earlier groups."""
        different = list({(t.parent.node if t.parent else 0, t.text): t for t in reversed(steps)}.values())[::-1]
        return sorted(different, key=lambda t: -(path_logprob(t) - self.strength * chosen[t.text.strip()]))[:width]


def path_logprob(t: Trajectory) -> float:
    """Return the log-probability of all tokens that a model drew on a path."""
    return math.fsum(logprob for piece in t.path for logprob in piece.logprobs)
