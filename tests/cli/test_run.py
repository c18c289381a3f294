from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.guard import LIMIT_S
from tts.errors import VerifierError
from tts.experiments.run.runner import RunSummary
from tts.experiments.store.store import CellCounts, Store

pytest.importorskip("yaml")

STUDY = """
name: sums
models: toy
problems: {dataset: arithmetic, limit: 5, operators: +-, parentheses: false, operations: 2}
verifiers: toy(error=0.2)
strategies: [best_of_n | majority, best_of_n | best]
budgets: [{samples: 2}, 90]
"""


@pytest.fixture
def run(tts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`tts run study.yaml` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY, encoding="utf-8")
    return lambda *arguments: tts("run", "study.yaml", *arguments)


@pytest.mark.slow
def test_a_study_ends_in_its_table_and_is_not_run_again(run, tts):
    result = run()
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1].startswith("20 of 20 · ")
    assert "best_of_n | majority  samples=2" in result.stdout
    assert tts("show").stdout == result.stdout
    again = run()
    assert (again.stdout, again.stderr) == (result.stdout, "20 of 20 · 0 tokens\n")


@pytest.mark.slow
def test_a_forecast_spends_and_writes_nothing(run, tmp_path: Path):
    result = run("--dry-run")
    assert result.exit_code == 0
    assert (
        result.stdout.splitlines()[-1]
        == "in all: cells 20, done 0, tokens 2,700, at most unknown, time unknown, dollars unknown"
    )
    assert "time is unknown until something like it has been run" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
    run()
    more = run("--dry-run", "--set", "problems.limit=7")
    assert "in all: cells 28, done 20, tokens " in more.stdout
    assert "measured" in more.stdout
    assert more.stderr == ""


def test_a_forecast_says_where_what_verifiers_compute_is_unknown(run):
    study = ("--dry-run", "--set", "verifiers=judge", "--set", "strategies=[best_of_n | majority, best_of_n | best]")
    result = run(*study, "--set", "budgets={samples: 2}")
    assert result.exit_code == 0, result.output
    rows = {line.split("  ")[0]: line for line in result.stdout.splitlines() if "|" in line}
    assert "at least" not in rows["best_of_n | majority"]
    assert "at least" in rows["best_of_n | best"]
    assert ", tokens at least " in result.stdout.splitlines()[-1]
    assert "unknown until a few of these cells have been run" in result.stderr


def test_cells_that_fail_are_told_with_their_reason(run, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> bool:
        raise VerifierError("the scorer does not start")

    monkeypatch.setattr("tts.experiments.run.local_executor.judge_answer", broken)
    result = run()
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "warning: 20 cells failed (--retry-failed runs them again): VerifierError: the scorer does not start"
    )
    monkeypatch.undo()


def test_a_run_that_is_stopped_says_how_much_is_left(run, monkeypatch: pytest.MonkeyPatch):
    def stopped(prepared: object, store: object, **_: object) -> RunSummary:
        return RunSummary(1, CellCounts(done=2, failed=0, pending=17, leased=1), interrupted=True)

    monkeypatch.setattr("tts.experiments.run.runner.run", stopped)
    result = run()
    assert (result.exit_code, result.stdout) == (130, "")
    told = "warning: stopped: 18 cells are left; what is done is kept, and the same command goes on from here"
    assert result.stderr.splitlines()[-1] == told


def test_ctrl_c_after_the_last_cell_loses_nothing_and_says_so(run, tts, monkeypatch: pytest.MonkeyPatch):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tts.cli.run._print_table", stopped)
        result = run()
    assert (result.exit_code, result.stdout) == (130, "")
    assert (
        result.stderr.splitlines()[-1] == "warning: stopped: all cells are done and kept; `tts show` prints their table"
    )
    assert tts("show").exit_code == 0


def test_a_budget_that_bounds_nothing_is_refused_before_anything_is_run(run, tmp_path: Path):
    result = run(
        "--dry-run",
        "--set",
        "budgets={verifier_calls: 3}",
        "--set",
        "verifiers=none",
        "--set",
        "strategies=best_of_n | majority",
    )
    assert result.exit_code == 2
    assert "best_of_n has no n and the budget does not bound it" in result.stderr


