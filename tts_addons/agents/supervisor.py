"""The process above an agent, which starts the agent's program and kills all its descendants.

This module is run by its path (`python -I -S supervisor.py LIFE STATUS COMMAND…`). It imports only the standard
library, so that it starts fast. LIFE is a pipe to which nobody writes. Its end means that the parent was killed, or
wants the program to stop. STATUS is a pipe for the result, one line of JSON: the program's exit code, and whether the
program was told to stop. The line is written once no process of the program runs any more.

On Linux this process adopts programs that leave their process group (a child subreaper). Elsewhere only the group is
killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

_SUBREAPER = 36
_GRACE_S = 0.3  # seconds between SIGTERM and SIGKILL
SWEEP_S = 10.0  # seconds after which programs that fork faster than they are killed are left


def start(command: list[str], closed: tuple[int, ...]) -> int:
    """Start a program in a session of its own, and return its process id.

    Args:
        command: The program and its arguments.
        closed: Pipes that are closed in the program.
    """
    error_read, error_write = os.pipe()
    os.set_inheritable(error_write, False)  # noqa: FBT003 - the system's own form
    child = os.fork()
    if not child:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for pipe in (*closed, error_read):
                os.close(pipe)
            os.execvp(command[0], command)
        except OSError as failure:
            os.write(error_write, str(failure).encode())
        os._exit(127)
    os.close(error_write)
    error = os.read(error_read, 1000).decode(errors="replace")
    os.close(error_read)
    if error:
        sys.stdout.write(f"{command[0]} could not be started: {error}\n")
        sys.stdout.flush()
    return child


def wait(child: int, life: int, woken: int) -> tuple[int, bool]:
    """Wait until a program ends, and return its status and whether it was told to stop.

    Args:
        child: The id of the program's process.
        life: The pipe whose end asks the program to stop.
        woken: A pipe that gets a byte when a child has ended.
    """
    stop_time: float | None = None  # the time at which the program was told to stop
    pipes = [life, woken]
    while True:
        ended_id, status = os.waitpid(child, os.WNOHANG)
        if ended_id:
            return status, stop_time is not None
        if stop_time is not None and time.monotonic() > stop_time + _GRACE_S:
            kill_group(child, signal.SIGKILL)
        timeout_s = None if stop_time is None else _GRACE_S / 4
        ready, _, _ = select.select(pipes, [], [], timeout_s)
        if woken in ready:
            os.read(woken, 4096)
        if life in ready:
            pipes = [woken]
            stop_time = time.monotonic()
            kill_group(child, signal.SIGTERM)


def kill_group(child: int, number: int) -> None:
    """Send a signal to the program and its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def sweep() -> None:
    """Kill the processes below this process until none is left, or the time is up."""
    deadline = time.monotonic() + SWEEP_S
    while time.monotonic() < deadline:
        for child in children():
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            ended_id, _status = os.waitpid(-1, os.WNOHANG)
            if ended_id == 0:  # all children still run
                time.sleep(0.001)
        except ChildProcessError:
            return


def children() -> list[int]:
    """Return the ids of the processes whose parent is this one; [] where the system does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - a kernel's file
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def main() -> int:
    """Run the command in the arguments, report its end, and return 0."""
    life, status = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = start(sys.argv[3:], (life, status, woken, waking))
    wait_status, is_told = wait(child, life, woken)
    kill_group(child, signal.SIGKILL)
    sweep()
    result = {"code": os.waitstatus_to_exitcode(wait_status), "told": is_told}
    os.write(status, json.dumps(result).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
