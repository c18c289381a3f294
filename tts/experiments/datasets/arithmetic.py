"""Arithmetic problems of a given difficulty, plain or worded.

The problems are fixed samples of the series in `tts/tasks/arithmetic/generator.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts.experiments.datasets import DataSet
from tts.experiments.datasets.drawing import choices, draw_in_turn
from tts.randomness import hash64
from tts.tasks.arithmetic.expression import text
from tts.tasks.arithmetic.generator import MOST_OPERATIONS, SPLITS, Difficulty, Split, draw
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
    """Return problems of every combination of the named difficulties, equally many of each.

    Args:
        limit: The number of problems, at least 1. A smaller limit gives the first problems of a larger one.
        split: "train", "validation" or "test". No expression is in two splits, with whatever seed.
        seed: A number from 0 to 2**64 - 1. Another seed draws other problems of the same split.
        operations: Numbers of operations, one or several, as in `Difficulty`.
        digits: Sizes of operands, one or several, as in `Difficulty`.
        worded: Whether problems are told as stories, one value or both.
        operators: The operators that problems may have, of "+-*".
        parentheses: Whether problems may have parentheses.

    Returns:
        Problems of the task "pocket". Their ids name split, difficulty and a hash of the expression, so that a problem
        has one id whatever the seed. `metadata` has operations, digits, worded, and the expression as identity.

    Raises:
        ConfigError: a value is not valid, or there are fewer different problems than `limit`.
    """
    cells = [
        Difficulty(operations=count, digits=size, operators=operators, parentheses=parentheses, worded=is_worded)
        for is_worded in choices("worded", worded)
        for size in choices("digits", digits)
        for count in choices("operations", operations)
    ]

    def problem(difficulty: Difficulty, index: int) -> Problem:
        drawn = draw(difficulty, split, seed, index)
        expression_text = text(drawn.expression)
        return Problem(
            prompt=drawn.text,
            answer=str(drawn.answer),
            id=f"arithmetic/{split}/{difficulty}/{hash64(expression_text):016x}",
            task="pocket",
            metadata={
                "operations": difficulty.operations,
                "digits": difficulty.digits,
                "worded": difficulty.worded,
                "identity": expression_text,
            },
        )

    return draw_in_turn(cells, limit, problem, seed=seed)


DATASET = DataSet(load=load, source="generated here, without end", licence="Apache-2.0", splits=SPLITS)
