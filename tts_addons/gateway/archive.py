"""Finished searches with their traces: in a file that outlives the server, or in memory.

Only a search's own client can read it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tts.errors import ConfigError, TTSError
from tts.experiments.datasets.unpacking import largest_row, pack, unpack
from tts.trace.trace import Trace
from tts_addons.gateway.config import KEPT_BYTES

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
_INDEXES = tuple(
    f"CREATE INDEX IF NOT EXISTS {table}_by_owner ON {table} (owner, begun_at)" for table in ("searches", "responses")
)
# the bytes of a row that count, by table
_SIZES = {
    "searches": "coalesce(length(trace), 0) + length(CAST(question || coalesce(answer, '') AS BLOB))",
    "responses": "length(body)",
}
_OWNERS = 16  # the bytes of all owners together, in those that one may have
_QUESTION = 2000  # characters of a question in a list
_WAIT_S = 30.0  # for other processes
_RETRY_S = 0.02  # between two tries


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """A search.

    Args:
        number: The name of the search.
        begun_at: The seconds since the epoch at which it began.
        seconds: The seconds that it took; None: it runs.
        model: The model as the client named it.
        question: The beginning of the last turn.
        answer: The answer; None: there is none.
        tokens: The tokens that it spent.
        stopped_by: Why it ended; None: it runs.
    """

    number: str
    begun_at: float
    model: str
    question: str
    tokens: int
    seconds: float | None = None
    answer: str | None = None
    stopped_by: str | None = None


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
        try:
            with ExitStack() as failing:
                self._file = sqlite3.connect(
                    path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False
                )
                failing.callback(self._file.close)
                self._refuse_another_kind(path)
                share_file(self._file)
                self._file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(largest_row(), (1 << 31) - 1))
                with self._file:  # other workers see a file with none of the tables, or with all
                    self._file.execute("BEGIN IMMEDIATE")
                    for statement in (_TABLE, _RESPONSES, *_INDEXES):
                        self._file.execute(statement)
                    self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
                    self._file.execute(f"PRAGMA user_version = {_VERSION}")
                failing.pop_all()
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
            TTSError: The file cannot be written, the trace is too large to be read again, or there is no room. A search
                without room for its trace is kept without it.
        """
        row = (
            record.number, owner, record.begun_at, record.seconds, record.model, record.question[:_QUESTION],
            record.answer, record.tokens, record.stopped_by,
        )  # fmt: skip
        size = len(f"{record.question[:_QUESTION]}{record.answer or ''}".encode(errors="replace"))
        try:
            packed = None if trace is None else self._pack(f"the trace of the search {record.number}", trace)
            self._insert("searches", owner, (*row, packed), size + len(packed or b""))
        except TTSError:
            self._insert("searches", owner, (*row, None), size)
            raise

    def _pack(self, what: str, text: str) -> bytes:
        """Return a text, packed; one is packed at a time, so that the rest of the server finds a processor.

        Raises:
            ConfigError: The text is too large to be read again.
        """
        with self._packing:
            return pack(what, text.encode())

    def _insert(self, table: str, owner: str, row: Sequence[Any], size: int) -> None:
        """Insert a row; the oldest rows of its owner give way where a bound is reached.

        Args:
            table: The table.
            owner: The owner.
            row: The values.
            size: The bytes of the row that count.

        Raises:
            TTSError: There is no room for the row, and nothing is dropped.
        """
        with self._use_file() as file, file:
            file.execute("BEGIN IMMEDIATE")
            query = f"SELECT number, {_SIZES[table]} FROM {table} WHERE owner = ? ORDER BY begun_at, rowid"
            kept = file.execute(query, (owner,)).fetchall()
            names = ("page_count", "freelist_count", "page_size")
            pages, free_pages, page_size = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
            room = _OWNERS * self._kept_bytes - (pages - free_pages) * page_size
            own_room = self._kept_bytes - sum(kept_size for _, kept_size in kept)
            dropped: list[tuple[str]] = []
            for number, kept_size in kept:
                if size <= min(room, own_room) and len(kept) - len(dropped) < self._kept:
                    break
                dropped.append((number,))
                room, own_room = room + kept_size, own_room + kept_size
            if size > min(room, own_room):
                raise TTSError(f"kept_bytes leaves no room for {size:,} bytes more of {table}")
            file.executemany(f"DELETE FROM {table} WHERE number = ?", dropped)
            file.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)

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
            TTSError: The file cannot be written, the response is too large to be read again, or there is no room.
        """
        content = json.dumps({"items": record.items, "reply": record.reply})
        body = self._pack(f"the response {record.number}", content)
        self._insert("responses", owner, (record.number, owner, record.begun_at, body), len(body))

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

    def largest_size(self, owner: str, number: str) -> int:
        """Return the packed bytes of an owner's response or trace, whichever is larger; 0: there is neither."""
        queries = [f"SELECT {size} FROM {table} WHERE number = :key AND owner = :who" for table, size in _SIZES.items()]
        whose = {"key": number, "who": owner}
        with self._use_file() as file:
            return max((size for (size,) in file.execute(" UNION ALL ".join(queries), whose)), default=0)

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
