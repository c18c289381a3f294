"""Stages "prm" and "probe": reading, where a step ends, whether its prefix still leads to the right answer.

The process model is a trunk of its own, begun from the policy and its head, which tell by now whether a solution is right. The probe is
a linear head on the policy's hidden states, which costs no pass of its own. Both are read at the newline that ends a step and learn the
soft values of the stage "rollouts" by cross-entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from tts.models.pocket.train.loop import Recipe, train
from tts.models.pocket.train.network import Reader, load, load_reader, save_head, save_reader
from tts.models.pocket.train.rollouts import Valued, read
from tts.models.pocket.train.sampling import made_by
from tts.randomness import generator

_ROWS = 48  # solutions of a batch
_RIDGE = 1e-4  # pull of the probe's weights to zero
_READ_AT_ONCE = 64


@dataclass(frozen=True)
class Readings:
    """Solutions and where they are read. ids: [rows, tokens]; at: rows and columns; values: in [0, 1], one a place."""

    ids: torch.Tensor
    at: tuple[torch.Tensor, torch.Tensor]
    values: torch.Tensor


def run_prm(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train a process model on OUT/stages/rollouts, begun from OUT/policy; save OUT/process and OUT/heads/process.safetensors."""
    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.002, rate=5e-4, decay=0.9)
    made_by(out / "policy")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "policy")
    model = load_reader(out / "policy", device)
    valued, unseen = read(out, "train"), read(out, "validation")
    checked = [readings(tokenizer, unseen[i : i + _ROWS]) for i in range(0, len(unseen), _ROWS)]

    def loss_of(step: int) -> torch.Tensor:
        chosen = generator(seed, 0, "prm", step).integers(len(valued), size=_ROWS)
        return _loss(model, readings(tokenizer, [valued[i] for i in chosen]))

    @torch.no_grad()
    def held_out_loss() -> float:
        model.eval()
        sizes = [len(one.values) for one in checked]
        return sum(_loss(model, one).item() * size for one, size in zip(checked, sizes, strict=True)) / sum(sizes)

    identity = {"stage": "prm", "seed": seed, "steps": recipe.steps, "solutions": len(valued), "device": torch.device(device).type}
    found = train(model, loss_of, recipe, out / "stages" / "prm", held_out_loss=held_out_loss, identity=identity)
    save_reader(model, tokenizer, out / "process", out / "heads" / "process.safetensors")
    return found


def run_probe(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Fit the probe on OUT/stages/rollouts and the hidden states of OUT/policy; save OUT/heads/probe.safetensors.

    Args:
        minutes, seed: of no use: a convex problem, solved to its optimum in seconds.
    """
    del minutes, seed
    made_by(out / "policy")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "policy")
    model = load(out / "policy", device).eval()
    states, values = _states(model, tokenizer, read(out, "train"))
    unseen_states, unseen_values = _states(model, tokenizer, read(out, "validation"))
    weight = torch.zeros(states.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(states @ weight + bias, values) + _RIDGE * weight.square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    save_head(weight, bias, out / "heads" / "probe.safetensors")
    with torch.no_grad():
        losses = [
            torch.nn.functional.binary_cross_entropy_with_logits(x @ weight + bias, y).item()
            for x, y in ((states, values), (unseen_states, unseen_values))
        ]
    return {"loss": losses[0], "validation_loss": losses[1]}


def readings(tokenizer: Any, valued: Sequence[Valued]) -> Readings:
    """Return solutions as one padded batch, each read at the newlines whose prefixes have a value."""
    newline = tokenizer.encode("\n", add_special_tokens=False)[0]
    prompts = tokenizer([one.problem.prompt for one in valued])["input_ids"]
    texts = tokenizer([one.solution for one in valued], add_special_tokens=False)["input_ids"]
    longest = max(len(p) + len(t) for p, t in zip(prompts, texts, strict=True))
    ids = torch.full((len(valued), longest), tokenizer.pad_token_id)
    rows, columns, values = [], [], []
    for row, (one, prompt, text) in enumerate(zip(valued, prompts, texts, strict=True)):
        ids[row, : len(prompt) + len(text)] = torch.tensor([*prompt, *text])
        ends = [len(prompt) + i for i, token in enumerate(text) if token == newline]
        for end, value in zip(ends, one.values, strict=True):
            if value is not None:
                rows.append(row)
                columns.append(end)
                values.append(value)
    return Readings(ids, (torch.tensor(rows), torch.tensor(columns)), torch.tensor(values))


def _loss(model: Reader, batch: Readings) -> torch.Tensor:
    device = model.trunk.device
    with torch.autocast(device.type, torch.bfloat16):
        states = model.trunk.model(input_ids=batch.ids.to(device), use_cache=False).last_hidden_state
        logits = model.head(states[batch.at[0].to(device), batch.at[1].to(device)])[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), batch.values.to(device))


@torch.no_grad()
def _states(model: LlamaForCausalLM, tokenizer: Any, valued: Sequence[Valued]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the hidden states at the places that are read, [places, hidden], and their values."""
    states, values = [], []
    for i in range(0, len(valued), _READ_AT_ONCE):
        batch = readings(tokenizer, valued[i : i + _READ_AT_ONCE])
        found = model.model(input_ids=batch.ids.to(model.device), use_cache=False).last_hidden_state.cpu()
        states.append(found[batch.at].double())
        values.append(batch.values.double())
    return torch.cat(states), torch.cat(values)
