"""SIGHUP: the keys are read again.

Where the signal says that the terminal of the process was closed, the process ends, as without this module.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tts_addons.gateway.gateway import Gateway


@contextmanager
def keys_read_at_hangup(gateway: Gateway) -> Generator[None]:
    """Read the keys of a gateway again at each SIGHUP, for the block; on Windows there is no such signal."""
    if sys.platform == "win32":
        yield
        return
    with call_at_hangup(gateway.read_keys_again):
        # a supervisor starts its workers with the signal blocked
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
        yield


@contextmanager
def call_at_hangup(function: Callable[[], None]) -> Generator[None]:
    """Call a function at each SIGHUP, for the block, in the main thread.

    A process whose terminal was closed gets SIGTERM instead.
    """
    has_terminal = _has_terminal()

    def answer(*_: object) -> None:
        if has_terminal and not _has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            function()

    previous_handler = signal.signal(signal.SIGHUP, answer)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous_handler)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
