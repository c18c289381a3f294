"""Knockout and league against brute force, at their bounds of comparisons, and with what the budget holds for them."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.written import run as written
from tests.support.candidates import ScoredSearch, candidates
from tests.support.runs import Clock, Solved, make_run, search_one, solve_and_show
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.account import Exhausted
from tts.budget.budget import Budget
from tts.errors import ConfigError, EngineError, TTSError, VerifierError
from tts.search.needs import needs_of
from tts.search.parts import Selected
from tts.search.plan import parse
from tts.search.search import Search
from tts.search.selections.knockout import Knockout
from tts.search.selections.league import League, fixtures
from tts.search.selections.majority import Majority
from tts.search.selections.pivot import Pivot
from tts.search.selections.swiss import Swiss, covering_pairs, near_pairs
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, PairComparison, Traits
from tts.verifiers.toy import ToyVerifier

NAN = math.nan


class Judged(ScoredSearch):
    """A search whose judge prefers by a table of candidates; it counts the pairs that it was asked about."""

    def __init__(self, table: Mapping[tuple[int, int], float] | np.ndarray, most: int | None = None) -> None:
        super().__init__([], [])
        self.table, self.most, self.pairs = table, most, 0
        self.scoring.compare = self._by_table

    async def _by_table(
        self, pairs: Sequence[tuple[Trajectory, Trajectory]], role: str, problem: Problem
    ) -> list[float]:
        said = []
        for a, b in pairs:
            said.append(float(self.table[a.stream, b.stream]) if self.most is None or self.pairs < self.most else NAN)
            self.pairs += 1
        return said


def preferences(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return random preferences of each over each; those of two sum to one."""
    one = np.triu(rng.random((count, count)), 1)
    return one + np.tril(1 - one.T, -1)


def chosen(
    selection: Any, answers: Sequence[str | None], table: Any, most: int | None = None
) -> tuple[Selected, Judged]:
    search = Judged(table, most)
    return asyncio.run(selection.select(candidates(answers), search)), search


def bracket(entrants: list[int], table: np.ndarray, answers: Sequence[str]) -> int:
    """Return the winner, round by round, as the paper's box has it."""
    while len(entrants) > 1:
        entrants = [
            pair[0]
            if len(pair) == 1 or answers[pair[0]] == answers[pair[1]] or table[pair[0], pair[1]] > 0.5
            else pair[1]
            for pair in (entrants[i : i + 2] for i in range(0, len(entrants), 2))
        ]
    return entrants[0]


def test_a_knockout_is_its_bracket_by_brute_force() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        count = int(rng.integers(1, 18))
        answers = [str(one) for one in rng.integers(0, 6, count)]
        table = preferences(count, rng)
        found, search = chosen(Knockout(), answers, table)
        if search.pairs:
            winner = bracket(list(range(count)), table, answers)
            assert found.ranked[0].index == winner
            assert found.answers == (answers[winner],)
        assert search.pairs <= count - 1


@pytest.mark.parametrize("count", range(2, 20))
def test_a_knockout_of_different_answers_takes_one_comparison_less_than_there_are_candidates(count: int) -> None:
    best = count // 2
    table = np.fromfunction(lambda i, j: (abs(i - best) < abs(j - best)) + 0.0, (count, count))
    found, search = chosen(Knockout(), [str(i) for i in range(count)], table)
    assert search.pairs == count - 1
    assert (found.answers, found.confidence) == ((str(best),), 1.0)


def test_a_right_solution_survives_a_noisy_judge_with_the_chance_of_the_paper() -> None:
    """One of 2^r candidates is right, and wins a match with chance p: it wins all r with p^r, which the confidence is
    for such a judge.
    """
    p, r = 0.8, 3
    table = np.full((2**r, 2**r), 0.5)
    table[5, :], table[:, 5] = p, 1 - p
    found, _ = chosen(Knockout(), [str(i) for i in range(2**r)], table)
    assert found.answers == ("5",)
    assert found.confidence == pytest.approx(p**r)


