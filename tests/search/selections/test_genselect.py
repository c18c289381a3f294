"""One question about all candidates, in two orders; and selections by length."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tests.support.candidates import ScoredSearch, candidates
from tts.search.selections.last_finish import LastFinish
from tts.search.selections.majority import Majority
from tts.search.selections.shortest import Shortest
from tts.types import Candidate
from tts.verifiers.base import PairComparison, Traits
from tts.verifiers.toy import ToyVerifier


class Asked:
    """A model that answers 3, 4, 5, … in turn, and as a judge names a solution by a rule; it keeps the prompts of the
    judge.
    """

    def __init__(self, rule: Any, answers: Sequence[int] = (3, 4, 5, 4)) -> None:
        self.rule, self.answers, self.prompts, self.drawn = rule, answers, list[str](), 0

    def __call__(self, ask: Any) -> str:
        asked = str(ask.prompt)
        if '"best"' in asked:
            self.prompts.append(asked)
            shown = re.findall(r"The answer is (\d)", asked)
            return f'{{"reason": "so", "best": {self.rule(shown)}}}'
        self.drawn += 1
        return f"The answer is {self.answers[(self.drawn - 1) % len(self.answers)]}."


def solved(
    model: Asked,
    selection: str = "genselect",
    budget: tts.Budget | None = None,
    judge: str = "judge(votes=1)",
    n: int = 4,
) -> tts.Solution:
    limits = budget or tts.Budget(samples=40)
    return tts.solve(
        "What is 3 + 4?", limits, backend=model, task="math", verifier=judge, strategy=f"best_of_n(n={n}) | {selection}"
    )


def test_the_named_candidate_wins_and_the_two_orders_are_each_others_reverse() -> None:
    model = Asked(lambda shown: shown.index("5") + 1)
    found = solved(model)
    assert (found.answer, found.confidence, found.usage.verifier_calls) == ("5", 1.0, 1)
    forwards, backwards = (re.findall(r"The answer is (\d)", prompt) for prompt in model.prompts)
    assert forwards == backwards[::-1]
    assert sorted(forwards) == ["3", "4", "4", "5"]
    assert all("The order of the solutions is no reason" in prompt for prompt in model.prompts)


def test_a_judge_that_always_names_the_first_gives_both_ends_a_half() -> None:
    found = solved(Asked(lambda shown: 1, answers=(3, 4, 4, 5)))
    weights = {c.index: c.weight for c in found.candidates}
    assert weights == {0: 0.5, 1: 0.0, 2: 0.0, 3: 0.5}
    assert found.confidence == 0.5


def test_replies_for_one_answer_are_added_up() -> None:
    seen: list[int] = []

    def rule(shown: list[str]) -> int:
        seen.append(len(seen))
        return (
            [i for i, one in enumerate(shown, 1) if one == "4"][len(seen) % 2]
            if len(seen) < 4
            else shown.index("3") + 1
        )

    found = solved(Asked(rule, answers=(3, 4, 5, 4)), judge="judge(votes=2)")
    assert (found.answer, found.confidence) == ("4", 0.75)


def test_consensus_is_another_question_of_the_same_judge() -> None:
    model = Asked(lambda shown: shown.index("4") + 1)
    assert solved(model, "genselect(by='consensus')").answer == "4"
    assert all("agrees most with the majority" in prompt and "Reply 1:" in prompt for prompt in model.prompts)
    own = solved(Asked(lambda shown: 1), judge="judge(votes=1, list_question='Say {\"best\": n}.')")
    assert own.usage.verifier_calls == 1


def test_nobody_is_asked_where_all_agree_and_only_the_first_are_shown() -> None:
    model = Asked(lambda shown: 1, answers=(4,))
    assert (solved(model).answer, model.prompts) == ("4", [])
    model = Asked(lambda shown: 2, answers=(3, 4, 5, 6))
    solved(model, "genselect(most=2)")
    assert [sorted(re.findall(r"The answer is (\d)", prompt)) for prompt in model.prompts] == [["3", "4"], ["3", "4"]]


@pytest.mark.parametrize("best", ["0", "5", '"none"', "2.5", "true", "null", '"Solution 9"'])
def test_a_reply_that_names_no_solution_is_unread_and_without_one_it_is_a_vote(best: str) -> None:
    found = solved(Asked(lambda shown: best))
    assert found.answer == "4"
    assert any("could not be read" in warning for warning in found.warnings)


@pytest.mark.parametrize("best", ["2", '"2"', '"Solution 2"', '"solution 2."', "2.0"])
def test_a_number_may_be_written_in_several_ways(best: str) -> None:
    found = solved(Asked(lambda shown: best if shown[1] == "4" else best.replace("2", "3"), answers=(3, 4, 5, 6)))
    assert (found.answer, found.confidence) == ("4", 1.0)


def test_a_prompt_that_is_too_long_is_not_shown_and_the_vote_decides() -> None:
    model = Asked(lambda shown: 1)
    found = solved(model, judge="judge(votes=1, prompt_tokens=60)")
    assert (found.answer, model.prompts) == ("4", [])
    assert any("longer than the judge's prompt_tokens=60" in warning for warning in found.warnings)


def test_its_cost_is_held_with_the_samples_and_no_budget_is_passed() -> None:
    for tokens in (500, 3000, 4000, 8000, 20_000):
        model = Asked(lambda shown: 1)
        limits = tts.Budget(tokens=tokens)
        try:
            found = solved(model, budget=limits, judge="judge(votes=1, max_tokens=64, prompt_tokens=400)")
        except tts.ConfigError:
            continue  # too small for a single sample
        assert found.usage.tokens <= tokens
        asked = len({c.answer_class for c in found.candidates}) > 1
        assert bool(model.prompts) == asked


def test_a_verifier_that_chooses_among_no_lists_is_refused() -> None:
    with pytest.raises(tts.ConfigError, match=r"genselect.*'toy'"):
        tts.solve("3 + 4 - 2", 400, model="toy", verifier="toy", strategy="best_of_n(n=4) | genselect")


def test_a_verifier_that_only_compares_is_refused_before_anything_is_spent() -> None:
    class Compares(ToyVerifier):
        async def compare(self, problem: Any, pairs: Any, calls: Any) -> list[float]:
            return [0.5] * len(pairs)

        @property
        def traits(self) -> Traits:
            return Traits(comparison=PairComparison(self.compare, pair_bound=0))

    with pytest.raises(tts.ConfigError, match=r"genselect.*'toy'"):
        tts.solve("3 + 4 - 2", 400, model="toy", verifier=Compares(), strategy="best_of_n(n=4) | genselect")
    assert tts.solve("3 + 4 - 2", 400, model="toy", verifier=Compares(), strategy="best_of_n(n=4) | swiss").answer


# Selections by length -------------------------------------------------------------------------------------------------


def lengthened(answers: Sequence[str | None], lengths: Sequence[int]) -> list[Candidate]:
    return [
        dataclasses.replace(c, trajectory=dataclasses.replace(c.trajectory, num_tokens=length))
        for c, length in zip(candidates(answers), lengths, strict=True)
    ]


def weights(selection: Any, of: Sequence[Candidate]) -> list[float]:
    found = asyncio.run(selection.select(of, ScoredSearch()))
    return [c.weight for c in sorted(found.ranked, key=lambda c: c.index)]


def test_the_k_shortest_vote_and_the_last_places_are_shared_by_those_of_one_length() -> None:
    of = lengthened(["a", "b", "b", "c", None, "c"], [9, 4, 7, 4, 1, 7])
    assert weights(Shortest(k=2), of) == [0, 1, 0, 1, 0, 0]
    assert weights(Shortest(k=3), of) == [0, 1, 0.5, 1, 0, 0.5]
    assert weights(Shortest(k=1), of) == [0, 0.5, 0, 0.5, 0, 0]
    assert weights(Shortest(k=50), of) == [*weights(Majority(), of)[:4], 0.0, 1.0]
    assert weights(LastFinish(), of) == [1, 0, 0, 0, 0, 0]
    found = asyncio.run(LastFinish().select(of, ScoredSearch()))  # type: ignore[arg-type]
    assert (found.answers, found.confidence) == (("a",), 1.0)


def test_they_are_replayed_by_recorded_tokens() -> None:
    rows = [{"problem": "p", "reference": "1", "answer": ["1", "2", "2", "1"], "tokens": [5, 50, 60, 7]}]
    pool = tts.Pool.from_rows(rows, name="mine", task="text")
    shares = {
        c.curve.label: c.curve.shares[0, 0]
        for c in pool.replay(["best_of_n | shortest(k=2)", "best_of_n | last_finish"], [4])
    }
    assert shares == {"best_of_n | shortest(k=2)": 1.0, "best_of_n | last_finish": 0.0}
    assert not math.isnan(sum(shares.values()))
