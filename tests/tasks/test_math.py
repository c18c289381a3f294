from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.tasks.base import Task
from tts.tasks.forms.normal_form import normal_form
from tts.tasks.math import MathTask
from tts.tasks.symbolic import SymbolicChecker
from tts.types import Message, Problem

CASES = yaml.safe_load(Path(__file__).with_name("math_cases.yaml").read_text(encoding="utf-8"))
LONG = [
    ("9" * 2000, "1"),
    ("(" * 5000 + "x" + ")" * 5000, "x"),
    ("x+" * 500_000 + "x", "500001x"),
    ("1e999999999", "1" * 1001),
]
NEEDS_MPMATH = pytest.mark.skipif(
    importlib.util.find_spec("mpmath") is None, reason="mpmath (extra: math) is not installed"
)
MATH_CHARACTERS = st.text(alphabet="0123456789.,/-+^_{}()[]\\ =%$°½√πxyAB abcdfrtxsqtou")


@pytest.fixture(scope="module")
def task() -> Iterator[MathTask]:
    task = MathTask(checker=SymbolicChecker(time_limit_s=20.0))
    yield task
    task.checker.close()


@pytest.fixture(scope="module")
def rules_only() -> MathTask:
    return MathTask(checker=SymbolicChecker(command=[sys.executable, "-c", "raise SystemExit(1)"]))


def test_it_is_a_task():
    assert isinstance(MathTask(), Task)


@pytest.mark.parametrize(("a", "b", "expected"), CASES["EXACT"])
def test_exact_rules_decide_in_both_orders(task: MathTask, a: str, b: str, expected: bool):
    assert task.decide(a, b) is expected
    assert task.decide(b, a) is expected
    assert task.equivalent(a, b) is expected


@NEEDS_MPMATH
@pytest.mark.parametrize(("a", "b", "expected"), CASES["SYMBOLIC"])
def test_symbolic_equality_in_both_orders(a: str, b: str, expected: bool, task: MathTask):
    assert task.symbolic
    assert task.decide(a, b) in (None, expected)
    assert task.equivalent(a, b) is expected
    assert task.equivalent(b, a) is expected


@NEEDS_MPMATH
@pytest.mark.parametrize(("a", "b", "expected"), CASES["EXACT"])
def test_an_answer_is_equivalent_to_its_normal_form(task: MathTask, a: str, b: str, expected: bool):
    for answer in (a, b):
        assert task.equivalent(answer, task.canonical(answer))
        assert task.canonical(task.canonical(answer)) == task.canonical(answer)


@pytest.mark.parametrize(("a", "b"), LONG)
def test_long_answers_are_refused_without_a_worker(a: str, b: str):
    task = MathTask()
    assert task.equivalent(a, b) is False
    assert task.equivalent(b, a) is False
    assert task.equivalent(a, f" {a}\n") is True
    assert task.checker.pids == ()


@pytest.mark.parametrize(("a", "b", "expected"), CASES["EXACT"])
def test_exact_rules_work_without_mpmath(rules_only: MathTask, a: str, b: str, expected: bool):
    assert rules_only.equivalent(a, b) is expected


@pytest.mark.parametrize(("a", "b", "expected"), CASES["SYMBOLIC"])
def test_what_stays_undecided_without_mpmath_is_different(rules_only: MathTask, a: str, b: str, expected: bool):
    assert rules_only.equivalent(a, b) is False
    assert rules_only.symbolic is False


def test_an_answer_that_was_given_up_is_equal_to_its_own_form_alone(monkeypatch: pytest.MonkeyPatch):
    def gives_up(form: str) -> str:
        raise TimeoutError

    task = MathTask(checker=SymbolicChecker(command=["no such command"]))
    monkeypatch.setattr(task.checker, "key", gives_up)
    assert task.equivalent("x+x", " x + x")
    assert not task.equivalent("x+x", "2x")


@NEEDS_MPMATH
def test_threads_share_one_task(task: MathTask):
    verdicts: dict[int, bool] = {}

    def work(number: int) -> None:
        verdicts[number] = task.equivalent(f"x+{number}x", f"{number + 1}x")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == dict.fromkeys(range(2, 10), True)


@settings(deadline=None)
@given(st.fractions())
def test_every_spelling_of_a_fraction_has_one_form(value: Fraction):
    sign, p, q = "-" if value < 0 else "", abs(value.numerator), value.denominator
    spellings = [
        f"{sign}{p}/{q}",
        rf"{sign}\frac{{{p}}}{{{q}}}",
        rf"$\dfrac{{{sign}{p}}}{{{q}}}$",
        rf"{sign}{7 * p}/{7 * q}",
        f"x = {sign}{p}/{q}.",
    ]
    whole, rest = divmod(p, q)
    if whole and rest:
        spellings.append(rf"{sign}{whole}\frac{{{rest}}}{{{q}}}")
    assert {normal_form(spelling) for spelling in spellings} == {str(value)}


