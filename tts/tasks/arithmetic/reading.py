"""Reading of questions as problems of the arithmetic family, which are expressions and stories.

Other texts are refused with a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tts.errors import ConfigError, quote
from tts.tasks.arithmetic import countdown, worded
from tts.tasks.arithmetic.expression import Expression, numbers, parse, steps, text, value
from tts.tasks.arithmetic.generator import LARGEST_OPERAND, LARGEST_RESULT, MOST_OPERATIONS
from tts.types import Problem

ELSEWHERE: Final = "name a real model, which brings a task of its own, such as smollm2 or one of the Hub"

_MOST_OPERAND, _MOST_RESULT, _MOST_FACTOR = max(LARGEST_OPERAND.values()), max(LARGEST_RESULT.values()), 9
_OPENING = re.compile(
    r"^(?:please[,:]?\s+)?(?:(?:what\s+is|what's|what’s|how\s+much\s+is|compute|calculate|evaluate|solve|work\s+out|find)\b\s*:?\s*)?"
    r"(?:the\s+(?:value|result)\s+of\s+)?",
    re.IGNORECASE,
)
_CLOSING = " \t\r\n=?."
_OPERATOR_WORD = r"(?<=[0-9)])\s*{}\s*(?=[0-9(-])"  # a word between two operands
_WORDS = [
    (re.compile(_OPERATOR_WORD.format(word), re.IGNORECASE), sign)
    for word, sign in (("x", " * "), ("times", " * "), ("plus", " + "), ("minus", " - "))
]
_ARITHMETIC = re.compile(r"[-−–+*×·⋅∗/÷^().,=\s0-9]+")
_DIGIT = re.compile(r"[0-9]")
# Signs of arithmetic that the family does not have.
_STRANGE = (
    (re.compile(r"\*\*|\^"), "a power"),
    (re.compile(r"[/÷]"), "a division"),
    (re.compile(r"[0-9]\.[0-9]|\.[0-9]"), "a decimal number"),
    (re.compile(r"[0-9],[0-9]"), "a number with a comma"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem of the family: its text as in training, and its expression."""

    text: str
    expression: Expression


def asked_text(problem: Problem, task: str) -> str:
    """Return the question of a problem whose prompt is a text or one message of the user.

    Raises:
        ConfigError: the problem is any other conversation; the message names `task`.
    """
    if isinstance(problem.prompt, str):
        return problem.prompt
    if len(problem.prompt) == 1 and problem.prompt[0].role == "user":
        return problem.prompt[0].content
    roles = ", ".join(message.role for message in problem.prompt) or "none"
    raise ConfigError(
        f"the problem is a conversation (turns: {roles}), but the task {task!r} reads one question, as a text or as "
        "one user message",
        hint=f"ask the question alone; or {ELSEWHERE}",
    )


@lru_cache(maxsize=4096)
def read(written: str) -> Asked:
    """Return the problem that a text asks.

    The problem is an expression, alone or in a question ("What is 3 + 4?"), or one of the family's stories.

    Raises:
        ConfigError: the text is no expression and no story, or exceeds the bounds of the family.
    """
    if countdown.read(written) is not None:
        rule = "is a countdown, but the task 'pocket' reads expressions and stories"
        raise ConfigError(f"the problem {quote_problem(written)} {rule}", hint="name its task: --task countdown")
    if worded.is_meant(written):
        return _story(written)
    expression = _expression(written)
    _check(expression, quote_problem(written))
    return Asked(text(expression), expression)


def quote_problem(written: str) -> str:
    """Return a problem for an error message: quoted, on one line, and cut where it is long."""
    return quote(" ".join(written.split()))


def _story(question: str) -> Asked:
    """Return the story that a question tells; refuse a story in which an amount is negative."""
    story = worded.read(question)
    if story is None:
        hint = f"its stories are made of a few fixed sentences, such as 'She buys 7 more.'; for others, {ELSEWHERE}"
        raise ConfigError(f"the story {quote_problem(question)} cannot be read: {worded.fault(question)}", hint=hint)
    expression = story.expression()
    _check(expression, quote_problem(question))
    amount = story.start
    for event in story.events:
        amount = value(event.apply(amount))
        if amount < 0:
            has = f"comes to {amount} after {event.tell(story)!r}"
            raise _outside(quote_problem(question), has, "stories in which nothing is ever less than none")
    return Asked(str(story), expression)


def _expression(question: str) -> Expression:
    """Return the expression that a question asks for, after words such as "What is" are removed."""
    body = _OPENING.sub("", question.strip(), count=1).rstrip(_CLOSING)
    for word_pattern, sign in _WORDS:
        body = word_pattern.sub(sign, body)
    if not (_ARITHMETIC.fullmatch(body) and _DIGIT.search(body)):
        raise ConfigError(
            f"the problem is {quote_problem(question)}, but the model pocket was trained on arithmetic only: "
            "an expression such as '12 + 7 * (3 - 5)', or one of its stories",
            hint=ELSEWHERE,
        )
    for feature_pattern, feature in _STRANGE:
        if feature_pattern.search(body):
            raise _outside(quote_problem(question), f"has {feature}", "whole numbers with +, - and * only")
    try:
        return parse(body)
    except ConfigError as failure:
        raise ConfigError(
            failure.cause, hint="write whole numbers with +, -, * and parentheses, such as 12 + 7 * (3 - 5)"
        ) from None


def _check(expression: Expression, problem: str) -> None:
    """Refuse an expression that exceeds a bound of all problems."""
    worked_steps = steps(expression)
    if not worked_steps:
        raise _outside(problem, f"is the number {expression} alone", "problems with something to calculate")
    if len(worked_steps) > MOST_OPERATIONS:
        raise _outside(problem, f"has {len(worked_steps)} operations", f"{MOST_OPERATIONS} at most")
    for number in numbers(expression):
        if not 1 <= number <= _MOST_OPERAND:
            raise _outside(problem, f"has the number {number}", f"numbers from 1 to {_MOST_OPERAND}")
    for step in worked_steps:
        if step.operator == "*" and min(abs(step.left), abs(step.right)) > _MOST_FACTOR:
            raise _outside(problem, f"has the product {step}", f"products with a factor of at most {_MOST_FACTOR}")
        if abs(step.result) > _MOST_RESULT:
            raise _outside(
                problem, f"comes to {step.result} on the way ({step})", f"results of at most {_MOST_RESULT} in size"
            )


def _outside(problem: str, has: str, trained_on: str) -> ConfigError:
    """Return the error for arithmetic that the family does not have."""
    return ConfigError(f"the problem {problem} {has}, but the model pocket was trained on {trained_on}", hint=ELSEWHERE)
