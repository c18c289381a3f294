"""A wrapper that limits a task's faults to single candidates.

An error that the task raises on a model's text does not end a search.

Idea: a model may write anything, such as numbers that overflow in a library. The search gets the task in this wrapper,
    the one place that catches what `extract`, `split` and the comparisons raise. So strategies, selections and
    verifiers need no guards of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tts.errors import MissingDependency
from tts.tasks.base import Task, keyed_task

T = TypeVar("T")
_UNREAD = "\0unread: "  # begins the key of an answer that has none, so that it equals no other key
_EXITS = (SystemExit, GeneratorExit, asyncio.CancelledError)  # in a plain function these are errors of the function


class IsolatedTask:
    """A task that reports the errors of its methods on a model's text, and returns a safe result.

    TimeoutError, which means that a time limit ended the task, and MissingDependency are raised as they are.

    Args:
        inner: The task, whose other members are passed on.
        warn: A function that gets a line for the solution's warnings.
    """

    def __init__(self, inner: Task, warn: Callable[[str], None]) -> None:
        self._inner, self._warn = inner, warn
        self._reported: set[tuple[str, type[BaseException]]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] - strategies may ask isinstance(search.task, …)
        return type(self._inner)

    def _try(self, fallback: T, effect: str, method: str, *texts: str) -> T:
        """Return the result of a method of the inner task; where the method fails, `fallback`, with a warning."""
        try:
            return getattr(self._inner, method)(*texts)
        except (TimeoutError, MissingDependency):
            raise
        except (Exception, *_EXITS) as failure:  # noqa: BLE001 - whatever a model's text leads to is that text's fault alone
            self._report(failure, effect, method)
            return fallback

    def _report(self, failure: BaseException, effect: str, method: str) -> None:
        """Warn of a failure, once for each method and type of exception."""
        failure_kind = (method, type(failure))
        if failure_kind in self._reported:
            return
        self._reported.add(failure_kind)
        cause = " ".join(f"{type(failure).__name__}: {failure}".split())[:200]
        name = self._inner.name.partition("(")[0]
        self._warn(f"the task {name!r} failed in {method} on a text of the model, so {effect} ({cause})")

    def extract(self, text: str) -> str | None:
        """Return the final answer; None where the task fails."""
        return self._try(None, "that candidate has no answer", "extract", text)

    def split(self, text: str) -> list[str]:
        """Return the steps; the text as one step where the task fails."""
        return self._try([text] if text else [], "the text counts as one step", "split", text)

    def is_finished(self, text: str) -> bool:
        """Whether a text is a whole solution; False where the task fails."""
        return bool(self._try(None, "the text counts as unfinished", "is_finished", text))

    def canonical(self, answer: str) -> str:
        """Return a cheap normal form; the answer itself where the task fails."""
        return self._try(answer, "the answer is compared as it is written", "canonical", answer)

    def decide(self, a: str, b: str) -> bool | None:
        """Whether two answers are equivalent, by cheap rules; where the task fails, only equal texts are."""
        return self._try(a == b, "its answer equals no other", "decide", a, b)

    def accepts(self, answer: str, reference: str) -> bool | None:
        """Whether an answer is right by a reference; where the task fails, only an equal text is."""
        return self._try(answer == reference, "its answer equals no other", "accepts", answer, reference)

    def equivalent(self, a: str, b: str) -> bool:
        """Whether two answers mean the same; where the task fails, only equal texts do."""
        return self._try(a == b, "its answer equals no other", "equivalent", a, b)

    def known_key(self, answer: str) -> str | None:
        """Return the key of an answer where it is cheap; where the task fails, a key that no other answer has."""
        return self._try(_UNREAD + answer, "its answer equals no other", "known_key", answer)

    def key(self, answer: str) -> str:
        """Return the key of an answer; where the task fails, a key that no other answer has."""
        return self._try(_UNREAD + answer, "its answer equals no other", "key", answer)


class PairwiseIsolatedTask(IsolatedTask):
    """An `IsolatedTask` whose inner task has no keys, so that answers are compared by pairs."""

    decide = IsolatedTask.decide
    equivalent = IsolatedTask.equivalent


def isolate(task: Task, warn: Callable[[str], None]) -> Task:
    """Return a task whose faults on a model's text are reported and do not end the search."""
    return cast("Task", (PairwiseIsolatedTask if keyed_task(task) is None else IsolatedTask)(task, warn))
