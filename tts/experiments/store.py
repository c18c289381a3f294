"""Where results are kept: one SQLite file, which several processes may share and which outlives any of them.

Each result is one transaction. A cell is leased to a worker for as long as its heartbeat goes on; when that stops, the cell is leased
again and what the worker had spent is lost, and booked as such. So a process that is killed at any moment loses at most what it was
at, and nothing is counted twice. Results belong to their cell's key, not to a study: a study that asks for cells of another one, by
whatever names, finds their results there; and one that asks for a cell by two names has its result under both.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from tts.errors import ConfigError, unknown_name
from tts.experiments.merging import carry_over
from tts.experiments.record import RESULT_VERSION, Cell, Result, Run, Study
from tts.experiments.rows import cell_body, cell_of, condition_body, packed, result_body, result_of, to_json, tokens_of
from tts.experiments.schema import connect, explained

_PAGE: Final = 1000  # results that are read at once
_BATCH: Final = 10_000  # cells that are added in one transaction


def default_store() -> Path:
    """Return where results are kept unless another file is named: in the folder of the project, which is the working directory."""
    return Path(".tts", "store.sqlite")


@dataclass(frozen=True, slots=True)
class Counts:
    """Cells of a study by what has become of them; together they are all its cells, each once, however many names it has.

    Args:
        done: with a result. failed: with a result that is an error. pending: neither, and nobody is at them. leased: being run.
    """

    done: int
    failed: int
    pending: int
    leased: int


class Store:
    """Cells and results in a file. Threads may share one; processes open one each.

    Args:
        path: the file, made where there is none. clock: seconds since the epoch, which leases are measured by.

    Raises:
        ConfigError: the file is no store, or of another version; it is left as it is.
        TTSError: from any method: the disk is full, or the file is locked, damaged or not to be written. What was finished is kept.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._lock = threading.RLock()
        self._conditions: dict[int, dict[str, Any]] = {}
        self._connection = connect(self.path)

    @classmethod
    def existing(cls, path: str | Path) -> Self:
        """Open a store that must be there.

        Raises:
            ConfigError: there is no file of that name; or as `Store` has it.
        """
        if not Path(path).exists():
            raise ConfigError(f"store {path} is not there", hint="name the file of your runs with --store, or make one with tts run")
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. What is leased stays leased until its time is over; see `release`."""
        with self._lock, explained(self.path):
            self._connection.close()

    # studies

    def begin(self, name: str, snapshot: Mapping[str, Any]) -> int:
        """Return the id of a study: that of an earlier run of the same, or a new one.

        Args:
            name: given by the configuration. snapshot: JSON; it is the same study where name, `snapshot["configuration"]`, the checksums
                of data and models, and `RESULT_VERSION` are the same. Each run's snapshot is kept.
        """
        same, now = (name, _identity(snapshot), RESULT_VERSION), self._clock()
        with self._writing() as db:
            db.execute(
                "INSERT INTO studies (name, configuration, result_version, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*same, now),
            )
            (study,) = db.execute("SELECT id FROM studies WHERE (name, configuration, result_version) = (?, ?, ?)", same).fetchone()
            db.execute("INSERT INTO runs (study, begun_at, snapshot) VALUES (?, ?, ?)", (study, now, to_json(snapshot)))
        return study

    def add(self, study: int, cells: Iterable[Cell]) -> None:
        """Ask for cells; those that the study has already asked for are left as they are."""
        rest = iter(cells)
        while batch := list(islice(rest, _BATCH)):
            bodies = [condition_body(cell) for cell in batch]
            keys = [(study, cell.key) for cell in batch]
            with self._writing() as db:
                db.executemany(
                    "INSERT INTO conditions (body) VALUES (?) ON CONFLICT DO NOTHING", ((body,) for body in dict.fromkeys(bodies))
                )
                db.executemany("INSERT INTO cells (key) VALUES (?) ON CONFLICT DO NOTHING", ((cell.key,) for cell in batch))
                db.executemany(
                    "INSERT INTO members SELECT ?, cells.id, conditions.id, ? FROM cells JOIN conditions WHERE key = ? AND body = ?"
                    " ON CONFLICT DO NOTHING",
                    ((study, cell_body(cell), cell.key, body) for cell, body in zip(batch, bodies, strict=True)),
                )
                db.executemany(
                    "INSERT INTO unfinished SELECT ?, id FROM cells WHERE key = ? AND id NOT IN (SELECT cell FROM results)"
                    " ON CONFLICT DO NOTHING",
                    keys,
                )

    def studies(self) -> list[Study]:
        """Return all studies, the oldest first."""
        return [self._study(*row) for row in self._read("SELECT id, name, created_at FROM studies ORDER BY id")]

    def find(self, study: str | None = None) -> Study:
        """Return a study by its id or name; of several of one name, and without a name of all, the newest.

        Raises:
            ConfigError: there is none.
        """
        studies = self.studies()
        if not studies:
            raise ConfigError(f"store {self.path} has no study yet", hint="make one with tts run, or name another file with --store")
        found = [each for each in studies if study in (None, each.name, str(each.id))]
        if not found:
            raise unknown_name("study", str(study), {each.name for each in studies})
        return found[-1]

    def counts(self, study: int) -> Counts:
        """Return how many cells of a study are where."""
        (row,) = self._read(
            "SELECT (SELECT count(DISTINCT cell) FROM members WHERE study = :study),"
            " (SELECT count(*) FROM unfinished WHERE study = :study),"
            " (SELECT count(DISTINCT cell) FROM members WHERE study = :study AND cell IN (SELECT cell FROM results WHERE failed)),"
            " (SELECT count(*) FROM unfinished WHERE study = :study AND cell IN (SELECT cell FROM attempts WHERE ends > :now))",
            {"study": study, "now": self._clock()},
        )
        cells, unfinished, failed, leased = row
        return Counts(done=cells - unfinished - failed, failed=failed, pending=unfinished - leased, leased=leased)

    # work

    def lease(self, study: int, worker: str, count: int, *, seconds: float = 60.0) -> list[Cell]:
        """Return up to `count` cells that nobody is at, in the order they were added; from now on this worker is.

        A cell of its own whose time is over, it does not get again: it may still be at it, and can `finish` or `release` it. A cell of
        several names has the one that is first in the table.

        Args:
            worker: a name that no other worker has. seconds: how long they are its own, if no `beat` comes.
        """
        now = self._clock()
        with self._writing() as db:
            rows = db.execute(
                "SELECT id, key, condition, body FROM unfinished JOIN cells ON id = unfinished.cell JOIN members USING (study, cell)"
                " WHERE study = ? AND condition = (SELECT min(condition) FROM members AS all_of"
                " WHERE (all_of.study, all_of.cell) = (unfinished.study, unfinished.cell))"
                " AND unfinished.cell NOT IN (SELECT cell FROM attempts WHERE ends > ? OR (worker = ? AND ends > 0))"
                " ORDER BY unfinished.cell LIMIT ?",
                (study, now, worker, count),
            ).fetchall()
            db.executemany("INSERT INTO attempts (cell, worker, ends) VALUES (?, ?, ?)", ((row[0], worker, now + seconds) for row in rows))
        return [cell_of(key, self._condition(condition), body) for _, key, condition, body in rows]

    def beat(self, worker: str, spent: Mapping[str, int], *, seconds: float = 60.0) -> None:
        """Prolong a worker's leases, and note what it has spent; what has meanwhile been leased to another stays with that one.

        Args:
            spent: tokens so far (`Usage.tokens`), by key. seconds: from now.
        """
        now = self._clock()
        with self._writing() as db:
            for key, tokens in spent.items():
                db.execute(
                    "UPDATE attempts SET spent = :tokens, ends = CASE WHEN EXISTS (SELECT 1 FROM attempts AS other WHERE"
                    " other.cell = attempts.cell AND other.id != attempts.id AND other.ends > :now) THEN ends ELSE :ends END"
                    " WHERE id = :id",
                    {"id": _attempt(db, worker, key), "tokens": tokens, "now": now, "ends": now + seconds},
                )

    def finish(self, worker: str, result: Result, trace: bytes | None = None) -> bool:
        """Keep what came of a cell, in one transaction; the first result of a cell stays.

        Args:
            result: its `lost_tokens` is not looked at: the store knows them. trace: the whole search, in the caller's form.

        Returns:
            False where another worker was first: what this one has spent is lost then.

        Raises:
            ConfigError: the cell was never added.
        """
        key = result.cell.key
        with self._writing() as db:
            found = db.execute("SELECT id, cell FROM cells LEFT JOIN results ON id = cell WHERE key = ?", (key,)).fetchone()
            if found is None:
                raise ConfigError(f"the cell of problem {result.cell.problem!r} is not in the store", hint="add it to a study first")
            cell, finished = found
            db.execute("DELETE FROM attempts WHERE id = ?", (_attempt(db, worker, key),))
            if finished is not None:
                _lose(db, cell, worker, result.usage.tokens)
                return False
            row = (cell, result.error is not None, result_body(result), packed(result.drawn))
            db.execute("INSERT INTO results (cell, failed, body, drawn) VALUES (?, ?, ?, ?)", row)
            if trace is not None:
                db.execute("INSERT INTO traces (cell, trace) VALUES (?, ?)", (cell, trace))
            db.execute("DELETE FROM unfinished WHERE cell = ?", (cell,))
        return True

    def release(self, worker: str, keys: Iterable[str]) -> None:
        """Give leases back: the cells are pending again, and what was noted as spent is lost."""
        with self._writing() as db:
            for key in keys:
                db.execute("UPDATE attempts SET ends = 0 WHERE id = ?", (_attempt(db, worker, key),))

    def forget_failed(self, study: int) -> int:
        """Make the failed cells of a study pending again, in every study that asks for them; what they had spent is lost.

        Returns:
            How many they are.
        """
        with self._writing() as db:
            failed = db.execute(
                "SELECT cell, body FROM results WHERE failed AND EXISTS (SELECT 1 FROM members WHERE study = ? AND cell = results.cell)"
                " ORDER BY cell",
                (study,),
            ).fetchall()
            for cell, body in failed:
                _lose(db, cell, "failed", tokens_of(body))
                db.execute("DELETE FROM results WHERE cell = ?", (cell,))
                db.execute("DELETE FROM traces WHERE cell = ?", (cell,))
                db.execute("INSERT INTO unfinished SELECT DISTINCT study, cell FROM members WHERE cell = ?", (cell,))
        return len(failed)

    def merge(self, path: str | Path) -> int:
        """Take the studies and results of another store that this one lacks; the other stays as it is, and may be in use.

        Returns:
            How many results were taken.

        Raises:
            ConfigError: there is no store of this version at the path, or it is this one.
        """
        Store.existing(path).close()
        if Path(path).samefile(self.path):
            raise ConfigError(f"store {path} is to be merged with itself", hint="name another file")
        with self._lock, explained(self.path):
            self._connection.execute("ATTACH ? AS other", (str(path),))
            try:
                with self._writing() as db:
                    return carry_over(db)
            finally:
                self._connection.execute("DETACH other")

    # what came of it

    def results(self, study: int, *, drawn: bool = True) -> Iterator[Result]:
        """Yield a study's results in the order their cells were added; those that come meanwhile may be among them.

        Args:
            drawn: whether to read recorded candidates, which take most of the time.
        """
        last = (0, 0)
        while rows := self._read(
            f"SELECT cells.id, condition, key, members.body, results.body, {'drawn' if drawn else 'NULL'},"
            " (SELECT sum(spent) FROM attempts WHERE attempts.cell = cells.id AND ends <= ?)"
            " FROM members JOIN cells ON cells.id = members.cell JOIN results ON results.cell = cells.id"
            " WHERE study = ? AND (members.cell, condition) > (?, ?) ORDER BY members.cell, condition LIMIT ?",
            (self._clock(), study, *last, _PAGE),
        ):
            for _, condition, key, cell, result, candidates, lost in rows:
                yield result_of(cell_of(key, self._condition(condition), cell), result, candidates, lost or 0)
            last = rows[-1][:2]

    def trace(self, key: str) -> bytes | None:
        """Return the search of a cell as it was given to `finish`; None: it was not recorded."""
        rows = self._read("SELECT trace FROM traces WHERE cell = (SELECT id FROM cells WHERE key = ?)", (key,))
        return rows[0][0] if rows else None

    def traced(self, study: int) -> set[str]:
        """Return the keys of a study's cells whose search was recorded; none is read."""
        query = "SELECT key FROM traces JOIN cells ON id = traces.cell WHERE traces.cell IN (SELECT cell FROM members WHERE study = ?)"
        return {key for (key,) in self._read(query, (study,))}

    def lost_tokens(self, study: int) -> int:
        """Return what was spent on a study's cells without coming to a result, those that are not done yet included."""
        (row,) = self._read(
            "SELECT total(spent) FROM attempts WHERE ends <= ? AND EXISTS (SELECT 1 FROM members WHERE study = ? AND cell = attempts.cell)",
            (self._clock(), study),
        )
        return int(row[0])

    def _study(self, number: int, name: str, created_at: float) -> Study:
        runs = self._read("SELECT begun_at, snapshot FROM runs WHERE study = ? ORDER BY begun_at, id", (number,))
        counts = self.counts(number)
        return Study(
            id=number,
            name=name,
            created_at=created_at,
            runs=tuple(Run(begun_at, json.loads(snapshot)) for begun_at, snapshot in runs),
            cells=counts.done + counts.failed + counts.pending + counts.leased,
            done=counts.done,
            failed=counts.failed,
        )

    def _condition(self, number: int) -> dict[str, Any]:
        """Return a condition, one object however many cells have it."""
        if number not in self._conditions:
            (row,) = self._read("SELECT body FROM conditions WHERE id = ?", (number,))
            self._conditions[number] = json.loads(row[0])
        return self._conditions[number]

    def _read(self, query: str, values: Any = ()) -> list[Any]:
        with self._lock, explained(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """Keep all that is written in the block, or nothing of it."""
        with self._lock, explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise


def _attempt(db: sqlite3.Connection, worker: str, key: str) -> int | None:
    """Return a worker's last attempt at a cell; None: it has none that is neither finished nor given back."""
    query = "SELECT max(attempts.id) FROM attempts JOIN cells ON cells.id = cell WHERE key = ? AND worker = ? AND ends > 0"
    return db.execute(query, (key, worker)).fetchone()[0]


def _identity(snapshot: Mapping[str, Any]) -> str:
    """Return what makes a study another one although it is configured alike: changed problems or models are other cells."""
    data = {title: of["sha256"] for title, of in snapshot.get("data", {}).items()}
    return to_json({"configuration": snapshot.get("configuration"), "data": data, "models": snapshot.get("models")})


def _lose(db: sqlite3.Connection, cell: int, worker: str, tokens: int) -> None:
    """Book tokens that came to no result."""
    db.execute("INSERT INTO attempts (cell, worker, ends, spent) VALUES (?, ?, 0, ?)", (cell, worker, tokens))
