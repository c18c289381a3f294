"""How fast a server is called: calls in flight after refusals, rate limits that it states, and limits of one's own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

import pytest

from tests.backends.openai.making import QUICK, drawn, using
from tests.backends.openai.server import ToyServer, serving
from tests.support.guard import LIMIT_S
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.errors import Key
from tts.backends.openai.http import HttpClient, Timeouts
from tts.backends.openai.pace import Gate, RateLimits, RequestMeter
from tts.errors import ConfigError
from tts.models import registry


def test_a_round_of_refusals_halves_the_calls_once_and_success_brings_them_back() -> None:
    gate = Gate(64)
    for _ in range(64):  # all of one round
        gate.cut(0)
    assert (gate.limit, gate.cuts) == (32, 1)
    gate.cut(1)
    assert gate.limit == 16
    for _ in range(16):
        gate.grow()
    assert 16.5 < gate.limit < 17.1  # one more for a round
    for _ in range(10_000):
        gate.grow()
    assert gate.limit == 64
    for cuts in range(2, 20):
        gate.cut(cuts)
    assert gate.limit == 1


def test_a_cautious_gate_doubles_each_round_until_it_is_refused() -> None:
    gate = Gate(256, cautious=True)
    assert gate.limit == 16
    for _ in range(16):
        gate.grow()
    assert gate.limit == 32
    gate.allow(5)
    gate.grow()
    assert gate.limit == 5
    gate.allow(0)
    assert gate.limit == 1
    assert Gate(4, cautious=True).limit == 4


def test_a_gate_lets_in_order_and_loses_no_place_to_who_gives_up() -> None:
    async def check() -> list[int]:
        gate, seen = Gate(1), list[int]()

        async def one(number: int) -> None:
            async with gate:
                await asyncio.sleep(0)
                seen.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(LIMIT_S), gate:  # nobody holds a place any more
            return seen

    assert asyncio.run(check()) == [0, 1, 3, 4, 5]


def test_requests_a_minute_hold_in_every_minute() -> None:
    meter, now, sent = RequestMeter(3, None), 0.0, list[float]()
    for _ in range(12):
        now += max(0.0, meter.wait_s(now, 1)) + 0.5
        meter.send(now, 1)
        sent.append(now)
    assert all(later - earlier >= 60 for earlier, later in zip(sent, sent[3:], strict=False))
    assert sent[2] == 1.5
    assert sent[-1] < 200  # and are used


def test_tokens_a_minute_are_counted_as_expected_and_then_as_reported() -> None:
    meter = RequestMeter(None, 1000)
    assert meter.wait_s(0.0, 5000) <= 0  # alone
    first = meter.send(0.0, 800)
    assert meter.wait_s(1.0, 300) == pytest.approx(59)
    first.tokens = 200  # as the reply says
    assert meter.wait_s(1.0, 300) <= 0
    meter.send(1.0, 700)
    assert meter.wait_s(2.0, 300) == pytest.approx(58)
    assert meter.wait_s(2.0, 5000) == pytest.approx(59)
    assert meter.wait_s(61.1, 5000) <= 0


def test_without_limits_nothing_is_remembered() -> None:
    meter = RequestMeter(None, None)
    for _ in range(1000):
        meter.send(0.0, 10)
    assert meter.wait_s(0.0, 10**9) <= 0
    meter.close_until(7.0)
    assert meter.wait_s(0.0, 1) == 7


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({"x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s"}, RateLimits(59, None, 0.0)),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, RateLimits(0, None, 360.0)),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, RateLimits(None, 0, 0.02)),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1.5"}, RateLimits(0, None, 1.5)),
        ({"x-ratelimit-remaining": "3"}, RateLimits(3, None, 0.0)),
        ({"x-ratelimit-remaining-requests": "many"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, RateLimits(0, None, 0.0)),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "nan"}, RateLimits(0, None, 0.0)),
    ],
)
def test_headers_of_rate_limits_are_read(headers: Mapping[str, str], found: RateLimits | None) -> None:
    assert RateLimits.of(headers) == found


def test_a_stated_limit_that_is_used_up_closes_the_server_until_it_is_reset() -> None:
    async def check() -> tuple[float, float]:
        now = asyncio.get_running_loop().time()
        waits: list[float] = []
        for reset in ("7s", "2h"):
            client = HttpClient("http://127.0.0.1:9/v1", Key(), QUICK)
            client._keep_limits({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset})
            waits.append(client._meter.wait_s(now, 1))
            assert client.gate.limit == 1
        return waits[0], waits[1]

    short, long = asyncio.run(check())
    assert short >= 7
    assert 7200 > long >= QUICK.longest_wait_s


def test_a_request_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    meter, waited = RequestMeter(1, None), list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        meter._sent.clear()  # as time does

    monkeypatch.setattr("tts.backends.openai.pace.asyncio.sleep", sleep)

    async def check() -> None:
        for _ in range(2):
            await meter.turn(10)

    asyncio.run(check())
    assert len(waited) == 1
    assert 0 < waited[0] <= 60


@pytest.mark.slow
def test_a_server_that_takes_few_calls_gets_few_and_every_row_is_written() -> None:
    server = ToyServer(ids=False, most_at_once=4, pause_s=0.001)
    timeouts = dataclasses.replace(QUICK, tries=12)

    async def check(backend: OpenAIBackend) -> int:
        for _ in range(4):
            samples = await drawn(backend, 48)
            assert [sample.finish for sample in samples if sample.finish == "error"] == []
        before = server.refused
        await drawn(backend, 48)
        return server.refused - before

    later = using(server, check, timeouts, mode="chat")
    assert server.most_writing <= 4
    assert later < 48  # all at once would be refused eleven times in twelve, again and again


@pytest.mark.slow
def test_stated_limits_are_kept_from_the_first_call() -> None:
    server = ToyServer(
        ids=False, limit_headers=("x-ratelimit-remaining-requests: 2", "x-ratelimit-limit-requests: 60"), pause_s=0.001
    )
    with serving(server) as url:
        found = ServerAccess.of(registry.resolve("toy", url)).capabilities()
    assert found.limited
    server.streams = False  # whose heads have the limits

    async def check(backend: OpenAIBackend) -> None:
        await drawn(backend, 40)
        server.most_writing = 0
        await drawn(backend, 40)

    using(server, check, mode="chat", limited=True, streams=False)
    assert server.most_writing <= 2


def test_what_a_minute_may_have_is_an_option() -> None:
    with serving(ToyServer()) as url:
        backend = OpenAIBackend.from_record(registry.resolve("toy", url), rpm=5, tpm=1000)
    assert backend._timeouts == Timeouts(rpm=5, tpm=1000)
    for name in ("rpm", "tpm"):
        with pytest.raises(ConfigError, match=f"{name} is 0, but must be a whole number of at least 1, a minute"):
            Timeouts(**{name: 0})
    with pytest.raises(ConfigError, match=r"tries.*0,.*whole.*1"):
        Timeouts(tries=0)
