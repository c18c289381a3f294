"""Countdown as a task: the answer is the expression that the steps compose.

An answer is right by its numbers and its value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from tts.errors import ConfigError
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.countdown import FEWEST, LARGEST_NUMBER, LARGEST_RESULT, MOST, CountdownProblem, compose
from tts.tasks.arithmetic.expression import Expression, numbers, parse_expression, value
from tts.tasks.arithmetic.expression import text as expression_text
from tts.tasks.arithmetic.lines import LinesTask, read_step
from tts.tasks.arithmetic.reading import ELSEWHERE, asked_text, quote_problem
from tts.tasks.base import fold_text
from tts.tasks.framing import unknown_kind
from tts.types import Problem

_MOST_STEPS = 50  # ten times what any countdown needs
_ANSWER_LINE = re.compile(r"[ \t]*A:[ \t]*(\S[^\r\n]*?)[ \t]*\r?\n?")


class CountdownTask(LinesTask):
    r"""Problems such as "Reach 39 with 17 22.", worked out in lines: "17 + 22 = 39\nA: 39\n".

    The answer is an expression: the expression of the answer line ("A: 17 + 22"). If that line has a number only, the
    answer is the expression that the steps before it compose (`tts.tasks.arithmetic.countdown.compose`). Two answers
    are the same if they use the same numbers, each as often, and have exactly the same value. So a reference answer is
    any expression that solves the problem. An answer that misses the target, or uses a number twice, is in another
    class.
    """

    name: str = "countdown"
    # Means of known solutions over 2 to 4 numbers, which the model pocket was trained on, the end of sequence included.
    tokens = MappingProxyType({"solve": 21, "step": 8})

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> str:  # noqa: ARG002 - the protocol has it
        """Return the problem as it was written in training, and a newline.

        Raises:
            ConfigError: the problem is no countdown, or exceeds the bounds of countdowns, or `kind` is not "solve".
        """
        if kind != "solve":
            raise unknown_kind(self.name, kind, {"solve": ""})
        return f"{_read(asked_text(problem, self.name)).text}\n"

    def is_finished(self, text: str) -> bool:
        """Return whether the last line that is not empty is an answer line, ended by a newline.

        An answer line is "A: " and a number or an expression.
        """
        return text.endswith("\n") and _parse_answer_line(text.rstrip().rpartition("\n")[2]) is not None

    def extract(self, text: str) -> str | None:
        """Return the expression of the last answer line; None without such a line or expression.

        Where the line states a number only, the expression is the composition of the steps before the line.
        """
        expression: Expression | None = None
        steps: list[str] = []
        for line in self.split(text):
            answer = _parse_answer_line(line)
            if answer is None:
                steps.append(line)
                continue
            expression = _compose(steps) if isinstance(answer, int) else answer
            steps = []
        return None if expression is None else expression_text(expression)

    def canonical(self, answer: str) -> str:
        """Return the value of an expression and its numbers in ascending order.

        Any other text is returned with its spaces and case folded.
        """
        expression = parse_expression(answer)
        if expression is None:
            return fold_text(answer)
        sorted_numbers = " ".join(map(str, sorted(numbers(expression))))
        return f"{value(expression)}  {sorted_numbers}"  # two spaces, which no folded text has


def _compose(lines: Sequence[str]) -> Expression | None:
    """Return the expression that the steps among some lines compose.

    The result is None without steps, with very many steps, or if the steps leave several results.
    """
    steps = [step for step in map(read_step, lines) if step is not None]
    return compose(steps) if len(steps) <= _MOST_STEPS else None


def _parse_answer_line(line: str) -> Expression | None:
    match = _ANSWER_LINE.fullmatch(line)
    return None if match is None else parse_expression(match[1])


def _read(text: str) -> CountdownProblem:
    problem = countdown.read(text)
    if problem is None:
        raise ConfigError(
            f"the problem is {quote_problem(text)}, but the task 'countdown' reads only problems such as "
            "'Reach 39 with 17 22.'",
            hint=f"other arithmetic has --task pocket; for anything else, {ELSEWHERE}",
        )
    if not FEWEST <= len(problem.numbers) <= MOST:
        raise _outside(text, f"{len(problem.numbers)} numbers", f"there must be {FEWEST} to {MOST}")
    for number in problem.numbers:
        if not 1 <= number <= LARGEST_NUMBER:
            raise _outside(text, f"the number {number}", f"numbers must be from 1 to {LARGEST_NUMBER}")
    if not 1 <= problem.target <= LARGEST_RESULT:
        raise _outside(text, f"the target {problem.target}", f"targets must be from 1 to {LARGEST_RESULT}")
    return problem


def _outside(text: str, has: str, rule: str) -> ConfigError:
    return ConfigError(
        f"the countdown {quote_problem(text)} has {has}, but {rule}", hint=f"stay within that; or {ELSEWHERE}"
    )
