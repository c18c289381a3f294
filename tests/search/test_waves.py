"""Waves: how many rows begin and how far they are written, as a pure function of what is left."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.budget.account import Exhausted
from tts.budget.budget import Rates, RowCost
from tts.search.waves import (
    Goal,
    Wave,
    WaveRequest,
    limit_to_share,
    payable_rows,
    payable_tokens,
    plan_rows,
    scarcest_unit,
)

COUNTS = ("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples")


def towards(goal: Goal = Goal.STEP, count: int = 8, **more: Any) -> WaveRequest:
    """Return a request of steps of 20 tokens, after which a solution needs no more."""
    given: dict[str, Any] = {"branches": [1] * count, "cost": RowCost(), "cap": 1000, "needed": 20, "step": 20}
    return WaveRequest(goal=goal, **given | more)


def caps(wave: Wave) -> list[int]:
    return [wave.cap] * wave.rows


# What a wave is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "wanted", "typical", "cap", "expected"),
    [
        (100, 8, 20, 1000, [20] * 5),  # r = floor(left / t), the rest is shared
        (109, 8, 20, 1000, [21] * 5),
        (100, 3, 20, 1000, [33] * 3),  # r = m
        (100, 3, 20, 30, [30] * 3),  # never above the cap
        (15, 8, 20, 1000, [15]),  # one row begins where not one typical row is affordable
        (1, 8, 20, 1000, [1]),
        (100, 8, 20, 5, [5] * 8),  # t = min(cap, typical)
        (39, 8, 20, 1000, [39]),
    ],
)
def test_rows_of_typical_length_share_what_is_left(
    left: int, wanted: int, typical: int, cap: int, expected: list[int]
) -> None:
    wave = plan_rows(towards(count=wanted, cap=cap, goes_on=True, needed=typical), {"tokens": left})
    assert caps(wave) == expected
    assert wave.reserve == {"tokens": sum(expected)}


def test_a_verifiers_bound_is_reserved_with_the_rows() -> None:
    cost = RowCost(verifier_tokens=lambda new: new + 2, verifier_calls=1)
    wave = plan_rows(towards(cost=cost), {"tokens": 100, "verifier_tokens": 60, "verifier_calls": 10})
    # tokens pay 100 // (20 + 22) = 2 rows of 24 + 26 each; verifier_tokens pay 60 // 22 = 2 rows of 28 new tokens
    assert caps(wave) == [24, 24]
    assert wave.reserve == {"tokens": 2 * 50, "verifier_tokens": 2 * 26, "verifier_calls": 2}
    assert caps(plan_rows(towards(cost=cost), {"verifier_calls": 3})) == [1000] * 3


def test_samples_bound_the_rows_and_a_first_child_costs_none() -> None:
    assert plan_rows(towards(), {"samples": 3}).rows == 3
    wave = plan_rows(towards(branches=[1, 0, 0, 1, 0]), {"samples": 1})
    assert (wave.rows, wave.reserve) == (3, {"samples": 1})
    assert plan_rows(towards(branches=[0, 0]), {"samples": 0}).rows == 2
    with pytest.raises(Exhausted) as end:
        plan_rows(towards(), {"samples": 0})
    assert end.value.unit == "samples"


def test_flops_and_dollars_bound_the_rows() -> None:
    cost = RowCost(Rates(flops=2, usd_in=10, usd_out=30), computed=5)
    assert caps(plan_rows(towards(cost=cost), {"flops": 2 * (5 + 20) * 3})) == [20] * 3
    assert caps(plan_rows(towards(cost=cost), {"usd": 3 * (20 * 30 + 5 * 10)})) == [20] * 3


def test_what_must_stay_unspent_is_not_reserved() -> None:
    wave = plan_rows(towards(held=40), {"tokens": 100})
    assert caps(wave) == [20] * 3
    with pytest.raises(Exhausted):
        plan_rows(towards(held=40), {"tokens": 40})


def test_the_first_row_of_a_search_has_all_that_is_left() -> None:
    first = towards(Goal.SOLUTION, needed=50)
    assert caps(plan_rows(first, {"tokens": 100})) == [100]
    assert caps(plan_rows(dataclasses.replace(first, cap=30), {"tokens": 29})) == [29]


def test_a_first_row_begins_even_where_its_score_cannot_be_paid() -> None:
    cost = RowCost(verifier_tokens=lambda new: new, verifier_calls=1)
    wave = plan_rows(towards(Goal.SOLUTION, cost=cost, cap=30), {"tokens": 30})
    assert (caps(wave), wave.reserve) == ([30], {"tokens": 30})


def test_rows_that_can_be_paid_however_long_begin_at_once() -> None:
    assert caps(plan_rows(towards(Goal.SOLUTION, cap=10), {"tokens": 80})) == [10] * 8
    assert caps(plan_rows(towards(Goal.SOLUTION, cap=10), {"tokens": 45})) == [11 - 1] * 4


def test_once_lengths_are_known_at_most_twice_the_rows_begin() -> None:
    known = towards(Goal.SOLUTION, needed=10, begun=2, is_completed=True, wanted=8, longest=12)
    wave = plan_rows(known, {"tokens": 1000 - 1})
    assert wave.rows == 4
    assert wave.limit == max(4 * 10, (1000 - 1) // 2)
    assert plan_rows(dataclasses.replace(known, wanted=4), {"tokens": 999}).limit is None
    with pytest.raises(Exhausted) as end:
        plan_rows(known, {"tokens": 9})
    assert end.value.unit == "tokens"


def test_rows_that_cannot_be_continued_are_granted_whole() -> None:
    known = towards(Goal.SOLUTION, needed=10, begun=50, is_completed=True, longest=30, resumes=False)
    assert caps(plan_rows(known, {"tokens": 300})) == [60] * 5
    assert caps(plan_rows(known, {"tokens": 25})) == [12] * 2  # what is left where that cannot be paid


def test_programs_share_what_is_left_with_those_that_begin_later() -> None:
    dear = {"cap": 10**6, "cost": RowCost(Rates(flops=3, usd_in=2, usd_out=5)), "programs": 2}
    wave = plan_rows(towards(Goal.SOLUTION, wanted=8, **dear), {"usd": 800, "tokens": 83, "samples": 9})
    assert (wave.rows, wave.cap, wave.lease) == (2, 10, {"usd": 100})
    assert wave.reserve == {"usd": 200, "tokens": 20, "samples": 2}
    assert plan_rows(towards(Goal.SOLUTION, wanted=8, **dear), {"usd": 800, "samples": 4}).lease == {"usd": 200}
    open_ended = plan_rows(towards(Goal.SOLUTION, **dear), {"usd": 800})
    assert (open_ended.rows, open_ended.lease) == (2, {"usd": 400})
    assert plan_rows(towards(Goal.SOLUTION, spent={"usd": 500}, **dear), {"usd": 800}).lease == {"usd": 800}
    with pytest.raises(Exhausted, match="usd"):
        plan_rows(towards(Goal.SOLUTION, spent={"usd": 801}, **dear), {"usd": 800})
    assert plan_rows(towards(Goal.SOLUTION, wanted=8, **dear), {"samples": 9}).rows == 8  # nothing is shared
    going_on = plan_rows(towards(Goal.SOLUTION, count=1, wanted=3, goes_on=True, **dear), {"usd": 800})
    assert (going_on.rows, going_on.lease) == (1, {"usd": 200})


def test_at_most_half_of_a_programs_part_is_kept_for_its_score() -> None:
    judged = RowCost(
        Rates(usd_in=2, usd_out=5), verifier_calls=1, verifier_cost=lambda unit, new: 3 * new if unit == "usd" else 0
    )
    wave = plan_rows(
        towards(Goal.SOLUTION, count=2, cost=judged, cap=10**6, wanted=2, programs=4),
        {"usd": 1200, "verifier_calls": 5},
    )
    assert (wave.rows, wave.cap, wave.lease) == (2, 100, {"usd": 300})
    assert wave.reserve == {"usd": 1200, "verifier_calls": 4}


def test_nothing_begins_where_nothing_is_left_and_the_limit_is_named() -> None:
    with pytest.raises(Exhausted) as end:
        plan_rows(towards(), {"tokens": 0, "generated_tokens": 100})
    assert end.value.unit == "tokens"


def test_rows_that_are_payable_are_counted_in_the_scarcest_unit() -> None:
    cost = RowCost(Rates(flops=2), verifier_tokens=lambda new: new)
    left = {"tokens": 100, "flops": 90, "samples": 2}
    assert (payable_rows(cost, 10, left), scarcest_unit(cost, 10, left)) == (4, "flops")
    assert (payable_rows(cost, 5, left), scarcest_unit(cost, 50, left)) == (9, "flops")
    assert payable_tokens(cost, 0.5, 1000, left) == 22
    assert payable_rows(cost, 10, {"samples": 2}) == math.inf


# Laws -----------------------------------------------------------------------------------------------------------------


@st.composite
def limits(draw: st.DrawFn) -> dict[str, int]:
    units = draw(st.sets(st.sampled_from([*COUNTS, "flops", "usd"]), min_size=1))
    sizes = {"flops": st.integers(0, 3000), "usd": st.integers(0, 10**5)}
    return {unit: draw(sizes.get(unit, st.integers(0, 400))) for unit in sorted(units)}


@st.composite
def costs(draw: st.DrawFn) -> RowCost:
    slope, base = draw(st.integers(0, 3)), draw(st.integers(0, 9))
    rate = st.integers(0, 50)
    rates = Rates(draw(rate), draw(rate), draw(st.none() | rate), draw(rate))
    calls, computed, reused = draw(st.integers(0, 2)), draw(st.integers(0, 9)), draw(st.integers(0, 9))
    return RowCost(
        rates,
        computed,
        reused,
        lambda new: slope * new + base,
        calls,
        lambda unit, new: rates.cost(unit, computed=slope * new + base),
    )


@st.composite
def requests(draw: st.DrawFn) -> WaveRequest:
    whole = st.integers(1, 60)
    rows = draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
    goes_on = draw(st.booleans())
    return WaveRequest(
        goal=draw(st.sampled_from(Goal)),
        branches=[0] * len(rows) if goes_on else rows,
        cost=draw(costs()),
        cap=draw(whole),
        goes_on=goes_on,
        wanted=draw(st.integers(len(rows), 20) | st.just(math.inf)),
        needed=draw(whole),
        step=draw(whole),
        longest=draw(st.integers(0, 60)),
        begun=draw(st.integers(0, 9)),
        is_completed=draw(st.booleans()),
        resumes=draw(st.booleans()),
        held=draw(st.integers(0, 60)),
        portion=draw(st.integers(1, 60) | st.just(1 << 20)),
    )


def planned(request: WaveRequest, left: dict[str, int]) -> Wave | None:
    try:
        return plan_rows(request, left)
    except Exhausted as end:
        assert end.unit in left  # noqa: PT017 - it need not be raised
        return None


@given(request=requests(), left=limits())
@settings(deadline=None)
def test_a_wave_reserves_no_more_than_is_left_in_any_unit(request: WaveRequest, left: dict[str, int]) -> None:
    wave = planned(request, left)
    if wave is None:
        return
    assert 1 <= wave.rows <= len(request.branches)
    assert 1 <= wave.cap <= min(request.cap, request.portion)
    held = {unit: request.cost.bare().bound(unit, request.held) if request.held else 0 for unit in left}
    for unit, amount in wave.reserve.items():
        assert 0 <= amount <= left[unit] - held[unit]
        assert amount >= wave.rows * request.cost.generation(unit, wave.cap)


@given(request=requests(), left=limits(), programs=st.integers(1, 5))
@settings(deadline=None)
def test_leases_of_programs_and_their_scores_are_reserved(
    request: WaveRequest, left: dict[str, int], programs: int
) -> None:
    request = dataclasses.replace(request, programs=programs)
    wave = planned(request, left)
    if wave is None:
        return
    shares = not left.keys().isdisjoint({"tokens", "generated_tokens", "flops", "usd"})
    assert 1 <= wave.rows <= min(programs if shares else math.inf, len(request.branches))
    assert 1 <= wave.cap <= request.cap
    assert wave.lease.keys() == left.keys() & {"flops", "usd"}
    for unit, amount in wave.reserve.items():
        assert 0 <= amount <= left[unit]
        needed = wave.lease.get(unit, request.cost.generation(unit, wave.cap)) + request.cost.reserve(unit, wave.cap)
        assert unit == "samples" or amount >= wave.rows * needed


@given(request=requests(), left=limits(), more=limits())
@settings(deadline=None)
def test_where_more_is_left_a_wave_is_not_refused(
    request: WaveRequest, left: dict[str, int], more: dict[str, int]
) -> None:
    richer = {unit: amount + more.get(unit, 0) for unit, amount in left.items()}
    if planned(request, left) is not None:
        assert planned(request, richer) is not None


@given(request=requests(), left=limits(), more=limits())
@settings(deadline=None)
def test_where_more_is_left_no_fewer_tokens_are_granted_to_open_rows(
    request: WaveRequest, left: dict[str, int], more: dict[str, int]
) -> None:
    request = dataclasses.replace(request, goes_on=True, branches=[0] * len(request.branches), held=0)
    richer = {unit: amount + more.get(unit, 0) for unit, amount in left.items()}
    poor, rich = planned(request, left), planned(request, richer)
    if poor is not None and rich is not None:
        assert rich.rows >= poor.rows


@given(request=requests(), left=limits())
@settings(deadline=None)
def test_an_answer_comes_wherever_one_plain_sample_would_give_one(request: WaveRequest, left: dict[str, int]) -> None:
    """The first row of a search gets what a single sample would get, its score left out where that cannot be paid."""
    first = dataclasses.replace(
        request,
        goal=Goal.SOLUTION,
        branches=[1] * len(request.branches),
        goes_on=False,
        begun=0,
        is_completed=False,
        held=0,
    )
    single = planned(dataclasses.replace(first, branches=[1], cost=request.cost.bare()), left)
    wave = planned(first, left)
    assert (wave is None) == (single is None)
    if wave is not None and single is not None and wave.rows == 1:
        assert wave.cap == single.cap


@given(request=requests(), left=limits(), k=st.integers(1, 12))
@settings(deadline=None)
def test_the_first_k_rows_of_a_wave_are_those_of_a_smaller_request(
    request: WaveRequest, left: dict[str, int], k: int
) -> None:
    """The rows of a wave are the first ones in draw order: a smaller request begins no more and no others."""
    fewer = dataclasses.replace(request, branches=request.branches[:k])
    many, few = planned(request, left), planned(fewer, left)
    if many is not None:
        assert few is not None
        assert few.rows >= min(k, many.rows) or request.goal is Goal.SOLUTION
        assert few.rows <= k


# Shared limits --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 60), st.integers(0, 60), st.integers(1, 3))
def test_a_share_is_never_above_what_is_left_and_pays_a_row_wherever_that_does(
    left: int, share: int, needed: int, held: int, price: int
) -> None:
    cost = RowCost(rates=Rates(flops=price), verifier_tokens=lambda new: new)
    amounts = {"tokens": left, "flops": left, "samples": left}
    shared = limit_to_share(cost, needed, held, amounts, {"tokens": share, "samples": share})
    assert shared["flops"] == left  # no other search shares it
    for unit in ("tokens", "samples"):
        assert min(left, share) <= shared[unit] <= left
        assert shared[unit] >= min(left, cost.bound(unit, held + needed), 1 if unit == "samples" else left)
    assert (shared["samples"] >= 1) == (left >= 1)
