"""Data sets of repositories: tasks, a repository for each prompt, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tts
from tests.addons.agents.agents import SOURCE, commit, git, make_repository, search
from tests.support.yaml_bomb import BOMB
from tts._common.scopes import allow_commands
from tts.cli.app import app
from tts.errors import ConfigError
from tts.experiments import datasets
from tts_addons.agents.repositories import Repositories, read_tasks

EXAMPLES = Path(__file__).parents[3] / "examples" / "patches"
STUDY = """
name: patches
models:
  toy: {backend: "tts_addons.agents.repositories:Repositories", options: {data: DATA, agent: toy}}
problems: DATA
verifiers: tests
strategies: best_of_n | best
budgets: {samples: 3}
"""


def add_task(data: Path, name: str, wrong: str = "a - b", right: str = "2 + 3", more: str = "") -> Path:
    """Write a task with a function that is wrong, a test, and a hidden test."""
    folder = data / name
    for part in ("repo", "hidden"):
        (folder / part).mkdir(parents=True)
    (folder / "task.yaml").write_text(f"prompt: Fix {name}.py\ntests: pytest -q\nhidden: hidden\n{more}")
    (folder / "repo" / f"{name}.py").write_text(f"def {name}(a, b):\n    return {wrong}\n")
    test = f"from {name} import {name}\n\ndef test_{name}():\n    assert {name}(2, 3) == {right}\n"
    (folder / "repo" / f"test_{name}.py").write_text(test)
    (folder / "hidden" / "test_hidden.py").write_text(
        test.replace("2, 3", "7, 7").replace("2 + 3", "14").replace("2 * 3", "49")
    )
    return folder


@pytest.fixture
def data(tmp_path) -> Path:
    add_task(tmp_path / "data", "add")
    add_task(tmp_path / "data", "times", "a // b", "2 * 3")
    return tmp_path / "data"


@pytest.mark.slow
def test_each_prompt_is_solved_in_its_own_repository(data):
    with Repositories(data, agent="toy") as backend:
        found = [search(backend, 3, "best", f"Fix {name}.py", verifier="tests") for name in ("add", "times")]
        assert "+    return a + b" in (found[0].answer or "")
        assert [one.candidates[0].scores["main"] for one in found] == [1.0, 0.0]  # no edit of the toy writes *
        with pytest.raises(ConfigError, match="task"):
            search(backend)


@pytest.mark.slow
def test_a_repository_with_git_is_taken_at_its_revision(tmp_path):
    folder = add_task(tmp_path / "data", "add", more="revision: v1\nrepo: clone\n")
    test = "from add import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"
    clone = make_repository(folder / "clone", {"add.py": SOURCE, "test_add.py": test})
    git(clone, "tag", "v1")
    (clone / "add.py").unlink()
    commit(clone)
    with Repositories(tmp_path / "data", agent="toy") as backend:
        found = search(backend, 4, "best", "Fix add.py", verifier="tests")
    assert "add.py" in (found.answer or "")


@pytest.mark.slow
def test_a_study_needs_permission_and_judges_by_hidden_tests(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY.replace("DATA", "data"))
    refused = CliRunner().invoke(app, ["run", "study.yaml"])
    assert refused.exit_code == 2
    assert "has commands, such as 'pytest -q', which run as you" in refused.stderr
    told = CliRunner().invoke(app, ["run", "study.yaml", "--allow-commands"])
    assert told.exit_code == 0, told.stderr
    shown = CliRunner().invoke(app, ["show", "patches", "--json"])
    (point,) = json.loads(shown.stdout)
    assert point["accuracy"]["value"] == 0.5
    assert {one.cell.problem: one.right for one in tts.Study.from_store("patches").results()} == {
        "add": True,
        "times": False,
    }


@pytest.mark.slow
def test_a_patch_is_right_if_hidden_tests_pass_too(data):
    test = data / "add" / "hidden" / "test_hidden.py"
    test.write_text(test.read_text().replace("14", "15"))
    with allow_commands():
        problem, _ = datasets.load(str(data))
    task = tts.tasks.get(problem.task)
    with Repositories(data, agent="toy") as backend:
        found = search(backend, 3, "best", "Fix add.py", verifier="tests")
    assert found.candidates[0].scores["main"] == 1.0
    assert task.decide(found.answer, problem.answer) is None
    with allow_commands():
        assert not task.equivalent(found.answer, problem.answer)
    with pytest.raises(ConfigError, match="has commands"):
        task.equivalent(found.answer, problem.answer)
    assert task.equivalent(found.answer, found.answer)


def test_the_examples_are_six_tasks_whose_tests_fail():
    assert [task.name for task in read_tasks(EXAMPLES)] == ["clamp", "dates", "digits", "leap", "ranges", "stats"]


KEYS = ("prompt", "tests", "repo", "revision", "hidden")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tests: pytest", "prompt is missing"),
        ("prompt: Fix it.", "tests is missing"),
        ("prompt: 5\ntests: pytest", "prompt is 5, but must"),
        ("prompt: Fix it.\ntests: 'pytest \"'", "must be words of a command"),
        ("prompt: Fix it.\ntests: pytest\nrepos: x", "did you mean repo"),
        ("prompt: Fix it.\ntests: pytest\nrepo: ../other", "its repo is '../other', but must be below the folder"),
        ("prompt: Fix it.\ntests: pytest\nrepo: /", "its repo is '/', but must be below the folder"),
        ("prompt: Fix it.\ntests: pytest\nrepo: none", "there is no such folder beside it"),
        ("prompt: Fix it.\ntests: pytest\nhidden: link", "its hidden is 'link', but must be below the folder"),
        ("prompt: Fix it.\ntests: pytest\nhidden: none", "there is no such file or folder beside it"),
        ("[1]", "must be keys with values"),
        *(
            ("".join(f'{key}: "a\\0b"\n' if key == odd else f"{key}: repo\n" for key in KEYS), f"{odd}: .* zero bytes")
            for odd in KEYS
        ),
        ("prompt: Fix it.\ntests: cd a && pytest", "no shell runs it"),
        ("a: b: c", "this is no YAML at line 1"),
        (BOMB.format("prompt"), "the YAML has more than 1,000,000 values"),
    ],
)
def test_a_task_that_is_not_valid_is_refused_by_its_file(tmp_path, text, line):
    folder = add_task(tmp_path / "data", "add")
    (folder / "link").symlink_to(tmp_path)
    (folder / "task.yaml").write_text(text)
    with pytest.raises(ConfigError, match=line) as refused:
        read_tasks(tmp_path / "data")
    assert "task.yaml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_tasks_of_one_prompt_and_folders_without_tasks_are_refused(data, tmp_path):
    (data / "times" / "task.yaml").write_text("prompt: Fix add.py\ntests: pytest -q\n")
    with pytest.raises(ConfigError, match="its prompt is that of"):
        read_tasks(data)
    with pytest.raises(ConfigError, match="has no task"):
        datasets.load(str(tmp_path))
    with pytest.raises(ConfigError, match="data and agent are required"):
        Repositories.from_record(None, data="x")
