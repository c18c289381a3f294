"""Search for a long time on the engine and through a faulty server: nothing may grow or be left.

    python -m benchmarks.soak [--minutes 30] [--out docs/results/soak.md] [--smoke]

The command writes `docs/results/soak.md`. Each part runs in a process of its own, both at once. A part runs rounds of
random searches: strategies, budgets and seeds at random, some cancelled. After each round the books of every search
must be equal, and no limit passed. The engine has memory for a few paths alone, so that it evicts and computes again.
The server is that of the tests, in a third process. It breaks three replies of ten.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

from benchmarks.smoke import Smoke
from tests.backends.openai.faulty import BROKEN, REFUSED, SLOW
from tests.backends.openai.making import all_ended, on
from tests.backends.openai.server import ToyServer, serving
from tests.support.runs import change_setup, check_books, make_run, solve_runs
from tests.support.scripted import hash_verifier
from tts.backends.base import Sampling
from tts.backends.openai.http import Timeouts
from tts.budget.budget import Budget
from tts.models import registry
from tts.randomness import hash64
from tts.solver.setup import ProblemRun
from tts.solver.solver import Solver
from tts.types import Solution

AT_ONCE: Final = 8  # searches of a round
GROWTH_MIB: Final = 24  # that memory may grow after the warm-up, of which what is measured is noise
WARM_SHARE: Final = 1 / 6
KV_BYTES: Final = 1 << 20  # of the policy, and of its process model
PLANS: Final = (
    "single", "best_of_n | majority", "best_of_n(n=6) | weighted", "best_of_n(n=8) | unanimous(window=3)", "beam(n=4)",
    "dvts(n=4)", "rebase(n=4)", "particle_filter(n=4)", "mcts(n=3)", "a_star(goals=1)", "ets(n=4)", "auto",
)  # fmt: skip
SUMS: Final = tuple(f"{i % 7 + 1} + {i % 5 + 3} - {i % 3 + 1}" for i in range(30))
QUESTIONS: Final = tuple(f"What is {i % 19 + 2} + {i % 7 + 2} * {i % 5 + 3}?" for i in range(60))
FAULTS: Final = (*REFUSED, *(name for name in BROKEN if name not in SLOW), "usage")
SHARE, SLOW_SHARE = 300, 2  # of a thousand calls: faulty ones, and those that hang or drip


@dataclass(frozen=True)
class Level:
    """The resources of a process after some minutes.

    Args:
        minutes: The minutes.
        mib: The resident MiB.
        descriptors: The open descriptors.
        threads: The threads of the system.
        python_threads: The threads of Python.
    """

    minutes: float
    mib: float
    descriptors: int
    threads: int
    python_threads: int


@dataclass
class Part:
    """The results of a part.

    Attributes:
        name: The name of the part.
        interval_s: The seconds between two levels.
        levels: The level before the backend was made, then one for each interval.
        after: The level once the backend was closed; None: the part has not ended.
        counts: The number of searches, by their ends.
        causes: The number of failed searches, by their causes.
        tokens: The booked tokens.
        notes: The backend's own counters.
        failure: The check that did not hold; "": all held.
    """

    name: str
    interval_s: float
    levels: list[Level] = field(default_factory=list[Level])
    after: Level | None = None
    counts: Counter[str] = field(default_factory=Counter[str])
    causes: Counter[str] = field(default_factory=Counter[str])
    tokens: int = 0
    notes: str = ""
    failure: str = ""

    @property
    def growth(self) -> float:
        """MiB from the end of the warm-up to the mean of the last sixth; NaN where the part broke before."""
        running = self.levels[1:]
        warm = round(len(running) * WARM_SHARE)
        if len(running) < 3:
            return float("nan")
        return float(np.mean([level.mib for level in running[-max(1, warm) :]])) - running[warm].mib

    def faults(self) -> list[str]:
        """Return what did not hold."""
        if self.after is None:
            return [self.failure or "it did not end"]
        before, after = self.levels[0], self.after
        texts = [self.failure] if self.failure else []
        if not self.growth < GROWTH_MIB:
            texts.append(f"memory grew by {self.growth:.1f} MiB after the warm-up")
        if after.descriptors > before.descriptors:
            texts.append(f"{after.descriptors - before.descriptors} descriptors are left")
        if after.python_threads > before.python_threads:
            texts.append(f"{after.python_threads - before.python_threads} threads are left")
        return texts


def level(began: float) -> Level:
    """Return what this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    # one lists the others
    descriptors, threads = len([*Path("/proc/self/fd").iterdir()]) - 1, len([*Path("/proc/self/task").iterdir()])
    held = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return Level((time.monotonic() - began) / 60, held, descriptors, threads, threading.active_count())


