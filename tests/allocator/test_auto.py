"""`auto` with what tells of difficulty beside votes: a guess, a mean, a probe, scores that are unknown, a model of
other problems.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.allocator.test_performance import COVERAGE, SIZES, model
from tts.allocator.auto import Auto
from tts.allocator.difficulty import Population
from tts.allocator.evidence import Evidence
from tts.allocator.gauges import Gauge, PromptProbe
from tts.allocator.performance import PilotedCurve
from tts.allocator.values import ProblemStates
from tts.backends.base import Reply
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.solver.solver import Solver
from tts.types import Candidate, Trajectory
from tts.verifiers.toy import ToyVerifier

LANGUAGE = ToyLanguage(accuracy=0.8, mute=0.05)
HARD = [f"{i} + 4 - 2 + 7 - 5 + 9" for i in range(24)]


class HiddenBackend(ToyBackend):
    """The toy, with a hidden state that says how long the prompt is."""

    caps = dataclasses.replace(ToyBackend.caps, hidden="native")

    async def hidden(self, handles):
        return [Reply(np.array([float(len(handle.steps)), 1.0], np.float32), 1) for handle in handles]


def samples(strategy, problems, backend=None, verifiers=None, budget=64):
    with Solver(backend or ToyBackend(LANGUAGE), verifiers or {}, task="arithmetic", strategy=strategy) as one:
        return [one.solve(problem, Budget(samples=budget), seed=1) for problem in problems]


def drawn(ends):
    return sum(end.usage.samples for end in ends)


def candidate(kind):
    end = Trajectory(None, "", (), (), "finished", 0, 0, 1, 1)
    return Candidate(end, None if kind is None else str(kind), kind)


def votes(candidates, weights=None):
    found = Evidence.of(candidates, weights)
    assert math.isnan(found.logprob)
    assert math.isnan(found.probe)
    return dataclasses.replace(found, logprob=0.0, probe=0.0)  # since NaN is not equal to itself


def counted(*counts):
    return Evidence(*counts, logprob=0.0, probe=0.0)


def test_weights_count_as_shares_of_votes():
    candidates = [candidate(kind) for kind in (0, 0, 1, None)]
    assert votes(candidates) == counted(4, 2, 1, 2)
    assert votes(candidates, [0.5] * 4) == counted(4, 2, 1, 2)
    assert votes(candidates, [0.1, 0.1, 1.0, 0.1]) == counted(4, 3, 1, 2)
    # it is doubted like the others, if less
    assert votes(candidates, [0.01, 0.01, 0.1, 0.01]) == counted(4, 1, 1, 2)
    assert votes(candidates, [0.0] * 4) == counted(4, 1, 0, 2)  # nobody believes any of them
    assert votes([candidate(None)] * 3, [0.5] * 3) == counted(3, 0, 0, 0)
    assert votes([]) == counted()


@pytest.mark.slow
def test_served_one_at_a_time_problems_keep_to_their_mean():
    few, many = (samples(f"auto(mean={mean}) | majority", HARD[:8]) for mean in (4, 16))
    assert 8 < drawn(few) < 8 * 8
    assert 2 * drawn(few) < drawn(many) < 8 * 32


@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_what_you_expect_of_problems_is_what_votes_are_read_under(rate):
    at = ProblemStates.of(np.ones(1, np.int64), 1.0, leader=1)
    assert Auto(expected=rate, certainty=50).values().chance(at)[0] == pytest.approx(rate, abs=0.02)
    assert Auto(expected=rate, certainty=50).values(checked=True).worth(ProblemStates.of([0], 1.0)).rate[
        0
    ] == pytest.approx(rate, abs=0.02)


def test_scores_that_are_all_unknown_change_nothing():
    plain = samples("auto(price=0.003) | weighted", HARD[:3], verifiers={"main": lambda problem, text: math.nan})
    without = samples("auto(price=0.003) | majority", HARD[:3])
    assert [end.usage.samples for end in plain] == [end.usage.samples for end in without]


def fitted(tmp_path, **parts):
    name = str(tmp_path / "model.json")
    dataclasses.replace(model(**{"best_of_n | majority": COVERAGE}), model="toy", task="arithmetic", **parts).save(name)
    return name


def test_a_probe_of_the_prompt_is_read_before_any_sample_and_charged(tmp_path):
    gauge = Gauge(0.0, 1.0, 0.05, 0.0, 0.0, 1.0)
    # one step is easy, five are not
    by_length = {"gauges": {"probe": gauge}, "probe": PromptProbe(np.array([-0.1, 0.0]), 1.0)}
    name = fitted(tmp_path, **by_length)
    short, long = (
        samples(f"auto(model={name!r}, price=0.002) | majority", [text], HiddenBackend(LANGUAGE))[0]
        for text in ("1 + 1", HARD[0])
    )
    assert [call.kind for call in short.trace.calls][:2] == ["open", "hidden"]
    assert short.usage.prompt_tokens > samples("auto | majority", ["1 + 1"])[0].usage.prompt_tokens
    assert short.usage.samples < long.usage.samples
    blind = samples(f"auto(model={name!r}, price=0.002) | majority", ["1 + 1"])[0]
    assert any("probe is left out: the backend shows no hidden states" in line for line in blind.warnings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "foreign"), [(Population.beta(0.97, 30.0, hopeless=0.0), True), (Population.beta(), False)]
)
def test_a_model_of_other_problems_is_told_by_how_votes_agree(tmp_path, population, foreign):
    name = fitted(tmp_path, population=population)
    with Solver(
        ToyBackend(LANGUAGE), {}, task="arithmetic", strategy=f"auto(model={name!r}, pilots=4) | majority"
    ) as one:
        ends = one.solve_many(HARD, Budget(samples=240), seed=1)
    assert all(any("not like those of the problems" in line for line in end.warnings) == foreign for end in ends)


def searching(tmp_path):
    """Return a plan by a model in which a search without a width, a bound or a goal is worth far more than samples."""
    curves = {"best_of_n | weighted": 0.2 * COVERAGE, "a_star | best": 0.9 * np.ones_like(COVERAGE) * (SIZES >= 8)}
    name = str(tmp_path / "search.json")
    dataclasses.replace(model(**curves), model="toy", task="arithmetic", verifiers={"main": "toy(error=0.1)"}).save(
        name
    )
    return f"auto(model={name!r}, pilots=1)"


@pytest.mark.slow
def test_a_search_that_only_a_budget_ends_takes_what_it_was_granted_of_a_shared_total(tmp_path):
    with Solver(
        ToyBackend(LANGUAGE), {"main": ToyVerifier(error=0.1)}, task="arithmetic", strategy=searching(tmp_path)
    ) as one:
        ends = one.solve_many(HARD, Budget(tokens=2400 * len(HARD)), seed=1)
    spent = [end.usage.tokens for end in ends]
    assert max(spent) < 0.2 * 2400 * len(HARD)  # else three problems take a third of the total each
    assert min(spent) > 400
    assert all("a_star" in " ".join(end.trace.reasons) for end in ends)


@pytest.mark.slow
def test_a_search_that_only_a_budget_ends_takes_what_it_was_granted_of_an_own_budget(tmp_path):
    with Solver(
        ToyBackend(LANGUAGE), {"main": ToyVerifier(error=0.1)}, task="arithmetic", strategy=searching(tmp_path)
    ) as one:
        wide, narrow = (one.solve(HARD[0], Budget(tokens=tokens), seed=1) for tokens in (20_000, 300))
    assert wide.usage.tokens < 2400
    assert wide.stopped_by.startswith("settled")
    assert 200 < narrow.usage.tokens <= 300


@pytest.mark.slow
def test_problems_that_nobody_can_solve_return_the_rest_or_spend_all_as_the_price_says():
    for price, least, most in ((0.01, 6, 500), (0.0, 600, 600)):
        with Solver(
            ToyBackend(ToyLanguage(accuracy=0.8, mute=1.0)), {}, task="arithmetic", strategy=f"auto(price={price})"
        ) as one:
            ends = one.solve_many(HARD[:6], Budget(samples=600), seed=1)
        assert [end.answer for end in ends] == [None] * 6
        assert least <= drawn(ends) <= most


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean": 0}, "mean is 0"),
        ({"expected": 1.0}, r"expected is 1\.0"),
        ({"certainty": -1}, "certainty"),
        ({"mean": 4, "price": 0.001}, r"price is 0\.001 and mean 4, but mean stands in place of a price"),
        ({"certainty": 4.0}, r"certainty is 4\.0, but it belongs to expected, which is not given"),
        ({"verifier": ""}, "verifier is ''"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        Auto(**given)


@pytest.mark.parametrize(
    ("strategy", "verifiers", "message"),
    [
        (
            "auto(verifier='judge')",
            {"main": "toy"},
            "auto reads the scores of the role 'judge', but no verifier has it .hint: known: main",
        ),
        (
            "auto(verifier='main')",
            {},
            "auto reads the scores of the role 'main', but no verifier has it .hint: give a verifier",
        ),
        (
            "auto(verifier='main') | majority",
            {"main": "toy"},
            "the role 'main', but the selection majority asks for none",
        ),
    ],
)
def test_a_verifier_that_nobody_could_read_is_refused(strategy, verifiers, message):
    with pytest.raises(ConfigError, match=message):
        samples(strategy, HARD[:1], verifiers=verifiers)


def test_a_role_is_read_and_weighs_the_votes():
    (end,) = samples("auto(verifier='judge')", HARD[:1], verifiers={"judge": "toy"})
    assert end.strategy == "auto(verifier='judge') | weighted(verifier='judge')"
    assert end.usage.verifier_calls == end.usage.samples > 0


class CountedVerifier(ToyVerifier):
    """The toy's, which counts what it scores."""

    scored = 0

    async def score(self, problem, trajectories, calls):
        type(self).scored += len(trajectories)
        return await super().score(problem, trajectories, calls)


