"""The gain over one sample that self-evaluation keeps where it stops early, beside best-of-16.

The pools have samples of expressions, with the policy's own verdicts. A run draws samples until the score of one
reaches a threshold, or all are drawn. It returns the sample with the greatest score. The threshold is the least one on
the validation split at which runs draw `WANTED` samples or more on average. A problem's figures are means over all
starts in its pool, taken as a ring.

Source: Manvi, Singh, Ermon, "Adaptive Inference-Time Compute" (2410.02725).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research.methods import running
from tts.experiments.analysis.pools import ProblemPool, pool_study, pools_of
from tts.experiments.store.store import Store

FILE = "claims_self_evaluation.json"
OPERATIONS, SAMPLES, WANTED = [3, 4, 5, 6], 16, 1.2
Floats = NDArray[np.float64]


def measure(store: Path, folder: Path, jobs: int, limit: int) -> None:
    """Draw what pools are missing, and write the figures of each problem.

    The figures are those of one sample, of runs that stop early with their samples, and of all samples.
    """
    columns = {
        split: [_columns(pool) for pool in _pools(store, jobs, split, limit)] for split in ("validation", "test")
    }
    threshold = choose_threshold(columns["validation"])
    runs = [replay_stops(scores, right, threshold) for scores, right in columns["test"]]
    figures = {
        "threshold": threshold,
        "one": [float(right.mean()) for _, right in columns["test"]],
        "stopped": [right for right, _ in runs],
        "samples": [drawn for _, drawn in runs],
        "many": [float(right[np.argmax(scores)]) for scores, right in columns["test"]],
    }
    (folder / FILE).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _pools(store: Path, jobs: int, split: str, limit: int) -> Sequence[ProblemPool]:
    problems = {"split": split, "operations": OPERATIONS, "limit": limit}
    study = running.make_study(
        f"claims-self-{split}",
        problems,
        ["best_of_n | best"],
        {"samples": SAMPLES},
        seeds=1,
        verifier="self_evaluation",
    )
    number = running.run(pool_study(study, SAMPLES), store, jobs)
    with Store(store) as opened:
        return pools_of(opened.results(number)).pools


def _columns(pool: ProblemPool) -> tuple[Floats, Floats]:
    """Return the scores of a pool's samples, and whether each is right.

    A sample without an answer has the least possible score.
    """
    scores = [one.scores.get("main", 0.0) if one.answer is not None else -1.0 for one in pool.drawn]
    return np.array(scores), np.array([float(bool(one.right)) for one in pool.drawn])


def replay_stops(scores: Floats, right: Floats, threshold: float) -> tuple[float, float]:
    """Return the share of right answers of runs that stop early, and their samples, over all starts.

    The samples of a pool are taken as a ring.
    """
    n, outcomes = len(scores), []
    for start in range(n):
        order = np.roll(np.arange(n), -start)
        good = np.flatnonzero(scores[order] >= threshold)
        drawn = int(good[0]) + 1 if len(good) else n
        outcomes.append((right[order[:drawn][np.argmax(scores[order[:drawn]])]], drawn))
    shares, counts = np.mean(outcomes, axis=0)
    return float(shares), float(counts)


def choose_threshold(pools: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the least threshold at which runs draw `WANTED` samples or more on average."""
    values = np.unique(np.concatenate([scores for scores, _ in pools]))
    for value in np.quantile(values, np.linspace(0, 1, 201)):
        if np.mean([replay_stops(scores, right, value)[1] for scores, right in pools]) >= WANTED:
            return float(value)
    return float(values[-1])