@settings(deadline=None)
@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_every_spelling_of_a_whole_number_has_one_form(value: int):
    commas = f"{value:,}"
    spellings = [
        str(value),
        commas,
        commas.replace(",", "{,}"),
        commas.replace(",", r"\,"),
        f"{value}.0",
        rf"\${commas}",
        rf"{commas}\text{{ cm}}",
    ]
    forms = {normal_form(spelling) for spelling in spellings if spelling.count("{,}") < 3 and spelling.count(r"\,") < 3}
    assert forms == {str(value)}


@pytest.mark.slow
@settings(deadline=None)
@given(st.text() | MATH_CHARACTERS, st.text() | MATH_CHARACTERS)
def test_no_text_is_too_strange_for_the_exact_rules(a: str, b: str):
    task = MathTask()
    verdict = task.decide(a, b)
    assert verdict is task.decide(b, a)
    assert task.decide(a, a) is True
    task.extract(a)
    task.is_finished(a)


@NEEDS_MPMATH
@pytest.mark.parametrize(
    "answer", ["\0", "\ud800", "\\", "{" * 900, "\\frac{", "$$", "\n\n", "^", "&", "\\begin{pmatrix}", "'; drop", '"']
)
def test_no_text_is_too_strange_for_the_worker(answer: str, task: MathTask):
    assert task.equivalent(answer, "x+1") is False
    assert task.equivalent(answer, answer) is True


@settings(deadline=None)
@given(st.text(alphabet="ab\n") | st.text())
def test_split_cuts_behind_each_leftmost_blank_line(text: str):
    pieces = MathTask().split(text)
    expected: list[str] = []
    piece = ""
    for character in text:
        piece += character
        if piece.endswith("\n\n"):
            expected.append(piece)
            piece = ""
    assert pieces == expected + ([piece] if piece else [])
    assert "".join(pieces) == text


def test_solve_prompt_is_one_user_message():
    prompt = MathTask().prompt(Problem("What is 1+1?"))
    assert [message.role for message in prompt] == ["user"]
    assert prompt[0].content.startswith("What is 1+1?")
    assert r"\boxed{}" in prompt[0].content
    assert "blank line" in prompt[0].content


def test_prompt_keeps_the_turns_of_a_conversation():
    problem = Problem((Message("system", "Be brief."), Message("user", "What is 1+1?")))
    system, user = MathTask().prompt(problem)
    assert system == Message("system", "Be brief.")
    assert user.content.startswith("What is 1+1?")


def test_prompts_of_other_kinds_hold_the_texts_they_need():
    task, problem = MathTask(), Problem("What is 1+1?")
    assert "SECOND" in task.prompt(problem, "revise", ["FIRST", "SECOND"])[0].content
    assert "FIRST" not in task.prompt(problem, "revise", ["FIRST", "SECOND"])[0].content
    assert "ONLY" in task.prompt(problem, "critique", ["ONLY"])[0].content
    fused = task.prompt(problem, "fuse", ["FIRST", "SECOND"])[0].content
    assert fused.index("FIRST") < fused.index("SECOND")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "texts"), [("revise", []), ("critique", []), ("fuse", []), ("fuse", ["one"]), ("dream", ["one", "two"])]
)
def test_prompt_refuses_unknown_kinds_and_missing_texts(kind: str, texts: list[str]):
    with pytest.raises(ConfigError, match=kind):
        MathTask().prompt(Problem("?"), kind, texts)


@pytest.mark.slow
def test_typical_tokens_are_constants_by_kind():
    kinds = {"solve": 256, "step": 48, "revise": 256, "fuse": 256, "critique": 128}
    assert {kind: MathTask().typical_tokens(kind) for kind in kinds} == kinds
    with pytest.raises(ConfigError, match="solve, step, revise, fuse, critique"):
        MathTask().typical_tokens("dream")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "finished"),
    [
        (r"So \boxed{5}", True),
        (r"So \boxed{5}.\n\n", True),
        (r"\boxed{5", False),
        (r"\boxed{}", False),
        (r"\boxed{ }", False),
        ("A: 5\n\n", False),
    ],
)
def test_a_complete_box_finishes(text: str, finished: bool):
    assert MathTask().is_finished(text) is finished
