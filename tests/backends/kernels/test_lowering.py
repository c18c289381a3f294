"""The work that is made of a plan: every visible key is read once by each query, in runs of fixed length, shared where
it pays.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.kernels.attention import visible_keys
from tests.backends.kernels.trees import FORESTS, chain, forest, make_plan, star
from tts.backends.kernels.lowering import KernelWork, break_even, lower
from tts.backends.kernels.plan import BLOCK, AttentionPlan


def keys_read(work: KernelWork, query: int) -> list[tuple[int, int]]:
    """Return the keys that a query reads from all of its items, in the order of its slots."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for first_run, run_end, first_query, behind_query, pair in work.items.tolist():
        if first_query <= query < behind_query:
            parts[int(work.slots[pair + query - first_query])] = [
                (number, j)
                for first, behind in work.runs[first_run:run_end].tolist()
                for number, position, count in work.blocks[first:behind].tolist()
                for j in range(count)
                if position + j <= work.positions[query]
            ]
    assert sorted(parts) == list(range(work.first_slots[query], work.first_slots[query + 1]))
    return [key for slot in sorted(parts) for key in parts[slot]]


def assert_each_key_is_read_once(plan: AttentionPlan, work: KernelWork) -> None:
    for t in range(len(plan.positions)):
        read, want = keys_read(work, t), list(zip(*map(tuple, visible_keys(plan, t)), strict=True))
        assert len(read) == len(set(read))
        assert set(read) == set(want)
    assert sorted(work.slots.tolist()) == list(range(work.first_slots[-1])) == list(range(len(work.slots)))


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize(("group", "split", "element_bytes"), [(1, 16, 2), (3, 64, 4), (7, 256, 2), (40, 32, 2)])
def test_each_query_reads_each_of_its_keys_once(name: str, group: int, split: int, element_bytes: int) -> None:
    plan, _ = make_plan(FORESTS[name], seed=3)
    assert_each_key_is_read_once(plan, lower(plan, group=group, split=split, element_bytes=element_bytes))


@pytest.mark.parametrize("before", range(17))
def test_tiles_of_a_chunk_may_end_anywhere_in_a_block(before: int) -> None:
    plan, _ = make_plan(chain([before + 100], queries=100))
    assert_each_key_is_read_once(plan, lower(plan, group=4))


@pytest.mark.parametrize("name", FORESTS)
def test_slots_stand_from_the_root_to_the_leaf(name: str) -> None:
    plan, _ = make_plan(FORESTS[name])
    work = lower(plan, group=1, split=16)
    for t in range(len(plan.positions)):
        tiles = work.items[(work.items[:, 2] <= t) & (t < work.items[:, 3])]
        slots = work.slots[tiles[:, 4] + t - tiles[:, 2]]
        begins = work.blocks[work.runs[tiles[:, 0], 0], 1]
        assert (np.diff(begins[np.argsort(slots)]) > 0).all()


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("group", [1, 6, 40])
def test_no_run_is_empty_or_too_long_and_no_tile_too_wide(name: str, group: int) -> None:
    plan, _ = make_plan(FORESTS[name])
    work = lower(plan, group=group, split=48)
    sizes, readers = work.runs[:, 1] - work.runs[:, 0], work.items[:, 3] - work.items[:, 2]
    assert ((sizes >= 1) & (sizes * BLOCK <= 48)).all()
    assert (readers[: work.num_narrow] * group <= work.narrow).all()
    assert (readers[work.num_narrow :] * group <= work.wide).all()
    assert (readers >= 1).all()
    assert work.narrow >= max(16, group)
    assert work.narrow & (work.narrow - 1) == 0


def test_a_private_run_goes_through_short_nodes_in_one_piece() -> None:
    plan, _ = make_plan(chain([5, 3, 20, 1]))
    work = lower(plan, group=2)
    assert work.items.tolist() == [[0, 1, 0, 1, 0]]
    assert work.runs.tolist() == [[5, 10]]  # five blocks, of four nodes
    assert work.blocks[5:10].tolist() == plan.blocks.tolist()


@pytest.mark.parametrize("group", [1, 3, 7])
@pytest.mark.parametrize("leaves", [2, 5, 16])
def test_a_node_is_shared_from_one_and_a_half_times_the_length_that_breaks_even(group: int, leaves: int) -> None:
    edge = 1.5 * (leaves / (leaves - 1)) * 4 * group / 2
    for length, is_shared in ((int(np.floor(edge)), False), (int(np.floor(edge)) + 1, True)):
        plan, _ = make_plan(star(length, [1] * leaves))
        work = lower(plan, group=group)
        assert (len(work.slots) > leaves) == is_shared


def test_breaking_even_equates_bytes_saved_and_bytes_of_partial_results() -> None:
    readers, heads, size, group, width = np.array([2, 16, 100]), 2, 64, 7, 2
    length = break_even(readers, group, width)
    assert (readers - 1) * length * 2 * heads * size * width == pytest.approx(readers * 8 * heads * group * size)
    assert break_even(np.array([1]), group, width)[0] == np.inf


