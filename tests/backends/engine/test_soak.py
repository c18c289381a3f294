"""Everything at once, at random, for a long time, in a pool that is too small: nothing is left, nothing grows, nothing
changes.

`TTS_SOAK_SECONDS` says how long (120 by default; 1800 is the long form).
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import checkpoint_of, tiny_model
from tests.backends.engine.process_models import weight_of
from tests.backends.engine.stepping import (
    BLOCK,
    TOKEN_BYTES,
    emptied,
    engine,
    parts,
    recount,
    rested,
    runners_of,
    text_of,
)
from tests.backends.rows import drained, opened, start
from tests.support.guard import LIMIT_S
from tts.backends.base import Row, StopCondition
from tts.backends.engine.heads import HeadReadout, StepTemplate, ValueHead
from tts.backends.engine.loading import EngineOptions, make_runner
from tts.backends.engine.reward import RewardModel
from tts.errors import EngineError, KVBudgetError, PromptTooLong

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("TTS_SOAK_SECONDS", "120"))
PROBLEMS, ROUND, GROWTH = 6, 12, 24 << 20  # bytes that may come after the warm-up, of which what is measured is noise
STOP = StopCondition(("z", "!", "e"), at_step=True)


def critic() -> RewardModel:
    """Return a process model with the policy's tokenizer and a small pool."""
    tokenizer = parts()[1]
    options = EngineOptions(device="cpu", threads=1, kv_budget=13 * BLOCK * TOKEN_BYTES, step_tokens=32)
    runner, renderer = make_runner(checkpoint_of(tiny_model(len(tokenizer), seed=9), tokenizer), options)
    template = StepTemplate(renderer.text, HeadReadout(ValueHead(weight_of(64))), step=STOP.step)
    return RewardModel(runner, template, renderer.prompt)


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Tally:
    """What happened so far."""

    def __init__(self) -> None:
        self.solved = self.cancelled = self.refused = self.left = 0


async def solve(backend: Any, rng: np.random.Generator, tally: Tally) -> None:
    """Search a problem at random: grow paths, read and score them, fork, release and cancel; sometimes leave in the
    middle.
    """
    (root,) = await opened(backend, text_of(int(rng.integers(1, 120)), int(rng.integers(0, 5))))
    alive = [root]
    for depth in range(int(rng.integers(1, 6))):
        above = alive[int(rng.integers(0, len(alive)))]
        rows = [
            Row(int(rng.integers(0, 1 << 40)), depth, int(rng.integers(1, 60))) for _ in range(int(rng.integers(1, 7)))
        ]
        asked = start(backend, above, *rows, stop=STOP if rng.random() < 0.5 else StopCondition())
        if rng.random() < 0.2:
            for _ in range(int(rng.integers(0, 30))):
                await asyncio.sleep(0)
            asked.cancel()
            tally.cancelled += 1
        alive += [sample.handle for sample in await drained(asked) if sample.handle is not None]
        try:
            alive += await one_more(backend, alive[-1], rng)
        except (KVBudgetError, PromptTooLong):  # of the process model, whose tokens are more and whose steps are nodes
            tally.refused += 1
        while len(alive) > 4:
            backend.release([alive.pop(int(rng.integers(0, len(alive))))])
        if rng.random() < 0.05:
            tally.left += 1
            return  # what is alive is for the collector
    backend.release(alive)
    tally.solved += 1


async def one_more(backend: Any, handle: Any, rng: np.random.Generator) -> list[Any]:
    """Ask for something else of a path; return the handles that came of it."""
    kind, text = int(rng.integers(0, 7)), text_of(int(rng.integers(1, 30)), int(rng.integers(0, 9)))
    if kind == 0:
        return [reply.value.handle for reply in await backend.extend([handle, handle], [text, "k"])]
    if kind == 1:
        await backend.score([handle], [text])
    elif kind == 2:
        await backend.next_logprobs([handle], [text], ["k", "z"])
    elif kind == 3:
        return backend.fork(handle, 2)
    elif kind == 4:
        await backend.value([handle], "truth")
    elif kind == 5:
        await backend.value([handle], "prm")
    else:
        await backend.hidden([handle])
    return []


async def rounds(backend: Any, until: float, tally: Tally, seeds: Iterator[int]) -> None:
    """Solve rounds of problems, some at a time, until it is time."""
    gate = asyncio.Semaphore(PROBLEMS)

    async def one(seed: int) -> None:
        async with gate:
            task = asyncio.ensure_future(solve(backend, np.random.default_rng(seed), tally))
            try:
                await asyncio.wait_for(task, LIMIT_S)
            except EngineError as failure:
                raise AssertionError(f"problem {seed} failed") from failure

    while time.monotonic() < until:
        await asyncio.gather(*(one(next(seeds)) for _ in range(ROUND)))
        await rested(backend)
        for runner in runners_of(backend):
            recount(runner)


async def same(backend: Any) -> list[Any]:
    """Return something that must always be the same."""
    (handle,) = await opened(backend, text_of(60, 1))
    samples = await drained(start(backend, handle, *(Row(stream, 0, 30) for stream in range(4))))
    [readings] = await backend.value([samples[0].handle], "truth")
    backend.release([handle, *(sample.handle for sample in samples)])
    return [[(sample.token_ids, sample.logprobs) for sample in samples], readings.value.tobytes()]


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="this system does not say how much memory a process holds"
)
def test_nothing_is_left_and_nothing_grows() -> None:
    backend = engine(
        24,
        step_tokens=48,
        max_rows=12,
        heads={"truth": ValueHead(weight_of(64), step=STOP.step)},
        reward_models={"prm": critic()},
    )
    tally, seeds = Tally(), iter(range(1 << 60))
    began = time.monotonic()

    async def for_a_while(until: float) -> list[Any]:
        await rounds(backend, until, tally, seeds)
        found = await same(backend)
        await emptied(backend)
        return found

    wanted = asyncio.run(for_a_while(began))  # one round
    asyncio.run(for_a_while(began + SECONDS / 4))
    gc.collect()
    warm, threads, levels = resident(), threading.active_count(), []
    for part in range(1, 7):  # each in an event loop of its own
        assert asyncio.run(for_a_while(began + SECONDS / 4 + SECONDS * 3 / 4 * part / 6)) == wanted
        gc.collect()
        levels.append((resident() - warm) / 2**20)
    stats, judged = backend.stats, backend.reward_models["prm"].runner.stats
    print(  # noqa: T201
        f"\n{tally.solved} problems, {tally.cancelled} requests cancelled, {tally.left} left, {tally.refused} refused; "
        f"{stats.steps} steps, {stats.decode_tokens} tokens drawn, {stats.recomputed} read again, {stats.parked} "
        "parked, "
        f"{stats.evictions} evictions; process model: {judged.steps} steps, {judged.recomputed} read again; "
        f"{warm / 2**20:.0f} MiB when warm, then {', '.join(f'{level:+.1f}' for level in levels)}; "
        f"{threads} threads, then {threading.active_count()}"
    )
    assert min(stats.recomputed, stats.parked, stats.evictions, tally.cancelled, judged.evictions) > 0, (
        "there was room for everything: the test saw nothing"
    )
    assert threading.active_count() <= threads + 1
    assert levels[-1] * 2**20 < GROWTH
    assert len(backend._states) == len(backend._prompts) == len(backend._service.gone) == 0
    assert len(backend.runner._kept_logits) <= 64
    asyncio.run(backend.close())
