# ruff: noqa: E402 - what needs torch is imported where torch is
"""What a process model learns from solutions of the policy: exact verdicts on its lines, right solutions, and slips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research.pocket", reason="research is no part of the wheel")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from research.pocket.train import __main__ as command
from research.pocket.train import attempts, judge, refine, states
from research.pocket.train.attempts import Attempted, attempt_state, judge_solution, read_attempts
from research.pocket.train.loop import Recipe
from research.pocket.train.reach import judge_prefixes
from research.pocket.train.tokenizer import build
from tts.errors import ConfigError
from tts.models.registry import CHECKSUMS, SHIPPED
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.countdown import CountdownProblem

PROBLEM = CountdownProblem(17, (3, 4, 5))
RIGHT, LOST, STRAY = "3 * 4 = 12\n12 + 5 = 17\nA: 17\n", "3 + 4 = 7\n7 + 5 = 12\nA: 12\n", "12 + 5 = 17\nA: 17\n"
ATTEMPTED = [Attempted(PROBLEM, (LOST, STRAY, RIGHT, "so\n", LOST, STRAY, LOST))]


@pytest.mark.parametrize(
    ("solution", "labels", "hinted"),
    [
        (RIGHT, (True, True, True), [True, True, False]),
        (LOST, (False, False, False), [True, True, False]),
        (STRAY, (False, False), [False, False]),
        ("3 * 4 = 11\n11 + 5 = 16\n", (False, False), [False, False]),
    ],
)
def test_lines_are_judged_exactly_and_asked_what_they_reach_while_steps_are_right(
    solution: str, labels: tuple[bool, ...], hinted: list[bool]
) -> None:
    branch = judge_solution(PROBLEM, solution.splitlines(keepends=True))
    assert branch.labels == labels
    assert [hint is not None for hint in branch.hints] == hinted


def test_a_state_has_a_right_attempt_right_solutions_and_slips_all_judged_exactly() -> None:
    made = [attempt_state(ATTEMPTED, 0, i) for i in range(60)]
    last = [[branch.labels[-1] for branch in state.branches] for state in made]
    for state, verdicts in zip(made, last, strict=True):
        assert state.prefix == "Reach 17 with 3 4 5.\n"
        assert all(list(branch.labels) == judge_prefixes(PROBLEM, branch.lines) for branch in state.branches)
        assert "".join(state.branches[0].lines) == RIGHT
        assert verdicts[6:8] == [True, True]
    slips = [verdict for verdicts in last for verdict in verdicts[8:]]
    assert len(slips) == 120
    assert np.mean(slips) < 0.2  # a slip that meets what was right is none
    assert [branch.lines for branch in attempt_state(ATTEMPTED, 0, 3).branches] == [
        branch.lines for branch in made[3].branches
    ]


def test_problems_are_of_the_train_split_and_the_stage_must_have_run(tmp_path: Path) -> None:
    for i in range(20):
        problem = attempts._problem(i)
        assert countdown.split_of(problem) == "train"
        assert len(problem.numbers) == (4 if i % 5 else 3)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_attempts(tmp_path)


@pytest.mark.skipif(not (SHIPPED / CHECKSUMS).is_file(), reason="the shipped models are not in this checkout")
def test_solutions_of_another_policy_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "stages/attempts/train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"stage": "attempts", "seed": 0, "policy": "another"}\n[[17, [3, 4, 5], ["so"]]]\n')
    with pytest.raises(ConfigError, match="holds samples of another run") as refused:
        read_attempts(tmp_path)
    assert "\n" not in str(refused.value)


def test_rates_do_not_depend_on_the_length_so_a_run_can_be_made_longer() -> None:
    short, long = (refine.Steady(tokens=4096, minutes=minutes, matrix_rate=0.002, rate=1e-3) for minutes in (1, 9))
    assert [short.rate_factor(step) for step in range(90)] == [long.rate_factor(step) for step in range(90)]
    assert long.rate_factor(refine.ALONE - 1) == refine.FASTER
    assert long.rate_factor(refine.ALONE) < long.rate_factor(refine.ALONE + refine.RISE) == long.rate_factor(800) == 1


@pytest.mark.skipif(not (SHIPPED / CHECKSUMS).is_file(), reason="the shipped models are not in this checkout")
def test_new_heads_learn_alone_at_first_and_the_result_is_the_average_of_the_weights() -> None:
    model = refine.Refined(SHIPPED / "countdown", SHIPPED / "heads" / "reach.safetensors")
    batch = states.forest(states.make_rows(build(), [states.countdown_state(5, 0)]), 0)
    model.learn(0)
    sum(refine.losses(model, batch).values()).backward()  # type: ignore[union-attr]
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None} == {"hints", "middle"}
    model.learn(refine.ALONE)
    assert all(p.requires_grad for p in (*model.trunk.parameters(), *model.head.parameters()))
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.head.weight += 1
    for _ in range(2):
        model.average()
    assert torch.allclose(model.averaged.head.weight, before + 1 - refine.KEPT**2, atol=1e-6)
    assert not any(p.requires_grad for p in model.averaged.parameters())


@pytest.mark.skipif(not (SHIPPED / CHECKSUMS).is_file(), reason="the shipped models are not in this checkout")
def test_it_goes_on_from_the_shipped_one_and_few_steps_lower_its_losses() -> None:
    model = refine.Refined(SHIPPED / "countdown", SHIPPED / "heads" / "reach.safetensors")
    rows = [states.countdown_state(5, i) for i in range(3)] + [attempt_state(ATTEMPTED, 5, 0)]
    batch = states.forest(states.make_rows(build(), rows), 0)
    assert judge.auc_within(model, [batch])["countdown"] > 0.7  # what was learnt is there
    first = {name: loss.item() for name, loss in refine.losses(model, batch).items()}
    tools = judge.optimizers(model, Recipe(tokens=512, minutes=1, matrix_rate=0.002, rate=1e-3))
    for _ in range(6):
        sum(refine.losses(model, batch).values()).backward()  # type: ignore[union-attr]
        for tool in tools:
            tool.step()
            tool.zero_grad(set_to_none=True)
    last = {name: loss.item() for name, loss in refine.losses(model, batch).items()}
    assert all(last[name] < first[name] for name in ("label", "hint", "middle"))


def test_rates_of_the_stage_that_settles_fall_to_nothing() -> None:
    recipe = refine.Falling(tokens=4096, minutes=4, matrix_rate=0.002, rate=1e-3)
    rates = [recipe.rate_factor(step) for step in range(refine.ALONE, recipe.steps)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.99
    assert rates[-1] == 0.02


@pytest.mark.slow
@pytest.mark.skipif(not (SHIPPED / CHECKSUMS).is_file(), reason="the shipped models are not in this checkout")
def test_refine_settle_and_calibrate_go_on_from_each_other(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(attempts, "SAMPLES", 3)
    monkeypatch.setattr(refine, "CHECKED", 1)
    monkeypatch.setattr(refine, "TOKENS", 2048)
    assert command.main(["calibrate", "--out", str(tmp_path)]) == 2
    assert "hint: run the stage judge or refine there first" in capsys.readouterr().err
    for stage, minutes in (("attempts", "0.04"), ("refine", "0.006"), ("settle", "0.006"), ("calibrate", "0.01")):
        assert (
            command.main([stage, "--out", str(tmp_path), "--minutes", minutes, "--seed", "0", "--device", "cpu"]) == 0
        )
    assert (tmp_path / "settled" / "model.safetensors").read_bytes() == (
        tmp_path / "countdown" / "model.safetensors"
    ).read_bytes()
    assert {path.name for path in (tmp_path / "heads").iterdir()} == {"reach.safetensors"}
