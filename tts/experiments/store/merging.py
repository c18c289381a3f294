"""Copies the results that another store has and this one lacks.

Shards of a study that ran without a shared file are joined in this way.
"""

from __future__ import annotations

import sqlite3
from typing import Final

_COPY_STATEMENTS: Final = """
INSERT INTO main.studies (name, created_at, configuration, result_version)
    SELECT name, created_at, configuration, result_version FROM other.studies WHERE true ORDER BY id ON CONFLICT DO NOTHING;
INSERT INTO main.runs (study, begun_at, snapshot)
    SELECT own.id, begun_at, snapshot FROM other.runs AS theirs JOIN other.studies AS their_study ON their_study.id = theirs.study
    JOIN main.studies AS own USING (name, configuration, result_version)
    WHERE (own.id, begun_at, snapshot) NOT IN (SELECT study, begun_at, snapshot FROM main.runs) ORDER BY theirs.id;
INSERT INTO main.conditions (body) SELECT body FROM other.conditions WHERE true ORDER BY id ON CONFLICT DO NOTHING;
INSERT INTO main.cells (key) SELECT key FROM other.cells WHERE true ORDER BY id ON CONFLICT DO NOTHING;
CREATE TEMP TABLE pairs (theirs INTEGER PRIMARY KEY, own INTEGER NOT NULL UNIQUE);
INSERT INTO pairs SELECT theirs.id, own.id FROM other.cells AS theirs JOIN main.cells AS own USING (key);
INSERT INTO main.members
    SELECT own.id, pairs.own, own_condition.id, theirs.body FROM other.members AS theirs JOIN pairs ON pairs.theirs = theirs.cell
    JOIN other.studies AS their_study ON their_study.id = theirs.study
    JOIN main.studies AS own USING (name, configuration, result_version)
    JOIN other.conditions AS their_condition ON their_condition.id = theirs.condition
    JOIN main.conditions AS own_condition ON own_condition.body = their_condition.body WHERE true ON CONFLICT DO NOTHING;
CREATE TEMP TABLE taken (theirs INTEGER PRIMARY KEY, own INTEGER NOT NULL UNIQUE);
INSERT INTO taken
    SELECT theirs, own FROM pairs WHERE theirs IN (SELECT cell FROM other.results) AND own NOT IN (SELECT cell FROM main.results);
INSERT INTO main.results SELECT own, failed, body, drawn FROM taken JOIN other.results ON cell = theirs ORDER BY own;
INSERT INTO main.traces SELECT own, trace FROM taken JOIN other.traces ON cell = theirs ORDER BY own;
INSERT OR REPLACE INTO main.checksums SELECT own, sha256 FROM taken JOIN other.checksums ON cell = theirs;
INSERT OR REPLACE INTO main.sources SELECT own, body FROM taken JOIN other.sources ON cell = theirs;
INSERT INTO main.attempts (cell, worker, ends, spent)
    SELECT own, worker, 0, spent FROM taken JOIN other.attempts ON cell = theirs WHERE spent > 0 ORDER BY id;
DELETE FROM main.unfinished WHERE cell IN (SELECT own FROM taken);
INSERT INTO main.unfinished SELECT study, cell FROM main.members WHERE cell IN (SELECT own FROM pairs)
    AND cell NOT IN (SELECT cell FROM main.results) ON CONFLICT DO NOTHING;
"""  # noqa: E501


def carry_over(db: sqlite3.Connection) -> int:
    """Copy the results that this database lacks from the attached `other`, within the open transaction.

    Existing studies, cells and results stay unchanged. So a merge may be repeated after the other store has grown.
    Lost tokens of the copied results are copied too.

    Returns:
        The number of copied results.
    """
    for statement in _COPY_STATEMENTS.split(";"):
        db.execute(statement)
    (num_copied,) = db.execute("SELECT count(*) FROM taken").fetchone()
    db.execute("DROP TABLE taken")
    db.execute("DROP TABLE pairs")
    return num_copied
