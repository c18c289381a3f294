from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import Clock
from tts.budget.budget import USD_UNIT, Budget
from tts.budget.ledger import Call, Ledger, sum_usage
from tts.budget.meter import Exhausted, Grant, Meter, Rates, RowCost
from tts.errors import BudgetExceeded, ConfigError, shown
from tts.types import Usage

COUNTS = ("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples")
AMOUNTS = ("flops", "seconds", "usd")


def meter(clock: Clock | None = None, **limits: float) -> Meter:
    return Meter(Budget(**limits), clock or Clock())  # type: ignore[arg-type]


def rows(of: Meter, count: int = 8, *, cost: RowCost | None = None, cap: int = 1000, typical: int = 20, **more: Any) -> Grant:
    return of.rows(cost or RowCost(), [1] * count, cap=cap, typical=typical, **more)


# Budget ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", COUNTS)
@pytest.mark.parametrize(
    ("value", "nearest"), [(0, 1), (-7, 1), (3.5, 4), (0.2, 1), (math.nan, 1), (math.inf, 1), (-math.inf, 1), (10.25, 10)]
)
def test_a_count_that_is_not_whole_and_positive_is_refused_with_the_nearest_that_is(unit: str, value: float, nearest: int) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget(**{unit: value})
    assert caught.value.cause == f"budget {unit} is {value!r}, but must be a whole number of at least 1"
    assert caught.value.hint == f"the nearest valid value is {nearest}"
    assert Budget(**{unit: nearest}).limits == {unit: nearest}


@pytest.mark.parametrize("unit", AMOUNTS)
@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, math.inf, 10**400])
def test_an_amount_that_is_not_finite_and_positive_is_refused(unit: str, value: float) -> None:
    rule = {"flops": "of at least 1", "seconds": "above 0", "usd": "of at least 1e-15"}[unit]
    with pytest.raises(
        ConfigError, match=rf"budget {unit} is {re.escape(shown(value))}, but must be a finite number {rule} .*Budget\({unit}=1\)"
    ):
        Budget(**{unit: value})


@pytest.mark.parametrize(("unit", "value"), [("flops", 0.5), ("usd", 1e-20)])
def test_an_amount_below_what_is_counted_is_refused(unit: str, value: float) -> None:
    with pytest.raises(ConfigError, match="of at least"):
        Budget(**{unit: value})


def test_a_count_beyond_every_float_is_a_count() -> None:
    assert Budget(tokens=10**400).tokens == 10**400


@pytest.mark.parametrize("unit", [*COUNTS, *AMOUNTS])
@pytest.mark.parametrize("value", [True, False, np.True_, np.bool_(False), "100", [1], object()])
def test_what_is_no_number_is_refused(unit: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"budget {unit} is .* but must be a number"):
        Budget(**{unit: value})


def test_a_budget_without_a_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no limit, but needs at least one .*Budget\(tokens=4096\)"):
        Budget()


@pytest.mark.parametrize("value", [5, 5.0, np.int64(5), np.float32(5), Decimal(5)])
def test_whole_numbers_of_any_type_are_taken_as_integers(value: Any) -> None:
    assert Budget(samples=value).samples == 5
    assert type(Budget(samples=value).samples) is int


def test_a_bare_number_is_a_limit_on_tokens_and_a_budget_is_itself() -> None:
    given_budget = Budget(samples=3, usd=0.5)
    assert Budget.of(4096) == Budget(tokens=4096)
    assert Budget.of(given_budget) is given_budget
    assert str(given_budget) == "samples=3, usd=0.5"


# Meter: rows ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "wanted", "typical", "cap", "caps"),
    [
        (100, 8, 20, 1000, [20] * 5),  # r = floor(left / t), the rest is shared
        (109, 8, 20, 1000, [21] * 5),
        (100, 3, 20, 1000, [33] * 3),  # r = m
        (100, 3, 20, 30, [30] * 3),  # never above the cap
        (15, 8, 20, 1000, [15]),  # one row starts where not one typical row is affordable
        (1, 8, 20, 1000, [1]),
        (100, 8, 20, 5, [5] * 8),  # t = min(cap, typical)
        (39, 8, 20, 1000, [39]),
    ],
)
def test_the_wave_rule(left: int, wanted: int, typical: int, cap: int, caps: list[int]) -> None:
    one = meter(tokens=left)
    grant = rows(one, wanted, typical=typical, cap=cap)
    assert grant.caps == caps
    assert one.held == {"tokens": sum(caps)}
    assert one.left("tokens") == left - sum(caps)


def test_the_wave_rule_counts_the_verifiers_bound() -> None:
    cost = RowCost(verifier_tokens=lambda new: new + 2, verifier_calls=1)
    one = meter(tokens=100, verifier_tokens=60, verifier_calls=10)
    grant = rows(one, 8, cost=cost, typical=20)
    # tokens pay 100 // (20 + 22) = 2 rows of 24 + 26 each; verifier_tokens pay 60 // 22 = 2 rows of 28 new tokens
    assert grant.caps == [24, 24]
    assert one.held == {"tokens": 2 * 50, "verifier_tokens": 2 * 26, "verifier_calls": 2}
    assert rows(meter(verifier_calls=3), 8, cost=cost).caps == [1000] * 3


