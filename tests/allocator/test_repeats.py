"""Votes where wrong answers repeat: against every row of samples, the best policy of all votes, and an oracle."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
import sys
from collections import Counter
from math import perm
from pathlib import Path

import numpy as np
import pytest

from research.allocation.repeated import fit
from research.allocation.world import draw_answers
from tests.allocator.test_difficulty import KINDS
from tests.allocator.test_performance import COVERAGE, model
from tests.allocator.test_votes import best_by
from tts.allocator import repeats
from tts.allocator.default import choose_plan
from tts.allocator.difficulty import LURES, Population, shift
from tts.allocator.performance import PerformanceModel
from tts.allocator.votes import PRICES, Votes
from tts.errors import ConfigError
from tts.search.plan import parse

ORACLES = Path(os.environ.get("TTS_DATA_DIR", "none")) / "oracles"
MOST = 5


def state(row):
    """The leading and second votes of samples; a second answer of one vote counts as none."""
    first, second = [*sorted(Counter(row).values(), reverse=True), 0][:2]
    return first, second if second > 1 else 0


def rows_of(population, samples):
    """Every row of answers (0 right, 1 the lure, then the others), with its chance under each kind."""
    others = [population.scattered / population.others] * population.others
    chances = np.stack([population.rate, population.lure, *others])
    for row in itertools.product(range(len(chances)), repeat=samples):
        yield row, np.prod(chances[list(row)], axis=0)


@pytest.mark.parametrize("others", [1, 2, 3])
def test_chances_of_states_are_those_of_every_row_of_samples(others):
    population = dataclasses.replace(KINDS, others=others)
    chances, rights = repeats.marginals(KINDS.rate, KINDS.lure, KINDS.weight, others, MOST)
    for n in range(1, MOST + 1):
        of_state, of_right = Counter(), Counter()
        for row, chance in rows_of(population, n):
            votes = Counter(row)
            leaders = [answer for answer in votes if votes[answer] == max(votes.values())]
            of_state[state(row)] += chance
            of_right[state(row)] += chance @ KINDS.weight * (0 in leaders) / len(leaders)
        assert chances[n].sum() == pytest.approx(1.0)
        for (a, b), chance in of_state.items():
            assert chances[n, a, b] == pytest.approx(chance @ KINDS.weight, abs=1e-13)
            assert rights[n, a, b] == pytest.approx(of_right[a, b], abs=1e-13)
            assert repeats.state_chance(KINDS.rate, KINDS.lure, others, a, b, n) == pytest.approx(chance, abs=1e-13)
            posterior = population.posterior(population.vote_likelihood([a], [b], [n]))[0]
            assert posterior == pytest.approx(chance * KINDS.weight / (chance @ KINDS.weight), abs=1e-12)


@pytest.mark.parametrize("others", [1, 3])
def test_the_next_state_has_its_chance_among_every_row_of_samples(others):
    population = dataclasses.replace(KINDS, others=others)
    chances, _ = repeats.marginals(KINDS.rate, KINDS.lure, KINDS.weight, others, MOST)
    for n in range(1, MOST):
        passed, before = Counter(), Counter()
        for row, chance in rows_of(population, n + 1):
            passed[state(row[:-1]), state(row)] += chance @ KINDS.weight
            before[state(row[:-1])] += chance @ KINDS.weight
        after = sorted({end for _, end in passed})
        value = np.zeros((MOST + 1, MOST // 2 + 1, len(after)))  # whether the next state is each of these
        for place, end in enumerate(after):
            value[(*end, place)] = 1.0
        found = repeats.expected_next(chances, value, n)
        for start, chance in before.items():
            expected = [passed[start, end] / chance for end in after]
            assert found[start] == pytest.approx(expected, abs=1e-9)


def best_at(population, most, price):
    """The greatest expected chance less price, of policies that see the votes of every answer."""
    scattered = population.scattered / population.others

    def ways(classes):
        """The chances of a history of classes, by which of them is right."""
        found = []
        for right, lure in itertools.product([None, *range(len(classes))], repeat=2):
            rest = [n for i, n in enumerate(classes) if i not in (right, lure)]
            if (right is None or right != lure) and len(rest) <= population.others:
                named = [0 if i is None else classes[i] for i in (right, lure)]
                chance = population.rate ** named[0] * population.lure ** named[1] * scattered ** sum(rest)
                found.append((float(population.weight @ chance) * perm(population.others, len(rest)), right))
        return found

    return best_by(ways, most, price)


@pytest.mark.parametrize("others", [1, 3, 6])
@pytest.mark.parametrize(("most", "error"), [(1, 1e-9), (3, 1e-9), (4, 1e-9), (6, 0.004)])
def test_the_worth_of_votes_is_nearly_that_of_the_best_policy(others, most, error):
    population = dataclasses.replace(KINDS, others=others)
    votes = Votes.of(population, most)
    for k in (0, 20, 30, 36):
        assert votes.worth[k] == pytest.approx(best_at(population, most, PRICES[k]), abs=error)


def test_without_repeats_tables_are_what_they_were():
    unknown = Population.beta()
    never = dataclasses.replace(unknown, others=0)
    for name in ("chance", "index", "worth"):
        np.testing.assert_array_equal(getattr(Votes.of(unknown, 24), name), getattr(Votes.of(never, 24), name))
    votes = [1, 3, 3, 4, 8], [0, 0, 2, 4, 0], [5, 8, 9, 9, 8]
    np.testing.assert_array_equal(unknown.vote_likelihood(*votes), never.vote_likelihood(*votes))
    many = dataclasses.replace(unknown, others=10**9)
    assert np.exp(many.vote_likelihood(*votes)) == pytest.approx(np.exp(unknown.vote_likelihood(*votes)), abs=1e-7)
    likely = repeats.marginals(many.rate, many.lure, many.weight, 10**9, 24)[0] > 1e-7
    for name in ("chance", "index"):
        found, expected = getattr(Votes.of(many, 24), name)[likely], getattr(Votes.of(unknown, 24), name)[likely]
        assert found == pytest.approx(expected, abs=1e-5)


def test_a_pair_of_votes_is_worth_less_where_wrong_answers_repeat():
    tables = [Votes.of(dataclasses.replace(Population.beta(), others=others), 8) for others in (10, 50, 0)]
    chances = [table.chance[8, 3, 0] for table in tables]
    assert chances == sorted(chances)
    assert chances[0] < chances[-1] - 0.1


def test_a_state_of_more_answers_than_there_are_counts_as_if_none_repeated():
    few, never = (Votes.of(dataclasses.replace(KINDS, others=others), 8) for others in (2, 0))
    at = np.array([1, 2]), np.array([0, 0]), np.array([6, 7])
    for found, expected in zip(few.look(*at), never.look(*at), strict=True):
        assert found == pytest.approx(expected)
        assert found.max() > 0


def test_votes_of_many_samples_are_read_in_proportion():
    population = dataclasses.replace(KINDS, others=4)
    few, many = (population.vote_likelihood([60 * n, n], [30 * n, n], [128 * n, 128 * n]) for n in (1, 20))
    assert population.posterior(many)[0] == pytest.approx(population.posterior(few)[0])
    assert np.isfinite(many).any(axis=1).tolist() == [True, False]  # 128 samples have more than 6 answers each once


def test_the_population_keeps_its_number_of_wrong_answers():
    population = dataclasses.replace(Population.beta(), others=10)
    assert population.with_twins().others == 10
    assert population.fit(population.vote_likelihood([2, 3], [1, 2], [4, 8])).others == 10
    with pytest.raises(ConfigError, match=r"others.*-1.*at least 0"):
        dataclasses.replace(population, others=-1)


def test_votes_of_the_population_itself_show_no_shift():
    rng = np.random.default_rng(0)
    population = dataclasses.replace(Population.beta(), others=5)
    kind = rng.choice(len(population.weight), 400, p=population.weight)
    votes = np.array([(*state(row), 8) for row in draw_answers(population, kind, 8, rng).tolist()]).T
    assert shift(population, *votes) > 0.01
    assert shift(dataclasses.replace(population, others=0), *votes) < 1e-6


@pytest.mark.parametrize(("others", "least", "most"), [(3, 3, 3), (10, 9, 12), (50, 40, 70), (200, 150, 300)])
def test_the_number_of_wrong_answers_is_estimated_from_verdicts(others, least, most):
    population = Population(np.array([0.9, 0.15]), np.array([0.01, 0.085]), np.array([0.5, 0.5]), others=others)
    kind = np.arange(200) % 2
    _, found = fit(draw_answers(population, kind, 16, np.random.default_rng(1)))
    assert least <= found.others <= most


def test_an_unknown_number_stays_unknown():
    assert repeats.estimate([], LURES) is None
    assert repeats.estimate([[1], [], [1]], LURES) is None
    assert repeats.estimate([[2]], LURES) is None
    assert repeats.estimate([[1] * 12] * 20, LURES) == 0
    unknown = model(**{"best_of_n | majority": COVERAGE})
    assert PerformanceModel.from_json(unknown.to_json()).population.others is None
    known = dataclasses.replace(unknown, population=dataclasses.replace(unknown.population, others=12))
    assert PerformanceModel.from_json(known.to_json()).population.others == 12


@pytest.mark.parametrize(("others", "is_noted"), [(None, True), (0, False), (12, False)])
def test_a_plan_notes_that_the_number_is_unknown(others, is_noted, tmp_path):
    fitted = dataclasses.replace(model(**{"best_of_n | majority": COVERAGE}), model="m", task="math", verifiers={})
    fitted = dataclasses.replace(fitted, population=dataclasses.replace(fitted.population, others=others))
    fitted.save(tmp_path / "model.json")
    plan = parse(f"auto(model='{tmp_path / 'model.json'}')")
    _, notes = choose_plan(plan, "m", "math", {}, {}, ())
    assert any("how many wrong answers" in note for note in notes) == is_noted
    _, notes = choose_plan(parse("auto"), "m", "math", {}, {}, ())
    assert "never repeat" in notes[0]


@pytest.mark.slow
@pytest.mark.skipif(not (ORACLES / "al3.py").is_file(), reason="TTS_DATA_DIR has no oracle al3.py")
@pytest.mark.parametrize(("others", "gain"), [(10, 0.01), (50, 0.08), (200, 0.13)])
def test_a_known_number_gains_what_the_oracle_lacks(others, gain, tmp_path, monkeypatch):
    """`auto` without the number gains +.003, +.058 and +.127 there."""
    monkeypatch.syspath_prepend(str(ORACLES))
    oracle = importlib.import_module("alloc_mod")
    try:
        monkeypatch.setattr(oracle, "ALT", others)
        rates = oracle.POPS["half .9 half .15"]
        kinds = Population(rates, (1 - rates) * 0.1, np.full(len(rates), 1 / len(rates)), others=others)
        _, population = fit(draw_answers(kinds, np.arange(len(rates)), 16, np.random.default_rng(7)))
        fitted = dataclasses.replace(
            model(**{"best_of_n | majority": COVERAGE}), model="model", task="math", population=population
        )
        fitted.save(tmp_path / "model.json")
        plans = f"auto(model='{tmp_path / 'model.json'}')", "best_of_n | majority"
        auto, uniform = (
            np.mean([oracle.run(rates, 0.1, 8 * oracle.P, plan, seed)[0] for seed in range(3)]) for plan in plans
        )
        assert auto - uniform > gain
    finally:
        sys.modules.pop("alloc_mod", None)
