"""What a task raises on one text of a model is that candidate's failure alone."""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from typing import Any

import pytest

import tts
from tts.errors import MissingDependency
from tts.tasks.base import keyed_task
from tts.tasks.isolation import isolate
from tts.tasks.json import JsonTask
from tts.tasks.text import TextTask


class Keyed(tts.Task):
    def extract(self, text: str) -> str | None:
        return text


class Pairs(Keyed):
    def decide(self, a: str, b: str) -> bool | None:
        return a == b


def failing(base: type[tts.Task], method: str) -> Any:
    """A task that fails in one method on every text with an x."""

    def fail(self: Any, *texts: str) -> Any:
        if any("x" in text for text in texts):
            raise OverflowError(f"cannot convert {texts[0]}\nto an integer")
        return getattr(base, method)(self, *texts)

    return type("Own", (base,), {method: fail, "name": "own"})()


@pytest.mark.parametrize("base", [Keyed, Pairs])
@pytest.mark.parametrize("method", ["extract", "canonical", "decide", "equivalent", "known_key", "key", "is_finished"])
def test_a_fault_of_a_task_is_one_candidates_own(base: type[tts.Task], method: str) -> None:
    number = itertools.count()
    solution = tts.solve(
        "q",
        tts.Budget(samples=5),
        backend=lambda ask: tts.Answer("x\n\n" if next(number) == 2 else "yes\n\n", tokens=2),
        task=failing(base, method),
        strategy="best_of_n(n=5) | majority",
    )
    assert solution.error is None
    assert solution.answer is not None
    assert solution.answer.strip() == "yes"
    assert len(solution.candidates) == 5
    for line in solution.warnings:
        assert "\n" not in line
    if method == "extract":
        assert any(
            "the task 'own' failed in extract" in line and "that candidate has no answer" in line
            for line in solution.warnings
        )


def test_what_a_task_raises_is_reported_once_by_kind() -> None:
    lines: list[str] = []
    task = isolate(failing(Keyed, "extract"), lines.append)
    assert [task.extract("x"), task.extract("xx"), task.extract("a")] == [None, None, "a"]
    (line,) = lines
    assert line == "the task 'own' failed in extract on a text of the model, so that candidate has no answer " + (
        "(OverflowError: cannot convert x to an integer)"
    )


@pytest.mark.parametrize("failure", [TimeoutError, MissingDependency])
def test_the_time_limit_and_a_missing_package_are_raised(failure: type[Exception]) -> None:
    def fail(self: Any, text: str) -> str:
        raise failure("…")

    with pytest.raises(failure):
        isolate(type("Own", (Keyed,), {"extract": fail})(), print).extract("x")


def test_an_isolated_task_is_the_task_in_all_else() -> None:
    task: Any = isolate(TextTask(), print)
    assert isinstance(task, TextTask)
    assert (task.name, task.step_stop, task.split("a\n\nb")) == (
        "text",
        TextTask().step_stop,
        TextTask().split("a\n\nb"),
    )
    assert (keyed_task(isolate(Keyed(), print)) is None, keyed_task(isolate(Pairs(), print)) is None) == (False, True)


@pytest.mark.skipif(find_spec("jsonschema") is None, reason="jsonschema (extra json) is not installed")
@pytest.mark.parametrize("text", ["1" + "0" * 400, "1e999", "9" * 5000, "[" * 3000, '{"a":' * 2000])
def test_numbers_and_nesting_beyond_a_library_do_not_end_a_search(text: str) -> None:
    number = itertools.count()
    solution = tts.solve(
        "q",
        tts.Budget(samples=4),
        backend=lambda ask: tts.Answer(text if next(number) == 1 else "2", tokens=4),
        task=JsonTask(schema={"type": "number", "multipleOf": 0.5}),
        strategy="best_of_n(n=4) | majority",
    )
    assert (solution.answer, solution.error, len(solution.candidates)) == ("2", None, 4)
