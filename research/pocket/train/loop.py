"""The training loop that every stage shares: optimiser, schedule, progress, checkpoints.

A stage's length is given in minutes and turned into a fixed number of steps. So a run is a function of its seed and
device, and not of how busy the machine was. A minute is `TOKENS_PER_MINUTE` tokens, about what two free cores train of
these models.
"""

from __future__ import annotations

import csv
import math
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tts.errors import ConfigError

TOKENS_PER_MINUTE = 400_000
_SHOW_EVERY = 25
_CLIP = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is trained.

    Args:
        tokens: The tokens of a batch, about.
        minutes: The length of the run, in minutes of `TOKENS_PER_MINUTE` tokens.
        matrix_rate: The learning rate of the layers' matrices (Muon).
        rate: The learning rate of all other weights (AdamW).
        warmup: The share of the steps in which the rate rises.
        fall: The share of the rate that is lost, evenly, from begin to end.
        decay: The share of the steps, at the end, in which the rate falls to a fiftieth, where that is faster.
        decay_weights: The pull of the layers' matrices to zero.
        save_every: The steps between checkpoints.
    """

    tokens: int
    minutes: float
    matrix_rate: float
    rate: float
    warmup: float = 0.02
    fall: float = 0.0
    decay: float = 0.6
    decay_weights: float = 0.0
    save_every: int = 100

    @property
    def steps(self) -> int:
        """The number of steps."""
        return max(1, round(self.minutes * TOKENS_PER_MINUTE / self.tokens))

    def rate_factor(self, step: int) -> float:
        """Return the factor on the learning rates at a step."""
        rise = min(1.0, (step + 1) / max(1.0, self.warmup * self.steps))
        end = (self.steps - step) / max(1.0, self.decay * self.steps)
        return rise * max(0.02, min(1.0 - self.fall * step / self.steps, end))


def optimizers(model: torch.nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon for the layers' matrices and AdamW for all else.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". Measured here on the policy:
    the loss that AdamW reaches in 125 steps, Muon reaches in 75.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in f".{name}"]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(
            matrices, lr=recipe.matrix_rate, weight_decay=recipe.decay_weights, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def train(
    model: torch.nn.Module,
    loss_of: Callable[[int], torch.Tensor],
    recipe: Recipe,
    folder: Path,
    *,
    held_out_loss: Callable[[], float],
    identity: Mapping[str, Any],
    keep_best: bool = False,
    tools: list[torch.optim.Optimizer] | None = None,
) -> dict[str, float]:
    """Train a model, and return the last losses and the seconds of the run.

    A run goes on where an earlier run in the folder stopped.

    Args:
        model: The model.
        loss_of: The function from a step to the loss of its batch, with a gradient; it depends on the step alone.
        recipe: How the model is trained.
        folder: The folder of `checkpoint.pt` and `loss.csv` (step, loss, validation, seconds).
        held_out_loss: The function that returns the loss on the validation split, which is shown now and then.
        identity: The definition of the run (seed, recipe, …); a checkpoint of another run is refused.
        keep_best: Whether the model ends as it was where its shown loss on the validation split was lowest.
        tools: The optimizers of the matrices and of all other weights; None: those of `optimizers`.

    Raises:
        ConfigError: The folder has a checkpoint of another run, or one that cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tools = optimizers(model, recipe) if tools is None else tools
    state = _resume(model, tools, folder, identity)
    done, seconds, recent = state["step"], state["seconds"], list(state["recent"])
    best: dict[str, Any] = state["best"]
    if not done:
        (folder / "loss.csv").write_text("step,loss,validation,seconds\n")
    began = time.perf_counter() - seconds
    for step in range(done, recipe.steps):
        for tool, rate in zip(tools, (recipe.matrix_rate, recipe.rate), strict=True):
            for group in tool.param_groups:
                group["lr"] = rate * recipe.rate_factor(step)
        model.train()
        loss = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        for tool in tools:
            tool.step()
            tool.zero_grad(set_to_none=True)
        recent = [*recent, loss.item()][-_SHOW_EVERY:]
        seconds = time.perf_counter() - began
        last = step + 1 == recipe.steps
        checked = held_out_loss() if (step + 1) % (8 * _SHOW_EVERY) == 0 or last else None
        if keep_best and checked is not None and checked < best["loss"]:
            best = {
                "loss": checked,
                "model": {name: value.detach().clone() for name, value in model.state_dict().items()},
            }
        if (step + 1) % recipe.save_every == 0 or last:
            saved = {"identity": dict(identity), "step": step + 1, "seconds": seconds, "recent": recent, "best": best}
            _save(folder, saved, model, tools)
        if (step + 1) % _SHOW_EVERY == 0 or last:
            _show(folder, recipe, step + 1, sum(recent) / len(recent), checked, seconds)
    if best["model"]:
        model.load_state_dict(best["model"])
    return {"loss": sum(recent) / max(1, len(recent)), "validation_loss": held_out_loss(), "seconds": seconds}


def _show(folder: Path, recipe: Recipe, step: int, loss: float, checked: float | None, seconds: float) -> None:
    left = seconds / step * (recipe.steps - step)
    validation = "" if checked is None else f", validation {checked:.4f}"
    print(
        f"step {step}/{recipe.steps}: loss {loss:.4f}{validation}, {seconds:.0f} s, {left:.0f} s left",
        file=sys.stderr,
        flush=True,
    )
    with (folder / "loss.csv").open("a", newline="") as file:
        csv.writer(file).writerow([step, f"{loss:.5f}", "" if checked is None else f"{checked:.5f}", f"{seconds:.1f}"])


def _save(folder: Path, state: dict[str, Any], model: torch.nn.Module, tools: list[torch.optim.Optimizer]) -> None:
    """Write a checkpoint whole or not at all."""
    state |= {"model": model.state_dict(), "optimizers": [tool.state_dict() for tool in tools]}
    torch.save(state, folder / "checkpoint.new")
    (folder / "checkpoint.new").replace(folder / "checkpoint.pt")


def _resume(
    model: torch.nn.Module, tools: list[torch.optim.Optimizer], folder: Path, identity: Mapping[str, Any]
) -> dict[str, Any]:
    path = folder / "checkpoint.pt"
    if not path.is_file():
        return {"step": 0, "seconds": 0.0, "recent": (), "best": {"loss": math.inf, "model": {}}}
    if not zipfile.is_zipfile(path):  # which a file that was cut is not, either
        raise ConfigError(f"the checkpoint {path} cannot be read: it is broken", hint="delete it to begin anew")
    state = torch.load(path, weights_only=True)
    found = state["identity"]
    if found != dict(identity):
        other = {key: value for key, value in found.items() if identity.get(key) != value}
        raise ConfigError(f"{path} is a checkpoint of another run: {other}", hint="choose another --out, or delete it")
    model.load_state_dict(state["model"])
    for tool, saved in zip(tools, state["optimizers"], strict=True):
        tool.load_state_dict(saved)
    return state
