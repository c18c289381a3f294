"""The tutorial's own file, without a task: a perfect model is right, a wrong one is wrong, and the choice is said."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest

import tts as library

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own_model.md"
MODELS = """
def perfect(prompt):
    return "We add the numbers.\\n\\nThe answer is \\\\boxed{14}."

def poor(prompt):
    return "We add the numbers.\\n\\nThe answer is \\\\boxed{15}."
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not PAGE.is_file():
        pytest.skip("the documents are no part of the wheel")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_models_of_the_page", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = PAGE.read_text(encoding="utf-8")
    for name in ("math.yaml", "problems.jsonl"):
        (body,) = re.findall(rf'```\w+ title="{re.escape(name)}"\n(.+?)```', text, re.DOTALL)
        Path(name).write_text(body)
    Path("own_models_of_the_page.py").write_text(MODELS)


def accuracy(tts, model: str, *more: str, task: bool = False) -> tuple[set[str], str]:
    study = Path("math.yaml").read_text()
    Path("own.yaml").write_text(study if task else study.replace("task: math\n", ""))
    options = (
        "--set",
        "problems.dataset=problems.jsonl",
        "--set",
        f'models={{"mine": {{"backend": "own_models_of_the_page:{model}"}}}}',
    )
    done = tts("run", "own.yaml", *options, *more)
    assert done.exit_code == 0, done.output
    return set(re.findall(r"(\d+\.\d) % \[", done.stdout)), done.stderr + done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("model", "share"), [("perfect", "100.0"), ("poor", "0.0")])
@pytest.mark.parametrize("task", [True, False])
def test_the_page_s_file_scores_a_perfect_model_as_right_and_a_wrong_one_as_wrong(
    tts, files, model: str, share: str, task: bool
):
    found, told = accuracy(tts, model, task=task)
    assert found == {share}
    said = (
        "no task was named: the data set 'problems' has references such as '14' (number or LaTeX), so the task is "
        "'math'"
    )
    assert (said in told) is not task


def test_the_forecast_shows_what_the_task_makes_of_references(tts, files):
    _, told = accuracy(tts, "perfect", "--dry-run")
    assert re.search(r"a right text gives +14, right", told)
    assert re.search(r"a wrong text gives +1414, wrong", told)
    assert not Path(".tts").exists()


@pytest.mark.parametrize("mark", ["A", "answer is"])
def test_the_forecast_calls_no_own_task_wrong_whose_form_it_does_not_know(tts, files, mark: str):
    lines = ["import tts", "class Own(tts.Task):", "    def extract(self, text):"]
    lines.append(f"        return text.rpartition('{mark} ')[2].rstrip('.') if '{mark} ' in text else None")
    Path("own_models_of_the_page.py").write_text("\n".join([MODELS, *lines]))
    _, told = accuracy(tts, "perfect", "--dry-run", "--set", "task=own_models_of_the_page:Own")
    assert re.search(rf"a right text gives +{'form not known' if mark == 'A' else '14, right'}", told)
    assert "wrongly" not in told


@pytest.mark.parametrize(("task", "verdict"), [("text", "wrong"), ("text(match='includes')", "right")])
def test_the_forecast_tries_a_sentence_where_the_task_asks_for_no_form(tts, files, task: str, verdict: str):
    Path("problems.jsonl").write_text('{"problem": "What is the capital of France?", "answer": "Paris"}\n')
    _, told = accuracy(tts, "perfect", "--dry-run", "--set", f'task="{task}"')
    assert re.search(rf"a sentence with it is +{verdict}", told)
    assert ("match='includes'" in told.replace(task, "")) is (verdict == "wrong")


