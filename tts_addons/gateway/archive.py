"""Finished searches with their traces: in a file that outlives the server, or in memory.

Only a search's own client can read it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from tts.errors import ConfigError, TTSError
from tts.experiments.datasets.unpacking import largest_row, pack, unpack
from tts.trace.trace import Trace
from tts_addons.gateway.config import KEPT_BYTES

T = TypeVar("T")
_APPLICATION, _VERSION = 0x74747367, 2  # "ttsg", in the header of the file
_TABLES = (
    "CREATE TABLE IF NOT EXISTS kept (kind TEXT, number TEXT, owner TEXT, begun_at REAL, about TEXT, body BLOB, "
    "PRIMARY KEY (kind, number))",
    "CREATE INDEX IF NOT EXISTS kept_by_owner ON kept (owner, kind, begun_at)",
)
_SIZE = "length(about) + coalesce(length(body), 0)"  # the bytes of a row that count
_SEARCH, _RESPONSE = "the trace of the search", "the response"  # kinds of rows, as errors name their bodies
_OWNERS = 16  # the bytes of all owners together, in those that one may have
_WAIT_S = 30.0  # for other processes
_RETRY_S = 0.02  # between two tries


def open_store(path: str | None, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a file of SQLite, after `prepare` was called with it.

    Args:
        path: The path; None: in memory.
        prepare: A function that makes the tables. If it fails, the file is closed.

    Raises:
        ConfigError: the file cannot be opened.
    """
    try:
        with ExitStack() as failing:
            file = sqlite3.connect(path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
            failing.callback(file.close)
            prepare(file)
            failing.pop_all()
            return file
    except sqlite3.Error as failure:
        raise ConfigError(f"store is {path!r}, but it cannot be opened: {failure}", hint="name another file") from None


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
            time.sleep(_RETRY_S)
    file.execute("PRAGMA synchronous = NORMAL")


class Archive:
    """The finished searches of a gateway. Several processes may share a file.

    Args:
        path: The path of the file; None: in memory.
        kept: The most searches of each owner, and its most responses. The oldest of the same owner are dropped.
        kept_bytes: The most bytes of an owner's searches, and of its responses. All owners together have at most 16
            times as many; beyond this, nothing more is kept, and nothing of another owner is dropped.

    Raises:
        ConfigError: the file is not the store of a gateway, or cannot be opened.
    """

    def __init__(self, path: str | None, kept: int, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept, self._kept_bytes = kept, kept_bytes
        self._lock, self._packing = threading.Lock(), threading.Lock()
        self._path = path or "memory"
        self._file = open_store(path, self._prepare)

    def _prepare(self, file: sqlite3.Connection) -> None:
        """Make the tables of a file.

        Raises:
            ConfigError: the file is not empty, and no archive of this version.
        """
        with file:
            file.execute("BEGIN")
            (application,) = file.execute("PRAGMA application_id").fetchone()
            (version,) = file.execute("PRAGMA user_version").fetchone()
            (num_tables,) = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if num_tables and (application, version) != (_APPLICATION, _VERSION):
            raise ConfigError(
                f"store is {self._path!r}, but that file is not the store of a gateway of this version",
                hint="name another file",
            )
        share_file(file)
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(largest_row(), (1 << 31) - 1))
        with file:  # other workers see a file with none of the tables, or with all
            file.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                file.execute(statement)
            file.execute(f"PRAGMA application_id = {_APPLICATION}")
            file.execute(f"PRAGMA user_version = {_VERSION}")

    def add_search(self, owner: str, number: str, begun_at: float, about: Mapping[str, Any], trace: str) -> None:
        """Keep a search.

        Args:
            owner: The owner of the search's client.
            number: The name of the search.
            begun_at: The seconds since the epoch at which it began.
            about: Its description in lists.
            trace: Its trace as JSON.

        Raises:
            TTSError: The file cannot be written, the trace is too large to be read again, or there is no room. A search
                without room for its trace is kept without it.
        """
        try:
            self._add(_SEARCH, owner, number, begun_at, about, trace)
        except TTSError:
            self._add(_SEARCH, owner, number, begun_at, about, None)
            raise

    def add_response(self, owner: str, number: str, begun_at: float, content: Mapping[str, Any]) -> None:
        """Keep a response for the owner of its client.

        Args:
            owner: The owner.
            number: The name of the search.
            begun_at: The seconds since the epoch at which it began.
            content: The input `items`, those of earlier responses included, and the `reply`.

        Raises:
            TTSError: The file cannot be written, the response is too large to be read again, or there is no room.
        """
        self._add(_RESPONSE, owner, number, begun_at, {}, json.dumps(content))

    def _add(
        self, kind: str, owner: str, number: str, begun_at: float, about: Mapping[str, Any], text: str | None
    ) -> None:
        """Insert a row; the oldest rows of its owner and kind give way where a bound is reached.

        Raises:
            TTSError: There is no room for the row, and nothing is dropped, or its text is too large to be read again.
        """
        about_text, body = json.dumps(about), None
        if text is not None:
            with self._packing:  # one at a time, so that the rest of the server finds a processor
                body = pack(f"{kind} {number}", text.encode())
        size = len(about_text) + len(body or b"")
        with self._use_file() as file, file:
            file.execute("BEGIN IMMEDIATE")
            query = f"SELECT number, {_SIZE} FROM kept WHERE owner = ? AND kind = ? ORDER BY begun_at, rowid"
            kept = file.execute(query, (owner, kind)).fetchall()
            names = ("page_count", "freelist_count", "page_size")
            pages, free_pages, page_size = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
            room = _OWNERS * self._kept_bytes - (pages - free_pages) * page_size
            own_room = self._kept_bytes - sum(kept_size for _, kept_size in kept)
            dropped: list[tuple[str, str]] = []
            for kept_number, kept_size in kept:
                if size <= min(room, own_room) and len(kept) - len(dropped) < self._kept:
                    break
                dropped.append((kind, kept_number))
                room, own_room = room + kept_size, own_room + kept_size
            if size > min(room, own_room):
                raise TTSError(f"kept_bytes leaves no room for {size:,} bytes more: {kind} {number}")
            file.executemany("DELETE FROM kept WHERE kind = ? AND number = ?", dropped)
            row = (kind, number, owner, begun_at, about_text, body)
            file.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?)", row)

    def recent(self, owner: str, most: int = 50) -> list[tuple[str, float, dict[str, Any]]]:
        """Return the names, begins and descriptions of the last searches of a client, the newest first."""
        query = (
            "SELECT number, begun_at, about FROM kept WHERE owner = ? AND kind = ? ORDER BY begun_at DESC, rowid DESC "
            "LIMIT ?"
        )
        with self._use_file() as file:
            rows = file.execute(query, (owner, _SEARCH, most)).fetchall()
        return [(number, begun_at, json.loads(about)) for number, begun_at, about in rows]

    def trace(self, owner: str, number: str) -> Trace | None:
        """Return the trace of a search; None: the client has no such search, or it has no trace.

        Raises:
            TTSError: The trace is damaged or too large, or the file cannot be read.
        """
        return self._read(_SEARCH, owner, number, Trace.from_json)

    def response(self, owner: str, number: str) -> dict[str, Any] | None:
        """Return the content of a response (see `add_response`); None: the client has no such response.

        Raises:
            TTSError: The response is damaged or too large, or the file cannot be read.
        """
        return self._read(_RESPONSE, owner, number, _content_of)

    def largest_size(self, owner: str, number: str) -> int:
        """Return the packed bytes of an owner's response or trace, whichever is larger; 0: there is neither."""
        query = f"SELECT coalesce(max({_SIZE}), 0) FROM kept WHERE number = ? AND owner = ?"
        with self._use_file() as file:
            return file.execute(query, (number, owner)).fetchone()[0]

    def drop_response(self, owner: str, number: str) -> None:
        """Drop a response of a client."""
        with self._use_file() as file:
            file.execute("DELETE FROM kept WHERE kind = ? AND number = ? AND owner = ?", (_RESPONSE, number, owner))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _read(self, kind: str, owner: str, number: str, read: Callable[[str], T]) -> T | None:
        """Return the value in a body, after a check, since another person may have written the file.

        Args:
            kind: The kind of the row.
            owner: The owner.
            number: The name of the search.
            read: A function that makes the value of a text.

        Returns:
            The value; None: there is no such row, or it has no body.

        Raises:
            TTSError: The content is damaged.
        """
        with self._use_file() as file:
            query = "SELECT body FROM kept WHERE kind = ? AND number = ? AND owner = ?"
            row = file.execute(query, (kind, number, owner)).fetchone()
        if row is None or row[0] is None:
            return None
        place = f"{kind} {number} in the store {self._path}"
        try:
            return read(unpack(place, row[0]).decode())
        except (zlib.error, ValueError, TypeError, RecursionError) as failure:
            reason = failure.cause if isinstance(failure, ConfigError) else failure
            raise TTSError(f"{place} is damaged: {reason}") from failure

    @contextmanager
    def _use_file(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._file
            except sqlite3.Error as failure:
                raise TTSError(f"the store {self._path} cannot be used: {failure}") from failure


def _content_of(text: str) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict) or content.keys() != {"items", "reply"}:
        raise ValueError("it has no items, or no reply")
    return content
