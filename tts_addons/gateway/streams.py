"""The reply to a request for a search, whole or as a stream, whichever API it came by."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tts.solver.live import Event
from tts_addons.gateway.failures import ApiError, JsonReply, api_error
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.replies import head_of, outcome_of
from tts_addons.gateway.searches import RunningSearch
from tts_addons.gateway.server_events import EventsReply, wait_for_work
from tts_addons.gateway.wire.request import AnswerChoice, Frames, Wire
from tts_addons.gateway.wire.responses import ResponseFrames

_PROGRESS_S = 0.25  # seconds between two lines of progress
_HEADERS_S = 1.0  # seconds after which a stream begins, even if its search has not begun


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
        ClientDisconnect: the client has left. Exception: the error that ended the search.
    """
    with gateway.attach(search, linger=linger):
        await wait_for_work(receive, search.wait())
    outcome = outcome_of(search, search.result())
    return JsonReply(wire.reply(head_of(search), outcome), headers=bill_headers(gateway, search))


def bill_headers(gateway: Gateway, search: RunningSearch) -> dict[str, str]:
    """Return the headers of a whole reply.

    They have the request's number, the spending of the search, and what the client's account may still spend.
    """
    usage = search.result().usage
    usd_header = {} if usage.usd is None else {"x-tts-usd": f"{usage.usd:.12g}"}
    return {
        "x-request-id": search.number,
        "x-tts-tokens": str(usage.tokens),
        "x-tts-seconds": str(usage.seconds),
        **usd_header,
        **gateway.limit_headers(search.client, search.order.request.options.account),
    }


class SearchStream(EventsReply):
    """The response to a streamed request; the search is cancelled when its client leaves."""

    def __init__(self, gateway: Gateway, search: RunningSearch, frames: Frames) -> None:
        super().__init__(self._chunks(), search.number)
        self.headers.update(gateway.limit_headers(search.client, search.order.request.options.account))
        self._gateway, self._search, self._frames = gateway, search, frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream.

        Raises:
            Exception: the error that ended the search before the stream began.
        """
        search = self._search
        with self._gateway.attach(search), search.follow():
            await _wait_for_begin(search)
            if search.over and not self._fails_in_stream():
                search.result()  # raises the error of a failed search, which then has an HTTP status
            await super().__call__(scope, receive, send)

    def _fails_in_stream(self) -> bool:
        """Return whether clients look for the failure in the stream: for a full context, where they use Responses."""
        failure = self._search.failure if isinstance(self._frames, ResponseFrames) else None
        return failure is not None and api_error(failure).code == "context_length_exceeded"

    async def _chunks(self) -> AsyncGenerator[bytes]:
        """Yield the bytes of the stream."""
        search = self._search
        # the beginning is sent together with the first frame that is ready, since each part costs processor time
        unsent_beginning = self._frames.begin()
        if search.event is None and not search.over:
            yield unsent_beginning
            unsent_beginning = b""
        async for frame in self._progress():
            yield unsent_beginning + frame
            unsent_beginning = b""
        yield unsent_beginning + self._ending()

    def _ending(self) -> bytes:
        """Return the answers and the end of the stream, or the error that ends it.

        An answer that does not continue the text that was sent is an error. This happens where a model's server broke
        and wrote the text again.
        """
        search = self._search
        try:
            outcome = outcome_of(search, search.result())
        except Exception as failure:  # noqa: BLE001 - sent in the stream
            return self._frames.fail(api_error(failure))
        first, *others = outcome.choices
        first = self._with_sent(first)
        if self._continues_sent(first.thought, first.text or ""):
            return self._frames.end(dataclasses.replace(outcome, choices=(first, *others)))
        cause = (
            "the model's text was written again in the middle of the stream, so the text so far is not its beginning; "
            "ask again"
        )
        broken = ApiError(502, cause, kind="server_error", code="stream_broken", retry_s=1.0)
        return self._frames.fail(broken)

    def _with_sent(self, choice: AnswerChoice) -> AnswerChoice:
        """Return the first answer as a continuation of what was sent.

        Where the model began to think again after text was sent, this text stays before the response. The later thought
        is left out.
        """
        sent_thought, sent_text = self._frames.sent_thought, self._frames.sent_text
        has_thought_again = bool(sent_text) and sent_text.strip() in choice.thought
        if not has_thought_again or not choice.thought.startswith(sent_thought):
            return choice
        return dataclasses.replace(choice, thought=sent_thought, text=f"{sent_text}\n\n{choice.text or ''}")

    def _continues_sent(self, thought: str, text: str) -> bool:
        """Return whether a thought and the text after it continue what was sent.

        Once text was sent, the thought before it must stay the same.
        """
        sent_thought, sent_text = self._frames.sent_thought, self._frames.sent_text
        if sent_text and thought != sent_thought:
            return False
        return thought.startswith(sent_thought) and text.startswith(sent_text)

    def _new_frames(self, event: Event) -> bytes:
        """Return the frames of the row's new thought and text; b"": the row does not continue what was sent."""
        thought, text = event.marks.split_settled_text(event.writing)
        if not self._continues_sent(thought, text):
            return b""
        new_thought, new_text = thought[len(self._frames.sent_thought) :], text[len(self._frames.sent_text) :]
        thought_frame = self._frames.thought(new_thought) if new_thought else b""
        text_frame = self._frames.text(new_text) if new_text else b""
        return thought_frame + text_frame

    async def _progress(self) -> AsyncIterator[bytes]:
        """Yield frames until the search is over.

        A search that streams its text yields new text. Any other yields a line of progress, at most one in
        `_PROGRESS_S` seconds. Pings are sent where nothing happens.
        """
        search, loop = self._search, asyncio.get_running_loop()
        shown_event: Event | None = None
        next_line_s = 0.0  # when the next line of progress may be sent, by the loop's clock
        while True:
            signal, wait_s = search.signal, self._gateway.config.ping_s
            event = None if search.event is shown_event else search.event
            if event is not None and search.streams_text:
                shown_event = event
                new_frames = self._new_frames(event)
                if new_frames:
                    yield new_frames
                continue
            if event is not None:
                wait_s = next_line_s - loop.time()
                if wait_s <= 0:
                    shown_event, next_line_s = event, loop.time() + _PROGRESS_S
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
    """Return the progress of a search in one line: candidates, the leading answer and tokens."""
    leading = "" if event.answer is None else f", leading answer {event.answer[:80]!r}"
    limit = int(search.order.budget.limits["tokens"])
    return f"{event.candidates} candidates{leading}, {event.tokens:,} of {limit:,} tokens\n"


async def _wait_for_begin(search: RunningSearch) -> None:
    """Wait for the first tokens or the end of a search, at most `_HEADERS_S`.

    So a request that the model's server refuses has its own HTTP status.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_HEADERS_S):
            while not search.over and (search.event is None or not (search.event.tokens or search.event.writing)):
                await search.signal.wait()
