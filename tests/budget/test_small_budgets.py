"""A budget for a few solutions is used although the task expects far longer ones, and a search that leaves much of it
says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tts
from tests.budget.test_spending import FORMS, NAMES, THINKING, judged
from tests.support.revising import RevisingTask
from tests.support.runs import search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.search.lengths import KnownLengths
from tts.verifiers.function import FunctionVerifier

LENGTH = 15  # tokens of a solution of the toy's
EARLY = {  # ends that are the strategy's purpose
    "adaptive": "score",
    "cascade": "the model 'policy' has the score",
    "deepconf_online": "consensus",
    "semantic_entropy": "entropy 0",
    "spec_reason": "what is left does not pay the grades",
}


class LongTask(RevisingTask):
    """Expects solutions of 256 tokens."""

    def typical_tokens(self, kind: str) -> int:
        return 48 if kind == "step" else 256


def check_used(name: str, samples: int) -> None:
    limit, backend = samples * LENGTH, ToyBackend(ToyLanguage(accuracy=0.7, thoughts=name in THINKING))
    end = search_one(
        "10 - 7 + 5", limit, FORMS.get(name, name), backend, verifiers=FunctionVerifier(judged), task=LongTask()
    )
    solution = end.solution
    assert solution.error is None
    assert solution.usage.tokens >= 0.8 * limit or solution.stopped_by.startswith(EARLY.get(name, "none")), (
        solution.usage.tokens / limit,
        solution.stopped_by,
        solution.warnings,
    )


@pytest.mark.parametrize(
    "name", ["mcts", "a_star", "program_aided", "forest_of_thought", "answer_convergence", "entropy_switching", "mur"]
)
def test_what_is_held_by_an_assumption_keeps_no_budget_unspent(name: str) -> None:
    check_used(name, 20)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [5, 8, 13, 17, 20, 22])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_uses_a_small_budget(name: str, samples: int) -> None:
    check_used(name, samples)


def test_the_first_solution_is_the_one_that_the_search_would_end_with() -> None:
    """The path that teaches lengths is a plain sample, which a budget for one solution gives, too."""
    few, many = (
        tts.solve("3 + 4 - 2", n * LENGTH, model="toy", task=LongTask(), strategy="forest_of_thought") for n in (1, 10)
    )
    assert few.candidates[0].trajectory.text == many.trace.nodes[1].text
    assert len(few.candidates) == 1


def test_an_expansion_goes_on_once_a_length_was_learnt() -> None:
    made: list[int] = []

    class Expanding(tts.Strategy):
        async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
            made.extend(len(of) for of in await search.expand([search.root], 2))
            return search.candidates

    end = search_one("3 + 4 - 2", 10 * LENGTH, Expanding(), ToyBackend(), task=LongTask())
    assert (made, len(end.solution.candidates)) == ([2], 1)


def test_lengths_of_another_kind_of_prompt_are_revised_once_solutions_are_known() -> None:
    lengths = KnownLengths(LongTask(), None)
    assert lengths.get("program").expected_length() == 256
    lengths.get("solve").note(0, LENGTH, ended=True)
    assert lengths.get("program").expected_length() == LENGTH


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"tokens": 15}, "done"),
        ({"samples": 1}, "done"),
        ({"samples": 4}, "single draws one sample"),
        ({"tokens": 400}, "single draws one sample"),
    ],
)
def test_single_says_that_it_draws_one_sample_where_the_budget_pays_more(limit: dict[str, int], said: str) -> None:
    solution = tts.solve("3 + 4 - 2", tts.Budget(**limit), model="toy", strategy="single")
    assert solution.stopped_by == said
    assert len(solution.candidates) == 1
