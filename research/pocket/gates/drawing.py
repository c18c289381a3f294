"""Samples of problems with log-probabilities and readings, and readings of steps of countdowns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from research.pocket.evaluate.problems import Cell, Item, draw_item
from research.pocket.train.reach import apply_step, is_reachable, legal_steps
from tts import tasks
from tts.backends.base import Backend, Row, SampleRequest, Sampling, StopCondition
from tts.errors import EngineError
from tts.randomness import child_stream, generator, problem_key, root_stream
from tts.tasks.arithmetic.countdown import CountdownProblem
from tts.tasks.arithmetic.generator import Split

TEMPERATURE = 0.8
FRESH_SEED = 20_270_101  # of the problems: another than that of the card's sets
_MOST_TOKENS = 256
_AT_ONCE = 32  # problems in flight


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sample.

    Args:
        right: Whether its answer is right.
        reading: The reading of the process model after its last line.
        logprob: The sum of the log-probabilities of its tokens.
    """

    right: bool
    reading: float
    logprob: float


@dataclass(frozen=True, slots=True)
class Pool:
    """A problem and its samples, in the order of their streams."""

    item: Item
    samples: tuple[Sampled, ...]


@dataclass(frozen=True, slots=True)
class StepRead:
    """A right next step of a state.

    Args:
        state: The number of the state.
        problem: The number of the problem.
        depth: The number of steps before it.
        reading: The reading of the process model.
        leads: Whether the target can still be reached after the step.
    """

    state: int
    problem: int
    depth: int
    reading: float
    leads: bool


def draw_problems(cell: Cell, split: Split, number: int) -> list[Item]:
    """Return the first problems of a cell's fresh series."""
    return [draw_item(cell, split, FRESH_SEED, i) for i in range(number)]


def draw_pools(
    backend: Backend, items: Sequence[Item], samples: int, seed: int = 0, head: str = "process"
) -> list[Pool]:
    """Return samples of every problem, read by a process model.

    Args:
        backend: The backend.
        items: The problems.
        samples: The number of samples of each.
        seed: The seed of the samples.
        head: The value head of the process model.

    Raises:
        EngineError: The backend failed.
    """

    async def draw_all() -> list[Pool]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def draw_one(item: Item) -> Pool:
            async with gate:
                return await _pool(backend, item, samples, seed, head)

        return list(await asyncio.gather(*map(draw_one, items)))

    return asyncio.run(draw_all())


async def _pool(backend: Backend, item: Item, count: int, seed: int, head: str) -> Pool:
    task = tasks.get(item.problem.task or "pocket")
    (opened,) = await backend.open([task.prompt(item.problem)])
    stream = root_stream(seed, problem_key(item.problem, task.name), "solve")
    rows = tuple(Row(child_stream(stream, 0, j), 0, _MOST_TOKENS) for j in range(count))
    stop = StopCondition(step=task.step_stop, finished=task.is_finished)
    drawn = backend.sample(SampleRequest(opened.value, rows, Sampling(temperature=TEMPERATURE), stop))
    samples = [await drawn.row(j) for j in range(count)]
    if any(sample.handle is None for sample in samples):
        raise EngineError(f"a sample of problem {item.problem.id} failed")
    read = await backend.value([sample.handle for sample in samples], head)
    backend.release([opened.value, *(sample.handle for sample in samples)])
    sampled: list[Sampled] = []
    for sample, reply in zip(samples, read, strict=True):
        answer = task.extract(sample.text) if sample.finish in ("answer", "eos") else None
        right = answer is not None and task.equivalent(answer, item.problem.answer or "")
        sampled.append(Sampled(right, float(reply.value[-1]), float(sum(sample.logprobs))))
    return Pool(item, tuple(sampled))


def read_steps(backend: Backend, items: Sequence[Item], seed: int = 0, head: str = "process") -> list[StepRead]:
    """Return the readings of all right steps of two states of each countdown.

    The states are its start, and one state after it that can still be solved. Steps with a negative result are left
    out:
    the policy hardly ever writes them.
    """

    async def read_all() -> list[StepRead]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read_one(number: int, item: Item) -> list[StepRead]:
            async with gate:
                return await _states(backend, number, item, seed, head)

        found = await asyncio.gather(*(read_one(i, item) for i, item in enumerate(items)))
        return [step for of in found for step in of]

    return asyncio.run(read_all())


async def _states(backend: Backend, number: int, item: Item, seed: int, head: str) -> list[StepRead]:
    parsed = item.asked
    assert isinstance(parsed, CountdownProblem), "only countdowns have states"
    task, rng = tasks.get("countdown"), generator(seed, 0, "gate states", number)
    (opened,) = await backend.open([task.prompt(item.problem)])
    steps_read: list[StepRead] = []
    numbers, prefix = tuple(sorted(parsed.numbers)), ""
    for depth in range(2):
        steps = [step for step in legal_steps(numbers) if step.result >= 0]
        rests = [apply_step(numbers, step) or () for step in steps]
        leads = [is_reachable(rest, parsed.target) for rest in rests]
        texts = [f"{prefix}{step}\n" for step in steps]
        readings = await _read(backend, opened.value, texts, head)
        steps_read += [
            StepRead(2 * number + depth, number, depth, r, good) for r, good in zip(readings, leads, strict=True)
        ]
        good = [i for i, one in enumerate(leads) if one]
        if not good:
            break
        chosen = good[int(rng.integers(len(good)))]
        numbers, prefix = rests[chosen], texts[chosen]
    backend.release([opened.value])
    return steps_read


async def _read(backend: Backend, handle: Any, texts: Sequence[str], head: str) -> list[float]:
    replies = await backend.extend([handle] * len(texts), texts)
    handles = [reply.value.handle for reply in replies]
    readings = [float(reply.value[-1]) for reply in await backend.value(handles, head)]
    backend.release(handles)
    return readings
