"""Solutions with slips, made up or the policy's own: examples of errors that models learn to notice.

A slip is a line that is not what should follow the lines before it. A later line that faithfully carries on a slip is
none. Every token says whether it is to be written (a slip is not), and whether the solution is still right there. So a
model can learn both from one reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from research.pocket.train.examples import Asked, Example, Piece
from tts.tasks.arithmetic.expression import Expression, Step, apply, numbers
from tts.tasks.arithmetic.generator import held_out
from tts.tasks.arithmetic.lines import STEP_STOP, read_step, solution
from tts.tasks.arithmetic.reading import read
from tts.tasks.base import split_after

_STRAY = 0.25  # share of slips that are a wrong operand; the others are a wrong result


@dataclass(frozen=True)
class Line:
    """A line.

    Args:
        written: The line as it was written.
        wanted: The line that should follow the lines before it.
    """

    written: str
    wanted: str


def careless_lines(problem: Asked, rng: np.random.Generator, slips: float) -> list[Line]:
    """Return a problem's worked solution with random slips.

    Lines that follow from a slip may leave the family's range.

    Args:
        problem: The problem.
        rng: The generator.
        slips: The number of slips, on average.
    """
    while True:
        drawn = _write(read(problem.prompt).expression, rng, slips)
        if drawn is not None:
            return drawn


def _write(expression: Expression, rng: np.random.Generator, slips: float) -> list[Line] | None:
    """Return the lines; None: a line has a pair of operands that is held out of training."""
    operands = list(numbers(expression))
    rate = min(0.5, slips / (len(operands) - 1))
    lines, last, banned = list[Line](), [0], [False]

    def work(part: Expression) -> int:
        if isinstance(part, int):
            return part
        left, right = work(part.left), work(part.right)
        wanted = Step(left, part.operator, right, apply(part.operator, left, right))
        written = wanted
        if rng.random() < rate:
            written = _stray_step(wanted, operands, rng) if rng.random() < _STRAY else _miss_result(wanted, rng)
        lines.append(Line(f"{written}\n", f"{wanted}\n"))
        last[0] = written.result
        banned[0] |= held_out(wanted) or held_out(written)
        return written.result

    work(expression)
    (answer,) = solution([], last[0])
    return None if banned[0] else [*lines, Line(answer, answer)]


def solution_pieces(problem: Asked, text: str) -> Example:
    """Return a problem with a solution of the policy's, in pieces.

    Solutions of a countdown, which has many, are not judged.
    """
    if problem.task != "pocket":
        return Piece(problem.prompt), Piece(text)
    return Piece(problem.prompt), *pieces(follow_lines(read(problem.prompt).expression, split_after(text, STEP_STOP)))


def follow_lines(expression: Expression, written: Sequence[str]) -> list[Line]:
    """Return the lines of a solution, each with the line that should follow the written lines before it."""
    rest, lines = iter(written), list[Line]()

    def follow(part: Expression) -> int:
        if isinstance(part, int):
            return part
        left, right = follow(part.left), follow(part.right)
        wanted = Step(left, part.operator, right, apply(part.operator, left, right))
        line = next(rest, None)
        if line is None:
            return wanted.result
        lines.append(Line(line, f"{wanted}\n"))
        step = read_step(line)
        return wanted.result if step is None else step.result

    (answer,) = solution([], follow(expression))
    return [*lines, *(Line(line, answer if i == 0 else "") for i, line in enumerate(rest))]


def pieces(lines: list[Line]) -> Iterator[Piece]:
    """Return lines as pieces.

    A line is to be written up to where it goes wrong. Pieces are right up to the first slip, and wrong from there on.
    """
    right = True
    for line in lines:
        if line.written == line.wanted:
            yield Piece(line.written, written=True, right=right)
            continue
        same = _common_beginning(line.written, line.wanted)
        if same:
            yield Piece(same, written=True, right=right)
        if same == line.written:  # cut short
            return
        right = False
        yield Piece(line.written[len(same) :], right=right)


def _common_beginning(one: str, other: str) -> str:
    """Return the longest beginning that two texts share, in whole tokens.

    The space before an operator belongs to the operator's token.
    """
    same = one[
        : next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    ]
    return same[:-1] if same.endswith(" ") and same[-2:-1] not in "-+*=:" else same


def _stray_step(step: Step, given: list[int], rng: np.random.Generator) -> Step:
    """Return a step with a number of the problem in place of an operand.

    If the number is the operand itself, nothing slipped.
    """
    other = given[int(rng.integers(len(given)))]
    left, right = (other, step.right) if rng.random() < 0.5 else (step.left, other)
    return Step(left, step.operator, right, apply(step.operator, left, right))


def _miss_result(step: Step, rng: np.random.Generator) -> Step:
    """Return a step with a wrong result that looks like the right one.

    The result is a unit, ten or hundred off, has another digit, or has the other sign.
    """
    size = len(str(abs(step.result)))
    off = int(rng.integers(1, 10)) if rng.random() < 0.4 else int(rng.choice([1, 2]))
    off *= 10 ** int(rng.integers(size)) * (1 if rng.random() < 0.5 else -1)
    wrong = -step.result if step.result and rng.random() < 0.08 else step.result + off
    return Step(step.left, step.operator, step.right, wrong)