def test_samples_bound_the_rows_and_a_first_child_costs_none() -> None:
    assert rows(meter(samples=3), 8).caps == [1000] * 3
    one = meter(samples=1)
    assert len(one.rows(RowCost(), [1, 0, 0, 1, 0], cap=9, typical=3).caps) == 3
    assert one.rows(RowCost(), [0, 0], cap=9, typical=3).caps == [9, 9]
    with pytest.raises(Exhausted) as end:
        rows(one)
    assert end.value.unit == "samples"


def test_flops_and_dollars_bound_the_rows() -> None:
    cost = RowCost(Rates(flops=2, usd_in=10, usd_out=30), computed=5)
    assert rows(meter(flops=2 * (5 + 20) * 3), 8, cost=cost).caps == [20] * 3
    one = meter(usd=3 * (20 * 30 + 5 * 10) / USD_UNIT)
    assert rows(one, 8, cost=cost).caps == [20] * 3
    assert one.left("usd") == 0


def test_what_is_held_beside_a_call_stays_payable() -> None:
    one = meter(tokens=100)
    assert rows(one, 8, hold=40).caps == [20] * 3
    assert one.left("tokens") >= 40
    with pytest.raises(Exhausted):
        rows(meter(tokens=40), 8, hold=40)


def test_a_whole_row_has_all_that_is_left() -> None:
    assert rows(meter(tokens=100), 1, whole=True).caps == [100]
    assert rows(meter(tokens=100), 1, cap=30, whole=True).caps == [30]


def test_rows_that_are_payable_are_counted_in_the_scarcest_unit() -> None:
    cost = RowCost(Rates(flops=2), verifier_tokens=lambda new: new)
    one = meter(tokens=100, flops=90, samples=2)
    assert (one.payable(cost, 10), one.scarcest(cost, 10)) == (4, "flops")
    assert (one.payable(cost, 5), one.scarcest(cost, 50)) == (9, "flops")
    assert one.share(cost, 0.5, 1000) == 22
    assert meter(samples=2).payable(cost, 10) == float("inf")


def test_a_whole_row_comes_even_where_its_verification_cannot_be_paid() -> None:
    cost = RowCost(verifier_tokens=lambda new: new, verifier_calls=1)
    one = meter(tokens=30)
    assert rows(one, 1, cost=cost, cap=30, whole=True).caps == [30]
    assert one.held == {"tokens": 30}


def test_nothing_starts_when_nothing_is_left_and_the_limit_is_named() -> None:
    one = meter(tokens=10, generated_tokens=100)
    rows(one, 1)
    with pytest.raises(Exhausted) as end:
        rows(one)
    assert end.value.unit == "tokens"


# Meter: the books -----------------------------------------------------------------------------------------------------------------


def test_settling_frees_what_was_not_spent() -> None:
    one = meter(tokens=100, samples=4)
    grant = rows(one, 4)
    assert one.held == {"tokens": 100, "samples": 4}
    one.settle(grant, {"tokens": 37, "samples": 4, "flops": 10**9})
    assert one.spent == {"tokens": 37, "samples": 4}
    assert one.held == {"tokens": 0, "samples": 0}
    assert one.left("tokens") == 63
    one.settle(grant, {})  # a grant is settled once; again does nothing
    assert one.spent["tokens"] == 37


def test_settling_may_keep_a_part_until_it_is_released() -> None:
    one = meter(tokens=100)
    grant = one.amounts(tokens=60, verifier_calls=5)
    one.settle(grant, {"tokens": 20}, keep={"tokens": 15})
    assert (one.spent["tokens"], one.held["tokens"], one.left("tokens")) == (20, 15, 65)
    one.release({"tokens": 15})
    assert (one.held["tokens"], one.left("tokens")) == (0, 80)


def test_a_spend_above_its_grant_is_booked_and_raised() -> None:
    one = meter(tokens=100)
    grant = one.amounts(tokens=10)
    with pytest.raises(BudgetExceeded, match="a call spent 11 tokens where 10 were granted"):
        one.settle(grant, {"tokens": 11})
    assert (one.spent["tokens"], one.held["tokens"]) == (11, 0)


def test_amounts_are_granted_together_or_not_at_all() -> None:
    one = meter(tokens=10, verifier_tokens=5)
    with pytest.raises(Exhausted) as end:
        one.amounts(tokens=6, verifier_tokens=6, samples=99)
    assert end.value.unit == "verifier_tokens"
    assert one.held == {"tokens": 0, "verifier_tokens": 0}


