from __future__ import annotations

import time

import pytest

from tts.tasks.forms.normal_form import are_different, normal_form

FORMS = [
    (r"x = 5y", "x=5y"),
    (r"\sin 30^\circ", r"\sin30^\circ"),
    (r"60^\circ A", r"60^\circ A"),
    (r"60^\circ C", "60"),
    ("7/4/2020", "7/4/2020"),
    ("1990–1995", "1990 to 1995"),
    ("17:00", "5pm"),
    ("3:10", "3:10"),
    ("[0]", "[0]"),
    ("5 m", "5m"),
    (r"5\mathrm{i}", "5i"),
    (r"5\text{A}", "5A"),
    (r"5\text{}", "5"),
    (r"3 \text{ or more}", "3or more"),
    (r"2 \text{ million}", "2000000"),
    (r"6\text{ p.m.}", "6pm"),
    ("1, 234", "1;234"),
    ("1,234", "1234"),
    (r"0.1666\ldots", "1/6"),
    ("3.14159...", r"3.14159\ldots"),
    ("no real solutions", r"\emptyset"),
    ("Twenty-one", "21"),
    ("one hundred and five", "105"),
    ("three million", "3000000"),
    ("five six", "five six"),
    ("two thousand and five", "2005"),
    ("minus -", "minus -"),
    (r"7\text{ (mod }9)", "7(mod9)"),
    ("0{,}125", "0{,}125"),
    ("101_2", "101_2"),
    (r"\frac{1}{0}", r"\frac{1}{0}"),
    ("1e999999999", "1e999999999"),
    ("(2)(3)", "(2)(3)"),
    ("x=1,y=2", "x=1,y=2"),
    ("x=1 or x=2", "x=1,x=2"),
    ("f(x) = 2x+1", "f(x)=2x+1"),
    (r"\begin{pmatrix}1&2\\[2pt]3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\[2pt]3&4\end{pmatrix}"),
    (r"a \leftarrow b", r"a\leftarrow b"),
    ("", ""),
    ("$$", ""),
    ("  a  b ", "a b"),
]


@pytest.mark.parametrize(("answer", "form"), FORMS)
def test_what_carries_meaning_is_kept(answer: str, form: str):
    assert normal_form(answer) == form


@pytest.mark.parametrize(
    ("a", "b", "different"),
    [
        ("1", "2", True),
        ("1", "x", False),
        ("(1,2)", "[1,2]", True),
        ("(x,y)", r"\{x,y\}", True),
        ("(1,2)", "1,2", False),
        (r"\{5\}", "5", False),
        ("(1,2)", "1,2,3", True),
        ("(1,x)", "(1,y)", False),
        ("left", "right", True),
        ("ab", "ba", False),
        ("a", "b", True),
        (r"(1,2)\cup[3,4]", "(1,2)", False),
        ("(1,2", "[1,2", False),
        ("1" * 1001, "2" * 1001, False),
    ],
)
def test_only_certain_differences_are_called_so(a: str, b: str, different: bool):
    assert are_different(a, b) is different
    assert are_different(b, a) is different


@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "a",
        "1",
        "1,",
        "1 ",
        "(",
        "{",
        "\\",
        "\\frac",
        "\\text{",
        "\\text{a}",
        "=",
        "x=",
        "^",
        "12 cm ",
        "\\{,",
        "-",
    ],
)
def test_no_answer_takes_long(unit: str):
    answer = (unit * 1000)[:1000]
    started = time.monotonic()
    are_different(normal_form(answer), normal_form(f"5{answer[:900]}7"))
    assert time.monotonic() - started < 30
