from __future__ import annotations

import asyncio
import dataclasses
import io
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.experiments import made
from tests.experiments.studies import SUMS, final, toy
from tts.backends.toy.backend import ToyBackend
from tts.errors import MissingDependency, TTSError, VerifierError
from tts.experiments.run.executors import CellResult, WorkerLost
from tts.experiments.run.local_executor import LocalExecutor
from tts.experiments.run.progress import Progress, show_progress
from tts.experiments.run.runner import PreparedStudy, RunSummary, run
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Settings
from tts.experiments.study.record import Cell, Result
from tts.trace.trace import Trace
from tts.types import Usage


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def go(config: StudyConfig, store: Store, **options: Any) -> RunSummary:
    with PreparedStudy(config) as prepared:
        return run(prepared, store, **options)


def results(store: Store, ended: RunSummary) -> list[Result]:
    return list(store.results(ended.study))


def test_a_study_is_run_as_the_solver_would_solve_each(store: Store):
    ended = go(toy(limit=3, seeds=2), store)
    assert (ended.counts.done, ended.counts.failed, ended.interrupted) == (24, 0, False)
    with PreparedStudy(toy(limit=3)) as prepared:
        problems = prepared.problems["arithmetic"]
    for result in results(store, ended):
        cell, problem = result.cell, problems[result.cell.problem]
        alone = tts.solve(
            problem,
            tts.Budget(samples=int(cell.budget["samples"])),
            strategy=cell.strategy,
            seed=cell.seed,
            model="toy",
            verifier="toy(error=0.2)",
        )
        assert (result.answer, result.stopped_by) == (alone.answer, alone.stopped_by)
        assert dataclasses.replace(result.usage, seconds=0, work_seconds=0) == dataclasses.replace(
            alone.usage, seconds=0, work_seconds=0
        )
        assert result.right is (alone.answer == problem.answer)


def test_what_is_there_is_not_paid_for_again(store: Store, monkeypatch: pytest.MonkeyPatch):
    first = go(toy(limit=4), store)
    before = final(results(store, first))
    calls: list[Any] = []
    sample = ToyBackend.sample
    monkeypatch.setattr(ToyBackend, "sample", lambda self, request: (calls.append(request), sample(self, request))[1])
    again = go(toy(limit=4, concurrency=2), store)
    assert (again.study, calls) == (first.study, [])
    assert final(results(store, again)) == before
    grouped = {**SUMS, "limit": 4, "group_by": "operations", "name": "sums"}
    renamed = go(toy(models={"my toy": "toy"}, problems=grouped, name="renamed"), store)
    assert (renamed.counts.done, calls) == (16, [])
    assert {(one.cell.dataset, one.cell.model, one.cell.group) for one in results(store, renamed)} == {
        ("sums", "my toy", "2 operations"),
        ("sums", "my toy", "4 operations"),
    }
    assert final(results(store, go(toy(limit=4), store))) == before
    more = go(toy(limit=5), store)
    assert more.study != first.study
    assert len(calls) == 4  # one problem more, by two strategies under two budgets
    assert len(results(store, more)) == 20


def test_how_many_are_in_flight_changes_nothing(store: Store, tmp_path: Path):
    one_by_one = results(store, go(toy(concurrency=1), store))
    with Store(tmp_path / "other.sqlite") as other:
        at_once = results(other, go(toy(concurrency=64), other))
    assert final(one_by_one) == final(at_once)
    assert [result.answer for result in one_by_one] == [result.answer for result in at_once]


@pytest.mark.slow
def test_ctrl_c_gives_everything_back_and_the_rest_is_run_later(store: Store, tmp_path: Path):
    config = toy(limit=12, concurrency=4)

    pressed: list[bool] = []

    def press(progress: Progress) -> None:
        if progress.finished >= 8 and not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    ended = go(config, store, report=press)
    assert ended.interrupted
    assert ended.counts.leased == ended.counts.failed == 0
    assert 8 <= ended.counts.done < 48
    assert ended.counts.done + ended.counts.pending == 48
    whole = go(config, store)
    assert whole == RunSummary(ended.study, dataclasses.replace(whole.counts, done=48, failed=0, pending=0, leased=0))
    with Store(tmp_path / "unbroken.sqlite") as other:
        assert final(results(store, whole)) == final(results(other, go(config, other)))


