"""Estimates with intervals.

They are of accuracies, pass@k and the like, differences between strategies, laws of scaling, and quality of verifiers.

Samples of one problem are not independent, because they share its difficulty. Averages over samples are therefore
resampled by problem (the *cluster*). An interval covers what another draw of as many problems may give.

A statistic without data is NaN, not zero. A NaN among the data is refused: the caller decides what to leave out, and
counts it. Functions have no state; generators are arguments.

Shapes: N observations, P clusters, R resamples, K bins.
"""

from __future__ import annotations

from tts.statistics.acceptance import accuracy_given_acceptance, attempt_values, best_tries, clustered_ceiling
from tts.statistics.association import clustered_auc_within, clustered_correlation
from tts.statistics.comparing import Difference, holm, mcnemar, paired_difference, problems_needed
from tts.statistics.discrimination import (
    Bin,
    Calibration,
    brier,
    clustered_auc,
    clustered_calibration_error,
    expected_calibration_error,
    roc_auc,
)
from tts.statistics.judged import Belief, CorrectedMean, bayes_at_n, corrected_mean
from tts.statistics.proportions import LEVEL, Estimate, g_pass_at_k, max_at_k, pass_at_k, pass_hat_k, wilson
from tts.statistics.resampling import RESAMPLES, Statistic, bootstrap, bootstrap_kinds, clustered_mean, ratio
from tts.statistics.scaling import CoverageLaw, Fit, Saturation, fit_coverage, fit_saturation, space_sizes
from tts.statistics.selection import Averaged, best_at_k, majority_at_k, weighted_at_k
from tts.statistics.standard_errors import (
    MeanWithError,
    detectable_difference,
    difference_with_error,
    mean_with_error,
    power_of,
    spread_at,
)

__all__ = [
    "LEVEL",
    "RESAMPLES",
    "Averaged",
    "Belief",
    "Bin",
    "Calibration",
    "CorrectedMean",
    "CoverageLaw",
    "Difference",
    "Estimate",
    "Fit",
    "MeanWithError",
    "Saturation",
    "Statistic",
    "accuracy_given_acceptance",
    "attempt_values",
    "bayes_at_n",
    "best_at_k",
    "best_tries",
    "bootstrap",
    "bootstrap_kinds",
    "brier",
    "clustered_auc",
    "clustered_auc_within",
    "clustered_calibration_error",
    "clustered_ceiling",
    "clustered_correlation",
    "clustered_mean",
    "corrected_mean",
    "detectable_difference",
    "difference_with_error",
    "expected_calibration_error",
    "fit_coverage",
    "fit_saturation",
    "g_pass_at_k",
    "holm",
    "majority_at_k",
    "max_at_k",
    "mcnemar",
    "mean_with_error",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "power_of",
    "problems_needed",
    "ratio",
    "roc_auc",
    "space_sizes",
    "spread_at",
    "weighted_at_k",
    "wilson",
]
