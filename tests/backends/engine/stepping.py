"""The engine's core driven by hand, a step at a time: what is asked of it, and a recount of everything it keeps."""

from __future__ import annotations

import asyncio
import functools
import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the tiny model is one of the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import engine_of, tiny_model, tiny_tokenizer
from tests.support.guard import LIMIT_S
from tts.backends.base import Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.engine.core import Runner
from tts.backends.engine.scheduler import SchedulerLimits
from tts.backends.engine.tree import KVNode, KVTree
from tts.backends.engine.work import DecodeSequence, PrefillJob, RowEnd, SampleJob
from tts.backends.kernels.plan import BLOCK
from tts.backends.text.row_state import PathText

CONTEXT = 1024
TOKEN_BYTES = 2 * 2 * 1 * 32 * 4  # keys and values, layers, key-value heads, head size, bytes of a float
ROOMY = 4096  # blocks that nothing here fills
WARM = Sampling(temperature=1.0)


@functools.cache
def parts() -> tuple[Any, Any]:
    """Return the tiny model and its tokenizer."""
    tokenizer = tiny_tokenizer()
    return tiny_model(len(tokenizer), context=CONTEXT), tokenizer


def engine(blocks: int | None = None, **options: Any) -> Any:
    """Return a backend on the tiny model with so many blocks."""
    model, tokenizer = parts()
    if blocks is not None:
        options["kv_budget"] = blocks * BLOCK * TOKEN_BYTES
    return engine_of(model, tokenizer, **{"threads": 1, **options})


@functools.cache
def _shared() -> Any:
    return engine()


def runner_of(blocks: int, *, rows: int = 64, tokens: int = 256, endless: bool = False, **options: Any) -> Runner:
    """Return a runner with a pool of its own; all share the weights of one model. `endless`: no token ends a row."""
    decoder, renderer = _shared().runner.decoder, _shared()._renderer
    return Runner(
        decoder,
        KVTree(decoder.pool(blocks)),
        SchedulerLimits(rows, tokens),
        decode=renderer.decode,
        eos=frozenset() if endless else _shared().runner._eos,
        **options,
    )


def ids_of(size: int, seed: int) -> list[int]:
    """Return tokens, none of them the end of a sequence."""
    return [1 + (seed * 7919 + i * (i + 3 + seed) * 31) % 280 for i in range(size)]


