"""A server that fails in every way: what a row is then, what it is charged, and that nothing is lost, doubled or
leaked.
"""

from __future__ import annotations

import dataclasses
import time

import pytest

from tests.backends.openai.faulty import BROKEN, REFUSED, run_faulty
from tests.backends.openai.making import LONG, PROMPT, QUICK, asked, drawn, samples_of, told_at, until, using
from tests.backends.openai.server import ToyServer
from tests.support.runs import check_books, make_run, solve_runs
from tts.backends.base import StopCondition
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.errors import no_room
from tts.budget.budget import Budget

IMPATIENT = {"drip": dataclasses.replace(QUICK, call_s=1.0), "hang": dataclasses.replace(QUICK, first_s=1.0)}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_call_that_was_refused_before_it_began_is_made_again_and_costs_nothing(fault: str) -> None:
    server = ToyServer(fault=told_at(["", fault, fault]))

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 4)
        assert all(sample.finish in ("eos", "length") and not sample.estimated for sample in samples)
        assert backend.errors == {REFUSED[fault]: 2}
        assert {sample.error.partition(":")[0] for sample in samples} == {"", REFUSED[fault]}
        assert len(server.served) == 6
        assert (
            sum(sample.num_tokens for sample in samples)
            == backend.counters.generated_tokens
            == sum(s.generated for s in server.served)
        )

    using(server, check)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_reply_that_breaks_is_drawn_again_within_its_grant_and_harms_no_other(fault: str) -> None:
    server = ToyServer(fault=told_at(["", fault]))

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 4)
        assert all(sample.finish in ("eos", "length") and sample.text for sample in samples)
        [mended] = [sample for sample in samples if sample.error]
        assert mended.error.partition(": ")[0] == BROKEN[fault]
        assert mended.estimated
        assert mended.num_tokens <= 60
        made, [broken] = sum(one.generated for one in server.served), [one for one in server.served if one.fault]
        # a connection that is reset loses what was on its way
        lossy = broken.generated if fault in ("reset", "drip") else 0
        assert made - lossy <= sum(sample.num_tokens for sample in samples) <= made
        assert backend.counters.generated_tokens == sum(sample.num_tokens for sample in samples)
        assert backend.errors == {BROKEN[fault]: 1}
        assert len(server.served) == 5

    using(server, check, IMPATIENT.get(fault, QUICK))


@pytest.mark.parametrize("fault", ["cut", "json", "none", "twice"])
def test_a_row_whose_replies_all_break_is_a_failed_one_of_a_kind_and_passes_no_grant(fault: str) -> None:
    server = ToyServer(fault=lambda _number, _body: fault)

    async def check(backend: OpenAIBackend) -> None:
        for sample in await drawn(backend, 3, cap=40):
            assert (sample.finish, sample.text, sample.token_ids, sample.handle) == ("error", "", (), None)
            assert sample.error.partition(": ")[0] == BROKEN[fault]
            assert 0 < sample.num_tokens <= 40
        assert all(sum(body["seed"] == one["seed"] for body in server.bodies) == 1 for one in server.bodies)
        assert backend.counters.generated_tokens == sum(one.generated for one in server.served)

    using(server, check)


@pytest.mark.parametrize(("shows", "charged"), [({}, False), ({"mode": "text", "logprobs": False}, True)])
def test_a_report_that_cannot_be_is_no_report(shows: dict[str, object], charged: bool) -> None:
    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1)
        assert sample.finish == "eos"  # the text is whole
        # by its bytes, or what is seen
        assert sample.num_tokens == (min(60, len(sample.text) + 1) if charged else len(sample.token_ids))
        assert sample.estimated

    using(ToyServer(fault=told_at(["usage"])), check, **shows)


def test_a_server_that_never_recovers_fails_its_rows_and_charges_nothing() -> None:
    server = ToyServer(fault=lambda _number, _body: "503")

    async def check(backend: OpenAIBackend) -> None:
        samples = await drawn(backend, 3)
        assert {(sample.finish, sample.num_tokens, sample.error.partition(":")[0]) for sample in samples} == {
            ("error", 0, "Unavailable")
        }
        assert len(server.served) == 3 * QUICK.tries
        assert backend.counters.prompt_tokens == 0

    using(server, check)


