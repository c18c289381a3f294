"""The loop of `make test`: every test is run once, wherever others fail, break what ends the session, or take their
process with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import os, pytest

@pytest.fixture(scope="session")
def broken():
    yield
    raise ValueError("no end")

@pytest.mark.parametrize("number", range(20))
def test_fine(number, tmp_path):
    assert tmp_path.is_dir()

def test_wrong():
    print("what it printed")
    assert 1 == 2

def test_dies():
    os._exit(3)

def test_behind_it(broken):
    pass

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="make test forks on Linux alone")
def test_it_reports_each_test_once_and_says_which_one_took_its_process_with_it(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_two.py", "test_three.py"):
        (tmp_path / name).write_text(SUITE)
    options = ("-q", "-rN", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "tests.support.forks", "--forks", "2")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    closing = done.stdout.splitlines()[-1]
    assert closing.startswith("6 failed, 63 passed, 3 skipped, "), done.stdout
    assert "1 error" in closing or "2 errors" in closing or "3 errors" in closing
    assert done.stdout.count("the process ended with 3 while it ran this test") == 3
    assert "what it printed" in done.stdout
