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

from tts.errors import ConfigError
from tts.experiments.store.bodies import source_in
from tts.experiments.store.rows import CONDITION, cell_of, condition_of, result_of, runs_of
from tts.experiments.study.record import Cell
from tts.experiments.study.stored import condition_faults, configuration_faults
from tts.scopes import file_scope

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
        foreign: Code, files or servers that texts name, but that a store may not name (`tts.scopes.file_scope`).
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
    messages = [row[0] for row in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
    if messages != ["ok"]:
        return StoreCheck(0, 0, (), tuple(" ".join(str(line).split()) for line in messages))
    has_sums = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'checksums'").fetchone() is not None
    sums, joined = ("sha256", "LEFT JOIN checksums USING (cell)") if has_sums else ("NULL", "")
    whole, unknown, last_cell = 0, 0, 0
    damaged: dict[int, str] = {}  # keys by cell
    while rows := db.execute(
        f"SELECT cell, key, failed, results.body, drawn, trace, {sums} FROM results JOIN cells ON cells.id = cell"
        f" LEFT JOIN traces USING (cell) {joined} WHERE cell > ? ORDER BY cell LIMIT ?",
        (last_cell, _PAGE),
    ).fetchall():
        for cell, key, *parts, stored_sum in rows:
            if stored_sum is None:
                unknown += 1
            elif _holds(key, parts, stored_sum):
                whole += 1
            else:
                damaged[cell] = str(key)
        last_cell = rows[-1][0]
    faults = tuple(islice(_unreadable(db, damaged), _MOST_FAULTS))
    return StoreCheck(whole, unknown, tuple(damaged.values()), faults, tuple(dict.fromkeys(_foreign(db))))


def _unreadable(db: sqlite3.Connection, damaged: Container[int]) -> Iterator[str]:
    """Yield the reasons why rows cannot be read, without the results in `damaged`.

    An unreadable result may have a valid checksum: its author may have computed that too.
    """
    plain = Cell(key="", dataset="", problem="", model="", setting="", strategy="", budget={}, seed=0)
    condition = {name: getattr(plain, name) for name in CONDITION}

    def result(row: int, body: str, drawn: bytes | None) -> object:
        return result_of(row, plain, body, drawn, 0)

    readers: list[tuple[str, Callable[..., object]]] = [
        ("SELECT id, body FROM conditions ORDER BY id", condition_of),
        ("SELECT cell, body FROM members ORDER BY cell", lambda row, body: cell_of(row, "", condition, body)),
        ("SELECT id, begun_at, snapshot FROM runs ORDER BY id", lambda *run: runs_of(0, "", [run])),
        ("SELECT cell, body, drawn FROM results ORDER BY cell", result),
    ]
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sources'").fetchone():  # a store without imports has none
        readers.append(("SELECT cell, body FROM sources ORDER BY cell", source_in))
    for query, reader in readers:
        for row in db.execute(query):
            if reader is result and row[0] in damaged:
                continue
            try:
                reader(*row)
            except ConfigError as failure:
                yield failure.cause


def _foreign(db: sqlite3.Connection) -> Iterator[str]:
    """Yield the faults of the texts of a store that name parts."""
    scope = file_scope()
    for (body,) in db.execute("SELECT body FROM conditions ORDER BY id"):
        yield from (str(fault.cause) for fault in condition_faults(_value(body), scope))
    for (snapshot,) in db.execute("SELECT snapshot FROM runs ORDER BY id"):
        settings = _value(snapshot)
        configuration = settings.get("configuration") if isinstance(settings, dict) else None
        yield from (str(fault.cause) for fault in configuration_faults(configuration, scope))


def _value(text: Any) -> Any:
    """Return the value of a JSON text; None: the text is not JSON, and no command can read it."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _holds(key: object, parts: list[object], known: bytes) -> bool:
    """Return whether a result has its stored checksum. False for types that no store writes."""
    failed, body, drawn, trace = parts
    if not (isinstance(key, str) and isinstance(body, str) and isinstance(failed, int)):
        return False
    if not (isinstance(drawn, bytes | None) and isinstance(trace, bytes | None)):
        return False
    return checksum(key, failed, body, drawn, trace) == known
