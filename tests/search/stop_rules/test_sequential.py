"""The oracles of sequential stop rules: exact error rates by counting all ways of votes, integrals, and draws from
stated models.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from tests.support.candidates import candidates
from tests.support.repeats import repeats
from tests.support.runs import make_run, solve_and_show
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.search.stop_rules.cges import CGES, answer_posterior
from tts.search.stop_rules.mixture_sprt import MixtureSPRT, log_mixture_ratio
from tts.search.stop_rules.posterior import Posterior
from tts.search.stop_rules.reasc import ReASC
from tts.search.stop_rules.sprt import SPRT
from tts.statistics import wilson
from tts.types import Candidate
from tts.verifiers.toy import ToyVerifier

TESTS = (
    SPRT(share=0.75, beta=0.05),
    SPRT(share=0.9, alpha=0.1, beta=0.2),
    MixtureSPRT(prior=1, beta=0.05),
    MixtureSPRT(prior=20, beta=0.1),
)


def votes(*counts: int) -> list[Candidate]:
    return candidates([answer for answer, count in zip("abcdef", counts, strict=False) for _ in range(count)])


def scored(answers: Sequence[str | None], scores: Sequence[float]) -> list[Candidate]:
    return [replace(c, scores={"main": score}) for c, score in zip(candidates(answers), scores, strict=True)]


def ends(rule: StopRule, chances: Sequence[float], most: int) -> dict[str, float]:
    """Return the exact chance that a rule ends by each reason and leader within so many votes, by counting all ways of
    votes.
    """
    found: dict[str, float] = defaultdict(float)
    verdicts: dict[tuple[int, ...], StopDecision | None] = {}
    reached = {(0,) * len(chances): 1.0}
    for _ in range(most):
        after: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, chance in reached.items():
            for i, share in enumerate(chances):
                after[(*counts[:i], counts[i] + 1, *counts[i + 1 :])] += chance * share
        reached = {}
        for counts, chance in after.items():
            key = tuple(sorted(counts, reverse=True))
            if key not in verdicts:
                verdicts[key] = rule.should_stop(votes(*key))
            if (verdict := verdicts[key]) is None:
                reached[counts] = chance
            elif verdict.reason.endswith("no difference"):
                found["no difference"] += chance
            else:
                found["abcdef"[int(np.argmax(counts))]] += chance
    return found


@pytest.mark.parametrize("rule", TESTS, ids=str)
@pytest.mark.parametrize(
    "chances", [(0.5, 0.5), (0.6, 0.4), (0.4, 0.3, 0.3), (1 / 3, 1 / 3, 1 / 3), (0.3, 0.25, 0.25, 0.2)]
)
def test_a_sequential_test_errs_at_most_as_often_as_it_states(
    rule: SPRT | MixtureSPRT, chances: tuple[float, ...]
) -> None:
    found = ends(rule, chances, 40 if len(chances) < 4 else 24)
    bound = (len(chances) - 1) * rule.alpha / (1 - rule.beta)
    likeliest = max(chances)
    wrong = sum(found[name] for name, chance in zip("abcdef", chances, strict=False) if chance < likeliest)
    assert wrong <= bound
    if chances.count(likeliest) > 1:  # answers that are equally likely: each is told from another one as seldom
        assert all(found[name] <= bound for name in "ab")


@pytest.mark.parametrize("rule", [one for one in TESTS if isinstance(one, SPRT)], ids=str)
def test_it_seldom_finds_no_difference_where_there_is_one(rule: SPRT) -> None:
    found = ends(rule, (rule.share, 1 - rule.share), 60)
    assert found["no difference"] <= rule.beta / (1 - rule.alpha)
    assert found["a"] >= 1 - rule.beta - rule.alpha - 0.01


def test_the_parameters_of_the_paper_are_a_lead_of_three_and_bound_nothing() -> None:
    consol = [(SPRT(preset="consol"), 0.949976), (MixtureSPRT(preset="consol"), 0.94994)]
    for rule, beta in consol:
        for second in range(12):
            stops = [lead for lead in range(12) if rule.should_stop(votes(second + lead, second))]
            assert stops[0] == 3
        assert rule.alpha / (1 - beta) > 0.99
        wrong = ends(rule, (0.4, 0.3, 0.3), 40)
        assert wrong["b"] + wrong["c"] > 0.2  # and so it errs often


@pytest.mark.slow
@pytest.mark.parametrize("chances", [(0.4, 0.3, 0.3), (0.6, 0.4)])
def test_the_defaults_bound_what_the_parameters_of_the_paper_do_not(chances: tuple[float, ...]) -> None:
    for rule, written in ((SPRT(), SPRT(share=0.75, beta=0.05)), (MixtureSPRT(), MixtureSPRT(prior=1.0, beta=0.05))):
        found, same = ends(rule, chances, 40), ends(written, chances, 40)
        assert found == same
        assert sum(found[name] for name in "bc") <= (len(chances) - 1) * 0.05 / 0.95


def test_a_parameter_that_is_given_stands_before_its_preset() -> None:
    paper = SPRT(preset="consol", share=0.9)
    assert str(paper) == "sprt(preset='consol', share=0.9)"
    assert [paper.should_stop(votes(n)) is None for n in (0, 1)] == [True, False]
    with pytest.raises(ConfigError, match=r"preset.*'wald',.*'bounded'"):
        SPRT(preset="wald")
    with pytest.raises(ConfigError, match=r"alpha is 0\.1"):
        SPRT(preset="consol", alpha=0.1)


def test_counts_that_are_stated() -> None:
    for rule, equal in ((SPRT(), 8), (MixtureSPRT(), 7)):
        assert rule.should_stop(votes(equal - 1)) is None
        assert rule.should_stop(votes(equal)) == StopDecision(rule.registered_as)


@given(a=st.integers(0, 60), b=st.integers(0, 60), prior=st.sampled_from([0.5, 1.0, 3.0, 40.0]))
@settings(deadline=None)
def test_the_mixture_ratio_is_the_integral(a: int, b: int, prior: float) -> None:
    def law(p: float) -> float:
        return math.exp((prior - 1) * math.log(p * (1 - p))) if 0 < p < 1 else 0.0

    def likelihood(p: float) -> float:
        return law(p) * math.exp(a * math.log(2 * p) + b * math.log(2 * (1 - p))) if 0 < p < 1 else 0.0

    top = integrate.quad(likelihood, 0.5, 1, limit=200)[0] / integrate.quad(law, 0.5, 1, limit=200)[0]
    assert log_mixture_ratio(a, b, prior) == pytest.approx(math.log(top), abs=1e-5)


def test_a_large_prior_is_computed_without_loss() -> None:
    # near one half the ratio is exp(2 delta lead), with delta the mean distance from one half: sqrt(1 / (4 pi prior))
    prior = 1e6
    for lead in (1, 2, 3, 5):
        assert log_mixture_ratio(lead, 0, prior) == pytest.approx(
            2 * lead * math.sqrt(1 / (4 * math.pi * prior)), rel=2e-3
        )


@pytest.mark.parametrize("parameters", [{"alpha": 0.6, "beta": 0.5}, {"alpha": 0.0}, {"beta": 1.0}])
def test_error_rates_of_no_test_are_refused(parameters: dict[str, float]) -> None:
    for kind in (SPRT, MixtureSPRT):
        with pytest.raises(ConfigError):
            kind(**parameters)
    with pytest.raises(ConfigError, match="share"):
        SPRT(share=0.5)


# Confidence -----------------------------------------------------------------------------------------------------------


def by_hand(kinds: Sequence[int], scores: Sequence[float], answers: int) -> dict[int, float]:
    """Return the posterior over all possible answers, one product for each."""
    products = {
        answer: math.prod(
            score if kind == answer else (1 - score) / (answers - 1) for kind, score in zip(kinds, scores, strict=True)
        )
        for answer in range(answers)
    }
    return {answer: product / sum(products.values()) for answer, product in products.items()}


@given(data=st.data(), answers=st.integers(2, 5), count=st.integers(1, 8))
@settings(deadline=None)
def test_the_posterior_is_that_of_all_products(data: st.DataObject, answers: int, count: int) -> None:
    kinds = [data.draw(st.integers(0, answers - 1)) for _ in range(count)]
    scores = [data.draw(st.floats(0.01, 0.99)) for _ in range(count)]
    expected = by_hand(kinds, scores, answers)
    for kind, chance in answer_posterior(kinds, scores, answers).items():
        assert chance == pytest.approx(expected[kind], rel=1e-9)
    seen = list(dict.fromkeys(kinds))
    narrow = by_hand([seen.index(kind) for kind in kinds], scores, len(seen) + 1)
    for kind, chance in answer_posterior(kinds, scores).items():
        assert chance == pytest.approx(narrow[seen.index(kind)], rel=1e-9)


def test_the_figures_of_two_answers() -> None:
    assert answer_posterior([0, 1], [0.8, 0.6]) == pytest.approx({0: 2 / 3, 1: 1 / 4})
    assert answer_posterior([0], [0.8]) == pytest.approx({0: 0.8})
    assert answer_posterior([0] * 400, [0.9] * 400)[0] == pytest.approx(1.0)  # no overflow
    assert answer_posterior([0, 1], [1.0, 1.0])[0] == pytest.approx(0.5)


@pytest.mark.slow
def test_calibrated_independent_confidences_keep_the_threshold() -> None:
    rng = np.random.Generator(np.random.Philox(5))
    rule, possible = CGES(threshold=0.9, answers=4), 4
    stopped = wrong = 0
    for _ in range(1500):
        truth = int(rng.integers(possible))
        answers, scores = [], []
        for _ in range(30):
            scores.append(float(rng.uniform(0.2, 0.9)))
            right = rng.random() < scores[-1]
            answers.append("abcd"[truth if right else (truth + int(rng.integers(1, possible))) % possible])
            if (verdict := rule.should_stop(scored(answers, scores))) is not None:
                stopped, wrong = stopped + 1, wrong + (verdict.answer != "abcd"[truth])
                break
    assert stopped > 1400
    assert wilson(wrong, stopped, 0.999).low <= 0.1


def test_confidences_that_repeat_one_mistake_break_the_threshold() -> None:
    """The docstring denies a guarantee: candidates that err together are the reason."""
    rng = np.random.Generator(np.random.Philox(6))
    wrong = 0
    for _ in range(500):
        fine = rng.random() < 0.6  # all candidates of a problem are right, or all wrong: each is calibrated by itself
        verdict = next(v for n in range(1, 40) if (v := CGES().should_stop(scored("a" * n, [0.6] * n))) is not None)
        wrong += verdict.answer == "a" and not fine
    assert wilson(wrong, 500, 0.999).low > 0.05


def test_cges_reads_probabilities_alone() -> None:
    with pytest.raises(ConfigError, match="probabilities"):
        CGES().should_stop(scored("a", [3.2]))
    assert CGES().should_stop(scored(["a", None], [math.nan, 0.99])) is None
    assert CGES().should_stop(scored("aab", [0.9, 0.9, 0.5])) == StopDecision("cges", "a")


def test_without_weights_reasc_is_the_rule_of_the_posterior() -> None:
    rng = np.random.Generator(np.random.Philox(7))
    for _ in range(200):
        answers = [*rng.choice(list("abc"), int(rng.integers(1, 20)))]
        mine = ReASC().should_stop(scored(answers, rng.uniform(0, 1, len(answers)).tolist()))
        assert (mine is None) == (Posterior().should_stop(candidates(answers)) is None)
    assert ReASC(threshold=1.0).should_stop(scored("a" * 40, [5.0] * 40)) is None


@given(scores=st.lists(st.floats(-3, 3), min_size=1, max_size=10), data=st.data())
@settings(deadline=None)
def test_reasc_weighs_as_the_integral_says(scores: list[float], data: st.DataObject) -> None:
    answers = [data.draw(st.sampled_from("ab")) for _ in scores]
    rule = ReASC(mean=0.2, spread=1.5)
    weights = {
        name: sum(max(1.0, math.exp(0.7 * (s - 0.2) / 1.5)) for a, s in zip(answers, scores, strict=True) if a == name)
        for name in "ab"
    }
    first, second = max(weights.values()), min(weights.values())
    above, whole = (integrate.quad(lambda x: x**first * (1 - x) ** second, low, 1)[0] for low in (0.5, 0))
    if abs(above / whole - 0.95) > 1e-6:
        assert (rule.should_stop(scored(answers, scores)) is not None) == (above / whole >= 0.95)


def test_the_gate_takes_a_first_candidate_alone() -> None:
    rule = ReASC(gate=2.0)
    assert rule.should_stop(scored("a", [2.0])) == StopDecision("reasc: gate", "a")
    assert rule.should_stop(scored("ab", [1.0, 2.0])) is None
    assert rule.should_stop(scored([None], [9.0])) is None


def test_the_calibration_is_the_plain_way() -> None:
    scores, right = [1.0, 2.0, 3.0, 4.0, 5.0], [False, True, False, True, True]
    rule = ReASC.calibrate(scores, right, precision=0.9)
    assert (rule.mean, rule.spread) == pytest.approx((3.0, math.sqrt(2)))
    assert rule.gate == 4.0  # above the mean of the right ones, 11 / 3
    # the lowest score is precise, but below the mean of the right ones
    assert ReASC.calibrate(scores, [True] * 5).gate == 3.0
    assert ReASC.calibrate(scores, [False] * 5).gate is None
    with pytest.raises(ConfigError, match="scores"):
        ReASC.calibrate([1.0, math.nan], [True, False])


# In searches ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@repeats(2, 6, "seeds")
@pytest.mark.parametrize(
    "rule",
    ["sprt(share=0.9, beta=0.05)", "mixture_sprt(prior=1, beta=0.05)", "cges(answers=3)", "reasc(mean=0.3, gate=0.99)"],
)
def test_rows_that_run_ahead_never_change_where_it_stops(rule: str, seeds: int) -> None:
    backend = ToyBackend(ToyLanguage(accuracy=0.6, slips=((1, 0.5), (2, 0.5))))
    plan, verifiers = f"best_of_n(n=30) | {rule} | majority", {"main": ToyVerifier(error=0.2)}
    for seed in range(seeds):
        runs = [make_run("3 + 4", Budget(samples=30), plan, backend, seed=seed, verifiers=verifiers) for _ in range(3)]
        found = [solve_and_show(run, cap).solution for run, cap in zip(runs, (1, 7, None), strict=True)]
        assert len({(one.stopped_by, one.answer, len(one.candidates)) for one in found}) == 1
