# ruff: noqa: E402 - what needs torch is imported where torch is
"""The process model's training: exact labels, states read as each branch would be alone, and a resumable run."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

pytest.importorskip("research.pocket", reason="research is no part of the wheel")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from research.pocket.train import calibrate, judge, states
from research.pocket.train.loop import Recipe
from research.pocket.train.muon import Muon, nearest_orthogonal
from research.pocket.train.reach import apply_step, is_reachable, judge_prefixes, legal_steps
from research.pocket.train.tokenizer import build
from tts.tasks.arithmetic import countdown, generator
from tts.tasks.arithmetic.countdown import CountdownProblem
from tts.tasks.arithmetic.expression import Step, apply
from tts.tasks.arithmetic.judging import judge as verdicts
from tts.tasks.arithmetic.reading import read
from tts.tasks.base import split_after


def brute(numbers: tuple[int, ...]) -> set[int]:
    """Every value of every expression that uses all numbers."""
    if len(numbers) == 1:
        return {numbers[0]}
    found: set[int] = set()
    for order in set(permutations(numbers)):
        a, b, *rest = order
        for operator in "+-*":
            found |= brute((apply(operator, a, b), *rest))
    return found


@pytest.mark.parametrize("numbers", [(7,), (3, 3), (17, 22), (1, 4, 25), (2, 2, 9), (5, 11, 18, 24), (1, 1, 1, 1)])
def test_the_solver_finds_what_every_expression_comes_to(numbers: tuple[int, ...]) -> None:
    values = brute(numbers)
    assert [target for target in range(1, 100) if is_reachable(numbers, target)] == sorted(
        value for value in values if 1 <= value <= 99
    )


def test_steps_are_right_and_leave_what_they_should() -> None:
    for step in legal_steps((5, 5, 8)):
        assert step.result == apply(step.operator, step.left, step.right)
        rest = apply_step((5, 5, 8), step)
        assert rest is not None
        assert len(rest) == 2
    assert apply_step((5, 8), Step(5, "+", 8, 14)) is None
    assert apply_step((5, 8), Step(5, "+", 5, 10)) is None
    assert len(list(legal_steps((5, 5)))) == len({str(step) for step in legal_steps((5, 5))})


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["3 * 4 = 12\n", "12 + 5 = 17\n", "A: 17\n"], [True, True, True]),
        (["3 + 4 = 7\n", "7 + 5 = 12\n", "A: 12\n"], [False, False, False]),
        (["3 * 4 = 12\n", "12 - 5 = 7\n", "A: 17\n"], [True, False, False]),
        (["3 * 4 = 11\n", "12 + 5 = 17\n"], [False, False]),
        (["3 * 4 = 12\n", "A: 17\n"], [True, False]),
        (["3 * 4 = 12\n", "12 + 5 = 17\n", "A: 16\n"], [True, True, False]),
        (["so\n"], [False]),
    ],
)
def test_a_solution_leads_on_while_the_target_can_be_reached(lines: list[str], wanted: list[bool]) -> None:
    assert judge_prefixes(CountdownProblem(17, (3, 4, 5)), lines) == wanted


def test_known_solutions_lead_all_the_way() -> None:
    for i in range(30):
        problem = countdown.draw(2 + i % 3, "validation", 5, i)
        lines = [*(f"{step}\n" for step in problem.steps), f"A: {problem.target}\n"]
        assert judge_prefixes(problem, lines) == [True] * len(lines)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_states_are_of_their_split_and_their_labels_are_exact(split: generator.Split) -> None:
    kinds: set[bool] = set()
    for i in range(40):
        state = states.countdown_state(3, i, split)
        asked, *before = split_after(state.prefix, ("\n",))
        problem = countdown.read(asked.strip())
        assert problem is not None
        assert countdown.split_of(problem) == split
        for branch in state.branches:
            assert list(branch.labels) == judge_prefixes(problem, [*before, *branch.lines])[len(before) :]
            kinds.update(label for label in branch.labels if label is not None)
    assert kinds == {True, False}


def test_lines_of_expressions_are_right_as_far_as_all_before_them_are() -> None:
    for i in range(60):
        state = states.pocket_state(3, i)
        asked, *before = split_after(state.prefix, ("\n",))
        expression = read(asked).expression
        assert generator.split_of(expression) == "train"
        for branch in state.branches:
            found = verdicts(expression, [*before, *branch.lines])
            wanted = [all(found[: k + 1]) for k in range(len(found))][len(before) :]
            assert list(branch.labels) == wanted


def test_a_branch_is_read_as_if_it_stood_alone() -> None:
    tokenizer, model = build(), judge.new_judge(build(), seed=1).eval()
    state = states.countdown_state(0, 1)
    alone = [states.State(state.prefix, (branch,), state.kind) for branch in state.branches]
    with torch.no_grad():
        logits = [
            model.head(judge.read_states(model, batch)[batch.at])[:, 0]
            for batch in (states.forest(states.make_rows(tokenizer, some), 0) for some in ([state], alone))
        ]
    assert len(state.branches) > 3
    assert torch.allclose(logits[0], logits[1], atol=1e-5)


def test_ranking_compares_the_lines_of_one_state_alone() -> None:
    tokenizer = build()
    batch = states.forest(states.make_rows(tokenizer, [states.countdown_state(0, i) for i in range(4)]), 0)
    right = torch.where(batch.labels > 0, 20.0, -20.0)
    assert judge.ranking(right, batch) < 1e-6
    assert judge.ranking(right + 100.0 * batch.group, batch) < 1e-6
    assert judge.ranking(-right, batch) > 39


def test_batches_are_of_each_kind_at_their_shares() -> None:
    kinds = [judge.number_of(step) for step in range(1000)]
    assert [number for kind, number in kinds if kind == "pocket"] == list(
        range(sum(kind == "pocket" for kind, _ in kinds))
    )
    assert [number for kind, number in kinds if kind == "countdown"] == list(
        range(sum(kind == "countdown" for kind, _ in kinds))
    )
    assert np.mean([kind == "countdown" for kind, _ in kinds[:200]]) == pytest.approx(judge.SHARES[0][1], abs=0.01)
    assert np.mean([kind == "countdown" for kind, _ in kinds[200:450]]) == pytest.approx(judge.SHARES[1][1], abs=0.01)


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_muon_moves_by_about_an_orthogonal_matrix(shape: tuple[int, int]) -> None:
    made = nearest_orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    sizes = torch.linalg.svdvals(made)
    assert made.shape == shape
    assert 0.5 < sizes.min() <= sizes.max() < 1.3
    weight = torch.nn.Parameter(torch.zeros(shape))
    weight.grad = torch.ones(shape)
    Muon([weight], lr=0.1).step()
    assert weight.abs().max() > 0


def test_few_steps_lower_every_loss_of_a_batch() -> None:
    tokenizer, model = build(), judge.new_judge(build(), seed=0)
    tools = judge.optimizers(model, Recipe(tokens=512, minutes=1, matrix_rate=0.006, rate=3e-3))
    batch = states.forest(states.make_rows(tokenizer, [states.countdown_state(0, i) for i in range(3)]), 0)
    first = judge.losses(model, batch)
    for _ in range(8):
        judge.total(judge.losses(model, batch)).backward()
        for tool in tools:
            tool.step()
            tool.zero_grad(set_to_none=True)
    last = judge.losses(model, batch)
    assert all(last[name] < first[name] for name in ("label", "hint", "speech"))


def test_calibration_finds_the_scale_and_the_shift_of_readings() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=20_000)
    labels = rng.random(20_000) < 1 / (1 + np.exp(-(0.5 * logits - 1)))
    scale, shift, before, after = calibrate.fit_scale(
        (1 / (1 + np.exp(-logits))).tolist(), labels.astype(float).tolist()
    )
    assert scale == pytest.approx(0.5, abs=0.06)
    assert shift == pytest.approx(-1, abs=0.06)
    assert after < before
