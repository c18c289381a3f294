"""The gateway's overhead has a row for each way to ask, at each number of connections, kept and new, of `tts serve`
itself.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.commands import NOT_INSTALLED, started

serve = pytest.importorskip("benchmarks.serve", reason=NOT_INSTALLED)
NUMBER = r"-?\d+\.\d\d"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time of another process is read from /proc")
def test_each_way_to_ask_has_a_row() -> None:
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    pytest.importorskip("yaml", reason="the extra serve is not installed")
    done = started("benchmarks.serve", "--smoke")
    assert done.returncode == 0, done.stderr
    for connections in ("1, kept", "1, new", "4, kept", "4, new"):
        for kind in serve.KINDS:
            row = rf"^\| {connections} \| {kind.name} \|(?: {NUMBER} \[{NUMBER}, {NUMBER}\] \|){{5}}$"
            assert re.search(row, done.stdout, re.MULTILINE)
