"""Guards against tests that hang: a thread that is given up, or a process that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
# of every wait in tests: a machine may be loaded many times over
LIMIT_S = float(os.environ.get("TTS_TEST_LIMIT_S", "600"))


def run_at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """Return the results of functions that are called at once, each in a thread of its own.

    If a function raises, its exception stands in place of the result.
    """
    ends: list[Any] = [None] * len(jobs)

    def work(i: int) -> None:
        try:
            ends[i] = jobs[i]()
        except BaseException as failure:  # noqa: BLE001 - whatever it is, it is the end
            ends[i] = failure

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads), "it hangs"
    return ends


def wait_for(look: Callable[[], T], pause_s: float = 0.02) -> T:
    """Look until something is found; returns it."""
    end = time.monotonic() + LIMIT_S
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(pause_s)
    return found


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's root, with the given settings of Triton and pytest and no others."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("TRITON_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**settings, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def program(code: str, *arguments: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own; every warning is an error there."""
    return subprocess.run(
        [sys.executable, *options, "-c", code, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
