"""The report on verifiers as a figure.

Each verifier has a row, with its best-of-N curve, its AUC by step, and its calibration.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tts.experiments.output import plots
from tts.experiments.verifier_report.report import Verdict, VerifierReport
from tts.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL: Final = (3.4, 2.7)  # inches
_BLUE, _ORANGE, _GREEN, _RED = plots.COLOURS[:4]
_GREY: Final = "#7A7A7A"


def draw(report: VerifierReport) -> Figure:
    """Return the figure. A panel without data has the reason.

    Raises:
        MissingDependency: matplotlib is not installed.
    """
    with plots.style_context():
        from matplotlib.figure import Figure

        rows = len(report.verdicts)
        figure = Figure(figsize=(3 * _PANEL[0], rows * _PANEL[1]), layout="constrained")
        panels = figure.subplots(rows, 3, squeeze=False)
        for (choosing, steps, reliability), verdict in zip(panels, report.verdicts, strict=True):
            _draw_choosing(choosing, verdict)
            _draw_positions(steps, verdict)
            _draw_reliability(reliability, verdict)
            scored = verdict.scored
            name = f"{scored.role}: {scored.verifier}, {scored.dataset}, {len(scored.problems):,} problems"
            choosing.set_title(name, loc="left", fontsize=8.5, pad=10)
        handle_of: dict[str, Any] = {}  # the line of each label
        for panel in figure.axes:
            handles, labels = panel.get_legend_handles_labels()
            for handle, label in zip(handles, labels, strict=True):
                handle_of.setdefault(label, handle)
        if handle_of:  # one legend outside for all rows, since no place is free in all panels
            figure.legend(
                handle_of.values(), handle_of.keys(), loc="outside upper left", ncols=4, frameon=False, fontsize=7.5
            )
        return figure


def _draw_choosing(panel: Axes, verdict: Verdict) -> None:
    """Draw accuracy, and the score of the chosen sample, by number of samples."""
    selection = verdict.selection
    panel.set_xlabel("samples")
    panel.set_ylabel("accuracy")
    if selection is None:
        _say(panel, verdict.measures.unknown["best of N"])
        return
    panel.set_xscale("log", base=2)
    lines = [
        ("any (pass@k)", selection.coverage, _GREY, ":"),
        ("random choice", selection.chance, _GREY, "--"),
        ("weighted", selection.weighted, _GREEN, "-."),
        ("majority", selection.majority, _ORANGE, "--"),
        ("highest score", selection.best, _BLUE, "-"),
    ]
    for label, estimates, colour, dashes in lines:
        _draw_line(panel, selection.sizes, estimates, colour=colour, linestyle=dashes, label=label)
    proxy = panel if verdict.scored.probabilities else panel.twinx()
    _draw_line(proxy, selection.sizes, selection.proxy, colour=_RED, linestyle=(0, (1, 1)), label="score of the chosen")
    if proxy is not panel:
        proxy.set_ylabel("score of the chosen", color=_RED)
        proxy.grid(visible=False)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _draw_positions(panel: Axes, verdict: Verdict) -> None:
    """Draw the AUC of step scores by position."""
    panel.set_xlabel("step")
    panel.set_ylabel("AUC within problems")
    for gold, colour, dashes in (("answer", _BLUE, "-"), ("step", _GREEN, "--")):
        positions = [
            position
            for position in verdict.measures.positions
            if position.gold == gold and not math.isnan(position.quality.within.value)
        ]
        if positions:
            middles = [math.sqrt(position.first * position.last) for position in positions]
            within = [position.quality.within for position in positions]
            _draw_line(panel, middles, within, colour=colour, linestyle=dashes, label=f"AUC against the {gold}")
    if panel.lines:
        panel.axhline(0.5, color=_GREY, linewidth=0.9)
        panel.locator_params(axis="x", integer=True)
    else:
        _say(panel, "no scores of steps, or no problem with both right and wrong candidates")


def _draw_reliability(panel: Axes, verdict: Verdict) -> None:
    """Draw frequencies against scores. The area of a point grows with the number of its candidates."""
    panel.set_xlabel("score")
    panel.set_ylabel("share right")
    bins = [bin_ for bin_ in verdict.measures.reliability if bin_.num]
    if not bins:
        _say(panel, verdict.measures.unknown["calibration error"])
        return
    largest = max(bin_.num for bin_ in bins)
    panel.plot([0, 1], [0, 1], color=_GREY, linewidth=0.9)
    areas = [10 + 90 * bin_.num / largest for bin_ in bins]
    panel.scatter([bin_.score for bin_ in bins], [bin_.label for bin_ in bins], s=areas, color=_BLUE, zorder=3)
    panel.set_xlim(-0.02, 1.02)
    panel.set_ylim(-0.02, 1.02)
    error = verdict.measures.quality.error.value
    panel.text(0.03, 0.95, f"calibration error {error:.2f}", transform=panel.transAxes, va="top", fontsize=7.5)


def _draw_line(panel: Axes, x: Sequence[float], estimates: Sequence[Estimate], *, colour: str, **looks: Any) -> None:
    values = [estimate.value for estimate in estimates]
    low = [estimate.low for estimate in estimates]
    high = [estimate.high for estimate in estimates]
    panel.plot(x, values, color=colour, linewidth=1.5, marker="o", markersize=3, **looks)
    panel.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)


def _say(panel: Axes, reason: str) -> None:
    """Write the reason why a panel has no data."""
    panel.set_xticks([])
    panel.set_yticks([])
    panel.text(0.5, 0.5, textwrap.fill(reason, 36), transform=panel.transAxes, ha="center", va="center", fontsize=7.5)
