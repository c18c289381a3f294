"""Stages "prm" and "probe": reading, where a step ends, whether its prefix still leads to the answer.

The process model is a trunk of its own. It begins from the policy and the policy's head, which already tell whether a
solution is right. The probe is a linear head on the policy's hidden states, which costs no pass of its own. Both are
read at the newline that ends a step, and learn the soft values of the stage "rollouts" by cross-entropy.

Beside the values, the process model goes on learning which tokens fit. It learns this from the same solutions and from
made-up slips, of which there is no end. Without that it learns which problems are hard, and little else (measured). It
ends as it was where its loss on the validation split was lowest: the solutions are few, and soon it knows them by
heart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from research.pocket.train.examples import Batch, Example, Piece, add_solution, make_problem, pad_rows, tokenize
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import Reader, fits_loss, load, load_reader, mixed_precision, save_head, save_reader
from research.pocket.train.policy import NOTICE
from research.pocket.train.rollouts import Valued, read
from research.pocket.train.sampling import weights_checksum
from research.pocket.train.self_eval import SLIPS
from research.pocket.train.slips import careless_lines, pieces, solution_pieces
from tts.randomness import generator

_ROWS = 48  # solutions of a batch
_SLIPS_EVERY = 3  # steps of which one is made-up slips
_SLIPPED_ROWS = 64
FIRST_INDEX = 40_000_000  # of their problems, beyond those of the earlier stages
_RIDGE = 1e-4  # pull of the probe's weights to zero
_READ_AT_ONCE = 64


@dataclass(frozen=True)
class Readings:
    """Solutions and the places where they are read.

    Args:
        solutions: The solutions.
        at: The rows and the columns of the places.
        values: The value of each place, in [0, 1].
    """

    solutions: Batch
    at: tuple[torch.Tensor, torch.Tensor]
    values: torch.Tensor


def run_prm(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train a process model on OUT/stages/rollouts, begun from OUT/policy.

    The stage saves OUT/process and OUT/heads/process.safetensors.
    """
    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.002, rate=5e-4, decay=0.9)
    policy = weights_checksum(out / "policy")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "policy")
    model = load_reader(out / "policy", device)
    valued, unseen = read(out, "train"), read(out, "validation")
    checked = [readings(tokenizer, unseen[i : i + _ROWS]) for i in range(0, len(unseen), _ROWS)]

    def loss_of(step: int) -> torch.Tensor:
        rng = generator(seed, 0, "prm", step)
        if step % _SLIPS_EVERY == 0:
            examples = [slip_example(seed, step * _SLIPPED_ROWS + i) for i in range(_SLIPPED_ROWS)]
            batch = pad_rows(tokenize(tokenizer, examples), tokenizer.pad_token_id)
            return NOTICE * fits_loss(model, _states_of(model, batch), batch)
        result = readings(tokenizer, [valued[i] for i in rng.integers(len(valued), size=_ROWS)])
        states = _states_of(model, result.solutions)
        return _loss(model, states, result) + NOTICE * fits_loss(model, states, result.solutions)

    @torch.no_grad()
    def held_out_loss() -> float:
        model.eval()
        sizes = [len(one.values) for one in checked]
        losses = [_loss(model, _states_of(model, one.solutions), one).item() for one in checked]
        return sum(loss * size for loss, size in zip(losses, sizes, strict=True)) / sum(sizes)

    identity = {"stage": "prm", "seed": seed, "steps": recipe.steps, "device": torch.device(device).type}
    identity |= {"policy": policy, "solutions": len(valued)}
    result = train(
        model, loss_of, recipe, out / "stages" / "prm", held_out_loss=held_out_loss, identity=identity, keep_best=True
    )
    save_reader(model, tokenizer, out / "process", out / "heads" / "process.safetensors")
    return result


def run_probe(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Fit the probe on OUT/stages/rollouts and the hidden states of OUT/policy.

    The stage saves OUT/heads/probe.safetensors.

    Args:
        out: The folder of the run.
        minutes: Not used: the problem is convex, and is solved to its optimum in seconds.
        seed: Not used, for the same reason.
        device: The device.
    """
    del minutes, seed
    weights_checksum(out / "policy")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "policy")
    model = load(out / "policy", device).eval()
    states, values = _states(model, tokenizer, read(out, "train"))
    unseen_states, unseen_values = _states(model, tokenizer, read(out, "validation"))
    weight = torch.zeros(states.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = (
            torch.nn.functional.binary_cross_entropy_with_logits(states @ weight + bias, values)
            + _RIDGE * weight.square().sum()
        )
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
    drawn = tokenize(tokenizer, [solution_pieces(one.problem, one.solution) for one in valued])
    prompts = tokenizer([one.problem.prompt for one in valued])["input_ids"]
    rows, columns, values = [], [], []
    for row, (one, ids, prompt) in enumerate(zip(valued, drawn, prompts, strict=True)):
        ends = [i for i in range(len(prompt), ids.shape[1]) if ids[0, i] == newline]
        for end, value in zip(ends, one.values, strict=True):
            if value is not None:
                rows.append(row)
                columns.append(end)
                values.append(value)
    return Readings(
        pad_rows(drawn, tokenizer.pad_token_id), (torch.tensor(rows), torch.tensor(columns)), torch.tensor(values)
    )


def slip_example(seed: int, index: int) -> Example:
    """Return example number `index`: a solution with slips that are made up."""
    problem, rng = make_problem(seed, FIRST_INDEX + index), generator(seed, 0, "slipped", index)
    if problem.task != "pocket":
        return add_solution(problem)
    return Piece(problem.prompt), *pieces(careless_lines(problem, rng, SLIPS))


def _states_of(model: Reader, batch: Batch) -> torch.Tensor:
    with mixed_precision(model.trunk.device):
        return model.trunk.model(input_ids=batch.ids.to(model.trunk.device), use_cache=False).last_hidden_state


def _loss(model: Reader, states: torch.Tensor, batch: Readings) -> torch.Tensor:
    logits = model.head(states[batch.at[0].to(states.device), batch.at[1].to(states.device)])[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(logits.float(), batch.values.to(states.device))


@torch.no_grad()
def _states(model: LlamaForCausalLM, tokenizer: Any, valued: Sequence[Valued]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the hidden states at the places that are read, [places, hidden], and their values."""
    states, values = [], []
    for i in range(0, len(valued), _READ_AT_ONCE):
        batch = readings(tokenizer, valued[i : i + _READ_AT_ONCE])
        found = model.model(input_ids=batch.solutions.ids.to(model.device), use_cache=False).last_hidden_state.cpu()
        states.append(found[batch.at].double())
        values.append(batch.values.double())
    return torch.cat(states), torch.cat(values)
