from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tts.tasks
from tts.errors import ConfigError, MissingDependency
from tts.tasks.base import keyed_task
from tts.tasks.math_verify import MathVerifyTask

NEEDS_MATH_VERIFY = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify (extra: math-verify) is not installed"
)


@pytest.fixture(scope="module")
def task() -> Iterator[MathVerifyTask]:
    task = MathVerifyTask(time_limit_s=60.0)
    yield task
    task.close()


@NEEDS_MATH_VERIFY
@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        (r"\frac{1}{2}", "0.5", True),
        ("0.333333333", r"\frac{1}{3}", True),  # Math-Verify rounds; the keys of `math` do not
        ("x+x", "2x", True),
        (r"5\text{ cm}", "5", True),
        ("1,2", r"\{2, 1\}", True),
        ("3", "4", False),
        ("", "4", False),
        (r"\frac{", "4", False),
    ],
)
def test_verdicts_are_those_of_math_verify(task: MathVerifyTask, answer: str, reference: str, right: bool) -> None:
    assert task.decide(answer, reference) is None
    assert task.equivalent(answer, reference) is right


@NEEDS_MATH_VERIFY
def test_answer_and_reference_are_not_treated_alike(task: MathVerifyTask) -> None:
    assert task.equivalent("x=5", "5") is True
    assert task.equivalent(r"x \in [-2,7]", r"-2 \le x \le 7") is not task.equivalent(
        r"-2 \le x \le 7", r"x \in [-2,7]"
    )


@pytest.mark.slow
@NEEDS_MATH_VERIFY
def test_a_verdict_is_kept(task: MathVerifyTask) -> None:
    assert task.equivalent("8/2", "4") is True
    task.close()
    assert task.equivalent("8/2", "4") is True
    assert task.pids == ()


def test_votes_stay_with_the_keys_of_math(task: MathVerifyTask) -> None:
    assert keyed_task(task) is task
    assert task.key("0.5") == tts.tasks.get("math").key(r"\frac12")
    assert task.key("0.333333333") != task.key("1/3")


@pytest.mark.slow
@NEEDS_MATH_VERIFY
def test_only_with_guess_is_an_answer_taken_that_was_not_stated() -> None:
    guessing, careful = MathVerifyTask(guess=True), MathVerifyTask()
    assert careful.extract("so we get 42 in the end") is None
    assert guessing.extract("so we get 42 in the end") == "42"
    assert guessing.extract(r"so \boxed{7} and not 42") == careful.extract(r"so \boxed{7} and not 42") == "7"
    assert guessing.extract("no number at all") is None
    guessing.close()
    careful.close()


@pytest.mark.slow
@NEEDS_MATH_VERIFY
def test_a_verdict_that_takes_too_long_is_wrong_and_counted() -> None:
    task = MathVerifyTask(time_limit_s=0.001)
    assert task.equivalent("9^{9^{9^{9}}}", "1") is False
    assert task.timeouts == 1
    assert task.pids == ()
    assert task.equivalent("9^{9^{9^{9}}}", "1") is False
    assert task.timeouts == 1, "it was asked again"


@pytest.mark.slow
@NEEDS_MATH_VERIFY
def test_neither_the_package_nor_sympy_is_imported_here() -> None:
    script = (
        "import sys, tts.tasks; task = tts.tasks.get('math_verify'); assert task.equivalent('x+x', '2x')"
        "; assert not {'sympy', 'math_verify'} & set(sys.modules); task.close()"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.slow
def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_no_spec(name: str) -> None:
        del name

    task = MathVerifyTask()
    monkeypatch.setattr(importlib.util, "find_spec", find_no_spec)
    with pytest.raises(MissingDependency, match=r"test-time-search\[math-verify\]"):
        task.equivalent("1", "2")


@pytest.mark.slow
def test_its_text_form_has_what_was_given() -> None:
    assert tts.tasks.get("math_verify").name == "math_verify"
    assert tts.tasks.get("math_verify(guess=True)").name == "math_verify(guess=True)"
    with pytest.raises(ConfigError, match="guess"):
        tts.tasks.get("math_verify(guess=3)")
    with pytest.raises(ConfigError, match="time_limit_s"):
        tts.tasks.get("math_verify(time_limit_s=0)")
