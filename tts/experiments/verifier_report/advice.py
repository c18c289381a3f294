"""Advice on a verifier, in one sentence, from its measures.

A claim is made where its 95 % interval excludes chance. Else the sentence states that the data do not decide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tts.experiments.analysis.comparing import format_points
from tts.experiments.output.words import with_interval
from tts.experiments.verifier_report.measures import VerifierMeasures
from tts.experiments.verifier_report.scores import VerifierScores
from tts.experiments.verifier_report.selection_effect import SelectionEffect

_FAR_OFF = 0.05  # a calibration error that is surely above it
_BENT = 0.1  # a rank correlation with length that is at least so strong


def advice(scored: VerifierScores, of: VerifierMeasures, chosen: SelectionEffect | str) -> str:
    """Return the advice on a verifier as one sentence."""
    parts = [_use(scored, of, chosen), *_warnings(of, chosen)]
    if scored.oracle:
        parts.insert(0, "it was shown the reference answers, so this is what a perfect verifier would reach")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _use(scored: VerifierScores, of: VerifierMeasures, chosen: SelectionEffect | str) -> str:
    within, problems = of.quality.within, len(scored.problems)
    auc = with_interval(within, ".2f")
    if math.isnan(within.value):
        return (
            f"whether it can choose is unknown, since {of.unknown['auc within problems']}: draw more samples, of "
            "problems it matters for"
        )
    if within.high < 0.5:
        return f"do not use it: within a problem it puts wrong solutions before right ones (AUC {auc})"
    if not within.low > 0.5:
        few = "one problem" if problems == 1 else f"{within.num} problems that have both"
        return (
            f"do not go by it yet: on {few} it cannot be told from chance within a problem (AUC {auc}), so vote "
            "(best_of_n | majority) and measure on more problems"
        )
    if isinstance(chosen, str):
        return (
            f"it tells right from wrong within a problem (AUC {auc}), but what choosing by it gains is unknown: "
            f"{chosen}"
        )
    return _choice(chosen)


def _choice(chosen: SelectionEffect) -> str:
    """Return the selection to use with a verifier that is better than chance."""
    most, best = chosen.sizes[-1], chosen.over_majority
    gains = {
        "let it weigh votes (best_of_n | weighted)": chosen.weighted_over_majority,
        "choose by its highest score (best_of_n | best)": best,
    }
    what, gain = max(gains.items(), key=lambda pair: pair[1].value)
    if gain.low > 0:
        return f"{what}: {format_points(gain)} over the majority of {most}"
    if best.high < 0:
        worse = format_points(best)
        return (
            f"vote (best_of_n | majority) rather than choose by its highest score, which is {worse} against the "
            f"majority of {most}"
        )
    instead = what.partition(" (")[0]
    return (
        f"nothing is clearly gained over the majority of {most} ({instead}: {format_points(gain)}), so vote, which "
        "costs no scores"
    )


def _warnings(of: VerifierMeasures, chosen: SelectionEffect | str) -> Iterator[str]:
    if not isinstance(chosen, str) and chosen.fall.high < 0:
        yield (
            f"its highest score misleads beyond {chosen.peak} samples ({format_points(chosen.fall)} at "
            f"{chosen.sizes[-1]})"
        )
    if of.quality.error.low > _FAR_OFF:
        off = f"{of.quality.error.value:.2f}"
        yield (
            f"its scores are no frequencies (off by {off} on average): calibrate them before a threshold means anything"
        )
    bent = of.length.within
    if abs(bent.value) >= _BENT and (bent.low > 0 or bent.high < 0):
        liked = "longer" if bent.value > 0 else "shorter"
        yield (
            f"it prefers {liked} solutions of the same problem that are right or wrong alike (rank correlation "
            f"{bent.value:+.2f})"
        )
