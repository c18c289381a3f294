"""Runs a program in a folder, keeps the end of what it prints, and leaves nothing of it running."""

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
_KEPT = 16 << 10  # bytes of output
MOST_OUTPUT = 64 << 20  # bytes that a program may print


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a program ended.

    Attributes:
        code: Its exit code, negative for a signal; None where it is not known.
        output: The end of what it printed to standard output and standard error.
        stopped: Whether it was told to stop.
        flooded: Whether it was told to stop because it printed more than `MOST_OUTPUT` bytes.
    """

    code: int | None
    output: str
    stopped: bool = False
    flooded: bool = False


class Process:
    """A program that runs, below a process of ours that ends everything that it started (`supervisor`).

    Args:
        command: The program and its arguments, which no shell reads.
        folder: The folder that it runs in.
        environment: Its whole environment.
        stdin: What it reads from standard input.
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

        It gets SIGTERM. A moment later all that descends from it gets SIGKILL.
        """
        with self._lock:
            if not self._is_told:
                self._is_told = True
                os.close(self._life)

    def wait(self) -> ProcessEnd:
        """Wait until nothing of the program runs any more, and return how it ended."""
        assert self._process.stdout is not None, "opened as a pipe"
        out, kept, printed, told, flooded = self._process.stdout.fileno(), bytearray(), 0, b"", False
        with selectors.DefaultSelector() as ends:  # `select` refuses the high file descriptors of busy processes
            ends.register(out, selectors.EVENT_READ)
            ends.register(self._status, selectors.EVENT_READ)
            while self._status in ends.get_map():
                for key, _ in ends.select():
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        ends.unregister(key.fd)
                    elif key.fd == out:
                        kept, printed = (kept + piece)[-_KEPT:], printed + len(piece)
                        if printed > MOST_OUTPUT and not flooded:
                            flooded = True
                            self.stop()
                    else:
                        told += piece
        os.set_blocking(out, False)
        while True:  # what was printed just before the end
            try:
                piece = os.read(out, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                break
            kept = (kept + piece)[-_KEPT:]
        self.stop()
        self._process.wait()
        self._process.stdout.close()
        os.close(self._status)
        end = json.loads(told) if told else {}
        return ProcessEnd(end.get("code"), kept.decode("utf-8", "replace"), bool(end.get("told")), flooded)
