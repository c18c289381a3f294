"""Cost of a store of a million results: time, rate and peak memory of each step, and their growth.

    python -m benchmarks.orchestration.store [--rows 1000000] [--conditions 20] [--seeds 3] [--smoke]

Each step runs in a process of its own, on a sixteenth of the rows, a quarter, and all of them. Growth is the exponent
of the processor's time in the rows, from the second size to the third; 1 is linear. One worker writes one transaction a
result, as in a study. Rows are synthetic, with texts and counts of about the size of real ones, and without recorded
candidates.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np

from benchmarks.smoke import Smoke
from tts.experiments.analysis.table import table
from tts.experiments.output.export import export
from tts.experiments.store.store import Store
from tts.experiments.study.record import Cell, Result
from tts.types import Usage

LEASE = 256  # cells a lease


def cells(rows: int, conditions: int, seeds: int) -> Iterator[Cell]:
    """Yield cells in a grid's order: by condition, problem and seed."""
    for i in range(rows):
        condition, run = divmod(i, math.ceil(rows / conditions))
        problem, seed = divmod(run, seeds)
        yield Cell(
            key=f"{i:064x}"[::-1],  # in no order, as hashes are
            dataset="arithmetic",
            problem=f"arithmetic/test/{problem}",
            group=f"{problem % 6 + 2} operations",
            model="pocket",
            setting="f" * 64,
            verifiers={"process": "pocket-process"},
            strategy=f"best_of_n(n={condition + 1}) | weighted",
            budget={"tokens": 512 * (condition + 1)},
            seed=seed,
        )


def result(cell: Cell) -> Result:
    """Return what might have come of a cell."""
    number = int(cell.problem.rpartition("/")[2])
    usage = Usage(
        prompt_tokens=21,
        reused_tokens=40,
        generated_tokens=300 + number % 97,
        verifier_tokens=280,
        verifier_calls=8,
        samples=8,
        flops=2_900_000_000 + number,
        usd=None,
        seconds=0.31,
        work_seconds=2.1,
        peak_kv_tokens=311,
        saved_kv_tokens=150,
        kv_bytes_per_token=3072,
    )
    right = (number * 7919 + cell.seed) % 10 < 6
    return Result(
        cell=cell,
        answer=str(number % 101),
        right=right,
        confidence=0.75,
        stopped_by="samples drawn",
        usage=usage,
        seconds_at=1.7e9,
    )


def add(store: Store, study: int, given: argparse.Namespace) -> None:
    store.add(study, cells(given.rows, given.conditions, given.seeds))


def write(store: Store, study: int, given: argparse.Namespace) -> None:
    while leased := store.lease(study, "worker", LEASE):
        for cell in leased:
            store.finish("worker", result(cell))


def load(store: Store, study: int, given: argparse.Namespace) -> None:
    assert sum(1 for _ in store.results(study)) == given.rows


def tabulate(store: Store, study: int, given: argparse.Namespace) -> None:
    assert sum(row.runs for row in table(store.results(study), rng=np.random.default_rng(0))) == given.rows


def count(store: Store, study: int, given: argparse.Namespace) -> None:
    assert store.find("benchmark").done == given.rows


def write_parquet(store: Store, study: int, given: argparse.Namespace) -> None:
    export(store.results(study), store.path.with_suffix(".parquet"))


STEPS: dict[str, Callable[[Store, int, argparse.Namespace], None]] = {
    "add the cells": add,
    "lease and finish": write,
    "load all results": load,
    "load and tabulate": tabulate,
    "count": count,
    "export to Parquet": write_parquet,
}


def step(name: str, path: str, options: argparse.Namespace, found: Queue[tuple[float, float, float]]) -> None:
    """Measure a step in this process: its seconds, the processor's seconds, and its peak memory in MB."""
    with Store(path) as store:
        study = store.begin("benchmark", {"configuration": options.rows})
        began, worked = time.perf_counter(), time.process_time()
        STEPS[name](store, study, options)
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
    found.put((seconds, processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def measure_store(path: str, options: argparse.Namespace) -> dict[str, float]:
    """Run all steps on one store, each in a process of its own; return the processor's seconds."""
    context = multiprocessing.get_context("spawn")
    processors: dict[str, float] = {}
    for name in STEPS:
        queue = context.Queue()
        process = context.Process(target=step, args=(name, path, options, queue))
        process.start()
        seconds, processors[name], memory = queue.get()
        process.join()
        rate = options.rows / processors[name]
        rates = f"{seconds:>9.2f} s {processors[name]:>9.2f} s of processor {rate:>10,.0f} rows/s"
        print(f"{options.rows:>10,}  {name:<18} {rates} {memory:>7,.0f} MB", flush=True)
    return processors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--conditions", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--smoke", action=Smoke, sizes={"rows": 160})
    options = parser.parse_args()
    sizes = [options.rows // 16, options.rows // 4, options.rows]
    with tempfile.TemporaryDirectory() as folder:
        runs: list[dict[str, float]] = []
        for size in sizes:
            path = Path(folder, f"{size}.sqlite")
            runs.append(measure_store(str(path), argparse.Namespace(**vars(options) | {"rows": size})))
        print(f"file: {path.stat().st_size / 2**20:,.0f} MB, {path.stat().st_size / sizes[-1]:,.0f} bytes a row")
        for name in STEPS:
            growth = math.log(runs[2][name] / runs[1][name]) / math.log(sizes[2] / sizes[1])
            print(f"{name:<18} grows as rows^{growth:.2f}")


if __name__ == "__main__":
    main()
