"""How members become one score, what an ensemble refuses, and that each member is booked at its own price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.pair import home, record, shared_engine  # noqa: F401 - home is a fixture
from tests.verifiers.paths import NoCalls, path, scored, wholes
from tts.errors import CapabilityError, ConfigError
from tts.types import Problem
from tts.verifiers.base import StepScores, Verifier, traits_of
from tts.verifiers.confidence import Confidence
from tts.verifiers.ensemble import Ensemble, weighted_moments
from tts.verifiers.heads import Probe, ProcessVerifier
from tts.verifiers.judge import Judge
from tts.verifiers.self_evaluation import SelfEvaluation

NAN = math.nan


@dataclass(frozen=True)
class Says(tts.Verifier):
    """Scores every path alike."""

    said: StepScores
    range: tuple[float, float] = (0.0, 1.0)
    model: str = "policy"
    oracle: bool = False
    name: str = "says"
    needs: tuple[str, ...] = ()

    async def score(self, problem: Problem, trajectories: Any, calls: Any) -> list[StepScores]:
        assert self.oracle or problem.answer is None, "only an oracle may see the answer"
        return [self.said] * len(trajectories)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 3


class Parts(NoCalls):
    def part(self, verifier: Verifier) -> Parts:
        return self


def whole(score: float, bounds: tuple[float, float] = (0.0, 1.0)) -> Says:
    return Says(StepScores(whole=score), bounds)


def of(*scores: float, **options: Any) -> float:
    members = tuple(whole(score) for score in scores)
    return wholes(Ensemble(members=members, **options), path([-1.0]), calls=Parts())[0]


def test_the_mean_by_weights_and_the_least() -> None:
    assert of(0.2, 0.8) == pytest.approx(0.5)
    assert of(0.2, 0.8, weights=(3, 1)) == pytest.approx(0.35)
    assert of(0.2, 0.8, 0.5, how="min") == 0.2
    assert of(0.2, 0.8, 0.5, how="min", weights=(0, 1, 1)) == 0.5


def test_disagreement_is_taken_off() -> None:
    assert of(0.4, 0.8, caution=1.0) == pytest.approx(0.4)
    assert of(0.6, 0.6, caution=5.0) == pytest.approx(0.6), "where they agree it costs nothing"
    assert of(0.1, 0.9, caution=3.0) == 0.0
    mean, spread = weighted_moments(np.array([[0.2], [0.6]]), np.array([3.0, 1.0]))
    assert mean[0] == pytest.approx(0.3)
    assert spread[0] == pytest.approx(math.sqrt(0.75 * 0.01 + 0.25 * 0.09))


def test_one_that_is_unknown_is_left_out() -> None:
    assert of(NAN, 0.8) == 0.8
    assert of(NAN, 0.8, 0.4, how="min") == 0.4
    assert of(NAN, 0.8, weights=(1, 0)) != of(NAN, 0.8), "a member without a weight says nothing"
    assert math.isnan(of(NAN, NAN))
    assert math.isnan(of(NAN, NAN, how="min"))


def test_scales_are_made_one() -> None:
    members = (whole(-0.5, (-1.0, 1.0)), whole(0.0, (-math.inf, math.inf)), whole(3.0, (0.0, 4.0)))
    assert wholes(Ensemble(members=members), path([-1.0]), calls=Parts()) == [pytest.approx((0.25 + 0.5 + 0.75) / 3)]


def test_steps_are_combined_where_all_have_them() -> None:
    first, second = Says(StepScores(steps=(0.2, 0.6))), Says(StepScores(steps=(0.4, NAN)))
    [both] = scored(Ensemble(members=(first, second)), path([-1.0]), calls=Parts())
    assert both.steps == (pytest.approx(0.3), pytest.approx(0.6))
    [mixed] = scored(Ensemble(members=(first, whole(0.2))), path([-1.0]), calls=Parts())
    assert mixed == StepScores(whole=pytest.approx(0.4))  # type: ignore[arg-type]


def test_it_says_what_its_members_say() -> None:
    ensemble = Ensemble(members=("process", "self_evaluation", Confidence(measure="top", odds=(1.0, 0.0)), "checker"))
    assert ensemble.needs == ("value", "next_logprobs", "tops")
    assert ensemble.oracle
    filled = ensemble.with_members([SelfEvaluation(question="s?", yes="y", no="n"), ProcessVerifier()])
    assert filled.bound(100, 7) == 2 + 7
    assert filled.prompt_bound(11) == 11


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"members": ()}, "members is ()"),
        (
            {"members": ("procss",)},
            "members has 'procss': verifier is 'procss', but no verifier has that name",
        ),
        (
            {"members": (Says(StepScores(whole=1.0)), Says(StepScores(whole=1.0), model="judge"))},
            "but must ask one model, not judge and policy",
        ),
        ({"weights": (1.0,)}, "weights is (1.0,), but must be 3 numbers of at least 0"),
        ({"weights": (0, 0, 0)}, "weights is (0, 0, 0), but must be 3 numbers"),
        ({"how": "max"}, "how is 'max', but must be 'mean', 'min' or 'log_odds'"),
        ({"caution": -1}, "caution is -1, but must be a number of at least 0"),
        ({"caution": 0.5, "how": "min"}, "caution is 0.5, but must be 0 with how='min'"),
    ],
)
def test_what_means_nothing_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Ensemble(**parameters)
    assert message in caught.value.cause


def test_log_odds_are_summed_and_scores_without_bounds_are_taken_as_they_are() -> None:
    """A path of log-probability -2 and a process score of .8: ln(.8 / .2) - 2."""
    members = (whole(0.8), whole(-2.0, (-math.inf, 0.0)))
    ensemble = Ensemble(members=members, how="log_odds")
    assert ensemble.range == (-math.inf, math.inf)
    assert Ensemble(members=members[:1]).range == (0.0, 1.0)
    assert wholes(ensemble, path([-1.0]), calls=Parts()) == [pytest.approx(math.log(4) - 2)]
    half = Ensemble(members=members, how="log_odds", weights=(1.0, 0.5))
    assert wholes(half, path([-1.0]), calls=Parts()) == [pytest.approx(math.log(4) - 1)]
    assert of(0.9, 0.9, how="log_odds") == pytest.approx(2 * math.log(9))
    assert of(1.0, 0.5, how="log_odds") == pytest.approx(math.log(1e6 - 1))  # certainty is bounded
    assert math.isnan(of(0.5, NAN, how="log_odds"))
    third = whole(3.0, (1.0, 5.0))  # a finite range is mapped to [0, 1] first
    assert wholes(Ensemble(members=(third,), how="log_odds"), path([-1.0]), calls=Parts()) == [pytest.approx(0.0)]


@pytest.mark.slow
def test_each_member_is_booked_at_its_own_price() -> None:
    """A process model and the policy asked about itself compute tokens of different models."""
    problem = Problem("3 + 4 - 2", task="arithmetic")
    budget = tts.Budget(samples=3, tokens=4000)
    spent: dict[str, Any] = {}
    parts = {"process": ProcessVerifier(), "self": SelfEvaluation(), "probe": Probe()}
    for name, verifier in {**parts, "all": Ensemble(members=tuple(parts.values()))}.items():
        with tts.Solver(record(), verifier) as solver:
            spent[name] = solver.solve(problem, budget, strategy="best_of_n(n=3) | best").usage
    alone = [spent[name] for name in parts]
    generated = spent["probe"].flops
    assert spent["all"].verifier_tokens == sum(one.verifier_tokens for one in alone) > 0
    assert spent["all"].flops - generated == sum(one.flops - generated for one in alone)
    assert spent["self"].flops > generated
    assert spent["process"].flops > generated


def test_a_member_that_does_not_fit_is_refused_before_anything_is_spent() -> None:
    ensemble = Ensemble(members=("process", Probe(head="nothing")))
    with pytest.raises(CapabilityError, match="'nothing'"):
        tts.solve(
            Problem("3 + 4", task="arithmetic"),
            100,
            model=shared_engine(),
            strategy="best_of_n(n=2) | best",
            verifier=ensemble,
        )


def test_members_that_compare_give_the_mean_of_their_verdicts() -> None:
    """The first member prefers 7, the second 8, and the third cannot compare: weights decide."""

    def model(ask: tts.Ask) -> str:
        asked = str(ask.prompt)
        if "better" not in asked:
            return f"The answer is {7 + ask.seed % 2}."
        wanted = "is 7" if "SEVEN" in asked else "is 8"
        other = "is 8" if wanted == "is 7" else "is 7"
        return f'{{"better": "{"A" if asked.find(wanted) < asked.find(other) else "B"}"}}'

    seven = Judge(votes=1, pair_question="SEVEN: which is better?")
    eight = Judge(votes=1, pair_question="EIGHT: which is better?")
    for weights, answer in (((3.0, 1.0, 9.0), "7"), ((1.0, 3.0, 9.0), "8")):
        both = Ensemble(members=(seven, eight, whole(0.5)), weights=weights)
        found = tts.solve(
            "What is 3 + 4?",
            tts.Budget(samples=90),
            backend=model,
            task="math",
            verifier=both,
            strategy="best_of_n(n=4) | pivot",
        )
        assert found.answer == answer
    assert traits_of(Ensemble(members=(whole(0.5),))).comparison is None


@pytest.mark.parametrize("how", ["mean", "min"])
def test_a_member_without_a_scale_has_no_mean_with_others(how: str) -> None:
    members = (Confidence(measure="logprob"), whole(0.5))
    with pytest.raises(ConfigError, match="no scale"):
        tts.solve("3 + 4", 400, model="toy", verifier=Ensemble(members=members, how=how), strategy="best_of_n(n=2)")
