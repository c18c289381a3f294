"""One call for rows of one request: how it is asked, where its rows end, and what they are charged."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.backends.base import Counters, Finish, Row, RowSet, Sample, SampleRequest
from tts.backends.openai_findings import Findings
from tts.backends.openai_http import HOW_KEY, Fault, Http
from tts.backends.openai_reply import Choice, Reply, shares
from tts.backends.stops import StopScanner
from tts.randomness import hash64
from tts.types import Message, Prompt

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
_NO_ROOM = re.compile(r"context[ _](?:length|window|size)|n_ctx|too (?:long|large)|max_(?:completion_)?tokens", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A path: by its tokens, prompt included, where the server takes them, else by its text behind the prompt.

    Args:
        carry: text of the last token that opens the continuation; only of paths by tokens.
    """

    prompt: Prompt
    ids: tuple[int, ...]
    text: str
    carry: str


class Rows(RowSet):
    """Rows whose calls end as soon as they are cancelled."""

    __slots__ = ("calls", "counters")

    def __init__(self, request: SampleRequest, counters: Counters) -> None:
        super().__init__(request)
        self.counters = counters
        self.calls: set[asyncio.Task[None]] = set()

    def waits(self, index: int) -> bool:
        """Whether somebody still waits for a row."""
        return not self.done and self.samples[index] is None

    def settle(self, index: int, sample: Sample) -> None:
        """Resolve a row and count it, unless the whole call has failed."""
        if self.waits(index):
            self.counters.generated_tokens += sample.num_tokens
            self.resolve(index, sample)

    def read(self, prompt: int, cached: int | None) -> None:
        """Count the input of a call, of which `cached` tokens were reused; None: not known."""
        self.prompt_tokens += prompt - (cached or 0)
        self.counters.prompt_tokens += prompt - (cached or 0)
        self.counters.reused_tokens += cached or 0
        self.reused_tokens = None if cached is None or self.reused_tokens is None else self.reused_tokens + cached

    def cancel(self) -> None:
        """Close the connections of calls under way, which stops the server; rows resolve with what was received."""
        super().cancel()
        self._stop()

    def fail(self, failure: Exception) -> None:
        """Fail every row, and stop what is under way."""
        super().fail(failure)
        self._stop()

    def _stop(self) -> None:
        for call in self.calls:
            if call is not asyncio.current_task():
                call.cancel()


@dataclass(frozen=True, slots=True)
class Lost:
    """What tries of a row lost before: how many there were, the tokens they are charged, and what went wrong last."""

    tries: int = 0
    tokens: int = 0
    error: str = ""


