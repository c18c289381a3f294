from __future__ import annotations

import math

import pytest

from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.solver.solver import Solver
from tts.types import Problem
from tts.verifiers.base import Traits
from tts.verifiers.compatibility import proves
from tts.verifiers.rules import schema
from tts.verifiers.rules.examples import asserted_examples
from tts.verifiers.rules.verifier import Rules, rule_of
from tts.verifiers.toy import ToyVerifier

SCHEMA = (
    "Answer in JSON by this JSON schema:\n```json\n"
    '{"type": "object", "required": ["name", "ages"], "additionalProperties": false, "properties": {"name": {"type": '
    '"string", '
    '"minLength": 2}, "ages": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}}}\n```'
)
LISTED = 'JSON schema:\n```json\n{"type": "array", "uniqueItems": true, "items": {"enum": [1, 2, null]}}\n```'
PATTERN = 'JSON schema:\n```json\n{"type": "string", "pattern": "^(a+)+$"}\n```'  # a long text takes for ever
EQUATION = "Solve for x: x^2 - 5x + 6 = 0"


@pytest.mark.parametrize(
    ("problem", "answer", "right"),
    [
        ("Reach 39 with 17 22.", "17 + 22", True),
        ("Reach 39 with 17 22.", "22 + 17 = 39", True),
        ("Reach 39 with 17 22.", "39", False),
        ("Reach 39 with 17 22.", "17 + 22 + 0", False),
        ("Reach 39 with 17 22.", "22 - 17", False),
        ("Reach 9 with 3 3.", "3 * 3", True),
        ("Reach 9 with 3 3.", "3 * 3 * 3 - 18", False),
        ("Reach 15 with 1 2 3 4 5.", "1 + 2 + 3 + 4 + 5", True),
        ("Reach 99 with 1 1.", "1 + 1", False),
        ("12 + 7 * (3 - 5)", "-2", True),
        ("12 + 7 * (3 - 5)", "-2.0", True),
        ("12 + 7 * (3 - 5)", "2", False),
        ("Emma has 87 cards. She sells 87. How many cards are there now?", "0", True),
        (EQUATION, "x = 2 or x = 3", True),
        (EQUATION, "{3, 2}", True),
        (EQUATION, "2", False),
        (EQUATION, "2, 2", False),
        (EQUATION, "2, 3, 4", False),
        (EQUATION, "two and three", False),
        ("Solve 2(x - 1) = 3x/4 + 1.", "12/5", True),
        ("Solve 2(x - 1) = 3x/4 + 1.", "2.5", False),
        ("Solve -x = +3.", "x = -3", True),
        (SCHEMA, '{"name": "Ann", "ages": [3, 4.0]}', True),
        (SCHEMA, 'Here:\n```json\n{"name": "Ann", "ages": [3]}\n```', True),
        (SCHEMA, '{"name": "Ann", "ages": []}', False),
        (SCHEMA, '{"name": "Ann", "ages": [true]}', False),
        (SCHEMA, '{"name": "A", "ages": [1]}', False),
        (SCHEMA, '{"name": "Ann", "ages": [1], "more": 1}', False),
        (SCHEMA, '{"name": "Ann"}', False),
        (SCHEMA, "{", False),
        (LISTED, "[1, 2]", True),
        (LISTED, "[1, 1.0]", False),
        (LISTED, "[3]", False),
        (LISTED, "[true]", False),
        (PATTERN, '"aa"', True),
        (PATTERN, '"ab"', False),
    ],
)
def test_an_answer_is_right_where_it_keeps_what_the_problem_states(problem: str, answer: str, right: bool) -> None:
    accepts = rule_of(Problem(problem))
    assert accepts is not None
    assert accepts(answer) is right


@pytest.mark.parametrize(
    "problem",
    [
        "Which city is the capital of France?",
        "Reach -5 with 3 8.",
        "Solve x + y = 3",
        "Solve x = sin(x)",
        "Solve 1/x = 2",
        "Solve x^99999999 = 1",
        "Solve x^5 * x^5 = 1",
        f"Solve x = {'1 + ' * 60}1",
        f"Solve {'(' * 30}9{'^8)' * 30} = x",
        'By the JSON schema\n```json\n{"properties": {"a": {"$ref": "#/$defs/none"}}}\n```',
        'By the JSON schema\n```json\n{"type": \n```',
        'By the JSON schema\n```json\n{"type": "real"}\n```',
        'By the JSON schema\n```json\n{"type": {}}\n```',
        'By the JSON schema\n```json\n{"minimum": "3"}\n```',
        'By the JSON schema\n```json\n{"minimum": 0, "exclusiveMinimum": true}\n```',
        'By the JSON schema\n```json\n{"required": true}\n```',
        'By the JSON schema\n```json\n{"required": [[]]}\n```',
    ],
)
def test_a_problem_without_a_rule_is_refused_before_anything_is_spent(problem: str) -> None:
    with pytest.raises(ConfigError, match=r"rule,.*'rules'") as refused:
        Rules().check(Problem(problem, answer="5"))
    assert refused.value.hint is not None


