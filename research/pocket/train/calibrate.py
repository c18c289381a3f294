"""Stages "calibrate" and "odds": what is measured becomes the chance that a sample is right.

"calibrate" scales and shifts the process model's head, by its last reading, on samples of the policy on countdowns of the validation
split: one scale and one shift, by logistic regression (Platt 1999), so that the order of readings stays as it is.

"odds" fits the scale and the shift of `confidence(measure='logprob', over='sum', odds=(scale, shift))` to samples of expressions of the
validation split. The policy's record states them for arithmetic. It writes nothing but what it found.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from research.pocket.evaluate.pair import load, pair_record
from research.pocket.evaluate.problems import Cell
from research.pocket.gates.drawing import draw_pools, draw_problems
from research.pocket.train.network import save_head
from tts.models.registry import SHIPPED

CELLS = tuple(Cell("countdown", size) for size in (3, 4, 4))
RUNGS = tuple(Cell("plain-2", size) for size in range(3, 7))
_PROBLEMS_PER_MINUTE, _SAMPLES = 10, 16  # of each cell


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Scale the head of OUT/refined, else of OUT/judge, on samples of the shipped policy: OUT/countdown and OUT/heads/reach.safetensors."""
    name = "refined" if (out / "refined").is_dir() else "judge"
    heads = out / f"{name}-heads"
    backend = load(pair_record(SHIPPED / "policy", out / name, heads), device)
    problems = max(2, round(minutes * _PROBLEMS_PER_MINUTE))
    items = [item for cell, number in Counter(CELLS).items() for item in draw_problems(cell, "validation", number * problems)]
    samples = [one for pool in draw_pools(backend, items, _SAMPLES, seed) for one in pool.samples]
    scale, shift, before, after = fitted([one.reading for one in samples], [float(one.right) for one in samples])
    head = load_file(heads / "process.safetensors")
    save_head(head["weight"] * scale, head["bias"] * scale + shift, out / "heads" / "reach.safetensors")
    shutil.copytree(out / name, out / "countdown", dirs_exist_ok=True)
    return {"scale": scale, "shift": shift, "loss_before": before, "validation_loss": after, "samples": float(len(samples))}


def run_odds(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Return the scale and the shift of summed log-probabilities of the shipped policy; see above."""
    del out
    backend = load(pair_record(SHIPPED / "policy", SHIPPED / "process", SHIPPED / "heads"), device)
    problems = max(2, round(minutes * _PROBLEMS_PER_MINUTE))
    items = [item for cell in RUNGS for item in draw_problems(cell, "validation", problems)]
    samples = [one for pool in draw_pools(backend, items, _SAMPLES, seed) for one in pool.samples]
    readings, labels = [math.exp(one.logprob) for one in samples], [float(one.right) for one in samples]
    scale, shift, before, after = fitted(readings, labels)
    return {"scale": scale, "shift": shift, "loss_before": before, "validation_loss": after, "samples": float(len(samples))}


def fitted(readings: Sequence[float], labels: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the scale and the shift of the logits that fit labels best, and the loss before and after, in nats.

    Args:
        readings: in [0, 1]. labels: 0 or 1.
    """
    clipped = np.clip(np.asarray(readings, np.float64), 1e-7, 1 - 1e-7)
    logits = torch.from_numpy(np.log(clipped) - np.log1p(-clipped))
    wanted = torch.tensor(labels, dtype=torch.float64)
    by = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)  # the scale's logarithm, and the shift
    solver = torch.optim.LBFGS([by], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits * by[0].exp() + by[1], wanted)

    def closure() -> torch.Tensor:
        solver.zero_grad()
        found = loss()
        found.backward()
        return found

    before = float(loss().detach())
    solver.step(closure)
    found = by.detach()
    return float(found[0].exp()), float(found[1]), before, float(loss().detach())
