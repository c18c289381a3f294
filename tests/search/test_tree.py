"""What the tree keeps in memory, against a count that goes through every path again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.verifier_contract import Do
from tests.support.runs import make_run, solve_and_show
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.ends import END, STEP, Tokens
from tts.search.search import Search
from tts.search.tree import Tree
from tts.types import Trajectory

Made = list[tuple[Trajectory, int]]  # nodes, each with the tokens it adds


def distinct(ts: Iterable[Trajectory], own: Sequence[int]) -> int:
    """Return the tokens of the set of all nodes on the paths."""
    return sum(own[node] for node in {one.node for t in ts for one in t.path})


def unshared(held: Sequence[Trajectory], own: Sequence[int]) -> int:
    """Return the tokens that the tips among the held nodes keep if each has a copy of its path."""
    inner = {one.node for t in held for one in t.path[:-1]}
    return sum(own[one.node] for t in held if t.node not in inner for one in t.path)


# (kind, which node, tokens): "root" and "child" hold a handle, "bare" does not, "release" gives one up
ops = st.lists(
    st.tuples(
        st.sampled_from(["root", "child", "child", "child", "bare", "release", "release"]),
        st.integers(0, 40),
        st.integers(0, 9),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(ops, st.data())
def test_counts_of_a_random_tree_equal_a_count_from_its_paths(
    program: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    tree, own = Tree(), list[int]()
    held: list[Trajectory] = []
    peak = (0, 0)
    for kind, which, size in [("root", 0, 3), *program]:
        if kind == "release":
            t = tree.nodes[which % len(tree.nodes)]
            assert tree.release(t) == any(one.node == t.node for one in held)
            held = [one for one in held if one.node != t.node]
        else:
            parent = None if kind == "root" else tree.nodes[which % len(tree.nodes)]
            length = 0 if parent is None else parent.num_tokens + size
            depth = 0 if parent is None else parent.depth + 1
            handle = None if kind == "bare" else object()
            t = tree.add(Trajectory(parent, "", (), (), "active", 0, len(own), length, depth, handle=handle), size)
            own.append(size)
            held += [t] if handle is not None else []
            assert tree.own_tokens(t) == size
            assert tree.path_tokens(t) == sum(own[one.node] for one in t.path)
        live = distinct(held, own)
        assert (tree.live_tokens, tree.logical_tokens) == (live, unshared(held, own))
        if live > peak[0]:
            peak = (live, unshared(held, own))
        assert (tree.peak_live, tree.peak_logical) == peak
        assert sorted(tree.held) == sorted(one.node for one in held)
    some = data.draw(st.lists(st.sampled_from(tree.nodes), max_size=8))
    assert tree.distinct_tokens(some) == distinct(some, own)
    assert tree.distinct_tokens(held) == tree.live_tokens


_UNTIL = (STEP, END, Tokens(3))


@settings(deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_kv_cost_of_a_search_is_the_distinct_tokens_of_what_it_wrote(data: st.DataObject, seed: int) -> None:
    problem = "10 - 7 + 5 - 20"

    async def check(search: Search) -> None:
        def own() -> list[int]:
            """The prompt as the backend counts it, for a root; else the tokens that the node was given."""
            return [len(t.token_ids) if t.parent is not None else prompt for t in search.tree.nodes]

        prompt = ToyBackend().count(search.task.prompt(search.problem))
        assert search.tree.distinct_tokens([]) == 0
        assert search.tree.distinct_tokens([search.root]) == prompt > 0
        kept = [search.root]
        for _ in range(data.draw(st.integers(1, 5))):
            active = [t for t in kept if t.status == "active"]
            if not active:
                break
            parents = data.draw(st.lists(st.sampled_from(active), min_size=1, max_size=3))
            made = await search.expand(parents, data.draw(st.integers(1, 3)), data.draw(st.sampled_from(_UNTIL)))
            kept += [t for of in made for t in of]
            some = data.draw(st.lists(st.sampled_from(kept), max_size=6))
            assert search.tree.distinct_tokens(some) == distinct(some, own())
            assert search.tree.distinct_tokens([*some, *some]) == search.tree.distinct_tokens(some)
            assert search.tree.distinct_tokens(kept) == distinct(kept, own()) <= search.tree.peak_live
            if data.draw(st.booleans()):
                kept = [search.root, *(t for t in kept[1:] if t.status == "active")][:4]
                search.keep(kept)
                assert search.tree.live_tokens >= search.tree.distinct_tokens(kept)

    end = solve_and_show(
        make_run(problem, Budget(tokens=10**5), Do(check=check), ToyBackend(ToyLanguage(accuracy=0.6)), seed=seed)
    )
    assert end.search is not None
    if end.solution.error is not None:
        raise end.solution.error
    tree, usage = end.search.tree, end.solution.usage
    assert (usage.peak_kv_tokens, usage.saved_kv_tokens) == (tree.peak_live, tree.peak_logical - tree.peak_live)
    assert (tree.live_tokens, tree.logical_tokens, tree.held) == (0, 0, {})
