"""`tts plot` and `tts report` on a store that was filled before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts.experiments.output.plots import COLOURS
from tts.experiments.store.store import Store
from tts.experiments.study.record import Cell, Result
from tts.types import Usage

pytest.importorskip("matplotlib", reason="figures need the extra experiments")
VOTE, WEIGHTED = "best_of_n | majority", "best_of_n | weighted"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A study of 40 problems: weighted needs half the tokens for the same accuracy."""
    path = tmp_path / "store.sqlite"
    with Store(path) as opened:
        study = opened.begin("sums", {})
        results = [
            result(place, strategy, samples)
            for strategy in (VOTE, WEIGHTED)
            for samples in (1, 2, 4, 8)
            for place in range(40)
        ]
        opened.add(study, [one.cell for one in results])
        opened.lease(study, "worker", len(results))
        for one in results:
            opened.finish("worker", one)
    return path


def result(place: int, strategy: str, samples: int, unit: str = "samples") -> Result:
    tokens = samples * (100 if strategy == VOTE else 50)
    cell = Cell(
        key=f"{strategy} {samples} {place} {unit}",
        dataset="sums",
        problem=f"sums/{place}",
        group=f"{2 + place % 2} steps",
        model="toy",
        setting="s",
        strategy=strategy,
        budget={unit: samples},
        seed=0,
    )
    usage = Usage(generated_tokens=tokens, samples=samples)
    return Result(
        cell=cell, answer="1", right=place < 10 + 3 * samples, confidence=1.0, stopped_by="samples drawn", usage=usage
    )


@pytest.mark.slow
def test_a_figure_is_written_and_the_gain_is_said(tts, store: Path, tmp_path: Path) -> None:
    done = tts("plot", "sums", "--store", str(store), "--out", str(tmp_path / "curve.svg"), "--baseline", VOTE)
    assert done.exit_code == 0
    assert done.stderr == ""
    *said, last = done.stdout.splitlines()
    assert last == str(tmp_path / "curve.svg")
    assert said == [f"{WEIGHTED}: 0.5 times [0.5, 0.5] the tokens for 85 %; +30.0 [+15.6, +45.1] points at 400 tokens"]
    drawn = (tmp_path / "curve.svg").read_text()
    for words in (VOTE, WEIGHTED, "sums: 40 problems"):
        assert words in drawn


@pytest.mark.slow
def test_a_figure_by_group_has_a_panel_for_each(tts, store: Path, tmp_path: Path) -> None:
    done = tts("plot", "--store", str(store), "--out", str(tmp_path / "curve.svg"), "--by-group", "--x", "samples")
    assert done.exit_code == 0
    drawn = (tmp_path / "curve.svg").read_text()
    assert "2 steps (20 problems)" in drawn
    assert "3 steps (20 problems)" in drawn
    assert "samples per problem" in drawn


def test_what_is_wrong_is_said_before_the_store_is_read(tts, assert_error, store: Path, tmp_path: Path) -> None:
    assert_error(
        tts("plot", "--store", str(store), "--out", "curve.jpg"),
        2,
        "the figure is 'curve.jpg', but must end in .png, .svg, .pdf",
        "give a name such as curve.png",
    )
    assert_error(
        tts("report", "--store", str(store), "--out", "page.txt"),
        2,
        "the page is 'page.txt', but must end in .html",
        "give a name such as report.html",
    )
    assert_error(
        tts("plot", "--store", str(store), "--out", str(tmp_path / "curve.png"), "--x", "token"),
        2,
        "axis is 'token', but no axis has that name",
        "did you mean tokens or path_tokens?",
    )


@pytest.mark.slow
def test_a_page_is_written(tts, store: Path, tmp_path: Path) -> None:
    done = tts("report", "--store", str(store), "--out", str(tmp_path / "page.html"), "--baseline", WEIGHTED)
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path / 'page.html'}\n"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"Compared with {WEIGHTED}" in page
    assert "No search was recorded" in page
    assert page.count("<figure ") >= 4


