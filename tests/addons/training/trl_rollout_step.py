"""Steps of TRL's `GRPOTrainer` on rollouts of ours, in an environment that has TRL and this package
(`make test-training`).

    python trl_rollout_step.py FOLDER

FOLDER has a tiny model and its tokenizer. Prints a JSON object: losses, rewards, and what the checks on the way found.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

import tts

SIZE, STEPS, TEMPERATURE = 4, 2, 0.8


class Checked(tts.TrlRollouts):
    """Rollouts whose log-probabilities are compared with a fresh forward pass of the trainer's model."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.gaps: list[float] = []
        self.texts: list[bool] = []

    def __call__(self, prompts: Any, trainer: Any) -> dict[str, list[Any]]:
        rows = super().__call__(prompts, trainer)
        assert trainer.model.training, "the trainer's model stays in training"
        for prompt, ids, logprobs in zip(rows["prompt_ids"], rows["completion_ids"], rows["logprobs"], strict=True):
            with torch.no_grad():
                logits = trainer.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double()
            law = torch.log_softmax(logits / TEMPERATURE, -1)[torch.arange(len(ids)), torch.tensor(ids)]
            self.gaps.append(float((law - torch.tensor(logprobs)).abs().max()))
        asked = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        self.texts.append(asked == rows["prompt_ids"])
        return rows


def refused(draw: tts.TrlRollouts, prompts: list[str], trainer: Any) -> str:
    """Return the error of a call, one line."""
    try:
        draw(prompts, trainer)
    except tts.ConfigError as failure:
        return str(failure)
    return ""


def main(folder: str) -> None:
    """Take the steps, and refuse what cannot be rows of the trainer."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    before = [weight.detach().clone() for weight in model.parameters()]
    data = Dataset.from_list([{"prompt": f"Say {i}."} for i in range(8)])
    draw = Checked(reward=lambda _, text: float(len(text) % 5), total=100_000, seed=1)
    config = GRPOConfig(
        output_dir=str(Path(folder) / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=2 * SIZE,
        num_generations=SIZE,
        max_completion_length=12,
        temperature=TEMPERATURE,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=tts.rollout_reward,
        args=config,
        train_dataset=data,
        processing_class=tokenizer,
        rollout_func=draw,
    )
    trainer.train()
    logs = [row for row in trainer.state.log_history if "reward" in row]
    assert all(math.isfinite(row["loss"]) for row in logs)
    moved = any(bool((old != new).any()) for old, new in zip(before, model.parameters(), strict=True))
    model.train()
    other = tts.Solver("pocket", {}, task="text", temperature=TEMPERATURE)
    found = {
        "rewards": [row["reward"] for row in logs],
        "steps": trainer.state.global_step,
        "gap": max(draw.gaps),
        "rows": len(draw.gaps),
        "prompts": all(draw.texts),
        "moved": moved,
        "tokens": draw.account.spent["tokens"],
        "other tokenizer": refused(tts.TrlRollouts(solver=other), ["1 + 1"] * SIZE, trainer),
        "short": refused(tts.TrlRollouts(total=70), ["Say 1."] * SIZE + ["Say 2."] * SIZE, trainer),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
