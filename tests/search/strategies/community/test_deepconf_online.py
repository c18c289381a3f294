"""The oracles of DeepConf's online form (algorithm B6): what is stopped, what may vote, and when it is enough."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

import numpy as np
import pytest

from tests.support.candidates import ScoredSearch, candidates
from tests.support.runs import Solved, change_setup, check_books, make_run, solve_and_show
from tts.backends.base import Sampling
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.selections.deepconf import DeepConfidence
from tts.verifiers.base import Verifier
from tts.verifiers.confidence import Confidence
from tts.verifiers.function import FunctionVerifier

LANGUAGE = ToyLanguage(accuracy=0.6)
PROBLEM = "10 - 7 + 5 - 20 + 3"
GROUP = 6
LOWEST = Confidence(over="lowest", window=GROUP)
CONSTANT = FunctionVerifier(lambda problem, text: 0.5)


def run(plan: str, verifier: Verifier = LOWEST, seed: int = 0, budget: int = 500, most: int | None = None) -> Solved:
    made = make_run(PROBLEM, Budget(samples=budget), plan, ToyBackend(LANGUAGE), seed=seed, verifiers=verifier)
    end = solve_and_show(change_setup(made, sampling=Sampling(max_tokens=most)))
    assert end.solution.error is None
    check_books(end.search)
    return end


def texts(end: Solved) -> list[str]:
    return [c.trajectory.full_text for c in end.search.candidates]


def scores(end: Solved) -> Mapping[int, float]:
    return {c.index: c.scores["main"] for c in end.solution.candidates}


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 4])
def test_where_nothing_is_below_the_threshold_it_is_best_of_n(width: int) -> None:
    for seed in range(4):
        online = run(f"deepconf_online(n=9, warmup=3, consensus=2, tokens=4, width={width})", CONSTANT, seed)
        plain = run("best_of_n(n=9) | deepconf(keep=100)", CONSTANT, seed)
        assert texts(online) == texts(plain)
        assert (online.solution.answer, online.solution.confidence) == (
            plain.solution.answer,
            plain.solution.confidence,
        )
        assert online.solution.usage.generated_tokens == plain.solution.usage.generated_tokens


@pytest.mark.slow
def test_what_is_stopped_is_what_a_whole_trace_is_below_the_threshold_for() -> None:
    """The same votes as of whole traces, for fewer tokens: a lowest group that is too low in a part is too low in the
    whole.
    """
    saved = 0
    for seed in range(6):
        online = run("deepconf_online(n=24, warmup=8, keep=40, consensus=2, tokens=3)", seed=seed)
        whole = run("best_of_n(n=24) | deepconf(keep=40, among=8)", seed=seed)
        least = np.percentile([score for index, score in scores(whole).items() if index < 8], 60)
        kept = [c.trajectory.full_text for c in whole.search.candidates if scores(whole)[c.index] >= least]
        assert [text for i, text in enumerate(texts(online)) if scores(online)[i] >= least] == kept
        assert online.solution.answer == whole.solution.answer
        assert online.solution.confidence == pytest.approx(whole.solution.confidence, abs=1e-12)
        assert len(online.search.candidates) < 24
        saved += whole.solution.usage.generated_tokens - online.solution.usage.generated_tokens
    assert saved > 6 * 24


def test_a_trace_is_stopped_at_the_first_look_after_its_confidence_fell() -> None:
    end = run("deepconf_online(n=30, warmup=8, keep=40, consensus=2, tokens=3)")
    least = np.percentile([scores(end)[i] for i in range(8)], 60)
    stopped = [t for t in end.search.tree.nodes if t.node in end.search.tree.pruned]
    assert stopped
    for t in stopped:
        written = [logprob for piece in t.path for logprob in piece.logprobs]
        means = [float(np.mean(written[i : i + GROUP])) for i in range(len(written) - GROUP + 1)]
        assert t.num_tokens % 3 == 0
        assert t.num_tokens >= GROUP
        assert min(means) < math.log(least), "it was confident enough"
        assert all(mean > math.log(least) - 1e-9 for mean in means[:-3]), "it could have been stopped before"


def test_no_trace_is_stopped_before_its_first_group_is_full() -> None:
    long = Confidence(measure="logprob", over="lowest", window=10_000)
    assert len(texts(run("deepconf_online(n=12, warmup=4, consensus=2, tokens=2)", long))) == 12


def test_it_ends_when_one_answer_has_the_share_of_the_vote() -> None:
    agree = FunctionVerifier(lambda problem, text: 0.9 if "A: -9" in text else 0.0 if "A:" in text else 1.0)
    end = run("deepconf_online(n=200, warmup=6, keep=100)", agree)
    assert end.solution.stopped_by == "consensus"
    first = next(i for i, text in enumerate(texts(end)) if "A: -9" in text)  # the others weigh nothing
    assert len(texts(end)) == max(6, first + 1) < 200
    assert end.solution.answer == "-9"
    never = run("deepconf_online(n=12, warmup=6, keep=100, consensus=1.01)", agree)
    assert (never.solution.stopped_by, len(texts(never))) == ("done", 12)


def test_unknown_scores_stop_nothing_and_leave_a_majority() -> None:
    unknown = FunctionVerifier(lambda problem, text: math.nan)
    end = run("deepconf_online(n=9, warmup=3, consensus=2)", unknown)
    assert len(texts(end)) == 9
    assert end.solution.answer == run("best_of_n(n=9) | majority").solution.answer


def test_left_out_n_is_what_the_budget_pays_and_stopped_traces_are_paid() -> None:
    end = run("deepconf_online(warmup=4, consensus=2, tokens=3)", budget=40)
    assert end.solution.stopped_by == "budget: samples"
    assert end.solution.usage.samples == 40
    assert len(texts(end)) < 40


def test_the_length_of_a_trace_is_bounded_as_that_of_a_sample() -> None:
    for most in (5, 7, 12):
        online = run("deepconf_online(n=4, warmup=1, consensus=2, tokens=4)", CONSTANT, most=most)
        assert texts(online) == texts(run("best_of_n(n=4)", CONSTANT, most=most))


def test_the_first_candidates_set_the_percentile() -> None:
    of = candidates(["a", "b", "c", "c"])
    search = ScoredSearch([0.5, 0.6, 0.55, 0.4], of)
    selected = asyncio.run(DeepConfidence(keep=100, among=2).select(of, search))
    assert [c.weight for c in sorted(selected.ranked, key=lambda c: c.index)] == [0.5, 0.6, 0.55, 0.0]