def budget_of(rng: np.random.Generator) -> Budget:
    """Return limits in one to four units."""
    limits: dict[str, Any] = {
        "tokens": int(rng.integers(40, 1500)),
        "generated_tokens": int(rng.integers(20, 800)),
        "seconds": float(rng.uniform(0.2, 4.0)),
    }
    units = rng.choice(sorted(limits), size=int(rng.integers(0, 4)), replace=False).tolist()
    return Budget(samples=int(rng.integers(1, 9)), **{unit: limits[unit] for unit in units})


def pick(rng: np.random.Generator, things: tuple[str, ...]) -> str:
    """Return one of some texts."""
    return things[int(rng.integers(len(things)))]


def end_of(solution: Solution) -> str:
    """Return how a search ended, in words."""
    if solution.error is not None:
        return f"failed by {type(solution.error).__name__}"
    return {"budget": "ended by a limit", "interrupted": "cancelled"}.get(
        solution.stopped_by.partition(":")[0], "complete"
    )


async def rounds(part: Part, search: Callable[[np.random.Generator, int], ProblemRun], seconds: float) -> None:
    """Run rounds of searches until it is time, and check the books of each."""
    began, number = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        rng = np.random.default_rng(number)
        runs = [search(rng, number * AT_ONCE + i) for i in range(AT_ONCE)]
        cancel_at = [int(rng.integers(0, 400)) if rng.random() < 0.15 else None for _ in runs]
        for end in await solve_runs(runs, cancel_at):
            if end.search is None and isinstance(end.solution, asyncio.CancelledError):
                part.counts["cancelled before they began"] += 1
                continue
            if isinstance(end.solution, BaseException):
                raise end.solution
            if end.search is None:
                raise AssertionError(f"{end.solution.error!r} before the search began")
            check_books(end.search)
            part.counts[end_of(end.solution)] += 1
            if end.solution.error is not None:
                part.causes[str(end.solution.error).partition("\n")[0][:160]] += 1
            part.tokens += end.search.account.ledger.total().tokens
        number += 1
        if time.monotonic() - began >= part.interval_s * len(part.levels):
            part.levels.append(level(began))


async def on_engine(part: Part, seconds: float, url: str) -> None:
    """Search on the embedded pair, with memory for a few paths."""
    del url
    solver = Solver(replace(registry.get("pocket"), options=(("kv_budget", KV_BYTES), ("threads", 2))), "process")

    def search(rng: np.random.Generator, seed: int) -> ProblemRun:
        run = solver.prepare(pick(rng, QUESTIONS), budget_of(rng), strategy=pick(rng, PLANS), seed=seed)
        return change_setup(run, sampling=Sampling(temperature=0.8))

    backend: Any = search(np.random.default_rng(0), 0).setup.backends["policy"]
    await rounds(part, search, seconds)
    for _ in range(2000):  # states of the last round are dropped in the engine's own thread
        if not backend._states and not backend._prompts:
            break
        gc.collect()
        await asyncio.sleep(0.005)
    stats = backend.stats
    part.notes = (
        f"{stats.steps:,} steps; {stats.decode_tokens:,} tokens drawn; {stats.evictions:,} evictions; "
        f"{stats.recomputed:,} tokens computed "
        f"again; {len(backend._states)} states and {len(backend._prompts)} prompts left"
    )
    assert not backend._states and not backend._prompts, "states are left"  # noqa: PT018
    await backend.close()


async def on_server(part: Part, seconds: float, url: str) -> None:
    """Search through the faulty server."""
    backend = on(url, Timeouts(concurrency=64, wait_s=0.01, first_s=5.0, gap_s=5.0, call_s=10.0, tries=4))
    verifiers = hash_verifier()

    def search(rng: np.random.Generator, seed: int) -> ProblemRun:
        more: dict[str, Any] = {"verifiers": verifiers, "seed": seed, "clock": time.monotonic}
        return make_run(pick(rng, SUMS), budget_of(rng), pick(rng, PLANS), backend, **more)

    await rounds(part, search, seconds)
    found = backend.errors
    assert part.tokens >= backend.counters.generated_tokens, "tokens of the server are in no book"
    part.notes = (
        f"{sum(found.values()):,} faults found: {', '.join(f'{kind} {count:,}' for kind, count in found.most_common())}"
    )
    await backend.close()
    await all_ended()


RUNS: Final = {"engine": on_engine, "openai": on_server}


def run_part(name: str, seconds: float, url: str, interval_s: float, told: Any) -> None:
    """Run a part in this process, and send what came of it."""
    began, part = time.monotonic(), Part(name, interval_s)
    part.levels.append(level(began))
    try:
        asyncio.run(RUNS[name](part, seconds, url))
        part.after = level(began)
    except BaseException as failure:  # noqa: BLE001 - shown on the page
        part.failure = f"{type(failure).__name__}: {failure}"
        traceback.print_exc()
    told.send(part)