def test_where_a_run_is_cut_does_not_depend_on_who_else_reads() -> None:
    alone, _ = make_plan(star(100, [40, 40]))
    crowd, _ = make_plan(forest(star(100, [40] * 30), chain([7])))
    lengths = [
        [behind - first for first, behind in lower(plan, group=2, split=64).runs.tolist() if first < 7]
        for plan in (alone, crowd)
    ]
    assert set(lengths[0]) == set(lengths[1]) == {3, 4}  # 100 tokens are 4 and 3 blocks, however many tiles read them


def test_a_strict_query_reads_the_same_runs_by_the_same_tiles_whoever_else_reads() -> None:
    def runs(queries: int, others: int) -> list[list[list[int]]]:
        nodes = forest(star(300, [40] * queries), chain([7] * others)) if others else star(300, [40] * queries)
        work = lower(make_plan(nodes)[0], group=2, split=64, strict=True)
        assert work.num_narrow == len(work.items)
        read = [row for row in work.items.tolist() if row[2] == 0]
        return [
            work.blocks[first:behind, 1:].tolist()
            for first, behind in sorted(
                (work.runs[row[0]].tolist() for row in read), key=lambda run: work.blocks[run[0], 1]
            )
        ]

    assert runs(1, 0) == runs(3, 1) == runs(40, 5)
    assert [len(run) for run in runs(1, 0)] == [4, 4, 4, 4, 3, 3]


@pytest.mark.parametrize("name", FORESTS)
def test_each_strict_query_reads_each_of_its_keys_once(name: str) -> None:
    plan, _ = make_plan(FORESTS[name], seed=3)
    assert_each_key_is_read_once(plan, lower(plan, group=3, split=64, strict=True))


def test_a_chunk_skips_the_runs_behind_it() -> None:
    plan, _ = make_plan(chain([512], queries=512))
    work = lower(plan, group=4, split=64)
    read = ((work.runs[:, 1] - work.runs[:, 0]) * (work.items[:, 3] - work.items[:, 2])).sum() * BLOCK
    assert read < 0.56 * 512 * 512  # half of the square, and what is left of the last run


def test_the_split_must_be_whole_blocks() -> None:
    plan, _ = make_plan(chain([5]))
    for split in (0, 8, 100, -16):
        with pytest.raises(ValueError, match=f"`split` is {split}, but must be a positive multiple of 16"):
            lower(plan, group=1, split=split)


def test_a_plan_without_queries_is_no_work() -> None:
    nothing = AttentionPlan(np.zeros(0, np.int64), np.zeros((0, 4), np.int64), np.zeros((0, 3), np.int64))
    work = lower(nothing, group=2)
    assert len(work.items) == len(work.slots) == 0
    assert work.first_slots.tolist() == [0]


def is_folded(work: KernelWork) -> list[bool]:
    """Return whether each query has one partial result alone."""
    return (np.diff(work.first_slots) == 1).tolist()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("room", [0, 40, 400])
def test_each_query_reads_each_of_its_keys_once_where_paths_are_folded(name: str, strict: bool, room: int) -> None:
    plan, _ = make_plan(FORESTS[name], seed=3)
    most = len(plan.positions) + room
    split = 32 if strict else None
    work = lower(plan, group=3, split=split, strict=strict, heads=2, programs=8, most_slots=most)
    assert_each_key_is_read_once(plan, work)
    assert len(work.slots) <= most


def test_a_long_prompt_has_no_partial_results() -> None:
    plan, _ = make_plan(chain([5000, 3000, 700], queries=700))
    for strict in (False, True):
        whole = lower(plan, group=4, strict=strict)
        folded = lower(plan, group=4, strict=strict, split=256 if strict else None, heads=8, most_slots=4608)
        assert len(whole.slots) > 20_000
        assert len(folded.slots) == 700
        assert_each_key_is_read_once(plan, folded)
        assert (np.diff(folded.items[:, 0]) >= 0).all()


def test_rows_are_folded_only_where_their_results_pass_the_room() -> None:
    plan, _ = make_plan(forest(star(2000, [40] * 12), chain([64])))
    work = lower(plan, group=2, strict=True, heads=2, most_slots=500)
    assert not any(is_folded(work)[:12])
    tight = lower(plan, group=2, strict=True, heads=2, most_slots=60)
    assert len(tight.slots) <= 60
    assert 0 < sum(is_folded(tight)[:12]) < 12


def test_runs_are_as_long_as_fills_the_card() -> None:
    plan, _ = make_plan(star(4096, [40] * 64))
    fixed = lower(plan, group=4, heads=8)
    few = lower(plan, group=4, heads=8, split=None, programs=32)
    many = lower(plan, group=4, heads=8, split=None, programs=4096)
    assert len(few.slots) < len(many.slots) <= len(fixed.slots)
    assert_each_key_is_read_once(plan, few)
    lengths = few.runs[:, 1] - few.runs[:, 0]
    shared = lengths[few.items[:, 3] - few.items[:, 2] > 1]
    assert np.ptp(shared) <= 1, "cut evenly"
    with pytest.raises(ValueError, match=r"None.*strict"):
        lower(plan, group=4, split=None, strict=True)
