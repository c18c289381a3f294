"""How a benchmark's command is run in a test, and where the peers are."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = "the benchmarks are no part of the wheel"
ITS_HUB = ROOT / ".venv-peer/bin/python"


def printed(module: str, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a module's command prints, or a package's, run in this process."""
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    capsys.readouterr()
    imported = importlib.import_module(module)
    if hasattr(imported, "__path__"):
        imported = importlib.import_module(f"{module}.__main__")
    imported.main()
    return capsys.readouterr().out


def started(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, in the checkout."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, timeout=900,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **environment},
    )  # fmt: skip


def its_hub() -> str:
    """Return the interpreter that has its_hub; a test that needs it is skipped where there is none."""
    if not ITS_HUB.is_file():
        pytest.skip(f"{ITS_HUB} is missing: make bench makes it")
    return str(ITS_HUB)
