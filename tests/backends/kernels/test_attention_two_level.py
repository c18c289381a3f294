"""The torch executor against the float64 oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.backends.kernels.trees import FORESTS, Case, blind_case, branching, chain, forest, make_plan, make_tree, ragged, star  # noqa: E402
from tts.backends.kernels import attention_two_level  # noqa: E402
from tts.backends.kernels.attention import attend_reference  # noqa: E402
from tts.backends.kernels.attention_two_level import attend, lower  # noqa: E402
from tts.backends.kernels.plan import BLOCK, AttentionPlan  # noqa: E402


def attended(case: Case, dtype: Any = torch.float32) -> tuple[np.ndarray, np.ndarray]:
    """Return what the executor and the oracle make of the same rounded inputs."""
    queries, keys, values = (torch.from_numpy(array).to(dtype) for array in case[1:])
    out = torch.full((queries.shape[1], queries.shape[0], *queries.shape[2:]), torch.nan, dtype=dtype)
    attend(case.plan, queries, keys, values, out)
    want, _ = attend_reference(case.plan, queries.double(), keys.double(), values.double())
    return out.double().numpy(), want


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("worth", [0, 256, 1 << 40], ids=["all trunks", "as it is", "all tails"])
@pytest.mark.parametrize(("group", "size"), [(1, 64), (2, 128), (3, 64), (4, 128), (6, 64), (7, 128)])
def test_it_equals_the_oracle(name: str, worth: int, group: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_two_level, "_WORTH", worth)
    out, want = attended(make_tree(FORESTS[name], group=group, size=size, seed=group))
    assert np.abs(out - want).max() < 2e-6


@pytest.mark.parametrize("seed", range(20))
def test_it_equals_the_oracle_on_random_forests(seed: int) -> None:
    out, want = attended(make_tree(forest(ragged(seed, 15), ragged(seed + 100, 6)), seed=seed))
    assert np.abs(out - want).max() < 2e-6


@pytest.mark.parametrize("name", ["mixture", "ragged"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
def test_other_types_round_only_their_result(name: str, dtype: Any, tolerance: float) -> None:
    out, want = attended(make_tree(FORESTS[name], group=3), dtype)
    assert (np.abs(out - want) / np.maximum(1, np.abs(want))).max() < tolerance


@pytest.mark.parametrize("name", FORESTS)
def test_the_way_of_other_devices_equals_the_oracle_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_two_level, "_CPU", "none")
    out, want = attended(make_tree(FORESTS[name], group=3))
    assert np.abs(out - want).max() < 2e-6


@pytest.mark.parametrize("worth", [0, 1 << 40])
def test_scores_of_eighty_do_not_overflow(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_two_level, "_WORTH", worth)
    case = make_tree(star(40, [1, 17, 33]), scale=25.0)  # scores to about 80 either way
    scores = np.einsum("htgd,hnbd->htgnb", case.queries, case.keys[:, case.plan.blocks[:, 0]])
    assert scores.max() > 80
    assert scores.min() < -80
    out, want = attended(case)
    # the scores themselves carry float32's rounding: 80 times 6e-8, and a few times that for their sums
    assert np.abs(out - want).max() < 2e-5


def test_a_long_prefix_stays_out_of_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_two_level, "_MASK_CELLS", 2000)
    case = make_tree(chain([400], queries=60), group=2)
    tables = lower(case.plan, group=2)
    assert tables.trunks[0].mask is None
    assert len(tables.trunks[0].numbers) == 341
    masks = [trunk.mask for trunk in tables.trunks[1:]]
    assert len(masks) > 2
    assert all(mask is not None and mask.numel() <= 2000 for mask in masks)
    out, want = attended(case)
    assert np.abs(out - want).max() < 2e-6


@pytest.mark.parametrize("device", ["cpu", "none"])
def test_a_query_that_sees_nothing_of_a_trunk_gives_it_no_weight(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item may name queries that stand before its keys; torch's kernel would report a log-sum-exp of 0 for them."""
    monkeypatch.setattr(attention_two_level, "_WORTH", 0)
    monkeypatch.setattr(attention_two_level, "_CPU", device)
    case = make_tree([(-1, 20, 0), (0, 40, 40), (0, 9, 1)])
    positions = case.plan.positions.copy()
    positions[:5] = 4  # in the root: they see five keys of it, and none of their node
    case = case._replace(plan=case.plan._replace(positions=positions))
    assert any(trunk.blind is not None for trunk in lower(case.plan, group=2).trunks)
    out, want = attended(case)
    assert np.abs(out - want).max() < 2e-6


@pytest.mark.parametrize("worth", [0, 1 << 40])
def test_a_query_that_sees_nothing_at_all_gets_zeros(worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_two_level, "_WORTH", worth)
    out, want = attended(blind_case())
    assert (out[0] == 0).all()
    assert np.abs(out - want).max() < 2e-6


def test_a_query_that_no_item_names_gets_zeros() -> None:
    plan = AttentionPlan(np.array([0, 0]), np.array([[0, 1, 0, 1]]), np.array([[0, 0, 1]]))
    ones = np.ones((1, 1, BLOCK, 8), np.float32)
    out, want = attended(Case(plan, np.ones((1, 2, 1, 8), np.float32), ones, ones))
    assert (out == want).all()


def test_tables_serve_every_layer_of_a_step() -> None:
    first, second = (make_tree(FORESTS["mixture"], seed=seed) for seed in (0, 0))
    layer = make_tree(FORESTS["mixture"], seed=0, scale=2.0)
    out = torch.empty(len(first.plan.positions), 2, 2, 64)
    tables = attend(first.plan, *map(torch.from_numpy, first[1:]), out)
    for case in (second, layer):
        attend(tables, *map(torch.from_numpy, case[1:]), out)
        assert np.abs(out.numpy() - attend_reference(*case)[0]).max() < 2e-6


def test_small_trunks_join_the_tails_and_chains_are_one_product() -> None:
    plan, _ = make_plan(branching([300, 10, 40], [4, 4]))
    tables = lower(plan, group=2)
    assert [len(trunk.numbers) for trunk in tables.trunks] == [300]
    plan, _ = make_plan([(-1, 100, 0), (0, 5, 0), (1, 200, 0), (2, 7, 1), (2, 9, 1)])
    assert [len(trunk.numbers) for trunk in lower(plan, group=2).trunks] == [305]


def test_no_product_is_without_keys() -> None:
    with pytest.raises(AssertionError, match="without keys"):
        attention_two_level._product(torch.ones(1, 1, 1, 8), torch.ones(1, 1, 0, 8), torch.ones(1, 1, 0, 8), None)
