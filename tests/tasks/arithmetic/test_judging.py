from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.expression import Expression, Operation, Step, parse, steps, value
from tts.tasks.arithmetic.generator import Difficulty, Drawn, draw
from tts.tasks.arithmetic.judging import judge, judge_countdown
from tts.tasks.arithmetic.lines import read_answer, read_step, solution

EXPRESSION = parse("(1 + 2) * 3 - 4 * (5 - 6)")
RIGHT = ["1 + 2 = 3\n", "3 * 3 = 9\n", "5 - 6 = -1\n", "4 * -1 = -4\n", "9 - -4 = 13\n", "A: 13\n"]
DRAWN = [
    draw(Difficulty(operations=count, worded=worded), "train", 2, i)
    for count in (1, 3, 6, 10)
    for worded in (False, True)
    for i in range(5)
]


def as_worked(expression: Expression, lines: Sequence[str]) -> list[bool]:
    """Return, of each line, whether the solution up to its end is the worked solution, word for word."""
    reference = solution(steps(expression), value(expression))
    verdicts: list[bool] = []
    for k, line in enumerate(lines):
        same = k < len(reference) and line.removesuffix("\n") == reference[k].removesuffix("\n")
        verdicts.append(same and all(verdicts[-1:]))
    return verdicts


def written_with(expression: Expression, errors: Mapping[int, int]) -> list[str]:
    """Return a solution in which result number k is off by errors[k], and everything behind it follows faithfully."""
    rest, lines = expression, []
    while isinstance(rest, Operation):
        step = steps(rest)[0]
        result = step.result + errors.get(len(lines), 0)
        lines.append(f"{Step(step.left, step.operator, step.right, result)}\n")
        rest = reduced(rest, result)
    return [*lines, f"A: {rest}\n"]


def reduced(rest: Operation, result: int) -> Expression:
    """Return an expression with a result in place of the operation that is worked out first."""
    if isinstance(rest.left, Operation):
        return Operation(rest.operator, reduced(rest.left, result), rest.right)
    if isinstance(rest.right, Operation):
        return Operation(rest.operator, rest.left, reduced(rest.right, result))
    return result


def test_a_worked_solution_is_right_in_every_line():
    assert judge(EXPRESSION, RIGHT) == [True] * 6
    assert as_worked(EXPRESSION, RIGHT) == [True] * 6
    assert solution(steps(EXPRESSION), value(EXPRESSION)) == RIGHT
    for drawn in DRAWN:
        lines = solution(drawn.steps, drawn.answer)
        assert judge(drawn.expression, lines) == as_worked(drawn.expression, lines) == [True] * len(lines)


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: str(drawn.difficulty))
def test_an_error_counts_where_it_is_made_and_nowhere_else(drawn: Drawn):
    count = drawn.difficulty.operations
    for errors in ({0: 1}, {count - 1: -10}, {count // 2: 7, 0: -1}):
        lines = written_with(drawn.expression, errors)
        assert judge(drawn.expression, lines) == [k not in errors for k in range(count)] + [True]
        first = min(errors)
        assert as_worked(drawn.expression, lines)[: first + 1] == [True] * first + [False]
        assert not any(as_worked(drawn.expression, lines)[first:])


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        # what does not use the wrong result goes on right; what does not follow it is wrong
        ({1: "3 * 3 = 6\n"}, "TFTTFT"),
        ({1: "3 + 3 = 6\n", 4: "6 - -4 = 10\n", 5: "A: 10\n"}, "TFTTTT"),  # another operation than the next
        ({1: "4 * 3 = 12\n", 4: "12 - -4 = 16\n", 5: "A: 16\n"}, "TFTTTT"),  # another operand, rightly worked out
        ({0: "2 + 1 = 3\n"}, "FTTTTT"),  # turned round
        ({1: "three times three\n"}, "TFTTTT"),  # no step: what it should have come to stands
        ({1: "\n"}, "TFTTTT"),
        ({1: "3 * 3 =\n"}, "TFTTTT"),
        ({1: "3 * 3 = 9 = 9\n"}, "TFTTTT"),
        ({1: "3*3=9"}, "TTTTTT"),  # spaces are no matter
        ({5: "A: 12\n"}, "TTTTTF"),
        ({5: "A: -13\n"}, "TTTTTF"),
        ({5: "A: thirteen\n"}, "TTTTTF"),
        ({4: "9 - -4 = 5\n", 5: "A: 5\n"}, "TTTTFT"),  # the answer repeats the last result
        ({4: "9 - -4 = 5\n"}, "TTTTFF"),  # the answer is right, but not what was worked out
        ({2: "A: 13\n"}, "TTFFFF"),  # the answer too early ends it
        ({4: "9 - -4 = " + "1" * 5000}, "TTTTFT"),
    ],
)
def test_changed_lines(changes: dict[int, str], verdicts: str):
    lines = [changes.get(k, line) for k, line in enumerate(RIGHT)]
    assert "".join("T" if right else "F" for right in judge(EXPRESSION, lines)) == verdicts


