"""The turns of long suites, and the page of when each was last green."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import checked, near

ROOT = Path(__file__).resolve().parents[1]
# a suite that was not run for so many commits is not known to work
MOST_COMMITS = 2000


def run_git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def test_every_suite_has_its_turn() -> None:
    turns = [
        checked.pick_turn(commits) for commits in range(1000, 1000 + len(checked.SLOW) * len(checked.ENVIRONMENTS))
    ]
    assert {shard for shard, _ in turns} == set(checked.SLOW)
    assert {environment for _, environment in turns} == set(checked.ENVIRONMENTS)
    assert len({shard for shard, _ in turns[: len(checked.SLOW)]}) == len(checked.SLOW)


def test_the_command_of_every_suite_is_a_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, *_ in checked.SUITES.values():
        name = re.escape(target.replace(".venv", "$(VENV)"))
        assert re.search(rf"^(?:\S+ )*{name}(?: \S+)*:", text, re.MULTILINE), target


def test_a_page_is_read_as_it_was_written_and_says_what_was_never_run() -> None:
    row = checked.Row("0123456789", "2026-01-31", "12", "0", "3 no such server; 1 no GPU", "0123456789 2026-01-31")
    page = checked.write_page({"ray": row})
    rows = checked.read_page(page)
    assert list(rows) == list(checked.SUITES)
    assert rows["ray"] == row
    assert rows["vllm"] == checked.Row()
    assert rows["vllm"].green == "never"
    assert checked.write_page(rows) == page


@pytest.mark.parametrize(
    ("code", "failed", "passed", "said", "green"),
    [
        (0, (), "7", "0", "new 2026-02-01"),
        (2, ("test_a", "test_b"), "7", "2", "old 2026-01-01"),
        (2, (), "7", "exit status 2", "old 2026-01-01"),
        (None, (), "≤ 7", "did not end", "old 2026-01-01"),
    ],
)
def test_the_row_of_a_failed_run_stays_beside_the_last_green_one(
    code: int | None, failed: tuple[str, ...], passed: str, said: str, green: str
) -> None:
    earlier = checked.Row("old", "2026-01-01", "9", "0", "0", "old 2026-01-01")
    outcome = checked.Outcome(code, 7, failed, Counter({"no GPU": 2}))
    assert outcome.row(earlier, "new", "2026-02-01") == checked.Row(
        "new", "2026-02-01", passed, said, "2 no GPU", green
    )


SUITE = """
import os, signal, pytest

def test_passes(): pass
def test_fails(): assert False
@pytest.mark.skip(reason="needs a | and a\\nline")
def test_skipped(): pass
def test_stopped(): os.kill(os.getpid(), signal.SIGINT)
def test_never_run(): pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a suite that is interrupted after one failure, and one that never ends."""
    (tmp_path / "test_it.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "Makefile").write_text(
        f"stopped:\n\t{sys.executable} -m pytest -q -p no:cacheprovider test_it.py\nendless:\n\tsleep 3600\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(checked, "ROOT", tmp_path)
    monkeypatch.setattr(checked, "SUITES", {"stopped": ("stopped",), "endless": ("endless",)})
    return tmp_path


@pytest.mark.usefixtures("project")
def test_what_was_run_before_an_interruption_counts() -> None:
    outcome = checked.run_suite("stopped")
    assert (outcome.code, outcome.passed, len(outcome.failed)) == (2, 2, 1)  # with the one that ran at that moment
    assert outcome.failed[0].endswith("test_fails")
    assert outcome.skipped == {"needs a / and a line": 1}
    assert not outcome.is_green


@pytest.mark.usefixtures("project")
def test_a_suite_ends_with_its_time_and_its_failures_alone_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked.run_suite("endless", 0.1) == checked.Outcome(None, 0, (), Counter())
    monkeypatch.setattr(checked, "count_commits", lambda: 0)
    monkeypatch.setattr(checked, "_LAST_SECONDS", 30)
    monkeypatch.setattr(checked, "pick_turn", lambda commits: ("endless",))
    assert checked.take_turn(30.1) == 0
    monkeypatch.setattr(checked, "pick_turn", lambda commits: ("stopped",))
    assert checked.take_turn(600) == 1


def test_no_suite_was_left_unrun_for_long() -> None:
    if not run_git("rev-parse", "HEAD") or run_git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("needs the history of the repository")
    rows = checked.read_page(checked.PAGE.read_text(encoding="utf-8"))
    assert list(rows) == list(checked.SUITES)
    for suite, row in rows.items():
        if row.commit:
            age = run_git("rev-list", "--count", f"{row.commit}..HEAD")
            assert age, f"{suite}: {row.commit} is no commit of this repository"
            assert int(age) <= MOST_COMMITS, f"{suite} was last run {age} commits ago: make checked SUITES={suite}"


def test_near_to_a_module_are_its_folder_what_imports_it_and_the_contracts(tmp_path: Path) -> None:
    files = {
        "tests/budget/test_account.py": "",
        "tests/budget/test_other.py": "",
        "tests/solver/test_paid.py": "from tts.budget import account, units",
        "tests/solver/test_free.py": "from tts.budget.units import UNITS",
        "tests/contracts/test_all.py": "",
        "tests/addons/zoo/test_mcts.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    contracts = "tests/contracts"
    assert near.list_near(["tts/budget/account.py"], tmp_path) == [
        "tests/budget/test_account.py", contracts, "tests/solver/test_paid.py"
    ]  # fmt: skip
    assert near.list_near(["tts/budget/units.py"], tmp_path) == [
        "tests/budget/test_account.py", "tests/budget/test_other.py", contracts, "tests/solver/test_free.py",
        "tests/solver/test_paid.py",
    ]  # fmt: skip
    assert near.list_near(["tts_addons/zoo/archon.py"], tmp_path) == ["tests/addons/zoo/test_mcts.py", contracts]
    assert near.list_near(["tests/budget/test_other.py", "tests/gone/test_gone.py"], tmp_path) == [
        "tests/budget/test_other.py"
    ]
    assert near.list_near(["README.md"], tmp_path) == ["tests/documents"]
    assert near.list_near(["tts/__init__.py"], tmp_path) == [contracts]
