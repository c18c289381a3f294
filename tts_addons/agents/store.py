"""States of a repository to continue and fork, kept in a repository of the run's own.

A state is a commit, as a handle of the engine is a node of its KV tree. The run's repository borrows all objects of the
user's repository by git's alternates. So a fork costs one checkout, and no object is stored twice. The user's
repository is only read.

Each fork is a folder with a private repository, not one of `git worktree`. A process in a fork may use git freely: its
commits, branches, stashes, settings and hooks are in its folder alone, and no command of the store reads them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from tts.errors import ConfigError, EngineError
from tts_addons.agents.git import MOST_TEXT, Borrowed, make_git_dir, read_text, run_git, write_text
from tts_addons.agents.target import PatchFolder, read_entries

_GITLINK = b"160000"
MOST_CHANGED: Final = 64 << 20  # bytes of the files that a process has changed in a fork
_LEAST_COST = 1 << 10  # bytes that count for any file, so that their number is bounded too
# files that tools write beside sources and nobody edits; `.gitignore` may name them with "!"
_GENERATED = """\
__pycache__/\n*.py[co]\n*.egg-info/\n.pytest_cache/\n.mypy_cache/\n.ruff_cache/\n.hypothesis/\n.tox/\n.nox/\n.coverage
.coverage.*\nnode_modules/\n*.o\n*.class\n.DS_Store
"""
_POINTER = "^version https://git-lfs.github.com/spec/v1$"


@dataclass(frozen=True)
class State:
    """A tree of files in a store.

    Attributes:
        commit: The commit in the repository of the run. Equal trees of equal parents have equal commits.
        tree: The tree of the commit. Equal files have equal trees, whatever their history.
        parent: The commit from which the state was forked; None for the root.
    """

    commit: str
    tree: str
    parent: str | None = None


@dataclass(frozen=True)
class Checkout:
    """A folder with the files of a state, for one process to change.

    Attributes:
        path: The folder. It has a private repository in `.git`, with the state checked out.
        state: The state with which the folder began.
        within: The folder below it that the user named; "": it is the folder itself.
    """

    path: Path
    state: State
    within: str = ""

    @property
    def start(self) -> Path:
        """The folder in which programs start.

        Raises:
            EngineError: It is gone, or lies behind a link.
        """
        start = self.path / self.within
        if not start.is_dir() or start.resolve() != self.path.resolve() / self.within:
            raise EngineError(f"the folder {self.within!r} is no folder any more, so nothing starts there")
        return start


class StateStore:
    """The states of one run over one repository.

    The store is a folder of its own, which is removed when the store is closed. `clean` removes the stores of processes
    that were killed.

    Args:
        repo: A folder in a repository of git with a worktree, or a plain folder, whose files become the root.
        revision: The revision whose files are the root, in git's notation. A plain folder has only `HEAD`.
        include_changes: Whether changed tracked files belong to the root. If not, a repository with changed tracked
            files is refused.
        folder: The folder of all stores; None: `workspaces_folder()`.

    Attributes:
        root: The state from which all others come.
        target: The folder to which patches from the root are applied, also after the store was closed.
        untracked: Files that git does not track, which the root leaves out.

    Raises:
        ConfigError: git is missing, or the revision is not a commit. The repository is bare, shallow or a partial
            clone, or has changed tracked files, submodules or pointers of Git LFS. A plain folder contains the stores.
    """

    def __init__(
        self,
        repo: str | Path = ".",
        revision: str = "HEAD",
        *,
        include_changes: bool = False,
        folder: Path | None = None,
    ) -> None:
        path = Path(repo).absolute()
        if not path.is_dir():
            raise ConfigError(f"repo is {str(repo)!r}, but must be a folder", hint="name the folder of a repository")
        self._numbers = itertools.count()  # the numbers in names of forks and other temporary paths
        self._lock_of_refs = threading.Lock()
        # the number of times that each commit is kept, since equal states share a commit
        self._kept: Counter[str] = Counter()
        source = Borrowed.read(path, revision, include_changes=include_changes)
        self.untracked = source.untracked
        within = path.resolve().relative_to(source.top.resolve()).as_posix()
        self._within = "" if within == "." else within
        stores = folder or workspaces_folder()
        if source.commit is None and stores.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"repo is {str(repo)!r}, a plain folder that has the workspaces themselves, in {stores}",
                hint="name a folder below it, or put it under git",
            )
        self.folder, self._lock = _make_folder(stores)
        try:
            self._git_dir = self.folder / "states.git"
            self._create(source)
            if source.commit is not None:
                self._refuse_unusable(source.commit)
            self.root = self._root(source, include_changes=include_changes)
            self._refuse_unusable(self.root.commit)
            if self._within and not self._git("ls-tree", self.root.tree, "--", f":(literal){self._within}/"):
                raise ConfigError(
                    f"repo is {str(repo)!r}, a folder without files in the revision {revision!r}",
                    hint="name a folder that the revision has",
                )
            files = read_entries(self._git("ls-tree", "-r", "-z", self.root.tree), at=2)
            self.target = PatchFolder(source.top, source.head, self._format, files, self._settings)
        except BaseException:
            self.close()
            raise

    def fork(self, state: State) -> Checkout:
        """Check a state out into a new folder, and return this fork."""
        path = self.folder / "forks" / f"{next(self._numbers):06d}"
        path.mkdir(parents=True)
        run_git("init", "--quiet", "--template=", f"--object-format={self._format}", str(path), folder=path)
        write_text(path / ".git" / "objects" / "info" / "alternates", str(self._git_dir / "objects"))
        write_text(path / ".git" / "info" / "exclude", self._excluded)
        run_git("checkout", "--quiet", "--detach", state.commit, "--", folder=path)
        # git in the fork does not change this copy of the index; by it, `commit` reads only files that changed on disk
        shutil.copyfile(path / ".git" / "index", self._index(path))
        return Checkout(path, state, self._within)

    def leave_out(self, names: Iterable[str]) -> None:
        """Leave out of all later states the untracked files and folders of these names."""
        escaped_names = (re.sub(r"[\\*?\[ ]", r"\\\g<0>", name) for name in names if "\n" not in name)
        lines = "".join(f"/{name}\n" for name in escaped_names)
        write_text(self._git_dir / "info" / "exclude", f"{self._excluded}{lines}")

    def untracked_names(self, fork: Checkout) -> set[str]:
        """Return the files and folders that are new in a fork, except those that states leave out."""
        return set(self._list(fork, "--others", "--exclude-standard", "--directory", "--no-empty-directory"))

    def _list(self, fork: Checkout, *options: str) -> list[str]:
        """Return names of files in a fork, as `git ls-files` lists them."""
        variables = {"GIT_WORK_TREE": str(fork.path), "GIT_INDEX_FILE": str(self._index(fork.path))}
        names = self._git("ls-files", "-z", *options, variables=variables, folder=fork.path).split(b"\0")
        return [os.fsdecode(name) for name in names[:-1]]

    def _refuse_large(self, fork: Checkout) -> None:
        """Refuse files that would fill the memory or take git too long, before git reads them.

        Raises:
            EngineError: The changed files have more than `MOST_CHANGED` bytes.
        """
        sizes = {name: _size(fork.path / name) for name in self._list(fork, "--cached", "--others")}
        for name, size in sizes.items():
            if name.rpartition("/")[2] in (".gitignore", ".gitattributes") and size > MOST_TEXT:
                raise EngineError(f"the file {name!r} has {size:,} bytes, of at most {MOST_TEXT:,}")
        changed = self._list(fork, "--modified", "--others", "--exclude-standard")
        total = sum(sizes.get(name, 0) for name in set(changed))
        if total > MOST_CHANGED:
            largest = max(changed, key=lambda name: sizes.get(name, 0))
            raise EngineError(
                f"the changed files have {total:,} bytes, of at most {MOST_CHANGED:,}; the largest is {largest!r}",
            )

    def commit(self, fork: Checkout) -> State:
        """Keep the files of a fork as a state, and return this state.

        If no file has changed, the fork's own state is kept and returned. Untracked files belong to the state, except
        for files that `.gitignore` names. Commits that a process made in the fork are ignored.

        Raises:
            EngineError: The fork is gone, has another repository within it, or has files that cannot be read or are too
            large.
        """
        if fork.path.is_symlink() or not fork.path.is_dir():
            raise EngineError(f"the fork {fork.path} is no folder any more, so its files are not a state")
        self._refuse_large(fork)
        variables = {"GIT_WORK_TREE": str(fork.path), "GIT_INDEX_FILE": str(self._index(fork.path))}
        self._git("add", "--all", "--", ".", variables=variables, folder=fork.path)
        tree = self._git("write-tree", variables=variables, folder=fork.path).decode().strip()
        return self._changed_state("fork", tree, fork.state)

    def patch(self, state: State, base: State | None = None, settings: Sequence[str] = ()) -> bytes:
        """Return the changes from one state to another, in the format of `git apply`, also of binary files.

        Args:
            state: The state with the changes.
            base: The state without them; None: the root.
            settings: Options of git before the command.
        """
        options = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        return self._git("diff", *options, (base or self.root).tree, state.tree, "--", settings=settings)

    def text_patch(self, state: State) -> str:
        """Return the changes from the root to a state as text.

        If any change is not UTF-8, all files have git's form for binary files.
        """
        patch = self.patch(state)
        if b"\0" not in patch:
            with contextlib.suppress(UnicodeDecodeError):
                return patch.decode()
        attributes_file = self._git_dir / "all_binary"
        return self.patch(state, settings=("-c", f"core.attributesFile={attributes_file}")).decode()

    def patch_root(self, patch: str, is_restored: Callable[[str], bool] | None = None) -> State:
        """Return the root with a patch as a state, kept until it is released. No file is checked out.

        Args:
            patch: A patch that `text_patch` has made.
            is_restored: Returns whether a path stays as in the root; None: no path does.

        Raises:
            EngineError: The patch does not fit the root, or contains another repository.
        """
        index = self.folder / "indexes" / f"patch-{next(self._numbers):06d}"
        variables = {"GIT_INDEX_FILE": str(index)}
        try:
            self._git("read-tree", self.root.tree, variables=variables)
            if patch:
                content = patch.encode("utf-8", "surrogatepass")
                self._git("apply", "--cached", "--whitespace=nowarn", "-", variables=variables, stdin=content)
            tree = self._git("write-tree", variables=variables).decode().strip()
            lines = b"" if is_restored is None else self._restore_lines(tree, is_restored)
            if lines:
                self._git("update-index", "-z", "--index-info", variables=variables, stdin=lines)
                tree = self._git("write-tree", variables=variables).decode().strip()
        finally:
            index.unlink(missing_ok=True)
        return self._changed_state("patch", tree, self.root)

    def _restore_lines(self, tree: str, is_restored: Callable[[str], bool]) -> bytes:
        """Return the input of `git update-index` that restores some changed paths from the root.

        Args:
            tree: The tree with the changed paths.
            is_restored: Returns whether a path is restored.
        """
        changes = self._git("diff-tree", "-r", "-z", "--no-renames", self.root.tree, tree).split(b"\0")
        removals: list[bytes] = []
        additions: list[bytes] = []
        for change, path in zip(changes[:-1:2], changes[1::2], strict=True):
            if not is_restored(os.fsdecode(path)):
                continue
            root_mode, _mode, root_object, *_ = change.removeprefix(b":").split(b" ")
            removals.append(b"0 " + b"0" * len(root_object) + b"\t" + path)
            if root_object.strip(b"0"):  # the root has the file
                additions.append(root_mode + b" " + root_object + b"\t" + path)
        return b"".join(line + b"\0" for line in (*removals, *additions))

    def states(self) -> list[str]:
        """Return the commits of the states that are kept, sorted."""
        return self._git("for-each-ref", "--format=%(objectname)", "refs/states").decode().split()

    def release(self, *parts: State | Checkout) -> None:
        """Remove the folders of forks, and release states.

        A state is removed once it was released as often as it was committed or kept. The root stays. Releasing a part
        that is already removed is no error.
        """
        commits: list[str] = []
        for part in parts:
            if isinstance(part, Checkout):
                remove(part.path)
                self._index(part.path).unlink(missing_ok=True)
            elif part.commit != self.root.commit:
                commits.append(part.commit)
        with self._lock_of_refs:
            lines: list[str] = []  # the input of `git update-ref`
            for commit in commits:
                self._kept[commit] -= 1
                if not self._kept[commit]:
                    lines.append(f"delete refs/states/{commit}\n")
                if self._kept[commit] <= 0:
                    del self._kept[commit]
            if lines:
                self._git("update-ref", "--stdin", stdin="".join(lines).encode())

    def keep(self, state: State) -> None:
        """Keep a state until it is released one more time."""
        with self._lock_of_refs:
            self._kept[state.commit] += 1
            if self._kept[state.commit] == 1:
                self._git("update-ref", f"refs/states/{state.commit}", state.commit)

    @contextlib.contextmanager
    def scratch(self) -> Generator[Path]:
        """Make an empty folder for the block, outside of all forks."""
        path = self.folder / "scratch" / f"{next(self._numbers):06d}"
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            remove(path)

    def close(self) -> None:
        """Remove the store with all states and forks."""
        remove(self.folder)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self, source: Borrowed) -> None:
        """Make the repository of the run, which borrows the user's objects and has the user's excluded names."""
        repository, self._excluded = source.repository, _GENERATED
        self._format = "sha1" if repository is None else repository.object_format
        self._settings = () if repository is None else repository.settings
        self._git_dir.mkdir()
        make_git_dir(self._git_dir, self._format)
        if repository is not None:
            write_text(self._git_dir / "objects" / "info" / "alternates", str(repository.common / "objects"))
            self._excluded += read_text(repository.common / "info" / "exclude")
        self.leave_out(())
        write_text(self._git_dir / "all_binary", "* binary")
        (self.folder / "indexes").mkdir()

    def _root(self, source: Borrowed, *, include_changes: bool) -> State:
        """Return the root: the files of the revision or of a plain folder.

        The user's changes belong to the root where they are included.
        """
        if source.commit is not None and not (include_changes and source.changed):
            tree = self._git("rev-parse", f"{source.commit}^{{tree}}").decode().strip()
            root = State(source.commit, tree)
            self.keep(root)
            return root
        variables = {"GIT_WORK_TREE": str(source.top), "GIT_INDEX_FILE": str(self.folder / "indexes" / "root")}
        if source.commit is not None:
            self._git("read-tree", source.commit, variables=variables, folder=source.top)
        option = "--all" if source.commit is None else "--update"
        self._git("add", option, "--", ".", settings=self._settings, variables=variables, folder=source.top)
        tree = self._git("write-tree", variables=variables, folder=source.top).decode().strip()
        return self._commit_tree(tree, source.commit)

    def _refuse_unusable(self, commit: str) -> None:
        """Refuse trees with files whose content git does not have: submodules and pointers of Git LFS."""
        links = self._gitlinks(commit)
        if links:
            raise ConfigError(
                f"repo has the submodule {links[0]!r}, whose files a workspace cannot fork",
                hint="use a repository without submodules",
            )
        if self._git("grep", "-l", "-e", "filter=lfs", commit, "--", ":(glob)**/.gitattributes", ok=(0, 1)):
            pointers = self._git("grep", "-l", "-z", "-e", _POINTER, commit, ok=(0, 1)).split(b"\0")
            if pointers[0]:
                name = os.fsdecode(pointers[0].partition(b":")[2])
                raise ConfigError(
                    f"repo has the Git LFS pointer {name!r}, whose content a workspace cannot fork",
                    hint="commit the content itself",
                )

    def _gitlinks(self, tree: str) -> list[str]:
        entries = self._git("ls-tree", "-r", "-z", tree).split(b"\0")
        return [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(_GITLINK)]

    def _changed_state(self, what: str, tree: str, earlier: State) -> State:
        """Return and keep the state of a tree: the earlier state if nothing has changed.

        Args:
            what: What has the tree, for errors.
            tree: The tree.
            earlier: The state before the change.

        Raises:
            EngineError: The tree contains another repository.
        """
        nested = self._gitlinks(tree)
        if nested:
            raise EngineError(f"the {what} has another repository in {nested[0]!r}, whose files git does not keep")
        if tree == earlier.tree:
            self.keep(earlier)
            return earlier
        return self._commit_tree(tree, earlier.commit)

    def _commit_tree(self, tree: str, parent: str | None) -> State:
        """Commit a tree, and return and keep its state."""
        options = () if parent is None else ("-p", parent)
        commit = self._git("commit-tree", tree, *options, stdin=b"state\n").decode().strip()
        state = State(commit, tree, parent)
        self.keep(state)
        return state

    def _index(self, fork: Path) -> Path:
        return self.folder / "indexes" / fork.name

    def _git(
        self, *arguments: str, variables: dict[str, str] | None = None, folder: Path | None = None, **options: Any
    ) -> bytes:
        """Run git on the repository of the run, and return its standard output."""
        return run_git(
            *arguments,
            folder=folder or self._git_dir,
            variables={"GIT_DIR": str(self._git_dir), **(variables or {})},
            **options,
        )


def _size(path: Path) -> int:
    """Return the bytes that count for a file: its length, or what it takes on the disk; 0 where there is none."""
    try:
        about = path.lstat()
    except OSError:
        return 0
    return max(about.st_size, about.st_blocks * 512, _LEAST_COST)


def workspaces_folder() -> Path:
    """Return the folder of all stores: `tts/workspaces` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tts" / "workspaces"


