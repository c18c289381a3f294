"""A store that an earlier revision wrote (a89fcf3, store version 3, result version 4) is read, replayed and merged.

`last_revision.sql.gz` is its dump: the finished study "whole", the pool "whole-pool", and "cut", a study that was
killed while it held two cells. `last_revision.json` has the settings of "whole", and the tables that the earlier
revision printed, but for the replayed stop rule: that revision took subsets in the recorded order alone, and the table
has the mean over all orders.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tts
from tts.experiments.analysis.points import points_of
from tts.experiments.output.tables import as_text
from tts.experiments.store.store import Store

FILES = Path(__file__).parent
WRITTEN: dict[str, Any] = json.loads((FILES / "last_revision.json").read_text(encoding="utf-8"))
SETTINGS: dict[str, dict[str, Any]] = {
    "whole": WRITTEN["settings"],
    "cut": {**WRITTEN["settings"], "name": "cut", "seeds": [5, 6]},
}
WIDE = 500  # characters of a line: that revision divided no table
LOST = 25  # tokens of each of the two cells that were held, as the last heartbeat told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    with gzip.open(FILES / "last_revision.sql.gz", "rt", encoding="utf-8") as dump, sqlite3.connect(path) as db:
        db.executescript(dump.read())
    db.close()
    return path


def stored_bodies(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return what is written of each result, by key."""
    with sqlite3.connect(path) as db:
        rows = db.execute(
            "SELECT key, results.body, drawn, trace FROM results JOIN cells ON id = cell LEFT JOIN traces USING (cell)"
        )
        found = {key: tuple(rest) for key, *rest in rows}
    db.close()
    return found


@pytest.mark.parametrize("name", ["whole", "whole-pool"])
def test_its_tables_are_those_that_were_printed(path: Path, name: str) -> None:
    assert tts.Study.from_store(name, store=path).table(width=WIDE) == WRITTEN["texts"][name]


@pytest.mark.filterwarnings("ignore::tts.experiments.api.PartialResults")
def test_a_study_that_was_killed_is_shown_as_far_as_it_is(path: Path) -> None:
    study = tts.Study.from_store("cut", store=path)
    assert study.table(width=WIDE) == WRITTEN["texts"]["cut"]
    with Store(path) as opened:
        found = opened.find("cut")
        assert (found.done, found.failed, found.cells) == (14, 0, 32)
        assert opened.lost_tokens(found.id) == 2 * LOST


def test_its_pool_is_replayed_to_what_was_printed(path: Path) -> None:
    strategies = ["pass@k", "best_of_n | majority", "best_of_n | weighted", "best_of_n | unanimous(window=2) | best"]
    replayed = tts.Study.from_store("whole-pool", store=path).replay(strategies, [1, 2, 4])
    assert as_text(points_of(replayed), WIDE) == WRITTEN["texts"]["replay"]


def test_a_study_of_an_earlier_result_version_runs_anew_beside_what_is_stored(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results changed with version 5: nothing of version 4 is taken for them, and nothing of it is lost."""
    before = stored_bodies(path)
    study = tts.Study(**SETTINGS["whole"])
    assert study.run(path).counts.done == 16
    assert "whole: 0 of 16" in capsys.readouterr().err
    after = stored_bodies(path)
    assert {key: after[key] for key in before} == before
    assert len(after) == len(before) + 16
    with Store(path) as opened:
        assert [one.name for one in opened.studies()] == ["whole", "whole-pool", "cut", "whole"]
    study.run(path)
    assert "whole: 16 of 16 · 0 tokens" in capsys.readouterr().err
    assert stored_bodies(path) == after


@pytest.mark.slow
def test_a_killed_study_of_an_earlier_version_is_run_whole(path: Path, tmp_path: Path) -> None:
    before = stored_bodies(path)
    study = tts.Study(**SETTINGS["cut"])
    assert study.run(path, progress=False).counts.done == 32
    after = stored_bodies(path)
    assert {key: after[key] for key in before} == before
    assert len(after) == len(before) + 32
    fresh = tts.Study(**SETTINGS["cut"])
    fresh.run(tmp_path / "fresh.sqlite", progress=False)
    kept = (
        "strategy",
        "budget",
        "setting",
        "accuracy",
        "prompt_tokens",
        "generated_tokens",
        "verifier_tokens",
        "stops",
    )
    assert [[getattr(row, name) for name in kept] for row in study.rows()] == [
        [getattr(row, name) for name in kept] for row in fresh.rows()
    ]


def test_a_stored_study_is_resumed_from_its_own_configuration(path: Path) -> None:
    study = tts.Study.from_store("cut", store=path)
    assert study.config == tts.Study(**SETTINGS["cut"]).config
    assert study.run(progress=False).counts.done == 32


@pytest.mark.slow
def test_it_is_merged_exported_and_drawn(path: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "all.sqlite") as merged:
        assert merged.merge(path) == len(stored_bodies(path))
    study = tts.Study.from_store("whole", store=tmp_path / "all.sqlite")
    assert study.table(width=WIDE) == WRITTEN["texts"]["whole"]
    assert study.export(tmp_path / "all.jsonl") == 16
    pytest.importorskip("matplotlib")
    study.plot(tmp_path / "curve.svg", x="samples")
    study.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"searches": []' not in page
    assert "beam(n=4) | best" in page
