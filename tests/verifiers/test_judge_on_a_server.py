"""A judge whose model is on a server that fails: told by its true kind, never as an unreadable reply, and booked as
what was received.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.backends.openai.making import QUICK, using
from tests.backends.openai.server import Token, ToyServer
from tests.support.runs import Solved, check_books, make_run, solve_runs
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.http import Timeouts
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import CapabilityError
from tts.verifiers.base import Verifier
from tts.verifiers.genrm import GenRm
from tts.verifiers.judge import Judge

TWICE = dataclasses.replace(QUICK, tries=2)
PLAN = "best_of_n(n=3) | best"
# a fault of the server -> its kind, and whether its tokens were received and are paid
KINDS = {
    "429": ("RateLimited", False),
    "500": ("ServerError", False),
    "503": ("Unavailable", False),
    "close": ("ConnectionLost", False),
    "cut": ("ConnectionLost", True),
    "json": ("BadReply", True),
    "hang": ("TimedOut", False),
}


class Judging(ToyServer):
    """Every reply is a verdict, in three tokens and an end."""

    async def rows(self, body: Any, cap: int, count: int, text: str) -> list[list[Token]]:
        return [[(text, 0.0, {}) for text in ('{"score"', ": 7", "}", "")]] * count


def test_a_judge_takes_the_one_temperature_of_its_server_unless_it_was_given_another() -> None:
    end = judged(Judging(tempers=False), tempers=False)
    assert [candidate.scores["main"] for candidate in end.solution.candidates] == pytest.approx([0.7] * 3)
    for wrong in (Judge(model="judge", temperature=0.3), GenRm(model="judge", temperature=0.3)):
        with pytest.raises(CapabilityError, match=r"temperature is 0\.3.*1 alone"):
            using(Judging(tempers=False), refused_by(wrong), mode="chat", tempers=False)


def refused_by(verifier: Verifier) -> Callable[[OpenAIBackend], Awaitable[None]]:
    async def check(backend: OpenAIBackend) -> None:
        filled = verifier.traits.filled
        assert filled is not None
        filled(None, backend)

    return check


def judged(
    server: ToyServer,
    *,
    votes: int = 1,
    plan: str = PLAN,
    timeouts: Timeouts = TWICE,
    prompt_tokens: int = 2000,
    **found: Any,
) -> Solved:
    """Return the end of a search on the toy model, judged by the server's."""
    ends: list[Solved] = []

    async def check(backend: OpenAIBackend) -> None:
        judge = Judge(model="judge", votes=votes, max_tokens=16, prompt_tokens=prompt_tokens)
        policy = ToyBackend(ToyLanguage(accuracy=0.5))
        run = make_run(
            "3 + 4 - 2", Budget(tokens=90000), plan, policy, verifiers={"main": judge}, models={"judge": backend}
        )
        ends.extend(await solve_runs([run]))

    using(server, check, timeouts, **({"mode": "chat"} | found))
    check_books(ends[0].search)  # type: ignore[arg-type]
    return ends[0]


def scores(end: Solved) -> list[float]:
    return [candidate.scores.get("main", math.nan) for candidate in end.solution.candidates]


def booked(end: Solved) -> Any:
    [call] = [call for call in end.search.account.ledger.calls if call.kind == "score"]  # type: ignore[union-attr]
    return call.usage


@pytest.mark.slow
@pytest.mark.parametrize("fault", KINDS)
def test_what_the_server_failed_in_is_told_by_kind_and_paid_as_far_as_it_was_received(fault: str) -> None:
    kind, received = KINDS[fault]
    timeouts = dataclasses.replace(TWICE, first_s=0.2) if fault == "hang" else TWICE
    end = judged(Judging(fault=lambda _number, _body: fault), timeouts=timeouts)
    assert end.solution.error is None
    assert all(map(math.isnan, scores(end)))
    assert end.solution.failures == {kind: 3}
    [told] = [warning for warning in end.solution.warnings if "failed" in warning]
    assert told.startswith(f"3 replies or scores of verifiers failed: {kind}: ")
    assert not any("could not be read" in warning for warning in end.solution.warnings)
    assert end.solution.answer is not None
    # a server that took a prompt has read it, and says no more
    assert (booked(end).verifier_tokens > 0) == (received or fault == "hang")
    assert booked(end).estimated == (received or fault == "hang")


