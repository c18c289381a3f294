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
_SWEEP_S = 10.0  # seconds after which programs that fork faster than they are killed are left


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
            for end in (*closed, error_read):
                os.close(end)
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
    stop_time = 0.0
    pipes = [life, woken]
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, bool(stop_time)
        if stop_time and time.monotonic() > stop_time + _GRACE_S:
            kill_group(child, signal.SIGKILL)
        ready = select.select(pipes, [], [], _GRACE_S / 4 if stop_time else None)[0]
        if woken in ready:
            os.read(woken, 4096)
        if life in ready:
            pipes, stop_time = [woken], time.monotonic()
            kill_group(child, signal.SIGTERM)


def kill_group(child: int, number: int) -> None:
    """Send a signal to the program and its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def sweep() -> None:
    """Kill the processes below this one until none is left."""
    until = time.monotonic() + _SWEEP_S
    while time.monotonic() < until:
        for child in children():
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
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
    for end in (woken, waking):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = start(sys.argv[3:], (life, status, woken, waking))
    code, is_told = wait(child, life, woken)
    kill_group(child, signal.SIGKILL)
    sweep()
    os.write(status, json.dumps({"code": os.waitstatus_to_exitcode(code), "told": is_told}).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
