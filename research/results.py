"""All pages of results, made again at the current result version.

    python -m research.results [PAGE ...] [--list] [--check] [--folder build/results]

Each page is made by its command. A page that has the current version already is skipped. The stores of unfinished pages
stay in the folder, so that a call that was stopped goes on where it ended, as long as the package is the same. The
minutes that a page took are written into its stamp. `--list` shows what there is, and `--check` fails for a page of an
older version. Pages of speeds have a date in place of a version, and belong to `benchmarks/`.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from research.tables import move_tables

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/results"
PAGE_VERSION = 16  # 17 to 19 changed other results, and recorded samples: recorded.md and risk.md are of 19
_STORE, _FILE = "{store}", "{page}"
# each page and the arguments of its commands, the most read first; {store} is a file that a command goes on from
COMMANDS: dict[str, str] = {
    "claims.md": "research.claims --problems 300 --seeds 3 --verifiers learnt --store {store}",
    "claims_auto.md": "research.claims --auto --problems 300 --seeds 3 --store {store}",
    "methods.md": "research.methods --limit 200 --seeds 1 --store {store}",
    "methods_by_verifier.md": "research.methods --reasons --store {store}",
    "allocator.md": "research.allocation.pair --store {store}",
    "allocator_countdown.md": "research.allocation.countdown --problems 300 --choose 100 --seeds 1 --budgets 124 248 "
    "500 1000 --store {store} --out {page}",
    "allocator_votes.md": "research.allocation.lured --seeds 280 --problems 200 --totals 2 8 --out {page} && "
    "research.allocation.repeated --seeds 20 --problems 200 --total 8 --out {page}",
    "recorded.md": "research.recorded --draws 200 --every 4",
    "risk.md": "research.recorded.risk --times 1000 --problems 300",
    "signal.md": "research.recorded.signal --times 200 --prompts 200 --samples 40",
    "selections.md": "research.methods.selections --limit 200 --samples 64 --draws 12 --store {store}",
    "confidences.md": "research.methods.confidences --limit 150 --samples 32 --draws 4 --online 40 --store {store}",
    "splits.md": "research.methods.splits --limit 80 --samples 32 --draws 20 --store {store}",
    "second_wave.md": "research.methods.second_wave --limit 200 --seeds 1 --budgets 204 816 --store {store}",
    "new_methods.md": "research.methods.new_methods --problems 150 --draws 60",
    "power_rounds.md": "research.methods.power_rounds --limit 40 --n 8",
    "step_labels.md": "research.methods.step_labels --problems 60 --samples 4 --k 1 4 8",
    "verifiers.md": "research.methods.verifiers --compare --limit 120 --seeds 2 --store {store}",
    "patches.md": "research.patches --runs 24 --seeds 2 --sizes 4 8 --store {store}",
    "grpo.md": "research.pocket.grpo --steps 20 --prompts 16 --seeds 3",
    "pair_gates_arithmetic.md": "research.pocket.gates arithmetic --problems 60 --newcomers 300 --out {page}",
    "pair_gates_countdown.md": "research.pocket.gates countdown --problems 100 --newcomers 300 --out {page}",
}


def version_of(page: Path) -> int | None:
    """Return the oldest result version in a page's stamps; None: a stamp states none, or there is no page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    stamps = re.findall(r"^Made by .*", text, re.MULTILINE)
    versions = [re.search(r"\(result version (\d+)", stamp) for stamp in stamps]
    known = [int(version[1]) for version in versions if version]
    return min(known) if known and len(known) == len(stamps) else None


def older_pages(folder: Path = PAGES) -> Iterator[str]:
    """Yield a line for each page that is not of the current version."""
    for name in COMMANDS:
        version = version_of(folder / name)
        if version is None or version < PAGE_VERSION:
            made = "no version" if version is None else f"version {version}"
            yield f"{name}: {made}, but its results are of version {PAGE_VERSION}; make results PAGES={name}"


def make(name: str, folder: Path) -> None:
    """Make a page, and write the minutes of this call into its stamp.

    Args:
        name: The name of the page.
        folder: The folder of stores.

    Raises:
        SystemExit: The command failed.
    """
    page, store = PAGES / name, folder / f"{Path(name).stem}.sqlite"
    began = time.monotonic()
    for command in COMMANDS[name].replace(_STORE, str(store)).replace(_FILE, str(page)).split(" && "):
        done = subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: its command ended with status {done.returncode}; call again to go on")
    minutes = (time.monotonic() - began) / 60
    timed = f" in {minutes:.0f} min (result version"
    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"(?<!\d s) \(result version", timed, text, count=1), encoding="utf-8")
    move_tables(page)


def main() -> None:
    """Make, list or check pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="names of pages; none: all")
    parser.add_argument("--list", action="store_true", help="show each page with its version and its command")
    parser.add_argument("--check", action="store_true", help="fail for a page of an older version")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/results", help="folder of unfinished results")
    options = parser.parse_args()
    unknown = set(options.pages) - COMMANDS.keys()
    if unknown:
        parser.error(f"no command makes {sorted(unknown)[0]}; there are {', '.join(COMMANDS)}")
    if options.list:
        for name, command in COMMANDS.items():
            print(f"{name}  version {version_of(PAGES / name)}  python -m {command}")
        return
    if options.check:
        sys.exit("\n".join(older_pages()) or None)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.pages or COMMANDS:
        if (version_of(PAGES / name) or 0) < PAGE_VERSION:
            print(f"{name}: python -m {COMMANDS[name]}", flush=True)
            make(name, options.folder.absolute())


if __name__ == "__main__":
    main()
