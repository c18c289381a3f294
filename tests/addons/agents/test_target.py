"""`Solution.patch` and `Solution.apply`: what is written where nothing has changed since the start, and what is
refused.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import tts
from tests.addons.agents.agents import SOURCE, git, make_repository, search, snapshot
from tts.errors import ConfigError
from tts_addons.agents.store import StateStore

FIXED = SOURCE.replace("a - b", "a + b")


@pytest.fixture
def user(tmp_path) -> Path:
    return make_repository(tmp_path / "user")


@pytest.fixture
def store(user, tmp_path):
    with StateStore(user, folder=tmp_path / "stores") as store:
        yield store


def patch_of(store: StateStore, **texts: str | None) -> str:
    """Return the patch that writes files, by names without their ending, and removes those of None."""
    fork = store.fork(store.root)
    for name, text in texts.items():
        path = fork.path / f"{name}.py"
        path.unlink() if text is None else path.write_text(text)
    return store.text_patch(store.commit(fork))


def refuse(store: StateStore, patch: str, user: Path, line: str) -> None:
    before = snapshot(user)
    with pytest.raises(ConfigError, match=line) as refused:
        store.target.apply(patch)
    assert "\n" not in str(refused.value)
    assert snapshot(user) == before


def test_a_patch_is_refused_where_head_or_a_touched_file_has_changed(user, store):
    patch = patch_of(store, add=FIXED, new="1\n")
    path, new = user / "add.py", user / "new.py"
    for change, name, undo in (
        (lambda: path.write_text(f"{SOURCE}# more\n"), "add", lambda: path.write_text(SOURCE)),
        (path.unlink, "add", lambda: path.write_text(SOURCE)),
        (lambda: path.chmod(0o755), "add", lambda: path.chmod(0o644)),
        (lambda: new.write_text("in the way"), "new", new.unlink),
    ):
        change()
        refuse(store, patch, user, f"'{name}.py' in .* has changed since the start")
        undo()
    git(user, "commit", "--quiet", "--allow-empty", "-m", "next")
    refuse(store, patch, user, "HEAD of .* has changed")


def test_other_files_may_change_and_git_stays_as_it_is(user, store):
    patch = patch_of(store, add=FIXED, new="1\n")
    (user / "other.txt").write_text("another file may change")
    before = snapshot(user / ".git")
    store.target.apply(patch)
    assert ((user / "add.py").read_text(), (user / "new.py").read_text()) == (FIXED, "1\n")
    assert snapshot(user / ".git") == before


def test_binary_files_removed_files_and_modes_are_applied_after_the_store_is_gone(user, tmp_path):
    with StateStore(user, folder=tmp_path / "stores") as store:
        fork = store.fork(store.root)
        (fork.path / "add.py").unlink()
        (fork.path / "new file.bin").write_bytes(b"\0new")
        (fork.path / "run").write_text("#!/bin/sh\n")
        (fork.path / "run").chmod(0o755)
        patch = store.text_patch(store.commit(fork))
    pickle.loads(pickle.dumps(store.target)).apply(patch)
    assert not (user / "add.py").exists()
    assert (user / "new file.bin").read_bytes() == b"\0new"
    assert (user / "run").stat().st_mode & 0o111


def test_changes_that_belong_to_the_root_are_no_later_ones(user, tmp_path):
    (user / "add.py").write_text(f"{SOURCE}# mine\n")
    with StateStore(user, folder=tmp_path / "stores", include_changes=True) as store:
        store.target.apply(patch_of(store, add=f"{FIXED}# mine\n"))
    assert (user / "add.py").read_text() == f"{FIXED}# mine\n"


@pytest.mark.parametrize("patch", ["no patch", ""])
def test_what_is_no_patch_is_refused(user, store, patch):
    refuse(store, patch, user, "not applied: git apply failed")


def test_a_patch_never_leaves_the_folder(user, store):
    patch = patch_of(store, new="1\n").replace("new.py", "../new.py")
    refuse(store, patch, user, "not applied")
    assert not (user.parent / "new.py").exists()


def test_a_folder_that_is_gone_is_told(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "add.py").write_text(SOURCE)
    with StateStore(tmp_path / "plain", folder=tmp_path / "stores") as store:
        patch = patch_of(store, add=FIXED)
    (tmp_path / "plain").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"the folder .*plain is gone"):
        store.target.apply(patch)


@pytest.mark.slow
def test_a_solution_applies_its_patch_after_the_workspace_was_closed(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "add.py").write_text("def add(a, b):\n    return a - b\n")
    with tts.Workspace(folder, agent="toy") as workspace:
        solution = search(workspace)
    assert solution.patch == solution.answer
    assert solution.patch is not None
    solution.apply()
    assert (folder / "add.py").read_text() == "def add(a, b):\n    return a + b\n"
    with pytest.raises(ConfigError, match=r"'add\.py'.*since"):
        solution.apply()


def test_a_solution_without_a_patch_has_none_to_apply(tmp_path):
    other = tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4) | majority")
    assert other.patch is None
    with pytest.raises(ConfigError, match="is no patch"):
        other.apply()
    with tts.Workspace(make_repository(tmp_path / "empty", {"add.py": "name\n"}), agent="toy") as workspace:
        none = search(workspace, 1)
    assert none.patch is None
    with pytest.raises(ConfigError, match="no patch to apply"):
        none.apply()