def test_the_first_ctrl_c_lets_running_cells_end_with_their_results(store: Store):
    """Four cells run when it comes. None of them is lost, and no other begins."""
    begun: list[str] = []
    go_on: list[asyncio.Event] = []
    lines: list[str] = []

    async def wait(cell: Cell, _: int) -> None:
        begun.append(cell.key)
        if not go_on:
            go_on.append(asyncio.Event())
        if len(begun) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        await go_on[0].wait()

    def release(progress: Progress) -> None:
        lines.append(progress.line())
        if progress.ending == 4:
            go_on[0].set()

    ended = run(scripted(toy(limit=12, concurrency=4), wait), store, report=release)
    assert ended.interrupted
    assert (ended.counts.done, ended.counts.leased, ended.counts.pending) == (4, 0, 44)
    assert len(begun) == 4
    assert store.lost_tokens(ended.study) == 0
    assert any("stopping: 4 running cells end first; Ctrl-C again drops them" in line for line in lines)


def test_an_impatient_stop_cancels_running_cells_at_once(store: Store):
    def press(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return asyncio.Event().wait()

    config = toy(limit=1, strategies="single", budgets={"samples": 1})
    ended = run(scripted(config, press), store, is_patient=lambda: False)
    assert (ended.interrupted, ended.counts.done, ended.counts.leased) == (True, 0, 0)
    assert store.lost_tokens(ended.study) == 100


def test_a_problem_that_fails_is_a_result_and_no_reason_for_others_to(store: Store, tmp_path: Path):
    file = tmp_path / "sums.jsonl"
    file.write_text(
        '{"problem": "1 + 2", "answer": "3"}\n{"problem": "no sum"}\n{"problem": "2 + 2"}\n', encoding="utf-8"
    )
    config = toy(
        problems={"dataset": "file", "path": str(file)}, task="arithmetic", strategies="single", budgets={"samples": 1}
    )
    ended = go(config, store)
    assert (ended.counts.done, ended.counts.failed) == (2, 1)
    right, failed, unknown = results(store, ended)
    assert right.right is not None
    assert failed.error == "ConfigError: the problem is 'no sum', but the toy model solves sums only"
    assert (failed.answer, failed.right, failed.stopped_by) == (None, None, "failed")
    assert math.isnan(failed.confidence)
    assert (unknown.error, unknown.right) == (None, None)
    assert unknown.answer is not None
    assert results(store, go(config, store))[1].seconds_at == failed.seconds_at
    assert results(store, go(config, store, retry_failed=True))[1].seconds_at > failed.seconds_at


def test_where_nothing_works_a_run_gives_up(store: Store, tmp_path: Path):
    file = tmp_path / "none.jsonl"
    file.write_text("".join(f'{{"problem": "no sum of {i}"}}\n' for i in range(90)), encoding="utf-8")
    config = toy(
        problems={"dataset": "file", "path": str(file)}, strategies="single", budgets={"samples": 1}, concurrency=10
    )
    with pytest.raises(TTSError, match=r"last.*ConfigError:.*problem.*'no") as caught:
        go(config, store)
    assert "--retry-failed" in caught.value.hint
    (study,) = store.studies()
    assert 50 <= study.failed < 90
    assert store.counts(study.id).leased == 0


def test_candidates_and_whole_searches_are_kept_where_asked_for(store: Store):
    kept = results(store, go(toy(limit=2, seeds=2, record={"candidates": True, "traces": 1}), store))
    assert all(len(result.drawn or ()) == result.cell.budget["samples"] for result in kept)
    traced = [result for result in kept if store.trace(result.cell.key) is not None]
    first = kept[0].cell.problem
    assert {(result.cell.problem, result.cell.seed) for result in traced} == {(first, 0)}
    assert len(traced) == 4
    for result in traced:
        trace = Trace.from_json((store.trace(result.cell.key) or b"").decode())
        assert (trace.answer, trace.strategy, trace.usage.tokens) == (
            result.answer,
            result.cell.strategy,
            result.usage.tokens,
        )
    assert all(result.drawn is None for result in results(store, go(toy(limit=2), store)))


@pytest.mark.slow
def test_a_store_that_fails_ends_the_run_and_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch):
    finish, room = Store.finish, iter(range(9))

    def fill_up(self: Store, *arguments: Any) -> bool:
        if next(room, None) is None:
            raise TTSError("store: the disk is full", hint="make room")
        return finish(self, *arguments)

    config = toy(limit=6, concurrency=4)
    monkeypatch.setattr(Store, "finish", fill_up)
    with pytest.raises(TTSError, match="the disk is full"):
        go(config, store)
    monkeypatch.setattr(Store, "finish", finish)
    (study,) = store.studies()
    assert study.done == 9
    ended = go(config, store)
    assert (ended.counts.done, len(results(store, ended))) == (24, 24)


