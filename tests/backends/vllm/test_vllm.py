"""What the vLLM backend makes of what vLLM gives: where rows end, what they are charged, and what breaks them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.vllm.fake import BLOCK, broken, faked
from tests.support.guard import LIMIT_S
from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.sampling import log_softmax, spread
from tts.errors import ConfigError, EngineError, MissingDependency, PromptTooLong
from tts.randomness import child_stream
from tts.types import TOP_TOKENS

WARM = Sampling(temperature=1.0)
PROMPT = "the cat and the other one"


def using(check: Callable[[Any, Any], Awaitable[Any]], **options: Any) -> Any:
    backend, engine = faked(**options)

    async def checked() -> Any:
        try:
            return await check(backend, engine)
        finally:
            await backend.close()

    told = asyncio.run(checked())
    assert engine.live == 0, "a request was left in the engine"
    return told


async def asked(
    backend: Any,
    count: int,
    cap: int = 20,
    stop: StopCondition | None = None,
    sampling: Sampling = WARM,
    handle: Any = None,
) -> Any:
    handle = handle or (await backend.open([PROMPT]))[0].value
    rows = tuple(Row(child_stream(3, 0, j), 0, cap) for j in range(count))
    return backend.sample(SampleRequest(handle, rows, sampling, stop or StopCondition()))


async def drawn(*args: Any, **options: Any) -> tuple[Any, list[Sample]]:
    rows = await asked(*args, **options)
    await rows.drain()
    return rows, [sample for sample in rows.samples if sample is not None]


def test_what_vllm_reused_is_reused_and_the_rest_is_computed() -> None:
    async def check(backend: Any, engine: Any) -> None:
        size = backend.count(PROMPT)
        blocks = (size - 1) // BLOCK * BLOCK
        rows, _ = await drawn(backend, 1)
        assert (rows.prompt_tokens, rows.reused_tokens) == (size, 0)
        rows, _ = await drawn(backend, 3)
        assert (rows.prompt_tokens, rows.reused_tokens) == (3 * (size - blocks), 3 * blocks)
        [reply] = await backend.next_logprobs([(await backend.open([PROMPT]))[0].value], [""], ["a"])
        assert (reply.computed, reply.reused) == (size - blocks, blocks)
        [reply] = await backend.score([(await backend.open([PROMPT]))[0].value], ["a"])
        assert (reply.computed, reply.reused) == (size + 1, 0)
        assert backend.counters.prompt_tokens == size + 4 * (size - blocks) + size + 1

    using(check)


def test_a_text_without_tokens_is_scored_without_a_request() -> None:
    async def check(backend: Any, engine: Any) -> None:
        [opened] = await backend.open([PROMPT])
        [reply] = await backend.score([opened.value], [""])
        assert (reply.value.size, reply.computed, reply.reused) == (0, 0, 0)
        assert engine.asked == []

    using(check)


def test_a_row_whose_predicate_raises_before_its_first_token_fails_alone_and_costs_nothing() -> None:
    def finished(text: str) -> bool:
        raise ValueError("no law for it")

    async def check(backend: Any, engine: Any) -> None:
        [opened] = await backend.open([PROMPT])
        carrying = dataclasses.replace(opened.value, text=opened.value.text._replace(carry="\n"))
        rows, [sample] = await drawn(backend, 1, stop=StopCondition(("\n",), finished=finished), handle=carrying)
        assert (sample.finish, sample.error, sample.handle) == ("error", "ValueError: no law for it", None)
        assert rows.prompt_tokens == backend.counters.prompt_tokens == 0
        assert engine.asked == []

    using(check)


def test_ends_of_sequence_and_tokens_that_hold_a_stop_text_end_a_row_in_vllm_itself() -> None:
    async def check(backend: Any, engine: Any) -> None:
        await drawn(backend, 1, stop=StopCondition(("q\n",), at_step=True))
        decode = backend._renderer.decode
        assert engine.asked[-1]["stop_token_ids"][0] == 0
        assert {decode([token]) for token in engine.asked[-1]["stop_token_ids"][1:]} == {"q\n", "q\nz"}
        await drawn(backend, 1, stop=StopCondition(("q\n",)))
        assert engine.asked[-1]["stop_token_ids"] == [0]

    using(check)


def test_the_spread_is_that_of_the_most_likely_tokens_whichever_was_drawn() -> None:
    async def check(backend: Any, engine: Any) -> None:
        [opened] = await backend.open([PROMPT])
        rows = tuple(Row(child_stream(3, 0, j), 0, 12) for j in range(8))
        asked = backend.sample(
            SampleRequest(opened.value, rows, Sampling(temperature=3.0), StopCondition(), spreads=True)
        )
        await asked.drain()
        unlikely = 0
        for sample in asked.samples:
            path = list(opened.value.ids)
            assert len(sample.spreads) == sample.num_tokens
            for token, told in zip(sample.token_ids, sample.spreads, strict=True):
                law = log_softmax(engine._logits(path))
                assert told.top == pytest.approx(spread(law).top, abs=1e-12)
                assert math.isnan(told.certainty)
                unlikely += bool((law > law[token]).sum() >= TOP_TOKENS)
                path.append(token)
        assert unlikely, "every drawn token was among the most likely ones"
        assert {one["logprobs"] for one in engine.asked} == {TOP_TOKENS}

    using(check)


def test_greedy_rows_bring_no_draws_and_others_their_address_and_law() -> None:
    async def check(backend: Any, engine: Any) -> None:
        await drawn(backend, 1, sampling=Sampling(temperature=0))
        assert engine.asked[-1]["extra_args"] is None
        await drawn(backend, 1, sampling=Sampling(temperature=5.0, top_k=3, min_p=0.1, top_p=0.5))
        assert engine.asked[-1]["extra_args"] == {"tts_draws": [child_stream(3, 0, 0), 0, 0, 5.0, 0.5, 3, 0.1]}

    using(check)


def test_a_row_that_is_given_up_ends_in_vllm_and_pays_for_its_input() -> None:
    async def check(backend: Any, engine: Any) -> None:
        rows = await asked(backend, 2, cap=10**6)
        while not engine.live:
            await asyncio.sleep(0)
        rows.cancel()
        await rows.drain()
        assert {sample.finish for sample in rows.samples} == {"cancelled"}
        assert engine.live == 0
        assert rows.prompt_tokens + rows.reused_tokens == 2 * backend.count(PROMPT)

    using(check, context=10**7, fault=lambda path: time.sleep(0.0005))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (broken, "vLLM failed: EngineDeadError: it is gone"),
        (lambda _: math.nan, "no law"),
        (lambda _: -math.inf, "no law"),
    ],
)
def test_what_breaks_a_row_is_that_rows_error(fault: Callable[[Sequence[int]], float | None], says: str) -> None:
    async def check(backend: Any, engine: Any) -> None:
        _, [sample] = await drawn(backend, 1)
        assert (sample.finish, sample.handle, sample.num_tokens) == ("error", None, 3)
        assert says in sample.error

    using(check, fault=lambda path: fault(path) if len(path) == 3 else None)


def test_a_predicate_that_raises_breaks_its_row_alone() -> None:
    def finished(text: str) -> bool:
        raise ValueError("no predicate")

    async def check(backend: Any, engine: Any) -> None:
        _, samples = await drawn(backend, 3, stop=StopCondition(("a", "e", "t"), finished=finished))
        assert {sample.error for sample in samples} <= {"", "ValueError: no predicate"}
        assert any(sample.error for sample in samples)
        _, samples = await drawn(backend, 3)
        assert {sample.error for sample in samples} == {""}

    using(check)


def test_a_path_of_the_whole_context_ends_and_one_token_more_is_refused() -> None:
    async def check(backend: Any, engine: Any) -> None:
        room = 64 - backend.count(PROMPT)
        handle = (await backend.open([PROMPT]))[0].value
        [reply] = await backend.extend([handle], ["z" * (room - 2)])
        _, [sample] = await drawn(backend, 1, handle=reply.value.handle, sampling=Sampling(temperature=0))
        assert sample.num_tokens <= 2
        with pytest.raises(PromptTooLong):
            await backend.extend([handle], ["z" * (room + 1)])
        with pytest.raises(PromptTooLong):
            await backend.score([handle], ["z" * room])
        [reply] = await backend.score([handle], ["z" * (room - 1)])
        assert np.isfinite(reply.value).all()

    using(check, context=64)


def test_closing_ends_readings_that_are_under_way() -> None:
    async def check(backend: Any, engine: Any) -> None:
        handle = (await backend.open([PROMPT]))[0].value
        reading = asyncio.create_task(backend.score([handle] * 50, ["abc"] * 50))
        while not engine.live:
            await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(EngineError, match="closed"):
            await asyncio.wait_for(reading, LIMIT_S)

    using(check, fault=lambda path: time.sleep(0.002))


def test_options_are_checked_before_anything_starts() -> None:
    pytest.importorskip("transformers")
    from tts.backends.vllm.loading import load_parts
    from tts.models import registry

    record = registry.get("pocket")
    for options, says in [
        ({"dtype": "int4"}, "dtype is 'int4'"),
        ({"kv_gib": 0}, "kv_gib is 0"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"devices": 1.5}, "devices is 1.5"),
        ({"lora": "/nowhere"}, "lora is '/nowhere'"),
    ]:
        with pytest.raises(ConfigError, match=says):
            load_parts(record, **options)


@pytest.mark.parametrize(
    ("settings", "rank"),
    [({"r": 1}, 8), ({"r": 8}, 8), ({"r": 12}, 16), ({"r": 320}, 320), ({"r": 4, "rank_pattern": {"q_proj": 40}}, 64)],
)
def test_room_is_made_for_an_adapter_as_vllm_can_make_it(settings: dict[str, Any], rank: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tts.backends.vllm.loading import lora_rank

    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    assert lora_rank(str(tmp_path)) == rank


@pytest.mark.parametrize("settings", [{"r": 0}, {"r": 1024}, {}, [], {"r": "many"}])
def test_an_adapter_that_vllm_cannot_hold_is_refused(settings: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tts.backends.vllm.loading import lora_rank

    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="lora is "):
        lora_rank(str(tmp_path))


def test_without_vllm_it_is_one_line_with_the_command() -> None:
    from importlib.util import find_spec

    from tts.backends import BACKENDS
    from tts.models import registry

    if find_spec("vllm"):
        pytest.skip("vLLM is installed")
    with pytest.raises(MissingDependency, match=r"the vllm backend needs .*vllm") as caught:
        BACKENDS.get("vllm").from_record(registry.get("pocket"))
    assert "test-time-search[vllm]" in caught.value.hint
