"""Runs of programs in a folder, which keep the end of the output and leave no process running."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tts_addons.agents import supervisor

_SUPERVISOR = Path(supervisor.__file__)
_KEPT = 16 << 10  # bytes of output that are kept
MOST_OUTPUT = 64 << 20  # bytes that a program may print
_TOKEN = "TTS_RUN"  # the variable that a run's processes inherit
_CHECK_S = 1.0  # seconds after which a supervisor that was halted is woken
_LATE_S = supervisor.SWEEP_S + 10.0  # seconds after which a supervisor that was told to stop is killed


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a program.

    Attributes:
        code: The exit code, negative for a signal; None where it is not known.
        output: The end of the text on standard output and standard error.
        stopped: Whether the program was told to stop.
        flooded: Whether the program was stopped because it printed more than `MOST_OUTPUT` bytes.
    """

    code: int | None
    output: str
    stopped: bool = False
    flooded: bool = False

    @property
    def last_line(self) -> str:
        """The last line of the output."""
        lines = self.output.strip().splitlines()
        return lines[-1].strip()[:200] if lines else "it printed nothing"


class Process:
    """A running program, below a supervisor process that ends all its descendants (`supervisor`).

    Args:
        command: The program and its arguments, which run without a shell.
        folder: The folder in which the program runs.
        environment: The whole environment of the program.
        stdin: The file for standard input; None: standard input is empty.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: Path | None = None
    ) -> None:
        self._token = f"{_TOKEN}={secrets.token_hex(16)}"
        self._end_time = math.inf  # the time at which the supervisor is killed
        life_read, self._life_write = os.pipe()
        self._status_read, status_write = os.pipe()
        self._lock = threading.Lock()
        self._is_told = False
        try:
            with open(stdin or os.devnull, "rb") as source:  # noqa: PTH123 - also the null device
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), str(life_read), str(status_write), *command],
                    cwd=folder,
                    env={**environment, _TOKEN: self._token.partition("=")[2]},
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(life_read, status_write),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._life_write)
            os.close(self._status_read)
            raise
        finally:
            os.close(life_read)
            os.close(status_write)

    def stop(self) -> None:
        """Tell the program to stop, from any thread.

        The program gets SIGTERM. A moment later all its descendants get SIGKILL.
        """
        with self._lock:
            if not self._is_told:
                self._is_told = True
                self._end_time = time.monotonic() + _LATE_S
                os.close(self._life_write)

    def _has_ended(self) -> bool:
        """Whether the supervisor has ended; wakes one that a program has halted, and kills one that is too late."""
        self._process.send_signal(signal.SIGCONT)
        if time.monotonic() > self._end_time:
            self._process.kill()
        return self._process.poll() is not None

    def wait(self, seconds: float = threading.TIMEOUT_MAX) -> ProcessEnd:
        """Wait until no process of the program runs any more, and return the program's end.

        Args:
            seconds: The time after which the program is told to stop.
        """
        timer = threading.Timer(seconds, self.stop)
        timer.start()
        try:
            return self._wait()
        finally:
            timer.cancel()

    def _wait(self) -> ProcessEnd:
        assert self._process.stdout is not None, "opened as a pipe"
        stdout = self._process.stdout.fileno()
        output, num_printed, is_flooded = bytearray(), 0, False
        status = b""
        with selectors.DefaultSelector() as pipes:  # `select` refuses the high file descriptors of busy processes
            pipes.register(stdout, selectors.EVENT_READ)
            pipes.register(self._status_read, selectors.EVENT_READ)
            while self._status_read in pipes.get_map():
                ready = pipes.select(_CHECK_S)
                if (not ready or is_flooded) and self._has_ended():
                    break
                for key, _events in ready:
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        pipes.unregister(key.fd)
                    elif key.fd == stdout:
                        output = (output + piece)[-_KEPT:]
                        num_printed += len(piece)
                        if num_printed > MOST_OUTPUT and not is_flooded:
                            is_flooded = True
                            self.stop()
                    else:
                        status += piece
        os.set_blocking(stdout, False)
        with contextlib.suppress(BlockingIOError):  # read the output that was printed just before the end
            while piece := os.read(stdout, 1 << 16):
                output = (output + piece)[-_KEPT:]
        self.stop()
        self._process.wait()
        self._process.stdout.close()
        os.close(self._status_read)
        end_carriers(self._token)
        report = {}
        with contextlib.suppress(ValueError):
            report = json.loads(status if self._process.returncode == 0 else b"{}")
        return ProcessEnd(
            code=report.get("code"),
            output=output.decode("utf-8", "replace"),
            stopped=bool(report.get("told")),
            flooded=is_flooded,
        )


def end_carriers(variable: str) -> None:
    """Kill every process with a variable in its environment, as "name=value", on systems that list them.

    A program that kills its supervisor leaves such processes.
    """
    deadline = time.monotonic() + supervisor.SWEEP_S
    while time.monotonic() < deadline:
        carriers: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # of another user, or ended meanwhile
                if variable.encode() in path.read_bytes().split(b"\0"):
                    carriers.append(int(path.parent.name))
        if not carriers:
            return
        for process_id in carriers:
            with contextlib.suppress(OSError):
                os.kill(process_id, signal.SIGKILL)
