"""Decode steps in fixed shapes beside plain ones, on a CPU in Triton's interpreter: what a graph replays, without the
graph.

Collected only by name, in a process whose environment has TRITON_INTERPRET=1 (test_fixed_steps.py).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.backends.conftest import checkpoint_of, tiny_tokenizer
from tests.backends.engine.models import random_model
from tests.backends.engine.stepping import Hand, Path, ids_of, told
from tts.backends.base import Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.engine import decoder as decoder_module
from tts.backends.engine.compiling import fixed_steps
from tts.backends.engine.core import Runner
from tts.backends.engine.device import graphs
from tts.backends.engine.device.graphs import FixedRoom
from tts.backends.engine.linear import DeviceTiledLinear
from tts.backends.engine.loading import EngineOptions, make_runner
from tts.backends.engine.work import DecodeSequence, SampleJob
from tts.backends.kernels import attention_triton, draw_triton, norm_triton, rope_triton
from tts.backends.kernels.attention_triton import is_interpreted
from tts.backends.kernels.draw import DrawRequest, ReadRequest, draw_rows, read_rows
from tts.backends.kernels.host import Team

assert is_interpreted(), "run this in a process with TRITON_INTERPRET=1"
SAMPLING = Sampling(temperature=1.1, top_k=40, top_p=0.95)
CAPS = ((3, 4), (3, 1))  # tokens of each row behind either prompt: steps of three rows, three, and one
LONG = ((6, 6), (6,))  # five steps of three rows
PROMPTS = (3, 17)
# of a strict decode step with one layer: three norms, and a draw in two kernels
LAUNCHES = ["draw_rows", "merge", *["norm_rows"] * 3, "rope_and_write", "sum_blocks", "tree_partial"]


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pad to few runs, since the interpreter runs one program after the other; capture after two steps of a shape."""
    monkeypatch.setattr(graphs, "_NARROW", 4)
    monkeypatch.setattr(graphs, "_WIDE", 2)
    monkeypatch.setattr(graphs, "_STEPS_BEFORE_CAPTURE", 2)


def runner_of(executor: str = "triton_strict", layers: int = 1) -> Runner:
    model = random_model(
        layers=layers, heads=2, kv_heads=1, size=16, hidden=32, intermediate=48, attention_bias=True, context=256
    )
    settings = EngineOptions(device="cpu", executor=executor, threads=1, kv_budget=1 << 20)
    return make_runner(checkpoint_of(model, tiny_tokenizer()), settings)[0]


def written(
    runner: Runner,
    caps: Sequence[Sequence[int]] = CAPS,
    prompts: Sequence[int] = PROMPTS,
    sampling: Sampling = SAMPLING,
) -> list[list[Any]]:
    """Return what rows behind some prompts gave, to the last bit."""
    hand = Hand(runner)
    asked = []
    for number, (size, some) in enumerate(zip(prompts, caps, strict=True)):
        opened = hand.open(ids_of(size, number))
        asked.append(
            hand.write(opened.path, [Row(100 * number + i, 0, cap) for i, cap in enumerate(some)], sampling=sampling)
        )
    hand.run()
    return [[told(one.ends[index]) for index in range(len(one.ends))] for one in asked]


def record_launches(monkeypatch: pytest.MonkeyPatch, record: Callable[..., None]) -> None:
    """Call `record` with each kernel that is launched, its arguments and its options."""

    def launch_at(kernel: Any, *grid: int) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            record(kernel, arguments, **options)
            return kernel[grid](*arguments, **options)

        return call

    for module in (attention_triton, draw_triton, norm_triton, rope_triton):
        monkeypatch.setattr(module, "launch_at", launch_at)


def score_beside_rows(hand: Hand, path: Path, number: int) -> None:
    """Ask for the score of a text, and for a row whose spreads are wanted."""
    hand.score(path, ids_of(4, 5 + number))
    rows = RowSet(SampleRequest(None, (Row(number, 0, 3),), SAMPLING, StopCondition(), spreads=True))
    hand.runner.add_samples(SampleJob(rows, hand.runner.tree.retain(path.node), path.text, lambda _: None))


def kept(runner: Runner) -> tuple[bytes, bytes, dict[str, Any]]:
    """Return every byte of the pool, blocks that nobody has taken included, and every counter."""
    pool = runner.tree.pool
    return pool.keys.numpy().tobytes(), pool.values.numpy().tobytes(), dataclasses.asdict(runner.stats)


