"""Waves of paths that go on side by side, each a step at a time.

Strategies share this code that choose how each step is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tts.checks import Count
from tts.search.ends import SearchEnded
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import MAX_STEPS, one_step, rounds
from tts.types import Candidate, Trajectory

_TRIES = 3  # of a path whose rows fail
_WIDTH = 64  # of a wave that the budget does not bound, with n left out
_MOST = 1024  # of any wave

# Takes paths one step further; None: its rows failed.
Step = Callable[[Sequence[Trajectory]], Awaitable[list[Trajectory | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide(Strategy):
    """The parameters of such a strategy.

    Args:
        n: Solutions, at least 1; None: as many as the budget pays.
        temperature: The temperature of the model's law; None: the run's.
        max_steps: The most steps of a path, the last of which runs to the end of the solution.
    """

    n: Count | None = None
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Steps."""
        return Needs(capabilities=("steps",))

    async def write_step(
        self, search: Search, ts: Sequence[Trajectory], model: str = "policy"
    ) -> list[Trajectory | None]:
        """Return each path one step longer, by the model of a role.

        It is None where the path's row failed or could not start.
        """
        made = await one_step(search, ts, max_steps=self.max_steps, temperature=self.temperature, model=model)
        return [next(iter(of), None) for of in made]

    async def waves(
        self, search: Search, step: Step, cost: int = 1, root: Trajectory | None = None
    ) -> Sequence[Candidate]:
        """Write solutions: one first, then as many side by side as are wanted, or as the budget pays.

        Args:
            search: The search.
            step: The call that moves paths on by one step each; None for a path that ended.
            cost: The cost of a solution, in plain ones.
            root: The root of them all; None: that of the "solve" prompt.

        Raises:
            SearchEnded: the budget is used up, or the rows of every path of a wave failed three times.
        """
        for _ in rounds(search, self.n):
            missing = _WIDTH if self.n is None else self.n - len(search.candidates)
            if missing <= 0:
                break
            paid = search.affordable_samples(stepwise=True) if self.n is None else None
            width = (
                1 if not search.candidates else max(1, min(missing, _MOST, missing if paid is None else paid // cost))
            )
            await _wave(search, [root or search.root] * width, step)
        return search.candidates


async def _wave(search: Search, going: list[Trajectory], step: Step) -> None:
    """Write some paths to their ends."""
    failures, ended = [0] * len(going), 0
    while going:
        made = await step(going)
        failures = [0 if one is not None else count + 1 for one, count in zip(made, failures, strict=True)]
        after = [t if one is None else one for one, t in zip(made, going, strict=True)]
        for t in after:
            ended += search.finish(t) is not None
        left = [i for i, t in enumerate(after) if t.status == "active" and failures[i] < _TRIES]
        going, failures = [after[i] for i in left], [failures[i] for i in left]
        search.keep([node for t in going for node in t.path[-2:]])  # another model may read on from the step before
    if not ended:
        raise SearchEnded("every row failed")


def step_logprob(t: Trajectory) -> float:
    """Return the mean log-probability of the tokens of a path's last piece; 0 where there is none."""
    return sum(t.logprobs) / len(t.logprobs) if t.logprobs else 0.0
