"""Rollouts for TRL's trainer: rows in the order of its prompts, groups of its size, and what cannot be rows is refused.

`test_trl.py` runs the trainer itself. Here its settings stand in one object, around a real model.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tts
from tests.backends.conftest import tiny_model, tiny_tokenizer
from tts.errors import ConfigError

pytest.importorskip("numba", reason="the engine needs it")
PROMPTS = ["Say one."] * 3 + ["Say two."] * 3


def settings_of(model: Any, tokenizer: Any, **more: Any) -> Any:
    """Return what rollouts read of a trainer."""
    given: dict[str, Any] = {
        "num_generations": 3,
        "num_generations_eval": 2,
        "model": model.float().train(),
        "processing_class": tokenizer,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "max_completion_length": 12,
        "accelerator": SimpleNamespace(process_index=0, unwrap_model=lambda one: one),
        "state": SimpleNamespace(global_step=0),
    }
    return SimpleNamespace(**{**given, **more})


def tiny(**more: Any) -> Any:
    tokenizer = tiny_tokenizer()
    return settings_of(tiny_model(len(tokenizer)), tokenizer, **more)


def length(problem: tts.Problem, text: str) -> float:
    return float(len(text))


def test_rows_are_in_the_order_of_the_prompts_and_decode_to_their_texts(caplog: pytest.LogCaptureFixture) -> None:
    trainer, seen = tiny(), list[str]()

    def reward(problem: tts.Problem, text: str) -> float:
        seen.append(text)
        return float(len(seen))

    rows = tts.TrlRollouts(reward=reward)(PROMPTS, trainer)
    tokenizer = trainer.processing_class
    assert rows["prompt_ids"] == [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    assert rows["rollout_reward"] == [1, 2, 3, 4, 5, 6]
    texts = [tokenizer.decode(ids, skip_special_tokens=True).rstrip("\ufffd") for ids in rows["completion_ids"]]
    assert texts == [text.rstrip("\ufffd") for text in seen]
    for name in ("completion_ids", "logprobs", "env_mask"):
        assert [len(row) for row in rows[name]] == [len(ids) for ids in rows["completion_ids"]]
    assert rows["env_mask"][0] == [1] * len(rows["completion_ids"][0])
    assert len(set(map(tuple, rows["completion_ids"]))) == 6, "samples of a prompt differ"
    assert trainer.model.training
    assert not caplog.records, "no choice among a group is warned of"


def test_each_call_draws_anew_and_seeds_fix_all() -> None:
    trainer = tiny()
    one, other = tts.TrlRollouts(seed=1), tts.TrlRollouts(seed=1)
    first, second = one(PROMPTS, trainer), one(PROMPTS, trainer)
    assert other(PROMPTS, trainer) == first
    assert second["completion_ids"] != first["completion_ids"]
    assert tts.TrlRollouts(seed=2)(PROMPTS, trainer)["completion_ids"] != first["completion_ids"]


def test_weights_are_those_of_the_trainer_at_the_call() -> None:
    import torch

    trainer, draw = tiny(), tts.TrlRollouts()
    before = draw(PROMPTS, trainer)
    with torch.no_grad():
        trainer.model.lm_head.weight.zero_()
    after = draw(PROMPTS, trainer)
    uniform = -torch.tensor(float(len(trainer.processing_class))).log().item()
    assert max(map(max, before["logprobs"])) > uniform + 0.5
    assert all(value == pytest.approx(uniform, abs=1e-5) for row in after["logprobs"] for value in row)


def test_evaluation_has_a_size_of_its_own() -> None:
    trainer = tiny()
    trainer.model.eval()
    rows = tts.TrlRollouts()(["Say one."] * 2 + ["Say two."] * 2, trainer)
    assert len(rows["completion_ids"]) == 4
    assert "rollout_reward" not in rows, "nothing was to be judged"


def test_verdicts_are_those_of_the_task() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tts.models import registry

    folder = registry.locate(registry.resolve("pocket"))
    assert folder is not None
    trainer = settings_of(
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
        num_generations=8,
        max_completion_length=60,
    )
    problem = "Reach 10 with 8 2."
    rows = tts.TrlRollouts(task="countdown", answers={problem: "8 + 2"})([problem] * 8, trainer)
    task = tts.tasks.get("countdown")
    right = [float(answer is not None and task.equivalent(answer, "8 + 2")) for answer in rows["rollout_answer"]]
    assert rows["rollout_reward"] == right
    assert sum(right) > 0
    assert tts.rollout_reward(rollout_reward=right, prompts=[problem] * 8) == right


def test_answers_are_a_column_of_the_trainers_data_and_a_missing_one_is_named_at_once() -> None:
    rows = [{"prompt": prompt, "solution": len(prompt)} for prompt in dict.fromkeys(PROMPTS)]
    trainer = tiny(train_dataset=rows, eval_dataset=None)
    drawn = tts.TrlRollouts(answers="solution")(PROMPTS, trainer)
    assert set(drawn["rollout_reward"]) <= {0.0, 1.0}
    late = {"prompt": "Say three."}
    for given, more, cause in (
        ("solution", [late], r"row 2 of train_dataset.*'solution'.*Say three"),
        ({"Say one.": "1", "Say two.": "2"}, [late], r"row 2 of train_dataset.*in answers.*Say three"),
    ):
        draw = tts.TrlRollouts(answers=given)
        with pytest.raises(ConfigError, match=cause):
            draw(PROMPTS, tiny(train_dataset=[*rows, *more]))
        assert draw.account.spent["tokens"] == 0


def test_the_total_holds_for_all_calls() -> None:
    trainer, draw = tiny(), tts.TrlRollouts(total=170)
    draw(PROMPTS, trainer)
    draw(PROMPTS, trainer)
    with pytest.raises(
        ConfigError, match=r"the group of the prompt 'Say (one|two)\.' has \d rollouts, but .* num_generations=3"
    ):
        draw(PROMPTS, trainer)
    assert 100 < draw.account.spent["tokens"] <= 170


@pytest.mark.parametrize(
    ("given", "trainer", "prompts", "told"),
    [
        ({}, {}, PROMPTS[:5], "the prompt 'Say two.' stands 2 times in a row, but a group has num_generations=3"),
        ({}, {}, PROMPTS[1:], "the prompt 'Say one.' stands 2 times in a row, but a group has num_generations=3"),
        ({"answers": {"Say one.": "1"}}, {}, PROMPTS, "the prompt 'Say two.' has no entry in answers"),
        ({}, {"repetition_penalty": 1.2}, PROMPTS, "repetition_penalty of the trainer is 1.2"),
        ({"strategy": "single"}, {}, PROMPTS, "a group needs one with a size"),
        ({"strategy": "best_of_n(n=4) | never | majority"}, {"num_generations": 1}, PROMPTS, "n is 1"),
    ],
)
def test_what_makes_no_rows_is_refused(given: Any, trainer: Any, prompts: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tts.TrlRollouts(**given)(prompts, tiny(**trainer))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("solver", "told"),
    [
        (
            lambda: tts.Solver(lambda prompt: "no tokens", task="text", temperature=1.0),
            "shows no token ids, but rollouts of GRPOTrainer",
        ),
        (
            lambda: tts.Solver("toy", {}, task="arithmetic", temperature=1.0),
            "the tokenizer of the backend 'toy' differs from that of the",
        ),
        (lambda: tts.Solver("pocket", {}, task="text", temperature=1.0), "differs from that of the trainer: token "),
    ],
)
def test_a_backend_with_other_tokens_is_refused_before_anything_is_spent(solver: Any, told: str) -> None:
    with solver() as made:
        draw = tts.TrlRollouts(solver=made)
        with pytest.raises(ConfigError) as refused:
            draw(PROMPTS, tiny())
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert draw.account.spent["tokens"] == 0


def test_another_temperature_than_the_trainers_is_refused() -> None:
    from tests.backends.conftest import tiny_engine

    with tts.Solver(tiny_engine(), {}, task="text", temperature=0.5) as made:
        with pytest.raises(ConfigError, match=r"temperature.*solver.*0\.5,.*trainer"):
            tts.TrlRollouts(solver=made)(PROMPTS, tiny())
        rows = tts.TrlRollouts(solver=made)(PROMPTS, tiny(temperature=0.5))
    assert len(rows["logprobs"]) == 6


def test_a_total_without_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"total limits \['samples'\], but must limit tokens"):
        tts.TrlRollouts(total=tts.Budget(samples=4))
    with pytest.raises(ConfigError, match="seed is -1"):
        tts.TrlRollouts(seed=-1)
