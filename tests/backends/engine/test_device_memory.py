"""Which CUDA device is meant, and how models share its memory; torch's answers about devices are set here."""

from __future__ import annotations

import dataclasses
import logging
import sys
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the tiny model is one of the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import checkpoint_of, tiny_model, tiny_tokenizer  # noqa: E402
from tts.backends import kernels  # noqa: E402
from tts.backends.engine import loading  # noqa: E402
from tts.backends.engine.device import memory  # noqa: E402
from tts.backends.engine.loading import EngineOptions, make_runner  # noqa: E402
from tts.backends.loading.expected import expected_models, expecting  # noqa: E402
from tts.errors import ConfigError, KVBudgetError, MissingDependency  # noqa: E402
from tts.models import registry  # noqa: E402
from tts.solver.model_cache import loaded_records  # noqa: E402
from tts.verifiers.making import make_verifier  # noqa: E402

CARD = torch.device("cuda", 1)
GIB = 1 << 30


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two cards of 80 GiB, of which the calling thread uses the second."""
    state: dict[str, Any] = {"free": 80 * GIB, "used": []}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: state["used"].append("emptied"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (state["free"], 80 * GIB))
    monkeypatch.setattr(memory, "_HOLDERS", weakref.WeakKeyDictionary())
    return state


def test_a_device_without_an_index_is_the_one_of_the_calling_thread(cards: Any) -> None:
    assert EngineOptions(device="cuda").resolve().place == CARD
    assert EngineOptions(device="cuda:0").resolve().place == torch.device("cuda:0")
    assert EngineOptions(device="cpu").resolve().place == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"cuda:2.*2 CUDA devices.*cuda:0"):
        EngineOptions(device="cuda:2").resolve()


def test_a_machine_without_a_card_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match=r"cuda.*0 CUDA devices.*cpu"):
        EngineOptions(device="cuda").resolve()


def test_every_step_runs_on_the_engines_device(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    class Block:
        def __init__(self, device: Any) -> None:
            self.device = device

        def __enter__(self) -> None:
            entered.append(self.device)

        def __exit__(self, *_: object) -> None:
            entered.append(None)

    monkeypatch.setattr(torch.cuda, "device", Block)
    runner = tiny_runner()
    runner.step()
    assert entered == []
    runner.decoder.device = CARD
    runner.step()
    assert entered == [CARD, None]


def test_all_weights_are_counted_before_a_pool_is_sized(cards: Any) -> None:
    found = memory.pool_bytes(CARD, {"policy": 16 * GIB}, {"reward": 14 * GIB}, None)
    assert found == int(0.8 * 50 * GIB / 2)
    assert "emptied" in cards["used"]
    assert memory.pool_bytes(CARD, {"policy": 16 * GIB}, {}, 8 * GIB) == 8 * GIB


def test_later_models_are_counted_on_their_own_device_and_in_their_own_precision(
    cards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "num_weights", lambda record: GIB)
    tokenizer = tiny_tokenizer()
    own = {"policy": checkpoint_of(tiny_model(len(tokenizer)), tokenizer)}
    size = 2 * sum(tensor.numel() for tensor in own["policy"].weights.values())
    reward = registry.get("pocket")
    for options, later in (
        ((), 2 * GIB),
        ((("precision", "float32"),), 4 * GIB),
        ((("device", "cuda:1"),), 2 * GIB),
        ((("device", "cuda:0"),), None),
        ((("device", "cpu"),), None),
    ):
        record = dataclasses.replace(reward, name="later", backend="engine", options=options)
        with expecting([record]):
            found = loading._pool_bytes(EngineOptions(device="cuda").resolve(), own)
        models = 1 if later is None else 2
        assert found == int(0.8 * (80 * GIB - size - (later or 0)) / models), options


def test_models_that_do_not_fit_are_refused_with_all_sizes(cards: Any) -> None:
    owner = tiny_runner()
    memory.hold(owner, CARD, "first", 70 * GIB)
    cards["free"] = 10 * GIB
    with pytest.raises(KVBudgetError, match=rf"second {16 * GIB} bytes.*cuda:1.*{10 * GIB}.*first {70 * GIB}") as error:
        memory.pool_bytes(CARD, {"second": 16 * GIB}, {}, None)
    assert "kv_budget" in str(error.value.hint)
    with pytest.raises(KVBudgetError, match=rf"{9 * GIB} bytes of keys"):
        memory.pool_bytes(CARD, {"second": 2 * GIB}, {}, 9 * GIB)
    memory.give_back(owner)
    assert memory.held_models(CARD) == {}


def test_memory_that_is_used_up_while_loading_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    monkeypatch.setattr(loading, "Decoder", fail)
    with pytest.raises(KVBudgetError, match=r"memory of cpu.*used up.*2\.00 GiB \(hint"):
        tiny_runner()


def test_a_context_longer_than_the_memory_is_told_at_load(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tts.engine"):
        runner = tiny_runner(kv_budget=1 << 14)
    tokens = 16 * runner.tree.pool.num_blocks
    assert tokens < runner.context
    assert f"{tokens} tokens" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tts.engine"):
        tiny_runner()
    assert not caplog.text


def test_a_dropped_runner_gives_back_its_memory() -> None:
    runner = tiny_runner()
    tensors = [weakref.ref(runner.tree.pool.keys), weakref.ref(runner.decoder._embedding)]
    runner.drop()
    runner.drop()  # as a backend that is closed twice
    assert [tensor() for tensor in tensors] == [None, None]


def test_a_solver_expects_the_models_of_its_verifiers() -> None:
    policy = registry.get("pocket")
    reward = make_verifier("reward")
    assert [record.name for record in loaded_records({"policy": policy}, {"main": reward})] == [
        "pocket",
        "pocket-process",
    ]
    on_cpu = loaded_records({}, {"main": make_verifier("reward(device='cpu')")})
    assert [record.options for record in on_cpu] == [(("device", "cpu"),)]
    served = make_verifier("reward(url='http://localhost:1')")
    assert loaded_records({}, {"main": served}) == []
    with expecting([policy]):
        assert expected_models() == (policy,)
    assert expected_models() == ()


def tiny_runner(**options: Any) -> Any:
    tokenizer = tiny_tokenizer()
    checkpoint = checkpoint_of(tiny_model(len(tokenizer)), tokenizer)
    return make_runner(checkpoint, EngineOptions(device="cpu", threads=1, **options))[0]


def test_a_missing_triton_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in ("attention_triton", "draw_triton", "norm_triton", "rope_triton"):  # as before their first import
        monkeypatch.delitem(sys.modules, f"tts.backends.kernels.{name}", raising=False)
        monkeypatch.delattr(kernels, name, raising=False)
    with pytest.raises(MissingDependency, match=r"triton.*pip install triton"):
        tiny_runner(executor="triton")
