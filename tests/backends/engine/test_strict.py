"""The strict executor's promise: a path's tokens, log-probabilities, hidden states, keys and values are its own to the
last bit, whatever else is under way, in what pieces they were computed, and whether they had to be computed again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

from tests.backends.conftest import engine_of, tiny_tokenizer  # noqa: E402
from tests.backends.engine.driving import grow, kv_bytes, node_of, read, run, runner_of  # noqa: E402
from tests.backends.engine.models import random_model  # noqa: E402
from tests.backends.kernels.trees import FORESTS, forest, ragged  # noqa: E402
from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition  # noqa: E402
from tts.backends.engine.linear import torch_threads  # noqa: E402
from tts.backends.kernels.host import Team  # noqa: E402

WARM = Sampling(temperature=0.9)
FILTERED = Sampling(temperature=1.1, top_k=40, top_p=0.95, min_p=0.01)
PROMPTS = ("the cat and the other one of the things in the end", "12 + 12 =", "a")
FORCED = " of the and then\n"


@cache
def model_of(name: str) -> Any:
    """Narrow, or wide enough that oneDNN has other code for one row than for two, and that two threads share a
    product.
    """
    if name == "wide":
        return random_model(heads=8, kv_heads=2, size=32, hidden=256, intermediate=1600)
    return random_model(heads=6, kv_heads=2, size=48, attention_bias=True)


def engine(name: str = "narrow", **options: Any) -> Any:
    return engine_of(model_of(name), tiny_tokenizer(), **{"threads": 1, **options})


class Fact(NamedTuple):
    """What is known of one path, to be equal to the last bit."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    read: tuple[bytes, bytes, bytes]
    kv: str


async def written(
    backend: Any, handle: Any, rows: Sequence[Row], sampling: Sampling = WARM, text: str = ""
) -> list[Sample]:
    asked = backend.sample(SampleRequest(handle, tuple(rows), sampling, StopCondition(), text))
    await asked.drain()
    return list(asked.samples)


async def searched(backend: Any, which: int, *, apart: bool = False, backwards: bool = False) -> list[Sample]:
    """A small search below one prompt: a forced text, rows behind it, a forced text behind one of them, and rows behind
    that.
    """
    [opened] = await backend.open([PROMPTS[which]])
    [longer] = await backend.extend([opened.value], [FORCED])
    rows = [Row(10 * which + stream, 0, 20 + 9 * stream) for stream in range(3)]
    if backwards:
        rows.reverse()
    if apart:
        groups = await asyncio.gather(*(written(backend, longer.value.handle, [row]) for row in rows))
        first = [sample for group in groups for sample in group]
    else:
        first = await written(backend, longer.value.handle, rows)
    if backwards:
        first.reverse()
    [below] = await backend.extend([first[1].handle], [FORCED])
    second = await written(backend, below.value.handle, [Row(77 + which, 29, 35), Row(78 + which, 29, 3)], FILTERED)
    return [*first, *second]


async def facts(backend: Any, samples: Sequence[Sample]) -> list[Fact]:
    """Ask everything of paths, once nothing else is under way."""
    found = []
    for sample in samples:
        [scores] = await backend.score([sample.handle], ["and the end"])
        [following] = await backend.next_logprobs([sample.handle], ["x"], ["a", "the"])
        [hidden] = await backend.hidden([sample.handle])
        kv = hashlib.sha256(b"".join(kv_bytes(backend.runner, node_of(backend, sample.handle)))).hexdigest()
        values = (hidden.value.tobytes(), scores.value.tobytes(), following.value.tobytes())
        found.append(Fact(sample.token_ids, sample.logprobs, sample.finish, values, kv))
    return found


def alone(name: str = "narrow", which: int = 0, **options: Any) -> list[Fact]:
    backend = engine(name, **options)

    async def main() -> list[Fact]:
        return await facts(backend, await searched(backend, which))

    return run(backend, main)


