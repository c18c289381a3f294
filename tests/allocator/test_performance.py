"""Performance models: what they learn from problems of known difficulty, monotone, saved and read back."""

from __future__ import annotations

import dataclasses
import json
import os
import threading

import numpy as np
import pytest

from tests.allocator.test_allocate import state
from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import LURES, RATES, Population
from tts.allocator.performance import PerformanceCurve, PerformanceModel, PilotedCurve, monotone, smooth
from tts.allocator.values import Curved, ProblemStates, Voted
from tts.errors import ConfigError

SIZES = np.array([1.0, 2, 4, 8, 16, 32])


def model(**curves):
    made = {text: PerformanceCurve(SIZES, np.clip(table, 0, 1), np.zeros_like(table)) for text, table in curves.items()}
    return PerformanceModel(
        model="m",
        task="t",
        verifiers={},
        source="s",
        problems=100,
        tokens=20.0,
        population=Population.beta(),
        curves=made,
    )


COVERAGE = 1 - (1 - RATES[:, None]) ** SIZES


def test_a_curve_is_learnt_from_problems_whose_difficulty_is_only_estimated():
    rng = np.random.default_rng(0)
    prior = Population.beta(0.4, 1.0)
    rates = prior.rate[rng.choice(len(prior.weight), 600, p=prior.weight)]
    right = rng.binomial(32, rates)
    posterior = prior.posterior(prior.verdict_likelihood(right, 32 - right)).reshape(600, len(RATES), -1).sum(axis=2)
    solved = (rng.random((600, len(SIZES))) < 1 - (1 - rates[:, None]) ** SIZES).astype(float)
    solved[rng.random(solved.shape) < 0.1] = np.nan
    accuracy, error = smooth(posterior, solved, rng)
    assert np.abs(accuracy - COVERAGE)[3:-3].mean() < 0.06
    assert (np.diff(accuracy, axis=0) >= -1e-5).all()
    assert (np.diff(accuracy, axis=1) >= -1e-5).all()
    middle = slice(8, 16)
    assert 0.005 < error[middle].mean() < 0.15


def test_monotone_is_the_nearest_and_leaves_what_is_monotone():
    assert monotone(COVERAGE, np.ones(len(RATES))) == pytest.approx(COVERAGE, abs=1e-6)
    bent = np.array([[0.1, 0.4], [0.3, 0.2]])
    found = monotone(bent, np.ones(2))
    assert (np.diff(found, axis=0) >= -1e-6).all()
    assert (np.diff(found, axis=1) >= -1e-6).all()
    assert found == pytest.approx(np.array([[0.1, 0.3], [0.25, 0.3]]), abs=0.06)


