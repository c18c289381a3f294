"""The worth of further votes: against enumeration of every policy and simulation, on populations small enough for
both.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import tts
from tests.allocator.test_difficulty import KINDS, draw
from tts.allocator.difficulty import Population
from tts.allocator.votes import PRICES, Votes
from tts.errors import ConfigError


def state(classes):
    ordered = sorted(classes, reverse=True)
    return ordered[0], ordered[1] if len(ordered) > 1 and ordered[1] > 1 else 0, sum(ordered)


def best_by(ways, most, price):
    """The best expected chance less price; `ways` gives chances of a history of classes, and which class is right."""
    ways_of = cache(lambda classes: list(ways(classes)))

    @cache
    def value(classes):
        total = sum(chance for chance, _ in ways_of(classes))
        leader = classes.index(max(classes))
        stop = sum(chance for chance, right in ways_of(classes) if right == leader) / total
        if sum(classes) == most:
            return stop
        on = 0.0
        for i in range(len(classes) + 1):
            after = (*classes[:i], classes[i] + 1, *classes[i + 1 :]) if i < len(classes) else (*classes, 1)
            if chance := sum(each for each, _ in ways_of(after)):
                on += chance / total * value(after)
        return max(stop, on - price)

    return value((1,)) - price


def best_at(population, most, price):
    """The greatest expected chance less price, by trying both choices at every history of votes, with the identity of
    the right answer.
    """

    @cache
    def joint(right, lure, lone):  # chance of one row of samples with these identities
        return float(population.weight @ (population.rate**right * population.lure**lure * population.scattered**lone))

    def ways(classes):
        """Every identity that the classes may have: (chance, place of the right one, what is lone)."""
        places = [None, *range(len(classes))]
        for right in places:
            for lure in places:
                others = [n for i, n in enumerate(classes) if i not in (right, lure)]
                if (right is None or right != lure) and all(n == 1 for n in others):
                    counts = [0 if i is None else classes[i] for i in (right, lure)]
                    yield joint(*counts, len(others)), right

    return best_by(ways, most, price)


@pytest.mark.parametrize("population", [KINDS, Population(np.array([0.45]), np.array([0.25]), np.array([1.0]))])
@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_the_recursion_is_the_best_of_every_policy(population, most):
    votes = Votes.of(population, most)
    for k in (0, 20, 30, 36):
        assert votes.worth[k] == pytest.approx(best_at(population, most, PRICES[k]), abs=1e-9)


def test_the_chance_of_each_state_is_what_is_found_among_such_problems():
    rng = np.random.default_rng(0)
    kinds = rng.choice(3, 6_000, p=KINDS.weight)
    votes, found = Votes.of(KINDS, 5), {}
    for z in kinds:
        drawn = rng.random(5)
        right, lure = int((drawn < KINDS.rate[z]).sum()), int((drawn < KINDS.rate[z] + KINDS.lure[z]).sum())
        lure -= right
        first = next((i for i in range(5) if drawn[i] < KINDS.rate[z]), 5) < next(
            (i for i in range(5) if KINDS.rate[z] <= drawn[i] < KINDS.rate[z] + KINDS.lure[z]), 5
        )
        led = right > lure or (right == lure and first) if max(right, lure) > 1 else drawn[0] < KINDS.rate[z]
        found.setdefault(state([right, lure] + [1] * (5 - right - lure)), []).append(led)
    for (a, b, n), rights in found.items():
        error = np.sqrt(0.25 / len(rights))
        assert votes.look(np.array([a]), np.array([b]), np.array([n]))[0][0] == pytest.approx(
            np.mean(rights), abs=4 * error
        )


def test_settled_votes_are_worth_less_than_open_ones():
    votes = Votes.of(Population.beta(), 32)
    chance, index = votes.look(np.array([8, 4, 1, 8]), np.array([0, 4, 0, 7]), np.array([8, 8, 12, 16]))
    assert chance[0] > 0.8
    assert chance[2] < 0.1
    assert index[0] < index[3] / 100 < index[1] / 200


def test_states_beyond_the_table_are_read_in_proportion():
    small, large = Votes.of(Population.beta(), 32), Votes.of(Population.beta(), 96)
    beyond = np.array([33, 45, 60, 20]), np.array([31, 25, 4, 18]), np.array([64, 72, 64, 64])
    chance, index = small.look(*beyond)
    exact, wanted = large.look(*beyond)
    assert chance == pytest.approx(exact, abs=0.15)
    assert wanted[0] / 5 < index[0] < wanted[0] * 5
    for found in (index, wanted):  # close ones first, and settled ones hardly at all
        assert found[[0, 3]].min() > 20 * found[[1, 2]].max()
    far = [small.look(np.array([n // 2]), np.array([n // 2]), np.array([n]))[1][0] for n in (24, 240, 2400)]
    assert far[0] > far[1] > far[2] > 0  # however many were drawn, an even vote may yet be decided


def test_every_state_that_is_drawn_is_in_the_table():
    rng = np.random.default_rng(3)
    population = Population.beta()
    votes = Votes.of(population, 16)
    for n in range(1, 17):
        a, b, of = draw(population, rng.choice(len(population.weight), 50, p=population.weight), n, rng)
        assert np.isfinite(votes.chance[of, np.maximum(a, 1), b]).all()


@pytest.mark.parametrize("most", [0, 257])
def test_a_table_has_its_limits(most):
    with pytest.raises(ConfigError, match=f"most is {most}, but must be from 1 to 256"):
        Votes.of(KINDS, most)


def test_without_an_answer_nothing_is_right_and_the_next_sample_is_worth_most() -> None:
    table = Votes.of(Population.beta(), 16)
    for samples in range(1, 30):
        leaders = np.arange(min(samples, 16) + 1)
        chance, index = table.look(leaders, np.zeros_like(leaders), np.full_like(leaders, samples))
        assert chance[0] == 0 < chance[1]
        assert index[0] == index.max() > index[1]
    _, by_samples = table.look(np.zeros(9, int), np.zeros(9, int), np.arange(9))
    assert (np.diff(by_samples) < 0).all()  # a problem that never answers does not take everything


@pytest.mark.slow
@pytest.mark.parametrize("silent", [0.0, 0.3, 0.6, 0.9])
def test_a_total_goes_to_problems_without_an_answer_first(silent: float) -> None:
    def model(ask: tts.Ask) -> tts.Answer:
        rng = np.random.default_rng(ask.seed % 2**63)
        answer = rng.choice([*"1112"])
        return tts.Answer("no room" if rng.random() < silent else f"\\boxed{{{answer}}}", tokens=10)

    unanswered = dict[str, int]()
    for strategy in ("auto", "best_of_n | majority"):
        with tts.Solver(model, task="math", strategy=strategy, expected_tokens=10) as solver:
            solved = solver.solve_many([f"q{i}" for i in range(40)], tts.Budget(samples=120), seed=1)
        unanswered[strategy] = sum(one.answer is None for one in solved)
        assert sum(one.usage.samples for one in solved) <= 120
    assert unanswered["auto"] <= unanswered["best_of_n | majority"]
    assert unanswered["auto"] == 0 or silent == 0.9
