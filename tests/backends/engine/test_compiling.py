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
from tests.backends.conftest import tiny_engine
from tests.backends.rows import drained, opened, start
from tts.backends.base import Row
from tts.backends.engine import planning
from tts.backends.kernels import attention_strict, draw, gemm, layers

kernels = [planning._plan, attention_strict._part, draw._draws, layers.add_norm, layers.gate, layers.rotate_write]
kernels += [gemm._multiply] if gemm.supported() else []
backend = tiny_engine(threads=1)
made = [len(kernel.signatures) for kernel in kernels]
assert all(made), made
assert backend.stats.steps == 0 and backend.runner.tree.pool.num_used == 0

async def main():
    (handle,) = await opened(backend, "the cat and the other one")
    await drained(start(backend, handle, *(Row(stream, 0, 40) for stream in range(5))))

asyncio.run(main())
assert [len(kernel.signatures) for kernel in kernels] == made
"""


def test_the_first_rows_compile_nothing() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
