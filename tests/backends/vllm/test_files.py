"""A model's files as the vllm backend reads them, and a vLLM that cannot be imported; no vLLM is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from safetensors.torch import save_file

from tts.backends.loading import hub
from tts.backends.vllm import engine, files
from tts.backends.vllm.loading import _kv_bytes, readable
from tts.errors import ConfigError, MissingDependency
from tts.models.record import ModelRecord

HUB = ModelRecord(name="m", backend="vllm", source="hub", location="org/m")


def weights(folder: Path, value: float = 1.0) -> None:
    save_file({"a": torch.full((3, 4), value), "b": torch.zeros(5)}, folder / "model.safetensors")


def test_a_checksum_changes_with_any_file_and_weights_are_counted(tmp_path: Path) -> None:
    assert files._parameters(tmp_path) is None
    weights(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert files._parameters(tmp_path) == 17
    first = files.digest(tmp_path)
    (tmp_path / "README.md").write_text("of no matter")
    assert files.digest(tmp_path) == first
    weights(tmp_path, 2.0)
    second = files.digest(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert len({first, second, files.digest(tmp_path)}) == 3


@pytest.mark.parametrize(
    ("record", "answers", "cause", "reads"),
    [
        (
            ModelRecord(name="m", backend="vllm", source="folder", location="m"),
            True,
            "model 'm' could not be loaded: no file",
            [True],
        ),
        (HUB, False, "model 'm' is not in the local cache, and .* does not answer", [True]),
        (HUB, True, "model 'm' could not be loaded: no file", [True, False]),
    ],
)
def test_files_are_sought_here_first_and_then_on_the_hub(
    record: ModelRecord, answers: bool, cause: str, reads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []

    def missing(_location: str, *, local_files_only: bool) -> Any:
        read.append(local_files_only)
        raise OSError("no file\nand more")

    monkeypatch.setattr(files, "_read", missing)
    monkeypatch.setattr(hub, "hub_answers", lambda: answers)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ConfigError, match=cause):
        files.ModelFiles.of(record, record.location)
    assert read == reads


def test_the_size_of_a_tokens_state_is_known_of_full_attention_alone() -> None:
    config = SimpleNamespace(num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, hidden_size=64)
    assert _kv_bytes(config, 2) == 2 * 3 * 2 * 8 * 2
    config.head_dim = 16
    assert _kv_bytes(config, 4) == 2 * 3 * 2 * 16 * 4
    config.layer_types = ["full_attention", "linear_attention"]
    assert _kv_bytes(config, 4) is None


def test_a_vllm_that_does_not_start_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_module: str) -> Any:
        raise ImportError("libcudart.so.12: cannot open\nand more")

    monkeypatch.setattr(engine.importlib, "import_module", broken)
    with pytest.raises(ConfigError, match=r"vLLM.*installed,.*imported: libcudart\.so\.12") as refused:
        engine.import_module("vllm")
    assert "and more" not in str(refused.value)


def test_a_model_of_the_hub_is_read_by_its_name_there_and_one_without_weights_not_at_all() -> None:
    with readable(HUB) as location:
        assert location == "org/m"
    with (
        pytest.raises(ConfigError, match=r"'m'.*weights"),
        readable(ModelRecord(name="m", backend="toy")),
    ):
        pass


def test_a_gguf_file_is_read_as_a_folder_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("tests.backends.loading.test_gguf", exc_type=ImportError)
    tokenizer = gguf.tiny_tokenizer()
    path = gguf.saved(tmp_path / "tiny.gguf", gguf.tiny_model(len(tokenizer)), tokenizer)
    record = ModelRecord(name="m", backend="vllm", source="folder", location=str(path))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingDependency, match="torch"), readable(record):
            pass
    with readable(record) as folder:
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in Path(folder).iterdir()}
    assert not Path(folder).exists()