@pytest.mark.slow
def test_shards_are_parts_of_one_study(run, tmp_path: Path):
    parts = [run("--shard", f"{i}/2", "--store", f"{i}.sqlite") for i in (1, 2)]
    assert [part.exit_code for part in parts] == [0, 0]
    with Store("1.sqlite") as one, Store("2.sqlite") as two:
        keys = [{result.cell.key for result in store.results(1)} for store in (one, two)]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 20
    for i in (1, 2):
        assert run("--shard", f"{i}/2", "--store", "shared.sqlite").exit_code == 0
    with Store("shared.sqlite") as shared:
        assert {result.cell.key for result in shared.results(1)} == set().union(*keys)


def test_mistakes_are_one_line_with_a_cure(run, assert_error):
    rule = "but must be I/N with I from 1 to N"
    assert_error(run("--shard", "4/3"), 2, f"--shard is '4/3', {rule}", "for example --shard 1/8, for jobs 1 to 8")
    assert_error(run("--executor", "rai"), 2, "executor is 'rai', but no executor has that name", "did you mean ray?")
    assert_error(
        run("--set", "strateges=single"),
        2,
        "study.yaml: key of the study is 'strateges', but no key of the study has that name",
        "did you mean strategies?",
    )
    Path("note.txt").write_text("no store")
    assert_error(
        run("--store", "note.txt"),
        2,
        "store note.txt is a file of another kind, no store",
        "name another file with --store",
    )


@pytest.mark.filterwarnings("default::tts.experiments.datasets.rows.RowsLeftOut")
def test_rows_that_are_no_problems_are_named_and_the_rest_is_run(run):
    Path("sums.jsonl").write_text('{"problem": "1 + 2", "answer": "3"}\n{"problm": "2 + 2"}\n', encoding="utf-8")
    result = run("--set", "problems={dataset: file, path: sums.jsonl}", "--set", "task=arithmetic")
    assert (result.exit_code, result.stderr.partition(": rows left out")[0]) == (0, "warning: sums.jsonl")
    assert "line 2" in result.stderr.splitlines()[0]
    assert "4 of 4" in result.stderr


@pytest.mark.parametrize(("last", "count"), [('"problem": "2 + 3"', 2), ('"problem": "2 + 3", "answer": 5', 1)])
@pytest.mark.parametrize("command", [("run", "--dry-run"), ("run",), ("sample", "--n=2")])
def test_problems_without_references_are_told_before_anything_is_paid(
    run, tts, command: tuple[str, ...], last: str, count: int
):
    name = f"{'_'.join(command)}{count}".replace("-", "")  # a line that repeats in one process is not written again
    Path(f"{name}.jsonl").write_text(f'{{"problem": "1 + 3"}}\n{{{last}}}')
    changes = f"problems={{dataset: {name}.jsonl}}", "verifiers=none", "strategies=single"
    told = tts(command[0], "study.yaml", *(text for change in changes for text in ("--set", change)), *command[1:])
    assert told.exit_code == 0, told.stderr
    assert told.stderr.startswith(f"warning: {count} of 2 problems of the data set '{name}' have no reference answer")
    assert "fields: {answer: NAME}" in told.stderr


@pytest.mark.slow
def test_a_polite_end_gives_the_cells_back(run, tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "tts",
        "run",
        "study.yaml",
        "--set",
        "problems.limit=120",
        "--set",
        "concurrency=1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("0 of 480")
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "warning: stopped: " in told
    with Store(".tts/store.sqlite") as store:
        counts = store.counts(1)
    assert (counts.leased, counts.failed) == (0, 0)
    assert counts.pending > 0


@pytest.mark.slow
def test_ctrl_c_loses_nothing_that_was_paid(run, tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "tts",
        "run",
        "study.yaml",
        "--set",
        "problems.limit=120",
        "--set",
        "concurrency=1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("0 of 480")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "warning: stopped: " in told
    with Store(".tts/store.sqlite") as store:
        counts = store.counts(1)
        assert (counts.leased, counts.failed, store.lost_tokens(1)) == (0, 0, 0)
    assert counts.pending > 0
