"""Reinforcement learning of `pocket` on countdowns: GRPO with equal groups and with others.

    python -m research.pocket.grpo [--steps 30] [--prompts 32] [--seeds 3] [--out docs/results/grpo.md]

Each step draws rollouts of some prompts by `tts.rollouts`, and takes one step of AdamW on them. Equal groups come
first. Their cost in a step is the total of that step for groups of other sizes, which are larger where rewards differ.
These may spend less of the total but never more. The copy of the model is written to a folder, from which the next
rollouts are drawn. Accuracy is that of one sample at temperature 1 on prompts of the validation split, which no step
sees. A run takes some minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

import tts
from research.pocket.policy_loss import policy_loss
from research.stamps import stamp_line
from tts.experiments.datasets import countdown
from tts.models import registry
from tts.models.record import ModelRecord
from tts_addons.training.rollouts import Rollouts

PAGE = Path(__file__).parents[2] / "docs/results/grpo.md"
OBJECTIVES = ("uniform", "signal")  # in this order: the second gets what the first has spent
RATE = 3e-5  # of learning
GROUP = 8
EVERY = 5  # steps between two measurements
PROBLEMS = 100  # of a measurement
SAMPLES = 4  # of each of them
UNLIMITED = 10**9  # tokens of equal groups, whose number limits them
BATCH = 64  # rollouts in one forward pass


def batch_of(rollouts: Rollouts, pad: int) -> dict[str, torch.Tensor]:
    """Return the rollouts of groups with a difference as tensors.

    The tensors are ids, mask, log-probabilities, advantages and shares. A share is one over the number of all rollouts.
    Rollouts of other groups have no gradient, but they count in the mean, as in TRL.
    """
    count = sum(len(group.rollouts) for group in rollouts.groups)
    rows: list[tuple[tuple[int, ...], Any, float]] = []
    for group in rollouts.groups:
        if group.variance > 0:
            pairs = zip(group.rollouts, group.advantages().tolist(), strict=True)
            rows += [(one.tokens.prompt, one.tokens, advantage) for one, advantage in pairs if one.tokens is not None]
    width = max((len(prompt) + len(one.ids) for prompt, one, _ in rows), default=0)
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask, before = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for place, (prompt, one, _) in enumerate(rows):
        end = len(prompt) + len(one.ids)
        ids[place, :end] = torch.tensor([*prompt, *one.ids])
        mask[place, len(prompt) : end] = torch.tensor([float(wrote) for wrote in one.written])
        before[place, len(prompt) : end] = torch.tensor(one.logprobs)
    return {
        "ids": ids,
        "mask": mask,
        "before": before,
        "advantages": torch.tensor([advantage for *_, advantage in rows]),
        "shares": torch.full((len(rows),), 1 / max(1, count)),
    }


def take_step(model: Any, optimizer: torch.optim.Optimizer, batch: Mapping[str, torch.Tensor]) -> float:
    """Take one step on a batch, and return the loss; the first token of a text has no prediction."""
    optimizer.zero_grad()
    total = 0.0
    for start in range(0, len(batch["ids"]), BATCH):
        part = {name: values[start : start + BATCH] for name, values in batch.items()}
        logits = model(input_ids=part["ids"]).logits[:, :-1]
        logprobs = torch.log_softmax(logits, dim=-1).gather(-1, part["ids"][:, 1:, None])[..., 0]
        loss = policy_loss(logprobs, part["before"][:, 1:], part["advantages"], part["mask"][:, 1:])
        loss = loss * part["shares"].sum()
        loss.backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def accuracy(folder: Path, seed: int) -> float:
    """Return the share of right samples of a model on prompts of the validation split."""
    problems = countdown.load(limit=PROBLEMS, split="validation", numbers=(2, 3, 4), seed=7)
    with solver_of(folder) as solver:
        found = tts.rollouts(problems, UNLIMITED, solver=solver, objective="uniform", n=SAMPLES, seed=seed)
    return float(np.mean([group.rewards.mean() for group in found.groups]))


def solver_of(folder: Path) -> tts.Solver:
    """Return a solver of a model in a folder, without verifiers, at temperature 1."""
    record = ModelRecord(
        name="pocket-copy", backend="engine", location=str(folder), source="folder", task="countdown", step=("\n",)
    )
    return tts.Solver(record, {}, task="countdown", temperature=1.0)


def train(objective: str, totals: Sequence[int], prompts: int, seed: int) -> Iterator[dict[str, float]]:
    """Train a copy, and yield the measurements before each step.

    A measurement has the step, the rollout tokens so far, the accuracy, and the share of silent groups.

    Args:
        objective: The objective, as in `tts.rollouts`.
        totals: The most rollout tokens of each step.
        prompts: The number of prompts of a step.
        seed: The seed of prompts and samples.
    """
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        source = registry.locate(registry.resolve("pocket"))
        if source is None:
            raise FileNotFoundError("the files of pocket are missing")
        shutil.copytree(source, folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
        spent, silent = 0, math.nan
        for step in range(len(totals) + 1):
            accuracy_now = accuracy(folder, seed) if step % EVERY == 0 else math.nan
            yield {"step": step, "tokens": spent, "accuracy": accuracy_now, "silent": silent}
            if step == len(totals):
                return
            problems = countdown.load(limit=prompts, split="train", numbers=(2, 3, 4), seed=1000 * seed + step)
            with solver_of(folder) as solver:
                rollouts = tts.rollouts(problems, totals[step], solver=solver, objective=objective, n=GROUP, seed=step)
            spent, silent = spent + int(rollouts.spent["tokens"]), rollouts.silent
            batch = batch_of(rollouts, pad=0)
            if len(batch["ids"]):
                take_step(model, optimizer, batch)
                model.save_pretrained(folder)


def page(
    measured: Mapping[tuple[str, int], Sequence[Mapping[str, float]]], options: argparse.Namespace
) -> Iterator[str]:
    """Yield the lines of the page."""
    flags = f"--steps {options.steps} --prompts {options.prompts} --seeds {options.seeds}"
    yield from (
        "# Reinforcement learning where rewards differ",
        "",
        stamp_line(f"python -m research.pocket.grpo {flags}"),
        "",
    )
    yield (
        f"`pocket` on countdowns of 2 to 4 numbers, {options.steps} steps of GRPO, {options.seeds} seeds. *Uniform*: "
        f"{GROUP} samples of each of {options.prompts} new prompts. *Signal*: the same prompts and tokens, with groups "
        f"sized by expected variance. AdamW at {RATE:g}, one step a batch, no penalty for the distance to the first "
        f"model. Accuracy is that of one sample at temperature 1, of {SAMPLES} on each of {PROBLEMS} problems of the "
        "validation split. Intervals are over seeds, by Student's t."
    )
    yield ""
    yield (
        "| step | uniform | signal | signal less uniform, points | silent groups, uniform | signal | tokens, "
        "uniform | signal |"
    )
    yield "| --: | :-- | :-- | :-- | --: | --: | --: | --: |"
    for place, one in enumerate(measured["uniform", 0]):
        if math.isnan(one["accuracy"]):
            continue
        each = {
            name: np.array([measured[name, seed][place]["accuracy"] for seed in range(options.seeds)]) * 100
            for name in OBJECTIVES
        }
        silent = {
            name: np.mean([measured[name, seed][place]["silent"] for seed in range(options.seeds)])
            for name in OBJECTIVES
        }
        shares = " | ".join("–" if math.isnan(silent[name]) else f"{silent[name]:.0%}" for name in OBJECTIVES)
        intervals = (
            f"{interval(each['uniform'])} | {interval(each['signal'])} | {interval(each['signal'] - each['uniform'])}"
        )
        spent = {
            name: np.mean([measured[name, seed][place]["tokens"] for seed in range(options.seeds)])
            for name in OBJECTIVES
        }
        tokens = " | ".join(f"{spent[name]:,.0f}" for name in OBJECTIVES)
        yield f"| {one['step']:.0f} | {intervals} | {shares} | {tokens} |"


def interval(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Return the mean with its 95 % interval by Student's law."""
    from scipy import stats

    if len(values) < 2:
        return f"{values.mean():.1f}"
    half = float(stats.t.ppf(0.975, len(values) - 1)) * values.std(ddof=1) / math.sqrt(len(values))
    return f"{values.mean():.1f} [{values.mean() - half:.1f}, {values.mean() + half:.1f}]"


def main() -> None:
    """Train with both objectives, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--prompts", type=int, default=32, help="of a step")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    measured: dict[tuple[str, int], list[Mapping[str, float]]] = {}
    for seed in range(options.seeds):
        totals = [UNLIMITED] * options.steps
        for objective in OBJECTIVES:
            began = time.time()
            measured[objective, seed] = list(train(objective, totals, options.prompts, seed))
            totals = np.diff([one["tokens"] for one in measured[objective, seed]]).astype(int).tolist()
            print(objective, seed, f"{time.time() - began:.0f} s", json.dumps(measured[objective, seed]), flush=True)
    options.out.write_text("\n".join(page(measured, options)) + "\n", encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
