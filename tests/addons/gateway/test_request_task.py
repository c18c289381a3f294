"""A task with the stop texts and tools of one request: calls are answers, compared as values."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jsonschema")

from tests.addons.gateway.parts import CALL, OTHER, SAME, WRONG
from tts import tasks
from tts.errors import ConfigError
from tts.tasks.base import Task
from tts_addons.gateway.request_task import PairwiseRequestTask, RequestTask, request_task, tools_of

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


class Pairs(Task):
    """A task without keys: answers of equal length are equivalent."""

    name = "pairs"

    def extract(self, text: str) -> str | None:
        return text

    def decide(self, a: str, b: str) -> bool | None:
        return len(a) == len(b)


def made(inner: Any, *stops: str) -> Any:
    return request_task(inner, stops, tools_of([WEATHER], None, parallel=True))


@pytest.mark.parametrize(("inner", "kind"), [(tasks.get("text"), RequestTask), (Pairs(), PairwiseRequestTask)])
def test_equal_calls_are_equal_answers(inner: Any, kind: type) -> None:
    task = made(inner)
    assert type(task) is kind
    one, same, other = (task.extract(text) for text in (CALL, SAME, OTHER))
    assert task.canonical(one) == task.canonical(same) != task.canonical(other)
    assert task.key(one) == task.key(same) == task.known_key(one)
    assert (task.decide(one, same), task.decide(one, other), task.decide(one, "Oslo")) == (True, False, False)
    assert (task.equivalent(one, same), task.equivalent(one, other), task.equivalent("Oslo", one)) == (
        True,
        False,
        False,
    )
    assert task.extract(WRONG) is None


def test_other_answers_are_compared_by_the_inner_task() -> None:
    task = made(Pairs())
    assert (task.equivalent("Oslo", "Rome"), task.decide("Oslo", "Paris")) == (True, False)
    sums = made(tasks.get("arithmetic"))
    assert sums.equivalent("5", "05") == tasks.get("arithmetic").equivalent("5", "05")
    assert sums.key("5") == tasks.get("arithmetic").key("5")
    assert sums.canonical("5") == tasks.get("arithmetic").canonical("5")


def test_a_stop_text_finishes_an_answer_and_steps_are_those_of_the_inner_task() -> None:
    inner = tasks.get("arithmetic")
    task = made(inner, "END", "STOP")
    assert task.cut("1 STOP 2 END") == "1 "
    assert (task.is_finished("3 + 4 = 7\n"), task.is_finished("3 + 4 = 7\nSTOP")) == (False, True)
    assert not task.is_finished("<think>STOP")  # a thought goes on
    assert task.split("3 + 4 = 7\nA: 7") == inner.split("3 + 4 = 7\nA: 7")


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([WEATHER, WEATHER], "tools has two functions of one name, but each needs a name of its own"),
        (
            [{"type": "function", "function": {"name": "w", "parameters": "city"}}],
            "parameters of w is 'city', but must be a JSON schema",
        ),
        ([{"type": "function", "function": {"name": "a b"}}], "a tool is {'type': 'function'"),
    ],
)
def test_wrong_tools_are_refused(tools: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        tools_of(tools, None, parallel=True)
    assert str(refusal.value).startswith(told)