def test_references_of_several_kinds_are_refused_before_anything_is_spent(tts, files):
    rows = [{"problem": f"p{i}", "answer": answer} for i, answer in enumerate(("14", "Paris"))]
    Path("problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("own.yaml").write_text(Path("math.yaml").read_text().replace("task: math\n", ""))
    options = (
        "--set",
        "problems.dataset=problems.jsonl",
        "--set",
        'models={"mine": {"backend": "own_models_of_the_page:perfect"}}',
    )
    done = tts("run", "own.yaml", *options)
    assert done.exit_code == 2
    assert "'14' (number or LaTeX), 'Paris' (few words)" in done.stderr
    assert "task: math compares numbers" in done.stderr


@pytest.mark.parametrize(("task", "package"), [("math_verify", "math-verify"), ("reasoning_gym", "reasoning-gym")])
def test_a_grader_that_is_not_installed_is_said_before_anything_is_spent(
    tts, files, task: str, package: str, monkeypatch: pytest.MonkeyPatch
):
    for module in ("tts.tasks.math_verify", "tts_addons.zoo.reasoning_gym"):
        monkeypatch.setattr(f"{module}.importlib.util.find_spec", lambda _: None)
    rows = [{"problem": "1 + 1", "answer": json.dumps({"reasoning_gym": "leg_counting"})}]
    Path("problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = '{"mine": {"backend": "own_models_of_the_page:refuse"}}'
    Path("own_models_of_the_page.py").write_text("def refuse(prompt):\n    raise AssertionError('it was asked')\n")
    done = tts(
        "run",
        "math.yaml",
        "--set",
        "problems.dataset=problems.jsonl",
        "--set",
        f"models={model}",
        "--set",
        f"task={task}",
    )
    assert done.exit_code == 2, done.output
    assert f"test-time-search[{package}]" in done.stderr.replace("\n", "")
    assert not list(Path(".tts").glob("*.sqlite"))


def test_solve_many_takes_the_task_of_the_references_and_says_so(caplog: pytest.LogCaptureFixture):
    problems = [library.Problem(f"{n} + 1?", answer=str(n + 1)) for n in range(3)]
    asked: list[str] = []

    def backend(prompt: str) -> str:
        asked.append(prompt)
        return "It follows: \\boxed{2}"

    with caplog.at_level(logging.WARNING, "tts.tasks"):
        solutions = library.solve_many(problems, each=library.Budget(samples=1), backend=backend, strategy="best_of_n")
    assert [one.answer for one in solutions] == ["2"] * 3
    assert "so the task is 'math'" in caplog.text
    with pytest.raises(library.errors.ConfigError, match=r"references.*kinds"):
        library.solve_many(
            [*problems, library.Problem("a", answer="x y"), library.Problem("b", answer="z w")], each=1, backend=backend
        )
    assert len(asked) == 3


def test_a_task_that_no_problem_takes_is_told_or_refused(tts, tmp_path, monkeypatch, caplog: pytest.LogCaptureFixture):
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    sums = [library.Problem("3 + 4", task="pocket"), library.Problem("5 + 4")]
    with caplog.at_level(logging.WARNING, "tts.tasks"):
        library.solve_many(sums, 400, model="toy", task="arithmetic", strategy="single")
        assert not caplog.text
        library.solve(sums[0], 400, model="toy", task="arithmetic", strategy="single")
    assert "'arithmetic' is not used" in caplog.text
    problems = "problems: {dataset: arithmetic, limit: 1}\n"
    study = f"name: own\nmodels: toy\ntask: math\n{problems}strategies: single\nbudgets: 99\n"
    Path("own.yaml").write_text(study)
    refused = tts("run", "own.yaml", "--store", "own.sqlite")
    assert refused.exit_code == 2
    assert re.search("'math'.*'pocket'", refused.stderr)
    Path("own.yaml").write_text(study.replace("task: math", "task: pocket"))
    assert tts("run", "own.yaml", "--store", "own.sqlite").exit_code == 0


@pytest.mark.slow
def test_a_table_without_a_right_answer_says_where_to_look(tts, files):
    study = (
        Path("math.yaml")
        .read_text()
        .replace("limit: 50", "limit: 2")
        .replace("[single,", "[single, best_of_n(n=1) | majority,")
    )
    Path("own.yaml").write_text(f"{study}seeds: 3\n")
    told = {}
    for model in ("perfect", "poor"):
        options = (
            "--set",
            "problems.dataset=problems.jsonl",
            "--set",
            f'models={{"mine": {{"backend": "own_models_of_the_page:{model}"}}}}',
        )
        told[model] = tts("run", "own.yaml", *options, "--store", f"{model}.sqlite").stderr
    assert "no answer is right in all rows" in told["poor"]
    assert "docs/how-to/troubleshooting.md" in told["poor"]
    assert "no answer is right" not in told["perfect"]


@pytest.mark.parametrize(("model", "share"), [("perfect", "100.0"), ("poor", "0.0")])
@pytest.mark.parametrize("task", [True, False])
def test_worked_solutions_as_references_are_read_by_their_final_answers(tts, files, model: str, share: str, task: bool):
    rows = [{"question": f"p{i}", "answer": f"{i} + {14 - i} = 14\n#### 14"} for i in range(3)]
    Path("problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, told = accuracy(tts, model, task=task)
    assert found == {share}
    assert "the data set 'problems' has 3 worked solutions as references, of which the final answer is taken" in told
    _, told = accuracy(tts, model, "--dry-run", task=task)
    assert re.search(r"a right text gives +14, right", told)


@pytest.mark.parametrize("task", [None, "math"])
def test_lists_of_problems_take_final_answers_too(task: str | None, caplog: pytest.LogCaptureFixture):
    problems = [library.Problem(f"p{i}", answer="7 + 7 = 14\n#### 14") for i in range(2)]
    found = library.solve_many(
        problems, 100, backend=lambda ask: "The answer is \\boxed{14}.", task=task, strategy="single"
    )
    assert [one.answer for one in found] == ["14", "14"]
    assert (
        "the list of problems has 2 worked solutions as references, of which the final answer is taken: '14' of "
        in caplog.text
    )
