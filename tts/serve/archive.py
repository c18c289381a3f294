"""Finished searches with their traces: in a file that outlives the server, or in memory. Only its own client can read a search."""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tts.errors import ConfigError, TTSError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """A finished search.

    Args:
        number: its name. begun_at: seconds since the epoch. seconds: that it took. model: as the client named it. question: the beginning
            of the last turn. answer: None without one. tokens: spent. stopped_by: why it ended.
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
        items: The items that it was asked with, those of earlier responses included.
        reply: The response.
    """

    number: str
    begun_at: float
    items: list[Any]
    reply: dict[str, Any]


class Archive:
    """The finished searches of a gateway. Several processes may share a file.

    Args:
        path: of the file; None: in memory. kept: most searches; the oldest are dropped.

    Raises:
        ConfigError: the file is not the store of a gateway, or cannot be opened.
    """

    def __init__(self, path: str | None, kept: int) -> None:
        self._kept, self._lock = kept, threading.Lock()
        self._path = path or "memory"
        try:
            self._file = sqlite3.connect(path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
            told = tuple(self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
            tables = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if tables and told != (_APPLICATION, _VERSION):
                raise ConfigError(
                    f"store is {path!r}, but that file is not the store of a gateway of this version", hint="name another file"
                )
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            for statement in (_TABLE, _RESPONSES, _INDEX, f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {_VERSION}"):
                self._file.execute(statement)
        except sqlite3.Error as failure:
            raise ConfigError(f"store is {path!r}, but it cannot be opened: {failure}", hint="name another file") from None

    def add(self, owner: str, record: SearchRecord, trace: str | None) -> None:
        """Keep a search.

        Args:
            owner: the owner of its client. trace: its trace as JSON; None: none is kept.

        Raises:
            TTSError: the file cannot be written.
        """
        packed = None if trace is None else zlib.compress(trace.encode(), 1)
        row = (
            record.number, owner, record.begun_at, record.seconds, record.model, record.question[:_QUESTION], record.answer, record.tokens,
            record.stopped_by, packed,
        )  # fmt: skip
        with self._held() as file:
            file.execute("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            if (count := file.execute("SELECT count(*) FROM searches").fetchone()[0]) > self._kept:
                oldest = "SELECT number FROM searches ORDER BY begun_at LIMIT ?"
                file.execute(f"DELETE FROM searches WHERE number IN ({oldest})", (count - self._kept,))

    def recent(self, owner: str, most: int = 50) -> list[SearchRecord]:
        """Return the last searches of a client, the newest first."""
        columns = "number, begun_at, seconds, model, question, answer, tokens, stopped_by"
        query = f"SELECT {columns} FROM searches WHERE owner = ? ORDER BY begun_at DESC, rowid DESC LIMIT ?"
        with self._held() as file:
            rows = file.execute(query, (owner, most)).fetchall()
        return [SearchRecord(**dict(zip(columns.split(", "), row, strict=True))) for row in rows]

    def trace(self, owner: str, number: str) -> str | None:
        """Return a trace as JSON; None where there is none, or it is another client's."""
        with self._held() as file:
            row = file.execute("SELECT trace FROM searches WHERE number = ? AND owner = ?", (number, owner)).fetchone()
        return None if row is None or row[0] is None else zlib.decompress(row[0]).decode()

    def add_response(self, owner: str, record: ResponseRecord) -> None:
        """Keep a response for the owner of its client.

        Raises:
            TTSError: the file cannot be written.
        """
        body = zlib.compress(json.dumps({"items": record.items, "reply": record.reply}).encode(), 1)
        with self._held() as file:
            file.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", (record.number, owner, record.begun_at, body))
            if (count := file.execute("SELECT count(*) FROM responses").fetchone()[0]) > self._kept:
                oldest = "SELECT number FROM responses ORDER BY begun_at LIMIT ?"
                file.execute(f"DELETE FROM responses WHERE number IN ({oldest})", (count - self._kept,))

    def response(self, owner: str, number: str) -> ResponseRecord | None:
        """Return a response; None where there is none, or it is another client's."""
        query = "SELECT begun_at, body FROM responses WHERE number = ? AND owner = ?"
        with self._held() as file:
            row = file.execute(query, (number, owner)).fetchone()
        if row is None:
            return None
        return ResponseRecord(number=number, begun_at=row[0], **json.loads(zlib.decompress(row[1])))

    def drop_response(self, owner: str, number: str) -> None:
        """Drop a response of a client."""
        with self._held() as file:
            file.execute("DELETE FROM responses WHERE number = ? AND owner = ?", (number, owner))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    @contextmanager
    def _held(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._file
            except sqlite3.Error as failure:
                raise TTSError(f"the store {self._path} cannot be used: {failure}") from failure
