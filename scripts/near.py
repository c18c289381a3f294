"""Name the tests that are near to what changed: `make test-near` runs them.

    python scripts/near.py [SINCE]

SINCE is a commit; by default it is where this branch left `origin/main`, or HEAD where there is none. What is not yet
committed counts too. A changed test is near to itself. A changed module is near to the tests of its folder, to all that
import it by name, and to the contracts of all parts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# where the tests of a folder of modules are
MIRRORS = {"tts": "tests", "tts_addons": "tests/addons", "research": "tests/research", "benchmarks": "tests/benchmarks"}
CONTRACTS = "tests/contracts"
# what more files of tests import is what all stand on, and near to none
_MOST_IMPORTERS = 40


def list_near(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the files and folders of tests near to changed files.

    Args:
        changed: The changed files, as paths from the root.
        root: The folder of the repository.

    Returns:
        Paths from the root, sorted, without those below another.
    """
    near: set[str] = set()
    texts = {path: path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")}
    for name in changed:
        path = Path(name)
        top, *folders = path.with_suffix("").parts
        if path.suffix == ".md":
            near.add("tests/documents")
        elif top == "tests" and path.suffix == ".py" and path.stem.startswith("test_"):
            near |= {name} & {str(test.relative_to(root)) for test in texts}
        elif path.suffix == ".py" and top in {"tests", "scripts", *MIRRORS}:
            near |= _list_importers(path, texts, root)
            if top in MIRRORS:
                near |= _list_own(root / MIRRORS[top], folders, root)
            if top in {"tts", "tts_addons"}:
                near.add(CONTRACTS)
    return sorted(path for path in near if not any(str(above) in near for above in Path(path).parents))


def _list_importers(module: Path, texts: dict[Path, str], root: Path) -> set[str]:
    """Return the tests that name a module as their import does."""
    parent, stem = ".".join(module.parts[:-1]), module.stem
    dotted = parent if stem == "__init__" else f"{parent}.{stem}"
    if dotted in MIRRORS:  # all tests import it
        return set()
    named = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(parent)} import [^\n]*\b{re.escape(stem)}\b")
    found = {path for path, text in texts.items() if path.name.startswith("test_") and named.search(text)}
    return {str(path.relative_to(root)) for path in found} if len(found) <= _MOST_IMPORTERS else set()


def _list_own(tests: Path, folders: list[str], root: Path) -> set[str]:
    """Return the tests named after a module, or else those in the nearest folder that mirrors its own."""
    folder = tests.joinpath(*folders[:-1])
    while not folder.is_dir():
        folder = folder.parent
    named = sorted(folder.glob(f"test_{folders[-1]}*.py"))
    if not named and folder != root / "tests":
        named = sorted(folder.glob("test_*.py"))
    return {str(path.relative_to(root)) for path in named}


def git(*words: str) -> str:
    """Return what a command of git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def read_changed(since: str | None) -> list[str]:
    """Return the files that changed since a commit, with those that git does not know yet."""
    if since is None:
        upstream = subprocess.run(
            ["git", "merge-base", "HEAD", "origin/main"], cwd=ROOT, check=False, capture_output=True, text=True
        )
        since = upstream.stdout.strip() or "HEAD"
    known = git("diff", "--name-only", since)
    return sorted({*known.splitlines(), *git("ls-files", "--others", "--exclude-standard").splitlines()})


def main(arguments: list[str]) -> int:
    """Print the tests near to what changed, and return the exit status."""
    changed = read_changed(arguments[0] if arguments else None)
    near = list_near(changed)
    if not near:
        sys.stderr.write(f"no test is near to what changed: {', '.join(changed) or 'nothing did'}\n")
        return 1
    sys.stdout.write("\n".join(near) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
