"""Finished searches with their traces: in a file that outlives the server, or in memory.

Only a search's own client can read it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tts.errors import ConfigError, TTSError
from tts.experiments.datasets.unpacking import largest_row, pack, unpack
from tts.trace.trace import Trace

T = TypeVar("T")
_APPLICATION, _VERSION = 0x74747367, 1  # "ttsg", in the header of the file
_TABLE = """
CREATE TABLE IF NOT EXISTS searches (
    number TEXT PRIMARY KEY, owner TEXT NOT NULL, begun_at REAL NOT NULL, seconds REAL NOT NULL, model TEXT NOT NULL,
    question TEXT NOT NULL, answer TEXT, tokens INTEGER NOT NULL, stopped_by TEXT NOT NULL, trace BLOB
)
"""
_RESPONSES = """
CREATE TABLE IF NOT EXISTS responses (
    number TEXT PRIMARY KEY, owner TEXT NOT NULL, begun_at REAL NOT NULL, body BLOB NOT NULL
)
"""
_INDEX = "CREATE INDEX IF NOT EXISTS searches_by_owner ON searches (owner, begun_at)"
_QUESTION = 2000  # characters of a question in a list
_WAIT_S = 30.0  # for other processes
_AGAIN_S = 0.02  # between two tries


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """A finished search.

    Args:
        number: The name of the search.
        begun_at: The seconds since the epoch at which it began.
        seconds: The seconds that it took.
        model: The model as the client named it.
        question: The beginning of the last turn.
        answer: The answer; None: there is none.
        tokens: The tokens that it spent.
        stopped_by: Why it ended.
    """

    number: str
    begun_at: float
    seconds: float
    model: str
    question: str
    answer: str | None
    tokens: int
    stopped_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """A response that is kept.

    Args:
        number: The name of its search.
        begun_at: The seconds since the epoch at which it began.
        items: The input items of its request, those of earlier responses included.
        reply: The response.
    """

    number: str
    begun_at: float
    items: list[Any]
    reply: dict[str, Any]


def share_file(file: sqlite3.Connection) -> None:
    """Let several processes use a file at once.

    SQLite fails at once if another process makes the same change at that moment. This function tries again.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)
    file.execute("PRAGMA synchronous = NORMAL")


