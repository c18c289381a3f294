"""The oracles of recursive self-aggregation and of PaCoRe: what each member saw, and whose vote counts."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.support.repeats import repeats
from tests.support.revising import RevisingTask, revising  # noqa: F401 - a fixture
from tests.support.runs import Solved, search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.plan import parse
from tts.search.strategies.community.pacore import PaCoRe

pytestmark = pytest.mark.usefixtures("revising")
LANGUAGE = ToyLanguage(accuracy=0.5)
PROBLEM = "10 - 7 + 5 - 20"


def search(plan: str, seed: int = 0, language: ToyLanguage = LANGUAGE, budget: Budget | None = None) -> Solved:
    return search_one(PROBLEM, budget or Budget(samples=200), plan, ToyBackend(language), seed=seed)


def texts(end: Solved) -> list[str]:
    return [c.trajectory.full_text for c in end.search.candidates]


def shown(end: Solved) -> list[tuple[str, tuple[str, ...]]]:
    """Return kind and solutions of each prompt that was opened, in order; each is written twice, to count it and to
    read it.
    """
    task = end.search.task
    assert isinstance(task, RevisingTask)
    return task.prompted


# Recursive self-aggregation -------------------------------------------------------------------------------------------


def test_each_member_sees_a_subset_of_the_population_before_it_and_the_last_one_votes() -> None:
    n, k, rounds = 5, 3, 4
    for seed in range(4):
        end = search(f"recursive_self_aggregation(n={n}, rounds={rounds}, subset={k})", seed)
        written = texts(end)
        assert len(written) == n * rounds == end.solution.usage.samples
        assert {kind for kind, _ in shown(end)} == {"fuse"}
        sets = [solutions for _, solutions in shown(end)]
        assert len(sets) == n * (rounds - 1)
        for place, chosen in enumerate(sets):
            population = Counter(written[place // n * n : place // n * n + n])
            assert len(chosen) == k
            assert Counter(chosen) <= population  # without replacement
        assert sorted(c.trajectory.full_text for c in end.solution.candidates) == sorted(written[-n:])
        votes = Counter(c.answer for c in end.search.candidates[-n:])
        assert votes[end.solution.answer] == max(votes.values())


def test_a_subset_as_large_as_the_population_shows_all_of_it_in_an_order_drawn_for_each_member() -> None:
    end = search("recursive_self_aggregation(n=4, rounds=2, subset=4)")
    sets = [solutions for _, solutions in shown(end)]
    assert [sorted(chosen) for chosen in sets] == [sorted(texts(end)[:4])] * 4
    assert len({tuple(chosen) for chosen in sets}) > 1


@repeats(40, 100)
def test_subsets_are_uniform(runs: int) -> None:
    """Each pair of three members is shown with chance 1/3: over three subsets a run, within five standard errors."""
    pairs: Counter[frozenset[int]] = Counter()
    for seed in range(runs):
        end = search("recursive_self_aggregation(n=3, rounds=2, subset=2)", seed)
        rng_sets = [end.search.rng("subset", 1, member).choice(3, 2, replace=False) for member in range(3)]
        written = texts(end)[:3]
        assert [tuple(written[i] for i in chosen) for chosen in rng_sets] == [solutions for _, solutions in shown(end)]
        pairs.update(frozenset(chosen.tolist()) for chosen in rng_sets)
    assert len(pairs) == 3
    error = (3 * runs * (1 / 3) * (2 / 3)) ** 0.5
    assert all(abs(count - runs) < 5 * error for count in pairs.values())


@pytest.mark.parametrize("plan", ["n=1, rounds=4", "n=3, rounds=4, subset=1"])
def test_a_population_or_subset_of_one_is_revised(plan: str) -> None:
    end = search(f"recursive_self_aggregation({plan})")
    assert {kind for kind, _ in shown(end)} == {"revise"}
    assert {len(solutions) for _, solutions in shown(end)} == {1}


def test_where_nothing_can_be_shown_members_are_plain_solutions() -> None:
    end = search("recursive_self_aggregation(n=2, rounds=3)", language=ToyLanguage(mute=1.0))
    assert shown(end) == []
    assert len(end.search.candidates) == 6


def test_where_the_budget_ends_a_population_it_votes_with_the_one_before() -> None:
    end = search("recursive_self_aggregation(n=4, rounds=5, subset=2)", budget=Budget(samples=10))
    assert end.solution.stopped_by == "budget: samples"
    assert sorted(c.index for c in end.solution.candidates) == list(range(4, 10))


@pytest.mark.parametrize(
    ("plan", "units", "sizes"), [("", 100, [10] * 10), ("", 9, [4, 4, 1]), ("rounds=3", 30, [10, 10, 10])]
)
def test_sizes_left_out_are_what_the_budget_pays(plan: str, units: int, sizes: list[int]) -> None:
    end = search(f"recursive_self_aggregation({plan})", budget=Budget(samples=units))
    assert len(end.search.candidates) == units
    written, sets = texts(end), iter([solutions for _, solutions in shown(end)])
    first = 0
    for before, size in itertools.pairwise(sizes):
        population = Counter(written[first : first + before])
        first += before
        assert all(Counter(next(sets)) <= population for _ in range(size))


# PaCoRe ---------------------------------------------------------------------------------------------------------------


def test_every_round_reads_all_messages_of_the_round_before_and_the_last_trajectory_answers() -> None:
    for seed in range(4):
        end = search("pacore(widths=[5, 3])", seed)
        written = texts(end)
        assert len(written) == 9 == end.solution.usage.samples
        assert shown(end) == [("fuse", tuple(written[:5])), ("fuse", tuple(written[5:8]))]
        assert [c.index for c in end.solution.candidates] == [8]
        assert end.solution.answer == end.search.candidates[8].answer


def test_the_first_round_is_plain_sampling() -> None:
    for seed in range(4):
        assert texts(search("pacore(widths=[5])", seed))[:5] == texts(search("best_of_n(n=5)", seed))


def test_a_conclusion_is_the_last_step() -> None:
    end = search("pacore(widths=[3], message='conclusion')")
    ((_, messages),) = shown(end)
    assert messages == tuple(f"A: {c.answer}" for c in end.search.candidates[:3])


def test_widths_are_read_from_a_list_and_written_as_they_are() -> None:
    plan = parse("pacore(widths=[16, 4])")
    assert plan.strategy == PaCoRe(widths=(16, 4)) == PaCoRe(widths=[16, 4])
    assert parse(str(plan)) == plan
    assert hash(plan.strategy) == hash(PaCoRe(widths=[16, 4]))
    for wrong in ("[]", "[0]", "[4, 'a']", "[True]", "4", "'4'", "[-1]"):
        with pytest.raises(ConfigError, match=r"widths.*,.*numbers.*1"):
            parse(f"pacore(widths={wrong})")


def test_widths_left_out_are_one_round_and_last_trajectories_until_the_budget_ends() -> None:
    end = search("pacore", budget=Budget(samples=12))
    assert len(end.search.candidates) == 12
    assert shown(end) == [("fuse", tuple(texts(end)[:11]))]
    assert [c.index for c in end.solution.candidates] == [11]


def test_where_the_budget_ends_it_before_the_last_trajectory_two_rounds_vote() -> None:
    end = search("pacore(widths=[4, 4])", budget=Budget(samples=6))
    assert sorted(c.index for c in end.solution.candidates) == list(range(6))
