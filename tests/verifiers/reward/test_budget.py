"""What a reward model of a verifier's own costs a search: the ledger has it, at its own price, and no limit is
passed.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tts import solve
from tts.errors import ConfigError
from tts.models import registry
from tts.types import Problem
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.verifier import Reward

pytest.importorskip("torch")
PROBLEM = Problem("3 + 4 * 2 - 5 + 6")
FLOPS = 2 * 3_212_352  # of a token, to both models of the pair


@pytest.fixture(scope="module")
def verifier() -> Reward:
    return Reward(record="pocket-process").open()  # kept, so that it is loaded once


@pytest.mark.slow
def test_its_tokens_are_verifier_tokens_at_its_own_flops_and_its_prompt_is_read_once(verifier: Reward) -> None:
    assert verifier.asked is not None
    before = verifier.asked.counters.prompt_tokens
    found = solve(PROBLEM, 2000, model="pocket", strategy="beam(n=4)", verifier=Reward(record="pocket-process"), seed=5)
    assert found.error is None
    usage, own = found.usage, verifier.asked.counters.prompt_tokens - before
    assert 0 < usage.verifier_tokens < own
    prompt = own - usage.verifier_tokens
    assert prompt == len(verifier.asked.renderer.render("", ["0"], prompt="3 + 4 * 2 - 5 + 6\n").ids[: prompt + 1]) - 1
    assert usage.flops == (usage.tokens + usage.prompt_tokens) * FLOPS
    steps = sum(len(candidate.trajectory.full_text) for candidate in found.candidates)
    assert usage.verifier_tokens < usage.generated_tokens * 1.2 + steps, "no prefix is read again"


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["tokens=500", "verifier_tokens=60", "flops=2e9"])
def test_no_limit_is_passed(limit: str, verifier: Reward) -> None:
    unit, _, value = limit.partition("=")
    from tts.budget.budget import Budget

    budget = Budget(**{unit: int(float(value))})  # type: ignore[arg-type]
    found = solve(
        PROBLEM,
        budget,
        model="pocket",
        strategy="best_of_n(n=8) | weighted",
        verifier=Reward(record="pocket-process"),
        seed=5,
    )
    assert found.error is None
    assert found.answer is not None or unit != "tokens"
    spent = getattr(found.usage, unit)
    assert spent is not None
    assert 0 < spent <= float(value) or unit == "verifier_tokens"


def test_what_it_was_not_shown_is_said(verifier: Reward) -> None:
    tight = Reward(record="pocket-process", ratio=0.2, slack=0)
    found = solve(PROBLEM, 800, model="pocket", strategy="best_of_n(n=3) | majority", verifier=tight, seed=5)
    assert found.error is None
    scored = solve(PROBLEM, 800, model="pocket", strategy="best_of_n(n=3) | weighted", verifier=tight, seed=5)
    assert any("a reward model was not shown" in warning for warning in scored.warnings)
    assert all(math.isnan(score) for candidate in scored.candidates for score in candidate.scores.values())


def test_a_limit_without_a_rate_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    record = reward_record.load("pocket-process")
    text = (Path(reward_record.__file__).parent / "records" / "pocket-process.yaml").read_text(encoding="utf-8")
    assert record.parameters == registry.get("pocket-process").parameters
    own = tmp_path / "unsized.yaml"
    own.write_text(
        text.replace(f"parameters: {record.parameters}\n", "").replace("name: pocket-process", "name: unsized"),
        encoding="utf-8",
    )
    from tts.budget.budget import Budget

    with pytest.raises(ConfigError, match=r"flops,.*'main' \(reward\)"):
        solve(
            PROBLEM,
            Budget(flops=10**9),
            model="pocket",
            strategy="best_of_n(n=2)",
            verifier=Reward(record=str(own), url="http://127.0.0.1:9"),
        )
