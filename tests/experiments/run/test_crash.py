"""A run that is killed at random moments comes to the table of one that is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.studies import final, toy
from tests.support.guard import LIMIT_S
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store

CODE = """
import json, sys
from tts.experiments.study.config import StudyConfig
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store import Store

with PreparedStudy(StudyConfig.model_validate_json(sys.argv[1])) as prepared, Store(sys.argv[2]) as store:
    ended = run(prepared, store, lease_s=2.0, report=lambda progress: print(progress.done, flush=True))
assert ended.counts.pending == ended.counts.leased == 0
print("whole", flush=True)
"""


def start(plain: str, store: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CODE, plain, str(store)], stdout=subprocess.PIPE, text=True)


def killed(plain: str, store: Path, after: int) -> bool:
    """Kill a run with SIGKILL once it has reported so many results more; return whether it had ended before."""
    with start(plain, store) as process:
        assert process.stdout is not None
        first = None
        for line in process.stdout:
            if line == "whole\n":
                return True
            first = int(line) if first is None else first
            if int(line) - first >= after:
                process.kill()
                return False
    raise AssertionError(f"the run ended with {process.returncode}")


def check(tmp_path: Path, *, limit: int, kills: int) -> None:
    config = toy(limit=limit, seeds=2, concurrency=8, record={"candidates": True})
    plain = json.dumps({**config.plain_settings(), "concurrency": config.concurrency})
    with Store(tmp_path / "unbroken.sqlite") as store, PreparedStudy(config) as prepared:
        unbroken = final(store.results(run(prepared, store).study))
    broken = tmp_path / "broken.sqlite"
    after = np.random.default_rng(5).integers(0, 2 * limit * 8 // (kills + 1), kills)
    done = [killed(plain, broken, int(count)) for count in after]
    assert not any(done[: kills // 2]), "the study is too small for so many kills"
    with Store(broken) as store, PreparedStudy(config) as prepared:
        ended = run(prepared, store, lease_s=2.0)
        assert ended.counts.pending == ended.counts.leased == 0
        (study,) = store.studies()
        results = list(store.results(study.id))
        assert len(results) == study.cells == len({result.cell.key for result in results}) == limit * 8
        assert final(results) == unbroken
        assert all(result.lost_tokens >= 0 for result in results)


def test_a_killed_run_comes_to_the_same_table(tmp_path: Path):
    check(tmp_path, limit=6, kills=2)


@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_comes_to_the_same_table(tmp_path: Path):
    check(tmp_path, limit=120, kills=20)


@pytest.mark.slow
def test_two_runs_share_a_store(tmp_path: Path):
    config = toy(limit=40, concurrency=8)
    plain = json.dumps({**config.plain_settings(), "concurrency": config.concurrency})
    with Store(tmp_path / "alone.sqlite") as store, PreparedStudy(config) as prepared:
        alone = final(store.results(run(prepared, store).study))
    shared = tmp_path / "shared.sqlite"
    both = [start(plain, shared) for _ in range(2)]
    for process in both:
        told, _ = process.communicate(timeout=LIMIT_S)
        assert told.endswith("whole\n")
    with Store(shared) as store:
        assert final(store.results(1)) == alone
