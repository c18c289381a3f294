"""Advice on a verifier, in one sentence, from its measures.

A claim is made where its 95 % interval excludes chance. Otherwise the sentence states that the data do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tts.experiments.analysis.comparing import format_points
from tts.experiments.output.words import with_interval
from tts.experiments.verifier_report.measures import VerifierMeasures
from tts.experiments.verifier_report.scores import VerifierScores
from tts.experiments.verifier_report.selection_effect import SelectionEffect

_CALIBRATION_ERROR = 0.05  # calibration error above which a warning is given
_LENGTH_CORRELATION = 0.1  # rank correlation with length from which a warning is given


def advice(scored: VerifierScores, measures: VerifierMeasures, selection: SelectionEffect | str) -> str:
    """Return the advice on a verifier as one sentence."""
    parts = [_use(scored, measures, selection), *_warnings(measures, selection)]
    if scored.oracle:
        parts.insert(0, "it was shown the reference answers, so this is what a perfect verifier would reach")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _use(scored: VerifierScores, measures: VerifierMeasures, selection: SelectionEffect | str) -> str:
    """Return whether and how to use a verifier, as a phrase."""
    within, num_problems = measures.quality.within, len(scored.problems)
    auc = with_interval(within, ".2f")
    if math.isnan(within.value):
        return (
            f"whether it can choose is unknown, since {measures.unknown['auc within problems']}: draw more samples, of "
            "problems it matters for"
        )
    if within.high < 0.5:
        return f"do not use it: within a problem it puts wrong solutions before right ones (AUC {auc})"
    is_better_than_chance = within.low > 0.5
    if not is_better_than_chance:
        problem_words = "one problem" if num_problems == 1 else f"{within.num} problems that have both"
        return (
            f"do not go by it yet: on {problem_words} it cannot be told from chance within a problem (AUC {auc}), so "
            "vote (best_of_n | majority) and measure on more problems"
        )
    if isinstance(selection, str):
        return (
            f"it tells right from wrong within a problem (AUC {auc}), but what choosing by it gains is unknown: "
            f"{selection}"
        )
    return _choice(selection)


def _choice(selection: SelectionEffect) -> str:
    """Return the selection to use with a verifier that is better than chance."""
    size, gain_of_best = selection.sizes[-1], selection.over_majority
    gains = {
        "let it weigh votes (best_of_n | weighted)": selection.weighted_over_majority,
        "choose by its highest score (best_of_n | best)": gain_of_best,
    }
    use = max(gains, key=lambda name: gains[name].value)
    gain = gains[use]
    if gain.low > 0:
        return f"{use}: {format_points(gain)} over the majority of {size}"
    if gain_of_best.high < 0:
        difference = format_points(gain_of_best)
        return (
            f"vote (best_of_n | majority) rather than choose by its highest score, which is {difference} against the "
            f"majority of {size}"
        )
    short_use = use.partition(" (")[0]
    return (
        f"nothing is clearly gained over the majority of {size} ({short_use}: {format_points(gain)}), so vote, which "
        "costs no scores"
    )


def _warnings(measures: VerifierMeasures, selection: SelectionEffect | str) -> Iterator[str]:
    """Yield warnings on a high score that misleads, on calibration, and on length, each as a phrase."""
    if not isinstance(selection, str) and selection.fall.high < 0:
        yield (
            f"its highest score misleads beyond {selection.peak} samples ({format_points(selection.fall)} at "
            f"{selection.sizes[-1]})"
        )
    if measures.quality.error.low > _CALIBRATION_ERROR:
        error = f"{measures.quality.error.value:.2f}"
        yield (
            f"its scores are no frequencies (off by {error} on average): "
            "calibrate them before a threshold means anything"
        )
    correlation = measures.length.within
    is_significant = correlation.low > 0 or correlation.high < 0
    if abs(correlation.value) >= _LENGTH_CORRELATION and is_significant:
        preference = "longer" if correlation.value > 0 else "shorter"
        yield (
            f"it prefers {preference} solutions of the same problem that are right or wrong alike (rank correlation "
            f"{correlation.value:+.2f})"
        )
