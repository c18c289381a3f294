"""A Llama of a GGUF file: its weights by transformers' names, its tokenizer, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

from tests.backends.conftest import EOS, tiny_model, tiny_tokenizer  # noqa: E402 - torch comes first
from tts.backends.loading import models  # noqa: E402
from tts.backends.loading.digests import file_digest  # noqa: E402
from tts.backends.loading.gguf import GGUFFile, llama_from_gguf, llama_weights, read_gguf, tokenizer_from_gguf  # noqa: E402
from tts.errors import ConfigError  # noqa: E402
from tts.models.registry import ModelRecord  # noqa: E402

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def in_gguf(name: str, weight: np.ndarray, heads: dict[str, int]) -> tuple[str, np.ndarray]:
    """Return a weight's name in a GGUF file, and its rows as they stand there: the halves of each head interleaved."""
    name = name.removesuffix(".weight")
    if not name.startswith("model.layers."):
        return f"{NAMES[name]}.weight", weight
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    if part in heads:
        size = len(weight) // heads[part]
        order = [
            head * size + half * size // 2 + i
            for head in range(heads[part])
            for i in range(size // 2)
            for half in (0, 1)
        ]
        weight = weight[order]
    return f"blk.{layer}.{NAMES[part]}.weight", weight


def saved(path: Path, model: Any, tokenizer: Any) -> Path:
    """Write a model of the transformers library and its tokenizer as a GGUF file."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_merges(["t h", "th e", "1 2"])
    writer.add_token_types([3 if token == EOS else 1 for token in tokens])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    for name, weight in model.state_dict().items():
        writer.add_tensor(*in_gguf(name, weight.numpy(), heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(len(tiny_tokenizer()))


@pytest.fixture(scope="module")
def path(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model, tiny_tokenizer())


@pytest.fixture(scope="module")
def file(path: Path) -> GGUFFile:
    return read_gguf(path)


def assert_weights(found: dict[str, Any], model: Any) -> None:
    wanted = model.state_dict()
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert torch.equal(found[name], weight), name


def test_weights_are_those_of_the_model_that_was_written(file: GGUFFile, model: Any) -> None:
    config, weights = llama_weights(file)
    assert_weights(weights, model)
    for name in (
        "vocab_size",
        "hidden_size",
        "num_key_value_heads",
        "head_dim",
        "rope_parameters",
        "tie_word_embeddings",
        "eos_token_id",
    ):
        assert getattr(config, name) == getattr(model.config, name), name
    assert_weights(llama_from_gguf(file, torch.float32).state_dict(), model)


def test_a_file_without_an_output_layer_has_that_of_its_embedding(file: GGUFFile) -> None:
    tensors = {name: values for name, values in file.tensors.items() if name != "output.weight"}
    config, weights = llama_weights(dataclasses.replace(file, tensors=tensors))
    assert config.tie_word_embeddings
    assert "lm_head.weight" not in weights


def test_a_weight_that_is_missing_is_never_drawn(file: GGUFFile) -> None:
    tensors = {name: values for name, values in file.tensors.items() if name != "blk.1.ffn_up.weight"}
    with pytest.raises(ConfigError, match=r"damaged.*layers\.1\.mlp\.up_proj"):
        llama_from_gguf(dataclasses.replace(file, tensors=tensors), torch.float32)


def test_the_tokenizer_splits_numbers_into_digits(file: GGUFFile) -> None:
    tokenizer = tokenizer_from_gguf(file)

    def pieces(text: str) -> Sequence[str]:
        return tokenizer.convert_ids_to_tokens(tokenizer.encode(text))

    assert pieces("the 12") == ["the", "Ġ", "1", "2"], "the merge of 1 and 2 is not used"
    assert pieces(f"a{EOS}") == ["a", EOS]
    assert tokenizer.decode(tokenizer.encode("thé  12\n")) == "thé  12\n"
    assert (tokenizer.bos_token, tokenizer.eos_token) == (EOS, EOS)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"


@pytest.mark.parametrize(
    ("read", "key", "refused"),
    [
        (llama_weights, "general.architecture", "the GGUF file holds the architecture 'other', but only llama is read"),
        (
            tokenizer_from_gguf,
            "tokenizer.ggml.model",
            r"the GGUF file's tokenizer is \('other', 'smollm'\), but only .* is read",
        ),
    ],
)
def test_another_architecture_or_tokenizer_is_refused(
    read: Callable[[GGUFFile], Any], key: str, refused: str, file: GGUFFile
) -> None:
    with pytest.raises(ConfigError, match=refused):
        read(dataclasses.replace(file, metadata={**file.metadata, key: "other"}))


def test_every_loader_reads_the_file(path: Path, file: GGUFFile, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tts.backends.engine import weights
    from tts.backends.engine.weights import read_checkpoint

    for loader in (models, weights):
        monkeypatch.setattr(loader, "read_gguf", {path: file}.__getitem__)  # so that it is parsed once for all tests
    record = ModelRecord(name="mine", backend="engine", source="folder", location=str(path))
    loaded, checkpoint = models.load(record, device="cpu", dtype=torch.float32), read_checkpoint(record)
    assert_weights(loaded.model.state_dict(), model)
    assert_weights(checkpoint.weights, model)
    assert loaded.weights == checkpoint.digest == file_digest(path)
    pinned = dataclasses.replace(record, sha256="0" * 64)
    assert read_checkpoint(pinned).digest == "0" * 64
    monkeypatch.setattr(models, "resolve", lambda name: record)
    for tokenizer in (loaded.tokenizer, checkpoint.tokenizer, models.load_tokenizer("mine")):
        assert tokenizer.encode("the 12") == loaded.tokenizer.encode("the 12")


def test_a_model_without_files_has_no_tokenizer() -> None:
    with pytest.raises(ConfigError, match=r"'toy'.*load"):
        models.load_tokenizer("toy")


def test_the_tokenizer_of_a_folder_is_read_from_it(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert models.load_tokenizer(str(tmp_path)).encode("the 12") == tokenizer.encode("the 12")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="could not be loaded"):
        models.load_tokenizer(str(tmp_path))
