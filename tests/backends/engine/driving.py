"""Short words for driving the engine: a step loop on its own, trees of random tokens, and the bytes of keys and
values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

from tests.backends.conftest import checkpoint_of, tiny_tokenizer  # noqa: E402
from tests.support.guard import LIMIT_S  # noqa: E402
from tts.backends.engine.core import Runner  # noqa: E402
from tts.backends.engine.loading import EngineOptions, make_runner  # noqa: E402
from tts.backends.engine.tree import KVNode  # noqa: E402
from tts.backends.engine.work import PrefillJob  # noqa: E402
from tts.backends.kernels.plan import BLOCK  # noqa: E402


def runner_of(model: Any, **options: Any) -> Runner:
    """Return the step loop of a model of the transformers library, on one thread unless told otherwise."""
    return make_runner(
        checkpoint_of(model, tiny_tokenizer()), EngineOptions(**{"device": "cpu", "threads": 1, **options})
    )[0]


def grow(runner: Runner, forest: Sequence[tuple[int, int, int]], seed: int = 0) -> list[KVNode]:
    """Add a forest of `tests/backends/kernels/trees.py` with random tokens; nothing is read yet."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    nodes: list[KVNode] = []
    for parent, length, _ in forest:
        tokens = draw.integers(0, runner.decoder.config.vocab, length).tolist()
        nodes.append(runner.tree.add(nodes[parent] if parent >= 0 else None, tokens))
    return nodes


def read(runner: Runner, nodes: Sequence[KVNode], *, logits: bool = True) -> list[np.ndarray]:
    """Read nodes together; return the log-probabilities of all tokens, or hidden states, at every token of each."""
    found: dict[int, np.ndarray] = {}
    for i, node in enumerate(nodes):

        def done(job: PrefillJob, i: int = i) -> None:
            found[i] = np.stack([each.logprobs for each in job.result()] if logits else job.result())

        size = len(node.tokens)
        tokens = [range(runner.decoder.config.vocab)] * size if logits else None
        runner.add_prefill(PrefillJob(runner.tree.retain(node), size, 0, done, tokens))
    while runner.busy:
        runner.step()
    return [found[i] for i in range(len(nodes))]


def path_ids(node: KVNode) -> list[int]:
    return [token for each in node.path() for token in each.tokens]


def leaves(nodes: Sequence[KVNode]) -> list[KVNode]:
    return [node for node in nodes if not node.children]


def path_kv(runner: Runner, node: KVNode) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of the keys and values of a path, each [layers, heads, tokens, head size], read through the table
    and the chains.
    """
    tree, pool = runner.tree, runner.tree.pool
    keys, values = [], []
    for each in node.path():
        assert tree.complete(each), "keys and values of this path are not all there"
        block = int(tree.table.head[each.place])
        for first in range(0, len(each.tokens), BLOCK):
            count = min(BLOCK, len(each.tokens) - first)
            keys.append(pool.keys[:, :, block, :, :count].transpose(-1, -2).numpy())
            values.append(pool.values[:, :, block, :count].numpy())
            block = int(pool.following[block])
    return np.concatenate(keys, 2).copy(), np.concatenate(values, 2).copy()


def kv_bytes(runner: Runner, node: KVNode) -> tuple[bytes, bytes]:
    keys, values = path_kv(runner, node)
    return keys.tobytes(), values.tobytes()


def node_of(backend: Any, handle: Any) -> KVNode:
    return backend._states[handle].node


def run(backend: Any, main: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine and close the backend."""

    async def whole() -> Any:
        try:
            return await asyncio.wait_for(main(), LIMIT_S)
        finally:
            await backend.close()

    return asyncio.run(whole())
