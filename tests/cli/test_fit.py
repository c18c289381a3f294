from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tts.allocator.performance import PerformanceModel
from tts.cli.app import app
from tts.errors import ConfigError
from tts.experiments.api import Study
from tts.experiments.store.store import Store

pytest.importorskip("yaml")
STUDY = """
name: sums
models: {mine: toy}
verifiers: toy(error=0.2)
problems: {dataset: arithmetic, limit: 24, operations: [2, 3], operators: +-, parentheses: false}
strategies: [best_of_n, particle_filter | weighted]
budgets: {samples: 4}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a pool of each problem, a run of another strategy, and a study that is too small."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "sums.yaml").write_text(STUDY)
    asked = [
        ["sample", "sums.yaml", "--n", "4"],
        ["run", "sums.yaml", "--set", "name=searched", "--set", "strategies=[particle_filter | weighted]"],
        ["sample", "sums.yaml", "--n", "2", "--set", "name=few", "--set", "problems.limit=4"],
    ]
    for command, file, *options in asked:
        done = CliRunner().invoke(app, [command, str(folder / file), *options, "--store", str(folder / "store.sqlite")])
        assert done.exit_code == 0, done.output
    return folder / "store.sqlite"


@pytest.mark.slow
def test_what_was_recorded_becomes_a_model_that_auto_goes_by(tts, runs, tmp_path):
    file = tmp_path / "performance.json"
    result = tts("fit", "sums-pool", "searched", "--out", str(file), "--store", str(runs))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    facts = dict(line.split("  ", maxsplit=1) for line in lines if "  " in line)
    assert facts["model"].strip() == "toy"  # the policy's name, not the study's for it
    assert facts["task"].strip() == "pocket"  # that of the problems
    assert facts["verifiers"].strip() == "main=toy(error=0.2)"
    assert facts["problems"].strip().startswith("24, one sample right ")
    assert facts["first sample"].strip() == "as the others"
    rows = [line.split(maxsplit=1)[1] for line in lines if " | " in line]
    stopped = "best_of_n(n=4) | sprt(preset='consol') | majority"
    assert set(rows) == {"best_of_n | weighted", "best_of_n | majority", stopped, "particle_filter | weighted"}
    assert lines[-1] == str(file)
    saved = json.loads(file.read_text())
    assert (saved["source"], saved["problems"]) == ("sums-pool, searched", 24)
    asked = [
        "solve",
        "3 + 4 - 2",
        "--model",
        "toy",
        "--task",
        "pocket",
        "--verifier",
        "toy(error=0.2)",
        "--strategy",
        f"auto(model={str(file)!r})",
    ]
    solved = tts(*asked, "--budget", "400", "--explain", "--json")
    assert solved.exit_code == 0, solved.output
    assert not [line for line in solved.stderr.splitlines() if "performance model" in line]
    assert any("each further sample adds" in line or "settled" in line for line in json.loads(solved.stdout)["reasons"])


@pytest.mark.slow
def test_a_study_without_enough_problems_is_refused(tts, runs, tmp_path, assert_error):
    result = tts("fit", "few", "--out", str(tmp_path / "performance.json"), "--store", str(runs))
    assert_error(
        result,
        2,
        "the study has pools of 4 problems with reference answers, but at least 20 are needed",
        "draw more with tts sample",
    )


def test_a_study_without_pools_is_refused(tts, runs, tmp_path, assert_error):
    result = tts("fit", "searched", "--out", str(tmp_path / "performance.json"), "--store", str(runs))
    assert_error(
        result,
        2,
        "the study has no pool of samples: 24 did not record their candidates",
        "name one (tts sample keeps it as STUDY-pool), draw one, or record the candidates of best_of_n",
    )


def test_a_place_that_cannot_be_written_is_refused(tts, runs, tmp_path):
    copy = shutil.copy(runs, tmp_path / "store.sqlite")
    result = tts("fit", "sums-pool", "--out", str(tmp_path), "--store", str(copy))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr.splitlines()[0]


def test_a_damaged_file_is_one_line_with_its_cure(tts, runs, tmp_path, assert_error):
    file = tmp_path / "performance.json"
    assert tts("fit", "sums-pool", "--out", str(file), "--store", str(runs)).exit_code == 0
    data = json.loads(file.read_text())
    data["curves"]["best_of_n | majority"]["sizes"][1] = float("nan")
    file.write_text(json.dumps(data))
    result = tts("solve", "3 + 4 - 2", "--model", "toy", "--strategy", f"auto(model={str(file)!r})")
    assert_error(
        result,
        2,
        f"the performance model {str(file)!r}: curves['best_of_n | majority'].sizes[1] is nan, but must be a finite "
        "number",
        "make it again with tts fit",
    )


@pytest.mark.slow
def test_imported_samples_are_fitted_as_drawn_ones_are(tts, tmp_path: Path) -> None:
    rows, store, out = tmp_path / "rows.jsonl", str(tmp_path / "s.sqlite"), tmp_path / "performance.json"
    lines = (
        {"problem": str(p), "answer": str(0 if s * 20 < p * 16 else s), "reference": "0", "tokens": 9}
        for p in range(20)
        for s in range(1, 17)
    )
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = tts("import", str(rows), "--name", "mine", "--model", "mine-7b", "--store", store)
    assert imported.exit_code == 0, imported.output
    fitted = tts("fit", "mine", "--store", store, "--out", str(out))
    assert fitted.exit_code == 0, fitted.output
    found = PerformanceModel.load(out)
    assert (found.model, found.task, found.problems, found.source) == ("mine-7b", "math", 20, "mine")
    replayed = tts("replay", "mine", "--strategy", f"auto(model='{out}')", "--n", "4", "--store", store)
    assert replayed.exit_code == 0, replayed.output
    assert "is of something else" not in replayed.output
    with pytest.raises(ConfigError, match=r"imported.*draws"):
        Study.from_store("mine", store=store).run(progress=False)


def test_the_task_of_imported_samples_may_name_no_code_of_a_store(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.begin("mine", {"configuration": {"imported": {"name": "mine", "task": "elsewhere:Task"}}})
        assert any("elsewhere:Task" in line for line in store.check().foreign)
    with pytest.raises(ConfigError, match="elsewhere:Task"):
        _ = Study.from_store("mine", store=tmp_path / "s.sqlite").imported
