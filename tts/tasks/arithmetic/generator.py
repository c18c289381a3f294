"""Problems of the arithmetic family: seeded, endless, and of a stated difficulty.

The problems are in three splits that share no expression.

An expression belongs to one split by the hash of its text. So the splits are disjoint by construction, whatever the
seed. Besides, some pairs of operands are held out: no worked solution of the training split has a step with such a
pair. A model's accuracy on held-out pairs shows whether it learned to calculate or to look up.

Bounds of all problems: operands from 1 to 9 (digits=1) or 1 to 99 (digits=2); every intermediate result at most 99 or
999 in size; a product has a factor of at most 9 in size. In a story no amount is ever negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from tts.errors import ConfigError, unknown_name
from tts.randomness import generator, hash64
from tts.tasks.arithmetic.expression import OPERATORS, Expression, Operation, Step, apply, steps, text
from tts.tasks.arithmetic.worded import EVENTS, tell

Split = Literal["train", "validation", "test"]
SPLITS: Final = ("train", "validation", "test")
MOST_OPERATIONS: Final = 10
LARGEST_OPERAND: Final = {1: 9, 2: 99}
LARGEST_RESULT: Final = {1: 99, 2: 999}
_SHARES: Final = 20  # one in twenty expressions is of the validation split, one of the test split
_HELD_OUT: Final = 20  # one in twenty pairs with an operand of two digits and more is held out
_WEIGHTS: Final = {"+": 0.38, "-": 0.34, "*": 0.28}
# draws; with ten operations + and *, one draw in some 2,000 is within the bounds and in the test split
_MOST_DRAWS: Final = 200_000
_MOST_PRODUCTS: Final = 2  # most operations of a problem of products alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """The difficulty of a problem.

    Args:
        operations: Number of operations, 1 to 10.
        digits: 1 (operands to 9) or 2 (to 99).
        operators: The operators that may occur, some of "+-*".
        parentheses: Whether parentheses may occur.
        worded: Whether the problem is a story, which has no parentheses since its events follow one another.

    Raises:
        ConfigError: a value is not valid, a story has no +, or products alone are so many that hardly any result is
            in bounds.
    """

    operations: int = 4
    digits: int = 2
    operators: str = "+-*"
    parentheses: bool = True
    worded: bool = False

    def __post_init__(self) -> None:
        if type(self.operations) is not int or not 1 <= self.operations <= MOST_OPERATIONS:
            raise ConfigError(
                f"operations is {self.operations!r}, but must be a whole number from 1 to {MOST_OPERATIONS}"
            )
        if type(self.digits) is not int or self.digits not in LARGEST_OPERAND:
            raise ConfigError(f"digits is {self.digits!r}, but must be 1 or 2")
        if not _is_choice(self.operators):
            raise ConfigError(
                f"operators is {self.operators!r}, but must be a text of some of {' '.join(OPERATORS)}, each once"
            )
        for name, flag in (("parentheses", self.parentheses), ("worded", self.worded)):
            if type(flag) is not bool:
                raise ConfigError(f"{name} is {flag!r}, but must be True or False")
        if self.worded and "+" not in self.operators:
            raise ConfigError(f"operators is {self.operators!r}, but a story needs +", hint="add + or leave worded out")
        if self.operators == "*" and self.operations > _MOST_PRODUCTS:
            rule = f"hardly any product of so many numbers is at most {LARGEST_RESULT[self.digits]}"
            raise ConfigError(
                f"operations is {self.operations} with operators '*', but {rule}",
                hint=f"at most {_MOST_PRODUCTS}, or allow + or -",
            )

    def __str__(self) -> str:
        kind = "worded" if self.worded else "plain"
        operator_letters = "".join(_LETTERS[operator] for operator in self.operators)
        operator_suffix = "" if self.operators == "+-*" else f"-{operator_letters}"
        flat_suffix = "" if self.parentheses or self.worded else "-flat"
        return f"{kind}-{self.digits}-{self.operations}{operator_suffix}{flat_suffix}"


_LETTERS = {"+": "a", "-": "s", "*": "m"}


def _is_choice(operators: object) -> bool:
    """Whether a value is a text of some operators, each at most once."""
    return (
        isinstance(operators, str)
        and bool(operators)
        and not set(operators) - set(OPERATORS)
        and len(set(operators)) == len(operators)
    )


@dataclass(frozen=True, slots=True)
class Drawn:
    """A problem of the family, with its text, its expression and its requested difficulty.

    The value of the expression is the answer.
    """

    text: str
    expression: Expression
    difficulty: Difficulty

    @property
    def steps(self) -> list[Step]:
        """The steps of the worked solution."""
        return steps(self.expression)

    @property
    def answer(self) -> int:
        """The value of the expression."""
        return self.steps[-1].result


def split_of(expression: Expression) -> Split:
    """Return the one split that an expression belongs to."""
    share = hash64("split", text(expression)) % _SHARES
    return "validation" if share == 0 else "test" if share == 1 else "train"


def held_out(step: Step) -> bool:
    """Return whether a step's pair of operands is held out of the training split.

    The two orders of a sum or product are one pair.
    """
    if max(abs(step.left), abs(step.right)) < 10:
        return False
    left, right = step.left, step.right
    if step.operator != "-":
        left, right = sorted((left, right))
    return hash64("pair", left, step.operator, right) % _HELD_OUT == 0


def draw(difficulty: Difficulty, split: Split, seed: int, index: int) -> Drawn:
    """Return problem number `index` of an endless series, whatever else is drawn.

    Args:
        difficulty: The difficulty of the problem.
        split: The split of the series.
        seed: Any whole number below 2**64.
        index: Any whole number of at least 0.

    Raises:
        ConfigError: the split is unknown, or no problem of this difficulty was found in the split.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    rng = generator(seed, hash64("arithmetic", str(difficulty), split), "draw", index)
    for _ in range(_MOST_DRAWS):
        problem = _story(difficulty, rng) if difficulty.worded else _plain(difficulty, rng)
        if problem is None or split_of(problem.expression) != split:
            continue
        if split == "train" and any(map(held_out, problem.steps)):
            continue
        return problem
    raise ConfigError(
        f"no problem of difficulty {difficulty} was found in the split {split} in {_MOST_DRAWS} draws",
        hint="make it wider",
    )


