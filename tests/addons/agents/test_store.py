"""States of a repository: forks and patches, and a repository of the user's that nothing changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.addons.agents.agents import commit, git, make_repository, snapshot, write_program
from tts.errors import ConfigError, EngineError
from tts.tasks.patch import patch_key
from tts_addons.agents import store as store_module
from tts_addons.agents.git import run_git
from tts_addons.agents.store import StateStore, remove

HOOKS = ("post-checkout", "pre-commit", "post-commit", "reference-transaction", "post-index-change")


@pytest.fixture
def repo(tmp_path):
    """A repository with branches, a stash, an untracked file, and hooks that would leave a mark."""
    repo = tmp_path / "repo"
    make_repository(repo, {".gitignore": "*.log\n", "src/add.py": "def add(a, b):\n    return a - b\n"})
    (repo / "data.bin").write_bytes(bytes(range(256)))
    commit(repo)
    git(repo, "branch", "other")
    (repo / "src" / "add.py").write_text("stash me\n")
    git(repo, "stash")
    (repo / "notes.txt").write_text("untracked\n")
    for name in HOOKS:
        write_program(repo / ".git" / "hooks" / name, f"touch {tmp_path}/hook_ran")
    return repo


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "workspaces"


def test_a_patch_applies_to_the_users_repository(repo, folder):
    before = snapshot(repo)
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        (fork.path / "src" / "add.py").write_text("def add(a, b):\n    return a + b\n")
        (fork.path / "new.bin").write_bytes(b"\0\1\2" * 100)
        (fork.path / "data.bin").unlink()
        (fork.path / "run.log").write_text("ignored")
        state = store.commit(fork)
        patch = store.patch(state)
    assert snapshot(repo) == before
    assert not (repo.parent / "hook_ran").exists()
    assert list(folder.glob("run-*")) == []
    subprocess.run(["git", "apply"], cwd=repo, input=patch, check=True)
    assert "a + b" in (repo / "src" / "add.py").read_text()
    assert (repo / "new.bin").read_bytes() == b"\0\1\2" * 100
    assert not (repo / "data.bin").exists()
    assert not (repo / "run.log").exists()


def test_a_state_is_forked_any_number_of_times_and_forks_do_not_meet(repo, folder):
    with StateStore(repo, folder=folder) as store:
        first = store.fork(store.root)
        (first.path / "a").write_text("a")
        state = store.commit(first)
        forks = [store.fork(state) for _ in range(3)]
        for number, fork in enumerate(forks):
            assert (fork.path / "a").read_text() == "a"
            (fork.path / "b").write_text(str(number))
            git(fork.path, "checkout", "--quiet", "-b", "mine")
            commit(fork.path)
            git(fork.path, "config", "core.hooksPath", "/nowhere")
        states = [store.commit(fork) for fork in forks]
        assert len({state.commit for state in states}) == 3
        assert {state.parent for state in states} == {state.commit}
        assert [store.patch(each, state).count(b"diff --git") for each in states] == [1, 1, 1]
        assert all(b"a/a b/a" in store.patch(each) for each in states)


def test_equal_files_are_equal_states(repo, folder):
    with StateStore(repo, folder=folder) as store:
        states = []
        for _ in range(2):
            fork = store.fork(store.root)
            (fork.path / "a").write_text("a")
            states.append(store.commit(fork))
        assert states[0] == states[1]
        assert store.commit(store.fork(store.root)).tree == store.root.tree


def test_no_object_of_the_repository_is_copied(repo, folder):
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        (fork.path / "a").write_text("a")
        store.commit(fork)
        mine, its = (
            [one for one in (git_folder / "objects").rglob("*") if one.is_file() and one.parent.name != "info"]
            for git_folder in (store.folder / "states.git", fork.path / ".git")
        )
        assert (len(mine), its) == (3, [])  # one file, one tree, one commit


def test_what_is_released_is_gone(repo, folder):
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        (fork.path / "locked").mkdir()
        (fork.path / "locked" / "a").write_text("a")
        (fork.path / "out").symlink_to(repo)
        (fork.path / "locked").chmod(0o500)
        state = store.commit(fork)
        assert store.states() == sorted([store.root.commit, state.commit])
        for _ in range(2):
            store.release(state)
            store.release(fork)
            store.release(store.root)
        assert store.states() == [store.root.commit]
        assert not fork.path.exists()
        assert (repo / "src").is_dir()


@pytest.mark.slow
def test_keys_forget_spaces_at_line_ends_and_nothing_else(repo, folder):
    def key(text: str, mode: int = 0o644) -> str:
        fork = store.fork(store.root)
        (fork.path / "src" / "add.py").write_bytes(text.encode())
        (fork.path / "src" / "add.py").chmod(mode)
        return patch_key(store.text_patch(store.commit(fork)))

    with StateStore(repo, folder=folder) as store:
        right = "def add(a, b):\n    return a + b\n"
        same = patch_key("")
        assert (
            key(right) == key(right.replace("b\n", "b  \n")) == key(right.rstrip()) == key(right.replace("\n", "\r\n"))
        )
        assert (
            len({same, key(right), key(right.replace("    ", "  ")), key(right, 0o755), key(right + "\n\nadd(1, 2)\n")})
            == 5
        )
        assert key("def add(a, b): \n    return a - b") == key("def add(a, b):\r\n    return a - b\r\n") == same
        fork = store.fork(store.root)
        (fork.path / "data.bin").write_bytes(bytes(range(256)) + b" ")
        assert patch_key(store.text_patch(store.commit(fork))) != same


def test_a_patch_is_text_whatever_is_in_its_files(repo, folder):
    contents = {
        "latin.txt": b"caf\xe9\n",
        "late.txt": b"a" * 9000 + b"\0\n",
        "dos.txt": b"one\r\ntwo\r\n",
        "empty": b"",
    }
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        for name, content in contents.items():
            (fork.path / name).write_bytes(content)
        patch = store.text_patch(store.commit(fork))
        assert "\0" not in patch
        other = store.fork(store.root)
        (other.path / "one.patch").write_bytes(patch.encode())
        git(other.path, "apply", "one.patch")
        assert {name: (other.path / name).read_bytes() for name in contents} == contents


def test_settings_of_a_fork_do_not_run(repo, folder):
    mark = folder.parent / "ran"
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        for name, value in (
            ("filter.x.clean", f"touch {mark}"),
            ("core.fsmonitor", f"touch {mark}"),
            ("diff.external", f"touch {mark}"),
        ):
            git(fork.path, "config", name, value)
        (fork.path / ".gitattributes").write_text("* filter=x diff=x\n")
        (fork.path / "a").write_text("a")
        store.patch(store.commit(fork))
    assert not mark.exists()


def test_a_fork_that_is_no_state_is_refused(repo, folder):
    with StateStore(repo, folder=folder) as store:
        nested = store.fork(store.root)
        make_repository(nested.path / "sub")
        with pytest.raises(EngineError, match="another repository in 'sub'"):
            store.commit(nested)
        gone = store.fork(store.root)
        store.release(gone)
        gone.path.symlink_to(repo)
        with pytest.raises(EngineError, match="no folder any more"):
            store.commit(gone)
        store.release(gone)
        assert (repo / "src").is_dir()


def test_changes_are_refused_or_included(repo, folder):
    (repo / "src" / "add.py").write_text("changed\n")
    before = snapshot(repo)
    with pytest.raises(ConfigError, match=r"tracked.*'src/add.py'"):
        StateStore(repo, folder=folder)
    with StateStore(repo / "src", include_changes=True, folder=folder) as store:
        path = store.fork(store.root).path
        assert (path / "src" / "add.py").read_text() == "changed\n"
        assert not (path / "notes.txt").exists()
        assert store.untracked == ("notes.txt",)
    assert snapshot(repo) == before
    with pytest.raises(ConfigError, match="changes belong to HEAD"):
        StateStore(repo, "stash@{0}", include_changes=True, folder=folder)


def test_a_plain_folder_is_a_root(tmp_path, folder):
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a").write_text("a")
    before = snapshot(plain)
    with StateStore(plain, folder=folder) as store:
        assert (store.fork(store.root).path / "a").read_text() == "a"
    assert snapshot(plain) == before
    with pytest.raises(ConfigError, match="no repository of git"):
        StateStore(plain, "main", folder=folder)


def bad_bare(repo: Path) -> Path:
    git(repo.parent, "clone", "--quiet", "--bare", str(repo), "bare")
    return repo.parent / "bare"


def bad_shallow(repo: Path) -> Path:
    git(repo, "commit", "--quiet", "--allow-empty", "-m", "second")
    git(repo.parent, "clone", "--quiet", "--depth=1", f"file://{repo}", "shallow")
    return repo.parent / "shallow"


def bad_submodule(repo: Path) -> Path:
    git(repo, "submodule", "--quiet", "add", str(bad_bare(repo)), "sub")
    git(repo, "commit", "--quiet", "-m", "submodule")
    return repo


def bad_pointer(repo: Path) -> Path:
    (repo / "src" / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repo / "src" / "big.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    commit(repo)
    return repo


def bad_empty(repo: Path) -> Path:
    git(repo.parent, "init", "--quiet", "empty")
    return repo.parent / "empty"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (bad_bare, "a bare repository"), (bad_shallow, "a shallow clone"), (bad_empty, "must be a commit"),
        (bad_pointer, "Git LFS pointer 'src/big.bin'"), (lambda repo: repo / "notes.txt", "must be a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_forked_is_refused_in_one_line(repo, folder, make, words):
    with pytest.raises(ConfigError, match=words) as refused:
        StateStore(make(repo), folder=folder)
    assert "\n" not in str(refused.value)
    assert list(folder.glob("run-*")) == []


@pytest.mark.parametrize("revision", ["nothing", "--help", "HEAD:src", ""])
def test_a_revision_is_a_commit(repo, folder, revision):
    with pytest.raises(ConfigError, match="must be a commit"):
        StateStore(repo, revision, folder=folder)


def test_without_git_one_line_says_so(repo, folder, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="need the program git"):
        StateStore(repo, folder=folder)


NAMES = st.sampled_from(["a", "b/c", "src/add.py", "data.bin", "ä ö", "-x"])
EDITS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=20))), max_size=4)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 9), EDITS), max_size=4))
def test_random_histories_reach_the_files_that_were_written(repo, folder, history):
    def files(path: Path) -> dict[str, bytes]:
        inside = (each for each in path.rglob("*") if each.is_file() and ".git" not in each.relative_to(path).parts)
        return {str(each.relative_to(path)): each.read_bytes() for each in inside}

    before = snapshot(repo)
    with StateStore(repo, folder=folder) as store:
        first = store.fork(store.root)
        known = [(store.root, files(first.path))]
        for parent, edits in history:
            state, expected = known[parent % len(known)]
            fork, expected = store.fork(state), dict(expected)
            for name, content in edits:
                path = fork.path / name
                if content is None:
                    path.unlink(missing_ok=True)
                    expected.pop(name, None)
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                    expected[name] = content
            known.append((store.commit(fork), expected))
        for state, expected in known:
            assert files(store.fork(state).path) == expected
            fresh = store.fork(store.root)
            if patch := store.patch(state):
                subprocess.run(["git", "apply"], cwd=fresh.path, input=patch, check=True)
            assert store.commit(fresh).tree == state.tree
    assert snapshot(repo) == before


def test_a_plain_folder_that_has_the_stores_is_refused(tmp_path):
    (tmp_path / "home" / "project").mkdir(parents=True)
    (tmp_path / "home" / "project" / "a.txt").write_text("one\n")
    stores = tmp_path / "home" / "cache"
    with pytest.raises(ConfigError, match="workspaces themselves"):
        StateStore(tmp_path / "home", folder=stores)
    assert not stores.exists()
    with StateStore(tmp_path / "home" / "project", folder=stores) as store:
        assert store.untracked == ()


# Repositories of other people -----------------------------------------------------------------------------------------


def plant_commands(repo: Path, mark: Path) -> None:
    """Write every kind of setting that names a program into a repository, each of which would leave a mark."""
    program = write_program(repo.parent / "program", f"touch {mark}\ncat")
    (repo / ".gitattributes").write_text("*.py filter=x diff=x merge=x\n*.bin filter=y\n")
    commit(repo)
    included = repo.parent / "included"
    included.write_text(f'[filter "y"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n')
    names = (
        "filter.x.clean", "filter.x.smudge", "filter.x.process", "core.fsmonitor", "core.pager", "core.editor",
        "core.sshCommand", "core.gitProxy", "core.askPass", "core.alternateRefsCommand", "diff.external",
        "diff.x.command", "diff.x.textconv", "merge.x.driver", "gpg.program", "credential.helper", "alias.status",
        "uploadpack.packObjectsHook", "trailer.x.command",
    )  # fmt: skip
    for name in names:
        git(repo, "config", name, str(program))
    for name, value in (
        ("include.path", str(included)), ("core.hooksPath", str(repo.parent)), ("extensions.worktreeConfig", "true"),
        ("core.worktree", str(repo.parent)), ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::{program}"), ("protocol.ext.allow", "always"), ("commit.gpgSign", "true"),
    ):  # fmt: skip
        git(repo, "config", name, value)
    (repo / ".git" / "config.worktree").write_text(included.read_text())
    for path in repo.rglob("*.py"):
        os.utime(path, (1, 1))  # so that git compares the content


@pytest.mark.slow
@pytest.mark.parametrize("linked", [False, True], ids=["clone", "worktree"])
def test_no_setting_of_a_repository_runs_a_command(repo, folder, tmp_path, monkeypatch, linked):
    mark = tmp_path / "command_ran"
    if linked:
        git(repo, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    plant_commands(repo, mark)
    user = tmp_path / "linked" if linked else repo
    settings = tmp_path / "home" / ".gitconfig"
    settings.parent.mkdir()
    settings.write_text((repo / ".git" / "config").read_text())
    monkeypatch.setenv("HOME", str(settings.parent))
    mark.unlink(missing_ok=True)
    with StateStore(user, folder=folder) as store:
        fork = store.fork(store.root)
        (fork.path / "src" / "add.py").write_text("new\n")
        (fork.path / "data.bin").write_bytes(b"new")
        patch = store.text_patch(store.commit(fork))
        (user / "src" / "add.py").write_text("def add(a, b):\n    return a - b\n")  # as it was, at another time
        store.target.apply(patch)
    assert (user / "src" / "add.py").read_text() == "new\n"
    with StateStore(user, folder=folder, include_changes=True) as store:
        assert store.commit(store.fork(store.root)) == store.root
    assert not mark.exists()


def test_a_submodule_runs_nothing_before_it_is_refused(repo, folder, tmp_path):
    mark = tmp_path / "command_ran"
    program = write_program(tmp_path / "program", f"touch {mark}\ncat")
    bad_submodule(repo)
    (repo / "sub" / ".gitattributes").write_text("* filter=x\n")
    git(repo / "sub", "config", "filter.x.clean", str(program))
    git(repo / "sub", "config", "core.fsmonitor", str(program))
    for path in (repo / "sub").iterdir():
        os.utime(path, (1, 1))
    for include_changes in (False, True):
        with pytest.raises(ConfigError, match="submodule 'sub'"):
            StateStore(repo, folder=folder, include_changes=include_changes)
    assert not mark.exists()


@pytest.mark.parametrize("settings", [("eol", "crlf"), ("autocrlf", "true"), ("autocrlf", "input")])
@pytest.mark.parametrize("attributes", ["*.txt text eol=crlf\n", "* text=auto\n", "*.txt -text\n", ""])
def test_line_ends_reach_the_folder_as_they_were(tmp_path, folder, settings, attributes):
    repo = make_repository(tmp_path / "ends")
    git(repo, "config", f"core.{settings[0]}", settings[1])
    (repo / ".gitattributes").write_text(attributes)
    (repo / "a.txt").write_bytes(b"one\ntwo\n")
    commit(repo)
    (repo / "a.txt").unlink()
    git(repo, "checkout", "--", "a.txt")
    end = b"\r\n" if b"\r" in (repo / "a.txt").read_bytes() else b"\n"
    os.utime(repo / "a.txt", (1, 1))
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        path = fork.path / "a.txt"
        path.write_bytes(path.read_bytes().replace(b"two", b"three"))
        store.target.apply(store.text_patch(store.commit(fork)))
    assert (repo / "a.txt").read_bytes() == b"one" + end + b"three" + end


def test_links_and_folders_take_each_others_place(tmp_path, folder):
    repo = tmp_path / "plain"
    (repo / "folder").mkdir(parents=True)
    (repo / "folder" / "a").write_text("a\n")
    (repo / "link").symlink_to("folder")
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        (fork.path / "link").unlink()
        (fork.path / "link").mkdir()
        (fork.path / "link" / "a").write_text("new\n")
        remove(fork.path / "folder")
        (fork.path / "folder").symlink_to("link")
        store.target.apply(store.text_patch(store.commit(fork)))
    assert (repo / "link" / "a").read_text() == "new\n"
    assert (repo / "folder").is_symlink()


# Files that an agent leaves -------------------------------------------------------------------------------------------


def leave(path: Path, size: int, *, dense: bool = False) -> None:
    with path.open("wb") as file:
        if dense:
            file.write(bytes(size))
        file.truncate(size)


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("big", 1 << 38, "the changed files have"),
        ("src/add.py", 1 << 38, "the largest is 'src/add.py'"),
        (".gitignore", 1 << 38, "the file '.gitignore'"),
        ("src/.gitattributes", 1 << 21, "the file 'src/.gitattributes'"),
    ],
)
def test_a_large_file_is_refused_before_git_reads_it(repo, folder, name, size, words):
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        leave(fork.path / name, size)
        with pytest.raises(EngineError, match=words):
            store.commit(fork)


def test_changed_files_are_bounded_by_their_bytes_and_their_number(repo, folder, monkeypatch):
    monkeypatch.setattr(store_module, "MOST_CHANGED", 16 << 10)
    with StateStore(repo, folder=folder) as store:
        for number, size, dense in ((1, 9 << 10, True), (2, 9 << 10, True), (17, 0, False)):
            fork = store.fork(store.root)
            for index in range(number):
                leave(fork.path / f"new{index}", size, dense=dense)
            leave(fork.path / "ignored.log", 1 << 30)
            if number == 1:
                assert store.commit(fork) != store.root
                continue
            with pytest.raises(EngineError, match="the changed files have"):
                store.commit(fork)


def test_a_call_of_git_has_a_deadline(repo, monkeypatch):
    monkeypatch.setattr("tts_addons.agents.git.SECONDS", 0.2)
    program = write_program(repo.parent / "bin" / "git", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(EngineError, match="took more than"):
        run_git("status", folder=repo)


@pytest.mark.slow
def test_folders_of_any_depth_and_without_permissions_are_removed(tmp_path):
    top, here = tmp_path / "top", Path.cwd()
    top.mkdir()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a").write_text("a")
    os.chdir(top)
    try:
        for _ in range(1200):
            Path("dddd").mkdir()
            Path("link").symlink_to(kept)
            Path("dddd/file").write_text("")
            os.chdir("dddd")
    finally:
        os.chdir(here)
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed").chmod(0)
    remove(top)
    assert not top.exists()
    assert (kept / "a").exists()


def test_what_tools_write_is_no_part_of_a_state_unless_it_was_tracked(repo, folder):
    (repo / "kept.o").write_text("tracked")
    git(repo, "add", "-f", "kept.o")
    git(repo, "commit", "--quiet", "-m", "object")
    with StateStore(repo, folder=folder) as store:
        fork = store.fork(store.root)
        for name in ("__pycache__/a.pyc", "src/b.pyc", ".pytest_cache/x", "node_modules/p/i.js", "new.o", "out [1]/x"):
            (fork.path / name).parent.mkdir(exist_ok=True, parents=True)
            (fork.path / name).write_text("generated")
        store.leave_out({"out [1]/"})
        assert store.commit(fork) == store.root
        (fork.path / "kept.o").write_text("changed")
        (fork.path / "out 1").write_text("another name")
        assert {"a/kept.o", "b/out"} <= set(store.text_patch(store.commit(fork)).split())


def test_programs_start_in_the_folder_that_was_named(repo, folder):
    with StateStore(repo / "src", folder=folder) as store:
        fork = store.fork(store.root)
        assert fork.start == fork.path / "src"
        remove(fork.start)
        with pytest.raises(EngineError, match="is no folder any more"):
            _ = fork.start
        (fork.path / "src").symlink_to("/")
        with pytest.raises(EngineError, match="is no folder any more"):
            _ = fork.start
    (repo / "empty").mkdir()
    with pytest.raises(ConfigError, match="without files"):
        StateStore(repo / "empty", folder=folder)
