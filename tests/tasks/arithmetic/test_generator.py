from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

import tts.tasks.arithmetic.generator
from tests.support.repeats import repeats
from tts.errors import ConfigError
from tts.tasks.arithmetic.expression import Expression, numbers, parse, text
from tts.tasks.arithmetic.generator import (
    LARGEST_OPERAND,
    LARGEST_RESULT,
    MOST_OPERATIONS,
    SPLITS,
    Difficulty,
    Drawn,
    Split,
    draw,
    held_out,
    problems,
    split_of,
)
from tts.tasks.arithmetic.worded import read

# A spread of difficulties, each drawn from only a little: the test split of ten operations takes long to draw.
DIFFICULTIES = [
    Difficulty(operations=count, digits=digits, worded=worded)
    for count in (1, 2, 3, 5, 7, 10)
    for digits in (1, 2)
    for worded in (False, True)
] + [
    Difficulty(operations=2, operators="*"),
    Difficulty(operations=2, digits=1, operators="*"),
    Difficulty(operations=5, operators="+-", parentheses=False),
    Difficulty(operations=5, parentheses=False),
    Difficulty(operations=6, operators="-", digits=1),
    Difficulty(operations=4, operators="+", worded=True),
]


def drawn_from(difficulty: Difficulty) -> list[Drawn]:
    return [draw(difficulty, "train", 11, index) for index in range(40)] + [
        draw(difficulty, "test", 11, index) for index in range(3)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("difficulty", DIFFICULTIES, ids=str)
def test_problems_keep_to_what_the_docstring_promises(difficulty: Difficulty):
    for drawn in drawn_from(difficulty):
        assert drawn.difficulty == difficulty
        assert len(drawn.steps) == difficulty.operations
        assert {step.operator for step in drawn.steps} <= set(difficulty.operators)
        assert all(1 <= number <= LARGEST_OPERAND[difficulty.digits] for number in numbers(drawn.expression))
        assert all(abs(step.result) <= LARGEST_RESULT[difficulty.digits] for step in drawn.steps)
        assert all(min(abs(step.left), abs(step.right)) <= 9 for step in drawn.steps if step.operator == "*")
        assert drawn.answer == eval(text(drawn.expression)) == drawn.steps[-1].result
        if not difficulty.parentheses:
            assert "(" not in drawn.text


@pytest.mark.slow
@pytest.mark.parametrize("difficulty", DIFFICULTIES, ids=str)
def test_what_is_asked_is_read_back(difficulty: Difficulty):
    for drawn in drawn_from(difficulty):
        if difficulty.worded:
            story = read(drawn.text)
            assert story is not None
            assert story.expression() == drawn.expression
            assert left_behind_each_event(drawn)
        else:
            assert parse(drawn.text) == drawn.expression


def left_behind_each_event(drawn: Drawn) -> bool:
    """Whether nothing in a story is ever less than none: the results on the left spine of its expression are what there
    is.
    """
    part: Expression = drawn.expression
    while not isinstance(part, int):
        if eval(text(part)) < 0:
            return False
        part = part.left
    return True


@pytest.mark.parametrize("part", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_no_expression_is_in_two_splits(part: int):
    """Over thousands of draws, or a fifth of them, from a family so small that each split is seen nearly whole."""
    difficulty, seen = Difficulty(operations=2, digits=1), {}
    for split, count in (("train", 3000 // part), ("validation", 700 // part), ("test", 700 // part)):
        seen[split] = {
            draw(difficulty, split, seed, index).text for seed in (0, 2**64 - 1) for index in range(count // 2)
        }
        assert all(split_of(parse(written)) == split for written in seen[split])
        assert len(seen[split]) > count / 5
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]


def test_stories_and_expressions_share_the_splits():
    for split in SPLITS:
        assert {
            split_of(draw(Difficulty(operations=3, worded=True), split, 0, index).expression) for index in range(30)
        } == {split}


def test_a_split_has_its_share_of_the_expressions():
    places = [split_of(parse(f"{a} + {b} * {c}")) for a in range(1, 31) for b in range(1, 31) for c in range(1, 10)]
    for split, share in (("train", 0.9), ("validation", 0.05), ("test", 0.05)):
        deviation = (share * (1 - share) / len(places)) ** 0.5
        assert abs(places.count(split) / len(places) - share) < 5 * deviation


@pytest.mark.slow
@repeats(60, 300, "count")
def test_pairs_held_out_are_in_no_worked_solution_of_the_training_split(count: int):
    kinds = [Difficulty(operations=count, worded=worded) for count in (2, 5, 10) for worded in (False, True)]
    train = [step for kind in kinds for index in range(count) for step in draw(kind, "train", 3, index).steps]
    assert len(train) > 10_000 * count // 300
    assert not any(map(held_out, train))
    tested = [step for kind in kinds[:4] for index in range(60) for step in draw(kind, "test", 3, index).steps]
    wide = [step for step in tested if max(abs(step.left), abs(step.right)) >= 10]
    share = sum(map(held_out, wide)) / len(wide)
    assert 0.01 < share < 0.1  # one in twenty, of several hundred steps


def test_a_pair_is_held_out_both_ways_round_where_the_order_is_nothing():
    steps = [draw(Difficulty(operations=1), "test", 0, index).steps[0] for index in range(200)]
    for step in steps:
        turned = type(step)(step.right, step.operator, step.left, step.result)
        assert step.operator == "-" or held_out(step) == held_out(turned)


def test_a_draw_is_the_same_whatever_else_is_drawn():
    difficulty = Difficulty(operations=3)
    series = problems(difficulty, "train", 5, start=2)
    forwards = [next(series) for _ in range(5)]
    backwards = [draw(difficulty, "train", 5, index) for index in (6, 5, 4, 3, 2)]
    assert forwards == backwards[::-1]
    assert len({drawn.text for drawn in forwards}) == 5
    other_seeds = [draw(difficulty, "train", 6, index) for index in range(2, 7)]
    assert not {drawn.text for drawn in forwards} & {drawn.text for drawn in other_seeds}


@pytest.mark.parametrize(
    ("difficulty", "split", "seed", "index", "asked"),
    [
        (Difficulty(), "train", 0, 0, "33 - (75 - 12 + (76 + 87))"),
        (Difficulty(operations=1, digits=1), "test", 5, 3, "2 - 2"),
        (Difficulty(operations=6), "validation", 2**63, 7, "(36 - 57 + (95 - 74)) * 95 + (80 - 43)"),
        (Difficulty(operations=4, operators="+-", parentheses=False), "train", 0, 1, "87 + 53 - 6 - 49 - 7"),
        (
            Difficulty(operations=3, worded=True),
            "train",
            1,
            2,
            "Ben has 35 stamps. 28 friends bring 2 stamps each. He loses 47 of them. How many stamps are there now?",
        ),
    ],
)
def test_the_series_are_the_same_in_every_version(
    difficulty: Difficulty, split: Split, seed: int, index: int, asked: str
):
    """Tables of the model pocket are about these problems; whoever changes them must measure again."""
    assert draw(difficulty, split, seed, index).text == asked


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"operations": 0}, f"operations is 0, but must be a whole number from 1 to {MOST_OPERATIONS}"),
        ({"operations": 11}, "operations is 11, but"),
        ({"operations": 2.0}, "operations is 2.0, but"),
        ({"operations": True}, "operations is True, but"),
        ({"operations": "hard"}, "operations is 'hard', but"),
        ({"digits": 3}, "digits is 3, but must be 1 or 2"),
        ({"operators": ""}, "operators is '', but must be a text of some of + - *, each once"),
        ({"operators": "+/"}, "operators is '+/', but"),
        ({"operators": "++"}, "operators is '++', but"),
        ({"operators": 5}, "operators is 5, but"),
        ({"operators": "*-", "worded": True}, "operators is '*-', but a story needs + (hint: add +"),
        (
            {"operators": "*", "operations": 3},
            "operations is 3 with operators '*', but hardly any product of so many numbers is at most 999",
        ),
        ({"operators": "*", "operations": 3, "digits": 1}, "is at most 99 (hint: at most 2, or allow + or -)"),
        ({"worded": "yes"}, "worded is 'yes', but must be True or False"),
        ({"parentheses": 1}, "parentheses is 1, but must be True or False"),
    ],
)
def test_an_unknown_difficulty_is_refused(values: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as failure:
        Difficulty(**values)
    assert message in str(failure.value)


def test_an_unknown_split_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"split.*'testing',.*did.*test"):
        draw(Difficulty(), "testing", 0, 0)  # type: ignore[arg-type]


def test_a_difficulty_without_problems_in_a_split_says_so():
    with mock.patch.object(tts.tasks.arithmetic.generator, "_MOST_DRAWS", 0), pytest.raises(ConfigError) as failure:
        draw(Difficulty(), "train", 0, 0)
    assert "no problem of difficulty plain-2-4 was found in the split train in 0 draws (hint: make it wider)" in str(
        failure.value
    )
