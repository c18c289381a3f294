"""The oracles of SpecReason (algorithm B11) and of switching by entropy: laws of two toy models that write one path,
enumerated.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from tests.support.repeats import check_law, repeats
from tests.support.runs import (
    Solved,
    copies,
    make_run,
    search_many,
    search_one,
    solution_of,
    solve,
)
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies.community.spec_reason import grades_of
from tts.types import Trajectory

SMALL = ToyLanguage(accuracy=0.4, slips=((1, 0.5), (-1, 0.5)))
LARGE = ToyLanguage(accuracy=0.8, slips=((1, 0.7), (-1, 0.3)))
PROBLEM, FIRST, CHANGES = "3 + 4 - 2 + 1", 3, (4, -2, 1)
ASKED = "question='Its digit is '"  # which the toy answers by the value so far, where another step follows


def run(plan: str, seed: int = 0, budget: Any = 4000, problem: Any = PROBLEM) -> Solved:
    models = {"draft": ToyBackend(SMALL)}
    return search_one(problem, budget, plan, ToyBackend(LARGE), seed=seed, models=models)


def writers(end: Solved) -> list[list[str]]:
    return [[node.model for node in c.trajectory.path[1:]] for c in end.solution.candidates]


def answers(plan: str, count: int) -> Counter[str | None]:
    models = {"draft": ToyBackend(SMALL)}
    ends = search_many(copies(PROBLEM, count), Budget(samples=99), plan, ToyBackend(LARGE), models=models)
    return Counter(end.solution.answer for end in ends)


def spec_law(threshold: float) -> dict[str | None, float]:
    """Return the law of answers: a drafted result is kept where its grade is at least the threshold; it is the value,
    but 0 at the end.
    """
    law: dict[int, float] = {FIRST: 1.0}
    for place, change in enumerate(CHANGES):
        after: defaultdict[int, float] = defaultdict(float)
        for value, p in law.items():
            for offset, chance in SMALL.outcomes():
                drafted = value + change + offset
                if (drafted if 0 <= drafted <= 9 and place < len(CHANGES) - 1 else 0) >= threshold:
                    after[drafted] += p * chance
                else:
                    for again, other in LARGE.outcomes():
                        after[value + change + again] += p * chance * other
        law = dict(after)
    return {str(value): p for value, p in law.items()}


@pytest.mark.slow
@repeats(100, 300)
@pytest.mark.parametrize("threshold", [6.0, pytest.param(8.0, marks=pytest.mark.slow)])
def test_drafts_are_kept_by_their_grade_and_else_rewritten(threshold: float, runs: int) -> None:
    check_law(
        answers(f"spec_reason(n=1, threshold={threshold}, {ASKED})", runs),
        spec_law(threshold),
        LARGE.answer_distribution(PROBLEM),
        apart=0.15,
    )


@pytest.mark.parametrize(("threshold", "model", "language"), [(0, "draft", SMALL), (10, "policy", LARGE)])
def test_at_its_ends_one_model_writes_alone(threshold: int, model: str, language: ToyLanguage) -> None:
    end = run(f"spec_reason(n=3, threshold={threshold}, {ASKED})", 2)
    assert writers(end) == [[model] * 4] * 3
    assert (end.solution.usage.verifier_calls == 0) is (threshold == 0)
    if threshold == 0:
        alone = solution_of(PROBLEM, 500, "single", ToyBackend(language), seed=2).candidates[0]
        first = min(end.solution.candidates, key=lambda c: c.index)
        assert first.trajectory.full_text == alone.trajectory.full_text


def test_fewer_drafts_are_kept_above_a_greater_threshold() -> None:
    kept = [
        sum(of.count("draft") for s in range(4) for of in writers(run(f"spec_reason(n=3, threshold={t}, {ASKED})", s)))
        for t in range(0, 11, 2)
    ]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[3] > kept[-1] == 0


def test_the_first_steps_are_the_policys() -> None:
    assert (
        writers(run(f"spec_reason(n=2, threshold=0, first=2, {ASKED})")) == [["policy", "policy", "draft", "draft"]] * 2
    )


def test_both_models_and_every_question_are_charged() -> None:
    end = run(f"spec_reason(n=1, threshold=10, {ASKED})")
    calls = end.search.account.ledger.calls
    assert Counter((c.kind, c.model) for c in calls if c.kind in ("expand", "ask")) == {
        ("expand", "draft"): 4,
        ("expand", "policy"): 4,
        ("ask", "policy"): 4,
    }
    assert end.solution.usage.generated_tokens == 2 * (6 + 6 + 6 + 3)
    assert end.solution.usage.verifier_calls == 4


def test_a_model_reads_only_what_is_new_to_it() -> None:
    end = run(f"spec_reason(n=1, threshold=0, {ASKED})")
    graded = run(f"spec_reason(n=1, threshold=1, {ASKED})")
    assert writers(graded) == [["draft", "draft", "policy", "policy"]]
    read = [c.usage.prompt_tokens for c in graded.search.account.ledger.calls if c.kind in ("open", "extend")]
    # both read the prompt; the policy the four drafts, of which the last is "A: 5", and the draft's model the step that
    # was rewritten
    assert sum(read) == end.solution.usage.prompt_tokens + (6 + 6 + 6 + 2) + 6


def test_grades_of_the_chances_of_digits() -> None:
    p = np.array([[0, 0, 0, 0, 0, 0, 0, 0.1, 0.3, 0.1], [0.0] * 10, [0.5] + [0] * 8 + [0.25]])
    assert grades_of(p, "likeliest").tolist() == [8.0, 0.0, 0.0]
    assert grades_of(p, "mean").tolist() == pytest.approx([8.0, 0.0, 3.0])


# Switching ------------------------------------------------------------------------------------------------------------


def switched_law(threshold: float) -> dict[str | None, float]:
    """Return the law of answers: a line of six tokens, of which one is drawn, hands over by its surprisal, whoever
    wrote it.
    """
    law: dict[tuple[int, bool], float] = {(FIRST, False): 1.0}
    for change in CHANGES:
        after: defaultdict[tuple[int, bool], float] = defaultdict(float)
        for (value, unsure), p in law.items():
            for offset, chance in (LARGE if unsure else SMALL).outcomes():
                after[value + change + offset, -math.log(chance) / 6 > threshold] += p * chance
        law = dict(after)
    found: dict[str | None, float] = {}
    for (value, _), p in law.items():
        found[str(value)] = found.get(str(value), 0.0) + p
    return found


@pytest.mark.slow
@repeats(100, 300)
def test_an_uncertain_step_hands_over_to_the_policy(runs: int) -> None:
    threshold = 0.17  # -ln .4 / 6 = .153, -ln .3 / 6 = .201
    check_law(
        answers(f"entropy_switching(n=1, threshold={threshold})", runs),
        switched_law(threshold),
        LARGE.answer_distribution(PROBLEM),
        apart=0.15,
    )
    for c in run(f"entropy_switching(n=20, threshold={threshold})").solution.candidates:
        first, *later = c.trajectory.path[1:]
        assert first.model == "draft"
        for before, t in zip((first, *later), later, strict=False):
            assert t.model == ("policy" if -sum(before.logprobs) / len(before.logprobs) > threshold else "draft")


def test_the_draft_writes_alone_where_no_step_is_uncertain_and_the_policy_from_the_second_on_where_all_are() -> None:
    assert writers(run("entropy_switching(n=2, threshold=99)")) == [["draft"] * 4] * 2
    assert writers(run("entropy_switching(n=2, threshold=0)")) == [["draft", "policy", "policy", "policy"]] * 2


def test_the_entropy_of_a_step() -> None:
    from tts_addons.zoo.entropy_switching import entropy

    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    step = Trajectory(root, "ab", (1, 2, 3), (-3.0, -1.0, -2.0), "active", 0, 1, 3, 1)
    assert (entropy(root), entropy(step), entropy(step, 2), entropy(step, 9)) == (0.0, 2.0, 1.5, 2.0)
    assert entropy(step, temperature=0.0) == 2.0
    weights = np.exp([0.75, 0.25, 0.5])  # p^(1 - 1 / .8)
    assert entropy(step, temperature=0.8) == pytest.approx(weights @ [3.0, 1.0, 2.0] / weights.sum())


@repeats(4000, 40_000, "count")
@pytest.mark.parametrize("temperature", [0.8, 1.0, 1.3])
def test_the_entropy_of_a_law_is_found_from_tokens_drawn_at_any_temperature(temperature: float, count: int) -> None:
    from tts_addons.zoo.entropy_switching import entropy

    law = np.array([0.87, 0.1, 0.02, 0.01])
    drawn = law ** (1 / temperature) / (law ** (1 / temperature)).sum()
    tokens = np.random.default_rng(3).choice(4, count, p=drawn)
    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    step = Trajectory(root, "x", tuple(tokens.tolist()), tuple(np.log(law[tokens]).tolist()), "active", 0, 1, count, 1)
    known, plain = -(law @ np.log(law)), -(drawn @ np.log(law))
    weights = law / drawn  # a ratio of means: its variance by the delta method
    error = math.sqrt((drawn @ (weights * (-np.log(law) - known)) ** 2) / count)
    assert entropy(step, temperature=temperature) == pytest.approx(known, abs=4 * error)
    if temperature < 1:
        assert plain < known - 4 * error, "the plain mean is too low"


# Roles ----------------------------------------------------------------------------------------------------------------


def test_the_models_may_have_different_tokenizers() -> None:
    from tts.backends.function import Answer, FunctionBackend

    # its tokens are words
    draft = FunctionBackend(lambda ask: Answer("3 + 4 = 8\n" if not ask.text else "8 - 2 = 7\n", tokens=2))
    run_ = make_run(
        "3 + 4 - 2", 2000, f"spec_reason(n=1, threshold=8, {ASKED})", ToyBackend(LARGE), models={"draft": draft}
    )
    solution = solve(run_)
    assert solution.error is None
    (candidate,) = solution.candidates
    assert [node.model for node in candidate.trajectory.path[1:]] == ["draft", "policy", "policy"]
    assert candidate.trajectory.full_text.startswith("3 + 4 = 8\n8 - 2 = ")
