"""One step of a trainer of TRL on an exported file, in an environment that has TRL (`make test-training`).

    python trl_step.py FORM FILE FOLDER

FOLDER has a tiny model and its tokenizer. Prints the loss.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer


def trainer(form: str, data: Any, model: Any, tokenizer: Any, folder: str) -> Any:
    """Return the trainer of a form."""
    plain: dict[str, Any] = {
        "output_dir": folder, "max_steps": 1, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True,
        "bf16": False, "logging_steps": 1, "save_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    if form in ("trl-sft", "chat"):
        from trl import SFTConfig, SFTTrainer

        return SFTTrainer(
            model, args=SFTConfig(**plain, max_length=256), train_dataset=data, processing_class=tokenizer
        )
    if form == "trl-dpo":
        from trl import DPOConfig, DPOTrainer

        return DPOTrainer(
            model, args=DPOConfig(**plain, max_length=256), train_dataset=data, processing_class=tokenizer
        )
    if form == "trl-kto":
        try:
            from trl import KTOConfig, KTOTrainer
        except ImportError:
            from trl.experimental.kto import KTOConfig, KTOTrainer

        return KTOTrainer(
            model, args=KTOConfig(**plain, max_length=256), train_dataset=data, processing_class=tokenizer
        )
    if form == "trl-grpo":
        from trl import GRPOConfig, GRPOTrainer

        def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
            assert len(answer) == len(completions)
            return [float(len(str(one)) % 5) for one in completions]

        config = GRPOConfig(**plain, num_generations=2, max_completion_length=16)
        return GRPOTrainer(model, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer)
    try:
        from trl import PRMConfig, PRMTrainer
    except ImportError:
        from trl.experimental.prm import PRMConfig, PRMTrainer

    return PRMTrainer(model, args=PRMConfig(**plain, max_length=256), train_dataset=data, processing_class=tokenizer)


def main(form: str, file: str, folder: str) -> None:
    """Take a step."""
    data = load_dataset("parquet" if file.endswith("parquet") else "json", data_files=file, split="train")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = AutoModelForTokenClassification if form == "trl-prm" else AutoModelForCausalLM
    made = trainer(form, data, kind.from_pretrained(folder), tokenizer, str(Path(folder) / "out"))
    loss = made.train().training_loss
    assert math.isfinite(loss), loss
    sys.stdout.write(f"loss {loss}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
