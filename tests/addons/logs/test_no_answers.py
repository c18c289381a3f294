"""Texts that stand for no answer do not vote, and texts that are answers do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tts
from tts.errors import ConfigError
from tts_addons.logs.building import NO_ANSWERS

BRACKETS = [
    ("", ""),
    ("[", "]"),
    ("(", ")"),
    ("<", ">"),
    ("{", "}"),
    ("[[", "]]"),
    ("<|", "|>"),
    ("**", "**"),
    ('"', '"'),
]
LITERALS = sorted(NO_ANSWERS)


def rows_of(answers: list[str], reference: str | None = "42", **fields: Any) -> list[dict[str, Any]]:
    return [{"problem": "p", "answer": answer, "reference": reference, **fields} for answer in answers]


def answers_of(rows: list[dict[str, Any]], **settings: Any) -> list[str | None]:
    return [one.answer for one in tts.Pool.from_rows(rows, **settings).problems[0].drawn]


@given(
    st.sampled_from(LITERALS),
    st.sampled_from(BRACKETS),
    st.sampled_from([str.upper, str.lower, str.title]),
    st.sampled_from([" ", "_", "-"]),
)
def test_a_literal_of_no_answer_in_any_writing_does_not_vote(literal, brackets, case, space):
    text = brackets[0] + case(literal.replace(" ", space)) + brackets[1]
    assert answers_of(rows_of([text, text, "42"]), task="math") == [None, None, "42"]


@given(st.sampled_from(LITERALS), st.sampled_from(["math", "text"]))
def test_a_literal_that_a_reference_equals_is_an_answer(literal, task):
    rows = [*rows_of([literal, "5"], literal), {"problem": "q", "answer": literal, "reference": "5"}]
    pool = tts.Pool.from_rows(rows, task=task)
    assert [[one.answer for one in problem.drawn] for problem in pool.problems] == [[literal, "5"], [literal]]
    assert pool.problems[0].drawn[0].right is True


def test_a_literal_that_the_source_calls_right_is_an_answer():
    rows = [
        {"problem": "p", "answer": answer, "correct": answer == "Unknown"} for answer in ("Unknown", "no", "unknown")
    ]
    assert answers_of(rows[:2], task="text") == ["Unknown", "no"]


def test_words_that_only_contain_a_literal_are_answers():
    words = ["None of these", "nonempty", "invalid argument", "unknown variable x", "Nancy", "0", "nil"]
    assert answers_of(rows_of(words, "x"), task="text") == words


def test_the_vote_is_over_answers_alone():
    rows = rows_of(["NO_ANSWER"] * 5 + ["42"] * 2 + ["7"])
    pool = tts.Pool.from_rows(rows, task="math")
    (vote,) = pool.replay(["best_of_n | majority"], [8])
    assert vote.curve.accuracy[0].value == 1
    assert any("5 of these have 'NO_ANSWER'" in line for line in pool.report.lines())


def test_further_literals_are_named_and_hold_except_where_a_reference_equals_them():
    rows = [*rows_of(["FAILED", "42"]), {"problem": "q", "answer": "failed", "reference": "FAILED"}]
    pool = tts.Pool.from_rows(rows, task="text", no_answer=["Failed"])
    assert [[one.answer for one in problem.drawn] for problem in pool.problems] == [[None, "42"], ["failed"]]


def test_one_further_literal_may_be_a_text_and_the_pool_is_saved(tmp_path):
    pool = tts.Pool.from_rows(rows_of(["FAILED", "42", "F"]), task="text", no_answer="FAILED")
    assert [one.answer for one in pool.problems[0].drawn] == [None, "42", "F"]
    pool.save(tmp_path / "store.sqlite")
    assert set(pool.report.stand_ins) == {"FAILED"}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "is_told"), [(1, False), (2, True)])
def test_a_frequent_word_that_no_reference_resembles_is_told_under_math(count, is_told):
    rows = rows_of(["FAILED"] * count + ["42"] * (20 - count))
    lines = tts.Pool.from_rows(rows, task="math").report.lines()
    assert any("--no-answer FAILED" in line for line in lines) is is_told
    likely = rows_of(["even"] * 10 + ["odd"] * 10, "even")
    assert not any("--no-answer even" in line for line in tts.Pool.from_rows(likely, task="math").report.lines())


@pytest.mark.parametrize("answer", ["I do not know", "none of them", "Paris", "?", "5"])
def test_under_multiple_choice_a_text_without_a_letter_is_no_answer(answer):
    assert answers_of(rows_of([answer, "B", "(B)", "b"], "B"), task="multiple_choice") == [None, "B", "(B)", "b"]


def test_under_multiple_choice_a_reference_without_a_letter_is_compared_as_it_is():
    assert answers_of(rows_of(["Paris", "Rome"], "Paris"), task="multiple_choice") == ["Paris", "Rome"]


@pytest.mark.parametrize("fields", [{}, {"correct": False}])
def test_a_file_in_which_every_answer_stands_for_none_is_refused_in_one_line(fields):
    with pytest.raises(ConfigError, match=r"3 samples.*answer.*'\[None\]'") as refused:
        tts.Pool.from_rows(rows_of(["[None]"] * 3, **fields), task="math")
    assert "\n" not in str(refused.value)
