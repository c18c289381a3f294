"""A study of the embedded pair, run in one process or several that share a store; stopped, it goes on where it was."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from research.stamps import refuse_mixture
from tts.experiments.run import runner
from tts.experiments.run.progress import show_progress
from tts.experiments.store.store import Store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig

CONCURRENCY = 128  # cells in flight at once; results do not depend on it


def asked(
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
        SystemExit: it was interrupted, cells failed, or the store has results of another commit or result version.
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
