"""CodeT against brute force, what it counts as a test, and what it refuses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import numpy as np
import pytest

import tts
from tests.experiments.pools import written
from tests.support.candidates import ScoredSearch, candidates
from tts.errors import ConfigError
from tts.experiments.analysis.replay import replay
from tts.search.parts import Selected
from tts.search.plan import parse
from tts.search.selections.codet import CodeT
from tts.types import Trajectory
from tts.verifiers.base import StepScores

NAN = math.nan


class OfTests(ScoredSearch):
    """A search that knows outcomes of tests, by node."""

    def __init__(self, outcomes: Sequence[Sequence[float] | None]) -> None:
        super().__init__([NAN if one is None else one[-1] for one in outcomes], candidates(["a"] * len(outcomes)))
        self._outcomes = {i + 1: one for i, one in enumerate(outcomes)}
        self.scoring.scores_of = self._scores_of

    def _scores_of(self, t: Trajectory, role: str) -> StepScores:
        told = self._outcomes[t.node]
        return StepScores(whole=NAN, tests=None if told is None else tuple(told))


def chosen(answers: Sequence[str | None], outcomes: Sequence[Sequence[float] | None], **options: str) -> Selected:
    return asyncio.run(CodeT(**options).select(candidates(answers), OfTests(outcomes)))  # type: ignore[arg-type]


def test_it_is_the_score_of_the_paper_by_brute_force() -> None:
    """Every pair of a program and a test that it passes, as the paper states it: the consensus set of a pair, of all
    its solutions.
    """
    rng = np.random.default_rng(3)
    for _ in range(200):
        n, count = int(rng.integers(1, 8)), int(rng.integers(1, 5))
        passed = rng.integers(0, 2, (n, count))
        names = [f"program {i}" for i in range(n)]
        best, winner = 0.0, 0
        for i in range(n):
            for j in range(count):
                if passed[i, j]:
                    same = sum(all(passed[k, m] == passed[i, m] for m in range(count)) for k in range(n))
                    if (score := math.sqrt(same) * sum(passed[i])) > best:
                        best, winner = score, i
        found = chosen(names, passed.astype(float).tolist())
        assert found.answers == (names[winner],)
        assert found.ranked[0].weight == pytest.approx(best)


def test_a_group_outweighs_one_program_that_passes_more() -> None:
    found = chosen(["a", "b", "c"], [(1, 1, 0), (1, 1, 1), (1, 1, 0)])
    assert found.answers == ("b",)  # 3 > sqrt(2) * 2
    found = chosen(["a", "b", "c", "d"], [(1, 1, 0), (1, 1, 1), (1, 1, 0), (1, 1, 0)])
    assert found.answers == ("a",)
    assert found.confidence == pytest.approx(math.sqrt(3) * 2 / (math.sqrt(3) * 2 + 3))
    assert [c.index for c in found.ranked] == [0, 2, 3, 1]


def test_unknown_outcomes_agree_with_nothing_and_what_has_no_answer_has_no_vote() -> None:
    found = chosen(["a", "b", None], [(NAN, 1, 1), (0, 1, 1), (1, 1, 1)])
    assert [c.weight for c in found.ranked if c.answer] == pytest.approx([2, 2])
    assert chosen([*"aaab"], [None, None, None, (1, 1)]).answers == ("b",)
    assert chosen(["a", "b"], [None, (1, 0)]).answers == ("b",)
    assert chosen(["a", "b"], [(0, 0), (0, 0)]).confidence == 0.0


def test_scores_that_are_no_outcomes_are_one_test_and_are_warned_of() -> None:
    search = OfTests([(0.2, 0.9), (0.4, 0.3)])
    found = asyncio.run(CodeT().select(candidates(["a", "b"]), search))  # type: ignore[arg-type]
    assert found.answers == ("a",)  # by the whole score, which is the last here
    assert search.notes.warnings == [
        "codet goes by outcomes of tests, 0 or 1, but the role 'main' has other scores; "
        "give a verifier that runs tests, or choose another selection, such as weighted"
    ]
    alone = OfTests([(1.0,), (0.0,)])
    asyncio.run(CodeT().select(candidates(["a", "b"]), alone))  # type: ignore[arg-type]
    assert alone.notes.warnings == []


PROGRAMS = [
    "def f(x):\n    return 2 * x",
    "def f(x):\n    return x + 1",
    "def f(x):\n    return x - 1",
    "def f(x):\n    return 1 + x",
    "oops (",
]
TESTS = "assert f(1) == 2\nassert f(2) == 3\nassert f(3) == 4\nassert f(2) == 4"


@pytest.mark.slow
@pytest.mark.parametrize("credit", ["all", "share"])
def test_a_live_search_goes_by_the_outcome_of_each_test_that_code_ran(credit: str) -> None:
    """Two programs that pass three tests are worth more than one that passes two; no program passes all."""
    from tts_addons.code.sandbox import why_not
    from tts_addons.code.verifier import Code

    if reason := why_not():
        pytest.skip(reason)
    drawn = iter(PROGRAMS)
    verifier = Code(tests=TESTS, credit=credit)
    with tts.Solver(lambda _: next(drawn), verifier, task="text", strategy="best_of_n(n=5) | codet") as solver:
        found = solver.solve("Write f.", tts.Budget(samples=5))
    assert found.answer == PROGRAMS[1]
    assert [c.weight for c in sorted(found.candidates, key=lambda c: c.index)] == pytest.approx(
        [2, 3 * math.sqrt(2), 0, 3 * math.sqrt(2), 0]
    )
    assert not any("codet" in line for line in found.warnings)


def test_outcomes_that_are_none_are_one_test_of_a_live_search_too() -> None:
    class Odd(tts.Verifier):
        async def score(self, problem, trajectories, calls):
            return [StepScores(whole=0.25, tests=(0.5,)) for _ in trajectories]

    with tts.Solver("toy", Odd(), strategy="best_of_n(n=2) | codet") as solver:
        found = solver.solve("1 + 2", tts.Budget(samples=2))
    assert any(
        line.startswith("codet goes by outcomes of tests, 0 or 1, but the role 'main' has other scores")
        for line in found.warnings
    )


def test_its_text_form_and_bad_parameters() -> None:
    assert str(parse("best_of_n | codet(verifier='tests')")) == "best_of_n | codet(verifier='tests')"
    with pytest.raises(ConfigError, match=r"truncated.*'maybe',.*'vote'"):
        CodeT(truncated="maybe")


def test_samples_without_outcomes_are_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match=r"'tests',.*pool.*'p'") as refused:
        replay([written((0, None), (0, None))], ["best_of_n | codet(verifier='tests')"], [2])
    assert refused.value.hint == "import programs with the field written_tests and --programs FILE"
    assert "\n" not in str(refused.value.cause)
