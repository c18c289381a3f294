"""The reference solutions of public problem sets hold the reference answers, as our extraction and equality see
them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tts.tasks.math import MathTask

FOLDER = os.environ.get("TTS_DATA_DIR")
pytestmark = pytest.mark.skipif(not FOLDER, reason="TTS_DATA_DIR does not name a folder of problems")


def problems(name: str) -> list[dict[str, Any]]:
    path = Path(FOLDER or ".") / name
    if not path.is_file():
        pytest.skip(f"{path.name} is not in TTS_DATA_DIR")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["gsm8k_test_a.jsonl", "math500_a.jsonl"])
def test_the_answer_extracted_from_a_reference_solution_is_the_reference_answer(name: str) -> None:
    task = MathTask()
    wrong: list[tuple[str, str | None, str]] = []
    for problem in problems(name):
        answer = task.extract(problem["solution"])
        if answer is None or not task.equivalent(answer, problem["answer"]):
            wrong.append((problem["id"], answer, problem["answer"]))
    task.close()
    assert wrong == []


def test_different_reference_answers_are_different() -> None:
    task = MathTask()
    answers = [problem["answer"] for problem in problems("aime24.jsonl")]
    for a in answers:
        for b in answers:
            assert task.equivalent(str(a), str(b)) == (int(a) == int(b))
    task.close()
