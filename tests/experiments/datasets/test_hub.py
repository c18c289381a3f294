"""The Hub itself is not asked here: `datasets` reads folders in the Hub's own layout, with rows as they are
published.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tts import tasks
from tts.errors import ConfigError, MissingDependency
from tts.experiments.datasets import load
from tts.experiments.datasets.rows import RowsLeftOut
from tts.types import Problem

FOLDER = os.environ.get("TTS_DATA_DIR")
NEEDS_DATA = pytest.mark.skipif(not FOLDER, reason="TTS_DATA_DIR does not name a folder of problems")

GSM8K = [
    {"question": "Ann has 2 pens and buys 3. How many?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"},
    {"question": "How many is 40 times 30?", "answer": "40 * 30 = 1200\n#### 1,200"},
]
MATH500 = [
    {
        "problem": "What is $1+1$?",
        "solution": r"It is $\boxed{2}$.",
        "answer": "2",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "test/algebra/1.json",
    }
]
AIME24 = [
    {
        "id": 60,
        "problem": "Find $n$.",
        "solution": "Look.",
        "answer": "204",
        "url": "https://example.org/1",
        "year": "2024",
    }
]
AMC23 = [{"id": 0, "question": "How many miles?", "answer": "27", "url": "https://example.org/2"}]
GPQA = [
    {
        "Record ID": f"rec{number}",
        "Question": f"Which is right ({number})?\n",
        "Correct Answer": "this one\n",
        "Incorrect Answer 1": "not this",
        "Incorrect Answer 2": "nor this",
        "Incorrect Answer 3": "nor that",
        "High-level domain": "Physics",
        "Subdomain": "Optics",
    }
    for number in range(40)
]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data sets; what `datasets` keeps of them stays in the test's own."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return tmp_path / "published"


def write(folder: Path, split: str, rows: Sequence[Mapping[str, Any]]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder)


def only(name: str, path: str) -> Problem:
    [problem] = load(name, path=path)
    return problem


@pytest.mark.slow
def test_gsm8k(published: Path):
    write(published, "train", GSM8K[:1])
    path = write(published, "test", GSM8K)
    first, second = load("gsm8k", path=path)
    assert (first.text, first.answer, first.task) == (GSM8K[0]["question"], "5", "math")
    assert first.metadata == {"solution": "2 + 3 = <<2+3=5>>5"}
    assert (first.id or "").startswith("gsm8k/test/")
    assert second.answer == "1200"
    [trained] = load("gsm8k", path=path, split="train")
    assert (trained.id or "").startswith("gsm8k/train/")


@pytest.mark.slow
def test_math500_aime24_and_amc23(published: Path):
    problem = only("math500", write(published, "test", MATH500))
    assert (problem.text, problem.answer, problem.id, problem.task) == (
        "What is $1+1$?",
        "2",
        "math500/test/algebra/1.json",
        "math",
    )
    assert problem.metadata == {"level": 1, "subject": "Algebra", "solution": r"It is $\boxed{2}$."}
    problem = only("aime24", write(published / "aime", "train", AIME24))
    assert (problem.text, problem.answer, problem.id, problem.task) == ("Find $n$.", "204", "aime24/60", "math")
    problem = only("amc23", write(published / "amc", "test", AMC23))
    assert (problem.text, problem.answer, problem.id, problem.task) == ("How many miles?", "27", "amc23/0", "math")


def test_a_row_without_what_was_published_is_left_out(monkeypatch: pytest.MonkeyPatch):
    rows = [("row 1", {**MATH500[0], "answer": None}), ("row 2", MATH500[0])]
    monkeypatch.setattr("tts.experiments.datasets.hub._rows", lambda *_: iter(rows))
    with pytest.warns(RowsLeftOut, match="1:.*answer"):
        (problem,) = load("math500")
    assert problem.answer == "2"


def test_gpqa_diamond_has_its_choices_in_an_order_of_its_own(published: Path):
    problems = load("gpqa_diamond", path=write(published, "train", GPQA))
    assert len(problems) == len(GPQA)
    places: set[str] = set()
    for number, problem in enumerate(problems):
        question, blank, *choices = problem.text.split("\n")
        assert (question, blank) == (f"Which is right ({number})?", "")
        assert [choice[:3] for choice in choices] == ["A) ", "B) ", "C) ", "D) "]
        assert sorted(choice[3:] for choice in choices) == ["nor that", "nor this", "not this", "this one"]
        assert f"{problem.answer}) this one" in choices
        assert problem.task == "multiple_choice"
        assert tasks.get("multiple_choice").extract(f"Answer: {problem.answer}") == problem.answer
        places.add(problem.answer or "")
    assert places == set("ABCD")
    assert load("gpqa_diamond", path=str(published), seed=1, limit=3)[0] in problems


def test_bad_rows_are_named_and_do_not_stop_the_rest(published: Path):
    bad = [
        {"question": "No mark?", "answer": "5"},
        {"question": "No number?", "answer": "5 ####"},
        {"question": " ", "answer": "#### 5"},
    ]
    with pytest.warns(RowsLeftOut) as caught:
        problems = load("gsm8k", path=write(published, "test", [*bad, GSM8K[0], GSM8K[0]]))
    assert [problem.answer for problem in problems] == ["5"]
    assert str(caught[0].message) == (
        f"{published} (test): rows left out: 4. row 1: its answer has no '####' with a number after it; "
        "row 2: its answer has no '####' with a number after it; row 3: its question is ' ', but must be a text; "
        "row 5: it is the problem of row 4 again"
    )


def test_any_data_set_is_read_by_its_fields(published: Path):
    path = write(published, "dev", [{"q": "1 + 1?", "a": 2, "n": 5, "hard": True}])
    card = "---\nconfigs:\n- config_name: sums\n  data_files:\n  - split: dev\n    path: dev.jsonl\n---\n"
    (published / "README.md").write_text(card, encoding="utf-8")
    given = {"path": path, "split": "dev", "fields": {"problem": "q", "answer": "a", "id": "n"}}
    [problem] = load("hub", **given, config="sums", task="math")
    assert (problem.text, problem.answer, problem.id, problem.task, problem.metadata) == (
        "1 + 1?",
        "2",
        "5",
        "math",
        {"hard": True},
    )
    with pytest.raises(ConfigError, match="loaded: ValueError: BuilderConfig 'products'"):
        load("hub", **given, config="products")
    with pytest.raises(ConfigError, match=r"field.*'b'"):
        load("hub", path=path, split="dev", fields={"problem": "q", "answer": "b"})


def test_what_cannot_be_loaded_is_one_line_with_a_cure(published: Path):
    path = write(published, "test", GSM8K)
    for name, parameters, message in (
        (
            "gsm8k",
            {"path": path, "split": "dev"},
            "split of gsm8k is 'dev', but no split of gsm8k has that name (hint: known: test, train)",
        ),
        ("gsm8k", {"path": path, "split": "train"}, "(train) cannot be loaded: ValueError: Unknown split"),
        ("gsm8k", {"path": str(published / "none")}, "cannot be loaded: "),
        (
            "math500",
            {"path": path},
            "has no problem, but must have one; row 1: it has no field 'problem', only 'question', 'answer'",
        ),
        ("hub", {}, "path is not given, but the data set 'hub' needs one"),
    ):
        with pytest.raises(ConfigError) as failure:
            load(name, **parameters)
        assert message in str(failure.value)
        assert "\n" not in str(failure.value)


def test_without_the_package_the_cure_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingDependency, match=r"openai/gsm8k.*install 'test-time-search\[experiments\]'"):
        load("gsm8k")


def local(name: str) -> list[dict[str, Any]]:
    path = Path(FOLDER or ".") / name
    if not path.is_file():
        pytest.skip(f"{path.name} is not in TTS_DATA_DIR")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.slow
@NEEDS_DATA
@pytest.mark.parametrize("name", ["gsm8k_test_a.jsonl", "gsm8k_train.jsonl"])
def test_real_rows_of_gsm8k_have_the_answers_they_are_known_to_have(name: str, published: Path):
    rows = local(name)
    path = write(published, "test", [{"question": row["problem"], "answer": row["solution"]} for row in rows])
    read = [(problem.text, problem.answer) for problem in load("gsm8k", path=path)]
    assert read == [(row["problem"], row["answer"].replace(",", "")) for row in rows]


@NEEDS_DATA
def test_real_rows_of_math500_and_aime24_are_read(published: Path):
    rows = local("math500_a.jsonl")
    path = write(published, "test", [{**row, "unique_id": row["id"], "level": int(row["level"][-1])} for row in rows])
    problems = load("math500", path=path)
    assert [(problem.text, problem.answer) for problem in problems] == [(row["problem"], row["answer"]) for row in rows]
    assert {problem.metadata["level"] for problem in problems} <= {1, 2, 3, 4, 5}
    rows = local("aime24.jsonl")
    problems = load("aime24", path=write(published / "aime", "train", rows))
    assert [(problem.text, problem.answer) for problem in problems] == [
        (row["problem"], str(row["answer"])) for row in rows
    ]
