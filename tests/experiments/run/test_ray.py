"""A study on the workers of a Ray cluster, some of which die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.studies import final, toy
from tts.errors import ConfigError
from tts.experiments.run.progress import Progress
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store

pytestmark = [
    pytest.mark.slow,
    # Ray's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of two workers on this machine."""
    found: Any = pytest.importorskip("ray")
    found.init("local", num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="error")
    yield found
    found.shutdown()


def test_a_study_on_ray_is_the_study_here_although_workers_die(ray: Any, tmp_path: Path):
    config = toy(limit=20, seeds=2, concurrency=4, record={"candidates": True, "traces": 1})
    with Store(tmp_path / "here.sqlite") as store, PreparedStudy(config) as prepared:
        here = final(store.results(run(prepared, store).study))
    killed: list[Any] = []
    with Store(tmp_path / "ray.sqlite") as store, PreparedStudy(config, "ray") as prepared:
        executor: Any = prepared.executor

        def kill(progress: Progress) -> None:
            if progress.finished >= 20 * (len(killed) + 1) and len(killed) < 3:
                killed.append(executor._workers[len(killed) % 2].actor)
                ray.kill(killed[-1])

        ended = run(prepared, store, report=kill)
        assert len(killed) == 3
        assert (ended.counts.done, ended.counts.failed) == (160, 0)
        assert final(store.results(ended.study)) == here
        assert sum(store.trace(cell.key) is not None for cell in prepared.cells()) == 4


def test_what_cannot_run_is_refused_with_the_workers_reason(ray: Any):
    with pytest.raises(ConfigError, match="but no verifier has it"):
        PreparedStudy(toy(verifiers="none"), "ray")


def test_own_parts_are_loaded_by_the_workers(ray: Any, tmp_path: Path):
    parts, data = "tests.search.places", "tests.experiments.places"
    config = toy(
        models={"mine": {"model": "toy", "backend": "tts.backends.toy.backend:ToyBackend"}},
        strategies=[f"{parts}:Pair(n=3) | weighted"],
        verifiers=f"{parts}:likes_length",
        problems={"dataset": f"{data}:sums"},
    )
    tables: list[Any] = []
    for executor in ("local", "ray"):
        with Store(tmp_path / f"{executor}.sqlite") as store, PreparedStudy(config, executor) as prepared:
            ended = run(prepared, store)
            assert (ended.counts.done, ended.counts.failed) == (8, 0)
            tables.append(final(store.results(ended.study)))
    assert tables[0] == tables[1]


def test_cells_that_no_server_took_stay_open(ray: Any, tmp_path: Path):
    config = toy(
        models={"mine": {"model": "toy", "backend": "tests.experiments.run.on_ray:Unreachable"}},
        strategies="best_of_n | majority",
        verifiers="none",
        limit=2,
    )
    with Store(tmp_path / "store.sqlite") as store, PreparedStudy(config, "ray") as prepared:
        ended = run(prepared, store)
    assert (ended.counts.done, ended.counts.failed, ended.unpaid) == (0, 0, 4)
    assert "ConnectionFailed" in ended.not_reached
    assert "\n" not in ended.not_reached
