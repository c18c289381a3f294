"""Parallel-Probe: branches side by side that are asked for their answers again and again.

The branches end together once these answers agree.

    every period: each live branch goes on by some tokens ; an answer is forced after a copy of it (the probe)
        m = the most frequent answer of the branches that are not pruned
        after the warm-up: prune a branch whose answer differed from m in so many periods in a row, while m has enough
        of the vote after the warm-up: stop where m was the same in so many periods in a row

Source: Zheng et al., "Parallel-Probe: Towards Efficient Parallel Thinking via 2D Probing", read in the authors' code:
64 branches, 10 periods of warm-up, stop after 18 equal majorities, prune after 3 differing answers while the majority
has half of the vote, at least 3 branches. Periods of 500 tokens are ours: the code reads recorded probes. Differs:
- A branch that ended votes with its own answer. Pruned branches do not vote.
- A probe without an answer does not vote, and differs from every majority.
- Answers are equal by the task's canonical form. Of equal counts the answer of the first branch is the majority; at the
  end the vote takes the one that was seen first.
- A thought is ended before it is probed. A branch that responds already is not probed; it keeps its last answer until
  it ends.
- After a probe a branch goes on as a further child of its path: with draws of its own, for one sample.
- Where the budget ends the search, the last probes vote. A budget that pays one sample alone pays a plain one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, repeat

from tts._core.threads import call_or_postpone
from tts.checks import Count, Natural, Proportion, Text
from tts.errors import ConfigError
from tts.search.ends import END, Tokens
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import advance, affordable_width, draw, rounds
from tts.tasks.base import Task
from tts.types import Candidate, Trajectory

_ENDLESS = 1 << 30  # the most pieces of a branch
_MOST = 1024  # the most branches where the budget decides


@dataclass(slots=True)
class Branch:
    """One branch of the search.

    Attributes:
        path: The path of the branch.
        probe: The last probe, a path that forces an answer; None: none.
        answer: The last answer, in canonical form.
        differing: The number of consecutive answers that differed from the majority.
        is_pruned: Whether the branch was pruned.
    """

    path: Trajectory
    probe: Trajectory | None = None
    answer: str | None = None
    differing: int = 0
    is_pruned: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether the branch has a row of its own. A row that failed or could not start is asked for again."""
        return self.path.depth > 0

    @property
    def is_live(self) -> bool:
        """Whether the branch goes on."""
        return self.path.status == "active" and not self.is_pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelProbe(Strategy):
    """Branches side by side, probed together.

    Args:
        n: The branches, at least 1 (64 in the paper's code); None: as many as the budget pays with their probes, again
            and again.
        every: The tokens between probes, at least 1.
        stable: The consecutive equal majorities that end the search, at least 1.
        warmup: The first periods, in which nothing is pruned or ended, at least 0. Period 1 always belongs to them.
        differing: The consecutive answers unlike the majority that prune a branch, at least 1.
        share: The share of the vote that the majority needs to prune, from 0 to 1.
        least: The number of branches that always remain, at least 1.
        cue: The text that is forced after a branch to get its answer; None: the task's (`Task.answer_cue`).
        tokens: The most tokens of a probe's answer, at least 1.
        temperature: The temperature of the branches; None: the run's.

    Cost: the tokens of n solutions until they agree, and for each live branch and period a probe: the cue, read, and at
    most `tokens`,
        written. In samples two for each live branch and period.

    Example:
        >>> import tts
        >>> plan = "parallel_probe(n=6, every=6, stable=2, warmup=1, tokens=1)"
        >>> found = tts.solve("3 + 4 - 2 + 9", 600, model="toy", strategy=plan)
        >>> found.answer, found.usage.samples
        ('14', 24)
    """

    registered_as = "parallel_probe"
    always_votes = True
    n: Count | None = None
    every: Count = 500
    stable: Count = 18
    warmup: Natural = 10
    differing: Count = 3
    share: Proportion = 0.5
    least: Count = 3
    cue: Text | None = None
    tokens: Count = 16
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: rows that are cut and continued, and an answer cue after them."""
        return Needs(capabilities=("steps", "extend"), task=self._check_task)

    def _check_task(self, task: Task) -> None:
        """Raise ConfigError if neither the task nor the caller gives an answer cue."""
        if not (self.cue or task.answer_cue):
            raise ConfigError(
                f"cue is not given, and the task {task.name!r} has no answer_cue",
                hint="give cue=, such as 'The answer is '",
            )

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write branches until they agree; if n is None, again until the budget is used up."""
        for _ in rounds(search, None if self.n is None else 1):
            if search.affordable_samples(stepwise=False) == 1:  # a branch and its probe take two
                await draw(search, [search.root], self.temperature)
                continue
            width = self.n or max(1, min(_MOST, await affordable_width(search, self.temperature, stepwise=False) // 2))
            branches: list[Branch] = []
            try:
                await self._write(search, branches, width)
            finally:
                for branch in branches:
                    if branch.is_live and branch.probe is not None:
                        search.finish(branch.probe)
            search.drop([branch.path for branch in branches if branch.has_begun])
        return search.candidates

    async def _lengthen(self, search: Search, paths: Iterable[Trajectory]) -> list[list[Trajectory]]:
        """Return the children of each path after one period."""
        return await advance(search, paths, max_steps=_ENDLESS, temperature=self.temperature, until=Tokens(self.every))

    async def _write(self, search: Search, branches: list[Branch], width: int) -> None:
        """Open at most `width` branches, and lengthen them until all have ended or their majority is stable."""
        last_leader: str | None = None
        num_equal = 0  # consecutive periods with the same majority
        families = await self._lengthen(search, repeat(search.root, width))
        branches += [Branch(search.root) for _ in families]
        live = list(branches)
        for period in count(1):
            for branch, children in zip(live, families, strict=False):
                branch.path = next(iter(children), branch.path)
            await self._probe(search, [branch for branch in live if branch.has_begun])
            votes = Counter(branch.answer for branch in branches if branch.answer is not None and not branch.is_pruned)
            leader, num_votes = votes.most_common(1)[0] if votes else (None, 0)
            num_equal = num_equal + 1 if leader is not None and leader == last_leader else 1
            last_leader = leader
            if period > max(1, self.warmup) and leader is not None:
                if num_votes >= self.share * sum(not branch.is_pruned for branch in branches):
                    self._prune(search, branches, leader)
                if num_equal >= self.stable:
                    return
            live = [branch for branch in branches if branch.is_live]
            if not live:
                return
            families = await self._lengthen(search, [branch.path for branch in live])

    async def _probe(self, search: Search, live: Sequence[Branch]) -> None:
        """Read the answers of ended branches, and force answers of branches that do not respond yet."""
        for branch in live:
            if branch.path.status != "active":
                branch.probe, branch.answer = None, await self._answer(search, branch.path)
        active = [branch for branch in live if branch.path.status == "active"]
        for thinking in (True, False):
            chosen = [
                branch
                for branch in active
                if branch.path.is_thinking is thinking and (thinking or not branch.path.thought)
            ]
            if not chosen:
                continue
            cue = self.cue or search.task.answer_cue
            forced = await search.extend(
                [branch.path for branch in chosen], chosen[0].path.marks.close + cue if thinking else cue
            )
            families = await search.expand(forced, 1, END, temperature=0.0, max_tokens=self.tokens)
            search.drop([branch.probe for branch in chosen if branch.probe is not None])
            for branch, probes in zip(chosen, families, strict=True):
                branch.probe = next((t for t in probes if t.status != "active"), None)
                branch.answer = None if branch.probe is None else await self._answer(search, branch.probe)
            search.drop([t for t, probes in zip(forced, families, strict=True) if not probes])

    async def _answer(self, search: Search, t: Trajectory) -> str | None:
        answer = await call_or_postpone(search.task.extract, t.response)
        return None if answer is None else search.task.canonical(answer)

    def _prune(self, search: Search, branches: Sequence[Branch], leader: str) -> None:
        """Count the answers that differ from the majority, and prune branches that differ too often."""
        for branch in branches:
            if branch.is_live and branch.has_begun:
                branch.differing = branch.differing + 1 if branch.answer != leader else 0
        for branch in branches:
            if (
                branch.is_live
                and branch.differing >= self.differing
                and sum(not other.is_pruned for other in branches) > self.least
            ):
                branch.is_pruned = True
                search.drop([branch.path, *([] if branch.probe is None else [branch.probe])])
