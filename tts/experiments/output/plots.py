"""Draws figures of scaling curves: accuracy against a cost.

Figures have bands, the Pareto front, reference lines and small multiples. Lines differ in colour (Okabe and Ito's
palette for all kinds of colour vision), marker and dashes, and can be told apart in grey. Hollow markers are replayed.
A caption names problems, seeds, model and verifier. Equal curves give equal bytes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tts.errors import ConfigError, require_extra, unknown_name
from tts.experiments.analysis.comparing import amount, pareto_front
from tts.experiments.analysis.curves import AXES, Curve
from tts.experiments.analysis.table import UNSCORED
from tts.experiments.output.naming import (
    NamedLine,
    are_named_at_ends,
    caption,
    height_of_names,
    most_in_one_panel,
    name_lines,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, "Color universal design" (2008), ordered so that neighbours differ in grey. Black is for reference
# lines.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2)))
_REFERENCES: Final[Mapping[str, dict[str, Any]]] = {
    "oracle": {"color": "#000000", "linestyle": DASHES[2], "marker": "None"},
    "uniform": {"color": "#7A7A7A", "linestyle": DASHES[1], "marker": "x"},
    "allocator": {"color": "#000000", "linestyle": DASHES[0], "marker": "*", "markersize": 8},
}
_FRONT: Final[dict[str, Any]] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 12,
    "color": "#CFCFCF",
    "markeredgewidth": 0,
}
_FRONT_LABEL: Final = "_front"
_SUFFIXES: Final = (".png", ".svg", ".pdf")
_RC: Final[dict[str, Any]] = {
    "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 9.0, "axes.labelsize": 9.5, "axes.titlesize": 9.5,
    "legend.fontsize": 8.5, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "xtick.color": "#4A4A4A",
    "ytick.color": "#4A4A4A",
    "xtick.labelcolor": "#1A1A1A", "ytick.labelcolor": "#1A1A1A", "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": "#4A4A4A", "axes.linewidth": 0.8, "axes.axisbelow": True, "axes.grid": True,
    "grid.color": "#E3E3E3", "grid.linewidth": 0.7, "svg.fonttype": "none", "svg.hashsalt": "tts", "pdf.fonttype": 42,
    "text.parse_math": False,
}  # fmt: skip
_INK = "#1A1A1A"
_HOW_UNIT = {  # how to state the facts of a model without which a cost is unknown
    "flops": "FLOPs need the model's parameters before the run (tts models add NAME --parameters 8B, or parameters: "
    "8B beside model:)",
    "usd": "dollars need its prices before the run (tts models add NAME --usd-in 0.15/M --usd-out 0.6/M)",
}
_PAD = 0.08  # inches around a saved figure
_NARROW = 1.15  # ratio of a line's greatest to its least cost, up to which bars replace a band that is too narrow
_PANEL = (5.2, 3.6)  # inches of a single panel, whose legend comes beside it
_PANEL_INCHES = (3.1, 2.4)  # inches of a panel among several
_MOST_BANDS = 5  # bands of a panel; more lines have whiskers, since bands would cover each other
_LEAST_SHARE = 0.3  # share of a caller's axes that stays beside the names of lines
_LOG_FROM = 5.0  # ratio of the greatest to the least cost, from which an axis is logarithmic


def draw(
    curves: Sequence[Curve],
    x: str = "tokens",
    *,
    bands: bool = True,
    front: bool = True,
    labels: Mapping[str, str] = MappingProxyType({}),
    order: Sequence[Curve] = (),
    ax: Axes | None = None,
) -> Figure:
    """Return the figure of curves, with a panel for each data set and group.

    Args:
        curves: The curves to draw.
        x: A name in `AXES`. Curves without this axis are left out, and the caption names them.
        bands: Whether to draw 95 % intervals over problems.
        front: Whether to mark the Pareto front, where there are several curves.
        labels: The words of the legend for a line, by the line's label.
        order: All curves of a study, by whose order a strategy has the same colour in all its figures; (): `curves`.
        ax: The axes to draw one panel in, whose figure is returned without a caption. The legend is beside the axes,
            or below them where they are narrow. If the figure has no layout such as "constrained", the axes make room
            for it. Its letters have at most the size of the caller's `legend.fontsize`.

    Costs that differ by a factor of 5 have a logarithmic axis, if none is 0.

    Raises:
        ConfigError: no curve has the axis, or `ax` is given for several panels.
        MissingDependency: matplotlib is not installed.
    """
    style = style_context(own=ax is None)
    drawn_curves, curves_without_axis = _with_axis(curves, x)
    panels = _curves_by_panel(drawn_curves)
    if ax is not None and len(panels) > 1:
        raise ConfigError(
            f"ax is given, but the curves have {len(panels)} panels", hint="give the curves of one data set and group"
        )
    lines_by_label = _lines(drawn_curves, list(panels.values()), x, order or curves)
    lines = list(lines_by_label.values())
    with style:
        if ax is None:
            figure, axes = _panels(len(panels), lines)
        else:
            figure, axes = cast("Figure", ax.figure), [ax]
        for panel, ((dataset, group), panel_curves) in zip(axes, panels.items(), strict=True):
            _draw_panel(panel, panel_curves, x, lines_by_label, bands=bands, front=front)
            if len(panels) > 1:
                panel.set_title(_panel_title(dataset, group, panel_curves), loc="left", color=_INK)
        _dress(axes, x, logarithmic=_is_log(drawn_curves, x))
        has_front = any(line.get_label() == _FRONT_LABEL for panel in axes for line in panel.lines)
        is_unplaced = ax is not None and figure.get_layout_engine() is None
        if is_unplaced:
            _narrow(axes[0])  # the ends of ticks need room too
        name_lines(figure, axes, lines, labels, front=_FRONT if has_front else None, own=ax is None)
        if is_unplaced:
            _narrow(axes[0])
        if ax is None:
            front_facts = ["grey discs: Pareto front"] if has_front and are_named_at_ends(lines) else []
            caption(figure, _facts(drawn_curves, curves_without_axis, x, bands=bands) + front_facts)
    return figure


def _draw_panel(
    panel: Axes,
    curves: Sequence[Curve],
    x: str,
    lines_by_label: Mapping[str, NamedLine],
    *,
    bands: bool,
    front: bool,
) -> None:
    """Draw the curves of one panel, with the Pareto front and the intervals as requested."""
    if front and len([curve for curve in curves if curve.role != "oracle"]) > 1:
        _draw_front(panel, curves, x)
    for curve in curves:
        style = lines_by_label[curve.label].style
        _draw_curve(panel, curve, x, style)
        if bands and curve.role != "oracle":
            _draw_intervals(panel, curve, x, style["color"], filled=len(curves) <= _MOST_BANDS + 1)


def _curves_by_panel(curves: Sequence[Curve]) -> dict[tuple[str, str | None], list[Curve]]:
    """Return curves by data set and group, with data sets in order of appearance and groups by name."""
    datasets = [curve.dataset for curve in curves]
    panels: dict[tuple[str, str | None], list[Curve]] = {}
    for curve in sorted(curves, key=lambda curve: (datasets.index(curve.dataset), _natural(curve.group or ""))):
        panels.setdefault((curve.dataset, curve.group), []).append(curve)
    return panels


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the path. Equal figures give equal bytes.

    Raises:
        ConfigError: another ending, or a path that cannot be written.
    """
    path = check_path(path)
    write_file(path, render(figure, path.suffix[1:]), "the figure")


