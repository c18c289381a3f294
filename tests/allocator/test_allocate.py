"""The allocator: exact totals, waves that are functions of the state, and near the best policy with the same
information.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import Population, Whole
from tts.allocator.values import Checked, ProblemStates, Voted
from tts.errors import ConfigError


def state(**given):
    problems = next((len(value) for value in given.values() if isinstance(value, list)), 4)
    fields = {
        "samples": [0] * problems,
        "leader": [0] * problems,
        "second": [0] * problems,
        "solved": [False] * problems,
        "open": [True] * problems,
        "cost": [1.0] * problems,
    } | {name: value for name, value in given.items() if isinstance(value, list)}
    arrays = {name: np.array(value) for name, value in fields.items()}
    return ProblemStates(**arrays, left=given.get("left", 10.0), evidence=given.get("evidence"))


CHECKED = Allocator(values=Checked(Population.beta()), pilots=2)
VOTED = Allocator(values=Voted(Population.beta(), 16), pilots=2)


@pytest.mark.parametrize("allocator", [CHECKED, VOTED])
@pytest.mark.parametrize("seed", range(10))
def test_what_a_wave_costs_is_never_more_than_what_is_left(allocator, seed):
    rng = np.random.default_rng(seed)
    samples = rng.integers(0, 12, 30)
    leader = np.maximum(np.minimum(samples, 1), samples // 2)
    at = ProblemStates(
        samples=samples,
        leader=leader,
        second=np.minimum(leader, samples - leader),
        solved=rng.random(30) < 0.3,
        open=rng.random(30) < 0.8,
        cost=rng.uniform(0.5, 3, 30),
        left=float(rng.uniform(0, 40)),
    )
    grant = allocator.next(at)
    assert (grant.samples * at.cost).sum() <= at.left
    assert not grant.samples[~at.open].any()
    assert bool(grant.reason) == (not grant.samples.any())
    again = allocator.next(at)
    assert (again.samples == grant.samples).all()


@pytest.mark.parametrize("left", [0.5, 1, 2.5, 3, 4, 7, 8])
def test_pilots_are_as_many_as_the_budget_pays_for_all(left):
    samples = CHECKED.next(state(left=left)).samples
    assert (
        samples.tolist() == [min(2, max(int(left // 4), 0))] * 4
        if left >= 4
        else samples.tolist() == [int(left >= i) for i in (1, 2, 3, 4)]
    )


@pytest.mark.parametrize(
    ("left", "served"), [(16.0, [2] * 4), (12.0, [1] * 4), (7.9, [1, 1, 0, 0]), (3.0, [1, 0, 0, 0])]
)
def test_a_first_sample_is_paid_with_all_that_it_may_need(left, served):
    at = dataclasses.replace(state(left=left), most=np.full(4, 3.0))
    assert CHECKED.next(at).samples.tolist() == served
    behind = dataclasses.replace(at, samples=np.array([1, 1, 0, 0]))
    # nobody gets a second one before
    assert CHECKED.next(dataclasses.replace(behind, left=4.0)).samples.tolist() == [0, 0, 1, 0]
    in_time = CHECKED.next(dataclasses.replace(at, left=7.9, waves=1.0))
    assert (in_time.samples.tolist(), in_time.hurried) == ([1] * 4, True)


def test_whoever_has_failed_least_is_served_first_and_who_is_solved_never():
    at = state(samples=[3, 9, 2, 5], solved=[False, False, True, False], left=1.0)
    assert CHECKED.next(at).samples.tolist() == [1, 0, 0, 0]
    assert CHECKED.next(dataclasses.replace(at, cost=np.array([9.0, 1, 1, 1]))).samples.tolist() == [0, 0, 0, 1]


def test_open_votes_are_served_before_settled_ones():
    at = state(samples=[6, 6, 6], leader=[6, 3, 4], second=[0, 3, 0], left=1.0)
    assert VOTED.next(at).samples.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"open": [False, False]}, "every problem has ended"),
        ({"left": 0.5}, "the budget is used up"),
        ({"samples": [2, 2], "solved": [True, True]}, "worth less than their price"),
        ({"samples": [16, 16], "leader": [9, 9]}, "worth less than their price"),
    ],
)
def test_it_says_why_it_stops(given, reason):
    assert reason in VOTED.next(state(**given)).reason or reason in CHECKED.next(state(**given)).reason


def test_hopeless_and_trivial_problems_are_left_alone():
    hopeless = Allocator(values=Checked(Population(np.array([0.0]), np.array([0.5]), np.array([1.0]))))
    assert "worth less" in hopeless.next(state(samples=[2, 2])).reason
    trivial = Allocator(values=Voted(Population(np.array([1.0]), np.array([0.0]), np.array([1.0])), 16))
    assert "worth less" in trivial.next(state(samples=[2, 2], leader=[2, 2])).reason


def test_a_price_leaves_the_rest_unspent():
    spent = {}
    for price in (0.0, 0.01, 0.1):
        allocator, samples = dataclasses.replace(CHECKED, price=price), np.zeros(4, np.int64)
        while not (grant := allocator.next(state(samples=samples.tolist(), left=400.0 - samples.sum()))).reason:
            samples = samples + grant.samples
        spent[price] = samples.sum()
    assert spent[0.0] == 400 > spent[0.01] > spent[0.1]


def test_what_problems_have_in_common_is_learnt_from_all_of_them():
    rng = np.random.default_rng(0)
    solved = rng.random(400) < 0.02
    at = state(samples=[2] * 400, solved=solved.tolist(), left=100.0)
    before, after = CHECKED.values.worth(at).rate, CHECKED.adapt(at).values.worth(at).rate
    assert after[~solved].max() < 0.05 < before[~solved].min()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost": [1.0, 0.0]}, "not above 0"),
        ({"cost": [1.0, float("nan")]}, "not above 0"),
        ({"left": float("nan")}, "left is nan"),
        ({"left": float("inf")}, "left is inf"),
        ({"evidence": np.full((4, len(Population.beta().weight)), np.nan)}, "evidence has a NaN"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        CHECKED.next(state(**given))


@pytest.mark.parametrize(
    "parameters", [{"pilots": 0}, {"growth": -1}, {"share": 0}, {"share": 2}, {"price": float("nan")}]
)
def test_parameters_are_checked(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        dataclasses.replace(CHECKED, **parameters)


def served(world, allocator: Allocator, total: int, *, checked: bool) -> Whole:
    """Return the samples of each problem that the allocator gives, wave by wave."""
    samples = np.zeros(world.problems, np.int64)
    while not (grant := allocator.next(world.state(samples, total - float(samples.sum()), checked=checked))).reason:
        samples = np.minimum(samples + grant.samples, 256)
    return samples


def drawn_one_by_one(world, values: Checked | Voted, total: int, *, checked: bool) -> Whole:
    """Return the samples of each problem where each sample goes to the greatest index, after one for each.

    With the true population, this is the best policy with the same information. A problem is served up to where its
    index falls below the price. So the least index so far decides.
    """
    lowest, prices = np.full(world.problems, np.inf), np.zeros((world.problems, 256))
    for n in range(256):
        rate = values.worth(world.state(np.full(world.problems, n), 1.0, checked=checked)).rate
        lowest = np.minimum(lowest, rate) if n else lowest
        prices[:, n] = lowest
    order = np.argsort(-prices.ravel(), kind="stable")[: min(total, int((prices > 0).sum()))]
    return np.bincount(order // 256, minlength=world.problems)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("budget", [2, 8])
def test_waves_lose_little_against_one_sample_at_a_time(checked, budget):
    worlds = pytest.importorskip("research.allocation.world")
    world = worlds.World.draw(worlds.population(), 1500, np.random.default_rng(1))
    values = Checked(world.population) if checked else Voted(world.population, 32)
    total = budget * world.problems
    counts = served(world, Allocator(values=values, pilots=1), total, checked=checked)
    assert counts.sum() <= total
    best = drawn_one_by_one(world, values, total, checked=checked)
    uniform = world.score(np.full(world.problems, budget), checked=checked).mean()
    gain = world.score(best, checked=checked).mean() - uniform
    assert gain > 0.02
    # the standard error of the difference is a tenth of the gain
    assert world.score(counts, checked=checked).mean() - uniform > 0.9 * gain


def test_where_the_rest_pays_only_for_problems_that_need_nothing_it_is_over():
    at = state(samples=[4, 4], leader=[4, 1], solved=[True, False], cost=[1.0, 5.0], left=3.0)
    grant = Allocator(values=Checked(Population.beta())).next(at)
    assert not grant.samples.any()
    assert grant.reason == "what is left pays for no sample where one would help"


def test_where_votes_do_not_show_who_would_gain_the_rest_is_spent_evenly():
    even = Allocator(values=Voted(Population.beta().with_twins(), 16), price=0.5, even=True)
    grant = even.next(state(samples=[5, 3, 3, 4], leader=[5, 2, 2, 2], second=[0, 0, 0, 2], left=10.0))
    assert grant.samples.tolist() == [0, 1, 1, 0]
    assert grant.even
    assert not grant.reason
    assert even.next(state(samples=[5, 3, 3, 4], leader=[5, 2, 2, 2], left=1.0)).samples.tolist() == [0, 1, 0, 0]
    timed = dataclasses.replace(state(samples=[3, 3], leader=[2, 2], left=8.0), waves=1.0)
    assert even.next(timed).samples.tolist() == [4, 4], "there is no time for another wave"
    dear = dataclasses.replace(state(samples=[3, 1], leader=[2, 1], left=2.0), cost=np.array([1.0, 3.0]))
    assert "pays for no sample of the problems that have fewest" in even.next(dear).reason
