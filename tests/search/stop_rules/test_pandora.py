"""Pandora's index: its gain by another integral, its order, and what it is worth beside the best rule that knows the
law.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from tests.support.candidates import candidates
from tests.support.repeats import repeats
from tts.errors import ConfigError
from tts.search.parts import STOP_RULES
from tts.search.stop_rules.pandora import Pandora, exponentials, tail_gain
from tts.types import Candidate


def scored(scores: list[float], answers: list[str | None] | None = None) -> list[Candidate]:
    return [
        dataclasses.replace(c, scores={"main": s})
        for c, s in zip(candidates(answers or ["a"] * len(scores)), scores, strict=True)
    ]


@pytest.mark.parametrize(
    ("best", "median", "mean", "reference"), [(1.0, 1.0, 0.5, 2.0), (3.0, 1.0, 0.5, 2.0), (0.4, 0.1, 2.0, 0.05)]
)
def test_the_gain_is_the_integral_over_the_tail(best: float, median: float, mean: float, reference: float) -> None:
    def utility(x: float) -> float:
        return x / (x + reference)

    found, _ = quad(
        lambda x: (utility(x) - utility(best)) * 0.5 * math.exp(-(x - median) / mean) / mean, best, best + 60 * mean
    )
    assert tail_gain(best, median, mean, reference) == pytest.approx(found, rel=1e-4)


def test_stopping_at_a_small_gain_is_stopping_above_the_index() -> None:
    """The index t solves E[(u(X) - t)+] = cost; the gain at the best is at most the cost where u(best) is at least
    t.
    """
    median, mean, reference, cost = 1.0, 0.7, 4.0, 0.01

    def gain_at(utility: float) -> float:
        return tail_gain(max(utility * reference / (1 - utility), median), median, mean, reference)

    index = brentq(lambda t: gain_at(t) - cost, median / (median + reference), 0.999)
    for utility in np.linspace(0.25, 0.95, 40):
        assert (gain_at(float(utility)) <= cost) == (utility >= index)


def test_probabilities_are_taken_by_their_odds_and_other_scores_as_logarithms() -> None:
    assert exponentials(np.array([0.5, 0.8])) == pytest.approx([0.25, 1.0])
    assert exponentials(np.array([-3.0, -1.0])) == pytest.approx([math.exp(-2), 1.0])
    assert exponentials(np.array([0.0, 1.0])) == pytest.approx([1e-12, 1.0], rel=1e-4)
    assert np.isfinite(exponentials(np.array([-1e6, 1e6]))).all()


def test_it_waits_for_its_least_and_for_an_answer() -> None:
    sure = scored([0.2, 0.3, 0.9] * 10)
    rule = Pandora(price=0.5, least=7)
    assert [rule.should_stop(sure[:n]) is not None for n in range(1, 10)] == [False] * 6 + [True] * 3
    assert rule.should_stop(scored([0.5] * 9, [None] * 9)) is None
    assert rule.should_stop(scored([math.nan] * 9)) is None


def test_a_dearer_sample_stops_earlier_and_equal_scores_stop_at_once() -> None:
    rng = np.random.default_rng(4)
    ends = []
    of = scored(rng.normal(size=300).tolist())
    for cost in (0.0003, 0.003, 0.03, 0.3):
        rule = Pandora(price=cost, least=5)
        ends.append(next((n for n in range(1, 301) if rule.should_stop(of[:n])), 301))
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > ends[-1]
    assert Pandora(least=5).should_stop(scored([0.4] * 5))


@pytest.mark.slow
@repeats(150, 1500, "problems")
def test_it_earns_almost_what_the_rule_earns_that_knows_the_law(problems: int) -> None:
    """Rewards have an exponential tail of the problem's own scale; the utility is the chance against the best of 100,
    less 0.002 each.
    """
    rng, cost, most = np.random.default_rng(11), 0.002, 100
    rule = Pandora(price=cost, least=8, horizon=most)
    earned = {"rule": [], "known": [], "all": [], "least": []}
    for _ in range(problems):
        scale = float(np.exp(rng.uniform(-1, 1.5)))
        values = 1 + scale * rng.exponential(size=most)
        values = np.where(rng.random(most) < 0.5, rng.random(most), values)  # half of the law lies below the median, 1
        reference = 1 + scale * math.log(most / 5)
        utility = values / (values + reference)
        running, paid = np.maximum.accumulate(utility), cost * np.arange(1, most + 1)
        of = scored(np.log(values).tolist())
        end = next((n for n in range(8, most) if rule.should_stop(of[:n])), most)
        index = [tail_gain(max(1.0, b), 1.0, scale, reference) <= cost for b in np.maximum.accumulate(values)]
        first = (index.index(True) if True in index else most - 1) + 1
        for name, count in (("rule", end), ("known", first), ("all", most), ("least", 8)):
            earned[name].append(running[count - 1] - paid[count - 1])
    means = {name: float(np.mean(values)) for name, values in earned.items()}
    error = {
        name: float(np.std(np.subtract(earned["known"], values))) / math.sqrt(problems)
        for name, values in earned.items()
    }
    assert means["rule"] >= means["known"] - 0.03 - 3 * error["rule"]  # what learning the law costs
    assert means["rule"] > means["all"] + 0.02 - 3 * error["all"]


@pytest.mark.parametrize(("parameter", "value"), [("price", 0), ("least", 1), ("horizon", 5), ("delta", 1)])
def test_a_parameter_out_of_range_is_refused(parameter: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{parameter} is {value}, but"):
        STOP_RULES.get("pandora")(**{parameter: value})
