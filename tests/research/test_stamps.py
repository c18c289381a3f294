"""Pages say by what they were made, and a command refuses a store of another commit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from research import results, stamps
from research.methods import running
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.record import RESULT_VERSION

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def study() -> StudyConfig:
    return running.make_study(
        "stamped", {"split": "test", "limit": 1}, ["single"], {"samples": [1]}, seeds=1, verifier="none"
    )


def test_a_page_says_by_what_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    git = stamps._git  # pyright: ignore[reportPrivateUsage]
    for found, status, shown in (
        (COMMIT, "", "commit 0123456789"),
        (f"{COMMIT} with changes", "", "commit 0123456789"),  # of other files than the package's, such as pages
        (COMMIT, " M tts/types.py", "commit 0123456789 with changes"),
        (None, "", "no commit"),
    ):
        monkeypatch.setattr(stamps, "commit", lambda found=found: found)
        monkeypatch.setattr(
            stamps, "_git", lambda *asked, status=status: status if asked[0] == "status" else git(*asked)
        )
        assert (
            stamps.stamp_line("python -m x", "; more")
            == f"Made by `python -m x`; more (result version {RESULT_VERSION}, {shown}).\n{stamps.READ}"
        )


def test_results_of_two_commits_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "results.sqlite"
    for module in ("research.stamps", "tts.experiments.study.snapshot"):
        monkeypatch.setattr(f"{module}.commit", lambda: COMMIT)
    number = running.run(study(), store, 1)
    monkeypatch.setattr("research.stamps.commit", lambda: f"{COMMIT} with changes")
    assert running.run(study(), store, 1) == number, "the same commit goes on, though pages were written"
    monkeypatch.setattr("research.stamps.commit", lambda: "f" * 40)
    with pytest.raises(SystemExit, match=r"0123456789,.*this.*ffffffffff"):
        running.run(study(), store, 1)
    stamps.refuse_mixture(tmp_path / "none.sqlite")


def test_every_page_of_results_is_stamped_by_its_command() -> None:
    root = Path(stamps.__file__).parent
    loose = [
        path
        for path in root.rglob("*.py")
        if path.name != "stamps.py" and re.search("Made by `", path.read_text(encoding="utf-8"))
    ]
    assert loose == []


def test_every_page_names_a_commit_of_this_history() -> None:
    root = Path(stamps.__file__).parents[1]

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)

    if not (root / ".git").exists() or git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the whole history is not here")
    named = {
        page.name: commit
        for page in sorted((root / "docs" / "results").glob("*.md"))
        for commit in re.findall(r"\bcommit ([0-9a-f]{10})\b", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    unknown = {
        page: commit for page, commit in named.items() if git("merge-base", "--is-ancestor", commit, "HEAD").returncode
    }
    assert unknown == {}


def test_every_page_that_a_command_of_research_makes_is_made_again_by_results() -> None:
    made = {
        page.name
        for page in results.PAGES.glob("*.md")
        if re.search(r"^Made by `python -m research", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert made == set(results.COMMANDS)


def test_pages_of_older_versions_are_named_and_only_these_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in results.COMMANDS:
        (tmp_path / name).write_text(stamps.stamp_line("python -m x") + "\n")
    assert list(results.older_pages(tmp_path)) == []
    (tmp_path / "risk.md").write_text("Made by `x` (result version 3, commit 1).\n")
    (tmp_path / "splits.md").unlink()
    monkeypatch.setattr(results, "PAGES", tmp_path)
    older = list(results.older_pages(tmp_path))
    assert [line.partition(":")[0] for line in older] == ["risk.md", "splits.md"]
    assert "version 3" in older[0]
    script = tmp_path / "page.py"
    script.write_text("import sys; open(sys.argv[1], 'w').write(sys.argv[2])")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setitem(results.COMMANDS, "risk.md", f"page {{page}} 'Made by `x` (result version {RESULT_VERSION}).'")
    monkeypatch.setitem(results.COMMANDS, "splits.md", "page")
    monkeypatch.setattr("sys.argv", ["results", "--folder", str(tmp_path / "stores")])
    with pytest.raises(SystemExit, match=r"splits.md.*status 1"):
        results.main()
    assert (tmp_path / "risk.md").read_text() == f"Made by `x` in 0 min (result version {RESULT_VERSION})."
    assert results.version_of(tmp_path / "risk.md") == RESULT_VERSION
