"""Self-refine, tree of thoughts and mixture of agents: what each model is shown, and how often they are right, by exact
laws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.repeats import repeats
from tests.support.runs import search_one
from tts.backends.base import Reply, RowSet, Sample, SampleRequest
from tts.backends.function import Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies.community.self_refine import finds_nothing_wrong
from tts.tasks import get
from tts.types import Message, Problem, Prompt, Solution


def near(p: float, runs: int) -> Any:
    return pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / runs) + 1e-9)


def text_of(ask: Ask) -> str:
    return ask.prompt if isinstance(ask.prompt, str) else ask.prompt[-1].content


def answered(text: str) -> list[int]:
    """Return the answers in a text, in order."""
    return [int(one) for one in re.findall(r"boxed\{(\d+)\}", text)]


def solved(plan: str, say: Callable[[str, float], str], seed: int = 0, others: Any = None, **budget: Any) -> Solution:
    """Solve with a model that is a function of its prompt's text and a draw in [0, 1)."""
    model = FunctionBackend(lambda ask: say(text_of(ask), np.random.default_rng(ask.seed).random()))
    end = search_one(
        "What is 3 + 4?",
        Budget(**budget or {"samples": 10**3}),
        plan,
        model,
        seed=seed,
        models=others or {},
        task="math",
    )
    return end.solution


# Self-refine ----------------------------------------------------------------------------------------------------------


def counting(text: str, draw: float) -> str:
    """Answer one more than what is shown; a critique finds something wrong below 3."""
    shown = answered(text.split("Check", maxsplit=1)[0].replace("\\boxed{}", ""))
    if "Name the first step that is wrong" in text:
        return "Nothing is wrong." if shown[-1] == 3 else f"{shown[-1]} is too small."
    assert not shown or f"Critique of it:\n{shown[-1]} is too small." in text
    return f"It is \\boxed{{{shown[-1] + 1 if shown else 0}}}."


@pytest.mark.parametrize(("rounds", "last", "samples"), [(0, "0", 1), (2, "2", 5), (3, "3", 7), (9, "3", 8)])
def test_a_chain_goes_on_until_nothing_is_wrong(rounds: int, last: str, samples: int) -> None:
    solution = solved(f"self_refine(n=1, rounds={rounds})", counting)
    assert solution.answer == last
    assert solution.usage.samples == samples, (
        "a solution, then a critique and a solution each, and the critique that ends it"
    )
    assert [c.answer for c in sorted(solution.candidates, key=lambda c: c.index)] == [
        str(i) for i in range(int(last) + 1)
    ]
    assert solution.confidence == 1.0, "what was refined has no vote"


@pytest.mark.slow
@repeats(60, 200)
def test_refining_is_right_as_often_as_the_exact_law_says(runs: int) -> None:
    """A wrong solution is always found wrong, and mended with a chance q: after r rounds 1 - (1 - p)(1 - q)^r are
    right.
    """
    p, q, rounds = 0.3, 0.4, 2

    def say(text: str, draw: float) -> str:
        shown = answered(text)
        if "Name the first step that is wrong" in text:
            return "Nothing is wrong." if shown[-1] == 7 else "The sum is wrong."
        return f"\\boxed{{{7 if draw < (q if shown else p) else 8}}}"

    right = sum(solved(f"self_refine(n=1, rounds={rounds})", say, seed=seed).answer == "7" for seed in range(runs))
    assert right / runs == near(1 - (1 - p) * (1 - q) ** rounds, runs)


