"""The examples: each study is whole, short, and runs as it stands; so do the parts of one's own."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tts._common.scopes import allow_commands
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.file import read_study

pytest.importorskip("yaml")

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


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
    if file.stem not in ("toy", "patches"):
        pytest.importorskip("torch")
    with (
        allow_commands(),
        PreparedStudy(read_study(file, ["problems.limit=3", "seeds=1"])) as prepared,
        Store(tmp_path / "store.sqlite") as store,
    ):
        counts = run(prepared, store).counts
    assert counts.failed == 0
    assert counts.done == len(list(prepared.cells()))


def test_parts_of_ones_own_find_the_answer_as_objects_and_by_their_places(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(EXAMPLES)
    importlib.import_module("own_parts").main()
    objects, places = capsys.readouterr().out.splitlines()
    assert objects.split()[:3] == ["objects:", "19", "agreed"]
    assert places.split()[:3] == ["places:", "19", "agreed"]
    assert "own_parts:Halving(width=16) | own_parts:Agreed(votes=2) | own_parts:Frequent" in places
