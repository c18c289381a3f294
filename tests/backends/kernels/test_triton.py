"""The Triton kernels without a GPU: their numbers in the interpreter, and their compilation for GPUs that are not
here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.guard import run_python

pytest.importorskip("torch")
pytest.importorskip("triton")

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def run(*arguments: str, **environment: str) -> str:
    """Run Python with some arguments in the project's root; return what it prints."""
    done = run_python(*arguments, **environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


KERNELS, STEPS = HERE / "interpreted.py", HERE / "interpreted_steps.py"
A_FEW = "32-star or rope_of_no_token or norm or uniforms or draws_from or strict and few or strict_rows or was_captured"


def interpret(part: str, *files: Path) -> None:
    """Run tests whose names have a part in Triton's interpreter."""
    out = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", part, *map(str, files), TRITON_INTERPRET="1")
    assert " passed" in out
    assert "skipped" not in out


def test_small_kernels_are_their_references_in_the_interpreter() -> None:
    interpret("rope_of_no_token or norm or uniforms", KERNELS)


@pytest.mark.slow
def test_kernels_and_steps_in_fixed_shapes_are_their_references_in_the_interpreter() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("numba")
    interpret(A_FEW, KERNELS, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["attention and oracle", "attention and not oracle", "not attention"])
def test_kernels_equal_their_references_in_the_interpreter(part: str) -> None:
    interpret(part, KERNELS)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["", "3.6"])
def test_kernels_compile_for_gpus_that_are_not_here(version: str, tmp_path: Path) -> None:
    """A compilation shows what no interpreter can: types, tensor cores, copies of 16 bytes, and that nothing spills.

    The kernels are compiled by the environment's Triton, and by an older version.
    """
    path = os.environ.get("PYTHONPATH", "")
    if version:
        folder = ROOT / f"build/triton-{version}"
        if not (folder / "triton").is_dir():
            pytest.skip(f"build/triton-{version} is not there: run make build/triton-{version}/.made")
        path = os.pathsep.join(filter(None, [str(folder), path]))
    program = ("-W", "error", "-m", "tests.backends.kernels.compiling")
    out = run(*program, TRITON_CACHE_DIR=str(tmp_path), PYTHONPATH=path)
    made = [json.loads(line) for line in out.splitlines()]
    assert {line["kernel"] for line in made} == {
        "tree_partial",
        "merge",
        "rope_and_write",
        "norm_rows",
        "sum_blocks",
        "draw_rows",
        "read_tokens",
        "spread_rows",
        "write_uniforms",
    }
    for line in made:
        assert line["triton"].startswith(version), line
        assert line["stack"] == 0, line
        assert line["shared"] <= 99 * 1024, line  # the least that a GPU of compute capability 8.x has for one program
        if line["kernel"] == "tree_partial":
            assert line["wide_copies"] > 0, line
            assert (line["products"] > 0) == (not line["types"].startswith("*fp32")), line
