"""Train a copy of `pocket` by GRPO on countdowns, from its own rollouts, on a CPU. Needs `[engine]`."""

import shutil
import sys

import torch
from transformers import AutoModelForCausalLM

import tts
from tts.experiments.datasets import countdown
from tts.models import registry


def rollouts(folder: str, split: str, count: int, n: int, seed: int = 0):
    problems = countdown.load(limit=count, split=split, numbers=(2, 3, 4), seed=seed)
    with tts.Solver(folder, {}, task="countdown", temperature=1.0) as solver:
        return tts.rollouts(problems, 10**9, solver=solver, objective="uniform", n=n, seed=seed)


def main(folder: str = "trained-pocket", steps: int = 20, prompts: int = 16, held_out: int = 100, n: int = 8) -> None:
    shutil.copytree(registry.locate(registry.resolve("pocket")), folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.0)
    right = [group.rewards.mean() for group in rollouts(folder, "validation", held_out, 4).groups]
    for step in range(steps):
        for group in rollouts(folder, "train", prompts, n, seed=step).groups:
            for one, advantage in zip(group.rollouts, group.advantages().tolist(), strict=True):
                ids, start = torch.tensor([[*one.tokens.prompt, *one.tokens.ids]]), len(one.tokens.prompt)
                logprobs = torch.log_softmax(model(ids).logits[0, start - 1 : -1], -1).gather(-1, ids[0, start:, None])
                (-advantage * logprobs.mean() / (n * prompts)).backward()  # GRPO's gradient; the ratio is 1
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        model.save_pretrained(folder)
    after = [group.rewards.mean() for group in rollouts(folder, "validation", held_out, 4).groups]
    print(f"right of one sample: {sum(right) / held_out:.3f} before, {sum(after) / held_out:.3f} after {steps} steps")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
