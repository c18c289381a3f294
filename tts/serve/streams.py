"""A chat completion as a stream: progress as reasoning, then the answer as content, the usage, and `[DONE]`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from starlette.types import Receive, Scope, Send

from tts.serve.failures import api_error
from tts.serve.gateway import Gateway
from tts.serve.replies import AnswerChoice, choices_of, heading, report_of, usage_of
from tts.serve.searches import RunningSearch
from tts.serve.server_events import PING, EventsReply, event, leaving
from tts.solver.problem_run import Event

_KIND = "chat.completion.chunk"
_OPENING: Mapping[str, Any] = {"role": "assistant", "content": ""}  # the first delta of each choice
_PROGRESS_S = 0.25  # between two lines of progress
_HEADERS_S = 1.0  # after which a stream begins even if its search has not


class ChatStream(EventsReply):
    """The response to a streamed request; the search is cancelled when its client leaves.

    Args:
        usage: whether the last chunk has the usage.
    """

    def __init__(self, gateway: Gateway, search: RunningSearch, *, usage: bool) -> None:
        super().__init__(search.number, usage=usage)
        self._gateway, self._search = gateway, search

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream.

        Raises:
            Exception: what the search failed with before the stream began.
        """
        del scope
        search = self._search
        with self._gateway.attached(search), search.followed():
            async with leaving(receive, search.wake) as gone:
                await _begun(search)
                if search.over:
                    search.result()
                await self.write(send, self._chunks(gone), gone)

    async def _chunks(self, gone: asyncio.Event) -> AsyncGenerator[bytes]:
        search = self._search
        unsent = self._chunk(_OPENING)  # with what follows at once: each part that is sent costs processor time
        if search.event is None and not search.over:
            yield unsent
            unsent = b""
        async for line in self._progress(gone):
            yield unsent + line
            unsent = b""
        if not gone.is_set():
            yield unsent + b"".join(self._last())

    def _last(self) -> list[bytes]:
        """Return the answers, the usage and the end of the stream; or the error that ends it."""
        search = self._search
        try:
            solution = search.result()
        except Exception as failure:  # noqa: BLE001 - sent in the stream
            return [event(api_error(failure).body())]
        choices, chunks = choices_of(search, solution), list[bytes]()
        for place, choice in enumerate(choices):
            chunks += [self._chunk(delta, place) for delta in [*([_OPENING] if place else []), *_deltas(choice)]]
            last = {"tts": report_of(search, solution, choices)} if place == len(choices) - 1 else {}
            chunks.append(self._chunk({}, place, choice.finish, **last))
        return [*chunks, self.ending(heading(search, _KIND), usage_of(solution, choices))]

    async def _progress(self, gone: asyncio.Event) -> AsyncIterator[bytes]:
        """Yield a line of reasoning at the first event and then from time to time, and pings where nothing happens."""
        search, loop = self._search, asyncio.get_running_loop()
        told: Event | None = None
        next_s = 0.0
        while not gone.is_set():
            signal, wait_s = search.signal, self._gateway.config.ping_s
            event = None if search.event is told else search.event
            if event is not None and (wait_s := next_s - loop.time()) <= 0:
                told, next_s = event, loop.time() + _PROGRESS_S
                yield self._chunk({"reasoning_content": _progress_line(event, search)})
                continue
            if search.over:
                return
            try:
                async with asyncio.timeout(wait_s):
                    await signal.wait()
            except TimeoutError:
                if event is None:
                    yield PING

    def _chunk(self, delta: Mapping[str, Any], place: int = 0, finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": place, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self.chunk(heading(self._search, _KIND), choice, **more)


def _deltas(choice: AnswerChoice) -> list[dict[str, Any]]:
    """Return a message in the parts of a stream."""
    message = choice.message
    deltas = [{name: message[name]} for name in ("reasoning_content", "content", "refusal") if message.get(name) is not None]
    calls = message.get("tool_calls")
    return [*deltas, *([{"tool_calls": [{"index": place, **call} for place, call in enumerate(calls)]}] if calls else [])]


def _progress_line(event: Event, search: RunningSearch) -> str:
    leading = "" if event.answer is None else f", leading answer {event.answer[:80]!r}"
    limit = int(search.order.budget.limits["tokens"])
    return f"{event.candidates} candidates{leading}, {event.tokens:,} of {limit:,} tokens\n"


async def _begun(search: RunningSearch) -> None:
    """Wait for the first progress or the end of a search, at most `_HEADERS_S`."""
    signal = search.signal
    if not search.over and search.event is None:
        with suppress(TimeoutError):
            await asyncio.wait_for(signal.wait(), _HEADERS_S)
