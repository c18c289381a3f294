"""The gates that a pair must pass before it ships, each an estimate with its interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from research.pocket.evaluate.intervals import Intervals, Observed
from research.pocket.gates.drawing import Pool, Sampled, StepRead
from tts.statistics import Estimate

SHIP, FREE = 0.80, 0.77  # AUC within problems: the least that ships; what log-probabilities have for nothing
BEST_AT, WANTED = 32, 0.65  # samples, and the share right of the best of them
CALIBRATED = 0.05
COMPUTED = 0.99  # of sums and differences of two digits
WHEEL_MB, DEMO_S = 40.0, 60.0
Score = Callable[[Sampled], float]


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate.

    Args:
        name: The name.
        found: The figures, as a text.
        met: Whether the gate is met; None: it is for information.
    """

    name: str
    found: str
    met: bool | None

    def __str__(self) -> str:
        verdict = "" if self.met is None else "met" if self.met else "MISSED"
        name = self.name.replace("|", "\\|")  # a bar would end the cell
        return f"| {name} | {self.found} | {verdict} |"


def format_estimate(one: Estimate) -> str:
    """Return an estimate as tables show it."""
    return f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]"


def auc_of_samples(pools: Sequence[Pool], intervals: Intervals) -> list[Gate]:
    """Return how well readings, and log-probabilities beside them, rank the samples of one problem.

    The gate is on the readings.
    """
    rows: list[Gate] = []
    for name, score in _SCORES.items():
        observed = [Observed(score(one), one.right, i) for i, pool in enumerate(pools) for one in pool.samples]
        auc = intervals.auc_within(observed, "gate", "samples", name)
        text = f"{format_estimate(auc)}, {auc.num} problems with both kinds"
        met = auc.value >= SHIP and auc.low > FREE if name == "process" else None
        rows.append(Gate(f"AUC among samples of one problem, {name}", text, met))
    return rows


def _log_odds(one: Sampled) -> float:
    return math.log(max(one.reading, 1e-9)) - math.log(max(1 - one.reading, 1e-9))


def _reading(one: Sampled) -> float:
    return one.reading


_SCORES: dict[str, Score] = {
    "process": _reading,
    "log-probability": lambda one: one.logprob,
    "process and log-probability": lambda one: _log_odds(one) + one.logprob,  # as if they were independent
}


def auc_of_steps(steps: Sequence[StepRead], intervals: Intervals) -> list[Gate]:
    """Return how well readings rank the right next steps of one state of a countdown.

    The figures are over all states, over first steps and over second steps.
    """
    rows: list[Gate] = []
    for name, depths in (("all", (0, 1)), ("first", (0,)), ("second", (1,))):
        observed = [Observed(one.reading, one.leads, one.state) for one in steps if one.depth in depths]
        auc = intervals.auc_within(observed, "gate", "steps", name)
        met = auc.value >= SHIP and auc.low > FREE if name == "all" else None
        rows.append(
            Gate(
                f"AUC among {name} steps of one state, countdown",
                f"{format_estimate(auc)}, {auc.num} states with both kinds",
                met,
            )
        )
    return rows


def best_of_n(pools: Sequence[Pool], what: str, intervals: Intervals, *, wanted: float | None) -> list[Gate]:
    """Return the accuracy of the sample with the greatest reading among the first N, for each N.

    One gate says whether a doubling of N lowers the accuracy.

    Args:
        pools: The pools.
        what: The name of the problems.
        intervals: What makes estimates.
        wanted: The least accuracy at the largest N; None: it is for information.
    """
    sizes = [2**k for k in range(BEST_AT.bit_length()) if 2**k <= BEST_AT]
    chosen = {n: [float(max(pool.samples[:n], key=_reading).right) for pool in pools] for n in sizes}
    curve = ", ".join(f"{n}: {np.mean(chosen[n]):.3f}" for n in sizes)
    falls = [
        f"{small} to {large}"
        for small, large in pairwise(sizes)
        if intervals.difference(chosen[large], chosen[small], "gate", "best", what, large).high < 0
    ]
    last = intervals.share(chosen[BEST_AT], "gate", "best", what)
    anything = np.mean([any(one.right for one in pool.samples[:BEST_AT]) for pool in pools])
    once = np.mean([one.right for pool in pools for one in pool.samples])
    text = f"{curve}; any of {BEST_AT}: {anything:.3f}; one sample: {once:.3f}; {len(pools)} problems"
    return [
        Gate(
            f"best of 1 to {BEST_AT} by the process model never falls, {what}",
            f"{text}; falls: {', '.join(falls) or 'none'}",
            not falls,
        ),
        Gate(
            f"best of {BEST_AT} by the process model, {what}",
            format_estimate(last),
            None if wanted is None else last.value >= wanted,
        ),
    ]


def calibration(pools: Sequence[Pool], what: str, intervals: Intervals) -> Gate:
    """Return the calibration error of the last readings."""
    observed = [Observed(one.reading, one.right, i) for i, pool in enumerate(pools) for one in pool.samples]
    error = intervals.ece(observed, "gate", "ece", what)
    return Gate(f"ECE, {what}", format_estimate(error), error.value <= CALIBRATED)


def computing_gate(pools: Sequence[Pool], intervals: Intervals) -> Gate:
    """Return how many samples of sums and differences of two digits are right."""
    share = intervals.share(
        [float(np.mean([one.right for one in pool.samples])) for pool in pools], "gate", "computing"
    )
    return Gate(
        "one sample of a sum or a difference of two digits",
        f"{format_estimate(share)}, {len(pools)} problems",
        share.value >= COMPUTED,
    )


def ladder(pools: dict[int, Sequence[Pool]]) -> Gate:
    """Return the share of right samples, and of problems with a right one, by the number of operations."""
    rungs = []
    for size, of in pools.items():
        right = np.array([np.mean([one.right for one in pool.samples]) for pool in of])
        rungs.append(f"{size}: {right.mean():.3f}, {np.mean(right > 0):.3f} of {len(of[0].samples)}")
    return Gate("one sample, and any of several, by the number of operations", "; ".join(rungs), None)


def nearest_rung(pools: dict[int, Sequence[Pool]], target: float = 0.4) -> int:
    """Return the number of operations whose accuracy of one sample is nearest a target."""
    return min(
        pools,
        key=lambda size: abs(float(np.mean([one.right for pool in pools[size] for one in pool.samples])) - target),
    )
