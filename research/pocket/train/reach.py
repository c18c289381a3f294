"""The targets of a countdown that can still be reached from the numbers left, exactly.

The same says whether a solution in lines still leads to its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

from tts.tasks.arithmetic.countdown import LARGEST_RESULT, CountdownProblem
from tts.tasks.arithmetic.expression import Step, apply
from tts.tasks.arithmetic.lines import read_answer, read_step


def is_reachable(left: Sequence[int], target: int) -> bool:
    """Return whether a target from 1 to 99 can be reached from all of some numbers, each used once.

    Results on the way may be any numbers.
    """
    return bool(targets(tuple(sorted(left))) >> target & 1)


@lru_cache(maxsize=1 << 18)
def targets(left: tuple[int, ...]) -> int:
    """Return the targets that some numbers reach, as bits.

    Bit t is set where t, from 1 to 99, can be reached.

    Args:
        left: The numbers, sorted.
    """
    if len(left) == 1:
        return 1 << left[0] if 1 <= left[0] <= LARGEST_RESULT else 0
    bits = 0
    for i, j in combinations(range(len(left)), 2):
        a, b = left[i], left[j]
        others = [*left[:i], *left[i + 1 : j], *left[j + 1 :]]
        for result in {a + b, a - b, b - a, a * b}:
            bits |= targets(tuple(sorted((*others, result))))
    return bits


def legal_steps(left: Sequence[int]) -> Iterator[Step]:
    """Yield each right step that some numbers allow, once.

    A sum or a product has the larger operand first, and a difference is there both ways.
    """
    known = set[tuple[int, str, int]]()
    for a, b in combinations(left, 2):
        high, low = max(a, b), min(a, b)
        for one in ((high, "+", low), (high, "-", low), (low, "-", high), (high, "*", low)):
            if one not in known:
                known.add(one)
                yield Step(*one, apply(one[1], one[0], one[2]))


def apply_step(left: Sequence[int], step: Step) -> tuple[int, ...] | None:
    """Return the numbers that a right step leaves, sorted; None: the step is wrong, or lacks an operand."""
    there = Counter(left)
    there.subtract((step.left, step.right))
    if any(count < 0 for count in there.values()) or step.result != apply(step.operator, step.left, step.right):
        return None
    return tuple(sorted([*there.elements(), step.result]))


def judge_prefixes(problem: CountdownProblem, lines: Sequence[str]) -> list[bool]:
    """Return for each line whether the solution can still be completed to a right one after it.

    A wrong line ends that. So does a step whose result, with the numbers left, cannot reach the target. An answer line
    is
    right if the target is the one number left, and the line states it.
    """
    verdicts: list[bool] = []
    numbers: tuple[int, ...] | None = tuple(problem.numbers)
    for line in lines:
        step, stated = read_step(line), read_answer(line)
        if numbers is None or stated is not None:
            verdicts.append(numbers == (problem.target,) and stated == problem.target)
            numbers = None
            continue
        numbers = None if step is None else apply_step(numbers, step)
        verdicts.append(numbers is not None and is_reachable(numbers, problem.target))
        numbers = numbers if verdicts[-1] else None
    return verdicts