def blocks_of(path: Sequence[KVNode]) -> int:
    """Return the blocks that the tokens of a path take."""
    return sum(-(-len(node.tokens) // BLOCK) for node in path)


@dataclass(eq=False)
class Path:
    """A handle of a node, as a caller has it."""

    node: KVNode
    text: PathText
    alive: bool = True


@dataclass(eq=False)
class Asked:
    """Something that was asked for. `path`: a new handle, None for scores. `rows`, `ends`: of a request for rows."""

    path: Path | None = None
    reading: PrefillJob | None = None
    rows: RowSet | None = None
    ends: dict[int, RowEnd] = field(default_factory=dict)
    done: bool = False
    _seen: int = 0

    def ended(self, end: RowEnd) -> None:
        assert end.index not in self.ends, f"row {end.index} ended twice"
        self.ends[end.index] = end
        assert self.rows is not None
        self.done = len(self.ends) == len(self.rows.request.rows)

    def new_ends(self) -> list[tuple[int, RowEnd]]:
        """Return the rows that ended since this was last asked."""
        new = list(self.ends.items())[self._seen :]
        self._seen = len(self.ends)
        return new

    def read(self, reading: PrefillJob) -> None:
        assert not self.done, "a reading ended twice"
        self.reading, self.done = reading, True


class Hand:
    """Asks one runner, and steps it."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.paths: list[Path] = []

    def keep(self, node: KVNode, text: PathText) -> Path:
        path = Path(node, text)
        self.paths.append(path)
        return path

    def open(self, ids: Sequence[int]) -> Asked:
        asked = Asked(self.keep(self.runner.tree.add(None, ids), PathText.skip(ids)))
        return self._read(asked, asked.path.node, len(ids) - 1, len(ids) - 1)

    def extend(self, path: Path, ids: Sequence[int]) -> Asked:
        asked = Asked(self.keep(self.runner.tree.add(path.node, ids), PathText.skip(ids)))
        return self._read(asked, asked.path.node, len(ids) - 1, len(ids) - 1)

    def score(self, path: Path, ids: Sequence[int]) -> Asked:
        """Ask for the log-probabilities of all tokens behind each token of a text."""
        node = self.runner.tree.add(path.node, ids)
        asked = self._read(Asked(), node, len(ids), 0, [range(self.runner.decoder.config.vocab)] * len(ids))
        self.runner.tree.release(node)
        return asked

    def write(
        self, path: Path, rows: Sequence[Row], stop: StopCondition | None = None, sampling: Sampling = WARM
    ) -> Asked:
        asked = Asked(rows=RowSet(SampleRequest(None, tuple(rows), sampling, stop or StopCondition())))
        self.runner.add_samples(SampleJob(asked.rows, self.runner.tree.retain(path.node), path.text, asked.ended))
        return asked

    def fork(self, path: Path) -> Path:
        return self.keep(self.runner.tree.retain(path.node), path.text)

    def release(self, path: Path) -> None:
        assert path.alive
        path.alive = False
        self.paths.remove(path)
        self.runner.tree.release(path.node)

    def run(self, limit: int = 20_000) -> int:
        """Step until there is nothing to do; return the steps."""
        for steps in range(limit):
            if not self.runner.busy:
                return steps
            self.runner.step()
        raise AssertionError(f"still busy after {limit} steps: {described(self.runner)}")

    def _read(
        self, asked: Asked, node: KVNode, upto: int, wanted: int, tokens: Sequence[Sequence[int]] | None = None
    ) -> Asked:
        self.runner.add_prefill(PrefillJob(self.runner.tree.retain(node), upto, wanted, asked.read, tokens))
        return asked


def described(runner: Runner) -> str:
    """Return what a runner is at: of each work its order, and of each node of its path: tokens, those with KV, blocks,
    pins.
    """
    tree, scheduler = runner.tree, runner._scheduler
    lines = [
        f"{len(runner._sample_jobs)} writings, {tree.reclaimable} blocks to be had, {tree.pool.num_free} free, "
        f"{len(scheduler._nodes_to_unpin)} late"
    ]
    for name, works in (("waiting", scheduler._waiting), ("running", scheduler.running)):
        for work in works:
            path = [(len(node.tokens), tree.length(node), node.num_blocks, node.pins) for node in work.node.path()]
            wants = (work.upto, work.at) if isinstance(work, PrefillJob) else ()
            lines.append(f"{name} {type(work).__name__} {work.order} ready={work.ready} {wants} {path}")
    return "\n".join(lines)


def told(end: RowEnd) -> tuple[Any, ...]:
    """Return what a row gave, to the last bit."""
    assert end.state is not None, end.error
    sample = end.state.sample(end.finish, error=end.error)
    return sample.text, sample.token_ids, sample.logprobs, sample.finish, sample.error


def evict(runner: Runner) -> int:
    """Evict whatever may be; return how many nodes."""
    count = 0
    while runner.tree._evict():
        count += 1
    return count


def scribble(runner: Runner) -> None:
    """From now on, fill every block that is given back with NaN."""
    pool = runner.tree.pool
    give = pool.give

    def given(head: int) -> int:
        chain = chain_of(pool, head)
        pool.keys[:, :, chain] = float("nan")
        pool.values[:, :, chain] = float("nan")
        return give(head)

    pool.give = given
    pool.keys.fill_(float("nan"))
    pool.values.fill_(float("nan"))


def chain_of(pool: Any, head: int) -> list[int]:
    chain: list[int] = []
    while head >= 0:
        chain.append(head)
        assert len(chain) <= pool.num_blocks, "a chain of blocks has a loop"
        head = int(pool.following[head])
    return chain


def recount(runner: Runner, handles: Sequence[KVNode] | None = None) -> None:
    """Count everything that the tree, the pool and the scheduler keep from scratch, and compare.

    Args:
        runner: between two steps. handles: of callers, one a handle; None: they are not counted.
    """
    _blocks(runner)
    _references(runner, handles)
    _residency(runner)
    _table(runner)
    stats = runner.stats
    counts = [
        stats.steps,
        stats.rows,
        stats.prefill_computed,
        stats.prefill_reused,
        stats.recomputed,
        stats.decode_tokens,
        stats.parked,
    ]
    assert min(counts) >= 0, stats


def _blocks(runner: Runner) -> None:
    tree, pool = runner.tree, runner.tree.pool
    owned: list[int] = []
    for node in tree.nodes.values():
        chain = chain_of(pool, int(tree.table.head[node.place]))
        assert len(chain) == node.num_blocks
        assert 0 <= tree.length(node) <= min(len(node.tokens), node.num_blocks * BLOCK)
        owned += chain
    assert len(set(owned)) == len(owned), "a block has two owners"
    assert sorted([*owned, *pool._free]) == list(range(pool.num_blocks)), "a block is lost, or free and owned"
    assert pool.num_used == len(owned) == pool.num_blocks - pool.num_free
    assert pool.num_used <= pool.peak_used <= pool.num_blocks


def _references(runner: Runner, handles: Sequence[KVNode] | None) -> None:
    tree, scheduler = runner.tree, runner._scheduler
    works = scheduler.every()
    children = Counter(node.parent for node in tree.nodes.values() if node.parent is not None)
    resident = Counter(node.parent for node in tree.nodes.values() if node.parent is not None and node.num_blocks)
    pins = Counter(
        each
        for node in [*(work.node for work in scheduler.running), *scheduler._nodes_to_unpin]
        for each in node.path()
    )
    held = Counter(
        [*(handles or ()), *(work.node for work in works), *(writing.node for writing in runner._sample_jobs)]
    )
    for node in tree.nodes.values():
        assert (node.children, node.resident_children, node.pins) == (children[node], resident[node], pins[node])
        if handles is not None:
            assert node.handles == held[node]
        assert node.handles + node.children + node.pins > 0, "a node that nothing refers to lives"
    assert {id(node) for node in [*children, *pins, *held]} <= {id(node) for node in tree.nodes.values()}
    assert tree._pinned_blocks == sum(node.num_blocks for node in tree.nodes.values() if node.pins)
    assert 0 <= tree.reclaimable <= tree.pool.num_blocks
    lines = [work for work in works if isinstance(work, DecodeSequence)]
    assert len({line.node for line in lines}) == len(lines) <= runner._limits.rows
    orders = [work.order for work in scheduler.running]
    assert orders == sorted(orders)


def _residency(runner: Runner) -> None:
    tree = runner.tree
    for work in runner._scheduler.running:
        if work.ready:
            assert all(tree.complete(node) for node in work.node.path()[:-1]), (
                "a path has a hole above work that is ready"
            )
    offered = {(id(node), rank, used) for rank, used, _, node in tree._candidates}
    for node in tree.nodes.values():
        if node.num_blocks and node.parent is not None:
            assert node.parent.num_blocks >= -(-len(node.parent.tokens) // BLOCK), (
                "a node has blocks and its parent has not"
            )
        if node.num_blocks and not node.pins and not node.resident_children:
            assert (id(node), node.rank, node.used) in offered, "a node could be evicted, and nobody knows"


def _table(runner: Runner) -> None:
    tree, table = runner.tree, runner.tree.table
    for place, node in tree.nodes.items():
        assert node.place == place
        above = node.parent
        assert table.parent[place] == (-1 if above is None else above.place)
        assert above is None or above.alive
        assert table.start[place] == node.start == (0 if above is None else above.end)
    assert sorted([*tree.nodes, *tree._places]) == list(range(len(table.parent)))


def assert_empty(runner: Runner) -> None:
    """Assert that a runner keeps nothing."""
    tree = runner.tree
    assert tree.nodes == {}
    assert (tree.pool.num_used, tree._pinned_blocks, tree.reclaimable) == (0, 0, tree.pool.num_blocks)
    assert sorted(tree.pool._free) == list(range(tree.pool.num_blocks))
    assert not runner.busy
    assert runner._scheduler.every() == runner._scheduler._nodes_to_unpin == runner._sample_jobs == []


def law_bits(asked: Asked) -> bytes:
    """Return the bits of the logits that were asked for."""
    assert asked.reading is not None
    return np.stack([each.logprobs for each in asked.reading.result()]).tobytes()


def text_of(size: int, seed: int) -> str:
    """Return a text of so many tokens of the tiny tokenizer, which merges none of its letters."""
    return "".join("kzKZ57?!"[(seed * 5 + i * (i + seed) + i) % 8] for i in range(size))


async def rested(backend: Any) -> None:
    """Return when nothing is under way and the engine's thread has left its last step."""
    runners, end = runners_of(backend), time.monotonic() + LIMIT_S
    while any(runner.busy for runner in runners) or backend._service._stepping.locked():
        assert time.monotonic() < end, "it does not come to rest"
        await asyncio.sleep(0)


async def emptied(backend: Any) -> None:
    """Assert that the policy's runner, and every process model's, keeps nothing when it has come to rest."""
    for _ in range(20):
        await rested(backend)
        for _ in range(20):  # what the engine's thread delivered last may still wait in the loop
            await asyncio.sleep(0)
        gc.collect()  # a failure's frames hold what was asked
        backend.release([])
        if not any(runner.tree.nodes for runner in runners_of(backend)):
            break
    for runner in runners_of(backend):
        assert_empty(runner)


def runners_of(backend: Any) -> list[Runner]:
    return [backend.runner, *(model.runner for model in backend.reward_models.values())]


def script(hand: Hand, sizes: Sequence[int], caps: Sequence[int]) -> list[Asked]:
    """Ask, for each of some prompts, for rows, a longer path with rows of its own, and scores."""
    asked: list[Asked] = []
    for number, size in enumerate(sizes):
        prompt = hand.open(ids_of(size, number))
        longer = hand.extend(prompt.path, ids_of(9, number))
        rows = [[Row(1000 * number + 10 * part + i, 0, cap) for i, cap in enumerate(caps)] for part in (1, 2)]
        asked += [prompt, longer, hand.write(prompt.path, rows[0]), hand.score(longer.path, ids_of(5, number))]
        asked.append(hand.write(longer.path, rows[1]))
    return asked


def told_all(asked: Sequence[Asked]) -> list[Any]:
    """Return all that was answered, to the last bit."""
    assert all(each.done for each in asked)
    answers: list[Any] = []
    for each in asked:
        if each.rows is not None:
            answers.append([told(each.ends[index]) for index in range(len(each.ends))])
        else:
            answers.append(law_bits(each) if each.path is None else each.reading.failure)
    return answers