def test_roles_that_the_selection_does_not_ask_are_not_read():
    CountedVerifier.scored = 0
    verifiers = {"main": CountedVerifier(), "judge": "toy"}
    (end,) = samples("auto | weighted(verifier='judge')", HARD[:1], verifiers=verifiers)
    assert end.strategy == "auto(verifier='judge') | weighted(verifier='judge')"
    assert CountedVerifier.scored == 0
    assert end.usage.verifier_calls == end.usage.samples > 0
    (end,) = samples("auto | majority", HARD[:1], verifiers=verifiers)
    assert (end.usage.verifier_calls, CountedVerifier.scored) == (0, 0)
    (end,) = samples("auto | weighted", HARD[:1], verifiers=verifiers)
    assert CountedVerifier.scored == end.usage.samples > 0


def test_a_mean_is_refused_where_problems_share_a_total():
    with Solver(ToyBackend(LANGUAGE), {}, task="arithmetic", strategy="auto(mean=4)") as one:
        with pytest.raises(ConfigError, match=r"mean.*4,.*budget.*total"):
            one.solve_many(HARD[:3], Budget(samples=12))
        assert len(one.solve_many(HARD[:3], each=Budget(samples=12))) == 3


def test_a_probe_for_which_there_is_no_time_is_left_out_with_a_warning(tmp_path):
    now = [0.0]

    class SlowBackend(HiddenBackend):
        async def open(self, prompts):
            now[0] += 100
            return await super().open(prompts)

    name = fitted(
        tmp_path, gauges={"probe": Gauge(0.0, 1.0, 0.1, 0.0, 0.0, 1.0)}, probe=PromptProbe(np.array([0.1, 0.0]), 0.5)
    )
    with Solver(
        SlowBackend(LANGUAGE), {}, task="arithmetic", strategy=f"auto(model={name!r})", clock=lambda: now[0]
    ) as one:
        end = one.solve(HARD[0], Budget(seconds=50, samples=8))
    assert "the performance model's probe is left out: budget: seconds" in end.warnings
    assert [call.kind for call in end.trace.calls][:1] == ["open"]


