"""Problems of the package reasoning-gym.

Answers have any form, between tags, and are judged by the scorer of the problem's generator.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Final

from tts.errors import VerifierError, missing_extra
from tts.tasks.base import Task
from tts.tasks.bounded_cache import BoundedCache
from tts.tasks.extraction import final_answer
from tts.tasks.framing import solution_framing
from tts.tasks.worker import Worker, WorkerDiedError, WorkerNotStartedError, positive, python_command
from tts.types import Problem

_FORMAT = (
    "Reason step by step and separate the steps by a blank line. Put the final answer alone between <answer> "
    "and </answer>."
)
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_REFERENCE: Final = (
    '{"reasoning_gym": '  # the beginning of references, as `tts_addons.zoo.reasoning_gym_worker.make` writes them
)


def check_installed() -> None:
    """Check that reasoning-gym is installed.

    Raises:
        MissingDependency: reasoning-gym is not installed.
    """
    if importlib.util.find_spec("reasoning_gym") is None:
        raise missing_extra("reasoning-gym", "reasoning-gym", "a problem of reasoning-gym")


def worker() -> Worker:
    """Return the process that makes problems and asks their scorers.

    Raises:
        MissingDependency: reasoning-gym is not installed.
    """
    check_installed()
    # Some generators iterate over sets of texts, whose order depends on this seed.
    return Worker(
        python_command("tts_addons.zoo.reasoning_gym_worker"), start_limit_s=300.0, environment={"PYTHONHASHSEED": "0"}
    )


class ReasoningGymTask(Task):
    """Problems of the data set "reasoning_gym".

    The reference answer of a problem is the generator's whole entry, as JSON. An answer is right if the generator's own
    scorer gives it 1: many problems have more right answers than their entry states, and some entries state none. Two
    answers that are no references are the same if they have the same words, line by line.

    The scorer runs in a process of its own, which is killed at the time limit; the answer then counts as wrong. The
    scorer never evaluates an answer as a program: see `tts_addons.zoo.reasoning_gym_worker`.

    Args:
        time_limit_s: Seconds for one answer, above 0 and finite.

    Attributes:
        timeouts: Answers whose scoring reached the time limit.
        failures: Answers during which the process ended.
    """

    name: str = "reasoning_gym"
    answer_cue: str = "\n\n**Final Answer:** \\boxed{"
    framing = solution_framing(_FORMAT)

    def __init__(self, *, time_limit_s: float = 20.0) -> None:
        self.time_limit_s = positive("time_limit_s", time_limit_s)
        self.timeouts = 0
        self.failures = 0
        self._worker: Worker | None = None
        self._verdicts: BoundedCache[tuple[str, str], bool] = BoundedCache(16_384)

    def is_finished(self, text: str) -> bool:
        """Whether a text has an answer between tags."""
        return _tag(text) is not None

    def extract(self, text: str) -> str | None:
        """Return the final answer of a text, or None.

        The answer is the text between the last tags, else the last boxed answer, else the text after the last marker.
        """
        tagged = _tag(text)
        answer = final_answer(text) if tagged is None else tagged
        if answer is None or answer.startswith(_REFERENCE):  # a model must not write its own reference
            return None
        return answer

    def canonical(self, answer: str) -> str:
        """Return an answer without blank lines and repeated spaces."""
        lines = [" ".join(line.split()) for line in answer.splitlines()]
        return "\n".join(line for line in lines if line)

    def decide(self, a: str, b: str) -> bool | None:
        """Whether two answers are the same words; None: one of them is a reference, so the scorer decides."""
        if a.startswith(_REFERENCE) == b.startswith(_REFERENCE):
            return self.canonical(a) == self.canonical(b)
        return None

    def key(self, answer: str) -> str:
        """Return the key of a model's answer; keys of references are not compared."""
        return self.canonical(answer)

    def equivalent(self, a: str, b: str) -> bool:
        """Whether two answers have the same words, or the scorer accepts an answer by a reference.

        Raises:
            MissingDependency: an answer is a reference, and reasoning-gym is not installed.
            VerifierError: the process of reasoning-gym does not start.
        """
        verdict = self.decide(a, b)
        if verdict is not None:
            return verdict
        answer, reference = (b, a) if a.startswith(_REFERENCE) else (a, b)
        is_right = self._verdicts.get((answer, reference))
        if is_right is None:
            is_right = self._score(answer, reference) >= 1.0
            self._verdicts.put((answer, reference), is_right)
        return is_right

    def check(self, problem: Problem) -> None:
        """Refuse a problem with a reference of reasoning-gym where that package is not installed.

        Args:
            problem: The problem, with its reference answer where it has one.

        Raises:
            MissingDependency: reasoning-gym is not installed.
        """
        if problem.answer is not None and problem.answer.startswith(_REFERENCE):
            check_installed()

    def close(self) -> None:
        """End the process; the next answer starts another."""
        if self._worker is not None:
            self._worker.close()

    def _score(self, answer: str, reference: str) -> float:
        if self._worker is None:
            self._worker = worker()
        try:
            return self._worker.ask({"reference": reference, "answer": answer}, self.time_limit_s)["score"]
        except TimeoutError:
            self.timeouts += 1
        except WorkerNotStartedError as failure:
            raise VerifierError(f"the scorers of reasoning-gym do not start: {failure}") from failure
        except WorkerDiedError:
            self.failures += 1
        return 0.0


def _tag(text: str) -> str | None:
    contents = [content for content in _TAGGED.findall(text) if content.strip()]
    return contents[-1].strip() if contents else None
