"""A statement that breaks off in the middle of a formula states nothing; whole ones that look alike do."""

from __future__ import annotations

import pytest

from tts import tasks


@pytest.mark.parametrize(
    "text",
    [
        "Final answer: 8 + ",
        "So the answer is 12 -",
        "The answer is \\boxed{8 +",
        "The answer is $8 +",
        "Answer: 10^",
        "Answer: x =",
        "A: \\frac",
    ],
)
def test_a_formula_that_breaks_off_is_no_answer(text: str) -> None:
    assert tasks.get("math").extract(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is A+", "A+"), ("Answer: C++", "C++"), ("Final answer: 8 + 3", "8 + 3"), ("Answer: -3", "-3"),
        ("Answer: [1, 2)", "[1, 2)"), ("Answer: (-\\infty, 3]", "(-\\infty, 3]"), ("Answer: \\{1, 2\\}", "\\{1, 2\\}"),
        ("The answer is 5!", "5!"), ("Answer: 50%", "50%"),
    ],
)  # fmt: skip
def test_a_whole_statement_stays_one(text: str, answer: str) -> None:
    assert tasks.get("math").extract(text) == answer
