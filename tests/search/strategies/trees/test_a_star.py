"""The oracles of A*-decoding (algorithm A8), on the toy language and on scripted trees."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from tests.support.odd import OddVerifier
from tests.support.runs import Solved, search_one, solution_of
from tests.support.scripted import Scripted, hash_verifier, table
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.plan import parse
from tts.search.strategies.trees.a_star import EDGE_COSTS
from tts.types import Trajectory
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

TEXT = "3 + 4 - 2 + 9"
LAW = ToyLanguage(accuracy=0.6, slips=((1, 1.0),))
AMPLE = Budget(tokens=100_000)
STEPS = 40


def ended(plan: str, seed: int = 0, verifiers: Any = None, budget: Budget = AMPLE, text: str = TEXT) -> Solved:
    return search_one(text, budget, plan, ToyBackend(LAW), seed=seed, verifiers=verifiers or hash_verifier(seed))


def expanded(end: Solved) -> list[Trajectory]:
    """Return the states in the order they were expanded: nodes are numbered as they are made."""
    first: dict[int, Trajectory] = {}
    for t in end.search.tree.nodes[1:]:
        first.setdefault(t.parent.node, t.parent)
    return list(first.values())


def lack(end: Solved, t: Trajectory) -> float:
    known = end.search.tree.scores.get((t.node, "main"))
    return 0.0 if t.parent is None else 1.0 - known.whole


def cost_and_lack(end: Solved, t: Trajectory, edge_cost: str) -> tuple[float, float]:
    """Return g and h of a state, from the definitions."""
    h = [lack(end, node) for node in t.path]
    return math.fsum(EDGE_COSTS[edge_cost](a, b, STEPS) for a, b in itertools.pairwise(h)), h[-1]


def test_a_perfect_heuristic_expands_the_answers_path_alone() -> None:
    reached = 0
    for seed in range(20):
        end = ended("a_star(goals=1, branching=6)", seed, {"main": ToyVerifier()})
        if end.solution.answer != "14":
            continue  # none of six continuations was right at some step
        path = end.solution.candidates[0].trajectory.path
        at = expanded(end)
        assert [t.node for t in at] == [t.node for t in path[:-1]]
        assert len(end.search.tree.nodes) == 1 + 6 * len(at)
        assert len(at) == path[-1].depth == 4
        reached += 1
    assert reached > 10


@pytest.mark.parametrize("edge_cost", sorted(EDGE_COSTS))
def test_the_state_that_is_expanded_next_is_the_best_open_one(edge_cost: str) -> None:
    for seed in range(6):
        end = ended(f"a_star(goals=1, branching=3, edge_cost='{edge_cost}')", seed)
        opened = [end.search.tree.nodes[0]]
        popped = [*expanded(end), max((c.trajectory for c in end.solution.candidates), key=lambda t: t.node)]
        for t in popped:
            keys = {}
            for state in opened:
                g, h = cost_and_lack(end, state, edge_cost)
                keys[state.node] = (g + h, h, -state.depth, -state.node)
            assert min(keys, key=keys.__getitem__) == t.node
            opened = [state for state in opened if state.node != t.node]
            opened += [c for c in end.search.tree.nodes if c.parent is t and (c.node, "main") in end.search.tree.scores]


def test_with_consistent_costs_f_never_falls_and_is_what_the_identity_says() -> None:
    for seed in range(10):
        end = ended("a_star(goals=1, branching=3, edge_cost='consistent')", seed)
        f = [sum(cost_and_lack(end, t, "consistent")) for t in expanded(end)]
        assert all(b >= a - 1e-12 for a, b in itertools.pairwise(f))
        for t in end.search.tree.nodes:
            if t.parent is not None and (t.node, "main") not in end.search.tree.scores:
                continue  # a copy
            h = [lack(end, node) for node in t.path]
            rises = h[0] + sum(max(0.0, b - a) for a, b in itertools.pairwise(h))
            assert sum(cost_and_lack(end, t, "consistent")) == pytest.approx(rises, abs=1e-12)


def test_without_costs_and_on_a_local_frontier_it_is_greedy_step_search() -> None:
    for seed in range(10):
        mine = ended("a_star(goals=1, branching=4, edge_cost='zero', frontier='local')", seed)
        greedy = ended("dvts(n=4, branching=4)", seed)
        assert mine.solution.candidates[0].trajectory.full_text == greedy.solution.candidates[0].trajectory.full_text


def test_ties_go_to_lower_h_then_deeper_then_newest() -> None:
    constant = {"main": ToyVerifier(error=0.5)}
    runs = [ended("a_star(goals=1, branching=3)", 4, constant) for _ in range(2)]
    assert runs[0].solution.trace.canonical() == runs[1].solution.trace.canonical()
    at = expanded(runs[0])
    assert [t.depth for t in at] == list(range(len(at)))  # deeper first, where all are alike
    for t in at[1:]:
        siblings = [
            s.node
            for s in runs[0].search.tree.nodes
            if s.parent is t.parent and (s.node, "main") in runs[0].search.tree.scores
        ]
        assert t.node == max(siblings)
    # with consistent costs f is the greatest h of a path here: .5 for a, b, c and d
    script = {"": ("a\n", "b\n"), "b\n": ("c\n", "d\n")}
    scores = table({"a": 0.5, "b": 0.5, "c": 0.875, "d": 0.5, "A: 0": 0.0})
    end = search_one(
        "1 + 1", AMPLE, "a_star(goals=1, branching=2, edge_cost='consistent')", Scripted(script), verifiers=scores
    )
    # the newest; of lower h, though older; deeper
    assert [t.text for t in expanded(end)] == ["", "b\n", "c\n", "d\n", "a\n"]


def test_the_goal_test_is_on_taking_a_state_not_on_making_it() -> None:
    script = {"": ("A: 1\n", "a\n"), "a\n": ("A: 2\n", "b\n")}
    scores = table({"A: 1": 0.5, "a": 0.9, "A: 2": 0.8, "b": 0.3})
    end = search_one("1 + 1", AMPLE, "a_star(goals=1, branching=2)", Scripted(script), verifiers=scores)
    assert end.solution.answer == "2"  # f = .1 + .2, or .3 with what it fell by; the first solution made has f = 1
    assert [c.answer for c in end.solution.candidates] == ["2"]
    assert end.solution.stopped_by == "done"


def test_by_default_it_ends_at_the_first_solution_and_says_what_is_left() -> None:
    script = {"": ("A: 1\n", "a\n"), "a\n": ("A: 2\n", "b\n")}
    scores = table({"A: 1": 0.5, "a": 0.9, "A: 2": 0.8, "b": 0.3})
    end = search_one(
        "1 + 1", Budget(tokens=1000, verifier_calls=50), "a_star(branching=2)", Scripted(script), verifiers=scores
    )
    assert str(end.solution.strategy) == "a_star(branching=2) | best"
    left = {unit: f"{amount:,.0f}" for unit, amount in end.search.account.remainder().items()}
    rest = f"{left['tokens']} tokens and {left['verifier_calls']} verifier_calls"
    assert end.solution.warnings == (f"a_star ended at its first solution with {rest} left; goals=None goes on",)
    unlimited = search_one("1 + 1", Budget(seconds=1000), "a_star(branching=2)", Scripted(script), verifiers=scores)
    assert unlimited.solution.warnings == ()


@pytest.mark.parametrize(
    ("plan", "selection"), [("a_star", "best"), ("a_star(goals=2)", "weighted"), ("a_star(goals=None)", "weighted")]
)
def test_one_goal_is_chosen_by_score_and_several_are_weighed(plan: str, selection: str) -> None:
    assert str(parse(plan).strategy.default_selection(verified=True)) == selection
    assert str(parse(plan).strategy.default_selection(verified=False)) == "majority"


def test_several_states_may_be_expanded_in_one_call() -> None:
    one, two = (ended(f"a_star(goals=1, branching=4, width={width})", 3) for width in (1, 2))
    rows = [[call.rows for call in end.search.account.ledger.calls if call.kind == "expand"] for end in (one, two)]
    assert max(rows[0]) == 4
    assert max(rows[1]) == 8
    assert len(rows[1]) <= len(rows[0]) + 1


def test_at_its_limit_it_gives_the_best_solution_in_the_frontier_or_completes_the_best_state() -> None:
    script = {"": ("A: 1\n", "a\n", "A: 3\n")}
    scores = table({"A: 1": 0.3, "a": 0.9, "A: 3": 0.4, "A: 0": 0.1})
    solution = solution_of(
        "1 + 1", AMPLE, "a_star(goals=1, branching=3, expansions=1)", Scripted(script), verifiers=scores
    )
    assert [c.answer for c in solution.candidates] == ["3"]
    more = solution_of(
        "1 + 1", AMPLE, "a_star(goals=None, branching=3, expansions=1)", Scripted(script), verifiers=scores
    )
    assert [c.answer for c in more.candidates] == ["3", "1"]
    completed = solution_of(
        "1 + 1", AMPLE, "a_star(branching=2, expansions=1)", Scripted({"": ("a\n", "b\n")}), verifiers=scores
    )
    assert [c.trajectory.full_text for c in completed.candidates] == ["a\nA: 0\n"]


def test_where_the_budget_ends_it_the_best_solution_in_the_frontier_is_the_candidate() -> None:
    # solutions that score well in themselves, but whose paths fell: f decides, not h
    script = {"": ("A: 1\n", "a\n"), "a\n": ("A: 2\n", "b\n"), "b\n": ("c\n",)}
    scores = table({"A: 1": 0.5, "a": 0.95, "A: 2": 0.4, "b": 0.9}, otherwise=0.85)
    endless = Scripted(script, always=("d\n", "e\n"))
    solution = solution_of(
        "1 + 1", Budget(verifier_calls=30), "a_star(goals=1, branching=2)", endless, verifiers=scores
    )
    assert solution.stopped_by == "budget: verifier_calls"
    assert [c.answer for c in solution.candidates] == ["1"]  # f = .5 + .5; of the other: .05 + .55 + .6
    assert solution.usage.verifier_calls <= 30


def test_copies_among_continuations_are_dropped_and_not_scored() -> None:
    script = {"": ("a\n", "a\n", "b\n"), "a\n": ("A: 1\n",), "b\n": ("A: 2\n",)}
    end = search_one(
        "1 + 1", AMPLE, "a_star(goals=1, branching=3)", Scripted(script), verifiers=table({"a": 0.4, "b": 0.9})
    )
    assert [call.rows for call in end.search.account.ledger.calls if call.kind == "score"] == [2, 1]
    assert end.solution.answer == "2"


def test_an_unknown_score_is_the_worst() -> None:
    end = ended("a_star(goals=1, branching=3)", 1, {"main": OddVerifier("nan")})
    assert end.solution.error is None
    assert len(end.solution.candidates) == 1
    half = {"main": FunctionVerifier(lambda problem, text: math.nan if text.endswith("a\n") else 0.01)}
    script = {"": ("a\n", "b\n"), "a\n": ("A: 1\n",), "b\n": ("A: 2\n",)}
    solution = solution_of("1 + 1", AMPLE, "a_star(goals=1, branching=2)", Scripted(script), verifiers=half)
    assert solution.answer == "2"
