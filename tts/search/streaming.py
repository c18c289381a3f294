"""A stream of candidates: each one as soon as it is there, while the rows after it are being written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tts.types import Candidate

Show = Callable[[Candidate], Awaitable[None]]


class CandidateStream:
    """The candidates of one request, handed over one by one.

    The request runs in a task. After each candidate it rests until the next one is asked for, while the model goes on
    writing. So what the books say between two candidates depends on no timing.

    Args:
        complete: Completes the request, and awaits its argument with each candidate.
    """

    def __init__(self, complete: Callable[[Show], Awaitable[object]]) -> None:
        self._complete = complete
        self._task: asyncio.Task[None] | None = None
        self._shown: asyncio.Future[Candidate | None] | None = None  # the next candidate; None: there is none
        self._asked: asyncio.Future[None] | None = None  # done when the next candidate is asked for

    async def next(self) -> Candidate | None:
        """Return the next candidate; None after the last.

        Raises:
            SearchEnded: The request has ended otherwise, such as by a stop rule.
        """
        if self._task is not None and self._task.done():
            return None
        self._shown = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        elif self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
        return await self._shown

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            await self._complete(self._show)
        except BaseException as error:  # noqa: BLE001 - raised where the next candidate is asked for
            failure = error
        if self._shown is not None and not self._shown.done():
            if failure is None:
                self._shown.set_result(None)
            elif isinstance(failure, asyncio.CancelledError):
                self._shown.cancel()
            else:
                self._shown.set_exception(failure)

    async def _show(self, candidate: Candidate) -> None:
        """Hand over a candidate, and rest until the next one is asked for."""
        self._asked = asyncio.get_running_loop().create_future()
        assert self._shown is not None, "a candidate was asked for"
        self._shown.set_result(candidate)
        await self._asked

    async def close(self) -> None:
        """Leave the request: its open rows are cancelled and charged."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([self._task])
