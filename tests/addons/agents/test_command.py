"""`tts patch`: the table of runs, the patch on standard output, and what is refused."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.addons.agents.agents import SOURCE, git, make_repository, script, snapshot
from tts.cli.app import app
from tts.solver.event_loop import Interrupted
from tts.solver.solver import Solver

TEST = "from add import add\n\ndef test_add():\n    assert add(2, 2) == 4\n"
FIX = ("Fix add.py", "-n", "8", "--seed", "1", "--tests", "pytest -q")


@pytest.fixture
def tts(monkeypatch) -> Callable[..., Result]:
    """`tts` with these arguments, on a screen of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def repo(tmp_path):
    return make_repository(tmp_path / "repo", {"add.py": SOURCE, "test_add.py": TEST})


@pytest.mark.slow
def test_the_demonstration_mends_its_repository(tts, tmp_path):
    result = tts("patch", "--demo", "--trace", str(tmp_path / "trace.html"))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("diff --git a/leap.py b/leap.py\n")
    assert "+    return year % 4 == 0 and year % 100 != 0 or year % 400 == 0" in result.stdout.splitlines()
    assert "pass" in result.stderr
    assert (tmp_path / "trace.html").stat().st_size > 0


@pytest.mark.slow
def test_the_patch_that_passes_fits_the_repository_which_stays(tts, repo):
    before = snapshot(repo)
    result = tts("patch", *FIX, "--repo", str(repo))
    assert result.exit_code == 0, result.stderr
    assert snapshot(repo) == before
    subprocess.run(["git", "apply"], cwd=repo, input=result.stdout.encode(), check=True)
    assert "return a + b" in (repo / "add.py").read_text()


@pytest.mark.slow
def test_apply_changes_the_files_and_nothing_else(tts, repo):
    before = snapshot(repo / ".git")
    result = tts("patch", *FIX, "--repo", str(repo), "--apply")
    assert result.exit_code == 0, result.stderr
    assert "the patch is applied" in result.stderr
    assert snapshot(repo / ".git") == before
    assert git(repo, "status", "--porcelain").split() == ["M", "add.py"]
    assert "return a + b" in (repo / "add.py").read_text()


@pytest.mark.slow
def test_without_tests_the_most_frequent_patch_is_chosen(tts, repo, tmp_path):
    agent = script(tmp_path / "own", 'if [ -n "${TTS_SEED%%*[05]}" ]; then echo b > b; else echo a > a; fi')
    result = tts("patch", "Go.", "-n", "6", "--repo", str(repo), "--agent", agent)
    assert result.exit_code == 0, result.stderr
    assert "+b" in result.stdout


@pytest.mark.slow
def test_no_patch_and_none_that_passes_are_told(tts, repo, tmp_path):
    result = tts("patch", "Go.", "-n", "2", "--repo", str(repo), "--agent", script(tmp_path / "own", "true"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "none of 2 runs has a patch" in result.stderr
    result = tts(
        "patch", *FIX[:1], *FIX[5:], "--repo", str(repo), "--agent", script(tmp_path / "own", "echo a > a"), "-n", "2"
    )
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has a patch that passes the tests" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "there is no task"),
        (("--demo", "Fix it."), "--demo has a task"),
        (("--demo", "--apply"), "--apply has nothing to change"),
        (("Fix it.", "--hidden", "x"), "--hidden has no tests"),
        (("Fix it.", "--agent", "toi", "--repo", "REPO"), "did you mean toy"),
        (("Fix it.", "--repo", "/no/such/folder"), "must be a folder"),
        (("Fix it.", "--budget", "second=3"), "second"),
        (("Fix it.", "--repo", "REPO", "--tests", "pytest -q nowhere"), "no test runs"),
        (("Fix it.", "--repo", "REPO", "--tests", "pytest -q test_add.py", "--hidden", "HIDDEN"), "runs no test of"),
        (
            ("Fix it.", "--repo", "REPO", "--agent", "HIDDEN", "--model", "m", "--url", "http://127.0.0.1:9/v1"),
            "reached",
        ),
    ],
)
def test_a_mistake_is_one_line_and_nothing_runs(tts, repo, tmp_path, arguments, line):
    (tmp_path / "test_hidden.py").write_text(TEST)
    if "HIDDEN" in arguments and "--agent" in arguments:
        arguments = [script(tmp_path / "own", "true") if one == "HIDDEN" else one for one in arguments]
    places = {"REPO": str(repo), "HIDDEN": str(tmp_path / "test_hidden.py")}
    result = tts("patch", *(places.get(one, one) for one in arguments))
    assert result.exit_code == 2
    assert line in result.stderr
    assert result.stdout == ""


@pytest.mark.slow
def test_the_table_says_why_a_patch_fails_and_which_files_of_tests_it_changes(tts, repo, tmp_path):
    agent = script(tmp_path / "own", "echo '# more' >> add.py; rm test_add.py")
    result = tts("patch", "Go.", "-n", "1", "--repo", str(repo), "--agent", agent, "--tests", "pytest -q")
    assert result.exit_code == 1
    assert "why" in result.stderr
    assert "0 of 1" in result.stderr
    assert "changes files of tests" in result.stderr
    assert result.stderr.count("passes the tests") == 1


@pytest.mark.slow
def test_runs_that_failed_and_runs_that_took_too_long_have_their_rows(tts, repo, tmp_path):
    agent = script(tmp_path / "own", "case $TTS_SEED in *[0-2]) exit 3;; *[3-5]) sleep 60;; esac; sed -i s/-/+/ add.py")
    result = tts("patch", *FIX, "--repo", str(repo), "--agent", agent, "--run-seconds", "2")
    assert result.exit_code == 0, result.stderr
    assert len(re.findall(r"^│ +[1-8] ", result.stderr, re.MULTILINE)) == 8
    assert "the run failed" in result.stderr
    assert "cut by a limit" in result.stderr
    assert re.search(r"spent: [\d.]+ s; calls of models are unknown", result.stderr)


@pytest.mark.slow
def test_an_interruption_tests_what_has_ended(tts, repo, tmp_path, monkeypatch):
    solve = Solver.solve

    def interrupt(self: Solver, *arguments: Any, **named: Any) -> Any:
        found = solve(self, *arguments, **named)
        candidates = tuple(dataclasses.replace(candidate, scores={}) for candidate in found.candidates[::-1])
        raise Interrupted(dataclasses.replace(found, stopped_by="interrupted", candidates=candidates, answer=None))

    monkeypatch.setattr(Solver, "solve", interrupt)
    result = tts("patch", *FIX, "--repo", str(repo))
    assert result.exit_code == 130
    assert "pass" in result.stderr
    assert "+    return a + b" in result.stdout


def test_a_command_for_a_shell_is_refused_with_its_form(tts, repo):
    result = tts("patch", "Go.", "--repo", str(repo), "--tests", "cd x && pytest")
    assert result.exit_code == 2
    assert "bash -c 'cd x && pytest'" in result.stderr
