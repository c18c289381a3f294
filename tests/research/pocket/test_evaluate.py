"""The evaluation against policies whose truth is known, and from end to end on a small random model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pytest

pytest.importorskip("research.pocket", reason="research is no part of the wheel")


from research.pocket.evaluate import problems as sets_of
from research.pocket.evaluate.accuracy import accuracy_tables, vote
from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.pools import Attempt, Pool
from research.pocket.evaluate.problems import (
    MAIN,
    OTHERS,
    SET_SEED,
    Cell,
    Item,
    Sets,
    draw_item,
    draw_sets,
)
from research.pocket.evaluate.rendering import format_entry, make_json, markdown
from research.pocket.evaluate.run import FULL, QUICK, Pools, Sizes, all_tables, draw_pools
from research.pocket.evaluate.tables import Table
from research.pocket.evaluate.verifying import solution_table
from tests.research.pocket.scripted import ScriptedPolicy
from tts.errors import ConfigError
from tts.statistics import Estimate
from tts.tasks.arithmetic.expression import Step

SLIP = 0.1
SIZES = Sizes(problems=6, samples=16, deep=2, deep_samples=64, others=2)


def item(size: int = 2, index: int = 0) -> Item:
    return draw_item(Cell("plain-2", size), "validation", 1, index)


def attempt(
    answer: str | None, *, right: bool = False, weight: float = math.nan, restart: float = math.nan, **more: Any
) -> Attempt:
    return Attempt((f"A: {answer}\n",), answer, right, readings={"process": (weight,)}, restart=restart, **more)


def column(table: Table, key: str) -> list[Any]:
    return [row[list(table.columns).index(key)] for row in table.rows]


# The sets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_sets_are_the_pinned_ones(split: Any) -> None:
    assert (split, QUICK.problems, QUICK.others) in sets_of.PINNED
    assert (split, FULL.problems, FULL.others) in sets_of.PINNED
    draw_sets(split, problems=QUICK.problems, others=QUICK.others)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_whole_sets_are_the_pinned_ones(split: Any) -> None:
    draw_sets(split, problems=FULL.problems, others=FULL.others)


def test_a_change_of_the_generator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sets_of.PINNED, ("test", 1, 1), "0" * 64)
    with pytest.raises(ConfigError, match=r"'test'.*SHA-256 [0-9a-f]{64},.*pinned"):
        draw_sets("test", problems=1, others=1)
    draw_sets("test", problems=1, others=1, seed=SET_SEED + 1)  # others are nobody's promise


def test_problems_have_names_of_their_own_and_answers_that_are_right() -> None:
    sets = draw_sets("validation", problems=2, others=2, seed=5)
    items = [*sets.main, *sets.others]
    assert len({each.problem.id for each in items}) == len(items)
    assert len(sets.main) == 2 * len(MAIN)
    for each in items:
        lines = [*(f"{step}\n" for step in each.worked), f"A: {each.worked[-1].result}\n"]
        assert all(each.judge(lines))
        assert len(each.worked) == (each.cell.size - 1 if each.cell.kind == "countdown" else each.cell.size)


def test_smaller_sets_are_the_beginning_of_larger_ones() -> None:
    small, large = (draw_sets("test", problems=n, others=0, seed=3) for n in (1, 2))
    assert small.main == large.main[::2]


# Accuracy -------------------------------------------------------------------------------------------------------------


def test_the_answer_of_most_weight_is_chosen_and_the_first_of_equals() -> None:
    one, two, none = attempt("1", weight=0.2), attempt("2", right=True, weight=0.3), attempt(None, weight=9.0)
    assert vote([one, two, two])
    assert not vote([one, two])
    assert vote([two, one])
    assert vote([one, two, none], lambda each: each.last_reading("process"))
    assert not vote([one, two, one], lambda each: each.last_reading("process"))
    assert not vote([none, none])
    assert vote([attempt("3"), two], lambda each: each.last_reading("process"))  # an unknown score weighs nothing


def test_accuracy_by_hand() -> None:
    right, wrong = attempt("1", right=True), attempt("2")
    pools = [Pool(item(), (right,) * n + (wrong,) * (16 - n), greedy=right if n else wrong) for n in (0, 8, 16)]
    main, others = accuracy_tables(pools, [], Intervals())
    values = {
        key: entry.value for key, entry in zip(main.columns, main.rows[0], strict=True) if isinstance(entry, Estimate)
    }
    assert main.rows[0][:2] == [2, 3]
    assert values["greedy"] == pytest.approx(2 / 3)
    assert values["pass_1"] == pytest.approx(0.5)
    assert values["pass_4"] == pytest.approx((0 + (1 - math.comb(8, 4) / math.comb(16, 4)) + 1) / 3)
    assert values["pass_16"] == pytest.approx(2 / 3)
    assert math.isnan(values["pass_64"])
    assert values["majority"] == pytest.approx(2 / 3)  # eight against eight: what came first
    assert not others.rows


# Known policies -------------------------------------------------------------------------------------------------------


@lru_cache
def drawn_sets() -> Sets:
    return draw_sets("validation", problems=SIZES.problems, others=SIZES.others, seed=11)


def solutions() -> Mapping[str, Sequence[Step]]:
    return {each.problem.text: each.worked for each in drawn_sets().others if each.cell.kind == "countdown"}


def policy(slip: float = SLIP, **more: Any) -> ScriptedPolicy:
    return ScriptedPolicy(lambda step: slip, solutions=solutions(), **more)


@lru_cache
def known() -> Pools:
    heads = {"process": lambda right: 0.9 if right else 0.1, "probe": lambda right: 0.5}
    return draw_pools(policy(heads=heads), drawn_sets(), SIZES, seed=3)  # type: ignore[arg-type]


def tables(pools: Pools) -> dict[str, Table]:
    return {table.name: table for table in all_tables(pools)}


def near(found: Estimate, truth: float, trials: int) -> bool:
    """Whether an estimate is within four standard errors of a proportion."""
    return abs(found.value - truth) <= 4 * math.sqrt(truth * (1 - truth) / trials) + 1e-12


def test_the_accuracy_of_a_known_policy_is_found() -> None:
    table = tables(known())["accuracy"]
    for size, first, four, deep, greedy in zip(
        *(column(table, key) for key in ("operations", "pass_1", "pass_4", "pass_64", "greedy")), strict=True
    ):
        p = (1 - SLIP) ** size
        samples = 2 * 64 + 4 * 16
        assert near(first, p, samples)
        assert four.value == pytest.approx(
            1 - (1 - p) ** 4, abs=4 * 4 * (1 - p) ** 3 * math.sqrt(p * (1 - p) / samples) + 0.02
        )
        assert (deep.value, deep.num, greedy.value, greedy.high) == (1, 2, 1, 1)
        assert first.value in first
    assert column(table, "problems") == [6] * 10


def test_other_kinds_are_found_too_and_a_countdown_is_right_however_it_is_solved() -> None:
    table = tables(known())["accuracy_others"]
    assert column(table, "difficulty")[::5] == [
        "plain, operands to 9; 2 operations",
        "worded, operands to 99; 2 operations",
        "countdown; 2 numbers",
    ]
    for cell, found in zip(OTHERS, column(table, "pass_1"), strict=True):
        assert near(found, (1 - SLIP) ** (cell.size - (cell.kind == "countdown")), 32)


def test_a_perfect_verifier_and_one_that_knows_nothing() -> None:
    final = tables(known())["final_answer"]
    assert column(final, "verifier") == ["process model", "probe", "self-evaluation"]
    assert [each.value for each in column(final, "auc")] == [pytest.approx(1), 0.5, pytest.approx(1)]
    assert [each.value for each in column(final, "auc_within")] == [pytest.approx(1), 0.5, pytest.approx(1)]
    assert column(final, "ece")[0].value == pytest.approx(0.1)
    assert column(final, "brier")[0] == pytest.approx(0.01)


def test_a_verifier_that_knows_only_how_hard_problems_are_knows_nothing_within_them() -> None:
    right, wrong = ([attempt(answer, right=answer == "1", weight=weight) for answer in "12"] for weight in (0.9, 0.1))
    pools = [
        Pool(item(index=i), (one,) * many + (other,) * (4 - many))
        for i, (one, other, many) in enumerate([(*right, 3), (*wrong, 1)] * 8)
    ]
    found = solution_table(pools, Intervals())
    assert column(found, "auc")[0].value == pytest.approx(0.75)
    assert column(found, "auc_within")[0].value == 0.5


def test_one_seed_gives_one_evaluation_and_fewer_samples_are_the_beginning() -> None:
    heads = {"process": lambda right: 0.9 if right else 0.1, "probe": lambda right: 0.5}
    again = draw_pools(policy(heads=heads), drawn_sets(), SIZES, seed=3)  # type: ignore[arg-type]
    assert make_json(all_tables(again)) == make_json(all_tables(known()))
    fewer = draw_pools(policy(), drawn_sets(), dataclasses.replace(SIZES, samples=4, deep=0), verifiers=(), seed=3)  # type: ignore[arg-type]
    for few, many in zip(fewer.main, known().main, strict=True):
        assert [each.text for each in few.attempts] == [each.text for each in many.attempts[:4]]
    other = draw_pools(policy(), drawn_sets(), SIZES, verifiers=(), seed=5)  # type: ignore[arg-type]
    assert [each.attempts[0].text for each in other.main] != [each.attempts[0].text for each in known().main]


def test_samples_at_the_cap_are_unfinished_and_counted() -> None:
    pools = draw_pools(policy(), drawn_sets(), dataclasses.replace(SIZES, max_tokens=20), verifiers=(), seed=3)  # type: ignore[arg-type]
    found = tables(pools)
    unfinished, unanswered, samples = (
        sum(column(found["drawn"], key)) for key in ("unfinished", "unanswered", "samples")
    )
    assert 0 < unfinished == unanswered < samples
    assert column(found["accuracy"], "pass_1")[-1].value == 0


# Printing -------------------------------------------------------------------------------------------------------------


def test_entries_as_people_read_them() -> None:
    assert format_entry(Estimate(0.523, 0.401, 1.0)) == "0.52 [0.40, 1.00]"
    assert format_entry(Estimate(-0.05, -0.1, 0.004)) == "-0.05 [-0.10, 0.00]"
    assert format_entry(Estimate(math.nan, 0, 1)) == "–"
    assert format_entry(Estimate(0.5, math.nan, math.nan)) == "0.50 [–, –]"
    assert [format_entry(entry) for entry in (12345, 0.25, math.nan, "x")] == ["12,345", "0.25", "–", "x"]


def test_tables_for_documents_and_programs() -> None:
    table = Table(
        "one", "Title", "Note.", {"a": "A", "b": "B"}, [["x", Estimate(0.5, 0.25, 0.75, 0.95, 9)], ["y", math.nan]]
    )
    assert markdown([table]) == "**Title**\n\n| A | B |\n| :-- | --: |\n| x | 0.50 [0.25, 0.75] |\n| y | – |\n\nNote.\n"
    rows = make_json([table])["one"]["rows"]  # type: ignore[index]
    assert rows == [
        {"a": "x", "b": {"value": 0.5, "low": 0.25, "high": 0.75, "level": 0.95, "num": 9}},
        {"a": "y", "b": None},
    ]
