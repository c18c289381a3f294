"""Whole steps of the engine: bits of rows, agreement with transformers, and decode steps of 8B."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.cases import compare
from benchmarks.gpu.ceilings import least_seconds, wait
from benchmarks.gpu.day import Case, Day
from benchmarks.gpu.kernels import draw_arguments
from benchmarks.gpu.model import StepShape, step_bytes
from benchmarks.gpu.models import Loaded, load_both
from tts.backends.base import Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.engine import decoder as decoder_module
from tts.backends.engine.compiling import fixed_steps
from tts.backends.engine.core import Runner
from tts.backends.engine.device import graphs
from tts.backends.engine.device.graphs import FixedRoom
from tts.backends.engine.linear import DeviceTiledLinear, PlainLinear
from tts.backends.engine.loading import EngineOptions, make_runner
from tts.backends.engine.work import RowEnd, SampleJob
from tts.backends.kernels import draw_triton
from tts.backends.text.row_state import PathText

_LAW = Sampling(temperature=1.1, top_k=40, top_p=0.95)
_PLAIN = Sampling(temperature=1.0)
_KV_BUDGET = 1 << 29
_PART = 1024  # tokens that transformers reads at once


def make_engine(both: Loaded, precision: str, day: Day, *, strict: bool, budget: int = _KV_BUDGET) -> Runner:
    """Return the step loop of a model whose decode steps are graphs.

    On a CPU a graph is a call of its kernels in the fixed shapes of a graph.
    """
    if day.device == "cuda":
        executor = "strict" if strict else "triton"
        settings = EngineOptions(device="cuda", executor=executor, precision=precision, kv_budget=budget, max_rows=256)
        runner, _ = make_runner(both.checkpoint, settings)
    else:
        layer = DeviceTiledLinear if strict else PlainLinear  # a card's products, in place of those of numba
        decoder_module.make_linear = lambda weight, bias=None, **_: layer(weight, bias)
        graphs._NARROW, graphs._WIDE, graphs._STEPS_BEFORE_CAPTURE = 4, 2, 2  # the interpreter runs each program
        executor = "triton_strict" if strict else "triton"
        settings = EngineOptions(device="cpu", executor=executor, threads=1, kv_budget=1 << 25, max_rows=64)
        runner, _ = make_runner(both.checkpoint, settings)
        room = FixedRoom.of(64)
        runner.fixed = fixed_steps(runner.decoder, runner.tree.pool, room, capture=lambda run: run)
    runner._eos = frozenset()  # every row is as long as it may be
    return runner


def add_rows(
    runner: Runner, ids: Sequence[int], streams: Sequence[int], tokens: int, law: Sampling = _LAW
) -> list[RowEnd]:
    """Ask for rows behind a prompt, and return the list that their ends are added to."""
    ends: list[RowEnd] = []
    request = SampleRequest(None, tuple(Row(stream, 0, tokens) for stream in streams), law, StopCondition())
    runner.add_samples(SampleJob(RowSet(request), runner.tree.add(None, ids), PathText.skip(ids), ends.append))
    return ends


def tell(runner: Runner, ends: Sequence[RowEnd]) -> list[tuple[list[int], list[float]]]:
    """Return the tokens and log-probabilities of rows, in order, and give up their nodes.

    Raises:
        RuntimeError: A row ended with an error.
    """
    told: list[tuple[list[int], list[float]]] = []
    for end in sorted(ends, key=lambda end: end.index):
        if end.state is None or end.node is None:
            raise RuntimeError(f"a row ended: {end.error}")
        told.append((list(end.state.ids), list(end.state.logprobs)))
        runner.tree.release(end.node)
    return told


def finish(*runners: Runner) -> None:
    """Step some runners in turn until none has work."""
    while any(runner.busy for runner in runners):
        for runner in runners:
            if runner.busy:
                runner.step()


def prompt_of(length: int, vocabulary: int) -> list[int]:
    """Return the tokens of a prompt."""
    return [1 + (7919 + i * (i + 3) * 31) % (vocabulary - 1) for i in range(length)]


# bits -----------------------------------------------------------------------------------------------------------------


def _model_of(day: Day, kind: str = "qwen2") -> str:
    return ("dot" if day.smoke else "small") + ("-llama" if kind == "llama" else "")


def _check_bits(precision: str, day: Day) -> dict[str, Any]:
    """Write one row in batches of several sizes, with graphs and without, and by two engines in turns."""
    both = load_both(_model_of(day), precision, day.device)
    sizes, tokens = ((1, 3), 4) if day.smoke else ((1, 3, 17, 129), 24)
    first, second = (make_engine(both, precision, day, strict=True) for _ in range(2))
    prompt = prompt_of(9 if day.smoke else 300, both.vocabulary)
    told: dict[str, list[Any]] = {"on": [], "off": []}
    fixed = first.fixed
    assert fixed is not None
    for size in sizes:
        for way, each in (("on", fixed), ("off", None)):
            first.fixed = each
            ends = add_rows(first, prompt, range(size)[::-1], tokens)
            finish(first)
            told[way].append(tell(first, ends)[::-1])
    first.fixed = fixed
    ends = [add_rows(runner, prompt, range(sizes[-1])[::-1], tokens) for runner in (first, second)]
    finish(first, second)
    found = [tell(runner, each)[::-1] for runner, each in zip((first, second), ends, strict=True)]
    most = told["on"][-1]
    # numpy's products give rows of a tile bits by their places, and the row of stream 0 is first in each batch
    num_compared = 1 if day.smoke else sizes[-1]
    bits = {
        "with_graphs_as_without": told["on"] == told["off"],
        "in_every_batch": all(rows[:num_compared] == most[: min(num_compared, len(rows))] for rows in told["on"]),
        "beside_a_second_engine": found == [most] * 2,
    }
    return {
        "rows": ", ".join(map(str, sizes)),
        **bits,
        "replays": fixed.replays,
        "refusal": fixed.refusal,
        "agrees": all(bits.values()) and not fixed.refusal and fixed.replays > 0,
    }


def _check_agreement(kind: str, precision: str, length: int, day: Day) -> dict[str, Any]:
    """Compare the probabilities of drawn tokens with those of transformers on the same weights."""
    both = load_both(_model_of(day, kind), precision, day.device)
    runner = make_engine(both, precision, day, strict=False)
    prompt = prompt_of(length, both.vocabulary)
    ends = add_rows(runner, prompt, range(2), 4 if day.smoke else 16, _PLAIN)
    finish(runner)
    told = tell(runner, ends)
    ours = [[math.exp(logprob) for logprob in logprobs] for _, logprobs in told]
    theirs = [_ask_transformers(both, prompt, ids) for ids, _ in told]
    if precision == "float32":
        return {"prompt": length, **compare(ours, theirs)}
    both.model.float()  # the weights as bfloat16 has rounded them
    return {"prompt": length, **compare(ours, [_ask_transformers(both, prompt, ids) for ids, _ in told], theirs)}


def _ask_transformers(both: Loaded, prompt: Sequence[int], ids: Sequence[int]) -> list[float]:
    """Return the probabilities of tokens behind a prompt, which is read in parts so that no mask is large."""
    device, read = both.model.device, None
    parts = [prompt[first : min(first + _PART, len(prompt) - 1)] for first in range(0, len(prompt) - 1, _PART)]
    with torch.inference_mode():
        for part in [*parts, [prompt[-1], *ids[:-1]]]:
            tokens = torch.tensor([part], device=device)
            cache = None if read is None else read.past_key_values
            read = both.model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=len(ids))
    assert read is not None
    laws = read.logits[0].double().softmax(-1)
    return laws.gather(1, torch.tensor(ids, device=device)[:, None])[:, 0].tolist()


def list_bits(day: Day) -> list[Case]:
    """Return the cases about the numbers of whole steps."""
    precisions = ("float32",) if day.smoke else ("bfloat16", "float32")
    lengths = (9, 70) if day.smoke else (300, 32_768)
    cases: list[Case] = [
        (f"strict rows, {precision}", functools.partial(_check_bits, precision, day)) for precision in precisions
    ]
    for precision in precisions:
        for kind in ("qwen2", "llama"):
            for length in lengths if kind == "llama" else lengths[:1]:
                name = f"{kind} beside transformers, prompt {length}, {precision}"
                cases.append((name, functools.partial(_check_agreement, kind, precision, length, day)))
    return cases


# steps ----------------------------------------------------------------------------------------------------------------


class Copies(TorchDispatchMode):
    """Counts copies between host and device, and numbers that the host reads from the device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("copy_", "_to_copy") and isinstance(made, torch.Tensor):
            source = args[1] if name == "copy_" else args[0]
            self.count += made.device != source.device
        self.count += name == "_local_scalar_dense" and args[0].device.type != "cpu"
        return made


