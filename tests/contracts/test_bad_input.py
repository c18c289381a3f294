"""What every strategy does with one sample, with too little, and with models and verifiers that misbehave."""

from __future__ import annotations

import pytest

from tests.contracts.strategy_contract import PROBLEMS, StrategyContract, verified
from tests.contracts.test_strategies import CONTRACTS
from tests.support.chaos import ChaosBackend
from tests.support.odd import OddBackend, OddVerifier
from tests.support.revising import revising  # noqa: F401 - a fixture
from tests.support.runs import check_books, make_run, search_one, solution_of, solve_and_show, texts_of
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import VerifierError
from tts.search.parts import Plan

PROBLEM = PROBLEMS[1]
pytestmark = pytest.mark.usefixtures("revising")
# those that change no thought, or prompt
PLAIN = [contract for contract in CONTRACTS if contract.plain and not contract.language.thoughts]
EACH_PLAIN = pytest.mark.parametrize("contract", PLAIN, ids=lambda contract: contract.name)
EACH = pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)


def plan_of(contract: type[StrategyContract]) -> Plan:
    return contract().plan()


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.slow)], ids=str)
@EACH_PLAIN
def test_a_budget_of_one_sample_is_one_plain_sample(contract: type[StrategyContract], seeds: range) -> None:
    for seed in seeds:
        mine, alone = (
            solution_of(PROBLEM, Budget(samples=1), plan, contract().backend(), seed=seed, verifiers=verified())
            for plan in (plan_of(contract), contract.alone)
        )
        assert texts_of(mine) == texts_of(alone)


@EACH_PLAIN
@pytest.mark.parametrize("step", ["", "10 - 7 + 5 - 20\n", "so we see\n"])
def test_it_ends_where_steps_are_empty_repeat_the_prompt_or_never_end(
    contract: type[StrategyContract], step: str
) -> None:
    end = search_one(PROBLEM, Budget(samples=60), plan_of(contract), OddBackend(step), verifiers=OddVerifier(""))
    assert end.solution.answer is not None  # the last step runs to the end
    assert max(t.depth for t in end.search.tree.nodes) <= 42


@EACH
@pytest.mark.parametrize("fault", ["few", "range", "steps", "raises"])
def test_a_verifier_that_breaks_its_contract_is_the_error_of_a_solution_that_keeps_what_was_found(
    contract: type[StrategyContract], fault: str
) -> None:
    for after in (0, 2):
        end = solve_and_show(
            make_run(PROBLEM, 1500, plan_of(contract), contract().backend(), verifiers=OddVerifier(fault, after))
        )
        solution = end.solution
        if solution.error is None:  # nothing was asked that it is wrong about
            assert after or "main" not in end.search.scoring.asked
            continue
        assert isinstance(solution.error, VerifierError)
        assert solution.stopped_by == "failed"
        assert any("the run failed: the verifier" in warning for warning in solution.trace.warnings)
        assert (solution.answer is not None) == any(c.answer is not None for c in end.search.candidates)
        check_books(end.search)


@EACH
def test_unknown_scores_stop_nothing(contract: type[StrategyContract]) -> None:
    unknown = {"main": OddVerifier("nan")}
    end = search_one(PROBLEM, 1500, plan_of(contract), backend_that_answers(contract), verifiers=unknown)
    assert end.solution.answer is not None


@pytest.mark.parametrize("enough", [1, pytest.param(12, marks=pytest.mark.slow)])
@EACH
def test_a_backend_that_fails_once_in_ten_calls_costs_rows_not_answers(
    contract: type[StrategyContract], enough: int
) -> None:
    failed = 0
    for seed in range(12):
        if failed and seed >= enough:
            break
        chaos = ChaosBackend(backend_that_answers(contract), seed=seed, fail=0.1)
        end = solve_and_show(make_run(PROBLEM, 3000, plan_of(contract), chaos, verifiers=verified(), seed=seed))
        failed += sum(end.solution.failures.values())
        assert end.solution.failures == {kind: count for kind, count in end.search.rows.failures.items() if count}
        if contract.width:
            assert end.solution.answer is not None
        check_books(end.search)
        assert not chaos.live
    assert failed, "no row failed: the test saw nothing"


@EACH
def test_where_every_row_fails_it_says_so(contract: type[StrategyContract]) -> None:
    end = solve_and_show(
        make_run(
            PROBLEM, 3000, plan_of(contract), ChaosBackend(contract().backend(), seed=0, fail=1.0), verifiers=verified()
        )
    )
    assert end.solution.error is not None
    assert not end.solution.candidates
    assert end.solution.failures
    check_books(end.search)


@EACH
@pytest.mark.parametrize("limit", [16, 65, 66, 67, 70, 97])
def test_a_width_of_which_the_budget_cannot_pay_one_step_is_a_smaller_width(
    contract: type[StrategyContract], limit: int
) -> None:
    end = search_one(PROBLEMS[0], limit, plan_of(contract), backend_that_answers(contract), verifiers=verified())
    assert end.solution.answer is not None


def backend_that_answers(contract: type[StrategyContract]) -> ToyBackend:
    return ToyBackend(ToyLanguage(accuracy=0.5, thoughts=contract.language.thoughts))
