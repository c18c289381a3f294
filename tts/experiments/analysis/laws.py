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

_RESOLVED_DIFFERENCE = 0.02  # difference in accuracy that a comparison should show
_LEAST_POINTS = 3


def describe_laws(curves: Sequence[Curve]) -> list[str]:
    """Return a line for each law, and for the comparison of each selection with the first one.

    Selections are compared at the largest size of both. A random choice and pass^k have no law, and are compared after
    the selections.
    """
    rng = np.random.default_rng(0)
    lines = [_law(curve, rng) for curve in curves if curve.label == COVERAGE or curve.label not in MEASURES]
    compared_curves = [curve for curve in curves if curve.label != COVERAGE]
    compared_curves.sort(key=lambda curve: curve.label in MEASURES)
    for curve in compared_curves[1:]:
        lines.append(_describe_difference(curve, compared_curves[0], rng))
    return lines


def _law(curve: Curve, rng: np.random.Generator) -> str:
    """Return the line of the law that fits a curve, or of the reason why no law fits."""
    k, shares = _complete_shares(curve)
    if len(k) < _LEAST_POINTS or not shares.size:
        return f"{curve.label}: no law: it takes {_LEAST_POINTS} sizes that all problems have"
    if curve.label == COVERAGE:
        law = fit_coverage(k, shares, rng=rng)
        furthest = _furthest_point(curve, law.fit)
        if furthest:
            return f"{curve.label}: no law: coverage(k) = exp(a k^b) leaves out {furthest}"
        parameters = f"a = {_show(law.a)}, b = {_show(law.b)}"
        return f"{curve.label}: coverage(k) = exp(a k^b) with {parameters}; at most {100 * law.fit.gap:.1f} points off"
    saturation = fit_saturation(k, shares, rng=rng)
    furthest = _furthest_point(curve, saturation.fit)
    if furthest:
        return f"{curve.label}: no law: what tends to a ceiling leaves out {furthest}"
    gain_words = f"one more sample gains at most a point from {_show(saturation.enough)} samples on"
    return (
        f"{curve.label}: tends to {_show(saturation.ceiling, 100)} %; {gain_words}; the law is at most "
        f"{100 * saturation.fit.gap:.1f} points off"
    )


def _furthest_point(curve: Curve, fit: Fit) -> str:
    """Return the measured point that is furthest from a law, as a phrase; "": the law is within all intervals."""
    order = np.argsort(curve.costs["samples"], kind="stable")
    phrase, largest_gap = "", -1.0
    for i, k, fitted in zip(order, fit.k, fit.fitted, strict=True):
        measured = curve.accuracy[i]
        gap = abs(fitted - measured.value)
        is_outside = not measured.low <= fitted <= measured.high
        if is_outside and gap > largest_gap:
            phrase = f"the measured {_show(measured, 100)} % at {k:g} samples, by {100 * gap:.1f} points"
            largest_gap = gap
    return phrase


def _describe_difference(curve: Curve, base: Curve, rng: np.random.Generator) -> str:
    """Return a line on the paired difference at the largest size.

    The line states how many problems would show a difference of two percentage points.
    """
    if list(curve.problems) != list(base.problems):
        return f"{curve.label} and {base.label}: not on the same problems"
    shares = curve.shares[np.argmax(curve.costs["samples"])]  # [problems]
    base_shares = base.shares[np.argmax(base.costs["samples"])]
    has_both = ~np.isnan(shares + base_shares)
    difference = paired_difference(shares[has_both], base_shares[has_both], rng=rng)
    num_problems = problems_needed(_RESOLVED_DIFFERENCE, difference.spread) if has_both.sum() > 1 else 0
    return (
        f"{curve.label} against {base.label}, at the largest size: {_show(difference.mean, 100)} points, McNemar's p "
        f"{difference.mcnemar:.2g};"
        f" to see {100 * _RESOLVED_DIFFERENCE:.0f} points takes about {num_problems:,} problems "
        f"(there are {has_both.sum():,})"
    )


def _complete_shares(curve: Curve) -> tuple[Floats, Floats]:
    """Return sizes [K], ascending, and shares [P, K] of the problems with a value at every point."""
    order = np.argsort(curve.costs["samples"], kind="stable")
    shares = curve.shares[order]
    complete = shares[:, ~np.isnan(shares).any(axis=0)].T
    return curve.costs["samples"][order], complete.clip(0.0, 1.0)  # rounding of averages may pass 0 or 1


def _show(estimate: Estimate, times: float = 1) -> str:
    value, low, high = times * estimate.value, times * estimate.low, times * estimate.high
    return f"{value:.3g} [{low:.3g}, {high:.3g}]"
