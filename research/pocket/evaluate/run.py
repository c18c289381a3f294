"""The whole evaluation in order: sets, pools, tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from research.pocket.evaluate.accuracy import accuracy_tables, drawn_table
from research.pocket.evaluate.drawing import Drawing, Plan
from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.pools import Pool
from research.pocket.evaluate.problems import MAIN, Item, Sets
from research.pocket.evaluate.tables import Table
from research.pocket.evaluate.verifying import solution_table
from tts.backends.base import Backend
from tts.errors import ConfigError

if TYPE_CHECKING:
    from tts.backends.engine import EngineBackend

VERIFIERS: Final = ("process", "probe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is drawn.

    Args:
        problems: The number of problems of each main difficulty.
        samples: The number of samples of each problem.
        deep: The number of problems of a main difficulty that get `deep_samples` instead.
        deep_samples: The number of samples of these.
        others: The number of problems of each other difficulty.
        max_tokens: The most tokens of a sample.

    Raises:
        ConfigError: A number is below what it must be.
    """

    problems: int = 50
    samples: int = 16
    deep: int = 16
    deep_samples: int = 64
    others: int = 20
    max_tokens: int = 256

    def __post_init__(self) -> None:
        least = {
            "problems": 1,
            "samples": 1,
            "deep_samples": self.samples,
            "others": 0,
            "max_tokens": 1,
        }
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < least.get(name, 0):
                raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least {least.get(name, 0)}")


FULL: Final = Sizes()
QUICK: Final = Sizes(problems=8, samples=16, deep=0, others=4)


@dataclass(frozen=True, slots=True)
class Pools:
    """All pools of an evaluation."""

    main: Sequence[Pool]
    others: Sequence[Pool]


def verifiers_of(backend: EngineBackend) -> tuple[str, ...]:
    """Return which of the pair's verifiers a backend serves."""
    return tuple(name for name in VERIFIERS if name in (backend.metadata.value_heads or ()))


def draw_pools(
    backend: Backend,
    sets: Sets,
    sizes: Sizes,
    *,
    verifiers: Sequence[str] = VERIFIERS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Pools:
    """Draw the pools that the tables are made of.

    The call blocks, so it must be made outside of an event loop.

    Args:
        backend: The backend.
        sets: The problems.
        sizes: How much is drawn.
        verifiers: The value heads that read the samples.
        seed: The seed of the samples.
        progress: The function that is told how many problems are done, and of how many; None: no function.

    Raises:
        EngineError: The backend failed.
    """
    work = [
        *_main(sets.main, sizes),
        *((item, Plan(samples=sizes.samples, greedy=True, read=sizes.samples)) for item in sets.others),
    ]
    count = 0

    def count_pool() -> None:
        nonlocal count
        count += 1
        if progress is not None:
            progress(count, len(work))

    drawing = Drawing(
        backend=backend, verifiers=tuple(verifiers), seed=seed, max_tokens=sizes.max_tokens, done=count_pool
    )

    async def draw_all() -> list[Pool]:
        try:
            return await drawing.pools(work)
        finally:
            await backend.close()

    pools = asyncio.run(draw_all())
    main = len(sets.main)
    return Pools(pools[:main], pools[main:])


def all_tables(pools: Pools, seed: int = 0) -> list[Table]:
    """Return every table that the pools have data for.

    Args:
        pools: The pools.
        seed: The seed of the resamples.
    """
    intervals = Intervals(seed)
    return [
        *accuracy_tables(pools.main, pools.others, intervals),
        solution_table(pools.main, intervals),
        drawn_table({"main": pools.main, "other kinds": pools.others}),
    ]


def _main(items: Sequence[Item], sizes: Sizes) -> list[tuple[Item, Plan]]:
    """Return the plan of each main problem: the first `deep` of a difficulty get more samples."""
    each = len(items) // len(MAIN)
    return [
        (
            item,
            Plan(
                samples=sizes.deep_samples if i % each < sizes.deep else sizes.samples,
                greedy=True,
                read=sizes.samples,
            ),
        )
        for i, item in enumerate(items)
    ]
