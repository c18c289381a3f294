"""Rows of LiveCodeBench and APPS as problems: every form of their tests, packed ones, and pickles that are none of a
text.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.experiments.datasets import load
from tts.experiments.datasets.rows import BadRow, Fields, RowsLeftOut, read_row
from tts_addons.code.sandbox import ProgramOutcome
from tts_addons.code.tested_rows import text_of_pickle
from tts_addons.code.verifier import Code

PUBLIC = [{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}]
PRIVATE = [
    {"input": "1 1\n", "output": "2\n", "testtype": "stdin"},
    {"input": "é 1", "output": "ü", "testtype": "stdin"},
]
CALLS = [{"input": '[3, 4]\n"x"', "output": "[true, null]", "testtype": "functional"}]


def packed(value: Any, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def lcb(**more: Any) -> dict[str, Any]:
    return {
        "question_title": "Sum",
        "question_content": "Add two numbers.",
        "platform": "atcoder",
        "question_id": "abc1_a",
        "contest_id": "abc1",
        "contest_date": "2024-08-10T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(PUBLIC),
        "private_test_cases": packed(json.dumps(PRIVATE)),
        "metadata": "{}",
        **more,
    }


def problem_of(row: dict[str, Any]) -> Any:
    return read_row(row, Fields(None, None))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_private_tests_of_every_protocol_are_read(protocol: int) -> None:
    problem = problem_of(lcb(private_test_cases=packed(json.dumps(PRIVATE, ensure_ascii=False), protocol)))
    expected = [
        {"stdin": t["input"], "stdout": t["output"], "compare": "lines", "tolerance": 0} for t in PUBLIC + PRIVATE
    ]
    assert json.loads(problem.answer) == expected
    assert (problem.id, problem.metadata["difficulty"]) == ("abc1_a", "easy")
    assert "reads from standard input" in problem.text
    assert not {"private_test_cases", "public_test_cases"} & problem.metadata.keys()


def test_tests_of_calls_are_read_with_their_function() -> None:
    starter = "class Solution:\n    def f(self, a: List[int], b: str):\n        "
    metadata = json.dumps({"func_name": "f"})
    problem = problem_of(
        lcb(public_test_cases=json.dumps(CALLS), private_test_cases="[]", metadata=metadata, starter_code=starter)
    )
    assert json.loads(problem.answer) == [{"function": "f", "arguments": [[3, 4], "x"], "returns": [True, None]}]
    assert starter.rstrip() in problem.text
    program = "class Solution:\n    def f(self, a: List[int], b: str):\n        return a == [3, 4] and b == 'x', None\n"
    assert Code(sandbox="none").outcome(program, problem.answer).outcome is ProgramOutcome.PASSED


@pytest.mark.parametrize(
    ("given_tests", "expected"),
    [
        ({"inputs": ["3 4\n", ["1", "1"]], "outputs": ["7\n", ["2", "3"]]}, [("3 4\n", "7\n"), ("1\n1", "2\n3")]),
        ({"fn_name": "f", "inputs": [[1, "a"], [[2]]], "outputs": [[3], 4]}, [([1, "a"], 3), ([[2]], 4)]),
    ],
)
def test_rows_of_apps_are_read(given_tests: Any, expected: list[Any]) -> None:
    problem = problem_of(
        {"problem_id": 17, "question": "Add.", "solutions": '["print(1)"]', "input_output": json.dumps(given_tests)}
    )
    tests = json.loads(problem.answer)
    assert [
        tuple(test.get(name) for name in (("stdin", "stdout") if "stdin" in test else ("arguments", "returns")))
        for test in tests
    ] == expected
    assert problem.id == "17"
    assert "solutions" not in problem.metadata


def test_files_are_read_end_to_end(tmp_path: Path) -> None:
    file = tmp_path / "livecodebench.jsonl"
    file.write_text(
        "\n".join(
            json.dumps(row) for row in (lcb(), lcb(question_id="b", question_content="B.", private_test_cases="*"))
        )
    )
    with pytest.warns(RowsLeftOut, match=r"2:.*private_test_cases.*'\*',.*pickle"):
        [problem] = load(str(file))
    program = "a, b = input().split()\nprint('ü' if a == 'é' else int(a) + int(b))"
    result = Code(sandbox="none").outcome(program, problem.answer or "")
    assert (result.outcome, result.total) == (ProgramOutcome.PASSED, 3)
    [named] = load("file", path=str(file), fields={"problem": "question_title", "id": "contest_id"}, limit=1)
    assert (named.id, named.text.splitlines()[0]) == ("abc1", "Sum")
    with pytest.raises(ConfigError, match="nothing"):
        load("file", path=str(file), fields={"id": "nothing"}, limit=1)
    [other] = load("file", path=str(file), fields={"problem": "question_content", "answer": "difficulty"}, limit=1)
    assert other.answer == "easy"


class Runs:
    def __reduce__(self) -> Any:
        return print, ("run",)


@pytest.mark.parametrize("value", [Runs(), ["a"], ("a", "b"), {"a": "b"}, b"bytes", 1, None, Runs, [Runs()]])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_of_anything_but_a_text_is_refused_and_not_carried_out(
    value: Any, protocol: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadRow, match="private_test_cases"):
        problem_of(lcb(private_test_cases=packed(value, protocol)))
    assert capsys.readouterr().out == ""


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_do_more_than_raise_a_value_error(data: bytes, framed: bool) -> None:
    with suppress(ValueError):
        assert isinstance(text_of_pickle(b"\x80\x04" + data + b"." if framed else data), str)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (lcb(private_test_cases=packed("[]")[:-8]), "private_test_cases"),
        (lcb(private_test_cases=packed("not JSON")), "private_test_cases"),
        (
            lcb(private_test_cases=base64.b64encode(zlib.compress(pickle.dumps("[]")) + b"more").decode()),
            "it ends in the middle",
        ),
        (lcb(public_test_cases='[{"input": 1, "output": "2"}]'), "a test must have the texts input and output"),
        (lcb(public_test_cases=json.dumps(CALLS)), "its metadata has func_name None"),
        (lcb(public_test_cases="[]", private_test_cases="[]"), "its tests are empty"),
        (lcb(question_content=""), "none of the fields"),
        ({"question": "A.", "input_output": '{"inputs": ["1"], "outputs": []}'}, "as many inputs as outputs"),
        (
            {"question": "A.", "input_output": '{"inputs": [1], "outputs": ["1"]}'},
            "must have a text or a list of lines",
        ),
        (
            {"question": "A.", "input_output": '{"fn_name": "f", "inputs": ["1"], "outputs": ["1"]}'},
            "must name a function",
        ),
    ],
)
def test_rows_that_cannot_be_read_name_their_field(row: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRow, match=why):
        problem_of(row)


def test_tests_that_unpack_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_LARGEST_ROW", "1")
    with pytest.raises(BadRow, match="more than 1 MiB"):
        problem_of(lcb(private_test_cases=packed(" " * (2 << 20))))
