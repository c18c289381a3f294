"""Stage "reader": the policy learns expressions and stories for longer, to compute better than before.

The reader writes nothing for users. The likelihood of a solution under the reader says how right the solution is. A
problem has one worked solution, so a model that never errs gives that solution a probability of 1. Slips, questions
and countdowns are left out: tokens are few, and the reader is asked for one thing. Long expressions are rare, since
the policy is hardly ever right on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from research.pocket.train.examples import Asked, Batches, Example, add_solution, solution_text
from research.pocket.train.loop import Recipe, train
from research.pocket.train.muon import Muon
from research.pocket.train.network import Reader, load, mean_loss, save, save_likelihood, written_loss
from tts.models.registry import SHIPPED
from tts.randomness import generator
from tts.tasks.arithmetic.generator import Difficulty, Split, draw

FIRST_INDEX = 80_000_000  # of its problems, beyond those of the other stages
_KINDS = {(False, 1): 0.1, (False, 2): 0.65, (True, 1): 0.05, (True, 2): 0.2}  # shares: (worded, digits)
_OPERATIONS = np.array([2, 4, 5, 5, 5, 5, 2, 1, 1, 1]) / 31  # shares of 1 to 10 of them
_AVERAGE = 60  # tokens of an example


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train the shipped policy further, and save OUT/reader.

    How its likelihood is read, not yet calibrated, is saved as OUT/reader-heads/process.safetensors.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SHIPPED / "policy")
    model = Reader(load(SHIPPED / "policy", device))
    parts = partial(example, seed), partial(example, seed, split="validation")
    found = go_on(model, tokenizer, parts, "reader", out, minutes=minutes, seed=seed, average=_AVERAGE)
    save(model.trunk, tokenizer, out / "reader")
    save_likelihood(1.0, 0.0, out / "reader-heads" / "process.safetensors")
    return found


def go_on(
    model: Reader,
    tokenizer: PreTrainedTokenizerFast,
    parts: tuple[Callable[[int], Example], Callable[[int], Example]],
    stage: str,
    out: Path,
    *,
    minutes: float,
    seed: int,
    average: int,
) -> dict[str, float]:
    """Train a model further on the next token of written texts, with fresh optimizers.

    Args:
        model: The model.
        tokenizer: The tokenizer.
        parts: The functions from an index to an example, of training and of the validation split.
        stage: The name of the stage.
        out: The folder of the run.
        minutes: The length of the run.
        seed: The seed of the batches.
        average: The tokens of an example, about.
    """
    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.004, rate=1e-3, warmup=0.02, decay=0.8)
    batches, unseen = (Batches(tokenizer, part, tokens=recipe.tokens, average=average, seed=seed) for part in parts)
    checked = [unseen(i) for i in range(4)]
    return train(
        model,
        lambda step: written_loss(model, batches(step))[0],
        recipe,
        out / "stages" / stage,
        held_out_loss=lambda: mean_loss(model, checked),
        identity={"stage": stage, "seed": seed, "steps": recipe.steps, "device": model.trunk.device.type},
        tools=optimizers(model, recipe),
    )


def optimizers(model: Reader, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon in float32 for the layers' matrices and AdamW for all else of the trunk."""
    matrices = [p for name, p in model.trunk.named_parameters() if p.ndim == 2 and ".layers." in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.trunk.parameters() if id(p) not in chosen]
    return [
        Muon(matrices, lr=recipe.matrix_rate),
        torch.optim.AdamW(others, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def example(seed: int, index: int, split: Split = "train") -> Example:
    """Return an expression or a story of the mixture, with its worked solution."""
    rng = generator(seed, 0, "reader", split, index)
    worded, digits = list(_KINDS)[int(rng.choice(len(_KINDS), p=list(_KINDS.values())))]
    operations = 1 + int(rng.choice(len(_OPERATIONS), p=_OPERATIONS))
    drawn = draw(Difficulty(operations=operations, digits=digits, worded=worded), split, seed, FIRST_INDEX + index)
    return add_solution(Asked(f"{drawn.text}\n", solution_text(drawn.steps, drawn.answer), "pocket", str(drawn.answer)))
