"""The oracles of Monte-Carlo tree search (algorithm B15, over steps)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.odd import EndsAtRandom
from tests.support.runs import Solved, copies, search_many, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies.trees.mcts import uct
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

LANGUAGE = ToyLanguage(accuracy=0.5, slips=((1, 0.5), (-1, 0.5)))
PROBLEM = "10 - 7 + 5 - 20"


def grow(plan: str, seed: int = 0, verifiers: Any = None, backend: Any = None, samples: int = 400) -> Solved:
    model, scores = backend or ToyBackend(LANGUAGE), verifiers or {"main": ToyVerifier()}
    return search_one(PROBLEM, Budget(samples=samples), plan, model, seed=seed, verifiers=scores)


def test_the_formula() -> None:
    assert uct(0.6, 0.5, 10, 4, 2**0.5) == pytest.approx(1.1365, abs=5e-5)
    assert uct(0.6, 0.5, 1, 1, 2**0.5) == 0.6
    assert uct(0.6, 0.5, 10, 4, 0.0) == 0.6


def test_a_perfect_verifier_without_exploration_writes_nothing_behind_a_wrong_step() -> None:
    """A wrong child is worth nothing, so none is given children while there is a right one."""
    for seed in range(10):
        end = grow("mcts(n=12, width=8, exploration=0.0)", seed)
        nodes = end.search.tree.nodes
        # behind it, right children are used up
        first_end = next((t.node for t in nodes if t.status == "finished"), len(nodes))
        parents = {t.parent.node: t.parent for t in nodes[:first_end] if t.parent is not None}
        scores = [end.search.scoring.scores_of(t).steps for t in parents.values() if t.parent is not None]
        assert len(scores) >= 3
        assert all(score is not None and score[-1] == 1.0 for score in scores)


def test_the_first_rounds_do_not_depend_on_how_many_follow() -> None:
    nodes = [
        [(t.text, t.stream) for t in grow(f"mcts(n={n}, width=3)", verifiers=ToyVerifier(error=0.3)).search.tree.nodes]
        for n in (3, 9)
    ]
    assert nodes[1][: 1 + 3 * 3] == nodes[0][: 1 + 3 * 3]
    assert len(nodes[1]) > len(nodes[0])


def test_every_round_adds_its_width_and_every_child_is_scored() -> None:
    end = grow("mcts(n=7, width=3)", verifiers=ToyVerifier(error=0.3))
    assert len(end.search.tree.nodes) >= 1 + 7 * 3
    assert end.solution.usage.verifier_calls >= 7 * 3


def test_it_ends_where_every_path_has_ended() -> None:
    end = grow(
        "mcts(n=99, width=2, max_steps=3)",
        backend=EndsAtRandom(),
        verifiers=FunctionVerifier(lambda problem, text: 0.5),
    )
    assert end.solution.stopped_by == "done"
    leaves = [t for t in end.search.tree.nodes if t.parent is not None and end.search.tree.children_of(t) == 0]
    assert len(leaves) > 2
    assert all(t.status == "finished" for t in leaves)
    assert len(end.solution.candidates) == len(leaves)


def test_equal_values_spread_the_visits_and_exploration_widens_the_tree() -> None:
    constant = {"main": FunctionVerifier(lambda problem, text: 0.5)}
    depths = {
        c: [t.depth for t in grow(f"mcts(n=6, width=2, exploration={c})", verifiers=constant).search.tree.nodes[:13]]
        for c in (0.0, 5.0)
    }
    assert max(depths[0.0]) > max(depths[5.0])


def test_rollouts_value_children_by_solutions_that_stay_candidates() -> None:
    end = grow("mcts(n=3, width=2, value='rollout')")
    assert len(end.solution.candidates) >= 6
    assert end.solution.answer is not None


@pytest.mark.slow
@pytest.mark.parametrize("value", ["verifier", "rollout"])
def test_it_finds_more_than_a_plain_sample_does(value: str) -> None:
    backend = ToyBackend(LANGUAGE)
    plan, verifiers = f"mcts(width=3, value={value!r})", {"main": ToyVerifier(error=0.1)}
    ends = search_many(copies(PROBLEM, 40), 900, plan, backend, verifiers=verifiers)
    right = [end.solution.answer == "-12" for end in ends]
    # a plain sample is right with .5 ** 3 = .125, and sometimes by luck; standard error sqrt(.25 / 40) = .08
    assert np.mean(right) > 0.25 + 3 * 0.08
