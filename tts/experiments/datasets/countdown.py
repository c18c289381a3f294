"""Countdown problems: fixed samples of the series in `tts/tasks/arithmetic/countdown.py`."""

from __future__ import annotations

from collections.abc import Sequence

from tts.errors import ConfigError
from tts.experiments.datasets import DataSet
from tts.experiments.datasets.drawing import choices, draw_in_turn
from tts.randomness import hash64
from tts.tasks.arithmetic.countdown import FEWEST, MOST, draw
from tts.tasks.arithmetic.expression import text
from tts.tasks.arithmetic.generator import SPLITS, Split
from tts.types import Problem


def load(
    *, limit: int = 200, split: Split = "test", seed: int = 0, numbers: int | Sequence[int] = (2, 3, 4)
) -> list[Problem]:
    """Return countdowns for each count of numbers, equally many of each.

    Args:
        limit: The number of problems, at least 1. A smaller limit gives the first problems of a larger one.
        split: "train", "validation" or "test". No target with the same numbers is in two splits, with whatever seed.
        seed: A number from 0 to 2**64 - 1. Another seed draws other problems of the same split.
        numbers: The count of numbers to reach the target with, one value or several, 2 to 6. The model pocket was
            trained on 2 to 4.

    Returns:
        Problems of the task "countdown", whose answer is an expression that solves them. Their ids name split, count
        of numbers, and a hash of target and numbers. `metadata` has operations (one less than numbers), digits,
        worded, numbers, and as identity the target and the numbers in order.

    Raises:
        ConfigError: a value is not valid, or there are fewer different problems than `limit`.
    """
    counts = choices("numbers", numbers)
    for count in counts:
        if type(count) is not int or not FEWEST <= count <= MOST:
            raise ConfigError(f"numbers is {count!r}, but must be a whole number from {FEWEST} to {MOST}, or several")

    def problem(count: int, index: int) -> Problem:
        drawn = draw(count, split, seed, index)
        assert drawn.solution is not None, "what is drawn is drawn with its solution"
        identity = f"{drawn.target} with {' '.join(map(str, sorted(drawn.numbers)))}"
        return Problem(
            prompt=drawn.text,
            answer=text(drawn.solution),
            id=f"countdown/{split}/{count}/{hash64(identity):016x}",
            task="countdown",
            metadata={"operations": count - 1, "digits": 2, "worded": False, "numbers": count, "identity": identity},
        )

    return draw_in_turn(counts, limit, problem, seed=seed)


DATASET = DataSet(load=load, source="generated here, without end", licence="Apache-2.0", splits=SPLITS)