@pytest.mark.slow
def test_a_baseline_is_the_strategy_whatever_its_budgets_limit(tts, tmp_path: Path) -> None:
    """With limits on samples and on tokens each line is held against the one of the same limits."""
    path = tmp_path / "store.sqlite"
    with Store(path) as opened:
        study = opened.begin("sums", {})
        results = [
            result(place, strategy, samples, unit)
            for unit in ("samples", "tokens")
            for strategy in (VOTE, WEIGHTED)
            for samples in (1, 8)
            for place in range(40)
        ]
        opened.add(study, [one.cell for one in results])
        opened.lease(study, "worker", len(results))
        for one in results:
            opened.finish("worker", one)
    done = tts("plot", "--store", str(path), "--out", str(tmp_path / "curve.svg"), "--baseline", VOTE)
    assert done.exit_code == 0, done.output
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()[:-1]] == [
        f"{WEIGHTED}, by samples against {VOTE}, by samples",
        f"{WEIGHTED}, by tokens against {VOTE}, by tokens",
    ]
    exact = tts("plot", "--store", str(path), "--out", str(tmp_path / "curve.svg"), "--baseline", f"{VOTE}, by tokens")
    assert [line.partition(": ")[0] for line in exact.stdout.splitlines()[:-1]] == [
        f"{VOTE}, by samples",
        f"{WEIGHTED}, by samples",
        f"{WEIGHTED}, by tokens",
    ]
    assert tts("report", "--store", str(path), "--out", str(tmp_path / "page.html")).exit_code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<h3>Compared with {VOTE}</h3>" in page
    assert f"<td>{WEIGHTED}, by tokens</td><td>{VOTE}, by tokens</td>" in page


@pytest.mark.slow
def test_lines_have_the_words_that_are_given(tts, store: Path, tmp_path: Path) -> None:
    done = tts(
        "plot",
        "sums",
        "--store",
        str(store),
        "--out",
        str(tmp_path / "curve.svg"),
        "--label",
        f"{VOTE}=Voting",
    )
    assert (done.exit_code, done.stderr) == (0, "")
    drawn = (tmp_path / "curve.svg").read_text()
    assert "Voting" in drawn
    assert f">{VOTE}<" not in drawn
    refused = tts("plot", "sums", "--store", str(store), "--out", str(tmp_path / "curve.svg"), "--label", "a")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: --label is 'a'")


@pytest.mark.slow
def test_some_strategies_are_drawn_in_their_own_colours(tts, store: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.svg", tmp_path / "part.svg"
    assert tts("plot", "sums", "--store", str(store), "--out", str(whole)).exit_code == 0
    assert tts("plot", "sums", "--store", str(store), "--out", str(part), "--strategy", WEIGHTED).exit_code == 0
    drawn, alone = whole.read_text(), part.read_text()
    assert (VOTE in drawn, VOTE in alone) == (True, False)
    first, second = COLOURS[:2]
    assert first.lower() in drawn
    assert second.lower() in alone
    assert first.lower() not in alone


@pytest.mark.slow
def test_an_unknown_strategy_of_a_figure_is_refused(tts, store: Path, assert_error) -> None:
    wrong = tts("plot", "sums", "--store", str(store), "--strategy", "best_of_n | majorty")
    cause = "strategy is 'best_of_n | majorty', but no strategy has that name"
    assert_error(wrong, 2, cause, f"did you mean {VOTE} or {WEIGHTED}?")


@pytest.mark.slow
def test_words_of_a_line_take_its_short_name_and_an_unknown_one_is_refused(tts, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "curve.svg"
    done = tts(
        "plot",
        "sums",
        "--store",
        str(store),
        "--out",
        str(out),
        "--label",
        f"{VOTE}=voting",
        "--label",
        f"{WEIGHTED}=by score",
    )
    assert done.exit_code == 0
    assert "voting" in out.read_text()
    assert "by score" in out.read_text()
    done = tts("plot", "sums", "--store", str(store), "--out", str(out), "--label", "nonsense=vote")
    assert done.exit_code == 2
    assert "strategy is 'nonsense'" in done.stderr
