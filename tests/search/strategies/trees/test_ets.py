"""The oracles of efficient tree search (algorithm A7): its integer program against all subsets, and its searches
against REBASE.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.runs import Clock, Solved, change_setup, make_run, search_one, solve_and_show
from tests.support.scripted import Scripted, hash_verifier, table
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError, MissingDependency
from tts.search.algorithms.clustering import clusters
from tts.search.algorithms.embedding import HashedNgrams
from tts.search.algorithms.pruning import KeptLeaves, LevelTree, best_leaves, gains
from tts.search.needs import needs_of
from tts.search.plan import parse
from tts.search.strategies.trees.ets import tree_of
from tts.verifiers.toy import ToyVerifier

TEXT = "3 + 4 - 2 + 9"
LAW = ToyLanguage(accuracy=0.6)
AMPLE = Budget(tokens=100_000)
PLENTY_S = 60.0


@st.composite
def programs(draw: st.DrawFn, most: int = 7) -> tuple[LevelTree, NDArray[np.float64], NDArray[np.int64]]:
    """Draw a tree in which every inner node has a leaf below it, the rewards of the leaves and their clusters."""
    above = [-1]
    for _ in range(draw(st.integers(0, 6))):
        above.append(draw(st.integers(0, len(above) - 1)))
    childless = [j for j in range(len(above)) if j not in above]
    leaves = childless + draw(st.lists(st.integers(0, len(above) - 1), max_size=max(0, most - len(childless))))
    cost = st.integers(0, 20) if draw(st.booleans()) else st.just(1)
    node_costs, leaf_costs = ([float(draw(cost)) for _ in of] for of in (above, leaves))
    rewards = np.array([draw(st.integers(0, 8)) for _ in leaves], dtype=float) + 1e-3
    _, kinds = np.unique([draw(st.integers(0, 2)) for _ in leaves], return_inverse=True)
    tree = LevelTree(np.array(leaves), np.array(above), np.array(leaf_costs), np.array(node_costs))
    return tree, rewards / rewards.sum(), kinds.astype(np.int64)


def ancestors(tree: LevelTree, leaves: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found = np.zeros(len(tree.node_costs), dtype=bool)
    for leaf in np.flatnonzero(leaves):
        node = tree.leaf_parents[leaf]
        while node >= 0:
            found[node] = True
            node = tree.node_parents[node]
    return found


def subsets(count: int) -> list[NDArray[np.bool_]]:
    return [np.array(one) for one in itertools.product([False, True], repeat=count) if any(one)]


@given(
    program=programs(), charge=st.sampled_from([0.0, 0.3, 1.0, 2.0, 30.0]), bonus=st.sampled_from([0.0, 0.5, 1.5, 30.0])
)
@settings(deadline=None)
def test_the_program_finds_what_trying_all_subsets_finds(program: Any, charge: float, bonus: float) -> None:
    tree, rewards, kinds = program
    kept = best_leaves(tree, rewards, charge, kinds if bonus else None, bonus, PLENTY_S)
    assert isinstance(kept, KeptLeaves)
    # no ancestor without a leaf, no leaf without its ancestors
    assert (kept.nodes == ancestors(tree, kept.leaves)).all()
    leaf_gains, node_gains = gains(tree, rewards, charge)

    def worth(leaves: NDArray[np.bool_]) -> float:
        covered = bonus / (kinds.max() + 1) * len(set(kinds[leaves])) if bonus else 0.0
        return leaf_gains @ leaves + node_gains @ ancestors(tree, leaves) + covered

    assert worth(kept.leaves) == pytest.approx(max(map(worth, subsets(len(rewards)))), abs=1e-8)


@given(program=programs())
@settings(deadline=None)
def test_nothing_charged_keeps_all_a_great_charge_one_and_a_great_bonus_one_of_each_kind(program: Any) -> None:
    tree, rewards, kinds = program
    everything = best_leaves(tree, rewards, 0.0, None, 0.0, PLENTY_S)
    assert isinstance(everything, KeptLeaves)
    assert everything.leaves.all()
    ones = LevelTree(tree.leaf_parents, tree.node_parents, np.ones(len(rewards)), np.ones(len(tree.node_costs)))
    single = best_leaves(ones, rewards, 1000.0, None, 0.0, PLENTY_S)
    assert isinstance(single, KeptLeaves)
    assert single.leaves.sum() == 1
    alone = np.eye(len(rewards), dtype=bool)
    sizes = [int(ancestors(ones, leaf).sum()) for leaf in alone]
    cheapest = [i for i, size in enumerate(sizes) if size == min(sizes)]
    assert rewards[int(np.argmax(single.leaves))] == pytest.approx(max(rewards[cheapest]))
    covering = best_leaves(tree, rewards, 1.0, kinds, 1000.0, PLENTY_S)
    assert isinstance(covering, KeptLeaves)
    assert set(kinds[covering.leaves]) == set(kinds)


def test_a_program_out_of_time_says_so() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    leaves = 400
    tree = LevelTree(rng.integers(0, 200, leaves), np.arange(200) - 1, np.ones(leaves), np.ones(200))
    out = best_leaves(tree, rng.random(leaves) / leaves, 1.0, rng.integers(0, 60, leaves), 1.5, 0.0)
    assert isinstance(out, str)
    assert "ime limit" in out


# Clusters -------------------------------------------------------------------------------------------------------------


def test_clusters_join_what_is_near_and_are_numbered_as_they_appear() -> None:
    east, north, nearly = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.05])
    vectors = np.array([north, 3 * east, nearly, 2 * north])
    assert clusters(vectors, 0.05).tolist() == [0, 1, 1, 0]
    assert clusters(vectors, 0.0).tolist() == [0, 1, 2, 0]
    assert clusters(vectors, 2.0).tolist() == [0, 0, 0, 0]
    assert clusters(vectors[:1], 0.05).tolist() == [0]
    assert clusters(np.zeros((0, 2)), 0.05).tolist() == []


def test_vectors_without_a_direction_are_a_cluster_of_their_own() -> None:
    vectors = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.01]])
    assert clusters(vectors, 0.05).tolist() == [0, 1, 0, 1]


# Searches -------------------------------------------------------------------------------------------------------------


def ended(plan: str, seed: int = 0, verifiers: Any = None, **more: Any) -> Solved:
    return search_one(TEXT, AMPLE, plan, ToyBackend(LAW), seed=seed, verifiers=verifiers or hash_verifier(seed), **more)


def nodes(end: Solved) -> list[Any]:
    return [(node.parent, node.text, node.stream, node.pruned) for node in end.solution.trace.nodes]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4, 12])
def test_without_charge_and_coverage_it_is_rebase(n: int) -> None:
    for seed in range(4):
        mine, other = ended(f"ets(n={n}, charge=0.0, coverage=0.0)", seed), ended(f"rebase(n={n})", seed)
        assert nodes(mine) == nodes(other)
        assert mine.solution.answer == other.solution.answer


def test_the_whole_width_goes_to_the_kept() -> None:
    for cost in ("nodes", "tokens"):
        end = ended(f"ets(n=8, charge=3.0, coverage=0.0, cost='{cost}')", 2)
        depths = [t.depth for t in end.search.tree.nodes]
        assert [depths.count(depth) for depth in range(1, 5)] == [8] * 4
        parents = {depth: {t.parent.node for t in end.search.tree.nodes if t.depth == depth} for depth in range(2, 5)}
        assert all(len(of) == 1 for of in parents.values())  # a charge this great keeps one leaf a level


def test_it_keeps_fewer_tokens_than_rebase() -> None:
    kept: dict[str, list[int]] = {"rebase": [], "ets": []}
    for name in kept:
        for seed in range(4):
            kept[name] += ended(f"{name}(n=16)", seed, {"main": ToyVerifier(error=0.2)}).solution.trace.kept_tokens
    assert np.mean(kept["ets"]) < np.mean(kept["rebase"])


def test_coverage_keeps_a_step_of_each_kind() -> None:
    script = {"": ("so one\n", "so one\n", "then we add\n", "quite another thing\n")}
    scores = table({"so one": 0.9, "then we add": 0.3, "quite another thing": 0.1})
    for coverage, kinds in ((0.0, {"so one\n"}), (30.0, set(script[""]))):  # a charge that alone keeps one leaf
        plan = f"ets(n=8, charge=3.0, coverage={coverage}, balance_temperature=10.0)"
        end = search_one("1 + 1", AMPLE, plan, Scripted(script), verifiers=scores)
        grown = {t.parent.text for t in end.search.tree.nodes if t.depth == 2}
        assert grown == kinds


def test_the_tree_of_live_nodes_costs_what_keeping_them_keeps_alive() -> None:
    end = ended("rebase(n=10)", 3)
    live = [t for t in end.search.tree.nodes if t.depth == 3]
    tree = tree_of(live, in_tokens=True)
    assert (
        tree.leaf_costs.sum() + tree.node_costs.sum()
        == end.search.tree.distinct_tokens(live) - end.search.rows.root_tokens
    )
    assert ancestors(tree, np.ones(len(live), dtype=bool)).all()
    plain = tree_of(live, in_tokens=False)
    assert len(plain.node_costs) == len({node.node for t in live for node in t.path[:-1]})
    assert (plain.node_parents == -1).sum() == 1


def test_where_the_solver_has_no_time_it_balances_as_rebase_does_and_says_so() -> None:
    mine, other = ended("ets(n=12, seconds=0.0)", 1), ended("rebase(n=12)", 1)
    assert nodes(mine) == nodes(other)
    assert any("integer program has no solution" in warning for warning in mine.solution.trace.warnings)
    assert not mine.solution.reproducible
    assert other.solution.reproducible


def test_its_own_work_is_booked_apart() -> None:
    end = ended("ets(n=8)", 1)
    kinds = {call.kind for call in end.search.account.ledger.calls}
    assert "search" in kinds


def test_time_that_ends_within_a_step_ends_the_search_whatever_the_clock_says() -> None:
    class Slow:
        async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
            await asyncio.sleep(60)
            raise AssertionError(f"{texts} were awaited to their end")

    verifiers = {"main": ToyVerifier(error=0.1)}
    made = make_run(TEXT, Budget(seconds=0.5), "ets(n=4)", ToyBackend(LAW), verifiers=verifiers, clock=Clock())
    solution = solve_and_show(change_setup(made, embedder=Slow())).solution
    assert (solution.error, solution.stopped_by) == (None, "budget: seconds")


def test_an_embedder_is_named_or_the_solvers() -> None:
    same = [
        ended(f"ets(n=8{more})", 2, **given)
        for more, given in (("", {}), (", embedder='ngrams'", {}), ("", {"embedder": HashedNgrams()}))
    ]
    assert nodes(same[0]) == nodes(same[1]) == nodes(same[2])
    with pytest.raises(ConfigError, match="embedder is 'ngram'"):
        parse("ets(embedder='ngram')")
    with pytest.raises(ConfigError, match="size is 0"):
        parse("ets(embedder='ngrams(size=0)')")
    assert needs_of(parse("ets(embedder='hidden')").strategy).capabilities == ("steps", "hidden")


def test_a_missing_model_of_sentences_is_named_before_anything_is_spent() -> None:
    try:
        import sentence_transformers  # noqa: F401
    except ImportError:
        with pytest.raises(MissingDependency, match="sentence-transformers"):
            parse("ets(embedder='sentences')")
    else:
        assert needs_of(parse("ets(embedder='sentences')").strategy).capabilities == ("steps",)
