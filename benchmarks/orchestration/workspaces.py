"""Cost of forking a state of a large repository: time and disk of forks, commits and patches.

    python -m benchmarks.orchestration.workspaces [--files 10000] [--kib 4] [--forks 5] [--smoke]

`cp -r` stands beside them. The repository has so many files of so many KiB of text, in folders of a hundred. Times are
medians over forks. Disk is what the file system gives to the files, with hard links counted once. Nothing may be an
object of both the repository and the store.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import shutil
import statistics
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.smoke import Smoke
from tts_addons.agents.store import StateStore

Seconds = tuple[float, float]  # of the processor, of the clock


def make(folder: Path, files: int, kib: int) -> None:
    """Write a repository of one commit, packed as git leaves it after some time."""
    for number in range(files):
        path = folder / f"part{number // 100:04d}" / f"file{number:06d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        digits = hashlib.shake_256(str(number).encode()).hexdigest(kib << 9)
        path.write_text("\n".join(textwrap.wrap(digits, 79)))
    for command in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "gc.auto=0", "-c", "user.name=a", "-c", "user.email=a@a", "commit", "--quiet", "-m", "first"],
        ["gc", "--quiet"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)


def disk(folder: Path) -> int:
    """Return the bytes that the file system gives to the files below a folder."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        seen[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(seen.values())


def time_call(work: Callable[[], Any]) -> tuple[Seconds, Any]:
    """Return the seconds of a call by the processor and by the clock, and what the call returned.

    The processor's seconds include the programs that the call runs.
    """
    begun, processor = time.perf_counter(), _processor()
    found = work()
    return (_processor() - processor, time.perf_counter() - begun), found


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _median(seconds: Sequence[Seconds]) -> Seconds:
    return statistics.median(one for one, _ in seconds), statistics.median(one for _, one in seconds)


def objects(git_dir: Path) -> set[str]:
    """Return the objects that a repository has itself."""
    loose = {path.parent.name + path.name for path in (git_dir / "objects").glob("??/*")}
    for index in (git_dir / "objects" / "pack").glob("*.idx"):
        shown = subprocess.run(
            ["git", "show-index"], stdin=index.open("rb"), capture_output=True, check=True
        ).stdout.decode()
        loose |= {line.split()[1] for line in shown.splitlines()}
    return loose


def _fork(store: StateStore, number: int) -> dict[str, tuple[Seconds, int]]:
    """Fork the root, change a file and release the fork; return seconds and bytes of each."""
    begin = disk(store.folder)
    forking, fork = time_call(lambda: store.fork(store.root))
    forked = disk(store.folder)
    (fork.path / "part0000" / "file000000.py").write_text(f"changed = {number}\n")
    changed = disk(store.folder)
    committing, state = time_call(lambda: store.commit(fork))
    committed = disk(store.folder)
    return {
        "fork a state": (forking, forked - begin),
        "commit a changed file": (committing, committed - changed),
        "patch from the root": (time_call(lambda: store.text_patch(state))[0], 0),
        "release the fork": (time_call(lambda: store.release(fork))[0], 0),
    }


def measure(folder: Path, files: int, kib: int, forks: int) -> list[tuple[str, Seconds, int]]:
    """Return what is done, its seconds, and the bytes that it adds to the disk."""
    repo = folder / "repo"
    repo.mkdir()
    make(repo, files, kib)
    copies = [
        time_call(lambda place=place: subprocess.run(["cp", "-r", repo, folder / f"copy{place}"], check=True))[0]
        for place in range(forks)
    ]
    rows = [("`cp -r` of the repository", _median(copies), disk(folder / "copy0"))]
    for place in range(forks):
        shutil.rmtree(folder / f"copy{place}")
    opening, store = time_call(lambda: StateStore(repo, folder=folder / "stores"))
    with store:
        rows.append(("open the repository", opening, disk(store.folder)))
        forked = [_fork(store, number) for number in range(forks)]
        for what in forked[0]:
            seconds, sizes = zip(*(one[what] for one in forked), strict=True)
            rows.append((what, _median(seconds), int(statistics.median(sizes))))
        twice = objects(repo / ".git") & objects(store.folder / "states.git")
        assert not twice, f"{len(twice)} objects are there twice"
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--kib", type=int, default=4, help="of a file")
    parser.add_argument("--forks", type=int, default=5)
    parser.add_argument("--smoke", action=Smoke, sizes={"files": 200, "forks": 2})
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tts-bench-") as folder:
        rows = measure(Path(folder), given.files, given.kib, given.forks)
    print(f"{given.files:,} files of {given.kib} KiB, {given.forks} forks; no object is there twice\n")
    print("| | processor, s | clock, s | disk, MiB |\n| :-- | --: | --: | --: |")
    for what, (processor, clock), size in rows:
        print(f"| {what} | {processor:.2f} | {clock:.2f} | {size / 2**20:.1f} |")


if __name__ == "__main__":
    main()
