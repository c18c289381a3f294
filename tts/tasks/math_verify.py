r"""Mathematics graded by Math-Verify, for figures that must be comparable with published figures."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from tts.errors import ConfigError, VerifierError, missing_extra, quote
from tts.tasks.bounded_cache import BoundedCache
from tts.tasks.forms.normal_form import MAX_CHARACTERS
from tts.tasks.math import MathTask
from tts.tasks.symbolic import SymbolicChecker
from tts.tasks.worker import WorkerDiedError, WorkerNotStartedError, WorkerPool, positive, python_command
from tts.types import Problem

PACKAGE = "math_verify"
# Characters at the end of a text, in which Math-Verify searches for an answer.
_MOST_READ = 20_000


def check_installed() -> None:
    """Check that math-verify is installed.

    Raises:
        MissingDependency: math-verify is not installed.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise missing_extra("math-verify", "math-verify", "the task 'math_verify'")


class MathVerifyTask(MathTask):
    r"""The task `math` with another grader, Math-Verify.

    An answer is right where Math-Verify finds it equal to the reference answer.

    Math-Verify compares pairs, rounds numbers to six decimals, and treats reference and answer differently, so its
    verdicts are no equivalence relation. Votes and all other comparisons among answers use the keys of `math`.
    Math-Verify runs with its defaults in worker processes, which are killed at the time limit; the answer then counts
    as wrong. Verdicts are kept.

    Source: the package math-verify (Hugging Face). Departure: without `guess`, an answer is what `math` extracts, never
    a guess.

    Args:
        guess: Whether a text that states no answer gets the expression that Math-Verify finds in the text. Programs
            that give whole texts to Math-Verify do the same.
        time_limit_s: The seconds for one verdict, above 0 and finite.
        checker: The checker that computes keys; None: a new checker.
        marks: Texts that announce an answer in further languages, as for the task `math`.

    Raises:
        ConfigError: a parameter is out of its range.

    Attributes:
        timeouts: The verdicts that reached the time limit.
        failures: The verdicts during which a worker ended.
    """

    def __init__(
        self,
        *,
        guess: bool = False,
        time_limit_s: float = 20.0,
        checker: SymbolicChecker | None = None,
        marks: Sequence[str] = (),
    ) -> None:
        super().__init__(checker=checker, marks=marks)
        if not isinstance(guess, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - it may come from a text
            raise ConfigError(f"guess is {quote(guess)}, but must be True or False")
        self.guess = guess
        self.time_limit_s = positive("time_limit_s", time_limit_s)
        self.timeouts = 0
        self.failures = 0
        self._workers = WorkerPool(python_command("tts.tasks.math_verify_worker"), start_limit_s=120.0)
        self._replies: BoundedCache[tuple[str, ...], tuple[bool, str | None]] = BoundedCache(65_536)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the running workers of Math-Verify."""
        return self._workers.pids

    @property
    def name(self) -> str:
        """The task's text form, by which results are distinguished."""
        parameters: list[str] = []
        if self.guess:
            parameters.append("guess=True")
        if self.marks:
            parameters.append(f"marks={self.marks!r}")
        return f"math_verify({', '.join(parameters)})" if parameters else "math_verify"

    def extract(self, text: str) -> str | None:
        """Return the stated answer; with `guess`, else the expression that Math-Verify finds; else None.

        Raises:
            MissingDependency: math-verify is needed, and is not installed.
            VerifierError: the process of Math-Verify does not start.
        """
        answer = super().extract(text)
        if answer is not None or not self.guess:
            return answer
        _verdict, expression = self._ask(text[-_MOST_READ:])
        return expression or None

    def key(self, answer: str) -> str:
        """Return the key of the task `math`, by which answers of models are equal."""
        return super().key(answer)

    def decide(self, a: str, b: str) -> bool | None:
        """Return None: Math-Verify decides, in its process."""
        del a, b
        return None

    def equivalent(self, a: str, b: str) -> bool:
        """Whether Math-Verify finds an answer equal to a reference answer.

        Args:
            a: The answer.
            b: The reference answer; the two are not treated alike.

        Raises:
            MissingDependency: math-verify is not installed.
            VerifierError: the process of Math-Verify does not start.
        """
        if max(len(a), len(b)) > MAX_CHARACTERS:
            return False
        verdict, _expression = self._ask(a, b)
        return verdict

    def check(self, problem: Problem) -> None:
        """Refuse a problem with a reference answer where math-verify is not installed.

        With `guess` every problem is refused without math-verify.

        Args:
            problem: The problem, with its reference answer where it has one.

        Raises:
            MissingDependency: math-verify is not installed.
        """
        if self.guess or problem.answer is not None:
            check_installed()

    def close(self) -> None:
        """End the workers; the next question starts others."""
        super().close()
        self._workers.close()

    def _ask(self, *texts: str) -> tuple[bool, str | None]:
        """Return Math-Verify's verdict and its expression, from the kept replies or a worker.

        The verdict is on two texts, an answer and a reference. The expression is found in one text.
        """
        reply = self._replies.get(texts)
        if reply is None:
            check_installed()
            reply = self._reply(texts)
            self._replies.put(texts, reply)
        return reply

    def _reply(self, texts: tuple[str, ...]) -> tuple[bool, str | None]:
        """Return a worker's verdict and expression; False and None where the worker ends or is too slow.

        Raises:
            VerifierError: the worker does not start.
        """
        try:
            with self._workers.worker() as worker:
                reply = worker.ask({"texts": texts}, self.time_limit_s)
                is_right = reply.get("verdict") is True
                expression = reply.get("found")
                return is_right, expression if isinstance(expression, str) else None
        except TimeoutError:
            self.timeouts += 1
        except WorkerNotStartedError as failure:
            raise VerifierError(f"Math-Verify does not start: {failure}") from failure
        except WorkerDiedError:
            self.failures += 1
        return False, None
