"""The reference backend on a tiny random model: what it promises, against plain passes of the model itself."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tts.backends.base import Backend, Row, RowSet, Sample, SampleRequest, Sampling, Stop
from tts.errors import CapabilityError, ConfigError, EngineError, PromptTooLong
from tts.randomness import child_stream
from tts.types import Message

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

PROMPTS = ("the cat and the other one", "12 + 12 =", "a", "of the thing in the end\n\nand then " * 6)
WARM = Sampling(temperature=0.8)
GREEDY = Sampling(temperature=0.0)
END = Stop()


async def opened(backend: Any, *prompts: Any) -> list[Any]:
    return [reply.value for reply in await backend.open(prompts)]


async def drained(rows: RowSet) -> list[Sample]:
    await rows.drain()
    assert all(sample is not None for sample in rows.samples)
    return [sample for sample in rows.samples if sample is not None]


def start(backend: Any, handle: Any, *rows: Row, sampling: Sampling = WARM, stop: Stop = END, text: str = "") -> RowSet:
    return backend.sample(SampleRequest(handle, rows, sampling, stop, text))


def plain_laws(backend: Any, ids: Sequence[int]) -> Any:
    """Return the log-laws [token, vocabulary] of one plain pass, without a cache."""
    with torch.no_grad():
        return backend._model._model(torch.tensor([list(ids)])).logits[0].double().log_softmax(-1)


def bare(sample: Sample) -> Sample:
    return dataclasses.replace(sample, handle=None, seconds=0.0)


async def one(backend: Any, handle: Any, row: Row, **options: Any) -> Sample:
    return (await drained(start(backend, handle, row, **options)))[0]


def test_it_is_a_backend_that_says_what_it_is(tiny: Any) -> None:
    assert isinstance(tiny, Backend)
    assert tiny.name == "transformers"
    assert tiny.context == 1024
    assert tiny.kv_bytes_per_token == 2 * 2 * 1 * 32 * 4
    parameters = sum(weight.numel() for weight in tiny._model._model.parameters())
    assert tiny.rates.flops == 2 * parameters
    assert "float32" in tiny.identity
    assert "cpu" in tiny.identity


def test_the_identity_follows_the_weights(make_tiny: Callable[..., Any]) -> None:
    same, again, other = make_tiny(), make_tiny(), make_tiny(context=512)
    assert same.identity == again.identity != other.identity


def test_greedy_equals_the_librarys_own_greedy_decoding(tiny: Any) -> None:
    async def main() -> None:
        for prompt in PROMPTS:
            (handle,) = await opened(tiny, prompt)
            sample = await one(tiny, handle, Row(1, 0, 32), sampling=GREEDY)
            ids = torch.tensor([tiny._renderer.prompt(prompt)])
            whole = tiny._model._model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False, pad_token_id=0
            )
            assert list(sample.token_ids) == whole[0, ids.shape[1] :].tolist()

    asyncio.run(main())


def test_a_path_sampled_in_pieces_is_the_path_sampled_at_once(tiny: Any) -> None:
    async def main(stream: int, sizes: Sequence[int]) -> None:
        (handle,) = await opened(tiny, PROMPTS[0])
        plain = await one(tiny, handle, Row(stream, 0, 300))
        tokens: list[int] = []
        logprobs: list[float] = []
        text = ""
        step = 0
        while True:
            size = min(sizes[step % len(sizes)], 300 - len(tokens))
            piece = await one(tiny, handle, Row(stream, len(tokens), size), text=text)
            tokens += piece.token_ids
            logprobs += piece.logprobs
            text += piece.text
            handle = piece.handle
            step += 1
            if piece.finish == "eos" or len(tokens) >= 300:
                break
        assert tuple(tokens) == plain.token_ids
        assert tuple(logprobs) == plain.logprobs
        assert text == plain.text
        assert piece.finish == plain.finish

    for stream, sizes in ((1, [1]), (2, [7, 1, 40]), (3, [255, 1])):
        asyncio.run(main(stream, sizes))


def test_rows_that_outgrow_a_tile_go_on_as_before(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[3])
        plain, other = await drained(start(tiny, handle, Row(1, 0, 400), Row(2, 0, 3), sampling=GREEDY))
        assert plain.num_tokens == 400  # past a width of 256 columns
        assert other.token_ids == plain.token_ids[:3]
        ids = tiny._renderer.prompt(PROMPTS[3])
        laws = plain_laws(tiny, [*ids, *plain.token_ids])[len(ids) - 1 : -1]
        assert laws.argmax(-1).tolist() == list(plain.token_ids)
        assert plain.logprobs == pytest.approx(laws.max(-1).values.tolist(), abs=1e-4)
        pieces: list[int] = []
        while len(pieces) < 400:
            piece = await one(tiny, handle, Row(1, len(pieces), 170), sampling=GREEDY)
            pieces += piece.token_ids
            handle = piece.handle
        assert tuple(pieces[:400]) == plain.token_ids

    asyncio.run(main())


def test_the_text_of_a_path_is_what_its_tokens_decode_to(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[0])
        samples = await drained(start(tiny, handle, *(Row(stream, 0, 600 if stream % 2 else 30) for stream in range(20))))
        assert {sample.finish for sample in samples} == {"eos", "length"}
        for sample in samples:
            decoded = tiny._renderer.decode(sample.token_ids)
            if sample.finish == "eos":
                assert sample.token_ids[-1] == 0
                assert sample.text == decoded
            else:
                assert decoded.startswith(sample.text)
                assert set(decoded[len(sample.text) :]) <= {"\ufffd"}

    asyncio.run(main())


@pytest.mark.parametrize("tile_rows", [1, 2, 16])
def test_a_row_is_bit_for_bit_the_same_in_every_batch(make_tiny: Callable[..., Any], tile_rows: int) -> None:
    backend = make_tiny(tile_rows=tile_rows, max_rows=9)
    wanted = [(prompt, stream, size) for prompt in range(4) for stream, size in ((11, 5), (12, 40), (13, 120))]

    async def run(batches: Sequence[Sequence[tuple[int, int, int]]]) -> dict[tuple[int, int, int], Sample]:
        handles = await opened(backend, *PROMPTS)
        found: dict[tuple[int, int, int], Sample] = {}
        for batch in batches:
            rows = {item: start(backend, handles[item[0]], Row(item[1], 0, item[2])) for item in batch}
            for item, row_set in rows.items():
                (found[item],) = map(bare, await drained(row_set))
        return found

    alone = asyncio.run(run([[item] for item in wanted]))
    assert asyncio.run(run([wanted])) == alone
    assert asyncio.run(run([wanted[::-1]])) == alone
    assert asyncio.run(run([wanted[::2], wanted[1::2]])) == alone


def test_rows_of_one_request_are_the_rows_of_many(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[1])
        rows = [Row(child_stream(5, 0, j), 0, 20) for j in range(8)]
        together = await drained(start(tiny, handle, *rows))
        fewer = await drained(start(tiny, handle, *rows[:3]))
        assert list(map(bare, together[:3])) == list(map(bare, fewer))
        assert len({sample.token_ids for sample in together}) > 1

    asyncio.run(main())


def test_position_and_word_address_the_draws(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[1])
        first, moved, other = await drained(start(tiny, handle, Row(5, 0, 20), Row(5, 1, 20), Row(5, 0, 20, word=1)))
        assert len({first.token_ids, moved.token_ids, other.token_ids}) == 3

    asyncio.run(main())


def test_forks_are_the_same_state_and_do_not_touch_each_other(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[0])
        base = await one(tiny, handle, Row(1, 0, 10))
        first, second = tiny.fork(base.handle, 2)
        before = await one(tiny, base.handle, Row(1, 10, 12), text=base.text)
        await one(tiny, first, Row(9, 10, 30), text=base.text)
        await tiny.extend([first], [" and the other"])
        tiny.release([first, base.handle])
        tiny.release([first])
        after = await one(tiny, second, Row(1, 10, 12), text=base.text)
        assert bare(before) == bare(after)
        with pytest.raises(EngineError, match="released"):
            start(tiny, first, Row(1, 0, 1))
        with pytest.raises(EngineError, match="released"):
            await tiny.extend([first], ["a"])

    asyncio.run(main())


def test_states_of_forgotten_handles_are_dropped(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()

    async def main() -> None:
        handles = await opened(backend, *PROMPTS)
        assert len(backend._paths) == len(handles) == 4

    asyncio.run(main())
    gc.collect()
    assert len(backend._paths) == 0


def test_scores_are_next_logprobs_and_a_plain_pass(tiny: Any) -> None:
    text = " and of the thing 12"

    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[0])
        piece = await one(tiny, handle, Row(4, 0, 9))
        for state, path in ((handle, ()), (piece.handle, piece.token_ids)):
            (scored,) = await tiny.score([state], [text])
            ids = tiny._renderer.text(text)
            prefix = (*tiny._renderer.prompt(PROMPTS[0]), *path)
            plain = plain_laws(tiny, [*prefix, *ids])
            want = [float(plain[len(prefix) - 1 + i, token]) for i, token in enumerate(ids)]
            assert scored.value == pytest.approx(want, abs=1e-4)
            names = [tiny._renderer.decode([token]) for token in ids]
            steps = [(await tiny.next_logprobs([state], ["".join(names[:i])], [name]))[0].value[0] for i, name in enumerate(names)]
            assert steps == pytest.approx(want, abs=1e-4)
            assert float(scored.value.sum()) == pytest.approx(sum(want), abs=1e-3)

    asyncio.run(main())


def test_reported_logprobs_are_what_scoring_gives(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[0])
        sample = await one(tiny, handle, Row(8, 0, 20), sampling=Sampling(temperature=0.5, top_k=5))
        ids = [*tiny._renderer.prompt(PROMPTS[0]), *sample.token_ids]
        plain = plain_laws(tiny, ids)
        begin = len(ids) - len(sample.token_ids)
        want = [float(plain[begin - 1 + i, token]) for i, token in enumerate(sample.token_ids)]
        assert sample.logprobs == pytest.approx(want, abs=1e-4)

    asyncio.run(main())


def test_extending_is_the_same_as_having_opened_it(tiny: Any) -> None:
    async def main() -> None:
        (short, whole) = await opened(tiny, "12 + ", "12 + 12 =")
        (reply,) = await tiny.extend([short], ["12 ="])
        assert reply.value.token_ids == tiny._renderer.text("12 =")
        extended, direct = await drained(start(tiny, reply.value.handle, Row(1, 0, 30))), await drained(start(tiny, whole, Row(1, 0, 30)))
        assert extended[0].token_ids == direct[0].token_ids
        assert extended[0].logprobs == pytest.approx(direct[0].logprobs, abs=1e-4)
        hidden = [reply.value for reply in await tiny.hidden([reply.value.handle, whole])]
        assert hidden[0] == pytest.approx(hidden[1], abs=1e-4)
        ids = torch.tensor([tiny._renderer.prompt("12 + 12 =")])
        plain = tiny._model._model(ids, output_hidden_states=True).hidden_states[-1][0, -1]
        assert hidden[0] == pytest.approx(plain.detach().numpy(), abs=1e-4)
        assert hidden[0].dtype == np.float32

    asyncio.run(main())


def test_long_prompts_are_read_in_passes(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny(context=2048)
    prompt = "of the thing in the end and then " * 80

    async def main() -> None:
        (handle,) = await opened(backend, prompt)
        ids = backend._renderer.prompt(prompt)
        assert len(ids) > 1100
        (law,) = await backend.next_logprobs([handle], [""], ["a", "b"])
        plain = plain_laws(backend, ids)[-1]
        assert law.value == pytest.approx([float(plain[backend._renderer.single(x)]) for x in "ab"], abs=1e-4)
        (scored,) = await backend.score([(await opened(backend, prompt[:5]))[0]], [prompt[5:]])
        (short,) = await backend.score([handle], ["a"])
        assert scored.value.shape == (len(backend._renderer.text(prompt[5:])),)
        assert short.value[0] == pytest.approx(law.value[0], abs=1e-6)

    asyncio.run(main())


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
        assert backend.counters.reused_tokens == sum(x.reused for x in replies) + sum(rows.reused_tokens or 0 for rows in everything)

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


def test_a_prompt_beyond_the_context_is_refused_before_anything_is_computed(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny(context=16)
    assert backend.count("q" * 16) == 16

    async def main() -> None:
        with pytest.raises(PromptTooLong, match=r"16 tokens.*context of 16.*hint: shorten the prompt"):
            await backend.open(["q", "q" * 16])
        assert backend.counters.prompt_tokens == 0
        (handle,) = await opened(backend, "q" * 15)
        assert (await one(backend, handle, Row(1, 0, 9))).num_tokens == 1

    asyncio.run(main())


def test_messages_pass_through_the_template_and_text_does_not(make_tiny: Callable[..., Any]) -> None:
    turns = (Message("system", "be brief"), Message("user", "the cat"))
    with_template, without = make_tiny(), make_tiny(template=None)
    assert with_template._renderer.decode(with_template._renderer.prompt(turns)) == "system: be brief\nuser: the cat\nassistant: "
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
    for option in ("tile_rows", "max_rows"):
        with pytest.raises(ConfigError, match=f"{option} is 0"):
            make_tiny(**{option: 0})


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


def test_a_predicate_that_raises_fails_its_call_with_the_cause(make_tiny: Callable[..., Any]) -> None:
    def wrong(text: str) -> bool:
        raise ZeroDivisionError(text)

    backend = make_tiny()

    async def main() -> None:
        (handle,) = await opened(backend, "the cat")
        alphabet = tuple(chr(code) for code in range(32, 127))
        with pytest.raises(EngineError, match="ZeroDivisionError"):
            await start(backend, handle, Row(1, 0, 500), stop=Stop(alphabet, finished=wrong)).row(0)
        assert (await one(backend, handle, Row(1, 0, 5))).finish == "length"
        await backend.close()

    asyncio.run(main())


def test_models_with_windows_are_held_within_them_and_other_states_are_refused(make_tiny: Callable[..., Any]) -> None:
    from tts.backends.causal_model import CausalModel

    model = make_tiny()._model._model
    model.config.layer_types = ["full_attention", "sliding_attention"]
    model.config.sliding_window = 99
    assert CausalModel(model, tile_rows=1).context == 99
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ConfigError, match="linear_attention"):
        CausalModel(model, tile_rows=1)


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
