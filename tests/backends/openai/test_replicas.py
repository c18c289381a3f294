"""Several servers of one model: calls go on at another where one fails, it rests, and it is tried again; also from the start."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import tts
from tests.backends.openai.making import FULL, PROMPT, QUICK, drawn
from tests.backends.openai.saying import Asked, Saying, whole
from tests.backends.openai.server import ToyServer, serving
from tests.backends.openai.test_replies import message
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import ServerError
from tts.backends.openai.replicas import Replicas
from tts.models.record import ModelRecord

USED = {"prompt_tokens": 9, "completion_tokens": 2}


@contextmanager
def nobody() -> Generator[str]:
    """Give the url of a port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def replying(*statuses: int) -> Saying:
    """Return a server that replies with these statuses, then well."""
    left = list(statuses)

    def say(asked: Asked) -> list[bytes]:
        if asked.path.endswith("/models"):
            return whole({"data": [{"id": "toy"}]})
        status = left.pop(0) if left else 200
        return message("4", usage=USED) if status == 200 else whole({"error": {"message": "busy"}}, status)

    return Saying(say)


def samples_at(urls: list[str], count: int, check: Callable[[OpenAIBackend], Any] = lambda _: None, **timeouts: Any) -> Any:
    async def draw() -> Any:
        found = Capabilities(root=f"{urls[0]}/v1", model="toy", mode="chat", usage=True)
        backend = OpenAIBackend(found, timeouts=dataclasses.replace(QUICK, **timeouts), others=[f"{url}/v1" for url in urls[1:]])
        made = []
        for _ in range(count):
            made += await drawn(backend, 1)
        check(backend)
        await backend.close()
        return made

    return asyncio.run(draw())


def test_calls_of_a_dead_server_go_to_its_twin_and_are_not_tried_there_in_turn() -> None:
    twin = replying()

    def check(backend: OpenAIBackend) -> None:
        assert backend.errors == {"ConnectionFailed": 1}, "it rests after the first call"

    with nobody() as dead, serving(twin) as url:
        samples = samples_at([dead, url], 5, check)
    assert [sample.text for sample in samples] == ["4"] * 5
    assert samples[0].error.startswith("ConnectionFailed")
    assert not any(sample.error for sample in samples[1:])
    assert len(twin.asked) == 5


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_refuses_rests_while_the_other_works(status: int) -> None:
    first, second = replying(status), replying()
    with serving(first) as one, serving(second) as other:
        samples = samples_at([one, other], 4)
    assert [sample.text for sample in samples] == ["4"] * 4
    assert (len(first.asked), len(second.asked)) == (1, 4)


def test_a_request_that_no_server_would_take_goes_to_one_alone() -> None:
    first, second = replying(400, 400), replying()
    with serving(first) as one, serving(second) as other:
        samples = samples_at([one, other], 2)
    assert [sample.error.partition(":")[0] for sample in samples] == ["Refused"] * 2
    assert (len(first.asked), len(second.asked)) == (2, 0)


def test_where_all_fail_the_tries_are_those_of_one_server() -> None:
    first, second = replying(*[503] * 20), replying(*[503] * 20)
    with serving(first) as one, serving(second) as other:
        [sample] = samples_at([one, other], 1, tries=4)
    assert sample.error.startswith("Unavailable")
    assert len(first.asked) + len(second.asked) == 4
    assert sample.num_tokens == 0


def test_paths_by_tokens_go_on_at_the_other_server() -> None:
    servers = [ToyServer(prompts=[PROMPT], fault=lambda number, _body: "503" if number == 1 else ""), ToyServer(prompts=[PROMPT])]
    for word in (PROMPT, *"0123456789+-= A:\n"):
        servers[1].encoded(word)

    async def draw(urls: list[str]) -> Any:
        found = Capabilities(root=f"{urls[0]}/v1", **FULL)
        backend = OpenAIBackend(found, timeouts=QUICK, others=[f"{urls[1]}/v1"])
        samples = await drawn(backend, 2)
        await backend.close()
        return samples

    with ExitStack() as stack:
        samples = asyncio.run(draw([stack.enter_context(serving(one)) for one in servers]))
    assert all(sample.text and sample.finish in ("eos", "length") for sample in samples)


