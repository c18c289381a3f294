"""Runs of programs in a folder, which keep the end of the output and leave no process running."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tts.backends.workspace import supervisor

_SUPERVISOR = Path(supervisor.__file__)
_KEPT = 16 << 10  # bytes of output that are kept
MOST_OUTPUT = 64 << 20  # bytes that a program may print


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
        life_read, self._life_write = os.pipe()
        self._status_read, status_write = os.pipe()
        self._lock = threading.Lock()
        self._is_told = False
        try:
            with open(stdin or os.devnull, "rb") as source:  # noqa: PTH123 - also the null device
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), str(life_read), str(status_write), *command],
                    cwd=folder,
                    env=dict(environment),
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
                os.close(self._life_write)

    def wait(self) -> ProcessEnd:
        """Wait until no process of the program runs any more, and return the program's end."""
        assert self._process.stdout is not None, "opened as a pipe"
        stdout = self._process.stdout.fileno()
        output, num_printed, is_flooded = bytearray(), 0, False
        status = b""
        with selectors.DefaultSelector() as pipes:  # `select` refuses the high file descriptors of busy processes
            pipes.register(stdout, selectors.EVENT_READ)
            pipes.register(self._status_read, selectors.EVENT_READ)
            while self._status_read in pipes.get_map():
                for key, _events in pipes.select():
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
        while True:  # read the output that was printed just before the end
            try:
                piece = os.read(stdout, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                break
            output = (output + piece)[-_KEPT:]
        self.stop()
        self._process.wait()
        self._process.stdout.close()
        os.close(self._status_read)
        report = json.loads(status) if status else {}
        return ProcessEnd(
            code=report.get("code"),
            output=output.decode("utf-8", "replace"),
            stopped=bool(report.get("told")),
            flooded=is_flooded,
        )
