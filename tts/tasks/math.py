r"""Mathematics: step by step in prose and LaTeX, with the final answer in `\boxed{}`.

Answers are equal if they are mathematically equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tts.tasks.base import Task
from tts.tasks.extraction import final_answer, last_box
from tts.tasks.forms.normal_form import MAX_CHARACTERS, are_different, normal_form
from tts.tasks.framing import solution_framing
from tts.tasks.marks import ANSWER_MARKS, check_marks
from tts.tasks.symbolic import SymbolicChecker

_FORMAT = r"Reason step by step and separate the steps by a blank line. Put the final answer in \boxed{}."


class MathTask(Task):
    r"""Problems whose answer is a number, an expression, an interval, a set, a matrix or a word.

    Two answers are equivalent where their keys are equal (`tts.tasks.algebra.keys`), so equality is an equivalence
    relation. Numbers are exact: `0.333` is not `\frac13`. `50\%` equals `50`, and neither equals `0.5`; `90^\circ`
    equals `90`, and not `\frac{\pi}{2}`; `5\text{ cm}` equals `5`; `(1,2)` is neither `[1,2]` nor `\{1,2\}` nor `1,2`.
    Where mpmath (extra `math`) is not installed, only normal forms and rationals are compared
    (`tts.tasks.forms.normal_form` states the conventions), and `symbolic` is False.

    Args:
        checker: The checker that computes keys; None: a new checker.
        marks: Texts that announce an answer in further languages, besides `tts.tasks.marks`, such as ("resultat:",
            "svaret blir").

    Raises:
        ConfigError: `marks` is no sequence of texts.
    """

    answer_cue: str = "\n\n**Final Answer:** \\boxed{"
    framing = solution_framing(_FORMAT)

    def __init__(self, *, checker: SymbolicChecker | None = None, marks: Sequence[str] = ()) -> None:
        self.marks = check_marks(marks)
        self._marks = (*ANSWER_MARKS, *self.marks)
        self.checker = SymbolicChecker() if checker is None else checker
        self._form = lru_cache(maxsize=16_384)(normal_form)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The task's text form, by which results are distinguished."""
        return f"math(marks={self.marks!r})" if self.marks else "math"

    @property
    def symbolic(self) -> bool:
        """Whether symbolic equality is available; without it `equivalent` uses the exact rules only."""
        return self.checker.available

    def is_finished(self, text: str) -> bool:
        r"""Whether a text has a complete `\boxed{}` that is not empty."""
        return last_box(text) is not None

    def extract(self, text: str) -> str | None:
        """Return the final answer of a text, or None.

        The answer is the content of `<answer>`, else the last boxes, else the text after the last marker.
        """
        return final_answer(text, self._marks)

    def canonical(self, answer: str) -> str:
        """Return the normal form of an answer; equal forms mean equivalent answers."""
        return self._form(answer)

    def decide(self, a: str, b: str) -> bool | None:
        """Return whether two answers are equivalent; None where the decision needs a worker.

        Exact rules decide, and keys that need no worker.
        """
        a_form, b_form = self.canonical(a), self.canonical(b)
        if a_form == b_form:
            return True
        if max(len(a_form), len(b_form)) > MAX_CHARACTERS:
            return False
        a_key, b_key = self.checker.known_key(a_form), self.checker.known_key(b_form)
        if a_key is not None and b_key is not None:
            return a_key == b_key
        return False if are_different(a_form, b_form) else None

    def known_key(self, answer: str) -> str | None:
        """Return the key of an answer if the key needs no worker, else None."""
        return self.checker.known_key(self.canonical(answer))

    def key(self, answer: str) -> str:
        """Return the key of an answer: two answers are equivalent exactly if their keys are equal.

        Raises:
            TimeoutError: the computation reached the checker's time limit.
        """
        return self.checker.key(self.canonical(answer))

    def equivalent(self, a: str, b: str) -> bool:
        """Return whether two answers mean the same.

        An answer whose computation reached the time limit equals only answers of the same normal form.
        """
        verdict = self.decide(a, b)
        if verdict is not None:
            return verdict
        try:
            return self.key(a) == self.key(b)
        except TimeoutError:
            return False

    def close(self) -> None:
        """End the workers; the next question starts others."""
        self.checker.close()