def problems(difficulty: Difficulty, split: Split, seed: int, start: int = 0) -> Iterator[Drawn]:
    """Yield the endless series of `draw` from number `start` on; an expression may repeat."""
    index = start
    while True:
        yield draw(difficulty, split, seed, index)
        index += 1


def _plain(difficulty: Difficulty, rng: np.random.Generator) -> Drawn | None:
    """Draw a problem without a story; None: a step is out of bounds."""
    weights = np.array([_WEIGHTS[operator] for operator in difficulty.operators])
    draw_expression = _tree if difficulty.parentheses else _flat
    expression = draw_expression(difficulty, rng, weights / weights.sum(), difficulty.operations)
    if expression is None or not _is_within_bounds(steps(expression), difficulty.digits):
        return None
    return Drawn(text(expression), expression, difficulty)


def _tree(difficulty: Difficulty, rng: np.random.Generator, weights: np.ndarray, count: int) -> Expression | None:
    """Draw a tree of `count` operations; None: a result is out of bounds.

    The number of operations on the left of the root is drawn with equal chances.
    """
    if count == 0:
        return int(rng.integers(1, LARGEST_OPERAND[difficulty.digits] + 1))
    operator = difficulty.operators[rng.choice(len(weights), p=weights)]
    num_left = int(rng.integers(count))
    left = _tree(difficulty, rng, weights, num_left)
    right = None if left is None else _tree(difficulty, rng, weights, count - 1 - num_left)
    if left is None or right is None:
        return None
    expression = Operation(operator, left, right)
    return expression if _is_within_bounds(steps(expression)[-1:], difficulty.digits) else None


def _flat(difficulty: Difficulty, rng: np.random.Generator, weights: np.ndarray, count: int) -> Expression:
    """Draw a chain without parentheses; products bind first, then the chain goes from left to right."""
    operands = rng.integers(1, LARGEST_OPERAND[difficulty.digits] + 1, count + 1).tolist()
    operators = [difficulty.operators[i] for i in rng.choice(len(weights), size=count, p=weights)]
    terms: list[Expression] = [operands[0]]
    term_operators: list[str] = []
    for operator, operand in zip(operators, operands[1:], strict=True):
        if operator == "*":
            terms[-1] = Operation("*", terms[-1], operand)
        else:
            term_operators.append(operator)
            terms.append(operand)
    expression = terms[0]
    for operator, term in zip(term_operators, terms[1:], strict=True):
        expression = Operation(operator, expression, term)
    return expression


def _story(difficulty: Difficulty, rng: np.random.Generator) -> Drawn | None:
    """Draw a story; None: an amount or a step is out of bounds."""
    kinds = [kind for kind in EVENTS if not set(kind) - set(difficulty.operators)]
    largest = LARGEST_OPERAND[difficulty.digits]
    start = amount = int(rng.integers(2, largest + 1))
    events: list[tuple[str, int, int]] = []  # the kind, N and M of each event
    num_remaining = difficulty.operations
    while num_remaining:
        fitting_kinds = [kind for kind in kinds if len(kind) <= num_remaining]
        kind = fitting_kinds[rng.integers(len(fitting_kinds))]
        has_two_numbers = len(kind) == 2
        n = int(rng.integers(2, largest + 1))
        m = int(rng.integers(2, 10)) if has_two_numbers else 0
        amount = apply(kind[0], amount, n * m if has_two_numbers else n)
        if not 0 <= amount <= LARGEST_RESULT[difficulty.digits]:
            return None
        events.append((kind, n, m))
        num_remaining -= len(kind)
    story = tell(tuple(events), start, rng)
    expression = story.expression()
    if not _is_within_bounds(steps(expression), difficulty.digits):
        return None
    return Drawn(str(story), expression, difficulty)


def _is_within_bounds(worked_steps: Sequence[Step], digits: int) -> bool:
    """Whether the results and the factors of steps are within the bounds of all problems."""
    for step in worked_steps:
        smaller_factor = min(abs(step.left), abs(step.right)) if step.operator == "*" else 0
        if abs(step.result) > LARGEST_RESULT[digits] or smaller_factor > 9:
            return False
    return True
