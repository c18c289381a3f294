"""Where the time of a search goes on a model that answers at once: by work, by file and by function.

    python -m benchmarks.orchestration.costs [--problems 64] [--repeats 3] [--top 15] [--smoke]

Times are under cProfile, whose own cost favours long functions. Times of builtins are those of their callers. Shares
are what to compare. The processor microseconds are of a sample of `best_of_n`, or of an expanded step of `beam`, least
of the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tts
from benchmarks.orchestration.plans import KINDS, make_solver, prompt_of, units_of
from benchmarks.smoke import Smoke
from tts.solver.run import solve_problem

PACKAGE = Path(tts.__file__).parent
# what is done -> files of tts/, folders of it, or functions of a file; the first that fits counts
DOINGS: Mapping[str, Sequence[str]] = {
    "plan rows": ("search/waves.py", "search/queue.py", "search/lengths.py"),
    "lease": ("budget/", "search/costs.py"),
    "row": ("search/rows.py", "search/ends.py", "search/tree.py", "thoughts.py"),
    "candidate": ("search/answers.py", "tasks/", "search/stop_rules/"),
    "score": ("search/scoring.py", "search/prompts.py", "verifiers/"),
    "calls of the strategy": ("search/search.py", "search/strategies/"),
    "begin and end of a run": (
        "solver/", "allocator/", "trace/", "search/plan.py", "search/parts.py", "search/selections/", "registry.py",
    ),
    "model": ("backends/",),
    "values and checks": ("",),
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What one function cost a unit.

    Args:
        place: Its file below tts/, or what else it is of.
        name: Its name in the file.
        micros: Its own microseconds, those of builtins that it called included.
        calls: Its calls.
    """

    place: str
    name: str
    micros: float
    calls: float

    @property
    def doing(self) -> str:
        """What it helps to do."""
        if not self.place.endswith(".py"):
            return self.place
        own = f"{self.place}:{self.name}"
        return next(
            doing
            for doing, of in DOINGS.items()
            if any(own == each or (":" not in each and own.startswith(each)) for each in of)
        )


def costs(kind: str, problems: int) -> list[Cost]:
    """Return the cost of each function in a run of so many problems at once, warm."""
    profile = cProfile.Profile(time.thread_time, builtins=False)
    solver = make_solver(kind)
    units = problems * units_of(kind)

    async def run() -> None:
        await solve_problem(solver.prepare(prompt_of(kind), 100_000))
        runs = [solver.prepare(prompt_of(kind), 100_000) for _ in range(problems)]
        profile.enable()
        await asyncio.gather(*map(solve_problem, runs))
        profile.disable()

    asyncio.run(run())
    return [
        Cost(_place(code.co_filename), code.co_name, entry.inlinetime / units * 1e6, entry.callcount / units)
        for entry in profile.getstats()
        if not isinstance(code := entry.code, str)
    ]


def _place(file: str) -> str:
    path = Path(file)
    if path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE).as_posix()
    if file == "<string>":
        return "methods that dataclasses write"
    return next((name for name in ("asyncio", "numpy") if name in path.parts), f"python's {path.stem}")


def sum_costs(found: Sequence[Cost], by: str) -> list[tuple[str, float, float]]:
    """Return (name, microseconds, calls) by an attribute of costs, the largest first."""
    micros: dict[str, float] = defaultdict(float)
    calls: dict[str, float] = defaultdict(float)
    for cost in found:
        micros[getattr(cost, by)] += cost.micros
        calls[getattr(cost, by)] += cost.calls
    return sorted(((name, micros[name], calls[name]) for name in micros), key=lambda row: -row[1])


def print_costs(kind: str, problems: int, repeats: int = 1, top: int = 15) -> None:
    """Print what a unit costs: by what is done, by file, and by function."""
    least = min((costs(kind, problems) for _ in range(repeats)), key=lambda each: sum(cost.micros for cost in each))
    whole = sum(cost.micros for cost in least)
    print(
        f"\nwhere the time of {kind} goes ({problems} problems, {whole:.0f} us and "
        f"{sum(cost.calls for cost in least):.0f} calls a unit):"
    )
    functions = [
        (f"{cost.place}:{cost.name}", cost.micros, cost.calls) for cost in sorted(least, key=lambda cost: -cost.micros)
    ]
    for title, rows in (
        ("done", sum_costs(least, "doing")),
        ("file", sum_costs(least, "place")),
        ("function", functions),
    ):
        print(f"  by {title:<46} {'us':>7} {'share':>6} {'calls':>6}")
        for name, micros, calls in rows[:top]:
            print(f"    {name:<48} {micros:7.2f} {micros / whole:6.1%} {calls:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", type=int, default=64, help="solved at once")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--top", type=int, default=15, help="lines of each table")
    parser.add_argument("--smoke", action=Smoke, sizes={"problems": 2, "repeats": 1})
    given = parser.parse_args()
    for kind in KINDS:
        print_costs(kind, given.problems, given.repeats, given.top)


if __name__ == "__main__":
    main()
