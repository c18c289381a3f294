"""What holds of every tree method, beside its own oracles."""

from __future__ import annotations

import pytest

from tests.support.odd import OddBackend
from tests.support.runs import Clock, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.verifiers.toy import ToyVerifier

TEXT = " + ".join(map(str, range(1, 13)))
LAW = ToyLanguage(accuracy=0.6)
PLANS = (
    "beam(n=16)",
    "dvts(n=16)",
    "rebase(n=16)",
    "ets(n=16)",
    "a_star(goals=1, branching=16)",
    "beam(n=7, branching=3)",
)


@pytest.mark.parametrize("plan", PLANS)
def test_prefixes_are_read_once_by_a_process_model(plan: str) -> None:
    end = search_one(TEXT, Budget(tokens=10**6), plan, ToyBackend(LAW), verifiers=ToyVerifier(error=0.2))
    tree = end.search.tree
    written = sum(tree.own_tokens(tree.nodes[node]) for node, role in tree.scores if role == "main")
    assert written > 300
    # rescoring whole prefixes would be about six times as much
    assert end.solution.usage.verifier_tokens <= 1.1 * written


@pytest.mark.parametrize("step", ["", "on\n"])
@pytest.mark.parametrize(
    "plan",
    [
        "beam(n=2)",
        "dvts(n=2)",
        "rebase(n=2)",
        "ets(n=2)",
        "a_star(goals=1)",
        "particle_filter(n=2)",
        "mcts(n=2)",
        "answer_convergence(n=1)",
    ],
)
def test_a_path_that_never_ends_is_given_up(plan: str, step: str) -> None:
    """Also where it costs no token, and the budget counts samples alone."""
    backend = OddBackend(step, ends=False)
    end = search_one("3 + 4 - 2", Budget(samples=3), plan, backend, verifiers=ToyVerifier(error=0.2))
    assert end.solution.answer is None
    assert len(end.search.tree.nodes) < 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", ["adaptive", "auto", "auto | weighted", "best_of_n", "early_pruning", "answer_convergence"]
)
@pytest.mark.parametrize("budget", [Budget(tokens=300), Budget(tokens=300, seconds=60), Budget(seconds=60)], ids=str)
def test_solutions_without_a_token_end_the_search_though_no_limit_does(plan: str, budget: Budget) -> None:
    """The model ends each solution at once, with the finish of a step; the clock of a simulation stands still."""
    verifiers = {} if plan in ("auto", "best_of_n") else {"main": ToyVerifier(error=0.2)}
    end = search_one("3 + 4 - 2", budget, plan, OddBackend("", ends=False), verifiers=verifiers, clock=Clock())
    assert end.solution.usage.tokens == 0
    assert len(end.solution.candidates) < 5000


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_not_needed_any_more_is_released(plan: str) -> None:
    backend = ToyBackend(LAW)
    end = search_one(TEXT, Budget(tokens=10**6), plan, backend, verifiers=ToyVerifier(error=0.2))
    assert not end.search.tree.held
    most = end.search.tree.peak_live
    everything = sum(map(end.search.tree.own_tokens, end.search.tree.nodes))
    assert most < everything
    if not plan.startswith("a_star"):  # whose open states all stay
        assert max(end.solution.trace.kept_tokens) < everything / 2


@pytest.mark.parametrize("plan", ["beam", "dvts", "rebase", "ets"])
@pytest.mark.parametrize("more", range(0, 200, 20))
def test_what_is_held_for_the_steps_of_a_path_pays_the_score_of_its_end(plan: str, more: int) -> None:
    """A path of width 1 is not scored before it ends; the states of its steps are given up meanwhile, but not what is
    held for them.
    """
    end = search_one("3 + 4 - 2 + 9", 600 + more, f"{plan} | best", ToyBackend(LAW), verifiers=ToyVerifier(error=0.2))
    assert len(end.solution.candidates) > 1
    assert [c for c in end.solution.candidates if not c.scores["main"] >= 0] == []


@pytest.mark.parametrize(
    ("plan", "candidates"), [("phi_decoding(n=2, beams=2, branching=2)", 2), ("mcts(n=4, width=2, value='rollout')", 4)]
)
def test_deep_paths_are_written_to_their_ends(plan: str, candidates: int) -> None:
    end = search_one(TEXT, Budget(tokens=10**6), plan, ToyBackend(LAW), verifiers=ToyVerifier(error=0.2))
    assert end.solution.stopped_by == "done"
    assert len(end.solution.candidates) >= candidates
