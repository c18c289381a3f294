"""Arithmetic problems of a given difficulty, plain or worded.

They are fixed samples of the series in `tts/tasks/arithmetic/generator.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts.experiments.datasets import DataSet
from tts.experiments.datasets.drawing import choices, draw_in_turn
from tts.randomness import hash64
from tts.tasks.arithmetic.expression import text
from tts.tasks.arithmetic.generator import MOST_OPERATIONS, Difficulty, Split, draw
from tts.types import Problem


def load(
    *,
    limit: int = 200,
    split: Split = "test",
    seed: int = 0,
    operations: int | Sequence[int] = tuple(range(1, MOST_OPERATIONS + 1)),
    digits: int | Sequence[int] = 2,
    worded: bool | Sequence[bool] = False,
    operators: str = "+-*",
    parentheses: bool = True,
) -> list[Problem]:
    """Return problems of every combination of the difficulties named, as many of each as of the others.

    Args:
        limit: Problems in all, at least 1; a smaller limit gives the first of them.
        split: "train", "validation" or "test"; no expression is in two of them, with whatever seed.
        seed: 0 to 2**64 - 1; another one draws other problems of the same split.
        operations: Numbers of operations, one or several, as in `Difficulty`.
        digits: Sizes of operands, one or several, as in `Difficulty`.
        worded: Whether they are told as stories, one value or both.
        operators: The operators that there may be in all problems, of "+-*".
        parentheses: Whether there may be parentheses in all problems.

    Returns:
        Problems of the task "pocket". Their ids name split, difficulty and a hash of the expression, so one problem has
        one id whatever the seed; `metadata` has operations, digits, worded, and as identity the expression.

    Raises:
        ConfigError: a value is not valid, or there are not so many different problems.
    """
    cells = [
        Difficulty(operations=count, digits=size, operators=operators, parentheses=parentheses, worded=told)
        for told in choices("worded", worded)
        for size in choices("digits", digits)
        for count in choices("operations", operations)
    ]

    def problem(difficulty: Difficulty, index: int) -> Problem:
        drawn = draw(difficulty, split, seed, index)
        asked = text(drawn.expression)
        return Problem(
            prompt=drawn.text,
            answer=str(drawn.answer),
            id=f"arithmetic/{split}/{difficulty}/{hash64(asked):016x}",
            task="pocket",
            metadata={
                "operations": difficulty.operations,
                "digits": difficulty.digits,
                "worded": difficulty.worded,
                "identity": asked,
            },
        )

    return draw_in_turn(cells, limit, problem, seed=seed)


DATASET = DataSet(load=load, source="generated here, without end", licence="Apache-2.0")
