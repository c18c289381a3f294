"""A server that was started anew as another one: the first contradiction drops what was kept, and the search goes on by
a new probe.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tts
from tests.backends.openai.making import PROMPT, QUICK, asked, until
from tests.backends.openai.server import ToyServer, serving
from tests.support.guard import LIMIT_S
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.errors import ConfigError
from tts.models import registry
from tts.solver.solver import Solver

FOUR = tts.Budget(samples=4, tokens=4000)


def kept_of(url: str) -> Capabilities | None:
    return ServerAccess.of(registry.resolve("toy", url)).kept.read()


def probed(url: str) -> None:
    """Have the capabilities of a server kept."""
    ServerAccess.of(registry.resolve("toy", url)).probe_anew()


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [
        ({}, {"ids": False}, "continued chat"),  # its tokenizer is gone: even the prompt is refused
        ({"ids": False}, {"strict": True}, "chat"),  # it refuses parameters that it took
        ({"ids": False}, {"cap_name": "max_completion_tokens"}, "continued chat"),
        ({"ids": False}, {"completions": True, "chat": False}, "text"),
    ],
)
def test_the_search_that_meets_it_goes_on(
    before: dict[str, Any], after: dict[str, Any], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = ToyServer(prompts=(PROMPT,), **before)
    with serving(server) as url:
        probed(url)
        for name, value in after.items():
            setattr(server, name, value)
        with Solver("toy", url=url, task="arithmetic") as solver:
            solution = solver.solve(PROMPT, FOUR, strategy="best_of_n(n=4)")
            asked = len(server.headers)
            again = solver.solve(PROMPT, FOUR, strategy="best_of_n(n=4)", seed=1)
        kept = kept_of(url)
    assert len(solution.candidates) == len(again.candidates) == 4
    assert solution.failures == again.failures == {}
    assert solution.error is None
    assert len(server.headers) - asked <= 4  # rows alone: it is probed no more
    assert kept is not None
    assert kept.mode == mode
    assert "what was kept about it is dropped, and it is probed again" in caplog.text


def test_a_path_of_tokens_goes_on_by_its_text() -> None:
    server = ToyServer(prompts=(PROMPT,))

    def restarted(number: int, body: Any) -> str:
        server.ids = server.ids and not (number > first and body["prompt"] != opening)
        return ""

    with serving(server) as url:
        probed(url)
        first, opening = server.calls, server.encoded(PROMPT)
        server.fault = restarted  # at the second step of the first path
        with Solver("toy", lambda _, text: 1 / (1 + len(text)), url=url, task="arithmetic") as solver:
            solution = solver.solve(PROMPT, tts.Budget(samples=16), strategy="beam(n=2, branching=2)")
        assert kept_of(url) is not None
    assert not server.ids
    assert solution.candidates
    assert solution.error is None


def test_what_the_new_server_cannot_do_at_all_is_refused_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    server = ToyServer(prompts=(PROMPT,))
    with serving(server) as url:
        probed(url)
        server.tempers = False
        with Solver("toy", url=url, task="arithmetic") as solver:
            with pytest.raises(tts.TTSError, match="temperature"):
                solver.solve(PROMPT, FOUR, strategy="best_of_n(n=1)")
            rows = [body for body in server.bodies if body["max_tokens"] > 256]  # a probe asks for less
            assert [body["temperature"] for body in rows] == [0.8]  # no row was asked for at another temperature
            warm = tts.Sampling(temperature=1.0)
            solution = solver.solve(PROMPT, FOUR, strategy="best_of_n(n=1, temperature=1.0)")
        with Solver("toy", url=url, task="arithmetic", sampling=warm) as later:
            assert later.solve(PROMPT, FOUR, strategy="best_of_n(n=1)").candidates
    assert solution.candidates


def test_a_refusal_that_changes_nothing_is_probed_once_and_stays_one() -> None:
    server = ToyServer(prompts=(PROMPT,), ids=False)

    def refuse_sums(body: Any) -> None:
        if PROMPT in str(body):
            raise ConfigError("no problems of this kind")

    with serving(server) as url:
        probed(url)
        before = kept_of(url)
        server.check = refuse_sums  # type: ignore[method-assign]
        with Solver("toy", url=url, task="arithmetic") as solver:
            numbers: list[int] = []
            for seed in range(2):
                with pytest.raises(tts.TTSError, match="of this kind"):
                    solver.solve(PROMPT, FOUR, strategy="best_of_n(n=1)", seed=seed)
                numbers.append(sum(PROMPT not in str(body) for body in server.bodies))
        assert kept_of(url) == before
    assert numbers[0] == numbers[1]


def test_declared_capabilities_are_no_reason_to_probe() -> None:
    server = ToyServer(prompts=(PROMPT,), tempers=False)
    with serving(server) as url:
        record = registry.resolve("toy", url, {"capabilities": {"mode": "chat"}})
        with Solver(record, task="arithmetic") as solver, pytest.raises(tts.TTSError):
            solver.solve(PROMPT, FOUR, strategy="best_of_n(n=2)")
    assert all(PROMPT in str(body) for body in server.bodies)
    assert len(server.headers) == len(server.bodies)


def test_rows_that_are_given_up_while_a_refusing_server_is_probed_again_cost_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, over = threading.Event(), threading.Event()

    def probe() -> Capabilities:
        begun.set()
        over.wait(LIMIT_S)
        raise ConfigError("it has gone")

    async def check(url: str) -> None:
        found = Capabilities(root=f"{url}/v1", model="toy", mode="text", seeds=True, streams=True)
        backend = OpenAIBackend(found, timeouts=QUICK, probe=probe)
        rows = await asked(backend, 1)
        await until(begun.is_set)
        rows.cancel()
        sample = await rows.row(0)
        assert (sample.finish, sample.num_tokens, sample.text) == ("cancelled", 0, "")
        over.set()
        await until(lambda: "could not be probed again: it has gone" in caplog.text)
        assert backend.capabilities == found
        await backend.close()

    with serving(ToyServer(completions=False)) as url:
        asyncio.run(check(url))
