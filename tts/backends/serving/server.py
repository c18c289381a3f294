"""The process of a server, from its start until it is ready, and to its end.

A server is a separate process, maybe of another environment. It ends at the end of the block, and on Linux also where
the process that started it is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tts.backends.serving.commands import ServerLaunch, import_hint
from tts.errors import ConfigError, EngineError

_REACHED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # the address of a server that listens on all interfaces
_TAIL = 300  # characters of a log that an error shows
_ENDS_S = 20.0  # until a server that was told to end is killed
_DEATH_SIGNAL = 1  # of prctl
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready. url: without a path. process: of the server. log: file of its output."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def serving(
    wanted: ServerLaunch, log: Path, wait_s: float, *, host: str = "127.0.0.1", port: int = 0
) -> Generator[Server]:
    """Start a server, yield it when it is ready, and end it at the end of the block.

    Args:
        wanted: The launch of the server.
        log: The file of its output.
        wait_s: Most seconds until it is ready.
        host: The host at which it listens.
        port: The port at which it listens; 0: any free port.

    Raises:
        ConfigError: there is no such host here, or the port is in use. EngineError: the server ended, or took longer.
    """
    port = _free_port(host, port)
    command = [*wanted.command, "--host", host, "--port", str(port)]
    environment = {**os.environ, **wanted.environment}
    shown_at = _REACHED.get(host, host)
    url = f"http://[{shown_at}]:{port}" if ":" in shown_at else f"http://{shown_at}:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=_dies_with_parent if _LIBC else None,  # noqa: PLW1509 - it makes one call to the kernel
        )
        server = Server(url, process, log)
        try:
            _wait(server, wanted.health, wait_s)
            yield server
        finally:
            _end(process)


def watch(server: Server) -> None:
    """Wait until the server ends.

    Raises:
        EngineError: always, when it has ended.
    """
    server.process.wait()
    raise _end_error(server)


def _wait(server: Server, health: str, wait_s: float) -> None:
    began, pause = time.monotonic(), 0.05
    while not _answers(server.url + health):
        passed = time.monotonic() - began
        if server.process.poll() is not None:
            raise _end_error(server)
        if passed > wait_s:
            raise EngineError(
                f"the server is not ready after {passed:.0f} s; its log ends: {_tail(server.log)}",
                hint=f"see {server.log}",
            )
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _end_error(server: Server) -> EngineError:
    tail = _tail(server.log)
    return EngineError(
        f"the server ended with status {server.process.returncode}; its log ends: {tail}",
        hint=import_hint(tail) or f"see {server.log}",
    )


def _tail(log: Path) -> str:
    """Return the end of a log in one line, from its last error on."""
    lines = [
        " ".join(line.split())
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    told = [i for i, line in enumerate(lines) if "Error" in line]
    return " ".join(lines[told[-1] :] if told else lines)[-_TAIL:] or "nothing"


def _free_port(host: str, port: int) -> int:
    """Return a free port.

    Raises:
        ConfigError: the requested port is in use, or the host is not one of this machine.
    """
    if not host.strip():
        raise ConfigError(
            f"host is {host!r}, but must be an address or a name",
            hint="127.0.0.1: this machine alone; 0.0.0.0: every network",
        )
    why, family = "a port is a number from 0 to 65535", socket.AF_INET6 if ":" in host else socket.AF_INET
    if 0 <= port < 2**16:
        try:
            with socket.create_server((host, port), family=family) as held:
                return int(held.getsockname()[1])
        except (OSError, UnicodeError) as failure:
            why = getattr(failure, "strerror", None) or str(failure)
    raise ConfigError(
        f"port is {port} on {host}, where no server can listen: {why}", hint="choose another; --port 0 takes a free one"
    )


def _dies_with_parent() -> None:
    """Make Linux end the child when the thread that started it has ended."""
    assert _LIBC is not None, "it is called on Linux only"
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and what it started."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
            if sent == signal.SIGTERM:
                continue  # what it left behind is killed
            return