def write_file(path: Path, content: bytes, what: str) -> None:
    """Write a file that a person named, `what` in the error.

    Raises:
        ConfigError: the path cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as failure:
        raise ConfigError(
            f"{what} {str(path)!r} cannot be written: {failure.strerror}", hint="name a folder that exists"
        ) from None


def check_path(
    path: str | Path, what: str = "the figure", endings: Sequence[str] = _SUFFIXES, example: str = "curve.png"
) -> Path:
    """Return the path of a figure, or of another file (`what`) with some endings.

    Raises:
        ConfigError: another ending.
    """
    path = Path(path)
    if path.suffix not in endings:
        raise ConfigError(
            f"{what} is {str(path)!r}, but must end in {', '.join(endings)}", hint=f"give a name such as {example}"
        )
    return path


def style_context(*, own: bool = True) -> AbstractContextManager[None]:
    """Return a context that draws figures in this package's style.

    Args:
        own: Whether this package made the figure; else the caller's sizes and families of letters stay.

    Raises:
        MissingDependency: matplotlib is not installed.
    """
    letters = ("font.family", "font.size", "axes.labelsize", "axes.titlesize", "legend.fontsize")
    with require_extra("matplotlib", "experiments", "a figure"):
        import matplotlib as mpl
    style: Any = {name: _RC[name] for name in _RC if own or name not in letters}
    return mpl.rc_context(style)


def render(figure: Figure, form: str) -> bytes:
    """Return a figure as the bytes of a png, svg or pdf file, without a date."""
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }
    file = BytesIO()
    with style_context():
        figure.savefig(file, format=form, dpi=200, bbox_inches="tight", pad_inches=_PAD, metadata=metadata[form])
    return file.getvalue()


# ---- what is drawn ----


def _with_axis(curves: Sequence[Curve], x: str) -> tuple[list[Curve], list[Curve]]:
    """Return the curves with an axis, and the other curves.

    Raises:
        ConfigError: The axis is unknown, or no curve has costs on it.
    """
    if x not in AXES:
        raise unknown_name("axis", x, AXES)
    curves_with_axis = [curve for curve in curves if x in curve.costs and curve.costs[x].any()]
    if not curves_with_axis:  # where all costs are 0, they were not counted, as those of an agent with its own model
        known_names = [
            name for name in AXES if any(name in curve.costs and curve.costs[name].any() for curve in curves)
        ]
        cure = f"; {_HOW_UNIT[x]}" if x in _HOW_UNIT else ""
        raise ConfigError(
            f"axis is {x!r}, but no curve of {len(curves)} has costs above 0 on it",
            hint=f"known here: {', '.join(known_names) or 'none'}{cure}",
        )
    return curves_with_axis, [curve for curve in curves if curve not in curves_with_axis]


def _is_log(curves: Sequence[Curve], x: str) -> bool:
    """Return whether the axis of costs is logarithmic."""
    costs = np.concatenate([curve.costs[x] for curve in curves])
    return bool(costs.min() > 0) and bool(costs.max() >= _LOG_FROM * costs.min())


def _ends(panels: Sequence[Sequence[Curve]], label: str, x: str) -> tuple[tuple[int, float, float], ...]:
    """Return panel, cost and accuracy of the last point of a line in each panel that has the line."""
    ends: list[tuple[int, float, float]] = []
    for panel_index, panel_curves in enumerate(panels):
        for curve in panel_curves:
            if curve.label == label:
                last = int(np.argmax(curve.costs[x]))
                ends.append((panel_index, float(curve.costs[x][last]), curve.accuracy[last].value))
    return tuple(ends)


def _lines(
    curves: Sequence[Curve], panels: Sequence[Sequence[Curve]], x: str, order: Sequence[Curve]
) -> dict[str, NamedLine]:
    """Return the line of each label, which is the same in all panels.

    The place of a strategy in `order` decides its colour. Lines of one strategy differ in marker and dashes, and in
    colour where the figure has no other strategy. Where there are more reference lines than dash patterns, these lines
    get ordinary looks.
    """
    first_curves: dict[str, Curve] = {}  # by label
    for curve in curves:
        first_curves.setdefault(curve.label, curve)
    role_counts = Counter(curve.role for curve in first_curves.values())
    reference_roles = {role for role in _REFERENCES if role_counts[role] <= len(DASHES)}
    strategy_of = _line_strategies([curve for curve in curves if curve.role not in reference_roles])
    ordered = _line_strategies([curve for curve in order if curve.role not in reference_roles])
    names = dict.fromkeys([*ordered.values(), *strategy_of.values()])
    strategy_numbers = {name: number for number, name in enumerate(names)}
    lines_of_role: Counter[str] = Counter()  # reference lines so far
    lines_of_strategy: Counter[str] = Counter()  # other lines so far
    looks: list[dict[str, Any]] = []
    lines: dict[str, NamedLine] = {}
    for label, curve in first_curves.items():
        line_style: dict[str, Any]
        if curve.role in reference_roles:
            line_style = dict(_REFERENCES[curve.role])
            other_dashes = [dash for dash in DASHES if dash != line_style["linestyle"]]
            line_style["linestyle"] = [line_style["linestyle"], *other_dashes][lines_of_role[curve.role]]
            lines_of_role[curve.role] += 1
        else:
            strategy = strategy_of[label]
            number = strategy_numbers[strategy]
            line_style = {}
            while not line_style or line_style in looks:
                variant_number = number + lines_of_strategy[strategy]
                lines_of_strategy[strategy] += 1
                line_style = {
                    "color": COLOURS[number % len(COLOURS)],
                    "marker": MARKERS[variant_number % len(MARKERS)],
                    "linestyle": DASHES[variant_number % len(DASHES)],
                }
                if lines_of_strategy[strategy] > len(MARKERS) * len(DASHES):
                    break
            looks.append(line_style)
        face = "white" if curve.kind == "replayed" else line_style["color"]
        style = {"linewidth": 1.6, "markersize": 5, "markeredgewidth": 1.2, "markerfacecolor": face, **line_style}
        line_curves = [line_curve for line_curve in curves if line_curve.label == label]  # one in each panel
        accuracies = [accuracy.value for line_curve in line_curves for accuracy in line_curve.accuracy]
        lines[label] = NamedLine(
            label=label, style=style, role=curve.role, peak=max(accuracies), ends=_ends(panels, label, x)
        )
    return lines


def _line_strategies(curves: Sequence[Curve]) -> dict[str, str]:
    """Return by label the name whose number decides a line's colour.

    The name is the strategy. If all curves have one strategy, the name is the label, so that lines differ in colour. A
    single line has the name of its strategy.
    """
    strategies = {curve.label: curve.strategy or curve.label for curve in curves}
    if len(strategies) > 1 and len(set(strategies.values())) == 1:
        return {label: label for label in strategies}
    return strategies


def _draw_curve(panel: Axes, curve: Curve, x: str, style: Mapping[str, Any]) -> None:
    order = np.argsort(curve.costs[x], kind="stable")
    cost = curve.costs[x][order]
    layer = 4 if cost[0] < cost[-1] else 5  # a single point lies above the lines that pass it
    panel.plot(cost, [curve.accuracy[i].value for i in order], zorder=layer, clip_on=False, **style)


def _draw_intervals(panel: Axes, curve: Curve, x: str, colour: Any, *, filled: bool) -> None:
    """Draw the intervals of a curve as a band if `filled`, else as bars, and also as bars if a band is too narrow."""
    order = np.argsort(curve.costs[x], kind="stable")
    cost = curve.costs[x][order]
    accuracies = [curve.accuracy[i] for i in order]
    value, low, high = np.array([(accuracy.value, accuracy.low, accuracy.high) for accuracy in accuracies]).T
    if filled and cost[-1] > _NARROW * cost[0]:
        panel.fill_between(cost, low, high, color=colour, alpha=0.13, linewidth=0, zorder=2)
    else:
        panel.errorbar(
            cost,
            value,
            [value - low, high - value],
            color=colour,
            linestyle="none",
            elinewidth=0.9,
            alpha=0.6,
            zorder=3,
        )


def _draw_front(panel: Axes, curves: Sequence[Curve], x: str) -> None:
    front = pareto_front(curves, x)
    costs, values = [point.cost for point in front], [point.accuracy for point in front]
    panel.plot(costs, values, zorder=3, label=_FRONT_LABEL, clip_on=False, **_FRONT)


# ---- how it looks ----


def _panels(count: int, lines: Sequence[NamedLine]) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels for some lines.

    Legend and caption lie outside of the figure, and are included when it is saved. Names at the ends of lines lie
    within.
    """
    from matplotlib.figure import Figure

    names_at_ends = are_named_at_ends(lines)
    columns = _num_columns(count, names_at_ends=names_at_ends)
    rows = math.ceil(count / columns)
    panel_width, panel_height = _PANEL if count == 1 or names_at_ends else _PANEL_INCHES
    if names_at_ends:
        panel_height = max(panel_height, height_of_names(most_in_one_panel(lines)))
    figure = Figure(figsize=(panel_width * columns, panel_height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for i, panel in enumerate(grid.flat):
        has_panel_below = i + columns < count
        panel.tick_params(labelbottom=not has_panel_below, length=3)
    for panel in grid[:, 0]:
        panel.set_ylabel("accuracy")
    axes = list(grid.flat)
    for panel in axes[count:]:
        panel.remove()
    return figure, axes[:count]


def _narrow(ax: Axes) -> None:
    """Narrow axes so that their legend, or the names at the ends of lines, lies in the place that they had alone.

    If the legend is below, they become lower by its height.
    """
    place = ax.get_position()
    box = ax.get_tightbbox()
    assert box is not None, "axes with lines are visible"
    drawn = box.transformed(ax.figure.transFigure.inverted())
    width = max(place.width - max(0.0, drawn.x1 - place.x1), _LEAST_SHARE * place.width)
    legend = ax.get_legend()
    rise = 0.0
    if legend is not None and (legend_box := legend.get_window_extent()).y1 <= ax.bbox.y0:
        rise = min(max(legend_box.height, -legend_box.y0) / ax.figure.bbox.height, (1 - _LEAST_SHARE) * place.height)
    ax.set_position((place.x0, place.y0 + rise, width, place.height - rise))


def _num_columns(count: int, *, names_at_ends: bool) -> int:
    """Return the number of columns of a figure with `count` panels."""
    if names_at_ends:
        return 1 if count < 4 else 2
    if count < 3:
        return count
    return 2 if count == 4 else 3


def _dress(axes: Sequence[Axes], x: str, *, logarithmic: bool) -> None:
    """Set the limits, ticks and labels of all panels, which share their axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if len(axes) == 1:
        axes[0].set_ylabel("accuracy")
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(max(low, -0.01), min(high, 1.01))
    axes[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{round(100 * share, 6):g} %"))
    if logarithmic:
        base = 2 if x == "samples" else 10
        axes[0].set_xscale("log", base=base)
        lowest, highest = axes[0].get_xlim()
        tick_multiples: tuple[float, ...] = (1.0,)  # of each power of the base
        if base == 10 and highest / lowest < 150:
            tick_multiples = (1.0, 2.0, 5.0)
        elif base == 10 and highest / lowest < 5000:
            tick_multiples = (1.0, 3.0)
        axes[0].xaxis.set_major_locator(LogLocator(base, subs=tick_multiples, numticks=20))
        axes[0].xaxis.set_minor_locator(NullLocator())
    axes[0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))
    columns = len({panel.get_position().x0 for panel in axes})
    last_row = (len(axes) - 1) // columns
    for panel in axes[columns * last_row :]:
        panel.set_xlabel(AXES[x].title)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key by which "10 steps" follows "9 steps"."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", text)]


def _panel_title(dataset: str, group: str | None, curves: Sequence[Curve]) -> str:
    num_problems = [accuracy.num for curve in curves for accuracy in curve.accuracy]
    title = dataset if group is None else group
    return f"{title} ({_range(num_problems, 'problem')})"


def _facts(shown: Sequence[Curve], unknown: Sequence[Curve], x: str, *, bands: bool) -> list[str]:
    """Return the caption: problems, seeds, model, verifier, and the curves and runs that are left out."""
    problems_by_dataset: dict[str, set[str]] = {}
    for curve in shown:
        problems_by_dataset.setdefault(curve.dataset, set()).update(curve.problems)
    facts = [f"{name}: {_range([len(problems)], 'problem')}" for name, problems in problems_by_dataset.items()]
    if any(np.isnan(curve.shares).any() for curve in shown):
        facts.append("unfinished: points stand on different problems")
    facts.append(_range([len(curve.seeds) for curve in shown], "seed"))
    for noun in ("model", "verifier"):
        names = list(dict.fromkeys(getattr(curve, noun) for curve in shown))
        plural = "s" if len(names) > 1 else ""
        facts.append(f"{noun}{plural}:\u00a0{_list(names)}")
    if facts[-1] != "verifier:\u00a0none" and all(curve.is_scored is False for curve in shown):
        facts.append(UNSCORED)
    if bands:
        facts.append("95 % intervals over problems")
    kinds = {curve.kind for curve in shown}
    if kinds == {"replayed"}:
        facts.append("replayed from recorded samples")
    elif "replayed" in kinds:
        facts.append("hollow markers: replayed from recorded samples")
    num_failed = sum(curve.failed for curve in shown)
    if num_failed:
        facts.append(f"{_range([num_failed], 'failed run')} left out")
    facts += [f"{below} lies below {above}: equal points" for below, above in _equal_lines(shown, x)]
    if unknown:
        facts.append(
            f"{AXES[x].unit} unknown, so left out: {', '.join(dict.fromkeys(curve.label for curve in unknown))}"
        )
    return facts


def _equal_lines(shown: Sequence[Curve], x: str) -> list[tuple[str, str]]:
    """Return pairs of labels of lines with equal points in a panel. The later line covers the earlier one."""
    points = [
        (curve.dataset, curve.group, *curve.cost(x), *(accuracy.value for accuracy in curve.accuracy))
        for curve in shown
    ]
    last_labels = {line_points: curve.label for line_points, curve in zip(points, shown, strict=True)}
    pairs = [(curve.label, last_labels[line_points]) for line_points, curve in zip(points, shown, strict=True)]
    return list(dict.fromkeys((label, last_label) for label, last_label in pairs if label != last_label))


def _list(names: Sequence[str]) -> str:
    return ("; " if any(", " in name for name in names) else ", ").join(names)


def _range(counts: Sequence[int], noun: str) -> str:
    low, high = min(counts), max(counts)
    numbers = f"{low} to {high}" if low < high else f"{low}"
    plural = "" if high == 1 else "s"
    return f"{numbers} {noun}{plural}"
