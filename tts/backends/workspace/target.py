"""The folder to which patches are applied: the user's folder, as it was when the search began.

No store is needed for this.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tts.backends.workspace.git import run_git
from tts.errors import ConfigError, EngineError

_BY_HAND = "apply solution.patch by git apply -3"


@dataclass(frozen=True, slots=True)
class PatchFolder:
    """The folder to which patches of a root are applied.

    Attributes:
        path: The path of the folder.
        head: The commit of `HEAD` at the start; "" for a plain folder.
        object_format: The hash of objects, as git names it.
        files: The mode and object of each file at the start, by the file's path.
    """

    path: Path
    head: str
    object_format: str
    files: Mapping[str, str] = field(repr=False)

    def apply(self, patch: str) -> None:
        """Apply a patch to the files. Index, branches and settings stay as they are.

        Args:
            patch: A patch from the root.

        Raises:
            ConfigError: `HEAD`, or a file that the patch touches, has changed since the start, or the patch does not
                fit. In these cases no file is written.
        """
        change = patch.encode("utf-8", "surrogatepass")
        if not self.path.is_dir():
            raise ConfigError(f"the patch is not applied: the folder {self.path} is gone")
        try:
            if head_of(self.path) != self.head:
                raise ConfigError(
                    f"the patch is not applied: HEAD of {self.path} has changed since the start", hint=_BY_HAND
                )
            touched_names = self._files_of(change)
            current_files = self._current_files(touched_names)
            for name in touched_names:
                if current_files.get(name) != self.files.get(name):
                    raise ConfigError(
                        f"the patch is not applied: {name!r} in {self.path} has changed since the start", hint=_BY_HAND
                    )
            run_git("apply", "--whitespace=nowarn", "-", folder=self.path, stdin=change)
        except EngineError as failure:
            raise ConfigError(f"the patch is not applied: {failure.cause}") from None

    def _files_of(self, change: bytes) -> list[str]:
        """Return the files that a patch changes, adds or removes."""
        counts = run_git("apply", "--numstat", "-z", "-", folder=self.path, stdin=change)
        return [os.fsdecode(line.split(b"\t", 2)[2]) for line in counts.split(b"\0") if line]

    def _current_files(self, names: Sequence[str]) -> dict[str, str]:
        """Return the mode and object, as git would write them now, of each named file that exists."""
        with tempfile.TemporaryDirectory(prefix="tts-apply-") as scratch:
            options = ("--quiet", "--bare", "--template=", f"--object-format={self.object_format}")
            run_git("init", *options, scratch, folder=Path(scratch))
            variables = {"GIT_DIR": scratch, "GIT_WORK_TREE": str(self.path)}
            lines = b"".join(os.fsencode(name) + b"\0" for name in names)
            options = ("-z", "--add", "--remove", "--stdin")
            run_git("update-index", *options, variables=variables, folder=self.path, stdin=lines)
            entries = run_git("ls-files", "--stage", "-z", variables=variables, folder=self.path)
            return read_entries(entries, at=1)


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
    output = run_git("rev-parse", "--verify", "--quiet", "HEAD", folder=folder, users=True, ok=(0, 1, 128))
    return output.decode().strip()
