"""A budget is there to be used: every strategy spends four fifths of it, or its end has a reason that a user
understands.
"""

from __future__ import annotations

from typing import Any

import pytest

import tts
from tests.support.heavy import heavy_tailed_model
from tests.support.revising import RevisingTask
from tests.support.runs import search_one
from tts.backends.base import CAPABILITIES
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.search.needs import needs_of
from tts.search.parts import STRATEGIES
from tts.search.plan import parse
from tts.types import Solution
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

NAMES = sorted(set(STRATEGIES.names()) - {"single"})  # which is one sample
FUSING = {"mixture_of_agents", "pacore", "recursive_self_aggregation", "semantic_entropy"}
THINKING = {"budget_forcing": "budget_forcing(thought_tokens=24)"}  # on a model that thinks
FORMS = (
    THINKING
    | {"cascade": "cascade(models=['policy', 'policy'])", "a_star": "a_star(goals=None)"}
    | {name: f"{name}(draft='policy')" for name in ("entropy_switching", "spec_reason")}
)  # with the one model that there is; as many goals as the budget pays
LACKS = {need for need in CAPABILITIES if getattr(heavy_tailed_model().caps, need) in ("absent", False)}
PLAIN = [name for name in NAMES if not LACKS & {*needs_of(parse(FORMS.get(name, name)).strategy).capabilities}]


def check_spent(solution: Solution, limit: int) -> None:
    assert solution.error is None
    assert solution.usage.tokens <= limit
    assert solution.usage.tokens >= 0.8 * limit or solution.stopped_by != "done", (
        solution.usage.tokens / limit,
        solution.warnings,
    )
    if solution.stopped_by.startswith("budget") and solution.usage.tokens < 0.8 * limit:
        reasons = ("one more solution may take", "were held for scores that cost less", "would do next may take more")
        assert any(reason in warning for warning in solution.warnings for reason in reasons)


def judged(problem: Any, text: str) -> float:
    del problem
    return 0.1 + 0.8 * (sum(map(ord, text)) % 97) / 97


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("samples", [8, 30])
def test_on_the_toy_language(name: str, samples: int) -> None:
    limit, backend = samples * 64, ToyBackend(ToyLanguage(accuracy=0.7, thoughts=name in THINKING))
    end = search_one(
        "10 - 7 + 5", limit, FORMS.get(name, name), backend, verifiers=ToyVerifier(error=0.1), task=RevisingTask()
    )
    check_spent(end.solution, limit)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("samples", [8, 30])
def test_on_a_function_with_heavy_tailed_lengths(name: str, samples: int) -> None:
    limit = samples * 60
    end = search_one(
        "10 - 7 + 5",
        limit,
        FORMS.get(name, name),
        heavy_tailed_model(),
        verifiers=FunctionVerifier(judged),
        seed=samples,
        task=RevisingTask(),
    )
    check_spent(end.solution, limit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if name not in THINKING and name not in ("archon", "mind_evolution", "program_aided", "self_refine")
    ],
)  # which take prompts that the task lacks
def test_on_the_embedded_policy(name: str) -> None:
    pytest.importorskip("torch")
    limit = 1200
    form = f"{name}(prompt='revise')" if name in FUSING else FORMS.get(name, name)  # the task has no prompt "fuse"
    check_spent(tts.solve("What is 12 + 7 * 3 - 5 + 6?", limit, strategy=form, seed=2), limit)


@pytest.mark.parametrize("samples", [8, 30])
def test_the_one_search_that_ends_at_its_goal_says_what_it_leaves(samples: int) -> None:
    limit = samples * 64
    toy, scores = ToyBackend(ToyLanguage(accuracy=0.7)), {"main": ToyVerifier(error=0.1)}
    end = search_one("10 - 7 + 5", limit, "a_star", toy, verifiers=scores)
    left = f"{limit - end.solution.usage.tokens:,}"
    assert end.solution.warnings == (f"a_star ended at its first solution with {left} tokens left; goals=None goes on",)
