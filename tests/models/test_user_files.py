"""Where files of the user lie, and that each is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts.models.user_files import cache_file, config_file, write_whole


def test_without_a_folder_of_their_own_they_lie_where_the_system_keeps_such_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TTS_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert config_file("a.json") == Path.home() / ".config" / "tts" / "a.json"
    assert cache_file("a.json") == Path.home() / ".cache" / "tts" / "a.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert config_file("a.json") == Path("/settings/tts/a.json")
    monkeypatch.setenv("TTS_HOME", "/own")
    assert config_file("a.json") == cache_file("a.json") == Path("/own/a.json")


def test_a_write_that_fails_leaves_the_old_text_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "a.json", "old")
    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "a.json", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "old")]
