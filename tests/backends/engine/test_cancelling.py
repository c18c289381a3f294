"""Rows are cancelled wherever they are: what they cost is told, and nothing of them stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.engine.stepping import (
    ROOMY,
    Asked,
    Hand,
    assert_empty,
    evict,
    ids_of,
    recount,
    runner_of,
    scribble,
    told,
)
from tts.backends.base import Row, RowSet, SampleRequest, StopCondition
from tts.backends.engine.work import DecodeSequence, PrefillJob

ROWS = [Row(stream, 0, 25) for stream in range(1, 6)]


def cancelled_when(hand: Hand, when: Callable[[Asked], bool], *, keep: int = 30) -> Asked:
    """Ask for rows behind a long path, cancel them when something holds, and return them at their end."""
    prompt = hand.open(ids_of(50, 1)).path
    path = hand.extend(prompt, ids_of(30, 2)).path
    hand.run()
    expected = hand.write(path, ROWS)
    hand.run()
    evict(hand.runner)
    hand.runner._kept_logits.clear()
    older = hand.write(prompt, [Row(50 + i, 0, keep) for i in range(3)])
    asked = hand.write(path, ROWS)
    while not when(asked):
        assert hand.runner.busy, "it never came to that: the test saw nothing"
        hand.runner.step()
        recount(hand.runner)
    asked.rows.cancel()
    hand.runner.step()
    assert asked.done, "rows were cancelled and still go on"
    for index, end in asked.ends.items():
        assert end.finish == "cancelled" or told(end) == told(expected.ends[index])
        assert end.state is None or end.state.ids == expected.ends[index].state.ids[: len(end.state.ids)]
    assert any(end.finish == "cancelled" for end in asked.ends.values())
    hand.run()
    assert {end.finish for end in older.ends.values()} <= {"length", "eos"}
    for each in (expected, older, asked):
        for end in each.ends.values():
            if end.node is not None:
                hand.runner.tree.release(end.node)
    for kept in list(hand.paths):
        hand.release(kept)
    assert_empty(hand.runner)
    return asked


def lines_of(hand: Hand, asked: Asked) -> list[DecodeSequence]:
    return [
        work
        for work in hand.runner._scheduler.every()
        if isinstance(work, DecodeSequence) and work.job.rows is asked.rows
    ]


def test_rows_are_cancelled_while_they_wait_for_a_place() -> None:
    hand = Hand(runner_of(ROOMY, rows=3))
    asked = cancelled_when(hand, lambda asked: hand.runner.stats.decode_tokens > 120)
    assert all(end.state is None for end in asked.ends.values())


def test_rows_are_cancelled_while_the_law_behind_their_path_is_read() -> None:
    hand = Hand(runner_of(ROOMY, tokens=7))

    def is_read(asked: Asked) -> bool:
        waiting = [writing.node for writing in hand.runner._sample_jobs if writing.rows is asked.rows]
        return any(isinstance(work, PrefillJob) and work.node in waiting for work in hand.runner._scheduler.running)

    asked = cancelled_when(hand, is_read)
    assert all(end.state is None for end in asked.ends.values())


def test_rows_that_were_cancelled_do_not_end_again_where_the_law_behind_their_path_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    hand = Hand(runner_of(ROOMY, tokens=7))
    path = hand.open(ids_of(50, 1)).path
    hand.run()
    evict(hand.runner)
    asked = hand.write(path, ROWS)
    hand.runner.step()
    asked.rows.cancel()
    hand.runner.step()
    assert asked.done
    assert hand.runner.busy, "the law was read before: the test saw nothing"
    monkeypatch.setattr(hand.runner.decoder, "forward", breaks)
    hand.run()
    assert {end.finish for end in asked.ends.values()} == {"cancelled"}
    hand.release(path)
    assert_empty(hand.runner)


def test_rows_are_cancelled_while_their_path_is_computed_again() -> None:
    hand = Hand(runner_of(ROOMY, tokens=7))
    asked = cancelled_when(hand, lambda asked: hand.runner.stats.recomputed > 55)
    assert all(end.state is None for end in asked.ends.values())


def test_rows_are_cancelled_while_they_have_given_way() -> None:
    hand = Hand(runner_of(12))

    def parked(asked: Asked) -> bool:
        return any(line.started and line in hand.runner._scheduler._waiting for line in lines_of(hand, asked))

    asked = cancelled_when(hand, parked)
    assert any(end.state is not None and end.state.ids for end in asked.ends.values())
    assert hand.runner.stats.parked > 0


def test_rows_are_cancelled_while_what_they_had_is_computed_again() -> None:
    hand = Hand(runner_of(12, tokens=5))

    def again(asked: Asked) -> bool:
        lines = [line for line in lines_of(hand, asked) if line in hand.runner._scheduler.running]
        return any(line.started and not line.ready and len(line.node.tokens) > 1 for line in lines)

    cancelled_when(hand, again, keep=60)


def test_a_request_that_nobody_waits_for_resolves_all_the_same() -> None:
    hand = Hand(runner_of(9, rows=2))
    scribble(hand.runner)
    path = hand.open(ids_of(40, 1)).path
    asked = hand.write(path, [Row(i, 0, 20) for i in range(7)])
    empty = hand.write(path, [])
    hand.run()
    assert asked.done
    assert RowSet(SampleRequest(None, (), asked.rows.request.sampling, StopCondition())).done
    assert not empty.ends
    assert not any(isinstance(work, PrefillJob) for work in hand.runner._scheduler.every())
