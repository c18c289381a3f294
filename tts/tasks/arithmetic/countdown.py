"""Countdown: reach a target from given numbers, each used exactly once, with + - and *. Many ways may lead there, and most do not.

Two answers are the same where they use the same numbers and come to the same value; so every right answer is one class, and a problem's
reference answer is any expression that solves it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tts.errors import ConfigError, unknown_name
from tts.randomness import generator, hash64
from tts.tasks.arithmetic.expression import OPERATORS, Expression, Operation, Step, numbers, steps
from tts.tasks.arithmetic.generator import SPLITS, Split

FEWEST: Final = 2
MOST: Final = 6
_LARGEST_NUMBER: Final = 25
_LARGEST_RESULT: Final = 99
_SHARES: Final = 20
_PATIENCE: Final = 20_000
_ASKED = re.compile(r"Reach ([0-9]+) with ([0-9]+(?: [0-9]+)+)\.")


@dataclass(frozen=True, slots=True)
class CountdownProblem:
    """A target and the numbers to reach it from; `solution` is one way, where it is known."""

    target: int
    numbers: tuple[int, ...]
    solution: Expression | None = None

    @property
    def text(self) -> str:
        """The problem as it is asked."""
        return f"Reach {self.target} with {' '.join(map(str, self.numbers))}."

    @property
    def steps(self) -> list[Step]:
        """The known solution worked out."""
        return [] if self.solution is None else steps(self.solution)


def read(written: str) -> CountdownProblem | None:
    """Return the problem that a text asks, or None where it is none."""
    found = _ASKED.fullmatch(" ".join(written.split()))
    return None if found is None else CountdownProblem(int(found[1]), tuple(map(int, found[2].split())))


def draw(count: int, split: Split, seed: int, index: int) -> CountdownProblem:
    """Return problem number `index` of an endless series. Results on the way and the target are from 1 to 99.

    Args:
        count: of numbers, 2 to 6, each from 1 to 25. split, seed, index: as `tts.tasks.arithmetic.generator.draw`.

    Raises:
        ConfigError: the count or the split is none of these.
    """
    if type(count) is not int or not FEWEST <= count <= MOST:
        raise ConfigError(f"count is {count!r}, but must be a whole number from {FEWEST} to {MOST}")
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    rng = generator(seed, hash64("countdown", count, split), "draw", index)
    for _ in range(_PATIENCE):
        solution = _tree(rng, count)
        if solution is None:
            continue
        found = CountdownProblem(steps(solution)[-1].result, _shuffled(solution, rng), solution)
        if split_of(found) == split:
            return found
    raise ConfigError(f"no countdown of {count} numbers was found in the split {split} in {_PATIENCE} draws")


def split_of(problem: CountdownProblem) -> Split:
    """Return the one split that a target and its numbers, in whatever order, belong to."""
    place = hash64("countdown", problem.target, *sorted(problem.numbers)) % _SHARES
    return "validation" if place == 0 else "test" if place == 1 else "train"


def composed(found: list[Step]) -> Expression | None:
    """Return the expression that steps make of their first operands, or None where they do not come down to one.

    A result is used where it is next written as an operand; the newest of equal results first.
    """
    open_results: list[tuple[int, Expression]] = []

    def take(number: int) -> Expression:
        for i in range(len(open_results) - 1, -1, -1):
            if open_results[i][0] == number:
                return open_results.pop(i)[1]
        return number

    for step in found:
        right = take(step.right)
        left = take(step.left)
        open_results.append((step.result, Operation(step.operator, left, right)))
    return open_results[0][1] if len(open_results) == 1 else None


def _tree(rng: np.random.Generator, count: int) -> Expression | None:
    if count == 1:
        return int(rng.integers(1, _LARGEST_NUMBER + 1))
    on_left = int(rng.integers(1, count))
    left, right = _tree(rng, on_left), _tree(rng, count - on_left)
    if left is None or right is None:
        return None
    made = Operation(OPERATORS[rng.integers(len(OPERATORS))], left, right)
    return made if 1 <= steps(made)[-1].result <= _LARGEST_RESULT else None


def _shuffled(solution: Expression, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(number) for number in rng.permutation(list(numbers(solution))))
