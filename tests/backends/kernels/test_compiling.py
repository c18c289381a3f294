"""Kernels are compiled while a model is loaded: no problem's time pays for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

PROGRAM = """
import asyncio
import sys
from tests.backends.conftest import tiny_engine
from tests.backends.rows import drained, opened, start
from tts.backends.base import Row
from tts.backends.engine import planning
from tts.backends.kernels import attention_strict, draw, gemm, layers, stack

threads = int(sys.argv[1])
kernels = [planning._plan, draw._write_draws, layers.add_norm, gemm.multiply_panels, stack.pass_layers]
if threads > 1:  # which share the products of long prompts, in place of one call for all layers
    kernels += [attention_strict.attend_part, layers.gate, layers.rotate_write]
backend = tiny_engine(threads=threads)
made = [len(kernel.signatures) for kernel in kernels]
assert all(made), made
assert backend.stats.steps == 0 and backend.runner.tree.pool.num_used == 0

async def main():
    (handle,) = await opened(backend, "the cat and the other one of them all, and what was written of it before")
    await drained(start(backend, handle, *(Row(stream, 0, 40) for stream in range(5))))

asyncio.run(main())
assert [len(kernel.signatures) for kernel in kernels] == made
"""


@pytest.mark.parametrize("threads", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_the_first_rows_compile_nothing(threads: str) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, threads], cwd=root, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
