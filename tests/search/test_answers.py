"""A search that can answer does: whatever ended it, whatever failed, and with the confidence of what it answers."""

from __future__ import annotations

import pytest

import tts
from tests.support.chaos import ChaosBackend
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError
from tts.verifiers.toy import ToyVerifier

PROBLEMS = [f"{7 * i % 50} + {i % 9} - {i % 4} + {3 * i % 11} - {i % 7}" for i in range(6)]


@pytest.mark.parametrize(
    ("strategy", "budget"),
    [
        ("mcts", tts.Budget(samples=4, verifier_calls=5)),
        ("mcts", tts.Budget(samples=2, tokens=130)),
        ("a_star", tts.Budget(samples=5, verifier_calls=5)),
        ("dvts(lookahead=2)", tts.Budget(samples=12)),
        ("beam(n=4, lookahead=1)", tts.Budget(samples=5)),
    ],
)
def test_what_a_search_has_begun_is_completed_where_no_further_branch_can_be_paid(
    strategy: str, budget: tts.Budget
) -> None:
    for seed, problem in enumerate(PROBLEMS * 2):
        solution = tts.solve(problem, budget, model="toy", verifier="toy(error=0.2)", strategy=strategy, seed=seed)
        assert solution.answer is not None, (problem, seed)


@pytest.mark.parametrize("strategy", ["beam", "dvts", "rebase", "a_star", "mcts", "particle_filter"])
def test_one_failure_in_ten_loses_no_problem(strategy: str) -> None:
    for seed, problem in enumerate(PROBLEMS * 2):
        backend = ChaosBackend(ToyBackend(), seed, fail=0.1)
        solution = tts.solve(
            problem,
            tts.Budget(samples=4),
            backend=backend,
            task="arithmetic",
            verifier="toy(error=0.1)",
            strategy=strategy,
            seed=seed,
        )
        assert solution.answer is not None, (problem, seed)
        assert solution.usage.samples <= 4


def test_a_stop_rules_answer_has_the_confidence_of_its_own_candidates() -> None:
    said = iter("1112111211122222")

    def model(ask: tts.Ask) -> tts.Answer:
        return tts.Answer(f"\\boxed{{{next(said)}}}", tokens=3)

    solution = tts.solve(
        "Which?",
        tts.Budget(samples=16),
        backend=model,
        task="math",
        strategy="best_of_n(n=16) | unanimous(window=4) | majority",
    )
    assert (solution.answer, solution.answers) == ("2", ("2", "1"))
    assert solution.confidence == 7 / 16
    assert [c.answer for c in solution.candidates] == ["2"] * 7 + ["1"] * 9


def test_a_budget_that_does_not_bound_the_search_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(ConfigError, match=r"budget.*bound"):
        tts.solve(PROBLEMS[0], tts.Budget(verifier_calls=3), model="toy", strategy="best_of_n | majority")
    verified = tts.solve(
        PROBLEMS[0],
        tts.Budget(verifier_calls=3),
        model="toy",
        verifier="toy",
        allow_oracle=True,
        strategy="best_of_n | best",
    )
    assert (len(verified.candidates), verified.usage.verifier_calls) == (3, 3)


def test_a_score_that_is_too_dear_for_the_rest_is_named() -> None:
    class Dear(ToyVerifier):
        def bound(self, prefix_tokens: int, new_tokens: int) -> int:
            return 900

    solution = tts.solve(PROBLEMS[0], 700, model="toy", verifier=Dear(), strategy="best_of_n | best_of_majority")
    assert solution.stopped_by == "budget: tokens"
    left = solution.remaining["tokens"]
    assert left > 100
    assert any(
        line.startswith(f"{left} tokens are left, but one more solution may take 9") for line in solution.warnings
    )
    assert any(line.endswith("900 of them for its score") for line in solution.warnings)
