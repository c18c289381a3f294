"""Waves: how many rows begin and how far they are written, as a pure function of what is left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.budget.account import Exhausted
from tts.budget.budget import Rates
from tts.budget.units import PRICED_UNITS, UNITS
from tts.search.plan_rows import SHARED_UNITS, Goal, Price, Scores, Wave, limit_to_share, plan_programs, plan_rows

NO_RATES = Rates()


@dataclasses.dataclass(frozen=True)
class Request:
    """What a call is planned for: steps of 20 tokens, after which a solution needs no more."""

    goal: Goal = Goal.STEP
    branches: Sequence[int] = (1,) * 8
    rates: Rates = NO_RATES
    computed: int = 0
    reused: int = 0
    scores: Scores | None = None
    programs: int = 0
    spent: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    known: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def price(self, units: Iterable[str] = UNITS) -> Price:
        return Price(units, self.rates, self.computed, self.reused, self.scores)

    def but(self, **known: Any) -> Request:
        fields = {name: known.pop(name) for name in [*known] if name in self.__dataclass_fields__}
        return dataclasses.replace(self, **fields, known={**self.known, **known})

    def __getattr__(self, name: str) -> Any:
        return {"cap": 1000, "needed": 20, "step": 20, **self.known}[name]

    def plan(self, left: Mapping[str, int]) -> Wave:
        known = {"cap": 1000, "needed": 20, "step": 20, **self.known}
        arguments = (self.price(left), {"samples": self.branches}, len(self.branches), left)
        if not self.programs:
            return plan_rows(*arguments, goal=self.goal, **known)
        known = {name: known[name] for name in ("cap", "goes_on", "wanted") if name in known}
        return plan_programs(
            *arguments, most=self.programs, spent=self.spent, **{"goes_on": False, "wanted": math.inf, **known}
        )


def towards(goal: Goal = Goal.STEP, count: int = 8, **more: Any) -> Request:
    """Return a request of some rows."""
    return Request(goal, (1,) * count).but(**more)


def scored(tokens: Callable[[int], int], calls: int = 1) -> Scores:
    """Return the bound of a score that costs tokens and calls."""
    return lambda unit, new: {"tokens": tokens(new), "verifier_tokens": tokens(new), "verifier_calls": calls}.get(
        unit, 0
    )


def caps(wave: Wave) -> list[int]:
    return [wave.grant] * wave.rows


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
    wave = towards(count=wanted, cap=cap, goes_on=True, needed=typical).plan({"tokens": left})
    assert caps(wave) == expected
    assert wave.reserve == {"tokens": sum(expected)}


def test_a_verifiers_bound_is_reserved_with_the_rows() -> None:
    scores = scored(lambda new: new + 2)
    wave = towards(scores=scores).plan({"tokens": 100, "verifier_tokens": 60, "verifier_calls": 10})
    # tokens pay 100 // (20 + 22) = 2 rows of 24 + 26 each; verifier_tokens pay 60 // 22 = 2 rows of 28 new tokens
    assert caps(wave) == [24, 24]
    assert wave.reserve == {"tokens": 2 * 50, "verifier_tokens": 2 * 26, "verifier_calls": 2}
    assert caps(towards(scores=scores).plan({"verifier_calls": 3})) == [1000] * 3


def test_samples_bound_the_rows_and_a_first_child_costs_none() -> None:
    assert towards().plan({"samples": 3}).rows == 3
    wave = towards(branches=[1, 0, 0, 1, 0]).plan({"samples": 1})
    assert (wave.rows, wave.reserve) == (3, {"samples": 1})
    assert towards(branches=[0, 0]).plan({"samples": 0}).rows == 2
    with pytest.raises(Exhausted) as end:
        towards().plan({"samples": 0})
    assert end.value.unit == "samples"


def test_what_rows_cost_by_their_place_leaves_room_for_scores_that_cost_the_same_unit() -> None:
    asked = towards(scores=lambda unit, new: {"samples": 2}.get(unit, 0))
    assert [asked.plan({"samples": left}).rows for left in (3, 5, 6, 7)] == [1, 1, 2, 2]
    assert asked.plan({"samples": 7}).reserve == {"samples": 2 * (1 + 2)}


def test_a_price_without_input_is_that_of_its_tokens() -> None:
    price = Price(["usd", "tokens"], Rates(usd_in=10, usd_reused=7, usd_out=30))
    assert (price.amounts(4), price.amounts(0)) == ({"usd": 4 * 30, "tokens": 4}, {"usd": 0, "tokens": 0})


def test_flops_and_dollars_bound_the_rows() -> None:
    dear = towards(rates=Rates(flops=2, usd_in=10, usd_out=30), computed=5)
    assert caps(dear.plan({"flops": 2 * (5 + 20) * 3})) == [20] * 3
    assert caps(dear.plan({"usd": 3 * (20 * 30 + 5 * 10)})) == [20] * 3


def test_what_must_stay_unspent_is_not_reserved() -> None:
    wave = towards(closing=40).plan({"tokens": 100})
    assert caps(wave) == [20] * 3
    with pytest.raises(Exhausted):
        towards(closing=40).plan({"tokens": 40})


def test_the_first_row_of_a_search_has_all_that_is_left() -> None:
    first = towards(Goal.SOLUTION, needed=50)
    assert caps(first.plan({"tokens": 100})) == [100]
    assert caps(first.but(cap=30).plan({"tokens": 29})) == [29]


def test_a_first_row_begins_even_where_its_score_cannot_be_paid() -> None:
    scores = scored(lambda new: new)
    wave = towards(Goal.SOLUTION, scores=scores, cap=30).plan({"tokens": 30})
    assert (caps(wave), wave.reserve) == ([30], {"tokens": 30})


def test_rows_that_can_be_paid_however_long_begin_at_once() -> None:
    assert caps(towards(Goal.SOLUTION, cap=10).plan({"tokens": 80})) == [10] * 8
    assert caps(towards(Goal.SOLUTION, cap=10).plan({"tokens": 45})) == [11 - 1] * 4


def test_once_lengths_are_known_at_most_twice_the_rows_begin() -> None:
    known = towards(Goal.SOLUTION, needed=10, begun=2, is_completed=True, wanted=8, longest=12)
    wave = known.plan({"tokens": 1000 - 1})
    assert wave.rows == 4
    assert wave.limit == max(4 * 10, (1000 - 1) // 2)
    assert known.but(wanted=4).plan({"tokens": 999}).limit is None
    with pytest.raises(Exhausted) as end:
        known.plan({"tokens": 9})
    assert end.value.unit == "tokens"


def test_where_the_budget_is_plenty_all_wanted_rows_begin_at_once() -> None:
    known = towards(Goal.SOLUTION, needed=10, begun=1, is_completed=True, wanted=8, longest=12)
    many = known.but(together=True)
    assert (known.plan({"tokens": 8 * 16 * 10}).rows, many.plan({"tokens": 8 * 16 * 10}).rows) == (2, 8)
    assert many.plan({"tokens": 8 * 16 * 10}).limit is None
    assert many.plan({"tokens": 8 * 16 * 10 - 1}).rows == 2
    assert many.but(wanted=9).plan({"tokens": 8 * 16 * 10}).rows == 2


def test_rows_that_cannot_be_continued_are_granted_whole() -> None:
    known = towards(Goal.SOLUTION, needed=10, begun=50, is_completed=True, longest=30, resumes=False)
    assert caps(known.plan({"tokens": 300})) == [60] * 5
    assert caps(known.plan({"tokens": 25})) == [12] * 2  # what is left where that cannot be paid
    # a short first row says little of the others, which share what is left
    few = towards(Goal.SOLUTION, count=3, needed=6, begun=1, is_completed=True, longest=6, resumes=False, wanted=3)
    assert caps(few.plan({"tokens": 1500})) == [500] * 3
    assert caps(few.but(wanted=10).plan({"tokens": 1500}))[0] == 150


def test_programs_share_what_is_left_with_those_that_begin_later() -> None:
    dear = {"cap": 10**6, "rates": Rates(flops=3, usd_in=2, usd_out=5), "programs": 2}
    wave = towards(Goal.SOLUTION, wanted=8, **dear).plan({"usd": 800, "tokens": 83, "samples": 9})
    assert (wave.rows, wave.grant, wave.lease) == (2, 10, {"usd": 100})
    assert wave.reserve == {"usd": 200, "tokens": 20, "samples": 2}
    assert towards(Goal.SOLUTION, wanted=8, **dear).plan({"usd": 800, "samples": 4}).lease == {"usd": 200}
    open_ended = towards(Goal.SOLUTION, **dear).plan({"usd": 800})
    assert (open_ended.rows, open_ended.lease) == (2, {"usd": 400})
    assert towards(Goal.SOLUTION, spent={"usd": 500}, **dear).plan({"usd": 800}).lease == {"usd": 800}
    with pytest.raises(Exhausted, match="usd"):
        towards(Goal.SOLUTION, spent={"usd": 801}, **dear).plan({"usd": 800})
    assert towards(Goal.SOLUTION, wanted=8, **dear).plan({"samples": 9}).rows == 8  # nothing is shared
    going_on = towards(Goal.SOLUTION, count=1, wanted=3, goes_on=True, **dear).plan({"usd": 800})
    assert (going_on.rows, going_on.lease) == (1, {"usd": 200})


def test_at_most_half_of_a_programs_part_is_kept_for_its_score() -> None:
    judged = towards(
        Goal.SOLUTION,
        count=2,
        rates=Rates(usd_in=2, usd_out=5),
        scores=lambda unit, new: {"usd": 3 * new, "verifier_calls": 1}.get(unit, 0),
        cap=10**6,
        wanted=2,
        programs=4,
    )
    wave = judged.plan({"usd": 1200, "verifier_calls": 5})
    assert (wave.rows, wave.grant, wave.lease) == (2, 100, {"usd": 300})
    assert wave.reserve == {"usd": 1200, "verifier_calls": 4}


def test_nothing_begins_where_nothing_is_left_and_the_limit_is_named() -> None:
    with pytest.raises(Exhausted) as end:
        towards().plan({"tokens": 0, "generated_tokens": 100})
    assert end.value.unit == "tokens"


def test_rows_that_are_payable_are_counted_in_the_scarcest_unit() -> None:
    left = {"tokens": 100, "flops": 90, "samples": 2}
    price = towards(rates=Rates(flops=2), scores=scored(lambda new: new)).price(left)
    assert (price.rows(10, left), price.scarcest_unit(10, left)) == (4, "flops")
    assert (price.rows(5, left), price.scarcest_unit(50, left)) == (9, "flops")
    assert price.tokens(1000, left, part=0.5) == 22
    assert towards().price(["samples"]).rows(10, {"samples": 2}) == math.inf


@given(slope=st.integers(0, 5), step=st.integers(1, 9), cap=st.integers(1, 400), amount=st.integers(0, 900))
def test_the_most_tokens_that_an_amount_pays_are_found_for_any_bound(
    slope: int, step: int, cap: int, amount: int
) -> None:
    price = towards(scores=scored(lambda new: slope * (new // step) ** 2 + 3)).price(["tokens"])
    payable = [tokens for tokens in range(cap + 1) if price.amount("tokens", tokens) <= amount]
    assert price.largest("tokens", cap, amount) == max(payable, default=0)


# Laws -----------------------------------------------------------------------------------------------------------------


@st.composite
def limits(draw: st.DrawFn) -> dict[str, int]:
    units = draw(st.sets(st.sampled_from(UNITS), min_size=1))
    sizes = {"flops": st.integers(0, 3000), "usd": st.integers(0, 10**5)}
    return {unit: draw(sizes.get(unit, st.integers(0, 400))) for unit in sorted(units)}


@st.composite
def requests(draw: st.DrawFn) -> Request:
    whole, rate, small = st.integers(1, 60), st.integers(0, 50), st.integers(0, 9)
    slope, base, calls = draw(st.integers(0, 3)), draw(small), draw(st.integers(0, 2))
    rates = Rates(draw(rate), draw(rate), draw(st.none() | rate), draw(rate))

    def scores(unit: str, new: int) -> int:
        if unit == "verifier_calls":
            return calls
        tokens = slope * new + base
        if unit in PRICED_UNITS:
            return rates.cost(unit, computed=tokens)
        return tokens if unit in ("tokens", "verifier_tokens") else 0

    rows = draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
    goes_on = draw(st.booleans())
    known = {
        "cap": draw(whole),
        "goes_on": goes_on,
        "wanted": draw(st.integers(len(rows), 20) | st.just(math.inf)),
        "needed": draw(whole),
        "step": draw(whole),
        "longest": draw(st.integers(0, 60)),
        "begun": draw(small),
        "is_completed": draw(st.booleans()),
        "resumes": draw(st.booleans()),
        "closing": draw(st.integers(0, 60)),
        "portion": draw(st.integers(1, 60) | st.just(1 << 20)),
    }
    branches = [0] * len(rows) if goes_on else rows
    goal = draw(st.sampled_from(Goal))
    return Request(goal, branches, rates, draw(small), draw(small), draw(st.none() | st.just(scores)), known=known)


def planned(request: Request, left: dict[str, int]) -> Wave | None:
    try:
        return request.plan(left)
    except Exhausted as end:
        assert end.unit in left  # noqa: PT017 - it need not be raised
        return None


@given(request=requests(), left=limits())
@settings(deadline=None)
def test_a_wave_reserves_no_more_than_is_left_in_any_unit(request: Request, left: dict[str, int]) -> None:
    wave = planned(request, left)
    if wave is None:
        return
    assert 1 <= wave.rows <= len(request.branches)
    assert 1 <= wave.grant <= min(request.cap, request.portion)
    price = request.price(left)
    held = price.bare().amounts(request.closing) if request.closing else dict.fromkeys(left, 0)
    for unit, amount in wave.reserve.items():
        assert 0 <= amount <= left[unit] - held[unit]
        assert amount >= wave.rows * price.generation(unit, wave.grant)


@given(request=requests(), left=limits(), programs=st.integers(1, 5))
@settings(deadline=None)
def test_leases_of_programs_and_their_scores_are_reserved(
    request: Request, left: dict[str, int], programs: int
) -> None:
    request = request.but(programs=programs)
    wave = planned(request, left)
    if wave is None:
        return
    price = request.price(left)
    shares = not left.keys().isdisjoint(SHARED_UNITS)
    assert 1 <= wave.rows <= min(programs if shares else math.inf, len(request.branches))
    assert 1 <= wave.grant <= request.cap
    assert wave.lease.keys() == left.keys() & {"flops", "usd", "requests"}
    for unit, amount in wave.reserve.items():
        assert 0 <= amount <= left[unit]
        needed = wave.lease.get(unit, price.generation(unit, wave.grant)) + price.reserve(unit, wave.grant)
        assert unit == "samples" or amount >= wave.rows * needed


@given(request=requests(), left=limits(), more=limits())
@settings(deadline=None)
def test_where_more_is_left_a_wave_is_not_refused(request: Request, left: dict[str, int], more: dict[str, int]) -> None:
    richer = {unit: amount + more.get(unit, 0) for unit, amount in left.items()}
    if planned(request, left) is not None:
        assert planned(request, richer) is not None


@given(request=requests(), left=limits(), more=limits())
@settings(deadline=None)
def test_where_more_is_left_no_fewer_tokens_are_granted_to_open_rows(
    request: Request, left: dict[str, int], more: dict[str, int]
) -> None:
    request = request.but(goes_on=True, branches=[0] * len(request.branches), closing=0)
    richer = {unit: amount + more.get(unit, 0) for unit, amount in left.items()}
    poor, rich = planned(request, left), planned(request, richer)
    if poor is not None and rich is not None:
        assert rich.rows >= poor.rows


@given(request=requests(), left=limits())
@settings(deadline=None)
def test_an_answer_comes_wherever_one_plain_sample_would_give_one(request: Request, left: dict[str, int]) -> None:
    """The first row of a search gets what a single sample would get, its score left out where that cannot be paid."""
    first = request.but(
        goal=Goal.SOLUTION,
        branches=[1] * len(request.branches),
        goes_on=False,
        begun=0,
        is_completed=False,
        closing=0,
    )
    single = planned(first.but(branches=[1], scores=None), left)
    wave = planned(first, left)
    assert (wave is None) == (single is None)
    if wave is not None and single is not None and wave.rows == 1:
        assert wave.grant == single.grant


@given(request=requests(), left=limits(), k=st.integers(1, 12))
@settings(deadline=None)
def test_the_first_k_rows_of_a_wave_are_those_of_a_smaller_request(
    request: Request, left: dict[str, int], k: int
) -> None:
    """The rows of a wave are the first ones in draw order: a smaller request begins no more and no others."""
    fewer = request.but(branches=request.branches[:k])
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
    cost = towards(rates=Rates(flops=price), scores=scored(lambda new: new)).price(["tokens", "flops", "samples"])
    amounts = {"tokens": left, "flops": left, "samples": left}
    shared = limit_to_share(cost, needed, held, amounts, {"tokens": share, "samples": share})
    assert shared["flops"] == left  # no other search shares it
    for unit in ("tokens", "samples"):
        assert min(left, share) <= shared[unit] <= left
        assert shared[unit] >= min(left, cost.amount(unit, held + needed), 1 if unit == "samples" else left)
    assert (shared["samples"] >= 1) == (left >= 1)
