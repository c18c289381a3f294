"""Clients that stand still: none keeps others out, by files, by memory or by the log."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("yaml")

from tests.addons.gateway.asking import QUESTION, function_models, refused, serving, url_of
from tests.support.guard import LIMIT_S, wait_for
from tts_addons.gateway import connections, protocol
from tts_addons.gateway.config import GatewayLimits
from tts_addons.gateway.connections import Connections

KEY = "key-of-anna-0123456789"
FILES = 256
CONFIG = """
models: {toy: {}}
keys: keys.txt
limits: {head_seconds: 0.5, body_seconds: 0.5, read_seconds: 0.5}
"""


class Running(SimpleNamespace):
    """A gateway that was started as a user starts it, with few files."""

    port: int
    log: Path

    def connect(self) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.settimeout(LIMIT_S)
        made.connect(("127.0.0.1", self.port))
        return made

    def health(self) -> int:
        return httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=LIMIT_S).status_code


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "keys.txt").write_text(f"anna {KEY}\n")
    (folder / "gateway.yaml").write_text(CONFIG)
    command = [sys.executable, "-m", "tts", "serve", "--config", str(folder / "gateway.yaml"), "--port", "0"]
    bound = (
        f"import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES})); "
        f"os.execv({command[0]!r}, {command!r})"
    )
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen([sys.executable, "-c", bound], stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            yield Running(
                port=int(process.stdout.readline().rsplit(":", 1)[1].removesuffix("/v1\n")), log=folder / "log"
            )
        finally:
            process.kill()


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat", b"\r\n", b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_more_connections_than_files_keep_nobody_out(running, begun):
    held = []
    try:
        for _ in range(FILES + 50):
            made = running.connect()
            held.append(made)
            if begun:
                made.sendall(begun)
        assert running.health() == 200
    finally:
        for one in held:
            one.close()
    assert running.log.read_text() == ""


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *lines]).encode()


POST = head("POST", "/v1/chat/completions", "content-type: application/json", "content-length: 9000")
KEYED = b"\r\nauthorization: Bearer " + KEY.encode()
STILL: dict[str, tuple[bytes, bytes]] = {  # what a client sends first, and then from time to time
    "nothing": (b"", b""),
    "empty lines": (b"", b"\r\n"),
    "half a line": (b"POST /v1/chat", b""),
    "a line that never ends": (b"GET /", b"x"),
    "headers that never end": (head("GET", "/health", "x-long: "), b"y"),
    "another request that never ends": (head("GET", "/health") + b"\r\n\r\nGET /hea", b"x"),
    "empty lines after a request": (head("GET", "/health") + b"\r\n\r\n", b"\r\n"),
    "a body that never comes": (POST + KEYED + b"\r\n\r\n", b""),
    "a body that never ends": (POST + KEYED + b"\r\n\r\n{", b" "),
    "a body without a key": (POST + b"\r\n\r\n{", b" "),
    "a body that nobody reads": (head("GET", "/health", "content-length: 9000") + b"\r\n\r\n", b"x"),
}


def wait_for_end(client: socket.socket, more: bytes, *, read: bool) -> bytes:
    """Return what arrives until the gateway closes the connection."""
    arrived, end = b"", time.monotonic() + LIMIT_S
    client.settimeout(0.1)
    while time.monotonic() < end:
        try:
            client.sendall(more)
            if not read:
                time.sleep(0.05)
                continue
            if not (part := client.recv(4096)):
                return arrived
            arrived += part
        except TimeoutError:
            continue
        except OSError:
            return arrived
    pytest.fail("the connection was not closed")


def test_a_client_that_stands_still_is_disconnected(running):
    def end(kind: str) -> None:
        first, more = STILL[kind]
        with running.connect() as client:
            client.sendall(first)
            wait_for_end(client, more, read=True)

    with ThreadPoolExecutor(len(STILL)) as pool:
        for ended in [pool.submit(end, kind) for kind in STILL]:
            ended.result()
    assert running.health() == 200


def assert_ends_unread(client: socket.socket, more: bytes) -> None:
    """Ask for more than the buffers of both sides hold, read nothing, and wait until the gateway closes."""
    client.settimeout(0)
    with suppress(BlockingIOError):
        for _ in range(10_000):
            client.send((head("GET", "/") + b"\r\n\r\n") * 4)
    wait_for_end(client, more, read=False)


@pytest.mark.slow
def test_a_client_that_reads_no_reply_is_disconnected(monkeypatch):
    monkeypatch.setattr(protocol, "_LEAST_RATE", 1e6)
    with (
        serving(limits={"read_seconds": 0.5}) as server,
        socket.create_connection(server.servers[0].sockets[0].getsockname()) as client,
    ):
        assert_ends_unread(client, b"x")


@pytest.mark.slow
def test_a_client_that_asks_on_and_reads_no_reply_is_disconnected(running):
    with running.connect() as client:
        assert_ends_unread(client, head("GET", "/") + b"\r\n\r\n")
    assert running.health() == 200


def test_a_client_that_reads_slowly_gets_its_whole_reply(running):
    with running.connect() as client:
        client.sendall(head("GET", "/", "connection: close") + b"\r\n\r\n")
        arrived = wait_for_end(client, b"", read=True)
    first, _, body = arrived.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in first


def test_an_address_has_a_bound_of_requests_under_way():
    forever = {"models": function_models("forever")}
    with serving(limits={"address_connections": 2}, **forever) as server, ExitStack() as stack:
        url = url_of(server)
        body = json.dumps({"model": "forever", "messages": QUESTION, "stream": True}).encode()
        asked = head("POST", "/v1/chat/completions", "content-type: application/json", f"content-length: {len(body)}")
        asked += b"\r\n\r\n" + body
        port = int(url.rsplit(":", 1)[1].removesuffix("/v1"))
        held = [socket.create_connection(("127.0.0.1", port), LIMIT_S) for _ in range(2)]
        for one in held:
            stack.enter_context(one)
            one.sendall(asked)
            assert one.recv(100).startswith(b"HTTP/1.1 200")

        def models() -> list[httpx.Response]:
            with suppress(httpx.TransportError):  # closed before the reply to a refused client was read
                return [httpx.get(f"{url}/models", timeout=LIMIT_S)]
            return []

        (reply,) = wait_for(models)
        refused(reply, 503, None, "too_many_connections")
        assert reply.headers["retry-after"] == "1"
        for one in held:
            one.close()
        wait_for(lambda: [one for one in models() if one.status_code == 200])


@pytest.mark.slow
def test_the_limit_of_open_files_is_raised():
    source = (
        "import resource\nfrom tts_addons.gateway.connections import "
        "raise_open_files\nresource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))\n"
        "print(raise_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 300
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert found.stdout.split() == ["300", "300"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "most", "of_address"), [(1_000_000, 4096, 2048), (1024, 768, 384), (4, 3, 1), (1, 2, 1)]
)
def test_bounds_stay_below_the_open_files(files, most, of_address):
    async def bounds() -> tuple[int, int]:
        made = Connections([], lambda: pytest.fail("nothing is accepted"), GatewayLimits(), files)
        made.close()
        return made.most, made.most_of_address

    assert asyncio.run(bounds()) == (most, of_address)


@pytest.mark.slow
def test_a_failure_to_accept_is_logged_once_and_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(connections, "_RETRY_S", 0.0)
    tries = [0]

    async def fail(_: socket.socket) -> Any:
        tries[0] += 1
        if tries[0] > 3:
            await asyncio.Event().wait()
        raise OSError(errno.EMFILE, "Too many open files")

    async def accept() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", fail)
        made = Connections([socket.socket()], lambda: pytest.fail("nothing is accepted"), GatewayLimits(), 100)
        while tries[0] <= 3:
            await asyncio.sleep(0)
        made.close()
        await made.wait_closed()

    with caplog.at_level(logging.ERROR):
        asyncio.run(accept())
    assert [record.getMessage() for record in caplog.records] == [
        "a connection could not be accepted: [Errno 24] Too many open files"
    ] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8::1%eth0", 5, 0, 0), "2001:db8::/64"),
        ("", ""),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(name, address):
    assert connections._network(name) == address
