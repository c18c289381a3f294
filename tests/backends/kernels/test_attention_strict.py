"""The CPU's strict attention: right by the oracle, and bit for bit the same for a query alone, in chunks and in any
batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("numba")

from tests.backends.kernels.attention import attend_reference
from tests.backends.kernels.trees import FORESTS, Case, make_tree
from tts.backends.kernels.attention_strict import attend
from tts.backends.kernels.host import Team
from tts.backends.kernels.plan import BLOCK, AttentionPlan

SHAPES = [(2, 2, 64), (1, 7, 128), (3, 1, 80), (2, 3, 16), (1, 6, 48)]
TEAM = Team(1)


def attended(case: Case, plan: AttentionPlan, queries: np.ndarray, team: Team = TEAM) -> np.ndarray:
    heads, rows, group, size = queries.shape
    out = np.full((rows, heads, group, size), np.nan, np.float32)
    keys = np.ascontiguousarray(case.keys.swapaxes(2, 3))  # [H, N, d, BLOCK]
    attend(plan, np.ascontiguousarray(queries), keys, np.ascontiguousarray(case.values), out, team)
    return out


def part(case: Case, chosen: Sequence[int], *, trimmed: bool = False) -> tuple[AttentionPlan, np.ndarray]:
    """Return the plan of some queries alone; trimmed: with no key behind the last of them, as a decoding step has
    it.
    """
    plan, chosen = case.plan, np.sort(np.array(chosen, np.int64))
    items, blocks = [], []
    for first, behind, begin, end in plan.items.tolist():
        low, high = np.searchsorted(chosen, [begin, end]).tolist()
        held = plan.blocks[first:behind].copy()
        if trimmed and low < high:
            held[:, 2] = np.minimum(held[:, 2], plan.positions[chosen[high - 1]] + 1 - held[:, 1])
            held = held[held[:, 2] > 0]
        if low < high and len(held):
            items.append((len(blocks), len(blocks) + len(held), low, high))
            blocks += held.tolist()
    return AttentionPlan(plan.positions[chosen], np.array(items, np.int64), np.array(blocks, np.int64)), case.queries[
        :, chosen
    ]


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORESTS)
def test_it_is_the_oracle_on_every_tree(name: str, shape: tuple[int, int, int]) -> None:
    heads, group, size = shape
    case = make_tree(FORESTS[name], heads=heads, group=group, size=size, seed=3)
    out = attended(case, case.plan, case.queries)
    wanted, _ = attend_reference(case.plan, case.queries, case.keys, case.values)
    assert np.abs(out - wanted).max() < 2e-6


@pytest.mark.parametrize("scale", [1e-3, 20.0, 80.0])
def test_scores_may_be_tiny_or_huge(scale: float) -> None:
    case = make_tree(FORESTS["mixture"], seed=5, scale=scale)
    out = attended(case, case.plan, case.queries)
    wanted, _ = attend_reference(case.plan, case.queries, case.keys, case.values)
    assert np.abs(out - wanted).max() < 2e-6 * max(1.0, scale)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORESTS)
def test_a_query_has_the_same_bits_alone_in_chunks_and_in_any_batch(name: str, shape: tuple[int, int, int]) -> None:
    heads, group, size = shape
    case = make_tree(FORESTS[name], heads=heads, group=group, size=size, seed=4)
    whole = attended(case, case.plan, case.queries)
    count = len(case.plan.positions)
    draw = np.random.Generator(np.random.Philox(key=count))
    batches = [[query] for query in range(count)]
    batches += [list(range(start, min(start + 7, count))) for start in range(0, count, 7)]
    batches += [np.flatnonzero(draw.random(count) < 0.5).tolist() or [0] for _ in range(4)]
    for chosen in batches:
        for trimmed in (False, True):
            plan, queries = part(case, chosen, trimmed=trimmed)
            assert np.array_equal(attended(case, plan, queries), whole[chosen]), (chosen, trimmed)


@pytest.mark.parametrize("name", ["mixture", "prefill", "chain", "one tree with all"])
def test_threads_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = Team.cuts
    monkeypatch.setattr(Team, "cuts", lambda team, rows, work, worth=0: cuts(team, rows, work, worth=0))
    case = make_tree(FORESTS[name], heads=3, group=3, size=48, seed=6)
    whole = attended(case, case.plan, case.queries)
    for threads in (2, 3, 5):
        team = Team(threads)
        assert len(team.cuts(9, 1)) == threads
        assert np.array_equal(attended(case, case.plan, case.queries, team), whole)
        team.close()


def test_what_lies_in_a_block_behind_its_keys_is_not_even_multiplied_by_nothing() -> None:
    case = make_tree(FORESTS["ragged"], seed=7)
    whole = attended(case, case.plan, case.queries)
    held = np.zeros((case.keys.shape[1], BLOCK), bool)
    held[case.plan.blocks[:, 0]] = np.arange(BLOCK) < case.plan.blocks[:, 2:]
    for garbage in (np.nan, np.inf):
        keys, values = case.keys.copy(), case.values.copy()
        keys[:, ~held], values[:, ~held] = garbage, garbage
        dirty = case._replace(keys=keys, values=values)
        assert np.array_equal(attended(dirty, case.plan, case.queries), whole)


@pytest.mark.parametrize("name", ["prefill", "chunk", "one tree with all"])
def test_later_tokens_of_a_chunk_weigh_nothing_however_large_they_are(name: str) -> None:
    case = make_tree(FORESTS[name], seed=8)
    whole = attended(case, case.plan, case.queries)
    for position in np.unique(case.plan.positions)[1:].tolist():
        values = case.values.copy()
        for number, first, count in case.plan.blocks.tolist():
            values[:, number, max(0, position - first) : count] = 1e37
        found = attended(case._replace(values=values), case.plan, case.queries)
        earlier = case.plan.positions < position
        assert np.array_equal(found[earlier], whole[earlier])
        assert not np.array_equal(found[~earlier], whole[~earlier])


def test_head_sizes_that_are_no_multiple_of_16_are_refused() -> None:
    case = make_tree(FORESTS["chain"], size=40)
    with pytest.raises(ValueError, match=r"40,.*multiple.*16"):
        attended(case, case.plan, case.queries)
