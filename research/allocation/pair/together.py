"""Problems that share one total, by `solve_many`.

Each total and seed is run once, and stored like any other results.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.allocation.pair import studies
from research.methods import running
from tts import tasks
from tts.allocator.allocate import Allocator
from tts.budget.budget import Budget
from tts.experiments.run.candidates import judge_answer
from tts.experiments.run.runner import PreparedStudy
from tts.experiments.store.store import Store
from tts.experiments.study import grid
from tts.experiments.study.record import Cell, Result
from tts.experiments.study.snapshot import snapshot
from tts.solver.solver import Solver
from tts.types import Problem, Solution


def results(path: Path, plan: str, totals: Sequence[int], limit: int, seeds: int, jobs: int) -> list[Result]:
    """Return the results of test problems under totals; runs that the store lacks are run first.

    Args:
        path: The store.
        plan: The strategy.
        totals: The totals, in tokens of a problem.
        limit: The number of problems.
        seeds: The number of seeds.
        jobs: The number of processes.
    """
    pairs = [(seed, each) for seed in range(seeds) for each in totals]
    helpers = [
        multiprocessing.get_context("spawn").Process(target=_run_all, args=(path, plan, pairs[i::jobs], limit))
        for i in range(1, jobs)
    ]
    for helper in helpers:
        helper.start()
    _run_all(path, plan, pairs[::jobs], limit)
    for helper in helpers:
        helper.join()
    return _run_all(path, plan, pairs, limit)


def read_timings(path: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of decisions, and the other figures of each run, by its name."""
    files = sorted(path.parent.glob(f"{path.name}.together-*.json"))
    return dict(
        sorted(
            (file.name.removeprefix(f"{path.name}.together-").removesuffix(".json"), json.loads(file.read_text()))
            for file in files
        )
    )


def _run_all(path: Path, plan: str, pairs: Sequence[tuple[int, int]], limit: int) -> list[Result]:
    every: list[Result] = []
    for seed, each in pairs:
        study = running.make_study(
            f"allocator-together-{each}-{seed}",
            studies.problems(studies.TEST, limit),
            [plan],
            {"tokens": each},
            seeds=1,
            verifier=studies.VERIFIER,
        ).model_copy(update={"seeds": [seed]})
        with Store(path) as store, PreparedStudy(study) as prepared:
            number = store.begin(study.name, snapshot(study, prepared.problems, prepared.executor.settings))
            cells = list(map(_shared_cell, prepared.cells()))
            store.add(number, cells)
            if store.counts(number).pending:
                _run(store, cells, prepared.problems, plan, each, seed)
            every += store.results(number, drawn=False)
    return every


def _shared_cell(cell: Cell) -> Cell:
    """Return the cell of a problem that shares the total; its key differs from that of the problem alone."""
    return dataclasses.replace(cell, key=grid.key(cell.key, "together"))


def _run(store: Store, cells: Sequence[Cell], problems: grid.Problems, plan: str, each: int, seed: int) -> None:
    chosen = [problems[cell.dataset][cell.problem] for cell in cells]
    total = each * len(chosen)
    with Solver("pocket", studies.VERIFIER, strategy=plan) as solver, _Deciding() as decided:
        # the model is loaded before the clock starts
        solver.solve(chosen[0], Budget(samples=1), strategy="best_of_n | majority")
        began = time.perf_counter()
        solutions = solver.solve_many(chosen, Budget(tokens=total), seed=seed)
        wall = time.perf_counter() - began
    if (spent := sum(solution.usage.tokens for solution in solutions)) > total:
        raise SystemExit(f"{spent} tokens were spent of a total of {total}")
    figures = {
        "problems": len(chosen),
        "seconds": wall,
        "deciding": decided.seconds,
        "waves": decided.waves,
        "spent": spent / total,
    }
    name = f"{each:03} tokens, seed {seed}"
    store.path.with_name(f"{store.path.name}.together-{name}.json").write_text(json.dumps(figures), encoding="utf-8")
    print(f"{plan}, {name}: {figures}", flush=True)
    for cell, problem, solution in zip(cells, chosen, solutions, strict=True):
        store.finish(secrets.token_hex(8), _result(cell, problem, solution))


def _result(cell: Cell, problem: Problem, solution: Solution) -> Result:
    task = tasks.get(problem.task or "pocket")
    return Result(
        cell=cell,
        answer=solution.answer,
        right=judge_answer(solution.answer, task, problem),
        confidence=solution.confidence,
        stopped_by=solution.stopped_by,
        usage=solution.usage,
        failures=solution.failures,
        warnings=solution.warnings,
        seconds_at=time.time(),
    )


class _Deciding:
    """A context manager that counts the waves of every allocator, and the seconds that they take."""

    def __init__(self) -> None:
        self.seconds, self.waves = 0.0, 0
        self._kept = {name: getattr(Allocator, name) for name in ("next", "adapt")}

    def __enter__(self) -> _Deciding:
        for name, method in self._kept.items():
            setattr(Allocator, name, self._time_method(name, method))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._kept.items():
            setattr(Allocator, name, method)

    def _time_method(self, name: str, method: Any) -> Any:
        def run_method(allocator: Allocator, state: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(allocator, state)
            finally:
                self.seconds += time.perf_counter() - began
                self.waves += name == "next"

        return run_method
