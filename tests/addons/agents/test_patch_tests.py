"""Tests of patches: which patch passes, and what an agent does in vain to pass without mending anything."""

from __future__ import annotations

import pickle
import shlex
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tts
from tests.addons.agents.agents import commit, make_repository, running, script, search, snapshot
from tts.tasks.patch import PatchTask
from tts_addons.agents.patch_tests import PatchTests, judge_results
from tts_addons.agents.suites import Result, is_protected, split_command

FILES = {
    "add.py": "def add(a, b):\n    return a - b\n",
    "tests/test_add.py": "from add import add\n\ndef test_sum():\n    assert add(2, 2) == 4\n\ndef test_zero():\n    "
    "assert add(1, 0)\n",
    "pytest.ini": "[pytest]\npythonpath = .\n",
    "keep.txt": "",
}
MEND = "printf 'def add(a, b):\\n    return a + b\\n' > add.py"
QUIET = "tests(command='pytest -q')"


@pytest.fixture
def repo(tmp_path):
    return make_repository(tmp_path / "repo", FILES)


def score_of(repo: Path, tmp_path: Path, commands: str, verifier: str = QUIET) -> float:
    """Return the score of the patch that a shell script makes."""
    with tts.Workspace(repo, agent=script(tmp_path / "own", commands)) as workspace:
        found = search(workspace, 1, "best", verifier=verifier)
        assert workspace.store.states() == [workspace.store.root.commit]
        assert list((workspace.store.folder / "forks").iterdir()) == []
    return found.candidates[0].scores["main"]


@pytest.mark.slow
def test_the_right_patch_scores_one_and_the_repository_stays(repo, tmp_path):
    before = snapshot(repo)
    assert score_of(repo, tmp_path, MEND) == 1
    assert score_of(repo, tmp_path, "echo '# more' >> add.py") == 0
    assert score_of(repo, tmp_path, "true") == 0, "the repository as it is"
    assert (
        score_of(repo, tmp_path, "echo '# more' >> add.py", "tests(command='python -m pytest -q', credit='share')")
        == 0.5
    )
    assert snapshot(repo) == before


PASS = "def test_sum(): pass\\ndef test_zero(): pass\\n"
HOOK = (
    "import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item, call):\\n"
    "    out = yield\\n    out.get_result().outcome = 'passed'\\n"
)
TRICKS = {
    "edits the tests": f"printf '{PASS}' > tests/test_add.py",
    "removes the tests": "rm -r tests",
    "replaces the folder of tests by a link": f"rm -r tests; mkdir t; printf '{PASS}' > t/test_add.py; ln -s t tests",
    "adds conftest.py": f'printf "{HOOK}" > conftest.py',
    "adds conftest.py beside the tests": f'printf "{HOOK}" > tests/conftest.py',
    "adds sitecustomize.py": "printf 'import os\\nos._exit(0)\\n' > sitecustomize.py",
    "adds a .pth": "printf 'import os; os._exit(0)\\n' > a.pth",
    "edits pytest.ini": "printf '[pytest]\\npythonpath = .\\naddopts = --deselect tests/test_add.py::test_sum\\n' > "
    "pytest.ini",
    "adds pyproject.toml": "rm pytest.ini; printf '[tool.pytest.ini_options]\\naddopts = \"-k zero\"\\n' > "
    "pyproject.toml",
    "shadows pytest": "printf 'import sys\\nsys.exit(0)\\n' > pytest.py; mkdir _pytest; cp pytest.py "
    "_pytest/__init__.py",
    "ends the process": "printf 'import os\\nos._exit(0)\\n' > add.py",
    "ends the process in a call": "printf 'import os\\ndef add(a, b): os._exit(0)\\n' > add.py",
    "exits": "printf 'raise SystemExit(0)\\n' > add.py",
    "skips": "printf 'import pytest\\npytest.skip(allow_module_level=True)\\n' > add.py",
    "keeps a daemon": "printf 'import os\\nos.system(\"setsid sleep 86421 &\")\\nadd = None\\n' > add.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["pytest -q", "python -m pytest -q"])
@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_scores_no_more_than_no_patch(repo, tmp_path, trick, command):
    # of this case alone: others may run at the same time
    seconds = str(100_000 + zlib.crc32(str(tmp_path).encode()) % 800_000)
    assert score_of(repo, tmp_path, TRICKS[trick].replace("86421", seconds), f"tests(command='{command}')") == 0
    assert running(f"sleep {seconds}") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "trick", ["edits the tests", "adds conftest.py", "adds pyproject.toml", "shadows pytest", "removes the tests"]
)
def test_a_trick_takes_nothing_from_a_right_patch(repo, tmp_path, trick):
    assert score_of(repo, tmp_path, f"{TRICKS[trick]}; {MEND}") == 1


