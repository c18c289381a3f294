"""Tree methods on our engine with a process model: a prefix is read once, and steps are embedded by the policy's own
states.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import pair
from tests.support.pair import home  # noqa: F401 - a fixture
from tests.support.runs import Solved, search_one
from tts.budget.budget import Budget
from tts.verifiers.heads import ProcessVerifier

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the pair's files are made by it")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")


def solved_on_engine(plan: str) -> tuple[Solved, int]:
    """Return a search of the random pair, and the tokens that its process model computed by the engine's own count."""
    backend: Any = pair.shared_engine()
    stats = backend.reward_models["process"].runner.stats
    before = stats.prefill_computed
    end = search_one("3 + 4 - 2 + 9", Budget(tokens=40_000), plan, backend, verifiers=ProcessVerifier())
    return end, stats.prefill_computed - before


@pytest.mark.parametrize("name", ["beam", "dvts", "rebase"])
def test_the_process_model_computes_hardly_more_than_what_was_written(name: str) -> None:
    end, computed = solved_on_engine(f"{name}(n=16, max_steps=5, temperature=1.0)")
    tree = end.search.tree
    written = sum(tree.own_tokens(tree.nodes[node]) for node, _ in tree.scores)
    prompts = end.search.account.ledger.total().prompt_tokens - tree.prompt_tokens[0]  # its own pass over the prompt
    assert max(t.depth for t in tree.nodes) > 2
    assert (computed - prompts) / written <= 1.1


def test_steps_may_be_embedded_by_the_policys_hidden_states() -> None:
    end, _ = solved_on_engine("ets(n=8, max_steps=4, temperature=1.0, embedder='hidden')")
    asked = [call for call in end.search.account.ledger.calls if call.kind == "hidden"]
    assert asked
    assert {call.usage.prompt_tokens for call in asked} == {0}  # the states are kept: nothing is read anew
    live = [t for t in end.search.tree.nodes if t.depth == 1]
    assert asked[0].rows == len(live)
    assert np.mean([call.rows for call in asked]) > 1