class Archive:
    """The finished searches of a gateway. Several processes may share a file.

    Args:
        path: The path of the file; None: in memory.
        kept: The most searches that are kept; the oldest are dropped.

    Raises:
        ConfigError: the file is not the store of a gateway, or cannot be opened.
    """

    def __init__(self, path: str | None, kept: int) -> None:
        self._kept, self._lock = kept, threading.Lock()
        self._path = path or "memory"
        try:
            self._file = sqlite3.connect(
                path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._refuse_another_kind(path)
            share_file(self._file)
            self._file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(largest_row(), (1 << 31) - 1))
            with self._file:  # other workers see a file with none of the tables, or with all
                self._file.execute("BEGIN IMMEDIATE")
                for statement in (_TABLE, _RESPONSES, _INDEX):
                    self._file.execute(statement)
                self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._file.execute(f"PRAGMA user_version = {_VERSION}")
        except sqlite3.Error as failure:
            raise ConfigError(
                f"store is {path!r}, but it cannot be opened: {failure}", hint="name another file"
            ) from None

    def _refuse_another_kind(self, path: str | None) -> None:
        """Refuse a file that is not empty, and no archive of this version.

        Raises:
            ConfigError: It is another file.
        """
        with self._file:
            self._file.execute("BEGIN")
            (application,) = self._file.execute("PRAGMA application_id").fetchone()
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            (num_tables,) = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if num_tables and (application, version) != (_APPLICATION, _VERSION):
            raise ConfigError(
                f"store is {path!r}, but that file is not the store of a gateway of this version",
                hint="name another file",
            )

    def add(self, owner: str, record: SearchRecord, trace: str | None) -> None:
        """Keep a search.

        Args:
            owner: The owner of the search's client.
            record: The search.
            trace: The trace of the search as JSON; None: no trace is kept.

        Raises:
            TTSError: The file cannot be written, or the trace is too large to be read again. A search with such a trace
                is kept without the trace.
        """
        packed, refusal = None, None
        if trace is not None:
            try:
                packed = pack(f"the trace of the search {record.number}", trace.encode())
            except ConfigError as too_large:
                refusal = too_large
        row = (
            record.number, owner, record.begun_at, record.seconds, record.model, record.question[:_QUESTION],
            record.answer, record.tokens, record.stopped_by, packed,
        )  # fmt: skip
        with self._use_file() as file:
            file.execute("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            (count,) = file.execute("SELECT count(*) FROM searches").fetchone()
            if count > self._kept:
                oldest = "SELECT number FROM searches ORDER BY begun_at LIMIT ?"
                file.execute(f"DELETE FROM searches WHERE number IN ({oldest})", (count - self._kept,))
        if refusal is not None:
            raise refusal

    def recent(self, owner: str, most: int = 50) -> list[SearchRecord]:
        """Return the last searches of a client, the newest first."""
        columns = "number, begun_at, seconds, model, question, answer, tokens, stopped_by"
        query = f"SELECT {columns} FROM searches WHERE owner = ? ORDER BY begun_at DESC, rowid DESC LIMIT ?"
        with self._use_file() as file:
            rows = file.execute(query, (owner, most)).fetchall()
        return [SearchRecord(**dict(zip(columns.split(", "), row, strict=True))) for row in rows]

    def trace(self, owner: str, number: str) -> Trace | None:
        """Return the trace of a search; None: the client has no such search, or it has no trace.

        Raises:
            TTSError: The trace is damaged or too large, or the file cannot be read.
        """
        with self._use_file() as file:
            row = file.execute("SELECT trace FROM searches WHERE number = ? AND owner = ?", (number, owner)).fetchone()
        packed = None if row is None else row[0]
        return None if packed is None else self._read(f"the trace of the search {number}", packed, Trace.from_json)

    def add_response(self, owner: str, record: ResponseRecord) -> None:
        """Keep a response for the owner of its client.

        Raises:
            TTSError: The file cannot be written, or the response is too large to be read again.
        """
        content = json.dumps({"items": record.items, "reply": record.reply})
        body = pack(f"the response {record.number}", content.encode())
        with self._use_file() as file:
            file.execute(
                "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", (record.number, owner, record.begun_at, body)
            )
            (count,) = file.execute("SELECT count(*) FROM responses").fetchone()
            if count > self._kept:
                oldest = "SELECT number FROM responses ORDER BY begun_at LIMIT ?"
                file.execute(f"DELETE FROM responses WHERE number IN ({oldest})", (count - self._kept,))

    def response(self, owner: str, number: str) -> ResponseRecord | None:
        """Return a response; None: the client has no such response.

        Raises:
            TTSError: The response is damaged or too large, or the file cannot be read.
        """
        query = "SELECT begun_at, body FROM responses WHERE number = ? AND owner = ?"
        with self._use_file() as file:
            row = file.execute(query, (number, owner)).fetchone()
        if row is None:
            return None
        begun_at, body = row
        return self._read(
            f"the response {number}",
            body,
            lambda text: ResponseRecord(number=number, begun_at=begun_at, **json.loads(text)),
        )

    def drop_response(self, owner: str, number: str) -> None:
        """Drop a response of a client."""
        with self._use_file() as file:
            file.execute("DELETE FROM responses WHERE number = ? AND owner = ?", (number, owner))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _read(self, what: str, packed: Any, read: Callable[[str], T]) -> T:
        """Return the value in a column, after a check, since another person may have written the file.

        Args:
            what: The value in errors, such as "the response 12".
            packed: The content of the column.
            read: A function that makes the value of a text.

        Raises:
            TTSError: The content is damaged.
        """
        place = f"{what} in the store {self._path}"
        try:
            text = unpack(place, packed).decode()
        except (zlib.error, UnicodeDecodeError, TypeError) as failure:
            raise TTSError(f"{place} is damaged: {failure}") from failure
        try:
            return read(text)
        except (ValueError, TypeError, RecursionError) as failure:
            reason = failure.cause if isinstance(failure, ConfigError) else failure
            raise TTSError(f"{place} is damaged: {reason}") from failure

    @contextmanager
    def _use_file(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._file
            except sqlite3.Error as failure:
                raise TTSError(f"the store {self._path} cannot be used: {failure}") from failure
