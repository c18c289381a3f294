"""vLLM beside the transformers backend on the same weights, in float32. Slow: vLLM takes minutes to start on two cores."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.vllm_lent import SUMS, lent
from tts.backends.base import Row, Sample, SampleRequest, Sampling, Stop
from tts.backends.facts import Spelled
from tts.errors import ConfigError
from tts.models import registry
from tts.models.registry import ModelRecord

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STORIES = [f"{opening} {place}" for place in ("the sea,", "a town where", "the old mill,", "my school,") for opening in (
    "Once upon a time, near", "The first thing to know about", "Dear friend, here in", "It was a dark night in", "A short history of",
)]  # fmt: skip
TIE = 1e-4  # nats: what float32 rounds away in these models


async def greedy(backend: Any, prompts: Sequence[str], cap: int) -> list[Sample]:
    handles = [reply.value for reply in await backend.open(prompts)]
    asked = [backend.sample(SampleRequest(handle, (Row(1, 0, cap),), Sampling(temperature=0), Stop())) for handle in handles]
    for rows in asked:
        await rows.drain()
    return [rows.samples[0] for rows in asked]


async def exceptions(prompts: Sequence[str], ours: Sequence[Sample], theirs: Sequence[Sample], oracle: Any) -> list[tuple[str, int, float]]:
    """Return where greedy paths part: the prompt, the number of the token, and by how many nats the oracle prefers its own there."""
    found: list[tuple[str, int, float]] = []
    for prompt, one, other in zip(prompts, ours, theirs, strict=True):
        if one.token_ids == other.token_ids:
            continue
        at = next(i for i, (a, b) in enumerate(zip(one.token_ids, other.token_ids, strict=False)) if a != b)
        [opened] = await oracle.open([prompt])
        [reply] = await oracle.next_logprobs(
            [opened.value],
            [Spelled.of(other.token_ids[:at])],
            [Spelled.of(one.token_ids[at : at + 1]), Spelled.of(other.token_ids[at : at + 1])],
        )
        found.append((prompt, at, float(reply.value[1] - reply.value[0])))
    return found


@pytest.mark.parametrize(("model", "prompts", "cap"), [("pocket", SUMS, 64), ("smollm2", STORIES, 80)])
def test_greedy_paths_are_those_of_the_transformers_backend_but_for_ties(
    model: str, prompts: list[str], cap: int, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = lent(model)
    from tts.backends.transformers import TransformersBackend

    try:
        oracle = TransformersBackend.from_record(registry.get(model), dtype="float32")
    except ConfigError as missing:
        pytest.skip(missing.hint)

    async def check() -> tuple[list[Sample], list[Sample], list[tuple[str, int, float]]]:
        ours, theirs = await greedy(backend, prompts, cap), await greedy(oracle, prompts, cap)
        return ours, theirs, await exceptions(prompts, ours, theirs, oracle)

    ours, theirs, apart = asyncio.run(check())
    lengths = [sample.num_tokens for sample in theirs]
    with capsys.disabled():
        sys.stdout.write(f"\n{model}: {len(prompts) - len(apart)} of {len(prompts)} equal, {min(lengths)} to {max(lengths)} tokens\n")
        for prompt, at, gap in apart:
            sys.stdout.write(f"  {prompt!r}: token {at}, {gap:.2e} nats apart\n")
    assert all(0 <= gap < TIE for _, _, gap in apart)
    assert len(apart) <= 2
    if model == "smollm2":
        assert sum(length >= 64 for length in lengths) >= 18, "the prompts are too short-winded for the claim"
    for one, other in zip(ours, theirs, strict=True):
        if one.token_ids == other.token_ids:
            assert one.text == other.text
            np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=0, atol=1e-3)


def test_an_adapter_is_what_its_weights_added_to_the_models_are(tmp_path: Path) -> None:
    pytest.importorskip("vllm", exc_type=ImportError)
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    from tts.backends.transformers import TransformersBackend

    rank, alpha = 8, 16
    policy = registry.SHIPPED / "policy"
    weights = load_file(policy / "model.safetensors")
    generator = torch.Generator().manual_seed(5)
    adapter: dict[str, Any] = {}
    for name in [name for name in weights if name.endswith(("q_proj.weight", "v_proj.weight"))]:
        out, into = weights[name].shape
        a, b = (torch.randn(shape, generator=generator) * 0.05 for shape in ((rank, into), (out, rank)))
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
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    (lora / "adapter_config.json").write_text(json.dumps(settings))

    adapted, plain = lent("pocket", lora=str(lora)), lent("pocket")
    oracle = TransformersBackend.from_record(
        ModelRecord(name="m", backend="transformers", source="folder", location=str(merged)), dtype="float32"
    )

    async def check() -> None:
        ours, theirs = await greedy(adapted, SUMS[:8], 48), await greedy(oracle, SUMS[:8], 48)
        assert [sample.token_ids for sample in ours] == [sample.token_ids for sample in theirs]
        assert [s.token_ids for s in await greedy(plain, SUMS[:8], 48)] != [s.token_ids for s in theirs], "the adapter does nothing"

    asyncio.run(check())
    assert adapted.identity.startswith(f"{plain.identity} lora=")


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
    problem = " + ".join(str(7 * i % 90) for i in range(1, 30))  # a prompt of several blocks

    def digits(problem: Any, solution: str) -> float:
        del problem
        return sum(character in "13579" for character in solution) / (1 + len(solution))

    with tts.Solver(backend, digits, task="pocket", strategy="beam(n=16, width=4)") as solver:
        solution = solver.solve(problem, 3000, seed=1)
    assert solution.reproducible
    whole = sum((size - 1) // 32 * 32 for size, _ in watched.seen)
    reused = sum(cached for _, cached in watched.seen)
    read = sum(size for size, _ in watched.seen)
    assert (solution.usage.prompt_tokens, solution.usage.reused_tokens) == (read - reused, reused)
    with capsys.disabled():
        sys.stdout.write(f"\nbeam: {len(watched.seen)} requests, {read} tokens, {reused} reused: {reused / whole:.0%} of whole blocks\n")
    assert reused > 0.8 * whole
