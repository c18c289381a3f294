"""The process of a server, from its start until it is ready, and to its end.

A server is a separate process, maybe in another Python environment. The server ends at the end of the block. On Linux
it also ends if the process that started it is killed.
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
_ENDS_S = 20.0  # seconds until a server that was told to end is killed
_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready.

    Args:
        url: The url of the server, without a path.
        process: The process of the server.
        log: The file of the server's output.
    """

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
        log: The file of the server's output.
        wait_s: Most seconds until the server is ready.
        host: The host at which the server listens.
        port: The port at which the server listens; 0: any free port.

    Raises:
        ConfigError: This machine has no such host, or the port is in use.
        EngineError: The server ended, or took longer than `wait_s`.
    """
    port = _free_port(host, port)
    command = [*wanted.command, "--host", host, "--port", str(port)]
    environment = {**os.environ, **wanted.environment}
    reached_host = _REACHED.get(host, host)
    url = f"http://[{reached_host}]:{port}" if ":" in reached_host else f"http://{reached_host}:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=_dies_with_parent if _LIBC else None,  # noqa: PLW1509 - the function makes one system call
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
        EngineError: Always, when the server has ended.
    """
    server.process.wait()
    raise _end_error(server)


def _wait(server: Server, health: str, wait_s: float) -> None:
    """Wait until a server answers at its health path.

    Raises:
        EngineError: The server ended, or took longer than `wait_s`.
    """
    start, pause_s = time.monotonic(), 0.05
    while not _answers(server.url + health):
        elapsed_s = time.monotonic() - start
        if server.process.poll() is not None:
            raise _end_error(server)
        if elapsed_s > wait_s:
            raise EngineError(
                f"the server is not ready after {elapsed_s:.0f} s; its log ends: {_tail(server.log)}",
                hint=f"see {server.log}",
            )
        time.sleep(pause_s)
        pause_s = min(1.0, 2 * pause_s)


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
    """Return the end of a log in one line, at most `_TAIL` characters; "nothing" for an empty log.

    If some line names an error, the text begins at the last such line.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    error_indexes = [index for index, line in enumerate(lines) if "Error" in line]
    if error_indexes:
        lines = lines[error_indexes[-1] :]
    return " ".join(lines)[-_TAIL:] or "nothing"


def _free_port(host: str, port: int) -> int:
    """Return a free port of a host.

    Args:
        host: The host.
        port: The requested port; 0: any free port.

    Raises:
        ConfigError: The requested port is in use, or this machine has no such host.
    """
    if not host.strip():
        raise ConfigError(
            f"host is {host!r}, but must be an address or a name",
            hint="127.0.0.1: this machine alone; 0.0.0.0: every network",
        )
    reason = "a port is a number from 0 to 65535"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if 0 <= port < 2**16:
        try:
            with socket.create_server((host, port), family=family) as listener:
                return int(listener.getsockname()[1])
        except (OSError, UnicodeError) as failure:
            reason = getattr(failure, "strerror", None) or str(failure)
    raise ConfigError(
        f"port is {port} on {host}, where no server can listen: {reason}",
        hint="choose another; --port 0 takes a free one",
    )


def _dies_with_parent() -> None:
    """Make Linux end this child process when the thread that started it has ended."""
    assert _LIBC is not None, "it is called on Linux only"
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and all processes that it started."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)  # SIGKILL follows in any case, for processes that the server has left behind