ENDS = (
    "All steps hold.\nVerdict: right",
    "**Verdict:** Right.",
    "VERDICT - RIGHT",
    "The first wrong step: 2? No.\n\nVerdict:\n`right`",
    "Step 1. Verdict: wrong? No, 3 + 4 is 7.\nVerdict: right",
    "There is none.",
    "I checked each step. So there is none!",
    "3 + 4 is 7. Nothing is wrong.",
    "I find no errors in the solution.",
    "As 3 + 4 = 7, it holds: the earlier solution is correct.",
    "none",
)
GOES_ON = (
    "Nothing is wrong with the set-up, but the sum is 7.",
    "There is none of the carrying in it that the sum takes.",
    "Nothing is wrong in step 1.\nVerdict: wrong",
    "Verdict: right for step 1; step 2 is wrong. Verdict: wrong",
    "There is none.\nVerdict: wrong",
    "It is not correct.",
    "Step 3 is wrong.",
    "Other than in step 2, there is none.",
    "Verdict: unsure",
    "Verdict: right? No: it is wrong.",
    "Verdict: right or wrong? Wrong.",
    "Verdict: right/wrong",
    "Verdict: right. No, wait: it is incorrect.",
    "Is the verdict right? Step 2 is wrong.",
    "...",
    "",
)


@pytest.mark.parametrize("critique", ENDS)
def test_a_critique_that_finds_nothing_ends_its_chain_however_it_is_worded(critique: str) -> None:
    assert finds_nothing_wrong(critique)


@pytest.mark.parametrize("critique", GOES_ON)
def test_praise_in_passing_ends_no_chain(critique: str) -> None:
    assert not finds_nothing_wrong(critique)


def test_a_right_solution_keeps_its_vote_when_its_critique_says_that_there_is_none() -> None:
    def say(text: str, draw: float) -> str:
        assert "correct what is wrong" not in text, "no solution is written anew"
        return (
            "Each step is as it should be. There is none."
            if "Name the first step that is wrong" in text
            else "\\boxed{7}"
        )

    solution = solved("self_refine(n=2)", say)
    assert (solution.answer, solution.confidence, solution.usage.samples) == ("7", 1.0, 4)


@pytest.mark.parametrize("task", ["math", "multiple_choice", "json", "text"])
def test_each_critique_is_asked_for_its_verdict_in_the_last_line(task: str) -> None:
    (message,) = get(task).prompt(Problem("What is 3 + 4?"), "critique", ["7"])
    assert isinstance(message, Message)
    assert message.content.splitlines()[-1].endswith("End with one line: Verdict: right, or Verdict: wrong.")


def test_a_stop_text_ends_a_chain_wherever_it_stands() -> None:
    def say(text: str, draw: float) -> str:
        return "Verdict: wrong, though FINE." if "Name the first step that is wrong" in text else "\\boxed{7}"

    assert solved("self_refine(n=1, stop='fine')", say).usage.samples == 2
    assert solved("self_refine(n=1, rounds=2)", say).usage.samples == 5


# Mixture of agents ----------------------------------------------------------------------------------------------------


def test_each_layer_sees_what_the_layer_before_wrote() -> None:
    shown: list[list[int]] = []

    def writer(name: int) -> Callable[[str, float], str]:
        def say(text: str, draw: float) -> str:
            shown.append(answered(text))
            return f"\\boxed{{{name}}}"

        return say

    second = writer(2)
    others = {"second": FunctionBackend(lambda ask: second(text_of(ask), 0.0))}
    plan = "mixture_of_agents(writers=['policy', 'second'], samples=2, layers=2, aggregator='second')"
    solution = solved(plan, writer(1), others=others)
    assert [sorted(one) for one in shown] == [[]] * 4 + [[1, 1, 2, 2]] * 5
    assert solution.answer == "2"
    assert solution.confidence == 1.0, "the layers have no vote"
    assert solution.usage.samples == 2 * 2 * 2 + 1


@pytest.mark.slow
@repeats(60, 200)
def test_a_mixture_is_right_as_often_as_the_exact_law_says(runs: int) -> None:
    """An aggregator that knows a right solution when it sees one: one of three is right with the chance 1 - (1 -
    p)^3.
    """
    p = 0.3

    def say(text: str, draw: float) -> str:
        shown = answered(text)
        return f"\\boxed{{{7 if (7 in shown if shown else draw < p) else 8}}}"

    right = sum(solved("mixture_of_agents(samples=3)", say, seed=seed).answer == "7" for seed in range(runs))
    assert right / runs == near(1 - (1 - p) ** 3, runs)


