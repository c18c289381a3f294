"""A model and a verifier that take no time, so that only the search is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.backends.base import Backend, Caps, Reply, RowSet, Sample, SampleRequest
from tts.types import Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, StepScores, Verifier

HALF = StepScores(whole=0.5)


@dataclass(frozen=True)
class Instant(Verifier):
    """Gives every trajectory the score 0.5, and computes nothing."""

    name: str = "instant"
    range: tuple[float, float] = (0.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ()
    model: str = "policy"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        return [HALF] * len(trajectories)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 0


class InstantBackend(Backend):
    """Writes each row before `sample` returns: a whole solution, or a step where the row ends at a step.

    A path of steps never comes to an answer. Texts differ a little, as those of its_hub's model do, so that nothing is
    saved by removing copies. Each row must be granted at least nine tokens.
    """

    caps = Caps(steps="native", streams=True, usage=True)

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        return [Reply(prompt, self.count(prompt)) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        rows, handle = RowSet(request), request.handle
        for index, row in enumerate(request.rows):
            step = f"3 + 4 = {row.stream % 1000}\n"
            if request.stop.at_step:
                rows.resolve(index, Sample(step, (), (), "stop", handle, num_tokens=5))
            else:
                rows.resolve(index, Sample(f"{step}A: 7\n", (), (), "eos", handle, num_tokens=9))
        return rows
