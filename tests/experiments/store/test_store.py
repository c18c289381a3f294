from __future__ import annotations

import dataclasses
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.experiments.made import cell, result, sample
from tests.support.runs import Clock
from tts.errors import ConfigError
from tts.experiments.store.rows import result_body, result_of
from tts.experiments.store.store import CellCounts, LargeRow, Store, default_store
from tts.experiments.study.record import RecordedSample, Result
from tts.types import Usage


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def store(tmp_path, clock):
    with Store(tmp_path / "folder" / "store.sqlite", clock=clock) as opened:
        yield opened


@pytest.fixture
def study(store) -> int:
    number = store.begin("study", {"configuration": {"a": 1}})
    store.add(number, map(cell, range(3)))
    return number


def test_results_come_back_as_they_were(store):
    drawn = RecordedSample(
        answer="\ud800",
        answer_class=0,
        right=None,
        status="finished",
        tokens=7,
        verifier_tokens=5,
        scores={"main": math.nan, "other": 0.1},
        steps={"main": (0.25, math.nan)},
    )
    usage = Usage(1, None, *range(3, 9), flops=10**30, usd=None, seconds=0.1, kv_bytes_per_token=3, estimated=True)
    odd = result(
        cell(
            group="four\n",
            problem="\x00\ud800'",
            seed=-(2**70),
            verifiers={"main": "checker"},
            budget={"tokens": 3, "usd": 0.1},
        ),
        answer=None,
        right=None,
        error="Error: é",
        failures={"lost": 2},
        warnings=("one", "two"),
        reproducible=False,
        oracle=True,
        seconds_at=5.5,
        confidence=math.nan,
        usage=usage,
        drawn=(drawn, dataclasses.replace(drawn, answer=None, answer_class=None, scores={}, steps={})),
    )
    plain = [result(cell(1)), result(cell(2), right=False, drawn=())]
    study = store.begin("n", {"configuration": 1})
    store.add(study, [each.cell for each in (odd, *plain)])
    assert store.lease(study, "w", 9) == [each.cell for each in (odd, *plain)]
    for each in (odd, *plain):
        assert store.finish("w", each)
    assert repr(list(store.results(study))) == repr([odd, *plain])  # NaN is not equal to itself
    assert [each.drawn for each in store.results(study, drawn=False)] == [None] * 3


def test_requests_that_an_earlier_version_did_not_store_are_unknown():
    body = result_body(result(cell(), usage=Usage(generated_tokens=3, samples=1, requests=1)))
    assert result_of(0, cell(), body, None, 0).usage.requests == 1
    earlier = json.loads(body)
    del earlier["usage"]["requests"]
    usage = result_of(0, cell(), json.dumps(earlier), None, 0).usage
    assert (usage.samples, usage.requests) == (1, None)


def test_other_problems_or_models_are_another_study(store):
    def begun(data, weights="w"):
        return store.begin(
            "a", {"configuration": 1, "data": {"sums": {"sha256": data}}, "models": {"m": {"weights": weights}}}
        )

    first = begun("old")
    assert begun("old") == first
    assert len({first, begun("new"), begun("old", "others")}) == 3


def test_a_study_is_known_by_its_name_configuration_and_version(store, monkeypatch):
    first = store.begin("a", {"configuration": {"x": 1, "y": 2}, "commit": "old"})
    assert store.begin("a", {"configuration": {"y": 2, "x": 1}, "commit": "new"}) == first
    others = [store.begin("b", {"configuration": {"x": 1, "y": 2}}), store.begin("a", {"configuration": {"x": 2}})]
    monkeypatch.setattr("tts.experiments.store.store.RESULT_VERSION", 10**6)
    others.append(store.begin("a", {"configuration": {"x": 1, "y": 2}}))
    assert len({first, *others}) == 4
    assert [(each.name, each.created_at) for each in store.studies()] == [(name, 1000.0) for name in "abaa"]
    assert [run.snapshot.get("commit") for run in store.studies()[0].runs] == ["old", "new"]
    assert store.find().id == store.find("a").id == others[-1]
    assert store.find("b").id == others[0]
    assert store.find(str(first)).id == first


