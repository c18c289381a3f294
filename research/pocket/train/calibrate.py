"""Stages "calibrate" and "odds": readings become the chance that a sample is right.

"calibrate" scales and shifts the process model's head, by its last reading. It takes samples of the policy on
countdowns of the validation split. One scale and one shift are fitted by logistic regression (Platt 1999), so that the
order of readings stays as it is.

"odds" does so for expressions: it fits scale and shift of the likelihood under OUT/reader. For comparison it fits
those of the policy's own summed log-probability, `confidence(measure='logprob', over='sum', odds=(scale, shift))`.
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
from research.pocket.train.network import save_head, save_likelihood
from research.pocket.train.refine import model_paths
from tts.errors import ConfigError
from tts.models.registry import SHIPPED

CELLS = tuple(Cell("countdown", size) for size in (3, 4, 4))
RUNGS = tuple(Cell("plain-2", size) for size in range(3, 7))
STAGES = ("settled", "refined", "judge")  # whose result is calibrated, the last one first
_PROBLEMS_PER_MINUTE, _SAMPLES = 10, 16  # of each cell


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Scale the head of the last of `STAGES` that was run, on samples of the shipped policy.

    The stage writes OUT/countdown and OUT/heads/reach.safetensors.

    Raises:
        ConfigError: No stage of `STAGES` was run.
    """
    made = [model_paths(out, name) for name in STAGES if (out / name).is_dir()]
    if not made:
        raise ConfigError(f"{out} has no process model to calibrate", hint="run the stage judge or refine there first")
    folder, file = made[0]
    backend = load(pair_record(SHIPPED / "policy", folder, file.parent), device)
    problems = max(2, round(minutes * _PROBLEMS_PER_MINUTE))
    items = [
        item for cell, number in Counter(CELLS).items() for item in draw_problems(cell, "validation", number * problems)
    ]
    samples = [one for pool in draw_pools(backend, items, _SAMPLES, seed) for one in pool.samples]
    scale, shift, before, after = fit_scale([one.reading for one in samples], [float(one.right) for one in samples])
    head = load_file(file)
    save_head(head["weight"] * scale, head["bias"] * scale + shift, out / "heads" / "reach.safetensors")
    shutil.copytree(folder, out / "countdown", dirs_exist_ok=True)
    return {
        "scale": scale,
        "shift": shift,
        "loss_before": before,
        "validation_loss": after,
        "samples": float(len(samples)),
    }


def run_odds(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Fit the chance that an expression's solution is right by its likelihood under OUT/reader.

    The stage writes OUT/heads/likelihood.safetensors.

    Raises:
        ConfigError: There is no reader.
    """
    if not (out / "reader").is_dir():
        raise ConfigError(f"{out} has no reader to calibrate", hint="run the stage reader there first")
    backend = load(pair_record(SHIPPED / "policy", out / "reader", out / "reader-heads"), device)
    problems = max(2, round(minutes * _PROBLEMS_PER_MINUTE))
    items = [item for cell in RUNGS for item in draw_problems(cell, "validation", problems)]
    samples = [one for pool in draw_pools(backend, items, _SAMPLES, seed) for one in pool.samples]
    labels = [float(one.right) for one in samples]
    scale, shift, before, after = fit_scale([one.reading for one in samples], labels)
    save_likelihood(scale, shift, out / "heads" / "likelihood.safetensors")
    free = fit_scale([math.exp(one.logprob) for one in samples], labels)
    figures = {
        "scale": scale,
        "shift": shift,
        "loss_before": before,
        "validation_loss": after,
        "samples": float(len(samples)),
    }
    return {**figures, "logprob_scale": free[0], "logprob_shift": free[1], "logprob_loss": free[3]}


def fit_scale(readings: Sequence[float], labels: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the scale and the shift of the logits that fit labels best, and the loss before and after.

    Losses are in nats.

    Args:
        readings: The readings, in [0, 1].
        labels: The labels, 0 or 1.
    """
    clipped = np.clip(np.asarray(readings, np.float64), 1e-7, 1 - 1e-7)
    logits = torch.from_numpy(np.log(clipped) - np.log1p(-clipped))
    wanted = torch.tensor(labels, dtype=torch.float64)
    parameters = torch.tensor(
        [0.0, 0.0], dtype=torch.float64, requires_grad=True
    )  # the scale's logarithm, and the shift
    solver = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(
            logits * parameters[0].exp() + parameters[1], wanted
        )

    def closure() -> torch.Tensor:
        solver.zero_grad()
        found = loss()
        found.backward()
        return found

    before = float(loss().detach())
    solver.step(closure)
    found = parameters.detach()
    return float(found[0].exp()), float(found[1]), before, float(loss().detach())
