from __future__ import annotations

import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import numpy
import pytest

import tts
from tests.experiments.studies import toy
from tts.experiments.run.runner import PreparedStudy
from tts.experiments.study import snapshot


def test_a_snapshot_says_what_was_run_with_what():
    config = toy()
    with PreparedStudy(config) as prepared:
        taken = snapshot.snapshot(config, prepared.problems, prepared.executor.settings)
    assert json.loads(json.dumps(taken)) == taken
    assert taken["configuration"] == config.plain_settings()
    assert taken["versions"]["numpy"] == numpy.__version__
    assert taken["models"] == {
        "toy": {"policy": tts.solver.solver.Solver("toy").prepare("1 + 1", 9).setup.backends["policy"].identity}
    }
    told = {
        "dataset": "arithmetic",
        "source": "generated here, without end",
        "licence": "Apache-2.0",
        "note": "",
        "problems": 6,
    }
    assert {**told, "sha256": snapshot.data_checksum(prepared.problems["arithmetic"])} == taken["data"]["arithmetic"]
    assert taken["machine"]["cores"] >= 1


def test_versions_are_those_of_installed_packages(monkeypatch: pytest.MonkeyPatch):
    def version(name: str) -> str:
        if name != "numpy":
            raise metadata.PackageNotFoundError(name)
        return "2.0"

    monkeypatch.setattr(metadata, "version", version)
    assert snapshot.versions() == {"python": platform.python_version(), "numpy": "2.0"}


def test_a_file_of_problems_is_named(tmp_path: Path):
    file = tmp_path / "sums.jsonl"
    file.write_text('{"problem": "1 + 1", "answer": "2"}\n')
    with PreparedStudy(toy(problems={"dataset": "file", "name": "mine", "path": str(file)})) as prepared:
        (data,) = snapshot.snapshot(prepared.config, prepared.problems, prepared.executor.settings)["data"].items()
    assert data[0] == "mine"
    assert data[1]["source"] == f"a file of yours: JSON lines, CSV or Parquet: {file}"
    assert data[1]["licence"] == "the file's own"


def test_another_answer_is_another_data_set():
    with PreparedStudy(toy(limit=2)) as two, PreparedStudy(toy(limit=3)) as three:
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
