"""Cost of a search besides models: microseconds a sample and an expanded step, on a model that answers at once.

    python -m benchmarks.orchestration [--peer PYTHON] [--repeats 5] [--problems 1 64 1024] [--smoke]

Ours runs on the toy backend with tree, budget, ledger and trace. `--peer` is the Python of an environment that has its_hub 1.2: its
best-of-n and beam search run on an equally instant fake model, in alternation with ours, so that both meet the same noise. Without it, or
where it does not start, its column is empty, and a line says why. Medians over the repeats, with the least and greatest. Two profiles by
file follow.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tts
from benchmarks.engine.systems import AbsentError
from benchmarks.orchestration.instant import Instant
from benchmarks.orchestration.peers import run_peer
from benchmarks.smoke import Smoke
from tts.budget.budget import Budget
from tts.search.protocols import SelectionProtocol
from tts.search.search import Search
from tts.search.selections.best import Best
from tts.solver.solver import Solver
from tts.types import Candidate, Problem

SAMPLES, BEAMS, WIDTH, LEVELS = 32, 4, 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchBeam(tts.Strategy):
    """The smallest beam search: expand, score, keep. It times the calls of a search."""

    registered_as = "bench_beam"
    needs = ("steps",)
    verifiers = ()

    async def run(self, search: Search) -> Sequence[Candidate]:
        beams = [search.root]
        for level in range(LEVELS):
            rows = await search.expand(beams, n=WIDTH if level else WIDTH * BEAMS)
            children = [child for siblings in rows for child in siblings]
            scores = await search.score(children)
            beams = [children[i] for i in np.argsort(-scores, kind="stable")[:BEAMS]]
            search.keep(beams)
        for beam in beams:
            search.finish(beam)
        return search.candidates

    def default_selection(self, *, verified: bool) -> SelectionProtocol:
        return Best()


def ours(kind: str, problems: int) -> float:
    """Return microseconds a sample ("best_of_n") or an expanded step ("beam")."""
    if kind == "best_of_n":
        solver = Solver("toy", Instant(), strategy=f"best_of_n(n={SAMPLES}) | best")
        prompt, units = "3 + 4", SAMPLES
    else:
        solver = Solver("toy", Instant(), strategy=BenchBeam())
        prompt, units = "3" + " + 4" * (LEVELS + 1), BEAMS * WIDTH * LEVELS
    solver.solve_many([prompt], each=100_000)  # imports and the loop's thread are no part of it
    gc.collect()
    started = time.perf_counter()
    solver.solve_many([prompt] * problems, each=100_000)
    return (time.perf_counter() - started) / (problems * units) * 1e6


def peer(python: str, kind: str, problems: int) -> float:
    """Return the same of its_hub, in its own environment."""
    return json.loads(run_peer(python, "peer_its_hub", kind, *map(str, (problems, SAMPLES, BEAMS, WIDTH, LEVELS))))


def absence(python: str | None) -> str:
    """Return why its_hub is left out; "" where it runs."""
    if python is None:
        return "no --peer PYTHON"
    try:
        peer(python, "best_of_n", 1)
    except AbsentError as reason:
        return str(reason)
    return ""


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):7.1f} [{min(values):.1f}, {max(values):.1f}]"


def table(peer_python: str | None, repeats: int, sizes: Sequence[int]) -> None:
    """Print the costs by number of problems; with several numbers, how they change from the last but one to the last."""
    print(f"best-of-n: n={SAMPLES}; beam: {BEAMS} beams x {WIDTH} children, {LEVELS} levels; median [least, greatest] of {repeats} runs")
    print(f"{'':>10} {'problems':>8}  {'ours, us':>24}  {'its_hub 1.2, us':>24}  ratio")
    for kind in ("best_of_n", "beam"):
        medians: dict[int, float] = {}
        for problems in sizes:
            mine, theirs = [], []
            for _ in range(repeats):
                mine.append(ours(kind, problems))
                if peer_python:
                    theirs.append(peer(peer_python, kind, problems))
            medians[problems] = statistics.median(mine)
            ratio = f"{medians[problems] / statistics.median(theirs):.2f}" if theirs else "-"
            print(f"{kind:>10} {problems:>8}  {spread(mine):>24}  {spread(theirs) if theirs else '-':>24}  {ratio}")
        if len(sizes) < 2:
            continue
        few, many = sizes[-2:]
        print(f"{'':>10} from {few:,} to {many:,} problems: x{medians[many] / medians[few]:.2f}")
        gc.disable()
        still = {problems: statistics.median(ours(kind, problems) for _ in range(repeats)) for problems in (few, many)}
        gc.enable()
        print(f"{'':>10} without Python's cycle collector: {still[few]:.1f} and {still[many]:.1f} us, x{still[many] / still[few]:.2f}")


def where(kind: str, problems: int) -> None:
    """Print the share of each file in the time of so many problems."""
    ours(kind, problems)
    profile = cProfile.Profile()
    solver = Solver("toy", Instant(), strategy=f"best_of_n(n={SAMPLES}) | best" if kind == "best_of_n" else BenchBeam())
    prompt = "3 + 4" if kind == "best_of_n" else "3" + " + 4" * (LEVELS + 1)

    async def run() -> None:
        runs = [solver._run(Problem(prompt), Budget(tokens=100_000), None, 0) for _ in range(problems)]  # pyright: ignore[reportPrivateUsage]
        profile.enable()
        await asyncio.gather(*(run.solve() for run in runs))
        profile.disable()

    asyncio.run(run())
    totals: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        place = file.split("/tts/")[-1] if "/tts/" in file else "asyncio" if "asyncio" in file else "python and numpy"
        totals[place] = totals.get(place, 0.0) + own
    everything = sum(totals.values())
    print(f"\nwhere the time of {kind} goes ({problems} problems, under a profiler, which favours long functions):")
    for place, seconds in sorted(totals.items(), key=lambda item: -item[1])[:12]:
        print(f"  {seconds / everything:5.1%}  {place}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--peer", help="the Python of an environment with its_hub 1.2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--problems", type=int, nargs="+", default=[1, 64, 1024], help="solved at once")
    parser.add_argument("--smoke", action=Smoke, sizes={"repeats": 1, "problems": [1, 2]})
    options = parser.parse_args()
    absent = absence(options.peer)
    if absent:
        print(f"absent: its_hub: {absent}")
    table(None if absent else options.peer, options.repeats, options.problems)
    for kind in ("best_of_n", "beam"):
        where(kind, min(64, options.problems[-1]))


if __name__ == "__main__":
    main()
