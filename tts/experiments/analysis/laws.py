"""Fits laws to curves over samples: coverage, saturation, and the problems that separate two curves.

Sources: algorithms A18 (coverage) and A17 (saturation), as fitted in `tts.statistics`, on the problems that a curve has
at every point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts.experiments.analysis.averaging import MEASURES
from tts.experiments.analysis.curves import Curve, Floats
from tts.experiments.analysis.replay import COVERAGE
from tts.statistics import Estimate, Fit, fit_coverage, fit_saturation, paired_difference, problems_needed

_TOLD_APART = 0.02  # difference in accuracy that is to be resolved
_LEAST_POINTS = 3


def describe_laws(curves: Sequence[Curve]) -> list[str]:
    """Return a line for each law, and for the comparison of each selection with the first one.

    Selections are compared at the largest size of both. A random choice and pass^k have no law, and are compared after
    the selections.
    """
    rng = np.random.default_rng(0)
    lines = [_law(curve, rng) for curve in curves if curve.label == COVERAGE or curve.label not in MEASURES]
    selections = sorted(
        (curve for curve in curves if curve.label != COVERAGE), key=lambda curve: curve.label in MEASURES
    )
    return [*lines, *(_told_apart(curve, selections[0], rng) for curve in selections[1:])]


def _law(curve: Curve, rng: np.random.Generator) -> str:
    k, shares = _whole(curve)
    if len(k) < _LEAST_POINTS or not shares.size:
        return f"{curve.label}: no law: it takes {_LEAST_POINTS} sizes that all problems have"
    if curve.label == COVERAGE:
        law = fit_coverage(k, shares, rng=rng)
        if furthest := _furthest_point(curve, law.fit):
            return f"{curve.label}: no law: coverage(k) = exp(a k^b) leaves out {furthest}"
        parameters = f"a = {_show(law.a)}, b = {_show(law.b)}"
        return f"{curve.label}: coverage(k) = exp(a k^b) with {parameters}; at most {100 * law.fit.gap:.1f} points off"
    saturation = fit_saturation(k, shares, rng=rng)
    if furthest := _furthest_point(curve, saturation.fit):
        return f"{curve.label}: no law: what tends to a ceiling leaves out {furthest}"
    gain_words = f"one more sample gains at most a point from {_show(saturation.enough)} samples on"
    return (
        f"{curve.label}: tends to {_show(saturation.ceiling, 100)} %; {gain_words}; the law is at most "
        f"{100 * saturation.fit.gap:.1f} points off"
    )


def _furthest_point(curve: Curve, fit: Fit) -> str:
    """Return the point whose interval a law misses most, as a phrase; "": the law is within all intervals."""
    order = np.argsort(curve.costs["samples"], kind="stable")
    points = [(curve.accuracy[i], k, value) for i, k, value in zip(order, fit.k, fit.fitted, strict=True)]
    outside = [
        (abs(value - point.value), point, k) for point, k, value in points if not point.low <= value <= point.high
    ]
    if not outside:
        return ""
    gap, point, k = max(outside, key=lambda item: item[0])
    return f"the measured {_show(point, 100)} % at {k:g} samples, by {100 * gap:.1f} points"


def _told_apart(curve: Curve, base: Curve, rng: np.random.Generator) -> str:
    """Return a line on the paired difference at the largest size, with the problems that two points take."""
    if list(curve.problems) != list(base.problems):
        return f"{curve.label} and {base.label}: not on the same problems"
    mine, theirs = (one.shares[np.argmax(one.costs["samples"])] for one in (curve, base))
    is_common = ~np.isnan(mine + theirs)
    difference = paired_difference(mine[is_common], theirs[is_common], rng=rng)
    num_problems = problems_needed(_TOLD_APART, difference.spread) if is_common.sum() > 1 else 0
    return (
        f"{curve.label} against {base.label}, at the largest size: {_show(difference.mean, 100)} points, McNemar's p "
        f"{difference.mcnemar:.2g};"
        f" to see {100 * _TOLD_APART:.0f} points takes about {num_problems:,} problems (there are {is_common.sum():,})"
    )


def _whole(curve: Curve) -> tuple[Floats, Floats]:
    """Return sizes [K], ascending, and shares [P, K] of the problems with a value at every point."""
    order = np.argsort(curve.costs["samples"], kind="stable")
    shares = curve.shares[order]
    complete = shares[:, ~np.isnan(shares).any(axis=0)].T
    return curve.costs["samples"][order], complete.clip(0.0, 1.0)  # averages over subsets are rounded


def _show(estimate: Estimate, times: float = 1) -> str:
    value, low, high = (times * each for each in (estimate.value, estimate.low, estimate.high))
    return f"{value:.3g} [{low:.3g}, {high:.3g}]"
