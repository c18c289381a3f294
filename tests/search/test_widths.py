"""No whole number of a plan is laid out before it is paid: rows, lists and loops follow the budget, whatever was asked
for.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import tracemalloc
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations, groupby, islice
from pathlib import Path
from types import FrameType
from typing import Any, get_type_hints

import pytest

import tts
from tests.contracts.strategy_contract import ComparingVerifier
from tests.support.revising import revising  # noqa: F401 - a fixture
from tests.support.runs import Clock, make_run, search_one, solve_and_show, solve_runs
from tts.backends.function import Answer, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget
from tts.registry import Registry
from tts.search.lengths import MOST_ROWS as MOST_OF_A_WAVE
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.search.rows import RequestedRow, RowRequest
from tts.search.selections.league import fixtures
from tts.types import Solution
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

pytestmark = pytest.mark.usefixtures("revising")
WIDTH = 20_000_000  # 160 MB in a list: found out, but no danger to the machine
GREATEST = 2**63 - 1  # the greatest that a parameter may be
MOST_LINES = WIDTH // 2  # lines of searches that run, loops and comprehensions included: below one a row of WIDTH
MOST_BYTES = 80_000_000
MOST_ROWS = 10_000
PROBLEM = "3 + 4 - 2"
GIVEN: Mapping[str, Mapping[str, str]] = {  # what a part needs beside the number
    "cascade": {"models": "['policy', 'policy']"},
    "program_aided": {"sandbox": "'none'"},
    "budget_forcing": {"thought_tokens": "40"},
}
LISTS = {("cascade", "samples"): "[3, {}]", ("pacore", "widths"): "[{}]"}
BUDGETS: Mapping[str, Mapping[str, Any]] = {
    "tokens": {"tokens": 300},
    "samples": {"samples": 20},
    "seconds": {"seconds": 1.0},
    "verifier_calls": {"verifier_calls": 20, "tokens": 3000},
}


PAID_BY = {("budget_forcing", "thought_tokens"): "samples"}  # a budget of fewer tokens than a thought is refused
SENT_TO_SERVERS = {("best_of_n", "thought_tokens"), ("cascade", "thought_tokens")}  # no backend here takes these


class TooLong(BaseException):
    """More lines of searches ran than any budget of these tests pays."""


def whole_numbers(table: Registry) -> list[tuple[str, str]]:
    """Return the parameters of a table's own parts that take a whole number, or a list of them."""
    found: list[tuple[str, str]] = []
    for name in sorted(table.entries):
        kinds = get_type_hints(made := table.get(name))
        found += [
            (name, parameter)
            for parameter in inspect.signature(made).parameters
            if re.search(r"\bint\b", str(kinds[parameter]))
        ]
    return found


def text_of(name: str, numbers: Mapping[str, int]) -> str:
    """Return the text of a part with these numbers."""
    given = {each: LISTS.get((name, each), "{}").format(value) for each, value in numbers.items()}
    text = f"{name}({', '.join(f'{each}={value}' for each, value in ({**GIVEN.get(name, {})} | given).items())})"
    return f"{text} | majority" if name in STRATEGIES and name != "self_consistency" else text


@contextmanager
def count_lines() -> Generator[None]:
    """Raise TooLong where searches run more than so many lines."""
    root = Path(tts.__file__).parents[1]
    folders = tuple(str(root / folder) for folder in ("tts/search", "tts/allocator", "tts_addons/zoo"))
    lines = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "call":
            return count if frame.f_code.co_filename.startswith(folders) else None
        lines += 1
        if lines > MOST_LINES:
            raise TooLong(f"{lines} lines, at last in {frame.f_code.co_qualname}")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)


def measure(plan: str, unit: str, *, verified: bool = True) -> tuple[Any, int, int]:
    """Solve by a plan; return how it ended, the greatest memory in bytes, and the rows that its tree has."""
    thinks = "thought_tokens" in plan
    backend = ToyBackend(ToyLanguage(accuracy=0.5, thoughts=thinks))
    run = make_run(
        PROBLEM,
        Budget(**BUDGETS[unit]),
        plan,
        backend,
        clock=Clock(tick=0.1 if unit == "seconds" else 1e-6),
        verifiers={"main": ComparingVerifier(error=0.1)} if verified else {},
        models={"draft": backend, "large": backend},
    )
    tracemalloc.start()
    try:
        with count_lines():
            end = solve_and_show(run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return end.solution, peak, 0 if end.search is None else len(end.search.tree.nodes)


def check_bounded(plan: str, unit: str) -> None:
    """Assert that a plan takes no more than its budget pays, and ends as others do."""
    solution, peak, rows = measure(plan, unit)
    assert isinstance(solution, Solution), f"{plan}: {solution!r}"
    assert solution.error is None, f"{plan}: {solution.error!r}"
    assert peak < MOST_BYTES, f"{plan}: {peak / 1e6:.0f} MB"
    assert rows < MOST_ROWS, f"{plan}: {rows} rows"


STRATEGY_NUMBERS = [number for number in whole_numbers(STRATEGIES) if number not in SENT_TO_SERVERS]
RULE_NUMBERS = whole_numbers(STOP_RULES)
SELECTION_NUMBERS = whole_numbers(SELECTIONS)


PAIRS = [
    (name, pair)
    for name, numbers in groupby(STRATEGY_NUMBERS, key=lambda one: one[0])
    for pair in combinations([number for _, number in numbers], 2)
]


def test_numbers_of_all_kinds_are_found_by_their_tables() -> None:
    assert {("beam", "n"), ("cascade", "samples"), ("auto", "pilots"), ("self_consistency", "n")} <= {*STRATEGY_NUMBERS}
    assert ("unanimous", "window") in RULE_NUMBERS
    assert ("league", "opponents") in SELECTION_NUMBERS


@pytest.mark.parametrize("unit", BUDGETS)
@pytest.mark.parametrize(("name", "number"), STRATEGY_NUMBERS)
def test_a_number_of_a_strategy_is_not_laid_out_before_it_is_paid(name: str, number: str, unit: str) -> None:
    check_bounded(text_of(name, {number: WIDTH}), PAID_BY.get((name, number), unit))


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["tokens"])
@pytest.mark.parametrize(("name", "numbers"), PAIRS)
def test_two_numbers_of_a_strategy_are_not_laid_out_before_they_are_paid(
    name: str, numbers: Sequence[str], unit: str
) -> None:
    unit = next((PAID_BY[name, number] for number in numbers if (name, number) in PAID_BY), unit)
    check_bounded(text_of(name, dict.fromkeys(numbers, WIDTH)), unit)


