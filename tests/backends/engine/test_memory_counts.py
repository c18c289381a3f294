"""What is evicted first, and what is counted: exactly what was computed, read and held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.engine.stepping import (
    ROOMY,
    TOKEN_BYTES,
    Hand,
    engine,
    evict,
    ids_of,
    parts,
    runner_of,
    script,
    told_all,
)
from tts.backends.base import Row
from tts.backends.engine.core import Runner
from tts.backends.engine.stats import StepReport
from tts.backends.engine.tree import CACHED, HELD, KVTree
from tts.backends.engine.work import DecodeSequence
from tts.backends.kernels.plan import BLOCK

# Which gives way first ------------------------------------------------------------------------------------------------


class Orchard:
    """A tree over a pool, in which a name is a node."""

    def __init__(self, blocks: int) -> None:
        self.tree = KVTree(runner_of(blocks).decoder.pool(blocks))
        self.named: dict[str, Any] = {}

    def grow(self, name: str, above: str | None = None, *, rank: Any = HELD, size: int = BLOCK) -> None:
        self.named[name] = self.tree.add(self.named.get(above), [1] * size, rank)
        self.use(name)

    def use(self, name: str) -> None:
        """Read a node in a step of its own."""
        node = self.named[name]
        self.tree.clock += 1
        self.tree.pin(node)
        for each in node.path():
            assert self.tree.reserve(each, len(each.tokens))
            self.tree.fill(each, len(each.tokens))
        self.tree.unpin(node)

    def evicted(self) -> list[str]:
        """Return the names in the order in which they are evicted."""
        order: list[str] = []
        while True:
            before = {name for name, node in self.named.items() if node.num_blocks}
            if not self.tree._evict():
                assert not before - {name for name, node in self.named.items() if node.pins}
                return order
            (gone,) = before - {name for name, node in self.named.items() if node.num_blocks}
            order.append(gone)


def test_the_longest_unused_leaf_gives_way_first() -> None:
    orchard = Orchard(8)
    for name in "abc":
        orchard.grow(name)
    orchard.grow("c1", "c")
    orchard.grow("c2", "c")
    orchard.use("a")
    orchard.use("c1")
    assert orchard.evicted() == ["b", "c2", "a", "c1", "c"]


def test_what_nobody_asked_to_keep_gives_way_before_what_somebody_holds() -> None:
    orchard = Orchard(8)
    orchard.grow("held")
    orchard.grow("cached", rank=CACHED)
    orchard.grow("held too")
    orchard.grow("below", "cached", rank=CACHED)
    orchard.grow("held below", "cached")
    assert orchard.evicted() == ["below", "held", "held too", "held below", "cached"]


def test_nothing_under_way_gives_way_and_neither_does_what_is_above_it() -> None:
    orchard = Orchard(5)
    for name, above in (("root", None), ("left", "root"), ("right", "root"), ("tip", "left")):
        orchard.grow(name, above)
    orchard.tree.pin(orchard.named["left"])
    assert orchard.tree.reclaimable == 3
    assert orchard.evicted() == ["right", "tip"]
    assert not orchard.tree.reserve(orchard.named["left"], 5 * BLOCK)
    orchard.tree.unpin(orchard.named["left"])
    assert orchard.evicted() == ["left", "root"]
    assert orchard.tree.pool.num_used == 0


# Counts ---------------------------------------------------------------------------------------------------------------


class Recorder:
    """Counts what a runner feeds, from what it feeds alone."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.counts: Counter[str] = Counter()
        self.known: set[tuple[int, int]] = set()
        self.nodes: list[Any] = []  # kept, so that no two have one id
        choose = runner._scheduler.choose

        def chosen() -> list[Any]:
            feeds = choose()
            self.count(feeds)
            return feeds

        runner._scheduler.choose = chosen

    def count(self, feeds: Sequence[Any]) -> None:
        if not feeds:
            return
        tree, counts = self.runner.tree, self.counts
        read: dict[int, int] = {}
        for node, first, number, work in feeds:
            last_of_row = isinstance(work, DecodeSequence) and first + number == len(node.tokens)
            counts["prefill_computed"] += number - last_of_row
            tokens = {(id(node), token) for token in range(first, first + number)}
            counts["recomputed"] += len(tokens & self.known)
            self.known |= tokens
            self.nodes.append(node)
            counts["kv_read_unshared"] += sum(
                TOKEN_BYTES * (node.start + token + 1) for token in range(first, first + number)
            )
            counts["tokens"] += number
            read |= {id(each): tree.length(each) for each in node.path()}
        counts["kv_read_actual"] += TOKEN_BYTES * sum(read.values())
        counts["rows"] += len(feeds)
        counts["steps"] += 1

    def agrees(self) -> None:
        stats = self.runner.stats
        names = ("prefill_computed", "recomputed", "kv_read_unshared", "kv_read_actual", "rows", "steps")
        assert {name: getattr(stats, name) for name in names} == {name: self.counts[name] for name in names}
        assert sum(width * passes for width, passes in stats.rows_histogram.items()) == self.counts["tokens"]
        # 2 heads of 32, 2 layers
        assert stats.flops_attention == 4 * 2 * 32 * 2 * self.counts["kv_read_unshared"] // TOKEN_BYTES


