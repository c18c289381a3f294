"""The file of a store: its tables, how it is opened, and how its errors are reported.

studies      configurations that were run; cells may belong to several
runs         each start of a study, with its snapshot
conditions   what all cells of a row of the final table share (rows.py)
cells        keys of cells; equal keys share one result
members      cells of a study, with their condition, and their own problem, group and seed
unfinished   members without a result, so that finding the next one takes constant time
attempts     runs of a cell without a result: active until `ends`, then lost, with the tokens that they `spent`
results      one result a cell
traces       whole searches, where the study records them
checksums    SHA-256 of each result with its trace; results of earlier revisions have none
sources      texts of samples, imported or written, compressed with a checksum
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tts.errors import ConfigError, TTSError
from tts.experiments.datasets.unpacking import LARGEST_ROW, largest_row

VERSION: Final = 3  # version of the tables below; raised with every incompatible change
APPLICATION: Final = 0x74747331  # "tts1", in the header of the file
WAIT_S: Final = 60.0  # wait for other processes, each of which writes for milliseconds at a time
_STORE_HINT: Final = "name another file with --store"

_TABLES: Final = """
CREATE TABLE studies (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, created_at REAL NOT NULL, configuration TEXT NOT NULL, result_version INTEGER NOT NULL,
    UNIQUE (name, configuration, result_version)
);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, study INTEGER NOT NULL REFERENCES studies (id), begun_at REAL NOT NULL, snapshot TEXT NOT NULL
);
CREATE INDEX runs_by_study ON runs (study);
CREATE TABLE conditions (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE);
CREATE TABLE cells (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE members (
    study INTEGER NOT NULL REFERENCES studies (id), cell INTEGER NOT NULL REFERENCES cells (id),
    condition INTEGER NOT NULL REFERENCES conditions (id), body TEXT NOT NULL, PRIMARY KEY (study, cell, condition)
) WITHOUT ROWID;
CREATE INDEX members_by_cell ON members (cell);
CREATE TABLE unfinished (
    study INTEGER NOT NULL REFERENCES studies (id), cell INTEGER NOT NULL REFERENCES cells (id), PRIMARY KEY (study, cell)
) WITHOUT ROWID;
CREATE INDEX unfinished_by_cell ON unfinished (cell);
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, cell INTEGER NOT NULL REFERENCES cells (id), worker TEXT NOT NULL, ends REAL NOT NULL,
    spent INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX attempts_by_cell ON attempts (cell);
CREATE INDEX attempts_by_end ON attempts (ends);
CREATE TABLE results (
    cell INTEGER PRIMARY KEY REFERENCES cells (id), failed INTEGER NOT NULL, body TEXT NOT NULL, drawn BLOB
);
CREATE INDEX results_failed ON results (cell) WHERE failed;
CREATE TABLE traces (cell INTEGER PRIMARY KEY REFERENCES cells (id), trace BLOB NOT NULL);
"""  # noqa: E501
_LATER_TABLES: Final = (  # which stores of earlier revisions lack until they are opened
    "CREATE TABLE IF NOT EXISTS sources (cell INTEGER PRIMARY KEY REFERENCES cells (id), body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS checksums (cell INTEGER PRIMARY KEY REFERENCES cells (id), sha256 BLOB NOT NULL)",
)


def connect(path: Path) -> sqlite3.Connection:
    """Open a store, or create one where there is no file. A file of another kind is left unchanged.

    Raises:
        ConfigError: the file is not a store, has another version, or cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as failure:
        raise ConfigError(f"store {path} cannot be opened ({failure})", hint=_STORE_HINT) from failure
    try:
        with explain_errors(path):
            if not _is_store(connection, path):
                _make(connection, path)
            for statement in _LATER_TABLES:
                connection.execute(statement)
            connection.execute("PRAGMA synchronous = NORMAL")  # commits survive the process, but not always a power cut
            # another person may have written the file, so that the size of its rows is bounded
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(largest_row(), (1 << 31) - 1))
            connection.execute("PRAGMA cache_size = -65536")  # KiB
        return connection
    except BaseException:
        connection.close()
        raise


def _is_store(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is a store of this version; False if it is empty. Nothing is written."""
    try:
        # tables are counted first: another process may create the store between these reads, in one transaction
        (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as failure:
        if failure.sqlite_errorname.startswith("SQLITE_NOTADB"):
            raise ConfigError(f"store {path} is a file of another kind, no store", hint=_STORE_HINT) from failure
        raise
    if application == APPLICATION and version == VERSION:
        return True
    if application == APPLICATION:
        hint = f"{_STORE_HINT}, or read this one with the release that wrote it"
        raise ConfigError(f"store {path} is of version {version}, but this release reads version {VERSION}", hint=hint)
    if num_tables or application:
        raise ConfigError(f"store {path} is a database of something else, no store", hint=_STORE_HINT)
    return False


def _make(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables, unless another process has created them."""
    _switch_to_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_store(connection, path):
            for statement in (*_TABLES.split(";"), *_LATER_TABLES):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log, which lets processes read during a write.

    SQLite does not wait for a lock in this statement, so the function tries again until `WAIT_S` have passed.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as failure:
            if not failure.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def explain_errors(path: Path) -> Generator[None]:
    """Turn errors of SQLite within a block into an error of one line with a hint.

    Raises:
        TTSError: the disk is full, or the file is locked, damaged or read-only. Finished results are kept.
    """
    try:
        yield
    except sqlite3.Error as failure:
        error_name = getattr(failure, "sqlite_errorname", "")
        if not error_name and isinstance(failure, sqlite3.OperationalError):
            error_name = "SQLITE_CORRUPT"  # Python raises such an error without a name for a text that is no UTF-8
        for prefix, (cause, hint) in _FAILURES.items():
            if error_name.startswith(prefix):
                raise TTSError(f"store {path}: {cause}; what was finished is kept", hint=hint) from failure
        raise TTSError(
            f"store {path}: {failure}; what was finished is kept", hint="run the same command again to go on"
        ) from failure


_FAILURES: Final = {
    "SQLITE_FULL": ("the disk is full", "make room, then run the same command again: it goes on where it stopped"),
    "SQLITE_TOOBIG": (
        "a text in it is longer than one row may be",
        f"if you trust who wrote it, raise the bound: {LARGEST_ROW}=256 in the environment (MiB)",
    ),
    "SQLITE_BUSY": (
        f"another process has kept it locked for {WAIT_S:g} seconds",
        "end that process, or name another file with --store",
    ),
    "SQLITE_CORRUPT": ("the file is damaged", "name another file with --store, or put back a copy of this one"),
    "SQLITE_NOTADB": ("the file is damaged", "name another file with --store, or put back a copy of this one"),
    "SQLITE_READONLY": ("the file may not be written", "change its permissions, or name another file with --store"),
    "SQLITE_CANTOPEN": ("the file cannot be opened", "change its permissions, or name another file with --store"),
    "SQLITE_IOERR": (
        "reading or writing failed",
        "see that its disk works and has room, then run the same command again",
    ),
}
