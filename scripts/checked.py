"""Run long suites in turn, and keep a page of when each was last green.

    python scripts/checked.py run [SUITE ...]        # all suites, or those named; each writes its row of the page
    python scripts/checked.py turn --seconds SECONDS # the shard and the environment whose turn it is, without a row

A suite is a target of the Makefile. Its counts come from the report that pytest writes. The turn follows from the
number of commits, so that each suite has its turn after a few commits. A suite that has not ended in time is stopped.
It fails only if a test had failed until then.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "tests/checked.md"
SHARDS = 12
# the quick suites, which CI runs for each commit
ALWAYS = {"quick": ("test",), "docs": ("test-docs",)}
SLOW = {f"slow-{k}": ("test-slow", f"SHARD={k}/{SHARDS}") for k in range(1, SHARDS + 1)}
# what needs an environment of its own; what takes long to install or to compile has a turn for that alone
ENVIRONMENTS = {
    "vllm-install": (".venv-vllm/.tests",),
    "vllm": ("test-vllm",),
    "llama-install": (".venv-llama/.made",),
    "llama": ("test-llama",),
    "clients": ("test-clients",),
    "harnesses": ("test-harnesses",),
    "training": ("test-training",),
    "ray": ("test-ray",),
    "research-types": ("check-research",),
    "python-3.12": ("test-python-3.12",),
    "python-3.13": ("test-python-3.13",),
}
SUITES = ALWAYS | SLOW | ENVIRONMENTS
# seconds in which a suite that was interrupted ends its processes and writes its report
_LAST_SECONDS = 60
_NEVER = "never"
_HEAD = """# What was checked, and when

`make checked` runs suites of tests and writes this page. `make checked SUITES="slow-3 ray"` runs those that are named.
CI runs the quick suites for each commit, and in turn one shard of the slow suite and one environment. A row is of the
last run, whether it failed or not. The last column has the last run without a failure. A suite that was interrupted or
could not start is not green.

| suite | command | commit | day | passed | failed | skipped, with reasons | last green |
|---|---|---|---|--:|--:|---|---|
"""


@dataclass(frozen=True)
class Row:
    """The last run of a suite.

    Args:
        commit: The commit that was run; empty: none was.
        day: The day of the run, as `2026-01-31`.
        passed: How many tests passed.
        failed: How many tests failed or broke; as text, because a suite may end without a count of tests.
        skipped: How many tests were skipped, each number with its reason.
        green: The commit and day of the last run without a failure.
    """

    commit: str = ""
    day: str = ""
    passed: str = ""
    failed: str = ""
    skipped: str = ""
    green: str = _NEVER


@dataclass(frozen=True)
class Outcome:
    """What one run of a suite came to.

    Args:
        code: The exit status of its command; None: it was stopped because its time was over.
        passed: How many tests passed. Of a run that was stopped, those that ran at that moment count too.
        failed: The names of the tests that failed or broke.
        skipped: How many tests were skipped, by reason.
    """

    code: int | None
    passed: int
    failed: tuple[str, ...]
    skipped: Counter[str]

    @property
    def is_green(self) -> bool:
        """Whether the command ended well, and no test failed."""
        return self.code == 0 and not self.failed

    def row(self, earlier: Row, commit: str, day: str) -> Row:
        """Return the row of this run, which keeps when the suite was last green."""
        failed = str(len(self.failed))
        if not self.is_green and not self.failed:
            failed = "did not end" if self.code is None else f"exit status {self.code}"
        skipped = "; ".join(f"{number} {reason}" for reason, number in self.skipped.most_common())
        green = f"{commit} {day}" if self.is_green else earlier.green
        passed = f"≤ {self.passed}" if self.code is None else str(self.passed)
        return Row(commit, day, passed, failed, skipped or "0", green)


def pick_turn(commits: int) -> tuple[str, str]:
    """Return the shard of the slow suite and the environment whose turn it is after so many commits."""
    return list(SLOW)[commits % len(SLOW)], list(ENVIRONMENTS)[commits % len(ENVIRONMENTS)]


def read_page(text: str) -> dict[str, Row]:
    """Return the rows of a page, by suite."""
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 8 and cells[0] not in {"suite", "---"}:
            rows[cells[0]] = Row(*cells[2:])
    return rows


def write_page(rows: dict[str, Row]) -> str:
    """Return the page: a row for each suite, also where it was never run."""
    lines: list[str] = []
    for suite, command in SUITES.items():
        row = rows.get(suite, Row())
        cells = (row.commit, row.day, row.passed, row.failed, row.skipped, row.green)
        lines.append(" | ".join((f"| {suite}", f"`make {' '.join(command)}`", *cells)) + " |")
    return _HEAD + "\n".join(lines) + "\n"


def read_report(path: Path, code: int | None) -> Outcome:
    """Return what a run came to, by pytest's report in the form of JUnit; without one, no test was run."""
    if not path.is_file():
        return Outcome(code, 0, (), Counter())
    passed, failed, skipped = 0, list[str](), Counter[str]()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skip is not None:
            reason = skip.get("message", "").replace(f"{ROOT}/", "").replace("|", "/")
            skipped[re.sub(r"\s+", " ", reason)] += 1
        else:
            passed += 1
    return Outcome(code, passed, tuple(failed), skipped)


