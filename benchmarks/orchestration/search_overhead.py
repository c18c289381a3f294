"""Cost of the search without model calls: time of an expanded step, growth, and tokens read twice.

    python -m benchmarks.orchestration.search_overhead [--parts steps growth share tokens] [--repeats 5] [--problems 64]
        [--nodes 100000] [--n 16] [--peer PYTHON] [--out docs/results/search_cost.md] [--smoke]

Models answer at once: the toy language writes, and the verifier is a constant. A* pays by length here, which makes its
tree broad.

- expanded step: a row that was written to become a node.
- times: of the processor, so that other work on the machine counts little.
- model: the time of the toy's writing, measured beside and taken off.
- own work: of the strategy itself (vectors, clustering and integer program of ETS), taken off too.
- growth exponent: slope of log time over log nodes; 1 is linear.

`share` and `tokens` are on real models (`search_models.py`). `--peer` is the Python of an environment with its_hub 1.2,
whose beam search is measured beside ours in `tokens`. If the peer is missing or does not start, its row has the reason.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from numpy.typing import NDArray

from benchmarks.orchestration import search_models
from benchmarks.orchestration.instant import Instant
from benchmarks.smoke import Smoke
from tts.backends.base import RowSet
from tts.backends.batching import BatchQueue
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget
from tts.search.algorithms.embedding import HashedNgrams
from tts.search.search import Search
from tts.solver.solver import Solver
from tts.types import Problem, Solution

PLANS = (
    "beam(n=16)",
    "dvts(n=16)",
    "rebase(n=16)",
    "ets(n=16)",
    "a_star(goals=None, expansions=64, edge_cost='unit')",
    "particle_filter(n=16)",
)
GROWN = (
    "beam(n={width}, duplicates='keep')",
    "rebase(n={width})",
    "a_star(goals=None, expansions={expansions}, width=16, edge_cost='unit')",
)
TERMS = 40  # lines of a solution, so that a search of 40 levels has something to write


class Timed(ToyBackend):
    """The toy model with a stopwatch on its writing, which is the model's work."""

    seconds = 0.0

    def _execute(self, queue: BatchQueue, jobs: list[RowSet], deliver: object) -> None:
        started = time.thread_time()
        super()._execute(queue, jobs, deliver)
        self.seconds += time.thread_time() - started


@contextmanager
def timed_work() -> Generator[list[float]]:
    """Yield a list that takes the seconds of what strategies do themselves.

    These are functions that `Search.run` puts in threads, and vectors.
    """
    seconds: list[float] = []
    run, embed = Search.run, HashedNgrams.embed

    async def embed_texts(embedder: HashedNgrams, texts: Sequence[str]) -> NDArray[np.float64]:
        started = time.thread_time()
        vectors = await embed(embedder, texts)  # it waits for nothing
        seconds.append(time.thread_time() - started)
        return vectors

    def time_call(function: Callable[..., Any], *arguments: Any) -> Any:
        started = time.thread_time()
        result = function(*arguments)
        seconds.append(time.thread_time() - started)
        return result

    with (
        mock.patch.object(
            Search, "run", lambda search, function, *arguments: run(search, time_call, function, *arguments)
        ),
        mock.patch.object(HashedNgrams, "embed", embed_texts),
    ):
        yield seconds


def problem(terms: int) -> str:
    return " + ".join(map(str, range(1, terms + 2)))


@dataclass(frozen=True)
class Cost:
    """Seconds in all, of the model, and of the strategies' own work in threads; expanded steps."""

    everything: float
    model: float
    own: float
    steps: int


def measure_plan(plan: str, problems: int, terms: int) -> Cost:
    """Return what solving problems of one size costs, all at once."""
    backend = Timed(ToyLanguage(accuracy=0.5))
    with Solver(backend, Instant(), task="arithmetic", strategy=plan) as solver, timed_work() as own:
        solver.solve_many([problem(2)], each=Budget(tokens=100_000))  # imports and the loop's thread are no part of it
        gc.collect()
        backend.seconds, started = 0.0, time.process_time()
        own.clear()
        solutions = solver.solve_many(
            [Problem(problem(terms), id=str(i)) for i in range(problems)], each=Budget(tokens=10**9)
        )
        seconds = time.process_time() - started
    return Cost(seconds, backend.seconds, sum(own), sum(map(count_expanded, solutions)))


