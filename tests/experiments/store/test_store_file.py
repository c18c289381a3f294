from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.experiments.made import cell, result, sample
from tests.support.guard import program, run_at_once
from tts.errors import ConfigError, TTSError
from tts.experiments.store import schema
from tts.experiments.store.checking import StoreCheck
from tts.experiments.store.schema import VERSION
from tts.experiments.store.store import CellCounts, Store

WORK = """
import sys
from tests.experiments.made import result
from tts.experiments.store import Store
with Store(sys.argv[1]) as store:
    study = store.begin("shared", {})
    while leased := store.lease(study, sys.argv[2], 3):
        for cell in leased:
            assert store.finish(sys.argv[2], result(cell))
            print(cell.key, flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def begun(path, cells: int) -> int:
    with Store(path) as store:
        study = store.begin("shared", {})
        store.add(study, map(cell, range(cells)))
    return study


def alter(path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def test_what_is_no_store_is_refused_and_left_as_it_is(path):
    for content in (b"a text of some length, and no database" * 9, b"short"):
        path.write_bytes(content)
        with pytest.raises(
            ConfigError,
            match=r"store\.sqlite.*kind,.*\(hint",
        ):
            Store(path)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


ANOTHER = (
    rf"is of version {VERSION + 1}, but this release reads version {VERSION} \(hint: name another file with --store"
)


@pytest.mark.parametrize(
    ("cells", "change", "message"),
    [(0, "CREATE TABLE studies (id)", "something else"), (1, f"PRAGMA user_version = {VERSION + 1}", ANOTHER)],
)
def test_another_database_is_refused_and_left_as_it_is(path, cells, change, message):
    if cells:
        begun(path, cells)
    alter(path, change)
    content = path.read_bytes()
    with pytest.raises(ConfigError, match=message):
        Store(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    begun(path, 2)
    with Store.existing(path) as store:
        assert store.find().cells == 2


def test_a_store_that_must_be_there_is_not_made(path):
    with pytest.raises(ConfigError, match=r"\(hint:.*your.*run\)"):
        Store.existing(path)
    assert not path.exists()


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "store.sqlite"):
        with pytest.raises(ConfigError, match=r"opened .*\(hint:.*--store\)"):
            Store(path)


def test_a_store_that_cannot_be_made_is_left_empty(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(schema, "_TABLES", f"{schema._TABLES}; CREATE TABLE")
        with pytest.raises(TTSError, match=r"incomplete.*finished"):
            Store(path)
    with Store(path) as store:
        assert store.studies() == []


def test_a_store_is_made_when_another_process_ends_its_transaction(path, monkeypatch):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(schema, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: other.close()))
    with Store(path) as store:
        assert store.studies() == []


def test_a_damaged_file_is_one_line(path):
    begun(path, 2000)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with (
        pytest.raises(TTSError, match=r"file.*\(hint:.*back"),
        Store(path) as store,
    ):
        store.counts(1)


def test_a_full_disk_is_one_line_and_loses_nothing(path):
    study = begun(path, 100)
    with Store(path) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        done: list[int] = []

        def fill() -> None:
            for number in range(100):
                store.finish("w", result(cell(number)), b"x" * 2000)
                done.append(number)

        with pytest.raises(TTSError, match=r"disk.*finished.*\(hint:.*then"):
            fill()
        assert 0 < len(done) < 100
        store._connection.execute("PRAGMA max_page_count = 1000000")
        assert store.counts(study) == CellCounts(done=len(done), failed=0, pending=100 - len(done), leased=0)
        assert store.finish("w", result(cell(done[-1] + 1)))
    with Store(path) as store:
        assert [each.cell.key for each in store.results(study)] == [f"key {number}" for number in range(len(done) + 1)]


@pytest.mark.slow
def test_a_disk_that_refuses_is_one_line_and_loses_nothing(path):
    """The limit on the size of a process's files is the system's own refusal."""
    study = begun(path, 200)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))\n{WORK}"
    stopped = program(code, str(path), "w")
    assert stopped.returncode == 1
    assert "reading or writing failed; what was finished is kept" in stopped.stderr
    done = stopped.stdout.splitlines()
    assert 0 < len(done) < 200
    with Store(path) as store:
        assert [each.cell.key for each in store.results(study)] == done


def test_a_locked_file_is_one_line(path, monkeypatch):
    begun(path, 1)
    monkeypatch.setattr("tts.experiments.store.schema.WAIT_S", 0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with (
        Store(path) as store,
        pytest.raises(TTSError, match=r"locked .*\(hint"),
    ):
        store.finish("w", result(cell()))
    other.close()


def test_a_store_that_was_closed_says_so(path):
    store = Store(path)
    store.close()
    with pytest.raises(TTSError, match="closed database"):
        store.studies()


@pytest.mark.slow
def test_processes_share_a_store(path):
    study = begun(path, 60)
    ends = run_at_once(*(lambda name=name: program(WORK, str(path), name) for name in "abc"))
    assert [(end.returncode, end.stderr) for end in ends] == [(0, "")] * 3
    done = [line for end in ends for line in end.stdout.splitlines()]
    assert sorted(done) == sorted(f"key {number}" for number in range(60))
    with Store(path) as store:
        assert store.counts(study) == CellCounts(done=60, failed=0, pending=0, leased=0)
        assert store.lost_tokens(study) == 0


@pytest.mark.slow
def test_processes_may_make_a_store_at_once(path):
    code = "import sys; from tts.experiments.store.store import Store; print(Store(sys.argv[1]).begin('a', {}))"
    ends = run_at_once(*(lambda: program(code, str(path), options=("-W", "ignore")) for _ in range(4)))
    assert [(end.stdout, end.returncode) for end in ends] == [("1\n", 0)] * 4


def test_a_store_that_another_process_makes_while_this_one_looks_is_a_store(path):
    class Overtaken:
        """A connection to an empty file, which is made a store behind its first statement."""

        def __init__(self) -> None:
            self.connection = sqlite3.connect(path)

        def execute(self, statement: str):
            (row,) = self.connection.execute(statement).fetchall()
            Store(path).close()
            return SimpleNamespace(fetchone=lambda: row)

    overtaken = Overtaken()
    with closing(overtaken.connection):
        assert schema._is_store(overtaken, path)


def test_threads_share_a_store(path):
    study = begun(path, 60)
    with Store(path) as store:

        def work(name: str) -> None:
            while leased := store.lease(study, name, 2):
                for each in leased:
                    assert store.finish(name, result(each))

        assert run_at_once(*(lambda name=name: work(name) for name in "abcd")) == [None] * 4
        assert store.counts(study).done == len(list(store.results(study))) == 60


@pytest.mark.slow
def test_a_process_that_is_killed_keeps_what_it_finished(path):
    study, told = begun(path, 3000), []
    for name in "ab":
        with subprocess.Popen(
            [sys.executable, "-c", WORK, str(path), name], stdout=subprocess.PIPE, text=True
        ) as process:
            told += [process.stdout.readline().strip() for _ in range(40)]
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read().splitlines()
    with Store(path, clock=lambda: time.time() + 100) as store:
        kept = [each.cell.key for each in store.results(study)]
        assert len(kept) == len(set(kept)) == store.counts(study).done
        assert set(told) <= set(kept)
        assert len(kept) <= len(told) + 2  # each may have been killed before it could tell of its last
        rest = store.lease(study, "c", 3000)
        assert sorted([*kept, *(each.key for each in rest)]) == sorted(f"key {number}" for number in range(3000))
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def test_what_is_kept_is_json_that_others_can_read(path):
    begun(path, 1)
    with Store(path) as store:
        store.finish("w", result(cell(), confidence=float("nan")))
    other = sqlite3.connect(path)
    ((body,),) = other.execute("SELECT body FROM results")
    other.close()
    assert json.loads(body, parse_constant=pytest.fail)["confidence"] is None


# Checks ---------------------------------------------------------------------------------------------------------------


def finished(path, cells: int) -> None:
    study = begun(path, cells)
    with Store(path) as store:
        for leased in store.lease(study, "worker", cells):
            one = result(leased, drawn=(sample(),), answer="an answer of some length")
            assert store.finish("worker", one, b"a trace")


def checked(path) -> StoreCheck:
    with Store(path) as store:
        return store.check()


def test_a_store_as_it_was_written_is_whole(path):
    finished(path, 12)
    assert checked(path) == StoreCheck(12, 0, (), ())
    with Store(path.with_name("other.sqlite")) as other:
        other.merge(path)
    assert checked(path.with_name("other.sqlite")) == StoreCheck(12, 0, (), ())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE results SET body = replace(body, 'answer', 'enswer')",
        "UPDATE results SET drawn = zeroblob(length(drawn))",
        "UPDATE results SET drawn = NULL",
        "UPDATE results SET drawn = 'text'",
        "UPDATE results SET failed = 1",
        "UPDATE results SET body = x'00ff'",
        "UPDATE traces SET trace = x'00'",
        "DELETE FROM traces",
    ],
)
def test_a_result_that_was_changed_is_found(path, change):
    finished(path, 5)
    alter(path, f"{change} WHERE cell = 3")
    found = checked(path)
    assert (found.whole, found.unknown, len(found.damaged), found.faults) == (4, 0, 1, ())
    assert not found.ok


def test_any_overwritten_page_of_results_is_found(path):
    """Each page that holds results or traces, overwritten in its middle. A page that is not full has nothing there."""
    finished(path, 300)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    content = path.read_bytes()
    pages = [
        place
        for place in range(len(content) // size)
        if content[place * size : (place + 1) * size].count(b"an answer of some") > 1
    ]
    assert len(pages) > 5
    for place in pages:
        middle = place * size + size // 2
        if not any(content[middle : middle + 200]):
            continue
        path.write_bytes(content[:middle] + b"x" * 200 + content[middle + 200 :])
        try:
            found = checked(path).ok
        except TTSError as damaged:  # so that it cannot be read
            found = "the file is damaged" not in str(damaged)
        assert not found


def test_results_of_an_earlier_revision_have_no_checksum_and_later_ones_do(path):
    finished(path, 4)
    alter(path, "DROP TABLE checksums")
    assert checked(path) == StoreCheck(0, 4, (), ())
    with Store(path) as store:
        store.add(1, [cell(7)])
        [leased] = store.lease(1, "worker", 1)
        assert store.finish("worker", result(leased))
    assert checked(path) == StoreCheck(1, 4, (), ())


def test_a_failed_result_that_runs_again_has_a_new_checksum(path):
    study = begun(path, 1)
    with Store(path) as store:
        for error in ("EngineError: it broke", None):
            [leased] = store.lease(study, f"worker {error}", 1)
            assert store.finish(f"worker {error}", result(leased, error=error))
            assert store.check() == StoreCheck(1, 0, (), ())
            store.forget_failures(study)
