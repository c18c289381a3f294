"""The oracles of diverse verifier tree search (algorithm A5), on the toy language and on scripted trees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.runs import search_one, solution_of
from tests.support.scripted import Scripted, hash_verifier, table
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.types import Solution
from tts.verifiers.toy import ToyVerifier

TEXT = "3 + 4 - 2 + 9"
LAW = ToyLanguage(accuracy=0.6)
AMPLE = Budget(tokens=100_000)


def found(plan: str, seed: int = 0, **more: Any) -> Solution:
    return solution_of(
        TEXT, AMPLE, plan, ToyBackend(LAW), seed=seed, verifiers=more.pop("verifiers", hash_verifier(seed))
    )


def texts(solution: Solution) -> list[str]:
    return sorted(c.trajectory.full_text for c in solution.candidates)


def test_a_subtree_does_not_depend_on_the_others() -> None:
    for seed in range(5):
        wide = [t.full_text for t in in_subtrees(found("dvts(n=12, branching=4)", seed))]
        assert len(wide) == 12
        for groups in (1, 2):
            assert [t.full_text for t in in_subtrees(found(f"dvts(n={4 * groups}, branching=4)", seed))] == wide[
                : 4 * groups
            ]


def in_subtrees(solution: Solution) -> list[Any]:
    """Return the final paths in the order that the strategy gave them: that of the subtrees, whose roots' children are
    in order.
    """
    return sorted((c.trajectory for c in solution.candidates), key=lambda t: (t.path[1].node, t.node))


@pytest.mark.parametrize(("n", "branching", "subtrees"), [(8, 4, 2), (6, 4, 2), (5, 5, 1), (3, 8, 1), (7, 2, 4)])
def test_n_paths_come_out_and_siblings_share_all_but_their_last_step(n: int, branching: int, subtrees: int) -> None:
    solution = found(f"dvts(n={n}, branching={branching})")
    parents = [c.trajectory.parent.node for c in solution.candidates]
    assert len(parents) == n
    widths = sorted((parents.count(parent) for parent in set(parents)), reverse=True)
    assert len(widths) == subtrees
    assert widths == [branching] * (n // branching) + ([n % branching] if n % branching else [])


def test_a_subtree_goes_on_from_its_best_path_and_closes_when_that_one_has_ended() -> None:
    script = {"": ("a\n", "A: 1\n"), "a\n": ("A: 2\n", "b\n"), "a\nb\n": ("A: 3\n", "A: 4\n")}
    low = table({"A: 1": 0.4, "a": 0.9, "A: 2": 0.3, "b": 0.8, "A: 3": 0.2, "A: 4": 0.1})
    solution = solution_of("1 + 1", AMPLE, "dvts(n=2, branching=2)", Scripted(script), verifiers=low)
    # earlier levels are left behind
    assert [c.answer for c in sorted(solution.candidates, key=lambda c: c.index)] == ["3", "4"]
    ended = table({"A: 1": 0.95, "a": 0.9})
    first = solution_of("1 + 1", AMPLE, "dvts(n=2, branching=2)", Scripted(script), verifiers=ended)
    assert [c.answer for c in first.candidates] == ["1"]  # its sibling had not ended


def test_among_equals_the_first_is_chosen() -> None:
    for seed in range(10):
        mine, plain = (
            found("dvts(n=4, branching=4)", seed, verifiers=ToyVerifier(error=0.5)),
            found("single", seed),
        )
        assert mine.candidates[0].trajectory.full_text == texts(plain)[0]


def test_nothing_is_scored_where_nothing_is_to_be_chosen() -> None:
    end = search_one(TEXT, AMPLE, "dvts(n=5, branching=4) | majority", ToyBackend(LAW), verifiers=hash_verifier())
    rows = [call.rows for call in end.search.account.ledger.calls if call.kind == "score"]
    assert rows == [4] * len(rows)  # the subtree of width 1 is not asked about
    assert rows
