"""Where files of the user lie, and that records are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts.errors import TTSError
from tts.models.user_files import config_file
from tts.models.user_records import read_records, write_record


def test_without_a_folder_of_their_own_they_lie_where_the_system_keeps_such_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TTS_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert config_file("a.json") == Path.home() / ".config" / "tts" / "a.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert config_file("a.json") == Path("/settings/tts/a.json")
    monkeypatch.setenv("TTS_HOME", "/own")
    assert config_file("a.json") == Path("/own/a.json")


def test_a_write_that_fails_leaves_the_old_text_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    write_record("mine", {"url": "http://localhost"})
    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(TTSError, match=r"models\.json cannot be written: No space left"):
        write_record("other", {"url": "http://localhost"})
    assert list(read_records()) == ["mine"]
    assert [path.name for path in tmp_path.iterdir()] == ["models.json"]
