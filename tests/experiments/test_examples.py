"""The studies that are shown: each is whole, short, and runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.file import read_study

pytest.importorskip("yaml")

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_there_are_some():
    assert {"toy", "selections"} <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_study_is_at_most_thirty_lines_and_can_be_read(file: Path):
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    assert text.startswith("# ")
    assert read_study(file).name == file.stem


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_study_runs(file: Path, tmp_path: Path):
    if file.stem != "toy":
        pytest.importorskip("torch")
    with PreparedStudy(read_study(file, ["problems.limit=3", "seeds=1"])) as prepared, Store(tmp_path / "store.sqlite") as store:
        counts = run(prepared, store).counts
    assert counts.failed == 0
    assert counts.done == len(list(prepared.cells()))
