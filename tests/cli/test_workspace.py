"""`tts workspace clean`."""

from __future__ import annotations

import subprocess
import sys


def test_clean_removes_what_a_killed_process_left_and_no_more(tts, tmp_path, monkeypatch):
    from tts.backends.workspace.store import StateStore

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "plain").mkdir()
    assert tts("workspace", "clean").output == "0 workspaces removed\n"
    code = "import os, sys; from tts.backends.workspace.store import StateStore; store = StateStore(sys.argv[1]); print(store.folder, flush=True); os._exit(9)"
    left = subprocess.run([sys.executable, "-c", code, str(tmp_path / "plain")], capture_output=True, text=True, check=False).stdout.strip()
    with StateStore(tmp_path / "plain") as store:
        end = tts("workspace", "clean")
        assert (end.exit_code, end.output) == (0, f"removed {left}\n1 workspace removed\n")
        assert store.folder.is_dir()
