from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.tasks.arithmetic.expression import (
    OPERATORS,
    Expression,
    Operation,
    Step,
    apply,
    numbers,
    parse,
    steps,
    text,
    value,
)

QUICK = {"deadline": None, "derandomize": True}
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    st.integers(-20, 999), lambda part: st.builds(Operation, st.sampled_from(OPERATORS), part, part), max_leaves=12
)


@given(EXPRESSIONS)
@settings(**QUICK)
def test_an_expression_is_read_as_it_was_written(expression: Expression):
    assert parse(text(expression)) == expression
    assert parse(text(expression).replace(" ", "").replace("--", "- -")) == expression


@given(EXPRESSIONS)
@settings(**QUICK)
def test_its_value_is_what_python_says_of_its_text(expression: Expression):
    assert value(expression) == eval(text(expression))


@given(EXPRESSIONS)
@settings(**QUICK)
def test_its_steps_are_its_operations_in_order_each_with_results_of_earlier_ones(expression: Expression):
    done = steps(expression)
    assert sorted(step.operator for step in done) == sorted(re.findall(r" ([-+*]) ", text(expression)))
    available = list(numbers(expression))
    for step in done:
        available.remove(step.left)
        available.remove(step.right)
        assert step.result == apply(step.operator, step.left, step.right)
        available.append(step.result)
    assert available == [value(expression)]


def test_what_stands_left_is_worked_out_first():
    done = steps(parse("(1 + 2) * 3 - 4 * (5 - 6)"))
    assert list(map(str, done)) == ["1 + 2 = 3", "3 * 3 = 9", "5 - 6 = -1", "4 * -1 = -4", "9 - -4 = 13"]
    assert done[0] == Step(1, "+", 2, 3)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("12+7*(3-5)", "12 + 7 * (3 - 5)"),
        ("  12\n+ 7", "12 + 7"),
        ("(12 + 7)", "12 + 7"),
        ("((1)) + (2 * 3)", "1 + 2 * 3"),
        ("1 - (2 + 3)", "1 - (2 + 3)"),
        ("(1 - 2) + 3", "1 - 2 + 3"),
        ("2 * (3 * 4)", "2 * (3 * 4)"),
        ("5 − 3", "5 - 3"),
        ("5 – 3", "5 - 3"),
        ("5 × 3 · 2 ⋅ 4", "5 * 3 * 2 * 4"),
        ("3 - -4", "3 - -4"),
        ("-3 * 4", "-3 * 4"),
        ("007 + 1", "7 + 1"),
    ],
)
def test_a_text_has_one_normal_form(written: str, normal: str):
    assert text(parse(written)) == normal


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "character 1: a number belongs here"),
        ("3 +", "character 4: a number belongs here"),
        ("3 4", "character 2: an operator or the end belongs here"),
        ("(3 + 4", "character 7: a closing parenthesis belongs here"),
        ("3 + 4)", "an operator or the end belongs here"),
        ("3 / 4", "character 2: an operator"),
        ("-(3 + 4)", "a number belongs here"),
        ("3 ** 4", "a number belongs here"),
        ("3(4)", "an operator or the end"),
        ("x", "a number belongs here"),
        ("٣ + 4", "a number belongs here"),
        ("(" * 65 + "1" + ")" * 65, "more than 64 parentheses"),
        ("1" + " + 1" * 101, "more than 100 operations"),
        ("1 + " + "9" * 19, "more than 18 digits"),
        ("1" * 100_000, "more than 18 digits"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_place(written: str, message: str):
    with pytest.raises(ConfigError) as failure:
        parse(written)
    assert message in str(failure.value)
    assert len(str(failure.value)) < 250


def test_what_is_just_not_too_large_is_read():
    assert value(parse("(" * 64 + "1" + ")" * 64)) == 1
    longest = parse("1" + " + 1" * 100)
    assert value(longest) == 101
    assert parse(text(longest)) == longest


@given(st.text(alphabet="0123456789+-*() ×x\n") | st.text())
@settings(**QUICK)
def test_any_text_is_read_or_refused(written: str):
    try:
        found = parse(written)
    except ConfigError:
        return
    assert parse(text(found)) == found


@pytest.mark.parametrize("between", [" ", "  ", "\n", "\t \n"], ids=repr)
def test_the_place_of_an_error_is_that_of_the_text_that_is_shown(between: str):
    written = "12 + ( 3 * 4".replace(" ", between)
    with pytest.raises(ConfigError, match=r"'12.*\( 3.*parenthesis"):
        parse(written)
    assert parse("12\n+  3") == parse("12 + 3")
