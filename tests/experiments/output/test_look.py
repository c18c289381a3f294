"""What a caller chooses of a figure, and colours that stay in all figures of a project."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need the extra experiments")
from tests.experiments.output.test_plots import curve, svg, words
from tts.errors import ConfigError
from tts.experiments.output import plots
from tts.experiments.output.naming import _spread_heights
from tts.experiments.output.plots import COLOURS


@pytest.mark.slow
def test_many_lines_are_named_at_their_ends_and_names_do_not_meet() -> None:
    many = [curve(f"strategy {i}") for i in range(22)]
    figure = plots.draw(many, front=False)
    assert figure.legends == []
    [panel] = figure.axes
    names = {note.get_text(): note.xyann[1] for note in panel.texts}
    assert set(names) == {c.label for c in many}
    heights = sorted(names.values())
    inches = panel.get_position().height * figure.get_size_inches()[1]
    assert np.diff(heights).min() * inches >= 0.13
    assert figure.get_size_inches()[1] >= 22 * 0.13
    assert heights[0] >= -0.05
    assert heights[-1] <= 1.05
    assert "grey discs: Pareto front" in " ".join(words(svg(*many)))
    assert "grey discs" not in " ".join(words(svg(*many[:8])))
    colour = {note.get_text(): note.get_color() for note in panel.texts}
    drawn = [line for line in panel.lines if line.get_linestyle() != "None"]
    assert [colour[one.label] for one in many] == [line.get_color() for line in drawn]
    few = plots.draw(many[:8], front=False)
    assert len(few.legends) == 1


@pytest.mark.parametrize(
    ("wanted", "gap", "heights"),
    [
        ([0.9, 0.5, 0.1], 0.05, [0.9, 0.5, 0.1]),
        ([0.5, 0.5], 0.1, [0.55, 0.45]),
        ([0.0, 0.01, 1.0], 0.1, [0.0, 0.1, 1.0]),
        ([0.99, 1.0], 0.5, [0.5, 1.0]),
        ([0.5, 0.5, 0.5], 0.5, [1.0, 0.5, 0.0]),
        ([], 0.5, []),
    ],
)
def test_heights_stay_where_there_is_room_and_keep_their_order(wanted: Any, gap: float, heights: Any) -> None:
    assert _spread_heights(wanted, gap) == pytest.approx(heights)


def test_many_lines_in_several_panels_are_named_at_the_ends_in_each() -> None:
    many = [curve(f"strategy {i}", group=group) for group in ("2 operations", "4 operations") for i in range(12)]
    figure = plots.draw(many, front=False)
    assert figure.legends == []
    for panel in figure.axes:
        assert {note.get_text() for note in panel.texts} == {c.label for c in many}
    few = plots.draw([one for one in many if int(one.label.split()[1]) < 8], front=False)
    assert len(few.legends) == 1


def test_a_figure_of_ones_own_gets_a_panel() -> None:
    from matplotlib.figure import Figure

    mine = Figure()
    left, right = mine.subplots(1, 2)
    assert plots.draw([curve("a"), curve("b")], ax=right) is mine
    assert len(right.lines) >= 2
    assert len(left.lines) == 0
    assert mine.texts == []
    assert (right.get_xlabel(), right.get_ylabel()) == ("tokens per problem, verifier included", "accuracy")
    with pytest.raises(ConfigError, match=r"ax.*curves.*2"):
        plots.draw([curve("a"), dataclasses.replace(curve("a"), dataset="other")], ax=left)


def test_a_legend_of_ones_own_axes_covers_no_line() -> None:
    from matplotlib.figure import Figure

    mine = Figure(layout="constrained")
    panel = mine.subplots()
    plots.draw([curve("a"), curve("b")], ax=panel, labels={"a": "Ours"})
    mine.draw_without_rendering()
    legend = panel.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"Ours", "b", "Pareto front"}
    assert not legend.get_window_extent().overlaps(panel.get_window_extent())
    whole = legend.get_window_extent()
    assert min(whole.x0, whole.y0) >= 0
    assert (whole.x1 <= mine.bbox.x1, whole.y1 <= mine.bbox.y1) == (True, True)
    assert not whole.overlaps(panel.xaxis.label.get_window_extent())


@pytest.mark.parametrize("layout", ["constrained", None])
@pytest.mark.parametrize("number", [3, 6])
def test_at_the_width_of_a_journal_s_column_the_legend_is_below_and_whole(number: int, layout: Any) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = ["majority", "weighted", "best", "best_of_majority", "unanimous(window=4) | best", "confidence"]
    with rc_context({"legend.fontsize": 7}):
        mine = Figure(figsize=(3.35, 2.5), layout=layout)
        panel = mine.subplots()
        plots.draw([curve(f"best_of_n | {name}") for name in names[:number]], ax=panel)
        mine.draw_without_rendering()
    legend = panel.get_legend()
    assert legend is not None
    whole = legend.get_window_extent()
    label = panel.xaxis.label.get_window_extent()
    assert all(6 <= text.get_fontsize() <= 7 for text in legend.get_texts())
    assert (whole.y1 <= label.y0, whole.y0 >= -1, whole.x0 >= -1, whole.x1 <= mine.bbox.x1 + 1) == (True,) * 4
    assert panel.get_window_extent().width > 0.7 * mine.bbox.width
    assert panel.get_window_extent().height > 0.25 * mine.bbox.height


def test_lines_of_one_strategy_have_its_colour_and_differ_otherwise() -> None:
    def line(strategy: str, label: str) -> Any:
        return dataclasses.replace(curve(label), strategy=strategy)

    lines = [line("best", "best, small"), line("best", "best, large"), line("vote", "vote, small")]
    order = [line("vote", "vote"), *lines]
    several = plots.draw(lines, front=False, order=order)
    assert [one.get_color() for one in several.axes[0].lines] == [COLOURS[1], COLOURS[1], COLOURS[0]]
    assert plots.draw(lines[2:], front=False, order=order).axes[0].lines[0].get_color() == COLOURS[0]
    assert plots.draw(lines[:1], front=False).axes[0].lines[0].get_color() == COLOURS[0]
    small, large, _ = several.axes[0].lines
    assert small.get_marker() != large.get_marker()
    models = plots.draw(lines[:2], front=False, order=order)
    assert len({one.get_color() for one in models.axes[0].lines}) == 2
