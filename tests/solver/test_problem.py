"""What can be a problem: text or messages of text; anything else is one line that says so, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tts
from tts.checks import check_problem
from tts.errors import ConfigError
from tts.types import Message, Problem

TURN = {"role": "user", "content": "3 + 4"}


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "number": (lambda: problem(5), "the problem is 5, but must be text or a list of chat messages"),
    "None": (lambda: problem(None), "the problem is None, but must be text"),
    "bytes": (lambda: problem(b"3 + 4"), "the problem is b'3 + 4', but must be text"),
    "one message": (
        lambda: problem(TURN),
        "the problem is {'role': 'user', 'content': '3 + 4'}, but must be text or a list",
    ),
    "no content": (
        lambda: problem([{"role": "user"}]),
        "a message of the problem is {'role': 'user'}, but must be a role and a content",
    ),
    "no message": (
        lambda: problem([TURN, 5]),
        "a message of the problem is 5, but must be a role and a content, both text",
    ),
    "image": (
        lambda: problem([{"role": "user", "content": [{"type": "image"}]}]),
        "a message of the problem is {'role': 'user'",
    ),
    "content None": (lambda: problem([Message("user", None)]), "a message of the problem is Message("),  # type: ignore[arg-type]
    "half of a character": (
        lambda: problem("3 \ud83d 4"),
        r"the problem is '3 \ud83d 4', but must be text that can be written",
    ),
    "half in a message": (
        lambda: problem([Message("user", "\ud83d")]),
        r"the problem is '\ud83d', but must be text that can be written",
    ),
    "answer": (lambda: problem("3 + 4", answer=7), "the answer of the problem is 7, but must be text or None"),
    "id": (lambda: problem("3 + 4", id=12), "the id of the problem is 12, but must be text or None"),
    "task": (lambda: problem("3 + 4", task=b"math"), "the task of the problem is b'math', but must be text or None"),
    "metadata": (lambda: problem("3 + 4", metadata=3), "the metadata of the problem is 3, but must be a mapping"),
}


def problem(*given: Any, **more: Any) -> Problem:
    return Problem(*given, **more)


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_no_problem_is_named(case: str) -> None:
    make, cause = MISTAKES[case]
    with pytest.raises(ConfigError) as caught:
        check_problem(make())
    assert caught.value.cause.startswith(cause)
    assert caught.value.hint.startswith(("a message is {", "for example ", "it holds half of a character"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given", ["3 + 4", "", [TURN], (TURN, Message("assistant", "7")), [{**TURN, "name": "me"}], iter([TURN])]
)
def test_text_and_messages_are_problems(given: Any) -> None:
    problem = Problem(given, answer="7", id="p", task="arithmetic", metadata={"level": 1})
    check_problem(problem)
    check_problem(problem.without_answer())
    assert isinstance(problem.prompt, str) or all(isinstance(turn, Message) for turn in problem.prompt)
    assert given == "" or problem.text.startswith("3 + 4")


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(ConfigError) as caught:
        check_problem(Problem([{"role": "user", "content": ["x" * 10**5]}]))  # type: ignore[list-item]
    assert len(str(caught.value)) < 300


COLUMNS = {"question": ["3 + 4", "5 - 2"], "answer": [7, 3]}
ROWS = [{"question": "3 + 4", "answer": 7}, {"question": "5 - 2", "answer": 3}]


class Table:
    """A data set of the package `datasets`, as far as its names and rows go."""

    column_names = ("question", "answer")

    def __getitem__(self, name: str) -> Any:
        return COLUMNS[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


class Frame:
    """A data frame: it iterates over the names of its columns."""

    columns = ("question", "answer")
    __getitem__ = Table.__getitem__

    def __iter__(self) -> Iterator[Any]:
        return iter(self.columns)


def refusal(solve: Callable[..., Any], given: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        solve(given, 900, model="toy", strategy="best_of_n(n=2) | majority")
    return caught.value


@pytest.mark.parametrize("table", [COLUMNS, Table(), Frame(), "pyarrow"], ids=["mapping", "data set", "frame", "arrow"])
def test_the_hint_for_a_table_is_the_line_that_solves_it(table: Any) -> None:
    """The line is run as it stands."""
    table = pytest.importorskip("pyarrow").table(COLUMNS) if table == "pyarrow" else table
    line = refusal(tts.solve_many, table).hint.removeprefix("give ")
    solutions = tts.solve_many(
        eval(line, {"tts": tts, "problems": table}), 900, model="toy", strategy="best_of_n(n=2) | majority"
    )
    assert [(one.problem.text, one.problem.answer, one.error) for one in solutions] == [
        ("3 + 4", "7", None),
        ("5 - 2", "3", None),
    ]
    assert "solve_many([tts.Problem(" in refusal(tts.solve, table).hint


def test_rows_paths_and_lists_of_texts_are_refused_with_their_cure() -> None:
    row_hint = "give tts.Problem(row['question'], answer=str(row['answer']))"
    assert refusal(tts.solve_many, ROWS).hint == refusal(tts.solve, ROWS[0]).hint == row_hint
    assert "split" in refusal(tts.solve_many, type("Splits", (), {"column_names": {"train": ["question"]}})()).hint
    for given in ("rows.jsonl", Path("rows.csv")):
        assert f"datasets.load('{given}')" in refusal(tts.solve_many, given).hint
    assert "datasets.load('rows.jsonl')" in refusal(tts.solve, "rows.jsonl").hint
    assert "solve_many" in refusal(tts.solve, COLUMNS["question"]).hint
    assert "list" in refusal(tts.solve_many, [{"role": "user", "content": "3 + 4"}]).hint
    assert "nan" in refusal(tts.solve_many, [float("nan")] * 3).cause
