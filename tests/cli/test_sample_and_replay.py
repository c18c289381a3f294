from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tts.cli.app import app
from tts.experiments.store.store import Store

STUDY = """
name: sums
models: toy
verifiers: toy(error=0.2)
problems: {dataset: arithmetic, limit: 6, operations: [2, 3], operators: +-, parentheses: false, group_by: operations}
strategies: [best_of_n | majority, best_of_n | unanimous(window=2) | majority]
budgets: {samples: [1, 2]}
seeds: 2
"""
pytest.importorskip("yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sums.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def at(tts: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    """`tts` with these arguments, on a store of this test's own."""

    def run(*arguments: str | Path) -> Result:
        return tts(*map(str, arguments), "--store", str(tmp_path / "store.sqlite"))

    return run


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a pool of eight samples of each problem."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "sums.yaml").write_text(STUDY)
    arguments = ["sample", folder / "sums.yaml", "--n", "8", "--store", folder / "store.sqlite"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return folder / "store.sqlite"


@pytest.fixture
def sampled(at, drawn, tmp_path) -> Callable[..., Result]:
    """`at` with a copy of that store."""
    shutil.copy(drawn, tmp_path / "store.sqlite")
    return at


def points(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_a_pool_is_drawn_once_for_all_strategies_and_budgets_of_a_study(sampled, tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        results = list(store.results(store.find("sums-pool").id))
    assert {result.cell.strategy for result in results} == {"best_of_n | weighted"}
    assert len(results) == 12
    assert all(len(result.drawn) == 8 and all("main" in one.scores for one in result.drawn) for result in results)


def test_what_was_drawn_is_not_drawn_again(sampled, file):
    again = sampled("sample", file, "--n", "8")
    assert "12 of 12 · 0 tokens" in again.stderr


@pytest.mark.slow
def test_a_pool_is_told_from_the_runs_of_its_study(sampled, file):
    live = sampled("run", file)
    assert live.exit_code == 0, live.output
    assert sampled("show", "sums").stdout == live.stdout
    assert sampled("replay", "sums-pool", "--csv").exit_code == 0
    refused = sampled("replay", "sums")
    assert refused.stderr.splitlines()[1].startswith(
        "hint: name one (tts sample keeps it as STUDY-pool), draw one, or record"
    )
    names = [line.split()[3] for line in sampled("runs").stdout.splitlines() if "sums" in line]
    assert names == ["sums-pool", "sums"]
    assert sampled("sample", file, "--n", "8", "--set", "name=mine").exit_code == 0
    assert sampled("replay", "mine", "--csv").exit_code == 0


def test_a_dry_run_draws_nothing(at, file, tmp_path):
    result = at("sample", file, "--n", "8", "--dry-run")
    assert result.exit_code == 0
    assert "samples=8" in result.stdout
    assert not (tmp_path / "store.sqlite").exists()


@pytest.mark.slow
def test_every_point_says_that_it_is_replayed(sampled):
    rows = points(sampled("replay", "--csv"))
    assert {row["kind"] for row in rows} == {"replayed"}
    assert list(dict.fromkeys(row["strategy"] for row in rows)) == [
        "pass@k",
        "random choice",
        "best_of_n | majority",
        "best_of_n | best",
        "best_of_n | weighted",
        "best_of_n | best_of_majority",
    ]
    assert [float(row["samples"]) for row in rows if row["strategy"] == "pass@k"] == [1, 2, 4, 8]
    assert {row["problems"] for row in rows} == {"6"}
    assert {row["seeds"] for row in rows} == {"2"}
    assert all(float(row["accuracy_low"]) <= float(row["accuracy"]) <= float(row["accuracy_high"]) for row in rows)


def test_without_scores_only_a_vote_and_coverage_are_replayed(at, file):
    at("sample", file, "--n", "2", "--set", "verifiers=none")
    assert {row["strategy"] for row in points(at("replay", "--csv"))} == {
        "pass@k",
        "random choice",
        "best_of_n | majority",
    }


@pytest.mark.slow
def test_json_is_what_csv_says(sampled):
    options = ("--strategy", "best_of_n | weighted", "--n", "3,5", "--draws", "7")
    rows, listed = (
        points(sampled("replay", *options, "--csv")),
        json.loads(sampled("replay", *options, "--json").stdout),
    )
    assert [float(row["accuracy"]) for row in rows] == [one["accuracy"]["value"] for one in listed]
    assert [float(row["drawing_error"]) for row in rows] == [one["drawing_error"] for one in listed]
    assert [one["costs"]["samples"] for one in listed] == [3, 5]
    assert listed[0]["costs"]["seconds"] is None


def test_the_table_is_for_people(sampled):
    text = sampled(
        "replay", "--strategy", "pass@k", "--strategy", "best_of_n | best_of_majority", "--n", "4", "--draws", "5"
    ).stdout
    lines = text.splitlines()
    assert "model      toy" in lines
    assert "problems   6" in lines
    assert "points     replayed" in lines
    (exact,) = (line for line in lines if line.startswith("pass@k"))
    (drawn,) = (line for line in lines if line.startswith("best_of_n | best_of_majority"))
    assert ("±" in exact, "±" in drawn) == (False, True)


def test_blocks_of_the_default_table_begin_with_the_strategy(sampled, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    facts, *blocks = sampled("replay").stdout.split("\n\n")
    assert "points     replayed" in facts
    assert [block.split()[0] for block in blocks] == ["strategy", "strategy"]
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80


def test_a_replay_is_drawn_against_the_samples_in_both_orders(sampled, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra experiments")
    figure = tmp_path / "figure.svg"
    done = sampled("replay", "--strategy", "best_of_n | majority", "--order", "both", "--plot", figure)
    assert done.exit_code == 0, done.output
    text = figure.read_text()
    assert all(words in text for words in ("samples per problem", "majority, recorded order", "majority, all order"))
    refused = sampled("replay", "--plot", tmp_path / "figure.gif")
    assert (refused.exit_code, refused.stdout) == (2, "")


@pytest.mark.slow
def test_the_first_samples_are_a_live_run(sampled, file):
    """The study itself, run live, against what is replayed of the pool's first samples."""
    live = sampled("run", file)
    assert live.exit_code == 0, live.output
    shown = json.loads(sampled("show", "--json").stdout)
    for strategy in ("best_of_n | majority", "best_of_n | unanimous(window=2) | majority"):
        replayed = points(sampled("replay", "1", "--order", "recorded", "--strategy", strategy, "--n", "1,2", "--csv"))
        accuracies = [row["accuracy"]["value"] for row in shown if row["strategy"] == strategy]
        assert [float(row["accuracy"]) for row in replayed] == pytest.approx(accuracies)


def test_curves_by_group(sampled):
    rows = points(sampled("replay", "--strategy", "best_of_n | majority", "--n", "1,2", "--by-group", "--csv"))
    assert [row["group"] for row in rows] == ["2 operations", "2 operations", "3 operations", "3 operations"]


@pytest.mark.filterwarnings("default::tts.experiments.api.PartialResults")
def test_what_is_no_pool_is_said(sampled, file):
    sampled("run", file, "--set", "record.candidates=true")
    result = sampled("replay", "--strategy", "pass@k", "--csv")
    assert result.stderr == "warning: 24 results are no pools of samples: 24 were ended by a stop rule\n"
    assert [row["samples"] for row in points(result)] == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (
            ["replay", "--csv", "--json"],
            "--csv and --json were asked for at once, but only one can be",
            "leave one out",
        ),
        (
            ["replay", "--n", "1,x"],
            "--n is '1,x', but must be whole numbers with commas between",
            "for example --n 1,2,4,8",
        ),
    ],
)
def test_mistakes_of_the_caller(at, arguments, error, hint):
    result = at(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"error: {error}"
    assert hint is None or result.stderr.splitlines()[1] == f"hint: {hint}"
    assert result.stdout == ""


def test_a_size_beyond_the_pool_is_refused(sampled):
    result = sampled("replay", "--n", "9")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: a size is 9 samples, but the largest pool has 8",
        "hint: draw larger pools: tts sample --n",
    ]


def test_a_study_without_pools_is_refused(at, file):
    at("run", file)
    result = at("replay")
    assert result.exit_code == 2
    assert (
        result.stderr.splitlines()[0] == "error: the study has no pool of samples: 48 did not record their candidates"
    )


@pytest.mark.filterwarnings("default::tts.experiments.api.PartialResults")
def test_problems_without_an_answer_are_left_out_and_counted(at, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sums.jsonl").write_text('{"problem": "1 + 2", "answer": "3"}\n{"problem": "2 + 2"}\n', encoding="utf-8")
    Path("sums.yaml").write_text(STUDY)
    drawn = at(
        "sample",
        "sums.yaml",
        "--n",
        "2",
        "--set",
        "problems={dataset: file, path: sums.jsonl}",
        "--set",
        "task=arithmetic",
    )
    assert drawn.exit_code == 0, drawn.output
    result = at("replay", "--strategy", "pass@k", "--strategy", "best_of_n | majority", "--json")
    assert (result.exit_code, result.stderr.partition(" are left out")[0]) == (
        0,
        "warning: 1 of the problems have no reference answer and",
    )
    assert {point["problems"] for point in json.loads(result.stdout)} == {1}
    assert len(json.loads(result.stdout)) == 4
