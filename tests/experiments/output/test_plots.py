"""Figures: what is in them, that equal curves are equal files, and what is refused."""

from __future__ import annotations

import dataclasses
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.made import made_curve
from tts.errors import ConfigError, MissingDependency
from tts.experiments.analysis.curves import Curve

pytest.importorskip("matplotlib", reason="figures need the extra experiments")
from tts.experiments.output import plots


def curve(label: str, factor: float = 1.0, **changes) -> Curve:
    rng = np.random.default_rng(zlib.crc32(label.encode()))
    samples = np.array([1.0, 2, 4, 8])
    shares = (rng.random(60)[None, :] < 0.2 + 0.1 * np.log2(samples)[:, None] + factor / 20).astype(float)
    costs = {"samples": samples, "tokens": 60 * samples * factor, "usd": samples - 1}
    return dataclasses.replace(made_curve(label, shares, rng, costs=costs, seeds=[0, 1]), **changes)


def svg(*curves: Curve, **options) -> str:
    return plots.render(plots.draw(curves, **options), "svg").decode()


def words(text: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", text)


def test_a_figure_says_on_what_it_stands():
    curves = curve("majority"), curve("weighted", 2, verifier="process", kind="replayed")
    text = " ".join(words(svg(*curves)))
    for part in ("majority", "weighted", "Pareto front", "accuracy", "tokens per problem, verifier included"):
        assert part in text
    assert "sums: 60 problems · 2 seeds · model: toy · verifiers: none, process" in text
    assert "95 % intervals over problems" in text
    assert "hollow markers: replayed" in text


def test_a_verifier_that_was_never_called_is_said():
    texts = [
        svg(curve("a", verifier="judge", is_scored=False), curve("b", 2, verifier="judge", is_scored=scored))
        for scored in (False, True)
    ]
    assert ["verifier never called" in " ".join(words(text)) for text in texts] == [True, False]


def test_what_is_missing_is_said():
    shares = curve("a").shares.copy()
    shares[3, :30] = np.nan
    no_price = {name: cost for name, cost in curve("b").costs.items() if name != "tokens"}
    text = " ".join(words(svg(curve("a", shares=shares, failed=7), curve("b", costs=no_price), front=False)))
    assert "unfinished: points stand on different problems" in text
    assert "7 failed runs left out" in text
    assert "tokens unknown, so left out: b" in text


def test_a_line_below_an_equal_one_is_named():
    text = " ".join(words(svg(curve("a"), dataclasses.replace(curve("a"), label="b"), curve("c"))))
    assert "a lies below b: equal points" in text
    assert text.count("lies below") == 1
    assert "lies below" not in " ".join(words(svg(curve("a"), curve("c"))))


def test_lines_are_told_apart_by_colour_marker_and_dashes():
    figure = plots.draw([curve(f"s{i}") for i in range(7)], front=False)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 4 and line.get_linestyle() != "None"]
    looks = [(line.get_color(), line.get_marker(), str(line.get_linestyle())) for line in lines]
    assert len(looks) == len(set(looks)) == 7
    assert len({marker for _, marker, _ in looks}) == 7  # in grey too


def test_references_that_dashes_cannot_tell_apart_look_as_other_lines_do():
    few, many = [curve(f"f{i}", role="allocator") for i in range(5)], [curve(f"m{i}", role="uniform") for i in range(7)]
    figure = plots.draw([*few, *many, curve("s")], front=False)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 4 and line.get_linestyle() != "None"]
    looks = {
        (line.get_color(), line.get_marker(), str(line.get_linestyle()), str(line._unscaled_dash_pattern))
        for line in lines
    }
    assert len(looks) == len(lines) == 13
    assert [line.get_color() == "#000000" for line in lines] == [True] * 5 + [False] * 8


def test_replayed_points_are_hollow_and_references_are_black_or_grey():
    figure = plots.draw(
        [curve("a"), curve("b", kind="replayed"), curve("o", role="oracle"), curve("u", role="uniform")], front=False
    )
    a, b, oracle, uniform = (line for line in figure.axes[0].lines if len(line.get_xdata()) == 4)
    assert a.get_markerfacecolor() == a.get_color()
    assert b.get_markerfacecolor() == "white"
    assert (oracle.get_color(), oracle.get_marker()) == ("#000000", "None")
    assert uniform.get_color() == "#7A7A7A"


def test_oracles_are_named_and_told_apart():
    oracles = [curve(label, role="oracle") for label in ("pass@k", "best")]
    assert {"pass@k (oracle)", "best (oracle)"} <= set(words(svg(*oracles)))
    first, second = (
        str(line.get_linestyle()) + str(line._unscaled_dash_pattern) for line in plots.draw(oracles).axes[0].lines
    )
    assert first != second


