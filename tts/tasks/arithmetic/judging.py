"""Judgement of solutions line by line.

Each line is given those before it, so an error counts once, where it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tts.tasks.arithmetic.countdown import CountdownProblem
from tts.tasks.arithmetic.expression import Expression, Step, apply, steps
from tts.tasks.arithmetic.lines import read_answer, read_step


def judge(expression: Expression, lines: Sequence[str]) -> list[bool]:
    """Return whether each line of a solution is right.

    Line number k is compared with step number k of the worked solution, computed from the results that were *written*
    before it. It is right if it is that step and its result is right; so a line that follows from an error is right
    again. After a line that is no step, the result of the expected step is used. The answer line is right if every step
    has its line and it repeats the last result. Lines beyond the last step, and after the answer line, are wrong. A
    missing line has no verdict.

    Args:
        expression: What the problem asks for.
        lines: The lines of a solution, with or without their newlines, whole or cut short.
    """
    step_lines, answer, num_later = _part(lines)
    verdicts: list[bool] = []
    value = _follow(expression, iter(step_lines), verdicts)
    verdicts += [False] * (len(step_lines) - len(verdicts))
    if answer is not None:
        complete = len(step_lines) == len(steps(expression))
        verdicts.append(complete and answer == value)
    return verdicts + [False] * num_later


def judge_countdown(problem: CountdownProblem, lines: Sequence[str]) -> list[bool]:
    """Return whether each line of a countdown's solution is right.

    A step is right if both its operands are there, as numbers or results that no step has used yet, and its result is
    right. It uses up what is there of its operands and leaves the result as written. The answer line is right if one
    number is left, and it is the target and the number written. Lines that are no step, and lines after the answer
    line, are wrong.
    """
    step_lines, answer, num_later = _part(lines)
    available = Counter(problem.numbers)
    verdicts: list[bool] = []
    for line in step_lines:
        step = read_step(line)
        verdicts.append(
            step is not None
            and _use_operands(available, step)
            and step.result == apply(step.operator, step.left, step.right)
        )
        if step is not None:
            available[step.result] += 1
    if answer is not None:
        verdicts.append(answer == problem.target and list(available.elements()) == [answer])
    return verdicts + [False] * num_later


def _part(lines: Sequence[str]) -> tuple[Sequence[str], int | None, int]:
    """Return the lines before the first answer line, what that states (None: there is none), and the number of lines
    after it.
    """
    for k, line in enumerate(lines):
        if (answer := read_answer(line)) is not None:
            return lines[:k], answer, len(lines) - k - 1
    return lines, None, 0


def _follow(part: Expression, lines: Iterator[str], verdicts: list[bool]) -> int:
    """Append the verdict of a line for each operation of a part, as far as there are lines; return the value of the
    part as written.
    """
    if isinstance(part, int):
        return part
    left, right = _follow(part.left, lines, verdicts), _follow(part.right, lines, verdicts)
    expected = Step(left, part.operator, right, apply(part.operator, left, right))
    line = next(lines, None)
    if line is None:
        return expected.result
    step = read_step(line)
    verdicts.append(step == expected)
    return expected.result if step is None else step.result


def _use_operands(available: Counter[int], step: Step) -> bool:
    """Take a step's operands out of what is there, as far as they are; return whether both were."""
    num_taken = 0
    for number in (step.left, step.right):
        if available[number] > 0:
            available[number] -= 1
            num_taken += 1
    return num_taken == 2
