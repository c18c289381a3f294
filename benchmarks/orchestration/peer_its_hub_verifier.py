"""The tokens that its_hub's beam search has its process model read, for each token that is written.

    python -m benchmarks.orchestration.peer_its_hub_verifier FILE BEAMS

The command runs in an environment with its_hub 1.2, and prints the ratio. FILE has the tokens of a prompt, and of steps
by depth, as our own beam search wrote them. A step here is as long as one of those. A character is a token. The process
model reads whatever it is handed, which is at each step the whole text of an answer so far.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
from its_hub.api import AbstractLanguageModel, AbstractProcessRewardModel
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.lms.step_generation import StepGeneration

KEPT = 4  # beams that go on from each level


class Writer(AbstractLanguageModel):
    """Writes steps of the given lengths; the newline that its_hub puts behind each is one of their tokens."""

    def __init__(self, lengths: list[list[int]]) -> None:
        self.lengths, self.written = lengths, 0
        self.rng = np.random.default_rng(0)

    async def agenerate(self, messages, stop=None, **options):
        if messages and isinstance(messages[0], list):
            return [await self.agenerate_single(one, stop, **options) for one in messages]
        return await self.agenerate_single(messages, stop, **options)

    async def agenerate_single(self, messages, stop=None, **options):
        last = messages[-1]
        depth = last.content.count("\n") if last.role == "assistant" and last.content else 0
        length = int(self.rng.choice(self.lengths[min(depth, len(self.lengths) - 1)]))
        self.written += length
        return {"role": "assistant", "content": "t" * max(1, length - 1)}


class Reader(AbstractProcessRewardModel):
    """Counts what it is handed, the prompt each time too."""

    def __init__(self, prompt: int) -> None:
        self.prompt, self.read = prompt, 0

    def score(self, prompt_or_messages, steps):
        self.read += sum(self.prompt + len(step) + 1 for step in steps)
        return [0.5] * len(steps)

    async def ascore(self, prompt_or_messages, steps):
        return self.score(prompt_or_messages, steps)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    writer, reader = Writer(given["steps"]), Reader(given["prompt"])
    search = BeamSearch(StepGeneration(max_steps=len(given["steps"]) - 1, step_token="\n"), reader, beam_width=KEPT)
    asyncio.run(search.ainfer(writer, "a problem", int(sys.argv[2])))
    sys.stdout.write(str((reader.read - given["prompt"]) / writer.written))


if __name__ == "__main__":
    main()
