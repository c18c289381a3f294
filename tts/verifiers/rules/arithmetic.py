"""Rules of countdowns, expressions and stories."""

from __future__ import annotations

from collections.abc import Callable

from tts.errors import ConfigError
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.expression import numbers, parse_expression, value
from tts.tasks.arithmetic.lines import number_form
from tts.tasks.arithmetic.reading import read


def countdown_rule(text: str) -> Callable[[str], bool] | None:
    """Return a function that accepts right answers of a countdown; None: the text is no countdown.

    An answer is an expression of the numbers, each used once, whose value is the target.
    """
    problem = countdown.read(text)
    if problem is None:
        return None
    sorted_numbers = sorted(problem.numbers)

    def accepts(answer: str) -> bool:
        expression = parse_expression(answer.partition("=")[0])  # the part before the sign, as in "3 * 4 = 12"
        if expression is None or sorted(numbers(expression)) != sorted_numbers:
            return False
        return value(expression) == problem.target

    return accepts


def expression_rule(text: str) -> Callable[[str], bool] | None:
    """Return a function that accepts the value of an expression or a story of the task "pocket".

    The result is None for any other text.
    """
    try:
        expected = str(value(read(text).expression))
    except ConfigError:
        return None
    return lambda answer: number_form(answer) == expected