def test_every_count_of_a_scripted_run_is_exact() -> None:
    runner = runner_of(ROOMY)
    hand, recorder, stats = Hand(runner), Recorder(runner), runner.stats
    prompt = hand.open(ids_of(40, 1)).path
    hand.run()
    assert (stats.steps, stats.prefill_computed, stats.prefill_reused) == (1, 39, 0)
    assert (stats.kv_read_actual, stats.kv_read_unshared) == (TOKEN_BYTES * 39, TOKEN_BYTES * 39 * 40 // 2)
    rows = hand.write(prompt, [Row(1, 0, 5), Row(2, 0, 5)])
    hand.run()
    # a law, and four of five tokens of each row
    assert (stats.steps, stats.prefill_computed, stats.decode_tokens) == (6, 40, 10)
    assert stats.prefill_reused == 39 + 2 * 40
    assert stats.kv_read_unshared == TOKEN_BYTES * (40 * 41 // 2 + 2 * (41 + 42 + 43 + 44))
    assert stats.kv_read_actual == TOKEN_BYTES * (39 + 40 + 4 * 40 + 2 * (1 + 2 + 3 + 4))
    ended = hand.keep(rows.ends[0].node, rows.ends[0].state.path_text())
    longer = hand.extend(ended, ids_of(20, 2)).path
    hand.run()
    assert (stats.prefill_computed, stats.prefill_reused, stats.recomputed) == (60, 119 + 44, 0)
    hand.score(longer, ids_of(3, 3))
    hand.run()
    # its path's last token, and three
    assert (stats.prefill_computed, stats.prefill_reused, stats.recomputed) == (64, 163 + 64, 0)
    runner._kept_logits.clear()
    evict(runner)
    hand.write(longer, [Row(3, 0, 1)])
    hand.run()
    assert (stats.prefill_computed, stats.recomputed, stats.decode_tokens) == (64 + 65, 65, 11)
    assert stats.prefill_reused == 163 + 64
    assert stats.evictions == 4
    config, weights = parts()[0].config, 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 128
    tokens, laws = recorder.counts["tokens"], 1 + 8 + 3 + 1
    assert stats.flops_linear == 2 * (2 * weights * tokens + 64 * config.vocab_size * laws)
    assert stats.weight_bytes_read == stats.steps * runner.decoder.weight_bytes
    recorder.agrees()


@pytest.mark.parametrize("tokens", [3, 50])
def test_counts_under_pressure_are_those_of_a_recount(tokens: int) -> None:
    runner = runner_of(11, tokens=tokens, rows=5)
    hand, recorder = Hand(runner), Recorder(runner)
    asked = script(hand, (70, 33, 96), (4, 19, 30))
    hand.run()
    told_all(asked)
    recorder.agrees()
    stats = runner.stats
    assert stats.decode_tokens == sum(len(end.state.ids) for each in asked for end in each.ends.values())
    assert min(stats.recomputed, stats.parked) > 0
    assert stats.kv_tokens_peak == 11 * BLOCK
    assert stats.kv_read_actual <= stats.kv_read_unshared


def test_rows_that_are_read_again_share_the_limit_of_a_step_and_end_as_they_would_have() -> None:
    rows = [Row(stream, 0, 60) for stream in range(5)]
    told_of = []
    for lost in (False, True):
        hand = Hand(runner_of(ROOMY, tokens=20, endless=True))
        path = hand.open(ids_of(30, 1)).path
        asked = hand.write(path, rows)
        while hand.runner.stats.decode_tokens < 5 * 40:
            hand.runner.step()
        for line in hand.runner._scheduler.running if lost else ():
            hand.runner.tree.forget(line.node)  # as a pass that breaks does
        hand.run()
        told_of.append(told_all([asked]))
        assert max(hand.runner.stats.rows_histogram) <= 20 + 5
        assert hand.runner.stats.recomputed == 5 * 39 * lost
    assert told_of[0] == told_of[1]


@pytest.mark.parametrize("tokens", [4, 20])
def test_no_step_reads_more_than_its_limit_beside_one_token_a_row(tokens: int) -> None:
    runner = runner_of(12, tokens=tokens, rows=5)
    hand = Hand(runner)
    script(hand, (70, 33, 96), (4, 19, 30))
    hand.run()
    assert max(runner.stats.rows_histogram) <= tokens + 5


def test_each_step_is_reported() -> None:
    runner = engine().runner
    runner._eos = frozenset()
    reports: list[StepReport] = []
    runner.report = reports.append
    hand = Hand(runner)
    hand.write(hand.open(ids_of(20, 1)).path, [Row(stream, 0, 5) for stream in range(3)])
    hand.run()
    stats = runner.stats
    assert Counter(report.tokens for report in reports) == stats.rows_histogram
    assert TOKEN_BYTES * sum(report.keys_read for report in reports) == stats.kv_read_actual
    assert [report.sequences for report in reports] == [0, 0, 3, 3, 3, 3], (
        "two steps for the prompt; first tokens take none"
    )