def count_expanded(solution: Solution) -> int:
    if solution.error is not None:
        raise solution.error
    return sum(call.rows for call in solution.trace.calls if call.kind == "expand")


def table(problems: int, repeats: int) -> Iterator[str]:
    """Yield the microseconds of an expanded step."""
    yield "| plan | search, median [least, greatest] | model | own work | steps |"
    yield "| :-- | --: | --: | --: | --: |"
    for plan in PLANS:
        costs = [measure_plan(plan, problems, 8) for _ in range(repeats)]
        each = sorted((cost.everything - cost.model - cost.own) / cost.steps * 1e6 for cost in costs)
        own = statistics.median(cost.own / cost.steps for cost in costs)
        model = statistics.median(cost.model / cost.steps for cost in costs)
        shown = f"{statistics.median(each):.1f} [{each[0]:.1f}, {each[-1]:.1f}]"
        yield f"| `{plan}` | {shown} | {model * 1e6:.1f} | {own * 1e6:.1f} | {costs[0].steps:,} |"


def growth(nodes: int, repeats: int) -> Iterator[str]:
    """Yield the microseconds of an expanded step by the size of the tree, and their growth exponents."""
    yield "| method | microseconds an expanded step, by steps | exponent | of the last decade |"
    yield "| :-- | :-- | --: | --: |"
    for form in GROWN:
        sizes, seconds = [], []
        for size in (nodes // 100, nodes // 10, nodes):
            plan = form.format(width=max(4, size // TERMS), expansions=max(4, size // 4))
            costs = [measure_plan(plan, 1, TERMS) for _ in range(repeats)]
            sizes.append(costs[0].steps)
            seconds.append(statistics.median(cost.everything - cost.model - cost.own for cost in costs))
        each = ", ".join(f"{s / steps * 1e6:.1f} at {steps:,}" for steps, s in zip(sizes, seconds, strict=True))
        yield (
            f"| {form.split('(', maxsplit=1)[0]} | {each} | {slope(sizes, seconds):.2f} | "
            f"{slope(sizes[-2:], seconds[-2:]):.2f} |"
        )


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    x, y = [math.log(size) for size in sizes], [math.log(s) for s in seconds]
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def page(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of what was asked for."""
    yield "# What the search itself costs"
    parts = {
        "steps": ("Time outside model calls", lambda: table(options.problems, options.repeats)),
        "growth": (
            f"One problem, trees up to {options.nodes:,} nodes",
            lambda: growth(options.nodes, max(1, options.repeats // 2)),
        ),
        "share": ("Share of a run with SmolLM2", lambda: search_models.share(Instant(), options.n)),
        "tokens": (
            "Verifier tokens for each generated token",
            lambda: search_models.read_twice(options.n, options.asked, options.peer),
        ),
    }
    for name in options.parts:
        title, lines = parts[name]
        yield from ("", f"## {title}", "")
        yield from lines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--parts",
        nargs="+",
        default=["steps", "growth", "share", "tokens"],
        choices=["steps", "growth", "share", "tokens"],
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--n", type=int, default=16, help="width on real models")
    parser.add_argument("--asked", type=int, default=8, help="problems of the part tokens")
    parser.add_argument("--peer", help="the Python of an environment with its_hub 1.2")
    parser.add_argument("--out", type=Path, help="a page to write")
    parser.add_argument("--smoke", action=Smoke, sizes={"repeats": 1, "problems": 1, "nodes": 800, "n": 4, "asked": 1})
    options = parser.parse_args()
    lines: list[str] = []
    for line in page(options):
        print(line, flush=True)
        lines.append(line)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
