"""A process that ends the server by force where a signal does not.

No thread can do so while one of them keeps the interpreter to itself.

Idea: the C handler of a signal writes its number into a pipe at once, whatever the interpreter does. The watchdog reads
the pipe. It kills its parent if that has neither ended nor begun to end in order after a few seconds.

A worker also has to end where its supervisor was killed. The watchdog waits at the end of a pipe that the supervisor
alone keeps open, and then sends SIGTERM to its parent.

On Windows there is no watchdog: signals have no pipe there, and no process ends the server by force. Where a part
blocks the interpreter, Ctrl-C has no effect, and the process must be ended with `taskkill /F`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

BUSY_S = 5  # for the server's loop to begin to end, after which it is taken to be blocked
ORDERLY_S = 20  # for the orderly end, from its beginning
EXIT_S = 3  # for the interpreter to exit, which waits for threads
_SECONDS = 128  # added to seconds in the pipe; the numbers of signals are below


@contextmanager
def watch_process(supervisor: int | None = None) -> Generator[Callable[[int], None]]:
    """Watch over this process for the block: SIGINT and SIGTERM end it, by force if it takes too long.

    On Windows these signals never end the process by force.

    Args:
        supervisor: The end of a pipe that is readable when the supervisor has ended, and this process has to end too;
            None: there is no supervisor.

    Yields:
        A function that takes the seconds after which the process will have ended.
    """
    if sys.platform == "win32":  # signals have no pipe there
        yield lambda _: None
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    pipes = [reading] if supervisor is None else [reading, supervisor]
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(len(pipes))]
    # the pipes are standard input and, with a supervisor, standard output, which has no other use
    files = [(os.POSIX_SPAWN_DUP2, pipe, number) for number, pipe in enumerate(pipes)]
    # Ctrl-C does not reach the watchdog, because its process group is its own
    watchdog = os.posix_spawn(sys.executable, command, os.environ, file_actions=files, setpgroup=0)
    os.close(reading)
    previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield lambda seconds: _write(writing, seconds)
    finally:
        signal.set_wakeup_fd(previous_fd)
        if sys.exception() is not None:  # the exit of the interpreter follows
            _write(writing, EXIT_S)
        else:
            os.close(writing)
            os.waitpid(watchdog, 0)


def _write(pipe: int, seconds: int) -> None:
    try:
        os.write(pipe, bytes([_SECONDS + seconds]))
    except OSError:  # the watchdog was ended from outside
        return


def watch(parent: int, num_pipes: int) -> None:
    """Read the numbers of signals, and kill a parent that does not end in time: the work of the watchdog.

    Args:
        parent: The number of the process.
        num_pipes: The number of pipes: one of signals at standard input, then one of a supervisor at standard output.
    """
    deadline: float | None = None
    pipes = list(range(num_pipes))
    while os.getppid() == parent:
        wait_s = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
        if wait_s <= 0:
            os.kill(parent, signal.SIGKILL)
            return
        readable, _writable, _failed = select.select(pipes, [], [], wait_s)
        if 1 in readable:  # the supervisor has ended
            pipes = [0]
            os.kill(parent, signal.SIGTERM)
            if deadline is None:
                deadline = time.monotonic() + BUSY_S
        if 0 in readable:
            numbers = os.read(0, 64)
            if not numbers:
                return
            stated_seconds = [number - _SECONDS for number in numbers if number > _SECONDS]
            if stated_seconds:
                deadline = time.monotonic() + stated_seconds[-1]
            elif deadline is None and {signal.SIGINT, signal.SIGTERM} & set(numbers):
                deadline = time.monotonic() + BUSY_S


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
