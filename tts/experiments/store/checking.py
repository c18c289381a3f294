"""Checks of a store's content: the structure of the file, and a checksum of each result.

SQLite compares tables with their indexes, which hold keys, studies and conditions a second time. Results and traces are
in no index, so they have checksums.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from tts._common.scopes import file_scope
from tts.errors import ConfigError
from tts.experiments.store.bodies import source_in
from tts.experiments.store.rows import CONDITION, cell_of, condition_of, result_of, runs_of
from tts.experiments.study.record import Cell
from tts.experiments.study.stored import condition_faults, configuration_faults

_PAGE: Final = 500  # results read in one query
_MOST_FAULTS: Final = 20  # faults of the file that are listed


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The findings of a check.

    Args:
        whole: Results whose checksum holds.
        unknown: Results without a checksum, which earlier revisions wrote.
        damaged: Keys of the cells whose results or traces were changed.
        faults: The faults of the file, in SQLite's words.
        foreign: Code, files or servers that texts name, but that a store may not name
            (`tts._common.scopes.file_scope`).
    """

    whole: int
    unknown: int
    damaged: tuple[str, ...]
    faults: tuple[str, ...]
    foreign: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.damaged or self.faults)


def checksum(key: str, failed: bool | int, body: str, drawn: bytes | None, trace: bytes | None) -> bytes:  # noqa: FBT001 - a stored column
    """Return the SHA-256 of a result as it is stored."""
    digest = hashlib.sha256()
    for part in (key.encode(), b"1" if failed else b"0", body.encode(), drawn, trace):
        digest.update(b"-" if part is None else f"{len(part)}:".encode() + part)
    return digest.digest()


def check_store(db: sqlite3.Connection) -> StoreCheck:
    """Check every result of a store."""
    messages = [str(message) for (message,) in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
    if messages != ["ok"]:
        faults = tuple(" ".join(message.split()) for message in messages)
        return StoreCheck(whole=0, unknown=0, damaged=(), faults=faults)
    query = (
        "SELECT cell, key, failed, results.body, drawn, trace, sha256 FROM results JOIN cells ON cells.id = cell"
        " LEFT JOIN traces USING (cell) LEFT JOIN checksums USING (cell) WHERE cell > ? ORDER BY cell LIMIT ?"
    )
    num_whole, num_unknown, cell = 0, 0, 0
    damaged: dict[int, str] = {}  # keys by cell
    while rows := db.execute(query, (cell, _PAGE)).fetchall():  # the next results after the last cell
        for cell, key, *columns, stored_checksum in rows:
            if stored_checksum is None:
                num_unknown += 1
            elif _holds(key, columns, stored_checksum):
                num_whole += 1
            else:
                damaged[cell] = str(key)
    return StoreCheck(
        whole=num_whole,
        unknown=num_unknown,
        damaged=tuple(damaged.values()),
        faults=tuple(islice(_unreadable(db, damaged), _MOST_FAULTS)),
        foreign=tuple(dict.fromkeys(_foreign(db))),
    )


def _unreadable(db: sqlite3.Connection, damaged: Container[int]) -> Iterator[str]:
    """Yield the reason why a row cannot be read, for each such row except results in `damaged`.

    An unreadable result may have a valid checksum, since another person may have written both.
    """
    empty_cell = Cell(key="", dataset="", problem="", model="", setting="", strategy="", budget={}, seed=0)
    condition = {name: getattr(empty_cell, name) for name in CONDITION}

    def result(row: int, body: str, drawn: bytes | None) -> object:
        return result_of(row, empty_cell, body, drawn, 0)

    readers: list[tuple[str, Callable[..., object]]] = [
        ("SELECT id, body FROM conditions ORDER BY id", condition_of),
        ("SELECT cell, body FROM members ORDER BY cell", lambda row, body: cell_of(row, "", condition, body)),
        ("SELECT id, begun_at, snapshot FROM runs ORDER BY id", lambda *run: runs_of(0, "", [run])),
        ("SELECT cell, body, drawn FROM results ORDER BY cell", result),
        ("SELECT cell, body FROM sources ORDER BY cell", source_in),
    ]
    for query, reader in readers:
        for columns in db.execute(query):
            row_id, *_ = columns
            if reader is result and row_id in damaged:
                continue
            try:
                reader(*columns)
            except ConfigError as failure:
                yield failure.cause


def _foreign(db: sqlite3.Connection) -> Iterator[str]:
    """Yield a line for each code, file or server that a text of the store names, but that a store may not name."""
    scope = file_scope()
    for (body,) in db.execute("SELECT body FROM conditions ORDER BY id"):
        for fault in condition_faults(_value(body), scope):
            yield str(fault.cause)
    for (text,) in db.execute("SELECT snapshot FROM runs ORDER BY id"):
        snapshot = _value(text)
        configuration = snapshot.get("configuration") if isinstance(snapshot, dict) else None
        for fault in configuration_faults(configuration, scope):
            yield str(fault.cause)


def _value(text: Any) -> Any:
    """Return the value of a JSON text; None: the text is not JSON, and no command can read it."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _holds(key: object, columns: list[object], stored_checksum: bytes) -> bool:
    """Return whether a result has its stored checksum; False for values of types that no store writes.

    Args:
        key: The key of the cell.
        columns: The columns failed, body, drawn and trace of the result.
        stored_checksum: The checksum that was written with the result.
    """
    failed, body, drawn, trace = columns
    if not (isinstance(key, str) and isinstance(body, str) and isinstance(failed, int)):
        return False
    if not (isinstance(drawn, bytes | None) and isinstance(trace, bytes | None)):
        return False
    return checksum(key, failed, body, drawn, trace) == stored_checksum
