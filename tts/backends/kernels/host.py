"""Helpers of the CPU kernels: compilation, division of work over threads, and an exact exponential.

Every function here gives a row the same bits, whatever other rows the call has: a row's arithmetic has one order, which
depends on nothing but the row.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba import extending

f32 = np.float32
# compiled code calls an intrinsic without its first argument, the context
intrinsic: Callable[[Callable[..., Any]], Any] = extending.intrinsic


def compile_function(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function to machine code that runs without the interpreter's lock.

    The code is kept on disk where a folder can be written. Without a function, a decorator with the options of
    `numba.njit` is returned.
    """
    if function is None:
        return lambda decorated: compile_function(decorated, **options)
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", **options}
    try:
        return numba.njit(cache=True, **settings)(function)
    except RuntimeError:  # no folder for compiled code can be written
        return numba.njit(**settings)(function)


@compile_function(inline="always")
def exponential(x: Any) -> Any:
    """Return e**x in float32 for x <= 0, within 1e-7 relative.

    Below -87 the result stays at e**-87. The function vectorises, unlike math.exp.

    Source: the range reduction and polynomial of the Cephes library's expf (S. Moshier).
    """
    x = max(x, f32(-87.0))
    power = math.floor(x * f32(1.4426950408889634) + f32(0.5))
    remainder = x - power * f32(0.693359375)
    remainder = remainder + power * f32(2.12194440e-4)
    p = f32(1.9875691500e-4)
    p = p * remainder + f32(1.3981999507e-3)
    p = p * remainder + f32(8.3334519073e-3)
    p = p * remainder + f32(4.1665795894e-2)
    p = p * remainder + f32(1.6666665459e-1)
    p = p * remainder + f32(5.0000001201e-1)
    bits = (np.int32(power) + np.int32(127)) << np.int32(23)
    return (p * (remainder * remainder) + remainder + f32(1.0)) * np.int32(bits).view(np.float32)


class Team:
    """A few threads that share the rows of one kernel call.

    Args:
        threads: Number of threads, the calling one included; at least 1.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._inside = threading.local()  # `yes` is set while a thread runs a part
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="tts-kernel") if threads > 1 else None

    def run(self, kernel: Callable[..., Any], parts: Sequence[tuple[Any, ...]]) -> None:
        """Call a kernel with the arguments of each part, the last part in this thread, and wait for all calls.

        A call of `run` within a part uses the part's thread alone.
        """
        is_inside_part = getattr(self._inside, "yes", False)
        if self._pool is None or len(parts) == 1 or is_inside_part:
            for part in parts:
                kernel(*part)
            return
        futures = [self._pool.submit(self._run_part, kernel, part) for part in parts[:-1]]
        try:
            self._run_part(kernel, parts[-1])
        finally:
            for future in futures:
                future.result()

    def _run_part(self, kernel: Callable[..., Any], part: tuple[Any, ...]) -> None:
        self._inside.yes = True
        try:
            kernel(*part)
        finally:
            self._inside.yes = False

    def cuts(self, rows: int, work: int, *, worth: int = 1 << 22) -> list[tuple[int, int]]:
        """Return intervals of rows of about equal size, one a thread.

        Args:
            rows: The number of rows.
            work: The number of operations for all rows.
            worth: The least number of operations that is divided; less work is one interval.
        """
        num_parts = max(1, min(self.threads, rows)) if work >= worth else 1
        edges = [rows * index // num_parts for index in range(num_parts + 1)]
        return list(pairwise(edges))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
