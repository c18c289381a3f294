"""One call for rows of one request: its body, the ends of its rows, and their charges."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tts.backends.base import Draft, Finish, OpenTemperature, Row, Sample, Sampling
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import ServerError, how_key, no_room
from tts.backends.openai.http import HttpClient
from tts.backends.openai.prompt import CONTINUE, input_bound, messages, native_members
from tts.backends.openai.reply import Choice, ServerReply, shares
from tts.backends.openai.rows import LostTries, ServerHandle, ServerRows, tempering
from tts.backends.openai.thinking import limit_members, switch_members, with_members
from tts.backends.prompt_logprobs import Top
from tts.backends.sampling import top_sampling_logprob, top_spread
from tts.backends.text.stops import StopScanner, ends_of
from tts.randomness import hash64, uniform
from tts.types import DIVIDED_SUM, TOP_TOKENS, pictures_in, prompt_text

_MOST_STOPS = 4  # the most stop texts that the API takes
_SEED_BITS = 31
_UNLIMITED = 1 << 20  # a cap above every server's own limit; hosted servers refuse such a cap, so it is not sent
# kinds of errors that another try would meet as well
SIZE_STATUSES = (400, 402, 413, 422)  # by which servers refuse the size of a request; 402: it cannot be afforded
_FOR_GOOD = ("Refused", "KeyRefused", "NotServed", "NoRoom", "CertificateError", "ContentFilter", "Overrun")
_MIXED = ("WrongCount", "DuplicateChoice")  # kinds of errors after which a text may belong to another row
_BYTES_A_TOKEN = (4, 3, 2, 1)
_LONG_TOKEN = 8  # bytes of a token that is longer than most
_SHORT_THOUGHT = 16  # tokens of a thought that a server writes though thoughts are switched off
_MOST_BYTES = 512  # the most bytes of a token; the longest tokens of known vocabularies have 128 characters
_OWN_TEMPERATURE = re.compile(
    r"temperature.*(?:\bonly\b.{0,30}\d|(?:not|n't) (?:be )?support)|unsupported.*temperature", re.I
)
_PIECES = 4  # the most pieces of one token; servers send a token whole, but a proxy may divide it
_ENDED_HERE = "rows were ended here before the server reported their tokens: they are charged what was received of them"
_BROKEN = (
    "replies broke before the server reported their tokens: their rows are charged what was received, or all "
    "that was granted"
)
_TOGETHER = f"{DIVIDED_SUM}: it is divided by the lengths of their texts"
_UNSEEN = (
    "the server does not stream with a report, so nothing was received of rows that were given up: they are charged "
    "the tokens of the "
    "longest row that was reported"
)
# charged tokens of an unseen row, where no row was reported yet and the budget does not limit tokens
_SEVERAL = re.compile(r"\bn\b|num_choices", re.IGNORECASE)


class ServerCall:
    """A call for some rows of one request, all with one cap.

    A row is charged the tokens that the server reports, or shows one by one. Without a valid report, a row of b bytes
    is charged b + 1 tokens as an estimate. Where the model may think unseen, the row is charged its full grant.
    `HttpClient.estimates` has the causes. A report is not valid if it has fewer tokens than the reply shows or than its
    text can have, or more than the cap.

    A row that ends here has no report: it was cancelled, broke, or was cut at a step unknown to the server. Such a row
    is charged the tokens received, where the server shows them; otherwise the bytes of the received text and one. Where
    the reply does not stream, or may hold hidden tokens, the row is charged its full grant.

    Args:
        http: The client of the server.
        capabilities: The capabilities of the server.
        rows: The rows of the request.
        indexes: The indexes of the rows that this call writes.
        limit: Most tokens of prompt and path; None: not known.
        lost: The costs and the error of earlier tries; None: this is the first try.
        below: A cap that the server refused; None: none.
    """

    def __init__(
        self,
        http: HttpClient,
        capabilities: Capabilities,
        rows: ServerRows,
        indexes: Sequence[int],
        limit: int | None,
        lost: LostTries | None = None,
        below: int | None = None,
    ) -> None:
        request = rows.request
        self._request = request
        self.rows = rows
        self.indexes = indexes
        self._http = http
        self._capabilities = capabilities
        self._limit = limit
        self._lost = lost or LostTries()
        self._again: list[ServerCall] = []
        granted = request.rows[indexes[0]].max_tokens - self._lost.tokens
        self._caps = [cap for cap in self._fitting(granted) if below is None or cap < below]
        self._cap = self._caps[0]
        self._scanners = [StopScanner(request.stop, request.text, request.handle.carry) for _ in indexes]
        self._kept: dict[int, int] = {}  # tokens that the reply had shown when a row ended, by the row's place
        self._reply = ServerReply(len(indexes))
        stops = ends_of(request.stop)
        # without tokens that are shown, the text of the last token after a stop text is not known
        ends_exactly = capabilities.mode != "tokens" or capabilities.logprobs
        self._wants_tops = capabilities.tops and (request.spreads or request.sampling_logprobs or request.tops)
        self._stops = stops if capabilities.stops and ends_exactly and len(stops) <= _MOST_STOPS else ()
        self._sent = False
        for place, index in enumerate(indexes):
            rows.show_draft(index, partial(self._draft, place))

    def _draft(self, place: int) -> Draft:
        """Return the received part of a row, without the key and without an end that may begin the key."""
        choice = self._reply.choices.get(place)
        if choice is None:
            return Draft("", 0)
        received_text = choice.thought + self._scanners[place].text
        shown_text, _withheld_end = self._http.key.hidden_behind("", received_text, cut=True)
        return Draft(shown_text, choice.num_visible)

    async def run(self) -> None:
        """Send the call and resolve its rows.

        If a reply breaks, the unused part of a row's grant pays for another try.
        """
        is_cancelled = self.rows.cancelled
        if self._lost.wait_s and not is_cancelled:
            try:
                await asyncio.sleep(self._lost.wait_s)
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            self._give_up(None, 0.0)
        elif any(map(self.rows.waits, self.indexes)):  # false if the backend was closed
            await self._run()
        if self._again:
            await self._run_again()

    async def _run_again(self) -> None:
        """Run the calls that replace this call until all have ended. Each call settles its own rows."""
        try:
            results = await asyncio.gather(*(call.run() for call in self._again), return_exceptions=True)
        except asyncio.CancelledError:
            for call in self._again:
                if not call._sent:  # a call that never began does not settle its rows itself
                    call._give_up(None, 0.0)
            raise
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _other(self, indexes: Sequence[int], lost: LostTries | None = None, below: int | None = None) -> ServerCall:
        """Return a call that replaces this call for some of its rows.

        Args:
            indexes: The indexes of the rows.
            lost: The costs of all tries so far; None: only the tries before this call had a cost.
            below: A cap that the server refused; None: none.
        """
        lost = lost or dataclasses.replace(self._lost, wait_s=0.0)
        return ServerCall(
            self._http,
            self._capabilities,
            self.rows,
            indexes,
            limit=self._limit,
            lost=lost,
            below=below,
        )

    def _fitting(self, granted: int) -> list[int]:
        """Return the caps that a row may have, the largest first.

        Where only the server can count the input's tokens, the caps are guesses by bytes per token. The server refuses
        a cap that is too large, at no cost.

        Args:
            granted: The most tokens that the row may still be charged.
        """
        if self._limit is None:
            return [granted]
        most_read = self._read_at_most()
        if self._capabilities.mode == "tokens":
            return [min(granted, self._limit - most_read)]
        rooms = {self._limit - most_read // bytes_a_token for bytes_a_token in _BYTES_A_TOKEN}
        rooms |= {self._limit // 8, self._limit // 64, 1}  # for inputs of more bytes a token
        return sorted({min(granted, room) for room in rooms if room > 0}, reverse=True)

    async def _run(self) -> None:
        """Send the call once, and resolve its rows or prepare the calls that replace this call."""
        loop = asyncio.get_running_loop()
        if self._scanners[0].ended or self._cap < 1:
            for place in range(len(self.indexes)):
                self._resolve(place, 0, estimated=False)
            return
        row, sampling = self._request.rows[self.indexes[0]], self._request.sampling
        refusals = self._request.handle.refusals
        if sampling in refusals:
            self._give_up(refusals[sampling], 0.0)
            return
        failure: ServerError | None = None
        body: dict[str, Any] = {}
        start = loop.time()
        try:
            async with self._http.gate:
                self._sent = True
                start = loop.time()
                body = self._body(row)
                last_refusal = await self._http.post(
                    self._capabilities.path,
                    body,
                    self._take,
                    stream=row.stream,
                    position=row.position,
                    tokens=self._expected_tokens(),
                )
            self._lost = dataclasses.replace(self._lost, error=last_refusal or self._lost.error)
        except ServerError as error:
            failure = error
        except asyncio.CancelledError:
            self._give_up(None, loop.time() - start)
            return
        seconds = (loop.time() - start) / len(self.indexes)
        is_complete = self._reply.ended or self._over  # if so, a later error is ignored
        if failure is None or (is_complete and failure.kind not in _MIXED):
            self._finish(seconds)
        elif not self._smaller(failure) and not self._without_temperature(failure, body):
            is_final = failure.kind == "Refused" and failure.status in SIZE_STATUSES and not no_room(failure.cause)
            if is_final and not self._http.is_book:
                refusals[sampling] = failure
            # the server computes nothing for a call that it refuses, or that may be sent again
            was_free = failure.again or failure.status != 0 or failure.kind == "CertificateError"
            self._sent = not was_free
            self._give_up(failure, seconds)

    def _expected_tokens(self) -> int:
        """Return the tokens that the call may take, as servers estimate them before they generate.

        The estimate is the sum of all rows' caps and of the input's tokens. Where the input's tokens are not known, a
        token is counted for every four bytes.
        """
        bytes_a_token = 1 if self._capabilities.mode == "tokens" else 4
        return self._read_at_most() // bytes_a_token + self._cap * len(self.indexes)

    def _smaller(self, error: ServerError) -> bool:
        """Prepare smaller calls if the server refused the size of this call, and return whether there are any."""
        if error.status not in SIZE_STATUSES:
            return False
        num_rows = len(self.indexes)
        if no_room(error.cause) and len(self._caps) > 1:
            self._again = [self._other(self.indexes, below=self._cap)]
        elif num_rows > 1 and _SEVERAL.search(error.cause):  # the server refuses so many rows in a call
            half = num_rows // 2
            self._again = [self._other(self.indexes[:half]), self._other(self.indexes[half:])]
        return bool(self._again)

    def _without_temperature(self, error: ServerError, body: Mapping[str, Any]) -> bool:
        """Prepare a call without the temperature that a server refused and nobody named; return whether there is one.

        Args:
            error: The refusal, which says that the server takes its own temperature alone.
            body: The body of the refused request.
        """
        is_open = isinstance(self._request.sampling.temperature, OpenTemperature) and "temperature" in body
        if is_open and error.status in SIZE_STATUSES and _OWN_TEMPERATURE.search(error.cause):
            self._http.own_temperature = error.cause
            self._again = [self._other(self.indexes)]
        return bool(self._again)

    # Asking -----------------------------------------------------------------------------------------------------------

    def _body(self, row: Row) -> dict[str, Any]:
        """Return the body of the request, with the seed and the cap of its first row."""
        capabilities, sampling = self._capabilities, self._request.sampling
        body: dict[str, Any] = {"model": capabilities.model, **capabilities.extra_body}
        # without a cap, completions would stop after 16 tokens, and chat writes up to the server's limit
        if self._cap < _UNLIMITED or capabilities.path == "/completions":
            body[capabilities.cap_name] = self._cap
        body |= tempering(sampling, capabilities)
        if self._http.own_temperature and isinstance(sampling.temperature, OpenTemperature):
            body.pop("temperature", None)
        body |= dict(capabilities.neutral)
        body |= _optional_members(sampling, capabilities)
        if capabilities.streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if len(self.indexes) > 1:
            body["n"] = len(self.indexes)
        if sampling.thought_tokens is not None:
            body = with_members(body, _thought_members(sampling.thought_tokens, capabilities))
        if capabilities.seeds:
            body["seed"] = hash64("row", row.stream, row.position, row.word, self._lost.tries) >> (64 - _SEED_BITS)
        if self._stops:
            body |= {"stop": list(self._stops), "include_stop_str_in_output": True}
        if capabilities.path == "/completions":
            return body | self._completion_members()
        return body | self._chat_members()

    def _completion_members(self) -> dict[str, Any]:
        """Return the members for the input and the log-probabilities of a completion."""
        capabilities, handle = self._capabilities, self._request.handle
        members: dict[str, Any] = {}
        if capabilities.mode == "tokens":
            members |= {"prompt": list(handle.ids), "return_token_ids": True}
        else:
            members["prompt"] = prompt_text(handle.prompt) + handle.whole_text
        if capabilities.logprobs:
            members["logprobs"] = TOP_TOKENS if self._wants_tops else 0
        return members

    def _chat_members(self) -> dict[str, Any]:
        """Return the members for the input and the log-probabilities of a chat."""
        capabilities, handle = self._capabilities, self._request.handle
        has_path = bool(handle.whole_text)  # a path is continued by its text alone, without tools and forms
        tools = capabilities.tools and not has_path
        members: dict[str, Any] = {"messages": messages(handle.prompt, handle.whole_text, tools=tools)}
        members |= native_members(handle.prompt, tools=tools, forms=capabilities.forms and not has_path)
        if capabilities.logprobs:
            members["logprobs"] = True
        if self._wants_tops:
            members["top_logprobs"] = TOP_TOKENS
        if has_path:
            members |= CONTINUE
        return members

    def _take(self, event: Any) -> bool:
        """Handle an event of the reply, and return whether no more events are wanted."""
        passes_stop = False  # whether the server writes on after a stop text
        for place, text in self._reply.take(event):
            scanner, choice = self._scanners[place], self._reply.choices[place]
            if scanner.ended:
                passes_stop = passes_stop or bool(text)
            elif text and scanner.feed(text):
                self._kept[place] = choice.num_visible
            elif choice.num_visible > self._cap or len(choice.pieces) > _PIECES * self._cap:
                raise ServerError("Overrun", f"more than the {self._cap} tokens that were asked for")
        # a server that was given the stop texts should end by itself, with a report
        return self._over and not self._reply.ended and (passes_stop or not self._stops)

    @property
    def _over(self) -> bool:
        """Whether every row has ended, here or on the server."""
        choices = self._reply.choices
        return all(
            scanner.ended or (place in choices and choices[place].finish)
            for place, scanner in enumerate(self._scanners)
        )

    # Results ----------------------------------------------------------------------------------------------------------

    def _finish(self, seconds: float) -> None:
        """Resolve the rows of a reply that is complete, or whose further events are not wanted."""
        usage = self._reply.usage
        self._read()
        self._check_thoughts()
        charges = self._charges()
        for place, (num_tokens, is_estimated) in enumerate(charges):
            error = self._error(place, num_tokens)
            if error is None:
                self._resolve(place, num_tokens, seconds=seconds, estimated=is_estimated)
                continue
            self._http.errors[error.kind] += 1
            self._lose(place, num_tokens, error, seconds, estimated=is_estimated or usage is None, waits=False)

    def _check_thoughts(self) -> None:
        """Note if thoughts are far longer than asked for, since the server then ignores its field for thoughts."""
        limit, usage = self._request.sampling.thought_tokens, self._reply.usage
        texts = [text for choice in self._reply.choices.values() for text in choice.thoughts]
        num_shown = len("".join(texts).encode(errors="replace")) // _LONG_TOKEN
        num_tokens = max(num_shown, usage.reasoning if usage is not None else 0)
        if limit is not None and num_tokens > (2 * limit + _SHORT_THOUGHT) * len(self.indexes):
            self._http.ignores_thought_field = True

    def _error(self, place: int, num_tokens: int) -> ServerError | None:
        """Return the error of a row whose reply has ended; None: the row is valid."""
        choice = self._reply.choices.get(place, Choice())
        error = None if self._scanners[place].ended else self._reply.error(place)
        if error is None and choice.num_visible > self._cap:
            error = ServerError("Overrun", f"{choice.num_visible} tokens where {self._cap} were asked for")
        if error is None and self._capabilities.token_ids and not choice.ids and (choice.pieces or num_tokens):
            error = ServerError("BadReply", "a text without its token ids")
        return error

    def _charges(self) -> list[tuple[int, bool]]:
        """Return the charged tokens of each row, and whether this number is an estimate.

        The shares of a reported sum are no estimates, since only their sum is booked.
        """
        reply, cap, num_rows = self._reply, self._cap, len(self.indexes)
        if not reply.ended:
            self._http.estimates[_ENDED_HERE] += 1
            return [(self._receive(place), True) for place in range(num_rows)]
        choices = [reply.choices[place] for place in range(num_rows)]
        may_think = self._capabilities.reasoning or any(choice.reasoned for choice in choices)
        shows_tokens = not may_think and all(choice.num_visible or not choice.pieces for choice in choices)
        visible, sizes = [choice.num_visible for choice in choices], [choice.num_bytes for choice in choices]
        num_reported = None if reply.usage is None else reply.usage.generated
        if num_reported is not None and num_reported > cap * num_rows:
            self._http.estimates["more tokens were reported than asked for: rows are charged all that was granted"] += 1
            return [(cap, True)] * num_rows
        if num_reported is not None:
            has_content = any(choice.pieces or choice.reasoned for choice in choices)
            is_too_small = num_reported < sum(visible) or sum(sizes) > _MOST_BYTES * num_reported
            reply.doubted = is_too_small or (num_reported == 0 and has_content)
        if num_reported is None or reply.doubted:
            shown = visible if shows_tokens else [0] * num_rows
            return [self._estimate_tokens(place, num, hidden=may_think) for place, num in enumerate(shown)]
        if num_rows == 1:
            return [(num_reported, False)]
        if shows_tokens and sum(visible) == num_reported:
            return [(num_tokens, False) for num_tokens in visible]
        row_shares = shares(num_reported, sizes, [cap] * num_rows)
        self._http.estimates[_TOGETHER if row_shares else f"{_TOGETHER}, or charged in full"] += 1
        return [(num_tokens, not row_shares) for num_tokens in row_shares or [cap] * num_rows]

    def _estimate_tokens(self, place: int, num_shown: int, *, hidden: bool) -> tuple[int, bool]:
        """Return the charged tokens of a row without a valid report, and whether this number is an estimate.

        The cause of an estimate is noted. Every token but the end of sequence has at least a byte. So a row of b bytes
        has at most b + 1 tokens, unless some are hidden. Tokens may be hidden where the model may think unseen, or
        where the reply has no content. A row that met its cap with fewer bytes than the cap has tokens also has hidden
        tokens.

        Args:
            place: The place of the row in the call.
            num_shown: The tokens that the reply shows of the row; 0: the reply shows none.
            hidden: Whether the model may think unseen.
        """
        if num_shown:
            return min(self._cap, num_shown), self._reply.doubted
        reason = "its report of tokens is not valid" if self._reply.doubted else "the server reports no tokens"
        choice = self._reply.choices.get(place, Choice())
        most_tokens = choice.num_bytes + 1
        if hidden or not choice.contents or (choice.finish == "length" and most_tokens < self._cap):
            cause = f"{reason}, and the model may think unseen: rows are charged all that was granted"
            self._http.estimates[cause] += 1
            return self._most(), True
        self._http.estimates[f"{reason}: rows are charged a token for each byte, and one"] += 1
        return min(self._cap, most_tokens), True

    def _most(self) -> int:
        """Return the charged tokens of a row of which nothing was received."""
        return self._request.unseen_cost(self._cap, self._http.longest)

    def _receive(self, place: int) -> int:
        """Return the charged tokens of a row that ended here, before the server reported its tokens."""
        if not self._sent:
            return 0
        choice = self._reply.choices.get(place, Choice())
        may_hide_tokens = choice.reasoned or (self._capabilities.reasoning and not choice.num_visible)
        if may_hide_tokens or not self._capabilities.streams:
            return self._most()
        if choice.num_visible:
            return min(self._cap, choice.num_visible)
        if not choice.pieces:
            return 0
        num_bytes = len("".join(choice.pieces).encode(errors="replace"))
        return min(self._cap, num_bytes + 1)

    def _give_up(self, failure: ServerError | None, seconds: float) -> None:
        """Resolve the rows of a call that was cancelled or broke.

        If the call broke, a row that had ended before is valid.

        Args:
            failure: The error that broke the call; None: the call was cancelled.
            seconds: The model seconds of each row.
        """
        if self._sent:
            self._read()
            cause = _BROKEN
            if failure is None:
                is_unseen = not self._request.limited and not self._capabilities.streams
                cause = _UNSEEN if is_unseen else _ENDED_HERE
            self._http.estimates[cause] += 1
        keeps_ended_rows = failure is not None and failure.kind not in _MIXED
        for place in range(len(self.indexes)):
            num_tokens = self._receive(place)
            if keeps_ended_rows and place in self._reply.choices and self._error(place, num_tokens) is None:
                self._resolve(place, num_tokens, seconds=seconds, estimated=True)
            else:
                self._lose(place, num_tokens, failure, seconds, estimated=self._sent, waits=True)

    def _lose(
        self,
        place: int,
        num_tokens: int,
        failure: ServerError | None,
        seconds: float,
        *,
        estimated: bool,
        waits: bool,
    ) -> None:
        """Resolve a row that failed, or prepare another try.

        Args:
            place: The place of the row in the call.
            num_tokens: The charged tokens of this try.
            failure: The error of the row; None: the row was cancelled.
            seconds: The model seconds of the row.
            estimated: Whether `num_tokens` is an estimate.
            waits: Whether another try waits, since the call itself failed.
        """
        error, after_s = ("", 0.0) if failure is None else (explain_error(failure), failure.after_s)
        index, timeouts = self.indexes[place], self._http.timeouts
        row, tries = self._request.rows[index], self._lost.tries + 1
        lost = LostTries(tries, tokens=self._lost.tokens + min(self._cap, num_tokens), error=error)
        has_grant = num_tokens < self._cap and tries < timeouts.tries
        may_retry = self._request.rereads and failure is not None and self._sent and has_grant
        kind = error.partition(": ")[0]
        if may_retry and kind not in _FOR_GOOD and after_s <= timeouts.longest_wait_s:
            if waits:
                word = 1 << 17 | tries  # sets the draw apart from the draws of the row's tokens
                draw = uniform(row.stream, row.position, word)
                lost = dataclasses.replace(lost, wait_s=timeouts.retry_wait_s(after_s, tries, draw))
            self._again.append(self._other((index,), lost))
            return
        sample = Sample.empty(
            "cancelled" if failure is None else "error",
            lost.tokens,
            estimated=estimated or bool(self._lost.tokens),
            error=error,
            seconds=seconds,
            retry_s=after_s,
        )
        self.rows.settle(index, sample)

    def _read(self) -> None:
        """Count the input tokens by the report, or by their upper bound if the report is not valid."""
        usage, most_read = self._reply.usage, self._read_at_most()
        has_no_bound = bool(pictures_in(self._request.handle.prompt))
        if usage is not None and (usage.prompt <= most_read or has_no_bound):
            self.rows.read(usage.prompt, usage.cached)
            self._http.cache_writes += usage.written
        else:
            self.rows.read(most_read, None)

    def _read_at_most(self) -> int:
        """Return the most tokens of the input."""
        handle = self._request.handle
        if self._capabilities.mode == "tokens":
            return len(handle.ids)
        return input_bound(
            handle.prompt, handle.whole_text, self._capabilities.template_tokens, self._capabilities.picture_tokens
        )

    def _resolve(self, place: int, num_tokens: int, *, seconds: float = 0.0, estimated: bool) -> None:
        """Resolve a row whose reply is complete, or whose further text is not wanted.

        A row without a reply had no room in the context, and ends with "length".

        Args:
            place: The place of the row in the call.
            num_tokens: The charged tokens of this call.
            seconds: The model seconds of the row.
            estimated: Whether `num_tokens` is an estimate.
        """
        handle, scanner, lost = self._request.handle, self._scanners[place], self._lost
        choice = self._reply.choices.get(place, Choice(finish="length"))
        usage = self._reply.usage
        # a server may say "stop" of a row that met its cap
        is_full = usage is not None and usage.generated == self._cap * len(self.indexes)
        finish: Finish = scanner.ended or ("length" if choice.finish == "length" or is_full else "eos")
        # the key may begin in the path's text, and go on in the row
        text, withheld = self._http.key.hidden_behind(self._request.text, scanner.text, cut=finish == "length")
        num_kept = self._kept.get(place, choice.num_visible)
        ids = tuple(choice.ids[:num_kept]) if self._capabilities.token_ids else ()
        logprobs = tuple(choice.logprobs[:num_kept]) if self._capabilities.logprobs else ()
        if self._capabilities.token_ids:
            carry = scanner.carry
            if not carry and scanner.ended and choice.finish:
                carry = _text_past_stop(handle.carry, choice, scanner.text)
            end_handle = ServerHandle(handle.prompt, handle.ids + ids, "", withheld + carry)
        else:
            end_handle = ServerHandle(handle.prompt, (), handle.text + text, withheld)
        num_unseen = num_tokens - len(logprobs)
        is_end_unseen = num_unseen == 1 and finish == "eos" and not ids  # some servers do not show the end of sequence
        if num_unseen and not is_end_unseen:
            logprobs = ()
        tops: Sequence[Sequence[float]] = ()
        if self._wants_tops and len(choice.tops) >= len(logprobs) and all(choice.tops):
            tops = choice.tops[: len(logprobs)]
        sampling_logprobs: tuple[float, ...] = ()
        if self._request.sampling_logprobs:
            sampling_logprobs = tuple(
                top_sampling_logprob(top, logprob, self._request.sampling)
                for top, logprob in zip(tops, logprobs, strict=False)
            )
        if not estimated:
            self._http.longest = max(self._http.longest, num_tokens)
        sample = Sample(
            text=self._http.key.hide(choice.thought, choice.thought) + text,
            token_ids=ids,
            logprobs=logprobs,
            finish=finish,
            handle=end_handle,
            num_tokens=num_tokens + lost.tokens,
            estimated=estimated or bool(lost.tries),
            error=lost.error,
            seconds=seconds,
            lost_tokens=lost.tokens,
            spreads=tuple(map(top_spread, tops)) if self._request.spreads else (),
            sampling_logprobs=sampling_logprobs,
            tops=_name_tops(tops, choice.top_texts) if self._request.tops else (),
        )
        self.rows.settle(self.indexes[place], sample)


def _name_tops(tops: Sequence[Sequence[float]], texts: Sequence[Sequence[str]]) -> tuple[tuple[Top, ...], ...]:
    """Return the most likely tokens at each place, best first; (): the server does not name all tokens.

    Args:
        tops: The log-probabilities of the tokens, by place.
        texts: The texts of the tokens, by place.
    """
    if len(texts) < len(tops):
        return ()
    named_tops: list[tuple[Top, ...]] = []
    for place_logprobs, place_texts in zip(tops, texts, strict=False):
        if len(place_texts) != len(place_logprobs):
            return ()
        place_tops = map(Top, place_texts, place_logprobs)
        named_tops.append(tuple(sorted(place_tops, key=lambda top: -top.logprob)))
    return tuple(named_tops)


def _optional_members(sampling: Sampling, capabilities: Capabilities) -> dict[str, Any]:
    """Return the members for parameters of sampling that are sent only where they are given."""
    members: dict[str, Any] = {
        "reasoning_effort": sampling.effort,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": {str(token): bias for token, bias in dict(sampling.logit_bias).items()},
    }
    if capabilities.filters:
        members |= {"top_k": sampling.top_k, "min_p": sampling.min_p}
    return {name: value for name, value in members.items() if value}


def _thought_members(tokens: int, capabilities: Capabilities) -> dict[str, Any]:
    """Return the members of a request that limit a thought, or switch it off, by the server's own fields."""
    return limit_members(capabilities.thought_limit, tokens) if tokens else switch_members(capabilities.thought_switch)


