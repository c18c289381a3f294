"""One call for rows of one request: how it is asked, where its rows end, and what they are charged."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from tts.backends.base import Finish, Row, Sample
from tts.backends.openai_findings import Findings
from tts.backends.openai_http import HOW_KEY, Fault, Http
from tts.backends.openai_prompt import CONTINUE, input_bound, joined, messages
from tts.backends.openai_reply import Choice, Reply, shares
from tts.backends.openai_rows import Handle, Lost, Rows
from tts.backends.stops import StopScanner
from tts.randomness import hash64, uniform

_MOST_STOPS = 4  # that the API takes
_SEED_BITS = 31
_UNLIMITED = 1 << 20  # a cap that no server's own limit reaches; hosted ones refuse it
_FOR_GOOD = (
    "Refused",
    "KeyRefused",
    "NotServed",
    "NoRoom",
    "CertificateError",
    "ContentFilter",
    "Overrun",
)  # another try would fare as badly
_MIXED = ("WrongCount", "DuplicateChoice")  # whose texts may be another row's
_BYTES_A_TOKEN = (4, 3, 2, 1)
_PIECES = 4  # of one token at most: servers show it whole, but a proxy may not
_SEVERAL = re.compile(r"\bn\b|num_choices", re.IGNORECASE)
_NO_ROOM = re.compile(r"context[ _](?:length|window|size)|n_ctx|too (?:long|large)|max_(?:completion_)?tokens", re.IGNORECASE)


class Call:
    """Asks for some rows of one request, all with one cap.

    Charges: what the server reports, or shows token by token. Without a report, or with one that cannot be (fewer tokens than it
        shows, more than it may write), a row is charged its full grant, as an estimate. A row that ends here (cancelled, broken,
        or cut at a step that the server knows nothing of) has no report: it is charged the tokens that were received, where the
        server shows them, else what the received text can be at most, its bytes and one; all that it was granted where the reply
        does not stream, or where tokens that nobody sees may be among them.

    Args:
        indexes: of the rows. limit: most tokens of prompt and path; None: not known.
        lost: what tries before this one lost; None: it is the first. below: a cap that the server refused; None: none.
    """

    def __init__(
        self,
        http: Http,
        findings: Findings,
        rows: Rows,
        indexes: Sequence[int],
        limit: int | None,
        lost: Lost | None = None,
        below: int | None = None,
    ) -> None:
        request = rows.request
        self.rows = rows
        self.indexes = indexes
        self._http = http
        self._findings = findings
        self._limit = limit
        self._lost = lost or Lost()
        self._again: list[Call] = []
        granted = request.rows[indexes[0]].max_tokens - self._lost.tokens
        self._caps = [cap for cap in self._fitting(granted) if below is None or cap < below]
        self._cap = self._caps[0]
        self._scanners = [StopScanner(request.stop, request.text, request.handle.carry) for _ in indexes]
        self._kept: dict[int, int] = {}  # tokens shown when a row ended, by place
        self._reply = Reply(len(indexes))
        stops = request.stop.step if request.stop.at_step else ()
        exact = findings.mode != "tokens" or findings.logprobs  # else nobody knows what a last token carries beyond its stop text
        self._stops = stops if findings.stops and exact and len(stops) <= _MOST_STOPS else ()
        self._sent = False

    async def run(self) -> None:
        """Call, and resolve the rows, whatever happens; what a broken reply left of a row's grant pays for another."""
        cancelled = self.rows.cancelled
        if self._lost.wait_s and not cancelled:
            try:
                await asyncio.sleep(self._lost.wait_s)
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            self._give_up("cancelled", "", 0.0)
        elif any(map(self.rows.waits, self.indexes)):  # else the backend was closed
            await self._run()
        if self._again:
            await self._run_again()

    async def _run_again(self) -> None:
        """Run the calls in the place of this one until all of them have ended, so that each settles its rows by itself."""
        try:
            ends = await asyncio.gather(*(call.run() for call in self._again), return_exceptions=True)
        except asyncio.CancelledError:
            for call in self._again:
                if not call._sent:  # cancelled before it began, perhaps; what tries before it lost is paid
                    call._give_up("cancelled", "", 0.0)
            raise
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def _other(self, indexes: Sequence[int], lost: Lost | None = None, below: int | None = None) -> Call:
        """Return a call for some of the rows, in the place of this one; `lost`: if more than before this one."""
        lost = lost or dataclasses.replace(self._lost, wait_s=0.0)
        return Call(self._http, self._findings, self.rows, indexes, self._limit, lost, below)

    def _fitting(self, granted: int) -> list[int]:
        """Return the caps that a row may have, the largest first.

        Where the server alone counts its input, these are guesses, by so many bytes a token; it refuses what is too much, at no cost.
        """
        if self._limit is None:
            return [granted]
        bound = self._read_at_most()
        if self._findings.mode == "tokens":
            return [min(granted, self._limit - bound)]
        rooms = {self._limit - bound // size for size in _BYTES_A_TOKEN} | {self._limit // 8, self._limit // 64, 1}
        return sorted({min(granted, room) for room in rooms if room > 0}, reverse=True)

    async def _run(self) -> None:
        loop, request = asyncio.get_running_loop(), self.rows.request
        if self._scanners[0].ended or self._cap < 1:
            for place in range(len(self.indexes)):
                self._resolve(place, 0, estimated=False)
            return
        started, row = loop.time(), request.rows[self.indexes[0]]
        fault: Fault | None = None
        try:
            async with self._http.gate:
                self._sent, started = True, loop.time()
                refused = await self._http.post(self._findings.path, self._body(row), self._take, row.stream, row.position)
            self._lost = dataclasses.replace(self._lost, error=refused or self._lost.error)
        except Fault as found:
            fault = found
        except asyncio.CancelledError:
            self._give_up("cancelled", "", loop.time() - started)
            return
        seconds = (loop.time() - started) / len(self.indexes)
        complete = self._reply.ended or self._over  # what broke behind the last word that was wanted does no harm
        if fault is None or (complete and fault.kind not in _MIXED):
            self._finish(seconds)
        elif not self._smaller(fault):
            self._sent = not (fault.again or fault.status or fault.kind == "CertificateError")  # else it cost nothing
            self._give_up("error", explained(fault), seconds, fault)

    def _smaller(self, fault: Fault) -> bool:
        """Ask for less where the server refused as much as this; return whether that can be."""
        if fault.status not in (400, 422):
            return False
        if _NO_ROOM.search(fault.cause) and len(self._caps) > 1:
            self._again = [self._other(self.indexes, below=self._cap)]
        elif (count := len(self.indexes)) > 1 and _SEVERAL.search(fault.cause):  # fewer rows a call, then
            self._again = [self._other(some) for some in (self.indexes[: count // 2], self.indexes[count // 2 :])]
        return bool(self._again)

    # Asking ---------------------------------------------------------------------------------------------------------------------

    def _body(self, row: Row) -> dict[str, Any]:
        findings, request = self._findings, self.rows.request
        sampling, handle = request.sampling, request.handle
        body: dict[str, Any] = {"model": findings.model}
        if self._cap < _UNLIMITED or findings.path == "/completions":  # which would write 16 tokens; chat writes to its own limit
            body[findings.cap_name] = self._cap
        if findings.tempers:
            body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        body |= dict(findings.neutral)
        if findings.filters:
            body |= {name: value for name, value in (("top_k", sampling.top_k), ("min_p", sampling.min_p)) if value}
        if findings.streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if len(self.indexes) > 1:
            body["n"] = len(self.indexes)
        if findings.seeds:
            body["seed"] = hash64("row", row.stream, row.position, row.word, self._lost.tries) >> (64 - _SEED_BITS)
        if self._stops:
            body |= {"stop": list(self._stops), "include_stop_str_in_output": True}
        if findings.path == "/completions":
            body["prompt"] = list(handle.ids) if findings.mode == "tokens" else joined(handle.prompt) + handle.text
            body |= {"return_token_ids": True} if findings.mode == "tokens" else {}
            body |= {"logprobs": 0} if findings.logprobs else {}
            return body
        body["messages"] = messages(handle.prompt, handle.text)
        body |= {"logprobs": True} if findings.logprobs else {}
        return body | (CONTINUE if handle.text else {})

    def _take(self, event: Any) -> bool:
        """Take an event in; True where nothing more is wanted."""
        late = False
        for place, text in self._reply.take(event):
            scanner, choice = self._scanners[place], self._reply.choices[place]
            late = late or bool(scanner.ended and text)
            if not scanner.ended and text and scanner.feed(text):
                self._kept[place] = choice.num_visible
            elif not scanner.ended and (choice.num_visible > self._cap or len(choice.pieces) > _PIECES * self._cap):
                raise Fault("Overrun", f"more than the {self._cap} tokens that were asked for")
        # a server that was told of the stop texts ends by itself, with a report
        return self._over and not self._reply.ended and (late or not self._stops)

    @property
    def _over(self) -> bool:
        """Whether every row has ended, here or there."""
        choices = self._reply.choices
        return all(scanner.ended or (place in choices and choices[place].finish) for place, scanner in enumerate(self._scanners))

    # What came of it ------------------------------------------------------------------------------------------------------------

    def _finish(self, seconds: float) -> None:
        """Resolve the rows of a reply that is whole, as far as it was wanted."""
        usage = self._reply.usage
        self._read()
        charges = self._charges()
        for place, (num_tokens, estimated) in enumerate(charges):
            fault = self._fault(place, num_tokens)
            if fault is not None:
                self._http.faults[fault.kind] += 1
                self._lose(place, "error", num_tokens, f"{fault.kind}: {fault.cause}", seconds, estimated=estimated or usage is None)
                continue
            self._resolve(place, num_tokens, seconds=seconds, estimated=estimated)

    def _fault(self, place: int, num_tokens: int) -> Fault | None:
        """Return what is wrong with a row whose reply is over; None: nothing."""
        choice, ended = self._reply.choices.get(place, Choice()), self._scanners[place].ended
        fault = None if ended else self._reply.fault(place)
        if fault is None and choice.num_visible > self._cap:
            fault = Fault("Overrun", f"{choice.num_visible} tokens where {self._cap} were asked for")
        if fault is None and self._findings.token_ids and not choice.ids and (choice.pieces or num_tokens):
            fault = Fault("BadReply", "a text without its token ids")
        return fault

    def _charges(self) -> list[tuple[int, bool]]:
        """Return what each row is charged, and whether that is an estimate."""
        reply, cap = self._reply, self._cap
        seen = [reply.choices[place].num_visible if place in reply.choices else 0 for place in range(len(self.indexes))]
        if not reply.ended:
            return [(self._received(place), True) for place in range(len(self.indexes))]
        thought = self._findings.reasoning or any(choice.reasoned for choice in reply.choices.values())  # which may be hidden
        shown = all(seen[place] or not choice.pieces for place, choice in reply.choices.items()) and not thought
        if reply.usage is None:
            return [(min(cap, count), reply.doubted) if shown and count else (cap, True) for count in seen]
        total, wrote = reply.usage.generated, any(choice.pieces or choice.reasoned for choice in reply.choices.values())
        if total < sum(seen) or (total == 0 and wrote) or total > cap * len(seen):
            return [(min(cap, count) if shown and count else cap, True) for count in seen]
        if len(seen) == 1:
            return [(total, False)]
        if shown and sum(seen) == total:
            return [(count, False) for count in seen]
        sizes = [len("".join(reply.choices[place].pieces).encode(errors="replace")) for place in range(len(seen))]
        parts = shares(total, sizes, [cap] * len(seen))
        return [(cap, True)] * len(seen) if parts is None else [(part, True) for part in parts]

    def _received(self, place: int) -> int:
        """Return what a row that ended here is charged."""
        if not self._sent:
            return 0
        choice = self._reply.choices.get(place, Choice())
        if not self._findings.streams or choice.reasoned or (self._findings.reasoning and not choice.num_visible):
            return self._cap
        if choice.num_visible:
            return min(self._cap, choice.num_visible)
        return min(self._cap, len("".join(choice.pieces).encode(errors="replace")) + 1) if choice.pieces else 0

    def _give_up(self, finish: Finish, error: str, seconds: float, fault: Fault | None = None) -> None:
        """Resolve the rows of a call that was cancelled, or broke: those that had ended before it did are whole."""
        if self._sent:
            self._read()
        for place in range(len(self.indexes)):
            num_tokens = self._received(place)
            if fault is not None and fault.kind not in _MIXED and place in self._reply.choices and self._fault(place, num_tokens) is None:
                self._resolve(place, num_tokens, seconds=seconds, estimated=True)
            else:
                self._lose(
                    place, finish, num_tokens, error, seconds, estimated=self._sent, after_s=None if fault is None else fault.after_s
                )

    def _lose(
        self, place: int, finish: Finish, num_tokens: int, error: str, seconds: float, *, estimated: bool, after_s: float | None = None
    ) -> None:
        """Resolve a row that failed, or draw it again; `after_s`: what the server asked to wait, None where it is not at fault."""
        index, tried, patience = self.indexes[place], self._lost.tries + 1, self._http.patience
        row, lost = self.rows.request.rows[index], Lost(tried, self._lost.tokens + min(self._cap, num_tokens), error)
        may = self.rows.request.rereads and finish == "error" and self._sent and num_tokens < self._cap and tried < patience.tries
        if may and error.partition(": ")[0] not in _FOR_GOOD and (after_s or 0.0) <= patience.longest_wait_s:
            if after_s is not None:
                longest = min(patience.longest_wait_s, patience.wait_s * 2 ** (tried - 1))
                lost = dataclasses.replace(lost, wait_s=after_s + longest * uniform(row.stream, row.position, 1 << 17 | tried))
            self._again.append(self._other((index,), lost))
            return
        estimated = estimated or bool(self._lost.tokens)
        self.rows.settle(index, Sample("", (), (), finish, None, lost.tokens, estimated=estimated, error=error, seconds=seconds))

    def _read(self) -> None:
        """Count the input; without a report that can be, by what it can be at most."""
        usage, bound = self._reply.usage, self._read_at_most()
        if usage is not None and usage.prompt <= bound:
            self.rows.read(usage.prompt, usage.cached)
        else:
            self.rows.read(bound, None)

    def _read_at_most(self) -> int:
        """Return the most tokens of the input."""
        handle = self.rows.request.handle
        if self._findings.mode == "tokens":
            return len(handle.ids)
        return input_bound(handle.prompt, handle.text, self._findings.template_tokens)

    def _resolve(self, place: int, num_tokens: int, *, seconds: float = 0.0, estimated: bool) -> None:
        """Resolve a row whose reply is whole, as far as it was wanted; without one there was no room for it."""
        handle, scanner = self.rows.request.handle, self._scanners[place]
        choice = self._reply.choices.get(place, Choice(finish="length"))
        finish: Finish = scanner.ended or ("length" if choice.finish in ("length", "max_tokens") else "eos")
        kept = self._kept.get(place, choice.num_visible)
        ids = tuple(choice.ids[:kept]) if self._findings.token_ids else ()
        logprobs = tuple(choice.logprobs[:kept]) if self._findings.logprobs else ()
        if self._findings.token_ids:
            carry = scanner.carry or (_beyond(handle.carry, choice, scanner.text) if scanner.ended and choice.finish else "")
            behind = Handle(handle.prompt, handle.ids + ids, "", carry)
        else:
            behind = Handle(handle.prompt, (), handle.text + scanner.text, "")
        unseen = num_tokens - len(logprobs)  # the end of sequence is a token that not every server shows
        logprobs = logprobs if unseen == 0 or (unseen == 1 and finish == "eos" and not ids) else ()
        charged, lost = num_tokens + self._lost.tokens, self._lost
        sample = Sample(
            scanner.text,
            ids,
            logprobs,
            finish,
            behind,
            charged,
            estimated or bool(lost.tries),
            lost.error,
            seconds,
            lost_tokens=lost.tokens,
        )
        self.rows.settle(self.indexes[place], sample)


HOW_CERTIFICATE = "name its authority's file in the environment variable SSL_CERT_FILE"


def explained(fault: Fault) -> str:
    """Return a fault as `Sample.error` has it, with its cure where there is one that the caller knows."""
    kind, cure = fault.kind, ""
    if fault.status in (401, 403):
        kind, cure = "KeyRefused", HOW_KEY
    elif fault.status == 404:
        kind, cure = "NotServed", "see tts doctor --url"
    elif fault.status in (400, 413, 422) and _NO_ROOM.search(fault.cause):
        kind, cure = "NoRoom", "limit a row (--max-tokens), shorten the problem, or give the model's record its context"
    elif kind == "CertificateError":
        cure = HOW_CERTIFICATE
    return f"{kind}: {fault.cause}" + (f"; {cure}" if cure else "")


def _beyond(carry: str, choice: Choice, text: str) -> str:
    """Return what the last token carries beyond the stop text at which the server cut it."""
    whole = carry + "".join(choice.tokens)
    if whole.startswith(text):
        return whole[len(text) :]
    last = choice.tokens[-1] if choice.tokens else ""
    return next((last[k:] for k in range(len(last), 0, -1) if text.endswith(last[:k])), "")
