"""What the search itself costs, model calls aside: microseconds an expanded step of each stepwise method, and how it grows with the tree.

    python benchmarks/search_overhead.py [--repeats 5] [--problems 64] [--nodes 100000]

Models answer at once: the toy language writes, and its verifier is a constant, so A* pays by length here, which makes it broad. An
expanded step is a row that was written to become a node. All times are of the processor, so that other work on the machine counts
little. What the toy's writing takes is measured beside and taken off, and so is the work that a strategy does by itself (the integer
program and clustering of ETS), which is booked as "search" in the ledger and is read there from one problem alone. The growth exponent is
the slope of log time over log nodes: 1 is linear.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tts.backends.base import RowSet
from tts.backends.toy import ToyBackend
from tts.backends.toy_language import ToyLanguage
from tts.budget import Budget
from tts.solver import Solver
from tts.types import Problem, Solution, Trajectory
from tts.verifiers.base import Calls, StepScores

HALF = StepScores(whole=0.5)
PLANS = (
    "beam(n=16)",
    "dvts(n=16)",
    "rebase(n=16)",
    "ets(n=16)",
    "a_star(expansions=64, edge_cost='unit')",
    "particle_filter(n=16)",
)
GROWN = ("beam(n={width}, duplicates='keep')", "rebase(n={width})", "a_star(expansions={expansions}, width=16, edge_cost='unit')")
TERMS = 40  # lines of a solution, so that a search of 40 levels has something to write


@dataclass(frozen=True)
class Instant:
    """A verifier that answers at once and computes nothing."""

    name: str = "instant"
    range: tuple[float, float] = (0.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ()
    model: str = "policy"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        return [HALF] * len(trajectories)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 0


class Timed(ToyBackend):
    """The toy model with a stopwatch on what it writes: that is the model's work, not the search's."""

    seconds = 0.0

    def _execute(self, jobs: list[RowSet], deliver: object) -> None:
        started = time.thread_time()
        super()._execute(jobs, deliver)
        self.seconds += time.thread_time() - started


def problem(terms: int) -> str:
    return " + ".join(map(str, range(1, terms + 2)))


@dataclass(frozen=True)
class Cost:
    """Seconds in all, of the model, and booked by the strategies for their own work; expanded steps."""

    everything: float
    model: float
    own: float
    steps: int


def measured(plan: str, problems: int, terms: int) -> Cost:
    """Return what solving problems of one size costs, all at once."""
    backend = Timed(ToyLanguage(accuracy=0.5))
    with Solver(backend, Instant(), task="arithmetic", strategy=plan, clock=time.process_time) as solver:
        solver.solve_many([problem(2)], each=Budget(tokens=100_000))  # imports and the loop's thread are no part of it
        gc.collect()
        backend.seconds, started = 0.0, time.process_time()
        solutions = solver.solve_many([Problem(problem(terms), id=str(i)) for i in range(problems)], each=Budget(tokens=10**9))
        seconds = time.process_time() - started
    own = sum(call.usage.seconds for s in solutions for call in s.trace.calls if call.kind == "search")
    return Cost(seconds, backend.seconds, own, sum(map(expanded, solutions)))


def expanded(solution: Solution) -> int:
    if solution.error is not None:
        raise solution.error
    return sum(call.rows for call in solution.trace.calls if call.kind == "expand")


def table(problems: int, repeats: int) -> None:
    print(f"{problems} problems at once, 8 lines each; microseconds an expanded step, median [least, greatest] of {repeats} runs")
    print(f"{'':>40}  {'search':>24}  {'model':>6}  {'own work':>8}  steps")
    for plan in PLANS:
        alone = [measured(plan, 1, 8) for _ in range(repeats)]
        own = statistics.median(cost.own / cost.steps for cost in alone)
        costs = [measured(plan, problems, 8) for _ in range(repeats)]
        each = sorted(((cost.everything - cost.model) / cost.steps - own) * 1e6 for cost in costs)
        model = statistics.median(cost.model / cost.steps for cost in costs)
        shown = f"{statistics.median(each):7.1f} [{each[0]:.1f}, {each[-1]:.1f}]"
        print(f"{plan:>40}  {shown:>24}  {model * 1e6:>6.1f}  {own * 1e6:>8.1f}  {costs[0].steps}", flush=True)


def growth(nodes: int, repeats: int) -> None:
    print(f"\none problem, trees up to {nodes} nodes: microseconds an expanded step by size, and the growth exponent of the time")
    for form in GROWN:
        sizes, seconds = [], []
        for size in (nodes // 100, nodes // 10, nodes):
            plan = form.format(width=max(4, size // TERMS), expansions=max(4, size // 4))
            costs = [measured(plan, 1, TERMS) for _ in range(repeats)]
            sizes.append(costs[0].steps)
            seconds.append(statistics.median(cost.everything - cost.model for cost in costs))
        each = ", ".join(f"{steps}: {s / steps * 1e6:.1f}" for steps, s in zip(sizes, seconds, strict=True))
        last = slope(sizes[-2:], seconds[-2:])
        print(f"{form.split('(')[0]:>10}  {each}  exponent {slope(sizes, seconds):.2f} (last decade {last:.2f})", flush=True)


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    x, y = [math.log(size) for size in sizes], [math.log(s) for s in seconds]
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=100_000)
    options = parser.parse_args()
    table(options.problems, options.repeats)
    growth(options.nodes, max(1, options.repeats // 2))


if __name__ == "__main__":
    main()
