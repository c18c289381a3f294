"""Estimates with intervals.

They are of accuracies, pass@k and the like, differences between strategies, laws of scaling, and quality of verifiers.

Samples of one problem are not independent, because they share its difficulty. Averages over samples are therefore
resampled by problem (the *cluster*). An interval covers what another draw of as many problems may give.

A statistic without data is NaN, not zero. A NaN among the data is refused: the caller decides what to leave out, and
counts it. Functions have no state; generators are arguments.

Shapes: N observations, P clusters, R resamples, K bins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.statistics.acceptance import accuracy_given_acceptance as accuracy_given_acceptance
    from tts.statistics.acceptance import attempt_values as attempt_values
    from tts.statistics.acceptance import best_tries as best_tries
    from tts.statistics.acceptance import clustered_ceiling as clustered_ceiling
    from tts.statistics.association import clustered_auc_within as clustered_auc_within
    from tts.statistics.association import clustered_correlation as clustered_correlation
    from tts.statistics.comparing import Difference as Difference
    from tts.statistics.comparing import holm as holm
    from tts.statistics.comparing import mcnemar as mcnemar
    from tts.statistics.comparing import paired_difference as paired_difference
    from tts.statistics.comparing import problems_needed as problems_needed
    from tts.statistics.discrimination import Bin as Bin
    from tts.statistics.discrimination import Calibration as Calibration
    from tts.statistics.discrimination import brier as brier
    from tts.statistics.discrimination import clustered_auc as clustered_auc
    from tts.statistics.discrimination import clustered_calibration_error as clustered_calibration_error
    from tts.statistics.discrimination import expected_calibration_error as expected_calibration_error
    from tts.statistics.discrimination import roc_auc as roc_auc
    from tts.statistics.judged import Belief as Belief
    from tts.statistics.judged import CorrectedMean as CorrectedMean
    from tts.statistics.judged import bayes_at_n as bayes_at_n
    from tts.statistics.judged import corrected_mean as corrected_mean
    from tts.statistics.proportions import LEVEL as LEVEL
    from tts.statistics.proportions import Estimate as Estimate
    from tts.statistics.proportions import g_pass_at_k as g_pass_at_k
    from tts.statistics.proportions import max_at_k as max_at_k
    from tts.statistics.proportions import pass_at_k as pass_at_k
    from tts.statistics.proportions import pass_hat_k as pass_hat_k
    from tts.statistics.proportions import wilson as wilson
    from tts.statistics.resampling import RESAMPLES as RESAMPLES
    from tts.statistics.resampling import Statistic as Statistic
    from tts.statistics.resampling import bootstrap as bootstrap
    from tts.statistics.resampling import bootstrap_kinds as bootstrap_kinds
    from tts.statistics.resampling import clustered_mean as clustered_mean
    from tts.statistics.resampling import ratio as ratio
    from tts.statistics.scaling import CoverageLaw as CoverageLaw
    from tts.statistics.scaling import Fit as Fit
    from tts.statistics.scaling import Saturation as Saturation
    from tts.statistics.scaling import fit_coverage as fit_coverage
    from tts.statistics.scaling import fit_saturation as fit_saturation
    from tts.statistics.scaling import space_sizes as space_sizes
    from tts.statistics.selection import Averaged as Averaged
    from tts.statistics.selection import best_at_k as best_at_k
    from tts.statistics.selection import majority_at_k as majority_at_k
    from tts.statistics.selection import weighted_at_k as weighted_at_k
    from tts.statistics.standard_errors import MeanWithError as MeanWithError
    from tts.statistics.standard_errors import detectable_difference as detectable_difference
    from tts.statistics.standard_errors import difference_with_error as difference_with_error
    from tts.statistics.standard_errors import mean_with_error as mean_with_error
    from tts.statistics.standard_errors import power_of as power_of
    from tts.statistics.standard_errors import spread_at as spread_at

__getattr__, __dir__, __all__ = lazy_exports(__name__)
