"""The oracles of reward-balanced search (algorithm A6), on the toy language and on scripted trees."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support.runs import Solved, search_one, solution_of
from tests.support.scripted import Scripted, hash_verifier, table
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies.trees.rebase import rows_of
from tts.types import Problem, Solution, Trajectory
from tts.verifiers.function import FunctionVerifier

TEXT = "3 + 4 - 2 + 9"
LAW = ToyLanguage(accuracy=0.6)
AMPLE = Budget(tokens=100_000)
UNEVEN = {"": ("A: 1\n", "a\n", "b\n", "c\n", "A: 5\n", "d\n"), "a\n": ("A: 2\n", "e\n"), "b\n": ("f\n", "A: 3\n")}


def found(plan: str, seed: int = 0, **more: Any) -> Solution:
    return solution_of(
        TEXT, AMPLE, plan, ToyBackend(LAW), seed=seed, verifiers=more.pop("verifiers", hash_verifier(seed))
    )


def texts(solution: Solution) -> list[str]:
    return sorted(c.trajectory.full_text for c in solution.candidates)


def check_widths(end: Solved, n: int) -> None:
    """Assert that each level has as many nodes as paths had not ended before it, until n have."""
    made, ended = Counter[int](), Counter[int]()
    for t in end.search.tree.nodes[1:]:
        made[t.depth] += 1
        ended[t.depth] += t.status != "active"
    left = n
    for depth in sorted(made):
        assert made[depth] == left
        left -= ended[depth]
    assert left == 0
    assert len(end.solution.candidates) == n


@pytest.mark.parametrize("n", [1, 2, 5, 16])
@pytest.mark.parametrize("temperature", [1e-6, 0.2, 1e6])
def test_every_level_has_the_whole_width_and_n_paths_end(n: int, temperature: float) -> None:
    plan = f"rebase(n={n}, balance_temperature={temperature})"
    check_widths(search_one(TEXT, AMPLE, plan, ToyBackend(LAW), verifiers=hash_verifier(n)), n)


@pytest.mark.parametrize("n", [3, 6, 7, 12])
def test_the_width_shrinks_by_one_for_each_path_that_has_ended(n: int) -> None:
    check_widths(search_one("1 + 1", AMPLE, f"rebase(n={n})", Scripted(UNEVEN), verifiers=hash_verifier(n)), n)


def test_children_follow_the_scores() -> None:
    script = {"": ("a\n", "b\n", "c\n", "d\n")}
    scores = table({"a": 0.9, "b": 0.8, "c": 0.5, "d": 0.1})
    end = search_one("1 + 1", AMPLE, "rebase(n=16)", Scripted(script), verifiers=scores)
    # four nodes of each step, four of each score: what the sixteen children are divided by
    children = Counter(t.parent.text for t in end.search.tree.nodes if t.depth == 2)
    w = {"a\n": 1.0, "b\n": 0.6065, "c\n": 0.1353, "d\n": 0.0183}
    total = 4 * sum(w.values())
    for step, weight in w.items():
        assert abs(children[step] - 16 * 4 * weight / total) < 4  # each of the four by less than one
    assert sum(children.values()) == 16
    assert children["d\n"] == 0


def test_scores_of_any_range_balance_alike() -> None:
    unit = hash_verifier()["main"]
    stretched = FunctionVerifier(lambda problem, text: 20 * unit.fn(problem, text) - 10, range=(-10.0, 10.0))
    assert texts(found("rebase(n=8)", verifiers=unit)) == texts(found("rebase(n=8)", verifiers=stretched))


def test_a_path_at_the_depth_cap_runs_to_its_end() -> None:
    end = search_one(TEXT, AMPLE, "rebase(n=5, max_steps=2)", ToyBackend(LAW), verifiers=hash_verifier())
    assert max(t.depth for t in end.search.tree.nodes) == 2
    assert len(end.solution.candidates) == 5
    assert all(c.answer is not None for c in end.solution.candidates)


def test_its_answer_is_a_weighted_vote() -> None:
    def score(problem: Problem, text: str) -> float:
        return {"A: 1": 0.9, "A: 2": 0.5}.get(text.strip(), 0.5)

    script = {"": ("A: 1\n", "A: 2\n", "A: 2\n")}
    solution = solution_of("1 + 1", AMPLE, "rebase(n=3)", Scripted(script), verifiers=FunctionVerifier(score))
    assert solution.strategy == "rebase(n=3) | weighted"
    assert solution.answer == "2"  # .5 + .5 against .9


def test_first_children_of_all_come_before_second_ones() -> None:
    ts = [Trajectory(None, "", (), (), "active", 0, node, 0, 0) for node in range(4)]
    assert [t.node for t in rows_of(ts, np.array([3, 0, 1, 2]))] == [0, 2, 3, 0, 3, 0]
    assert list(rows_of([], np.array([], dtype=np.int64))) == []
