"""How far a reader walks through the code behind one search: files and functions entered, and calls.

    python -m benchmarks.orchestration.walk [--plan "best_of_n(n=4)"] [--calls] [--smoke]

Calls that change file are counted too. The search is warm: the same call ran before, so that imports, models and caches
are no part of it. Counted are functions of tts/ that the caller's thread and the library's loop enter, in one
`tts.solve` on the toy. Each entry counts, also when a coroutine is resumed. An entry changes file where the function
that enters it stands in another file, of tts/ or not. `--calls` lists the files, by their entries from others. Code
lines are those of `scripts/check_architecture.py`.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tts
from benchmarks.smoke import Smoke
from scripts.check_architecture import code_lines, sources

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(tts.__file__).parent)
PROMPT, TOKENS = "3 + 4", 400
PARTS = {  # folder: whether the folders in it count
    "tts/search": False, "tts/budget": True, "tts/solver": True, "tts": True,
}  # fmt: skip


@dataclass
class Walk:
    """The entries of one search, in the caller's thread and in later ones.

    Threads that began before `threading.setprofile` are left out.

    Attributes:
        on: Whether entries count now.
        calls: Entries of functions, by code object.
        entered: Entries of files from another file.
    """

    on: bool = False
    calls: Counter[CodeType] = field(default_factory=Counter[CodeType])
    entered: Counter[str] = field(default_factory=Counter[str])

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Count an entry; a profile function as `sys.setprofile` takes it."""
        if not self.on or event != "call" or not (file := frame.f_code.co_filename).startswith(PACKAGE):
            return
        self.calls[frame.f_code] += 1
        if frame.f_back is None or frame.f_back.f_code.co_filename != file:
            self.entered[file] += 1

    @property
    def files(self) -> Counter[str]:
        """Entries of functions, by file below tts/."""
        found: Counter[str] = Counter()
        for code, entries in self.calls.items():
            found[_place(code.co_filename)] += entries
        return found


def _place(file: str) -> str:
    return Path(file).relative_to(PACKAGE).as_posix()


def walk_plan(plan: str, warm: int) -> Walk:
    """Return what one search entered after some that did not count; the library's loop must not run yet."""
    walk = Walk()
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        for last in (*[False] * warm, True):
            walk.on = last
            tts.solve(PROMPT, TOKENS, model="toy", strategy=plan)
            walk.on = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return walk


def lines() -> dict[str, int]:
    """Return the code lines of each of `PARTS`."""
    every = list(sources(ROOT, ["tts"]))
    return {
        part: sum(
            code_lines(one)
            for one in every
            if one.path.parent == Path(part) or (deep and Path(part) in one.path.parents)
        )
        for part, deep in PARTS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plan", default="best_of_n(n=4)")
    parser.add_argument("--warm", type=int, default=3, help="searches before the one that counts")
    parser.add_argument("--calls", action="store_true", help="list the files")
    parser.add_argument("--smoke", action=Smoke, sizes={"warm": 1})
    options = parser.parse_args()
    walk, count = walk_plan(options.plan, options.warm), lines()
    core = [count[part] for part in ("tts/search", "tts/budget", "tts/solver")]
    rows = {
        "files entered": f"{len(walk.files):,}",
        "functions entered": f"{len(walk.calls):,}",
        "calls": f"{walk.calls.total():,}",
        "calls that change file": f"{walk.entered.total():,}",
        "code lines of tts/search (without its folders), tts/budget, "
        "tts/solver": f"{' + '.join(f'{n:,}' for n in core)} = {sum(core):,}",
        "code lines of tts/": f"{count['tts']:,}",
    }
    print(
        f"| a warm `{options.plan.replace('|', chr(92) + '|')}`, `{PROMPT}`, {TOKENS} tokens, on the toy |  |\n| :-- | "
        "--: |"
    )
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    if options.calls:
        print("\n| file of tts/ | entries from other files | calls |\n| :-- | --: | --: |")
        entered = {_place(file): entries for file, entries in walk.entered.items()}
        for file, calls in sorted(walk.files.items(), key=lambda item: (-entered.get(item[0], 0), item[0])):
            print(f"| {file} | {entered.get(file, 0)} | {calls} |")


if __name__ == "__main__":
    main()
