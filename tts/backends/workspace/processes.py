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
        life, self._life = os.pipe()
        self._status, status = os.pipe()
        self._lock = threading.Lock()
        self._is_told = False
        try:
            with open(stdin or os.devnull, "rb") as source:  # noqa: PTH123 - also the null device
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SUPERVISOR), str(life), str(status), *command],
                    cwd=folder,
                    env=dict(environment),
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(life, status),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._life)
            os.close(self._status)
            raise
        finally:
            os.close(life)
            os.close(status)

    def stop(self) -> None:
        """Tell the program to stop, from any thread.

        The program gets SIGTERM. A moment later all its descendants get SIGKILL.
        """
        with self._lock:
            if not self._is_told:
                self._is_told = True
                os.close(self._life)

    def wait(self) -> ProcessEnd:
        """Wait until no process of the program runs any more, and return its end."""
        assert self._process.stdout is not None, "opened as a pipe"
        stdout, output, num_printed, status, flooded = self._process.stdout.fileno(), bytearray(), 0, b"", False
        with selectors.DefaultSelector() as ends:  # `select` refuses the high file descriptors of busy processes
            ends.register(stdout, selectors.EVENT_READ)
            ends.register(self._status, selectors.EVENT_READ)
            while self._status in ends.get_map():
                for key, _ in ends.select():
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        ends.unregister(key.fd)
                    elif key.fd == stdout:
                        output, num_printed = (output + piece)[-_KEPT:], num_printed + len(piece)
                        if num_printed > MOST_OUTPUT and not flooded:
                            flooded = True
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
        os.close(self._status)
        end = json.loads(status) if status else {}
        return ProcessEnd(end.get("code"), output.decode("utf-8", "replace"), bool(end.get("told")), flooded)
