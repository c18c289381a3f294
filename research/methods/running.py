"""A study of the embedded pair, run in one process or in several that share a store.

A study that was stopped goes on where it ended.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.stamps import refuse_mixture
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.run import runner
from tts.experiments.run.progress import show_progress
from tts.experiments.store.store import Store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.record import Result

CONCURRENCY = 128  # cells in flight at once; results do not depend on it


def make_study(
    name: str,
    problems: Mapping[str, Any],
    strategies: Sequence[str],
    budgets: Mapping[str, Any],
    *,
    seeds: int,
    verifier: str,
    traces: int = 0,
) -> StudyConfig:
    """Return a study of problems, arithmetic ones where they name no data set."""
    return config.study_config(
        {
            "name": name, "models": "pocket", "verifiers": verifier, "problems": {"dataset": "arithmetic", **problems},
            "strategies": list(strategies), "budgets": dict(budgets), "seeds": seeds, "record": {"traces": traces},
            "concurrency": CONCURRENCY,
        }
    )  # fmt: skip


def run(study: StudyConfig, path: Path, jobs: int) -> int:
    """Run what a study lacks, in so many processes, and return its number in the store.

    Raises:
        SystemExit: The study was interrupted, cells failed, or the store has results of another version.
    """
    refuse_mixture(path)
    helpers = [multiprocessing.get_context("spawn").Process(target=_run, args=(study, path)) for _ in range(jobs - 1)]
    for helper in helpers:
        helper.start()
    try:
        ended = _run(study, path, show=True)
    finally:
        for helper in helpers:
            helper.join()
    if ended.interrupted or ended.counts.failed:
        raise SystemExit(f"{study.name}: {ended.counts}; the same command goes on with it")
    return ended.study


def _run(study: StudyConfig, path: Path, *, show: bool = False) -> runner.RunSummary:
    with Store(path) as store, runner.PreparedStudy(study) as prepared:
        if not show:
            return runner.run(prepared, store)
        with show_progress(study.name) as report:
            return runner.run(prepared, store, report=report)


def curves_by_budget(results: Iterable[Result]) -> dict[tuple[str, str], Curve]:
    """Return the curve of each strategy and model, with a point for every budget, the smallest first.

    `curves_of` makes one point of budgets that made no difference, but a table has a row for each budget.

    Args:
        results: The results of a study whose budgets limit one unit.
    """
    grouped: dict[tuple[str, str, float], list[Result]] = {}
    for result in results:
        [limit] = result.cell.budget.values()
        grouped.setdefault((result.cell.strategy, result.cell.model, float(limit)), []).append(result)
    points: dict[tuple[str, str], list[Curve]] = {}
    for (strategy, model, _), of in sorted(grouped.items(), key=lambda one: one[0]):
        points.setdefault((strategy, model), []).extend(curves_of(of, rng=np.random.default_rng(0)))
    return {line: _join(curves) for line, curves in points.items()}


def _join(curves: Sequence[Curve]) -> Curve:
    first = curves[0]
    assert all(list(curve.problems) == list(first.problems) for curve in curves), "a problem was not run at each budget"
    return dataclasses.replace(
        first,
        costs={axis: np.concatenate([curve.costs[axis] for curve in curves]) for axis in first.costs},
        accuracy=[accuracy for curve in curves for accuracy in curve.accuracy],
        shares=np.concatenate([curve.shares for curve in curves]),
        failed=sum(curve.failed for curve in curves),
    )
