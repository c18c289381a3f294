"""What searching costs besides models: microseconds a sample and an expanded step, on a model that answers at once.

    python benchmarks/orchestration.py [--peer PYTHON] [--repeats 5] [--profile]

Ours runs on the toy backend with tree, budget, ledger and trace on. With `--peer`, the Python of an environment that has its_hub,
that library's best-of-n and beam run on an equally instant fake model, in alternation with ours, so that both meet the same
noise. Medians over the repeats, with the least and greatest.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tts.budget import Budget
from tts.search.base import Named, Selection
from tts.search.search import Search
from tts.search.selection import Best
from tts.solver import Solver
from tts.types import Candidate, Problem, Trajectory
from tts.verifiers.base import Calls, StepScores

HALF = StepScores(whole=0.5)
SAMPLES, BEAMS, WIDTH, LEVELS = 32, 4, 4, 8
PROBLEMS = (1, 64, 1024)


@dataclass(frozen=True)
class Instant:
    """A verifier that answers at once, as the peer's reward model does."""

    name: str = "instant"
    range: tuple[float, float] = (0.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ()
    model: str = "policy"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        return [HALF] * len(trajectories)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchBeam(Named):
    """The least beam search: expand, score, keep; for timing the seams, not for use."""

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

    def size(self, units: int | None) -> BenchBeam:
        return self

    def default_selection(self, *, verified: bool) -> Selection:
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
    script = Path(__file__).with_name("peer_its_hub.py")
    arguments = [kind, str(problems), str(SAMPLES), str(BEAMS), str(WIDTH), str(LEVELS)]
    done = subprocess.run([python, str(script), *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):7.1f} [{min(values):.1f}, {max(values):.1f}]"


def table(peer_python: str | None, repeats: int) -> None:
    print(f"best-of-n: n={SAMPLES}; beam: {BEAMS} beams x {WIDTH} children, {LEVELS} levels; median [least, greatest] of {repeats} runs")
    print(f"{'':>10} {'problems':>8}  {'ours, us':>24}  {'its_hub 1.2, us':>24}  ratio")
    for kind in ("best_of_n", "beam"):
        medians: dict[int, float] = {}
        for problems in PROBLEMS:
            mine, theirs = [], []
            for _ in range(repeats):
                mine.append(ours(kind, problems))
                if peer_python:
                    theirs.append(peer(peer_python, kind, problems))
            medians[problems] = statistics.median(mine)
            ratio = f"{medians[problems] / statistics.median(theirs):.2f}" if theirs else "-"
            print(f"{kind:>10} {problems:>8}  {spread(mine):>24}  {spread(theirs) if theirs else '-':>24}  {ratio}")
        print(f"{'':>10} from 64 to 1,024 problems: x{medians[1024] / medians[64]:.2f}")
        gc.disable()
        still = {problems: statistics.median(ours(kind, problems) for _ in range(repeats)) for problems in (64, 1024)}
        gc.enable()
        print(f"{'':>10} without Python's cycle collector: {still[64]:.1f} and {still[1024]:.1f} us, x{still[1024] / still[64]:.2f}")


def where(kind: str) -> None:
    """Print where the time goes, by file, for 64 problems."""
    ours(kind, 64)
    profile = cProfile.Profile()
    solver = Solver("toy", Instant(), strategy=f"best_of_n(n={SAMPLES}) | best" if kind == "best_of_n" else BenchBeam())
    prompt = "3 + 4" if kind == "best_of_n" else "3" + " + 4" * (LEVELS + 1)

    async def run() -> None:
        runs = [solver._run(Problem(prompt), Budget(tokens=100_000), None, 0) for _ in range(64)]  # pyright: ignore[reportPrivateUsage]
        profile.enable()
        await asyncio.gather(*(run.solve() for run in runs))
        profile.disable()

    asyncio.run(run())
    totals: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        place = file.split("/tts/")[-1] if "/tts/" in file else "asyncio" if "asyncio" in file else "python and numpy"
        totals[place] = totals.get(place, 0.0) + own
    everything = sum(totals.values())
    print(f"\nwhere the time of {kind} goes (64 problems, under a profiler, which favours long functions):")
    for place, seconds in sorted(totals.items(), key=lambda item: -item[1])[:12]:
        print(f"  {seconds / everything:5.1%}  {place}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--peer", help="the Python of an environment with its_hub 1.2")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    table(options.peer, options.repeats)
    for kind in ("best_of_n", "beam"):
        where(kind)


if __name__ == "__main__":
    main()
