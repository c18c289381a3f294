"""Where the time of a search goes on a model that answers at once: by work, by file and by function.

    python -m benchmarks.orchestration.costs [--problems 64] [--repeats 3] [--top 15] [--smoke]

Times are under cProfile, whose own cost favours long functions. Times of builtins are those of their callers. Shares
are what to compare. The processor microseconds are of a sample of `best_of_n`, or of an expanded step of `beam`, least
of the repeats. Calls are exact: they are entries of Python functions, and a coroutine that is resumed is entered again.
The floor is what lies between strategies and backends.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import tts
from benchmarks.orchestration.plans import KINDS, make_solver, prompt_of, units_of
from benchmarks.smoke import Smoke
from tts.solver.model_cache import LOOP

PACKAGE = Path(tts.__file__).parent
# what is done -> files of tts/, folders of it, or functions of a file; the first that fits counts
DOINGS: Mapping[str, Sequence[str]] = {
    "plan rows": ("search/plan_rows.py", "search/sizes.py", "search/lengths.py"),
    "lease": ("budget/", "search/costs.py"),
    "row": ("search/writer.py", "search/rows.py", "search/ends.py", "search/tree.py", "thoughts.py"),
    "candidate": ("search/answers.py", "tasks/", "search/stop_rules/"),
    "score": ("search/scoring.py", "search/calls.py", "search/prompts.py", "verifiers/"),
    "calls of the strategy": ("search/search.py", "search/reading.py", "search/strategies/"),
    "begin and end of a run": (
        "solver/", "allocator/", "trace/", "search/plan.py", "search/parts.py", "search/selections/", "registry.py",
    ),
    "model": ("backends/",),
    "values and checks": ("",),
}  # fmt: skip
FLOOR = ("search/", "budget/", "solver/")
NO_FLOOR = ("search/strategies/", "search/selections/")


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
    """Return the cost of each function in a run of so many problems at once, warm.

    The caller's thread runs the event loop too, so no call depends on when another thread goes on.
    """
    profile = cProfile.Profile(time.thread_time, builtins=False)
    prompts, units = [prompt_of(kind)] * problems, problems * units_of(kind)
    with asyncio.Runner() as runner, mock.patch.object(LOOP, "run", runner.run), make_solver(kind) as solver:
        solver.solve_many(prompts[:1], each=100_000)
        gc.collect()
        gc.disable()  # a collection would run finalizers, also those of earlier runs
        try:
            profile.runcall(solver.solve_many, prompts, each=100_000)
        finally:
            gc.enable()
    return [
        Cost(_place(code.co_filename), code.co_name, entry.inlinetime / units * 1e6, entry.callcount / units)
        for entry in profile.getstats()
        if not isinstance(code := entry.code, str)
    ]


def count_calls(found: Sequence[Cost]) -> tuple[float, float]:
    """Return the calls a unit: all, and those of the floor."""
    floor = [cost.calls for cost in found if cost.place.startswith(FLOOR) and not cost.place.startswith(NO_FLOOR)]
    return sum(cost.calls for cost in found), sum(floor)


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
    calls, floor = count_calls(least)
    print(
        f"\nwhere the time of {kind} goes ({problems} problems, {whole:.0f} us and {calls:.1f} calls a unit; "
        f"{floor:.1f} calls of the floor):"
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
        for name, micros, count in rows[:top]:
            print(f"    {name:<48} {micros:7.2f} {micros / whole:6.1%} {count:6.2f}")


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
