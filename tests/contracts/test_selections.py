"""What every selection promises; a new one is under test as soon as it is in the table."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.contracts.walk import classes_with
from tests.support.candidates import ScoredSearch, candidates, reorder
from tests.support.repeats import repeats
from tts.search.needs import needs_of
from tts.search.parts import SELECTIONS, Selected, Selection
from tts.search.plan import parse
from tts.types import Candidate

NAN = math.nan
ANSWERS: tuple[list[str | None], ...] = (
    ["a", "b", "a", None, "c", "a", "b", "d"],
    ["a"],
    [None, "b", None],
    ["c", "b", "b", "a", "a", "a", None, None, None, None],
)
REWARDS = {"a": 0.31, "b": 0.83, "c": 0.57, "d": 0.11, None: 0.97}


@pytest.fixture(params=SELECTIONS.names())
def selection(request: pytest.FixtureRequest) -> Selection:
    return SELECTIONS.get(request.param)()


def select(
    selection: Selection,
    of: Sequence[Candidate],
    scores: Mapping[Any, float] | Sequence[float] = REWARDS,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Selected:
    return asyncio.run(selection.select(of, ScoredSearch(scores, of, bounds)))  # type: ignore[arg-type]


def check_selected(selected: Selected, of: Sequence[Candidate]) -> None:
    """Assert what must hold whatever was chosen."""
    assert set(selected.answers) <= {c.answer for c in of} - {None}
    assert len(set(selected.answers)) == len(selected.answers)
    assert sorted(c.trajectory.node for c in selected.ranked) == sorted(c.trajectory.node for c in of)
    assert math.isnan(selected.confidence) or 0 <= selected.confidence <= 1 + 1e-12
    if selected.answers:
        assert selected.ranked[0].answer_class == next(c.answer_class for c in of if c.answer == selected.answers[0])
    for chosen in selected.ranked:
        original = next(c for c in of if c.trajectory.node == chosen.trajectory.node)
        assert (chosen.answer, chosen.index, chosen.trajectory) == (
            original.answer,
            original.index,
            original.trajectory,
        )


def test_it_is_a_frozen_dataclass_whose_text_parses_back(selection: Selection) -> None:
    assert isinstance(selection, Selection)
    assert selection.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert all(f.kw_only for f in dataclasses.fields(selection) if f.init)  # type: ignore[arg-type]
    assert SELECTIONS.get(selection.registered_as) is type(selection)
    other = dataclasses.replace(selection, truncated="drop")  # type: ignore[type-var]
    for one in (selection, other):
        assert parse(f"single | {one}").selection == one
    assert isinstance(needs_of(selection).verifiers, tuple)


@pytest.mark.parametrize("answers", ANSWERS)
def test_it_chooses_among_what_is_there(selection: Selection, answers: list[str | None]) -> None:
    of = candidates(answers)
    selected = select(selection, of)
    check_selected(selected, of)
    assert selected.answers, "there are answers, but none was chosen"


@repeats(6, 20, "orders")
@pytest.mark.parametrize("answers", ANSWERS)
def test_the_order_of_candidates_decides_nothing_but_ties(
    selection: Selection, answers: list[str | None], orders: int
) -> None:
    of = candidates(answers)
    expected = select(selection, of)
    rng = np.random.Generator(np.random.Philox(1))
    for _ in range(orders):
        again = reorder(of, rng.permutation(len(of)).tolist())
        selected = select(selection, again, [REWARDS[c.answer] for c in again])
        check_selected(selected, again)
        assert selected.answers[0] == expected.answers[0]
        assert selected.confidence == pytest.approx(expected.confidence)


def test_no_candidate_gives_no_answer(selection: Selection) -> None:
    selected = select(selection, [])
    assert (selected.answers, selected.ranked) == ((), ())
    assert math.isnan(selected.confidence)


@pytest.mark.parametrize("count", [1, 4])
def test_candidates_without_an_answer_give_none_and_no_confidence(selection: Selection, count: int) -> None:
    of = candidates([None] * count)
    selected = select(selection, of)
    check_selected(selected, of)
    assert (selected.answers, selected.confidence) == ((), 0.0)


def test_an_unknown_score_is_no_number(selection: Selection) -> None:
    of = candidates(["a", "a", "b", "b", None])
    selected = select(selection, of, [NAN, 0.4, 0.2, NAN, NAN])
    check_selected(selected, of)
    assert selected.answers[0] == "a"  # first by every count and every known score
    assert all(not math.isnan(c.weight) for c in selected.ranked)


@pytest.mark.parametrize("answers", ANSWERS)
def test_without_one_known_score_it_still_answers(selection: Selection, answers: list[str | None]) -> None:
    of = candidates(answers)
    selected = select(selection, of, [NAN] * len(of))
    check_selected(selected, of)
    assert selected.answers


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-math.inf, math.inf)])
def test_scores_below_zero_do_not_turn_the_choice_around(selection: Selection, bounds: tuple[float, float]) -> None:
    of = candidates(["a", "b", "a", "b"])
    selected = select(selection, of, [-0.9, -0.1, -0.8, -0.2], bounds)
    check_selected(selected, of)
    assert selected.answers[0] == ("b" if needs_of(selection).verifiers else "a")
    assert all(c.weight >= 0 for c in selected.ranked)


def test_a_truncated_candidate_votes_only_where_that_is_allowed(selection: Selection) -> None:
    of = candidates(["a", "a", "b"], truncated=[0, 1])
    rewards = {"a": 0.9, "b": 0.4}
    drop = dataclasses.replace(selection, truncated="drop")  # type: ignore[type-var]
    assert select(selection, of, rewards).answers[0] == "a"
    assert select(drop, of, rewards).answers == ("b",)
    check_selected(select(drop, of, rewards), of)


def test_a_tie_goes_to_the_answer_that_came_first(selection: Selection) -> None:
    for answers in (["x", "y", "y", "x"], ["y", "x", "x", "y"]):
        of = candidates(list(answers))
        assert select(selection, of, [0.5] * 4).answers[0] == answers[0]


def test_every_selection_is_in_the_table() -> None:
    written = {**classes_with("search", ("select",)), **classes_with("search/selections", ("choose",))}
    assert written
    assert {way for way in written if way not in SELECTIONS.entries.values()} == set()


@pytest.mark.parametrize("answers", [*ANSWERS, ["a"] * 9 + ["b"] * 7])
@pytest.mark.parametrize("cut", [(), (1, 2, 5)])
@pytest.mark.parametrize("truncated", ["vote", "drop"])
def test_it_asks_about_no_candidate_of_which_it_said_that_it_never_would(
    selection: Selection, answers: list[str | None], cut: tuple[int, ...], truncated: str
) -> None:
    selection = dataclasses.replace(selection, truncated=truncated)  # type: ignore[type-var]
    of = candidates(answers, cut)
    search = ScoredSearch(REWARDS, of)
    asyncio.run(selection.select(of, search))  # type: ignore[arg-type]
    earlier = [
        [c for c in of[:i] if c.answer == candidate.answer and not c.truncated] for i, candidate in enumerate(of)
    ]
    allowed = {
        c.trajectory.node for c, agreeing in zip(of, earlier, strict=True) if selection.may_score(c, len(agreeing))
    }
    assert set(search.asked) <= allowed
