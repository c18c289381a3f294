"""Whatever number of tokens a model reports, no strategy divides by it, takes its logarithm or looks it up without
care.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

import tts
from tests.budget.test_spending import FORMS, PLAIN, judged
from tests.support.revising import RevisingTask
from tests.support.runs import change_setup, check_books, make_run, solve_and_show
from tts.backends.base import Backend, Caps, Reply, RowSet, Sample, SampleRequest
from tts.backends.function import FunctionBackend
from tts.budget.account import Account
from tts.errors import EngineError, TTSError
from tts.verifiers.function import FunctionVerifier

# What call i of a model reports, of at most m tokens; None: no report.
REPORTS: dict[str, Callable[[int, int], int | None]] = {
    "0": lambda _i, _m: 0,
    "0 first": lambda i, m: 0 if i < 1 else min(m, 9),
    "0 by turns": lambda i, m: min(m, 9) * (i % 2),
    "1": lambda _i, _m: 1,
    "the cap": lambda _i, m: m,
    "the cap, then 0": lambda i, m: 0 if i else m // 2,
    "more each time": lambda i, m: min(m, i),
    "10^9": lambda _i, _m: 10**9,
    "10^9 first": lambda i, m: 10**9 if i < 1 else min(m, 5),
    "nothing": lambda _i, _m: None,
}
TEXTS: dict[str, Callable[[int], str]] = {
    "solutions": lambda i: f"3 + 4 = 7\n7 - 2 = 5\nA: {i % 3}",
    "empty texts": lambda _i: "",
}


def check_report(name: str, report: str, texts: str, limits: tts.Budget) -> None:
    calls = count()

    def write(ask: tts.Ask) -> tts.Answer:
        i = next(calls)
        return tts.Answer(TEXTS[texts](i), tokens=REPORTS[report](i, ask.max_tokens))

    backend = FunctionBackend(write, concurrency=1)
    run = make_run("10 - 7 + 5", limits, FORMS.get(name, name), backend, verifiers={"main": FunctionVerifier(judged)})
    end = solve_and_show(change_setup(run, task=RevisingTask()))
    check_books(end.search)
    assert end.solution.error is None or isinstance(end.solution.error, TTSError), end.solution.error


@pytest.mark.parametrize("name", PLAIN)
def test_a_first_solution_of_no_tokens_ends_no_strategy(name: str) -> None:
    check_report(name, "0 first", "solutions", tts.Budget(tokens=120))


@pytest.mark.slow
@pytest.mark.parametrize("texts", TEXTS)
@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("name", ["single", *PLAIN])
def test_every_number_with_every_strategy(name: str, report: str, texts: str) -> None:
    check_report(name, report, texts, tts.Budget(tokens=120))


def test_solutions_and_verifications_that_cost_nothing_come_to_an_end() -> None:
    run = make_run("10 - 7 + 5", 120, "self_verification", FunctionBackend(lambda _ask: tts.Answer("A: 5", tokens=0)))
    end = solve_and_show(change_setup(run, task=RevisingTask()))
    assert end.solution.stopped_by == "nothing is spent any more"
    assert end.solution.usage.samples < 1000


# A class of the user's as a backend -----------------------------------------------------------------------------------

NO_COUNTS: list[Any] = [-1000, -1, 1100, math.nan, math.inf, True, 2.5, 5.0, "5", None, np.float64(5.0), np.int64(-1)]


class Reporter(Backend):
    """A backend whose first row or prompt reports one odd number at one place."""

    caps = Caps(usage=True)

    def __init__(self, place: str, number: Any) -> None:
        self.place, self.number, self.rows, self.written = place, number, 0, 0

    def count(self, prompt: Any) -> int:
        return self.number if self.place == "count" else 3

    async def open(self, prompts: Sequence[Any]) -> list[Reply[Any]]:
        odd = {self.place: self.number} if self.place in ("computed", "reused", "prompt") else {}
        return [Reply(**{"value": prompt, "computed": 3, **odd}) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        if self.place in ("prompt_tokens", "reused_tokens"):
            setattr(rows, self.place, self.number)
        for index, row in enumerate(request.rows):
            tokens, odd = min(5, row.max_tokens), {}
            if not self.rows and self.place in ("num_tokens", "lost_tokens", "seconds"):
                odd = {self.place: self.number}
            self.rows, self.written = self.rows + 1, self.written + tokens
            sample = Sample(r"\boxed{1}", (), (), "eos", request.handle, num_tokens=tokens)
            rows.resolve(index, dataclasses.replace(sample, **odd))
        return rows


@pytest.mark.parametrize("number", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("place", ["num_tokens", "lost_tokens"])
def test_an_impossible_count_of_a_row_fails_the_row_and_moves_no_limit(place: str, number: Any) -> None:
    backend, account = Reporter(place, number), Account(tts.Budget(tokens=100))
    with pytest.raises(EngineError, match=f"BadReply: .*{place}"):  # the grant of the first row is all that is left
        tts.solve("q", account, backend=backend, task="math", strategy="single")
    tts.solve("q", account, backend=backend, task="math", strategy="best_of_n(n=4) | majority")
    spent = account.spent["tokens"]
    assert type(spent) is int
    assert backend.written <= spent <= 100


@pytest.mark.parametrize("number", NO_COUNTS, ids=repr)
@pytest.mark.parametrize("place", ["count", "computed", "reused", "prompt", "prompt_tokens", "reused_tokens"])
def test_an_impossible_count_of_a_call_is_an_error_and_moves_no_limit(place: str, number: Any) -> None:
    if number == 1100 or (number is None and "reused" in place):
        pytest.skip("a possible count there")
    backend, account = Reporter(place, number), Account(tts.Budget(tokens=100))
    with pytest.raises(EngineError, match=rf"{place}.*must report a whole number of at least 0"):
        tts.solve("q", account, backend=backend, task="math", strategy="best_of_n(n=4) | majority")
    assert type(account.spent["tokens"]) is int
    assert backend.written <= account.spent["tokens"] <= 100


@pytest.mark.parametrize("number", [-1.0, math.nan, math.inf, "1", None, True], ids=repr)
def test_impossible_seconds_of_a_row_fail_it(number: Any) -> None:
    found = tts.solve(
        "q",
        tts.Budget(samples=4),
        backend=Reporter("seconds", number),
        task="math",
        strategy="best_of_n(n=4) | majority",
    )
    assert found.failures == {"BadReply": 1}
    assert math.isfinite(found.usage.work_seconds)


def test_counts_of_numpy_become_whole_numbers() -> None:
    found = tts.solve("q", 100, backend=Reporter("num_tokens", np.int64(4)), task="math", strategy="best_of_n(n=2)")
    assert type(found.usage.generated_tokens) is int
    assert not found.failures
