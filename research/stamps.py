"""The line on each page of results that says what made it, and the refusal to mix two versions.

A stamp names the command, the result version and the commit of the package. Results depend on the package alone, and
cells name their plans. So the commit is the last one that changed `tts/`. A page may be written again with other words
or baselines, from a store that was filled before.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from tts.experiments.store.store import Store
from tts.experiments.study.record import RESULT_VERSION
from tts.experiments.study.snapshot import commit

READ = "[Conventions](../explanation/statistics.md#pages-of-results)."
_DIGITS = 10  # of a commit that are shown
_CHANGED = " with changes"
_ROOT, _PACKAGE = Path(__file__).parents[1], "tts"


def stamp_line(command: str, more: str = "") -> str:
    """Return the line of a page that says what made its results, with a link to what all pages share.

    Args:
        command: The command that makes the page.
        more: Words that follow the command.
    """
    changed = _CHANGED if _git("status", "--porcelain", "--untracked-files=no", "--", _PACKAGE) else ""
    return (
        f"Made by `{command}`{more} (result version {RESULT_VERSION}, "
        f"{_show(last_package_commit(commit()))}{changed}).\n{READ}"
    )


def refuse_mixture(path: Path) -> None:
    """Refuse a store with runs of another commit of the package, or of another result version.

    No page may mix results of two versions.

    Args:
        path: The store, which may not exist yet.

    Raises:
        SystemExit: The store has such runs.
    """
    if not path.exists():
        return
    now = last_package_commit(commit())
    with Store(path) as store:
        found = {
            (run.snapshot.get("result_version"), run.snapshot.get("commit"))
            for study in store.studies()
            for run in study.runs
        }
    for version, before in sorted(found, key=str):
        if (version, last_package_commit(before)) != (RESULT_VERSION, now):
            raise SystemExit(
                f"{path} has results of version {version}, {_show(last_package_commit(before))}, and this is version "
                f"{RESULT_VERSION}, {_show(now)}; a page must not mix them: give --store a new file, or go back to "
                "that commit"
            )


@functools.lru_cache
def last_package_commit(found: str | None) -> str | None:
    """Return the last commit, up to a given one, that changed the package.

    Other files, such as pages, may have changed since.
    """
    if found is None:
        return None
    head = found.removesuffix(_CHANGED)
    return _git("log", "-1", "--format=%H", head, "--", _PACKAGE) or head  # of a commit that is not here


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=False
    ).stdout.strip()


def _show(found: str | None) -> str:
    return "no commit" if found is None else f"commit {found[:_DIGITS]}"
