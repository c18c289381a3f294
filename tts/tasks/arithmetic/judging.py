"""Judgement of solutions line by line.

Each line is judged given the lines before it, so an error counts once, where it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tts.tasks.arithmetic.countdown import CountdownProblem
from tts.tasks.arithmetic.expression import Expression, Step, apply, steps
from tts.tasks.arithmetic.lines import read_answer, read_step


def judge(expression: Expression, lines: Sequence[str]) -> list[bool]:
    """Return whether each line of a solution is right.

    Line number k is compared with step number k of the worked solution. The operands of that step are the results
    *written* in earlier lines, so a line that follows from an error is right again. After a line that is no step, the
    result of the expected step is used. The answer line is right if every step has its line and the answer repeats the
    last result. Lines beyond the last step, and after the answer line, are wrong. A missing line has no verdict.

    Args:
        expression: The expression of the problem.
        lines: The lines of a solution, with or without their newlines, whole or cut short.
    """
    step_lines, answer, num_later_lines = _part(lines)
    verdicts: list[bool] = []
    value = _follow(expression, iter(step_lines), verdicts)
    verdicts += [False] * (len(step_lines) - len(verdicts))
    if answer is not None:
        is_complete = len(step_lines) == len(steps(expression))
        verdicts.append(is_complete and answer == value)
    return verdicts + [False] * num_later_lines


def judge_countdown(problem: CountdownProblem, lines: Sequence[str]) -> list[bool]:
    """Return whether each line of a countdown's solution is right.

    A step is right if both its operands are available and its result is right. Available are the numbers and results
    that no earlier step has used. A step uses up its operands that are available, and adds its result as written. The
    answer line is right if it states the target, and the target is the only number that remains. Lines that are no
    step, and lines after the answer line, are wrong.
    """
    step_lines, answer, num_later_lines = _part(lines)
    available = Counter(problem.numbers)
    verdicts: list[bool] = []
    for line in step_lines:
        step = read_step(line)
        if step is None:
            verdicts.append(False)
            continue
        has_operands = _use_operands(available, step)
        verdicts.append(has_operands and step.result == apply(step.operator, step.left, step.right))
        available[step.result] += 1
    if answer is not None:
        verdicts.append(answer == problem.target and list(available.elements()) == [answer])
    return verdicts + [False] * num_later_lines


def _part(lines: Sequence[str]) -> tuple[Sequence[str], int | None, int]:
    """Return the lines before the first answer line, its answer, and the number of lines after it.

    The answer is None where there is no answer line.
    """
    for k, line in enumerate(lines):
        answer = read_answer(line)
        if answer is not None:
            return lines[:k], answer, len(lines) - k - 1
    return lines, None, 0


def _follow(part: Expression, lines: Iterator[str], verdicts: list[bool]) -> int:
    """Append a verdict for each operation of an expression that has a line; return the value as the lines write it."""
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
    """Remove a step's operands from the available numbers; return whether both were available."""
    num_available = 0
    for number in (step.left, step.right):
        if available[number] > 0:
            available[number] -= 1
            num_available += 1
    return num_available == 2
