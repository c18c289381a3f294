"""vLLM beside the transformers backend on the same weights, in float32. Slow: vLLM takes minutes to start on two
cores.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.greedy import SUMS, compare, greedy
from tests.backends.vllm.lent import lent
from tts.models import registry
from tts.models.registry import ModelRecord

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("model", ["pocket", "smollm2"])
def test_greedy_paths_are_those_of_the_transformers_backend_but_for_ties(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(lent(model), model, capsys)


def test_an_adapter_is_what_its_weights_added_to_the_models_are(tmp_path: Path) -> None:
    pytest.importorskip("vllm", exc_type=ImportError)
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    from tts.backends.transformers.backend import TransformersBackend

    rank, alpha = 8, 16
    policy = registry.SHIPPED / "policy"
    weights = load_file(policy / "model.safetensors")
    generator = torch.Generator().manual_seed(5)
    adapter: dict[str, Any] = {}
    for name in [name for name in weights if name.endswith(("q_proj.weight", "v_proj.weight"))]:
        out, into = weights[name].shape
        a, b = (torch.randn(shape, generator=generator) * 0.1 for shape in ((rank, into), (out, rank)))
        adapter[f"base_model.model.{name.removesuffix('weight')}lora_A.weight"] = a
        adapter[f"base_model.model.{name.removesuffix('weight')}lora_B.weight"] = b
        weights[name] = (weights[name].float() + alpha / rank * b @ a).contiguous()
    merged, lora = tmp_path / "merged", tmp_path / "lora"
    for folder in (merged, lora):
        folder.mkdir()
    for path in policy.iterdir():
        if path.suffix != ".safetensors" and path.is_file():
            (merged / path.name).write_bytes(path.read_bytes())
    save_file(weights, merged / "model.safetensors", metadata={"format": "pt"})
    save_file(adapter, lora / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": ["q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    }
    (lora / "adapter_config.json").write_text(json.dumps(settings))

    adapted, plain = lent("pocket", lora=str(lora)), lent("pocket")
    oracle = TransformersBackend.from_record(
        ModelRecord(name="m", backend="transformers", source="folder", location=str(merged)), dtype="float32"
    )

    async def check() -> None:
        ours, theirs = await greedy(adapted, SUMS[:8], 48), await greedy(oracle, SUMS[:8], 48)
        assert [sample.token_ids for sample in ours] == [sample.token_ids for sample in theirs]
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=0, atol=1e-3)
        without = await greedy(plain, SUMS[:8], 48)
        assert max(abs(one.logprobs[0] - other.logprobs[0]) for one, other in zip(without, theirs, strict=True)) > 0.01

    asyncio.run(check())
    assert adapted.identity.startswith(f"{plain.identity} lora=")


SCRIPT = """
import dataclasses, time
from tts.backends import BACKENDS
from tts.models import registry
if __name__ == "__main__":
    backend = BACKENDS.get("vllm").from_record(dataclasses.replace(registry.get("pocket"), backend="vllm"), kv_gib=1)
    print("ready", flush=True)
    time.sleep(600)
"""


def test_an_engine_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("vllm", exc_type=ImportError)
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        try:
            while "ready" not in script.stdout.readline():
                assert script.poll() is None
            engines = children(script.pid)
            engines += [one for engine in engines for one in children(engine)]
            assert len(engines) >= 2
        finally:
            script.kill()
    while any(Path(f"/proc/{one}").exists() for one in engines):  # a test that waits in vain is cut off from outside
        time.sleep(0.5)


def children(process: int) -> list[int]:
    return [
        int(one)
        for thread in Path(f"/proc/{process}/task").iterdir()
        for one in (thread / "children").read_text().split()
    ]


class Watched:
    """An engine whose requests are noted: the tokens of each prompt, and how many of them were reused."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.seen: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def outputs(self, ids: Sequence[int], **settings: Any) -> Any:
        first = True
        async for output in self._engine.outputs(ids, **settings):
            if first:
                self.seen.append((len(ids), output.num_cached_tokens))
            first = False
            yield output


def test_a_beam_search_reuses_four_fifths_of_what_whole_blocks_allow(capsys: pytest.CaptureFixture[str]) -> None:
    import tts

    backend = lent("pocket")
    backend._engine = watched = Watched(backend._engine)  # type: ignore[assignment]
    # a prompt of several blocks
    told = " ".join(f"Anna has {7 * i % 90} apples and gives {i} away." for i in range(1, 8))

    def digits(problem: Any, solution: str) -> float:
        del problem
        return sum(character in "13579" for character in solution) / (1 + len(solution))

    with tts.Solver(backend, digits, task="math", strategy="beam(n=16, branching=4)") as solver:
        solution = solver.solve(f"{told} How many apples are there?", 3000, seed=1)
    assert solution.reproducible
    whole = sum((size - 1) // 32 * 32 for size, _ in watched.seen)
    reused = sum(cached for _, cached in watched.seen)
    read = sum(size for size, _ in watched.seen)
    assert (solution.usage.prompt_tokens, solution.usage.reused_tokens) == (read - reused, reused)
    with capsys.disabled():
        sys.stdout.write(
            f"\nbeam: {len(watched.seen)} requests, {read} tokens, {reused} reused: {reused / whole:.0%} of whole "
            "blocks\n"
        )
    assert reused > 0.8 * whole
