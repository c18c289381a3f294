"""Tests in JSON: standard input and calls, what equals what is expected, limits of each, and what is refused."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

import tts
from tests.addons.code.test_code import MODES, SHUT_IN, temporary
from tests.verifiers.paths import NoCalls, path, wholes
from tts.errors import ConfigError, VerifierError
from tts.types import Problem
from tts_addons.code.json_tests import step_of
from tts_addons.code.sandbox import ProgramOutcome, SandboxLimits, run
from tts_addons.code.steps import CodeTests, read_tests
from tts_addons.code.values import wire
from tts_addons.code.verifier import Code

__all__ = ["temporary"]
SUMS = [{"stdin": "3 4\n", "stdout": "7\n"}, {"stdin": "1 1", "stdout": "2"}]
METHOD = "class Solution:\n    def f(self, n: List[int]) -> int:\n        return "
WAYS = {
    "input": "a, b = map(int, input().split())\nprint(a + b)",
    "guard": "import sys\ndef main():\n    print(sum(map(int, sys.stdin.read().split())))\nif __name__ == "
    "'__main__':\n    main()",
    "lines": "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
    "descriptor": "import os\nprint(sum(map(int, os.read(0, 100).split())))\nexit()",
    "file": "print(sum(map(int, open(0).read().split())))",
    "thread": "import threading\nthreading.Thread(target=lambda: print(sum(map(int, input().split())))).start()",
    "status": "import sys\nprint(sum(map(int, input().split())))\nsys.exit(3)",
}


def fault(test: dict[str, Any], *values: Any) -> bool:
    asked, clause = step_of(test)
    del asked
    return bool(clause.fault(values))


def ran(program: str, tests: Any, *, isolated: bool = False, **limits: Any) -> Any:
    return run(program, json.dumps(tests), SandboxLimits(**limits), isolated=isolated)


@pytest.mark.parametrize("isolated", MODES)
@pytest.mark.parametrize("way", WAYS)
def test_standard_input_is_read_in_every_way(way: str, isolated: bool) -> None:
    result = ran(WAYS[way], SUMS, isolated=isolated)
    assert (result.outcome, result.tests) == (ProgramOutcome.PASSED, (True, True)), result.detail


@pytest.mark.parametrize("isolated", MODES)
@pytest.mark.parametrize(
    ("program", "told", "detail"),
    [
        ("print(7)", (True, False), "the output is not '2'"),
        ("print(int(input()) + 1)", (False, False), "ValueError"),
        ("import os\nos.kill(os.getpid(), 11)", (False, False), "SIGSEGV"),
        ("x = bytearray(2**33)", (False, False), "MemoryError"),
        ("while True:\n    pass", (False,), "it ran for more than 0.5 seconds"),
        (
            "import subprocess\nprint(sum(map(int, input().split())))\nsubprocess.Popen(['sleep', '60'])",
            (True, True),
            "",
        ),
    ],
)
def test_every_run_has_an_outcome_and_a_limit_of_its_own(
    program: str, told: tuple[bool, ...], detail: str, isolated: bool
) -> None:
    result = ran(program, SUMS, isolated=isolated, seconds=0.5 if "while" in program else 10.0)
    assert (result.tests, detail in result.detail) == (told, True), result.detail
    assert result.outcome is (ProgramOutcome.PASSED if all(told) and len(told) == 2 else ProgramOutcome.FAILED)


def test_the_seconds_of_all_tests_bound_those_of_each() -> None:
    result = ran("import time\ntime.sleep(600)", SUMS * 50, seconds=300.0, total=0.5)
    assert result.outcome is ProgramOutcome.TIMEOUT


def test_a_program_that_is_no_python_is_not_run() -> None:
    result = ran("def f(:", SUMS)
    assert (result.outcome, result.total) == (ProgramOutcome.ERROR, 0)
    assert result.detail.startswith("SyntaxError")


@pytest.mark.slow
@pytest.mark.parametrize("isolated", MODES)
def test_calls_reach_functions_and_methods_and_compare_plain_data(isolated: bool) -> None:
    tests = [{"function": "pair", "arguments": [n, [4, None]], "returns": [n, [4, None], True]} for n in (3, 5)]
    for program in (
        "def pair(a, b):\n    return a, tuple(b), True",
        "class Solution:\n    def pair(self, a, b):\n        return [a, b, True]",
    ):
        assert ran(program, tests, isolated=isolated).outcome is ProgramOutcome.PASSED
    wrong = ran("def pair(a, b):\n    return [3, b, True]", tests, isolated=isolated)
    assert (wrong.tests, "pair does not return [5" in wrong.detail) == ((True, False), True)
    late = ran("def pair(a, b):\n    while True:\n        pass", tests, isolated=isolated, seconds=0.5)
    assert (late.outcome, late.detail) == (ProgramOutcome.TIMEOUT, "it ran for more than 0.5 seconds in a test")


def test_what_is_expected_never_reaches_the_program() -> None:
    read = read_tests(json.dumps([{"stdin": "1", "stdout": "secret-1"}, {"stdin": "2", "stdout": "secret-2"}]))
    assert "secret" not in json.dumps(read.asked)
    read = read_tests(json.dumps([{"function": "f", "arguments": [1], "returns": "secret"}]))
    assert "secret" not in json.dumps(read.asked)


@pytest.mark.parametrize(
    ("written", "expected", "options", "same"),
    [
        ("7", "7\n", {}, True), ("  7 \n\n", "7", {}, True), ("1 2\n3", "1\n2 3", {}, True),
        ("1 2\n3", "1\n2 3", {"compare": "lines"}, False),
        ("1  2 \n3\n", "1 2\n3", {"compare": "lines"}, True), ("7 8", "7", {}, False), ("", "7", {}, False),
        ("", "", {}, True), ("0.3333333", "0.33333333", {}, True), ("0.33", "0.33333333", {}, False),
        ("0.3333333", "0.33333333", {"tolerance": 0}, False), ("0.50", "0.5", {"tolerance": 0}, True),
        ("1e3", "1000.0", {}, True), ("7.0", "7", {}, True), ("7.0000001", "7", {}, False),
        ("50000000000000001", "50000000000000000", {}, False), ("YES", "Yes", {}, False), ("nan", "0.5", {}, False),
        ("0.5" * 500, "0.5", {}, False), ("1e999", "1.5", {}, False),
    ],
)  # fmt: skip
def test_outputs_are_compared_by_words_and_numbers(
    written: str, expected: str, options: dict[str, Any], same: bool
) -> None:
    assert fault({"stdin": "", "stdout": expected, **options}, written) is not same


@pytest.mark.parametrize("value", [[1, {"a": []}], (1, {"a": ()})])
def test_tuples_equal_lists(value: Any) -> None:
    assert not fault({"function": "f", "arguments": [], "returns": [1, {"a": []}]}, wire(value))
    assert fault({"function": "f", "arguments": [], "returns": [{"a": []}, 1]}, wire(value))


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ([], "must test something"),
        ([{"stdin": "1"}], "test 1 is"),
        ([*SUMS, {"stdin": 1, "stdout": "2"}], "test 3 has .* must be texts"),
        ([{"stdin": "1", "stdout": "2", "compare": "sets"}], "it must be 'tokens' or 'lines'"),
        ([{"stdin": "1", "stdout": "2", "tolerance": True}], "it must be a number from 0"),
        ([{"function": "f(", "arguments": [], "returns": 1}], "function must be a name"),
        ([{"function": "f", "arguments": {}, "returns": 1}], "arguments a list"),
        ([*SUMS, {"function": "f", "arguments": [], "returns": 1}], "it mixes tests"),
        ([1], "test 1 is 1"),
    ],
)
def test_tests_of_another_form_are_refused_before_anything_is_run(tests: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Code(tests=json.dumps(tests))
    with pytest.raises((ConfigError, VerifierError)):
        Code(sandbox="none").check(Problem("p", answer=json.dumps(tests)))


def test_plain_python_stays_python() -> None:
    assert isinstance(read_tests("assert [1] == f([1])"), CodeTests)
    with pytest.raises(ConfigError, match="must test something"):
        Code(tests="[{'a': 1}]")


@SHUT_IN
def test_scores_are_shares_and_the_block_that_reads_input_is_run() -> None:
    told = "First:\n```python\nprint(sum(map(int, input().split())))\n```\nIt prints\n```\n7\n```\n"
    code = Code(tests=json.dumps([*SUMS, {"stdin": "2 2", "stdout": "5"}]), credit="share")
    [score] = wholes(code, path([-1.0], text=told))
    assert score == pytest.approx(2 / 3)


def test_an_oracle_reads_them_from_the_answer() -> None:
    problem = tts.Problem("Add two numbers.", answer=json.dumps(SUMS))
    with tts.Solver(
        lambda ask: f"```python\n{WAYS['input'] if ask.seed % 2 else 'print(7)'}\n```",
        Code(sandbox="none"),
        allow_oracle=True,
    ) as solver:
        found = solver.solve(problem, tts.Budget(samples=4), strategy="best_of_n | best")
    assert sorted({c.scores["main"] for c in found.candidates}) == [0.0, 1.0]
    assert "input()" in (found.text or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "prelude", "right"),
    [
        (f"{METHOD}Counter(n)[2] + pow(2, 3, 5) + gcd(4, 6)", "solution", True),
        (f"from __future__ import annotations\n{METHOD}Counter(n)[2] + 3 + math.gcd(4, 6)", "solution", True),
        (f"{METHOD}6", "never", False),
        ("def f(n):\n    return Counter(n)[2] + 5", "solution", False),
        ("def f(n):\n    return Counter(n)[2] + 5", "always", True),
    ],
)  # fmt: skip
def test_a_class_solution_has_the_names_of_the_benchmarks(program: str, prelude: str, right: bool) -> None:
    tests = json.dumps([{"function": "f", "arguments": [[2, 3]], "returns": 6}])
    for given in (tests, "assert Solution().f([2, 3]) == 6" if "Solution" in program else "assert f([2, 3]) == 6"):
        result = Code(sandbox="none", prelude=prelude).outcome(program, given)
        assert (result.outcome is ProgramOutcome.PASSED) is right, result.detail


def test_a_budget_of_seconds_leaves_late_programs_unknown() -> None:
    code = Code(tests=json.dumps(SUMS), sandbox="none", seconds=60.0)
    [score] = asyncio.run(
        code.score(Problem("p"), [path([-1.0], text="import time\ntime.sleep(60)")], NoCalls(seconds_left=lambda: 0.3))
    )  # type: ignore[arg-type]
    assert math.isnan(score.whole or 0.0)
