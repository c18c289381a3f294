"""The reference backend on a tiny random model: what it promises, against plain passes of the model itself."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.backends.rows import END, GREEDY, PROMPTS, WARM, bare, drained, one, opened, plain_laws, start
from tts.backends.base import Backend, Row, Sample, SampleRequest, Sampling
from tts.errors import EngineError
from tts.randomness import child_stream

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "sizes"), [pytest.param(1, [1], marks=pytest.mark.slow), (2, [7, 1, 40]), (3, [255, 1])]
)
def test_a_path_sampled_in_pieces_is_the_path_sampled_at_once(tiny: Any, stream: int, sizes: Sequence[int]) -> None:
    async def main() -> None:
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

    asyncio.run(main())


@pytest.mark.slow
def test_long_rows_are_those_of_a_plain_pass(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[3])
        plain, other = await drained(start(tiny, handle, Row(1, 0, 400), Row(2, 0, 3), sampling=GREEDY))
        assert plain.num_tokens == 400
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


@pytest.mark.slow
def test_the_text_of_a_path_is_what_its_tokens_decode_to(tiny: Any) -> None:
    async def main() -> None:
        (handle,) = await opened(tiny, PROMPTS[0])
        samples = await drained(
            start(tiny, handle, *(Row(stream, 0, 600 if stream % 2 else 30) for stream in range(20)))
        )
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


@pytest.mark.slow
def test_a_row_is_bit_for_bit_the_same_in_every_batch(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny(max_rows=9)
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


@pytest.mark.slow
def test_states_of_forgotten_handles_are_dropped(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()

    async def main() -> None:
        handles = await opened(backend, *PROMPTS)
        assert len(backend._states) == len(handles) == 4

    asyncio.run(main())
    for _ in range(500):  # the worker may still be leaving the batch, which holds the replies
        gc.collect()
        if not backend._states:
            break
        time.sleep(0.01)
    assert len(backend._states) == 0


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
            steps = [
                (await tiny.next_logprobs([state], ["".join(names[:i])], [name]))[0].value[0]
                for i, name in enumerate(names)
            ]
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
        extended, direct = (
            await drained(start(tiny, reply.value.handle, Row(1, 0, 30))),
            await drained(start(tiny, whole, Row(1, 0, 30))),
        )
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


def test_how_spread_laws_are_is_told_where_it_is_asked_for(tiny: Any) -> None:
    async def main() -> None:
        [handle] = await opened(tiny, PROMPTS[0])
        row = Row(5, 0, 8)
        [asked] = await drained(tiny.sample(SampleRequest(handle, (row,), WARM, END, spreads=True)))
        plain = await one(tiny, handle, row)
        assert (asked.token_ids, plain.spreads) == (plain.token_ids, ())
        assert len(asked.spreads) == asked.num_tokens
        assert all(spread.certainty > 0 and spread.top > 0 for spread in asked.spreads)

    asyncio.run(main())
