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
    before, stated, behind = _part(lines)
    verdicts: list[bool] = []
    last = _follow(expression, iter(before), verdicts)
    verdicts += [False] * (len(before) - len(verdicts))
    if stated is not None:
        complete = len(before) == len(steps(expression))
        verdicts.append(complete and stated == last)
    return verdicts + [False] * behind


def judge_countdown(problem: CountdownProblem, lines: Sequence[str]) -> list[bool]:
    """Return whether each line of a countdown's solution is right.

    A step is right if both its operands are there, as numbers or results that no step has used yet, and its result is
    right. It uses up what is there of its operands and leaves the result as written. The answer line is right if one
    number is left, and it is the target and the number written. Lines that are no step, and lines after the answer
    line, are wrong.
    """
    before, stated, behind = _part(lines)
    there = Counter(problem.numbers)
    verdicts: list[bool] = []
    for line in before:
        step = read_step(line)
        verdicts.append(
            step is not None
            and _use_operands(there, step)
            and step.result == apply(step.operator, step.left, step.right)
        )
        if step is not None:
            there[step.result] += 1
    if stated is not None:
        verdicts.append(stated == problem.target and list(there.elements()) == [stated])
    return verdicts + [False] * behind


def _part(lines: Sequence[str]) -> tuple[Sequence[str], int | None, int]:
    """Return the lines before the first answer line, what that states (None: there is none), and the number of lines
    after it.
    """
    for k, line in enumerate(lines):
        if (stated := read_answer(line)) is not None:
            return lines[:k], stated, len(lines) - k - 1
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
    written = read_step(line)
    verdicts.append(written == expected)
    return expected.result if written is None else written.result


def _use_operands(there: Counter[int], step: Step) -> bool:
    """Take a step's operands out of what is there, as far as they are; return whether both were."""
    taken = 0
    for number in (step.left, step.right):
        if there[number] > 0:
            there[number] -= 1
            taken += 1
    return taken == 2
