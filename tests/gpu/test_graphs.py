"""CUDA graphs of decode steps on a GPU: replays give what the kernels give one by one, and write nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from tests.backends.conftest import checkpoint_of, tiny_tokenizer  # noqa: E402
from tests.backends.engine.models import random_model  # noqa: E402
from tests.backends.engine.stepping import Hand, ids_of, told  # noqa: E402
from tts.backends.base import Row  # noqa: E402
from tts.backends.engine.core import Runner  # noqa: E402
from tts.backends.engine.loading import EngineOptions, make_runner  # noqa: E402

pytestmark = pytest.mark.gpu
TOKENS = 40  # a shape is captured when it has come eight times
ROWS = (1, 3, 17)  # behind each of three prompts, written one prompt after another, then all together


def written(graphs: bool, **options: Any) -> tuple[Runner, list[Any]]:
    """Return a runner, and what rows in batches of several sizes gave, to the last bit."""
    model = random_model("qwen2", layers=4, heads=14, kv_heads=2, size=64, hidden=896, intermediate=4864)
    settings = EngineOptions(device="cuda", kv_budget=1 << 28, cuda_graphs=graphs, **options)
    runner, _ = make_runner(checkpoint_of(model, tiny_tokenizer()), settings)
    runner._eos = frozenset()  # every row is as long as it may be
    hand, found = Hand(runner), []
    for together in (False, True):
        asked = []
        for number, count in enumerate(ROWS):
            prompt = hand.open(ids_of(150 * (number + 1), number))
            asked.append(hand.write(prompt.path, [Row(100 * number + row, 0, TOKENS) for row in range(count)]))
            if not together:
                hand.run()
        hand.run()
        found += [told(end) for one in asked for end in one.ends.values()]
    return runner, found


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_graphs_give_exact_rows_the_bits_of_their_kernels_one_by_one(precision: str) -> None:
    (plain, wanted), (runner, found) = (
        written(graphs, executor="strict", precision=precision) for graphs in (False, True)
    )
    assert found == wanted
    assert plain.fixed is None
    assert runner.fixed is not None
    assert runner.fixed.replays > runner.stats.steps / 2
    assert dataclasses.asdict(runner.stats) == dataclasses.asdict(plain.stats)
    blocks = min(runner.tree.pool.num_blocks, plain.tree.pool.num_blocks)  # the buffers take some of the budget
    for name in ("keys", "values"):
        pools = [getattr(each.tree.pool, name) for each in (runner, plain)]
        assert torch.equal(*(pool[:, :, :blocks] for pool in pools)), "a step wrote elsewhere"
        assert not any(pool[:, :, blocks:].any() for pool in pools)


def test_graphs_of_fast_steps_agree_with_their_kernels_one_by_one() -> None:
    (_, wanted), (runner, found) = (written(graphs, executor="triton", precision="float32") for graphs in (False, True))
    assert runner.fixed is not None
    assert runner.fixed.replays > runner.stats.steps / 2
    # of each row: later ones may part where two tokens are nearly tied
    first = [(row[1][0], row[2][0]) for row in found]
    assert [token for token, _ in first] == [row[1][0] for row in wanted]
    assert [logprob for _, logprob in first] == pytest.approx([row[2][0] for row in wanted], abs=1e-4)
    alike = sum(row[1] == other[1] for row, other in zip(found, wanted, strict=True))
    assert alike >= 0.9 * len(wanted)
    for row, other in zip(found, wanted, strict=True):
        if row[1] == other[1]:
            assert row[2] == pytest.approx(other[2], abs=1e-3)
