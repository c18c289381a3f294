"""What strategies refuse, before anything is spent: values, roles without a model, prompts and capabilities."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tts
from tests.support.runs import solution_of
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.errors import CapabilityError, ConfigError
from tts.search.plan import parse

COUNT, NAMES = "must be a whole number of at least", "must be a list of roles"
VALUES = [
    ("self_refine(n=0)", f"n is 0, but {COUNT} 1"),
    ("self_refine(stop='')", "stop is '', but must be a text"),
    ("mixture_of_agents(writers=[])", f"writers is .*, but {NAMES}"),
    ("mixture_of_agents(writers=['a', 'a'])", "writers is .*, but must name each role once"),
    ("mixture_of_agents(prompt='solve')", "prompt is 'solve', but must be 'fuse' or 'revise'"),
    ("ab_mcts(posterior='t')", "posterior is 't', but must be 'normal', 'beta' or 'mixed'"),
    ("ab_mcts(writers='policy')", NAMES),
    ("cascade(models=[])", f"models is .*, but {NAMES}"),
    ("cascade(samples=[3])", "samples is .*, but must be a list of 2 whole numbers of at least 1, one a model"),
    ("cascade(samples=[3, 0.5])", "samples is .*, but must be a list of 2 whole numbers"),
    ("cascade(thresholds=[0.5, 0.5])", "thresholds is .*, but must be a list of 1 numbers between 0 and 1"),
    ("cascade(thresholds=[1.5])", "thresholds is .*, but must be a list of 1 numbers between 0 and 1"),
    ("cascade(samples=[1, 4])", "one sample always agrees with itself"),
    *((f"cascade(efforts={efforts})", "efforts is") for efforts in ("['low']", "'low'", "['low', 3]")),
    *((f"cascade(thought_tokens={one})", "thought_tokens") for one in ("[0]", "0", "[0, -1]", "[0, 1.5]", "[True, 3]")),
    ("self_verification(verifications=-1)", f"verifications is -1, but {COUNT} 0"),
    ("self_verification(law=[1.0])", r"law is \[1.0\], but must be a scale of at least 0 and an exponent"),
    ("self_verification(law=[1.0, 2.0])", "an exponent between 0 and 1"),
    ("self_verification(law=[1.0, 0.5], verifications=2)", "give one of them"),
    ("recursive_self_aggregation(n=4, subset=5)", "subset.*5,.*which"),
    *((f"rebase(balance_temperature={value})", "balance_temperature is") for value in ("0", "1e-9", "-1")),
    ("a_star(edge_cost='drp')", "edge_cost is 'drp'"),
    ("a_star(frontier='globe')", "frontier is 'globe'"),
]


@pytest.mark.parametrize(("text", "message"), VALUES)
def test_what_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert re.search(message, str(refused.value))


@pytest.mark.parametrize(
    ("plan", "role"),
    [
        ("cascade", "large"),
        ("ab_mcts(n=4, writers=['policy', 'large'])", "large"),
        ("mixture_of_agents(writers=['policy', 'other'])", "other"),
        ("self_verification(n=2, verifications=1, checker='third')", "third"),
        ("spec_reason(n=1)", "draft"),
        ("entropy_switching(n=1)", "draft"),
    ],
)
def test_a_role_without_a_model_is_refused(plan: str, role: str) -> None:
    policy = ToyBackend()
    with pytest.raises(ConfigError, match=rf"'{role}',.*(one: policy|'{role}')"):
        tts.solve("3 + 4", 100, model=policy, strategy=plan, verifier=lambda problem, text: 0.5, task="math")
    assert policy.counters.prompt_tokens == 0


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        ("recursive_self_aggregation(n=4, rounds=2)", "fuse"),
        ("recursive_self_aggregation", "fuse"),
        ("pacore(widths=[4])", "fuse"),
        ("pacore", "fuse"),
        ("semantic_entropy(n=2)", "fuse"),
        ("sequential_revision(chains=2, length=2)", "revise"),
        ("self_refine(n=2)", "critique"),
    ],
)
def test_a_task_without_the_prompt_is_refused(plan: str, kind: str) -> None:
    backend = ToyBackend()
    with pytest.raises(ConfigError, match=f"takes the prompt '{kind}', which the task 'arithmetic' lacks"):
        solution_of("3 + 4", tts.Budget(samples=9), plan, backend)
    assert backend.counters.prompt_tokens == 0


@pytest.mark.parametrize(
    "plan", ["recursive_self_aggregation(n=4, rounds=1)", "sequential_revision(chains=2, length=1)"]
)
def test_where_nothing_is_shown_no_such_prompt_is_needed(plan: str) -> None:
    assert solution_of("3 + 4 - 2", tts.Budget(samples=9), plan, ToyBackend()).answer is not None


TWICE = "cascade(models=['policy', '{}'], samples=[2, 3], thresholds=[1.0], {})"


@pytest.mark.parametrize(
    ("plan", "models", "lacks"),
    [
        (TWICE.format("policy", "efforts=['low', 'high']"), {}, "'efforts'"),
        (TWICE.format("large", "efforts=['', 'high']"), {"large": ToyBackend()}, "'efforts'"),
        (TWICE.format("policy", "thought_tokens=[0, 50]"), {}, "thought"),
        (
            "entropy_switching(n=1)",
            {"draft": FunctionBackend(lambda ask: "A: 5")},
            "'draft',.*capability 'logprobs'",
        ),
    ],
)
def test_what_a_model_lacks_is_refused(plan: str, models: dict[str, Any], lacks: str) -> None:
    policy = ToyBackend()
    with pytest.raises(CapabilityError, match=lacks):
        solution_of("3 + 4 - 2", tts.Budget(samples=9), plan, policy, models=models)
    assert [one.counters.prompt_tokens for one in (policy, *models.values())] == [0] * (1 + len(models))
