"""What every test stands on: no file of the user's own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def users_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's files for this test alone, which does not exist at first."""
    home = tmp_path_factory.getbasetemp() / f"user-{next(NUMBERS)}"
    monkeypatch.setenv("TTS_HOME", str(home))
    return home
