"""Whatever number of tokens a model reports, no strategy divides by it, takes its logarithm or looks it up without
care.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import count

import pytest

import tts
from tests.budget.test_spending import FORMS, PLAIN, judged
from tests.support.revising import RevisingTask
from tests.support.runs import check_books, make_run, solve_and_show
from tts.backends.function import FunctionBackend
from tts.errors import TTSError
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
    end = solve_and_show(dataclasses.replace(run, task=RevisingTask()))
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
    end = solve_and_show(dataclasses.replace(run, task=RevisingTask()))
    assert end.solution.stopped_by == "nothing is spent any more"
    assert end.solution.usage.samples < 1000
