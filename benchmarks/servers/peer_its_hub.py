"""its_hub's best-of-n and beam through a server; run in an environment with its_hub[lm] 1.2.

    python -m benchmarks.servers.peer_its_hub ROOT MODEL

In:  {"prompts": [text, ...], "n": 16, "kept": 4, "levels": 1, "tokens": 8}     a line of JSON a run
Out: {"ready": version}, then {"seconds": ...} a run; the server counts the tokens

Every limit of its own is lifted (`max_concurrency`), and its reward models answer at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

from its_hub.api import AbstractOutcomeRewardModel, AbstractProcessRewardModel
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.algorithms.bon import BestOfN
from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
from its_hub.core.lms.step_generation import StepGeneration
from its_hub.core.orchestrator import LMOrchestrator


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


def search(job: dict[str, Any]) -> Any:
    if job["levels"] == 1:
        return BestOfN(Outcome(), LMOrchestrator(max_concurrency=-1))
    steps = StepGeneration(max_steps=job["levels"] - 1, tokens_per_step=job["tokens"], temperature=1.0)
    return BeamSearch(steps, Process(), beam_width=job["kept"])


async def run(root: str, model: str, job: dict[str, Any]) -> float:
    started = time.perf_counter()
    lm = OpenAICompatibleLanguageModel(root, "none", model, max_completion_tokens=job["tokens"], temperature=1.0)
    async with lm:
        await asyncio.gather(*(search(job).ainfer(lm, prompt, job["n"]) for prompt in job["prompts"]))
    return time.perf_counter() - started


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    root, model = sys.argv[1:]
    sys.stdout.write(json.dumps({"ready": version("its_hub")}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps({"seconds": asyncio.run(run(root, model, json.loads(line)))}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
