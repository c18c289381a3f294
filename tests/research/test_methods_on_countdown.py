"""The exact verifier of countdowns, and its flipped verdicts."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research.methods", reason="research is no part of the wheel")

from research.methods.countdown import METHODS, Reachable, Row, draw_figure, main, page, read_page
from research.pocket.evaluate.problems import Cell
from research.pocket.gates.drawing import draw_problems
from tts import tasks
from tts.backends.function import FunctionBackend
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.plan import parse
from tts.solver.solver import Solver
from tts.statistics import Estimate
from tts.tasks.arithmetic.countdown import CountdownProblem, read
from tts.types import Problem

PROBLEM = Problem("Reach 17 with 3 4 5.", task="countdown")
RIGHT, LOST = "3 * 4 = 12\n12 + 5 = 17\nA: 17\n", "3 + 4 = 7\n7 + 5 = 12\nA: 12\n"


def scores(verifier: Reachable, text: str) -> float:
    with Solver(FunctionBackend(lambda asked: text), verifier, task="countdown") as solver:
        end = solver.solve(PROBLEM, Budget(samples=1), strategy="best_of_n(n=1) | best")
    assert end.error is None
    return end.candidates[0].scores["main"]


def test_verdicts_are_exact_and_flipped_as_often_as_they_should() -> None:
    assert scores(Reachable(), RIGHT) == 1.0
    assert scores(Reachable(), LOST) == 0.0
    judged = [
        Reachable(error=0.3, seed=seed).judge_lines(PROBLEM, _asked(), tasks.get("countdown").split(RIGHT))
        for seed in range(400)
    ]
    assert set(np.ravel(judged)) == {0.3, 0.7}
    assert np.mean(np.array(judged) == 0.3) == pytest.approx(0.3, abs=0.05)
    again = Reachable(error=0.3, seed=7).judge_lines(PROBLEM, _asked(), ["3 * 4 = 12\n"])
    assert again == judged[7][:1]
    with pytest.raises(ConfigError, match=r"error.*0\.6,.*between 0"):
        Reachable(error=0.6)


def _asked() -> CountdownProblem:
    found = read(PROBLEM.text)
    assert found is not None
    return found


def test_every_method_is_a_plan_and_every_row_is_on_the_page() -> None:
    assert all(parse(plan).strategy is not None for plan in METHODS.values())
    row = Row("exact", "beam", 124, Estimate(value=0.25, low=0.1, high=0.5, level=0.95, num=4), 120.0, 5e8)
    assert "| exact | beam | 124 | 25.0 [10.0, 50.0] | 120 | 500 |" in page([row], 4, 1)


def _row(method: str, right: tuple[float, ...], flops: float) -> Row:
    return Row(
        "learnt",
        method,
        124,
        Estimate(value=float(np.mean(right)), low=0.0, high=1.0, level=0.95, num=4),
        120.0,
        flops,
        right,
    )


def test_differences_are_paired_by_problem_and_marked_where_their_interval_excludes_0() -> None:
    right = (1.0, 1.0, 0.0, 1.0) * 15
    made = [_row("majority", (0.0,) * 60, 5e8), _row("best_of_n", right, 6e8), _row("beam", right, 7e8)]
    text = page(made, 60, 1)
    assert "| learnt | best_of_n | 124 | **+75.0 [" in text
    assert "| learnt | beam | 124 | **+75.0 [" in text
    assert "| +0.0 [-0.0, +0.0] |" in text or "| +0.0 [" in text
    assert "minus majority" not in page(made[:1], 60, 1)


def test_the_figure_has_a_panel_for_each_verifier(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    items = draw_problems(Cell("countdown", 4), "test", 4)
    made = [
        _row(method, (1.0, 0.0, 1.0, share), flops)
        for method in ("majority", "beam")
        for share, flops in ((0.0, 5e8), (1.0, 9e8))
    ]
    draw_figure(made, items, 1, tmp_path / "found.svg")
    drawn = (tmp_path / "found.svg").read_text()
    assert "<svg" in drawn
    with pytest.raises(ConfigError, match="must end in"):
        draw_figure(made, items, 1, tmp_path / "found.txt")


CLAIMS = Path(__file__).parents[2] / "docs" / "results" / "claims.md"


@pytest.mark.skipif(not CLAIMS.is_file(), reason="the documents are no part of the wheel")
def test_the_stored_study_of_the_demo_s_figure_tells_a_search_from_votes_by_its_intervals(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra experiments")
    methods = ["majority", "best_of_n", "rebase"]
    stored = read_page(CLAIMS, ["learnt"], methods)
    assert (stored.problems, stored.seeds, len(stored.rows)) == (300, 3, 9)
    last = {one.method: one.accuracy for one in stored.rows if one.budget == 248}
    assert last["majority"].high < last["best_of_n"].low
    assert last["best_of_n"].high < last["rebase"].low
    items = draw_problems(Cell("countdown", 4), "test", 2)
    made = [Row("learnt", name, 62, Estimate(0.5, 0.1, 0.9, num=2), 60.0, 4e8, (0.0, 1.0)) for name in methods]
    draw_figure(made, items, 1, tmp_path / "demo.svg", stored)
    drawn = (tmp_path / "demo.svg").read_text()
    for words in ("this run (2 problems)", "stored study, 3 seeds (300 problems)", "95 % intervals"):
        assert words in drawn


@pytest.mark.skipif(not CLAIMS.is_file(), reason="the documents are no part of the wheel")
def test_a_stored_study_is_drawn_alone_and_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra experiments")
    monkeypatch.setattr("sys.argv", ["countdown", "--stored", str(CLAIMS), "--figure", str(tmp_path / "stored.svg")])
    monkeypatch.setattr("research.methods.countdown.rows", None)
    main()
    drawn = (tmp_path / "stored.svg").read_text()
    for words in ("300 problems", "3 seeds", "95 %", "a_star", "rebase", "best_of_n", "majority"):
        assert words in drawn
    assert "this run" not in drawn
    shipped = CLAIMS.with_suffix(".svg").read_text()
    if f"Matplotlib v{importlib.metadata.version('matplotlib')}," in shipped:
        assert drawn == shipped, "the page's study has changed: draw its figure again (research/README.md)"


def test_a_page_without_such_a_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# No study\n")
    with pytest.raises(ConfigError, match="has no study with majority"):
        read_page(tmp_path / "page.md", ["learnt"], ["majority"])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_page(tmp_path / "missing.md", ["learnt"], ["majority"])
