from __future__ import annotations

import time

import pytest

from tts.randomness import generator
from tts.tasks import extraction
from tts.tasks.extraction import announced_answer, final_answer, last_box

TEXTS: list[tuple[str, str | None]] = [
    # boxes
    (r"So the answer is \boxed{5}.", "5"),
    (r"\boxed{1} and then \boxed{2}", "2"),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\frac{\sqrt{a^{2}}}{b_{1}}}", r"\frac{\sqrt{a^{2}}}{b_{1}}"),
    (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\{1, 2)}", r"\{1, 2)"),
    (r"\boxed{[0, 1\}}", r"[0, 1\}"),
    (r"\boxed {5}", "5"),
    (r"\boxed{ 5 }", "5"),
    (r"\fbox{7}", "7"),
    (r"\boxed{5} or \fbox{7}", "7"),
    (r"\boxed{\boxed{5}}", "5"),
    (r"\boxed{\text{East}}", r"\text{East}"),
    (r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ("\\boxed{1 +\n2}", "1 +\n2"),
    (r"\boxed{5} is not \boxed{6", "5"),
    (r"{ stray \boxed{5}", "5"),
    (r"} stray \boxed{5}", "5"),
    (r"\boxed{a \boxed{5}", "5"),
    (r"\boxed{5", None),
    (r"\boxed{}", None),
    (r"\boxed{ }", None),
    (r"\boxed{5} \boxed{}", "5"),
    ("A: 4\n" + r"\boxed{5}" + "\nA: 6", "5"),
    (r"\boxed{} A: 6", "6"),
    # markers
    ("6 * 7 = 42\n#### 42", "42"),
    ("#### 1\n#### 2", "2"),
    ("A: 5", "5"),
    ("a: 5", "5"),
    ("Answer: 5", "5"),
    ("Final Answer: 5", "5"),
    ("ANSWER : 5", "5"),
    ("The answer is 5.", "5"),
    ("the answer is: 5", "5"),
    ("Hence the final answer is 5.\nI am done.", "5"),
    ("Our answer is 5", "5"),
    ("**Answer:** 5", "5"),
    ("**Answer**: 5", "5"),
    ("**Answer: 5**", "5"),
    ("Answer: **5**", "5"),
    ("**Final Answer:** **5.**", "5"),
    ("The answer is: **x = 3**.", "x = 3"),
    ("Answer: $5$.", "5"),
    (r"The answer is $\frac{1}{2}$.", r"\frac{1}{2}"),
    (r"The answer is \(5\).", "5"),
    (r"The answer is \[5\]", "5"),
    ('Answer: "yes"', "yes"),
    ("Answer: `5`", "5"),
    ("Answer: 3.5.", "3.5"),
    ("Answer: .5", ".5"),
    (r"Answer: \$5", r"\$5"),
    ("The answer is $5$. I hope it is correct.", "5"),
    ("A: 1, then A: 2", "2"),
    ("A: 5\nB: 6", "5"),
    ("The answer is 4. No: the answer is 5.", "5"),
    # none
    ("", None),
    ("\n", None),
    ("The result is 5.", None),
    ("USA: 5", None),
    ("Data: 5", None),
    ("my_A: 5", None),
    ("ThisAnswer: 5", None),
    ("The answer isn't known", None),
    ("##### 5", None),
    ("### 5", None),
    ("Answer:", None),
    ("Answer:\n5", "5"),
    ("A: 5\nAnswer: ", None),
    ("Answer: **", None),
    ("Answer: .", None),
]


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_final_answer(text: str, answer: str | None):
    assert final_answer(text) == answer


def test_a_heading_that_a_piece_cuts_is_no_marker():
    """Of "#####", which is none, the third piece from the end sees four characters."""
    assert announced_answer("A: 5\n" + "." * 9000 + "#####" + "." * 1023) == "5"


def test_the_table_is_large():
    assert len(TEXTS) >= 40


@pytest.mark.parametrize(
    "unit",
    [
        "\\boxed{",
        "\\boxed{}",
        "{",
        "}",
        "\\",
        "A:",
        "answer is ",
        "the ",
        " ",
        "*",
        "'",
        "$",
        "#",
        ".",
        "I hope ",
        "\t \n",
    ],
)
def test_long_texts_take_linear_time(unit: str):
    text = "Answer: 5" + unit * (200_000 // len(unit)) + "x"
    started = time.monotonic()
    last_box("\\boxed{" + text)
    announced_answer(text)
    assert time.monotonic() - started < 60


def test_a_marker_is_found_alike_however_long_the_pieces_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = generator(3, 0, "markers")
    words = [
        "answer is",
        "The final answer is",
        "A:",
        "Answer :",
        "####",
        "#",
        "step",
        "the",
        "**answer:**",
        " \n",
        "a",
        ": 5",
        "is",
    ]
    for _ in range(300):
        text = " ".join(words[int(i)] for i in rng.integers(0, len(words), int(rng.integers(0, 40))))
        monkeypatch.setattr(extraction, "_LAST", 65_536)
        whole = extraction.last_marker(text)
        for size in (1, 3, 10, 60):
            monkeypatch.setattr(extraction, "_LAST", size)
            assert extraction.last_marker(text) == whole, text
