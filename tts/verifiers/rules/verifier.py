"""The verifier `rules`: accepts an answer that keeps every rule which the problem itself states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tts._core.threads import call_or_postpone
from tts.errors import ConfigError, quote
from tts.registry import find_own
from tts.tasks.base import Task
from tts.tasks.schemas.validation import ValidationLimitError
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits, Verifier
from tts.verifiers.rules import arithmetic, equations, schema
from tts.verifiers.rules.examples import asserted_examples

Accepts = Callable[[str], bool]
# Each reads a problem's text and returns a function that accepts an answer, or None where the text is no such problem.
_READERS: tuple[Callable[[str], Accepts | None], ...] = (
    arithmetic.countdown_rule,
    schema.rule,
    equations.rule,
    arithmetic.expression_rule,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Verifier):
    """Scores 1 if an answer keeps the rules that the problem states, else 0.

    The verifier is no oracle: the reference answer is not read.

    Rules are known for:
        - countdowns: each number is used exactly once, and the value is the target;
        - expressions and stories of the task "pocket": the value is computed;
        - an equation in one unknown that asks for its solutions: each is substituted, and there are as many as its
          degree;
        - programs whose prompt has examples (`>>> f(2)` or `assert f(2) == 4`): all pass in the sandbox of `code`;
        - JSON whose prompt has a JSON schema: the answer is valid (needs the extra `json`).

    A greatest score means that the answer is right as far as the prompt says. `auto` ends a problem there, and so does
    the stop rule `score_threshold(threshold=1)`. Text without an answer scores 0. A problem without a rule is refused
    before anything is spent.

    Args:
        sandbox: The sandbox of programs; see `code`.
        seconds: Time limit of a program, above 0.

    Cost: no tokens; of programs one process each.

    Example:
        >>> import tts
        >>> model = lambda ask: f"The answer is {ask.seed % 2 + 2}."
        >>> found = tts.solve(
        ...     "Solve x + 3 = 5.",
        ...     tts.Budget(samples=4),
        ...     backend=model,
        ...     task="math",
        ...     verifier="rules",
        ...     strategy="best_of_n | best",
        ... )
        >>> found.answer, [round(c.scores["main"], 2) for c in found.candidates]
        ('2', [1.0, 1.0, 0.0, 0.0])
    """

    sandbox: str = "landlock"
    seconds: float = 10.0
    name = "rules"

    def __post_init__(self) -> None:
        self._code("assert True")  # checks the parameters

    @property
    def traits(self) -> Traits:
        """A check that the problem has a rule; its greatest score is proof."""
        return Traits(check=self.check, proves=True)

    def check(self, problem: Problem) -> None:
        """Check that a problem has a rule.

        Raises:
            ConfigError: the problem has no rule, or its statement cannot be read. CapabilityError: the sandbox of its
                programs is not available.
        """
        tests = asserted_examples(problem.text)
        if tests is not None:
            self._code(tests).check_sandbox()
        elif rule_of(problem) is None:
            raise ConfigError(
                f"the problem {quote(problem.text)} has no rule, but the verifier 'rules' needs one",
                hint="it checks countdowns, arithmetic, equations, programs with examples and JSON with a schema; "
                "name another verifier",
            )

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score of the whole for each trajectory.

        The score is NaN for programs that the budget's time does not reach, and where a schema takes too long.
        """
        tests = asserted_examples(problem.text)
        if tests is not None:
            return await self._code(tests).score(problem, trajectories, calls)
        accepts = rule_of(problem)
        assert accepts is not None, "checked before"
        return [StepScores(whole=await _score(t.response, accepts, calls.task)) for t in trajectories]

    def _code(self, tests: str) -> Any:
        return find_own("tts_addons.code.verifier:Code")(tests=tests, sandbox=self.sandbox, seconds=self.seconds)


def rule_of(problem: Problem) -> Accepts | None:
    """Return a function that accepts an answer to a problem other than a program; None: there is no rule."""
    return next((rule for read in _READERS if (rule := read(problem.text)) is not None), None)


async def _score(text: str, accepts: Accepts, task: Task) -> float:
    """Return 1 for an answer that is accepted, else 0; NaN where a schema takes too long to tell."""
    answer = await call_or_postpone(task.extract, text)
    try:
        return float(answer is not None and await call_or_postpone(accepts, answer))
    except ValidationLimitError:
        return math.nan
    # an answer that a rule cannot evaluate keeps no rule
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return 0.0
