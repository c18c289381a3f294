"""Damaged files of models: whatever byte is wrong, the model is read or refused in one line, in memory of the file's
order.
"""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from tests.backends.conftest import tiny_model, tiny_tokenizer  # noqa: E402 - torch comes first
from tests.backends.loading.test_gguf import saved  # noqa: E402
from tests.support.damage import mutate  # noqa: E402
from tests.support.repeats import repeats  # noqa: E402
from tts.backends.engine.weights import read_checkpoint  # noqa: E402
from tts.backends.loading.models import load, load_tokenizer  # noqa: E402
from tts.errors import ConfigError  # noqa: E402
from tts.models.registry import ModelRecord  # noqa: E402

Read = Callable[[ModelRecord], Any]
READERS: dict[str, Read] = {
    "engine": read_checkpoint,
    "transformers": lambda record: load(record, device="cpu", dtype=torch.float32),
    "tokenizer": lambda record: load_tokenizer(record.location or ""),
}
MOST_MIB = 200


def assert_read_or_refused(read: Read, record: ModelRecord) -> bool:
    """Return whether it was refused."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = ""
    try:
        read(record)
    except ConfigError as failure:
        told = str(failure)
    assert "\n" not in told
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MIB << 10
    return bool(told)


def damaged(path: Path) -> ModelRecord:
    return ModelRecord(name="damaged", backend="engine", source="folder", location=str(path))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("whole") / "tiny.gguf", tiny_model(len(tiny_tokenizer())), tiny_tokenizer())


@pytest.mark.slow
@repeats(60, 400, "count")
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_gguf_file_is_read_or_refused_in_one_line(file, tmp_path, reader, count):
    draw, content, refused = np.random.default_rng(count), file.read_bytes(), 0
    for i in range(count):
        path = tmp_path / f"{i}.gguf"
        path.write_bytes(mutate(content, draw))
        refused += assert_read_or_refused(READERS[reader], damaged(path))
        path.unlink()
    assert refused > count / 4


STATED: dict[str, tuple[str, int]] = {  # numbers of metadata, as they stand in the file
    name: (form, value)
    for name, form, value in (
        ("llama.rope.dimension_count", "<I", 3), ("llama.context_length", "<I", 0),
        ("tokenizer.ggml.eos_token_id", "<I", 2**31), ("llama.rope.freq_base", "<f", 0),
    )
}  # fmt: skip


@pytest.mark.parametrize("reader", ["engine", "transformers"])
@pytest.mark.parametrize("key", STATED)
def test_metadata_of_no_model_are_refused(file, tmp_path, reader, key):
    form, value = STATED[key]
    content = bytearray(file.read_bytes())
    at = content.index(key.encode()) + len(key) + 4
    content[at : at + 4] = struct.pack(form, value)
    path = tmp_path / "stated.gguf"
    path.write_bytes(content)
    assert assert_read_or_refused(READERS[reader], damaged(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder")
    tiny_model(len(tiny_tokenizer())).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@repeats(12, 130, "count")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_a_damaged_file_of_a_folder_is_read_or_refused_in_one_line(folder, tmp_path, reader, name, count):
    draw, content = np.random.default_rng(len(name)), (folder / name).read_bytes()
    for one in folder.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    for _ in range(count):
        (tmp_path / name).write_bytes(mutate(content, draw))
        assert_read_or_refused(READERS[reader], damaged(tmp_path))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "content", ["", "null", "[]", "1", '"x"', "{}", "[" * 5000, '{"model_type": 3}', '{"model": {"type": "BPE"}}']
)
def test_another_value_in_a_file_of_a_folder_is_read_or_refused_in_one_line(folder, tmp_path, reader, name, content):
    for one in folder.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    (tmp_path / name).write_text(content)
    assert_read_or_refused(READERS[reader], damaged(tmp_path))


@pytest.mark.parametrize("reader", READERS)
def test_code_in_a_folder_never_runs_and_nobody_is_asked(folder, tmp_path, reader, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question="": asked.append(question) or "y")
    for one in folder.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    mark = tmp_path / "ran"
    (tmp_path / "own.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nfrom transformers import LlamaConfig as Config, LlamaForCausalLM as Model\n"
    )
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused = assert_read_or_refused(READERS[reader], damaged(tmp_path))
    assert refused or reader == "tokenizer"  # a tokenizer that is not its own code is read
    assert not mark.exists()
    assert asked == []