def test_servers_share_the_problems(store: Store, monkeypatch: pytest.MonkeyPatch):
    seen: dict[str | None, int] = {}

    class Served(ToyBackend):
        """The toy, as a server of some address runs it."""

        url: str | None = None

        @classmethod
        def from_record(cls, record: Any) -> Served:
            made = cls()
            made.url = record.url
            return made

        def sample(self, request: Any) -> Any:
            seen[self.url] = seen.get(self.url, 0) + 1
            return super().sample(request)

    from tts.backends import BACKENDS

    monkeypatch.setattr(BACKENDS, "get", lambda name, get=BACKENDS.get: Served if name == "served" else get(name))
    urls = ["http://one.invalid", "http://two.invalid"]
    config = toy(models={"toy": {"model": "toy", "backend": "served", "url": urls}})
    ended = go(config, store)
    assert ended.counts.done == 24
    assert sorted(seen) == urls
    assert min(seen.values()) >= 8


# executors that are not ours


class Scripted:
    """An executor that answers as it is told: a function of the cell and of how often it was asked for."""

    def __init__(self, config: StudyConfig, answer: Callable[[Cell, int], Any], slots: int = 4) -> None:
        with PreparedStudy(config) as prepared:
            self.settings: Settings = prepared.executor.settings
        self.slots = slots
        self.asked: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self._answer = answer

    async def run(self, cell: Cell) -> CellResult:
        self.asked[cell.key] = self.asked.get(cell.key, 0) + 1
        self.tokens[cell.key] = 100
        await asyncio.sleep(0)
        said = self._answer(cell, self.asked[cell.key])
        if asyncio.iscoroutine(said):
            await said
        if isinstance(said, Exception):
            raise said
        return CellResult(made.result(cell, 7, seconds_at=1.0))

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        return self.tokens

    def close(self) -> None:
        pass


def scripted(config: StudyConfig, answer: Callable[[Cell, int], Any]) -> PreparedStudy:
    prepared = PreparedStudy(config)
    prepared.executor.close()
    prepared.executor = Scripted(config, answer)
    return prepared


def test_a_lost_worker_has_its_cells_run_again(store: Store):
    prepared = scripted(toy(), lambda _, times: WorkerLost("killed") if times == 1 else None)
    executor: Any = prepared.executor
    ended = run(prepared, store)
    assert (ended.counts.done, ended.counts.failed) == (24, 0)
    assert set(executor.asked.values()) == {2}


def test_a_cell_that_kills_its_workers_has_failed(store: Store):
    bad: list[str] = []

    def answer(cell: Cell, times: int) -> Any:
        bad[1:] = []
        bad.append(cell.key)
        return WorkerLost("killed") if cell.key == bad[0] else None

    ended = run(scripted(toy(), answer), store)
    assert (ended.counts.done, ended.counts.failed) == (23, 1)
    (failed,) = (result for result in results(store, ended) if result.error)
    assert failed.error == "EngineError: 3 workers were lost at this cell: killed"