def test_a_file_says_all_that_the_model_knows(tmp_path):
    made = model(**{"best_of_n | majority": COVERAGE})
    made.save(tmp_path / "model.json")
    read = PerformanceModel.load(tmp_path / "model.json")
    assert read.to_json() == made.to_json()
    for one, other in zip(read.table("best_of_n | majority"), made.table("best_of_n | majority"), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    assert read.population.weight == pytest.approx(made.population.weight, abs=1e-4)


def test_a_table_goes_through_the_curve_and_stays_beyond_it():
    sizes, table = model(a=COVERAGE).table("a")
    assert sizes.tolist() == [*range(129)]
    assert table[:, [1, 2, 4, 8, 16, 32]] == pytest.approx(COVERAGE)
    assert table[:, 0].max() == 0
    assert table[:, 100] == pytest.approx(COVERAGE[:, -1])


def test_the_choice_changes_with_difficulty_as_the_curves_do():
    easy_first = model(
        **{"best_of_n | majority": COVERAGE, "beam | majority": 0.9 * np.ones((len(RATES), 1)) * (SIZES >= 8)}
    )
    curved = Curved(easy_first, ("best_of_n | majority", "beam | majority"), easy_first.population)
    at = state(samples=[4, 4], leader=[4, 1], second=[0, 0], left=100.0)
    worth = curved.worth(at)
    assert worth.plan[1] == 1  # four answers that all differ: begin anew with what is better on hard ones
    assert worth.block[1] >= 7
    assert worth.rate[0] < worth.rate[1] / 5
    grant = Allocator(values=curved, pilots=2).next(at)
    assert grant.plan[1] == 1
    assert grant.samples[1] == worth.block[1]
    small = Allocator(values=curved, pilots=2).next(state(samples=[4, 4], leader=[4, 1], second=[0, 0], left=3.0))
    assert small.samples.sum() == 1  # the block cannot be paid: a plain sample
    assert small.plan.tolist() == [0, 0]


def test_what_a_problem_has_had_of_a_strategy_is_not_offered_to_it_again():
    known = model(
        **{"best_of_n | majority": COVERAGE, "beam | majority": 0.9 * np.ones((len(RATES), 1)) * (SIZES >= 8)}
    )
    curved = Curved(known, ("best_of_n | majority", "beam | majority"), known.population)
    at = state(samples=[4, 4], leader=[1, 1], second=[0, 0], left=100.0)
    first = curved.worth(at)
    assert first.plan.tolist() == [1, 1]
    again = curved.worth(dataclasses.replace(at, had=np.array([[0, 0], [0, first.block[1]]])))
    assert (again.plan[0], again.block[0], again.rate[0]) == (1, first.block[0], first.rate[0])
    assert again.plan[1] == 0 or again.block[1] > first.block[1]
    assert again.rate[1] < first.rate[1]
    assert curved.worth(dataclasses.replace(at, had=np.full((2, 2), 10**6))).plan.tolist() == [0, 0]


def test_more_of_a_search_is_worth_what_its_curve_rises_by_where_votes_say_less_of_its_answer():
    searched = np.where(SIZES >= 16, 0.85, 0.8) * np.ones((len(RATES), 1))
    known = model(**{"best_of_n | majority": COVERAGE, "rebase | weighted": searched})
    curved = Curved(known, ("best_of_n | majority", "rebase | weighted"), known.population)
    at = state(samples=[9], leader=[1], second=[1], left=100.0)  # nine answers that all differ
    fresh = curved.worth(dataclasses.replace(at, had=np.array([[0, 0]])))
    assert fresh.plan.tolist() == [1]
    more = curved.worth(dataclasses.replace(at, had=np.array([[0, 8]])))
    assert more.plan[0] == 0 or more.rate[0] <= (0.85 - 0.8) / 9 + 1e-9


def rising_search(limits=None):
    """Return the values of samples where a search rises steeply at first and goes on rising."""
    table = np.array([0.3, 0.5, 0.6, 0.7, 0.8, 0.9]) * np.ones((len(RATES), 1))
    known = model(**{"best_of_n | majority": 0.0 * COVERAGE, "beam | majority": table})
    if limits is not None:
        curves = {
            **known.curves,
            "beam | majority": dataclasses.replace(known.curves["beam | majority"], limits=limits),
        }
        known = dataclasses.replace(known, curves=curves)
    return Curved(known, tuple(known.curves), known.population)


def test_a_search_gets_at_once_all_that_pays_its_price():
    curved, at = rising_search(), state(samples=[4], leader=[1], left=40.0)
    assert (curved.worth(at, 0.001).plan[0], curved.worth(at, 0.001).block[0]) == (1, 32), (
        "no part of it is spent twice"
    )
    assert curved.worth(dataclasses.replace(at, left=20.0), 0.001).block[0] == 20
    assert curved.worth(at, 0.018).block[0] == 8, "the ninth would add 0.017"


def test_many_problems_share_what_is_left_at_one_price():
    curved, at = rising_search(), state(samples=[4] * 8, leader=[1] * 8, left=80.0)
    worth = curved.worth(at)
    assert (worth.plan == 1).all()
    assert 8 <= worth.block.max() <= 16, "ten each, and no 32 for two of them"
    left, had = 80.0, np.zeros((8, 2), np.int64)
    while not (grant := Allocator(values=curved, pilots=1).next(dataclasses.replace(at, left=left, had=had))).reason:
        if not grant.plan.any():
            break
        left -= grant.samples.sum()
        had[:, 1] = np.where(grant.plan == 1, grant.samples, had[:, 1])
    assert (had[:, 1] > 0).all()
    assert left >= 0


def test_a_search_that_leaves_a_part_is_offered_where_its_limit_is_paid():
    curved, at = rising_search(limits=2 * SIZES), state(samples=[4], leader=[1], left=20.0)
    assert curved.worth(at, 0.001).block[0] == 10
    assert curved.model.limit("beam | majority", np.array([10, 32])).tolist() == [20.0, 64.0]
    assert rising_search().model.limit("beam | majority", np.array([10])).tolist() == [10.0]
    read = PerformanceModel.from_json(curved.model.to_json())
    assert read.curves["beam | majority"].limits.tolist() == (2 * SIZES).tolist()
    assert read.curves["best_of_n | majority"].limits is None


def test_one_strategy_leaves_nothing_to_choose():
    curved = Curved(model(**{"best_of_n | majority": COVERAGE}), ("best_of_n | majority",), Population.beta())
    worth = curved.worth(state(samples=[2, 4, 8], leader=[1, 2, 8], left=100.0))
    assert worth.plan.tolist() == [0, 0, 0]
    assert worth.rate[2] < worth.rate[0]


def test_a_model_says_what_it_does_not_fit():
    made = model(a=COVERAGE)
    assert made.fits("m", "t", {}) == ""
    assert "model 'm'" in made.fits("other", "t", {})
    assert "task" in made.fits("m", "math", {})
    assert "main=process" in made.fits("m", "t", {"main": "process"})


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        PerformanceModel.load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        model(a=COVERAGE).save(tmp_path / "no" / "model.json")


def test_more_knowledge_is_never_worse_on_the_problems_it_is_about():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 0.8, 500)
    gains = rates[:, None] * (1 - rates[:, None]) ** np.arange(32)  # until one sample is right

    def value(counts):
        assert counts.sum() <= 2000
        return sum(gains[i, :n].sum() for i, n in enumerate(counts.tolist()))

    baselines = pytest.importorskip("research.allocation.baselines")
    by_bins = baselines.binned_counts(rates, gains, 2000)
    ways = [baselines.random_counts(500, 2000, rng), np.full(500, 4), by_bins, baselines.oracle_counts(gains, 2000)]
    values = [value(counts) for counts in ways]
    assert values == sorted(values)
    assert baselines.binned_counts(rates, gains, 2000, num=1).tolist() == [4] * 500


