"""Stage "refine": the process model of countdowns learns from states and the policy's solutions.

The stage begins with OUT/judge if that is there, and otherwise with the shipped model. It can be run again on its own
result in another folder. The reachable targets are asked for after a layer in the middle too, so that the layers above
can use them.

Rates are constant and the result is the moving average of the weights, so that every step is an end. So `--minutes`
can be raised, and the run goes on as if it had been asked for at once. The heads that no file keeps are new, so they
learn alone at first.

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
    """A process model with one more head after a middle layer, and an average of its weights over steps.

    Args:
        folder: The folder of the trunk that it begins with.
        head: The file of its head.
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
        """Let all weights learn from a step on; the new heads alone learn before."""
        for module in (self.trunk, self.head):
            module.requires_grad_(step >= ALONE)


def losses(model: Refined, batch: Forest) -> dict[str, torch.Tensor]:
    """Return the mean losses of a batch of one kind, in nats.

    They are of labels, of rankings, and of hints at the end and in the middle.
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
    """States to learn from.

    Args:
        name: The name of the source.
        average: The tokens of a state, about.
        seen: The function from a number to a state to learn from.
        unseen: The function from a number to a state that is held out.
    """

    name: str
    average: int
    seen: Callable[[int], State]
    unseen: Callable[[int], State]


@dataclass(frozen=True)
class Stage:
    """A stage of training.

    Args:
        name: The name of the stage.
        result: The folder of what it makes.
        began: The folder of the trunk that it begins with, and the file of its head.
        sources: The sources of next steps and of the policy's own solutions.
        recipe: The class of the recipe.
    """

    name: str
    result: str
    began: tuple[Path, Path]
    sources: tuple[Source, Source]
    recipe: type[Steady] = Steady


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train the process model further, and save OUT/refined; the stage "attempts" must have been run.

    The head, not yet calibrated, is saved as OUT/refined-heads/process.safetensors.
    """
    del device
    began = SHIPPED / "countdown", SHIPPED / "heads" / "reach.safetensors"
    if (out / "judge").is_dir():
        began = model_paths(out, "judge")
    return train_stage(out, Stage("refine", "refined", began, _countdowns(out, seed)), minutes=minutes, seed=seed)


def run_settle(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train OUT/refined further with rates that fall to nothing, and save OUT/settled and its head."""
    del device
    return train_stage(
        out,
        Stage("settle", "settled", model_paths(out, "refined"), _countdowns(out, seed), Falling),
        minutes=minutes,
        seed=seed,
    )


def model_paths(out: Path, name: str) -> tuple[Path, Path]:
    """Return the folder of a stage's process model, and the file of its head."""
    return out / name, out / f"{name}-heads" / "process.safetensors"


def _countdowns(out: Path, seed: int) -> tuple[Source, Source]:
    seen, unseen = split_attempts(read_attempts(out))
    return (
        Source("next steps", 121, partial(countdown_state, seed), partial(countdown_state, seed, split="validation")),
        Source("solutions", 300, partial(attempt_state, seen, seed), partial(attempt_state, unseen, seed)),
    )


def split_attempts(attempted: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return the attempts to learn from and, the last twentieth, those that are held out."""
    last = -(len(attempted) // 20) or -1
    return attempted[:last], attempted[last:]


def train_stage(out: Path, stage: Stage, *, minutes: float, seed: int) -> dict[str, float]:
    """Train a process model further, and save it and its head, not yet calibrated, at `model_paths`."""
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
            means = dict.fromkeys(("label", "rank"), 0.0)
            with torch.no_grad():
                for batch in batches:
                    logits = judge.head(read_states(judge, batch)[batch.at])[:, 0]
                    means["label"] += label_loss(logits, batch.labels).item() / len(batches)
                    means["rank"] += ranking(logits, batch).item() / len(batches)
            total += means["label"] + RANK * means["rank"]
            rounded = {key: round(value, 4) for key, value in means.items()}
            print(
                kind,
                rounded,
                "AUC",
                {of: round(area, 4) for of, area in auc_within(judge, batches).items()},
                flush=True,
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