@pytest.mark.parametrize(("name", "number"), STRATEGY_NUMBERS)
def test_the_greatest_number_is_one_like_others(name: str, number: str) -> None:
    check_bounded(text_of(name, {number: GREATEST}), PAID_BY.get((name, number), "tokens"))


@pytest.mark.parametrize("strategy", ["best_of_n(n=24)", f"rebase(n={WIDTH})"])
@pytest.mark.parametrize(("name", "number"), RULE_NUMBERS)
def test_a_number_of_a_stop_rule_is_not_laid_out_before_it_is_reached(name: str, number: str, strategy: str) -> None:
    check_bounded(f"{strategy} | {text_of(name, {number: GREATEST})} | majority", "tokens")


@pytest.mark.parametrize("unit", ["verifier_calls", "seconds"])
@pytest.mark.parametrize(("name", "number"), SELECTION_NUMBERS)
def test_a_number_of_a_selection_is_not_laid_out_before_it_is_paid(name: str, number: str, unit: str) -> None:
    check_bounded(f"best_of_n(n=24) | {text_of(name, {number: GREATEST})}", unit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "unit"),
    [
        ("mcts(width={})", "samples"),
        ("semantic_entropy(n={})", "verifier_calls"),
        ("mind_evolution(n={})", "verifier_calls"),
    ],
)
def test_a_wave_takes_no_more_rows_than_can_begin(plan: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    take = RowRequest.take

    def count(ask: RowRequest, number: int) -> list[RequestedRow]:
        nonlocal taken
        rows = take(ask, number)
        taken += len(rows)
        return rows

    monkeypatch.setattr(RowRequest, "take", count)
    solution, _, rows = measure(f"{plan.format(WIDTH)} | majority", unit)
    assert solution.error is None
    assert taken < 10 * rows


def test_pairs_of_a_full_round_are_made_when_they_are_compared() -> None:
    pairs = fixtures(range(1_000_000), GREATEST)
    assert list(islice(pairs, 3)) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["beam", "rebase", "semantic_entropy", "early_pruning", "best_of_n"])
def test_a_search_of_any_width_is_cancelled_between_waves(plan: str) -> None:
    backend = ToyBackend(ToyLanguage(accuracy=0.5))
    verifier = ToyVerifier(error=0.1)
    run = make_run(PROBLEM, Budget(samples=WIDTH), f"{plan}(n={WIDTH}) | majority", backend, verifiers=verifier)
    (end,) = asyncio.run(solve_runs([run], [6]))
    assert isinstance(end.solution, asyncio.CancelledError) or end.solution.stopped_by == "interrupted"
    assert end.search is not None
    assert 0 < len(end.search.tree.nodes) < 10 * MOST_OF_A_WAVE


@pytest.mark.slow
def test_up_to_a_wave_of_rows_begins_in_one_call_and_a_wider_one_in_several() -> None:
    for n, calls in ((MOST_OF_A_WAVE, 1), (MOST_OF_A_WAVE + 1, 2), (3 * MOST_OF_A_WAVE, 3)):
        plan = f"early_pruning(n={n}, tokens=3, pruned=1.0) | majority"
        end = search_one(PROBLEM, Budget(samples=10_000), plan, ToyBackend(), verifiers=ToyVerifier())
        assert end.search is not None
        begun = [call for call in end.search.account.ledger.calls if call.usage.samples]
        assert [call.rows for call in begun] == [min(MOST_OF_A_WAVE, n - k * MOST_OF_A_WAVE) for k in range(calls)]


@pytest.mark.slow
def test_rows_that_the_budget_cuts_end_a_level_and_full_waves_do_not() -> None:
    plan = "beam(n=5000, branching=1) | majority"
    end = search_one(PROBLEM, Budget(samples=1500), plan, ToyBackend(), verifiers=ToyVerifier())
    assert end.solution.usage.samples == 1500


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["entropic_particle_filter", "particle_filter", "beam", "dvts"])
def test_a_lookahead_on_a_model_that_never_ends_is_bounded_by_the_steps_of_a_path(strategy: str) -> None:
    backend = FunctionBackend(lambda asked: Answer("3 + 4 = 7\n", tokens=5, finished=False))
    plan = f"{strategy}(n=2, lookahead={WIDTH}, max_steps=3)"
    run = make_run(PROBLEM, Budget(samples=8), plan, backend, verifiers={"main": FunctionVerifier(lambda _, __: 0.5)})
    with count_lines():
        end = solve_and_show(run)
    assert end.search is not None
    assert len(end.search.tree.nodes) < MOST_ROWS
