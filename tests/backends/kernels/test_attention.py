"""The oracle of attention over a tree, by hand and against whole sequences; and the merge of partial results as a
law.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.kernels.attention import attend_reference, merge_reference, visible_keys
from tests.backends.kernels.trees import EDGES, FORESTS, branching, chain, make_plan, make_tree, star
from tts.backends.kernels.plan import BLOCK, AttentionPlan


def softmax_attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    weights = np.exp(queries @ keys.T)
    return weights / weights.sum(-1, keepdims=True) @ values


def test_two_keys_by_hand() -> None:
    plan = AttentionPlan(np.array([1]), np.array([[0, 1, 0, 1]]), np.array([[2, 0, 2]]))
    keys, values = np.zeros((1, 3, BLOCK, 1)), np.full((1, 3, BLOCK, 1), 1e9)
    keys[0, 2, :2, 0], values[0, 2, :2, 0] = (np.log(3), 0), (8, 4)
    out, lse = attend_reference(plan, np.ones((1, 1, 1, 1)), keys, values)
    assert out[0, 0, 0, 0] == pytest.approx(7)  # 3/4 of 8 and 1/4 of 4
    assert lse[0, 0, 0] == pytest.approx(np.log(4))


def test_a_leaf_reads_its_path_as_one_sequence_would() -> None:
    lengths = [17, 1, 33]
    case = make_tree(branching(lengths, [2, 2]), heads=1, group=1)
    out, _ = attend_reference(*case)
    # of the first leaf's path
    blocks = {position: number for number, position, _ in case.plan.blocks[: -(-17 // 16) + 1 + 3].tolist()}
    starts = np.cumsum([0, *lengths])
    path = [
        (blocks[start + j - j % BLOCK], j % BLOCK)
        for start, length in zip(starts, lengths, strict=False)
        for j in range(length)
    ]
    numbers, rows = map(list, zip(*path, strict=True))
    want = softmax_attention(
        case.queries[0, 0].astype(np.float64), case.keys[0, numbers, rows], case.values[0, numbers, rows]
    )
    assert np.abs(out[0, 0] - want).max() < 1e-12


@pytest.mark.parametrize("length", EDGES)
def test_a_chunk_sees_everything_up_to_itself_and_nothing_behind(length: int) -> None:
    plan, _ = make_plan(chain([20, length], queries=length))
    assert [len(visible_keys(plan, t)[0]) for t in range(length)] == [21 + t for t in range(length)]


def test_siblings_never_see_each_other() -> None:
    plan, _ = make_plan(star(33, [1, 16, 17]))
    seen = [set(zip(*map(tuple, visible_keys(plan, t)), strict=True)) for t in range(3)]
    assert [len(keys) for keys in seen] == [34, 49, 50]
    assert all(len(a & b) == 33 for a in seen for b in seen if a is not b)


def test_a_query_that_no_item_names_gets_nothing() -> None:
    plan = AttentionPlan(np.array([0, 0]), np.array([[0, 1, 0, 1]]), np.array([[0, 0, 1]]))
    out, lse = attend_reference(plan, np.ones((1, 2, 1, 4)), np.ones((1, 1, BLOCK, 4)), np.ones((1, 1, BLOCK, 4)))
    assert out[1].tolist() == [[[0] * 4]]
    assert lse[1].tolist() == [[-np.inf]]


@pytest.mark.parametrize("name", FORESTS)
def test_generated_plans_keep_the_rules_of_a_plan(name: str) -> None:
    plan, num_blocks = make_plan(FORESTS[name], seed=5)
    assert all(array.flags.c_contiguous and array.dtype == np.int64 for array in plan)
    assert (plan.items[:, 0] < plan.items[:, 1]).all()
    assert (plan.items[:, 2] < plan.items[:, 3]).all()
    assert len(set(plan.blocks[:, 0].tolist())) == len(plan.blocks) < num_blocks
    assert ((plan.blocks[:, 2] >= 1) & (plan.blocks[:, 2] <= BLOCK)).all()
    for t, position in enumerate(plan.positions.tolist()):
        met = [block for a, b, q, r in plan.items.tolist() if q <= t < r for block in plan.blocks[a:b].tolist()]
        held = [first + j for _, first, count in met for j in range(count)]
        # from the root to its own token, each once
        assert [key for key in held if key <= position] == list(range(position + 1))


@st.composite
def partitions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Scores [L] and values [L, 3] with extremes and ties, and a partition of the keys into sets in any order, some of
    them empty.
    """
    num_keys = draw(st.integers(1, 12))
    score = st.one_of(st.floats(-80, 80), st.sampled_from([-80.0, 0.0, 80.0]))
    scores = np.array(draw(st.lists(score, min_size=num_keys, max_size=num_keys)))
    values = np.array(draw(st.lists(st.tuples(*[st.floats(-10, 10)] * 3), min_size=num_keys, max_size=num_keys)))
    order = draw(st.permutations(range(num_keys)))
    cuts = sorted(draw(st.lists(st.integers(0, num_keys), max_size=4)))
    return scores, values, [order[a:b] for a, b in zip([0, *cuts], [*cuts, num_keys], strict=True)]


@settings(deadline=None, derandomize=True)
@given(partitions())
def test_any_partition_in_any_order_merges_to_the_whole(case: tuple[np.ndarray, np.ndarray, list[list[int]]]) -> None:
    scores, values, sets = case

    def attention(index: list[int]) -> tuple[np.ndarray, float]:
        if not index:
            return np.full(3, np.nan), -np.inf  # whatever stands there must not count
        weights = np.exp(scores[index] - scores[index].max())
        return weights @ values[index] / weights.sum(), scores[index].max() + np.log(weights.sum())

    want, total = attention(list(range(len(scores))))
    outs, lses = zip(*map(attention, sets), strict=True)
    out, lse = merge_reference(np.stack(outs), np.array(lses))
    assert np.abs(out - want).max() < 1e-12
    assert lse == pytest.approx(total, abs=1e-12)


def test_merging_sets_without_keys_gives_a_set_without_keys() -> None:
    out, lse = merge_reference(np.full((2, 4), np.nan), np.full(2, -np.inf))
    assert out.tolist() == [0] * 4
    assert lse == -np.inf
