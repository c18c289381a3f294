"""The tokenizer and the configuration of a reward model that is not there, or of the wrong kind."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tts.errors import ConfigError, MissingDependency
from tts.models.record import ModelRecord
from tts.verifiers.reward.pretrained import config_of, tokenizer_of

transformers = pytest.importorskip("transformers")


def in_folder(folder: Path) -> ModelRecord:
    return ModelRecord(name="prm", backend="engine", source="folder", location=str(folder))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'prm'.*loaded: "):
        tokenizer_of(in_folder(tmp_path))
    with pytest.raises(ConfigError, match=r"'prm'.*loaded: "):
        config_of(in_folder(tmp_path))


def test_without_transformers_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "tts.backends.loading.hub", raising=False)
    with pytest.raises(MissingDependency, match=r"reward model's.*pip.*'test-time-search\[engine\]'"):
        tokenizer_of(in_folder(tmp_path))


def test_a_file_is_no_reward_model(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"'prm'.*model\.gguf,.*reward model"):
        config_of(in_folder(tmp_path / "model.gguf"))


def test_a_tokenizer_must_be_a_fast_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SimpleNamespace(is_fast=False)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *given, **named: slow)
    with pytest.raises(ConfigError, match=r"'prm'.*SimpleNamespace"):
        tokenizer_of(in_folder(tmp_path))


def test_a_name_of_the_hub_is_read_from_the_cache_then_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, bool]] = []

    def missing(name: str, **named: bool) -> None:
        asked.append(named)
        raise OSError("no such model")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", missing)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    record = ModelRecord(name="nobody/prm", backend="engine", source="hub", location="nobody/prm")
    monkeypatch.setattr("tts.backends.loading.hub.hub_answers", lambda: False)
    with pytest.raises(ConfigError, match=r"'nobody/prm'.*cache"):
        tokenizer_of(record)
    assert asked == [{"local_files_only": True, "trust_remote_code": False}]
    monkeypatch.setattr("tts.backends.loading.hub.hub_answers", lambda: True)
    with pytest.raises(ConfigError, match=r"'nobody/prm'.*loaded.*local folder"):
        tokenizer_of(record)
    assert [one["local_files_only"] for one in asked] == [True, True, False]
