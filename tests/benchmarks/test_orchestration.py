"""The orchestration benchmarks at their smallest sizes: every row that they promise appears."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("benchmarks.orchestration", reason="the benchmarks are no part of the wheel")

from benchmarks.engine.systems import AbsentError
from benchmarks.orchestration import estimates, million, store
from benchmarks.orchestration.__main__ import absence
from benchmarks.orchestration.costs import costs, count_calls
from benchmarks.orchestration.peers import run_peer
from benchmarks.orchestration.plans import KINDS, MODELS, SAMPLES, make_solver, prompt_of, units_of
from tests.benchmarks.commands import its_hub, printed, started

NUMBER = r"-?[\d.,]+"
SPREAD = rf"{NUMBER} \[{NUMBER}, {NUMBER}\]"


def test_the_table_has_a_row_for_each_search_and_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed("benchmarks.orchestration", "--smoke", monkeypatch=monkeypatch, capsys=capsys)
    for kind in KINDS:
        for problems in ("1, warm", "1", "2"):
            assert re.search(rf"^ *{kind} +{problems} +(?:{SPREAD} +){{2}}-  -$", out, re.MULTILINE)
        profile = out.partition(f"where the time of {kind} goes (2 problems")[2]
        assert re.match(rf", {NUMBER} us and {NUMBER} calls a unit; {NUMBER} calls of the floor\):\n", profile)
        assert "search/" in profile
        assert {"plan rows", "lease", "row", "candidate"} <= set(
            re.findall(r"^    (.+?)  +[\d.]+ +[\d.]+% ", profile, re.MULTILINE)
        )
    assert out.startswith("absent: its_hub: no --peer PYTHON\n")


def test_its_hub_has_a_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("benchmarks.orchestration", "--smoke", "--peer", its_hub(), monkeypatch=monkeypatch, capsys=capsys)
    assert len(re.findall(rf"(?:{SPREAD} +){{3}}{NUMBER} {NUMBER}$", out, re.MULTILINE)) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_counted_exactly(kind: str) -> None:
    first, again = (costs(kind, 2) for _ in range(2))
    assert sorted((cost.place, cost.name, cost.calls) for cost in first) == sorted(
        (cost.place, cost.name, cost.calls) for cost in again
    )
    every, floor = count_calls(first)
    assert (every, floor) == count_calls(again)
    assert 0 < floor < every


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_search_writes_the_rows_that_its_cost_is_divided_by(kind: str, model: str) -> None:
    with make_solver(kind, model) as solver:
        solution = solver.solve(prompt_of(kind), 100_000)
    rows = [call.rows for call in solution.trace.calls if call.kind == "expand"]
    closing = kind == "beam"  # the row that ends the best path
    assert sum(rows) == units_of(kind) + closing
    assert (solution.failures, solution.warnings) == ({}, ())
    assert len(solution.candidates) == (1 if closing else SAMPLES)
    assert solution.answer == ("39" if (kind, model) == ("beam", "toy") else "7")


def test_a_peer_that_fails_is_absent_with_its_reason() -> None:
    missing = "ModuleNotFoundError: No module named 'its_hub'"
    with pytest.raises(AbsentError, match=rf"^{missing}$"):
        run_peer(sys.executable, "peer_its_hub", "beam", *"1111111")
    with pytest.raises(AbsentError, match=r"run:.*file"):
        run_peer("none", "peer_its_hub")
    assert absence(sys.executable) == missing


def test_the_search_has_a_row_for_each_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    options = ("--smoke", "--parts", "steps", "growth", "--nodes", "400", "--out", str(page))
    out = printed("benchmarks.orchestration.search_overhead", *options, monkeypatch=monkeypatch, capsys=capsys)
    assert page.read_text() == out
    for plan in (
        "beam(n=16)",
        "dvts(n=16)",
        "rebase(n=16)",
        "ets(n=16)",
        "a_star(goals=None, expansions=64, edge_cost='unit')",
        "particle_filter(n=16)",
    ):
        assert re.search(
            rf"^\| `{re.escape(plan)}` \| {NUMBER} \[{NUMBER}, {NUMBER}\] \| {NUMBER} \| {NUMBER} \| [1-9]",
            out,
            re.MULTILINE,
        )
    for method in ("beam", "rebase", "a_star"):
        assert re.search(
            rf"^\| {method} \| (?:{NUMBER} at {NUMBER},? ?){{3}} \| {NUMBER} \| {NUMBER} \|$", out, re.MULTILINE
        )


def test_the_walk_counts_both_threads_and_the_lines_of_the_floor() -> None:
    done = started("benchmarks.orchestration.walk", "--smoke", "--calls")
    assert done.returncode == 0, done.stderr
    counts = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|$", done.stdout, re.MULTILINE)
    assert [name for name, _ in counts] == [
        "files entered",
        "functions entered",
        "calls",
        "calls that change file",
        "code lines of tts/",
    ]
    files, functions, calls, changes, lines = (int(count.replace(",", "")) for _, count in counts)
    rows = re.findall(r"^\| ([\w/]+\.py) \| (\d+) \| (\d+) \|$", done.stdout, re.MULTILINE)
    assert (len(rows), sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)) == (files, changes, calls)
    assert {"solver/api.py", "search/search.py", "budget/budget.py"} < {row[0] for row in rows}
    assert files < functions < calls
    *parts, core = _numbers(done.stdout)
    assert sum(parts) == core < lines


def _numbers(out: str) -> list[int]:
    """Return the code lines of the three folders, and their sum."""
    found = re.search(r"tts/solver \| ([\d,]+) \+ ([\d,]+) \+ ([\d,]+) = ([\d,]+) \|", out)
    assert found is not None
    return [int(each.replace(",", "")) for each in found.groups()]


@pytest.mark.slow
def test_the_search_on_real_models_has_a_row_for_each_plan() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = started("benchmarks.orchestration.search_overhead", "--smoke", "--parts", "share", "tokens")
    assert done.returncode == 0, done.stderr
    share, _, tokens = done.stdout.partition("## Verifier tokens")
    assert (
        len(re.findall(rf"^\| `.*` \| {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER}% \|$", share, re.MULTILINE)) == 3
        or "| absent: " in share
    )
    assert len(re.findall(rf"^\| `.*` \| {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER} \|$", tokens, re.MULTILINE)) == 7
    assert tokens.endswith("| its_hub 1.2, beam search of 4 | | | absent: no --peer PYTHON | |\n")


def test_a_simulated_study_has_a_row_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("yaml")
    head, *rows, slopes, rate = printed(
        "benchmarks.orchestration.million", "--smoke", monkeypatch=monkeypatch, capsys=capsys
    ).splitlines()
    assert [row.split()[0] for row in rows] == ["20", "40"]
    assert {len(row.split()) for row in rows} == {8}
    assert head.split()[:4] == ["problems", *(step.replace("problems", "made") for step in million.STEPS)]
    assert slopes.startswith("growth exponents: problems ")
    assert rate.startswith("a million problems, at the rate of the last row: ")


@pytest.mark.slow
def test_the_store_has_a_row_for_each_step_and_size() -> None:
    pytest.importorskip("pyarrow")
    done = started("benchmarks.orchestration.store", "--smoke")
    assert done.returncode == 0, done.stderr
    for step in store.STEPS:
        assert [int(rows) for rows in re.findall(rf"^ *(\d+)  {step} .* rows/s .* MB$", done.stdout, re.MULTILINE)] == [
            10,
            40,
            160,
        ]
        assert re.search(rf"^{step} +grows as rows\^{NUMBER}$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_every_statistic_has_a_row() -> None:
    done = started("benchmarks.orchestration.estimates", "--smoke")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[1:]
    assert [row[:42].strip() for row in rows] == list(estimates.STEPS)
    assert {len(row[42:].split()) for row in rows} == {6}


def test_imported_samples_have_a_rate_for_each_strategy_and_a_peak() -> None:
    done = started("benchmarks.orchestration.imported", "--smoke")
    assert done.returncode == 0, done.stderr
    for strategy in ("majority", r"posterior \| majority", r"unanimous \| majority"):
        assert re.search(
            rf"^best_of_n \| {strategy} +11 sizes +{NUMBER} samples/s +{NUMBER} with {NUMBER} samples$",
            done.stdout,
            re.MULTILINE,
        )
    assert re.search(rf"^all three +11 sizes +{NUMBER} samples/s   peak {NUMBER} MiB", done.stdout, re.MULTILINE)
    counts = rf"{NUMBER} samples of 20 problems, 180 words each: {NUMBER} s"
    assert re.search(rf"^import of jsonl, 1 MiB, {counts} .* peak {NUMBER} MiB", done.stdout, re.MULTILINE)


def test_files_of_all_forms_are_imported_whole() -> None:
    pytest.importorskip("pyarrow")
    forms = ["jsonl", "csv", "parquet", "lm-eval", "json", "eval"]
    done = started("benchmarks.orchestration.imported", "--smoke", "--samples", "0", "--forms", *forms)
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [f"import of {form}" for form in forms]


def test_forking_a_repository_has_a_row_for_each_step() -> None:
    done = started("benchmarks.orchestration.workspaces", "--smoke")
    assert done.returncode == 0, done.stderr
    rows = re.findall(rf"^\| ([^|]+) \| {NUMBER} \| {NUMBER} \| {NUMBER} \|$", done.stdout, re.MULTILINE)
    first = "`cp -r` of the repository"
    assert rows == [
        first,
        "open the repository",
        "fork a state",
        "commit a changed file",
        "patch from the root",
        "release the fork",
    ]
