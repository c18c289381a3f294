"""Runs of git that obey no settings of the user's repository, whose content is data of another person.

Settings of a repository name commands: filters, monitors, hooks, helpers. So git runs with git directories of this
library alone. `view` makes one that has the objects, names and index of a repository, but none of its settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tts.errors import ConfigError, EngineError

_QUIET = (
    "--no-optional-locks", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false",
)  # fmt: skip
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
# equal trees with equal parents are equal commits
_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "tts"), ("EMAIL", "tts@localhost"), ("DATE", "946684800 +0000"))
}
_GIT_VARIABLES = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
SECONDS: Final = 600.0  # the longest time of a call of git, as of a run of tests
MOST_TEXT: Final = 1 << 20  # bytes of a file of names or settings
# settings of a repository that say how files lie on the disk; they name no command and no path
_OF_FILES = re.compile(
    r"^\s*(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode)\s*=\s*(true|false|input|lf|crlf|native)\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_SHA256 = re.compile(r"^\s*objectformat\s*=\s*sha256\s*$", re.MULTILINE | re.IGNORECASE)


def run_git(
    *arguments: str,
    folder: Path,
    settings: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    ok: Sequence[int] = (0,),
) -> bytes:
    """Run git without hooks, prompts, background work and optional locks, and return its standard output.

    Args:
        arguments: The command of git and its arguments.
        folder: The folder in which git runs.
        settings: Options of git before the command.
        variables: Further environment variables, such as `GIT_DIR`.
        stdin: The bytes that git reads from standard input.
        ok: The exit codes that are no failure.

    Raises:
        ConfigError: There is no program `git`.
        EngineError: git failed, or took more than `SECONDS`. The text has git's first line of error.
    """
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", **_AUTHOR, **_GIT_VARIABLES}
    environment |= variables or {}
    command = ["git", *_QUIET, *settings, *arguments]
    try:
        process = subprocess.run(
            command, cwd=folder, env=environment, input=stdin, capture_output=True, check=False, timeout=SECONDS
        )
    except FileNotFoundError:
        raise ConfigError("workspaces need the program git, which is not found on PATH", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise EngineError(f"git {arguments[0]} took more than {SECONDS:g} s in {folder}") from None
    if process.returncode not in ok:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[0] if lines else f"exit code {process.returncode}"
        raise EngineError(f"git {arguments[0]} failed in {folder}: {reason}")
    return process.stdout


@dataclass(frozen=True, slots=True)
class Repository:
    """The places of a repository of the user's.

    Attributes:
        top: The folder of its files.
        git_dir: The folder of its `HEAD` and its index.
        common: The folder of its objects and names, which worktrees share.
        object_format: The hash of objects, as git names it.
        settings: Options of git with those of its settings that say how files lie on the disk.
    """

    top: Path
    git_dir: Path
    common: Path
    object_format: str
    settings: tuple[str, ...]


def find_repository(path: Path) -> Repository | None:
    """Return the repository in which a folder lies; None: it lies in none.

    Raises:
        ConfigError: The repository is bare or broken.
    """
    path = path.resolve()
    for top in (path, *path.parents):
        git_dir = top / ".git"
        if git_dir.is_file():  # of a worktree, or of a submodule
            git_dir = Path(top, read_text(git_dir).strip().removeprefix("gitdir:").strip()).resolve()
        elif not git_dir.exists():
            if _is_git_dir(top, top):
                raise ConfigError(
                    f"repo is {str(path)!r}, a bare repository or a folder inside .git",
                    hint="name a clone with a worktree",
                )
            continue
        common = Path(git_dir, read_text(git_dir / "commondir").strip()).resolve()
        if not _is_git_dir(git_dir, common):
            raise ConfigError(f"repo is {str(path)!r}, which git cannot read", hint=f"see git -C {path} status")
        text = read_text(common / "config")
        settings = [word for name, value in _OF_FILES.findall(text) for word in ("-c", f"core.{name}={value}")]
        return Repository(top, git_dir, common, "sha256" if _SHA256.search(text) else "sha1", tuple(settings))
    return None


def _is_git_dir(git_dir: Path, common: Path) -> bool:
    return (git_dir / "HEAD").is_file() and (common / "objects").is_dir() and (common / "refs").is_dir()


def make_git_dir(folder: Path, object_format: str) -> None:
    """Make a git directory of this library's own in an empty folder.

    Args:
        folder: The folder.
        object_format: The hash of objects, as git names it.
    """
    run_git("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", ".", folder=folder)


@contextlib.contextmanager
def view(repository: Repository) -> Generator[Callable[..., bytes]]:
    """Yield `run_git` for a repository, by a git directory of its own that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tts-view-") as folder:
        variables = _open_view(repository, Path(folder))
        yield partial(run_git, folder=repository.top, settings=repository.settings, variables=variables)


