"""Waves of paths that go on side by side, each a step at a time.

Strategies that choose how each step is written share this code.
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

_TRIES = 3  # consecutive failures that end a path
_WIDTH = 64  # paths of a wave that neither n nor the budget bounds
_MOST = 1024  # paths of any wave

# Takes paths one step further. The result has None for a path whose rows failed.
Step = Callable[[Sequence[Trajectory]], Awaitable[list[Trajectory | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide(Strategy):
    """The parameters of a strategy whose paths go on side by side.

    Args:
        n: The solutions, at least 1; None: as many as the budget pays.
        temperature: The temperature of the model's law; None: the run's.
        max_steps: The most steps of a path, the last of which runs to the end of the solution.
    """

    n: Count | None = None
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps."""
        return Needs(capabilities=("steps",))

    async def write_step(
        self, search: Search, ts: Sequence[Trajectory], model: str = "policy"
    ) -> list[Trajectory | None]:
        """Return each path one step longer, by a role's model; None where no row began or the row failed."""
        children = await one_step(search, ts, max_steps=self.max_steps, temperature=self.temperature, model=model)
        return [next(iter(siblings), None) for siblings in children]

    async def waves(
        self, search: Search, step: Step, cost: int = 1, root: Trajectory | None = None
    ) -> Sequence[Candidate]:
        """Write solutions: one first, then as many side by side as are wanted, or as the budget pays.

        Args:
            search: The search.
            step: The function that takes paths one step further; its result has None for a path whose rows failed.
            cost: The cost of a solution, as a multiple of a plain solution.
            root: The root of all solutions; None: that of the "solve" prompt.

        Raises:
            SearchEnded: the budget is used up, or the rows of every path of a wave failed three times.
        """
        for _ in rounds(search, self.n):
            missing = _WIDTH if self.n is None else self.n - len(search.candidates)
            if missing <= 0:
                break
            paid = search.affordable_samples(stepwise=True) if self.n is None else None
            payable = missing if paid is None else paid // cost
            width = max(1, min(missing, _MOST, payable)) if search.candidates else 1
            await _wave(search, [root or search.root] * width, step)
        return search.candidates


async def _wave(search: Search, live: list[Trajectory], step: Step) -> None:
    """Write some paths to their ends."""
    failures, ended = [0] * len(live), 0
    while live:
        children = await step(live)
        failures = [0 if child is not None else count + 1 for child, count in zip(children, failures, strict=True)]
        paths = [t if child is None else child for child, t in zip(children, live, strict=True)]
        for t in paths:
            ended += search.finish(t) is not None
        places = [i for i, t in enumerate(paths) if t.status == "active" and failures[i] < _TRIES]
        live, failures = [paths[i] for i in places], [failures[i] for i in places]
        search.keep([node for t in live for node in t.path[-2:]])  # another model may continue from the step before
    if not ended:
        raise SearchEnded("every row failed")


def step_logprob(t: Trajectory) -> float:
    """Return the mean log-probability of the tokens of a path's last piece; 0 where none is known."""
    return sum(t.logprobs) / len(t.logprobs) if t.logprobs else 0.0
