"""Work beside models: functions of a strategy's own, and vectors of texts, both within the time and booked as "search"."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.background import in_thread
from tts.search.embedding import Embedder
from tts.search.spending import Spending
from tts.types import Usage

T = TypeVar("T")


class Work:
    """Does a search's own work.

    Args:
        embedder: for callers that name none. clock: seconds.
    """

    def __init__(self, embedder: Embedder, spending: Spending, clock: Callable[[], float]) -> None:
        self._embedder = embedder
        self._spending = spending
        self._clock = clock

    async def embed(self, texts: Sequence[str], embedder: Embedder | None) -> NDArray[np.float64]:
        """Return a unit vector of each text."""
        return await self._timed((embedder or self._embedder).embed(texts))

    async def run(self, fn: Callable[..., T], args: Sequence[Any]) -> T:
        """Run a function in a thread."""
        return await self._timed(in_thread(fn, *args))

    async def _timed(self, work: Awaitable[T]) -> T:
        """Await work within the time that is left.

        Raises:
            Exhausted: the time is over; a thread cannot be stopped, but nobody waits for it any more.
        """
        meter, started = self._spending.meter, self._clock()
        try:
            return await asyncio.wait_for(work, meter.seconds_left)
        except TimeoutError:
            meter.check_time()
            raise
        finally:
            seconds = self._clock() - started
            self._spending.book("search", "", 0, Usage(seconds=seconds, work_seconds=seconds))
