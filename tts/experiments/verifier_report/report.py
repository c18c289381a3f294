"""The report on a study's verifiers, as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tts.experiments.analysis.comparing import format_points
from tts.experiments.output.tables import text_of
from tts.experiments.output.words import format_percent, list_facts, percent_with_interval, with_interval
from tts.experiments.study.record import Result
from tts.experiments.verifier_report.advice import advice
from tts.experiments.verifier_report.measures import MOST_TRIES, Ceiling, Position, VerifierMeasures, measure_verifier
from tts.experiments.verifier_report.scores import VerifierScores, collect_scores
from tts.experiments.verifier_report.selection_effect import SelectionEffect, selection_effect
from tts.search.algorithms.aggregation import check_aggregate
from tts.trace.trace import plain_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The findings on one verifier.

    Args:
        selection: The effect of selection; None: not computed, for the reason in `measures.unknown`.
        advice: The advice in one sentence.
    """

    scored: VerifierScores
    measures: VerifierMeasures
    selection: SelectionEffect | None
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierReport:
    """The verdicts on a study's verifiers, and the number of results that are in no verdict, by reason."""

    verdicts: Sequence[Verdict]
    passed_over: dict[str, int]


def verifier_report(
    results: Iterable[Result],
    *,
    role: str | None = None,
    aggregate: str = "last",
    seed: int = 0,
) -> VerifierReport:
    """Return a verdict on each verifier that scored recorded candidates of a study.

    Args:
        results: The results of the study, candidates included.
        role: The role of a single verifier; None: all.
        aggregate: The aggregation of step scores.
        seed: The seed of the intervals and random subsets.

    Raises:
        ConfigError: nothing was recorded or scored, or no answer is known to be right or wrong; the aggregation is
            unknown.
    """
    check_aggregate(aggregate)
    collected = collect_scores(results, aggregate=aggregate, role=role)
    verdicts: list[Verdict] = []
    for scored in collected.scored:
        effect = selection_effect(scored, aggregate=aggregate, seed=seed)
        measures = measure_verifier(scored, seed=seed)
        if isinstance(effect, str):
            measures = dataclasses.replace(measures, unknown={**measures.unknown, "best of N": effect})
        selection = None if isinstance(effect, str) else effect
        verdicts.append(
            Verdict(scored=scored, measures=measures, selection=selection, advice=advice(scored, measures, effect))
        )
    return VerifierReport(verdicts=verdicts, passed_over=collected.passed_over)


def as_json(report: VerifierReport) -> str:
    """Return the report as a JSON list, an object for each verifier.

    Unknown values are null, with the reason under "unknown".
    """
    return json.dumps([_object(verdict) for verdict in report.verdicts], indent=2, allow_nan=False)


def as_text(report: VerifierReport) -> str:
    """Return the report as text."""
    return "\n\n\n".join("\n\n".join(_blocks(verdict)) for verdict in report.verdicts)


