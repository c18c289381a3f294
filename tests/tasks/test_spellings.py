"""Answers that are equal in every spelling, and answers that are not however alike they look; by tables, rewritings and
random draws.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import tts.tasks
from tts.tasks.base import Task
from tts.tasks.forms.normal_form import normal_form
from tts.tasks.math import MathTask
from tts.thoughts import THINK

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpmath") is None, reason="mpmath (extra: math) is not installed"
)
FOLDER = Path(__file__).parent
DATA = os.environ.get("TTS_DATA_DIR")
ROWS: dict[str, list[list[str]]] = yaml.safe_load((FOLDER / "spellings.yaml").read_text(encoding="utf-8"))["ROWS"]
_REWRITINGS = runpy.run_path(str(FOLDER / "rewritings.py"))
REWRITINGS: dict[str, Callable[[str], str | None]] = _REWRITINGS["REWRITINGS"]
DAMAGES: dict[str, Callable[[str], str | None]] = _REWRITINGS["DAMAGES"]
OUTPUTS = yaml.safe_load((FOLDER / "outputs.yaml").read_text(encoding="utf-8"))
REFERENCES = [
    "0", "7", "12", "360", "1024", "70000", "-3", "-4096", "1234567", "0.5", "18.90", r"\frac{1}{2}",
    r"-\frac{35}{9}", r"\frac{639}{40}", "90^\\circ",
    r"3\sqrt{13}", r"11\sqrt{2}", r"\sqrt{53}", "6 - 5i", r"288\pi", r"18+2\pi", "x^2 + 3x - 1", "3R^2", "1, -2",
    "2, 3", "3, 5, 7", "(3,4]", "(-2,1)",
    r"(3,\frac{\pi}{2})", r"(0,9) \cup (9,36)", r"(-\infty, 3)", r"[5, \infty)", r"(-\infty,2] \cup [3,\infty)",
    r"x \le 5", r"-2 \leq x \leq 7", r"x \ne 3",
    r"y \geq \frac{1}{2}", r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\text{east}", r"\text{even}",
    "y = 2x + 3", "204_5", r"1 \pm \sqrt{19}",
]  # fmt: skip


@pytest.fixture(scope="module")
def task() -> Iterator[MathTask]:
    task = MathTask()
    yield task
    task.close()


def data_references() -> list[str]:
    answers: list[str] = []
    for name in ("gsm8k_train.jsonl", "gsm8k_test_a.jsonl", "math500_a.jsonl", "aime24.jsonl"):
        path = Path(DATA or ".") / name
        if not path.is_file():
            pytest.skip(f"{name} is not in TTS_DATA_DIR")
        answers += [str(json.loads(line)["answer"]) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return list(dict.fromkeys(answers))


@pytest.mark.parametrize("kind", ROWS)
def test_all_spellings_of_a_row_are_equal_and_no_two_rows_are(task: MathTask, kind: str) -> None:
    owners: dict[str, list[str]] = {}
    for row in ROWS[kind]:
        keys = {spelling: task.key(spelling) for spelling in row}
        assert len(set(keys.values())) == 1, {
            spelling: task.canonical(spelling) for spelling in keys if keys[spelling] != keys[row[0]]
        }
        assert owners.setdefault(keys[row[0]], row) is row, f"{row[0]!r} is equal to {owners[keys[row[0]]][0]!r}"


@pytest.mark.parametrize("kind", ROWS)
def test_a_form_is_its_own_form_and_verdicts_are_those_of_keys(task: MathTask, kind: str) -> None:
    spellings = [spelling for row in ROWS[kind] for spelling in row]
    for a in spellings:
        assert task.key(task.canonical(a)) == task.key(a), a
        for b in spellings[::9]:
            assert task.equivalent(a, b) == task.equivalent(b, a) == (task.key(a) == task.key(b)), (a, b)


def failures_of(
    task: MathTask, rewriting: Callable[[str], str | None], answers: list[str], *, equal: bool
) -> tuple[int, list[tuple[str, str]]]:
    """Return how many answers a rewriting applies to, and those whose verdict is not `equal`."""
    written = [(answer, text) for answer in answers if (text := rewriting(answer)) is not None]
    return len(written), [(answer, text) for answer, text in written if task.equivalent(answer, text) is not equal]


@pytest.mark.parametrize("name", REWRITINGS)
def test_a_harmless_rewriting_changes_no_answer(task: MathTask, name: str) -> None:
    count, wrong = failures_of(task, REWRITINGS[name], REFERENCES, equal=True)
    assert count > 0
    assert wrong == []


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_changes_every_answer(task: MathTask, name: str) -> None:
    count, wrong = failures_of(task, DAMAGES[name], [answer for answer in REFERENCES if answer != "0"], equal=False)
    assert count > 0
    assert wrong == []


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="TTS_DATA_DIR does not name a folder of problems")
def test_at_most_one_percent_of_public_answers_change_under_a_harmless_rewriting(task: MathTask) -> None:
    answers = data_references()
    for name, rewriting in REWRITINGS.items():
        count, wrong = failures_of(task, rewriting, answers, equal=True)
        assert len(wrong) <= count / 100, (name, wrong[:5])


# Random pairs ---------------------------------------------------------------------------------------------------------

FORMS = {
    "times": st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda t: f"{t[0]}:{t[1]:02d}"),
    "half days": st.tuples(st.integers(1, 12), st.integers(0, 59), st.sampled_from("ap")).map(
        lambda t: f"{t[0]}:{t[1]:02d} {t[2]}m"
    ),
    "dates": st.dates().filter(lambda day: day.year > 999).map(lambda day: day.isoformat()),
    "ranges": st.tuples(st.integers(0, 3000), st.integers(1, 500)).map(lambda t: f"{t[0]}-{t[0] + t[1]}"),
    "telephones": st.tuples(st.integers(200, 999), st.integers(0, 9999)).map(lambda t: f"{t[0]}-{t[1]:04d}"),
    "long telephones": st.tuples(st.integers(200, 999), st.integers(200, 999), st.integers(0, 9999)).map(
        lambda t: f"({t[0]}) {t[1]}-{t[2]:04d}"
    ),
    "versions": st.lists(st.integers(0, 40), min_size=3, max_size=4).map(lambda parts: ".".join(map(str, parts))),
    "pairs": st.tuples(st.sampled_from(["()", "[]", "(]", "[)"]), st.integers(-20, 20), st.integers(-20, 20)).map(
        lambda t: f"{t[0][0]}{t[1]}, {t[2]}{t[0][1]}"
    ),
    "coordinates": st.tuples(st.integers(0, 89), st.integers(0, 59), st.sampled_from("NSEW")).map(
        lambda t: f"{t[0]}°{t[1]}'{t[2]}"
    ),
    "lists": st.lists(st.integers(0, 9), min_size=1, max_size=3).map(str),
}


@pytest.mark.slow
@pytest.mark.parametrize("texts", FORMS.values(), ids=FORMS)
def test_things_of_one_form_are_equal_only_where_they_are_written_alike(
    task: MathTask, texts: st.SearchStrategy[str]
) -> None:
    @settings(deadline=None, max_examples=150)
    @given(texts, texts)
    def check(a: str, b: str) -> None:
        assert task.equivalent(a, b) is (a == b)
        assert task.equivalent(a, f"${a}$.")

    check()


VARIABLES = [
    *"abcdfghijklmnopqrstuvwxyzABCDFGHIJKLMNOPQRSTUVWXYZ",
    r"\alpha",
    r"\theta",
    r"\omega",
    r"\pi",
    r"\sin x",
    "(x+1)",
]
POWERS = ["", "^2", "^n", "^{n+1}", "^{-1}"]
UNITS = [" cm", "km", " minutes", r"\text{ m}", r"\text{cm}", "%", " apples", "°C", " km/h", "个"]


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.integers(1, 40), st.integers(1, 60), st.sampled_from(VARIABLES), st.sampled_from(POWERS), st.booleans())
def test_a_product_behind_a_minus_is_no_unit_of_a_range(
    low: int, more: int, name: str, power: str, spaced: bool
) -> None:
    task, high = MathTask(), low + more
    difference = f"{low} - {high}{name}{power}" if spaced else f"{low}-{high}{name}{power}"
    assert task.equivalent(difference, rf"-{high} \cdot {name}{power}+{low}")
    assert not task.equivalent(difference, f"{low}-{high}")
    assert not task.equivalent(difference, f"{low}-{high} y_1{power}")
    task.close()


@pytest.mark.parametrize("unit", UNITS)
def test_a_range_has_units(task: MathTask, unit: str) -> None:
    assert task.equivalent(f"3-4{unit}", "3-4")
    assert task.equivalent(f"3-4{unit}", "3 to 4")
    assert not task.equivalent(f"3-4{unit}", "3-5")


@pytest.mark.slow
def test_ratios_are_equal_where_their_quotients_are(task: MathTask) -> None:
    @settings(deadline=None, max_examples=150)
    @given(st.integers(1, 400), st.integers(100, 400), st.integers(1, 400), st.integers(100, 400))
    def check(a: int, b: int, c: int, d: int) -> None:
        assert task.equivalent(f"{a}:{b}", f"{c} : {d}") is (a * d == b * c)
        assert task.equivalent(f"{a}:{b}", f"{3 * a}:{3 * b}")
        assert not task.equivalent(f"{a}:{b}", rf"\frac{{{a}}}{{{b}}}")

    check()


@settings(deadline=None, max_examples=150)
@given(st.dates().filter(lambda day: day.year > 999))
def test_a_date_is_equal_in_every_spelling(day: Any) -> None:
    name = f"{day:%B}"
    spellings = [
        day.isoformat(),
        f"{name} {day.day}, {day.year}",
        f"{day.day} {name} {day.year}",
        f"{day.year}年{day.month}月{day.day}日",
    ]
    assert len({normal_form(spelling) for spelling in spellings}) == 1


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 12), st.integers(0, 59), st.booleans())
def test_a_time_of_day_is_equal_in_every_spelling(hour: int, minute: int, afternoon: bool) -> None:
    half = "p" if afternoon else "a"
    spellings = [
        f"{hour}:{minute:02d} {half}m",
        f"{hour}:{minute:02d} {half}.m.",
        f"{hour}:{minute:02d}{half.upper()}M",
    ]
    if afternoon and hour < 12:
        spellings.append(f"{hour + 12}:{minute:02d}")
    if minute == 0:
        spellings.append(f"{hour} {half}m")
    assert len({normal_form(spelling) for spelling in spellings}) == 1


# Outputs --------------------------------------------------------------------------------------------------------------


def is_read(task: Task, text: str, answer: str | None) -> bool:
    """Whether a task reads the right value in a text; None: that none is there."""
    found = task.extract(THINK.response(text))
    return found is None if answer is None else found is not None and task.equivalent(found, answer)


@pytest.mark.parametrize(("text", "answer"), OUTPUTS["MATH"])
def test_what_a_solution_states_is_read(task: MathTask, text: str, answer: str | None) -> None:
    assert is_read(task, text, answer), task.extract(text)


@pytest.mark.parametrize(("text", "answer"), OUTPUTS["CHOICE"])
def test_the_letter_that_a_reply_states_is_read(text: str, answer: str | None) -> None:
    assert tts.tasks.get("multiple_choice").extract(text) == answer


def test_texts_are_equal_however_they_are_dressed() -> None:
    task = tts.tasks.get("text")
    keys = [{task.key(text) for text in row} for row in OUTPUTS["TEXT"]]
    assert [len(row) for row in keys] == [1] * len(keys)
    assert len(set.union(*keys)) == len(keys)


@pytest.mark.parametrize("name", ["math", "multiple_choice"])
def test_a_user_adds_marks_of_a_further_language(name: str) -> None:
    task = tts.tasks.get(f"{name}(marks=('ateb:', 'yr ateb yw'))")
    assert task.name == f"{name}(marks=('ateb:', 'yr ateb yw'))"
    for text in ("Ateb: B", "**Ateb** : B.", "Felly, yr ateb yw B.", "Yr Ateb Yw: B"):
        assert task.extract(text) == "B"
        assert tts.tasks.get(name).extract(text) is None
    with pytest.raises(tts.ConfigError, match="marks"):
        tts.tasks.get(f"{name}(marks='ateb:')")


# Public cases ---------------------------------------------------------------------------------------------------------


def public_cases(name: str, folder: str = "cases") -> list[dict[str, Any]]:
    path = Path(DATA or ".") / folder / name
    if not path.is_file():
        pytest.skip(f"TTS_DATA_DIR has no {folder}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.skipif(not DATA, reason="TTS_DATA_DIR does not name a folder with cases")
def test_public_pairs_have_their_right_verdict(task: MathTask) -> None:
    cases = public_cases("answer_pairs.jsonl")
    wrong = [case for case in cases if task.equivalent(case["a"], case["b"]) is not case["equal"]]
    assert len(wrong) <= len(cases) / 50, wrong


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="TTS_DATA_DIR does not name a folder with cases")
def test_public_outputs_are_read(task: MathTask) -> None:
    cases = public_cases("outputs.jsonl")
    tasks = {name: task if name == "math" else tts.tasks.get(name) for name in {case["task"] for case in cases}}
    wrong = [case for case in cases if not is_read(tasks[case["task"]], case["text"], case["answer"])]
    assert len(wrong) <= len(cases) / 50, wrong


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="TTS_DATA_DIR does not name a folder with cases")
def test_further_pairs_have_their_right_verdict(task: MathTask) -> None:
    cases = public_cases("pairs.jsonl", "cases4")
    assert [case for case in cases if task.equivalent(case["a"], case["b"]) is not case["equal"]] == []


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="TTS_DATA_DIR does not name a folder with cases")
@pytest.mark.parametrize("divided", [True, False])
def test_further_outputs_are_read_with_and_without_their_thought(task: MathTask, divided: bool) -> None:
    from tts_addons.code.blocks import choose_block

    wrong: list[dict[str, Any]] = []
    for case in public_cases("outputs.jsonl", "cases4"):
        text = THINK.response(case["text"]) if divided else case["text"]
        if case["task"] == "code":
            is_right = choose_block(text).strip() == case["answer"]
        else:
            is_right = is_read(task if case["task"] == "math" else tts.tasks.get(case["task"]), text, case["answer"])
        if not is_right:
            wrong.append(case)
    assert wrong == []