def test_samples_left_out_are_what_the_budget_pays_and_fused_solutions_alone_vote() -> None:
    solution = solved("mixture_of_agents", lambda text, draw: f"\\boxed{{{2 if answered(text) else 1}}}", samples=9)
    assert solution.usage.samples == 9
    assert {c.answer for c in solution.candidates} == {"2"}


# Tree of thoughts -----------------------------------------------------------------------------------------------------


class Valuing(ToyBackend):
    """The toy, whose lines err by +1 alone, and which knows whether the steps that it is shown are right."""

    def __init__(self, accuracy: float) -> None:
        super().__init__(ToyLanguage(accuracy=accuracy, slips=((1, 1.0),)))
        self.asked: list[tuple[Any, str]] = []

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        replies = await super().open(["1 + 1" if not isinstance(prompt, str) else prompt for prompt in prompts])
        self.asked += [
            (reply.value, p[-1].content.split("Steps:")[1])
            for reply, p in zip(replies, prompts, strict=True)
            if not isinstance(p, str)
        ]
        return replies

    def sample(self, request: SampleRequest) -> RowSet:
        steps = next((text for handle, text in self.asked if handle is request.handle), None)
        if steps is None:
            return super().sample(request)
        lines = re.findall(r"(-?\d+) ([+-]) (\d+) = (-?\d+)", steps)
        right = all(int(a) + (1 if sign == "+" else -1) * int(b) == int(c) for a, sign, b, c in lines)
        rows = RowSet(request)
        for index in range(len(request.rows)):
            self.counters.generated_tokens += 1
            rows.resolve(
                index, Sample("It is sure." if right else "Impossible", (), (), "eos", request.handle.child(), 1)
            )
        return rows


@pytest.mark.slow
@repeats(60, 200)
@pytest.mark.parametrize(
    ("branching", "n"), [pytest.param(1, 1, marks=pytest.mark.slow), (2, 1), pytest.param(3, 1, marks=pytest.mark.slow)]
)
def test_a_search_with_true_values_is_right_as_often_as_the_exact_law_says(branching: int, n: int, runs: int) -> None:
    """One state is kept: each of two steps is right where one of its k samples is. A slip is never undone."""
    accuracy, right = 0.5, 0
    for seed in range(runs):
        plan = f"tree_of_thoughts(n={n}, branching={branching}, votes=1)"
        end = search_one("3 + 4 - 2", Budget(tokens=4000), plan, Valuing(accuracy), seed=seed)
        right += end.solution.answer == "5"
    assert right / runs == near((1 - (1 - accuracy) ** branching) ** 2, runs)


def test_values_are_asked_for_once_a_state_and_weigh_the_vote() -> None:
    backend = Valuing(0.5)
    end = search_one("3 + 4 - 2", Budget(tokens=4000), "tree_of_thoughts(n=3, branching=3, votes=2)", backend)
    asked = [text for _, text in backend.asked]
    assert len(asked) == len(set(asked)) > 3
    weights = {c.answer: c.trajectory for c in end.solution.candidates}
    assert len(weights) > 1
    for c in end.solution.candidates:
        right = all(
            eval(left) == int(value)
            for left, value in re.findall(r"(-?\d+ [+-] \d+) = (-?\d+)", c.trajectory.full_text)
        )
        assert c.weight == pytest.approx(2 * (20.0 if right else 0.001))


def test_the_last_label_of_a_reply_counts() -> None:
    from tts_addons.zoo.tree_of_thoughts import value_of

    replies = ("It is likely, no: Sure!", "impossible.", "Surely not", "", "sure ... likely")
    assert [value_of(reply) for reply in replies] == [20.0, 0.001, 1.0, 1.0, 1.0]
