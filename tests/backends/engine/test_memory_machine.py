"""Anything in any order over a pool that may be tiny: after every step all counts are right, and every result is the
unbounded run's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.backends.engine.stepping import (
    CONTEXT,
    ROOMY,
    Asked,
    Hand,
    Path,
    assert_empty,
    blocks_of,
    ids_of,
    law_bits,
    recount,
    runner_of,
    scribble,
    told,
)
from tts.backends.base import Row, StopCondition
from tts.backends.engine.tree import KVNode
from tts.errors import EngineError, KVBudgetError

SIZES = (1, 2, 15, 16, 17, 33, 70)
STOPS = (
    StopCondition(),
    StopCondition(("e", "\n", "a"), at_step=True),
    StopCondition(("1",), finished=lambda text: len(text) > 12),
)
BROKEN = "the pass broke"


class Breaking:
    """A decoder that breaks its next pass when it is told to, after it has written nonsense where keys and values
    belong.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.breaks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, ids: Any, planned: Any, wanted: Any, with_logits: Any, pool: Any, **options: Any) -> Any:
        output = self._decoder.forward(ids, planned, wanted, with_logits, pool, **options)
        if self.breaks:
            self.breaks -= 1
            for block, offset in planned.places:
                pool.keys[:, :, block, :, offset] = pool.values[:, :, block, offset] = float("nan")
            raise RuntimeError(BROKEN)
        return output