def test_a_study_that_is_not_there_is_refused(store):
    with pytest.raises(ConfigError, match=r"\(hint: make"):
        store.find()
    store.begin("first curve", {})
    with pytest.raises(ConfigError, match=r"study.*'first', .*first"):
        store.find("first")


def test_cells_are_added_once(store, study):
    store.add(study, [cell(2), cell(3), cell(3)])
    assert store.counts(study) == CellCounts(done=0, failed=0, pending=4, leased=0)
    assert store.lease(study, "w", 10) == [cell(i) for i in range(4)]


def test_many_cells_are_added_in_several_transactions(store, monkeypatch):
    monkeypatch.setattr("tts.experiments.store.store._BATCH", 2)
    monkeypatch.setattr("tts.experiments.store.store._PAGE", 2)
    study = store.begin("many", {})
    cells = [cell(i, seed=i % 2, strategy=f"s{i % 3}") for i in range(5)]
    store.add(study, iter(cells))
    for each in cells:
        store.finish("w", result(each))
    assert [each.cell for each in store.results(study)] == cells


def steps_of(store, work) -> int:
    """Return how many hundreds of SQLite's instructions something takes."""
    steps = iter(range(10**9))
    store._connection.set_progress_handler(lambda: next(steps) < 0, 100)
    work()
    store._connection.set_progress_handler(None, 0)
    return next(steps)


def test_to_lease_and_to_finish_take_no_longer_however_many_cells_wait_or_are_done(store):
    found: list[int] = []
    for size in (50, 2000):
        study = store.begin(f"{size}", {})
        store.add(study, (cell(number, strategy=f"{size}") for number in range(size, 2 * size)))
        found.append(steps_of(store, lambda study=study: store.lease(study, f"{study}", 10)))
        for number in range(size, 2 * size - 20):
            store.finish(f"{study}", result(cell(number)))
        found.append(steps_of(store, lambda study=study: store.lease(study, f"{study}", 10)))
        found.append(
            steps_of(store, lambda size=size, study=study: store.finish(f"{study}", result(cell(2 * size - 1))))
        )
    assert max(found) <= 20, found


def test_studies_share_results(store, study):
    store.finish("w", result(cell(1)))
    other = store.begin("other", {})
    store.add(other, [cell(1), cell(2)])
    assert [each.cell for each in store.results(other)] == [cell(1)]
    assert store.counts(other) == CellCounts(done=1, failed=0, pending=1, leased=0)
    assert store.lease(study, "w", 10) == [cell(0), cell(2)]
    assert store.lease(other, "v", 10) == []
    store.finish("w", result(cell(2)))
    assert store.counts(other) == CellCounts(done=2, failed=0, pending=0, leased=0)


def test_each_study_shows_a_cell_by_its_own_names(store, study):
    store.finish("w", result(cell(1)))
    renamed = cell(1, dataset="other sums", model="my toy", group="easy")
    other = store.begin("other", {})
    store.add(other, [renamed, cell(2, group="hard")])
    assert [each.cell for each in store.results(other)] == [renamed]
    assert [each.cell for each in store.results(study)] == [cell(1)]
    assert store.lease(other, "w", 9) == [cell(2, group="hard")]


def test_a_cell_of_two_names_is_run_once_and_shown_under_both(store, monkeypatch):
    monkeypatch.setattr("tts.experiments.store.store._PAGE", 2)
    study = store.begin("overlapping", {})
    every = [cell(number, dataset="every") for number in range(4)]
    easy = [cell(number, dataset="easy") for number in range(3)]
    store.add(study, [*every, *easy])
    assert store.counts(study) == CellCounts(done=0, failed=0, pending=4, leased=0)
    assert store.lease(study, "w", 9) == every
    for each in every:
        store.finish("w", result(each, error="it broke" if each == every[0] else None))
    assert store.counts(study) == CellCounts(done=3, failed=1, pending=0, leased=0)
    shown = [f"{each.cell.dataset}: {each.cell.problem}" for each in store.results(study)]
    assert shown == [*(f"{name}: sums/{number}" for number in range(3) for name in ("every", "easy")), "every: sums/3"]
    assert store.forget_failures(study) == 1
    assert store.counts(study) == CellCounts(done=3, failed=0, pending=1, leased=0)


