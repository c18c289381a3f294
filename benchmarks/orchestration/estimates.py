"""Cost of statistics of a million rows: processor time, peak memory, and their growth with the rows.

    python -m benchmarks.orchestration.estimates [--rows 1000000] [--only WORD] [--smoke]

Each statistic runs in a process of its own, on a sixteenth of the rows, a quarter, and all of them. Growth is the
exponent of the processor's time from the first size to the last, and from the second; 1 is linear. Intervals are of
2,000 resamples, as everywhere.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.queues import Queue

import numpy as np

from benchmarks.smoke import Smoke
from tts import statistics


def shares(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return accuracies of problems over three seeds."""
    return rng.binomial(3, rng.beta(2, 2, rows)) / 3


def accuracy(rows: int, rng: np.random.Generator) -> None:
    statistics.clustered_mean(shares(rows, rng), rng=rng, bounds=(0, 1))


def tokens(rows: int, rng: np.random.Generator) -> None:
    statistics.clustered_mean(rng.lognormal(6, 1, rows), rng=rng)


def table(rows: int, rng: np.random.Generator) -> None:
    for _ in range(math.ceil(rows / 600)):
        statistics.clustered_mean(shares(200, rng), rng=rng, bounds=(0, 1))


def pairs(rows: int, rng: np.random.Generator) -> None:
    statistics.paired_difference(shares(rows, rng), shares(rows, rng), rng=rng)


def pairs_of_tokens(rows: int, rng: np.random.Generator) -> None:
    statistics.paired_difference(rng.lognormal(6, 1, rows), rng.lognormal(6, 1, rows), rng=rng, most=None)


def coverage_law(rows: int, rng: np.random.Generator) -> None:
    k = statistics.space_sizes(32)
    statistics.fit_coverage(k, statistics.pass_at_k(32, rng.binomial(32, rng.beta(0.3, 1, rows))[:, None], k), rng=rng)


def saturation(rows: int, rng: np.random.Generator) -> None:
    k = statistics.space_sizes(32)
    statistics.fit_saturation(
        k, statistics.pass_at_k(32, rng.binomial(32, rng.beta(0.3, 1, rows))[:, None], k), rng=rng
    )


def pools(rows: int, rng: np.random.Generator) -> None:
    for _ in range(math.ceil(rows / 32)):
        answers, scores = np.minimum(rng.geometric(0.4, 32) - 1, 8), rng.random(32)
        for select in (statistics.best_at_k, lambda a, s, *more: statistics.weighted_at_k(a, s, *more, rng=rng)):
            select(answers, scores, answers == 0, [1, 2, 4, 8, 16, 32])
        statistics.majority_at_k(answers, answers == 0, [1, 2, 4, 8, 16, 32])


def auc(rows: int, rng: np.random.Generator) -> None:
    statistics.clustered_auc(
        rng.normal(size=rows), rng.random(rows) < 0.4, rng.integers(0, max(2, rows // 8), rows), rng=rng
    )


def calibration(rows: int, rng: np.random.Generator) -> None:
    scores = rng.random(rows)
    statistics.clustered_calibration_error(
        scores, rng.random(rows) < scores, rng.integers(0, max(2, rows // 8), rows), rng=rng
    )


STEPS: dict[str, Callable[[int, np.random.Generator], None]] = {
    "accuracy of one problem a row": accuracy,
    "mean tokens of one problem a row": tokens,
    "a table, 600 rows a cell": table,
    "paired accuracies": pairs,
    "paired tokens": pairs_of_tokens,
    "law of coverage": coverage_law,
    "saturation": saturation,
    "selections at 6 sizes, 32 samples a pool": pools,
    "AUC, 8 rows a problem": auc,
    "calibration error, 8 rows a problem": calibration,
}


def measure(name: str, rows: int, out: Queue[tuple[float, float]]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    STEPS[name](rows, np.random.default_rng(0))
    out.put((time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="steps whose name has this word")
    parser.add_argument("--smoke", action=Smoke, sizes={"rows": 1600})
    options = parser.parse_args()
    sizes = [options.rows // 16, options.rows // 4, options.rows]
    context = multiprocessing.get_context("spawn")
    print(
        f"{'step':42s} {'seconds at ' + ', '.join(f'{size:,}' for size in sizes):>44s} {'growth':>12s} "
        f"{'MiB added':>10s}"
    )
    for name in STEPS:
        if options.only not in name:
            continue
        measured: list[tuple[float, float]] = []
        for size in sizes:
            out = context.Queue()
            process = context.Process(target=measure, args=(name, size, out))
            process.start()
            measured.append(out.get())
            process.join()
        seconds = [max(each, 1e-3) for each, _ in measured]
        growth = [math.log(seconds[2] / seconds[i]) / math.log(sizes[2] / sizes[i]) for i in (0, 1)]
        listed = "".join(f"{each:14.2f}" for each in seconds)
        print(f"{name:42s} {listed:>44s} {growth[0]:6.2f}{growth[1]:6.2f} {measured[2][1]:10.0f}", flush=True)


if __name__ == "__main__":
    main()