def test_missing_lines_have_no_verdict_and_no_answer_is_right_without_them():
    for count in range(7):
        assert judge(EXPRESSION, RIGHT[:count]) == [True] * count
    for missing in range(5):
        lines = RIGHT[:missing] + RIGHT[missing + 1 :]
        assert judge(EXPRESSION, lines)[: missing + 1] == [True] * missing + [False]
        assert judge(EXPRESSION, lines)[-1] is False


def test_surplus_lines_are_wrong():
    assert judge(EXPRESSION, [*RIGHT, "13 + 1 = 14\n", "A: 14\n"]) == [True] * 6 + [False] * 2
    assert judge(EXPRESSION, [*RIGHT[:5], "13 + 0 = 13\n", "A: 13\n"]) == [True] * 5 + [False] * 2
    assert judge(EXPRESSION, [*RIGHT, RIGHT[-1]]) == [True] * 6 + [False]


def test_only_the_words_of_the_worked_solution_are_it():
    assert as_worked(EXPRESSION, ["1+2=3\n", *RIGHT[1:]]) == [False] * 6
    assert as_worked(EXPRESSION, [*RIGHT, "A: 13\n"]) == [True] * 6 + [False]
    assert as_worked(EXPRESSION, []) == []


def test_steps_and_answers_are_read_from_lines():
    assert read_step("3 - -4 = 7\n") == Step(3, "-", -4, 7)
    assert read_step("3 / 4 = 0\n") is None
    assert read_answer("A: -7\n") == -7
    assert read_answer("A: 3 + 4\n") is None
    for line in (f"1 + {'9' * 19} = 3", f"A: {'9' * 5000}"):
        assert read_step(line) is None
        assert read_answer(line) is None


PROBLEM = countdown.CountdownProblem(36, (3, 5, 7))


@pytest.mark.parametrize(
    ("lines", "verdicts"),
    [
        (["5 + 7 = 12", "12 * 3 = 36", "A: 36"], "TTT"),
        (["7 + 5 = 12\n", "3 * 12 = 36\n", "A: 36\n"], "TTT"),
        (["5 + 7 = 13", "13 * 3 = 39", "A: 39"], "FTF"),  # faithful, but not the target
        (["5 + 7 = 12", "12 * 3 = 35", "A: 36"], "TFF"),
        (["5 + 7 = 12", "12 * 3 = 36", "A: 35"], "TTF"),
        (["5 + 7 = 12", "5 * 7 = 35", "A: 35"], "TFF"),  # both were used up
        (["5 + 5 = 10", "7 * 3 = 21", "A: 21"], "FTF"),  # five is there once
        (["7 - 5 = 2", "A: 2"], "TF"),
        (["5 + 7 = 12", "12 * 3 = 36"], "TT"),
        (["five and seven", "5 + 7 = 12", "12 * 3 = 36", "A: 36"], "FTTT"),
        (["5 + 7 = 12", "12 * 3 = 36", "A: 36", "A: 36"], "TTTF"),
        (["4 * 9 = 36", "A: 36"], "FF"),
        ([], ""),
    ],
)
def test_countdowns_are_judged_by_what_is_left_of_their_numbers(lines: list[str], verdicts: str):
    assert "".join("T" if right else "F" for right in judge_countdown(PROBLEM, lines)) == verdicts


def test_a_result_like_a_number_is_there_beside_it():
    twice = countdown.CountdownProblem(64, (3, 5, 8))
    assert judge_countdown(twice, ["3 + 5 = 8", "8 * 8 = 64", "A: 64"]) == [True] * 3
    assert judge_countdown(twice, ["3 + 5 = 8", "8 * 8 = 64", "8 + 64 = 72", "A: 72"]) == [True, True, False, False]


def test_known_solutions_of_countdowns_are_right():
    for count in (2, 3, 4, 6):
        for index in range(20):
            problem = countdown.draw(count, "train", 1, index)
            assert all(judge_countdown(problem, solution(problem.steps, problem.target)))
