"""What the authors of reward models compute, by their own code: one whole pass for each solution, or for each prefix of
its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def _logits(model: Any, ids: Sequence[int]) -> Any:
    import torch

    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).logits[0]


def _states(model: Any, ids: Sequence[int]) -> Any:
    import torch

    with torch.inference_mode():
        return model(torch.tensor([list(ids)]), output_hidden_states=True).hidden_states[-1][0]


def math_shepherd(model: Any, tokenizer: Any, head: Any, problem: str, steps: Sequence[str]) -> list[float]:
    """As its model card: good and bad tokens, the step tag's id, one pass."""
    candidates = tokenizer.encode("+ -")[1:]
    tag = tokenizer.encode("ки")[-1]
    ids = tokenizer.encode(f"{problem} " + "\n".join(f"{step} ки" for step in steps))
    assert len(candidates) == 2
    scores = _logits(model, ids)[:, candidates].softmax(dim=-1)[:, 0]
    return [float(score) for score, token in zip(scores, ids, strict=True) if token == tag]


def rlhflow(model: Any, tokenizer: Any, head: Any, problem: str, steps: Sequence[str]) -> list[float]:
    """As math-rm/prm_evaluate.py: a pass for each step, read three tokens before the end."""
    candidates = [tokenizer.encode("+")[-1], tokenizer.encode("-")[-1]]
    conversation: list[dict[str, str]] = []
    scores: list[float] = []
    for k, step in enumerate(steps):
        conversation.append({"content": f"{problem} {step}" if k == 0 else step, "role": "user"})
        conversation.append({"content": "+", "role": "assistant"})
        ids = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=False)
        scores.append(float(_logits(model, ids)[-3, candidates].softmax(dim=-1)[0]))
    return scores


def qwen(model: Any, tokenizer: Any, head: dict[str, Any], problem: str, steps: Sequence[str]) -> list[float]:
    """As its model card: messages, two classes at each <extra_0>."""
    import torch

    messages = [
        {"role": "system", "content": r"Please reason step by step, and put your final answer within \boxed{}."},
        {"role": "user", "content": problem},
        {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    ids = tokenizer.encode(text)
    hidden = torch.relu(_states(model, ids) @ head["score.0.weight"].T + head["score.0.bias"])
    classes = (hidden @ head["score.2.weight"].T + head["score.2.bias"]).softmax(dim=-1)
    tag = tokenizer.encode("<extra_0>")[0]
    return [float(row[1]) for row, token in zip(classes, ids, strict=True) if token == tag]


def skywork(model: Any, tokenizer: Any, head: dict[str, Any], problem: str, steps: Sequence[str]) -> list[float]:
    """As prepare_input and the value head of skywork-o1-prm-inference, with the task's steps as its lines."""
    ids = tokenizer.encode(tokenizer.bos_token + problem + "\n")
    newline = tokenizer.encode("\n")[-1]
    flags: list[int] = []
    for step in steps:
        ids += [*tokenizer.encode(step), newline]
        flags.append(len(ids) - 1)
    values = (_states(model, ids) @ head["v_head.summary.weight"].T + head["v_head.summary.bias"]).sigmoid()[:, 0]
    return [float(values[flag]) for flag in flags]


def rlhflow_orm(model: Any, tokenizer: Any, head: Any, problem: str, steps: Sequence[str]) -> list[float]:
    """As math/orm_evaluate.py: the whole solution in one turn."""
    return rlhflow(model, tokenizer, head, problem, ["\n\n".join(steps)])


CODE: dict[str, Callable[..., list[float]]] = {
    "math-shepherd": math_shepherd,
    "rlhflow-mistral": rlhflow,
    "rlhflow-deepseek": rlhflow,
    "rlhflow-orm-mistral": rlhflow_orm,
    "rlhflow-orm-deepseek": rlhflow_orm,
    "qwen2.5-math-prm-7b": qwen,
    "qwen2.5-math-prm-72b": qwen,
    "skywork-o1-prm-1.5b": skywork,
    "skywork-o1-prm-7b": skywork,
}
AGGREGATED = {"min": min, "mean": np.mean, "prod": np.prod, "last": lambda scores: scores[-1]}
