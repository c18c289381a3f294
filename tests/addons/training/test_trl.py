"""TRL's own trainers take a step on each form that is theirs, each in an environment of its own
(`make test-training`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import tts
from tests.backends.conftest import tiny_model, tiny_tokenizer
from tts import tasks
from tts.types import Message
from tts_addons.training.filters import Filters
from tts_addons.training.records import SearchRows
from tts_addons.training.writing import export_searches

pytestmark = pytest.mark.slow
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def python_of(variable: str) -> str:
    """Return the Python of an environment, or skip."""
    python = os.environ.get(variable)
    if not python or not Path(python).exists():
        pytest.skip(f"{variable} names no Python with TRL (make test-training makes it)")
    return python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and its tokenizer."""
    made, tokenizer = tmp_path_factory.mktemp("model"), tiny_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tiny_model(len(tokenizer)).save_pretrained(made)
    tokenizer.save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def searches() -> Sequence[SearchRows]:
    """Searches of sums with right and wrong answers."""
    task = tasks.get("arithmetic")
    found = [
        tts.solve(tts.Problem("3 + 4 - 2", answer="5", id=f"p{i}"), 400, model="toy", strategy="best_of_n(n=8)", seed=i)
        for i in range(4)
    ]
    return [one.trace.record(task, one.problem.id, "5") for one in found]


def chats(searches: Sequence[SearchRows]) -> list[SearchRows]:
    """Return searches whose prompts are messages."""
    prompt = (Message("user", "What is 3 + 4 - 2?"),)
    return [
        dataclasses.replace(
            one, prompt=prompt, samples=[dataclasses.replace(sample, prompt=prompt) for sample in one.samples]
        )
        for one in searches
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("form", ["trl-sft", "trl-dpo", "trl-kto", "trl-grpo", "chat", "trl-prm"])
def test_a_trainer_takes_a_step(
    form: str, kind: str, folder: Path, searches: Sequence[SearchRows], tmp_path: Path
) -> None:
    python = python_of("TTS_TRL_PRM_PYTHON" if form == "trl-prm" else "TTS_TRL_PYTHON")
    given = searches if kind == "jsonl" else chats(searches)
    assert export_searches(given, tmp_path / f"rows.{kind}", form, Filters()).rows >= 2
    script = Path(__file__).with_name("trl_step.py")
    done = subprocess.run(
        [python, str(script), form, str(tmp_path / f"rows.{kind}"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **OFFLINE, "HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "loss " in done.stdout


def test_the_trainer_of_grpo_takes_steps_on_our_rollouts(folder: Path) -> None:
    """Their log-probabilities are those of the trainer's weights at each step, at its temperature."""
    done = subprocess.run(
        [python_of("TTS_TRL_PYTHON"), str(Path(__file__).with_name("trl_rollout_step.py")), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **OFFLINE, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == 2
    assert found["rows"] == 2 * 8
    assert found["gap"] < 1e-5
    assert found["prompts"], "texts are read as the trainer reads them"
    assert found["moved"]
    assert len(found["rewards"]) == 2
    assert all(0 <= reward <= 4 for reward in found["rewards"])
    assert 0 < found["tokens"] <= 100_000
    assert "differs from that of the trainer" in found["other tokenizer"]
    assert "GRPOTrainer needs groups of num_generations=4" in found["short"]
    assert "\n" not in found["other tokenizer"] + found["short"]
