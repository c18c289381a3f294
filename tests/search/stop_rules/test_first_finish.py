"""First finish: which solutions it waits for, what the others cost, and where that is known to be so."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from math import comb
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.guard import LIMIT_S
from tests.support.revising import RevisingTask
from tests.support.runs import change_setup, make_run, solve, solve_and_show
from tts.backends.function import Answer, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget
from tts.verifiers.toy import ToyVerifier

PIECE = 16  # tokens, or a sixteenth of the length, by which rows may pass the k-th
REASON = "all solutions begin at once under this stop rule, and none begins later"
COUNTDOWN = "Reach 4 with 8 18 20 10."
countdown = partial(tts.solve, COUNTDOWN, task="countdown")


def lengths_of(solution: tts.Solution) -> list[int]:
    return [one.trajectory.num_tokens for one in sorted(solution.candidates, key=lambda one: one.index)]


def finish_order(solution: tts.Solution) -> list[tuple[int, int]]:
    """Return the tokens and draws of all solutions, the first to end first."""
    return sorted((one.trajectory.num_tokens, one.index) for one in solution.candidates)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("n", "k"), [(8, 1), (8, 4), (5, 5), (16, 3)])
def test_on_the_engine_it_is_the_first_k_of_n_by_tokens_and_what_was_written_is_charged(
    n: int, k: int, seed: int
) -> None:
    plan = f"best_of_n(n={n}, temperature=1.0)"
    whole = countdown(20_000, strategy=f"{plan} | majority", seed=seed)
    found = countdown(20_000, strategy=f"{plan} | first_finish(k={k}) | majority", seed=seed)
    by_draw = {one.index: one for one in whole.candidates}
    order = finish_order(whole)
    answered = [place for place, (_, draw) in enumerate(order) if by_draw[draw].answer is not None]
    is_enough = len(answered) >= k
    first = order[: answered[k - 1] + 1] if is_enough else order  # it waits for k answered ones
    texts = [by_draw[draw].trajectory.full_text for _, draw in first]
    assert [one.trajectory.full_text for one in sorted(found.candidates, key=lambda one: one.index)] == texts
    kth, lengths = first[-1][0], [tokens for tokens, _ in finish_order(whole)]
    written = found.usage.generated_tokens + found.usage.cancelled_tokens
    assert (
        sum(min(length, kth) for length in lengths)
        <= written
        <= sum(min(length, kth + max(PIECE, kth // PIECE)) for length in lengths)
    )
    assert found.usage.samples == n
    assert (found.stopped_by == "first finish") == is_enough


@pytest.mark.parametrize(
    "limits",
    [{"tokens": 60}, {"tokens": 150}, {"tokens": 400}, {"generated_tokens": 90}, {"samples": 3}, {"flops": 6e8}],
)
@pytest.mark.parametrize("seed", range(4))
def test_every_budget_holds_and_pays_at_least_one_solution(limits: dict[str, Any], seed: int) -> None:
    found = countdown(
        Budget(**limits), strategy="best_of_n(n=8, temperature=1.0) | first_finish(k=2) | majority", seed=seed
    )
    again = countdown(
        Budget(**limits), strategy="best_of_n(n=8, temperature=1.0) | first_finish(k=2) | majority", seed=seed
    )
    assert all(found.remaining[unit] >= 0 for unit in limits)
    plain = countdown(Budget(**limits), strategy="best_of_n(n=8, temperature=1.0) | majority", seed=seed)
    ends = [any(one.trajectory.status == "finished" for one in each.candidates) for each in (plain, found)]
    assert ends[1] >= ends[0]
    assert (found.usage.tokens, lengths_of(found)) == (again.usage.tokens, lengths_of(again))


def test_its_books_are_the_backends_own_counts() -> None:
    backend = ToyBackend()
    found = solve(
        make_run("3 + 4 - 2 + 9", Budget(tokens=2000), "best_of_n(n=8) | first_finish(k=3) | majority", backend)
    )
    usage, counters = found.usage, backend.counters
    assert counters.generated_tokens == usage.generated_tokens + usage.cancelled_tokens
    assert counters.prompt_tokens == usage.prompt_tokens
    assert len(found.candidates) == 3


@pytest.mark.slow
def test_it_is_the_same_beside_other_problems() -> None:
    plan = "best_of_n(n=8, temperature=1.0) | first_finish(k=3) | majority"
    problems = [COUNTDOWN, "Reach 12 with 3 5 9 7.", "Reach 20 with 2 6 8 4."]
    with tts.Solver(task="countdown") as solver:
        alone = [solver.solve(problem, 3000, strategy=plan, seed=1) for problem in problems]
        beside = solver.solve_many(problems, each=3000, strategy=plan, seed=1)
    assert [lengths_of(one) for one in alone] == [lengths_of(one) for one in beside]
    assert [one.usage.tokens for one in alone] == [one.usage.tokens for one in beside]


def order_mean(lengths: Sequence[int], total: int, n: int, k: int) -> tuple[float, float]:
    """Return mean and deviation of the k-th shortest answered one of n draws, where there are k, by the law of order
    statistics: P(X_(k) <= x) is a binomial tail.

    Args:
        lengths: The lengths of the answered ones of `total` draws.
        total: The number of draws.
        n: The number of draws of a run.
        k: The place.
    """
    values = np.unique(lengths)
    shares = np.searchsorted(np.sort(lengths), values, side="right") / total
    tail = [math.fsum(comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(k, n + 1)) for share in shares]
    law = np.diff(tail, prepend=0.0) / tail[-1]
    mean = float(law @ values)
    return mean, math.sqrt(float(law @ (values - mean) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3])
def test_the_length_of_the_last_that_is_waited_for_follows_the_law_of_order_statistics(k: int) -> None:
    runs, n = 120, 6
    whole = countdown(100_000, strategy="best_of_n(n=600, temperature=1.0) | majority", seed=99)
    lengths = [one.trajectory.num_tokens for one in whole.candidates if one.answer is not None]
    plan = f"best_of_n(n={n}, temperature=1.0) | first_finish(k={k}) | majority"
    found = [countdown(20_000, strategy=plan, seed=seed) for seed in range(runs)]
    seen = [lengths_of(one)[-1] for one in found if one.stopped_by == "first finish"]
    assert len(seen) > runs / 2
    mean, deviation = order_mean(lengths, 600, n, k)
    assert np.mean(seen) == pytest.approx(mean, abs=4 * deviation * math.sqrt(1 / len(seen) + n / len(lengths)))


def test_a_function_model_is_ordered_by_the_tokens_that_it_reports_and_charged_in_full() -> None:
    told = [50, 20, 40, 10, 30, 60]
    numbers = itertools.count()

    def write(ask: Any) -> Answer:
        number = next(numbers)
        time.sleep(0.01 * (len(told) - number))  # the last call ends first
        return Answer(f"A: {told[number]}", tokens=told[number])

    found = tts.solve(
        "?", 2000, backend=FunctionBackend(write), task="math", strategy="best_of_n(n=6) | first_finish(k=3) | majority"
    )
    assert lengths_of(found) == [10, 20, 30]
    assert found.usage.generated_tokens + found.usage.cancelled_tokens == sum(told)


def test_on_a_server_solutions_are_taken_as_they_arrive_and_the_others_are_cancelled() -> None:
    from tests.addons.gateway.wire.upstream import serving_script

    numbers, done = itertools.count(), threading.Event()

    def script(body: dict[str, Any]) -> dict[str, Any]:
        if "hello" not in str(body["messages"]):  # a question of the probe
            return {"content": "fine"}
        number = next(numbers)
        if number < 3:  # the first three are never done in time
            done.wait(LIMIT_S)
        return {"content": f"A: {number}"}

    with serving_script(script) as upstream:
        found = tts.solve(
            "hello",
            3000,
            model="scripted",
            url=upstream.url,
            strategy="best_of_n(n=6) | first_finish(k=3) | majority",
            max_tokens=50,
        )
        assert not done.is_set()
        done.set()
    texts = {one.trajectory.full_text for one in found.candidates}
    assert len(texts) == len(found.candidates) == 3
    # a connection that breaks on a busy machine is sent again, with a further number
    assert texts.isdisjoint({"A: 0", "A: 1", "A: 2"})
    assert found.usage.samples == 6
    assert not found.reproducible


def test_too_few_that_end_leave_all_to_the_selection() -> None:
    found = tts.solve("3 + 4 - 2", 2000, model="toy", strategy="best_of_n(n=3) | first_finish(k=4) | majority")
    assert (len(found.candidates), found.stopped_by) == (3, "done")
    with pytest.raises(tts.ConfigError, match="k is 0"):
        tts.solve("3 + 4 - 2", 2000, model="toy", strategy="best_of_n(n=3) | first_finish(k=0) | majority")


@pytest.mark.parametrize("tokens", [40, 100, 300])
def test_what_solutions_that_begin_at_once_leave_of_the_budget_is_stated(tokens: int) -> None:
    solution = tts.solve("-5 + 2", tokens, model="toy", strategy="best_of_n | first_finish(k=1000)")
    assert solution.stopped_by == "done"
    left = solution.remaining["tokens"] / tokens
    warnings = [line for line in solution.warnings if "none begins later" in line]
    assert warnings == ([f"{left:.0%} of the tokens are left: {REASON}"] if left >= 0.1 else [])


def test_what_they_leave_of_the_seconds_is_stated() -> None:
    backend = ChaosBackend(ToyBackend(), seed=2, fail=0.5)
    run = make_run("-5 + 2", Budget(seconds=3600), "best_of_n | first_finish(k=1000)", backend)
    solution = solve_and_show(run).solution
    assert [REASON in line for line in solution.warnings if "seconds" in line] == [True]


def test_a_cascade_whose_rows_all_failed_has_no_score_and_goes_on() -> None:
    backend = ChaosBackend(ToyBackend(), seed=2, fail=1.0)
    end = solve_and_show(
        make_run(
            "3 + 4", 200, "cascade(models=['draft', 'policy']) | first_finish", ToyBackend(), models={"draft": backend}
        )
    )
    assert end.solution.error is None
    assert end.solution.answer is not None


@pytest.mark.parametrize("seed", range(4))
def test_ab_mcts_goes_on_after_a_failed_row(seed: int) -> None:
    backend = ChaosBackend(ToyBackend(), seed=seed, fail=0.5)
    run = make_run("3 + 4", 400, "ab_mcts(n=8) | first_finish(k=3)", backend, verifiers={"main": ToyVerifier()})
    end = solve_and_show(change_setup(run, task=RevisingTask()))
    assert end.solution.error is None
    assert end.solution.candidates


def test_texts_without_an_answer_are_not_among_those_that_are_waited_for() -> None:
    """The shortest texts have no answer here: the first two answers come later."""

    def write(ask: tts.Ask) -> Answer:
        place = ask.seed % 4
        return Answer("I would rather not say." if place < 2 else "The answer is 7.", tokens=10 + 10 * place)

    found = tts.solve(
        "What is 3 + 4?",
        tts.Budget(samples=16),
        backend=write,
        task="math",
        strategy="best_of_n(n=16) | first_finish(k=2) | majority",
    )
    assert (found.answer, found.stopped_by) == ("7", "first finish")
    assert sum(one.answer is not None for one in found.candidates) == 2
