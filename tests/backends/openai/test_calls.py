"""What calls are charged, how rows share one, what is thought apart, and texts that a token runs over."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.openai.making import LONG, PROMPT, WARM, asked, capped, drawn, on, samples_of, told_at, using
from tests.backends.openai.saying import Saying, dripping, head, row, whole
from tests.backends.openai.server import ToyServer, serving
from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.call import ServerHandle, _text_past_stop
from tts.backends.openai.errors import ServerError
from tts.backends.openai.reply import Choice, ServerReply, shares, usage_of
from tts.backends.sampling import sampling_logprob
from tts.backends.text.tokenized_text import TokenizedText
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import CapabilityError, EngineError, PromptTooLong
from tts.types import Message

UNSEEN: dict[str, Any] = {"mode": "text", "logprobs": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shows", "usage", "exact"), [({}, True, True), ({}, False, True), (UNSEEN, True, True), (UNSEEN, False, False)]
)
def test_a_row_is_charged_what_is_reported_or_seen_and_without_either_all_it_was_granted(
    shows: Any, usage: bool, exact: bool
) -> None:
    server = ToyServer(usage=usage)

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 3, cap=50)
        for sample, served in zip(samples, server.served, strict=True):
            assert sample.finish == "eos"
            assert sample.estimated == (not exact)
            assert not exact or sample.num_tokens < 50
            assert exact or served.generated <= sample.num_tokens <= min(50, len(sample.text.encode()) + 1)
            assert served.whole
        assert not exact or sum(s.num_tokens for s in samples) == sum(s.generated for s in server.served)

    using(server, check, **shows)


@pytest.mark.slow
@pytest.mark.parametrize("shows", [{}, UNSEEN, {"mode": "chat"}])
def test_rows_with_one_cap_share_a_call_where_no_seed_tells_them_apart(shows: dict[str, Any]) -> None:
    server = ToyServer(seeds=False)

    async def check(backend: OpenAIBackend) -> None:
        asked = await capped(backend, 50, 50, 40, 50, 40, 30)
        samples = await samples_of(asked)
        assert sorted((body["max_tokens"], body.get("n", 1)) for body in server.bodies) == [(30, 1), (40, 2), (50, 3)]
        assert all(sample.text and sample.finish in ("eos", "length") for sample in samples)
        assert len({sample.text for sample in samples}) > 1
        assert sum(sample.num_tokens for sample in samples) == sum(one.generated for one in server.served)
        assert not any(sample.estimated for sample in samples)
        assert len(server.served) == 3
        assert asked.prompt_tokens + (asked.reused_tokens or 0) < 6 * 20  # a call reads its prompt once

    using(server, check, seeds=False, n=True, **shows)


@pytest.mark.parametrize(
    ("fault", "kind"), [("extra", "WrongCount"), ("twice", "DuplicateChoice"), ("empty", "NoChoice")]
)
def test_a_shared_call_with_wrong_choices_draws_its_rows_again_and_no_others(fault: str, kind: str) -> None:
    async def check(backend: OpenAIBackend) -> None:
        samples = await samples_of(await capped(backend, 50, 50, 50, 40))
        assert [sample.error.partition(":")[0] for sample in samples] == [kind, kind, kind, ""]
        assert all(sample.text for sample in samples)  # each was drawn again by a call of its own
        assert sorted(body.get("n", 1) for body in server.bodies) == [1, 1, 1, 1, 3]

    server = ToyServer(fault=told_at([fault]))
    using(server, check, seeds=False, n=True)


def test_a_missing_choice_is_the_only_row_that_fails() -> None:
    reply = ServerReply(3)
    for index in (0, 2):
        reply.take({"choices": [{"index": index, "text": "a", "finish_reason": "stop"}]})
    assert [None if reply.error(i) is None else reply.error(i).kind for i in range(3)] == [None, "WrongCount", None]  # type: ignore[union-attr]


@pytest.mark.parametrize("form", ["delta", "message"])
def test_a_refusal_is_no_answer_and_has_a_kind_of_its_own(form: str) -> None:
    reply = ServerReply(2)
    reply.take({"choices": [{"index": 0, form: {"content": None, "refusal": "I cannot"}, "finish_reason": "stop"}]})
    reply.take({"choices": [{"index": 1, form: {"content": "4", "refusal": None}, "finish_reason": "stop"}]})
    faults = [reply.error(index) for index in range(2)]
    assert [fault and fault.kind for fault in faults] == ["Refusal", None]


@pytest.mark.parametrize("streams", [True, False])
def test_what_is_thought_apart_is_charged_and_stands_between_marks(streams: bool) -> None:
    server = ToyServer(reasoning=7, streams=streams)
    shows: dict[str, Any] = {"mode": "chat", "reasoning": True, "streams": streams}

    async def check(backend: OpenAIBackend) -> None:
        assert (backend.caps.steps, backend.caps.extend) == ("absent", "absent")
        samples = await drawn(backend, 3)
        for sample in samples:
            thought, _, response = sample.text.partition("</think>")
            assert thought.strip() == "<think>\n" + ("I think. " * 7).strip()
            assert response
            assert "think" not in response
            assert not sample.estimated
        assert sum(sample.num_tokens for sample in samples) == sum(one.generated for one in server.served)
        handle = samples[0].handle
        with pytest.raises(CapabilityError, match="has no capability 'steps'"):
            backend.sample(SampleRequest(handle, (Row(1, 9, 9),), Sampling(), StopCondition()))
        with pytest.raises(CapabilityError, match="has no capability 'extend'"):
            await backend.extend([handle], ["more"])

    using(server, check, **shows)


@pytest.mark.parametrize("logprobs", [False, True])  # of what is said alone
def test_thoughts_without_a_report_are_charged_all_that_was_granted(logprobs: bool) -> None:
    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1, cap=50)
        assert (sample.num_tokens, sample.estimated) == (50, True)

    using(ToyServer(reasoning=7, usage=False), check, mode="chat", reasoning=True, logprobs=logprobs)


COUNTS = {"prompt_tokens": 5, "completion_tokens": 7}
INPUT = {"input_tokens": 5, "output_tokens": 7}
OF_PROMPT, OF_TEXT = "prompt_tokens_details", "completion_tokens_details"
READ, WROTE = "cache_read_input_tokens", "cache_creation_input_tokens"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (COUNTS, (5, 7, None, 0, 0)),
        ({"prompt_tokens": 5.0, "completion_tokens": 7.0}, (5, 7, None, 0, 0)),
        (COUNTS | {OF_PROMPT: {"cached_tokens": 4}}, (5, 7, 4, 0, 0)),
        (COUNTS | {OF_PROMPT: None}, (5, 7, None, 0, 0)),
        (COUNTS | {OF_TEXT: {"reasoning_tokens": 3}}, (5, 7, None, 3, 0)),
        # a server that reports thoughts beside what was said
        (COUNTS | {"total_tokens": 15, OF_TEXT: {"reasoning_tokens": 3}}, (5, 10, None, 3, 0)),
        # counts that contradict each other: the largest
        (COUNTS | {OF_PROMPT: {"cached_tokens": 9}}, (9, 7, 9, 0, 0)),
        (COUNTS | {"total_tokens": 12, "reasoning_tokens": 95305}, (5, 95312, None, 95305, 0)),
        (COUNTS | {OF_TEXT: {"reasoning_tokens": 8}}, (5, 15, None, 8, 0)),
        (INPUT | {"total_tokens": 12}, (5, 7, None, 0, 0)),
        (INPUT | {"input_tokens_details": {"cached_tokens": 4}}, (5, 7, 4, 0, 0)),
        (INPUT | {"output_tokens_details": {"reasoning_tokens": 3}}, (5, 7, None, 3, 0)),
        (INPUT | {READ: 90, WROTE: 5}, (100, 7, 90, 0, 5)),
        (COUNTS | {"prompt_tokens": 100, READ: 90, WROTE: 5}, (100, 7, 90, 0, 5)),
        (COUNTS | {"prompt_tokens": 100, WROTE: 101}, (101, 7, None, 0, 101)),
        (COUNTS | {OF_PROMPT: {"cached_tokens": 0, "cache_write_tokens": 4}}, (5, 7, 0, 0, 4)),
        (COUNTS | {OF_PROMPT: {"cache_creation_tokens": 4}}, (5, 7, None, 0, 4)),
        (COUNTS | {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 1}, (5, 7, 4, 0, 0)),
        (COUNTS | {"prompt_cache_hit_tokens": 10, "prompt_cache_miss_tokens": 3}, (10, 7, 10, 0, 0)),
        *[(COUNTS | {"prompt_tokens": wrong}, None) for wrong in (-1, True)],
        *[(COUNTS | {"completion_tokens": wrong}, None) for wrong in (7.5, "7")],
        ({"completion_tokens": 7}, None),
        ("much", None),
    ],
)
def test_a_report_of_tokens(told: Any, found: Any) -> None:
    usage = usage_of(told)
    shown = None if usage is None else (usage.prompt, usage.generated, usage.cached, usage.reasoning, usage.written)
    assert shown == found
    if found is not None:  # wherever servers put it
        choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
        for event in (
            {"choices": [], "usage": told},
            {"choices": [], "usage": None, "x_groq": {"id": "r", "usage": told}},
            {"choices": [{**choice, "usage": told}]},
        ):
            reply = ServerReply(1)
            reply.take(event)
            assert reply.usage == usage


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40)), min_size=1, max_size=8), st.integers(0, 400))
def test_parts_sum_to_the_whole_and_pass_no_cap(rows: list[tuple[int, int]], total: int) -> None:
    weights, caps = [weight for weight, _ in rows], [cap for _, cap in rows]
    parts = shares(total, weights, caps)
    assert (parts is None) == (total > sum(caps))
    if parts is not None:
        assert sum(parts) == total
        assert all(0 <= part <= cap for part, cap in zip(parts, caps, strict=True))


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"choices": None},
        {"choices": [5]},
        {"choices": [{"index": "0"}]},
        {"choices": [{"index": 0, "text": 5}]},
        {"choices": {"0": 1}},
    ],
)
def test_what_is_no_reply(event: Any) -> None:
    with pytest.raises(ServerError, match="BadReply"):
        ServerReply(1).take(event)


def test_a_token_that_runs_over_a_stop_text_opens_the_continuation() -> None:
    async def check(backend: OpenAIBackend) -> None:
        stop = StopCondition(("=",), at_step=True)  # inside of the token " = "
        handle, text, ids = (await backend.open([PROMPT]))[0].value, "", ()
        [whole] = await drawn(backend, 1, sampling=Sampling(temperature=0.0))
        for _ in range(20):
            request = SampleRequest(handle, (Row(1, len(ids), 60),), Sampling(temperature=0.0), stop, text)
            [piece] = await samples_of(backend.sample(request))
            handle, text, ids = piece.handle, text + piece.text, ids + piece.token_ids
            assert (piece.finish == "stop") == piece.text.endswith("=")
            if piece.finish == "eos":
                break
        assert (text, ids) == (whole.text, whole.token_ids)

    using(ToyServer(), check)


def test_paths_go_on_by_the_tokens_that_they_are() -> None:
    server = ToyServer()

    async def check(backend: OpenAIBackend) -> None:
        first, second = [reply.value for reply in await backend.open([PROMPT, (Message("user", PROMPT),)])]
        assert len(second.ids) > len(first.ids)  # by the model's template
        spelled = (await backend.open([TokenizedText.of(first.ids)]))[0].value
        assert spelled.ids == first.ids
        [extension] = await backend.extend([first], ["3 + 4 = "])
        assert extension.value.handle.ids == first.ids + extension.value.token_ids
        with pytest.raises(PromptTooLong):
            await OpenAIBackend.extend(backend, [ServerHandle(PROMPT, tuple(range(200)), "", "")], ["1"])

    using(server, check, context=200)


def test_a_path_that_fills_the_context_ends_at_once_and_costs_nothing() -> None:
    server = ToyServer()

    async def check(backend: OpenAIBackend) -> None:
        handle = (await backend.open([PROMPT]))[0].value
        backend._limit = len(handle.ids) + 4
        [near] = await backend.extend([handle], [TokenizedText.of((4, 4))])
        [full] = await backend.extend([handle], [TokenizedText.of((4, 4, 4, 4))])
        requests = [
            SampleRequest(reply.value.handle, (Row(1, 2, 60),), Sampling(), StopCondition(), "")
            for reply in (near, full)
        ]
        [cut], [none] = [await samples_of(backend.sample(request)) for request in requests]
        assert [body["max_tokens"] for body in server.bodies] == [2]
        assert cut.num_tokens <= 2
        assert (none.text, none.finish, none.num_tokens, none.handle.ids) == ("", "length", 0, full.value.handle.ids)

    using(server, check, context=200)


def test_a_predicate_that_raises_fails_its_rows_and_ends_their_calls() -> None:
    def finished(text: str) -> bool:
        raise ValueError("no law for it")

    async def check(backend: OpenAIBackend) -> None:
        rows = await asked(backend, 3, stop=StopCondition(("\n",), finished=finished))
        with pytest.raises(ValueError, match="no law for it"):
            await rows.row(0)
        assert rows.done

    using(ToyServer(), check)


def test_a_server_that_writes_more_than_was_asked_for_is_not_believed_where_a_step_ended_before() -> None:
    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1, cap=8, stop=StopCondition(("\n",), at_step=True))
        assert sample.finish == "error"
        assert sample.error.startswith("Overrun: ")
        assert sample.error.endswith(" tokens where 8 were asked for")
        assert sample.num_tokens == 8

    using(ToyServer(ignores_cap=True, streams=False, stops=False), check, streams=False, stops=False)


def test_a_text_without_its_tokens_is_no_row() -> None:
    def say(asked: Any) -> list[bytes]:
        told = {"choices": [{"index": 0, "text": "4", "finish_reason": "stop"}]}
        return whole({"tokens": [1, 2]} if asked.path == "/tokenize" else told)

    sample, _ = row(say=say, cap=1, mode="tokens", logprobs=True, streams=False)
    assert (sample.finish, sample.error) == ("error", "BadReply: a text without its token ids")


def test_a_key_that_is_refused_later_is_told_with_how_to_give_one() -> None:
    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1)
        assert sample.error.startswith(
            "KeyRefused: status 401: Incorrect API key provided: none; put it into the environment variable"
        )
        assert sample.num_tokens == 0

    using(ToyServer(key="another"), check, mode="text")


def test_a_tokenizer_that_never_answers_is_given_up() -> None:
    async def check(url: str) -> None:
        backend = on(url)
        backend._open_client()
        backend._timeouts = dataclasses.replace(backend._timeouts, connect_s=0.02)
        with pytest.raises(EngineError, match=r"text: TimedOut:.*word.*0\.02") as failed:
            await backend.open([PROMPT])
        assert failed.value.kind == "TimedOut"
        await backend.close()

    with serving(Saying(lambda _: dripping(head("application/json")))) as url:
        asyncio.run(check(url))


@pytest.mark.parametrize(
    ("tokens", "text", "beyond"),
    [
        (["a", " = b"], "a =", " b"),
        (["\ufffd", " = b"], "\u00e9 =", " b"),  # texts of tokens that do not join to that of the row
        (["\ufffd", "b"], "\u00e9 =", ""),
        ([], "a", ""),
    ],
)
def test_what_a_last_token_has_behind_a_stop_text_is_found(tokens: list[str], text: str, beyond: str) -> None:
    assert _text_past_stop("", Choice(tokens=tokens), text) == beyond


def test_what_the_server_does_not_obey_is_refused() -> None:
    async def check(backend: OpenAIBackend) -> None:
        with pytest.raises(CapabilityError, match=r"top_k.*5.*min_p"):
            await asked(backend, 1, sampling=Sampling(top_k=5))

    using(ToyServer(), check, filters=False)


def test_closing_ends_calls_under_way() -> None:
    server = ToyServer(pause_s=0.01)

    async def check(backend: OpenAIBackend) -> None:
        rows = await asked(backend, 4, prompt=LONG, cap=300)
        while len(server.served) < 4:
            await asyncio.sleep(0.002)
        await backend.close()
        with pytest.raises(EngineError, match="closed"):
            await rows.row(0)

    using(server, check)


async def drawn_with_law(backend: OpenAIBackend, sampling: Sampling) -> list[Sample]:
    """Draw a row with the law that it is drawn from, and its spread."""
    [opened] = await backend.open([PROMPT])
    rows, told = (Row(3, 0, 40),), {"spreads": True, "sampling_logprobs": True}
    return await samples_of(backend.sample(SampleRequest(opened.value, rows, sampling, StopCondition(), **told)))


@pytest.mark.parametrize("mode", ["tokens", "continued chat"])
def test_the_most_likely_tokens_give_the_law_drawn_from_and_its_spread(mode: str) -> None:
    async def check(backend: OpenAIBackend) -> None:
        toy = ToyBackend(ToyLanguage(accuracy=0.4, mute=0.2))
        for temperature in (1.0, 0.5, 0.0):
            sampling = Sampling(temperature=temperature)
            [sample] = await drawn_with_law(backend, sampling)
            assert len(sample.sampling_logprobs) == len(sample.spreads) == len(sample.logprobs) > 5
            laws = [[math.log(p) for _, p in toy.language.outcomes()], [math.log(0.2), math.log(0.8)]]
            for by_sampling, logprob, spread in zip(
                sample.sampling_logprobs, sample.logprobs, sample.spreads, strict=True
            ):
                if logprob == 0.0:
                    assert by_sampling == spread.entropy == 0.0
                    continue
                [law] = [law for law in laws if any(abs(one - logprob) < 1e-9 for one in law)]
                at = next(i for i, one in enumerate(law) if abs(one - logprob) < 1e-9)
                assert by_sampling == pytest.approx(sampling_logprob(np.array(law), sampling, at), abs=1e-6)
                assert spread.entropy == pytest.approx(-sum(p * math.exp(p) for p in law))

    using(ToyServer(tops=True), check, mode=mode, tops=True)


def test_a_server_that_shows_no_likely_tokens_where_it_was_said_to_gives_none() -> None:
    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn_with_law(backend, WARM)
        assert (sample.spreads, sample.sampling_logprobs) == ((), ())

    using(ToyServer(), check, tops=True)