def test_a_league_of_all_pairs_is_the_mean_of_the_table() -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        count = int(rng.integers(2, 10))
        table = preferences(count, rng)
        found, search = chosen(League(opponents=count), [str(i) for i in range(count)], table)
        means = (table.sum(axis=1) - np.diag(table)) / (count - 1)
        assert search.pairs == count * (count - 1) // 2
        assert found.answers == (str(int(means.argmax())),)
        assert found.confidence == pytest.approx(means.max() / means.sum())
        assert [c.weight for c in sorted(found.ranked, key=lambda c: c.index)] == pytest.approx(means.tolist())


@pytest.mark.parametrize(("count", "opponents"), [(9, 1), (9, 3), (9, 4), (10, 4), (10, 5), (2, 1), (3, 9), (40, 6)])
def test_everyone_has_twice_as_many_matches_as_opponents_or_all_there_are(count: int, opponents: int) -> None:
    pairs = list(fixtures(range(count), opponents))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == min(count * opponents, count * (count - 1) // 2)
    matches = np.bincount(np.array(pairs).ravel(), minlength=count)
    assert matches.tolist() == [min(2 * opponents, count - 1)] * count


@pytest.mark.parametrize("selection", [Knockout(), League(), Pivot(), Swiss()], ids=str)
def test_a_tournament_of_one_or_of_one_answer_holds_no_match(selection: Any) -> None:
    for answers in (["a"], ["a"] * 5, [None, "a", None]):
        found, search = chosen(selection, answers, {})
        assert found.answers == ("a",)
        assert search.pairs == 0
    assert chosen(selection, [None], {})[0].answers == ()
    assert chosen(selection, [], {})[0].answers == ()


@pytest.mark.parametrize("selection", [Knockout(), League(), Pivot(), Swiss()], ids=str)
def test_without_one_known_match_it_is_the_majority(selection: Any) -> None:
    assert chosen(selection, ["a", "b", "b", "c"], np.full((4, 4), NAN))[0].answers == ("b",)


@pytest.mark.parametrize("selection", [Knockout(), League()], ids=str)
def test_matches_that_are_undecided_go_to_the_more_frequent_answer(selection: Any) -> None:
    answers = ["a", "b", "b", "c"]
    table = np.full((4, 4), NAN)
    table[0, 1], table[1, 0] = 0.5, 0.5  # known, and undecided
    assert chosen(selection, answers, table)[0].answers == ("b",)


def test_comparisons_that_the_budget_does_not_pay_are_unknown() -> None:
    table = preferences(8, np.random.default_rng(1))
    answers = [str(i) for i in range(8)]
    full, _ = chosen(Knockout(), answers, table)
    cut, search = chosen(Knockout(), answers, table, most=6)
    assert search.pairs == 7
    finalists = [c.index for c in full.ranked[:2]]
    assert cut.ranked[0].index == min(finalists)  # the final is unknown, and goes to the first


# With a budget --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compares(ToyVerifier):
    """Prefers the smaller answer; a pair may cost ten tokens, and costs none."""

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        return [1.0 if _answer(a) < _answer(b) else 0.0 for a, b in pairs]

    @property
    def traits(self) -> Traits:
        return Traits(comparison=PairComparison(self.compare, pair_bound=10))


def _answer(t: Trajectory) -> int:
    return int(t.full_text.rsplit("A: ", 1)[1])


def run(plan: str, **limits: int) -> Solved:
    backend = ToyBackend(ToyLanguage(accuracy=0.1, slips=((1, 0.3), (-1, 0.3), (5, 0.2), (-5, 0.2))))
    return search_one("10 - 7 + 5 - 20", Budget(**limits), plan, backend, verifiers=Compares())


@pytest.mark.parametrize("plan", ["knockout", "league(opponents=1)", "league(opponents=3)"])
@pytest.mark.parametrize(
    "limits", [{"verifier_calls": 12}, {"tokens": 700}, {"verifier_tokens": 130}], ids=lambda one: next(iter(one))
)
def test_all_comparisons_of_a_tournament_are_in_the_budget(plan: str, limits: dict[str, int]) -> None:
    end = run(f"best_of_n | {plan}", **limits)
    found = end.solution.candidates
    assert len(found) >= 3
    kinds = [c.answer for c in sorted(found, key=lambda c: c.index)]
    (each,) = needs_of(parse(f"single | {plan}").selection).pairs.values()
    matches = list(fixtures(range(len(found)), each))
    most = len(found) - 1 if plan == "knockout" else sum(kinds[a] != kinds[b] for a, b in matches)
    assert 0 < end.solution.usage.verifier_calls <= most
    if plan != "knockout":
        assert end.solution.usage.verifier_calls == most
    if plan == "knockout":
        assert end.solution.answer == min(kinds, key=int)
    met = [kinds[a if b == first else b] for a, b in matches if (first := end.solution.candidates[0].index) in (a, b)]
    assert plan == "knockout" or all(int(end.solution.answer) <= int(other) for other in met)  # it won all its matches
    if "verifier_calls" in limits:
        assert len(found) == 12 // each


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Says(Compares):
    """Says one thing of every pair, or raises it."""

    said: Any = 1.0

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        if isinstance(self.said, BaseException):
            raise self.said
        return [self.said] * len(pairs)


def compared(
    verifier: ToyVerifier, budget: Budget | float = 400, clock: Clock | None = None, late: float = 0.0
) -> tuple[list[float], Solved]:
    """Return what a verifier says of two solutions, compared `late` seconds after they were written."""
    said: list[float] = []

    async def body(search: Search) -> None:
        a, b = [c.trajectory for c in await search.complete([search.root], 2)]
        if clock is not None:
            clock.now += late
        said.extend(await search.scoring.compare([(a, b), (b, a)], "main", search.problem))

    end = written(body, budget=budget, verifiers={"main": verifier}, selection=Majority(), clock=clock)
    assert len(said) == 2
    return said, end


def test_what_is_said_of_a_pair_is_a_number_between_0_and_1() -> None:
    assert compared(Says(said=0.25))[0] == [0.25, 0.25]
    with pytest.raises(VerifierError, match=r"return.*0.*1"):
        compared(Says(said=2.0))
    with pytest.raises(TTSError, match=r"'toy'.*pairs;.*2"):
        compared(ToyVerifier())


def test_a_comparison_that_cannot_be_paid_or_whose_model_fails_is_unknown() -> None:
    unpaid, end = compared(Says(), Budget(tokens=400, verifier_tokens=9))
    assert np.isnan(unpaid).all()
    assert end.solution.usage.verifier_calls == 0
    failed, end = compared(Says(said=EngineError("Busy: try later")))
    assert np.isnan(failed).all()
    assert sum(end.search.scoring.notes.failures.values()) == 2
    for verifier, late in ((Says(), 10.0), (Says(said=Exhausted("seconds")), 0.0)):
        late_ones, end = compared(verifier, Budget(tokens=400, seconds=5), Clock(), late)
        assert np.isnan(late_ones).all()
        assert end.search.scoring.timed_out


def test_a_verifier_that_cannot_compare_is_refused() -> None:
    for plan in ("knockout", "league"):
        end = solve_and_show(
            make_run("3 + 4", 100, f"best_of_n(n=2) | {plan}", ToyBackend(), verifiers={"main": ToyVerifier()})
        )
        assert isinstance(end.solution, ConfigError)
        assert "compares candidates, but the verifier" in str(end.solution)


# Swiss ----------------------------------------------------------------------------------------------------------------


def swiss_by_the_box(count: int, table: np.ndarray, pairs: Sequence[tuple[int, int]], floor: float) -> list[float]:
    """Return the weighted shares of wins, from the pairs that met, as the paper's formula has them."""
    shares = []
    for i in range(count):
        weights = [max(abs(2 * table[i, j] - 1), floor) for j in range(count) if (i, j) in pairs or (j, i) in pairs]
        values = [float(table[i, j] > 0.5) for j in range(count) if (i, j) in pairs or (j, i) in pairs]
        shares.append(float(np.dot(weights, values) / sum(weights)))
    return shares


@pytest.mark.parametrize("matches", [1, 2, 3])
def test_a_swiss_tournament_keeps_its_number_of_comparisons_and_the_papers_shares(matches: int) -> None:
    rng = np.random.default_rng(8)
    for _ in range(60):
        count = int(rng.integers(2, 20))
        table = preferences(count, rng)
        search = Judged(table)
        met: list[tuple[int, int]] = []
        plain = search.scoring.compare

        async def compare(pairs: Any, role: str, problem: Problem, plain: Any = plain, met: Any = met) -> list[float]:
            met += [(a.stream, b.stream) for a, b in pairs]
            return await plain(pairs, role, problem)

        search.scoring.compare = compare
        found = asyncio.run(Swiss(matches=matches).select(candidates([str(i) for i in range(count)]), search))  # type: ignore[arg-type]
        assert len(met) == len(set(met)) <= min(matches * count, count * (count - 1) // 2)
        if matches >= 2:
            degree = np.bincount(np.array(met).ravel(), minlength=count)
            assert degree.min() >= min(2, count - 1)
        if matches == 3 and count <= 7:
            assert len(met) == count * (count - 1) // 2
        if np.bincount(np.array(met).ravel(), minlength=count).all():
            shares = swiss_by_the_box(count, table, met, 0.1)
            assert [c.weight for c in sorted(found.ranked, key=lambda c: c.index)] == pytest.approx(shares)
            assert found.confidence == pytest.approx(max(shares))


def test_the_best_of_a_consistent_judge_always_wins() -> None:
    rng = np.random.default_rng(9)
    for count in (2, 3, 9, 16, 40):
        worth = rng.permutation(count).astype(float)
        table = 1 / (1 + np.exp(worth[None, :] - worth[:, None]))
        found, search = chosen(Swiss(), [str(i) for i in range(count)], table)
        assert found.answers == (str(int(worth.argmax())),)
        assert search.pairs <= 3 * count


def test_close_ones_meet_after_the_coverage_and_no_pair_twice() -> None:
    shares = {0: 0.9, 1: 0.5, 2: 0.49, 3: 0.1}
    kinds = {i: i for i in shares}
    assert near_pairs(shares, kinds, {}, 8) == [(1, 2), (0, 3)]
    assert near_pairs(shares, kinds, {(1, 2): 1.0}, 8) == [(2, 3), (0, 1)]
    assert near_pairs(shares, kinds, {(1, 2): 1.0, (0, 3): 1.0, (0, 1): 0.0, (2, 3): 1.0}, 1) == []
    assert near_pairs(shares, {0: 0, 1: 1, 2: 1, 3: 0}, {}, 8) == [(2, 3), (0, 1)]


@given(answers=st.lists(st.integers(0, 3), min_size=1, max_size=14), least=st.integers(1, 5))
@settings(deadline=None)
def test_coverage_gives_everyone_its_matches_where_there_are_opponents(answers: list[int], least: int) -> None:
    kinds = dict(enumerate(answers))
    pairs = list(covering_pairs(kinds, least))
    assert len(pairs) == len(set(pairs))
    assert all(a < b and kinds[a] != kinds[b] for a, b in pairs)
    for i, kind in kinds.items():
        opponents = sum(other != kind for other in answers)
        assert sum(i in pair for pair in pairs) >= min(least, opponents)
