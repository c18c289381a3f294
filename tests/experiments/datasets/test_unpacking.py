"""Files of others: none becomes much more in memory than its size and the largest row allow."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.experiments.imported.test_logs import write_log
from tts.errors import ConfigError
from tts.experiments.datasets.files import load, read_parquet
from tts.experiments.datasets.unpacking import LARGEST_ROW, largest_row

MIB = 1 << 20
BOMB = 16 * MIB  # of one row, where two are allowed


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LARGEST_ROW, "2")


def assert_refused(read: Any, *words: str) -> None:
    """Check that reading ends in one line with the cure, and takes little of Python's memory."""
    with pytest.raises(ConfigError):
        read()  # what is imported meanwhile does not count
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as refused:
            read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = str(refused.value)
    assert "\n" not in text
    assert all(word in text for word in (*words, LARGEST_ROW)), text
    assert peak < 11 * MIB


def write_eval(path: Path, method: int, member: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {}}))
        archive.writestr("samples/a_epoch_1.json", member)
    return path


@pytest.mark.parametrize("stated", [None, 100])
def test_a_member_of_a_log_is_bounded_whatever_size_is_stated(tmp_path, stated):
    path = write_eval(tmp_path / "log.eval", zipfile.ZIP_DEFLATED, b" " * BOMB)
    if stated is not None:  # the size in the directory and in the member's own header
        path.write_bytes(path.read_bytes().replace(BOMB.to_bytes(4, "little"), stated.to_bytes(4, "little")))
        with pytest.raises(ConfigError, match=r"log\.eval: it is damaged"):
            tts.Pool.from_inspect(path)
    else:
        assert_refused(lambda: tts.Pool.from_inspect(path), "log.eval, samples/a_epoch_1.json: it has more than 2 MiB")


def test_a_member_that_is_packed_with_zstandard_is_bounded(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    packed = pyarrow.Codec("zstd").compress(b" " * BOMB, asbytes=True)
    path = write_eval(tmp_path / "log.eval", zipfile.ZIP_STORED, packed)
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = content.rfind(signature)
        content[at + offset : at + offset + 2] = (93).to_bytes(2, "little")
    path.write_bytes(content)
    assert_refused(lambda: tts.Pool.from_inspect(path), "log.eval, samples/a_epoch_1.json: it has more than 2 MiB")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packing_that_inspect_does_not_use_is_refused(tmp_path, method):
    path = write_eval(tmp_path / "log.eval", method, b"{}")
    with pytest.raises(ConfigError, match=f"is compressed by method {method}, but Inspect uses Zstandard or deflate"):
        tts.Pool.from_inspect(path)


def test_all_members_together_are_bounded(tmp_path):
    path, sample = tmp_path / "log.eval", {"id": "a", "epoch": 1, "output": {"choices": []}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {}}))
        for number in range(8):
            archive.writestr(f"samples/{number}.json", json.dumps(sample) + " " * int(1.5 * MIB))
    assert_refused(lambda: tts.Pool.from_inspect(path), "log.eval: ", "more than 200 times as many")


def test_a_value_of_a_json_log_is_bounded(tmp_path):
    (tmp_path / "log.json").write_text('{"version": 2, "eval": "' + "x" * BOMB)
    assert_refused(lambda: tts.Pool.from_files(tmp_path / "log.json"), "log.json, one value: it has more than 2 MiB")


def test_a_line_is_bounded(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"problem": "1 + 1"}\n{"problem": "' + "x" * BOMB)
    assert_refused(lambda: load(path=str(tmp_path / "rows.jsonl")), "rows.jsonl, line 2: it has more than 2 MiB")


def test_a_cell_is_bounded(tmp_path):
    import csv

    before = csv.field_size_limit(1)
    try:
        (tmp_path / "rows.csv").write_text("problem\n1 + 1\n" + '"' + "x\n" * MIB * 2)
        with pytest.raises(ConfigError, match=LARGEST_ROW) as refused:
            load(path=str(tmp_path / "rows.csv"))
        assert str(refused.value).startswith("rows.csv, line 3: it has more than 2 MiB")
    finally:
        csv.field_size_limit(before)


def parquet_bombs() -> dict[str, Any]:
    return {
        "one text": {"problem": ["a", "x" * BOMB]},
        "equal texts": {"problem": ["x" * MIB * 3] * 20},
        "a list of equal texts": {"problem": ["a"], "parts": [["x" * 10_000] * 1000]},
        "an object": {"problem": ["a"], "parts": [{"a": "x" * BOMB}]},
        "a list of numbers": {"problem": ["a"], "parts": [[0] * (MIB // 2)]},
    }


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", [*parquet_bombs()])
def test_a_row_of_parquet_is_bounded(tmp_path, kind, dictionary):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(parquet_bombs()[kind]), path, compression="zstd", use_dictionary=dictionary)
    before = pa.total_allocated_bytes()
    assert_refused(lambda: list(read_parquet(path)), "rows.parquet")
    assert pa.total_allocated_bytes() <= before + 8 * MIB


def test_rows_within_the_bound_are_read_as_written(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {"problem": f"q{i}", "text": "x" * 20_000, "parts": ["a", None, str(i)], "of": {"a": "b" if i % 2 else None, "n": [i]}, "x": i / 7}
        for i in range(600)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    found = list(read_parquet(tmp_path / "rows.parquet"))
    assert [row for _, row in found] == rows
    assert [place for place, _ in found] == [f"row {i}" for i in range(1, 601)]


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "much"])
def test_a_bound_that_is_no_number_is_named(monkeypatch, given):
    monkeypatch.setenv(LARGEST_ROW, given)
    with pytest.raises(ConfigError, match=f"{LARGEST_ROW} is {given!r}, but must be MiB above 0"):
        largest_row()


def test_a_raised_bound_admits_what_was_refused(tmp_path, monkeypatch):
    path = tmp_path / "log.eval"
    write_log(path, compression=zipfile.ZIP_DEFLATED)
    monkeypatch.setenv(LARGEST_ROW, "0.0001")
    with pytest.raises(ConfigError, match=LARGEST_ROW):
        tts.Pool.from_inspect(path)
    monkeypatch.delenv(LARGEST_ROW)
    assert tts.Pool.from_inspect(path).report.samples == 4