@pytest.mark.slow
def test_hidden_files_are_for_the_run_alone_and_lie_over_what_an_agent_wrote(repo, tmp_path):
    hidden = tmp_path / "hidden"
    (hidden / "checks").mkdir(parents=True)
    (hidden / "checks" / "test_more.py").write_text(
        "from add import add\n\n\ndef test_more():\n    assert add(5, 6) == 11\n"
    )
    suite = f"tests(command='pytest -q checks', hidden='{hidden}')"
    outside = tmp_path / "outside"
    outside.mkdir()
    for trick in (
        "mkdir checks; echo 'def test_more(): pass' > checks/test_more.py",
        f"ln -s {outside} checks",
        "mkdir -p checks/test_more.py; touch checks/test_more.py/x",
        "touch checks",
    ):
        assert score_of(repo, tmp_path, trick, suite) == 0
        assert score_of(repo, tmp_path, f"{trick}; {MEND}", suite) == 1
    assert list(outside.iterdir()) == []
    assert not (repo / "checks").exists()


@pytest.mark.slow
def test_tests_of_the_agent_count_where_that_is_allowed(repo, tmp_path):
    loose = "tests(command='pytest -q', restore=False)"
    assert score_of(repo, tmp_path, TRICKS["edits the tests"], loose) == 1
    assert (
        score_of(repo, tmp_path, "rm tests/test_add.py; echo 'def test_other(): pass' > tests/test_add.py", loose) == 0
    )


@pytest.mark.slow
def test_a_command_of_ones_own_counts_by_its_exit_code(repo, tmp_path):
    grep = "tests(command='grep -q + add.py')"
    assert score_of(repo, tmp_path, MEND, grep) == 1
    assert score_of(repo, tmp_path, "true", grep) == 0


def bound(repo: Path, **parameters) -> tuple[tts.Workspace, PatchTests]:
    workspace = tts.Workspace(repo, agent="toy")
    return workspace, PatchTests(**parameters).fill(None, workspace)


@pytest.mark.slow
def test_equal_files_are_tested_once_and_a_run_has_a_limit(repo, tmp_path):
    counts = tmp_path / "counts"
    program = script(tmp_path / "own", f"echo x >> {counts}; [ ! -e slow ] || sleep 60").removeprefix("command:")
    workspace, verifier = bound(repo, command=program, seconds=0.8)
    with workspace:
        fork = workspace.store.fork(workspace.store.root)
        (fork.path / "slow").write_text("")
        state = workspace.store.commit(fork)
        patch = workspace.store.text_patch(state)
        assert workspace.run_suite(verifier.suite, None).code == 0
        assert [workspace.run_suite(verifier.suite, patch, seconds).stopped for seconds in (0.3, None, None)] == [
            True
        ] * 3
        workspace.store.release(fork, state)
    assert counts.read_text().count("x") == 3, "the root once, a run that the budget cut, a run to its own limit"


@pytest.mark.slow
def test_notes_name_tests_unless_they_are_hidden(repo, tmp_path):
    workspace, verifier = bound(repo, command="pytest -q")
    with workspace:
        assert (
            verifier.score_patch(workspace, None).note
            == "1 of 2 tests pass; tests that fail: tests.test_add::test_sum."
        )
        assert (
            "cannot be applied"
            in verifier.score_patch(workspace, "diff --git a/no b/no\n--- a/no\n+++ b/no\n@@ -1 +1 @@\n-a\n+b\n").note
        )
        copy = shutil.copytree(repo / "tests", tmp_path / "hidden" / "tests")
        hidden = PatchTests(command="pytest -q", hidden=str(copy.parent)).fill(None, workspace)
        assert hidden.score_patch(workspace, None).note.endswith("tests pass.")
        assert pickle.loads(pickle.dumps(verifier)) == verifier == PatchTests(command="pytest -q")


@pytest.mark.parametrize("path", ["../out", "/tmp/out", ".git/config", "a/../../out"])
def test_a_patch_reaches_only_the_fork(repo, path):
    workspace, verifier = bound(repo, command="true")
    with workspace:
        patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
        assert verifier.score_patch(workspace, patch).whole == 0
        assert verifier.score_patch(workspace, patch).note.startswith("The patch cannot be applied")


