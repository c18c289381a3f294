"""Stage "judge": a process model learns from exact labels whether a solution still leads on.

The model is a trunk of its own, smaller than the policy, trained from scratch on states with many next lines each
(states.py). A solver labels fresh countdowns, and expressions and stories are worked out. The loss is the labels'
cross-entropy. Beside it, the model learns to rank the lines of one state. By a second head, which no file keeps, it
learns what a judge must know there: the targets that can still be reached, or the line that should follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from research.pocket.train.loop import Recipe, train
from research.pocket.train.muon import Muon
from research.pocket.train.network import config_of, save, save_head
from research.pocket.train.states import HINTS, Forest, Forests, State, countdown_state, pocket_state
from tts.models.registry import SHIPPED

TOKENS = 4096  # of a batch, about
# factors on the learning rates by step, straight between; a longer run is better, and takes its own
PACE = ((0, 0.0), (30, 1.0), (250, 1.0), (350, 5 / 7), (450, 0.02), (460, 0.7), (550, 0.378), (575, 0.02))
# of countdowns among the batches from a step on; raised by what the validation split said of both kinds
SHARES = ((0, 0.6), (200, 0.8), (450, 1.0))
RANK, HINT, SPEECH = 0.5, 1.0, 0.3  # weights of the losses beside the labels' own
_AVERAGE = {"countdown": 121, "pocket": 99}


class Paced(Recipe):
    """A recipe whose learning rates follow `PACE`."""

    def rate_factor(self, step: int) -> float:
        """Return the factor on the learning rates at a step; after the last entry, that of the last entry."""
        steps, factors = zip(*PACE, strict=True)
        return float(np.interp(step + (step < steps[1]), steps, factors))


class Judge(torch.nn.Module):
    """A decoder, its head, and two heads for hints: of a countdown and of other arithmetic."""

    def __init__(self, trunk: LlamaForCausalLM) -> None:
        super().__init__()
        self.trunk = trunk
        width = trunk.config.hidden_size
        self.head = torch.nn.Linear(width, 1)
        self.hints = torch.nn.ModuleList(torch.nn.Linear(width, HINTS) for _ in range(2))


def new_judge(tokenizer: Any, seed: int) -> Judge:
    """Return an untrained process model: Llama, 1.3 million parameters, four heads of 32."""
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 6}
    config = config_of(tokenizer, **sizes, num_attention_heads=4, num_key_value_heads=4, head_dim=32)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        return Judge(LlamaForCausalLM(config))


def optimizers(model: Judge, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon in float32 for the layers' matrices and AdamW for all else."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name and p.requires_grad]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen and p.requires_grad]
    return [
        Muon(matrices, lr=recipe.matrix_rate),
        torch.optim.AdamW(others, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def read_states(model: Judge, batch: Forest) -> torch.Tensor:
    """Return hidden states, [rows, tokens, hidden]."""
    return model.trunk.model(
        input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.mask, use_cache=False
    ).last_hidden_state


def losses(model: Judge, batch: Forest) -> dict[str, torch.Tensor]:
    """Return the mean losses of a batch, in nats: of labels, rankings, hints and next tokens."""
    states = read_states(model, batch)
    read = states[batch.at]
    logits = model.head(read)[:, 0]
    mean_losses = {
        "label": torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels),
        "rank": ranking(logits, batch),
    }
    parts = []
    for kind in (0, 1):
        chosen = batch.hinted & (batch.kind == kind)
        if chosen.any():
            wanted = batch.hints[chosen[batch.hinted]]
            parts.append(torch.nn.functional.binary_cross_entropy_with_logits(model.hints[kind](read[chosen]), wanted))
    mean_losses["hint"] = torch.stack(parts).mean() if parts else logits.sum() * 0
    if len(batch.next_tokens):
        mean_losses["speech"] = torch.nn.functional.cross_entropy(
            model.trunk.lm_head(states[batch.spoken]), batch.next_tokens
        )
    return mean_losses


def ranking(logits: torch.Tensor, batch: Forest) -> torch.Tensor:
    """Return the mean loss of pairs of a right and a wrong line, over groups that have both labels.

    The loss of a pair is -ln sigmoid(right one - wrong one). Each group counts with the mean of its pairs.
    """
    same = batch.group[:, None] == batch.group[None, :]
    pairs = same & (batch.labels[:, None] > batch.labels[None, :])
    if not pairs.any():
        return logits.sum() * 0
    first, second = pairs.nonzero(as_tuple=True)
    lost = torch.nn.functional.softplus(logits[second] - logits[first])
    of = batch.group[first]
    count = torch.zeros(int(batch.group.max()) + 1).index_add(0, of, torch.ones_like(lost))
    return (lost / count[of]).sum() / (count > 0).sum()


def total(found: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the loss that the model is trained on."""
    zero = found["label"] * 0
    return found["label"] + RANK * found["rank"] + HINT * found["hint"] + SPEECH * found.get("speech", zero)


