"""Countdown: reach a target from given numbers, each used exactly once, with + - and *.

Several expressions may reach the target, but most do not.

Two answers are the same if they use the same numbers and have the same value. So all right answers are one class, and a
problem's reference answer is any expression that solves it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tts.errors import ConfigError, unknown_name
from tts.randomness import generator, hash64
from tts.tasks.arithmetic.expression import OPERATORS, Expression, Operation, Step, apply, numbers, steps
from tts.tasks.arithmetic.generator import SPLITS, Split

if TYPE_CHECKING:
    import numpy as np

FEWEST: Final = 2
MOST: Final = 6
LARGEST_NUMBER: Final = 25
LARGEST_RESULT: Final = 99
_SHARES: Final = 20
_MOST_DRAWS: Final = 20_000
_NUMBER = r"[0-9]{1,9}"  # no countdown has longer numbers
_NUMBERS = rf"(?P<numbers>{_NUMBER}(?:(?:\s*,\s*and\s+|\s*,\s*|\s+and\s+|\s+){_NUMBER})+)"
_TARGET = rf"(?:reach|make|get)\s+(?P<target>{_NUMBER})"
_USE = rf"(?:with|from|using|use|out\s+of)\s+(?:only\s+)?(?:the\s+numbers\s+)?{_NUMBERS}"
_ASKED = [
    re.compile(rf"(?:please\s+)?{order}\s*[.!]?", re.IGNORECASE)
    for order in (rf"{_TARGET}\s+{_USE}", rf"{_USE}\s*,?\s*(?:to\s+)?{_TARGET}")
]


@dataclass(frozen=True, slots=True)
class CountdownProblem:
    """A target and the numbers to reach it from; `solution` is one right expression, if known."""

    target: int
    numbers: tuple[int, ...]
    solution: Expression | None = None

    @property
    def text(self) -> str:
        """The problem as a question."""
        return f"Reach {self.target} with {' '.join(map(str, self.numbers))}."

    @property
    def steps(self) -> list[Step]:
        """The steps of the known solution."""
        return [] if self.solution is None else steps(self.solution)


def read(written: str) -> CountdownProblem | None:
    """Return the countdown that a text asks, or None for any other text.

    Examples of countdowns are "Reach 39 with 17 22." and "Use 3, 5 and 7 to make 36".
    """
    text = " ".join(written.split())
    for pattern in _ASKED:
        match = pattern.fullmatch(text)
        if match is not None:
            problem_numbers = re.findall(_NUMBER, match["numbers"])
            return CountdownProblem(int(match["target"]), tuple(map(int, problem_numbers)))
    return None


def draw(count: int, split: Split, seed: int, index: int) -> CountdownProblem:
    """Return problem number `index` of an endless series.

    The target and all intermediate results are from 1 to 99.

    Args:
        count: The count of numbers, 2 to 6, each from 1 to 25.
        split: As in `tts.tasks.arithmetic.generator.draw`.
        seed: As in `tts.tasks.arithmetic.generator.draw`.
        index: As in `tts.tasks.arithmetic.generator.draw`.

    Raises:
        ConfigError: the count or the split is not valid, or no problem was found.
    """
    if type(count) is not int or not FEWEST <= count <= MOST:
        raise ConfigError(f"count is {count!r}, but must be a whole number from {FEWEST} to {MOST}")
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    rng = generator(seed, hash64("countdown", count, split), "draw", index)
    for _ in range(_MOST_DRAWS):
        solution = _tree(rng, count)
        if solution is None:
            continue
        problem = CountdownProblem(steps(solution)[-1].result, _shuffle(solution, rng), solution)
        if split_of(problem) == split:
            return problem
    raise ConfigError(f"no countdown of {count} numbers was found in the split {split} in {_MOST_DRAWS} draws")


def split_of(problem: CountdownProblem) -> Split:
    """Return the one split of a target and its numbers, whatever their order."""
    share = hash64("countdown", problem.target, *sorted(problem.numbers)) % _SHARES
    return "validation" if share == 0 else "test" if share == 1 else "train"


def may_have(step: Step) -> bool:
    """Whether the known solution of some drawn problem may have a step.

    The training split of countdowns holds out no pair of operands (`tts.tasks.arithmetic.generator.held_out`). So a
    model trained on countdowns may have seen every step for which the result is True.
    """
    is_right = step.result == apply(step.operator, step.left, step.right)
    return is_right and all(1 <= number <= LARGEST_RESULT for number in (step.left, step.right, step.result))


def compose(found: list[Step]) -> Expression | None:
    """Return the expression that steps compose; None where the steps leave several results or none.

    An operand stands for the newest result of the same number that no later step has used, else for the number itself.
    """
    unused_results: list[tuple[int, Expression]] = []

    def take(number: int) -> Expression:
        """Return the newest unused expression with a result, which is then used; else the number itself."""
        for i in reversed(range(len(unused_results))):
            result, expression = unused_results[i]
            if result == number:
                del unused_results[i]
                return expression
        return number

    for step in found:
        right = take(step.right)
        left = take(step.left)
        unused_results.append((step.result, Operation(step.operator, left, right)))
    if len(unused_results) != 1:
        return None
    _result, expression = unused_results[0]
    return expression


def _tree(rng: np.random.Generator, count: int) -> Expression | None:
    """Draw an expression of `count` numbers; None: a result is out of bounds."""
    if count == 1:
        return int(rng.integers(1, LARGEST_NUMBER + 1))
    num_left = int(rng.integers(1, count))
    left, right = _tree(rng, num_left), _tree(rng, count - num_left)
    if left is None or right is None:
        return None
    operator = OPERATORS[rng.integers(len(OPERATORS))]
    expression = Operation(operator, left, right)
    return expression if 1 <= steps(expression)[-1].result <= LARGEST_RESULT else None


def _shuffle(solution: Expression, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(number) for number in rng.permutation(list(numbers(solution))))
