"""The oracles of sequential revision (algorithms A14 and B14), and of the choice among chains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tests.support.candidates import ScoredSearch, candidates
from tests.support.revising import RevisingTask, revising  # noqa: F401 - a fixture
from tests.support.runs import Solved, search_one, texts_of
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.selections.hierarchical import Hierarchical
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.types import Candidate
from tts.verifiers.toy import ToyVerifier

pytestmark = pytest.mark.usefixtures("revising")
LANGUAGE = ToyLanguage(accuracy=0.5)
PROBLEM = "3 + 4 - 2"


def revise(plan: str, seed: int = 0, language: ToyLanguage = LANGUAGE, budget: Budget | None = None) -> Solved:
    return search_one(
        PROBLEM, budget or Budget(samples=50), plan, ToyBackend(language), seed=seed, verifiers=ToyVerifier(error=0.1)
    )


def shown(end: Solved) -> list[tuple[str, ...]]:
    task = end.search.task
    assert isinstance(task, RevisingTask)
    return [earlier for kind, earlier in task.prompted if kind == "revise"]


def test_one_chain_shows_every_attempt_the_last_ones_before_it_and_never_more() -> None:
    end = revise("sequential_revision(chains=1, length=7, shown=4)")
    attempts = texts_of(end)
    assert len(attempts) == 7
    prompts = list(dict.fromkeys(shown(end)))
    assert prompts == [tuple(attempts[max(0, i - 4) : i]) for i in range(1, 7)]


def test_each_chain_sees_its_own_attempts_and_is_one_group() -> None:
    end = revise("sequential_revision(chains=3, length=3)")
    chains: dict[int, list[str]] = {}
    for candidate in sorted(end.solution.candidates, key=lambda c: c.index):
        chains.setdefault(candidate.group, []).append(candidate.trajectory.full_text)
    assert [len(chain) for chain in chains.values()] == [3, 3, 3]
    seen = set(shown(end))
    assert seen == {tuple(chain[:i]) for chain in chains.values() for i in (1, 2)}


def test_a_reviser_that_changes_nothing_gives_one_answer_at_every_position() -> None:
    answers = [
        c.answer
        for c in revise(
            "sequential_revision(chains=2, length=5)", language=ToyLanguage(accuracy=1.0)
        ).solution.candidates
    ]
    assert answers == ["5"] * 10


def test_an_attempt_that_the_task_does_not_show_begins_the_chain_anew() -> None:
    end = revise("sequential_revision(chains=1, length=4)", language=ToyLanguage(mute=1.0))
    assert len(end.solution.candidates) == 4
    assert shown(end) == []
    assert any(
        "earlier solutions were not shown: an attempt has no answer" in warning
        for warning in end.solution.trace.warnings
    )


@pytest.mark.parametrize(
    ("plan", "units", "sizes"),
    [
        ("", 16, (4, 4)),
        ("", 1, (1, 1)),
        ("", 10, (3, 3)),
        ("chains=2", 9, (2, 4)),
        ("length=4", 9, (2, 4)),
        ("length=8", 3, (1, 8)),
    ],
)
def test_sizes_left_out_share_the_budget(plan: str, units: int, sizes: tuple[int, int]) -> None:
    chains, length = sizes
    made = revise(f"sequential_revision({plan})", budget=Budget(samples=units)).solution
    first = sorted(made.candidates, key=lambda c: c.index)[: chains * length]
    assert list(Counter(c.group for c in first).values()) == [min(length, units)] * chains
    assert len(made.candidates) == units


def test_the_budget_ends_chains_at_equal_length() -> None:
    end = revise("sequential_revision(chains=4, length=100)", budget=Budget(samples=22))
    lengths: dict[int, int] = {}
    for candidate in end.solution.candidates:
        lengths[candidate.group] = lengths.get(candidate.group, 0) + 1
    assert sum(lengths.values()) == 22
    assert max(lengths.values()) - min(lengths.values()) <= 1


# Choosing among chains ------------------------------------------------------------------------------------------------


def grouped(chains: Sequence[str]) -> list[Candidate]:
    made = candidates([answer for chain in chains for answer in chain])
    groups = [g for g, chain in enumerate(chains) for _ in chain]
    return [Candidate(c.trajectory, c.answer, c.answer_class, c.index, g) for c, g in zip(made, groups, strict=True)]


def chosen(of: list[Candidate], scores: list[float]):
    return asyncio.run(Hierarchical().select(of, ScoredSearch(scores, of)))


def test_a_long_chain_has_one_voice() -> None:
    of = grouped(["aaaa", "b", "b"])
    scores = [0.5, 0.5, 0.5, 0.6, 0.4, 0.4]
    assert chosen(of, scores).answers == ("b",)  # .4 + .4 against the .6 of the first chain's best
    assert asyncio.run(Weighted().select(of, ScoredSearch(scores, of))).answers == ("a",)


def test_within_a_chain_the_winner_is_the_best_writing_of_the_answer_with_the_greatest_sum() -> None:
    of = grouped(["aba", "c"])
    selected = chosen(of, [0.3, 0.5, 0.4, 0.35])
    assert selected.answers == ("a",)  # .3 + .4 beats .5 in the chain, and .4 beats .35 over the chains
    assert selected.confidence == pytest.approx(0.4 / 0.75)
    assert [c.weight for c in sorted(selected.ranked, key=lambda c: c.index)] == [0, 0, 0.4, 0.35]


def test_chains_of_one_choose_as_weighted_does() -> None:
    for scores in ([0.2, 0.3, 0.4, 0.1], [0.9, 0.1, 0.1, 0.1]):
        of = grouped(["a", "b", "a", "c"])
        assert chosen(of, scores).answers == asyncio.run(Weighted().select(of, ScoredSearch(scores, of))).answers


def test_without_scores_it_is_a_flat_vote() -> None:
    of = grouped(["abb", "a", "b"])
    selected = chosen(of, [float("nan")] * 5)
    assert selected.answers == asyncio.run(Majority().select(of, ScoredSearch([0.0] * 5, of))).answers == ("b",)
    assert selected.confidence != selected.confidence  # unknown


# Feedback -------------------------------------------------------------------------------------------------------------


def repair(
    budget: int = 12, plan: str = "sequential_revision(chains=1, length=6, feedback='main') | best"
) -> tuple[tts.Solution, list[str]]:
    """Solve by a model that writes a right program once it is told what the wrong one returned."""
    asked: list[str] = []

    def model(ask: Any) -> str:
        asked.append(str(ask.prompt))
        return "def double(x): return x * 2" if "it is 9" in str(ask.prompt) else "def double(x): return x ** 2"

    tested = "code(tests='assert double(3) == 6', sandbox='none')"
    found = tts.solve(
        "Double a number.", tts.Budget(samples=budget), backend=model, task="text", verifier=tested, strategy=plan
    )
    return found, asked


def test_a_revision_sees_what_the_tests_said_and_a_chain_ends_where_they_pass() -> None:
    found, asked = repair()
    assert found.answer == "def double(x): return x * 2"
    assert [c.scores["main"] for c in sorted(found.candidates, key=lambda c: c.index)] == [0.0, 1.0]
    assert len(asked) == found.usage.samples == 2
    assert "Feedback on it:\\n0 of 1 tests pass; AssertionError: double(3) == 6; it is 9." in asked[1]
    blind, prompts = repair(plan="sequential_revision(chains=1, length=6) | best")
    assert blind.candidates[0].scores["main"] == 0.0
    assert not any("Feedback" in prompt for prompt in prompts)


@pytest.mark.slow
def test_a_solved_chain_leaves_its_length_and_others_go_on() -> None:
    found, _ = repair(plan="sequential_revision(chains=3, length=4, feedback='main') | best")
    assert found.usage.samples == 6
    assert found.usage.verifier_calls == 6


def test_a_long_note_is_cut_and_hidden_tests_take_a_permission() -> None:
    def wordy(problem: Any, text: str) -> tuple[float, str]:
        return 0.5, "x" * 100_000

    seen: list[int] = []

    def model(ask: Any) -> str:
        seen.append(len(str(ask.prompt)))
        return "The answer is 7."

    plan = "sequential_revision(chains=1, length=3, feedback='main')"
    tts.solve("What is 3 + 4?", tts.Budget(samples=9), backend=model, task="math", verifier=wordy, strategy=plan)
    assert len(seen) == 3
    assert max(seen) < 6000
    problem = tts.Problem("Double a number.", answer="assert double(3) == 6")
    with pytest.raises(ConfigError, match="allow_oracle"):
        tts.solve(
            problem, tts.Budget(samples=9), backend=model, task="text", verifier="code(sandbox='none')", strategy=plan
        )
