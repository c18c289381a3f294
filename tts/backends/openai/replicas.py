"""The choice among servers of one model, and the rests of servers after failures.

A call goes to the first server that does not rest. So searches keep to the server whose cache has their prompts. A
server that fails rests for a second, and twice as long after each failure in a row. The rest is at most as long as any
try waits, and at least as long as the server asks for. Meanwhile calls go to the next server. The first call after the
rest shows whether the server works again.

Source: retries, failover and cooldowns of LiteLLM's router, by its documentation. Differs: the time doubles, and the
order is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from tts.backends.openai.errors import ServerError

_REST_S = 1.0
# kinds of failures that a server has, and not a request
RESTING = frozenset(
    {"ConnectionFailed", "ConnectionLost", "TimedOut", "Unavailable", "ServerError", "RateLimited", "QuotaExceeded"}
)


@dataclass(slots=True)
class Replica:
    """One of the servers.

    Attributes:
        root: The base url of the server's API.
        clients: The HTTP clients of the server.
        busy: Calls in flight, by client.
        failures: Failures in a row.
        rests_until: The time up to which the server rests.
        closed: The error of calls during a rest that is longer than any try waits; None: no such rest.
    """

    root: str
    clients: list[httpx.AsyncClient] = field(default_factory=list[httpx.AsyncClient])
    busy: list[int] = field(default_factory=list[int])
    failures: int = 0
    rests_until: float = -math.inf
    closed: ServerError | None = None

    @property
    def site(self) -> str:
        """The base url of endpoints outside the API."""
        return self.root.removesuffix("/v1")


class Replicas:
    """The servers, in the order in which they are preferred.

    Args:
        roots: The base urls of the servers' APIs, at least one.
        longest_s: The longest rest, and the longest wait that a try takes, in seconds.
    """

    def __init__(self, roots: Sequence[str], longest_s: float) -> None:
        self.all = [Replica(root) for root in dict.fromkeys(roots)]
        self._longest_s = longest_s

    def choose(self, now: float) -> Replica:
        """Return the server for the next call.

        The first server that does not rest is chosen. If all rest, the server is chosen whose rest ends first, among
        the servers that are not closed.

        Args:
            now: The time, in seconds.

        Raises:
            ServerError: All servers are closed for longer than any try waits.
        """
        for replica in self.all:
            if replica.rests_until <= now:
                return replica
        open_replicas = [replica for replica in self.all if replica.closed is None]
        first_to_wake = min(open_replicas or self.all, key=lambda replica: replica.rests_until)
        if first_to_wake.closed is not None:
            raise first_to_wake.closed
        return first_to_wake

    def note_success(self, replica: Replica) -> None:
        """Note that a call of a server ended well."""
        replica.failures, replica.rests_until, replica.closed = 0, -math.inf, None

    def note_failure(self, replica: Replica, error: ServerError, now: float) -> bool:
        """Note that a call of a server failed, and return whether another server may take the call at once.

        Args:
            replica: The server.
            error: The error of the call.
            now: The time, in seconds.
        """
        if error.kind not in RESTING:
            return False
        replica.failures += 1
        is_long = error.kind == "QuotaExceeded" or error.after_s > self._longest_s
        rest_s = min(self._longest_s, _REST_S * 2.0 ** min(replica.failures - 1, 30))
        replica.closed = None
        if is_long:
            replica.closed = ServerError(error.kind, error.cause, status=error.status, after_s=error.after_s)
            rest_s = error.after_s or self._longest_s
        replica.rests_until = now + max(rest_s, error.after_s)
        has_other_server = any(other_replica.rests_until <= now for other_replica in self.all)
        return (error.again or is_long) and has_other_server
