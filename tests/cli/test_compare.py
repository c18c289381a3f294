from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.experiments.made import cell, result
from tts.errors import ConfigError, MissingDependency
from tts.experiments.analysis.comparing import bases_of
from tts.experiments.analysis.curves import choose_curves
from tts.experiments.analysis.names import strategy_of
from tts.experiments.api import Study
from tts.experiments.store.store import Store, default_store
from tts.statistics import mcnemar, paired_difference

A, B = "single", "best_of_n | majority"
FIRST = [True] * 6 + [False] * 14  # right on the first 6 of 20 problems
SECOND = [True] * 3 + [False] * 3 + [True] * 12 + [False] * 2


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two strategies on 20 problems with two seeds under two budgets; under the second both are alike."""
    monkeypatch.chdir(tmp_path)
    with Store(default_store()) as opened:
        number = opened.begin("pairs", {})
        for at, (strategy, tokens, seed, problem) in enumerate(
            (strategy, tokens, seed, problem)
            for strategy in (A, B)
            for tokens in (100, 200)
            for seed in (0, 1)
            for problem in range(20)
        ):
            one = cell(at, strategy=strategy, budget={"tokens": tokens}, seed=seed, problem=f"sums/{problem}")
            opened.add(number, [one])
            opened.finish("w", result(one, 100, right=(FIRST if strategy == A or tokens == 200 else SECOND)[problem]))
    return Study.from_store("pairs")


def test_two_strategies_are_compared_problem_by_problem(study: Study):
    """Seeds of a problem are one observation: 40 runs are 20 pairs."""
    small, large = study.pairs(A, B)
    expected = paired_difference(np.array(FIRST, float), np.array(SECOND, float), rng=np.random.default_rng(0))
    assert (small.problems, small.first_better, small.second_better) == (20, 3, 12)
    assert (small.first_accuracy, small.second_accuracy) == (0.3, 0.75)
    assert small.mcnemar == mcnemar(3, 12) == pytest.approx(expected.mcnemar)
    assert small.p == expected.resampled_p < 0.05
    assert small.difference.value == pytest.approx(-0.45)
    assert small.difference.low < -0.45 < small.difference.high < 0
    assert small.p_holm == pytest.approx(2 * small.p)
    assert (large.difference.value, large.p, large.mcnemar, large.first_better) == (0, 1, 1, 0)
    mirrored = study.pairs(B, A)[0]
    assert (mirrored.difference.value, mirrored.p) == (pytest.approx(0.45), pytest.approx(small.p))


def test_costs_are_compared_on_the_runs_of_the_differences(tts: Any, study: Study) -> None:
    """A run that the other strategy lacks does not count, and a verifier's tokens do."""
    with Store(default_store()) as opened:
        number = opened.begin("unequal", {})
        for at, (strategy, problem, tokens) in enumerate([(A, "1", 120), (B, "1", 50), (A, "2", 40), (A, "3", 999)]):
            one = dataclasses.replace(cell(at, strategy=strategy, problem=problem), key=f"unequal{at}")
            opened.add(number, [one])
            done = result(one, tokens, right=True)
            opened.finish("w", dataclasses.replace(done, usage=dataclasses.replace(done.usage, verifier_tokens=30)))
    unequal = Study.from_store("unequal")
    assert [row.cost_ratio for row in unequal.pairs(A, B)] == [150 / 80]
    assert re.search(r"tokens A / B  .*\n *100\.0% +100\.0% +1\.88 ", tts("compare", A, B, "--run", "unequal").stdout)
    assert "tokens A / B & " in unequal.compare(A, B, "latex")
    assert "cost_ratio" in unequal.compare(A, B, "csv")


def test_the_other_way_round_is_the_mirror_image(study: Study) -> None:
    for one, other in zip(study.pairs(A, B), study.pairs(B, A), strict=True):
        assert (one.difference.low, one.difference.high) == (-other.difference.high, -other.difference.low)
        assert (one.p, one.mcnemar) == (other.p, other.mcnemar)


def test_rows_are_in_the_order_of_the_table_in_every_form(tts: Any, study: Study) -> None:
    """A budget that was added later, and one whose first run failed, keep their places."""
    with Store(default_store()) as opened:
        number = opened.begin("pairs", {})
        for at, strategy in enumerate((A, B)):
            for tokens in (150, 50):
                one = cell(900 + at, strategy=strategy, budget={"tokens": tokens}, problem=f"sums/{tokens}")
                opened.add(number, [dataclasses.replace(one, key=f"{strategy}{tokens}")])
                opened.finish("w", result(dataclasses.replace(one, key=f"{strategy}{tokens}"), 100, right=True))
    order = [50, 100, 150, 200]
    assert [row.budget["tokens"] for row in study.pairs(A, B)] == order
    assert [row.budget["tokens"] for row in study.rows() if row.strategy == A] == order
    latex = tts("compare", A, B, "--latex").output
    assert [int(tokens) for tokens in re.findall(r"^tokens=(\d+)", latex, re.M)] == order


