"""Stage "drill": the policy goes on with short sums, differences and products of two digits, so that it computes without error.

Half of the examples are the policy's own mixture (policy.py): solutions, questions, revisions and countdowns stay as they were. The others
are worked expressions of one to three operations. No pair of operands that is held out is among them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from research.pocket.train.examples import Asked, Batches, Example, solution_text, with_solution, worked
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import Reader, load, mean_loss, save, written_loss
from research.pocket.train.policy import mixed
from research.pocket.train.reader import optimizers
from tts.models.registry import SHIPPED
from tts.randomness import generator
from tts.tasks.arithmetic.generator import Difficulty, draw

FIRST_INDEX = 120_000_000  # of its problems, beyond those of the other stages
_MIXTURE = 0.5  # share of the policy's own mixture
_OPERATIONS = np.array([0.6, 0.25, 0.15])  # shares of 1 to 3 of them
_AVERAGE = 40  # tokens of an example


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Go on from the shipped policy; save OUT/drilled."""
    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.004, rate=1e-3, warmup=0.02, decay=0.8)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SHIPPED / "policy")
    model = Reader(load(SHIPPED / "policy", device))
    batches = Batches(tokenizer, partial(example, seed), tokens=recipe.tokens, average=_AVERAGE, seed=seed)
    unseen = Batches(tokenizer, partial(worked, seed, split="validation"), tokens=4096, average=_AVERAGE, seed=seed)
    checked = [unseen(i) for i in range(4)]
    identity: dict[str, Any] = {"stage": "drill", "seed": seed, "steps": recipe.steps, "device": torch.device(device).type}
    found = train(
        model,
        lambda step: written_loss(model, batches(step))[0],
        recipe,
        out / "stages" / "drill",
        held_out_loss=lambda: mean_loss(model, checked),
        identity=identity,
        tools=optimizers(model, recipe),
    )
    save(model.trunk, tokenizer, out / "drilled")
    return found


def example(seed: int, index: int) -> Example:
    """Return an example of the policy's mixture, or a short expression of two digits with its worked solution."""
    rng = generator(seed, 0, "drill", index)
    if rng.random() < _MIXTURE:
        return mixed(seed, FIRST_INDEX + index)
    operations = 1 + int(rng.choice(len(_OPERATIONS), p=_OPERATIONS))
    drawn = draw(Difficulty(operations=operations, digits=2), "train", seed, FIRST_INDEX + index)
    return with_solution(Asked(f"{drawn.text}\n", solution_text(drawn.steps, drawn.answer), "pocket", str(drawn.answer)))