def _object(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values for JSON."""
    scored = verdict.scored
    record: dict[str, Any] = {
        name: getattr(scored, name)
        for name in ("dataset", "model", "role", "verifier", "strategy", "setting", "oracle", "range")
    }
    record |= {"problems": len(scored.problems), "seeds": len(scored.seeds), "candidates": len(scored.scores)}
    record |= {"unasked": scored.unasked, "unchecked": scored.unchecked, "unknown_scores": scored.unknown}
    measures = plain_values(verdict.measures)
    for ceiling in measures["ceilings"]:
        ceiling["tries"] = {f"{cost:g}": tries for cost, tries in ceiling["tries"].items()}
    return plain_values({**record, **measures, "choosing": verdict.selection, "advice": verdict.advice})


def _blocks(verdict: Verdict) -> list[str]:
    """Return the parts of a verifier's report, with its advice in the first."""
    measures, selection = verdict.measures, verdict.selection
    blocks = [_head(verdict)]
    if measures.positions:
        blocks.append(f"step scores against the final answer\n{text_of(_position_columns(measures.positions))}")
    if selection is not None:
        blocks.append(f"best of N, averaged over subsets of the samples\n{text_of(_size_columns(selection))}")
    title = (
        "sampling until a score is high enough: no number of tries passes `reaches`; "
        "best number of tries by a wrong answer's cost where a right one is worth 1"
    )
    blocks.append(f"{title}\n{text_of(_threshold_columns(measures.ceilings))}")
    if measures.unknown:
        blocks.append("\n".join(f"{name} is unknown: {reason}" for name, reason in measures.unknown.items()))
    return blocks


def _head(verdict: Verdict) -> str:
    """Return the facts of a verdict as text, of which the advice is the last."""
    scored, measures, selection = verdict.scored, verdict.measures, verdict.selection
    left_out = {
        "not asked about": scored.unasked,
        "without a score": scored.unknown,
        "without a reference answer": scored.unchecked,
    }
    length = measures.length
    oracle = " (oracle)" if scored.oracle else ""
    facts = {
        "verifier": f"{scored.role}: {scored.verifier}{oracle}",
        "scored": f"{scored.strategy} of {scored.model} on {scored.dataset}",
        "candidates": f"{len(scored.scores):,} of {len(scored.problems):,} problems, "
        f"{format_percent(measures.quality.share)} right",
        "left out": ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count),
        "AUC": with_interval(measures.quality.auc),
        "AUC within problems": with_interval(measures.quality.within),
        "calibration error": with_interval(measures.quality.error),
        "goes with length": f"{with_interval(length.plain, '+.2f')}; "
        f"within problems {with_interval(length.within, '+.2f')}",
    }
    if selection is not None:
        largest = selection.sizes[-1]
        facts |= {
            f"gain at {largest}": f"{format_points(selection.over_majority)} over the vote; "
            f"as weights of votes {format_points(selection.weighted_over_majority)}",
            "peak": f"{selection.peak} samples; {format_points(selection.fall)} from there to {largest}",
        }
    facts["advice"] = verdict.advice
    return list_facts({title: text for title, text in facts.items() if text})


def _position_columns(positions: Sequence[Position]) -> dict[str, list[str]]:
    """Return the cells of the table of positions, by column title."""
    qualities = [position.quality for position in positions]
    return {
        "step": [" to ".join(map(str, dict.fromkeys((one.first, one.last)))) for one in positions],
        "scores": [f"{quality.num:,}" for quality in qualities],
        "right": [format_percent(quality.share) for quality in qualities],
        "AUC": [with_interval(quality.auc) for quality in qualities],
        "AUC within problems": [with_interval(quality.within) for quality in qualities],
        "calibration error": [with_interval(quality.error) for quality in qualities],
    }


def _size_columns(selection: SelectionEffect) -> dict[str, list[str]]:
    """Return the cells of the table of sizes, by column title."""
    return {
        "samples": [f"{size:,}" for size in selection.sizes],
        "score of the best": [with_interval(score) for score in selection.proxy],
        "right: best": [percent_with_interval(accuracy) for accuracy in selection.best],
        "majority": [percent_with_interval(accuracy) for accuracy in selection.majority],
        "weighted": [percent_with_interval(accuracy) for accuracy in selection.weighted],
        "random choice": [percent_with_interval(accuracy) for accuracy in selection.chance],
        "any (pass@k)": [percent_with_interval(accuracy) for accuracy in selection.coverage],
    }


def _threshold_columns(ceilings: Sequence[Ceiling]) -> dict[str, list[str]]:
    """Return the cells of the table of thresholds, by column title."""
    columns = {
        "score from": [f"{ceiling.threshold:.4g}" for ceiling in ceilings],
        "accepts": [format_percent(ceiling.accepted) for ceiling in ceilings],
        "of right": [format_percent(ceiling.completeness) for ceiling in ceilings],
        "of wrong": [format_percent(1 - ceiling.soundness) for ceiling in ceilings],
        "right of those": [format_percent(ceiling.precision) for ceiling in ceilings],
        "reaches": [percent_with_interval(ceiling.accuracy) for ceiling in ceilings],
    }
    for cost in ceilings[0].tries:
        tries = [ceiling.tries[cost] for ceiling in ceilings]
        columns[f"cost {abs(cost):g}"] = [f"{num}" if num < MOST_TRIES else f"{num} or more" for num in tries]
    return columns
