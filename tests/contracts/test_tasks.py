"""What every task promises; a new one is under test as soon as it is in the table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tts.tasks
from tests.support.runs import make_run, solve_and_show
from tts.backends.function import Answer, FunctionBackend
from tts.errors import ConfigError
from tts.search.ends import STEP
from tts.search.needs import Needs
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.types import Problem, Prompt

QUICK = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    "derandomize": True,
}
PIECES = ("a", "b c", "\n", "\n\n", "\n\n\n", " \n", "Answer: 4", "A: 4\n", "####", "é", "", "(C)", "1,234", "-3/4")
PIECES += (r"\boxed{4}", r"\boxed{", "}")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
# What is asked of tasks that take only problems of their own, as their prompts put it, and earlier solutions of it.
ASKED = {"countdown": "Reach 39 with 17 22.", "pocket": "12 + 7 * (3 - 5)"}
EARLIER = {
    "pocket": ("3 - 5 = 2\n7 * 2 = 14\n12 + 14 = 26\nA: 26\n", "3 - 5 = -2\n7 * -2 = -14\n12 + -14 = -2\nA: -2\n")
}


@pytest.fixture(params=sorted(tts.tasks.TASKS), scope="module")
def task(request: pytest.FixtureRequest) -> Any:
    made = tts.tasks.get(request.param)
    yield made
    made.close()


@given(text=TEXTS)
@settings(**QUICK)
def test_split_joins_to_the_text_and_cuts_where_a_step_ends(task: Any, text: str) -> None:
    pieces = task.split(text)
    assert "".join(pieces) == text
    assert all(pieces)
    for piece in pieces[:-1]:
        assert any(piece.endswith(stop) for stop in task.step_stop)
    for end in range(len(pieces)):  # a prefix of whole pieces is cut as the whole is
        assert task.split("".join(pieces[:end])) == pieces[:end]


class Walk(Strategy):
    """Expands step by step; `pieces` is what it saw."""

    registered_as = "walk"

    def needs(self) -> Needs:
        return Needs(capabilities=("steps",))

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.whole = ""

    async def run(self, search: Search) -> Any:
        t = search.root
        while t.status == "active":
            [made] = await search.expand([t], 1, STEP)
            t = made[0]
            self.pieces.append(t.text)
        self.whole = t.full_text
        return search.candidates

    def default_selection(self, *, verified: bool) -> Majority:
        return Majority()

    def __str__(self) -> str:
        return "walk"


@given(text=TEXTS)
@settings(**QUICK)
def test_split_gives_the_pieces_that_expanding_step_by_step_makes(task: Any, text: str) -> None:
    walk = Walk()
    backend = FunctionBackend(
        lambda ask: Answer(text[len(ask.text) :], tokens=max(1, len(text) - len(ask.text)), finished=True)
    )
    end = solve_and_show(make_run(ASKED.get(task.name, "What is 1 + 1?"), 10**6, walk, backend, task=task.name))
    assert end.solution.error is None
    assert text.startswith(walk.whole)
    assert [piece for piece in walk.pieces if piece] == task.split(walk.whole)


def test_prompts_hold_the_problem_and_the_earlier_texts_or_are_refused(task: Any) -> None:
    problem = Problem(ASKED.get(task.name, "What is six times seven, dear reader?"))
    first, second = EARLIER.get(task.name, ("first try", "second try"))
    kinds: dict[str, Prompt] = {"solve": task.prompt(problem)}
    for kind, texts in (("revise", [first]), ("fuse", [first, second]), ("critique", [first])):
        try:
            kinds[kind] = task.prompt(problem, kind, texts)
        except ConfigError:
            continue  # a task need not have all kinds
        assert task.typical_tokens(kind) >= 1
        assert all(text in _text(kinds[kind]) for text in texts)
        with pytest.raises(ConfigError):
            task.prompt(problem, kind, [])
    assert all(problem.text in _text(prompt) for prompt in kinds.values())
    with pytest.raises(ConfigError):
        task.prompt(problem, "no such kind")


def _text(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "".join(message.content for message in prompt)


ANSWERS = ("4", "4.0", "04", "-4", "8/2", "A", "a", "B", " yes ", "Yes", "1,234", "1234", "x+1", "1+x", "é", "none")


@pytest.mark.parametrize("a", ANSWERS)
def test_equivalence_is_reflexive_and_symmetric_and_agrees_with_its_cheap_parts(task: Any, a: str) -> None:
    assert task.equivalent(a, a)
    assert task.decide(a, a) is not False
    for b in ANSWERS:
        verdict = task.equivalent(a, b)
        assert verdict == task.equivalent(b, a)
        assert task.decide(a, b) in (None, verdict)
        assert verdict or task.canonical(a) != task.canonical(b)


@given(text=TEXTS)
@example(text="\\boxed{a}\\boxed{4}")
@settings(**QUICK)
def test_an_answer_is_a_text_that_is_there_and_never_empty(task: Any, text: str) -> None:
    answer = task.extract(text)
    # the letter of a choice may be small in the text, and the contents of boxes that are connected are joined by commas
    assert answer is None or answer.strip()
    assert answer is None or all(part in text.casefold() for part in answer.casefold().split(", "))


def test_constants_are_constants(task: Any) -> None:
    assert 1 <= task.typical_tokens("step") < task.typical_tokens("solve")
    with pytest.raises(ConfigError):
        task.typical_tokens("no such kind")
    assert task.is_finished("") is False
