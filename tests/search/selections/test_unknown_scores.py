"""An unknown score is neither 0 nor left out, and scores of any scale choose, for every selection that reads scores."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tts
from tests.support.candidates import ScoredSearch, candidates
from tts.errors import ConfigError
from tts.search.needs import needs_of
from tts.search.parts import SELECTIONS, STOP_RULES, Selected
from tts.search.selections.selective import Selective
from tts.verifiers.base import estimate_unknown, to_unit

NAN = math.nan
BY_SCORE = [
    name
    for name in SELECTIONS.names()
    if needs_of(SELECTIONS.get(name)()).verifiers and not needs_of(SELECTIONS.get(name)()).pairs
]
BY_PAIRS = [name for name in SELECTIONS.names() if needs_of(SELECTIONS.get(name)()).pairs]
RANGES = st.sampled_from([(0.0, 1.0), (0.0, 10.0), (-math.inf, math.inf), (0.0, math.inf), (-math.inf, 0.0)])


def chosen(
    name: str, answers: list[str | None], scores: Any, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[Selected, list[str]]:
    of = candidates(answers)
    search = ScoredSearch(scores, of, bounds)
    return asyncio.run(SELECTIONS.get(name)().select(of, search)), search.notes.warnings  # type: ignore[arg-type]


def test_every_selection_by_scores_is_tried() -> None:
    assert {"best", "weighted", "hierarchical", "deepconf", "borda", "majority_of_bests", "pessimistic", "rpc"} <= set(
        BY_SCORE
    )
    assert {"pairwise", "knockout", "league", "swiss", "pivot", "genselect"} <= set(BY_PAIRS)


@pytest.mark.parametrize("name", BY_SCORE)
def test_nine_unknown_scores_outvote_one_low_score(name: str) -> None:
    """One known score is the estimate of all others, so that nothing but votes tells the answers apart."""
    found, warnings = chosen(name, ["7"] * 3 + ["8"] + ["7"] * 6, [NAN] * 3 + [0.01] + [NAN] * 6)
    if name in {"codet", "rpc"}:  # unknown outcomes agree with nothing; equal texts count once
        assert found.confidence <= 0.5
    else:
        assert found.answers == ("7",)
        assert name == "best_of_majority" or found.confidence == pytest.approx(0.9)
    wanted = "4 of 4" if name == "best_of_majority" else "9 of 10"  # it asks about four of each frequent answer
    assert any(f"{wanted} scores unknown" in line for line in warnings)


@pytest.mark.parametrize("name", [*BY_SCORE, *BY_PAIRS])
@pytest.mark.parametrize("answers", ["778", "777"])
def test_without_a_known_score_the_majority_decides_and_nothing_is_sure(name: str, answers: str) -> None:
    found, warnings = chosen(name, list(answers), [NAN] * 3)
    assert found.answers == ("7",)
    if name in BY_SCORE:
        assert all(math.isnan(c.scores["main"]) for c in found.ranked)
    if name in BY_SCORE or answers == "778":  # nobody compares equal answers
        assert math.isnan(found.confidence)
        assert any("unknown" in line for line in warnings)


@given(
    name=st.sampled_from(BY_SCORE),
    scored=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.booleans()), min_size=2, max_size=9),
    bounds=RANGES,
)
@example(name="best_of_majority", scored=[("a", 0.0, True), ("b", 0.0, False), ("b", 0.0, False)], bounds=(0.0, 1.0))
def test_any_subset_may_be_unknown_at_any_scale(
    name: str, scored: list[tuple[str, float, bool]], bounds: tuple[float, float]
) -> None:
    """No answer is surer than the share of its candidates and of the others' weight allows."""
    low, high = bounds
    scale = 10.0 if high == 10 else 20.0 if math.isinf(high) else 1.0
    shift = -20.0 if math.isinf(low) and high == 0 else 0.0
    answers = [answer for answer, _, _ in scored]
    scores = [shift + scale * score if is_known else NAN for _, score, is_known in scored]
    found, warnings = chosen(name, answers, scores, bounds)  # type: ignore[arg-type]
    assert set(found.answers) <= set(answers)
    num_unknown = sum(map(math.isnan, scores))
    assert any("unknown" in line for line in warnings) == (num_unknown > 0 and name != "best_of_majority") or (
        name in ("best_of_majority", "codet")
    )
    asked = [c.scores.get("main", NAN) for c in found.ranked]  # best_of_majority asks about frequent answers alone
    if num_unknown == len(scores) or (name == "best_of_majority" and all(map(math.isnan, asked))):
        assert math.isnan(found.confidence)
    else:
        assert -1e-9 <= found.confidence <= 1 + 1e-9