@cache
def expected(name: str = "narrow", which: int = 0, precision: str = "float32") -> list[Fact]:
    return alone(name, which, precision=precision)


async def companions(backend: Any, seed: int) -> None:
    """Unrelated work of every kind, in a random order, some of it cancelled."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    letters = list("abc the 12+\n")

    async def one() -> None:
        for _ in range(int(draw.integers(0, 5))):
            await asyncio.sleep(0)
        prompt = "".join(draw.choice(letters, int(draw.integers(1, 90))).tolist())
        [opened] = await backend.open([prompt])
        rows = tuple(
            Row(int(draw.integers(1 << 40)), 0, int(draw.integers(1, 50))) for _ in range(int(draw.integers(1, 5)))
        )
        asked = backend.sample(SampleRequest(opened.value, rows, FILTERED, StopCondition()))
        if draw.random() < 0.3:
            await asyncio.sleep(0)
            asked.cancel()
        await asked.drain()
        [more] = await backend.extend([opened.value], [prompt[::-1]])
        await backend.score([more.value.handle, opened.value], [prompt, "the"])
        await backend.hidden([more.value.handle])

    await asyncio.gather(*(one() for _ in range(6)))


# Companions, orders, groupings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["narrow", "wide"])
@pytest.mark.parametrize("seed", range(3))
def test_companions_change_no_bit(name: str, seed: int) -> None:
    backend = engine(name)

    async def main() -> list[Fact]:
        [_, samples] = await asyncio.gather(companions(backend, seed), searched(backend, 0))
        return await facts(backend, samples)

    assert run(backend, main) == expected(name)
    assert max(backend.stats.rows_histogram) > 3, "nothing shared a step: the test saw nothing"


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_other_problems_and_their_order_change_no_bit(order: tuple[int, ...]) -> None:
    backend = engine()

    async def main() -> dict[int, list[Fact]]:
        found = dict(zip(order, await asyncio.gather(*(searched(backend, which) for which in order)), strict=True))
        return {which: await facts(backend, found[which]) for which in order}

    assert run(backend, main) == {which: expected(which=which) for which in order}


@pytest.mark.slow
@pytest.mark.parametrize("grouping", [{"apart": True}, {"backwards": True}, {"apart": True, "backwards": True}])
def test_how_rows_are_asked_for_changes_no_bit(grouping: dict[str, bool]) -> None:
    backend = engine()

    async def main() -> list[Fact]:
        return await facts(backend, await searched(backend, 0, **grouping))

    assert run(backend, main) == expected()


def test_rows_that_are_asked_for_later_change_no_bit() -> None:
    """The law behind a node is kept for a while, then read again."""
    backend = engine()
    row = Row(3, 0, 12)

    async def main() -> None:
        [opened, *others] = await backend.open([PROMPTS[0], *(f"{i} of them" for i in range(70))])
        [first] = await written(backend, opened.value, [row])
        before = backend.stats.recomputed
        [again] = await written(backend, opened.value, [row])
        assert backend.stats.recomputed == before
        await asyncio.gather(*(written(backend, other.value, [row]) for other in others))
        before = backend.stats.recomputed
        [late] = await written(backend, opened.value, [row])
        assert backend.stats.recomputed == before + 1, "the law was still kept"
        for sample in (again, late):
            assert (sample.token_ids, sample.logprobs) == (first.token_ids, first.logprobs)

    run(backend, main)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"max_rows": 1},
        {"max_rows": 3},
        {"step_tokens": 1},
        {"step_tokens": 7},
        {"step_tokens": 64},
        {"share": False},
        {"max_rows": 2, "step_tokens": 5, "share": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["narrow", "wide"])
def test_limits_of_a_step_and_sharing_change_no_bit(name: str, options: dict[str, Any]) -> None:
    backend = engine(name, **options)

    async def main() -> list[Fact]:
        _, samples = await asyncio.gather(companions(backend, 9), searched(backend, 0))
        return await facts(backend, samples)

    assert run(backend, main) == expected(name)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"max_rows": 1}, {"step_tokens": 7}, {"share": False}], ids=str)
def test_int8_keeps_the_promise(options: dict[str, Any]) -> None:
    assert alone("wide", precision="int8", **options) == expected("wide", precision="int8")
    assert expected("wide", precision="int8") != expected("wide")


# Threads --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["narrow", "wide"])
@pytest.mark.parametrize(("threads", "torchs"), [(2, 2), (1, 2), (2, 1)])
def test_a_second_thread_changes_no_bit(
    name: str, precision: str, threads: int, torchs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    cuts = Team.cuts

    def always(team: Team, rows: int, work: int, *, worth: int = 0) -> list[tuple[int, int]]:
        found = cuts(team, rows, work, worth=1)
        parts.append(len(found))
        return found

    want = expected(name, precision=precision)
    monkeypatch.setattr(Team, "cuts", always)
    with torch_threads(torchs):
        found = alone(name, threads=threads, precision=precision)
    assert max(parts) == threads
    assert found == want


@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow", "wide"])
def test_many_rows_on_two_threads_are_each_as_on_one_thread_alone(name: str) -> None:
    """So many rows that threads may take some each for themselves, some of which end before others."""

    async def main(backend: Any, streams: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        [opened] = await backend.open([PROMPTS[0]])
        rows = [Row(stream, 0, 8 + stream % 40) for stream in streams]
        samples = await written(backend, opened.value, rows)
        found = {}
        for stream, sample in zip(streams, samples, strict=True):
            [hidden] = await backend.hidden([sample.handle])
            kv = kv_bytes(backend.runner, node_of(backend, sample.handle))
            found[stream] = (sample.token_ids, sample.logprobs, hidden.value.tobytes(), kv)
        return found

    with torch_threads(2):
        backend = engine(name, threads=2)
        together = run(backend, lambda: main(backend, range(60)))
    assert max(backend.stats.rows_histogram) >= 60
    for some in ([0], [39, 17], range(20, 30)):
        alone = engine(name)
        found = run(alone, lambda some=some, alone=alone: main(alone, some))
        assert found == {stream: together[stream] for stream in some}


# Pieces and recomputation ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow", "wide"])
@pytest.mark.parametrize("step_tokens", [1, 7, 16, 64, 256])
def test_a_text_that_is_read_has_the_bits_of_the_same_tokens_drawn(name: str, step_tokens: int) -> None:
    backend = engine(name, step_tokens=step_tokens)

    async def main() -> None:
        [opened] = await backend.open([PROMPTS[0]])
        [sample] = await written(backend, opened.value, [Row(5, 0, 75)])
        assert sample.num_tokens > 64
        backend._renderer.text = lambda text: sample.token_ids  # a tokenizer might cut the text otherwise
        [forced] = await backend.extend([opened.value], ["..."])
        assert node_of(backend, forced.value.handle) is not node_of(backend, sample.handle)
        both = [sample.handle, forced.value.handle]
        hidden = [reply.value.tobytes() for reply in await backend.hidden(both)]
        kv = [kv_bytes(backend.runner, node_of(backend, handle)) for handle in both]
        assert hidden[0] == hidden[1]
        assert kv[0] == kv[1]
        [scores] = await backend.score([opened.value], ["..."])
        # a sum in float32 and one in float64
        assert tuple(scores.value.tolist()) == pytest.approx(sample.logprobs, abs=2e-6)

    run(backend, main)


def evict_all(backend: Any) -> None:
    """Evict everything, once the last step has ended, and leave garbage in its place."""
    tree = backend.runner.tree
    with backend._service._stepping:
        while tree._evict():
            pass
        backend.runner._kept_logits.clear()
    assert tree.pool.num_used == 0
    tree.pool.keys[:], tree.pool.values[:] = 7e4, -7e4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow", "wide"])
@pytest.mark.parametrize("step_tokens", [1, 7, 256])
def test_what_was_evicted_is_computed_again_to_the_same_bits(name: str, step_tokens: int) -> None:
    want, backend = expected(name), engine(name, step_tokens=step_tokens, kv_budget=4 << 20)

    async def main() -> None:
        samples = await searched(backend, 0)
        assert await facts(backend, samples) == want
        evict_all(backend)
        before = backend.stats.recomputed
        assert await facts(backend, samples[::-1]) == want[::-1]
        assert backend.stats.recomputed > before
        evict_all(backend)
        again = await written(backend, samples[2].handle, [Row(3, 0, 9)])
        evict_all(backend)
        assert [s.logprobs for s in again] == [
            s.logprobs for s in await written(backend, samples[2].handle, [Row(3, 0, 9)])
        ]

    run(backend, main)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [17, 24])
def test_short_memory_changes_no_bit(blocks: int) -> None:
    backend = engine(kv_budget=blocks * 16 * 2 * 2 * 2 * 48 * 4)
    assert backend.runner.tree.pool.num_blocks == blocks

    async def main() -> list[Fact]:
        _, samples = await asyncio.gather(companions(backend, 4), searched(backend, 0))
        return await facts(backend, samples)

    assert run(backend, main) == expected()
    assert backend.stats.evictions > 0
    assert backend.stats.recomputed > 0
    assert blocks > 17 or backend.stats.parked > 0


# Forks ----------------------------------------------------------------------------------------------------------------


def test_children_neither_touch_their_parent_nor_each_other() -> None:
    forced = ["the end", "12 + 1", "\n", "and so on, and so on, and so on"]

    async def below(backend: Any, texts: Sequence[str]) -> tuple[list[tuple[Any, ...]], bool]:
        [opened] = await backend.open([PROMPTS[0]])
        forks = backend.fork(opened.value, len(texts))
        node = node_of(backend, opened.value)
        await backend.hidden(forks)
        before = kv_bytes(backend.runner, node)
        longer = [reply.value.handle for reply in await backend.extend(forks, texts)]
        rows = await asyncio.gather(*(written(backend, handle, [Row(8, 0, 30)]) for handle in longer))
        found = []
        for [sample] in rows:
            [hidden] = await backend.hidden([sample.handle])
            kv = kv_bytes(backend.runner, node_of(backend, sample.handle))
            found.append((sample.token_ids, sample.logprobs, hidden.value.tobytes(), kv))
        return found, kv_bytes(backend.runner, node) == before

    def told(texts: Sequence[str]) -> tuple[list[tuple[Any, ...]], bool]:
        backend = engine()
        return run(backend, lambda: below(backend, texts))

    together, unchanged = told(forced)
    assert unchanged
    assert together == [told([text])[0][0] for text in forced]
    assert len({ids for ids, *_ in together}) > 1


# Trees in the step loop -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["caterpillar", "binary", "star", "random"])
def test_every_path_of_a_tree_is_its_own(shape: str) -> None:
    """All nodes read together, against every leaf's path on a loop of its own, and in other steps."""
    nodes_of = forest(*(ragged(seed, 10) for seed in (3, 4))) if shape == "random" else FORESTS[shape]
    model = model_of("narrow")

    def read_all(order: Callable[[list[Any]], list[Any]], **options: Any) -> dict[int, tuple[bytes, bytes, bytes]]:
        runner = runner_of(model, **options)
        nodes = grow(runner, nodes_of, seed=2)
        asked = order(nodes)
        laws = dict(zip([nodes.index(node) for node in asked], read(runner, asked), strict=True))
        return {i: (laws[i].tobytes(), *kv_bytes(runner, nodes[i])) for i in laws}

    together = read_all(list)
    assert read_all(lambda nodes: nodes[::-1], step_tokens=23) == together
    assert read_all(list, share=False) == together
    for i, leaf in enumerate(grow(runner_of(model), nodes_of, seed=2)):
        if not leaf.children:
            assert read_all(lambda nodes, i=i: [nodes[i]]) == {i: together[i]}