class Call:
    """Asks for some rows of one request, all with one cap.

    Charges: what the server reports, or shows token by token. Without a report, or with one that cannot be (fewer tokens than it
        shows, more than it may write), a row is charged its full grant, as an estimate. A row that ends here (cancelled, broken,
        or cut at a step that the server knows nothing of) has no report: it is charged the tokens that were received, where the
        server shows them, else what the received text can be at most, its bytes and one; all that it was granted where the reply
        does not stream, or where tokens that nobody sees may be among them.

    Args:
        indexes: of the rows. limit: most tokens of prompt and path; None: not known.
        lost: what tries before this one lost; None: it is the first.
    """

    def __init__(
        self, http: Http, findings: Findings, rows: Rows, indexes: Sequence[int], limit: int | None, lost: Lost | None = None
    ) -> None:
        request = rows.request
        self.rows = rows
        self.indexes = indexes
        self._http = http
        self._findings = findings
        self._limit = limit
        self._lost = lost or Lost()
        self._again: list[tuple[int, Lost]] = []
        self._cap = request.rows[indexes[0]].max_tokens - self._lost.tokens
        if limit is not None:
            room = limit - self._read_at_most(likely=True)
            if findings.mode != "tokens":  # a guess: the server knows better, and says so
                room = max(room, limit // 8, 1)
            self._cap = min(self._cap, room)
        self._scanners = [StopScanner(request.stop, request.text, request.handle.carry) for _ in indexes]
        self._kept: dict[int, int] = {}  # tokens shown when a row ended, by place
        self._reply = Reply(len(indexes))
        stops = request.stop.step if request.stop.at_step else ()
        exact = findings.mode != "tokens" or findings.logprobs  # else nobody knows what a last token carries beyond its stop text
        self._stops = stops if findings.stops and exact and len(stops) <= _MOST_STOPS else ()
        self._sent = False

    async def run(self) -> None:
        """Call, and resolve the rows, whatever happens; a row whose reply broke is drawn again from what is left of its grant."""
        await self._run()
        for index, lost in self._again:
            call = Call(self._http, self._findings, self.rows, (index,), self._limit, lost)
            if self.rows.cancelled:
                call.rows.settle(index, Sample("", (), (), "cancelled", None, lost.tokens, estimated=True))
            else:
                await call.run()

    async def _run(self) -> None:
        loop, request = asyncio.get_running_loop(), self.rows.request
        if self._scanners[0].ended or self._cap < 1:
            for place in range(len(self.indexes)):
                self._resolve(place, self._scanners[place].ended or "length", 0, estimated=False)
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
        if fault is not None and (not complete or fault.kind in ("WrongCount", "DuplicateChoice")):
            self._sent = not (fault.again or fault.status or fault.kind == "CertificateError")  # else it cost nothing
            self._give_up("error", explained(fault), seconds)
            return
        self._finish(seconds)

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
        usage, reply = self._reply.usage, self._reply
        self._read()
        charges = self._charges()
        for place, (num_tokens, estimated) in enumerate(charges):
            choice, scanner = reply.choices.get(place, Choice()), self._scanners[place]
            fault = None if scanner.ended else reply.fault(place)
            if fault is None and choice.num_visible > self._cap:
                fault = Fault("Overrun", f"{choice.num_visible} tokens where {self._cap} were asked for")
            if fault is None and self._findings.token_ids and not choice.ids and (choice.pieces or num_tokens):
                fault = Fault("BadReply", "a text without its token ids")
            if fault is not None:
                self._http.faults[fault.kind] += 1
                self._lose(place, "error", num_tokens, f"{fault.kind}: {fault.cause}", seconds, estimated=estimated or usage is None)
                continue
            finish: Finish = scanner.ended or ("length" if choice.finish in ("length", "max_tokens") else "eos")
            self._resolve(place, finish, num_tokens, seconds=seconds, estimated=estimated)

    def _charges(self) -> list[tuple[int, bool]]:
        """Return what each row is charged, and whether that is an estimate."""
        reply, cap = self._reply, self._cap
        seen = [reply.choices[place].num_visible if place in reply.choices else 0 for place in range(len(self.indexes))]
        if not reply.ended:
            return [(self._received(place), True) for place in range(len(self.indexes))]
        thought = any(choice.reasoned for choice in reply.choices.values())
        shown = all(seen[place] or not choice.pieces for place, choice in reply.choices.items()) and not thought
        if reply.usage is None:
            return [(min(cap, count), reply.doubted) if shown and count else (cap, True) for count in seen]
        total, wrote = reply.usage.generated, any(choice.pieces for choice in reply.choices.values())
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

    def _give_up(self, finish: Finish, error: str, seconds: float) -> None:
        """Resolve the rows of a call that was cancelled, or broke."""
        if self._sent:
            self._read()
        for place in range(len(self.indexes)):
            self._lose(place, finish, self._received(place), error, seconds, estimated=self._sent)

    def _lose(self, place: int, finish: Finish, num_tokens: int, error: str, seconds: float, *, estimated: bool) -> None:
        index, tried = self.indexes[place], self._lost.tries + 1
        lost = Lost(tried, self._lost.tokens + min(self._cap, num_tokens), error)
        kind = error.partition(": ")[0]
        if finish == "error" and kind not in _FOR_GOOD and num_tokens < self._cap and tried < self._http.patience.tries and self._sent:
            self._again.append((index, lost))
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

    def _read_at_most(self, *, likely: bool = False) -> int:
        """Return the most tokens of the input; `likely`: of a text in two bytes a token, to leave a row what room there may be."""
        handle = self.rows.request.handle
        if self._findings.mode == "tokens":
            return len(handle.ids)
        bound = input_bound(handle.prompt, handle.text, self._findings.template_tokens)
        return bound // 2 if likely else bound

    def _resolve(self, place: int, finish: Finish, num_tokens: int, *, seconds: float = 0.0, estimated: bool) -> None:
        handle, scanner = self.rows.request.handle, self._scanners[place]
        choice = self._reply.choices.get(place, Choice())
        kept = self._kept.get(place, choice.num_visible)
        ids = tuple(choice.ids[:kept]) if self._findings.token_ids else ()
        logprobs = tuple(choice.logprobs[:kept]) if self._findings.logprobs else ()
        if self._findings.token_ids:
            carry = scanner.carry or (_beyond(handle.carry, choice, scanner.text) if scanner.ended and choice.finish else "")
            behind = Handle(handle.prompt, handle.ids + ids, "", carry)
        else:
            behind = Handle(handle.prompt, (), handle.text + scanner.text, "")
        logprobs = logprobs if len(logprobs) == num_tokens else ()
        charged, lost = num_tokens + self._lost.tokens, self._lost
        sample = Sample(scanner.text, ids, logprobs, finish, behind, charged, estimated or bool(lost.tries), lost.error, seconds)
        self.rows.settle(self.indexes[place], sample)


CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
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


def joined(prompt: Prompt) -> str:
    """Return a prompt as one text."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)


def messages(prompt: Prompt, text: str = "") -> list[dict[str, str]]:
    """Return a prompt as messages, with the text of a path as what the assistant said so far."""
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    said = (*turns, Message("assistant", text)) if text else turns
    return [{"role": turn.role, "content": turn.content} for turn in said]


def input_bound(prompt: Prompt, text: str, template_tokens: int) -> int:
    """Return the most tokens that a prompt and a path can be: their bytes, and what a template adds."""
    contents = [prompt] if isinstance(prompt, str) else [f"{message.role}{message.content}\n\n" for message in prompt]
    return sum(len(one.encode(errors="replace")) for one in (*contents, text)) + template_tokens