def test_a_strategy_without_a_curve_is_named_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"strategy of the performance model is 'beem \| weighted'.*did you mean beam \| weighted"
    ):
        model(**{"beam | weighted": COVERAGE}).table("beem | weighted")


def test_what_is_no_file_is_written_to_as_it_is(tmp_path):
    made = model(**{"best_of_n | majority": COVERAGE})
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    made.save(tmp_path / "pipe")
    reader.join()
    assert read == [made.to_json() + "\n"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "model.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"'.*model\.json'.*read: it.*text"):
        PerformanceModel.load(tmp_path / "model.json")


def test_what_else_is_known_of_a_problem_counts_for_every_strategy():
    """A log-likelihood beside the verdicts is as good as a population whose weights it has changed."""
    known = model(**{"best_of_n | majority": COVERAGE, "beam | weighted": COVERAGE**0.5})
    evidence = 3.0 * known.population.rate
    weight = known.population.weight * np.exp(evidence)
    told = dataclasses.replace(known.population, weight=weight / weight.sum())
    samples, plans = [0, 1, 3], tuple(known.curves)
    found = Curved(known, plans, known.population).worth(
        ProblemStates.of(samples, 6.0, checked=True, evidence=np.tile(evidence, (3, 1)))
    )
    wanted = Curved(known, plans, told).worth(ProblemStates.of(samples, 6.0, checked=True))
    assert found.plan.tolist() == wanted.plan.tolist() == [1, 1, 1]
    assert found.rate == pytest.approx(wanted.rate)
    assert found.block.tolist() == wanted.block.tolist()


def test_before_another_strategy_has_run_an_answer_is_as_good_as_its_votes():
    known = model(**{"best_of_n | majority": COVERAGE, "beam | weighted": COVERAGE})
    curved, voted = Curved(known, tuple(known.curves), known.population), Voted(known.population)
    at = ProblemStates.of([4, 4], 1.0, leader=[1, 3])
    assert (curved.chance(at) == voted.chance(at)).all()
    assert curved.price(4) == voted.price(4)


def test_a_search_from_the_start_is_named_where_it_reaches_more_than_auto_with_pilots() -> None:
    """By means over the problems of the fit, at what a problem may spend; a lead within chance is none."""
    weight = np.zeros((len(RATES), len(LURES)))
    weight[12] = 1 / len(LURES)  # one success rate: the mean over problems is the table's row
    population = dataclasses.replace(Population.beta(), weight=weight.ravel())
    rows = np.tile([0.2, 0.6], (len(RATES), 1))
    search = PerformanceCurve(np.array([4.0, 8.0]), rows, np.zeros_like(rows), np.array([5.0, 10.0]))
    known = dataclasses.replace(
        model(), population=population, curves={"best_of_n | majority": search, "rebase | weighted": search}
    )
    assert known.direct(10.0, ["rebase | weighted"]) is None, "auto was not measured"
    behind = dataclasses.replace(known, piloted=PilotedCurve(np.array([5.0, 10.0]), np.array([0.3, 0.5])))
    assert behind.direct(10.0, ["rebase | weighted"]) == ("rebase | weighted", 10)
    assert behind.direct(5.0, ["rebase | weighted"]) is None
    assert behind.direct(3.0, ["rebase | weighted"]) is None, "below the least limit nothing is known"
    assert behind.direct(10.0, []) is None
    level = dataclasses.replace(known, piloted=PilotedCurve(np.array([5.0, 10.0]), np.array([0.3, 0.595])))
    assert level.direct(10.0, ["rebase | weighted"]) is None
    again = PerformanceModel.from_json(behind.to_json())
    assert again.piloted is not None
    assert again.direct(10.0, ["rebase | weighted"]) == ("rebase | weighted", 10)
    for piloted, rule in (
        ({"limits": [2, 1], "accuracy": [0, 0]}, "each must be above"),
        ({"limits": [1], "accuracy": []}, "one a limit"),
    ):
        damaged = json.dumps(json.loads(behind.to_json()) | {"piloted": piloted})
        with pytest.raises(ConfigError, match=rule):
            PerformanceModel.from_json(damaged)
