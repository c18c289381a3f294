from __future__ import annotations

import pytest

from tts.errors import ConfigError
from tts.tasks.arithmetic.countdown import CountdownProblem, compose, draw, may_have, read, split_of
from tts.tasks.arithmetic.expression import Step, numbers, parse, steps, text, value
from tts.tasks.arithmetic.generator import Split
from tts.tasks.arithmetic.lines import read_step


def stepped(*lines: str) -> list[Step]:
    found = [read_step(line) for line in lines]
    assert None not in found
    return found  # type: ignore[return-value]


def composed_text(*lines: str) -> str | None:
    found = compose(stepped(*lines))
    return None if found is None else text(found)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_a_drawn_countdown_is_solved_by_its_solution_and_keeps_its_bounds(count: int):
    for split, draws in (("train", 40), ("test", 4)):
        for index in range(draws):
            problem = draw(count, split, 2, index)
            assert problem.solution is not None
            assert sorted(numbers(problem.solution)) == sorted(problem.numbers)
            assert len(problem.numbers) == count
            assert all(1 <= number <= 25 for number in problem.numbers)
            assert value(problem.solution) == problem.target
            assert all(1 <= step.result <= 99 and may_have(step) for step in problem.steps)
            assert split_of(problem) == split
            again = read(problem.text)
            assert again == CountdownProblem(problem.target, problem.numbers)
            assert again.steps == []


@pytest.mark.slow
def test_no_target_with_the_same_numbers_is_in_two_splits():
    seen = {split: set[str]() for split in ("train", "validation", "test")}
    for split, count in (("train", 1500), ("validation", 300), ("test", 300)):
        for index in range(count):
            problem = draw(2, split, 9, index)
            seen[split].add(f"{problem.target} {sorted(problem.numbers)}")
    assert not seen["train"] & seen["validation"]
    assert not (seen["train"] | seen["validation"]) & seen["test"]
    assert split_of(CountdownProblem(9, (1, 3, 5))) == split_of(CountdownProblem(9, (5, 1, 3)))


def test_a_draw_is_the_same_whatever_else_is_drawn():
    forwards = [draw(3, "train", 4, index) for index in range(5)]
    assert forwards == [draw(3, "train", 4, index) for index in (4, 3, 2, 1, 0)][::-1]
    assert len({problem.text for problem in forwards}) == 5


@pytest.mark.parametrize(
    ("count", "split", "seed", "index", "asked"),
    [
        (3, "train", 0, 0, "Reach 15 with 3 1 12."),
        (2, "test", 1, 5, "Reach 23 with 18 5."),
        (6, "validation", 9, 1, "Reach 54 with 9 1 10 9 18 7."),
    ],
)
def test_the_series_are_the_same_in_every_version(count: int, split: Split, seed: int, index: int, asked: str):
    assert draw(count, split, seed, index).text == asked


@pytest.mark.parametrize(
    ("count", "split", "message"),
    [(1, "test", "count is 1, but"), (7, "test", "2 to 6"), (3, "tests", "did you mean test")],
)
def test_unknown_countdowns_are_refused(count: int, split: Split, message: str):
    with pytest.raises(ConfigError, match=message):
        draw(count, split, 0, 0)


@pytest.mark.parametrize(
    "written",
    [
        "Reach 36 with 3 5 7.",
        "reach 36 with 3, 5, 7",
        "  Reach 36\nwith 3 5   7 .",
        "Make 36 from 3 5 7",
        "get 36 using the numbers 3, 5 and 7!",
        "Use 3, 5 and 7 to make 36.",
        "Using only 3, 5, and 7, reach 36",
        "With 3 5 7 make 36.",
        "Please make 36 out of 3 , 5 and 7.",
    ],
)
def test_a_countdown_is_read_however_it_is_asked(written: str):
    problem = read(written)
    assert problem == CountdownProblem(36, (3, 5, 7))
    assert problem.text == "Reach 36 with 3 5 7."


@pytest.mark.parametrize(
    "written",
    [
        "",
        "3 + 5",
        "Reach 36 with 3",
        "Reach 36.",
        "Reach -3 with 3 5",
        "Reach 36 with 3.5 7",
        "Reach 36 with 3/5 7",
        "Make 3 5 7",
        f"Reach 9 with {'1' * 10} 2",
    ],
)
def test_other_texts_are_no_countdown(written: str):
    assert read(written) is None


def test_steps_compose_to_the_expression_that_they_work_out():
    for count in (2, 4, 6):
        for index in range(30):
            problem = draw(count, "train", 8, index)
            found = compose(problem.steps)
            assert found is not None
            assert value(found) == problem.target
            assert sorted(numbers(found)) == sorted(problem.numbers)


def test_steps_compose_however_they_are_ordered():
    assert composed_text("3 * 5 = 15", "15 - 7 = 8") == "3 * 5 - 7"
    assert composed_text("3 * 5 = 15", "20 - 15 = 5") == "20 - 3 * 5"
    assert composed_text("1 + 2 = 3", "4 + 5 = 9", "9 * 3 = 27") == "(4 + 5) * (1 + 2)"


def test_equal_results_are_each_used_once():
    assert composed_text("1 + 4 = 5", "2 + 3 = 5", "5 * 5 = 25") == "(1 + 4) * (2 + 3)"
    assert composed_text("1 + 4 = 5", "2 + 3 = 5", "5 - 5 = 0") == "1 + 4 - (2 + 3)"
    assert composed_text("2 + 3 = 5", "5 * 5 = 25") == "5 * (2 + 3)"  # of two fives, one was given
    assert composed_text("2 + 3 = 5", "5 * 4 = 20", "20 - 5 = 15") == "(2 + 3) * 4 - 5"


def test_a_result_that_is_left_over_composes_nothing():
    assert compose([]) is None
    assert composed_text("1 + 2 = 3", "4 + 5 = 9") is None
    assert composed_text("1 + 2 = 3", "4 + 5 = 9", "9 + 6 = 15") is None


def test_a_wrong_result_composes_to_what_the_numbers_really_come_to():
    found = compose(stepped("3 + 5 = 9", "9 * 4 = 36"))
    assert found == parse("(3 + 5) * 4")
    assert value(found) == 32


def test_what_countdowns_may_have():
    assert may_have(Step(17, "+", 22, 39))
    assert all(may_have(step) for step in steps(parse("9 * 11 - 25")))
    assert not may_have(Step(60, "+", 40, 100))
    assert not may_have(Step(5, "-", 5, 0))
    assert not may_have(Step(17, "+", 22, 40))


def test_a_split_without_countdowns_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tts.tasks.arithmetic.countdown._MOST_DRAWS", 0)
    with pytest.raises(ConfigError, match=r"3.*0 draws"):
        draw(3, "test", 0, 0)
