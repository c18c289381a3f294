"""Worked solutions with slips in them: from these the policy learns to notice errors, before it has made any of its own.

A slip is a wrong result, or a wrong operand, that later lines carry on. Every token says whether it is to be written (a slip is not) and
whether the solution is still right there, so a model can learn both from one reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tts.models.pocket.train.examples import Asked, Piece
from tts.tasks.arithmetic.expression import Expression, Step, apply, numbers
from tts.tasks.arithmetic.generator import held_out
from tts.tasks.arithmetic.lines import solution
from tts.tasks.arithmetic.reading import read

_STRAY = 0.25  # share of slips that are a wrong operand; the others are a wrong result


@dataclass(frozen=True)
class Line:
    """A line as it was written, and as it should have been written behind what stands before it."""

    written: str
    wanted: str


def careless(problem: Asked, rng: np.random.Generator, slips: float) -> list[Line]:
    """Return a problem's worked solution as a careless hand writes it.

    Args:
        slips: how many are made, on average.
    """
    while True:
        drawn = _written(read(problem.prompt).expression, rng, slips)
        if drawn is not None:
            return drawn


def _written(expression: Expression, rng: np.random.Generator, slips: float) -> list[Line] | None:
    """Return the lines; None where one of them has a pair of operands that is held out of training."""
    given = list(numbers(expression))
    rate = min(0.5, slips / (len(given) - 1))
    lines, last, banned = list[Line](), [0], [False]

    def work(part: Expression) -> int:
        if isinstance(part, int):
            return part
        left, right = work(part.left), work(part.right)
        wanted = Step(left, part.operator, right, apply(part.operator, left, right))
        written = wanted
        if rng.random() < rate:
            written = _stray(wanted, given, rng) if rng.random() < _STRAY else _missed(wanted, rng)
        lines.append(Line(f"{written}\n", f"{wanted}\n"))
        last[0] = written.result
        banned[0] |= held_out(wanted) or held_out(written)
        return written.result

    work(expression)
    (answer,) = solution([], last[0])
    return None if banned[0] else [*lines, Line(answer, answer)]


def pieces(lines: list[Line]) -> Iterator[Piece]:
    """Return lines as pieces: what is to be written up to where a line goes wrong; right up to the first slip, wrong from there on."""
    right = True
    for line in lines:
        if line.written == line.wanted:
            yield Piece(line.written, written=True, right=right)
            continue
        same = _common(line.written, line.wanted)
        yield Piece(same, written=True, right=right)
        right = False
        yield Piece(line.written[len(same) :], right=right)


def _common(one: str, other: str) -> str:
    """Return the longest beginning that two texts share."""
    return one[: next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))]


def _stray(step: Step, given: list[int], rng: np.random.Generator) -> Step:
    """Return a step with another number of the problem in place of an operand."""
    other = given[int(rng.integers(len(given)))]
    left, right = (other, step.right) if rng.random() < 0.5 else (step.left, other)
    return Step(left, step.operator, right, apply(step.operator, left, right))


def _missed(step: Step, rng: np.random.Generator) -> Step:
    """Return a step with a wrong result that looks like the right one: a unit, ten or hundred off, any other digit, or its sign."""
    size = len(str(abs(step.result)))
    off = int(rng.integers(1, 10)) if rng.random() < 0.4 else int(rng.choice([1, 2]))
    off *= 10 ** int(rng.integers(size)) * (1 if rng.random() < 0.5 else -1)
    wrong = -step.result if step.result and rng.random() < 0.08 else step.result + off
    return Step(step.left, step.operator, step.right, wrong)