@pytest.mark.slow
def test_what_cannot_be_tested_is_refused_before_the_search(repo, tmp_path):
    def refuse(verifier: str, line: str, folder: Path = repo) -> None:
        with tts.Workspace(folder, agent="toy") as workspace, pytest.raises(tts.ConfigError, match=line):
            search(workspace, 1, "best", verifier=verifier)

    refuse("tests(command='')", "command")
    refuse("tests(command='\"')", "command")
    refuse("tests(command='no-such-program-here')", "does not start")
    refuse("tests(command='pytest -q nowhere')", "no test runs")
    refuse("tests(command='pytest -q', hidden='/no/such')", "no such file")
    refuse("tests(command='sleep 60', seconds=0.3)", "more than 0.3 s")
    (repo / "pytest.ini").write_text(f"[pytest]\npythonpath = {tmp_path}/installed\n")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "add.py").write_text(FILES["add.py"])
    commit(repo)
    refuse(QUIET, "imports the module 'add' from")
    with pytest.raises(tts.ConfigError, match="'toy' does not have"):
        tts.solve("3 + 4", 100, model="toy", verifier=QUIET, strategy="best_of_n(n=1) | best")


def test_results_count_by_the_root():
    root: dict[str, Result] = {"a": "passed", "b": "failed", "c": "skipped", "m": "uncollected"}
    assert judge_results({"a": "passed"}, root, new=True) == {"a": True, "b": False, "c": False}
    assert judge_results({"a": "passed", "b": "skipped", "c": "skipped", "n": "failed"}, root, new=True) == {
        "a": True,
        "b": False,
        "n": False,
    }
    assert judge_results({"n": "passed"}, {"m": "uncollected"}, new=False) == {"n": True}
    assert judge_results({"n": "skipped"}, {}, new=True) == {}


def test_files_of_tests_are_known_by_their_names():
    for path in (
        "tests/a/b.txt",
        "a/test_b.py",
        "a/b_test.py",
        "conftest.py",
        "a/conftest.py",
        "tests",
        "x.pth",
        "setup.cfg",
        "__pycache__/a.pyc",
    ):
        assert is_protected(path), path
    for path in ("a.py", "attest.py", "src/testimony.py", "latest/a.py", "README.md"):
        assert not is_protected(path), path
    assert PatchTask().extract("no patch") is None


SHELL = (
    "cd a && pytest", "PYTHONPATH=. pytest -q", "pytest; true", "pytest | tee log", "pytest > log", "pytest 2>&1",
    "pytest &", "pytest || true", "cd a", "source .venv/bin/activate", "pytest $ARGS", "pytest `ls`", "pytest $(ls)",
    "make test;", "A=1 B=2 make", "pytest -q && true",
)  # fmt: skip
PLAIN = (
    "pytest -q", "bash -c 'cd a && pytest'", 'sh -c "PYTHONPATH=. pytest | tail"', "env PYTHONPATH=. pytest -q",
    "pytest -k 'a or b'", "pytest tests/test_a.py::test[a|b]", "pytest tests/t.py::test[x<y]", "make A=1 test",
    r"find . -exec cat {} \;", "cdparanoia x", "pytest --opt=a;b", "pytest '$HOME'", "pytest -q\n",
)  # fmt: skip


@pytest.mark.parametrize("command", SHELL)
def test_a_command_of_a_shell_is_refused_with_the_form_that_runs(command):
    with pytest.raises(tts.ConfigError, match="no shell runs it") as refused:
        PatchTests(command=command)
    assert shlex.quote(command) in str(refused.value)
    assert PatchTests(command=f"bash -c {shlex.quote(command)}").suite.command[2] == command


@pytest.mark.parametrize("command", PLAIN)
def test_a_command_that_needs_no_shell_is_taken_as_its_words(command):
    assert split_command("command", command) == tuple(shlex.split(command))


@given(st.lists(st.text(min_size=1).filter(lambda word: "\0" not in word), min_size=1))
def test_quoted_words_never_need_a_shell(words):
    assert split_command("command", shlex.join(["run", *words])) == ("run", *words)


def replace_files(repo: Path, **texts: str) -> None:
    """Commit other files in place of those of the repository."""
    for name in ("add.py", "tests/test_add.py", "pytest.ini"):
        (repo / name).unlink()
    make_repository(repo, {name.replace("_py", ".py"): text for name, text in texts.items()})