def test_examples_of_a_prompt_become_tests() -> None:
    shown = ("Write double.\n", ">>> double(2)", "4", ">>> x = double('a')", ">>> x", "'aa'", ">>> double(object)")
    prompt = "\n".join((*shown, "Traceback (most recent call last):", "TypeError\n"))
    assert asserted_examples(prompt) == "assert (double(2)) == (4)\nx = double('a')\nassert (x) == ('aa')"
    assert asserted_examples("Write f.\nassert f(1) == 2\nassert f(\n") == "assert f(1) == 2"
    assert asserted_examples(">>> f(1)\n<object>\n") == "assert repr(f(1)) == '<object>'"
    assert asserted_examples("Write f. No examples.") is None
    assert asserted_examples(">>> x = 1\n") is None
    assert (
        asserted_examples(">>> for x in f(): print(x)\n1\n>>> f(2)\n4\n")
        == "for x in f(): print(x)\nassert (f(2)) == (4)"
    )
    assert asserted_examples("    >>> f(1)\n  2\nassert f(3) == 4") == "assert f(3) == 4", "its indentation is broken"


def test_a_schema_that_takes_too_long_leaves_the_score_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.tasks.schemas.validation.TIME_LIMIT_S", 0.3)
    with Solver(FunctionBackend(lambda asked: f'"{"a" * 60}b"'), "rules", task="text") as solver:
        solution = solver.solve(PATTERN, Budget(samples=1), strategy="best_of_n(n=1) | best")
    assert [math.isnan(c.scores["main"]) for c in solution.candidates] == [True]


@pytest.mark.parametrize(("source", "score"), [("2 * x", 1.0), ("x ** 3", 0.0)])
def test_programs_are_run_with_the_examples_of_their_prompt(source: str, score: float) -> None:
    program = f"```python\ndef double(x):\n    return {source}\n```"
    with Solver(FunctionBackend(lambda asked: program), Rules(sandbox="none", seconds=30.0), task="text") as solver:
        solution = solver.solve(
            "Write double.\n>>> double(2)\n4\n", Budget(samples=1), strategy="best_of_n(n=1) | best"
        )
    assert [c.scores["main"] for c in solution.candidates] == [score]
    assert not solution.oracle


TEXTS = ["9 - 3 + 5 - 2 + 7 - 4 + 6", "3 + 4 - 2 + 9 - 1 + 8"]


def test_rules_need_no_reference_and_no_leave_and_end_auto_at_their_first_yes() -> None:
    with Solver(
        ToyBackend(ToyLanguage(accuracy=0.7)), "rules", task="arithmetic", strategy="auto(price=0.0)"
    ) as solver:
        ends = [solver.solve(text, Budget(samples=100), seed=1) for text in TEXTS]
    for text, end in zip(TEXTS, ends, strict=True):
        assert end.error is None
        assert end.answer == str(eval(text))
        assert end.stopped_by.startswith("settled: the checker")
        right = [c.answer == end.answer for c in sorted(end.candidates, key=lambda c: c.index)]
        assert not any(right[:-4])
        assert not end.oracle


def test_a_stop_rule_ends_at_their_first_yes() -> None:
    plan = "best_of_n(n=64) | score_threshold(threshold=1) | best"
    with Solver(ToyBackend(ToyLanguage(accuracy=0.7)), "rules", task="arithmetic", strategy=plan) as solver:
        ends = [solver.solve(text, Budget(samples=64), seed=seed) for text in TEXTS for seed in range(4)]
    for end in ends:
        scores = [c.scores["main"] for c in sorted(end.candidates, key=lambda c: c.index)]
        assert scores == [0.0] * (len(scores) - 1) + [1.0]
    assert {len(end.candidates) for end in ends} - {1, 64}


def test_only_oracles_and_rules_prove() -> None:
    assert proves(Rules())
    assert not proves(ToyVerifier(error=0.0))
    with pytest.raises(ConfigError, match=r"trait proves.*1"):
        Traits(proves=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "message"), [({"sandbox": "no"}, "sandbox is 'no'"), ({"seconds": 0}, "seconds is 0")]
)
def test_wrong_parameters_are_named(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rules(**setting)  # type: ignore[arg-type]


@pytest.mark.slow
def test_items_are_unique_as_values_also_in_long_lists() -> None:
    accepts = schema.rule('Follow this JSON schema:\n```json\n{"type": "array", "uniqueItems": true}\n```')
    assert accepts is not None
    assert [accepts(text) for text in ("[[1], [1.0]]", "[[1], [true]]", "[0, -0.0]")] == [False, True, False]
    assert accepts(str([[number] for number in range(20_000)]))
