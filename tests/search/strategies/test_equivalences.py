"""A strategy at the end of one of its parameters is another one: the same texts, from the same streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.revising import revising  # noqa: F401 - a fixture
from tests.support.runs import search_one
from tests.support.scripted import hash_verifier
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.verifiers.toy import ToyVerifier

pytestmark = pytest.mark.usefixtures("revising")
PROBLEM = "3 + 4 - 2 + 9"
LAW = ToyLanguage(accuracy=0.6)
REVISIONS = "sequential_revision(chains=1, length={}, shown=1)"
SAME = [  # for the same tokens
    *((f"a_star(goals=1, branching=1, width={width})", "single") for width in (1, 3)),
    ("rebase(n=1)", "single"),
    ("mcts(n=99, width=1)", "single"),
    ("guided_by_gut(n=1)", "single"),
    ("mur(n=1, branching=1)", "single"),
    ("mur(n=1, branching=4, gamma=0.0001)", "single"),  # which finds no step uncertain
    ("particle_filter(n=1)", "single"),
    ("particle_gibbs(n=1)", "single"),
    ("entropy_switching(n=1, threshold=0.1, draft='policy')", "single"),
    ("spec_reason(n=1, threshold=0, draft='policy')", "single"),
    *((f"power_sampling(block={b}, moves=0, chains=1)", "single(temperature=0.25)") for b in (1, 4, 100)),
    *((f"power_smc(n=1, block={b}, ramp={3 * b})", "single(temperature=0.25)") for b in (1, 4, 100)),
    ("adaptive(n=7, threshold=1.1)", "best_of_n(n=7)"),
    *((f"early_pruning(n=5, pruned=0.0, tokens={tokens})", "best_of_n(n=5)") for tokens in (3, 6, 100)),
    ("dvts(n=5, branching=1)", "best_of_n(n=5)"),
    ("dvts(n=4, branching=4)", "beam(n=4, branching=4, duplicates='keep')"),
    ("sequential_revision(chains=6, length=1)", "best_of_n(n=6)"),
    ("recursive_self_aggregation(n=6, rounds=1)", "best_of_n(n=6)"),
    ("recursive_self_aggregation(n=1, rounds=5)", REVISIONS.format(5)),
    ("pacore(widths=[1, 1, 1])", REVISIONS.format(4)),
]
PROBED = [  # what looks ahead costs tokens too
    ("answer_convergence(n=4, k=999, tokens=1)", "best_of_n(n=4)"),
    ("phi_decoding(n=1, beams=1, branching=1)", "single"),
]
CONSTANT = ("rebase(n=6)", "best_of_n(n=6)")  # where all scores are equal


@pytest.mark.parametrize(("plan", "other"), [*SAME, *PROBED, CONSTANT])
def test_one_strategy_is_another(plan: str, other: str) -> None:
    for seed in range(6):
        scores: Any = {"main": ToyVerifier(error=0.5)} if (plan, other) == CONSTANT else hash_verifier(seed)
        mine, theirs = (
            search_one(PROBLEM, Budget(samples=60), f"{one} | majority", ToyBackend(LAW), seed=seed, verifiers=scores)
            for one in (plan, other)
        )
        texts = [sorted(c.trajectory.full_text for c in end.search.candidates) for end in (mine, theirs)]
        assert texts[0] == texts[1]
        tokens = [end.solution.usage.generated_tokens for end in (mine, theirs)]
        assert tokens[0] == tokens[1] or (plan, other) in PROBED
        if plan.startswith(("a_star", "rebase(n=1)")):
            assert "main" not in mine.search.scoring.asked