def test_dollars_are_counted_without_rounding() -> None:
    one = meter(usd=1)
    third = USD_UNIT // 3
    for _ in range(3):
        one.settle(one.amounts(usd=third), {"usd": third})
    assert one.left("usd") == USD_UNIT - 3 * third == 1
    with pytest.raises(Exhausted):
        one.amounts(usd=2)
    assert one.remaining() == {"usd": 1 / USD_UNIT}
    tenth = meter(usd=0.1)
    for _ in range(10**3):
        tenth.settle(tenth.amounts(usd=USD_UNIT // 10**4), {"usd": USD_UNIT // 10**4})
    assert tenth.left("usd") == 0


def test_seconds_end_at_the_limit_and_count_from_where_they_are_told() -> None:
    clock = Clock(now=100.0)
    one = Meter(Budget(seconds=5), clock, started=97.0)
    assert one.deadline == 102.0
    one.check_time()
    assert one.remaining() == {"seconds": 2.0}
    clock.now = 102.0
    for attempt in (one.check_time, lambda: rows(one), lambda: one.amounts(tokens=0)):
        with pytest.raises(Exhausted) as end:
            attempt()
        assert end.value.unit == "seconds"
    clock.now = 200.0
    assert one.remaining() == {"seconds": 0.0}
    assert meter(tokens=1).deadline is None


@st.composite
def limits(draw: st.DrawFn) -> dict[str, float]:
    units = draw(st.sets(st.sampled_from([*COUNTS, "flops", "usd"]), min_size=1))
    sizes = {"flops": st.integers(1, 3000), "usd": st.integers(1, 10**5).map(lambda n: n / USD_UNIT)}
    return {unit: draw(sizes.get(unit, st.integers(1, 400))) for unit in sorted(units)}


@st.composite
def costs(draw: st.DrawFn) -> RowCost:
    slope, base = draw(st.integers(0, 3)), draw(st.integers(0, 9))
    rate = st.integers(0, 50)
    rates = Rates(draw(rate), draw(rate), draw(st.none() | rate), draw(rate))
    calls, computed, reused = draw(st.integers(0, 2)), draw(st.integers(0, 9)), draw(st.integers(0, 9))
    return RowCost(
        rates, computed, reused, lambda new: slope * new + base, calls, lambda unit, new: rates.cost(unit, computed=slope * new + base)
    )


@given(data=st.data(), of=limits())
@settings(deadline=None)
def test_no_sequence_of_grants_lets_spent_and_held_pass_a_limit(data: st.DataObject, of: dict[str, float]) -> None:
    one = meter(**of)
    open_grants: list[Grant] = []
    kept: list[dict[str, int]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["rows", "amounts", "settle", "release"]))
        try:
            if action == "rows":
                samples = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
                cap, typical, hold = (data.draw(st.integers(least, 60)) for least in (1, 1, 0))
                whole = data.draw(st.booleans())
                samples = samples[:1] if whole else samples
                grant = one.rows(data.draw(costs()), samples, cap=cap, typical=typical, hold=hold, whole=whole)
                assert 1 <= len(grant.caps) <= len(samples)
                assert all(1 <= k <= cap for k in grant.caps)
                open_grants.append(grant)
            elif action == "amounts":
                open_grants.append(one.amounts(**{unit: data.draw(st.integers(0, 50)) for unit in one.limits}))
            elif action == "settle" and open_grants:
                grant = open_grants.pop(data.draw(st.integers(0, len(open_grants) - 1)))
                spent = {unit: data.draw(st.integers(0, held)) for unit, held in grant.held.items()}
                kept.append({unit: data.draw(st.integers(0, held - spent[unit])) for unit, held in grant.held.items()})
                one.settle(grant, spent, keep=kept[-1])
            elif kept:
                one.release(kept.pop())
        except Exhausted as end:
            assert end.unit in of  # noqa: PT017 - it need not be raised
        for unit, limit in one.limits.items():
            assert one.spent[unit] >= 0
            assert one.held[unit] >= 0
            assert one.spent[unit] + one.held[unit] <= limit


# Ledger ---------------------------------------------------------------------------------------------------------------------------


def test_the_ledgers_total_sums_counts_takes_peaks_and_does_not_know_what_one_call_does_not() -> None:
    ledger = Ledger()
    assert ledger.total() == Usage()
    ledger.add(Call("expand", "policy", 2, 64, Usage(generated_tokens=20, cancelled_tokens=3, samples=2, flops=46, peak_kv_tokens=9)))
    ledger.add(Call("score", "main", 2, 0, Usage(verifier_tokens=20, verifier_calls=2, usd=None, peak_kv_tokens=4, estimated=True)))
    total = ledger.total()
    assert (total.tokens, total.samples, total.verifier_calls, total.flops) == (43, 2, 2, 46)
    assert (total.usd, total.peak_kv_tokens, total.estimated) == (None, 9, True)
    assert sum_usage([Usage(kv_bytes_per_token=None), Usage(kv_bytes_per_token=4)]).kv_bytes_per_token == 4