HOW_CERTIFICATE = "name its authority's file in the environment variable SSL_CERT_FILE"


def explain_error(error: ServerError) -> str:
    """Return an error as a text for `Sample.error`, with a cure where the caller has one."""
    kind, cure = error.kind, ""
    if error.status in (401, 403):
        kind, cure = "KeyRefused", how_key()
    elif error.status == 404:
        kind, cure = "NotServed", "see tts doctor --url"
    elif error.status in SIZE_STATUSES and no_room(error.cause):
        kind, cure = "NoRoom", "limit a row (--max-tokens), shorten the problem, or give the model's record its context"
    elif kind == "CertificateError":
        cure = HOW_CERTIFICATE
    return f"{kind}: {error.cause}" + (f"; {cure}" if cure else "")


def _text_past_stop(carry: str, choice: Choice, text: str) -> str:
    """Return the part of the last token that follows the stop text at which the server cut the row.

    Args:
        carry: The text that opened the row.
        choice: The reply of the row, with the texts of its tokens.
        text: The text of the row up to the end of the stop text.
    """
    full_text = carry + "".join(choice.tokens)
    if full_text.startswith(text):
        return full_text[len(text) :]
    last_token = choice.tokens[-1] if choice.tokens else ""
    for length in range(len(last_token), 0, -1):
        if text.endswith(last_token[:length]):
            return last_token[length:]
    return ""
