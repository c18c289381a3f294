"""`tts run --executor ray` on clusters that lose workers and nodes in the middle of a study."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.run.on_ray import FOLDER, GO, halted, wait_until
from tests.experiments.studies import final, toy
from tests.support.guard import LIMIT_S
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig

pytestmark = [
    pytest.mark.slow,
    # Ray's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]

ROOT = Path(__file__).parents[3]
PLACE = "tests.experiments.run.on_ray"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test's files, which the workers of a cluster know, too."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    return tmp_path


@contextmanager
def cluster(*num_cpus: int) -> Iterator[Any]:
    """A cluster of nodes with so many CPUs each, the head first."""
    utils = pytest.importorskip("ray.cluster_utils")
    nodes = utils.Cluster()
    try:
        for number in num_cpus:
            nodes.add_node(num_cpus=number, include_dashboard=False)
        yield nodes
    finally:
        nodes.shutdown()


def study(model: str = "Halting") -> StudyConfig:
    models = {"mine": {"model": "toy", "backend": f"{PLACE}:{model}"}}
    return toy(models=models, limit=20, seeds=2, concurrency=4)


@contextmanager
def study_on(nodes: Any, folder: Path, config: StudyConfig, num_halted: int = 2) -> Iterator[list[int]]:
    """Run a study on a cluster. Gives the processes of its workers, once so many have halted in the middle of it, and
    at the end lets those that are left go on, until the study has ended.
    """
    (folder / "study.yaml").write_text(json.dumps({**config.plain_settings(), "concurrency": config.concurrency}))
    command = [sys.executable, "-m", "tts", "run", "study.yaml", "--executor", "ray", "--store", "ray.sqlite"]
    log, environment = folder / "log", {**os.environ, "RAY_ADDRESS": nodes.address}
    with (
        log.open("w") as written,
        subprocess.Popen(
            [*command, "--trust-places"], cwd=folder, env=environment, stdout=written, stderr=written
        ) as process,
    ):
        try:
            wait_until(lambda: len(halted()) >= num_halted or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield halted()
            (folder / GO).touch()
            assert process.wait(LIMIT_S) == 0, log.read_text()
        finally:
            process.kill()


def check_against_one_process(folder: Path, config: StudyConfig) -> None:
    """Run the study in this process, and compare."""
    with Store(folder / "here.sqlite") as store, PreparedStudy(config) as prepared:
        here = final(store.results(run(prepared, store).study))
        keys = {cell.key for cell in prepared.cells()}
    with Store(folder / "ray.sqlite") as store:
        (on_ray,) = store.studies()
        results = list(store.results(on_ray.id))
    assert len(results) == len(keys) == 160
    assert {result.cell.key for result in results} == keys
    assert not any(result.error for result in results)
    assert final(results) == here


@pytest.mark.parametrize("num_killed", [1, 2])
def test_workers_that_are_killed_change_nothing_in_the_table(folder: Path, num_killed: int) -> None:
    with cluster(2) as nodes:
        with study_on(nodes, folder, study()) as workers:
            for worker in workers[:num_killed]:
                os.kill(worker, signal.SIGKILL)
        lines = (folder / "log").read_text().splitlines()
        assert len([line for line in lines if "a worker was lost" in line]) == num_killed
        assert not any("Traceback" in line or "root causes" in line for line in lines)
        check_against_one_process(folder, study())


def test_a_node_that_is_lost_changes_nothing_in_the_table(folder: Path) -> None:
    """No node has room for another worker, so the worker that is left runs the cells of the lost one."""
    with cluster(1, 1) as nodes:
        with study_on(nodes, folder, study()):
            nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
        check_against_one_process(folder, study())


def test_a_worker_that_cannot_load_the_models_takes_no_cells(folder: Path) -> None:
    with cluster(1, 1) as nodes:
        with study_on(nodes, folder, study("OfOneProcess"), num_halted=1):
            wait_until(lambda: "lacks its weights" in (folder / "log").read_text())
        (folder / "loaded").unlink()
        check_against_one_process(folder, study("OfOneProcess"))