def auc_within(model: Judge, batches: list[Forest]) -> dict[str, float]:
    """Return the mean AUC among the lines of a group, over groups with both labels, by kind of problem."""
    areas: dict[str, list[float]] = {"pocket": [], "countdown": []}
    model.eval()
    with torch.no_grad():
        for batch in batches:
            logits = model.head(read_states(model, batch)[batch.at])[:, 0]
            for group in batch.group.unique():
                chosen = batch.group == group
                good, bad = (logits[chosen & (batch.labels == label)] for label in (1.0, 0.0))
                if len(good) and len(bad):
                    difference = good[:, None] - bad[None, :]
                    name = "countdown" if batch.kind[chosen][0] else "pocket"
                    areas[name].append(((difference > 0).float() + 0.5 * (difference == 0).float()).mean().item())
    return {name: sum(values) / len(values) if values else math.nan for name, values in areas.items()}


def number_of(step: int) -> tuple[str, int]:
    """Return the kind of a step's batch, and its number among the batches of that kind.

    Countdowns have the shares of `SHARES`, evenly spread.
    """
    before, now = _countdowns(step), _countdowns(step + 1)
    return ("countdown", before) if now > before else ("pocket", step - before)


def _countdowns(step: int) -> int:
    """Return how many of the first `step` batches are of countdowns."""
    edges = [first for first, _ in SHARES[1:]] + [step]
    return math.floor(
        sum(share * max(0, min(step, end) - first) for (first, share), end in zip(SHARES, edges, strict=True)) + 1e-9
    )


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train a process model from scratch, and save it as OUT/judge.

    Its head, which is not yet calibrated, is saved as OUT/judge-heads/process.safetensors.
    """
    del device
    recipe = Paced(tokens=TOKENS, minutes=minutes, matrix_rate=0.006, rate=3e-3, save_every=50)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SHIPPED / "policy")
    model = new_judge(tokenizer, seed)
    kinds: dict[str, Callable[..., State]] = {"countdown": countdown_state, "pocket": pocket_state}
    drawn = {
        name: Forests(tokenizer, partial(state, seed), tokens=TOKENS, average=_AVERAGE[name], seed=seed)
        for name, state in kinds.items()
    }
    unseen = {
        name: Forests(
            tokenizer, partial(state, seed, split="validation"), tokens=TOKENS, average=_AVERAGE[name], seed=seed
        )
        for name, state in kinds.items()
    }
    checked = [unseen[name](i) for name in kinds for i in range(2)]

    def held_out_loss() -> float:
        model.eval()
        with torch.no_grad():
            parts = [losses(model, batch) for batch in checked]
        means = {name: sum(part[name].item() for part in parts) / len(parts) for name in parts[0]}
        print(
            {
                **{k: round(v, 4) for k, v in means.items()},
                **{k: round(v, 4) for k, v in auc_within(model, checked).items()},
            },
            flush=True,
        )
        return means["label"] + RANK * means["rank"]

    def loss_of(step: int) -> torch.Tensor:
        kind, number = number_of(step)
        return total(losses(model, drawn[kind](number)))

    identity: dict[str, Any] = {"stage": "judge", "seed": seed, "steps": recipe.steps}
    identity |= {"shares": [list(one) for one in SHARES], "pace": [list(one) for one in PACE]}
    result = train(
        model,
        loss_of,
        recipe,
        out / "stages" / "judge",
        held_out_loss=held_out_loss,
        identity=identity,
        tools=optimizers(model, recipe),
    )
    save(model.trunk, tokenizer, out / "judge")
    save_head(model.head.weight[0], model.head.bias, out / "judge-heads" / "process.safetensors")
    return result
