"""The process above an agent.

It starts the agent's program, and kills everything that descends from it. It is run by its path (`python -I -S
supervisor.py LIFE STATUS COMMAND…`) and imports only the standard library, so that it starts fast. LIFE is a pipe that
nobody writes to: where it ends, the parent wants the program to stop, or was killed. STATUS is a pipe for what became
of the program, one line of JSON: its exit code, and whether it was told to stop. The line is written once nothing of it
runs any more.

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
_GRACE_S = 0.3  # between SIGTERM and SIGKILL
_SWEEP_S = 10.0  # programs that fork faster than they are killed are left after so many seconds


def start(command: list[str], closed: tuple[int, ...]) -> int:
    """Start a program in a session of its own, and return its process id.

    Args:
        command: The program and its arguments.
        closed: Pipes that the program must not have.
    """
    failing, failed = os.pipe()
    os.set_inheritable(failed, False)  # noqa: FBT003 - the system's own form
    child = os.fork()
    if not child:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (*closed, failing):
                os.close(end)
            os.execvp(command[0], command)
        except OSError as failure:
            os.write(failed, str(failure).encode())
        os._exit(127)
    os.close(failed)
    why = os.read(failing, 1000).decode(errors="replace")
    os.close(failing)
    if why:
        sys.stdout.write(f"{command[0]} could not be started: {why}\n")
        sys.stdout.flush()
    return child


def wait(child: int, life: int, woken: int) -> tuple[int, bool]:
    """Wait until a program ends, and return its status and whether it was told to stop.

    Args:
        child: The program's process.
        life: The pipe that ends where it is to stop.
        woken: A pipe that is written to when a child has ended.
    """
    told = 0.0
    watched = [life, woken]
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, bool(told)
        if told and time.monotonic() > told + _GRACE_S:
            kill_group(child, signal.SIGKILL)
        ready = select.select(watched, [], [], _GRACE_S / 4 if told else None)[0]
        if woken in ready:
            os.read(woken, 4096)
        if life in ready:
            watched, told = [woken], time.monotonic()
            kill_group(child, signal.SIGTERM)


def kill_group(child: int, number: int) -> None:
    """Send a signal to the program and its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def sweep() -> None:
    """Kill all processes below this one, until there is none."""
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
    """Return the processes whose parent is this one; none where the system does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - a kernel's file
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def main() -> int:
    """Run the command of the arguments, report what became of it, and return 0."""
    life, status = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = start(sys.argv[3:], (life, status, woken, waking))
    code, told = wait(child, life, woken)
    kill_group(child, signal.SIGKILL)
    sweep()
    os.write(status, json.dumps({"code": os.waitstatus_to_exitcode(code), "told": told}).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
