"""Samples grouped by problem, in a temporary database.

Files of any size need little memory, in whatever order their rows come.
"""

from __future__ import annotations

import pickle
import sqlite3
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from tts._core.display import one_line
from tts.errors import ConfigError
from tts.randomness import hash64
from tts_addons.logs.fields import SampleRow


class Staging:
    """A temporary database of samples. Closing, or dropping the last reference, deletes the database."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # on disk, beyond a small cache
        self.close = weakref.finalize(self, self._db.close)  # a pool that is dropped would leave it open
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("CREATE TABLE staged (problem INTEGER NOT NULL, body BLOB NOT NULL)")
        self._db.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        self._numbers: dict[str, int] = {}

    def add(self, rows: Iterable[SampleRow]) -> None:
        """Add samples, in order.

        Raises:
            ConfigError: a row has neither an id nor a prompt of its problem.
        """
        staged = ((self._number(row), pickle.dumps(row)) for row in rows)
        self._write("INSERT INTO staged VALUES (?, ?)", staged)

    def problems(self) -> Iterator[tuple[str, list[SampleRow]]]:
        """Yield the id and the samples of each problem, in the order in which problems and samples came."""
        self._db.execute("CREATE INDEX IF NOT EXISTS by_problem ON staged (problem)")
        for name, number in self._numbers.items():
            rows = self._db.execute("SELECT body FROM staged WHERE problem = ? ORDER BY rowid", (number,)).fetchall()
            self._db.execute("DELETE FROM staged WHERE problem = ?", (number,))  # so that SQLite uses the pages again
            yield name, [pickle.loads(body) for (body,) in rows]

    def keep(self, built: Iterable[Any]) -> None:
        """Keep what was built of each problem, in order."""
        self._write("INSERT INTO kept (body) VALUES (?)", ((pickle.dumps(problem),) for problem in built))

    def read_rows(self) -> Iterator[Any]:
        """Yield what was kept of each problem, in order."""
        yield from (pickle.loads(body) for (body,) in self._db.execute("SELECT body FROM kept ORDER BY number"))

    def _number(self, row: SampleRow) -> int:
        """Return the number of a row's problem, which its id or else its prompt identifies."""
        name = row.problem
        if name is None:
            if row.prompt is None:
                raise ConfigError(
                    f"{row.place}: it has neither a problem nor a prompt, so that it belongs to no problem"
                )
            name = f"prompt/{hash64(str(row.prompt)):016x}"
        return self._numbers.setdefault(name, len(self._numbers))

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run a statement with each row, in one transaction."""
        self._db.execute("BEGIN")
        self._db.executemany(statement, rows)
        self._db.execute("COMMIT")


def check_unique(problem: str, rows: Iterable[SampleRow]) -> None:
    """Refuse a problem that has a sample number twice.

    Raises:
        ConfigError: a number occurs twice; the error names both rows.
    """
    places: dict[str, str] = {}
    for row in rows:
        if row.sample is None:
            continue
        first_place = places.setdefault(row.sample, row.place)
        if first_place != row.place:
            raise ConfigError(
                f"{row.place}: the sample {row.sample} of problem {one_line(problem)} is that of {first_place} already",
                hint="import the rows of one strategy, budget and seed; else number the samples anew, or leave "
                "numbers out: --field sample=- where each file has further samples",
            )