def test_a_heartbeat_keeps_what_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now, beats = [0.0], list[Mapping[str, int]]()
    beat = Store.beat

    def late(self: Store, worker: str, spent: Mapping[str, int], *, seconds: float) -> None:
        now[0] += 0.9 * seconds
        beats.append(spent)
        beat(self, worker, spent, seconds=seconds)

    monkeypatch.setattr(Store, "beat", late)
    with Store(tmp_path / "store.sqlite", clock=lambda: now[0]) as store:

        async def slow() -> None:
            while len(beats) < 4:
                await asyncio.sleep(0.01)
            assert store.lease(1, "another", 1) == []  # although more than three leases' time has passed

        config = toy(limit=1, strategies="single", budgets={"samples": 1})
        (result,) = results(store, run(scripted(config, lambda *_: slow()), store, lease_s=0.2))
        assert all(spent == {result.cell.key: 100} for spent in beats)
        assert (result.error, result.lost_tokens) == (None, 0)


def test_what_was_spent_is_booked_though_the_answer_could_not_be_judged(store: Store, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> bool:
        raise VerifierError("the scorer does not start")

    monkeypatch.setattr("tts.experiments.run.local_executor.judge_answer", broken)
    found = results(store, go(toy(limit=2, strategies="best_of_n | majority", budgets={"samples": 4}), store))
    assert {result.error for result in found} == {"VerifierError: the scorer does not start"}
    assert all(result.usage.samples == 4 and result.usage.tokens > 4 for result in found)


def test_a_run_that_waits_for_cells_of_a_killed_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tts.experiments.run.runner._POLL_S", 0.01)
    now, lines = [1000.0], []
    with Store(tmp_path / "store.sqlite", clock=lambda: now[0]) as store, PreparedStudy(toy(limit=3)) as prepared:

        def report(progress: Progress) -> None:
            lines.append(progress.line())
            if len(lines) == 2:
                now[0] += 60

        store.add(store.begin("sums", {}), prepared.cells())
        assert len(store.lease(1, "killed", 99, seconds=30)) == 12
        ended = run(prepared, store, report=report)
    assert ended.counts.done == 12
    waited = ["waiting for 12 cells that other runs hold" in line for line in lines]
    assert waited[:2] == [False, True]
    assert not waited[-1]


def test_what_was_spent_on_stopped_cells_is_booked_as_lost(store: Store):
    config = toy(limit=1, strategies="single", budgets={"samples": 1})

    def press(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return asyncio.Event().wait()

    pressed: list[bool] = []  # a third time would reach what runs after it

    def press_again(progress: Progress) -> None:
        if progress.ending and not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    assert run(scripted(config, press), store, report=press_again).interrupted
    (study,) = store.studies()
    assert store.lost_tokens(study.id) == 100
    (result,) = results(store, run(scripted(config, lambda *_: None), store))
    assert (result.lost_tokens, result.usage.tokens) == (100, 7)


def test_an_interrupted_cell_knows_what_it_had_spent():
    """The toy is cancelled in the middle of a wave; what it had written by then is what `tokens_spent_by_key` says."""
    config = toy(limit=1, strategies="best_of_n(n=50) | majority", budgets=10_000)
    with PreparedStudy(config) as prepared:
        executor = prepared.executor
        assert isinstance(executor, LocalExecutor)
        (cell,) = prepared.cells()

        async def cut_off() -> Mapping[str, int]:
            running = asyncio.ensure_future(executor.run(cell))
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return await executor.tokens_spent_by_key()

        assert list(tts.solver.model_cache.LOOP.run(cut_off())) == [cell.key]


def test_progress_says_rate_time_left_spend_accuracy_and_failures():
    seconds = iter([0.0, 10.0, 20.0])
    progress = Progress(total=40, done=10, clock=lambda: next(seconds))
    assert progress.line() == "10 of 40 · 0 tokens"
    for right, error in ((True, None), (False, None), (None, "EngineError: no: reason"), (True, None), (None, None)):
        usage = Usage(generated_tokens=1000, usd=0.5)
        progress.add(made.result(made.cell(), right=right, error=error, usage=usage))
    assert (
        progress.line()
        == "15 of 40 · 15.0 a minute · 2 min left · 5,000 tokens · $2.50 · 66.7% of the new ones right · failed: 1 "
        "EngineError"
    )


def test_without_ray_the_cure_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match="--executor ray"):
        PreparedStudy(toy(limit=1), "ray")


def test_progress_is_a_live_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with show_progress("sums\x1b") as report:
        report(Progress(total=40, done=10, clock=lambda: 0.0))
    assert "sums\\x1b: 10 of 40" in terminal.getvalue()
