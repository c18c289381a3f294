"""Stage "refine": the process model of countdowns goes on learning, from next steps of states and from the policy's own
solutions.

It begins with OUT/judge where that is, else with the shipped one, and can be run again on its own result in another
folder. What can be reached is asked for behind a layer in the middle too, so that the layers above can use it.

Rates are constant and the result is the moving average of the weights, so that every step is an end: `--minutes` can be
raised, and the run goes on as if it had been asked for at once. The heads that no file keeps are new, so they learn
alone at first.

Stage "settle" goes on from OUT/refined with rates that fall to nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch.nn.functional import binary_cross_entropy_with_logits as label_loss
from transformers import PreTrainedTokenizerFast

from research.pocket.train.attempts import attempt_state, read_attempts
from research.pocket.train.judge import HINT, RANK, Judge, auc_within, optimizers, ranking, read_states
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import load, save, save_head
from research.pocket.train.states import HINTS, Forest, Forests, State, countdown_state
from tts.models.registry import SHIPPED

TOKENS = 4096  # of a batch, about
OWN_EVERY = 3  # steps of which one is of the policy's own solutions
MIDDLE = 4  # layers below the one behind which it is asked what can be reached
ALONE, FASTER = 40, 5.0  # steps in which the new heads learn alone, and how much faster
RISE = 20  # steps in which the rates rise behind that
KEPT = 0.985  # of the averaged weights at a step
_T = TypeVar("_T")
CHECKED = 4  # batches of each source that are held out


class Steady(Recipe):
    """A recipe whose rates do not depend on its length."""

    def rate_factor(self, step: int) -> float:
        """Return the factor on the learning rates at a step."""
        return FASTER if step < ALONE else min(1.0, (step - ALONE + 1) / RISE)


class Falling(Steady):
    """A recipe whose rates fall evenly to nothing once the new heads have learnt."""

    def rate_factor(self, step: int) -> float:
        """Return the factor on the learning rates at a step."""
        return FASTER if step < ALONE else max(0.02, 1.0 - (step - ALONE + 1) / max(1, self.steps - ALONE))


class Refined(Judge):
    """A process model with one more head, behind a layer in the middle, and the average of its weights over the steps.

    Args:
        folder: of the trunk that it begins with. head: the file of its head.
    """

    def __init__(self, folder: Path, head: Path) -> None:
        super().__init__(load(folder))
        self.middle = torch.nn.Linear(self.trunk.config.hidden_size, HINTS)
        self.head.load_state_dict(
            {name: value.reshape(getattr(self.head, name).shape) for name, value in load_file(head).items()}
        )
        self.averaged = Judge(copy.deepcopy(self.trunk)).requires_grad_(requires_grad=False)
        self.averaged.head.load_state_dict(self.head.state_dict())

    @torch.no_grad()
    def average(self) -> None:
        """Move the averaged weights a step towards the present ones."""
        now = dict(self.named_parameters())
        for name, value in self.averaged.named_parameters():
            value.lerp_(now[name], 1 - KEPT)

    def learn(self, step: int) -> None:
        """Keep all but the new heads as it is in the first steps."""
        for module in (self.trunk, self.head):
            module.requires_grad_(step >= ALONE)


def losses(model: Refined, batch: Forest) -> dict[str, torch.Tensor]:
    """Return the mean losses of a batch of one kind, in nats: of labels, of rankings, of hints at the end and in the
    middle.
    """
    read = model.trunk.model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask=batch.mask,
        use_cache=False,
        output_hidden_states=True,
    )
    last, middle = read.last_hidden_state[batch.at], read.hidden_states[MIDDLE][batch.at][batch.hinted]
    logits = model.head(last)[:, 0]
    normed = torch.nn.functional.rms_norm(middle, middle.shape[-1:])
    return {
        "label": label_loss(logits, batch.labels),
        "rank": ranking(logits, batch),
        "hint": label_loss(model.hints[int(batch.kind[0])](last[batch.hinted]), batch.hints),
        "middle": label_loss(model.middle(normed), batch.hints),
    }


@dataclass(frozen=True)
class Source:
    """States to learn from. average: their tokens, about. seen: what is learnt from; unseen: what is held out; states
    by number, both.
    """

    name: str
    average: int
    seen: Callable[[int], State]
    unseen: Callable[[int], State]


@dataclass(frozen=True)
class Stage:
    """A stage of training. began: the folder of the trunk that it begins with, and the file of its head.

    result: the folder of what it makes. sources: of next steps, and of the policy's own solutions.
    """

    name: str
    result: str
    began: tuple[Path, Path]
    sources: tuple[Source, Source]
    recipe: type[Steady] = Steady


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train on; save OUT/refined and its head, not yet calibrated, as OUT/refined-heads/process.safetensors. Needs the
    stage "attempts".
    """
    del device
    began = SHIPPED / "countdown", SHIPPED / "heads" / "reach.safetensors"
    if (out / "judge").is_dir():
        began = model_paths(out, "judge")
    return train_stage(out, Stage("refine", "refined", began, _countdowns(out, seed)), minutes=minutes, seed=seed)