def test_columns_are_chosen_in_any_order_and_by_short_titles(tts: Any, study: Study) -> None:
    shown = tts("compare", A, B, "--latex", "--columns", "budget,A - B,p")
    assert shown.exit_code == 0
    assert r"budget & A $-$ B, points [95 \%] & p \\" in shown.output
    assert "McNemar" not in shown.output
    markdown = study.table("markdown", columns=("accuracy", "strategy", "budget"))
    assert markdown.splitlines()[0] == "| accuracy [95 %] | strategy | budget |"
    assert (
        "column is 'strategie', but no column has that name"
        in tts("show", "pairs", "--columns", "accuracy,strategie").output
    )
    assert "but csv always has all" in tts("show", "pairs", "--csv", "--columns", "accuracy").output


def test_the_command_prints_the_comparison(tts: Any, study: Study):
    shown = tts("compare", A, B)
    assert shown.exit_code == 0
    assert f"A         {A}" in shown.stdout
    assert re.search(r"tokens=100 +30\.0% +75\.0% +1\.00 +-45\.0 \[-\d\d\.\d, -\d\d?\.\d\] +0\.01\d+", shown.stdout)
    assert [row["mcnemar"] for row in json.loads(tts("compare", A, B, "--json").stdout)] == [
        row.mcnemar for row in study.pairs(A, B)
    ]
    rows = list(csv.DictReader(io.StringIO(tts("compare", A, B, "--csv").stdout)))
    assert float(rows[0]["difference_low"]) == study.pairs(A, B)[0].difference.low


def test_what_cannot_be_compared_is_refused(tts: Any, assert_error: Any, study: Study):
    cause = "strategy is 'best_of | majority', but no strategy has that name"
    assert_error(tts("compare", A, "best_of | majority"), 2, cause, f"did you mean {B}?")
    with pytest.raises(ConfigError, match=r"'single',.*comparison"):
        study.pairs(A, A)
    assert "--csv and --latex were asked for at once" in tts("compare", A, B, "--csv", "--latex").stderr
    with Store(default_store()) as opened:
        number = opened.begin("apart", {})
        for at, (strategy, tokens) in enumerate([(A, 100), (B, 300)]):
            one = cell(900 + at, strategy=strategy, budget={"tokens": tokens})
            opened.add(number, [one])
            opened.finish("w", result(one, 100, right=True))
    with pytest.raises(ConfigError, match=r"common.*finished"):
        Study.from_store("apart").pairs(A, B)


def test_a_table_in_latex_has_equal_rows_and_no_open_sign(study: Study):
    text = study.table("latex")
    assert text == Study.from_store("pairs").table("latex")
    rows = [line for line in text.splitlines() if line.endswith("\\\\")]
    columns = re.fullmatch(r"\\begin{tabular}{([lr]+)}", next(line for line in text.splitlines() if "begin" in line))
    assert columns is not None
    assert len(rows) == 5
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns[1]) - 1}
    assert r"best\_of\_n \textbar{} majority" in text
    assert not any(re.search(r"(?<!\\)[%#_]", row) for row in rows)
    assert [line for line in text.splitlines() if line.startswith("\\")][:2] == [columns[0], r"\toprule"]
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")
    assert r"\bottomrule" in study.compare(A, B, "latex")


def test_a_table_in_markdown_keeps_signs_of_strategies_in_their_cells(tts: Any, study: Study):
    lines = [line for line in study.table("markdown").splitlines() if line.startswith("|")]
    assert len(lines) == 6
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"best\_of\_n \| majority" in lines[4]
    shown = tts("compare", A, B, "--markdown").stdout
    assert "| budget |" in shown
    assert rf"- B: {B.replace('_', chr(92) + '_').replace('|', chr(92) + '|')}" in shown


@pytest.mark.slow
def test_a_table_is_a_frame_of_pandas(study: Study, monkeypatch: pytest.MonkeyPatch):
    frame = pytest.importorskip("pandas") and study.to_pandas()
    assert list(frame["accuracy"]) == [row.accuracy.value for row in study.rows() if row.accuracy is not None]
    assert set(frame["strategy"]) == {A, B}
    assert list(frame.columns) == study.table("csv").splitlines()[0].split(",")
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingDependency, match="to_pandas needs the package pandas"):
        study.to_pandas()


def test_a_strategy_may_be_named_in_other_words(tts: Any, study: Study):
    assert study.pairs("single()", "best_of_n") == study.pairs(A, B)
    assert [curve.strategy for curve in choose_curves(study.curves(), ["best_of_n"])] == [B]
    assert [curve.strategy for curve in bases_of(study.curves(), "best_of_n( ) | majority")] == [B]
    assert tts("compare", "best_of_n", "best_of_n|majority").exit_code == 2
    for name, known in (("best_of_n", {B, "best_of_n | best"}), ("best_of", {A, B}), ("os:system", {A, B})):
        with pytest.raises(ConfigError, match=f"strategy is '{name}', but no strategy has that name"):
            strategy_of(name, known)
