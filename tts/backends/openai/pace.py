"""The pace at which a server is called.

The number of calls in flight adapts to refusals. Requests and tokens per minute are limited.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tts.backends.batching import TurnQueue

_MINUTE_S = 60.0
_CAUTIOUS = 16  # calls in flight at first, to a server that states rate limits
_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_SECONDS = (86400.0, 3600.0, 60.0, 1.0, 0.001)


class Gate:
    """Limits the calls in flight, as an async context manager. The searches take turns.

    A refusal for load halves the limit, to at least one call. Before the first refusal, each call that ends well raises
    the limit by one. Afterwards the limit grows by one for each full round of calls.

    Args:
        most: The most calls in flight, at least 1.
        cautious: Whether to begin with few calls.

    Attributes:
        limit: The calls that may be in flight now.
        cuts: The number of times that the limit was halved.
    """

    def __init__(self, most: int, *, cautious: bool = False) -> None:
        self._most_calls = most
        self.limit: float = min(most, _CAUTIOUS) if cautious else most
        self.cuts = 0
        self._remaining_requests: float = math.inf  # as the server reports
        self._in_use = 0
        self._waiting = TurnQueue[asyncio.Future[None]]()

    async def __aenter__(self) -> None:
        if self._in_use < int(self.limit) and not self._waiting:
            self._in_use += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(turn, [turn])
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn had come, and goes to the next caller
                self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._in_use -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._in_use < int(self.limit):
            turn = self._waiting.take()
            if not turn.done():
                self._in_use += 1
                turn.set_result(None)

    def grow(self) -> None:
        """Raise the limit after a call that ended well."""
        growth = 1 / self.limit if self.cuts else 1
        self.limit = min(self._most_calls, self._remaining_requests, self.limit + growth)
        self._wake()

    def cut(self, cuts: int) -> None:
        """Halve the limit for a call that was refused. Several refusals of one round halve the limit once.

        Args:
            cuts: The value of `Gate.cuts` when the call began.
        """
        if cuts == self.cuts:
            self.limit = max(1, int(self.limit) // 2)
            self.cuts += 1

    def allow(self, remaining: int) -> None:
        """Limit the calls in flight to the requests that the server reports as left, at least one."""
        self._remaining_requests = max(1, remaining)
        self.limit = min(self.limit, self._remaining_requests)


@dataclass(slots=True)
class Ticket:
    """A request that was sent.

    Args:
        at: The time of sending, in seconds.
        tokens: The tokens of the request, prompt included: first the expected number, then the reported one.
    """

    at: float
    tokens: int


class RequestMeter:
    """Spreads requests and tokens over time.

    Args:
        rpm: Most requests in any 60 seconds; None: unlimited.
        tpm: Most tokens in any 60 seconds; None: unlimited. A request of more tokens goes alone.
    """

    def __init__(self, rpm: int | None, tpm: int | None) -> None:
        self._rpm, self._tpm = rpm, tpm
        self._sent: deque[Ticket] = deque()
        self._closed_until = -math.inf
        self._turn_lock = asyncio.Lock()

    async def turn(self, tokens: int) -> Ticket:
        """Wait until a request may be sent, and count it. Requests wait in the order of the calls.

        Args:
            tokens: The expected tokens of the request, prompt included.
        """
        clock = asyncio.get_running_loop().time
        async with self._turn_lock:
            wait_s = self.wait_s(clock(), tokens)
            while wait_s > 0:
                await asyncio.sleep(wait_s)
                wait_s = self.wait_s(clock(), tokens)
            return self.send(clock(), tokens)

    def send(self, now: float, tokens: int) -> Ticket:
        """Count a request that is sent now."""
        ticket = Ticket(now, tokens)
        if self._rpm is not None or self._tpm is not None:
            self._sent.append(ticket)
        return ticket

    def wait_s(self, now: float, tokens: int) -> float:
        """Return the seconds until a request may be sent; 0 or less: the request may be sent now.

        Args:
            now: The time, in seconds.
            tokens: The expected tokens of the request, prompt included.
        """
        while self._sent and now - self._sent[0].at >= _MINUTE_S:
            self._sent.popleft()
        wait = self._closed_until - now
        if self._rpm is not None and len(self._sent) >= self._rpm:
            last_to_expire = self._sent[len(self._sent) - self._rpm]
            wait = max(wait, last_to_expire.at + _MINUTE_S - now)
        if self._tpm is not None:
            num_recent_tokens = sum(ticket.tokens for ticket in self._sent)
            for ticket in self._sent:  # the oldest first: each must be a minute old until the rest leave room
                if num_recent_tokens + tokens <= self._tpm:
                    break
                wait = max(wait, ticket.at + _MINUTE_S - now)
                num_recent_tokens -= ticket.tokens
        return wait

    def close_until(self, at: float) -> None:
        """Send nothing before a time."""
        self._closed_until = max(self._closed_until, at)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Rate limits that the headers of a reply state.

    Args:
        requests: The requests left; None: not stated.
        tokens: The tokens left; None: not stated.
        reset_s: The seconds until a used-up limit is reset.
    """

    requests: int | None = None
    tokens: int | None = None
    reset_s: float = 0.0

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> RateLimits | None:
        """Return the limits that headers state; None where they state neither requests nor tokens."""
        requests = _number(headers, "x-ratelimit-remaining-requests")
        tokens = _number(headers, "x-ratelimit-remaining-tokens")
        if requests is None:
            requests = _number(headers, "x-ratelimit-remaining")
        if requests is None and tokens is None:
            return None
        reset_s = 0.0
        for kind, remaining in (("requests", requests), ("tokens", tokens)):
            if remaining == 0:
                reset_s = max(reset_s, _seconds(headers.get(f"x-ratelimit-reset-{kind}", "")))
        return cls(requests, tokens, reset_s)


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _seconds(text: str) -> float:
    """Return the seconds of "6m0s", "20ms" or "1.5"; 0 for another form."""
    try:
        seconds = float(text)
    except ValueError:
        match = _DURATION.fullmatch(text.strip())
        amounts = match.groups() if match else ()  # of days, hours, minutes, seconds and milliseconds
        seconds = sum(float(amount) * unit_s for amount, unit_s in zip(amounts, _SECONDS, strict=False) if amount)
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
