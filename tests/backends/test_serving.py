"""Servers that are started here: where a model's files lie, and what is told of an engine or a server that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tts.backends.serving import commands
from tts.backends.serving.commands import engine_of, launch, readable
from tts.backends.serving.server import Server, watch
from tts.errors import ConfigError, EngineError, MissingDependency
from tts.models.record import ModelRecord


def test_a_model_of_the_hub_is_read_by_its_name_there_and_one_without_weights_not_at_all() -> None:
    with readable(ModelRecord(name="m", backend="vllm", source="hub", location="org/m"), gguf=False) as location:
        assert location == "org/m"
    with (
        pytest.raises(ConfigError, match="model 'm' has no weights to load"),
        readable(ModelRecord(name="m", backend="toy"), gguf=False),
    ):
        pass


def test_an_engine_is_known_by_its_name() -> None:
    assert engine_of("llama_cpp") == "llama_cpp"
    with pytest.raises(ConfigError, match="engine is 'llama', but must be vllm or llama_cpp"):
        engine_of("llama")


def test_a_vllm_that_cannot_be_imported_is_told_with_the_end_of_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_command: Any, **_options: Any) -> Any:
        return SimpleNamespace(returncode=1, stdout="", stderr=f"{'x' * 400}\nImportError: libcudart.so.12")

    monkeypatch.setattr(commands.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigError, match=r"vLLM is installed for .*, but cannot be imported: 'x") as refused:
        launch(ModelRecord(name="m", backend="vllm"), "org/m", "vllm", sys.executable)
    assert len(str(refused.value)) < 400


def test_a_server_that_ends_is_told_with_its_last_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("loading\nRuntimeError: no room\n  for it\n\n")
    process: Any = SimpleNamespace(wait=lambda: None, returncode=3)
    with pytest.raises(
        EngineError, match="the server ended with status 3; its log ends: RuntimeError: no room for it"
    ) as failed:
        watch(Server("http://127.0.0.1:1", process, log))
    assert failed.value.hint == f"see {log}"


@pytest.fixture
def other(tmp_path: Path) -> tuple[str, Path]:
    """An interpreter with this environment's packages, without this checkout's path, and the file of what it was run
    with.
    """
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncd /\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python), log


def test_the_interpreter_of_the_engine_reads_a_gguf_file_that_this_one_cannot(
    other: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("tests.backends.loading.test_gguf", exc_type=ImportError)
    python, log = other
    tokenizer = gguf.tiny_tokenizer()
    path = gguf.saved(tmp_path / "tiny.gguf", gguf.tiny_model(len(tokenizer)), tokenizer)
    record = ModelRecord(name="m", backend="vllm", source="folder", location=str(path))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingDependency, match="torch"), readable(record, gguf=False):
            pass
        with readable(record, gguf=False, python=python) as folder:
            files = {file.name for file in Path(folder).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert str(path) in log.read_text()


def test_an_interpreter_that_cannot_read_the_file_is_told_with_its_last_words(
    other: tuple[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "bad.gguf").write_bytes(b"no file of that kind")
    record = ModelRecord(name="m", backend="vllm", source="folder", location=str(tmp_path / "bad.gguf"))
    with (
        pytest.raises(ConfigError, match=r"python cannot read .*bad\.gguf: .*is no GGUF file"),
        readable(record, gguf=False, python=other[0]),
    ):
        pass


def test_companions_of_torch_that_do_not_match_are_named_with_their_cure(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("RuntimeError: operator torchvision::nms does not exist\n")
    process: Any = SimpleNamespace(wait=lambda: None, returncode=1)
    with pytest.raises(EngineError) as failed:
        watch(Server("http://127.0.0.1:1", process, log))
    assert failed.value.hint is not None
    assert failed.value.hint.endswith("pip uninstall torchvision torchaudio torchcodec")
    assert commands.import_hint("ImportError: libcudart.so.12") == ""