def test_auto_begins_with_a_search_where_that_reaches_more_than_its_pilots(tmp_path):
    """The choice is by the budget alone, before anything is drawn; `pilots=` and a budget at which nothing is known
    keep the pilots.
    """
    curves = {"best_of_n | majority": COVERAGE * 0.1, "beam(n=2) | weighted": COVERAGE}
    known = dataclasses.replace(model(**curves), piloted=PilotedCurve(np.array([8.0, 32.0]), np.array([0.0, 1.0])))
    path = tmp_path / "known.json"
    known.save(path)
    first = {}
    for tokens in (100, 160, 640):
        for pilots in ("", ", pilots=1"):
            with Solver(
                ToyBackend(LANGUAGE), ToyVerifier(), task="arithmetic", strategy=f"auto(model={str(path)!r}{pilots})"
            ) as one:
                found = one.solve(HARD[0], Budget(tokens=tokens), seed=1)
                assert found.answer is not None
                assert found.usage.tokens <= tokens
                first[tokens, pilots] = found.trace.reasons[0]
    assert first[160, ""].startswith(
        "after 0 samples (0 agree): beam(n=2) | weighted: at this budget it reaches more than pilots"
    )
    for place in ((160, ", pilots=1"), (100, ""), (640, "")):
        assert "pilots, to see how hard it is" in first[place], place


@pytest.mark.parametrize("plan", ["rebase | weighted", "beam | weighted", "a_star | best"])
def test_a_search_from_the_start_is_the_one_that_runs_without_auto(tmp_path, plan):
    known = dataclasses.replace(
        model(**{"best_of_n | majority": COVERAGE * 0.1, plan: COVERAGE}),
        piloted=PilotedCurve(np.array([8.0, 32.0]), np.array([0.0, 1.0])),
    )
    path = tmp_path / "known.json"
    known.save(path)
    texts = []
    for strategy in (f"auto(model={str(path)!r}) | weighted", f"{plan.partition(' | ')[0]} | weighted"):
        with Solver(ToyBackend(LANGUAGE), ToyVerifier(), task="arithmetic", strategy=strategy) as one:
            found = one.solve(HARD[0], Budget(tokens=160), seed=1)
        texts.append([c.trajectory.full_text for c in sorted(found.candidates, key=lambda c: c.index)])
    assert texts[1]
    assert texts[0][: len(texts[1])] == texts[1]
