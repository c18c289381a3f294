"""Stage "calibrate": the process model's head is scaled and shifted, so that its last reading is the chance that a sample is right.

Samples of the policy on the validation split, of each kind of problem the same weight. One scale and one shift, by logistic regression
(Platt 1999): the order of readings stays as it is.
"""

from __future__ import annotations

import shutil
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

CELLS = (*(Cell("plain-2", size) for size in (2, 3, 4, 5, 6)), Cell("worded-2", 4), Cell("countdown", 3), Cell("countdown", 4))
_PROBLEMS_PER_MINUTE, _SAMPLES = 8, 16  # of each cell


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Scale OUT/judge's head on samples of the validation split; save OUT/process and OUT/heads.

    The policy and the probe are the shipped ones where OUT has none of its own.
    """
    if not (out / "policy" / "model.safetensors").is_file():
        shutil.copytree(SHIPPED / "policy", out / "policy", dirs_exist_ok=True)
        (out / "heads").mkdir(exist_ok=True)
        shutil.copyfile(SHIPPED / "heads" / "probe.safetensors", out / "heads" / "probe.safetensors")
    backend = load(pair_record(out / "policy", out / "judge", out / "judge-heads"), device)
    problems = max(2, round(minutes * _PROBLEMS_PER_MINUTE))
    readings, labels, weights = list[float](), list[float](), list[float]()
    for cell in CELLS:
        pools = draw_pools(backend, draw_problems(cell, "validation", problems), _SAMPLES, seed)
        readings += [one.reading for pool in pools for one in pool.samples]
        labels += [float(one.right) for pool in pools for one in pool.samples]
        weights += [2.0 if cell.kind == "countdown" else 1.0] * (problems * _SAMPLES)  # two cells of eight
    scale, shift, before, after = fitted(readings, labels, weights)
    head = load_file(out / "judge-heads" / "process.safetensors")
    save_head(head["weight"] * scale, head["bias"] * scale + shift, out / "heads" / "process.safetensors")
    shutil.copytree(out / "judge", out / "process", dirs_exist_ok=True)
    return {"scale": scale, "shift": shift, "loss_before": before, "validation_loss": after, "samples": float(len(labels))}


def fitted(readings: Sequence[float], labels: Sequence[float], weights: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the scale and the shift of the logits that fit labels best, and the loss before and after, in nats.

    Args:
        readings: in [0, 1]. labels: 0 or 1. weights: of each, above 0.
    """
    clipped = np.clip(np.asarray(readings, np.float64), 1e-7, 1 - 1e-7)
    logits = torch.from_numpy(np.log(clipped) - np.log1p(-clipped))
    wanted, share = torch.tensor(labels, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    by = torch.tensor([0.0, 0.0], dtype=torch.float64, requires_grad=True)  # the scale's logarithm, and the shift
    solver = torch.optim.LBFGS([by], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits * by[0].exp() + by[1], wanted, share / share.mean())

    def closure() -> torch.Tensor:
        solver.zero_grad()
        found = loss()
        found.backward()
        return found

    before = float(loss().detach())
    solver.step(closure)
    found = by.detach()
    return float(found[0].exp()), float(found[1]), before, float(loss().detach())