@functools.cache
def plain(caps: Sequence[Sequence[int]] = CAPS) -> tuple[list[list[Any]], tuple[bytes, bytes, dict[str, Any]]]:
    """Return what plain steps of a strict runner give and keep."""
    runner = runner_of()
    return written(runner, caps), kept(runner)


def fixed(runner: Runner, rows: int = 8, capture: Any = None) -> list[tuple[int, ...]]:
    """Let a runner's decode steps have fixed shapes; return the shapes, which are added as they come."""
    runner.fixed = fixed_steps(runner.decoder, runner.tree.pool, FixedRoom.of(rows), capture)
    shapes: list[tuple[int, ...]] = []
    plain = runner.fixed._shape

    def shape(sizes: Any, *rest: Any) -> Any:
        shapes.append(tuple(sizes))
        return plain(sizes, *rest)

    runner.fixed._shape = shape  # type: ignore[method-assign]
    return shapes


def on_gpu_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a decoder on a CPU take the products that the strict executor takes on a GPU."""
    monkeypatch.setattr(decoder_module, "make_linear", lambda weight, bias=None, **_: DeviceTiledLinear(weight, bias))


def test_strict_rows_keys_and_counters_are_those_of_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu_products(monkeypatch)
    alone, padded = runner_of(layers=2), runner_of(layers=2)
    shapes = fixed(padded)
    assert written(padded) == written(alone)
    assert kept(padded) == kept(alone)
    assert [tokens for tokens, *_ in shapes] == [4, 4, 1]  # a row's last token is drawn, and not fed


def test_fast_rows_are_those_of_plain_steps() -> None:
    alone, padded = runner_of("triton"), runner_of("triton")
    shapes = fixed(padded, rows=16)
    caps, prompts = ((2,) * 9,), (20,)
    assert written(padded, caps, prompts) == written(alone, caps, prompts)
    assert kept(padded) == kept(alone)
    assert [(tokens, wide) for tokens, _, wide in shapes] == [(16, 0)]  # float32 has no wide tiles


class Captured:
    """Stands for a device's graphs: keeps what was to be captured, and runs it again on whatever the buffers hold
    then.
    """

    def __init__(self, change: Callable[[Runner], None] | None = None) -> None:
        self.runner: Runner | None = None
        self.change = change
        self.count = 0

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        self.count += 1

        def replay() -> None:
            assert self.runner is not None
            operations = self.runner.decoder.operations
            operations._positions = operations._places = operations._work = None  # a graph has no Python to look at
            run()
            if self.change is not None:
                self.change(self.runner)

        return replay


def captured(change: Callable[[Runner], None] | None = None) -> tuple[Runner, Captured]:
    runner, capture = runner_of(), Captured(change)
    fixed(runner, capture=capture)
    capture.runner = runner
    return runner, capture


def test_what_was_captured_runs_later_steps_from_the_buffers_alone() -> None:
    runner, capture = captured()
    assert (written(runner, LONG), kept(runner)) == plain(LONG)
    assert runner.fixed is not None
    assert (capture.count, runner.fixed.replays) == (1, 3)  # of five steps; the second one was captured


def test_a_graph_with_other_bits_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    def change(runner: Runner) -> None:
        assert runner.fixed is not None
        runner.fixed._hidden[0, 0] += 1

    runner, capture = captured(change)
    with caplog.at_level(logging.WARNING, "tts.engine"):
        assert written(runner, LONG) == plain(LONG)[0]
    assert runner.fixed is not None
    assert (capture.count, runner.fixed.replays) == (1, 0)
    assert "decode steps run without further CUDA graphs: a replay has other bits" in caplog.text
    assert "other bits" in runner.fixed.refusal


def test_a_capture_that_fails_leaves_the_step_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    runner = runner_of()
    fixed(runner, capture=fail)
    with caplog.at_level(logging.WARNING, "tts.engine"):
        assert written(runner, LONG) == plain(LONG)[0]
    assert caplog.messages == [
        "decode steps run without further CUDA graphs: CUDA error: operation not permitted when stream is capturing"
    ]


def test_steps_that_do_not_fit_run_as_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    few, short = runner_of(), runner_of()
    shapes = fixed(few, rows=2)
    assert (written(few), kept(few)) == plain()
    assert [tokens for tokens, *_ in shapes] == [1]
    assert few.fixed is not None
    assert few.fixed.misses > 0
    monkeypatch.setattr(graphs, "_NUMBERS", 1)
    shapes = fixed(short)
    assert (written(short), kept(short)) == plain()
    assert shapes == []


def test_only_the_shapes_seen_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_SHAPES", 1)
    runner = runner_of()
    shapes = fixed(runner)
    written(runner)
    assert runner.fixed is not None
    assert len(set(shapes)) == 2
    assert [tuple(shape) for shape in runner.fixed._shapes] == shapes[-1:]


def test_steps_that_read_a_prompt_or_a_text_are_plain_ones() -> None:
    runner = runner_of()
    shapes, seen = fixed(runner), []
    choose = runner._scheduler.choose

    def chosen() -> Any:
        feeds = choose()
        seen.append({isinstance(feed.work, DecodeSequence) for feed in feeds})
        return feeds

    runner._scheduler.choose = chosen  # type: ignore[method-assign]
    hand = Hand(runner)
    first = hand.open(ids_of(3, 1))
    hand.score(first.path, ids_of(2, 2))
    hand.run()
    assert shapes == []
    hand.write(first.path, [Row(1, 0, 4)])
    runner.step()
    runner.step()
    hand.open(ids_of(5, 2))
    hand.run()
    assert {True, False} in seen
    assert len(shapes) == seen.count({True}) > 0


def test_tokens_without_a_place_are_rotated_and_not_written() -> None:
    from tests.backends.kernels.rotations import rotation_case
    from tts.backends.kernels.rope_triton import rope

    (qkv, positions, tables, (blocks, offsets)), _ = rotation_case(1, 2, 16, torch.float32)
    pools = [torch.full((2, 1, 6, 16, 16), 7.0) for _ in range(2)]
    some = blocks.clone()
    some[2] = -1
    queries = [
        rope(qkv, positions, tables, (places, offsets), *pool)
        for places, pool in zip((blocks, some), pools, strict=True)
    ]
    assert torch.equal(*queries)
    assert (pools[1][:, :, 1, 14] == 7).all()
    pools[1][:, :, 1, 14] = pools[0][:, :, 1, 14]
    assert torch.equal(*pools)


@pytest.mark.parametrize(("rows", "caps"), [(1, [[2]]), (8, [[2] * 5, [2]])])
def test_each_kernel_runs_at_load_in_each_form_that_later_steps_need(
    rows: int, caps: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tts.backends.engine.compiling import compile_kernels

    seen: set[tuple[Any, ...]] = set()

    def record(kernel: Any, arguments: Sequence[Any], **options: Any) -> None:
        forms = [
            (argument.dtype, name in draw_triton.ANYWHERE or argument.data_ptr() % 16 == 0)
            for name, argument in zip(inspect.signature(kernel.fn).parameters, arguments, strict=False)
            if isinstance(argument, torch.Tensor)
        ]
        seen.add((kernel.fn.__name__, *forms, *sorted(options.items())))

    record_launches(monkeypatch, record)
    for executor in ("triton", "triton_strict"):
        runner = runner_of(executor)
        compile_kernels(runner.decoder, FixedRoom.of(rows))
        at_load = set(seen)
        assert {name for name, *_ in at_load} >= {"tree_partial", "merge", "rope_and_write", "draw_rows"}
        for sampling in (SAMPLING, Sampling()):
            runner.fixed = None
            written(runner, [caps[0][:2]], (40,), sampling)
            shapes = fixed(runner, rows)
            written(runner, caps, (30, 3)[: len(caps)], sampling)
            assert shapes
        hand = Hand(runner)
        opened = hand.open(ids_of(3, 9))
        hand.run()
        score_beside_rows(hand, opened.path, 1)
        hand.run()
        assert seen == at_load


def test_a_kernel_that_cannot_run_is_one_line_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    from tts.backends.engine.compiling import compile_kernels
    from tts.errors import ConfigError

    runner = runner_of()

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")

    monkeypatch.setattr(runner.decoder.operations.kernels, "attend", fail)
    with pytest.raises(ConfigError, match=r"kernels cannot run on cpu.*C compiler.*gcc") as refused:
        compile_kernels(runner.decoder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_step_of_rows_has_one_copy_to_the_device_and_one_back_and_each_kernel_once_a_layer(
    is_fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tts.backends.engine import core
    from tts.backends.engine.device import memory, operations

    counts = {"up": 0, "down": 0}
    launches: list[str] = []
    record_launches(monkeypatch, lambda kernel, *_, **__: launches.append(kernel.fn.__name__))
    copy, download = memory.StepBuffer.copy, memory.download

    def counted_copy(self: Any, count: int) -> None:
        counts["up"] += 1
        copy(self, count)

    def counted_download(tensor: Any) -> Any:
        counts["down"] += 1
        return download(tensor)

    monkeypatch.setattr(memory.StepBuffer, "copy", counted_copy)
    for module in (core, operations):
        monkeypatch.setattr(module, "download", counted_download)
    runner = runner_of()
    if is_fixed:
        fixed(runner)
    hand = Hand(runner)
    opened = [hand.open(ids_of(5 + number, number)) for number in range(3)]
    hand.run()
    assert counts["down"] == 0, "nothing is read of a prompt that is opened"
    for number, one in enumerate(opened):  # rows of several laws and of several problems
        hand.write(one.path, [Row(9 * number, 0, 4)], sampling=SAMPLING if number else Sampling())
    for step in range(6):
        counts.update(up=0, down=0)
        launches.clear()
        runner.step()
        decodes = counts == {"up": 1, "down": 1} and sorted(launches) == LAUNCHES
        begins = step < 2  # the prompts' last logits, which stay on the device, then the first tokens of all rows
        assert decodes or begins or not runner.busy, (step, counts, launches)
        assert counts["up"] <= 2
        assert counts["down"] <= 2
    hand.run()
    for number, one in enumerate(opened):
        score_beside_rows(hand, one.path, number)
    while runner.busy:
        counts.update(up=0, down=0)
        runner.step()
        # a row that begins has a draw beside those of the step, and readings have a copy of their own
        assert counts["up"] <= 2, counts
        assert counts["down"] <= 3, counts


def test_what_is_read_on_a_device_is_what_the_host_reads_whatever_else_is_read() -> None:
    operations = runner_of().decoder.operations
    logits = (torch.randn(6, 2_500, generator=torch.Generator().manual_seed(1)) * 5).bfloat16().float()
    logits[1, 7], logits[2, :2_000], logits[3] = float("nan"), -float("inf"), -float("inf")
    logits[4, ::3] = 0.0
    logits[4, 1::3] = -0.0
    rows, tokens = np.array([5, 0, 1, 2, 3, 4, 0]), [(3, 2_499), (), (1,), (0, 2_100), (5,), (0, 9), (1_024, 1_023)]
    request = ReadRequest(rows, tokens, top=20)
    found, wanted = operations.read(logits, request), read_rows(logits.numpy(), request)
    assert (
        [one is None for one in found]
        == [one is None for one in wanted]
        == [False, False, True, False, True] + [False] * 2
    )
    for mine, theirs in zip(found, wanted, strict=True):
        if mine is not None and theirs is not None:
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=2e-6)
            assert [token for token, _ in mine.likely] == [token for token, _ in theirs.likely]
            assert [p for _, p in mine.likely] == pytest.approx([p for _, p in theirs.likely], abs=2e-6)
    alone = operations.read(logits, ReadRequest(rows[5:6], tokens[5:6], top=3))
    assert alone[0] is not None
    assert found[5] is not None
    assert alone[0].logprobs.tobytes() == found[5].logprobs.tobytes()
    assert alone[0].likely == found[5].likely[:3]


def test_spreads_and_laws_on_a_device_are_those_of_the_host() -> None:
    operations = runner_of().decoder.operations
    logits = torch.randn(4, 2_500, generator=torch.Generator().manual_seed(2)) * 5
    logits[1, :2_000], logits[2, 3] = -float("inf"), 2_000.0
    laws = [Sampling(temperature=0.7), SAMPLING, Sampling(temperature=0.0), Sampling(temperature=1.0, min_p=0.1)]
    streams, flags = np.arange(8, dtype=np.uint64), np.ones(8, np.bool_)
    words = np.array([3, 0] * 4, np.uint64)
    request = DrawRequest(np.arange(8) % 4, laws * 2, streams, np.arange(8), words, flags, flags)
    found, wanted = operations.draw(logits, request), draw_rows(logits.numpy(), request, Team(1))
    assert found.tokens.tolist() == wanted.tokens.tolist()
    np.testing.assert_allclose(found.sampling_logprobs, wanted.sampling_logprobs, atol=3e-6)
    np.testing.assert_allclose(found.spreads, wanted.spreads, rtol=3e-6, atol=3e-6)
    few = operations.draw(logits[1:2], request.take_rows(np.array([5]))._replace(rows=np.zeros(1, np.int64)))
    assert few.spreads.tobytes() == found.spreads[5:6].tobytes()
    assert few.sampling_logprobs.tobytes() == found.sampling_logprobs[5:6].tobytes()
