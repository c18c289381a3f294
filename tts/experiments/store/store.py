"""The store of results: one SQLite file, which several processes may share.

Each result is one transaction. A cell is leased to a worker, whose heartbeat renews the lease. When a lease expires,
the cell is leased again, and the tokens of the first attempt are booked as lost. A killed process therefore loses only
the cells that it was running.

Results belong to the key of a cell, not to a study. Studies with equal cells share results, whatever names the studies
use. A study that has a cell under two names has the cell's result under both.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from tts.errors import ConfigError, unknown_name
from tts.experiments.store.checking import StoreCheck, check_store, checksum
from tts.experiments.store.merging import carry_over
from tts.experiments.store.rows import (
    cell_body,
    cell_of,
    condition_body,
    condition_of,
    identity_of,
    result_of,
    row_of,
    runs_of,
    to_json,
    tokens_of,
)
from tts.experiments.store.schema import connect, explain_errors
from tts.experiments.study.record import RESULT_VERSION, Cell, CellCounts, Result, StoredStudy

_PAGE: Final = 1000  # results read in one query
_BATCH: Final = 10_000  # cells added in one transaction


class LargeRow(UserWarning):
    """A warning that a part of a result was not stored: it is too large to be read again.

    The text says which part, and how to raise the bound.
    """


def default_store() -> Path:
    """Return the default file: `.tts/store.sqlite` in the working directory."""
    return Path(".tts", "store.sqlite")


class Store:
    """Cells and results in a file. Threads may share an object; each process opens its own.

    Args:
        path: The file, created where missing.
        clock: Seconds since the epoch, by which leases expire.

    Raises:
        ConfigError: the file is not a store, or has another version. It is left unchanged.
        TTSError: from any method: the disk is full, or the file is locked, damaged or read-only. Finished results are
            kept.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._lock = threading.RLock()
        self._conditions: dict[int, dict[str, Any]] = {}
        self._connection = connect(self.path)

    @classmethod
    def existing(cls, path: str | Path) -> Self:
        """Open a store that must exist.

        Raises:
            ConfigError: there is no such file; or as `Store`.
        """
        if not Path(path).exists():
            raise ConfigError(
                f"store {path} is not there", hint="name the file of your runs with --store, or make one with tts run"
            )
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Leases stay until they expire; see `release`."""
        with self._lock, explain_errors(self.path):
            self._connection.close()

    # studies

    def begin(self, name: str, snapshot: Mapping[str, Any]) -> int:
        """Return the id of a study, which is new unless an earlier run has begun the same study.

        Args:
            name: The name from the configuration.
            snapshot: JSON, kept for each run. Studies are the same if name, `snapshot["configuration"]`, the checksums
                of data and models, and `RESULT_VERSION` are equal.
        """
        identity = (name, identity_of(snapshot), RESULT_VERSION)
        now = self._clock()
        with self._writing() as db:
            db.execute(
                "INSERT INTO studies (name, configuration, result_version, created_at) VALUES (?, ?, ?, ?) ON "
                "CONFLICT DO NOTHING",
                (*identity, now),
            )
            (study,) = db.execute(
                "SELECT id FROM studies WHERE (name, configuration, result_version) = (?, ?, ?)", identity
            ).fetchone()
            db.execute("INSERT INTO runs (study, begun_at, snapshot) VALUES (?, ?, ?)", (study, now, to_json(snapshot)))
        return study

    def add(self, study: int, cells: Iterable[Cell]) -> None:
        """Add cells to a study. Cells that the study already has stay unchanged."""
        remaining_cells = iter(cells)
        while batch := list(islice(remaining_cells, _BATCH)):
            conditions = [condition_body(cell) for cell in batch]
            members = [
                (study, cell_body(cell), cell.key, condition) for cell, condition in zip(batch, conditions, strict=True)
            ]
            with self._writing() as db:
                db.executemany(
                    "INSERT INTO conditions (body) VALUES (?) ON CONFLICT DO NOTHING",
                    [(condition,) for condition in dict.fromkeys(conditions)],
                )
                db.executemany(
                    "INSERT INTO cells (key) VALUES (?) ON CONFLICT DO NOTHING", [(cell.key,) for cell in batch]
                )
                db.executemany(
                    "INSERT INTO members SELECT ?, cells.id, conditions.id, ? FROM cells JOIN conditions"
                    " WHERE key = ? AND body = ? ON CONFLICT DO NOTHING",
                    members,
                )
                db.executemany(
                    "INSERT INTO unfinished SELECT ?, id FROM cells"
                    " WHERE key = ? AND id NOT IN (SELECT cell FROM results) ON CONFLICT DO NOTHING",
                    [(study, cell.key) for cell in batch],
                )

    def studies(self) -> list[StoredStudy]:
        """Return all studies, the oldest first."""
        return [self._study(*row) for row in self._read("SELECT id, name, created_at FROM studies ORDER BY id")]

    def find(self, study: str | None = None) -> StoredStudy:
        """Return a study by its id or name.

        Args:
            study: The id, or the name, of which the newest study is returned; None: the newest of all studies.

        Raises:
            ConfigError: the store has no such study.
        """
        studies = self.studies()
        if not studies:
            raise ConfigError(
                f"store {self.path} has no study yet", hint="make one with tts run, or name another file with --store"
            )
        matches = [stored for stored in studies if study in (None, stored.name, str(stored.id))]
        if not matches:
            raise unknown_name("study", str(study), {stored.name for stored in studies})
        return matches[-1]

    def counts(self, study: int) -> CellCounts:
        """Return the number of cells of a study in each state."""
        (row,) = self._read(
            "SELECT (SELECT count(DISTINCT cell) FROM members WHERE study = :study),"
            " (SELECT count(*) FROM unfinished WHERE study = :study),"
            " (SELECT count(DISTINCT cell) FROM members"
            " WHERE study = :study AND cell IN (SELECT cell FROM results WHERE failed)),"
            " (SELECT count(*) FROM unfinished"
            " WHERE study = :study AND cell IN (SELECT cell FROM attempts WHERE ends > :now))",
            {"study": study, "now": self._clock()},
        )
        cells, unfinished, failed, leased = row
        return CellCounts(done=cells - unfinished - failed, failed=failed, pending=unfinished - leased, leased=leased)

    def adopt(self, name: str, snapshot: Mapping[str, Any], finished: Iterable[tuple[Result, bytes]]) -> int:
        """Add a study of finished cells in one transaction, and return its id.

        A cell that already has a result in the store keeps that result.

        Args:
            name: As in `begin`.
            snapshot: As in `begin`.
            finished: The results, each with the packed texts of its samples; see `source`.

        Raises:
            ConfigError: a result is too large for one row. The store is unchanged.
        """
        with self._writing() as db:
            study = self.begin(name, snapshot)
            for result, source in finished:
                key = result.cell.key
                self.add(study, [result.cell])
                result_query = "SELECT 1 FROM results JOIN cells ON id = cell WHERE key = ?"
                if db.execute(result_query, (key,)).fetchone() is not None:
                    continue
                omissions = self._finish(worker="", result=result)  # no worker ran the cell
                if omissions:
                    first_omission = omissions[0]  # a line about a part that is too large
                    raise ConfigError(first_omission, hint="nothing was added")
                db.execute("INSERT INTO sources SELECT id, ? FROM cells WHERE key = ?", (source, key))
        return study

    def source(self, key: str) -> bytes | None:
        """Return the texts of a cell's samples, as `adopt` or `finish` got them; None: they were not recorded."""
        rows = self._read("SELECT body FROM sources WHERE cell = (SELECT id FROM cells WHERE key = ?)", (key,))
        return rows[0][0] if rows else None

    # leases

    def lease(self, study: int, worker: str, count: int, *, seconds: float = 60.0) -> list[Cell]:
        """Lease up to `count` pending cells to a worker, in the order in which the cells were added.

        A worker never gets the same cell twice, even if its lease expired: the worker may still run the cell, and can
        `finish` or `release` it. A cell that the study has under several names is returned under the first name.

        Args:
            study: The number of the study in the store.
            worker: A unique name.
            count: The most cells to lease.
            seconds: The seconds until the leases expire, unless `beat` renews them.
        """
        now = self._clock()
        with self._writing() as db:
            rows = db.execute(
                "SELECT id, key, condition, body"
                " FROM unfinished JOIN cells ON id = unfinished.cell JOIN members USING (study, cell)"
                " WHERE study = ? AND condition = (SELECT min(condition) FROM members AS all_of"
                " WHERE (all_of.study, all_of.cell) = (unfinished.study, unfinished.cell))"
                " AND unfinished.cell NOT IN (SELECT cell FROM attempts WHERE ends > ? OR (worker = ? AND ends > 0))"
                " ORDER BY unfinished.cell LIMIT ?",
                (study, now, worker, count),
            ).fetchall()
            db.executemany(
                "INSERT INTO attempts (cell, worker, ends) VALUES (?, ?, ?)",
                [(cell_id, worker, now + seconds) for cell_id, *_ in rows],
            )
        return [cell_of(cell_id, key, self._condition(condition), body) for cell_id, key, condition, body in rows]

    def beat(self, worker: str, spent: Mapping[str, int], *, seconds: float = 60.0) -> None:
        """Renew a worker's leases, and record the tokens that its cells have cost so far.

        The lease of a cell that another worker has meanwhile is not renewed.

        Args:
            worker: The name of the worker.
            spent: The tokens so far (`Usage.tokens`), by the key of each leased cell.
            seconds: The seconds from now until the leases expire.
        """
        now = self._clock()
        with self._writing() as db:
            for key, tokens in spent.items():
                db.execute(
                    "UPDATE attempts SET spent = :tokens, ends = CASE"
                    " WHEN EXISTS (SELECT 1 FROM attempts AS other WHERE other.cell = attempts.cell"
                    " AND other.id != attempts.id AND other.ends > :now)"
                    " THEN ends ELSE :ends END WHERE id = :id",
                    {"id": _attempt(db, worker, key), "tokens": tokens, "now": now, "ends": now + seconds},
                )

    def finish(self, worker: str, result: Result, trace: bytes | None = None, texts: bytes | None = None) -> bool:
        """Store the result of a cell, in one transaction.

        The first result of a cell stays. A part too large to be read again is left out.

        Args:
            worker: The name of the worker that ran the cell.
            result: The result. Its `lost_tokens` is ignored: the store counts lost tokens.
            trace: The whole search, in the caller's format.
            texts: The texts of the model, as JSON; see `source`.

        Returns:
            Whether this result was stored. False: another worker was first, and this result's tokens are lost.

        Raises:
            ConfigError: the cell was never added.

        Warns:
            LargeRow: a part of the result was left out.
        """
        left_out = self._finish(worker, result, trace, texts)
        for line in left_out or ():
            warnings.warn(LargeRow(line), stacklevel=2)
        return left_out is not None

    def _finish(
        self, worker: str, result: Result, trace: bytes | None = None, texts: bytes | None = None
    ) -> tuple[str, ...] | None:
        """Store a result, and return a line about each part that was left out; None: another worker was first."""
        key = result.cell.key
        row = row_of(result, trace, texts)
        with self._writing() as db:
            cell_row = db.execute(
                "SELECT id, results.cell IS NOT NULL FROM cells LEFT JOIN results ON id = cell WHERE key = ?", (key,)
            ).fetchone()
            if cell_row is None:
                raise ConfigError(
                    f"the cell of problem {result.cell.problem!r} is not in the store", hint="add it to a study first"
                )
            cell, has_result = cell_row
            db.execute("DELETE FROM attempts WHERE id = ?", (_attempt(db, worker, key),))
            if has_result:
                _lose(db, cell, worker, result.usage.tokens)
                return None
            db.execute(
                "INSERT INTO results (cell, failed, body, drawn) VALUES (?, ?, ?, ?)",
                (cell, row.failed, row.body, row.drawn),
            )
            if row.trace is not None:
                db.execute("INSERT INTO traces (cell, trace) VALUES (?, ?)", (cell, row.trace))
            if row.texts is not None:
                db.execute("INSERT OR REPLACE INTO sources (cell, body) VALUES (?, ?)", (cell, row.texts))
            sha256 = checksum(key, row.failed, row.body, row.drawn, row.trace)
            db.execute("INSERT OR REPLACE INTO checksums (cell, sha256) VALUES (?, ?)", (cell, sha256))
            db.execute("DELETE FROM unfinished WHERE cell = ?", (cell,))
        return row.lines

    def release(self, worker: str, keys: Iterable[str]) -> None:
        """Return leases: the cells are pending again, and their recorded tokens are lost."""
        with self._writing() as db:
            for key in keys:
                db.execute("UPDATE attempts SET ends = 0 WHERE id = ?", (_attempt(db, worker, key),))

    def forget_failures(self, study: int) -> int:
        """Make the failed cells of a study pending again, in every study that has them.

        The tokens of their failed runs are booked as lost.

        Returns:
            The number of these cells.
        """
        with self._writing() as db:
            failed = db.execute(
                "SELECT cell, body FROM results WHERE failed AND EXISTS"
                " (SELECT 1 FROM members WHERE study = ? AND cell = results.cell) ORDER BY cell",
                (study,),
            ).fetchall()
            for cell, body in failed:
                _lose(db, cell, "failed", tokens_of(cell, body))
                for table in ("results", "traces", "sources", "checksums"):
                    db.execute(f"DELETE FROM {table} WHERE cell = ?", (cell,))
                db.execute("INSERT INTO unfinished SELECT DISTINCT study, cell FROM members WHERE cell = ?", (cell,))
        return len(failed)

    def merge(self, path: str | Path) -> int:
        """Copy the studies and results that another store has and this one lacks.

        The other store stays unchanged, and may be in use.

        Returns:
            The number of copied results.

        Raises:
            ConfigError: the path has no store of this version, or is this store.
        """
        Store.existing(path).close()
        if Path(path).samefile(self.path):
            raise ConfigError(f"store {path} is to be merged with itself", hint="name another file")
        with self._lock, explain_errors(self.path):
            self._connection.execute("ATTACH ? AS other", (str(path),))
            try:
                with self._writing() as db:
                    return carry_over(db)
            finally:
                self._connection.execute("DETACH other")

    # results

    def results(self, study: int, *, drawn: bool = True) -> Iterator[Result]:
        """Yield a study's results in the order in which their cells were added.

        A result that is stored while this method yields may be among the results.

        Args:
            study: The number of the study in the store.
            drawn: Whether to read recorded candidates, which take most of the time.
        """
        query = (
            f"SELECT cells.id, condition, key, members.body, results.body, {'drawn' if drawn else 'NULL'},"
            " (SELECT sum(spent) FROM attempts WHERE attempts.cell = cells.id AND ends <= ?)"
            " FROM members JOIN cells ON cells.id = members.cell JOIN results ON results.cell = cells.id"
            " WHERE study = ? AND (members.cell, condition) > (?, ?) ORDER BY members.cell, condition LIMIT ?"
        )
        cell_id, condition = 0, 0  # of the last row that was read; ids begin at 1
        while rows := self._read(query, (self._clock(), study, cell_id, condition, _PAGE)):
            for cell_id, condition, key, own_body, result_body, candidates, lost_tokens in rows:
                cell = cell_of(cell_id, key, self._condition(condition), own_body)
                yield result_of(cell_id, cell, result_body, candidates, lost_tokens or 0)

    def check(self) -> StoreCheck:
        """Read every result and trace, and compare each with the checksum that was written with it.

        Nothing is changed.
        """
        with self._lock, explain_errors(self.path):
            return check_store(self._connection)

    def trace(self, key: str) -> bytes | None:
        """Return the search of a cell as `finish` got it; None: it was not recorded."""
        rows = self._read("SELECT trace FROM traces WHERE cell = (SELECT id FROM cells WHERE key = ?)", (key,))
        return rows[0][0] if rows else None

    def cells_with_trace(self, study: int) -> set[str]:
        """Return the keys of a study's cells with a recorded search, without reading the searches."""
        query = (
            "SELECT key FROM traces JOIN cells ON id = traces.cell"
            " WHERE traces.cell IN (SELECT cell FROM members WHERE study = ?)"
        )
        return {key for (key,) in self._read(query, (study,))}

    def lost_tokens(self, study: int) -> int:
        """Return the tokens spent on a study's cells by attempts without a result."""
        (row,) = self._read(
            "SELECT total(spent) FROM attempts WHERE ends <= ?"
            " AND EXISTS (SELECT 1 FROM members WHERE study = ? AND cell = attempts.cell)",
            (self._clock(), study),
        )
        return int(row[0])

    def _study(self, number: int, name: str, created_at: float) -> StoredStudy:
        """Return a study with its runs and the counts of its cells."""
        runs = self._read("SELECT id, begun_at, snapshot FROM runs WHERE study = ? ORDER BY begun_at, id", (number,))
        counts = self.counts(number)
        return StoredStudy(
            id=number,
            name=name,
            created_at=created_at,
            runs=runs_of(number, name, runs),
            cells=counts.done + counts.failed + counts.pending + counts.leased,
            done=counts.done,
            failed=counts.failed,
        )

    def _condition(self, number: int) -> dict[str, Any]:
        """Return a condition by its number. All cells of the condition share the same object."""
        if number not in self._conditions:
            (row,) = self._read("SELECT body FROM conditions WHERE id = ?", (number,))
            self._conditions[number] = condition_of(number, row[0])
        return self._conditions[number]

    def _read(self, query: str, values: Any = ()) -> list[Any]:
        with self._lock, explain_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """Run a block as one transaction, or as a part of the open transaction."""
        with self._lock, explain_errors(self.path):
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended the transaction
                    self._connection.execute("ROLLBACK")
                raise


def _attempt(db: sqlite3.Connection, worker: str, key: str) -> int | None:
    """Return the id of a worker's last open attempt (an unfinished run) at a cell; None: it has no such attempt."""
    query = (
        "SELECT max(attempts.id) FROM attempts JOIN cells ON cells.id = cell WHERE key = ? AND worker = ? AND ends > 0"
    )
    return db.execute(query, (key, worker)).fetchone()[0]


def _lose(db: sqlite3.Connection, cell: int, worker: str, tokens: int) -> None:
    """Book tokens of an attempt without a result."""
    db.execute("INSERT INTO attempts (cell, worker, ends, spent) VALUES (?, ?, 0, ?)", (cell, worker, tokens))
