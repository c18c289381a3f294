from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tts.cli.app import app
from tts.experiments.store.store import Store
from tts.experiments.verifier_report import report as reporting

pytest.importorskip("yaml")
STUDY = """
name: sums
models: toy
verifiers: toy(error=0.2)
problems: {dataset: arithmetic, limit: 5, operations: [2, 3], operators: +-, parentheses: false}
strategies: [best_of_n | weighted]
budgets: {samples: [2]}
record: {candidates: false, traces: 5}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, a store with a pool of eight samples of each of its problems, and one with runs that recorded no
    candidates.
    """
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "sums.yaml").write_text(STUDY)
    for command in (
        ["sample", "sums.yaml", "--n", "8", "--store", "pools.sqlite"],
        ["run", "sums.yaml", "--store", "runs.sqlite"],
    ):
        result = CliRunner().invoke(app, [str(folder / part) if "." in part else part for part in command])
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def report(tts, folder: Path):
    def run(*arguments: str, store: str = "pools.sqlite") -> Result:
        return tts("verifiers", "report", *arguments, "--store", str(folder / store))

    return run


@pytest.mark.slow
def test_a_report_names_what_was_measured_and_ends_in_advice(report) -> None:
    result = report("--run", "sums-pool")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["verifier", "main:", "toy(error=0.2)"]
    assert lines[2].split(None, 1)[1].startswith("40 of 5 problems")
    assert any(line.startswith("advice  ") and line.endswith(".") for line in lines)
    for part in (
        "step scores against the final answer",
        "best of N",
        "no number of tries passes",
    ):
        assert part in result.stdout


@pytest.mark.filterwarnings("default::tts.experiments.api.PartialResults")
def test_what_a_report_lacks_is_a_warning(report, monkeypatch: pytest.MonkeyPatch) -> None:
    real, find = reporting.verifier_report, Store.find
    passed_over = {"have no reference answer": 1_200, "failed": 3}
    monkeypatch.setattr(
        reporting,
        "verifier_report",
        lambda *given, **named: dataclasses.replace(real(*given, **named), passed_over=passed_over),
    )
    monkeypatch.setattr(Store, "find", lambda store, name: dataclasses.replace(find(store, name), cells=9))
    assert report("--run", "sums-pool").stderr.splitlines() == [
        "warning: study sums-pool: 5 of 9 cells are done, so this is not its final report",
        "warning: 1,203 results are not looked at: 1,200 have no reference answer; 3 failed",
    ]


@pytest.mark.slow
def test_json(report) -> None:
    result = report("--json", "--role", "main", "--aggregate", "min")
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)
    assert (record["role"], record["problems"], record["candidates"]) == ("main", 5, 40)
    assert record["choosing"]["sizes"] == [1, 2, 4, 8]
    assert record["ceilings"][0]["threshold"] == 0.5
    assert [each["first"] for each in record["positions"]] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "store", "error"),
    [
        (["--run", "none"], "pools.sqlite", "study is 'none', but no study has that name"),
        (
            ["--role", "e"],
            "pools.sqlite",
            "no verifier of the role 'e' scored any of the recorded candidates; there are scores by main",
        ),
        (["--aggregate", "median"], "pools.sqlite", "aggregate is 'median', but no aggregate has that name"),
        ([], "runs.sqlite", "none of the study's 5 results recorded its candidates"),
    ],
)
def test_what_cannot_be_reported_is_one_line_and_a_hint(report, arguments: list[str], store: str, error: str) -> None:
    result = report(*arguments, store=store)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"error: {error}"
    assert result.stderr.splitlines()[1].startswith("hint: ")
    assert result.stdout == ""
