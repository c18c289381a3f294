"""`tts runs --check` and `tts workspace clean`."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from tests.experiments.made import cell, result
from tts.experiments.store.store import Store


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        study = store.begin("made", {})
        store.add(study, map(cell, range(3)))
        for leased in store.lease(study, "worker", 3):
            store.finish("worker", result(leased))
    return path


def test_a_whole_store_is_said_to_be_whole(path, tts):
    end = tts("runs", "--check", "--store", str(path))
    assert (end.exit_code, end.output) == (0, "3 results are as they were written\n")


def test_a_damaged_result_is_named_and_ends_with_1(path, tts):
    with sqlite3.connect(path) as db:
        db.execute("UPDATE results SET body = replace(body, '4', '5') WHERE cell = 2")
    db.close()
    end = tts("runs", "--check", "--store", str(path))
    assert end.exit_code == 1
    assert "result: key 1\n" in end.output
    assert "1 of 3 results are damaged" in end.output
    assert "put back a copy of it" in end.output


def test_a_store_that_is_missing_is_named(tmp_path, tts):
    end = tts("runs", "--check", "--store", str(tmp_path / "none.sqlite"))
    assert end.exit_code == 2
    assert "is not there" in end.output


def test_clean_removes_what_a_killed_process_left_and_no_more(tts, tmp_path, monkeypatch):
    from tts_addons.agents.store import StateStore

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "plain").mkdir()
    assert tts("workspace", "clean").output == "0 workspaces removed\n"
    code = (
        "import os, sys; from tts_addons.agents.store import StateStore; "
        "store = StateStore(sys.argv[1]); print(store.folder, flush=True); os._exit(9)"
    )
    left = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plain")], capture_output=True, text=True, check=False
    ).stdout.strip()
    with StateStore(tmp_path / "plain") as store:
        end = tts("workspace", "clean")
        assert (end.exit_code, end.output) == (0, f"removed {left}\n1 workspace removed\n")
        assert store.folder.is_dir()
