"""Outcome reward models as most are published: a sequence classification head on a chat, held against transformers' own
class for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.verifiers.asking import Counting, ask, path
from tests.verifiers.reward.published import HIDDEN, PROBLEM, STEPS, llama_tokenizer, model_of, qwen_tokenizer
from tts.errors import CapabilityError, ConfigError
from tts.verifiers.reward.verifier import Reward

RECORD = """
name: {kind}-orm
model: nobody/{kind}-orm
kind: outcome
architecture: {kind}
template: {{layout: reply, prompt: "{{problem}}"}}
readout: {{kind: head, layers: [{{weight: score.weight}}], outputs: {outputs}, activation: {activation}, good: {good}}}
source: this test
"""
TOKENIZERS = {"llama": llama_tokenizer, "qwen2": qwen_tokenizer}
SOLUTIONS = [STEPS, STEPS[:1], ["Then 7 - 2 = 4.", "So the answer is 4."]]


def saved(kind: str, folder: Path, outputs: int) -> tuple[Any, Any]:
    """Write a tiny random classifier and its tokenizer; return both. It has no output layer over the vocabulary."""
    import torch
    import transformers

    tokenizer = TOKENIZERS[kind]()
    base = model_of(kind, len(tokenizer))
    config = base.config
    config.num_labels = outputs
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    model.model.load_state_dict(base.model.state_dict())
    model.score.weight.data = torch.randn((outputs, HIDDEN), generator=torch.Generator().manual_seed(3)) * 0.5
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def record(folder: Path, kind: str, *, outputs: int = 1, activation: str = "none", good: int = 0) -> str:
    file = folder / "own.yaml"
    file.write_text(RECORD.format(kind=kind, outputs=outputs, activation=activation, good=good))
    return str(file)


def classified(model: Any, tokenizer: Any, solution: list[str]) -> Any:
    """Return the logits of transformers' own forward pass on the whole chat, which it reads at the last token."""
    import torch

    messages = [{"role": "user", "content": PROBLEM}, {"role": "assistant", "content": "\n\n".join(solution)}]
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0], len(ids)


@pytest.mark.parametrize("backend", ["engine", "transformers"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_reward_is_the_classifiers_logit(kind: str, backend: str, tmp_path: Path) -> None:
    model, tokenizer = saved(kind, tmp_path, 1)
    verifier = Reward(record=record(tmp_path, kind), weights=str(tmp_path), backend=backend).open()
    calls = Counting()
    found = ask(verifier, [path(solution, node=i + 1) for i, solution in enumerate(SOLUTIONS)], calls, PROBLEM)
    expected = [classified(model, tokenizer, solution) for solution in SOLUTIONS]
    assert [score.whole for score in found] == pytest.approx([float(logits[0]) for logits, _ in expected], abs=1e-4)
    assert all(score.steps is None for score in found)
    assert len({score.whole for score in found}) == len(SOLUTIONS)
    assert verifier.range == (float("-inf"), float("inf"))
    alone = Counting()
    ask(verifier.open(), [path(SOLUTIONS[0])], alone, PROBLEM)
    assert alone.prompt + alone.computed == expected[0][1]


def test_of_two_classes_it_is_the_probability_of_the_good_one(tmp_path: Path) -> None:
    model, tokenizer = saved("llama", tmp_path, 2)
    text = record(tmp_path, "llama", outputs=2, activation="softmax", good=1)
    verifier = Reward(record=text, weights=str(tmp_path), backend="engine").open()
    [score] = ask(verifier, [path(STEPS)], Counting(), PROBLEM)
    logits, _ = classified(model, tokenizer, STEPS)
    assert score.whole == pytest.approx(float(logits.softmax(dim=-1)[1]), abs=1e-4)
    assert verifier.range == (0.0, 1.0)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_folder_of_a_sequence_classifier_is_read_by_its_chat_template(outputs: int, tmp_path: Path) -> None:
    model, tokenizer = saved("qwen2", tmp_path, outputs)
    verifier = Reward(record=str(tmp_path)).open()
    [score] = ask(verifier, [path(STEPS)], Counting(), PROBLEM)
    logits, _ = classified(model, tokenizer, STEPS)
    expected = logits[0] if outputs == 1 else logits.softmax(dim=-1)[1]
    assert score.whole == pytest.approx(float(expected), abs=1e-4)


def test_a_folder_without_a_chat_template_is_read_by_a_record_with_the_layout_text(tmp_path: Path) -> None:
    import torch

    model, tokenizer = saved("qwen2", tmp_path, 1)
    tokenizer.chat_template = None
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="tokenizer has no chat template") as refused:
        Reward(record=str(tmp_path)).open()
    assert "write a record in YAML with layout: text" in (refused.value.hint or "")
    file = Path(record(tmp_path, "qwen2"))
    text = file.read_text().replace('layout: reply, prompt: "{problem}"', 'layout: text, prompt: "{problem}\\n"')
    file.write_text(text)
    [score] = ask(Reward(record=str(file), weights=str(tmp_path)).open(), [path(STEPS)], Counting(), PROBLEM)
    with torch.inference_mode():
        logits = model(torch.tensor([tokenizer.encode(PROBLEM + "\n" + "\n\n".join(STEPS))])).logits[0]
    assert score.whole == pytest.approx(float(logits[0]), abs=1e-4)


def test_a_folder_of_a_token_classifier_is_read_behind_each_step(tmp_path: Path) -> None:
    """The tokens are those of TRL's trainer: the prompt, then each step and a newline, encoded apart."""
    import torch
    import transformers

    tokenizer = qwen_tokenizer()
    config = model_of("qwen2", len(tokenizer)).config
    config.num_labels = 2
    model = transformers.AutoModelForTokenClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    [score] = ask(Reward(record=str(tmp_path)).open(), [path(STEPS)], Counting(), PROBLEM)
    ids, places = tokenizer.encode(PROBLEM), list[int]()
    for step in STEPS:
        ids += [*tokenizer.encode(step, add_special_tokens=False), *tokenizer.encode("\n", add_special_tokens=False)]
        places.append(len(ids) - 1)
    with torch.inference_mode():
        shares = model(torch.tensor([ids])).logits[0].softmax(dim=-1)[places, 1]
    assert score.steps == pytest.approx(shares.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "has a LlamaForCausalLM, but"),
        ({"architectures": ["LlamaForSequenceClassification"], "id2label": dict.fromkeys("012", "x")}, "of 3 classes"),
        ({}, "no stated architecture"),
    ],
)
def test_a_folder_of_another_model_is_refused_with_the_way_of_a_record(config, message, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=message) as failure:
        Reward(record=str(tmp_path))
    assert "mine.yaml" in (failure.value.hint or "")


def test_a_head_of_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    saved("llama", tmp_path, 2)
    with pytest.raises(ConfigError, match=r"1 outputs,.*score\.weight.*2"):
        Reward(record=record(tmp_path, "llama"), weights=str(tmp_path), backend="engine").open()


def test_a_model_without_an_output_layer_is_read_and_writes_nothing(tmp_path: Path) -> None:
    from tts.backends.capabilities import require
    from tts.backends.engine import build
    from tts.models import registry

    saved("llama", tmp_path, 1)
    with pytest.raises(ConfigError, match=r"lack the weight lm_head\.weight"):
        build(registry.get(str(tmp_path)))
    backend = build(registry.get(str(tmp_path)), output_layer=False)
    require(backend, ("hidden", "extend"), "a reward model")
    for capability in ("steps", "score", "next_logprobs"):
        with pytest.raises(CapabilityError, match=f"'{capability}'"):
            require(backend, (capability,), "a search")
