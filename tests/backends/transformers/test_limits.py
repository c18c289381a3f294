"""The transformers backend: what it counts, refuses, cancels and survives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.rows import GREEDY, PROMPTS, drained, one, opened, start
from tts.backends.base import Row
from tts.errors import CapabilityError, ConfigError, EngineError, PromptTooLong
from tts.types import Message

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.slow
def test_counters_are_the_sum_of_what_was_reported(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()

    async def main() -> None:
        replies = await backend.open(PROMPTS)
        handles = [reply.value for reply in replies]
        row_sets = [start(backend, handle, Row(1, 0, 15), Row(2, 0, 40)) for handle in handles]
        row_sets[1].cancel()
        doomed = start(backend, handles[3], *(Row(stream, 0, 900) for stream in range(4)))
        await row_sets[0].row(0)
        doomed.cancel()
        samples = [sample for rows in (*row_sets, doomed) for sample in await drained(rows)]
        replies += await backend.extend([samples[0].handle, handles[1]], [" of the", ""])
        replies += await backend.score(handles[:2], ["and", ""])
        replies += await backend.next_logprobs(handles[:2], ["", "12"], ["a"])
        replies += await backend.hidden(handles)
        sizes = [len(backend._renderer.prompt(prompt)) for prompt in PROMPTS]
        assert [reply.computed for reply in replies[:4]] == sizes
        assert [reply.computed for reply in replies[4:]] == [2, 0, 1, 0, 0, 1, 0, 0, 0, 0]
        assert row_sets[0].reused_tokens == 2 * sizes[0]
        assert all(rows.prompt_tokens == 0 for rows in row_sets)
        everything = [*row_sets, doomed]
        assert backend.counters.prompt_tokens == sum(reply.computed for reply in replies)
        assert backend.counters.generated_tokens == sum(sample.num_tokens for sample in samples)
        assert backend.counters.reused_tokens == sum(x.reused for x in replies) + sum(
            rows.reused_tokens or 0 for rows in everything
        )

    asyncio.run(main())


def test_cancelled_rows_resolve_with_what_they_cost(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny(max_rows=2)

    async def main() -> None:
        (handle,) = await opened(backend, PROMPTS[0])
        rows = start(backend, handle, Row(1, 0, 3), *(Row(stream, 0, 1000) for stream in (2, 3, 4)))
        first = await rows.row(0)
        rows.cancel()
        samples = await drained(rows)
        assert first.finish == "length"
        assert first.handle is not None
        assert [sample.finish for sample in samples[1:]] == ["cancelled"] * 3
        assert all(sample.handle is None for sample in samples[1:])
        assert all(sample.num_tokens == len(sample.token_ids) < 1000 for sample in samples)
        assert samples[3].num_tokens == 0  # it never had a place
        late = start(backend, handle, Row(1, 0, 5))
        late.cancel()
        assert [sample.finish for sample in await drained(late)] == ["cancelled"]

    asyncio.run(main())


def test_caps_and_the_context_are_never_passed(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny(context=40)

    async def main() -> None:
        (handle,) = await opened(backend, "abc" * 10)
        sizes = [1, 2, 17, 500]
        samples = await drained(start(backend, handle, *(Row(5, 0, size) for size in sizes), sampling=GREEDY))
        room = 40 - backend.count("abc" * 10)
        assert [sample.num_tokens for sample in samples] == [min(size, room) for size in sizes]
        assert all(sample.finish == "length" for sample in samples)
        full = await one(backend, samples[3].handle, Row(5, room, 10))
        assert (full.finish, full.num_tokens, full.text) == ("length", 0, "")
        with pytest.raises(PromptTooLong, match=r"40.*1.*40"):
            await backend.extend([samples[3].handle], ["a"])
        with pytest.raises(PromptTooLong):
            await backend.score([samples[3].handle], ["a"])

    asyncio.run(main())


@pytest.mark.slow
def test_a_prompt_beyond_the_context_is_refused_before_anything_is_computed(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny(context=16)
    assert backend.count("q" * 16) == 16

    async def main() -> None:
        with pytest.raises(PromptTooLong, match=r"16 tokens.*context.*16.*hint: shorten"):
            await backend.open(["q", "q" * 16])
        assert backend.counters.prompt_tokens == 0
        (handle,) = await opened(backend, "q" * 15)
        assert (await one(backend, handle, Row(1, 0, 9))).num_tokens == 1

    asyncio.run(main())


def test_messages_pass_through_the_template_and_text_does_not(make_tiny: Callable[..., Any]) -> None:
    turns = (Message("system", "be brief"), Message("user", "the cat"))
    with_template, without = make_tiny(), make_tiny(template=None)
    assert (
        with_template._renderer.decode(with_template._renderer.prompt(turns))
        == "system: be brief\nuser: the cat\nassistant: "
    )
    assert without._renderer.decode(without._renderer.prompt(turns)) == "be brief\n\nthe cat"
    assert with_template._renderer.decode(with_template._renderer.prompt("the cat")) == "the cat"
    refusing = make_tiny(template="{{ raise_exception('no system turn') }}")
    with pytest.raises(ConfigError, match="no system turn"):
        refusing.count(turns)
    with pytest.raises(ConfigError, match="no token"):
        with_template.count("")


def test_what_cannot_be_done_is_refused_by_type(tiny: Any, make_tiny: Callable[..., Any]) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, "a")
        with pytest.raises(CapabilityError, match="value"):
            await tiny.value([handle], "reward")
        with pytest.raises(ConfigError, match=r"'what else' is . tokens"):
            await tiny.next_logprobs([handle], [""], ["a", "what else"])

    asyncio.run(main())
    assert tiny.caps.value == "absent"
    with pytest.raises(ConfigError, match="max_rows is 0"):
        make_tiny(max_rows=0)


def test_a_failing_model_ends_its_rows_and_not_the_loop(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()
    model = backend._model._model

    async def main() -> None:
        (handle,) = await opened(backend, "the cat")
        weight = model.lm_head.weight.data.clone()
        model.lm_head.weight.data[:] = torch.nan
        broken = await one(backend, handle, Row(1, 0, 5))
        model.lm_head.weight.data = weight
        assert (broken.finish, broken.handle, broken.num_tokens) == ("error", None, 0)
        assert "logit" in broken.error
        norm = model.model.norm.weight.data
        model.model.norm.weight.data = torch.ones(3)
        torn = await one(backend, handle, Row(1, 0, 5))
        assert torn.finish == "error"
        assert "size" in torn.error
        with pytest.raises(EngineError, match="RuntimeError"):
            await backend.score([handle], ["a"])
        model.model.norm.weight.data = norm
        assert (await one(backend, handle, Row(1, 0, 5))).finish == "length"

    asyncio.run(main())


def test_models_with_windows_are_held_within_them_and_other_states_are_refused(make_tiny: Callable[..., Any]) -> None:
    from tts.backends.transformers.causal_model import CausalModel

    model = make_tiny()._model._model
    model.config.layer_types = ["full_attention", "sliding_attention"]
    model.config.sliding_window = 99
    assert CausalModel(model).context == 99
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ConfigError, match="linear_attention"):
        CausalModel(model)


def test_a_model_that_places_its_tokens_otherwise_is_found_out(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()
    backend._model.check()
    model = backend._model._model
    honest = model.forward

    def misplaced(*args: Any, position_ids: Any = None, **options: Any) -> Any:
        return honest(*args, position_ids=None if position_ids is None else position_ids * 3 + 1, **options)

    model.forward = misplaced
    with pytest.raises(ConfigError, match="not supported"):
        backend._model.check()