def run_settle(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Go on from OUT/refined with rates that fall to nothing; save OUT/settled and its head, as `run` does."""
    del device
    return train_stage(
        out,
        Stage("settle", "settled", model_paths(out, "refined"), _countdowns(out, seed), Falling),
        minutes=minutes,
        seed=seed,
    )


def model_paths(out: Path, name: str) -> tuple[Path, Path]:
    """Return where a stage saves a process model, and where its head."""
    return out / name, out / f"{name}-heads" / "process.safetensors"


def _countdowns(out: Path, seed: int) -> tuple[Source, Source]:
    seen, unseen = split_attempts(read_attempts(out))
    return (
        Source("next steps", 121, partial(countdown_state, seed), partial(countdown_state, seed, split="validation")),
        Source("solutions", 300, partial(attempt_state, seen, seed), partial(attempt_state, unseen, seed)),
    )


def split_attempts(attempted: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return what the policy wrote as what is learnt from and, the last twentieth, what is held out."""
    last = -(len(attempted) // 20) or -1
    return attempted[:last], attempted[last:]


def train_stage(out: Path, stage: Stage, *, minutes: float, seed: int) -> dict[str, float]:
    """Train a process model on; save it and its head, not yet calibrated, where `model_paths` says."""
    recipe = stage.recipe(tokens=TOKENS, minutes=minutes, matrix_rate=0.002, rate=1e-3, save_every=10)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SHIPPED / "policy")
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        model = Refined(*stage.began)

    def make_forests(source: Source, state: Callable[[int], State]) -> Forests:
        return Forests(tokenizer, state, tokens=TOKENS, average=source.average, seed=seed)

    steps, solved = (make_forests(source, source.seen) for source in stage.sources)
    unseen = [(source.name, make_forests(source, source.unseen)) for source in stage.sources]
    checked = {name: [batch(i) for i in range(CHECKED)] for name, batch in unseen}

    def held_out_loss() -> float:
        judge, total = model.averaged.eval(), 0.0
        for kind, batches in checked.items():
            found = dict.fromkeys(("label", "rank"), 0.0)
            with torch.no_grad():
                for batch in batches:
                    logits = judge.head(read_states(judge, batch)[batch.at])[:, 0]
                    found["label"] += label_loss(logits, batch.labels).item() / len(batches)
                    found["rank"] += ranking(logits, batch).item() / len(batches)
            total += found["label"] + RANK * found["rank"]
            told = {key: round(value, 4) for key, value in found.items()}
            print(
                kind, told, "AUC", {of: round(area, 4) for of, area in auc_within(judge, batches).items()}, flush=True
            )
        return total

    def loss_of(step: int) -> torch.Tensor:
        model.average()
        model.learn(step)
        own, others = divmod(step, OWN_EVERY)
        found = losses(model, solved(own) if others == 0 else steps(step - own - 1))
        return found["label"] + RANK * found["rank"] + HINT * (found["hint"] + found["middle"])

    identity: dict[str, Any] = {"stage": stage.name, "seed": seed}
    tools = optimizers(model, recipe)
    found = train(
        model, loss_of, recipe, out / "stages" / stage.name, held_out_loss=held_out_loss, identity=identity, tools=tools
    )
    folder, head = model_paths(out, stage.result)
    save(model.averaged.trunk, tokenizer, folder)
    save_head(model.averaged.head.weight[0], model.averaged.head.bias, head)
    return found
