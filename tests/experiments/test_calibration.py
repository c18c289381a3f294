"""Thresholds from a study, or from a pool: `solve` takes them for the same use, and the command writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tts.cli.app import app
from tts.errors import ConfigError
from tts.experiments.calibration import calibrate_study
from tts.solver.thresholds import Thresholds

PLAN = "best_of_n(n=8) | majority"


def study(store: Path, **changes: Any) -> tts.Study:
    settings: dict[str, Any] = {
        "name": "sums",
        "models": "toy",
        "problems": {
            "dataset": "arithmetic",
            "limit": 200,
            "operations": [2, 3],
            "operators": "+-",
            "parentheses": False,
        },
        "strategies": PLAN,
        "budgets": {"samples": 8},
        "record": {"texts": False},
    }
    made = tts.Study(**{**settings, **changes})
    made.store = store
    return made


def command(*given: str) -> Any:
    return CliRunner().invoke(app, ["calibrate", *given])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a study of results, and one of a pool."""
    path = tmp_path_factory.mktemp("calibration") / "store.sqlite"
    study(path).run(store=path)
    study(path).sample(8, store=path)
    return path


@pytest.mark.slow
def test_thresholds_of_a_study_hold_for_solve(store: Path) -> None:
    made = calibrate_study(tts.Study.from_store("sums", store=store), 0.2, delta=0.1)
    assert made.n == 200
    assert made.bound <= 0.2
    options: dict[str, Any] = {"model": "toy", "task": "pocket", "strategy": PLAN, "risk": 0.2, "calibration": made}
    problems = [f"{a} + {b} - 2 + 9 - {a}" for a in range(3, 7) for b in range(2, 6)]
    found = [tts.solve(problem, {"samples": 8}, **options) for problem in problems]
    least = made.links[0].least
    assert all((one.answer is not None) == (one.confidence >= least) for one in found)


@pytest.mark.slow
def test_a_pool_gives_the_thresholds_of_its_first_samples(store: Path) -> None:
    by_results = calibrate_study(tts.Study.from_store("sums", store=store), 0.2, delta=0.1)
    by_pool = calibrate_study(
        tts.Study.from_store("sums-pool", store=store), 0.2, delta=0.1, strategy="best_of_n | majority", n=8
    )
    assert by_pool == by_results
    fewer = calibrate_study(tts.Study.from_store("sums-pool", store=store), 0.3, delta=0.1, n=4)
    assert fewer.links[0].strategy == "best_of_n(n=4) | majority"
    assert fewer.links[0].budget == "samples=4"


@pytest.mark.slow
def test_the_command_writes_the_file_and_says_what_it_guarantees(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "thresholds.json"
    done = command("--run", "sums", "--risk", "0.2", "--delta", "0.1", "--store", str(store), "--out", str(out))
    assert done.exit_code == 0, done.output
    made = Thresholds.read(out)
    assert made.guarantee in done.output
    assert f"of {made.tested} problems {made.answered} are answered, {made.wrong} of them wrongly" in done.output
    assert json.loads(out.read_text())["links"][0]["strategy"] == PLAN


@pytest.mark.slow
def test_bad_input_is_refused_in_one_line(store: Path) -> None:
    for given, told in (
        (("--run", "sums", "--risk", "0"), "risk is 0.0, but must be above 0 and below 1"),
        (("--run", "sums", "--risk", "0.2", "--strategy", "single"), "strategy of the study is 'single', but"),
        (("--run", "sums", "--risk", "0.2", "--model", "tay"), "did you mean toy?"),
        (("--run", "sums", "--risk", "0.001"), "risk is 0.001, but 200 problems are too few"),
        (("--run", "sums-pool", "--risk", "0.2", "--n", "9"), "n is 9, but the pool of problem"),
        (
            ("--run", "sums-pool", "--risk", "0.2", "--n", "8", "--strategy", "beam"),
            "but samples of a pool are chosen from by best_of_n",
        ),
    ):
        done = command(*given, "--store", str(store))
        assert done.exit_code == 2, done.output
        assert told in done.output


@pytest.mark.slow
def test_several_settings_are_refused_with_their_names(tmp_path: Path) -> None:
    two = study(
        tmp_path / "two.sqlite",
        strategies=[PLAN, "single"],
        problems={"dataset": "arithmetic", "limit": 100, "operators": "+-", "parentheses": False},
    )
    two.run(store=two.store)
    with pytest.raises(ConfigError, match=r"2 settings,.*one.*calibrated"):
        calibrate_study(two, 0.3)
    assert calibrate_study(two, 0.5, strategy=PLAN).n == 100


def test_imported_samples_are_calibrated_at_a_size(tmp_path: Path) -> None:
    rows = [
        {"problem": f"p{i}", "answer": "1" if i % 20 else "2", "reference": "1"} for i in range(200) for _ in range(4)
    ]
    path, out = tmp_path / "store.sqlite", tmp_path / "thresholds.json"
    tts.Pool.from_rows(rows, name="own", model="mine", task="math").save(path)
    done = command("--run", "own", "--risk", "0.2", "--of", "2", "--n", "4", "--store", str(path), "--out", str(out))
    assert done.exit_code == 0, done.output
    made = Thresholds.read(out)
    (link,) = made.links
    assert (made.n, made.tried, link.model, link.task) == (200, 2, "policy=mine", "math")
    assert (link.strategy, link.budget) == ("best_of_n(n=4) | majority", "samples=4")
    refused = command("--run", "own", "--risk", "0.2", "--store", str(path), "--out", str(out))
    assert refused.exit_code == 2
    assert "--n 8" in refused.output
