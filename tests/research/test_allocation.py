"""What the allocator is held against on the pair: divisions of recorded samples, in expectation."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("research.allocation.pair", reason="research is no part of the wheel")

from research.allocation import countdown, lured, repeated
from research.allocation.pair import divisions
from research.allocation.pair.measuring import interpolate_shares
from tests.experiments.pools import written
from tts.experiments.analysis.curves import Curve, accuracies

EASY, OPEN, HOPELESS = [(0, None)] * 18, [(0, None), (0, None), (1, None)] * 6, [(i + 1, None) for i in range(18)]


def pools():
    kinds = {"easy": EASY, "open": OPEN, "hopeless": HOPELESS}
    return [written(*samples, problem=f"{kind} {i}") for kind, samples in kinds.items() for i in range(4)]


def test_the_votes_of_more_samples_are_right_more_often_where_most_samples_are():
    problems, *halves = divisions.halves(pools(), None)
    assert problems[4] == "open 0"
    for half in halves:
        assert half.right[:4].min() == 1
        assert half.right[8:].max() == 0
        assert half.right[4, 0] == pytest.approx(half.rate[4], abs=0.2)
        assert half.right[4, -1] == 1
        assert half.cost[4].tolist() == [10 * (i + 1) for i in range(9)]


def test_who_knows_more_divides_better_at_the_same_cost():
    _, first, second = divisions.halves(pools(), None)
    halves = first, second
    found = {
        "uniform": divisions.measure_division(halves, lambda half, _: np.full(len(half.rate), 2)),
        "random": divisions.measure_division(halves, divisions.random_division(2)),
        "bins": divisions.measure_division(halves, divisions.binned_division(2, predicted=False)),
        "oracle": divisions.measure_division(halves, divisions.oracle_division(2)),
    }
    assert all(found[name][1] <= 20 + 1e-9 for name in ("uniform", "random", "oracle"))
    means = {name: right.mean() for name, (right, _) in found.items()}
    assert means["oracle"] > means["uniform"]
    assert means["oracle"] >= means["bins"] - 1e-9


def test_a_greedy_sample_comes_first_in_every_order():
    greedy = {pool.cell.problem: written((7, None, 3)).drawn[0] for pool in pools()}
    _, half, _ = divisions.halves(pools(), greedy)
    assert half.right[:, 0].max() == 0  # its answer is no one else's, and wrong
    assert half.cost[:, 0].tolist() == [3.0] * 12
    assert half.right[:4, 2].min() == 1


def test_a_curve_is_read_between_its_points_and_not_beyond_them():
    shares = np.array([[0.0, 0.0], [1.0, 0.5]])
    curve = Curve(
        label="x",
        dataset="d",
        model="m",
        costs={"tokens": np.array([10.0, 40.0])},
        accuracy=accuracies(shares, np.random.default_rng(0)),
        shares=shares,
        problems=["a", "b"],
        seeds=[0],
    )
    assert interpolate_shares(curve, 20.0).tolist() == pytest.approx([0.5, 0.25])
    assert interpolate_shares(curve, 5.0).tolist() == [0.0, 0.0]
    assert interpolate_shares(curve, 99.0).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(("law", "lure"), [("half .9, half .15", 0.6), ("Beta(.3, 2)", 0.6), ("Beta(.5, .5)", 0.6)])
def test_votes_of_lured_problems_are_not_made_surely_wrong(law, lure):
    found = lured.compare(law, lured.laws()[law], lure, 8, 200, 4)
    assert found.gain >= -lured.ALLOWED - 3 * max(found.error, 0.002)
    assert found.checked > found.uniform, "a checker gains whatever votes do"
    assert found.checked <= found.oracle + 0.01


def test_votes_still_find_the_right_answer_where_wrong_ones_differ():
    found = lured.compare("half .9, half .15", lured.laws()["half .9, half .15"], 0.1, 8, 200, 3)
    assert found.gain > 0.08


def test_a_page_says_when_votes_cannot_be_trusted():
    line = lured.Line("Beta(.3, 2)", 0.6, 8, 0.15, 0.13, -0.02, 0.001, 0.3, 0.4)
    text = "\n".join(lured.page([line], "python -m x", 200, 40))
    assert "**does not hold** (the least gain is -0.0200)" in text
    assert "**holds**" in "\n".join(lured.page([line._replace(gain=-0.004)], "python -m x", 200, 40))


def test_a_known_number_of_wrong_answers_gains_where_they_repeat():
    law = "half .9, half .15"
    line = repeated.compare(law, lured.laws()[law], 10, 8, 150, 3)
    uniform, _auto, fitted, known, _blend = line.accuracies.mean(axis=0)
    assert known > max(uniform, fitted) + 0.01
    text = "\n".join(repeated.section([line, line._replace(estimates=[None, 12, 0])], "python -m x", 150, 8, 3))
    assert text.startswith(lured.REPEATS)
    assert f"| {law} | 10 | unknown to endless | {uniform:.3f} |" in text


def test_sections_of_a_page_are_written_apart(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"# Old\n\n{lured.REPEATS}\n\nkept\n")
    line = lured.Line("Beta(.3, 2)", 0.6, 8, 0.15, 0.16, 0.01, 0.001, 0.3, 0.4)
    monkeypatch.setattr(lured, "compare", lambda *asked: line)
    monkeypatch.setattr("sys.argv", ["lured", "--totals", "8", "--out", str(page)])
    lured.main()
    text = page.read_text()
    assert "# Old" not in text
    assert text.endswith(f"| 0.400 |\n\n{lured.REPEATS}\n\nkept\n")


def test_choices_among_methods_are_told_apart():
    def curve(*shares):
        right = np.array([shares], dtype=float)
        return {
            124: Curve(
                label="x",
                dataset="d",
                model="m",
                costs={"tokens": np.array([10.0])},
                shares=right,
                problems=["a", "b", "c", "d"],
                seeds=[0],
                accuracy=accuracies(right, np.random.default_rng(0)),
            )
        }

    test = {
        "A*": curve(1, 1, 0, 0),
        "REBASE": curve(0, 1, 1, 0),
        "auto": curve(1, 1, 1, 0),
        "REBASE, n = 8": curve(0, 1, 0, 0),
    }
    validation = {"A*": curve(0, 0, 0, 0), "REBASE": curve(1, 0, 0, 0)}
    found = {row.name: row for row in countdown.rows(test, validation)}
    assert found[countdown.BEST].chosen == {124: "REBASE"}
    assert found[countdown.BEST].right[124].tolist() == [0, 1, 1, 0]
    assert found[countdown.RANDOM].right[124].tolist() == [0.5, 1, 0.5, 0]
    assert found[countdown.HINDSIGHT].right[124].tolist() == [1, 1, 1, 0]
    text = "\n".join(countdown.page(list(found.values()), [124], 4, "python -m x"))
    assert "at most 2 points below the best single method at 124 tokens in the mean" in text
    assert f"| {countdown.BEST}: REBASE | 124 | " in text
    assert "minus REBASE with n = 8, +25.0 [" in text
