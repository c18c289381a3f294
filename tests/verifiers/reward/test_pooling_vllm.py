"""Reward models on a real vLLM server. Slow: such a server takes minutes to start on two cores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import interpreter, serve_model
from tests.verifiers.asking import Counting, ask, path
from tests.verifiers.reward.official import CODE
from tests.verifiers.reward.published import PROBLEM, STEPS, TOKENIZERS, head_tensors, qwen_tokenizer, saved
from tts.models.registry import ModelRecord
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.verifier import Reward

pytestmark = pytest.mark.slow

HIDDEN = 128  # heads of 64, which vLLM's attention on CPUs has
CUT = {
    "architectures": ["LlamaForSequenceClassification"],
    "classifier_from_token": ["+", "-"],
    "method": "no_post_processing",
}


def vllm(folder: Path, log: Path, *options: str) -> AbstractContextManager[str]:
    """Serve a folder's model; gives the url."""
    record = ModelRecord(name="prm", backend="openai", source="folder", location=str(folder), context=512)
    return serve_model(record, "vllm", log, "--runner", "pooling", *options)


def check(name: str, model: Any, folder: Path, problems: Sequence[str] = (PROBLEM, "Why?"), **where: str) -> None:
    """Compare the scores of some paths with those of the authors' own code."""
    record = reward_record.load(name)
    head = head_tensors(record, HIDDEN) if record.readout.kind == "head" else None
    verifier = Reward(record=name, weights=str(folder), **where).open()
    for problem in problems:
        calls = Counting()
        paths = [STEPS, STEPS[:1], [*STEPS[:2], "No."]]
        scores = ask(verifier, [path(steps, node=i) for i, steps in enumerate(paths, start=1)], calls, problem)
        for score, steps in zip(scores, paths, strict=True):
            found = [score.whole] if record.kind == "outcome" else score.steps
            assert found == pytest.approx(CODE[name](model, TOKENIZERS[name](), head, problem, steps), abs=2e-4)
        assert calls.computed > 0
    assert not calls.failures


def test_a_model_with_a_head_of_its_own_gives_its_step_tokens(tmp_path: Path) -> None:
    name = "qwen2.5-math-prm-7b"
    interpreter("vllm")
    model = saved(reward_record.load(name), tmp_path / "model", hidden=HIDDEN)
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": ["Qwen2ForProcessRewardModel"]}))
    tag = qwen_tokenizer().convert_tokens_to_ids("<extra_0>")  # of Qwen's own vocabulary vLLM knows it
    with vllm(tmp_path / "model", tmp_path, "--pooler-config", json.dumps({"step_tag_id": tag})) as url:
        check(name, model, tmp_path / "model", url=url, served_as="prm")


@pytest.mark.parametrize(("name", "task"), [("rlhflow-mistral", "token_classify"), ("rlhflow-orm-mistral", "classify")])
def test_a_model_of_labels_is_cut_to_them_and_read_at_every_token_or_at_the_last(
    name: str, task: str, tmp_path: Path
) -> None:
    interpreter("vllm")
    model = saved(reward_record.load(name), tmp_path / "model", hidden=HIDDEN)
    options = ["--hf-overrides", json.dumps(CUT), "--pooler-config", json.dumps({"task": task})]
    with vllm(tmp_path / "model", tmp_path, *options) as url:
        check(name, model, tmp_path / "model", url=url, served_as="prm")


@pytest.mark.filterwarnings("ignore")  # vLLM's own
@pytest.mark.parametrize("name", ["rlhflow-mistral", "rlhflow-orm-mistral"])
def test_a_model_of_labels_gives_the_same_in_this_process(name: str, tmp_path: Path) -> None:
    pytest.importorskip("vllm", exc_type=ImportError)
    model = saved(reward_record.load(name), tmp_path / "model", hidden=HIDDEN)
    check(name, model, tmp_path / "model", backend="vllm")
