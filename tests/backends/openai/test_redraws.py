"""What is asked again, and how: in smaller calls, for shorter rows, later, or not at all where the budget pays one
reading.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest

from tests.backends.openai.making import LONG, PROMPT, QUICK, asked, drawn, on, samples_of, told_at, until, using
from tests.backends.openai.server import ToyServer, serving
from tests.support.runs import check_books, make_run, solve_runs
from tts.backends.base import Sampling
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.http import Timeouts
from tts.backends.toy.language import tokens_of
from tts.budget.budget import Budget, Rates
from tts.budget.units import USD_UNIT
from tts.errors import EngineError
from tts.types import Problem

SHARED: dict[str, Any] = {"seeds": False, "n": True}  # rows share calls
TEXT: dict[str, Any] = {"mode": "text", "logprobs": False}


def test_greedy_rows_are_asked_one_by_one_for_servers_refuse_several_that_are_the_same() -> None:
    server = ToyServer()

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 3, sampling=Sampling(temperature=0.0))
        assert {sample.finish for sample in samples} <= {"eos", "length"}
        assert [body.get("n") for body in server.bodies] == [None] * 3

    using(server, check, **SHARED)


def test_a_server_that_gives_few_rows_a_call_is_asked_in_smaller_ones() -> None:
    server = ToyServer(most=3)

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 16)
        assert all(sample.finish in ("eos", "length") and not sample.error for sample in samples)
        assert sorted((body["n"] for body in server.bodies), reverse=True) == [16, 8, 8, 4, 4, 4, 4, *[2] * 8]
        assert backend.counters.generated_tokens == sum(one.generated for one in server.served)

    using(server, check, **SHARED)


def test_what_a_server_refuses_for_another_reason_is_not_asked_in_pieces() -> None:
    server = ToyServer(strict=True)

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 8)
        assert {sample.error.partition(": ")[0] for sample in samples} == {"Refused"}
        assert len(server.bodies) == 1

    using(server, check, **SHARED)


@pytest.mark.parametrize("room", [60, 20])
def test_where_the_server_alone_counts_its_input_a_row_has_nearly_all_the_room_that_there_is(room: int) -> None:
    server = ToyServer(context=len(tokens_of(LONG)) + room)

    async def check(url: str) -> None:
        backend = on(url, context=server.context, **TEXT)
        [sample] = await drawn(backend, 1, prompt=LONG, cap=10**6)
        await backend.close()
        assert sample.finish in ("eos", "length")
        assert not sample.error
        caps = [body["max_tokens"] for body in server.bodies]
        assert caps == sorted(set(caps), reverse=True)
        assert room // 4 < caps[-1] <= room

    server.prompts = (LONG,)
    with serving(server) as url:
        asyncio.run(check(url))


class Uneven(ToyServer):
    """The first row and the third end at once."""

    made = 0

    def ended(self, row: Any, body: Any, cap: int) -> Any:
        shown = super().ended(row, body, cap)
        self.made += 1
        return [(*shown[0][:3], "stop", {})] if self.made in (1, 3) else shown


@pytest.mark.parametrize("fault", ["json", "error", "reset"])
def test_rows_that_were_whole_when_their_call_broke_are_kept(fault: str) -> None:
    server = Uneven(fault=told_at([fault]), pause_s=0.005)

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 4)
        assert [bool(sample.error) for sample in samples] == [False, True, False, True]
        assert all(sample.finish in ("eos", "length") for sample in samples)
        assert [sample.estimated for sample in samples] == [True] * 4  # nobody reports a call that breaks
        assert [body.get("n", 1) for body in server.bodies] == [4, 1, 1]

    using(server, check, **SHARED)


def test_what_a_broken_call_cost_is_paid_where_its_rows_are_given_up_before_they_are_asked_for_again() -> None:
    server = Uneven(fault=told_at(["json"]), pause_s=0.005)

    async def check(backend: OpenAIBackend) -> None:
        rows = await asked(backend, 4)
        # which is known in the turn in which the calls for the broken ones are made, and before they begin
        await rows.row(0)
        rows.cancel()
        samples = await samples_of(rows)
        assert [sample.finish for sample in samples] == ["eos", "cancelled", "eos", "cancelled"]
        assert len(server.bodies) == 1
        assert (
            sum(sample.num_tokens for sample in samples)
            == backend.counters.generated_tokens
            == server.served[0].generated
        )

    using(server, check, **SHARED)


def test_closing_draws_nothing_again() -> None:
    server = ToyServer(fault=told_at(["error"]))

    async def check(backend: OpenAIBackend) -> None:
        rows = await asked(backend, 8)
        await until(lambda: bool(backend.errors))
        await backend.close()
        with pytest.raises(EngineError):
            await rows.row(7)
        assert len(server.bodies) == 1

    using(server, check, Timeouts(wait_s=0.5), **SHARED)


def test_rows_are_drawn_again_after_a_wait_that_grows_and_can_be_given_up() -> None:
    server = ToyServer(fault=lambda _number, _body: "error")

    async def check(backend: OpenAIBackend) -> None:
        rows = await asked(backend, 4)
        await until(lambda: backend.errors.total() >= 4)
        began = time.monotonic()
        rows.cancel()
        samples = await samples_of(rows)
        assert time.monotonic() - began < 10  # and not 1000
        assert [sample.finish for sample in samples] == ["cancelled"] * 4
        assert len(server.bodies) <= 8
        assert sum(sample.num_tokens for sample in samples) == sum(one.generated for one in server.served)

    using(server, check, Timeouts(wait_s=1000.0, longest_wait_s=1000.0))


def test_an_end_of_sequence_that_is_not_shown_leaves_the_other_probabilities() -> None:
    server = ToyServer(shows_end=False)

    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1)
        assert sample.finish == "eos"
        assert sample.num_tokens == server.served[0].generated == len(sample.logprobs) + 1

    using(server, check, mode="chat")


@pytest.mark.parametrize("shows", [{"mode": "chat", "logprobs": False}, {}])
def test_a_server_that_knows_no_limit_is_stopped_at_it(shows: dict[str, Any]) -> None:
    server = ToyServer(ignores_cap=True, pause_s=0.002)

    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1, prompt=LONG, cap=5)
        assert sample.error.startswith("Overrun: ")
        assert (sample.finish, sample.num_tokens, sample.estimated) == ("error", 5, True)
        await until(lambda: server.open == 0)
        assert 5 < server.served[0].generated < 60

    using(server, check, **shows)


def test_what_broken_replies_cost_is_no_part_of_the_path() -> None:
    server = ToyServer(fault=told_at(["json"]))

    async def check(backend: OpenAIBackend) -> None:
        [end] = await solve_runs([make_run(PROMPT, Budget(samples=1), "best_of_n | majority", backend)])
        [candidate] = end.solution.candidates
        assert (
            candidate.trajectory.num_tokens == len(candidate.trajectory.token_ids) < end.solution.usage.generated_tokens
        )
        assert end.search is not None
        check_books(end.search)

    using(server, check)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"usd": 0.01}, {"flops": 20_000}])
def test_where_reading_is_paid_for_a_broken_reply_is_drawn_again_with_a_grant_of_its_own(
    limit: dict[str, float],
) -> None:
    server = ToyServer(fault=lambda number, _body: "none" if number % 3 else "")

    async def check(backend: OpenAIBackend) -> None:
        backend.rates = Rates(flops=2, usd_in=USD_UNIT // 10**6, usd_out=USD_UNIT // 10**6)
        [end] = await solve_runs([make_run(LONG, Budget(**limit), "best_of_n(n=8) | majority", backend)])
        assert end.solution.error is None
        assert min(end.solution.remaining.values()) >= 0
        assert end.solution.failures["NoContent"] > 0
        assert end.search is not None
        check_books(end.search)

    using(server, check, QUICK)


CHAT = [("user", "3 + 4"), ("assistant", "7"), ("user", "3 + 4 - 2")]


@pytest.mark.parametrize("limit", [{"usd": 0.01}, {"flops": 20_000}])
@pytest.mark.parametrize("problem", ["3 + 4 - 2", [{"role": role, "content": text} for role, text in CHAT]])
def test_chats_whose_replies_never_come_are_charged_within_what_was_granted(
    problem: Any, limit: dict[str, float]
) -> None:
    """All that was granted is charged, with the words of roles, which are no part of the texts."""
    server = ToyServer(completions=False, continues=False, streams=False, fault=lambda _number, _body: "hang")

    async def check(backend: OpenAIBackend) -> None:
        backend.rates = Rates(flops=2, usd_in=USD_UNIT // 10**6, usd_out=USD_UNIT // 10**6)
        run = make_run(Problem(problem), Budget(**limit), "best_of_n(n=8) | majority", backend, task="math")
        [end] = await solve_runs([run])
        assert end.solution.failures
        assert end.solution.remaining.keys() == limit.keys()
        assert end.search is not None
        check_books(end.search)

    using(server, check, dataclasses.replace(QUICK, first_s=0.1), mode="chat", streams=False)
