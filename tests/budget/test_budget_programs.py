"""Whatever a strategy does, a backend does and a user does: no limit is passed, nothing stays held, and all books
agree.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.support.chaos import ChaosBackend
from tests.support.programs import PROBLEMS, Judge, Program, budgets, ops
from tests.support.runs import Clock, Solved, check_books, make_run, recount, solve, solve_runs
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget, Rates
from tts.errors import EngineError
from tts.search.needs import needs_of
from tts.search.plan import parse
from tts.search.stop_rules.never import Never
from tts.search.stop_rules.unanimous import Unanimous
from tts.types import Problem, Solution
from tts.verifiers.toy import ToyVerifier

# what a token costs differs by what it is; reused input without a price costs as much as computed input
RATES = (
    Rates(flops=2, usd_in=10**6, usd_reused=0, usd_out=4 * 10**6),
    Rates(flops=3, usd_in=10**6, usd_reused=10**5, usd_out=4 * 10**6),
    Rates(flops=2, usd_in=10**6, usd_out=10**5),
)
VERIFIERS: tuple[dict[str, Any], ...] = (
    {},
    {"main": ToyVerifier(error=0.1)},
    {"main": ToyVerifier(error=0.1), "final": ToyVerifier(error=0.0)},
    {"main": Judge(), "final": ToyVerifier()},
)
SELECTIONS = (None, "majority", "weighted", "best", "best_of_majority(k=2)")


@dataclass(frozen=True)
class Case:
    """One problem of an example."""

    program: Program
    budget: Budget
    window: int | None = None
    selection: str | None = None
    seed: int = 0
    cancel_at: int | None = None


QUIET: dict[str, Any] = {"seed": 0, "fail": 0.0, "slow": 1, "broken": 0.0, "unread": 0.0, "rates": RATES[0]}


@st.composite
def cases(draw: st.DrawFn, verified: bool) -> Case:
    declared = draw(st.sampled_from([(), ("main",)])) if verified else ()
    return Case(
        Program(ops=draw(ops()), verifiers=declared),
        draw(budgets()),
        draw(st.sampled_from([None, 1, 2, 3])),
        draw(st.sampled_from(SELECTIONS if verified else SELECTIONS[:2])),
        draw(st.integers(0, 3)),
        draw(st.one_of(st.none(), st.none(), st.none(), st.integers(0, 60))),
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Any], list[Case], dict[str, Any]]:
    verifiers = draw(st.sampled_from(VERIFIERS))
    chaos = {
        "seed": draw(st.integers(0, 2**20)),
        "fail": draw(st.sampled_from([0.0, 0.0, 0.1, 0.4, 1.0])),
        "slow": draw(st.integers(1, 6)),
        "broken": draw(st.sampled_from([0.0, 0.0, 0.0, 0.2])),
        "unread": draw(st.sampled_from([0.0, 0.0, 0.0, 0.1])),
    }
    chaos["rates"] = draw(st.sampled_from(RATES))
    return verifiers, draw(st.lists(cases(verified=bool(verifiers)), min_size=1, max_size=4)), chaos


def run_world(verifiers: dict[str, Any], world: list[Case], chaos: dict[str, Any]) -> None:
    backend = ChaosBackend(ToyBackend(ToyLanguage(mute=0.1)), **chaos)
    runs = []
    for index, case in enumerate(world):
        plan = parse("single") | (Never() if case.window is None else Unanimous(window=case.window))
        selection = None if case.selection is None else parse(f"single | {case.selection}").selection
        plan = type(plan)(case.program, plan.stopping, selection)
        problem = Problem(PROBLEMS[index % len(PROBLEMS)], id=f"p{index}")
        runs.append(
            make_run(problem, case.budget, plan, backend, verifiers=verifiers, seed=case.seed, clock=Clock(tick=0.01))
        )
    ends = asyncio.run(_until_quiet(runs, [case.cancel_at for case in world], backend))
    for case, end in zip(world, ends, strict=True):
        _check_end(case, end, chaos)
    _check_counters(ends, backend)


async def _until_quiet(runs: list[Any], cancel_at: list[int | None], backend: ChaosBackend) -> list[Solved]:
    ends = await solve_runs(runs, cancel_at)
    assert not backend.late, "rows are still on their way after every search has ended"
    return ends


def _check_end(case: Case, end: Solved, chaos: dict[str, Any]) -> None:
    if end.search is None:  # cancelled before its first step
        assert isinstance(end.solution, asyncio.CancelledError)
        return
    solution = end.solution
    assert isinstance(solution, Solution), f"an unexpected exception: {solution!r}"
    if solution.error is not None:
        assert isinstance(solution.error, EngineError), f"an unexpected failure: {solution.error!r}"
        assert chaos["broken"] or chaos["unread"] or solution.failures
    check_books(end.search)
    for unit, left in solution.remaining.items():
        assert 0 <= left <= case.budget.limits[unit]
    if case.cancel_at is None:
        assert solution.stopped_by != "interrupted"
    if (limit := case.budget.seconds) is not None:
        started = [call.usage.seconds for call in end.search.account.ledger.calls]
        assert sum(started[:-1]) < limit


def _check_counters(ends: list[Solved], backend: ChaosBackend) -> None:
    ledgers = [end.search.account.ledger for end in ends if end.search is not None]
    totals = [ledger.total() for ledger in ledgers]
    prompt, tokens = sum(t.prompt_tokens for t in totals), sum(int(recount(ledger)["tokens"]) for ledger in ledgers)
    counters = backend.counters
    assert prompt + tokens == counters.prompt_tokens + counters.generated_tokens
    reused = sum((t.reused_tokens or 0) + t.verifier_reused_tokens for t in totals)
    assert reused == counters.reused_tokens
    paid = sum(recount(ledger)["usd"] for ledger in ledgers if ledger.calls)
    if all(total.usd is not None for total in totals):
        rates = backend.rates
        assert paid == rates.cost(
            "usd", computed=counters.prompt_tokens, reused=counters.reused_tokens, generated=counters.generated_tokens
        )
    for end in ends:
        if end.solution is not None and isinstance(end.solution, Solution) and end.search is not None:
            assert end.solution.usage.tokens == end.search.account.ledger.total().tokens
    assert not backend.live, f"{len(backend.live)} handles were never released"


def test_a_streamed_row_whose_score_cannot_be_paid_keeps_its_lease() -> None:
    program = Program(ops=(("stream", 0, 0, 0), ("expand", 0, 0, 0)), verifiers=())
    for verifier, limits in (
        (ToyVerifier(error=0.1), {"generated_tokens": 9, "flops": 30}),
        (Judge(), {"requests": 1}),
    ):
        run_world({"main": verifier}, [Case(program, Budget(**limits), selection="weighted")], QUIET)


def test_a_streamed_row_that_waited_for_the_order_takes_nothing_from_a_later_call() -> None:
    program = Program(ops=(("expand", 0, 0, 4), ("expand", 0, 0, 8), ("stream", 0, 2, 10)), verifiers=())
    case = Case(program, Budget(flops=1000), selection="weighted")
    run_world({"main": ToyVerifier(error=0.1)}, [case], {**QUIET, "rates": RATES[1]})


def test_a_search_ends_where_a_stream_s_loop_has_paid_the_scores() -> None:
    first = Program(ops=(("extend", 11, 6, 5),), verifiers=("main",))
    before = Case(first, Budget(tokens=100, flops=1), 2, "majority", 2, None)
    ops = (("stream", 11, 8, 1), ("score", 8, 5, 2), ("rollout", 6, 4, 6), ("score", 9, 2, 2), ("rollout", 8, 3, 4))
    ops = (*ops, ("expand", 9, 7, 9), ("finish", 11, 2, 1), ("keep", 4, 0, 8), ("complete", 1, 0, 0))
    case = Case(Program(ops=ops), Budget(verifier_tokens=100, verifier_calls=35, seconds=30.0), 2, "weighted", 1, None)
    chaos = {**QUIET, "seed": 46963, "fail": 0.1, "slow": 3, "rates": RATES[2]}
    run_world({"main": ToyVerifier(error=0.1)}, [before, case], chaos)


QUICK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True}


@given(world=worlds())
@settings(**QUICK)
def test_random_programs_keep_every_limit_and_all_books_agree(world: Any) -> None:
    run_world(*world)


@pytest.mark.slow
def test_10000_random_programs_keep_every_limit_and_all_books_agree() -> None:
    count = 0

    @given(world=worlds())
    @settings(max_examples=500, **{**QUICK, "derandomize": False})
    def worlds_of_programs(world: Any) -> None:
        nonlocal count
        count += len(world[1])
        run_world(*world)

    for number in itertools.count():
        if count >= 10_000:
            return
        seed(number)(worlds_of_programs)()


def test_a_path_that_cannot_be_read_again_leaves_no_handle() -> None:
    program = Program(ops=(("expand", 0, 0, 6), ("finish", 0, 0, 0), ("ask", 0, 2, 0)))
    run_world({}, [Case(program, Budget(samples=1))], {**QUIET, "seed": 9836, "unread": 0.1})


@pytest.mark.parametrize(
    "plan", ["best_of_n(n=12) | unanimous(window=1)", "best_of_n(n=12) | unanimous(window=3) | weighted", "single"]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_cancellation_at_any_turn_keeps_all_books(plan: str, seed: int) -> None:
    verifiers = {"main": ToyVerifier()} if "weighted" in plan else {}
    for turn in range(30):
        backend = ChaosBackend(ToyBackend(), seed=seed, slow=8, fail=0.1)
        run = make_run("3 + 4 - 2", Budget(samples=12), plan, backend, verifiers=verifiers, seed=seed)
        ends = asyncio.run(_until_quiet([run], [turn], backend))
        if ends[0].search is not None:
            check_books(ends[0].search)
            assert ends[0].solution.error is None
        _check_counters(ends, backend)


# A budget is there to be used -----------------------------------------------------------------------------------------

SHIPPED = ["best_of_n", "best_of_n | weighted", "best_of_n | best", "best_of_n | best_of_majority", "self_consistency"]
TYPICAL = 64  # of a solution, by the task "arithmetic"


def _spend(plan: str, budget: Budget, problem: str, seed: int, **chaos: Any) -> Solved:
    needs = parse(plan).selection is not None and bool(needs_of(parse(plan).selection).verifiers)
    backend = ChaosBackend(ToyBackend(ToyLanguage(mute=0.1)), seed, rates=RATES[0], **chaos)
    run = make_run(
        problem, budget, plan, backend, verifiers={"main": ToyVerifier(error=0.1)} if needs else None, seed=seed
    )
    return asyncio.run(solve_runs([run]))[0]


@pytest.mark.parametrize("plan", SHIPPED)
@pytest.mark.parametrize("units", [4, 5, 9, 30])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_most_of_a_budget_of_tokens_is_spent_or_another_reason_is_named(plan: str, units: int, problem: str) -> None:
    end = _spend(plan, Budget(tokens=units * TYPICAL), problem, seed=units)
    solution = end.solution
    said = [
        note
        for note in solution.warnings
        if "were held for verifier calls" in note or "but one more solution may take" in note
    ]
    assert solution.usage.tokens >= 0.8 * units * TYPICAL or not solution.stopped_by.startswith("budget") or said
    assert not said or "of_majority" in plan or units < 9
    assert solution.answer is not None


@given(
    plan=st.sampled_from(SHIPPED),
    budget=budgets(),
    problem=st.sampled_from(PROBLEMS),
    seed=st.integers(0, 50),
    fail=st.sampled_from([0.0, 0.0, 0.5]),
)
@settings(**QUICK)
def test_an_answer_comes_whenever_one_plain_sample_gives_one(
    plan: str, budget: Budget, problem: str, seed: int, fail: float
) -> None:
    single = _spend("single", budget, problem, seed, fail=fail).solution
    if not {"tokens", "generated_tokens", "samples", "flops", "usd"} & set(budget.limits):
        return  # nothing bounds the samples: refused at the door
    solution = _spend(plan, budget, problem, seed, fail=fail).solution
    assert (solution.answer is not None) or (single.answer is None), (
        f"{single.stopped_by}: {single.answer}; {solution.stopped_by}"
    )


def test_a_run_that_can_pay_one_sample_costs_no_less_than_it_says() -> None:
    run = make_run("3 + 4 - 2", 9, "single", ToyBackend())
    solution = solve(run)
    assert solution.usage.tokens == 9
    assert solution.candidates[0].truncated


def test_replies_of_a_judge_are_charged_where_the_search_is_cancelled_while_they_end() -> None:
    over = Case(Program(ops=()), Budget(flops=1))
    ops = (("rollout", 0, 0, 2), ("open", 0, 0, 0), ("complete", 0, 1, 1))
    judged = Case(Program(ops=ops), Budget(seconds=0.5), selection="weighted", seed=1, cancel_at=34)
    run_world(VERIFIERS[3], [over, over, judged], {**QUIET, "seed": 131072, "slow": 3, "broken": 0.2})
