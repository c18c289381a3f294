"""Solutions whose every line is known to be right or wrong: what the process model learns before it learns values.

Values say little of a single line: four problems of five are either nearly always or nearly never solved, whatever one sample of them
did. Trained on values alone the process model told easy problems from hard ones, and not right lines from wrong ones (measured: an AUC
of 0.93 over all samples, of 0.48 among those of one problem). So it first learns to check lines, from the policy's own samples and from
worked solutions of new problems with slips in them; the worked solution says which prefix is right. Values come after.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts.models.pocket.train.examples import Asked, asked
from tts.models.pocket.train.rollouts import Valued
from tts.models.pocket.train.self_eval import Solved
from tts.randomness import generator
from tts.tasks.arithmetic.expression import Expression, Step, apply, numbers
from tts.tasks.arithmetic.judging import as_worked
from tts.tasks.arithmetic.lines import solution
from tts.tasks.arithmetic.reading import read
from tts.tasks.base import split_at

_FIRST_INDEX = 30_000_000  # of problems, beyond those of the other stages
_SLIP = 0.12  # share of slipped lines: a wrong result
_STRAY = 0.04  # share of lines with a wrong operand


def judged(solved: Sequence[Solved], rng: np.random.Generator) -> Valued:
    """Return a sample of the policy's, each line worth 1 where the prefix is that of the worked solution, else 0.

    Of a countdown, which has many solutions, every line is worth what the sample came to: a continuation of its prefix, drawn once.
    """
    while True:
        one = solved[int(rng.integers(len(solved)))]
        i = int(rng.integers(len(one.solutions)))
        lines = split_at(one.solutions[i], ("\n",))
        if not lines or not lines[-1].endswith("\n"):
            continue
        if one.problem.task == "countdown":
            return Valued(one.problem, one.solutions[i], (float(one.right[i]),) * len(lines))
        right = as_worked(read(one.problem.prompt).expression, [line.rstrip("\n") for line in lines])
        return Valued(one.problem, one.solutions[i], tuple(map(float, right)))


def slipped(seed: int, index: int) -> Valued:
    """Return a new problem's worked solution with slips in it, which later lines carry on; lines are worth 1 up to the first."""
    rng = generator(seed, 0, "slips", index)
    problem = _expression_problem(seed, index)
    expression = read(problem.prompt).expression
    found, first = _with_slips(expression, rng)
    written = "".join(solution(found, found[-1].result))
    return Valued(problem, written, tuple(float(i < first) for i in range(len(found) + 1)))


def _expression_problem(seed: int, index: int) -> Asked:
    problem = asked(seed, _FIRST_INDEX + index)
    return problem if problem.task == "pocket" else _expression_problem(seed, index + 10_000_000)


def _with_slips(expression: Expression, rng: np.random.Generator) -> tuple[list[Step], int]:
    """Return the steps as a careless hand writes them, and the number of the first wrong one (that behind the last where all are right)."""
    given, found, wrong = list(numbers(expression)), list[Step](), list[int]()

    def work(part: Expression) -> int:
        if isinstance(part, int):
            return part
        left, right = work(part.left), work(part.right)
        chance = rng.random()
        if chance < _STRAY:
            stray = given[int(rng.integers(len(given)))]
            wrong.extend([len(found)] if stray != left else [])
            left = stray
        result = apply(part.operator, left, right)
        if chance > 1 - _SLIP:
            wrong.append(len(found))
            result = _missed(result, rng)
        found.append(Step(left, part.operator, right, result))
        return result

    work(expression)
    return found, min(wrong, default=len(found) + 1)


def _missed(result: int, rng: np.random.Generator) -> int:
    """Return a wrong result that looks like the right one: a unit, ten or hundred off, or its sign."""
    off = int(rng.choice([1, 2, 3, 10, 20, 100], p=[0.35, 0.1, 0.05, 0.35, 0.05, 0.1])) * (1 if rng.random() < 0.5 else -1)
    return -result if result and rng.random() < 0.08 else result + off