# At the start -----------------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_dead_at_the_start_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with nobody() as dead, serving(ToyServer(prompts=[PROMPT])) as url:
        record = ModelRecord(name="toy", backend="openai", url=dead, replicas=(dead, url))
        with tts.Solver(record, task="arithmetic", strategy="best_of_n(n=2) | majority") as solver:
            found = solver.solve(PROMPT, 200)
        with pytest.raises(tts.ConfigError, match="cannot be reached"):
            tts.Solver(dataclasses.replace(record, replicas=(dead,)))
    assert len(found.candidates) == 2
    assert "its calls go to the next server" in caplog.text


def test_each_server_fails_over_to_the_next_of_its_list() -> None:
    urls = ("http://a:1", "http://b:1/v1", "http://c:1/")
    for url, others in (
        ("http://a:1", ("http://b:1/v1", "http://c:1/")),
        ("http://b:1", ("http://c:1/", "http://a:1")),
        ("http://d:1", urls),
    ):
        access = ServerAccess.of(ModelRecord(name="m", backend="openai", url=url, replicas=urls))
        assert access.others == others
    access = ServerAccess.of(ModelRecord(name="m", backend="openai", url="http://a:1", replicas=urls))
    assert access.other_roots("http://a:1/v1") == ("http://b:1/v1", "http://c:1/v1")
    assert access.other_roots("http://c:1") == ("http://a:1", "http://b:1/v1")


# The rule ---------------------------------------------------------------------------------------------------------------------------


def test_rests_double_and_end_with_a_call_that_works() -> None:
    servers = Replicas(["a", "b"], longest_s=60.0)
    one, other = servers.all
    busy = ServerError("Unavailable", "busy", again=True, status=503)
    ends = []
    for _ in range(8):
        assert servers.choose(0.0) is (one if not ends else other)
        assert servers.note_failure(one, busy, 0.0)
        ends.append(one.rests_until)
    assert ends == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert servers.choose(59.9) is other
    assert servers.choose(60.0) is one
    servers.note_success(one)
    assert (servers.choose(0.0), one.rests_until) == (one, -math.inf)
    servers.note_failure(one, ServerError("RateLimited", "later", again=True, after_s=30.0, status=429), 0.0)
    assert one.rests_until == 30.0


def test_a_wait_that_no_try_takes_closes_a_server_until_then() -> None:
    servers = Replicas(["a"], longest_s=60.0)
    [one] = servers.all
    quota = ServerError("QuotaExceeded", "until tomorrow", after_s=3600.0, status=429)
    assert not servers.note_failure(one, quota, 0.0)
    with pytest.raises(ServerError, match="until tomorrow") as caught:
        servers.choose(3599.0)
    assert (caught.value.kind, caught.value.again) == ("QuotaExceeded", False)
    assert servers.choose(3600.0) is one
    assert not servers.note_failure(one, ServerError("Unavailable", "busy", again=True), 3600.0)
    assert servers.choose(3600.0) is one, "the only server is tried, whatever it did"
    assert not servers.note_failure(one, ServerError("Refused", "bad", status=400), 0.0)


def test_studies_and_gateways_give_every_server_the_others() -> None:
    from tts.experiments.study.config import ModelConfig

    config = ModelConfig(model={"policy": "toy-on-a-server"}, url=["http://a:1", "http://b:1"])
    assert config.records()["policy"].replicas == ("http://a:1", "http://b:1")
    assert ModelConfig(model={"policy": "toy-on-a-server"}, url=["http://a:1"]).records()["policy"].replicas == ()
