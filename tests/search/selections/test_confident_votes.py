"""RPC, Borda, DeepConf's filter and selective answering: what each must do whatever the scores are."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.candidates import ScoredSearch, candidates
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import ConfigError
from tts.search.parts import Selected, Selection
from tts.search.selections.best import Best
from tts.search.selections.borda import Borda, ballots
from tts.search.selections.deepconf import DeepConfidence
from tts.search.selections.majority import Majority
from tts.search.selections.rpc import Mixture, Rpc, fit, improbable
from tts.search.selections.selective import Selective
from tts.types import Candidate, Trajectory

NAN = math.nan
ANSWERS = ["a", "b", "a", "b", "c", "b", None, "a"]
SCORES = [0.2, 0.9, 0.3, 0.15, 0.95, 0.1, 0.99, 0.25]


def chosen(selection: Selection, answers: Sequence[str | None] = ANSWERS, scores: Sequence[float] = SCORES) -> Selected:
    of = candidates(list(answers))
    return asyncio.run(selection.select(of, ScoredSearch(scores, of)))  # type: ignore[arg-type]


def alike(a: Selected, b: Selected) -> bool:
    return a.answers == b.answers and math.isclose(a.confidence, b.confidence)


def written(answers: Sequence[str], texts: Sequence[str]) -> list[Candidate]:
    """Return candidates whose texts differ from their answers."""
    made: list[Candidate] = []
    for one, text in zip(candidates(answers), texts, strict=True):
        t = one.trajectory
        made.append(
            Candidate(
                Trajectory(t.parent, text, (), (), t.status, t.stream, t.node, 1, 1),
                one.answer,
                one.answer_class,
                one.index,
            )
        )
    return made


class TestBorda:
    def test_exponent_zero_is_a_majority_vote(self) -> None:
        assert alike(chosen(Borda(exponent=0)), chosen(Majority()))

    def test_a_large_exponent_follows_the_best_ranked(self) -> None:
        assert chosen(Borda(exponent=60)).answers == chosen(Best()).answers == ("c",)

    @pytest.mark.parametrize("change", [lambda s: s**3, math.log, lambda s: 5 * s - 9])
    def test_only_the_order_counts(self, change: Any) -> None:
        for exponent in (0.3, 0.7, 1.2, 3.0):
            plain, bent = (
                chosen(Borda(exponent=exponent)),
                chosen(Borda(exponent=exponent), scores=[change(s) for s in SCORES]),
            )
            assert alike(plain, bent)

    def test_votes_by_hand(self) -> None:
        np.testing.assert_allclose(ballots(np.array([0.1, 0.9, 0.5]), 1.0), [1 / 3, 1, 2 / 3])
        np.testing.assert_allclose(ballots(np.array([0.5, 0.9, 0.5]), 2.0), [2.5 / 9, 1, 2.5 / 9])

    def test_candidates_without_an_answer_are_behind_all_others(self) -> None:
        selected = chosen(Borda(exponent=1), ["a", None, "b"], [0.1, 0.9, 0.2])
        assert selected.answers == ("b",)
        assert selected.confidence == pytest.approx(3 / 6)


class TestDeepConfidence:
    def test_equal_confidences_are_a_majority_vote(self) -> None:
        for keep in (10, 50, 100):
            assert alike(chosen(DeepConfidence(keep=keep), scores=[0.4] * 8), chosen(Majority()))

    def test_keeping_all_is_a_confidence_weighted_vote(self) -> None:
        selected = chosen(DeepConfidence(keep=100))
        assert selected.answers == ("b",)
        assert selected.confidence == pytest.approx((0.9 + 0.15 + 0.1) / sum(SCORES))

    def test_the_least_confident_are_dropped(self) -> None:
        selected = chosen(DeepConfidence(keep=10))
        assert selected.answers == ("c",)
        kept = [c for c in selected.ranked if c.weight > 0 and c.answer is not None]
        assert [c.answer for c in kept] == ["c"]

    def test_positive_scores_without_an_end_are_weights_as_they_are(self) -> None:
        of = candidates(["a", "b", "b"])
        search = ScoredSearch([17.0, 9.0, 7.5], of, (0.0, math.inf))
        selected = asyncio.run(DeepConfidence(keep=100).select(of, search))  # type: ignore[arg-type]
        assert selected.answers == ("a",)
        assert selected.confidence == pytest.approx(17 / 33.5)


class TestRpc:
    def test_a_path_that_is_written_twice_counts_once(self) -> None:
        of = written(["a", "b", "a", "a"], ["x", "y", "x", "x"])
        selected = asyncio.run(Rpc().select(of, ScoredSearch([0.5, 0.6, 0.5, 0.5], of)))  # type: ignore[arg-type]
        assert selected.answers == ("b",)
        assert selected.confidence == pytest.approx(0.6 / 1.1)

    def test_equal_probabilities_vote_over_distinct_paths_and_none_is_dropped(self) -> None:
        answers, texts = ["a"] * 9 + ["b"] * 6, ["x"] * 7 + ["y", "z"] + [str(i) for i in range(6)]
        of = written(answers, texts)
        selected = asyncio.run(Rpc().select(of, ScoredSearch([0.3] * 15, of)))  # type: ignore[arg-type]
        assert selected.answers == ("b",)
        assert selected.confidence == pytest.approx(6 / 9)

    @pytest.mark.parametrize("seed", range(4))
    def test_the_low_mode_is_dropped_and_never_all(self, seed: int) -> None:
        rng = np.random.Generator(np.random.Philox(seed))
        low, high = 0.12 * rng.weibull(4, 30), 0.8 * rng.weibull(20, 30)
        likely = np.concatenate((low, np.minimum(high, 1)))
        dropped = improbable(likely)
        assert dropped[:30].mean() > 0.9
        assert not dropped[30:].any()
        again = rng.permutation(60)
        assert (improbable(likely[again]) == dropped[again]).all()
        for many in (rng.random(20), rng.random(50) ** 8, np.full(12, 0.3), np.array([0.0] * 11 + [1.0])):
            assert not improbable(many).all()

    def test_the_fit_finds_the_laws_it_was_drawn_from(self) -> None:
        rng = np.random.Generator(np.random.Philox(5))
        first = rng.random(4000) < 0.35
        values = np.where(first, 0.2 * rng.weibull(3, 4000), 0.8 * rng.weibull(9, 4000))
        found = fit(values)
        high = found.high
        assert found.scales[high] == pytest.approx(0.8, abs=0.02)
        assert found.scales[1 - high] == pytest.approx(0.2, abs=0.02)
        assert (found.share if high == 1 else 1 - found.share) == pytest.approx(0.35, abs=0.03)

    def test_which_law_is_called_the_first_does_not_matter(self) -> None:
        one = Mixture(0.3, (2.0, 5.0), (0.2, 0.7))
        other = Mixture(0.7, (5.0, 2.0), (0.7, 0.2))
        values = np.linspace(0.05, 1, 9)
        np.testing.assert_allclose(one.density(values)[one.high], other.density(values)[other.high])
        assert one.high != other.high

    def test_few_paths_are_not_fitted(self) -> None:
        scores = [0.9, 0.9, 0.9, 0.001]
        of = written(["a", "a", "a", "b"], list("wxyz"))
        selected = asyncio.run(Rpc().select(of, ScoredSearch(scores, of)))  # type: ignore[arg-type]
        assert min(c.weight for c in selected.ranked) == 0.001


@pytest.mark.parametrize("kind", [Rpc, DeepConfidence, Borda])
@pytest.mark.parametrize(
    ("named", "role", "warns"), [("process", "main", True), ("confidence", "main", False), ("process", "judge", False)]
)
def test_another_score_than_the_papers_is_told_unless_its_role_is_named(
    kind: Any, named: str, role: str, *, warns: bool
) -> None:
    of = candidates(ANSWERS)
    search = ScoredSearch(SCORES, of)
    search.scoring.get = lambda _: SimpleNamespace(name=named, range=(0.0, 1.0))
    asyncio.run(kind(verifier=role).select(of, search))
    assert len(search.notes.warnings) == warns
    assert not warns or ("'process'" in search.notes.warnings[0] and "confidence" in search.notes.warnings[0])


class TestSelective:
    def test_zero_answers_all_and_more_than_one_none(self) -> None:
        assert alike(chosen(Selective()), chosen(Majority()))
        refused = chosen(Selective(threshold=1.5, by="borda"))
        assert refused.answers == ()
        assert (
            refused.abstained
            == "no answer is given: the confidence is " + f"{refused.confidence:.3g}, but 1.5 is wanted"
        )

    def test_coverage_falls_with_the_threshold(self) -> None:
        rng = np.random.Generator(np.random.Philox(2))
        pools = [[str(x) for x in rng.integers(0, 3, 7)] for _ in range(40)]
        answered = [
            sum(bool(chosen(Selective(threshold=t), pool, [0.5] * 7).answers) for pool in pools)
            for t in (0, 0.3, 0.45, 0.6, 0.9, 1.1)
        ]
        assert answered == sorted(answered, reverse=True)
        assert answered[0] == 40
        assert answered[-1] == 0
        assert len(set(answered)) > 3

    def test_it_goes_by_the_share_or_by_the_score(self) -> None:
        assert chosen(Selective(threshold=0.94, by="best", on="score")).answers == ("c",)
        assert chosen(Selective(threshold=0.96, by="best", on="score")).answers == ()
        assert chosen(Selective(threshold=0.94, by="best")).answers == (), "the best one's share of all weight is small"
        assert "unknown" in chosen(Selective(threshold=0.1, by="best", on="score"), ["a"], [NAN]).abstained

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"by": "selective"}, "by is 'selective', but must be the name of another selection"),
            ({"by": "majority", "on": "score"}, "on is 'score', but the selection 'majority' asks no verifier"),
            ({"by": "majority", "verifier": "other"}, "by is 'majority', but that selection takes no verifier"),
            ({"on": "both"}, "on is 'both', but must be 'share' or 'score'"),
        ],
    )
    def test_what_means_nothing_is_refused(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            Selective(**parameters)

    def test_a_solution_without_an_answer_says_why(self) -> None:
        model = ToyBackend(ToyLanguage(accuracy=0.3))
        unsure = tts.solve(
            "3 + 4 - 2 + 9", tts.Budget(samples=8), model=model, strategy="best_of_n(n=8) | selective(threshold=0.9)"
        )
        assert unsure.answer is None
        assert unsure.abstained in unsure.warnings
        assert not any("no answer was found" in line for line in unsure.warnings)
        sure = tts.solve(
            "3 + 4 - 2 + 9", tts.Budget(samples=8), model=model, strategy="best_of_n(n=8) | selective(threshold=0.01)"
        )
        assert sure.answer is not None
        assert sure.abstained == ""


@pytest.mark.parametrize(("count", "kept"), [(3, 3), (5, 5), (8, 5), (20, 5), (50, 5), (80, 8)])
def test_deepconf_keeps_a_tenth_by_default_but_five_at_least(count: int, kept: int) -> None:
    selected = chosen(DeepConfidence(), ["a"] * count, [(i + 1) / (count + 1) for i in range(count)])
    assert sum(c.weight > 0 for c in selected.ranked) == kept


def test_deepconf_of_few_candidates_is_a_vote_and_not_the_choice_of_the_best() -> None:
    answers, scores = [*"aaaab"], [0.8, 0.7, 0.75, 0.72, 0.9]
    assert chosen(DeepConfidence(), answers, scores).answers == ("a",)
    assert chosen(DeepConfidence(keep=10), answers, scores).answers == chosen(Best(), answers, scores).answers == ("b",)
