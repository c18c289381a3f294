"""What tests of the backend over HTTP share: one on a server, the toy's sums, and rows drawn from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import tts
from tests.backends.openai.server import ToyServer, serving
from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import Key
from tts.backends.openai.http import Timeouts
from tts.models.record import ModelRecord
from tts.randomness import child_stream
from tts.thoughts import ThoughtMarks

PROMPT = "3 + 4 - 2 + 9"
LONG = " + ".join("1" * 60)
WARM = Sampling(temperature=1.0)
_NOTHING: Mapping[str, Any] = {}
QUICK = Timeouts(wait_s=0.001)
FULL: dict[str, Any] = {
    "model": "toy", "mode": "tokens", "streams": True, "usage": True, "cached": True, "logprobs": True, "seeds": True,
    "stops": True, "filters": True,
}  # fmt: skip


def on(
    url: str,
    timeouts: Timeouts = QUICK,
    context: int | None = None,
    key: Key | None = None,
    thoughts: ThoughtMarks | None = None,
    **found: Any,
) -> OpenAIBackend:
    return OpenAIBackend(
        Capabilities(root=f"{url}/v1", **(FULL | found)), key=key, timeouts=timeouts, context=context, thoughts=thoughts
    )


def using(
    server: ToyServer, check: Callable[[OpenAIBackend], Awaitable[Any]], timeouts: Timeouts = QUICK, **found: Any
) -> Any:
    """Run a check on a backend of a server; afterwards no connection and no task may be left."""
    server.prompts = (*server.prompts, PROMPT, LONG)

    async def checked(url: str) -> Any:
        backend = on(url, timeouts, **found)
        try:
            return await check(backend)
        finally:
            await backend.close()
            await all_ended()

    with serving(server) as url:
        told = asyncio.run(checked(url))
        asyncio.run(until(lambda: server.open == 0))
    return told


def solution_at(
    url: str,
    strategy: str,
    budget: Any = 400,
    *,
    problem: str = "What is 2 + 2?",
    task: str = "math",
    record: Mapping[str, Any] = _NOTHING,
    **declared: Any,
) -> tts.Solution:
    """Solve by a server with declared capabilities.

    Args:
        url: The url of the server.
        strategy: The strategy.
        budget: The budget.
        problem: The problem.
        task: The task.
        record: Further fields of the model's record.
        declared: The capabilities; none: the server is probed.
    """
    known = tuple(declared.items()) if declared else None
    model = ModelRecord(name="toy", backend="openai", url=url, **({"capabilities": known} if known else {}), **record)
    with tts.Solver(model, task=task, strategy=strategy) as solver:
        return solver.solve(problem, budget)


async def all_ended() -> None:
    """Assert that no task is left; a generator of httpx that was left in the middle is closed in a task of its own."""
    for _ in range(400):
        if asyncio.all_tasks() == {asyncio.current_task()}:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"left: {asyncio.all_tasks()}")


async def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does; a test that waits in vain is cut off from outside."""
    while not true():
        await asyncio.sleep(0.002)


async def drawn(
    backend: OpenAIBackend,
    count: int,
    *,
    prompt: str = PROMPT,
    cap: int = 60,
    stop: StopCondition | None = None,
    sampling: Sampling = WARM,
) -> list[Sample]:
    rows = await asked(backend, count, prompt=prompt, cap=cap, stop=stop, sampling=sampling)
    return await samples_of(rows)


async def samples_of(rows: Any) -> list[Sample]:
    await rows.drain()
    return [sample for sample in rows.samples if sample is not None]


async def asked(
    backend: OpenAIBackend,
    count: int,
    *,
    prompt: str = PROMPT,
    cap: int = 60,
    stop: StopCondition | None = None,
    sampling: Sampling = WARM,
) -> Any:
    handle = (await backend.open([prompt]))[0].value
    rows = tuple(Row(child_stream(5, 0, j), 0, cap) for j in range(count))
    return backend.sample(SampleRequest(handle, rows, sampling, stop or StopCondition()))


async def capped(backend: OpenAIBackend, *caps: int) -> Any:
    """Ask for a row of each cap."""
    handle = (await backend.open([PROMPT]))[0].value
    rows = tuple(Row(j, 0, cap) for j, cap in enumerate(caps))
    return backend.sample(SampleRequest(handle, rows, WARM, StopCondition()))


def told_at(faults: Sequence[str]) -> Callable[[int, Any], str]:
    """Return what gives the first calls these faults, one each, and none to later ones."""
    return lambda number, _body: faults[number - 1] if number <= len(faults) else ""