def _open_view(repository: Repository, folder: Path) -> dict[str, str]:
    """Make a git directory that reads a repository in an empty folder, and return the variables for git to use it."""
    make_git_dir(folder, repository.object_format)
    shutil.rmtree(folder / "refs")
    for path in (repository.common / "refs", repository.common / "packed-refs", repository.common / "logs"):
        (folder / path.name).symlink_to(path)
    for path in repository.git_dir.glob("sharedindex.*"):
        (folder / path.name).symlink_to(path)
    for path in repository.git_dir.glob("*HEAD"):  # also ORIG_HEAD and such
        write_text(folder / path.name, read_text(path))
    for name in ("exclude", "attributes"):
        write_text(folder / "info" / name, read_text(repository.common / "info" / name))
    write_text(folder / "objects" / "info" / "alternates", str(repository.common / "objects"))
    return {
        "GIT_DIR": str(folder),
        "GIT_WORK_TREE": str(repository.top),
        "GIT_INDEX_FILE": str(repository.git_dir / "index"),
    }


@dataclass(frozen=True)
class Borrowed:
    """The facts that a store reads from the user's folder."""

    top: Path
    repository: Repository | None = None  # None for a plain folder
    commit: str | None = None
    head: str = ""
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, revision: str, *, include_changes: bool) -> Borrowed:
        """Read a repository without changing it, and refuse a repository that cannot be forked."""
        repository = find_repository(path)
        if repository is None:
            if revision != "HEAD":
                raise ConfigError(
                    f"revision is {revision!r}, but {str(path)!r} is no repository of git", hint="leave revision out"
                )
            return cls(path)
        _refuse_incomplete(path, repository)
        with view(repository) as ask:
            options = ("--verify", "--quiet", "--end-of-options")
            commit, head = (
                ask("rev-parse", *options, f"{name}^{{commit}}", ok=(0, 1, 128)).decode().strip()
                for name in (revision, "HEAD")
            )
            if not commit:
                raise ConfigError(
                    f"revision is {revision!r}, but must be a commit of the repository {str(path)!r}",
                    hint="see git log",
                )
            # git would ask the submodules, by their own settings
            status = ask("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all")
        entries = [(entry[:2], os.fsdecode(entry[3:])) for entry in status.split(b"\0") if entry]
        changed = tuple(name for code, name in entries if code != b"??")
        if changed and include_changes and commit != head:
            raise ConfigError(
                f"include_changes is True, but revision is {revision!r}: changes belong to HEAD",
                hint="leave revision out",
            )
        if changed and not include_changes:
            raise ConfigError(
                f"repo has changed tracked files, such as {changed[0]!r}, which the revision {revision!r} lacks",
                hint="commit them, or set include_changes",
            )
        untracked = tuple(name for code, name in entries if code == b"??")
        return cls(repository.top, repository, commit, head, changed, untracked)


def _refuse_incomplete(path: Path, repository: Repository) -> None:
    """Refuse repositories without all objects.

    Args:
        path: The folder that the user named.
        repository: The repository.

    Raises:
        ConfigError: The repository is shallow or a partial clone.
    """
    if read_text(repository.common / "shallow"):
        raise ConfigError(
            f"repo is {str(path)!r}, a shallow clone, whose history is not whole",
            hint="run git fetch --unshallow there",
        )
    if any((repository.common / "objects" / "pack").glob("*.promisor")):
        raise ConfigError(
            f"repo is {str(path)!r}, a partial clone, whose objects are not all there", hint="clone it without --filter"
        )


def read_bytes(path: Path, most: int) -> bytes | None:
    """Return the content of a regular file of at most `most` bytes; None for any other."""
    try:
        # without waiting for the writer of a pipe
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            content = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None
    return content if content is not None and len(content) <= most else None


def read_text(path: Path) -> str:
    """Return the text of a small file of a repository; "" where there is none."""
    return (read_bytes(path, MOST_TEXT) or b"").decode("utf-8", "surrogateescape")


def write_text(path: Path, text: str) -> None:
    """Write a text as whole lines into a file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text.rstrip()}\n", encoding="utf-8", errors="surrogateescape")