def test_a_server_that_asks_to_wait_is_waited_for_unless_it_asks_for_too_much() -> None:
    for waits, failed in (("0.1", False), ("3600", True), ("Wed, 21 Oct 2015 07:28:00 GMT", False)):
        server = ToyServer(fault=told_at(["429"]), waits_s=waits)
        began = time.monotonic()
        [sample] = using(server, lambda backend: drawn(backend, 1))
        assert (sample.finish == "error") == failed
        assert sample.error.partition(":")[0] == "RateLimited"
        assert len(server.served) == (1 if failed else 2)
        assert waits != "0.1" or time.monotonic() - began >= 0.1


@pytest.mark.parametrize("mode", ["tokens", "text", "chat"])
def test_a_row_that_is_given_up_stops_the_server(mode: str) -> None:
    server = ToyServer(pause_s=0.002)

    async def check(backend: OpenAIBackend) -> None:
        rows = await asked(backend, 3, prompt=LONG, cap=400)
        await until(lambda: len(server.served) == 3 and all(one.generated > 5 for one in server.served))
        rows.cancel()
        samples = await samples_of(rows)
        await until(lambda: server.open == 0)
        for sample in samples:
            assert (sample.finish, sample.handle, sample.estimated) == ("cancelled", None, True)
            assert 0 < sample.num_tokens < 300
        if mode == "tokens":  # every token is seen
            assert sum(sample.num_tokens for sample in samples) <= sum(one.generated for one in server.served)
        assert not any(one.whole for one in server.served)
        assert all(one.generated < 300 for one in server.served)

    using(server, check, mode=mode, logprobs=mode == "tokens")


def test_a_path_that_is_whole_before_the_server_knows_is_cut_and_the_server_stops() -> None:
    server = ToyServer(pause_s=0.002)
    stop = StopCondition(("\n",), finished=lambda text: text.count("\n") == 3)

    async def check(backend: OpenAIBackend) -> None:
        [sample] = await drawn(backend, 1, prompt=LONG, cap=400, stop=stop)
        assert (sample.finish, sample.text.count("\n"), sample.estimated) == ("answer", 3, True)
        assert sample.num_tokens == len(sample.token_ids) == 18
        await until(lambda: server.open == 0)
        assert server.served[0].generated < 100

    using(server, check)


@pytest.mark.slow
def test_failed_rows_are_counted_by_kind_are_no_candidates_and_are_made_good_within_the_budget() -> None:
    kinds = ["cut", "json", "empty", "none", "twice", "error"]
    server = ToyServer(
        prompts=[PROMPT], fault=lambda number, _body: kinds[number % 20] if number % 20 < len(kinds) else ""
    )

    async def check(backend: OpenAIBackend) -> None:
        [end] = await solve_runs([make_run(PROMPT, Budget(samples=60), "best_of_n | majority", backend)])
        solution, search = end.solution, end.search
        assert solution.error is None
        check_books(search)
        assert sum(backend.errors.values()) == sum(bool(one.fault) for one in server.served) > 10
        assert set(solution.failures) <= set(backend.errors)
        # a row counts once, by its last fault
        assert 10 < sum(solution.failures.values()) <= sum(backend.errors.values())
        assert len(solution.candidates) == 60
        assert all(candidate.trajectory.text for candidate in solution.candidates)
        assert not solution.reproducible

    using(server, check)


@pytest.mark.slow
def test_ten_thousand_calls_of_which_a_third_fail_lose_no_token_and_leak_nothing() -> None:
    told = run_faulty(250)
    assert told.calls > 10_000
    assert sum(told.given.values()) > 0.28 * told.calls


def test_calls_at_once_are_no_more_than_was_allowed() -> None:
    server = ToyServer(pause_s=0.001)

    async def check(backend: OpenAIBackend) -> None:
        assert len(await drawn(backend, 20)) == 20
        assert server.most_open <= 3

    using(server, check, dataclasses.replace(QUICK, concurrency=3))


@pytest.mark.parametrize(
    ("cause", "length"),
    [
        ("This model's maximum context length is 4096 tokens, but 5000 were asked for", True),
        ("max_tokens is too large: 9000. This model supports at most 4096 completion tokens", True),
        ("max_tokens must be at least 1, got -3.", True),
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            False,
        ),
        ("Unrecognized request argument supplied: max_completion_tokens", False),
        ("Invalid value for temperature", False),
    ],
)
def test_a_parameter_that_is_not_taken_is_no_lack_of_room(cause: str, length: bool) -> None:
    assert no_room(cause) is length