def serve(told: Any) -> None:
    """Serve until the other end of the pipe is closed; send the url at first."""

    def fault(number: int, body: object) -> str:
        del body
        drawn = hash64("soak", number)
        if drawn % 1000 < SLOW_SHARE:
            return SLOW[drawn // 1000 % len(SLOW)]
        return FAULTS[drawn // 1000 % len(FAULTS)] if drawn % 1000 < SHARE else ""

    server = ToyServer(prompts=SUMS, fault=fault)
    with serving(server) as url:
        told.send(url)
        while not told.poll(1.0):  # what tests read of each call would fill this process
            for record in (server.served, server.bodies, server.headers):
                del record[:-100]


def measure_parts(seconds: float, interval_s: float) -> list[Part]:
    """Run both parts at once, and return what came of them."""
    start = multiprocessing.get_context("spawn")
    ours, theirs = start.Pipe()
    server = start.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = ours.recv()
    pipes = {name: start.Pipe(duplex=False) for name in RUNS}
    arguments = [(name, seconds, url, interval_s, send) for name, (_, send) in pipes.items()]
    processes = [start.Process(target=run_part, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    parts: list[Part] = []
    for name, (receive, _) in pipes.items():
        ended = receive.poll(seconds + 600)
        parts.append(receive.recv() if ended else Part(name, interval_s, failure="it did not end in time"))
    for process in processes:
        process.join(30)
    ours.send("end")
    server.join(30)
    return parts


def lines(parts: list[Part], minutes: float) -> list[str]:
    """Return the page."""
    text = [
        "# Soak",
        "",
        f"`python -m benchmarks.soak --minutes {minutes:g}` wrote this page. Both parts ran at once, on "
        f"{os.cpu_count()} cores with Python "
        f"{platform.python_version()}.",
        "",
        f"A round is {AT_ONCE} searches with random strategies, budgets and seeds, of which some are cancelled. "
        "After each round the command checks that all accounts agree, and that no limit is exceeded. The engine "
        f"has {KV_BYTES >> 10:,} KiB for keys and values. The server breaks "
        f"{SHARE / 10:g} % of "
        f"its replies, and lets {SLOW_SHARE / 10:g} % hang. Memory is flat if the last sixth of the time holds at "
        f"most {GROWTH_MIB} MiB "
        "more than the end of the first sixth.",
        "",
    ]
    for part in parts:
        faults = part.faults()
        text += [f"## {part.name}", "", f"**{'Does not hold: ' + '; '.join(faults) if faults else 'Holds.'}**", ""]
        counts = ", ".join(f"{count:,} {why}" for why, count in part.counts.most_common())
        text += [
            f"{sum(part.counts.values()):,} searches ({counts}), {part.tokens:,} tokens booked. {part.notes}.",
            *([""] if part.causes else []),
        ]
        text += [f"- {count:,} failed: {cause}" for cause, count in part.causes.most_common(5)]
        text += ["", f"Memory after the warm-up: {part.growth:+.1f} MiB.", ""]
        text += [
            "| minutes | resident MiB | descriptors | threads | of them Python's |",
            "| --: | --: | --: | --: | --: |",
        ]
        rows = [("start", part.levels[0]), *((f"{one.minutes:.0f}", one) for one in thin_levels(part.levels[1:]))]
        rows += [("closed", part.after)] if part.after else []
        text += [
            f"| {at} | {one.mib:.0f} | {one.descriptors} | {one.threads} | {one.python_threads} |"
            for at, one in rows
            if one
        ]
        text.append("")
    text += ["The other threads belong to OpenMP and to the compiled kernels, which keep them until the process ends."]
    return text


def thin_levels(levels: list[Level]) -> list[Level]:
    """Return every third level, and the last."""
    return [*levels[:-1:3], *levels[-1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, help="the page; without it, it is printed")
    parser.add_argument("--smoke", action=Smoke, sizes={"minutes": 0.1})
    options = parser.parse_args()
    if not 0 < options.minutes <= 24 * 60:
        sys.exit(f"error: minutes is {options.minutes:g}, but must be above 0 and at most a day")
    parts = measure_parts(options.minutes * 60, min(60.0, options.minutes * 60 / 12))
    page = "\n".join(lines(parts, options.minutes)) + "\n"
    if options.out is None:
        print(page, end="")
    else:
        options.out.write_text(page, encoding="utf-8")
    sys.exit(any(part.faults() for part in parts))


if __name__ == "__main__":
    main()
