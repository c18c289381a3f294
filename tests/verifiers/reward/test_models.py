"""Every record on a tiny random model of its architecture and tokenizer kind: the tokens and positions of its authors'
own code.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.verifiers.asking import Counting, ask, path
from tests.verifiers.reward.official import AGGREGATED, CODE
from tests.verifiers.reward.published import (
    LLAMA_IDS,
    MISTRAL_IDS,
    PROBLEM,
    STEPS,
    TOKENIZERS,
    head_tensors,
    llama_tokenizer,
    saved,
    sentencepiece_like,
)
from tts.backends.toy.backend import ToyBackend
from tts.errors import CapabilityError, ConfigError
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.loading import reward_model
from tts.verifiers.reward.model import HandleModel
from tts.verifiers.reward.renderer import SolutionRenderer
from tts.verifiers.reward.verifier import Reward

pytest.importorskip("torch")
TWINS = {
    "rlhflow-deepseek": "rlhflow-mistral",
    "rlhflow-orm-deepseek": "rlhflow-orm-mistral",
    "qwen2.5-math-prm-72b": "qwen2.5-math-prm-7b",
    "skywork-o1-prm-7b": "skywork-o1-prm-1.5b",
}
KINDS = (
    "math-shepherd",
    "rlhflow-mistral",
    "rlhflow-orm-mistral",
    "qwen2.5-math-prm-7b",
    "skywork-o1-prm-1.5b",
)  # one of each layout and readout


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """A folder and its model for each kind; records of one kind differ in size alone."""
    made = {}
    for name in KINDS:
        folder = tmp_path_factory.mktemp(name)
        made[name] = folder, saved(reward_record.load(name), folder)
    return made


@pytest.fixture(scope="module")
def held(folders: dict[str, tuple[Path, Any]]) -> list[Any]:
    """What is loaded, so that it is loaded once."""
    return []


def loaded(name: str, held: list[Any], folders: dict[str, Any], **settings: Any) -> Reward:
    verifier = Reward(record=name, weights=str(folders[name][0]), **settings).open()
    held.append(verifier.asked)
    return verifier


def expected(name: str, model: Any, steps: list[str]) -> list[float]:
    record = reward_record.load(name)
    head = head_tensors(record) if record.readout.kind == "head" else None
    return CODE[name](model, TOKENIZERS[name](), head, PROBLEM, steps)


def test_every_published_record_is_tested_here() -> None:
    assert {*CODE, "pocket-process"} == set(reward_record.names()) == {*KINDS, *TWINS, "pocket-process"}


@pytest.mark.parametrize("name", TWINS)
def test_records_of_one_kind_differ_in_their_model_alone(name: str) -> None:
    apart = {"name", "model", "parameters", "source", "notes"}
    assert reward_record.load(name).model_dump(exclude=apart) == reward_record.load(TWINS[name]).model_dump(
        exclude=apart
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("backend", ["engine", "transformers"])
def test_scores_are_those_of_the_authors_own_code(
    name: str, backend: str, folders: dict[str, Any], held: list[Any]
) -> None:
    record, model = reward_record.load(name), folders[name][1]
    verifier = loaded(name, held, folders, backend=backend)
    calls = Counting()
    [score] = ask(verifier, [path(STEPS)], calls, PROBLEM)
    found = expected(name, model, STEPS)
    assert len(set(found)) == len(found), "every step must have a score of its own, or positions are not told apart"
    if record.kind == "outcome":
        assert score.steps is None
        assert [score.whole] == pytest.approx(found, abs=1e-5)
    else:
        assert score.steps == pytest.approx(found, abs=1e-5)
        assert score.whole == pytest.approx(float(AGGREGATED[record.aggregation](found)), abs=1e-5)
    assert not any(calls.unknown.values())
    solution = verifier.asked.renderer.render(PROBLEM, STEPS if record.kind == "process" else ["\n\n".join(STEPS)])  # type: ignore[union-attr]
    assert (calls.prompt, calls.computed) == (solution.prompt, len(solution.ids) - solution.prompt)


@pytest.mark.parametrize("name", [name for name in KINDS if "orm" not in name])
def test_one_more_step_computes_that_step_alone_and_siblings_share_what_is_before_them(
    name: str, folders: dict[str, Any], held: list[Any]
) -> None:
    model, verifier = folders[name][1], loaded(name, held, folders, backend="engine")
    assert verifier.asked is not None
    render, counters = verifier.asked.renderer.render, verifier.asked.counters
    before, whole = counters.prompt_tokens, len(render(PROBLEM, STEPS).ids)
    calls = Counting()
    first = path(STEPS[:1])
    [one] = ask(verifier, [first], calls, PROBLEM)
    assert calls.prompt + calls.computed == len(render(PROBLEM, STEPS[:1]).ids)
    second = path(STEPS[1:2], node=2, parent=first)
    other = path(["Then 7 - 2 = 4."], node=3, parent=first)
    two, three = ask(verifier, [second, other], calls, PROBLEM)
    third = path(STEPS[2:], node=4, parent=second)
    [all_of_them] = ask(verifier, [third, third], calls, PROBLEM)[:1]
    branch = len(render(PROBLEM, [STEPS[0], "Then 7 - 2 = 4."]).ids) - len(render(PROBLEM, STEPS[:1]).ids)
    assert calls.prompt + calls.computed == whole + branch == counters.prompt_tokens - before
    assert all_of_them.steps == pytest.approx(expected(name, model, STEPS), abs=1e-5)
    assert (*one.steps, two.steps[1], three.steps[0]) == (
        all_of_them.steps[0],
        all_of_them.steps[1],
        all_of_them.steps[0],
    )  # type: ignore[index, misc]
    spent = calls.computed
    ask(verifier, [first, second, third], calls, PROBLEM)
    assert calls.computed == spent


def test_texts_of_records_are_the_ids_that_their_sources_name() -> None:
    shepherd = SolutionRenderer(reward_record.load("math-shepherd"), sentencepiece_like())
    assert shepherd.labels == (MISTRAL_IDS["▁+"], MISTRAL_IDS["▁-"])
    solution = shepherd.render(PROBLEM, STEPS)
    assert {solution.ids[at] for at in solution.at if at is not None} == {MISTRAL_IDS["▁ки"]}
    assert SolutionRenderer(reward_record.load("rlhflow-mistral"), llama_tokenizer()).labels == (
        LLAMA_IDS["+"],
        LLAMA_IDS["-"],
    )


@pytest.mark.slow
def test_a_head_may_lie_in_a_file_of_its_own_and_ours_is_what_the_engine_serves_beside_its_policy() -> None:
    from tts import solve
    from tts.types import Problem
    from tts.verifiers.heads import ProcessVerifier

    problem = Problem("3 + 4 * 2 - 5")
    own, beside = (
        solve(problem, 400, model="pocket", strategy="best_of_n(n=3)", verifier=verifier, seed=3)
        for verifier in (Reward(record="pocket-process"), ProcessVerifier())
    )
    assert own.error is None
    assert beside.error is None
    for a, b in zip(own.candidates, beside.candidates, strict=False):
        assert a.trajectory.full_text == b.trajectory.full_text
        assert list(a.scores.values()) == pytest.approx(list(b.scores.values()), abs=2e-3)
    assert own.usage.verifier_tokens > 0


def test_a_loaded_model_is_shared_while_somebody_holds_it(folders: dict[str, Any]) -> None:
    folder, _ = folders["math-shepherd"]
    held = reward_model("math-shepherd", str(folder), "engine")
    assert reward_model("math-shepherd", weights=str(folder), backend="engine") is held


def test_a_verifier_that_was_not_opened_scores_alike(folders: dict[str, Any], held: list[Any]) -> None:
    opened = loaded("math-shepherd", held, folders, backend="engine")
    bare = Reward(record="math-shepherd", weights=opened.weights, backend="engine")
    assert ask(bare, [path(STEPS)], Counting(), PROBLEM) == ask(opened, [path(STEPS)], Counting(), PROBLEM)
    assert pickle.loads(pickle.dumps(opened)) == bare, "settings travel, a loaded model does not"


def test_a_backend_that_takes_texts_only_cannot_be_shown_exact_tokens() -> None:
    renderer = SolutionRenderer(reward_record.load("math-shepherd"), sentencepiece_like())
    with pytest.raises(CapabilityError, match=r"shown.*'toy'"):
        HandleModel(renderer, ToyBackend())


def test_a_path_that_would_pass_the_bound_stays_unknown_and_costs_nothing(
    folders: dict[str, Any], held: list[Any]
) -> None:
    verifier = loaded("math-shepherd", held, folders, backend="engine", ratio=1.0, slack=0)
    short, long = path(STEPS, tokens=100), path(STEPS, tokens=8, node=2)
    calls = Counting()
    [known, unknown] = ask(verifier, [short, long], calls, PROBLEM)
    assert not any(map(math.isnan, known.steps or ()))
    assert all(map(math.isnan, unknown.steps or ()))
    assert math.isnan(unknown.whole or 0.0)
    assert calls.unknown["steps that a reward model was not shown"] == len(STEPS)
    again = loaded("math-shepherd", held, folders, backend="engine", ratio=1.0, slack=0)
    [alone] = ask(again, [long], Counting(), PROBLEM)
    assert repr(alone) == repr(unknown)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"record": "qwen2.5-math-prm-7b"},
            "has the separator '<extra_0>' of 1 tokens|layout 'reply', but the tokenizer has no chat",
        ),
        ({"record": "rlhflow-mistral"}, "is of the architecture 'llama'"),
        ({"backend": "toy"}, "a reward model runs on engine, transformers or vllm"),
        ({"weights": "/nowhere/at/all"}, "no such folder"),
    ],
)
def test_a_model_that_does_not_fit_its_record_is_refused(
    changes: dict[str, str], message: str, folders: dict[str, Any]
) -> None:
    settings = {"record": "math-shepherd", "weights": str(folders["math-shepherd"][0])} | changes
    with pytest.raises(ConfigError, match=message + "|is of the architecture"):
        Reward(**settings).open()  # type: ignore[arg-type]
