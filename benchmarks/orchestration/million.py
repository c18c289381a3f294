"""Cost of a run of a million problems besides models: the toy backend, all else as in any study.

    python -m benchmarks.orchestration.million [--sizes 2000 8000 32000] [--problems 1000000] [--folder DIR] [--smoke]

Each size is a whole study in a store of its own: problems made, cells added, run by `best_of_n(n=4) | majority`,
results written one transaction each, and the final table read. Seconds are CPU seconds of this process. The growth
exponent is the slope of log seconds over log size; 1 is linear. `--problems` adds a study of that size, which takes as
long as the table predicts.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.smoke import Smoke
from tts.experiments.analysis.table import table
from tts.experiments.datasets import DataSet
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig, study_config
from tts.types import Problem

STEPS = ("problems", "run", "table")


def sums(*, limit: int = 1000) -> list[Problem]:
    """Return sums of three numbers, all different.

    To draw as many from the arithmetic family would take hours.
    """
    terms = itertools.islice(itertools.product(range(10, 110), repeat=3), limit)
    return [Problem(f"{a} + {b} - {c}", str(a + b - c), f"sums/{a}/{b}/{c}", "arithmetic") for a, b, c in terms]


SUMS = DataSet(load=sums, source="this file", licence="Apache-2.0")
DATASET = "benchmarks.orchestration.million:SUMS"


def make_study(size: int) -> StudyConfig:
    return study_config(
        {
            "name": f"{size} problems",
            "models": "toy",
            "problems": {"dataset": DATASET, "limit": size},
            "verifiers": "none",
            "strategies": "best_of_n(n=4) | majority",
            "budgets": {"samples": 4},
        }
    )


def measure(size: int, folder: Path) -> tuple[dict[str, float], float, float]:
    """Return CPU seconds by step, wall seconds of all steps, and MiB of the store, for one study."""
    seconds: dict[str, float] = {}

    @contextmanager
    def time_step(step: str) -> Iterator[None]:
        started = time.process_time()
        yield
        seconds[step] = time.process_time() - started

    began = time.perf_counter()
    file = folder / f"{size}.sqlite"
    with time_step("problems"):
        prepared = PreparedStudy(make_study(size))
    with prepared, Store(file) as store:
        with time_step("run"):
            ended = run(prepared, store)
        with time_step("table"):
            (row,) = table(store.results(ended.study, drawn=False), rng=np.random.default_rng(0))
    assert row.runs == size, f"{row.runs} of {size} cells came to a result"
    return seconds, time.perf_counter() - began, file.stat().st_size / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 8000, 32000])
    parser.add_argument("--problems", type=int, help="one more size, such as 1000000")
    parser.add_argument("--folder", type=Path, help="where the stores are kept; else they are deleted")
    parser.add_argument("--smoke", action=Smoke, sizes={"sizes": [20, 40]})
    options = parser.parse_args()
    sizes = [*options.sizes, *([options.problems] if options.problems else [])]
    with tempfile.TemporaryDirectory() as scratch:
        measure(200, Path(scratch))  # imports and compiles
    print(
        f"{'problems':>9}  {'made':>7}  {'run':>8}  {'table':>7}  {'cells a CPU second':>18}  {'wall s':>8}  "
        f"{'store MiB':>9}"
        f"  {'peak MiB':>8}"
    )
    rows: list[dict[str, float]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            seconds, wall, store = measure(size, options.folder or Path(scratch))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shown = "  ".join(f"{seconds[step]:{width}.2f}" for step, width in zip(STEPS, (7, 8, 7), strict=True))
        print(
            f"{size:9,}  {shown}  {size / sum(seconds.values()):18,.0f}  {wall:8.1f}  {store:9.1f}  {peak:8.0f}",
            flush=True,
        )
        rows.append(seconds)
    if len(sizes) > 1:
        slopes = {step: np.polyfit(np.log(sizes), np.log([row[step] for row in rows]), 1)[0] for step in STEPS}
        print("growth exponents: " + ", ".join(f"{step} {slope:.2f}" for step, slope in slopes.items()))
        last = sum(rows[-1].values()) / sizes[-1]
        print(f"a million problems, at the rate of the last row: {last * 1e6 / 60:,.0f} CPU minutes besides models")


if __name__ == "__main__":
    main()
