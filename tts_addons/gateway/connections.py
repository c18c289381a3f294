"""The connections of a gateway.

Connections are accepted within bounds, for all clients and for each address. Connections that stand still are ended. A
connection waits for the head of a request, or has a request under way. One that waits gives way to a new one where a
bound is reached: so connections that send nothing, or a byte a second, keep nobody out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from tts._core.logs import get_logger
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.failures import ApiError
from tts_addons.gateway.protocol import BoundedHttp

LOG = get_logger("tts.serve")
_MOST_FILES: Final = 65_536  # the most open files that are asked for
_FILES_WITHOUT_LIMIT: Final = 2048  # where the system names no limit
_OWN_SHARE: Final = 0.25  # of the open files, for models, stores and calls of other servers
_ADDRESS_SHARE: Final = 0.5  # of all connections, for one address
_SWEEP_S: Final = 1.0
_RETRY_S: Final = 1.0  # after the system refused a connection


class Connections:
    """Accepts the connections of listening sockets, and ends those that exceed a time-out.

    Args:
        listening: The sockets, which are closed with this object.
        make: A function that makes the protocol of a new connection.
        limits: The operator's limits.
        files: The number of files that this process may open.
    """

    def __init__(
        self, listening: Sequence[socket.socket], make: Callable[[], BoundedHttp], limits: GatewayLimits, files: int
    ) -> None:
        self.sockets = tuple(listening)
        self._make, self._limits = make, limits
        self.most = max(2, min(limits.connections, int(files * (1 - _OWN_SHARE))))
        self.most_of_address = max(1, min(limits.address_connections, int(self.most * _ADDRESS_SHARE)))
        self._open: dict[str, set[BoundedHttp]] = {}
        self._num_open = 0
        self._freed = asyncio.Event()
        for listening_socket in self.sockets:
            listening_socket.settimeout(0)
        self._tasks = [asyncio.create_task(self._accept(listening_socket)) for listening_socket in self.sockets]
        self._tasks.append(asyncio.create_task(self._sweep()))

    def close(self) -> None:
        """Accept no more."""
        for task in self._tasks:
            task.cancel()
        for one in self.sockets:
            one.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections of a socket until cancelled, within the limits of all and of each address."""
        loop = asyncio.get_running_loop()
        while True:
            while self._num_open >= self.most and not self._evict(self._open):
                self._freed.clear()
                await self._freed.wait()
            try:
                accepted, name = await loop.sock_accept(listening)
            except OSError as failure:
                LOG.error("a connection could not be accepted: %s", failure)
                await asyncio.sleep(_RETRY_S)
                continue
            address = _network(name)
            if len(self._open.get(address, ())) >= self.most_of_address and not self._evict([address]):
                await _refuse(accepted, self.most_of_address)
                continue
            with suppress(OSError):  # the client has left
                await loop.connect_accepted_socket(lambda address=address: self._connection(address), accepted)

    def _connection(self, address: str) -> BoundedHttp:
        connection = self._make()
        connection.on_lost = lambda: self._forget(address, connection)
        self._open.setdefault(address, set()).add(connection)
        self._num_open += 1
        return connection

    def _forget(self, address: str, connection: BoundedHttp) -> None:
        """Stop counting a connection that has ended."""
        connections = self._open.get(address, set())
        if connection in connections:
            connections.remove(connection)
            self._num_open -= 1
            self._freed.set()
        if not connections:
            self._open.pop(address, None)

    def _evict(self, addresses: Any) -> bool:
        """End the connection of these addresses that has waited longest for the head of a request.

        Returns:
            Whether any connection waited.
        """
        idle_times = [(connection, connection.idle_since) for connection in self._connections_from(addresses)]
        waiting = [(connection, idle_since) for connection, idle_since in idle_times if idle_since is not None]
        if not waiting:
            return False
        longest_waiting, _since = min(waiting, key=lambda pair: pair[1])
        longest_waiting.end()
        longest_waiting.on_lost()
        return True

    def _connections_from(self, addresses: Any) -> list[BoundedHttp]:
        return [one for address in addresses for one in self._open.get(address, ())]

    async def _sweep(self) -> None:
        """End the connections that exceed a time-out, from time to time."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            for one in self._connections_from(list(self._open)):
                if one.is_overdue(self._limits.head_seconds, self._limits.read_seconds):
                    one.end()


def raise_open_files() -> int:
    """Raise this process's limit of open files as far as an ordinary user may, and return the limit."""
    try:
        import resource
    except ImportError:  # another system than Unix
        return _FILES_WITHOUT_LIMIT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the system has a lower limit than it names
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


def _network(name: Any) -> str:
    """Return the address under which the connections of a client are counted.

    It is the whole address in IPv4, and the network of the first 64 bits in IPv6. "": there is no such address.

    Args:
        name: The name of the socket at the client's end, as its family has it.
    """
    try:
        address = ipaddress.ip_address(name[0].partition("%")[0])
    except (ValueError, IndexError, TypeError, AttributeError):
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


async def _refuse(accepted: socket.socket, most: int) -> None:
    """Reply 503 to a connection above the limit of its address, and close it.

    The socket is not waited for: what it does not take at once is lost.
    """
    cause = f"this address has {most} connections with requests under way, the most that is allowed; send fewer at once"
    failure = ApiError(503, cause, code="too_many_connections", retry_s=1)
    body = json.dumps(failure.body()).encode()
    headers = {
        "content-type": "application/json",
        "content-length": len(body),
        "connection": "close",
        **failure.headers(),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with accepted, suppress(OSError):
        accepted.send(f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n".encode() + body)
        accepted.shutdown(socket.SHUT_WR)
    await asyncio.sleep(0)  # other tasks have their turn, however many connections are refused
