"""The words of a figure: its title, the names of its lines, and its caption."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tts.experiments.output.look import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _SOFT = "#1A1A1A", "#5A5A5A"
_BOLD: Final[dict[str, Any]] = {"size": 11, "weight": "bold"}
_BELOW_AXES = 0.46  # inches below the axes, for the labels of the axis
_NAME = 0.145  # height in inches of a name at the end of a line
_SMALL_NAME = 0.12  # the same in a figure of a single column


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
    look: Look,
    *,
    title: str,
    front: Mapping[str, Any] | None,
    own: bool,
) -> None:
    """Draw the title, and the names of lines where `look` places them, the most accurate first.

    Args:
        figure: The figure to draw in.
        axes: The panels of the figure.
        lines: The lines to name.
        look: The sizes, words and limits.
        title: The words above the figure.
        front: The style of the Pareto front's marks; None: there are none.
        own: Whether this package made the figure, with room outside of the panels.
    """
    place = look.place(lines=most_in_one_panel(lines), panels=len(axes))
    if own and (len(axes) == 1 or place != "above"):
        figure.text(0.0, 1.02, title, ha="left", va="bottom", color=_INK, **_BOLD)
    if place == "ends":
        for panel_index, panel in enumerate(axes):
            panel_ends: list[tuple[float, float, NamedLine]] = []
            for line in lines:
                panel_ends += [(x, y, line) for index, x, y in line.ends if index == panel_index]
            _name_ends(panel, panel_ends, look)
    elif place != "none":
        _legend(figure if own else axes[0], axes, lines, look, place, title=title, front=front)


def most_in_one_panel(lines: Sequence[NamedLine]) -> int:
    """Return the number of lines in the fullest panel."""
    num_lines: Counter[int] = Counter()  # by panel
    for line in lines:
        num_lines.update({panel for panel, _, _ in line.ends})
    return max(num_lines.values(), default=0)


def height_of_names(number: int, look: Look) -> float:
    """Return the height in inches of a panel with `number` names at the ends of lines, and its labels."""
    return number * (_SMALL_NAME if look.single_column else _NAME) + 0.8


def caption(figure: Figure, facts: Sequence[str], look: Look) -> None:
    """Draw the facts of a figure below it, and move a legend below the panels under these facts."""
    characters_per_inch = 24 if look.single_column else 19
    lines = textwrap.wrap(" · ".join(facts), int(figure.get_figwidth() * characters_per_inch))
    size = 6.0 if look.single_column else 7.5  # points
    figure.text(
        0.0,
        -0.02,
        "\n".join(lines).replace("\u00a0", " "),
        ha="left",
        va="top",
        fontsize=size,
        linespacing=1.4,
        color=_SOFT,
    )
    if look.single_column and figure.legends and look.legend in ("auto", "below"):
        height = len(lines) * size * 1.4 / 72 / figure.get_figheight()  # share of the figure's height
        figure.legends[0].set_bbox_to_anchor((0.0, -0.04 - height), transform=figure.transFigure)


def _legend(
    owner: Figure | Axes,
    axes: Sequence[Axes],
    lines: Sequence[NamedLine],
    look: Look,
    place: str,
    *,
    title: str,
    front: Mapping[str, Any] | None,
) -> None:
    """Draw the legend.

    Args:
        owner: The figure, or the axes of a caller's own figure. The legend is placed outside of it.
        axes: The panels.
        lines: The lines.
        look: The look.
        place: The place of the legend.
        title: The title of a figure with several panels.
        front: The style of the Pareto front's marks; None: there are none.
    """
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    sorted_lines = sorted(lines, key=lambda line: -line.peak)
    handles = [Line2D([], [], **line.style) for line in sorted_lines]
    words = _wrap(_words(line, look) for line in sorted_lines)
    if front is not None:
        handles.append(Line2D([], [], **front))
        words.append("Pareto front")
    legend_style: dict[str, Any] = {
        "frameon": False,
        "handlelength": 3.2,
        "labelcolor": _INK,
        "borderaxespad": 0,
        "alignment": "left",
    }
    columns = min(len(words), len(axes), 3)
    if place == "inside":
        inner_style = legend_style | {"handlelength": 2.4, "borderaxespad": 0.5}
        axes[0].legend(handles, words, loc="best", **inner_style)
    elif place == "beside":
        owner.legend(handles, words, loc="upper left", bbox_to_anchor=(1.01, 1.0), **legend_style)
    elif place == "below":
        if owner is axes[0].figure:
            top = -0.07 if look.single_column else -0.02
            anchor: dict[str, Any] = {"bbox_to_anchor": (0.0, top)}
        else:
            transform = axes[0].transAxes + ScaledTranslation(0.0, -_BELOW_AXES, axes[0].figure.dpi_scale_trans)
            anchor = {"bbox_to_anchor": (0.0, 0.0), "bbox_transform": transform}
        owner.legend(handles, words, loc="upper left", ncols=columns, **anchor, **legend_style)
    else:
        title_options = {"title": title or None, "title_fontproperties": _BOLD} if len(axes) > 1 else {}
        owner.legend(
            handles, words, loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=columns, **title_options, **legend_style
        )


def _name_ends(panel: Axes, ends: Sequence[tuple[float, float, NamedLine]], look: Look) -> None:
    """Write each line's name to the right of the panel, near the line's last point.

    A thin line joins the name to the point.

    Args:
        panel: The panel.
        ends: The cost and the accuracy of each last point, and its line.
        look: The words, and the size of the figure.
    """
    low, high = panel.get_ylim()
    panel_inches = panel.get_window_extent().height / panel.figure.dpi
    name_inches = _SMALL_NAME if look.single_column else _NAME
    wanted_heights = [(y - low) / (high - low) for _, y, _ in ends]  # shares of the panel's height
    heights = _spread_heights(wanted_heights, name_inches / panel_inches)
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
            _words(line, look),
            (x, y),
            xytext=(1.04, height),
            textcoords="axes fraction",
            ha="left",
            va="center",
            color=colour,
            fontsize=6.5 if look.single_column else 7.5,
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


def _words(line: NamedLine, look: Look) -> str:
    text = look.labels.get(line.label, line.label)
    return f"{text} (oracle)" if line.role == "oracle" else text


def _wrap(labels: Iterable[str]) -> list[str]:
    """Return labels with line breaks, but without a break after a bar or a "by"."""
    unbroken = (label.replace("| ", "|\u00a0").replace(", by ", ", by\u00a0") for label in labels)
    wrapped = (textwrap.wrap(label, 36, break_long_words=False) for label in unbroken)
    return ["\n".join(lines).replace("\u00a0", " ") for lines in wrapped]
