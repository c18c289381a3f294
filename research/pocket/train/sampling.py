"""Texts of a policy: continuations of prompts by the hundred thousand, and whether they are right.

The engine draws them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from research.pocket.train.examples import Asked
from tts import tasks
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition
from tts.backends.engine import build
from tts.errors import ConfigError
from tts.models.registry import ModelRecord
from tts.randomness import hash64

MOST_TOKENS = 256  # of one continuation
_AT_ONCE = 64  # prompts that are continued together
_ROWS = 128
_CHUNK = 250


class Writer:
    """A policy that writes; a context manager.

    Args:
        folder: The folder of the policy.
        temperature: The temperature of its texts.
        seed: The seed of its texts.
        device: The device of the engine.
    """

    def __init__(self, folder: Path, *, temperature: float, seed: int, device: str) -> None:
        record = ModelRecord(name="policy", backend="engine", source="folder", location=str(folder))
        self._backend = build(record, device=device, max_rows=_ROWS)
        self._sampling = Sampling(temperature=temperature)
        self._seed = seed
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._backend.close())
        self._loop.close()

    def continue_prompts(self, prompts: Sequence[str], each: int) -> list[list[str]]:
        """Return `each` continuations of every prompt, to their end of sequence.

        They are a function of prompt and seed alone.
        """
        return self._loop.run(self._continue_all(prompts, each))

    async def _continue_all(self, prompts: Sequence[str], each: int) -> list[list[str]]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def continue_one(prompt: str) -> list[str]:
            async with gate:
                (opened,) = await self._backend.open([prompt])
                rows = tuple(
                    Row(hash64("rollout", self._seed, prompt, j), opened.computed, MOST_TOKENS) for j in range(each)
                )
                drawn = self._backend.sample(SampleRequest(opened.value, rows, self._sampling, StopCondition()))
                samples = [await drawn.row(j) for j in range(each)]
                self._backend.release(
                    [opened.value, *(sample.handle for sample in samples if sample.handle is not None)]
                )
                return [sample.text for sample in samples]

        return list(await asyncio.gather(*map(continue_one, prompts)))


def make_in_chunks(
    path: Path, total: int, make: Callable[[range], list[Any]], identity: Mapping[str, Any]
) -> list[Any]:
    """Return `total` items, which are kept in a file as they are made, a chunk a line.

    A run goes on where an earlier run stopped.

    Args:
        path: The file.
        total: The number of items.
        make: The function that returns the items of a range of numbers, as JSON can hold them.
        identity: What the items depend on besides their numbers; the file's first line.

    Raises:
        ConfigError: The file has items of another identity.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        path.write_text(json.dumps(dict(identity)) + "\n")
    items = read_items(path, **identity)
    began, before = time.perf_counter(), len(items)
    with path.open("a") as file:
        while len(items) < total:
            made = make(range(len(items), min(total, len(items) + _CHUNK)))
            file.write(json.dumps(made) + "\n")
            file.flush()
            items += made
            seconds = time.perf_counter() - began
            left = seconds / (len(items) - before) * (total - len(items))
            print(f"{path.stem}: {len(items)}/{total}, {seconds:.0f} s, {left:.0f} s left", file=sys.stderr, flush=True)
    return items[:total]


def read_items(path: Path, **identity: Any) -> list[Any]:
    """Return the items in the whole lines of a file; a line that was cut when a run was killed is removed.

    Args:
        path: The file.
        identity: What the file's first line must say, or a part of that.

    Raises:
        ConfigError: There is no such file, it cannot be read, or it has items of another identity.
    """
    try:
        lines = path.read_text().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
    except (OSError, ValueError) as failure:
        raise ConfigError(
            f"{path} cannot be read: {failure}", hint="run the stage that makes it first, or delete it"
        ) from failure
    found = whole[0] if whole else {}
    if any(name not in found or found[name] != value for name, value in identity.items()):
        raise ConfigError(f"{path} holds samples of another run: {found}", hint="choose another --out, or delete it")
    if len(whole) < len(lines):
        path.write_text("".join(lines[:-1]))
    return [item for line in whole[1:] for item in line]


def weights_checksum(folder: Path) -> str:
    """Return a checksum of the weights in a folder.

    Raises:
        ConfigError: The folder has no weights.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no model", hint=f"run the stage that makes {folder.name}/ first: see --help")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Marker:
    """Says whether solutions are right."""

    def __init__(self) -> None:
        self._tasks = {name: tasks.get(name) for name in ("pocket", "countdown")}

    def is_right(self, problem: Asked, solution: str) -> bool:
        """Return whether a solution ends in the right answer."""
        task = self._tasks[problem.task]
        found = task.extract(solution)
        return found is not None and bool(task.decide(found, problem.answer))
