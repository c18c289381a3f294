"""The oracles of beam search (algorithm A4), on the toy language and on scripted trees."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.support.repeats import check_law, repeats
from tests.support.runs import copies, search_many, search_one, solution_of, texts_of
from tests.support.scripted import Scripted, hash_verifier, table
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.types import Problem
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

TEXT = "3 + 4 - 2 + 9"
LAW = ToyLanguage(accuracy=0.6, slips=((1, 1.0),))  # slips of one sign: no right answer by luck
AMPLE = Budget(tokens=100_000)


def test_without_branching_it_is_best_of_n() -> None:
    for seed in range(5):
        for n in (1, 3, 6):
            beam, plain = (
                search_one(TEXT, AMPLE, plan, ToyBackend(LAW), seed=seed, verifiers=hash_verifier(seed))
                for plan in (f"beam(n={n}, branching=1, duplicates='keep') | best", f"best_of_n(n={n}) | best")
            )
            assert sorted(texts_of(beam.solution)) == sorted(texts_of(plain.solution))
            assert beam.solution.answer == plain.solution.answer
            # the selection's alone
            assert [call.rows for call in beam.search.account.ledger.calls if call.kind == "score"] == [n]


@pytest.mark.slow
@pytest.mark.parametrize("duplicates", ["drop", "keep"])
def test_a_constant_verifier_keeps_the_plain_sample(duplicates: str) -> None:
    for seed in range(20):
        plan = f"beam(n=4, branching=2, duplicates='{duplicates}')"
        mine = solution_of(TEXT, AMPLE, plan, ToyBackend(LAW), seed=seed, verifiers=ToyVerifier(error=0.5))
        assert (
            mine.candidates[0].trajectory.full_text
            == texts_of(solution_of(TEXT, AMPLE, "single", ToyBackend(LAW), seed=seed))[0]
        )


@pytest.mark.slow
@pytest.mark.parametrize("runs", [150, 5000])
def test_under_a_constant_verifier_the_last_final_path_follows_the_models_law(runs: int) -> None:
    language, constant = ToyLanguage(accuracy=0.6), {"main": ToyVerifier(error=0.5)}
    plan = "beam(n=4, branching=2, duplicates='keep')"
    ends = search_many(copies("3 + 4 - 2", runs), AMPLE, plan, ToyBackend(language), verifiers=constant)
    seen = Counter(max(end.solution.candidates, key=lambda c: c.index).answer for end in ends)
    check_law(seen, language.answer_distribution("3 + 4 - 2"))


@pytest.mark.parametrize(("n", "branching", "kept"), [(8, 4, 2), (6, 4, 2), (5, 5, 1), (3, 8, 1), (7, 2, 4)])
def test_every_level_has_n_beams_and_n_over_m_of_them_are_kept(n: int, branching: int, kept: int) -> None:
    end = search_one(
        TEXT,
        AMPLE,
        f"beam(n={n}, branching={branching}, duplicates='keep')",
        ToyBackend(LAW),
        verifiers=hash_verifier(),
    )
    made, parents = Counter[int](), defaultdict[int, set[int]](set)
    for t in end.search.tree.nodes[1:]:
        made[t.depth] += 1
        parents[t.depth].add(t.parent.node)
    assert set(made.values()) == {n}
    assert [len(parents[depth]) for depth in sorted(parents)] == [1] + [kept] * (len(parents) - 1)
    for depth in list(made)[:-1]:  # and it is the best that are kept
        scores = {
            t.node: end.search.tree.scores[t.node, "main"].whole for t in end.search.tree.nodes[1:] if t.depth == depth
        }
        assert parents[depth + 1] == set(sorted(scores, key=lambda node: -scores[node])[:kept])
    assert len(end.search.tree.kept) == max(made)


def test_the_lookahead_draws_nothing_that_a_path_would_draw() -> None:
    for seed in range(5):
        none, far = (
            texts_of(solution_of(TEXT, AMPLE, plan, ToyBackend(LAW), seed=seed, verifiers=ToyVerifier(error=0.5)))
            for plan in ("beam(n=4, branching=2)", "beam(n=4, branching=2, lookahead=2)")
        )
        assert none == far


def final_only(problem: Problem, text: str) -> float:
    """Score finished solutions of TEXT: 1 if right; an unfinished one is not judged."""
    return 0.5 if "A:" not in text else float(text.endswith("A: 14"))


@pytest.mark.slow
@repeats(40, 100)
def test_paths_are_scored_at_the_end_of_their_lookahead(runs: int) -> None:
    verifiers = {"main": FunctionVerifier(final_only)}
    # greedy writing is right from a right prefix on. With it one of four is right at each of three steps: (1 - .4^4)^3
    # = .925; without it two steps are plain and the best of four ends: .6^2 (1 - .4^4) = .351. Standard error at most
    # sqrt(.25 / runs)  # noqa: ERA001
    for lookahead, expected in ((4, 0.925), (0, 0.351)):
        plan = f"beam(n=4, branching=4, lookahead={lookahead})"
        ends = search_many(copies(TEXT, runs), AMPLE, plan, ToyBackend(LAW), verifiers=verifiers)
        right = [end.solution.answer == "14" for end in ends]
        assert np.mean(right) == pytest.approx(expected, abs=3 * math.sqrt(0.25 / runs))


@pytest.mark.slow
@repeats(50, 150)
def test_a_perfect_verifier_finds_a_right_path_between_two_bounds(runs: int) -> None:
    n, q = 4, 0.6
    slack = 3 * math.sqrt(0.25 / runs)  # three standard errors at most
    for branching in (2, 4):
        plan = f"beam(n={n}, branching={branching})"
        ends = search_many(copies(TEXT, runs), AMPLE, plan, ToyBackend(LAW), verifiers=ToyVerifier())
        found = np.mean([any(c.answer == "14" for c in end.solution.candidates) for end in ends])
        assert 1 - (1 - q**3) ** n - slack <= found <= (1 - (1 - q) ** n) ** 3 + slack


ROOT_STEPS = ("a\n", "b\n", "a\n", "c\n")


def test_copies_of_a_text_are_dropped_before_they_are_scored() -> None:
    scores = table({"a": 0.9, "b": 0.4, "c": 0.3})
    for duplicates, parents in (("drop", {"a\n", "b\n"}), ("keep", {"a\n"})):
        plan = f"beam(n=4, branching=2, duplicates='{duplicates}')"
        end = search_one("1 + 1", AMPLE, plan, Scripted({"": ROOT_STEPS}), verifiers=scores)
        assert {c.trajectory.parent.text for c in end.solution.candidates} == parents
        first = next(call for call in end.search.account.ledger.calls if call.kind == "score")
        assert first.rows == (3 if duplicates == "drop" else 4)


def test_finished_paths_leave_the_beam_and_compete_at_the_end() -> None:
    script = {"": ("A: 1\n", "a\n", "b\n", "c\n"), "a\n": ("A: 2\n",), "b\n": ("A: 3\n",)}
    low = table({"A: 1": 0.1, "a": 0.9, "b": 0.8, "c": 0.2, "A: 2": 0.7, "A: 3": 0.6})
    solution = solution_of("1 + 1", AMPLE, "beam(n=4, branching=2)", Scripted(script), verifiers=low)
    assert solution.answer == "2"
    # the first n of five, by score: 1 is the worst
    assert Counter(c.answer for c in solution.candidates) == {"2": 2, "3": 2}
    high = table({"A: 1": 0.95, "a": 0.9, "b": 0.8, "c": 0.2, "A: 2": 0.7, "A: 3": 0.6})
    again = solution_of("1 + 1", AMPLE, "beam(n=4, branching=2)", Scripted(script), verifiers=high)
    assert again.answer == "1"
    assert again.trace.kept_tokens[0] == 3 + 2 * 2  # it took no place: a and b are kept


def test_the_trace_marks_what_was_dropped_and_not_the_way_to_a_solution() -> None:
    solution = solution_of(TEXT, AMPLE, "beam(n=6, branching=3)", ToyBackend(LAW), verifiers=hash_verifier())
    by_node = {node.node: node for node in solution.trace.nodes}
    on_the_way = {node.node for c in solution.candidates for node in c.trajectory.path}
    assert {node.node for node in by_node.values() if not node.pruned} == on_the_way
    assert len(on_the_way) < len(by_node)


def test_a_path_that_never_ends_is_ended_at_the_last_step() -> None:
    endless = Scripted({}, always=("x\n", "y\n"))
    end = search_one(
        "1 + 1", Budget(tokens=2000), "beam(n=2, branching=2, max_steps=5)", endless, verifiers=hash_verifier()
    )
    assert max(t.depth for t in end.search.tree.nodes) == 5
    assert {c.trajectory.status for c in end.solution.candidates} == {"truncated"}