class Step(NamedTuple):
    """A step: the tokens that it drew, its seconds, and copies between host and device."""

    tokens: int
    seconds: float
    copies: int


@functools.cache
def _load_large(device: str) -> tuple[Runner, StepShape]:
    day = Day(device, smoke=device == "cpu")
    both = load_both(*(("dot-llama", "float32") if day.smoke else ("llama-8b", "bfloat16")), device)
    runner = make_engine(both, "bfloat16", day, strict=False, budget=12 << 30)
    config = runner.decoder.config
    shape = StepShape(config.layers, config.kv_heads, config.group, config.head_size, config.vocab)
    return runner, shape


def _run_steps(runner: Runner, day: Day, *, counts: bool = False) -> list[Step]:
    """Step a runner until it has no work; copies are counted only if that is asked for, since it takes time."""
    steps: list[Step] = []
    while runner.busy:
        before, counted = runner.stats.decode_tokens, Copies()
        wait(day.device)
        began = time.perf_counter()
        with counted if counts else nullcontext():
            runner.step()
        wait(day.device)
        steps.append(Step(runner.stats.decode_tokens - before, time.perf_counter() - began, counted.count))
    return steps


def _time_steps(rows: int, day: Day) -> dict[str, Any]:
    """Time decode steps of rows behind one prompt, with graphs and without, beside the bytes that they must read."""
    runner, shape = _load_large(day.device)
    length, tokens = (9, 4) if day.smoke else (1024, 40)
    prompt, fixed = prompt_of(length, shape.vocabulary), runner.fixed
    us: dict[str, float] = {}
    for way in ("graphs", "no graphs"):
        runner.fixed = fixed if way == "graphs" else None
        ends = add_rows(runner, prompt, range(rows), tokens, _PLAIN)
        steps = _run_steps(runner, day)
        tell(runner, ends)
        us[way] = 1e6 * statistics.median(step.seconds for step in steps[len(steps) // 2 : -1])
    runner.fixed = fixed
    ends = add_rows(runner, prompt, range(rows), 4, _PLAIN)
    copies = _run_steps(runner, day, counts=True)[-2].copies
    tell(runner, ends)
    figures: dict[str, Any] = {"rows": rows, "us": us, "copies": copies, "tokens_per_s": 1e6 * rows / us["graphs"]}
    moved = step_bytes(shape, runner.decoder.weight_bytes, rows, length, tokens * 3 // 4)
    if "copy" in day.known:
        figures["of_floor"] = 1e6 * moved.floor / day.known["copy"] / us["graphs"]
    return figures


def _time_beginning(day: Day) -> dict[str, Any]:
    """Time the step in which many jobs, each behind a prompt of its own, draw their first tokens at once."""
    runner, shape = _load_large(day.device)
    count, tokens = (3, 4) if day.smoke else (64, 24)
    prompt = prompt_of(24, shape.vocabulary)
    told: dict[str, Step] = {}
    for counts in (False, True):
        ends = [add_rows(runner, [*prompt[: 4 + i % 16], 1 + i], [i], tokens, _PLAIN) for i in range(count)]
        steps = _run_steps(runner, day, counts=counts)
        for each in ends:
            tell(runner, each)
        beginning = max(range(len(steps)), key=lambda index: steps[index].tokens)
        told |= {f"beginning {counts}": steps[beginning], f"later {counts}": steps[-2]}
    return {
        "jobs": count,
        "tokens": told["beginning False"].tokens,  # the first of each job, and the second by the step's own pass
        **{f"us, {when}": 1e6 * told[f"{when} False"].seconds for when in ("beginning", "later")},
        **{f"copies, {when}": told[f"{when} True"].copies for when in ("beginning", "later")},
    }


def _time_draws(rows: int, day: Day) -> dict[str, Any]:
    """Time the draw of rows' tokens under top-p, and without a filter."""
    vocabulary = 1500 if day.smoke else 128_256
    logits = torch.randn(rows, vocabulary, device=day.device).to(torch.bfloat16)
    law = draw_arguments(Sampling(temperature=1.0, top_p=0.95), rows, day.device)

    def cut() -> draw_triton.Cut:
        return draw_triton.cut(logits, *law[:4])

    def draw_cut() -> object:
        return draw_triton.draw(logits, law[0], *law[4:], kept=cut())

    def draw() -> object:
        return draw_triton.draw(logits, law[0], *law[4:])

    times = {"top_p": draw_cut, "of which its cut": cut, "no filter": draw}
    repeats = 1 if day.smoke else 10
    return {"rows": rows, "us": {name: 1e6 * least_seconds(run, day.device, repeats) for name, run in times.items()}}


def list_steps(day: Day) -> list[Case]:
    """Return the cases that time whole steps, and draws."""
    rows, drawn = ((1, 3), (1, 3)) if day.smoke else ((1, 8, 64, 256), (1, 64, 256))
    return [
        *((f"a decode step, {count} rows", functools.partial(_time_steps, count, day)) for count in rows),
        ("jobs that begin at once", functools.partial(_time_beginning, day)),
        *((f"a draw, {count} rows", functools.partial(_time_draws, count, day)) for count in drawn),
    ]
