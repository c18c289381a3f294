"""Columns of stores that no store wrote: each is one line that names its table, its row and the cure, and takes bounded
memory.
"""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.made import cell, result
from tts.errors import ConfigError, TTSError
from tts.experiments.api import Study
from tts.experiments.store.store import Store
from tts.experiments.study.record import RecordedSample

DEEP = "[" * 100_000
BOMB = zlib.compress(b"[" + b" " * (65 << 20) + b"]", 9)
SAMPLE = {"answer": "1", "answer_class": 0, "right": True, "status": "finished", "tokens": 3, "scores": {}}
TEXTS = [None, 5, b"\xff\xfe", "", "{", "[]", "{}", "3", DEEP, '"text"', "[1, 2]", "9" * 5000]
COLUMNS = {
    ("conditions", "body"): [*TEXTS, '{"dataset": 3}'],
    ("members", "body"): [*TEXTS, "[1, 2, 3]", '["p", null, "seed"]'],
    ("runs", "snapshot"): [each for each in TEXTS if each != "{}"],
    ("results", "body"): [*TEXTS, '{"usage": 3}', '{"usage": {"samples": "many"}, "confidence": null}'],
    ("results", "drawn"): [
        *(5, "text", b"", b"no zlib", zlib.compress(b"[]" * 99)[:-5], BOMB),
        *(zlib.compress(text) for text in (b"{}", b"\xff", b"[3]", DEEP.encode())),
        *(
            zlib.compress(json.dumps([{**SAMPLE, **each}]).encode())
            for each in ({"tokens": 1 << 70}, {"answer": 3}, {"scores": {"main": "a"}})
        ),
    ],
    ("sources", "body"): [5, "text", b"", b"no zlib", zlib.compress(b"[]"), zlib.compress(b"\xff"), BOMB],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    recorded = RecordedSample(answer="1", answer_class=0, right=True, status="finished", tokens=3)
    with Store(path) as store:
        store.adopt(
            "mine",
            {"configuration": {"imported": {"task": "math"}}},
            [(result(cell(1), drawn=(recorded,)), zlib.compress(b"{}"))],
        )
    return path


def put(path: Path, table: str, column: str, value: Any) -> None:
    with sqlite3.connect(path) as db:
        create = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]
        db.execute("PRAGMA writable_schema = ON")  # the attacker's own file has no rules
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (create.replace(" NOT NULL", ""), table))
    db.close()
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE {table} SET {column} = ?", (value,))
    db.close()


def read(path: Path, out: Path) -> None:
    study = Study.from_store("mine", store=path)
    list(study.results())
    study.export(out, "samples")


def test_a_whole_store_is_read(path: Path) -> None:
    read(path, path.with_name("out.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_what_no_store_wrote_is_one_line_that_names_table_row_and_cure(path: Path, table: str, column: str) -> None:
    for value in COLUMNS[table, column]:
        put(path, table, column, value)
        with pytest.raises(ConfigError) as caught:
            read(path, path.with_name("out.jsonl"))
        told = str(caught.value)
        assert table in told, value
        assert "row " in told, value
        assert "\n" not in told, value
        assert len(told) < 600, value
        assert ("runs --check" in told) or (value is BOMB and "TTS_LARGEST_ROW" in told), value
        with Store(path) as store:
            assert not store.check().ok, value


def test_what_unpacks_to_gigabytes_takes_bounded_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_LARGEST_ROW", "1")
    put(path, "results", "drawn", BOMB)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="more than 1 MiB, the most that one row may have"):
            read(path, path.with_name("out.jsonl"))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("table", "column"), [("studies", "configuration"), ("studies", "name"), ("runs", "snapshot"), ("results", "body")]
)
def test_a_text_that_is_longer_than_a_row_may_be_is_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, table: str, column: str
) -> None:
    put(path, table, column, " " * (2 << 20))
    monkeypatch.setenv("TTS_LARGEST_ROW", "1")

    def every_column() -> None:
        with Store(path) as store:
            store.studies()
            store.begin("other", {})
            list(store.results(1))
            store.check()

    with pytest.raises(TTSError, match=r"longer.*be.*TTS_LARGEST_ROW"):
        every_column()
