"""Files of others: none becomes much more in memory than its size and the largest row allow."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.addons.logs.test_logs import write_log
from tests.support.damage import mutate
from tests.support.guard import LIMIT_S
from tests.support.repeats import repeats
from tts.errors import ConfigError
from tts.experiments.datasets.files import load
from tts.experiments.datasets.parquet import LENGTH_BYTES, read_parquet
from tts.experiments.datasets.rows import BadRow
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
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample) + " " * int(1.5 * MIB))
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


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", [*parquet_bombs()])
def test_a_row_of_parquet_is_bounded(tmp_path, kind, dictionary):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(parquet_bombs()[kind]), path, compression="zstd", use_dictionary=dictionary)
    assert_refused(lambda: list(read_parquet(path)), "rows.parquet")


def varint(number: int, length: int = 0) -> bytes:
    """Return a number in Thrift's compact protocol, with as many bytes as asked for."""
    rest, parts = number << 1, list[int]()
    while rest or not parts or len(parts) < length:
        parts.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*parts[:-1], parts[-1] & 127])


def state(path: Path, true: int, stated: int) -> None:
    """Let the footer of a Parquet file state another number."""
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert varint(true) in content[footer:]
    path.write_bytes(content[:footer] + content[footer:].replace(varint(true), varint(stated, len(varint(true)))))


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_footer_that_states_less_than_its_pages_have_deceives_nobody(tmp_path, dictionary):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(
        pa.table({"problem": ["a", "x" * BOMB]}),
        path,
        compression="zstd",
        use_dictionary=dictionary,
        write_statistics=False,
    )
    true = parquet.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    state(path, true, 100)
    assert parquet.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == 100
    assert_refused(lambda: list(read_parquet(path)), "rows.parquet")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit of memory needs /proc")
def test_a_page_beyond_the_limit_of_memory_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path, equal = tmp_path / "rows.parquet", pa.array(["x" * 10_000])
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(200_000, np.int32)), equal)
    table = pa.table({"problem": ["a"], "parts": pa.ListArray.from_arrays(pa.array([0, 200_000], pa.int32()), texts)})
    parquet.write_table(table, path, store_schema=False)
    assert_refused(lambda: list(read_parquet(path)), "rows.parquet", "memory")


def test_texts_of_lists_that_repeat_their_beginnings_are_bounded(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path, parts = tmp_path / "rows.parquet", ["x" * 10_000 + str(i) for i in range(2000)]
    table = pa.table({"problem": ["a"], "parts": [parts]})
    parquet.write_table(table, path, use_dictionary=False, column_encoding={"parts.list.element": "DELTA_BYTE_ARRAY"})
    assert_refused(lambda: list(read_parquet(path)), "rows.parquet, row 1: it has more than 2 MiB")


def refusal_of(path: Path) -> str:
    """Return why a Parquet file is refused; "" where it is read."""
    try:
        list(read_parquet(path))
    except ConfigError as refusal:
        return str(refusal)
    return ""


@pytest.mark.slow
@repeats(6, 300, "count")
def test_a_damaged_parquet_file_is_read_or_refused_in_one_line(tmp_path, count):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path, draw = tmp_path / "rows.parquet", np.random.default_rng(7)
    rows = [
        {"problem": f"q{i % 50}", "parts": ["a", None, str(i)], "of": {"a": "b" * (i % 9)}, "x": i / 7}
        for i in range(300)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
    whole, refusals = path.read_bytes(), list[str]()
    for _ in range(count):
        path.write_bytes(mutate(whole, draw))
        refusals.append(refusal_of(path))
    assert all("\n" not in refusal and len(refusal) < 500 for refusal in refusals)
    assert sum(map(bool, refusals)) > count / 4


def test_a_file_that_ends_the_process_that_reads_it_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    reader = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
    monkeypatch.setattr("tts.experiments.datasets.parquet.python_command", lambda module: reader)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"rows\.parquet.*read: pyarrow") as refused:
        load(path=str(tmp_path / "rows.parquet"))
    assert "\n" not in str(refused.value)


def test_the_process_that_reads_a_file_names_no_code(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    body = pickle.dumps(("row", "row 1", {"problem": print}))
    reader = f"import sys; sys.stdout.buffer.write({len(body).to_bytes(LENGTH_BYTES, 'little') + body!r})"
    monkeypatch.setattr(
        "tts.experiments.datasets.parquet.python_command", lambda module: [sys.executable, "-c", reader]
    )
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print is no plain value"):
        list(read_parquet(tmp_path / "rows.parquet"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit of memory needs /proc")
def test_the_process_that_reads_a_file_has_a_limit_of_memory():
    told = """
import sys
from tts.experiments.datasets.parquet.rows import _limit_memory
_limit_memory()
try:
    bytearray(1 << 30)
except MemoryError:
    sys.exit(7)
"""
    command = [sys.executable, "-c", told]
    assert (
        subprocess.run(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False, timeout=LIMIT_S
        ).returncode
        == 7
    )


@pytest.mark.slow
def test_values_of_each_type_come_out_of_the_process(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    row = {
        "problem": "q",
        "i": 1 << 60,
        "x": 0.5,
        "b": True,
        "raw": b"\xff",
        "of": {"a": None, "parts": ["x"]},
        "d": decimal.Decimal("1.50"),
        "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        "long": datetime.timedelta(seconds=3),
    }
    zoned = pa.array([1], pa.timestamp("us", tz="UTC"))
    times = pa.array([1 << 62, 0], pa.timestamp("us"))  # the first is after the last year of Python
    table = pa.Table.from_pylist([row]).append_column("zoned", zoned)
    parquet.write_table(table, tmp_path / "rows.parquet")
    assert list(read_parquet(tmp_path / "rows.parquet")) == [
        ("row 1", {**row, "zoned": "1970-01-01 00:00:00.000001+00:00"})
    ]
    parquet.write_table(pa.table({"problem": ["q", "p"], "at": times}), tmp_path / "late.parquet")
    (_, bad), (_, good) = read_parquet(tmp_path / "late.parquet")
    assert isinstance(bad, BadRow)
    assert good == {"problem": "p", "at": datetime.datetime(1970, 1, 1)}


@pytest.mark.slow
def test_a_reader_ends_where_no_more_rows_are_wanted(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    started: list[Any] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **named: started.append(popen(*a, **named)) or started[-1])
    parquet.write_table(pa.table({"problem": [str(i) for i in range(50_000)]}), tmp_path / "rows.parquet")
    assert len(load(path=str(tmp_path / "rows.parquet"), limit=3)) == 3
    assert started[0].poll() is not None


@pytest.mark.slow
def test_rows_within_the_bound_are_read_as_written(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {
            "problem": f"q{i}",
            "text": "x" * 2_000,
            "parts": ["a", None, str(i)],
            "of": {"a": "b" if i % 2 else None, "n": [i]},
            "x": i / 7,
        }
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