def test_without_matplotlib_the_cure_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"figure.*matplotlib") as raised:
        plots.draw([curve("a")])
    assert raised.value.hint == "pip install 'test-time-search[experiments]'"


def test_the_band_is_the_interval():
    one = curve("a")
    (band,) = plots.draw([one]).axes[0].collections
    heights = sorted({round(float(y), 9) for _, y in band.get_paths()[0].vertices})
    assert heights == sorted({round(end, 9) for e in one.accuracy for end in (e.low, e.high)})
    assert not plots.draw([one], bands=False).axes[0].collections


@pytest.mark.parametrize("high", [0.012, 0.25, 0.6, 1.0])
def test_the_labels_of_accuracy_are_their_heights(high: float):
    (panel,) = plots.draw([curve("a")]).axes
    panel.set_ylim(0.0, high)
    for height, label in zip(
        panel.get_yticks(), panel.yaxis.get_major_formatter().format_ticks(panel.get_yticks()), strict=True
    ):
        assert float(label.removesuffix(" %")) == pytest.approx(100 * height, abs=1e-6)


def test_the_front_is_marked_on_its_points():
    cheap, dear = curve("cheap"), curve("dear", 1, costs={"tokens": np.array([60.0, 120, 240, 480]) * 100})
    (front,) = [line for line in plots.draw([cheap, dear]).axes[0].lines if line.get_label() == "_front"]
    assert set(front.get_xdata()) >= {60.0}
    assert "Pareto front" not in words(svg(cheap))  # one curve has none


def test_small_multiples_share_their_axes_and_styles():
    groups = ("10 steps", "2 steps", "3 steps", "4 steps", "1 step")
    curves = [curve(label, group=group) for group in groups for label in "ab"]
    figure = plots.draw(curves, front=False)
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == [f"{name} (60 problems)" for name in ("1 step", "2 steps", "3 steps", "4 steps", "10 steps")]
    assert len({panel.get_xlim() for panel in figure.axes}) == len({panel.get_ylim() for panel in figure.axes}) == 1
    colours = [{line.get_color() for line in panel.lines} for panel in figure.axes]
    assert all(colour == colours[0] for colour in colours)


def test_an_axis_is_logarithmic_where_costs_allow_it():
    assert plots.draw([curve("a")]).axes[0].get_xscale() == "log"
    assert plots.draw([curve("a")], "usd").axes[0].get_xscale() == "linear"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", pytest.param("pdf", marks=pytest.mark.slow)])
def test_the_same_curves_give_the_same_file(tmp_path: Path, suffix: str):
    for name in ("one", "two"):
        plots.save(plots.draw([curve("a"), curve("b", 2)]), tmp_path / f"{name}.{suffix}")
    one, two = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "two"))
    assert one == two
    assert one.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_labels_are_text_and_never_markup():
    text = svg(curve("<script>alert(1)</script> $x_1$ & more"))
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in " ".join(words(text))
    assert "$x_1$" in " ".join(words(text))


@pytest.mark.parametrize(
    ("x", "cause"),
    [("token", "did you mean tokens"), ("flops", "no curve of 1 has costs.*known here: samples, tokens, usd")],
)
def test_an_axis_that_nothing_has_is_refused(x: str, cause: str):
    with pytest.raises(ConfigError, match=cause):
        plots.draw([curve("a")], x)


def test_an_axis_of_costs_that_were_not_counted_is_refused():
    with pytest.raises(ConfigError, match=r"tokens.*known here: samples, usd"):
        plots.draw([curve("a", 0.0)])


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path):
    figure = plots.draw([curve("a")])
    with pytest.raises(ConfigError, match=r"must end in .png, .svg, .pdf"):
        plots.save(figure, tmp_path / "curve.jpg")
    with pytest.raises(ConfigError, match="cannot be written"):
        plots.save(figure, tmp_path / "missing" / "curve.png")


def test_many_lines_of_many_strategies_are_distinct():
    """A colour comes again at the seventh strategy, whose lines have other markers and dashes."""
    curves = [curve(f"{s} {line}", strategy=f"s{s}") for s in range(7) for line in range(7)]
    lines = plots._lines(curves, [curves], "tokens", curves)  # pyright: ignore[reportPrivateUsage]
    looks = {tuple(str(line.style[name]) for name in ("color", "marker", "linestyle")) for line in lines.values()}
    assert len(looks) == len(curves)


def test_own_axes_hold_their_legend():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3))
    axes = figure.subplots(1, 2)
    edges = [ax.get_position().x1 for ax in axes]
    for ax in axes:
        plots.draw([curve("majority"), curve("a longer name of a line")], ax=ax)
    drawn = [ax.get_tightbbox().transformed(figure.transFigure.inverted()).x1 for ax in axes]
    assert all(end <= edge for end, edge in zip(drawn, edges, strict=True))
