"""The folder to which patches are applied: the user's folder, as it was when the search began.

No store is needed for this.
"""

from __future__ import annotations

import fnmatch
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tts.errors import ConfigError, EngineError
from tts.tasks.patch import files_of
from tts.types import Candidate
from tts_addons.agents.git import find_repository, make_git_dir, run_git, view

_FOLDERS = ("tests", "test", "testing", "__pycache__")
_FILES = (
    "test_*.py", "*_test.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "pytest.ini",
    ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml",
)  # fmt: skip
_APPLY_HINT = "apply solution.patch by git apply -3"


@dataclass(frozen=True, slots=True)
class PatchFolder:
    """The folder to which patches of a root are applied.

    Attributes:
        path: The path of the folder.
        head: The commit of `HEAD` at the start; "" for a plain folder.
        object_format: The hash of objects, as git names it.
        files: The mode and object of each file at the start, by the file's path.
        settings: Options of git with the repository's settings of how files lie on the disk.
        refusal: Why the chosen patch is not applied unless that is forced; "": nothing speaks against it.
    """

    path: Path
    head: str
    object_format: str
    files: Mapping[str, str] = field(repr=False)
    settings: tuple[str, ...] = ()
    refusal: str = ""

    def apply(self, patch: str, *, force: bool = False) -> None:
        """Apply a patch to the files. Index, branches and settings stay as they are.

        Args:
            patch: A patch from the root.
            force: Whether a patch is applied in spite of the refusal.

        Raises:
            ConfigError: There is a refusal. `HEAD`, or a file that the patch touches, has changed since the start. The
                patch does not fit. In these cases no file is written.
        """
        if self.refusal and not force:
            raise ConfigError(f"the patch is not applied: {self.refusal}", hint="read it, or give apply(force=True)")
        if not self.path.is_dir():
            raise ConfigError(f"the patch is not applied: the folder {self.path} is gone")
        try:
            if head_of(self.path) != self.head:
                raise ConfigError(
                    f"the patch is not applied: HEAD of {self.path} has changed since the start", hint=_APPLY_HINT
                )
            with tempfile.TemporaryDirectory(prefix="tts-apply-") as scratch:
                self._apply(patch.encode("utf-8", "surrogatepass"), scratch)
        except EngineError as failure:
            raise ConfigError(f"the patch is not applied: {failure.cause}") from None

    def judge(
        self, patch: str, ranked: Sequence[Candidate], verifiers: Mapping[str, Any]
    ) -> tuple[PatchFolder, list[str]]:
        """Return a target that refuses a patch that fails its tests; see `tts.types.PatchTarget`."""
        target, warnings = self, list[str]()
        test_files = [name for name in files_of(patch) if is_protected(name)]
        if test_files:
            warnings.append(f"the chosen patch changes files of tests or their settings: {', '.join(test_files)}")
        for role in [role for role, verifier in verifiers.items() if verifier.name == "tests"]:
            if ranked[0].scores.get(role) != 1:
                any_passes = any(candidate.scores.get(role) == 1 for candidate in ranked)
                refusal = "the chosen patch does not pass the tests" if any_passes else "no candidate passes the tests"
                warnings.append(refusal)
                target = replace(target, refusal=refusal)
        return target, warnings

    def _apply(self, change: bytes, scratch: str) -> None:
        """Apply a patch, by a git directory in an empty folder, so that git reads no settings of the user's folder."""
        make_git_dir(Path(scratch), self.object_format)
        variables = {"GIT_DIR": scratch, "GIT_WORK_TREE": str(self.path)}
        ask = partial(run_git, folder=self.path, settings=self.settings, variables=variables)
        counts = ask("apply", "--numstat", "-z", "-", stdin=change)
        touched_names = [os.fsdecode(line.split(b"\t", 2)[2]) for line in counts.split(b"\0") if line]
        lines = b"".join(os.fsencode(name) + b"\0" for name in touched_names if self._has(name))
        ask("update-index", "-z", "--add", "--remove", "--stdin", stdin=lines)
        current_files = read_entries(ask("ls-files", "--stage", "-z"), at=1)  # as git would write them now
        for name in touched_names:
            if current_files.get(name) != self.files.get(name):
                raise ConfigError(
                    f"the patch is not applied: {name!r} in {self.path} has changed since the start", hint=_APPLY_HINT
                )
        ask("apply", "--whitespace=nowarn", "-", stdin=change)

    def _has(self, name: str) -> bool:
        """Whether a file or a link has a name; nothing is there behind a link, or where a folder is."""
        path = self.path / name
        parents = [self.path.joinpath(*Path(name).parts[:depth]) for depth in range(1, len(Path(name).parts))]
        is_behind = any(parent.is_symlink() for parent in parents)
        return not is_behind and (path.is_symlink() or (path.exists() and not path.is_dir()))


def is_protected(path: str) -> bool:
    """Whether a file belongs to the tests, or decides how they run."""
    parts = path.split("/")
    return not set(_FOLDERS).isdisjoint(parts) or any(fnmatch.fnmatch(parts[-1], pattern) for pattern in _FILES)


def read_entries(listed: bytes, at: int) -> dict[str, str]:
    """Return the mode and object of each file in a list that git printed, by the file's path.

    Args:
        listed: The list, whose entries end in a zero byte.
        at: The place of the object among the words of an entry.
    """
    entries: dict[str, str] = {}
    for entry in listed.split(b"\0")[:-1]:
        facts, _tab, name = entry.partition(b"\t")
        words = facts.decode().split(" ")
        mode, object_hash = words[0], words[at]
        entries[os.fsdecode(name)] = f"{mode} {object_hash}"
    return entries


def head_of(folder: Path) -> str:
    """Return the commit of `HEAD`; "" for a plain folder and before the first commit."""
    repository = find_repository(folder)
    if repository is None:
        return ""
    with view(repository) as ask:
        return ask("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1, 128)).decode().strip()
