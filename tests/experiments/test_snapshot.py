from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy
import pytest

import tts
from tests.experiments.studies import toy
from tts.experiments import snapshot
from tts.experiments.runner import Prepared


def test_a_snapshot_says_what_was_run_with_what():
    config = toy()
    with Prepared(config) as prepared:
        taken = snapshot.snapshot(config, prepared.problems, prepared.executor.settings)
    assert json.loads(json.dumps(taken)) == taken
    assert taken["configuration"] == config.resolved()
    assert taken["versions"]["numpy"] == numpy.__version__
    assert taken["models"] == {"toy": {"policy": tts.solver.Solver("toy").prepared("1 + 1", 9).backends["policy"].identity}}
    assert taken["data"]["arithmetic"]["problems"] == 6
    assert taken["machine"]["cores"] >= 1


def test_another_answer_is_another_data_set():
    with Prepared(toy(limit=2)) as two, Prepared(toy(limit=3)) as three:
        checksums = {snapshot.data_checksum(prepared.problems["arithmetic"]) for prepared in (two, three)}
    assert len(checksums) == 2


def test_the_commit_is_that_of_our_checkout_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "theirs" / "site-packages" / "snapshot.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    monkeypatch.setattr(snapshot, "__file__", str(package))
    assert snapshot.commit() is None

    def git(*arguments: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "note").write_text("")
    git("add", "note")
    git("commit", "-m", "theirs")
    assert snapshot.commit() is None
    git("add", "theirs")
    git("commit", "-m", "ours")
    commit = snapshot.commit()
    assert commit is not None
    assert len(commit) == 40
    package.write_text("changed")
    assert snapshot.commit() == f"{commit} with changes"
