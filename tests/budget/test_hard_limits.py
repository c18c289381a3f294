"""Limits hold in every unit, whatever prices, verifiers and strategies do; what was found and spent is never lost."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tts
import tts.tasks.math
from tests.contracts.verifier_contract import Do
from tests.support.chaos import ChaosBackend
from tests.support.programs import Judge
from tests.support.runs import Solved, check_books, make_run, search_one, solve_and_show
from tts.backends.capabilities import text_bound
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
from tts.budget.units import USD_UNIT
from tts.errors import BudgetExceeded, ConfigError, EngineError, TTSError, VerifierError
from tts.search.costs import Costs
from tts.search.ends import END, STEP, SearchEnded, Tokens
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.search import Search
from tts.solver.run import solve_problem
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Traits
from tts.verifiers.checker import Checker
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

PRICES = Rates(flops=2, usd_in=10**6, usd_out=4 * 10**6)
PROBLEM = "3 + 4 - 2"


def run(check: Callable[[Search], Awaitable[None]], budget: Budget | float = 10**6, **more: Any) -> Solved:
    """Run a check as a strategy; return how it ended."""
    return solve_and_show(
        make_run(more.pop("problem", PROBLEM), budget, Do(check=check), more.pop("backend", ToyBackend()), **more)
    )


def done(end: Solved) -> Solved:
    assert not isinstance(end.solution, BaseException), end.solution
    assert end.solution.error is None, end.solution.error
    check_books(end.search)
    return end


# Prices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rates", [PRICES, dataclasses.replace(PRICES, usd_reused=10**5), dataclasses.replace(PRICES, usd_out=0)]
)
@pytest.mark.parametrize("usd", [1e-8, 1e-7, 1e-6])
def test_reused_tokens_that_have_a_price_are_granted_before_they_are_used(rates: Rates, usd: float) -> None:
    backend = ChaosBackend(ToyBackend(), seed=0, slow=1, rates=rates)
    plan = "best_of_n(n=40) | weighted"
    end = search_one(PROBLEM, Budget(usd=usd), plan, backend, verifiers=ToyVerifier())
    counters = backend.counters
    spent = rates.cost(
        "usd", computed=counters.prompt_tokens, reused=counters.reused_tokens, generated=counters.generated_tokens
    )
    assert spent == end.search.account.spending("usd") <= usd * USD_UNIT


def test_what_a_judge_writes_costs_what_written_tokens_cost() -> None:
    rates = Rates(flops=2, usd_in=0, usd_reused=0, usd_out=4 * 10**6)
    backend = ChaosBackend(ToyBackend(), seed=0, slow=1, rates=rates)
    end = search_one(PROBLEM, Budget(usd=3e-7), "best_of_n(n=9) | weighted", backend, verifiers=Judge())
    assert (
        end.search.account.spending("usd")
        == rates.cost("usd", generated=backend.counters.generated_tokens)
        <= 3e-7 * USD_UNIT
    )


# Verifiers ------------------------------------------------------------------------------------------------------------


class Greedy(ToyVerifier):
    """Computes more than it says."""

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 0


def test_a_verifier_that_computes_beyond_its_bound_is_named_and_booked() -> None:
    end = solve_and_show(make_run(PROBLEM, 60, "best_of_n(n=4) | weighted", ToyBackend(), verifiers=Greedy()))
    assert isinstance(end.solution.error, BudgetExceeded)
    assert end.search.account.spending("tokens") == end.solution.usage.tokens


def test_a_path_that_cannot_be_paid_keeps_no_other_unscored_whose_score_is_held() -> None:
    async def check(search: Search) -> None:
        [forced] = await search.extend([search.root], "10 - 7 = 3\n3 + 5 = 8\n")
        [candidate] = await search.complete([search.root], 1)
        scores = await search.score([forced, candidate.trajectory], required=False)
        assert np.isnan(scores).tolist() == [True, False]

    plan = Plan(Do(check=check), selection=parse("single | weighted").selection)
    search_one("10 - 7 + 5 - 20", 47, plan, ToyBackend(), verifiers=ToyVerifier())


@pytest.mark.parametrize("plain", [True, False])
def test_a_slow_verifier_function_is_not_waited_for_beyond_the_time(plain: bool) -> None:
    def slow(problem: Problem, text: str) -> float:
        time.sleep(0.2)
        return 0.5

    async def slow_async(problem: Problem, text: str) -> float:
        await asyncio.sleep(60)
        return 0.5

    verifier = FunctionVerifier(slow if plain else slow_async)
    plan, more = "best_of_n(n=20) | weighted", {"verifiers": {"main": verifier}, "clock": time.perf_counter}
    end = search_one(PROBLEM, Budget(seconds=0.3), plan, ToyBackend(), **more)
    assert end.solution.answer is not None
    known = sum(not math.isnan(c.scores.get("main", math.nan)) for c in end.solution.candidates)
    assert known < 20 if plain else known == 0
    assert end.solution.usage.seconds < 10  # 20 calls of 60 seconds were not waited for


def test_a_plain_verifier_function_keeps_no_other_problem_waiting() -> None:
    order: list[str] = []

    def slow(problem: Problem, text: str) -> float:
        time.sleep(0.3)
        order.append("verified")
        return 0.5

    async def both() -> None:
        first = make_run(
            PROBLEM, Budget(samples=1), "single | weighted", ToyBackend(), verifiers=FunctionVerifier(slow)
        )
        second = make_run(PROBLEM, Budget(samples=8), "best_of_n(n=8)", ToyBackend())
        slow_one = asyncio.ensure_future(solve_problem(first))
        await asyncio.sleep(0.05)
        await solve_problem(second)
        order.append("solved")
        await slow_one

    asyncio.run(both())
    assert order == ["solved", "verified"]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda problem, text: sys.exit(3), "SystemExit"),
        (lambda problem, text: [[0.1]], "shape"),
        (lambda problem, text: None, "returned None"),
    ],
)
def test_a_verifier_function_that_misbehaves_is_an_error_and_the_candidates_stay(fn: Any, message: str) -> None:
    end = solve_and_show(
        make_run(PROBLEM, 200, "best_of_n(n=3) | weighted", ToyBackend(), verifiers=FunctionVerifier(fn))
    )
    assert isinstance(end.solution.error, VerifierError)
    assert message in str(end.solution.error)
    assert len(end.solution.candidates) == 3
    assert end.solution.answer is not None


def test_an_array_of_step_scores_is_as_good_as_a_list() -> None:
    import numpy as np

    def steps(problem: Problem, text: str) -> Any:
        return np.full(len(text.splitlines()), 0.5)

    search_one(PROBLEM, 400, "best_of_n(n=3) | best", ToyBackend(), verifiers=FunctionVerifier(steps))


class Reads(tts.Verifier):
    """A verifier on another model, which must read each path from its beginning."""

    name, range, oracle, needs, model = "reads", (0.0, 1.0), False, ("value",), "judge"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        return [StepScores(whole=float(reading.mean())) for reading in await calls.value(trajectories, "truth")]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 2 * (prefix_tokens + new_tokens)


@pytest.mark.parametrize("budget", [Budget(flops=400), Budget(tokens=90), Budget(verifier_tokens=60, samples=8)])
def test_a_verifier_on_another_model_is_paid_from_the_budget_or_leaves_scores_unknown(budget: Budget) -> None:
    judge = ChaosBackend(ToyBackend(), seed=1, slow=1)
    plan, more = "best_of_n(n=8) | weighted", {"verifiers": {"main": Reads()}, "models": {"judge": judge}}
    end = search_one(PROBLEM, budget, plan, ToyBackend(), **more)
    assert end.solution.answer is not None
    assert end.solution.usage.verifier_tokens == judge.counters.prompt_tokens + judge.counters.generated_tokens


def test_what_is_reserved_for_scores_is_the_sum_over_the_declared_roles_and_reads_each_prompt_once() -> None:
    class FirstReads(Reads):
        traits = Traits(prompt_bound=lambda tokens: tokens)

    roles = {"main": ToyVerifier(), "other": FirstReads()}
    account, rates = Account(Budget(tokens=500, verifier_calls=9, flops=10**6)), dict.fromkeys(roles, Rates(flops=2))
    costs = Costs(account, roles, tuple(roles), rates)
    scores = costs.price(ToyBackend(), 5).scores(7)
    assert (scores["tokens"], scores["verifier_calls"]) == (7 + 2 * (5 + 7), 2)
    unread = [costs.price(ToyBackend(), 5, prompts={0: 6}).reserve("flops", 7) - scores["flops"] for _ in range(2)]
    costs.note_prompts_read("other", [0], 6)
    assert [*unread, costs.price(ToyBackend(), 5, prompts={0: 6}).reserve("flops", 7)] == [12, 12, scores["flops"]]


def test_a_search_ends_where_not_one_of_the_scores_that_it_needs_can_be_paid() -> None:
    async def check(search: Search) -> None:
        [[first, second]] = await search.expand([search.root], 2, STEP)
        await search.score([first])
        assert np.isnan(await search.score([second], required=False)).all()
        with pytest.raises(SearchEnded, match="verifier_calls"):
            await search.score([second])

    done(run(check, Budget(samples=3, verifier_calls=1), verifiers={"main": ToyVerifier()}))


def test_a_score_by_another_model_needs_no_more_than_its_bound() -> None:
    class Far(Reads):
        """Asks its model nothing."""

        needs = ()

        async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
            return [StepScores(whole=0.5) for _ in trajectories]

    async def check(search: Search) -> None:
        [[t]] = await search.expand([search.root], 1, Tokens(4))
        assert search.left["verifier_tokens"] == 2 * (search.rows.root_tokens + text_bound(judge, t.full_text))
        assert not np.isnan(await search.score([t], required=False)).any()

    judge = ToyBackend()
    more = {"verifiers": {"main": Far()}, "models": {"judge": judge}}
    done(run(check, Budget(samples=1, verifier_tokens=2 * (5 + 8)), **more))  # the prompt has five tokens


def test_a_run_that_scored_with_an_oracle_says_so_even_if_nothing_declared_it() -> None:
    async def check(search: Search) -> None:
        made = await search.complete([search.root], 2)
        await search.score([c.trajectory for c in made], "peek")

    problem = Problem(PROBLEM, answer="5")
    assert done(run(check, problem=problem, verifiers={"peek": Checker()}, allow_oracle=True)).solution.oracle
    assert not done(run(_complete, problem=problem, verifiers={"peek": Checker()}, allow_oracle=True)).solution.oracle


async def _complete(search: Search) -> None:
    await search.complete([search.root], 2)


# What a strategy may do -----------------------------------------------------------------------------------------------


async def _beam(search: Search) -> None:
    live = [search.root]
    while live:
        children = [child for of in await search.expand(live, n=3) for child in of]
        scores = await search.score(children)
        live = [children[i] for i in sorted(range(len(children)), key=lambda i: -scores[i])[:2]]
        for t in live:
            search.finish(t)
        live = [t for t in live if t.status == "active"]
        search.keep(live)


@pytest.mark.parametrize("problem", ["3 + 4", PROBLEM, "3 + 4 - 2 + 9 - 1"])
@pytest.mark.parametrize("tokens", [80, 130, 320])
def test_a_beam_answers_where_one_plain_sample_does(problem: str, tokens: int) -> None:
    for seed in range(8):
        end = done(run(_beam, tokens, problem=problem, verifiers={"main": ToyVerifier(error=0.1)}, seed=seed))
        assert end.solution.answer is not None, (
            f"seed {seed}: {end.solution.stopped_by}, {end.solution.usage.tokens} of {tokens}"
        )


def test_a_step_that_the_budget_cuts_goes_on_and_one_that_its_own_cap_cuts_is_truncated() -> None:
    async def check(search: Search) -> None:
        [[cut]] = await search.expand([search.root], 1, STEP, max_tokens=2)
        assert cut.status == "truncated"
        [[asked]] = await search.expand([search.root], 1, Tokens(2))
        assert (asked.status, asked.num_tokens) == ("active", 2)

    done(run(check))

    async def poor(search: Search) -> None:
        t = search.root
        while t.status == "active":
            [[t]] = await search.expand([t], 1, STEP)

    whole = done(run(poor, 1000)).search.tree.nodes[-1]
    end = done(run(poor, whole.num_tokens - 3))
    assert end.search.tree.nodes[-1].full_text == whole.full_text[: len(end.search.tree.nodes[-1].full_text)]


def test_a_rollout_is_one_branch_and_no_candidate() -> None:
    async def check(search: Search) -> None:
        [end] = await search.rollout([search.root], 3)
        assert end.depth == 3
        assert search.account.ledger.total().samples == 1
        with pytest.raises(ConfigError, match="of a rollout"):
            search.finish(end)
        [[child]] = await search.expand([search.root], 1, STEP)
        before = search.account.ledger.total().samples
        await search.rollout([child], 2)
        assert search.account.ledger.total().samples == before + 1

    done(run(check, problem="3 + 4 - 2 + 9 - 1"))


def test_a_path_that_fills_the_context_is_truncated_whatever_it_was_asked_for() -> None:
    class Short(ToyBackend):
        context = 12

    async def check(search: Search) -> None:
        [[t]] = await search.expand([search.root], 1, Tokens(12 - search.rows.root_tokens))
        assert t.status == "truncated"

    done(run(check, backend=Short()))


def test_a_prompt_that_is_opened_again_has_draws_of_its_own() -> None:
    async def check(search: Search) -> None:
        roots = [await search.open("solve") for _ in range(3)]
        streams = {t.stream for t in (search.root, *roots)}
        assert len(streams) == 4

    done(run(check))


def test_after_a_stop_nothing_more_is_written() -> None:
    async def check(search: Search) -> None:
        for _ in range(50):
            try:
                await search.complete([search.root], 1)
            except SearchEnded:
                continue

    end = search_one(
        "1 + 1",
        10**5,
        Plan(Do(check=check), parse("single | unanimous(window=3)").stopping),
        ToyBackend(ToyLanguage(accuracy=1.0)),
    )
    assert end.solution.stopped_by.startswith("unanimous")
    assert len(end.solution.candidates) == 3


# Nothing is lost ------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, Callable[[Search], Awaitable[Any]]] = {
    "two calls": lambda search: asyncio.gather(search.expand([search.root], 2), search.expand([search.root], 2)),
    "no such role": lambda search: search.score([search.candidates[0].trajectory], "nobody"),
    "finished": lambda search: search.expand([search.candidates[0].trajectory]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_strategys_mistake_after_the_first_spend_keeps_what_was_found(name: str) -> None:
    async def check(search: Search) -> None:
        await search.complete([search.root], 2)
        await MISTAKES[name](search)

    end = run(check, verifiers={"main": ToyVerifier()})
    assert isinstance(end.solution.error, TTSError)
    assert isinstance(end.solution.error.__cause__, ConfigError)
    assert len(end.solution.candidates) == 2
    assert end.solution.answer is not None
    assert end.solution.usage.tokens == end.search.account.ledger.total().tokens > 0
    check_books(end.search)


def test_a_size_that_the_budget_does_not_bound_is_refused_before_anything_is_spent() -> None:
    backend = ToyBackend()
    end = solve_and_show(make_run(PROBLEM, Budget(verifier_calls=3), "best_of_n | majority", backend))
    assert isinstance(end.solution, ConfigError)
    assert backend.counters.prompt_tokens == 0


def test_a_strategy_that_returns_no_candidates_is_told_what_to_return() -> None:
    class Wrong(Do):
        async def run(self, search: Search) -> Any:
            return await search.expand([search.root], 2, END)

    end = solve_and_show(make_run(PROBLEM, 400, Wrong(check=_complete), ToyBackend()))
    assert isinstance(end.solution.error, TTSError)
    assert "must return candidates" in str(end.solution.error)


def test_a_selection_that_meets_the_end_of_the_budget_leaves_no_failure() -> None:
    from tts.search.selections.majority import Majority

    class Asks(Majority):
        async def select(self, candidates: Any, search: Any) -> Any:
            assert np.isnan(await search.score([c.trajectory for c in candidates])).any()
            return await super().select(candidates, search)

    plan = Plan(parse("best_of_n").strategy, None, Asks())
    end = search_one(PROBLEM, 40, plan, ToyBackend(), verifiers=ToyVerifier())
    assert end.solution.stopped_by.startswith("budget")
    assert end.solution.answer is not None


def test_functions_of_a_strategy_are_not_waited_for_beyond_the_time() -> None:
    async def check(search: Search) -> None:
        await search.complete([search.root], 2)
        await search.run(time.sleep, 0.6)
        raise AssertionError("the time was over")

    end = done(run(check, Budget(seconds=0.2), clock=time.perf_counter))
    assert end.solution.stopped_by == "budget: seconds"
    assert len(end.solution.candidates) == 2


# Batches of any size --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [Budget(tokens=20_000_000, seconds=0.5), Budget(flops=1e12, seconds=0.5)])
@pytest.mark.parametrize("plan", ["best_of_n", "best_of_n(n=999999999)"])
def test_a_budget_for_millions_ends_in_its_time_and_with_an_answer(budget: Budget, plan: str) -> None:
    end = search_one(PROBLEM, budget, plan, ToyBackend(), clock=time.perf_counter)
    assert end.solution.stopped_by == "budget: seconds"
    assert end.solution.answer is not None
    assert end.solution.usage.seconds < 30  # far from the minutes that all of it takes


def test_a_model_that_costs_nothing_does_not_run_for_ever() -> None:
    solution = tts.solve("hello", 100, backend=lambda ask: tts.Answer("x", tokens=0), task="text", strategy="best_of_n")
    assert solution.stopped_by == "nothing is spent any more"


def test_the_cause_of_failed_rows_is_told() -> None:
    def fails(ask: tts.Ask) -> str:
        raise ValueError("no luck today")

    with pytest.raises(EngineError, match=r"failed: ValueError:.*today"):
        tts.solve("hello", 100, backend=fails, task="text", strategy="best_of_n(n=2)")


def test_answers_that_are_slow_to_compare_are_not_waited_for_beyond_the_time() -> None:
    class Slow(tts.tasks.math.MathTask):
        def decide(self, a: str, b: str) -> bool | None:
            return None

        def equivalent(self, a: str, b: str) -> bool:
            time.sleep(0.5)
            return False

    backend = FunctionBackend(lambda ask: f"\\boxed{{{ask.seed}}}")
    budget, more = Budget(samples=12, seconds=0.4), {"task": Slow(), "clock": time.perf_counter}
    end = search_one("Which?", budget, "best_of_n(n=12)", backend, **more)
    assert end.solution.stopped_by == "budget: seconds"
    assert end.solution.usage.seconds < 10  # 66 pairs of half a second were not waited for
