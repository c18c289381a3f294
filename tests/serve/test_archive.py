"""What the gateway keeps is bounded by bytes and number for each key, and the oldest of the same key goes first."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra serve is not installed")

from tts.errors import TTSError
from tts.serve.archive import Archive, ResponseRecord, SearchRecord


def record(number: str, begun_at: float = 0.0, question: str = "q") -> SearchRecord:
    return SearchRecord(
        number=number, begun_at=begun_at, seconds=1, model="toy", question=question, answer="5", tokens=1, stopped_by=""
    )


def noise(size: int, seed: int = 0) -> str:
    """A text that cannot be packed."""
    return np.random.default_rng(seed).bytes(size // 2).hex()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 30_000)),
        max_size=30,
    )
)
@settings(deadline=None)
def test_each_owner_keeps_its_newest_within_its_bytes_and_number_and_drops_nothing_of_others(
    added: list[tuple[str, int]],
):
    archive = Archive(None, kept=4, kept_bytes=10_000)
    kept: dict[str, list[tuple[str, int]]] = {}
    for place, (owner, size) in enumerate(added):
        response = ResponseRecord(number=f"{place}", begun_at=float(place), items=[noise(size, place)], reply={})
        before = {other: [number for number, _ in rows] for other, rows in kept.items() if other != owner}
        with suppress(TTSError):
            archive.add_response(owner, response)
            kept.setdefault(owner, []).append((response.number, size))
        for other, numbers in before.items():
            assert all(archive.response(other, number) is not None for number in numbers)
        rows = kept.setdefault(owner, [])
        rows[:] = [row for row in rows if archive.response(owner, row[0]) is not None]
        assert len(rows) <= 4
        assert sum(size // 2 for _, size in rows) <= 10_000  # hexadecimal digits pack to half of their size
        if size < 15_000:
            assert rows[-1][0] == f"{place}", "the newest is kept"
    archive.close()


def test_where_all_owners_fill_the_archive_nothing_of_others_is_dropped():
    archive = Archive(None, kept=100, kept_bytes=40_000)
    for place in range(60):
        with suppress(TTSError):
            archive.add_response(
                f"owner {place}",
                ResponseRecord(number=f"{place}", begun_at=float(place), items=[noise(60_000, place)], reply={}),
            )
    kept = [place for place in range(60) if archive.response(f"owner {place}", f"{place}") is not None]
    assert kept == list(range(len(kept)))
    assert 10 <= len(kept) <= 20
    with pytest.raises(TTSError, match="no room"):
        archive.add("late", record("late"), noise(60_000))
    archive.add_response("owner 0", ResponseRecord(number="new", begun_at=99.0, items=[noise(60_000, 99)], reply={}))
    assert archive.response("owner 0", "0") is None, "a newcomer takes the place of its own oldest"
    assert archive.response("owner 1", "1") is not None
    archive.close()


def test_a_search_without_room_for_its_trace_is_kept_without_it():
    archive = Archive(None, kept=10, kept_bytes=5_000)
    with pytest.raises(TTSError, match="no room"):
        archive.add("a", record("1"), noise(20_000))
    assert [found.number for found in archive.recent("a")] == ["1"]
    assert archive.trace("a", "1") is None
    archive.close()


def test_one_key_drops_no_response_of_another_and_a_prompt_is_kept_once(client, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice alicekey1\nbob bobkey123\n")
    gateway = client(
        keys=str(keys), kept=3, models={"texts": {"backend": "tests.serve.parts:texts", "strategy": "single"}}
    )

    def respond(key: str, text: str, **fields: Any) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        return gateway.post("/v1/responses", headers=headers, json={"model": "texts", "input": text, **fields})

    first = respond("bobkey123", "2 + 2").json()["id"]
    large = noise(200_000)
    long = respond("alicekey1", large)
    headers = {"authorization": "Bearer alicekey1"}
    assert (
        gateway.get(f"/v1/responses/{long.json()['id']}", headers=headers).status_code == 200
    )  # it waits for the write
    archive = gateway.app.state.gateway.archive
    sizes = [
        archive._file.execute(f"SELECT sum(length({column})) FROM {table}").fetchone()[0]
        for table, column in (("searches", "trace"), ("responses", "body"))
    ]
    assert 100_000 < sum(sizes) < 150_000
    for _ in range(5):
        assert respond("alicekey1", "1 + 1").status_code == 200
    assert respond("bobkey123", "and 3?", previous_response_id=first).status_code == 200