def test_a_cell_is_leased_to_one_worker_until_its_time_is_over(store, study, clock):
    assert store.lease(study, "a", 2, seconds=60) == [cell(0), cell(1)]
    assert store.lease(study, "b", 2, seconds=60) == [cell(2)]
    assert store.counts(study) == CellCounts(done=0, failed=0, pending=0, leased=3)
    clock.now += 50
    store.beat("a", {"key 0": 7, "key 1": 0}, seconds=60)
    clock.now += 50
    assert store.lost_tokens(study) == 0
    assert store.lease(study, "c", 5, seconds=60) == [cell(2)]
    clock.now += 10
    assert store.lost_tokens(study) == 7
    assert store.lease(study, "c", 5) == [cell(0), cell(1)]


def test_a_worker_that_was_late_is_not_given_its_own_cell_twice(store, study, clock):
    assert store.lease(study, "a", 3, seconds=60)
    clock.now += 61
    assert store.lease(study, "a", 3) == []
    store.release("a", ["key 1"])
    assert store.lease(study, "a", 3) == [cell(1)]
    assert store.lease(study, "b", 3) == [cell(0), cell(2)]


def test_a_late_beat_takes_nothing_back(store, study, clock):
    store.lease(study, "a", 1, seconds=60)
    clock.now += 61
    store.lease(study, "b", 1, seconds=60)
    store.beat("a", {"key 0": 5}, seconds=600)
    assert store.lost_tokens(study) == 5
    clock.now += 61
    assert store.lease(study, "c", 1) == [cell(0)]
    clock.now -= 1
    store.beat("a", {"key 1": 5})  # one that it never had
    assert store.lost_tokens(study) == 5


def test_the_first_of_two_results_stays_and_the_other_is_lost(store, study, clock):
    store.lease(study, "a", 1, seconds=60)
    store.beat("a", {"key 0": 3}, seconds=60)
    clock.now += 61
    store.lease(study, "b", 1)
    store.beat("b", {"key 0": 4})
    assert store.finish("a", result(cell(), 9))
    assert store.lost_tokens(study) == 0  # what it had spent before is part of its result
    assert not store.finish("b", result(cell(), 20, right=False))
    (kept,) = store.results(study)
    assert (kept.usage.tokens, kept.right, kept.lost_tokens, store.lost_tokens(study)) == (9, True, 20, 20)


def test_released_cells_are_pending_and_what_they_spent_is_lost(store, study):
    store.lease(study, "w", 2)
    store.beat("w", {"key 0": 11, "key 1": 0})
    store.release("w", ["key 0", "key 1"])
    assert store.counts(study) == CellCounts(done=0, failed=0, pending=3, leased=0)
    assert store.lost_tokens(study) == 11
    store.lease(study, "w", 1)
    store.finish("w", result(cell()))
    assert [each.lost_tokens for each in store.results(study)] == [11]


def test_failed_cells_are_results_until_they_are_forgotten(store, study):
    other = store.begin("other", {})
    store.add(other, [cell(0)])
    store.finish("w", result(cell(0), 6, right=None, error="EngineError: it broke"), b"trace")
    store.finish("w", result(cell(1)))
    assert store.counts(study) == CellCounts(done=1, failed=1, pending=1, leased=0)
    assert (store.find("study").failed, store.find("study").done, store.find("study").cells) == (1, 1, 3)
    assert store.lease(other, "w", 1) == []
    assert store.forget_failures(study) == 1
    assert store.forget_failures(study) == 0
    assert store.lost_tokens(study) == 6
    assert store.trace("key 0") is None
    assert store.lease(other, "w", 1) == [cell(0)]
    store.finish("w", result(cell(0)), b"again")
    assert [(each.error, each.lost_tokens) for each in store.results(study)] == [(None, 6), (None, 0)]


def test_traces_are_kept_beside_results(store, study):
    store.finish("w", result(cell(0)), b"\x00trace")
    store.finish("w", result(cell(1)))
    assert (store.trace("key 0"), store.trace("key 1"), store.trace("no key")) == (b"\x00trace", None, None)
    other = store.begin("other", {})
    store.add(other, [cell(1)])
    assert (store.cells_with_trace(study), store.cells_with_trace(other)) == ({"key 0"}, set())


