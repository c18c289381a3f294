"""The oracles of answer convergence (algorithm B9) and of semantic-entropy rounds (B10)."""

from __future__ import annotations

import math

import pytest

from tests.support.candidates import candidates
from tests.support.revising import RevisingTask, revising  # noqa: F401 - a fixture
from tests.support.runs import Solved, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget

pytestmark = pytest.mark.usefixtures("revising")
LANGUAGE = ToyLanguage(accuracy=0.5)
SURE = ToyLanguage(accuracy=1.0)
LEVEL = "3" + " + 0" * 12  # whose running value is 3 from the first step to the last


def search(
    plan: str,
    seed: int = 0,
    language: ToyLanguage = LANGUAGE,
    problem: str = "10 - 7 + 5 - 20",
    budget: Budget | None = None,
) -> Solved:
    return search_one(problem, budget or Budget(samples=200), plan, ToyBackend(language), seed=seed)


# Answer convergence: a probe of one token has the toy say its running value -------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_constant_answer_stops_after_exactly_k_probes(k: int) -> None:
    end = search(f"answer_convergence(n=1, k={k}, tokens=1)", language=SURE, problem=LEVEL)
    (candidate,) = end.solution.candidates
    assert candidate.answer == "3"
    assert candidate.trajectory.full_text == "3 + 0 = 3\n" * k + "A: 3"
    calls = [call.kind for call in end.search.account.ledger.calls]
    assert calls.count("extend") == k
    assert end.solution.usage.generated_tokens == 6 * (k + 1) + k  # one step more than was needed, and the probes


def test_a_changing_answer_begins_the_row_anew() -> None:
    end = search("answer_convergence(n=1, k=2, tokens=1)", language=SURE, problem="3 + 0 + 1 + 0 + 1 + 1 + 1")
    (candidate,) = end.solution.candidates
    assert candidate.answer == "4"
    assert candidate.trajectory.full_text == "3 + 0 = 3\n3 + 1 = 4\n4 + 0 = 4\nA: 4"


def test_a_probe_without_an_answer_begins_the_row_anew() -> None:
    end = search("answer_convergence(n=1, k=2, tokens=1, cue='well, ')", language=SURE, problem=LEVEL)
    (candidate,) = end.solution.candidates
    assert candidate.trajectory.full_text.count("\n") == 12
    assert candidate.answer == "3"


def test_what_converged_leaves_nothing_alive_but_its_answer() -> None:
    end = search("answer_convergence(n=3, k=2, tokens=1)", language=SURE, problem=LEVEL)
    assert len(end.solution.candidates) == 3
    assert end.search.tree.pruned


def test_traces_are_written_until_the_budget_ends() -> None:
    end = search("answer_convergence(k=2, tokens=1)", language=SURE, problem=LEVEL, budget=Budget(generated_tokens=600))
    # a trace is 3 steps of 6 tokens and 2 probes
    assert len(end.solution.candidates) == pytest.approx(600 / 20, abs=3)
    assert end.solution.answer == "3"


# Semantic entropy -----------------------------------------------------------------------------------------------------


def rounds_of(end: Solved) -> int:
    return sum(t.parent is None for t in end.search.tree.nodes)


def test_entropy_is_none_where_all_agree_ln_n_where_all_differ_and_infinite_without_an_answer() -> None:
    from tts_addons.zoo.semantic_entropy import entropy_of

    assert entropy_of(candidates("aaaa")) == 0
    assert entropy_of(candidates("abcd")) == pytest.approx(math.log(4))
    assert entropy_of(candidates("xxyz")) == pytest.approx(entropy_of(candidates("aabc")))
    assert entropy_of(candidates([None, None])) == math.inf
    assert entropy_of(candidates(["a", None])) == 0


def test_a_unanimous_round_ends_it() -> None:
    end = search("semantic_entropy(n=5, rounds=6)", language=SURE)
    assert rounds_of(end) == 1
    assert len(end.solution.candidates) == 5
    assert end.solution.confidence == 1.0


def test_a_threshold_of_zero_runs_all_rounds_and_the_last_one_votes() -> None:
    end = search("semantic_entropy(n=3, rounds=4, threshold=0.0)", language=SURE)
    assert rounds_of(end) == 4
    assert len(end.search.candidates) == 12
    assert {c.trajectory.root for c in end.solution.candidates} == {end.search.candidates[-1].trajectory.root}


def test_the_next_round_sees_one_solution_of_each_answer_first() -> None:
    for seed in range(6):
        end = search("semantic_entropy(n=6, rounds=2, threshold=0.0, shown=5)", seed)
        first = end.search.candidates[:6]
        task = end.search.task
        assert isinstance(task, RevisingTask)
        kind, shown = task.prompted[0]
        assert kind == "fuse"
        assert len(shown) == 5
        by_text = {c.trajectory.full_text: c.answer for c in first}
        distinct = len(set(by_text.values()))
        assert len({by_text[text] for text in shown[:distinct]}) == min(distinct, 5)


def test_the_secretary_watches_and_then_takes_the_first_better_round() -> None:
    from tts_addons.zoo.semantic_entropy import SemanticEntropy

    strategy = SemanticEntropy(n=4, rule="secretary", watched=2)
    for entropies, stops in (
        ([1.0], False),
        ([1.0, 0.2], False),
        ([1.0, 0.5, 0.5], False),
        ([1.0, 0.5, 0.4], True),
        ([1.0, 0.5, 0.7, 0.1], True),
    ):
        assert strategy._stops(entropies) is stops


def test_where_the_task_shows_nothing_the_round_starts_from_the_problem() -> None:
    end = search("semantic_entropy(n=2, rounds=3)", language=ToyLanguage(mute=1.0))
    assert rounds_of(end) == 1
    assert len(end.search.candidates) == 6


def test_a_round_sized_by_its_budget_has_two_answers_that_may_disagree() -> None:
    for units, n in ((1, 1), (2, 2), (5, 2), (8, 2), (20, 5)):
        calls = search("semantic_entropy(rounds=4)", 0, budget=Budget(samples=units)).search.account.ledger.calls
        assert next(call.rows for call in calls if call.kind == "expand") == n
    drawn = [
        search("semantic_entropy(rounds=4)", seed, budget=Budget(samples=5)).solution.usage.samples
        for seed in range(20)
    ]
    assert min(drawn) == 2 < max(drawn)
