r"""The interface of tasks: the frame around a problem, such as prompts, and the meaning of answers.

    class Sides(tts.Task):
        def extract(self, text):
            found = re.findall(r"A: (\S+)", text)
            return found[-1] if found else None

        def canonical(self, answer):
            return answer.lstrip("+0") or "0"

    tts.solve(problem, budget, task=Sides())
    tts.solve(problem, budget, task="mymodule:Sides")

A task is independent of models, tokenizers and budgets. Callers give a task as an object, as the place of its class, or
by a name from the table in `tts/tasks/__init__.py`. A class given by place or name is made without parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from tts.registry import ClassName
from tts.tasks.framing import OPEN_ENDED, Framing
from tts.types import Problem, Prompt


class Task(ABC):
    """Problems of one kind, for a chat model. A subclass defines `extract`; the rest has defaults.

    Attributes:
        name: The name in results; by default the name of the class, in snake case.
        step_stop: Texts that end a step; by default a blank line.
        answer_cue: A text such as "The answer is ". Appended to a part of a solution, it makes the model state an
            answer that `extract` reads. By default "": there is none.
        framing: The request of each kind of prompt, and the usual lengths in tokens. By default the prompt is the
            problem alone.

    Example:
        >>> import tts
        >>> class Colours(tts.Task):
        ...     def extract(self, text):
        ...         return next((word for word in ("red", "blue") if word in text.lower()), None)
        >>> tts.solve(
        ...     "Red or blue?",
        ...     tts.Budget(samples=2),
        ...     backend=lambda ask: "I take Blue.",
        ...     task=Colours(),
        ...     strategy="best_of_n",
        ... ).answer
        'blue'
    """

    name: str = cast("str", ClassName())
    step_stop: tuple[str, ...] = ("\n\n",)
    answer_cue: str = ""
    framing: Framing = OPEN_ENDED

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> Prompt:
        """Return chat messages: the problem, the earlier solutions that `kind` takes, and its request.

        Raises:
            ConfigError: `framing` has no request of that kind, or `texts` are too few for it.
        """
        return self.framing.prompt(self.name, problem, kind, texts)

    def split(self, text: str) -> list[str]:
        """Return the steps of a text, each with its stop text."""
        return split_after(text, self.step_stop)

    def is_finished(self, text: str) -> bool:
        """Return whether a text, read at a step boundary, is a whole solution.

        By default the result is False: only an end of sequence ends a solution.
        """
        del text
        return False

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return the usual length, in tokens, of a solution (by root kind) or of one step (kind "step")."""
        return self.framing.typical_tokens(self.name, kind)

    @abstractmethod
    def extract(self, text: str) -> str | None:
        """Return the final answer as written, or None where there is none; never a guess."""
        ...

    def canonical(self, answer: str) -> str:
        """Return an answer with its spaces and case folded."""
        return fold_text(answer)

    def decide(self, a: str, b: str) -> bool | None:
        """Whether two answers are equivalent: by default, whether their canonical forms are equal."""
        return self.canonical(a) == self.canonical(b)

    def equivalent(self, a: str, b: str) -> bool:
        """Whether two answers mean the same; answers that `decide` leaves open count as different."""
        return bool(self.decide(a, b))

    def accepts(self, answer: str, reference: str) -> bool | None:
        """Whether an answer is right by a reference answer: by default the result of `decide`.

        None: `equivalent` decides, which may take seconds.
        """
        return self.decide(answer, reference)

    def known_key(self, answer: str) -> str | None:
        """Return the key of an answer: by default its canonical form."""
        return self.canonical(answer)

    def key(self, answer: str) -> str:
        """Return the key of an answer: by default its canonical form.

        Keys are used where `decide` and `equivalent` are not overridden.
        """
        return self.canonical(answer)

    def check(self, problem: Problem) -> None:
        """Refuse a problem that the task cannot judge, before a search begins; by default none.

        Args:
            problem: The problem, with its reference answer where it has one.

        Raises:
            MissingDependency: The task needs a package that is not installed.
        """
        del problem

    def close(self) -> None:
        """Free what the task holds; by default nothing."""
        return


def fold_text(text: str) -> str:
    """Return a text with its spaces and case folded."""
    return " ".join(text.split()).casefold()


def keyed_task(task: Task) -> Task | None:
    """Return a task if its keys are equal for equivalent answers, else None.

    The keys of a class that overrides `decide` or `equivalent` without `key` may differ from its comparison.
    """
    for ancestor in type(task).__mro__:
        overrides = ancestor.__dict__.keys() & {"key", "decide", "equivalent"}
        if overrides:
            return task if "key" in overrides else None
    return None


def split_after(text: str, stops: Sequence[str]) -> list[str]:
    """Cut a text after each leftmost occurrence of a stop text, which stays at the end of its piece.

    Args:
        text: Any text; "" gives no piece.
        stops: Stop texts, none empty; the stop text that ends first wins.

    Returns:
        Pieces that join to `text`; no piece is empty.
    """
    pieces: list[str] = []
    start = 0
    while start < len(text):
        stop_end = find_stop(text, stops, start)
        piece_end = len(text) if stop_end is None else stop_end
        pieces.append(text[start:piece_end])
        start = piece_end
    return pieces


def find_stop(text: str, stops: Sequence[str], start: int = 0) -> int | None:
    """Return the index after the stop text that *ends* first from index `start` on, or None.

    A model that writes token by token would complete the same stop text first.
    """
    if len(stops) == 1:
        index = text.find(stops[0], start)
        return index + len(stops[0]) if index >= 0 else None
    ends: list[int] = []
    for stop in stops:
        index = text.find(stop, start)
        if index >= 0:
            ends.append(index + len(stop))
    return min(ends, default=None)
