"""What a policy writes: continuations of prompts by the hundred thousand, drawn by the engine, and whether they are right."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tts import tasks
from tts.backends.base import Backend, Row, SampleRequest, Sampling, Stop
from tts.backends.engine.build import build
from tts.models.pocket.train.examples import Asked
from tts.models.registry import ModelRecord
from tts.randomness import hash64

MOST_TOKENS = 256  # of one continuation
_AT_ONCE = 64  # prompts that are continued together
_ROWS = 128


def continued(folder: Path, prompts: Sequence[str], *, each: int, temperature: float, seed: int, device: str) -> list[list[str]]:
    """Return `each` continuations of every prompt, to their end of sequence: a function of prompt and seed, whatever else is drawn.

    Args:
        folder: of the policy. prompts: texts; a prompt given twice gets the same continuations twice.
    """
    backend = build(ModelRecord(name="policy", backend="engine", source="folder", location=str(folder)), device=device, max_rows=_ROWS)

    async def all_of_them() -> list[list[str]]:
        try:
            return await _continued(backend, prompts, each, Sampling(temperature=temperature), seed)
        finally:
            await backend.close()

    return asyncio.run(all_of_them())


async def _continued(backend: Backend, prompts: Sequence[str], each: int, sampling: Sampling, seed: int) -> list[list[str]]:
    gate, done, began = asyncio.Semaphore(_AT_ONCE), 0, time.perf_counter()

    async def one(prompt: str) -> list[str]:
        nonlocal done
        async with gate:
            (opened,) = await backend.open([prompt])
            rows = tuple(Row(hash64("rollout", seed, prompt, j), opened.computed, MOST_TOKENS) for j in range(each))
            drawn = backend.sample(SampleRequest(opened.value, rows, sampling, Stop()))
            samples = [await drawn.row(j) for j in range(each)]
            backend.release([opened.value, *(sample.handle for sample in samples if sample.handle is not None)])
            done += 1
            if done % 1000 == 0:
                seconds = time.perf_counter() - began
                left = seconds / done * (len(prompts) - done)
                print(f"{done}/{len(prompts)} prompts, {seconds:.0f} s, {left:.0f} s left", file=sys.stderr, flush=True)  # noqa: T201
            return [sample.text for sample in samples]

    return list(await asyncio.gather(*map(one, prompts)))


class Marker:
    """Says whether solutions are right."""

    def __init__(self) -> None:
        self._tasks = {name: tasks.get(name) for name in ("pocket", "countdown")}

    def right(self, problem: Asked, solution: str) -> bool:
        """Whether a solution ends in the right answer."""
        task = self._tasks[problem.task]
        found = task.extract(solution)
        return found is not None and bool(task.decide(found, problem.answer))