def test_a_result_of_a_cell_that_was_never_added_is_refused(store, study):
    with pytest.raises(ConfigError, match=r"'sums/9'.*store \(hint:.*first\)"):
        store.finish("w", result(cell(9)))
    assert store.counts(study).pending == 3


def test_results_may_be_finished_while_others_are_read(store, monkeypatch):
    monkeypatch.setattr("tts.experiments.store.store._PAGE", 1)
    study = store.begin("chain", {})
    store.add(study, map(cell, range(20)))
    store.finish("w", result(cell(0)))
    for number, each in enumerate(store.results(study), 1):
        assert isinstance(each, Result)
        if number < 20:
            store.finish("w", result(cell(number)))
    assert number == 20


def test_an_infinite_score_is_kept_as_unknown(store, study):
    """JSON has no infinity; a score that cannot be written must not end a run."""
    store.finish("w", result(cell(1), drawn=(sample(scores={"main": -math.inf}),)))
    (kept,) = store.results(study)
    assert kept.drawn is not None
    assert math.isnan(kept.drawn[0].scores["main"])


def test_stores_of_shards_are_merged(store, study, tmp_path):
    """What one has and the other lacks is carried over, and doing it again changes nothing."""
    store.finish("w", result(cell(1), 5))
    with Store(tmp_path / "other.sqlite") as other:
        other.add(other.begin("before", {"configuration": 2}), [cell(8)])
        same = other.begin("study", {"configuration": {"a": 1}})
        other.add(same, [cell(1), cell(2), cell(3), cell(4, strategy="single")])
        other.lease(same, "v", 2)
        other.beat("v", {"key 2": 7})
        other.release("v", ["key 2"])
        for done in (cell(1), cell(2), cell(4, strategy="single")):
            number = done.key[-1]
            other.finish("v", result(done, 100 + int(number)), number.encode())
        before = list(other.results(same))
        assert (store.merge(other.path), store.merge(other.path)) == (2, 0)
        assert list(other.results(same)) == before
        assert [run.begun_at for run in store.find("study").runs] == [1000.0, other.find("study").created_at]
    kept = list(store.results(study))
    assert [each.cell for each in kept] == [cell(1), cell(2), cell(4, strategy="single")]
    assert [(each.usage.tokens, each.lost_tokens) for each in kept] == [(5, 0), (102, 7), (104, 0)]
    assert [store.trace(f"key {number}") for number in (1, 2, 4)] == [None, b"2", b"4"]
    assert [(each.name, each.cells, each.done) for each in store.studies()] == [("study", 5, 3), ("before", 1, 0)]
    assert store.lease(study, "w", 9) == [cell(0), cell(3)]
    assert store.lease(2, "w", 9) == [cell(8)]


def test_merged_studies_keep_their_names_for_cells_that_both_stores_have(store, study, tmp_path):
    store.finish("w", result(cell(1)))
    with Store(tmp_path / "other.sqlite") as other:
        renamed = other.begin("renamed", {"configuration": 2})
        names = [cell(number, dataset=name, group=name) for name in ("a", "b") for number in (1, 2)]
        other.add(renamed, names)
        other.finish("v", result(names[1]))
        store.merge(other.path)
    assert [each.cell for each in store.results(store.find("renamed").id)] == [names[0], names[2], names[1], names[3]]
    assert [each.cell for each in store.results(study)] == [cell(1), cell(2)]
    assert store.counts(study) == CellCounts(done=2, failed=0, pending=1, leased=0)


def test_what_samples_were_imported_from_is_merged(store, tmp_path):
    assert store.source("key 1") is None
    with Store(tmp_path / "other.sqlite") as other:
        other.adopt("imported", {"configuration": 3}, [(result(cell(1)), b"from a file")])
        assert store.merge(other.path) == 1
    assert store.source("key 1") == b"from a file"


def test_what_cannot_be_merged_is_refused(store, tmp_path):
    with pytest.raises(ConfigError, match=r"merged.*itself"):
        store.merge(store.path)
    with pytest.raises(ConfigError, match="is not there"):
        store.merge(tmp_path / "none.sqlite")


