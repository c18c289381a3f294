"""Every kind of CPU, on this one: kernels compiled for fewer instructions give rows of their own bits, within rounding
of this CPU's.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")

from tests.backends.kernels.one_of_each import computed
from tts.backends.kernels import target
from tts.backends.kernels.target import FUSED, INSTRUCTIONS

LIMITS = {
    "AVX2": {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+popcnt,+sse4.2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "portable": {
        "NUMBA_CPU_NAME": "nehalem",
        "NUMBA_CPU_FEATURES": "+popcnt,+sse4.2",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}

NEXT = "AVX2" if INSTRUCTIONS not in LIMITS else "portable"  # the nearest to this CPU's; the others are slow


def limited(name: str, folder: Path) -> dict[str, Any]:
    """Return what a process with fewer instructions computes, after it has checked its own rows."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "tests.backends.kernels.one_of_each", str(folder / "found.npz")],
        cwd=root,
        env={**os.environ, **LIMITS[name]},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == name
    with np.load(folder / "found.npz") as found:
        return dict(found)


@pytest.mark.parametrize(
    ("triple", "features", "name"),
    [
        ("aarch64-unknown-linux-gnu", set[str](), "NEON"),
        ("arm64-apple-darwin23", set[str](), "NEON"),
        ("x86_64-unknown-linux-gnu", {"+avx512f", "+avx2", "+fma"}, "AVX-512"),
        ("x86_64-unknown-linux-gnu", {"+avx2", "+fma"}, "AVX2"),
        ("x86_64-unknown-linux-gnu", {"+avx512f", "+avx2", "-fma"}, "portable"),
    ],
)
def test_a_cpu_has_a_set_of_instructions_with_all_that_its_kernels_need(
    triple: str, features: set[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_triple_and_features", lambda: (triple, features))
    assert target._instructions() == name


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the limits are those of x86")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == NEXT else [pytest.mark.slow]) for name in LIMITS]
)
def test_fewer_instructions_change_results_within_rounding(name: str, tmp_path: Path) -> None:
    if name == "AVX2" and INSTRUCTIONS == "portable":
        pytest.skip("this CPU has no AVX2")
    found, here = limited(name, tmp_path), computed()
    assert found.keys() == here.keys()
    for key, value in here.items():
        assert np.abs(found[key] - value).max() <= 2e-5 * np.abs(value).max(), key
    if name == "AVX2" and FUSED:  # each sum is the same chain of fused multiply-adds
        assert np.array_equal(found["product"], here["product"])
