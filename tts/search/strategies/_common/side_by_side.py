"""Waves of paths that go on side by side, each a step at a time.

Strategies that choose how each step is written share this code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from tts.checks import Count
from tts.search.ends import ROWS_FAILED, SearchEnded
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
        return [siblings[0] if siblings else None for siblings in children]

    async def waves(
        self, search: Search, step: Step, cost: int = 1, root: Trajectory | None = None
    ) -> Sequence[Candidate]:
        """Write solutions: one first, then all others side by side, or as many as the budget pays.

        Args:
            search: The search.
            step: The function that takes paths one step further; its result has None for a path whose rows failed.
            cost: The cost of a solution, as a multiple of a plain solution.
            root: The root of all solutions; None: the root of the "solve" prompt.

        Raises:
            SearchEnded: the budget is used up, or the rows of every path of a wave failed three times.
        """
        for _ in rounds(search, self.n):
            num_missing = _WIDTH if self.n is None else self.n - len(search.candidates)
            if num_missing <= 0:
                break
            affordable = search.affordable_samples(stepwise=True) if self.n is None else None  # None: no limit
            payable = num_missing if affordable is None else affordable // cost
            width = 1  # the first solution shows the length of later solutions
            if search.candidates:
                width = max(1, min(num_missing, _MOST, payable))
            await _wave(search, [root or search.root] * width, step)
        return search.candidates


async def _wave(search: Search, paths: list[Trajectory], step: Step) -> None:
    """Write some paths to their ends.

    Raises:
        SearchEnded: the rows of every path failed three times.
    """
    failures, num_candidates = [0] * len(paths), 0
    while paths:
        children = await step(paths)
        open_paths: list[Trajectory] = []
        open_failures: list[int] = []  # consecutive failures of each open path
        for path, child, earlier_failures in zip(paths, children, failures, strict=True):
            longer_path = path if child is None else child
            num_failures = earlier_failures + 1 if child is None else 0
            if search.finish(longer_path) is not None:
                num_candidates += 1
            if longer_path.status == "active" and num_failures < _TRIES:
                open_paths.append(longer_path)
                open_failures.append(num_failures)
        paths, failures = open_paths, open_failures
        last_steps = [path.path[-2:] for path in paths]  # another model may continue from the step before
        search.keep(list(chain.from_iterable(last_steps)))
    if not num_candidates:
        raise SearchEnded(ROWS_FAILED)


def step_logprob(t: Trajectory) -> float:
    """Return the mean log-probability of the tokens of a path's last step; 0 where none is known."""
    return sum(t.logprobs) / len(t.logprobs) if t.logprobs else 0.0