def clean(folder: Path | None = None) -> list[Path]:
    """Remove the stores of processes that ended without closing them, and return their folders.

    The store of a living process is locked, and is left alone.
    """
    folder = folder or workspaces_folder()
    if not folder.is_dir():
        return []
    removed: list[Path] = []
    with _hold(folder / "lock"):
        for store in sorted(folder.glob("run-*")):
            with contextlib.suppress(BlockingIOError), _hold(store / "lock", wait=False):
                remove(store)
                removed.append(store)
    return removed


def _make_folder(folder: Path) -> tuple[Path, BinaryIO]:
    """Make a store's folder, and return the folder and its lock, so that `clean` never sees it unlocked."""
    folder.mkdir(parents=True, exist_ok=True)
    with _hold(folder / "lock"):
        store = Path(tempfile.mkdtemp(prefix="run-", dir=folder)).resolve()
        return store, _lock(store / "lock", wait=True)


@contextlib.contextmanager
def _hold(path: Path, *, wait: bool = True) -> Generator[None]:
    with _lock(path, wait=wait):
        yield


def _lock(path: Path, *, wait: bool) -> BinaryIO:
    """Open a file and lock it for this process.

    Args:
        path: The path of the file.
        wait: Whether to wait while another process has the lock. If not, BlockingIOError is raised.

    Raises:
        ConfigError: The system has no file locks of POSIX.
    """
    try:
        import fcntl
    except ImportError:
        raise ConfigError(
            "workspaces need file locks of POSIX, which this system lacks", hint="use Linux, macOS or WSL"
        ) from None
    file = path.open("ab")
    operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        fcntl.flock(file, operation)
    except BaseException:
        file.close()
        raise
    return file


def remove(path: Path) -> None:
    """Remove a file or a folder, even a folder without permissions. Links are removed, never followed.

    Raises:
        EngineError: The folder is still there, since a process may still write in it.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    for _ in range(3):  # a program that outlived its process may still write
        _remove_folder(path)
        if not path.is_dir():
            return
    raise EngineError(f"the folder {path} cannot be removed wholly; a process may still write in it")


def _remove_folder(path: Path) -> None:
    """Remove a folder of any depth, as far as that is possible.

    Folders within it are first moved up, since their paths may be longer than the system takes.
    """
    names = (f"removed-{secrets.token_hex(8)}-{number}" for number in itertools.count())
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            folder.chmod(stat.S_IRWXU)
            for entry in [Path(entry) for entry in os.scandir(folder)]:
                with contextlib.suppress(OSError):
                    if entry.is_dir() and not entry.is_symlink():
                        entry.chmod(stat.S_IRWXU)  # a folder without permissions cannot be moved
                        waiting.append(entry.rename(path / next(names)))
                    else:
                        entry.unlink()
            if folder != path:
                folder.rmdir()
    with contextlib.suppress(OSError):
        path.rmdir()