@pytest.mark.parametrize(
    ("command", "files", "line"),
    [
        ("pytest -q", {"test_a_py": "import nope_missing\n"}, "No module named 'nope_missing'"),
        ("python -m pytest", {"test_a_py": "from m import f\n", "m_py": "import nope_missing\n"}, "'nope_missing'"),
        ("bash -c 'pytest -q'", {"test_a_py": "import nope_missing\n"}, "No module named 'nope_missing'"),
        ("pytest -q", {"conftest_py": "import nope_missing\n", "test_a_py": "def test_a(): pass\n"}, "'nope_missing'"),
        ("pytest -q", {"test_a_py": "def test_a(:\n"}, "SyntaxError"),
        ("pytest -q", {"a_py": "x = 1\n"}, "no tests ran"),
        ("bash -c 'pytest -q'", {"a_py": "x = 1\n"}, "no tests ran"),
        ("python -m unittest test_a", {"test_a_py": "import nope_missing\n"}, "'nope_missing'"),
        ("python -m unittest", {"a_py": "x = 1\n"}, "no test runs"),
        ("make test", {"a_py": "x = 1\n"}, "No rule to make target"),
        ("python nowhere.py", {"a_py": "x = 1\n"}, "can't open file"),
        ("bash -c 'no-such-program x'", {"a_py": "x = 1\n"}, "does not start"),
    ],
)
def test_a_suite_that_cannot_be_collected_is_refused_before_an_agent_starts(repo, tmp_path, command, files, line):
    replace_files(repo, **files)
    mark = tmp_path / "agent_ran"
    verifier = PatchTests(command=command)
    agent = script(tmp_path / "own", f"touch {mark}")
    with tts.Workspace(repo, agent=agent) as workspace, pytest.raises(tts.ConfigError, match=line):
        search(workspace, 1, "best", verifier=verifier)
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("pytest -q", {"test_a_py": "from m import g\n\ndef test_a():\n    g()\n", "m_py": "x = 1\n"}),
        ("pytest -q", {"test_a_py": "import m\n\ndef test_a():\n    pass\n", "m_py": "x = (\n"}),
        ("bash -c 'pytest -q'", {"test_a_py": "import m\n\ndef test_a():\n    pass\n", "m_py": "x = (\n"}),
        ("pytest -q", {"test_a_py": "def test_a():\n    import nope_missing\n"}),
        ("python -m unittest test_a", {"test_a_py": "from m import g\n", "m_py": "x = 1\n"}),
        ("bash -c 'exit 2'", {"a_py": "x = 1\n"}),
    ],
)
def test_a_suite_that_fails_by_code_that_a_patch_can_mend_is_taken(repo, command, files):
    replace_files(repo, **files)
    workspace, verifier = bound(repo, command=command)
    with workspace:
        assert verifier.score_patch(workspace, None).whole == 0


@pytest.mark.slow
def test_a_program_that_kills_its_supervisor_scores_zero_and_is_ended(repo, tmp_path):
    mark = "86414"
    trick = (
        "import os, subprocess\n"
        f"subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\n"
        "os.kill(os.getppid(), 9)\n"
    )
    assert score_of(repo, tmp_path, f"{MEND}; printf '%s' {shlex.quote(trick)} >> add.py") == 0
    assert running(f"sleep {mark}") == []


@pytest.mark.slow
def test_a_patch_that_fails_is_refused_unless_forced(repo, tmp_path):
    agent = script(tmp_path / "own", "rm tests/test_add.py")
    for selection in ("best", "majority"):
        with tts.Workspace(repo, agent=agent) as workspace:
            found = search(workspace, 1, selection, verifier=QUIET)
        warnings = " ".join(found.warnings)
        assert "no candidate passes the tests" in warnings
        assert "tests/test_add.py" in warnings
        with pytest.raises(tts.ConfigError, match="no candidate passes the tests"):
            found.apply()
        assert (repo / "tests" / "test_add.py").exists()
    found.apply(force=True)
    assert not (repo / "tests" / "test_add.py").exists()


@pytest.mark.slow
def test_a_patch_that_passes_is_applied_and_one_beside_it_is_not(repo, tmp_path):
    agent = script(tmp_path / "own", MEND)
    with tts.Workspace(repo, agent=agent) as workspace:
        found = search(workspace, 1, "best", verifier=QUIET)
    assert found.warnings == ()
    found.apply()
    assert "a + b" in (repo / "add.py").read_text()


@pytest.mark.slow
def test_what_the_tests_write_themselves_is_no_part_of_a_patch(repo, tmp_path):
    build = "sh -c 'mkdir -p out; date +%N > out/app.bin; date +%N > app.bin; exit 1'"
    agent = script(tmp_path / "own", f"{MEND}; {build}; true")
    with tts.Workspace(repo, agent=agent) as workspace:
        found = search(workspace, 2, "best", verifier=PatchTests(command=build))
    assert {candidate.answer_class for candidate in found.candidates} == {0}
    assert "app.bin" not in str(found.answer)


@pytest.mark.slow
def test_tests_start_in_the_folder_that_was_named(repo, tmp_path):
    test = "import m\n\ndef test_m():\n    assert m.x == 2\n"
    files = {"tests/test_other.py": "import nope_missing\n", "pkg/m.py": "x = 1\n", "pkg/test_m.py": test}
    make_repository(repo, files)
    for commands, score in (("echo x = 2 > m.py", 1), ("cd ..; rm -r pkg", 0), ("cd ..; rm -r pkg; ln -s / pkg", 0)):
        assert score_of(repo / "pkg", tmp_path, commands) == score
