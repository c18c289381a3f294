"""Checks of a store's content: the structure of the file, and a checksum of each result.

SQLite compares tables with their indexes, which hold keys, studies and conditions a second time. Results and traces are
in no index, so they have checksums.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from typing import Final

_PAGE: Final = 500  # results read in one query
_MOST_FAULTS: Final = 20  # of the file that are listed


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What a check found.

    Args:
        whole: results whose checksum holds. unknown: results without one, of earlier revisions.
        damaged: keys of the cells whose results or traces were changed. faults: of the file, in SQLite's words.
    """

    whole: int
    unknown: int
    damaged: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not (self.damaged or self.faults)


def checksum(key: str, failed: bool | int, body: str, drawn: bytes | None, trace: bytes | None) -> bytes:  # noqa: FBT001 - a stored column
    """Return the SHA-256 of a result as it is stored."""
    found = hashlib.sha256()
    for part in (key.encode(), b"1" if failed else b"0", body.encode(), drawn, trace):
        found.update(b"-" if part is None else f"{len(part)}:".encode() + part)
    return found.digest()


def checked(db: sqlite3.Connection) -> StoreCheck:
    """Check every result of a store."""
    told = [row[0] for row in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
    if told != ["ok"]:
        return StoreCheck(0, 0, (), tuple(" ".join(str(line).split()) for line in told))
    has_sums = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'checksums'").fetchone() is not None
    sums, joined = ("sha256", "LEFT JOIN checksums USING (cell)") if has_sums else ("NULL", "")
    whole, unknown, last = 0, 0, 0
    damaged: list[str] = []
    while rows := db.execute(
        f"SELECT cell, key, failed, results.body, drawn, trace, {sums} FROM results JOIN cells ON cells.id = cell"
        f" LEFT JOIN traces USING (cell) {joined} WHERE cell > ? ORDER BY cell LIMIT ?",
        (last, _PAGE),
    ).fetchall():
        for _, key, *parts, known in rows:
            if known is None:
                unknown += 1
            elif _holds(key, parts, known):
                whole += 1
            else:
                damaged.append(str(key))
        last = rows[-1][0]
    return StoreCheck(whole, unknown, tuple(damaged), ())


def _holds(key: object, parts: list[object], known: bytes) -> bool:
    """Whether a result has the checksum that was written with it; values of other types were not written by a store."""
    failed, body, drawn, trace = parts
    if not (isinstance(key, str) and isinstance(body, str) and isinstance(failed, int)):
        return False
    if not (isinstance(drawn, bytes | None) and isinstance(trace, bytes | None)):
        return False
    return checksum(key, failed, body, drawn, trace) == known
