"""What a server does not say outright: hidden thoughts, trimmed messages, work behind a lost connection, and that it is
gone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tts
from tests.addons.gateway.wire.upstream import serving_script
from tests.backends.openai.making import QUICK, drawn, on
from tests.backends.openai.saying import ONCE, Asked, Saying, delta, event, head, row, used, whole
from tests.backends.openai.server import serving
from tests.support.guard import LIMIT_S
from tests.support.runs import make_run, solve_runs
from tts.backends.openai import http as openai_http
from tts.backends.openai.errors import Key
from tts.models.record import ModelRecord

SECRET = "sk-of-nobody-4711"


@pytest.mark.parametrize(("streams", "charged"), [(False, 60), (True, 0)])
def test_a_connection_that_is_lost_while_a_whole_reply_is_written_has_cost_it(
    streams: bool, charged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_http, "_IDLE_S", 0.05)

    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.15)
        yield b""

    sample, server = row(endless=nothing(), streams=streams)
    assert sample.error.startswith("ConnectionLost")
    assert (sample.num_tokens, sample.estimated) == (charged, bool(charged))
    assert len(server.asked) == 1


def test_a_server_that_is_gone_fails_rows_at_once_when_it_was_waited_for_long_enough() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"

        async def check() -> None:
            backend = on(
                url, dataclasses.replace(QUICK, longest_wait_s=0.2, wait_s=0.2, tries=8), mode="chat", logprobs=False
            )
            [first] = await drawn(backend, 1)
            assert first.error.startswith("ConnectionFailed")
            tried, began = backend.errors["ConnectionFailed"], time.monotonic()
            later = await drawn(backend, 50)
            assert all(sample.error.startswith("ConnectionFailed") and not sample.num_tokens for sample in later)
            assert backend.errors["ConnectionFailed"] == tried + 50  # one try each
            assert time.monotonic() - began < 5
            await backend.close()

        asyncio.run(check())


@pytest.mark.parametrize("at", [1, 6, 13, len(SECRET) - 1])
def test_a_key_that_is_split_over_events_is_hidden(at: int) -> None:
    events = (delta(f"so {SECRET[:at]}"), delta(f"{SECRET[at:]} it is", "stop"), used(3, 9), b"[DONE]")
    sample, _ = row(head(), *map(event, events), key=Key(SECRET))
    assert sample.text == "so *** it is"
    assert SECRET not in sample.handle.text


TOLD = f"it is {SECRET}, or {SECRET[:9]}\nno more"


def telling(asked: Asked) -> list[bytes]:
    """Go on with a fixed text behind what a request shows of it, a token a character; what was hidden in it counts as
    shown.
    """
    shown = re.sub(r"[sk\-of]*\*\*\*", SECRET, asked.body["prompt"].removeprefix("1 + 1"))
    cap = asked.body["max_tokens"]
    text, finish = TOLD[len(shown) : len(shown) + cap], "length" if len(shown) + cap < len(TOLD) else "stop"
    usage = {"prompt_tokens": 5, "completion_tokens": len(text)}
    return whole({"choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": usage})


@pytest.mark.parametrize("portion", [1, 4, 5, 6, 7, 11, 16, 17, 18, 30])
def test_a_key_that_is_cut_over_calls_is_hidden(portion: int) -> None:
    """Its first characters wait until it is known what follows; an end like its begin, which it is not, comes back."""

    async def searched(url: str) -> Any:
        backend = on(url, ONCE, key=Key(SECRET), mode="text", streams=False, seeds=False, logprobs=False)
        try:
            return (
                await solve_runs([make_run("1 + 1", 400, "best_of_n(n=1)", backend, task="text")], portion=portion)
            )[0]
        finally:
            await backend.close()

    with serving(Saying(telling)) as url:
        end = asyncio.run(searched(url))
    (candidate,) = end.solution.candidates
    begun = next((k for k in range(5, 0, -1) if (len("it is ") + k) % portion == 0), 0)
    assert candidate.trajectory.text == TOLD.replace(SECRET, SECRET[:begun] + "***")
    assert SECRET[:6] not in candidate.trajectory.text.partition(",")[0]
    assert candidate.trajectory.status == "finished"
    assert SECRET not in end.solution.trace.to_json()


@pytest.mark.parametrize("limit", [{}, {"tokens": 4000}, {"generated_tokens": 4000}])
def test_rows_of_which_nothing_was_seen_are_charged_by_what_is_limited(limit: dict[str, int]) -> None:
    late, calls = threading.Event(), itertools.count(1)  # a call's own number, whoever else is called meanwhile

    def script(_: Any) -> dict[str, Any]:
        if next(calls) > 2:
            late.wait(LIMIT_S)
        return {"content": "The answer is 4."}

    with serving_script(script) as served:
        record = ModelRecord(name="scripted", backend="openai", url=served.url, options=(("probe", "never"),))
        try:
            found = tts.solve(
                "2 + 2",
                tts.Budget(samples=4, **limit),
                model=record,
                strategy="best_of_n(n=4) | first_finish(k=2) | majority",
            )
        finally:
            late.set()
    written, unseen = found.usage.generated_tokens, found.usage.cancelled_tokens
    assert unseen > 500 if limit else 0 < unseen <= written
    assert any("charged the tokens of the longest row" in line for line in found.warnings) != bool(limit)