def run_suite(suite: str, seconds: float | None = None) -> Outcome:
    """Run the command of a suite, and stop it after so many seconds.

    Args:
        suite: The name of the suite.
        seconds: The seconds that it may take; None: as many as it needs.

    Returns:
        What the run came to.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report}"
        process = subprocess.Popen(
            ["make", *SUITES[suite]], cwd=ROOT, env=os.environ | {"PYTEST_ADDOPTS": options}, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            stop(process)
        except BaseException:
            stop(process)
            raise
        return read_report(report, code)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a command and its processes, and kill what is left after a minute."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def say(text: str) -> None:
    """Write a line at once, since the suites write to the same output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def git(*words: str) -> str:
    """Return what a command of git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def count_commits() -> int:
    """Return how many commits led to this one. A shallow clone is made whole first.

    Raises:
        SystemExit: The clone stays shallow, so that its commits cannot be counted.
    """
    if git("rev-parse", "--is-shallow-repository") == "true":
        subprocess.run(["git", "fetch", "--quiet", "--unshallow"], cwd=ROOT, check=False)
    if git("rev-parse", "--is-shallow-repository") == "true":
        sys.exit("the turn follows from the number of commits, and this clone is shallow: clone it whole")
    return int(git("rev-list", "--count", "HEAD"))


def take_turn(seconds: float) -> int:
    """Run the shard and the environment whose turn it is, and say what came of them.

    Args:
        seconds: The seconds that both may take in all.

    Returns:
        The exit status: 1 if a test failed, or a command failed in its time.
    """
    start, bad = time.monotonic(), False
    for suite in pick_turn(count_commits()):
        left = seconds - (time.monotonic() - start)
        if left <= _LAST_SECONDS:
            say(f"turn: {suite}: not run, for the time of this turn is over")
            continue
        say(f"turn: {suite}: make {' '.join(SUITES[suite])}, {left:.0f} s at most")
        outcome = run_suite(suite, left - _LAST_SECONDS)
        state = "its time was over" if outcome.code is None else f"exit status {outcome.code}"
        say(f"turn: {suite}: {outcome.passed} passed, {len(outcome.failed)} failed, {state}")
        bad |= bool(outcome.failed) or (outcome.code is not None and outcome.code != 0)
    return int(bad)


def run_suites(names: Sequence[str]) -> int:
    """Run suites one after another, and write the row of each once it has ended."""
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        sys.exit(f"unknown suite {unknown[0]!r}: name one of {', '.join(map(repr, SUITES))}")
    bad = False
    for suite in names or SUITES:
        commit, day = git("rev-parse", "--short=10", "HEAD"), datetime.datetime.now(datetime.UTC).date().isoformat()
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{PAGE.relative_to(ROOT)}")
        if changed:
            sys.exit(f"a row is of one commit, and this tree has changes: commit them first\n{changed}")
        outcome = run_suite(suite)
        rows = read_page(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else {}
        rows[suite] = outcome.row(rows.get(suite, Row()), commit, day)
        PAGE.write_text(write_page(rows), encoding="utf-8")
        for name in outcome.failed:
            say(f"{suite}: FAILED {name}")
        bad |= not outcome.is_green
    return int(bad)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run suites, and write their rows")
    run.add_argument("suites", nargs="*", metavar="SUITE")
    turn = commands.add_parser("turn", help="run the shard and the environment whose turn it is")
    turn.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args(arguments)
    return take_turn(given.seconds) if given.command == "turn" else run_suites(given.suites)


if __name__ == "__main__":
    sys.exit(main())
