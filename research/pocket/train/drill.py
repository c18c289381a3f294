"""Stage "drill": the policy learns short expressions of two digits, so that it computes without error.

Half of the examples are the policy's own mixture (policy.py): solutions, questions, revisions and countdowns stay as
they were. The others are worked expressions of one to three operations. No pair of operands that is held out is among
them. A mean of the weights before and after is saved too: it solves more of the harder problems than either (Wortsman
et al. 2022, "Robust fine-tuning of zero-shot models", arXiv 2109.01903).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from research.pocket.train.examples import Asked, Example, add_solution, solution_text, worked_example
from research.pocket.train.network import Reader, load, save
from research.pocket.train.policy import mixed_example
from research.pocket.train.reader import go_on
from tts.models.registry import SHIPPED
from tts.randomness import generator
from tts.tasks.arithmetic.generator import Difficulty, draw

FIRST_INDEX = 120_000_000  # of its problems, beyond those of the other stages
_MIXTURE = 0.5  # share of the policy's own mixture
_OPERATIONS = np.array([0.6, 0.25, 0.15])  # shares of 1 to 3 of them
_AVERAGE = 40  # tokens of an example
_SHARE = 0.6  # of the trained weights in the mean with those that it began with


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train the shipped policy further; save the result as OUT/drilled.

    The mean of the weights before and after is saved as OUT/mean.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SHIPPED / "policy")
    model, begun = Reader(load(SHIPPED / "policy", device)), load(SHIPPED / "policy", device)
    parts = partial(example, seed), partial(worked_example, seed, split="validation")
    result = go_on(model, tokenizer, parts, "drill", out, minutes=minutes, seed=seed, average=_AVERAGE)
    save(model.trunk, tokenizer, out / "drilled")
    with torch.no_grad():
        for trained, before in zip(model.trunk.parameters(), begun.parameters(), strict=True):
            trained.lerp_(before, 1 - _SHARE)
    save(model.trunk, tokenizer, out / "mean")
    return result


def example(seed: int, index: int) -> Example:
    """Return an example of the policy's mixture, or a short worked expression of two digits."""
    rng = generator(seed, 0, "drill", index)
    if rng.random() < _MIXTURE:
        return mixed_example(seed, FIRST_INDEX + index)
    operations = 1 + int(rng.choice(len(_OPERATIONS), p=_OPERATIONS))
    drawn = draw(Difficulty(operations=operations, digits=2), "train", seed, FIRST_INDEX + index)
    return add_solution(Asked(f"{drawn.text}\n", solution_text(drawn.steps, drawn.answer), "pocket", str(drawn.answer)))
