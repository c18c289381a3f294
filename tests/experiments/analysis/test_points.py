from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from tests.experiments.pools import live, sums, written
from tts.experiments.analysis.curves import curves_of
from tts.experiments.analysis.points import Point, points_of
from tts.experiments.analysis.pools import pools_of
from tts.experiments.analysis.replay import replay
from tts.experiments.output.tables import as_csv, as_json, as_text


@pytest.fixture(scope="module")
def points() -> list[Point]:
    """Majority live at two sizes, and majority, best-of-majority and its own law replayed of six samples."""
    run = [result for n in (1, 4) for result in live("best_of_n | majority", n)]
    pools = pools_of(live("best_of_n | weighted", 6)).pools
    replayed = replay(pools, ["best_of_n | majority", "best_of_n | best_of_majority"], [1, 4], draws=10)
    return points_of([*curves_of(run, rng=np.random.default_rng(0)), *replayed])


@pytest.mark.slow
def test_each_point_says_whether_it_is_live(points):
    assert [(point.strategy, point.kind, point.costs["samples"]) for point in points] == [
        ("best_of_n | majority", "live", 1), ("best_of_n | majority", "live", 4),
        ("best_of_n | majority", "replayed", 1), ("best_of_n | majority", "replayed", 4),
        ("best_of_n | best_of_majority", "replayed", 1), ("best_of_n | best_of_majority", "replayed", 4),
    ]  # fmt: skip
    assert [point.drawing_error for point in points[:4]] == [None, None, 0.0, 0.0]
    assert points[4].drawing_error == 0.0
    assert points[5].drawing_error > 0


def test_a_live_point_has_all_its_costs_and_a_replayed_one_those_of_its_samples(points):
    assert points[1].costs["flops"] > 0
    assert points[3].costs["flops"] is None
    assert points[3].costs["tokens"] == points[3].costs["generated_tokens"]
    # four of six samples against the first four, which differ by a token where one has no answer
    assert points[3].costs["generated_tokens"] == pytest.approx(points[1].costs["generated_tokens"], abs=1)


def test_the_table_says_it_in_words(points):
    lines = as_text(points, 200).splitlines()
    assert "data set   sums" in lines
    assert "seeds      2" in lines
    assert f"problems   {len(sums())}" in lines
    rows = [line for line in lines if "best_of_n |" in line]
    assert ["live" in row for row in rows] == [True] * 2 + [False] * 4
    assert ["replayed" in row for row in rows] == [False] * 2 + [True] * 4
    assert ["±" in row for row in rows] == [False] * 5 + [True]
    assert rows[5].endswith(f"± {100 * points[5].drawing_error:.1f} %")
    shown = (
        f"{100 * points[1].accuracy.value:.1f} % [{100 * points[1].accuracy.low:.1f}, "
        f"{100 * points[1].accuracy.high:.1f}]"
    )
    assert rows[1].endswith(shown)


def test_a_table_fits_a_line_in_blocks_that_name_their_rows(points):
    text = as_text(points, 60)
    assert max(map(len, text.splitlines())) <= 60
    _, names, *blocks = text.split("\n\n")
    assert [line.split()[0] for line in names.splitlines()] == ["row", "1", "2", "3", "4", "5", "6"]
    assert names.count("best_of_n | ") == 6
    for block in blocks:
        assert [line.split()[0] for line in block.splitlines()] == ["row", "1", "2", "3", "4", "5", "6"]
    assert "accuracy [95 %]" in blocks[-1]
    narrow = as_text(points, 40).split("\n\n")[2:]
    titles = [title for block in narrow for title in block.splitlines()[0].split()[1:]]
    assert len(narrow) > len(blocks)
    assert titles == [title for block in blocks for title in block.splitlines()[0].split()[1:]]


def test_csv_and_json_say_the_same(points):
    rows, listed = list(csv.DictReader(io.StringIO(as_csv(points)))), json.loads(as_json(points))
    assert len(rows) == len(listed) == len(points)
    for row, one, point in zip(rows, listed, points, strict=True):
        assert float(row["accuracy"]) == one["accuracy"]["value"] == point.accuracy.value
        assert float(row["accuracy_high"]) == one["accuracy"]["high"] == point.accuracy.high
        assert (row["flops"] == "") == (one["costs"]["flops"] is None) == (point.costs["flops"] is None)
        assert (row["strategy"], row["kind"]) == (one["strategy"], one["kind"])


def test_problems_whose_pools_are_too_small_are_shown():
    pools = [written(*[(0, 0.5)] * 3, problem="a"), written((0, 0.5), problem="b")]
    (replayed,) = replay(pools, ["best_of_n | majority"], [1, 3])
    points = points_of([replayed])
    assert [(point.problems, point.too_small) for point in points] == [(2, 0), (1, 1)]
    header, *rows = [line.split() for line in as_text(points).splitlines()[-3:]]
    assert " ".join(header[:4]) == "problems pools too small"
    assert rows[1][:2] == ["1", "1"]
