"""The policy's own judgement of whether a fresh start would do better.

The page shows how much of the gain of 16 samples this judgement reaches, and with how few samples.

Source: algorithm A13 (Manvi, Singh and Ermon 2410.02725). The paper reports 74 % of that gain with 1.2 samples on
average. Its policy has 8 billion parameters and chooses among its samples by the same judgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from research.allocation.pair import studies
from research.methods import running
from tts.experiments.store.store import Store
from tts.experiments.study.record import Result
from tts.statistics import Estimate, bootstrap, ratio

MOST = 16
THRESHOLDS = (0.9, 0.95, 0.98)  # the word is calibrated, and mostly above 0.9: see the pair's card
ONE, ALL = "single | majority", f"best_of_n(n={MOST}) | best"


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """A strategy that goes by the judgement.

    Args:
        strategy: The plan.
        samples: The mean samples of a problem.
        tokens: The mean tokens of a problem.
        accuracy: The share of right answers.
        share: The share of the gain of 16 samples over one.
    """

    strategy: str
    samples: float
    tokens: float
    accuracy: float
    share: Estimate


def measure(store: Path, jobs: int, limit: int) -> list[Restarts]:
    """Run what the store lacks, and return a row for one sample, several thresholds and all samples."""
    adaptive = [
        f"adaptive(n={MOST}, threshold={theta}{start})" for start in ("", ", start=0.0") for theta in THRESHOLDS
    ]
    study = running.make_study(
        "allocator-restarts",
        studies.problems(studies.TEST, limit),
        [ONE, *adaptive, ALL],
        {"samples": MOST},
        seeds=1,
        verifier="self_evaluation",
    )
    number = running.run(study, store, jobs)
    by_strategy: dict[str, dict[str, Result]] = {}
    with Store(store) as opened:
        for one in opened.results(number, drawn=False):
            by_strategy.setdefault(one.cell.strategy, {})[one.cell.problem] = one
    least, most = (
        _right_shares(next(of for name, of in by_strategy.items() if name.startswith(plan.split(" |", maxsplit=1)[0])))
        for plan in (ONE, ALL)
    )
    return [_restarts(name, list(of.values()), _right_shares(of), least, most) for name, of in by_strategy.items()]


def _right_shares(of: dict[str, Result]) -> Sequence[float]:
    return [float(of[problem].right is True) for problem in sorted(of)]


def _restarts(
    name: str, of: Sequence[Result], mine: Sequence[float], least: Sequence[float], most: Sequence[float]
) -> Restarts:
    own, whole = (np.array(each) - np.array(least) for each in (mine, most))
    share = bootstrap(lambda counts: ratio(counts @ own, counts @ whole), len(own), np.random.default_rng(0))
    samples, tokens = (float(np.mean([getattr(one.usage, axis) for one in of])) for axis in ("samples", "tokens"))
    return Restarts(strategy=name, samples=samples, tokens=tokens, accuracy=float(np.mean(mine)), share=share)
