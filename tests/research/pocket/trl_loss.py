"""Prints the loss and the norm of the gradient of TRL's GRPO trainer on a batch, in an environment that has TRL.

    python trl_loss.py FOLDER BATCH

FOLDER has a tiny model and its tokenizer. BATCH is a JSON file with `ids`, `prompt` (tokens of the prompt), `mask`,
`before`, `advantages`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer


def main(folder: str, file: str) -> None:
    """Compute the loss."""
    told = json.loads(Path(file).read_text(encoding="utf-8"))
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
    )
    config = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=len(told["ids"]),
        num_generations=2,
        loss_type="grpo",
        beta=0.0,
        temperature=1.0,
        use_cpu=True,
        bf16=False,
        report_to=[],
    )
    data = Dataset.from_list([{"prompt": "1 + 1"}] * len(told["ids"]))
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=data,
        processing_class=tokenizer,
    )
    ids, at = torch.tensor(told["ids"]), told["prompt"]
    inputs = {
        "prompt_ids": ids[:, :at],
        "prompt_mask": torch.ones_like(ids[:, :at]),
        "completion_ids": ids[:, at:],
        "completion_mask": torch.tensor(told["mask"])[:, at:].long(),
        "advantages": torch.tensor(told["advantages"]),
        "old_per_token_logps": torch.tensor(told["before"])[:, at:],
        "num_items_in_batch": torch.tensor(1.0),
    }
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.eval()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    norm = torch.sqrt(sum((p.grad**2).sum() for p in trainer.model.parameters() if p.grad is not None))
    sys.stdout.write(json.dumps({"loss": float(loss), "norm": float(norm)}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