class Memory(RuleBasedStateMachine):
    """Each thing asked of the tested runner is asked of one with room for everything, alone, and the ends are
    compared.
    """

    @initialize(
        blocks=st.integers(5, 24), rows=st.integers(1, 5), tokens=st.sampled_from([3, 16, 40]), share=st.booleans()
    )
    def begin(self, blocks: int, rows: int, tokens: int, share: bool) -> None:
        self.tested = Hand(runner_of(blocks, rows=rows, tokens=tokens, share=share))
        self.oracle = Hand(runner_of(ROOMY))
        self.breaking = self.tested.runner.decoder = Breaking(self.tested.runner.decoder)
        scribble(self.tested.runner)
        self.blocks = blocks
        self.twins: dict[Path, Path] = {}
        self.asked: list[tuple[Asked, Asked, list[KVNode]]] = []
        self.broke = False
        self.streams = 0

    # What is asked ----------------------------------------------------------------------------------------------------

    def both(self, asked: Asked, expected: Asked, path: Sequence[KVNode]) -> None:
        self.oracle.run()
        self.asked.append((asked, expected, list(path)))
        if asked.path is not None and expected.path is not None:
            self.twins[asked.path] = expected.path

    def one_of(self, which: int) -> tuple[Path, Path]:
        path = list(self.twins)[which % len(self.twins)]
        return path, self.twins[path]

    @rule(size=st.sampled_from(SIZES), seed=st.integers(0, 3))
    def open(self, size: int, seed: int) -> None:
        ids = ids_of(size, seed)
        asked = self.tested.open(ids)
        self.both(asked, self.oracle.open(ids), [asked.path.node])

    @precondition(lambda self: self.twins)
    @rule(which=st.integers(0, 99), size=st.sampled_from(SIZES), seed=st.integers(0, 3))
    def extend(self, which: int, size: int, seed: int) -> None:
        path, twin = self.one_of(which)
        if path.node.end + size < CONTEXT:
            ids = ids_of(size, seed)
            asked = self.tested.extend(path, ids)
            self.both(asked, self.oracle.extend(twin, ids), asked.path.node.path())

    @precondition(lambda self: self.twins)
    @rule(which=st.integers(0, 99), size=st.sampled_from(SIZES), seed=st.integers(0, 3))
    def score(self, which: int, size: int, seed: int) -> None:
        path, twin = self.one_of(which)
        ids = ids_of(size, seed)
        asked = self.tested.score(path, ids)
        self.both(asked, self.oracle.score(twin, ids), [*path.node.path(), KVNode(-1, path.node, ids, 0)])

    @precondition(lambda self: self.twins)
    @rule(
        which=st.integers(0, 99), caps=st.lists(st.integers(0, 40), min_size=1, max_size=4), stop=st.sampled_from(STOPS)
    )
    def write(self, which: int, caps: list[int], stop: StopCondition) -> None:
        path, twin = self.one_of(which)
        rows = [Row(self.streams + i, 0, cap) for i, cap in enumerate(caps)]
        self.streams += len(caps)
        self.both(self.tested.write(path, rows, stop), self.oracle.write(twin, rows, stop), path.node.path())

    @precondition(lambda self: self.twins)
    @rule(which=st.integers(0, 99))
    def fork(self, which: int) -> None:
        path, twin = self.one_of(which)
        self.twins[self.tested.fork(path)] = twin

    @precondition(lambda self: self.twins)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        path, _ = self.one_of(which)
        del self.twins[path]
        self.tested.release(path)

    @precondition(lambda self: any(asked.rows for asked, _, _ in self.asked))
    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        writings = [asked for asked, _, _ in self.asked if asked.rows]
        writings[which % len(writings)].rows.cancel()

    @precondition(lambda self: self.tested.runner.tree.pool.num_used)
    @rule()
    def evict(self) -> None:
        self.tested.runner.tree._evict()

    @precondition(lambda self: self.tested.runner._kept_logits)
    @rule()
    def forget_laws(self) -> None:
        self.tested.runner._kept_logits.clear()

    @precondition(lambda self: self.tested.runner.busy)
    @rule(times=st.sampled_from([1, 1, 2, 7, 30]))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.tested.runner.step()
            self.compare()
            self.count()

    @precondition(lambda self: self.tested.runner.busy)
    @rule()
    def break_a_pass(self) -> None:
        self.broke = True
        self.breaking.breaks = 1
        self.tested.runner.step()
        self.breaking.breaks = 0
        self.compare()

    # What must hold ---------------------------------------------------------------------------------------------------

    @invariant()
    def count(self) -> None:
        if hasattr(self, "tested"):
            recount(self.tested.runner, [path.node for path in self.tested.paths])
            stats = self.tested.runner.stats
            assert self.broke or stats.recomputed <= stats.prefill_computed

    def compare(self) -> None:
        for entry in list(self.asked):
            asked, expected, path = entry
            assert expected.done
            for index, end in asked.new_ends():
                self.compare_rows(end, expected.ends[index], path, cancelled=asked.rows.cancelled)
            if asked.done:
                self.asked.remove(entry)
                if asked.rows is None:
                    self.compare_readings(asked, expected, path)

    def compare_readings(self, asked: Asked, expected: Asked, path: list[KVNode]) -> None:
        failure = asked.reading.failure
        if failure is not None:
            self.failed(str(failure), isinstance(failure, KVBudgetError), path)
            assert isinstance(failure, EngineError)
            if asked.path in self.twins:  # as the backend drops the state of a call that failed
                del self.twins[asked.path]
                self.tested.release(asked.path)
        elif asked.path is None:
            assert law_bits(asked) == law_bits(expected)

    def compare_rows(self, end: Any, expected: Any, path: list[KVNode], *, cancelled: bool) -> None:
        if end.finish in ("cancelled", "error"):
            assert end.node is None
            ids = end.state.ids if end.state else []
            assert expected.state.ids[: len(ids)] == ids
            assert end.state is None or expected.state.logprobs[: len(ids)] == end.state.logprobs
            if end.finish == "cancelled":
                assert cancelled
            else:
                self.failed(end.error, end.error.startswith("KVBudgetError"), [*path, KVNode(-1, path[-1], ids, 0)])
            return
        assert told(end) == told(expected)
        self.twins[self.tested.keep(end.node, end.state.path_text())] = Path(expected.node, expected.state.path_text())

    def failed(self, error: str, of_memory: bool, path: list[KVNode]) -> None:
        """A failure is of a path that cannot fit alone, or of a pass that was broken."""
        if of_memory:
            assert blocks_of(path) > self.blocks, error
        else:
            assert self.broke, error
            assert BROKEN in error

    def teardown(self) -> None:
        if not hasattr(self, "tested"):
            return
        limit = (
            50
            * sum(1 + sum(row.max_tokens for row in a.rows.request.rows) if a.rows else 100 for a, _, _ in self.asked)
            + 100
        )
        self.tested.run(limit)
        self.compare()
        assert self.asked == []
        for path in self.tested.paths[::2] + self.tested.paths[1::2]:
            self.tested.release(path)
        assert_empty(self.tested.runner)


# A failure is shown as it was met: making it smaller takes minutes.
Memory.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TestMemory = Memory.TestCase


class LongMemory(Memory):
    """The same for longer."""


LongMemory.TestCase.settings = settings(Memory.TestCase.settings, max_examples=200, stateful_step_count=80)
TestLongMemory = pytest.mark.slow(LongMemory.TestCase)
