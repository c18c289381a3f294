"""The card tells what was measured: its tables are the evaluation's, and problems drawn just now come out as it
says.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
import tts.models.pocket

HOME = Path(tts.models.pocket.__file__).parent
MEASURED: Mapping[str, Any] = json.loads((HOME / "evaluation.json").read_text())
NOT_INSTALLED = "research is no part of the wheel"


def test_the_tables_of_the_card_are_those_that_were_measured() -> None:
    rendering = pytest.importorskip("research.pocket.evaluate.rendering", reason=NOT_INSTALLED)
    tables = rendering.restore_tables(MEASURED["tables"])
    assert rendering.markdown(tables) in (HOME / "README.md").read_text()


def test_what_ships_is_small_and_is_what_its_checksums_say() -> None:
    sums = json.loads((HOME / "checksums.json").read_text())
    assert {f"{model}/model.safetensors" for model in ("policy", "process", "countdown", "reader")} <= set(sums)
    assert {f"heads/{head}.safetensors" for head in ("probe", "process", "reach", "likelihood")} <= set(sums)
    assert sum((HOME / name).stat().st_size for name in sums) < 24 * 2**20
    assert (
        sums["policy/model.safetensors"]
        == hashlib.sha256((HOME / "policy" / "model.safetensors").read_bytes()).hexdigest()
    )


def test_the_shipped_folder_has_the_same_logits_in_transformers() -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("numba")
    problems = pytest.importorskip("research.pocket.evaluate.problems", reason=NOT_INSTALLED)
    from tts.backends.engine import build
    from tts.models import registry

    model = transformers.AutoModelForCausalLM.from_pretrained(HOME / "policy", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(HOME / "policy")
    items = [
        problems.draw_item(problems.Cell(kind, size), "test", 1, 0)
        for kind, size in (("plain-2", 3), ("worded-2", 6), ("countdown", 3))
    ]
    prompts = [f"{item.problem.text}\n" for item in items]
    texts = ["".join(f"{step}\n" for step in item.worked) for item in items]

    async def scored() -> list[Any]:
        backend = build(registry.get("pocket"), device="cpu")
        try:
            opened = await backend.open(prompts)
            return [reply.value for reply in await backend.score([one.value for one in opened], texts)]
        finally:
            await backend.close()

    for prompt, text, ours in zip(prompts, texts, asyncio.run(scored()), strict=True):
        behind = tokenizer.encode(text, add_special_tokens=False)
        ids = torch.tensor([[*tokenizer.encode(prompt), *behind]])
        with torch.no_grad():
            law = model(ids).logits[0, -len(behind) - 1 : -1].log_softmax(-1)
        theirs = law.gather(1, torch.tensor(behind)[:, None])[:, 0].numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "operations", [2, *(pytest.param(operations, marks=pytest.mark.slow) for operations in (1, 4, 6))]
)
def test_problems_that_nobody_has_seen_come_out_as_the_card_says(operations: int) -> None:
    """Drawn with a seed of this moment; within four standard errors of both measurements, so that one run in 15,000
    fails by chance.
    """
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("numba")
    problems = pytest.importorskip("research.pocket.evaluate.problems", reason=NOT_INSTALLED)
    seed = secrets.randbits(32)
    items = [problems.draw_item(problems.Cell("plain-2", operations), "test", seed, index) for index in range(60)]
    found = tts.solve_many(
        [item.problem for item in items],
        each=tts.Budget(samples=4),
        strategy="best_of_n(n=4) | majority",
        verifier={},
        seed=seed,
    )
    assert not any(solution.error for solution in found)
    right = [
        np.mean([candidate.answer == item.problem.answer for candidate in solution.candidates])
        for item, solution in zip(items, found, strict=True)
    ]
    told = next(row for row in MEASURED["tables"]["accuracy"]["rows"] if row["operations"] == operations)["pass_1"]
    error = math.hypot(np.std(right, ddof=1) / math.sqrt(len(right)), (told["high"] - told["low"]) / (2 * 1.96))
    assert abs(np.mean(right) - told["value"]) <= 4 * error + 0.01, (
        f"seed {seed}: {np.mean(right):.3f}, the card says {told}"
    )
