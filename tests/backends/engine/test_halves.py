"""Keys and values in float16 as an option of the engine: strict as in float32, in half the memory."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

from tests.backends.engine.driving import run  # noqa: E402
from tests.backends.engine.test_strict import Fact, alone, companions, engine, evict_all, facts, searched, written  # noqa: E402
from tts.backends.base import Row  # noqa: E402
from tts.backends.engine import EngineBackend  # noqa: E402
from tts.backends.engine.loading import EngineOptions  # noqa: E402
from tts.backends.kernels import target  # noqa: E402
from tts.errors import ConfigError  # noqa: E402
from tts.models import registry  # noqa: E402

HALVES = {"kv_precision": "float16"}
needs_halves = pytest.mark.skipif(not target.WIDENS_HALVES, reason="this CPU has no F16C")


def busy(want: list[Fact], backend: Any) -> None:
    """Check that a search has the same facts among others, and again after everything was evicted."""

    async def main() -> None:
        _, samples = await asyncio.gather(companions(backend, 4), searched(backend, 0))
        assert await facts(backend, samples) == want
        evict_all(backend)
        before = backend.stats.recomputed
        assert await facts(backend, samples[::-1]) == want[::-1]
        assert backend.stats.recomputed > before

    run(backend, main)


@pytest.mark.slow
@needs_halves
@pytest.mark.parametrize("name", ["narrow", "wide"])
def test_a_path_has_bits_of_its_own(name: str) -> None:
    want = alone(name, **HALVES)
    busy(want, engine(name, **HALVES, kv_budget=4 << 20))
    busy(want, engine(name, **HALVES, kv_budget=4 << 20, threads=2, step_tokens=7))
    assert want != alone(name)  # it is no option without effect


@needs_halves
def test_two_paths_take_the_memory_of_one() -> None:
    whole, half = engine(kv_budget=1 << 20), engine(kv_budget=1 << 20, **HALVES)
    assert half.kv_bytes_per_token * 2 == whole.kv_bytes_per_token
    assert half.runner.tree.pool.num_blocks // 2 == whole.runner.tree.pool.num_blocks
    assert half.runner.tree.pool.keys.dtype == torch.float16


@pytest.mark.slow
@needs_halves
def test_results_are_kept_apart_from_those_of_float32() -> None:
    found = [
        EngineBackend.from_record(registry.get("pocket"), kv_precision=held).identity
        for held in (None, "float32", "float16")
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
@needs_halves
@pytest.mark.parametrize("name", ["narrow", "wide"])
def test_log_probabilities_are_those_of_float32_within_rounding(name: str) -> None:
    found = []
    for options in (HALVES, {}):
        backend = engine(name, **options)

        async def main(backend: Any = backend) -> Any:
            [opened] = await backend.open(["the cat and the other one of the things in the end"])
            [sample] = await written(backend, opened.value, [Row(3, 0, 1)])
            [scores] = await backend.score([sample.handle], ["and the end of the things " * 4])
            return scores.value

        found.append(run(backend, main))
    halves, floats = found
    assert 0 < np.abs(halves - floats).max() < 2e-2


def test_what_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, message in (
        ({"kv_precision": "float8"}, "kv_precision is 'float8', but must be float32, float16 or None"),
        ({**HALVES, "executor": "triton"}, "the executor 'triton' reads float32 alone"),
        ({**HALVES, "device": "cuda"}, "kv_precision is 'float16', which is for a CPU, but the device is cuda"),
    ):
        with pytest.raises(ConfigError, match=message):
            EngineOptions(**options)
    monkeypatch.setattr(target, "WIDENS_HALVES", False)
    with pytest.raises(ConfigError, match="this CPU has no F16C"):
        EngineOptions(**HALVES)