def test_a_server_that_is_gone_is_told_as_that() -> None:
    gone = dataclasses.replace(TWICE, connect_s=1.0)

    async def check(backend: OpenAIBackend) -> Solved:
        backend.capabilities = dataclasses.replace(backend.capabilities, root="http://127.0.0.1:9/v1", mode="chat")
        judge = Judge(model="judge", votes=2, max_tokens=16, prompt_tokens=2000)
        run = make_run(
            "3 + 4 - 2", Budget(tokens=60000), PLAN, ToyBackend(), verifiers={"main": judge}, models={"judge": backend}
        )
        [end] = await solve_runs([run])
        return end

    end = using(Judging(), check, gone)
    assert end.solution.failures == {"ConnectionFailed": 6}
    assert booked(end).verifier_tokens == 0
    assert not booked(end).estimated


def test_a_lost_vote_counts_in_no_mean_and_a_reply_that_another_try_made_good_is_counted() -> None:
    lost = judged(
        Judging(fault=lambda number, _body: "500" if number == 1 else ""),
        votes=2,
        timeouts=dataclasses.replace(TWICE, tries=1),
    )
    assert scores(lost) == [0.7, 0.7, 0.7]
    assert lost.solution.failures == {"ServerError": 1}
    mended = judged(Judging(fault=lambda number, _body: "500" if number == 1 else ""), votes=2)
    assert scores(mended) == [0.7, 0.7, 0.7]
    assert mended.solution.failures == {"ServerError": 1}
    assert any("repeated after ServerError" in line for line in mended.solution.warnings)
    assert any("failed: ServerError" in line for line in lost.solution.warnings)


def test_what_cannot_be_read_is_no_failure_and_is_counted_among_what_came() -> None:
    end = judged(
        ToyServer(fault=lambda number, _body: "503" if number <= 2 else ""),
        timeouts=dataclasses.replace(TWICE, tries=1),
    )
    assert end.solution.failures == {"Unavailable": 2}
    assert "1 of 1 replies of the judge could not be read" in end.solution.warnings


def test_a_server_that_does_not_give_the_tokens_of_a_prompt_leaves_scores_unknown_and_the_search_goes_on() -> None:
    end = judged(Judging(ids=False), mode="tokens")
    assert end.solution.error is None
    assert all(map(math.isnan, scores(end)))
    assert end.solution.failures == {"NotServed": 3}
    assert end.solution.answer is not None


def test_pairs_that_the_server_failed_in_are_no_preference() -> None:
    end = judged(Judging(fault=lambda _number, _body: "500"), plan="best_of_n(n=8) | pairwise")
    assert end.solution.error is None
    assert end.solution.failures["ServerError"] > 0
    assert end.solution.answer is not None


def test_tokens_that_no_server_reports_are_booked_as_an_estimate() -> None:
    assert not booked(judged(Judging())).estimated
    assert booked(judged(Judging(usage=False, logprobs=False), usage=False, logprobs=False)).estimated


@pytest.mark.parametrize("fault", ["cut", "json", "hang"])
def test_a_prompt_is_read_no_more_often_than_was_granted_however_often_replies_break(fault: str) -> None:
    many = dataclasses.replace(QUICK, tries=6, **({"first_s": 0.1} if fault == "hang" else {}))
    end = judged(Judging(fault=lambda _number, _body: fault), timeouts=many, prompt_tokens=650)
    assert end.solution.error is None
    assert booked(end).verifier_tokens <= 3 * (2 * 650 + 16)
    assert end.solution.failures == {KINDS[fault][0]: 3}
