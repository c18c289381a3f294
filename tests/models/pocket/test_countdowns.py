"""Countdowns on the embedded pair: the verdicts of its process model, and problems that nobody can or should solve."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tts
from tts.errors import ConfigError
from tts.models.registry import CHECKSUMS, SHIPPED, get
from tts.tasks.arithmetic.expression import numbers, parse, value

for module in ("torch", "transformers", "numba"):
    pytest.importorskip(module)
pytestmark = pytest.mark.skipif(
    not (SHIPPED / CHECKSUMS).is_file(), reason="the shipped models are not in this checkout"
)

BEAM = "beam(n=4, branching=4) | weighted"


@pytest.fixture(scope="module")
def pair() -> Iterator[tts.Solver]:
    """Return the pair with what its record names."""
    with tts.Solver("pocket", task="countdown") as solver:
        yield solver


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [None, BEAM, "a_star(branching=4, goals=1) | best"])
def test_a_countdown_without_a_solution_ends_within_its_budget_and_is_proven_by_nobody(
    pair: tts.Solver, strategy: str | None
) -> None:
    found = pair.solve("Reach 99 with 1 1 1 1.", tts.Budget(generated_tokens=120), strategy=strategy)
    assert found.error is None
    assert found.usage.generated_tokens <= 120
    assert (
        found.answer is None or value(parse(found.answer)) != 99 or sorted(numbers(parse(found.answer))) != [1, 1, 1, 1]
    )
    with tts.Solver("pocket", "rules", task="countdown") as ruled:
        end = ruled.solve(
            "Reach 99 with 1 1 1 1.",
            tts.Budget(generated_tokens=120),
            strategy="best_of_n | score_threshold(threshold=1) | best",
        )
    assert all(candidate.scores["main"] == 0 for candidate in end.candidates)
    assert end.stopped_by != "score_threshold"


def test_a_number_that_is_given_twice_is_used_twice_and_no_more() -> None:
    with tts.Solver("pocket", "rules", task="countdown") as ruled:
        found = ruled.solve("Reach 8 with 4 4.", tts.Budget(generated_tokens=120), strategy="best_of_n | best")
    assert found.answer is not None
    assert sorted(numbers(parse(found.answer))) == [4, 4]
    assert value(parse(found.answer)) == 8
    for candidate in found.candidates:
        used = None if candidate.answer is None else sorted(numbers(parse(candidate.answer)))
        assert candidate.scores["main"] == 0 or used == [4, 4]


@pytest.mark.slow
def test_five_numbers_are_searched_as_four_are(pair: tts.Solver) -> None:
    found = pair.solve("Reach 25 with 1 2 5 7 10.", tts.Budget(generated_tokens=200), strategy=BEAM)
    assert found.error is None
    assert 0 < found.usage.generated_tokens <= 200
    assert found.candidates


def test_a_negative_target_is_refused_in_one_line_before_anything_is_spent(pair: tts.Solver) -> None:
    with pytest.raises(ConfigError, match=r"problem.*'Reach -3.*reads") as refused:
        pair.solve("Reach -3 with 3 5.", 200)
    assert "\n" not in str(refused.value)


def copied(folder: Path, name: str) -> Path:
    """Return a copy of a shipped model's folder."""
    shutil.copytree(SHIPPED / name, folder / name)
    return folder / name


def test_a_process_model_of_another_policy_s_tokens_is_refused_in_one_line(tmp_path: Path) -> None:
    other = copied(tmp_path, "countdown")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = [token for token in vocabulary if not token.startswith("<")][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    critic = dataclasses.replace(
        get("pocket-countdown"),
        name="another",
        source="folder",
        location=str(other),
        readout=str(SHIPPED / "heads/reach.safetensors"),
    )
    with pytest.raises(ConfigError, match=r"'another',.*differs") as refused:
        tts.Solver(dataclasses.replace(get("pocket"), process_model=critic, process_models=())).solve(
            "Reach 8 with 4 4.", 100
        )
    assert "\n" not in str(refused.value)


def test_a_readout_of_another_size_is_refused_in_one_line(tmp_path: Path) -> None:
    critic = dataclasses.replace(
        get("pocket-countdown"),
        name="another",
        source="folder",
        location=str(copied(tmp_path, "countdown")),
        readout=str(SHIPPED / "heads/process.safetensors"),  # of the other process model
    )
    with pytest.raises(ConfigError, match=r"192.*,.*hidden size.*128") as refused:
        tts.Solver(dataclasses.replace(get("pocket"), process_model=critic, process_models=())).solve(
            "Reach 8 with 4 4.", 100
        )
    assert "\n" not in str(refused.value)
