"""Reinforcement learning on rollouts: the loss by hand and by TRL, the batch, and one step that raises what was
rewarded.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")
pytest.importorskip("torch", reason="training needs torch")

import torch

import tts
from research.pocket.grpo import UNLIMITED, batch_of, take_step, train
from research.pocket.policy_loss import policy_loss
from tests.addons.training.test_trl import OFFLINE, python_of
from tests.backends.conftest import tiny_model, tiny_tokenizer
from tts_addons.training.rollouts import Rollouts


def test_the_loss_is_that_of_the_paper() -> None:
    logprobs, before = (
        torch.tensor([[-1.0, -2.0, -9.0], [-0.5, -1.0, -1.5]]),
        torch.tensor([[-1.2, -1.5, 0.0], [-1.5, -1.0, -1.4]]),
    )
    advantages, mask = [2.0, -1.0], [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    rows = []
    for i, advantage in enumerate(advantages):
        gains = []
        for j in range(3):
            if mask[i][j]:
                ratio = math.exp(float(logprobs[i, j] - before[i, j]))
                gains.append(min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage))
        rows.append(sum(gains) / len(gains))
    found = policy_loss(logprobs, before, torch.tensor(advantages), torch.tensor(mask))
    assert float(found) == pytest.approx(-sum(rows) / 2, rel=1e-5)


def found_groups() -> Rollouts:
    texts = ["8 + 8", *(" + ".join(str((3 * i + j) % 9 + 1) for j in range(3 + i)) for i in range(6))]
    problems = [tts.Problem(text, answer=str(eval(text)), id=text) for text in texts]
    with tts.Solver("toy", {}, task="arithmetic", temperature=1.0) as solver:
        return tts.rollouts(problems, 4000, solver=solver, objective="signal", n=6, seed=1)


def test_a_batch_has_groups_with_a_difference_alone() -> None:
    found = found_groups()
    batch = batch_of(found, pad=0)
    taught = [group for group in found.groups if group.variance > 0]
    assert len(batch["ids"]) == sum(len(group.rollouts) for group in taught)
    assert len({len(group.rollouts) for group in found.groups}) > 1, "groups of several sizes"
    assert batch["shares"].tolist() == pytest.approx(
        [1 / sum(len(group.rollouts) for group in found.groups)] * len(batch["ids"])
    )
    at = 0
    for group in taught:
        for one, advantage in zip(group.rollouts, group.advantages().tolist(), strict=True):
            assert one.tokens is not None
            assert int(batch["mask"][at].sum()) == len(one.tokens.ids)
            start = len(one.tokens.prompt)
            assert batch["ids"][at, : start + len(one.tokens.ids)].tolist() == [*one.tokens.prompt, *one.tokens.ids]
            assert float(batch["advantages"][at]) == pytest.approx(advantage, rel=1e-5)
            at += 1


def gradient_norm(model: torch.nn.Module) -> float:
    return float(torch.stack([(p.grad**2).sum() for p in model.parameters() if p.grad is not None]).sum().sqrt())


def small_batch(count: int = 4, prompt: int = 3, length: int = 6) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 20, (count, prompt + length), generator=generator)
    mask = torch.zeros(count, prompt + length)
    for at in range(count):
        mask[at, prompt : prompt + length - at] = 1
    before = -3 + 0.5 * torch.rand(count, prompt + length, generator=generator)
    return {
        "ids": ids,
        "mask": mask,
        "before": before * mask,
        "advantages": torch.tensor([0.9, -0.9, 0.7, -0.7]),
        "shares": torch.full((count,), 1 / count),
    }


def test_a_step_raises_what_was_rewarded() -> None:
    pytest.importorskip("transformers")
    model, batch = tiny_model(len(tiny_tokenizer())).float(), small_batch()

    def logprobs() -> torch.Tensor:
        with torch.no_grad():
            found = torch.log_softmax(model(input_ids=batch["ids"]).logits[:, :-1], dim=-1).gather(
                -1, batch["ids"][:, 1:, None]
            )[..., 0]
        return (found * batch["mask"][:, 1:]).sum(dim=1)

    with torch.no_grad():
        now = torch.log_softmax(model(input_ids=batch["ids"]).logits[:, :-1], dim=-1).gather(
            -1, batch["ids"][:, 1:, None]
        )[..., 0]
    batch["before"] = torch.cat([torch.zeros(len(now), 1), now], dim=1)
    first = logprobs()
    take_step(model, torch.optim.SGD(model.parameters(), lr=0.05), batch)
    assert float((batch["advantages"] * (logprobs() - first)).sum()) > 0


def test_groups_without_a_difference_count_in_the_loss_as_they_do_in_trl() -> None:
    """TRL's batch has all rollouts, with advantages of 0 where a group does not differ; ours has the others alone."""
    model, batch = tiny_model(len(tiny_tokenizer())).float(), small_batch()
    batch["advantages"][2:] = 0
    norms = []
    for rows in (slice(0, 4), slice(0, 2)):
        part = {name: values[rows] for name, values in batch.items()}
        loss = take_step(model, torch.optim.SGD(model.parameters(), lr=0.0), part)
        norms.append((loss, gradient_norm(model)))
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_other_sizes_get_no_more_tokens_than_equal_groups() -> None:
    equal = list(train("uniform", [UNLIMITED] * 2, 4, seed=0))
    totals = np.diff([one["tokens"] for one in equal]).astype(int).tolist()
    assert min(totals) > 0
    signal = list(train("signal", totals, 4, seed=0))
    assert all(
        0 < spent <= total for spent, total in zip(np.diff([one["tokens"] for one in signal]), totals, strict=True)
    )


@pytest.mark.slow
def test_the_loss_on_equal_groups_is_that_of_trl(tmp_path: Path) -> None:
    python = python_of("TTS_TRL_PYTHON")
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    model = tiny_model(len(tokenizer)).float()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    batch = small_batch()
    (tmp_path / "batch.json").write_text(
        json.dumps({**{name: values.tolist() for name, values in batch.items()}, "prompt": 3})
    )
    done = subprocess.run(
        [python, str(Path(__file__).with_name("trl_loss.py")), str(tmp_path / "model"), str(tmp_path / "batch.json")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **OFFLINE, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    logprobs = torch.log_softmax(model(input_ids=batch["ids"]).logits[:, :-1], dim=-1).gather(
        -1, batch["ids"][:, 1:, None]
    )[..., 0]
    loss = policy_loss(logprobs, batch["before"][:, 1:], batch["advantages"], batch["mask"][:, 1:])
    loss.backward()
    norm = gradient_norm(model)
    assert float(loss.detach()) == pytest.approx(theirs["loss"], rel=1e-4, abs=1e-6)
    assert norm == pytest.approx(theirs["norm"], rel=1e-4)
