"""Connections to SQLite files that a test opens: which were left open.

Python 3.13 warns of a connection that is collected while it is open, and earlier versions close it in silence.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def note_connections() -> Generator[list[sqlite3.Connection]]:
    """Collect the connections that are opened in the block, and are kept alive by this list."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def note(*args: Any, **settings: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **settings))
        return connections[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", note)
        yield connections


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:  # the connection is closed
        return False
    except sqlite3.Error:  # its file is no database
        return True
    return True
