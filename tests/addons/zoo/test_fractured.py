"""The oracles of fractured sampling (algorithm B8): counts, prefixes, and on the toy language what is answered behind a
cut.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.support.repeats import repeats
from tests.support.runs import Solved, check_books, make_run, solve_and_show
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.backends.toy.language import tokens_of
from tts.budget.budget import Budget
from tts.errors import CapabilityError

PLAIN = ToyLanguage(accuracy=0.5)
THINKS = ToyLanguage(accuracy=0.5, thoughts=True)
PROBLEM = "10 - 7 + 5 - 20"


def search(plan: str, seed: int = 0, language: ToyLanguage = PLAIN, budget: Budget | None = None) -> Solved:
    end = solve_and_show(make_run(PROBLEM, budget or Budget(samples=500), plan, ToyBackend(language), seed=seed))
    assert end.solution.error is None
    assert end.search is not None
    check_books(end.search)
    return end


def texts(end: Solved) -> list[str]:
    return [c.trajectory.full_text for c in end.search.candidates]


def reasoning(text: str) -> list[str]:
    """Return the tokens before the end of the thought, or before the answer cue."""
    return tokens_of(text[: text.rfind("</think>" if "<think>" in text else "A: ")])


@pytest.mark.parametrize("language", [PLAIN, THINKS], ids=["plain", "thinking"])
def test_one_depth_and_one_answer_are_plain_sampling(language: ToyLanguage) -> None:
    for seed in range(4):
        assert texts(search("fractured(n=4, depths=1)", seed, language)) == texts(
            search("best_of_n(n=4)", seed, language)
        )


@pytest.mark.parametrize("language", [PLAIN, THINKS], ids=["plain", "thinking"])
@pytest.mark.parametrize(("n", "depths", "answers"), [(2, 1, 3), (2, 4, 1), (3, 3, 2), (1, 5, 2)])
def test_there_are_n_traces_times_depths_times_answers(
    language: ToyLanguage, n: int, depths: int, answers: int
) -> None:
    end = search(f"fractured(n={n}, depths={depths}, answers={answers})", language=language)
    assert len(end.search.candidates) == n * depths * answers == end.solution.usage.samples
    assert texts(end)[:n] == texts(search(f"best_of_n(n={n})", language=language))  # the traces are plain samples


@pytest.mark.parametrize("language", [PLAIN, THINKS], ids=["plain", "thinking"])
def test_cuts_are_prefixes_of_their_trace_at_equal_parts_of_its_reasoning(language: ToyLanguage) -> None:
    depths = 5
    for seed in range(4):
        trace, *others = texts(search(f"fractured(n=1, depths={depths})", seed, language))
        whole = reasoning(trace)
        forced = "</think>\n" if language.thoughts else "A: "
        for i, text in enumerate(others, start=1):
            prefix = "".join(whole[: i * len(whole) // depths])
            assert text.startswith(prefix)
            assert text[len(prefix) :].removeprefix("\n").startswith(forced)


def test_a_thought_that_is_cut_answers_the_value_that_it_had_come_to() -> None:
    """The law of the toy: it answers the last result before the end of its thought, or the first term of the sum."""
    for seed in range(12):
        end = search("fractured(n=1, depths=6)", seed, THINKS)
        trace, *cuts = end.search.candidates
        whole = reasoning(trace.trajectory.full_text)
        for i, cut in enumerate(cuts, start=1):
            last_round = "".join(whole[: i * len(whole) // 6]).rsplit("Wait\n", 1)[-1]
            results = re.findall(r"= (-?\d+)", last_round)
            assert cut.answer == (results[-1] if results else "10")


def test_further_answers_of_a_whole_thought_are_its_own() -> None:
    for seed in range(6):
        end = search("fractured(n=2, depths=1, answers=3)", seed, THINKS)
        votes = Counter(c.answer for c in end.search.candidates)
        assert votes == Counter([c.answer for c in end.search.candidates[:2]] * 3)


@repeats(50, 150)
def test_behind_a_cut_a_solution_goes_on_by_the_law_of_the_model(runs: int) -> None:
    """A plain toy has no thought to end: behind the cue it goes on where it was, with the law of the steps that are
    left.
    """
    right, expected, variance = 0, 0.0, 0.0
    for seed in range(runs):
        trace, cut = texts(search("fractured(n=1, depths=2)", seed))
        whole = reasoning(trace)
        prefix = "".join(whole[: len(whole) // 2])
        results = re.findall(r"= (-?\d+)", prefix)
        value, steps = int(results[-1]) if results else 10, (-7, 5, -20)[len(results) :]
        rest = f"{value} " + " ".join(f"{'-' if step < 0 else '+'} {abs(step)}" for step in steps)
        chance = PLAIN.answer_distribution(rest).get("-12", 0.0)
        right += cut.rstrip().endswith("A: -12")
        expected, variance = expected + chance, variance + chance * (1 - chance)
    assert abs(right - expected) < 5 * variance**0.5


def test_traces_are_cut_until_the_budget_ends() -> None:
    end = search("fractured(depths=3)", budget=Budget(samples=10))
    assert end.solution.usage.samples == 10
    assert end.solution.answer is not None


def test_a_backend_that_shows_no_tokens_is_refused_before_anything_is_spent() -> None:
    model = FunctionBackend(lambda asked: "A: 5")
    end = solve_and_show(make_run(PROBLEM, Budget(tokens=300), "fractured(n=2)", model))
    assert isinstance(end.solution, CapabilityError)
    assert "the nearest strategy that can run here is" in (end.solution.hint or "")
    assert model.counters.prompt_tokens == 0


def test_without_a_thought_or_a_cue_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.tasks.arithmetic.task.ArithmeticTask.answer_cue", "")
    end = search("fractured(n=2, depths=3)")
    assert len(end.search.candidates) == 2
    assert any("fractured did not cut a solution" in line for line in end.solution.warnings)
