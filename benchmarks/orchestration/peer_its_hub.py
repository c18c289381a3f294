"""its_hub's best-of-n and beam on a model that answers at once.

    python -m benchmarks.orchestration.peer_its_hub KIND PROBLEMS WARM ROUNDS SAMPLES BEAMS WIDTH LEVELS

The command runs in an environment with its_hub 1.2. After WARM searches, it times ROUNDS times PROBLEMS searches at
once. It prints microseconds of the processor a sample or an expanded step.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

from its_hub.api import AbstractLanguageModel, AbstractOutcomeRewardModel, AbstractProcessRewardModel
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.algorithms.bon import BestOfN
from its_hub.core.lms.step_generation import StepGeneration


class Instant(AbstractLanguageModel):
    """Answers at once, each time a little differently, so that nothing is saved by removing copies."""

    def __init__(self) -> None:
        self.made = 0

    async def agenerate(self, messages, stop=None, **options):
        if messages and isinstance(messages[0], list):
            return [await self.agenerate_single(one, stop, **options) for one in messages]
        return await self.agenerate_single(messages, stop, **options)

    async def agenerate_single(self, messages, stop=None, **options):
        self.made += 1
        return {"role": "assistant", "content": f"3 + 4 = {self.made}\nA: 7"}


class Outcome(AbstractOutcomeRewardModel):
    def score(self, messages, **options):
        return [0.5] * len(messages)

    async def ascore(self, messages, orchestrator=None, **options):
        return [0.5] * len(messages)


class Process(AbstractProcessRewardModel):
    def score(self, prompt_or_messages, steps):
        return [0.5] * len(steps)

    async def ascore(self, prompt_or_messages, steps):
        return [0.5] * len(steps)


def main() -> None:
    kind, (problems, warm, rounds, samples, beams, width, levels) = sys.argv[1], map(int, sys.argv[2:])
    if kind == "best_of_n":
        search, budget, units = BestOfN(Outcome()), samples, samples
    else:
        steps = StepGeneration(max_steps=levels - 1, step_token="\n")
        search, budget, units = BeamSearch(steps, Process(), beam_width=beams), beams * width, beams * width * levels

    async def run() -> float:
        model = Instant()
        for _ in range(warm):
            await search.ainfer(model, "3 + 4", budget)
        gc.collect()
        started = time.process_time()
        for _ in range(rounds):
            await asyncio.gather(*(search.ainfer(model, "3 + 4", budget) for _ in range(problems)))
        return (time.process_time() - started) / (rounds * problems * units) * 1e6

    sys.stdout.write(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
