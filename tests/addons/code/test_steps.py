"""What tests are read as: what checks something, what the program's process gets of it, and what is decided apart."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from tests.support.repeats import repeats
from tests.verifiers.paths import NoCalls, path, wholes
from tts.errors import ConfigError
from tts_addons.code import conditions
from tts_addons.code.sandbox import ProgramOutcome, SandboxLimits, run
from tts_addons.code.steps import NothingTestedError, NotTestsError, read_tests
from tts_addons.code.values import NotDataError, data_of, equal, holds, plain, wire
from tts_addons.code.verifier import Code

RIGHT, WRONG = "def f(x):\n    return x * 2\n", "def f(x):\n    return x + 1\n"
DEFINED = "def test_f():\n    assert f(2) == 4\n    assert f(1) == 2\n"
CASE = "import unittest\nclass TestF(unittest.TestCase):\n    def test_f(self):\n        self.assertEqual(f(1), 2)\n"
RUN = {
    "a guard": DEFINED + "if __name__ == '__main__':\n    test_f()\n",
    "a guard, turned": DEFINED + "if '__main__' == __name__:\n    test_f()\n",
    "unittest.main": CASE + "unittest.main(exit=False)\n",
    "unittest.main that leaves": CASE + "if __name__ == '__main__':\n    unittest.main()\n",
    "unittest with set-up": CASE.replace("f(1), 2", "f(self.x), 2")
    + "    def setUp(self):\n        self.x = 1\nunittest.main(verbosity=2)\n",
    "unittest, kept": CASE + "result = unittest.main(exit=False)\n",
    "doctest": '"""What f does.\n\n>>> f(1)\n2\n"""\nimport doctest\ndoctest.testmod()\n',
    "doctest in a function": (
        "def spec():\n    '''\n    >>> f(1)\n    2\n    '''\nif __name__ == '__main__':\n    import doctest\n    "
        "doctest.testmod()\n"
    ),
    "a bare comparison": "f(1) == 2",
    "bare comparisons in a function": "def test():\n    f(1) == 2\n    f(3) == 6\ntest()\n",
    "a bare negation": "not f(1) != 2",
    "bare and": "f(1) == 2 and f(2) == 4",
    "functions that nothing calls": DEFINED,
    "cases that nothing calls": CASE,
    "a raise": "if f(1) != 2:\n    raise ValueError('no')\n",
    "an imported check": "from operator import index as check\nimport random\nrandom.seed(0)\ncheck(0 if f(1) == 2 "
    "else None)\n",
    "a method of a class": "class T:\n    def run(self):\n        assert f(1) == 2\nT().run()\n",
    "a fixture-like chain": "def one():\n    assert f(1) == 2\ndef all_tests():\n    one()\nall_tests()\n",
}
NOTHING = {
    "only printed": "print(f(2) == 4)",
    "only called": "f(2)",
    "named, but not called": "def check():\n    assert f(2) == 4\ncheck\n",
    "a tuple": "assert (f(2) == 4, 'f(2)')",
    "an error that is swallowed": "try:\n    assert f(2) == 4\nexcept AssertionError:\n    print('failed')\n",
    "any error that is swallowed": "try:\n    assert f(2) == 4\nexcept:\n    pass\n",
    "a coroutine that nobody awaits": "async def test():\n    assert f(2) == 4\ntest()\n",
    "a generator that nobody runs": "def test():\n    assert f(2) == 4\n    yield\ntest()\n",
    "doctest without examples": "'''f'''\nimport doctest\ndoctest.testmod()\n",
    "unittest without cases": "import unittest\nunittest.main(exit=False)\n",
    "unittest without checks": "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        "
    "f(2)\nunittest.main()\n",
    "a function with a parameter that nothing calls": "def check(f):\n    assert f(1) == 3\n",
    "a seed": "import random\nrandom.seed(0)\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_what_is_not_a_plain_assertion_is_run_all_the_same(name: str) -> None:
    right, wrong = (
        run(program, RUN[name], SandboxLimits(), isolated=False) for program in (RIGHT, WRONG.replace("+ 1", "+ 5"))
    )
    assert right.outcome is ProgramOutcome.PASSED, right
    assert right.total > 0
    assert wrong.outcome is ProgramOutcome.FAILED, wrong
    assert wrong.passed < wrong.total


@pytest.mark.parametrize("name", NOTHING)
def test_what_checks_nothing_is_refused(name: str) -> None:
    with pytest.raises(NothingTestedError):
        read_tests(NOTHING[name])
    with pytest.raises(ConfigError, match="must test something"):
        Code(tests=NOTHING[name])


def test_a_statement_that_checks_nothing_is_no_test_and_its_failure_fails_the_program() -> None:
    tests = "print(f(2))\nassert f(1) == 2\nassert f(2) == 4\n"
    assert read_tests(tests).total == 2
    assert run(RIGHT, tests, SandboxLimits(), isolated=False).passed == 2
    raises = run("def f(x):\n    if x == 2: raise KeyError\n    return 2\n", tests, SandboxLimits(), isolated=False)
    assert (raises.outcome, raises.passed) == (ProgramOutcome.FAILED, 0)


def test_no_case_that_is_run_is_a_failure_of_the_program() -> None:
    skipped = (
        "import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('no')\n    def test_f(self):\n        "
        "self.assertEqual(f(1), 2)\n"
    )
    result = run(RIGHT, skipped + "unittest.main()", SandboxLimits(), isolated=False)
    assert (result.outcome, result.detail) == (ProgramOutcome.FAILED, "AssertionError: unittest ran no test")


def asked(tests: str) -> list[Any]:
    return [step.asked.get("values") or step.asked.get("do") or step.asked for step in read_tests(tests).steps]


@pytest.mark.parametrize(
    ("tests", "sent"),
    [
        ("assert f(1) == 2", [[["f(1)", None, False]]]),
        ("assert not f(1)", [[["f(1)", None, True]]]),
        ("assert f(1)", [[["f(1)", None, True]]]),
        ("assert f(1) is None, 'none'", [[["f(1)", None, False]]]),
        ("assert abs(f(1) - 2.5) < 1e-6", [[["f(1)", None, False]]]),
        ("import math\nassert math.isclose(f(1), 2.5, rel_tol=1e-3)", ["import math", [["f(1)", None, False]]]),
        ("assert f(1) == pytest.approx(2.5)", [[["f(1)", None, False]]]),
        ("assert pytest.approx(2.5) == f(1)", [[["f(1)", None, False]]]),
        ("assert f(1) in (2, 3) or f(2) > 7", [[["f(1)", None, False], ["f(2)", None, False]]]),
        ("assert 1 < f(1) <= 2 ** 10", [[["f(1)", None, False]]]),
        ("X = 5\nassert f(X) == 10", [[["f(5)", None, False]]]),
        ("X = [1]\nf(X)\nassert X == [1, 1]", ["X = [1]", "f(X)", [["X", None, False]]]),
        ("for i in range(2):\n    assert f(i) == i * 2", [[["f(0)", None, False], ["f(1)", None, False]]]),
        ("assert f(1) == g(1)", [[["f(1) == g(1)", None, True]]]),
        ("assert f(1) == Point(1)", [[["f(1) == Point(1)", None, True]]]),
        ("with raises(ValueError):\n    f(1)", ["with raises(ValueError):\n    f(1)"]),
        ("def input(): return '5'\nassert f() == 5", ["def input():\n    return '5'", [["f()", None, False]]]),
        ("C = [([2, 1], [1, 2])]\nfor c in C:\n    f(c[0])\n    assert c[0] == c[1]", None),
        ("x = 3\nx = f(x)\nassert x == 6", ["x = 3", "x = f(x)", [["x", None, False]]]),
        ("N = len('abc')\nassert f(1) == N", [[["f(1)", None, False]]]),
        ("import math\nassert f(1) == math.pi", ["import math", [["f(1)", None, False]]]),
        ("X = [1]\nX[0] = 2\nassert f(X) == [4]", ["X = [1]", "X[0] = 2", [["f(X)", None, False]]]),
        ("X = [1]\nX += [2]\nassert f(X) == 3", ["X = [1]", "X += [2]", [["f(X)", None, False]]]),
        (
            "X = 5\ndef g():\n    global X\n    X = 6\ng()\nassert f(X) == 12",
            ["X = 5", "def g():\n    global X\n    X = 6", "g()", [["f(X)", None, False]]],
        ),
        ("assert 3 in f(1)", [[["3 in f(1)", None, True]]]),
        ("assert abs(f(1)) < 3", [[["abs(f(1))", None, False]]]),
        ("assert f(1) == pytest.approx(2.5, rel=g())", [[["f(1) == pytest.approx(2.5, rel=g())", None, True]]]),
        ("assert math.isclose(f(1), f(2))", [[["math.isclose(f(1), f(2))", None, True]]]),
        ("assert all(f(x) == x for x in [1, 2] if x)", ["assert all((f(x) == x for x in [1, 2] if x))"]),
        ("for x in g():\n    assert f(x) == 1", ["for x in g():\n    assert f(x) == 1"]),
        ("for x, y in [(1, 2, 3)]:\n    assert f(x) == y", ["for x, y in [(1, 2, 3)]:\n    assert f(x) == y"]),
        ("for x in [1]:\n    assert f(lambda x: x) == x", ["for x in [1]:\n    assert f(lambda x: x) == x"]),
        ("for x in [1]:\n    assert (y := f(x)) == 2", ["for x in [1]:\n    assert (y := f(x)) == 2"]),
        ("def t():\n    assert f(1) == 2\n    t()\nt()", ["def t():\n    assert f(1) == 2\n    t()", "t()"]),
    ],
)
def test_what_the_programs_process_gets(tests: str, sent: list[Any] | None) -> None:
    if sent is None:  # what the program changes in place is compared beside it
        assert run("def f(x): x.sort()", tests, SandboxLimits(), isolated=False).outcome is ProgramOutcome.PASSED
    else:
        assert asked(tests) == sent


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ("self.assertTrue(f(1))", [["f(1)", None, True]]),
        ("self.assertIsNone(f(1))", [["f(1)", None, False]]),
        ("self.assertAlmostEqual(f(1), 2.5)", [["f(1)", None, False]]),
        ("self.assertAlmostEqual(f(1), 2.5, places=2)", None),
        ("self.assertTrue()", None),
        ("yield self.assertTrue(f(1))", None),
    ],
)
def test_what_the_programs_process_gets_of_a_test_case(body: str, sent: list[Any] | None) -> None:
    defined = f"class T(unittest.TestCase):\n    'A case.'\n    def test_f(self):\n        {body}\n"
    found = asked(f"import unittest\n{defined}unittest.main()")
    assert found[1:] == ([sent] if sent else [ast.unparse(ast.parse(defined)), {"unittest": ["T"], "test": True}])


def test_a_loop_of_too_many_comparisons_runs_beside_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "MOST_PARTS", 3)
    tests = "for i in range(4):\n    assert f(i) == -i"
    assert asked(tests) == [tests]


@pytest.mark.parametrize(
    "value", ["", "x", "sx", None, [], ["l", "n1"], ["c"], {}, "nz", "n1/0", "onan", "n" + "1" * 10_000 + "/3"]
)
@pytest.mark.parametrize(
    "tests", ["assert abs(f(1) - 2.5) < 1", "assert f(1) == pytest.approx(2.5)", "assert isclose(f(1), 2.5)"]
)
def test_what_is_no_number_is_near_none(tests: str, value: Any) -> None:
    [step] = read_tests(tests).steps
    assert step.fault({"values": [wire(2.5)]}) == ""
    assert step.fault({"values": [value]})


@pytest.mark.parametrize(
    ("tests", "inside", "outside"),
    [
        ("assert f(1) in 'abc'", "b", 1),
        ("assert f(1) in {1: 'a', 2: 'b'}", 2, "a"),
        ("assert f(1) in {1, 2}", 2, 3),
        ("assert f(1) not in 'abc'", 1, "b"),
    ],
)
def test_a_value_is_sought_in_what_the_tests_hold(tests: str, inside: Any, outside: Any) -> None:
    [step] = read_tests(tests).steps
    assert step.fault({"values": [wire(inside)]}) == ""
    assert step.fault({"values": [wire(outside)]}).startswith("AssertionError: f(1)")


@pytest.mark.parametrize(
    ("program", "tests", "passes"),
    [
        ("def f(x): return x + 0.1", "assert f(0.2) == 0.3", False),
        ("def f(x): return x + 0.1", "assert abs(f(0.2) - 0.3) < 1e-9", True),
        ("def f(x): return x + 0.1", "assert f(0.2) == pytest.approx(0.3)", True),
        ("def f(x): return 'x'", "assert abs(f(1) - 2) < 1", False),
        ("def f(x): return float('nan')", "assert f(1) == float('nan')", False),
        ("def f(x): return [x, x]", "assert f(1) == (1, 1)", False),
        ("def f(x): return 1", "assert f(1) is True", False),
        ("def f(x): return True", "assert f(1) == 1", True),
        ("def f(x): raise ValueError", "assert f(1) == 1 or True", False),
        ("def f(x):\n    if x: return 1\n    raise ValueError", "assert f(1) == 1 or f(0) == 2", True),
        ("def f(xs): xs.append(1); return xs", "for x in [[], [2]]:\n    assert f(x) == x", True),
        (
            "def f(n): return list(range(n))",
            "last = None\nfor n in [2, 3]:\n    last = f(n)\nassert last == [0, 1, 2]",
            True,
        ),
        (
            "def f(n): return n",
            "def test_f():\n    last = None\n    for n in [2, 3]:\n        last = f(n)\n    assert last == 3",
            True,
        ),
        (
            "def f(n): return n",
            "def test_f():\n    last = None\n    for n in [2, 3]:\n        last = f(n)\n    assert last is None",
            False,
        ),
        ("def f(xs): xs.sort()", "def test_f():\n    xs = [2, 1]\n    f(xs)\n    assert xs == [1, 2]", True),
        ("def f(xs): pass", "def test_f():\n    xs = [2, 1]\n    f(xs)\n    assert xs == [1, 2]", False),
        ("def f(x): return x\ndef g(x): return x", "assert f(3) == g(3)", True),
        ("def f(x): return {1: {2, 3}, 'a': (None, b'x')}", "assert f(0) == {'a': (None, b'x'), 1.0: {3, 2}}", True),
        ("def f(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x", "assert f(500) != []", True),
        ("def f(n):\n    x = []\n    x.append(x)\n    return x", "assert f(1) == [[]]", False),
    ],
)
def test_comparisons_are_pythons(program: str, tests: str, passes: bool) -> None:
    result = run(program, tests, SandboxLimits(), isolated=False)
    assert (result.outcome is ProgramOutcome.PASSED) is passes, result


def drawn(rng: np.random.Generator, depth: int) -> Any:
    atoms = [
        None,
        True,
        False,
        0,
        1,
        1.0,
        0.5,
        -3,
        2**70,
        float("inf"),
        "",
        "1",
        "é\ud800",
        b"",
        b"1",
        1j,
        complex(1, 0),
    ]
    if depth == 0 or rng.random() < 0.4:
        return atoms[rng.integers(len(atoms))]
    inner = [drawn(rng, depth - 1) for _ in range(rng.integers(3))]
    kind: Any = (list, tuple, set, frozenset, dict)[rng.integers(5)]
    try:
        return dict(zip(inner[::2], inner[1::2], strict=False)) if kind is dict else kind(inner)
    except TypeError:
        return inner


@repeats(80, 250, "count")
def test_plain_values_are_equal_where_python_says_so(count: int) -> None:
    """A law over random pairs of plain data: the comparison of what is sent is `==`."""
    rng = np.random.default_rng(7)
    values = [drawn(rng, 3) for _ in range(count)]
    for left in values:
        for right in values:
            assert equal(wire(left), wire(right)) is (left == right), (left, right)
            assert holds(wire(left), ast.NotEq(), wire(right)) is (left != right)


def test_malformed_values_equal_nothing() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for bad in ({}, "", 7, {"t": 3}, ["t", 3], "nz", "n1/0", ["d", ["l"]], "b0", [[]], ["y", 1], deep):
        for good in map(wire, (None, 0, [], ())):
            assert not equal(bad, good)
            assert not holds(bad, ast.Lt(), good)
            assert not holds(bad, ast.In(), ["l", good])
    assert not equal("oA", "oA")


@pytest.mark.parametrize(
    "text",
    [
        "10 ** 10 ** 10", "[0] * 10 ** 9", "'a' * 10 ** 9 * 10", "list(range(10 ** 9))", "1 << 10 ** 9",
        "'%999999999d' % 1", "f(1)", "x", "-'a'", "{[]}",
    ],
)  # fmt: skip
def test_what_is_no_data_or_too_much_of_it(text: str) -> None:
    with pytest.raises(NotDataError):
        data_of(ast.parse(text, mode="eval").body)


def test_data_is_what_python_makes_of_it() -> None:
    for text in (
        "[0] * 3",
        "-1",
        "2 ** 10 - 1",
        "set()",
        "float('inf')",
        "{1: {2}}",
        "list(range(3))",
        "2 * 0.5",
        "{'a': 1}.items()",
    ):
        value = eval(text)
        assert equal(
            wire(data_of(ast.parse(text, mode="eval").body)), wire(value if text[-7:] != "items()" else list(value))
        )
    assert wire(1.0) == wire(1)
    assert equal(wire(True), wire(1))
    assert plain(wire((1, [2.5, "a"]))) == (1, [2.5, "a"])


def test_tests_that_are_no_python_say_why() -> None:
    with pytest.raises(NotTestsError, match="invalid syntax"):
        read_tests("assert f(1) ==")


def test_scores_by_share_count_statements() -> None:
    tests = RUN["a guard"] + "assert f(0) == 0\n"
    scores = wholes(
        Code(tests=tests, sandbox="none", credit="share"),
        path([-1.0], text=RIGHT),
        path([-1.0], text="f = abs"),
        calls=NoCalls(),
    )
    assert scores == [1.0, 0.5]