@pytest.mark.parametrize("name", ["best", "weighted", "hierarchical", "pessimistic", "borda", "majority_of_bests"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 17.0, 1e6])
def test_scores_without_a_scale_count_by_their_ranks(name: str, scale: float) -> None:
    """So the answer of many confident candidates beats that of as many doubtful ones, whatever the numbers are."""
    scores = [scale * (1 + 0.01 * i) for i in (9, 1, 8, 2, 7, 3)]
    found, _ = chosen(name, list("abacab"), scores, (0.0, math.inf))
    assert found.answers == ("a",)
    same, _ = chosen(name, list("abacab"), [score * 3 for score in scores], (0.0, math.inf))
    assert same.confidence == pytest.approx(found.confidence)


def test_self_certainty_on_a_large_vocabulary_is_no_plain_vote() -> None:
    """Laws of 150,000 tokens have certainties from 9 to 12, which the logistic function would make 1."""
    rng = np.random.default_rng(0)
    size = 151_936
    certainties: list[float] = []
    for concentration in (8.0, 4.0, 1.5, 0.7):
        head = np.exp(-concentration * np.arange(20))
        rest = 10 ** -rng.uniform(3, 6)
        law = np.r_[head / head.sum() * (1 - rest), np.full(size - 20, rest / (size - 20))]
        certainties.append(float(-np.mean(np.log(size * law))))
    assert min(certainties) > 5
    units = to_unit(np.array(certainties), (0.0, math.inf))
    assert np.ptp(units) > 0.5
    assert [int(i) for i in np.argsort(units)] == [int(i) for i in np.argsort(certainties)]


@given(st.lists(st.floats(-1e6, 1e6) | st.just(NAN), max_size=9))
def test_estimates_keep_the_mean_and_the_known_scores(scores: list[float]) -> None:
    values = np.array(scores, np.float64)
    known = values[~np.isnan(values)]
    found = estimate_unknown(values, otherwise=0.5)
    assert found[~np.isnan(values)].tolist() == known.tolist()
    assert set(found[np.isnan(values)].tolist()) <= {float(known.mean()) if len(known) else 0.5}


@pytest.mark.parametrize("strategy", ["rebase(n=4)", "a_star", "particle_filter(n=4)", "mcts", "ets(n=4)"])
def test_scores_without_a_scale_are_refused_where_they_are_mapped(strategy: str) -> None:
    """Before anything is spent."""
    with pytest.raises(ConfigError, match=r"no scale.*probability"):
        tts.solve(
            "3 + 4 - 2 + 9", 400, model="toy", strategy=strategy, verifier="confidence(measure='logprob', over='mean')"
        )


def test_a_threshold_on_one_score_is_read_on_the_scale_of_all() -> None:
    """A score of .9 beside one of -3 is a log-odds: its chance is .711."""
    of = candidates(list("7788"))
    search = ScoredSearch([0.9, 0.9, -3.0, -3.0], of, (-math.inf, math.inf))
    found = asyncio.run(Selective(threshold=0.8, by="best", on="score").select(of, search))  # type: ignore[arg-type]
    assert found.answers == ()
    search = ScoredSearch([9.0, 8.0, 7.0, 7.0], of, (0.0, math.inf))
    with pytest.raises(ConfigError, match="no scale"):
        asyncio.run(Selective(threshold=0.8, by="best", on="score").select(of, search))  # type: ignore[arg-type]


def judged(score: dict[str, float]) -> Any:
    """Return a verifier whose score of a text is that of the first word it contains; the range is not stated."""
    return lambda problem, text: next((value for word, value in score.items() if word in text), NAN)


def test_a_range_that_scores_decide_is_fixed_at_first_use_and_a_stray_is_said() -> None:
    found = tts.solve(
        "3 + 4 - 2 + 9 - 1",
        400,
        model="toy",
        strategy="rebase(n=4)",
        verifier=lambda problem, text: 0.5 + 0.3 * text.count("\n"),
    )
    assert any("taken as its range" in line for line in found.warnings)
    with pytest.raises(tts.errors.TTSError, match=r"no scale.*range"):
        tts.solve("3 + 4 - 2", 400, model="toy", strategy="rebase(n=4)", verifier=lambda problem, text: 7.0)


@pytest.mark.parametrize("name", ["cges", "reasc"])
def test_stop_rules_count_unknown_scores_as_the_mean_of_the_known_ones(name: str) -> None:
    of = candidates(["7"] * 9 + ["8"])
    scored = [_with_score(c, 0.9 if c.answer == "8" else NAN) for c in of]
    decision = STOP_RULES.get(name)(threshold=0.9).should_stop(scored)
    assert decision is not None
    assert decision.answer == "7"
    unscored = [_with_score(c, NAN) for c in of[:2]]
    assert STOP_RULES.get("cges")().should_stop(unscored) is None


def _with_score(candidate: Any, score: float) -> Any:
    return dataclasses.replace(candidate, scores={"main": score})