def test_the_default_is_in_the_working_directory():
    assert default_store() == Path(".tts", "store.sqlite")


@pytest.mark.parametrize("seed", range(10))
def test_every_token_is_counted_once(store, study, clock, seed):
    """Law: whatever workers do, and die of, what they said they spent is in a result or lost, and in one of them
    alone.
    """
    rng = np.random.default_rng(seed)
    running: dict[tuple[str, str], int] = {}  # what a worker has spent on a cell; gone when it is at it no more
    noted: dict[tuple[str, str], int] = {}  # what it last said of it
    over = 0
    for step in range(300):
        clock.now += rng.exponential(10)
        worker = f"worker {step // 100} {rng.integers(3)}"
        own = [pair for pair in running if pair[0] == worker]
        match rng.integers(6):
            case 0 | 1:
                for leased in store.lease(study, worker, int(rng.integers(1, 3)), seconds=30):
                    running[worker, leased.key] = noted[worker, leased.key] = 0
            case 2:
                for pair in own:
                    running[pair] = noted[pair] = running[pair] + int(rng.integers(5))
                store.beat(worker, {key: noted[worker, key] for _, key in own}, seconds=30)
            case 3 if own:
                pair = own[rng.integers(len(own))]
                tokens = running.pop(pair) + int(rng.integers(5))
                noted.pop(pair)
                error = "it failed" if rng.random() < 0.4 else None
                store.finish(worker, result(cell(int(pair[1][-1])), tokens, error=error))
                over += tokens
            case 4 if own:
                pair = own[rng.integers(len(own))]
                store.release(worker, [pair[1]])
                running.pop(pair)
                over += noted.pop(pair)
            case 5 if rng.random() < 0.3:
                store.forget_failures(study)
    clock.now += 1000
    kept = sum(each.usage.tokens for each in store.results(study))
    assert kept + store.lost_tokens(study) == over + sum(noted.values())
    assert over > 0


def large(of: int, **given: Any) -> Result:
    return result(cell(of), **{"drawn": (sample(answer="7" * 1000),) * 1200, **given})


def test_what_no_command_would_read_again_is_left_out_with_a_line_and_the_rest_is_kept(store, study, monkeypatch):
    monkeypatch.setenv("TTS_LARGEST_ROW", "1")
    with pytest.warns(LargeRow, match="candidates.*'sums/0'.*stored: "):
        assert store.finish("w", large(0), b"t" * 5000)
    with pytest.warns(LargeRow, match="'sums/1'.*stored"):
        assert store.finish("w", large(1, drawn=None), b"t" * (1 << 20))
    with pytest.warns(LargeRow, match="'sums/2'.*stored"):
        assert store.finish("w", large(2, answer="7" * (1 << 20), drawn=None))
    first, second, third = store.results(study)
    assert (first.answer, first.drawn, first.usage.generated_tokens) == ("4", None, 10)
    assert "was not stored" in first.warnings[0]
    assert (second.answer, second.error) == ("4", None)
    assert third.answer is None
    assert "was not stored" in (third.error or "")
    assert third.usage.generated_tokens == 10
    assert [store.trace(f"key {i}") for i in range(3)] == [b"t" * 5000, None, None]
    assert store.check().ok


@pytest.mark.slow
def test_a_row_of_just_the_bound_is_read_again(store, study, monkeypatch):
    monkeypatch.setenv("TTS_LARGEST_ROW", "1.4")
    drawn = large(0).drawn
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(3):
            store.finish("w", large(i), b"t" * 1_400_000)
    assert [one.drawn for one in store.results(study)] == [drawn] * 3
    assert store.check().ok


def test_an_import_of_a_row_that_is_too_large_changes_nothing(store, monkeypatch):
    monkeypatch.setenv("TTS_LARGEST_ROW", "1")
    with pytest.raises(ConfigError, match=r"'sums/1'.*stored.*nothing.*added"):
        store.adopt("mine", {"configuration": {}}, [(result(cell(0)), b""), (large(1), b"")])
    assert store.studies() == []
