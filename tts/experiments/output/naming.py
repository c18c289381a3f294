"""The words of a figure: the names of its lines, and its caption."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _SOFT = "#1A1A1A", "#5A5A5A"
_NAME = 0.145  # height in inches of a name at the end of a line
_MOST_ROWS = 8  # rows of a legend beside a panel
_BESIDE, _BELOW = 0.35, 0.28  # shares of a caller's panel that a legend may take of its width, or of its height
_GAP = 0.05  # inches between a panel and the legend below it
_LEAST_SIZE = 6.0  # points of the smallest letters of a legend
_CHARACTERS_PER_INCH = 19  # of a caption


@dataclass(frozen=True, slots=True)
class NamedLine:
    """A line of a figure.

    Args:
        style: The style of matplotlib.
        role: The role as in `Curve`.
        peak: The line's greatest accuracy.
        ends: Panel, cost and accuracy of each last point.
    """

    label: str
    style: Mapping[str, Any]
    role: str
    peak: float
    ends: tuple[tuple[int, float, float], ...] = ()


def name_lines(
    figure: Figure,
    axes: Sequence[Axes],
    lines: Sequence[NamedLine],
    labels: Mapping[str, str],
    *,
    front: Mapping[str, Any] | None,
    own: bool,
) -> None:
    """Draw the names of lines: at the ends of many lines, else in a legend, the most accurate line first.

    Args:
        figure: The figure to draw in.
        axes: The panels of the figure.
        lines: The lines to name.
        labels: The words of the legend for a line, by the line's label.
        front: The style of the Pareto front's marks; None: there are none.
        own: Whether this package made the figure, with room outside of the panels.
    """
    if are_named_at_ends(lines):
        for panel_index, panel in enumerate(axes):
            panel_ends = [(x, y, line) for line in lines for index, x, y in line.ends if index == panel_index]
            _name_ends(panel, panel_ends, labels)
    else:
        _legend(figure if own else None, axes, lines, labels, front=front)


def are_named_at_ends(lines: Sequence[NamedLine]) -> bool:
    """Return whether the fullest panel has more lines than a legend beside it has room for."""
    return most_in_one_panel(lines) > _MOST_ROWS


def most_in_one_panel(lines: Sequence[NamedLine]) -> int:
    """Return the number of lines in the fullest panel."""
    num_lines = Counter(panel for line in lines for panel in {panel for panel, _, _ in line.ends})
    return max(num_lines.values(), default=0)


def height_of_names(number: int) -> float:
    """Return the height in inches of a panel with `number` names at the ends of lines, and its labels."""
    return number * _NAME + 0.8


def caption(figure: Figure, facts: Sequence[str]) -> None:
    """Draw the facts of a figure below it."""
    lines = textwrap.wrap(" · ".join(facts), int(figure.get_figwidth() * _CHARACTERS_PER_INCH))
    figure.text(
        0.0,
        -0.02,
        "\n".join(lines).replace("\u00a0", " "),
        ha="left",
        va="top",
        fontsize=7.5,
        linespacing=1.4,
        color=_SOFT,
    )


def _legend(
    owner: Figure | None,
    axes: Sequence[Axes],
    lines: Sequence[NamedLine],
    labels: Mapping[str, str],
    *,
    front: Mapping[str, Any] | None,
) -> None:
    """Draw the legend beside one panel, or above several.

    Args:
        owner: The figure, outside of which the legend is placed; None: the one panel is a caller's own.
        axes: The panels.
        lines: The lines.
        labels: The words for a line, by the line's label.
        front: The style of the Pareto front's marks; None: there are none.
    """
    from matplotlib.lines import Line2D

    sorted_lines = sorted(lines, key=lambda line: -line.peak)
    handles = [Line2D([], [], **line.style) for line in sorted_lines]
    words = _wrap(_words(line, labels) for line in sorted_lines)
    if front is not None:
        handles.append(Line2D([], [], **front))
        words.append("Pareto front")
    looks = {"frameon": False, "labelcolor": _INK, "borderaxespad": 0, "alignment": "left"}
    if owner is None:
        _fit_legend(axes[0], handles, words, looks)
        return
    if len(axes) == 1:
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    else:
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.02), "ncols": min(len(words), len(axes), 3)}
    owner.legend(handles, words, handlelength=3.2, **looks, **place)


def _fit_legend(panel: Axes, handles: Sequence[Any], words: Sequence[str], looks: Mapping[str, Any]) -> None:
    """Draw the legend beside a caller's panel, or below it where it would take much of the width.

    Below, the letters become smaller than the caller's setting where the legend has no room otherwise.
    """
    from matplotlib.transforms import ScaledTranslation

    figure, boxes = panel.figure, (panel.xaxis.get_tightbbox(), panel.yaxis.get_tightbbox())
    below_y, left_x = (box if box is not None else panel.bbox for box in boxes)  # None: an axis that is not drawn
    room = panel.bbox.x1 - max(0, left_x.x0)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    legend = panel.legend(handles, words, handlelength=3.2, **looks, **place)
    if legend.get_window_extent().width <= _BESIDE * room:
        return
    depth = (panel.bbox.y0 - below_y.y0) / figure.dpi + _GAP
    below = panel.transAxes + ScaledTranslation(0, -depth, figure.dpi_scale_trans)
    place = {"loc": "upper right", "bbox_to_anchor": (1, 0), "bbox_transform": below}
    size = float(legend.get_texts()[0].get_fontsize())
    for letters, ncols in product(np.linspace(size, min(size, _LEAST_SIZE), 6), (3, 2, 1)):
        form = {"fontsize": letters, "ncols": ncols, "handlelength": 1.7, "columnspacing": 0.6, "labelspacing": 0.4}
        box = panel.legend(handles, words, **form, **looks, **place, handletextpad=0.4).get_window_extent()
        if box.width <= room and box.height <= _BELOW * panel.bbox.height:
            return


def _name_ends(panel: Axes, ends: Sequence[tuple[float, float, NamedLine]], labels: Mapping[str, str]) -> None:
    """Write each line's name to the right of the panel, near the line's last point.

    A thin line joins the name to the point.

    Args:
        panel: The panel.
        ends: The cost and the accuracy of each last point, and its line.
        labels: The words for a line, by the line's label.
    """
    low, high = panel.get_ylim()
    panel_inches = panel.get_window_extent().height / panel.figure.dpi
    wanted_heights = [(y - low) / (high - low) for _, y, _ in ends]  # shares of the panel's height
    heights = _spread_heights(wanted_heights, _NAME / panel_inches)
    for (x, y, line), height in zip(ends, heights, strict=True):
        colour = line.style["color"]
        connector = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 0.6,
            "alpha": 0.7,
            "shrinkA": 0,
            "shrinkB": 2,
            "relpos": (0, 0.5),
        }
        panel.annotate(
            _words(line, labels),
            (x, y),
            xytext=(1.04, height),
            textcoords="axes fraction",
            ha="left",
            va="center",
            color=colour,
            fontsize=7.5,
            arrowprops=connector,
            annotation_clip=False,
        )


def _spread_heights(wanted: Sequence[float], gap: float) -> list[float]:
    """Return heights at least `gap` apart that are nearest to the wanted heights, by least squares.

    The heights are in [0, 1] where they fit.
    """
    if not wanted:
        return []
    from scipy.optimize import isotonic_regression

    order = sorted(range(len(wanted)), key=lambda i: (-wanted[i], i))  # from the highest to the lowest
    offsets = gap * np.arange(len(wanted))
    # with these offsets added, heights that are `gap` apart are heights that do not rise
    closest = np.asarray(isotonic_regression([wanted[i] for i in order] + offsets, increasing=False).x)
    lowest, highest = min(offsets[-1], 1.0), max(offsets[-1], 1.0)
    sorted_heights = np.clip(closest, lowest, highest) - offsets
    heights = [0.0] * len(wanted)
    for i, height in zip(order, sorted_heights, strict=True):
        heights[i] = float(height)
    return heights


def _words(line: NamedLine, labels: Mapping[str, str]) -> str:
    text = labels.get(line.label, line.label)
    return f"{text} (oracle)" if line.role == "oracle" else text


def _wrap(labels: Iterable[str]) -> list[str]:
    """Return labels with line breaks, but without a break after a bar or a "by"."""
    unbroken = (label.replace("| ", "|\u00a0").replace(", by ", ", by\u00a0") for label in labels)
    wrapped = (textwrap.wrap(label, 36, break_long_words=False) for label in unbroken)
    return ["\n".join(lines).replace("\u00a0", " ") for lines in wrapped]
