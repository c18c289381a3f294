"""Decode steps in fixed shapes: their bits in Triton's interpreter, the padding, the option, and the memory of the
buffers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the tiny model is one of the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import checkpoint_of, tiny_model, tiny_tokenizer  # noqa: E402
from tests.backends.kernels.test_triton import STEPS, interpret  # noqa: E402
from tests.backends.kernels.trees import FORESTS, make_plan  # noqa: E402
from tts.backends.engine import loading  # noqa: E402
from tts.backends.engine.device.graphs import FixedRoom  # noqa: E402
from tts.backends.engine.loading import EngineOptions, make_runner  # noqa: E402
from tts.backends.kernels.lowering import WorkShape, lower, pad_work  # noqa: E402
from tts.backends.kernels.plan import BLOCK  # noqa: E402
from tts.errors import ConfigError, KVBudgetError  # noqa: E402


@pytest.mark.slow  # the first of them run with the kernels, in test_triton.py
@pytest.mark.parametrize("part", ["at_load", "not at_load"])
def test_steps_in_fixed_shapes_are_those_of_plain_ones_in_the_interpreter(part: str) -> None:
    pytest.importorskip("triton")
    interpret(part, STEPS)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", FORESTS)
def test_padding_adds_queries_without_slots_and_items_without_blocks_or_queries(name: str, strict: bool) -> None:
    work = lower(make_plan(FORESTS[name])[0], group=2, split=64, strict=strict)
    queries, wide = len(work.positions), len(work.items) - work.num_narrow
    more = pad_work(work, WorkShape(queries + 3, work.num_narrow + 5, wide + 2))
    assert more.num_narrow == work.num_narrow + 5
    assert more.positions.tolist() == [*work.positions.tolist(), 0, 0, 0]
    assert np.array_equal(more.items[: work.num_narrow], work.items[: work.num_narrow])
    assert np.array_equal(more.items[more.num_narrow : more.num_narrow + wide], work.items[work.num_narrow :])
    added = np.concatenate([more.items[work.num_narrow : more.num_narrow], more.items[more.num_narrow + wide :]])
    assert len(added) == 7
    assert (added[:, 0] == added[:, 1]).all()
    assert (added[:, 2] == added[:, 3]).all()
    assert np.diff(more.first_slots).tolist() == [*np.diff(work.first_slots).tolist(), 0, 0, 0]
    assert more.items.dtype == more.positions.dtype == more.first_slots.dtype == np.int32
    assert (more.blocks is work.blocks, more.slots is work.slots) == (True, True)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (3, 4), (8, 8), (9, 16), (20, 32), (256, 256), (1000, 256)])
def test_there_is_room_for_all_rows_up_to_256(rows: int, tokens: int) -> None:
    assert FixedRoom.of(rows).tokens == tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuda_graphs": 3}, "cuda_graphs is 3, but must be True, False or None"),
        ({"cuda_graphs": "yes"}, "cuda_graphs is 'yes', but must be True, False or None"),
        (
            {"cuda_graphs": True, "device": "cpu"},
            "cuda_graphs is True, but the device is cpu, which has none.*leave it out",
        ),
    ],
)
def test_graphs_that_cannot_be_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        EngineOptions(**options)
    assert "\n" not in str(refused.value)


def test_graphs_are_on_where_a_cuda_device_runs_triton_kernels() -> None:
    def on(**options: Any) -> bool:
        return EngineOptions(**{"device": "cuda", **options}).graphs

    assert on()
    assert on(executor="strict")
    assert on(cuda_graphs=True)
    assert not on(cuda_graphs=False)
    assert not on(device="cpu")
    assert not on(device="cpu", executor="triton")


def runner_with_graphs(monkeypatch: pytest.MonkeyPatch, budget: int, **options: Any) -> Any:
    """Return a runner on this CPU that has the buffers of a device's graphs."""
    pytest.importorskip("triton")
    monkeypatch.setattr(EngineOptions, "graphs", True)
    monkeypatch.setattr(loading, "CudaCapture", lambda _: None)
    tokenizer = tiny_tokenizer()
    settings = EngineOptions(device="cpu", executor="triton_strict", threads=1, kv_budget=budget, max_rows=4)
    return make_runner(checkpoint_of(tiny_model(len(tokenizer)), tokenizer), settings, **options)[0]


def test_the_buffers_count_as_a_part_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = 1 << 21
    runner = runner_with_graphs(monkeypatch, budget)
    fixed, pool = runner.fixed, runner.tree.pool
    graphs = fixed._numbers.device.nbytes + fixed._hidden.nbytes
    assert graphs == FixedRoom.of(4).nbytes(runner.decoder.config, torch.float32) > 0
    buffers = graphs + sum(part.nbytes for part in runner.decoder.operations.room)
    block = BLOCK * runner.decoder.kv_shape.bytes_per_token
    assert budget - block < pool.keys.nbytes + pool.values.nbytes + buffers <= budget
    assert fixed.pool is pool
    message = (
        f"kv_budget is {buffers + block - 1} bytes, but one block of {BLOCK} tokens takes {block}, and the "
        f"buffers of steps {buffers}"
    )
    with pytest.raises(KVBudgetError, match=message + ".*max_rows"):
        runner_with_graphs(monkeypatch, buffers + block - 1)
    assert runner_with_graphs(monkeypatch, buffers + block).tree.pool.num_blocks == 1


def test_a_model_without_logits_writes_nothing_and_has_no_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with_graphs(monkeypatch, 1 << 21, output_layer=False)
    assert runner.fixed is None
    left = (1 << 21) - runner.decoder.operations.nbytes
    assert runner.tree.pool.num_blocks == left // (BLOCK * runner.decoder.kv_shape.bytes_per_token)
