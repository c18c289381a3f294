"""Stage "policy": a Llama learns to write worked solutions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from tts.models.pocket.train.examples import Batches, worked
from tts.models.pocket.train.loop import Recipe, train
from tts.models.pocket.train.network import mean_loss, new_policy, next_token_loss, save
from tts.models.pocket.train.tokenizer import build

_AVERAGE = 55  # tokens of an example


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train a policy and save it as OUT/base.

    Returns:
        The last losses and the seconds it took.
    """
    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.006, rate=2e-3, warmup=0.03, fall=2 / 3)
    tokenizer = build()
    model = new_policy(tokenizer, seed, device)
    batches = Batches(tokenizer, partial(worked, seed), tokens=recipe.tokens, average=_AVERAGE, seed=seed)
    unseen = Batches(tokenizer, partial(worked, seed, split="validation"), tokens=4096, average=_AVERAGE, seed=seed)
    checked = [unseen(i) for i in range(4)]
    found = train(
        model,
        lambda step: next_token_loss(model, batches(step)),
        recipe,
        out / "stages" / "policy",
        held_out_loss=lambda: mean_loss(model, checked),
        identity={"stage": "policy", "seed": seed, "steps": recipe.steps, "tokens": recipe.tokens, "device": torch.device(device).type},
    )
    save(model, tokenizer, out / "base")
    return found
