"""The reply to a request for a search, whole or as a stream, whichever API it came by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tts.serve.failures import ApiError, JsonReply, api_error
from tts.serve.gateway import Gateway
from tts.serve.replies import head_of, outcome_of
from tts.serve.searches import RunningSearch
from tts.serve.server_events import EventsReply, leaving
from tts.serve.wire.request import AnswerChoice, Frames, Wire
from tts.solver.problem_run import Event

_PROGRESS_S = 0.25  # between two lines of progress
_HEADERS_S = 1.0  # after which a stream begins even if its search has not


async def whole_reply(
    gateway: Gateway, search: RunningSearch, wire: Wire, receive: Receive, *, linger: bool
) -> Response:
    """Wait for the end of a search, and return its reply.

    Args:
        gateway: The gateway.
        search: The search.
        wire: The API.
        receive: The function that receives the request's messages; the last says that the client has left.
        linger: Whether the search goes on for a moment after the client has left.

    Raises:
        ClientDisconnect: the client has left. Exception: what the search failed with.
    """
    with gateway.attach(search, linger=linger):
        async with leaving(receive, search.wake) as gone:
            while not search.over and not gone.is_set():
                await search.signal.wait()
    if not search.over:
        raise ClientDisconnect
    outcome = outcome_of(search, search.result())
    return JsonReply(wire.reply(head_of(search), outcome), headers=bill_headers(gateway, search))


def bill_headers(gateway: Gateway, search: RunningSearch) -> dict[str, str]:
    """Return the headers of a whole reply.

    The headers have the request's number, what the search spent, and what its key may still spend.
    """
    usage = search.result().usage
    usd = {} if usage.usd is None else {"x-tts-usd": f"{usage.usd:.12g}"}
    spent = {"x-tts-tokens": str(usage.tokens), "x-tts-seconds": str(usage.seconds), **usd}
    return {
        "x-request-id": search.number,
        **spent,
        **gateway.limit_headers(search.client, search.order.request.options.account),
    }


class SearchStream(EventsReply):
    """The response to a streamed request; the search is cancelled when its client leaves."""

    def __init__(self, gateway: Gateway, search: RunningSearch, frames: Frames) -> None:
        super().__init__(search.number)
        self.headers.update(gateway.limit_headers(search.client, search.order.request.options.account))
        self._gateway, self._search, self._frames = gateway, search, frames
        self._sent = "", ""  # the thought and the text of the answer so far

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream.

        Raises:
            Exception: what the search failed with before the stream began.
        """
        del scope
        search = self._search
        with self._gateway.attach(search), search.follow():
            async with leaving(receive, search.wake) as gone:
                await _wait_for_begin(search)
                if search.over:
                    search.result()
                await self.write(send, self._chunks(gone), gone)

    async def _chunks(self, gone: asyncio.Event) -> AsyncGenerator[bytes]:
        search = self._search
        unsent = self._frames.begin()  # sent with what follows at once, since each part costs processor time
        if search.event is None and not search.over:
            yield unsent
            unsent = b""
        async for line in self._progress(gone):
            yield unsent + line
            unsent = b""
        if not gone.is_set():
            yield unsent + self._last()

    def _last(self) -> bytes:
        """Return the answers and the end of the stream, or the error that ends it."""
        search = self._search
        try:
            outcome = outcome_of(search, search.result())
            self._check_sent(outcome.choices[0])
        except Exception as failure:  # noqa: BLE001 - sent in the stream
            return self._frames.fail(api_error(failure))
        return self._frames.end(outcome)

    def _check_sent(self, choice: AnswerChoice) -> None:
        """Refuse an end that does not continue what was sent.

        This happens where a model's server broke and wrote the text again.

        Raises:
            ApiError: 502.
        """
        thought, text = self._sent
        if not (choice.thought.startswith(thought) and (choice.text or "").startswith(text)) or (
            text and choice.thought != thought
        ):
            cause = (
                "the model's text was written again in the middle of the stream, so the text so far is not its "
                "beginning; ask again"
            )
            raise ApiError(502, cause, kind="server_error", code="stream_broken", retry_s=1.0)

    def _pieces(self, event: Event) -> bytes:
        """Return the new text of the row, if the whole text continues what was sent."""
        thought, text = event.marks.split_settled_text(event.writing)
        sent_thought, sent_text = self._sent
        if not (thought.startswith(sent_thought) and text.startswith(sent_text)) or (
            sent_text and thought != sent_thought
        ):
            return b""
        more_thought, more_text = thought[len(sent_thought) :], text[len(sent_text) :]
        self._sent = thought, text
        return (self._frames.thought(more_thought) if more_thought else b"") + (
            self._frames.text(more_text) if more_text else b""
        )

    async def _progress(self, gone: asyncio.Event) -> AsyncIterator[bytes]:
        """Yield a line of progress at the first event and then from time to time.

        Pings are sent where nothing happens.
        """
        search, loop = self._search, asyncio.get_running_loop()
        shown_event: Event | None = None
        next_s = 0.0
        while not gone.is_set():
            signal, wait_s = search.signal, self._gateway.config.ping_s
            event = None if search.event is shown_event else search.event
            if event is not None and search.streams_text:
                shown_event = event
                if pieces := self._pieces(event):
                    yield pieces
                continue
            if event is not None and (wait_s := next_s - loop.time()) <= 0:
                shown_event, next_s = event, loop.time() + _PROGRESS_S
                yield self._frames.progress(_progress_line(event, search))
                continue
            if search.over:
                return
            try:
                async with asyncio.timeout(wait_s):
                    await signal.wait()
            except TimeoutError:
                if event is None:
                    yield self._frames.ping()


def _progress_line(event: Event, search: RunningSearch) -> str:
    leading = "" if event.answer is None else f", leading answer {event.answer[:80]!r}"
    limit = int(search.order.budget.limits["tokens"])
    return f"{event.candidates} candidates{leading}, {event.tokens:,} of {limit:,} tokens\n"


async def _wait_for_begin(search: RunningSearch) -> None:
    """Wait for the first progress or the end of a search, at most `_HEADERS_S`."""
    signal = search.signal
    if not search.over and search.event is None:
        with suppress(TimeoutError):
            await asyncio.wait_for(signal.wait(), _HEADERS_S)
