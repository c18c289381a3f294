"""The evaluation against policies whose truth is known, and from end to end on a small random model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("research.pocket", reason="research is no part of the wheel")

from research.pocket.evaluate import problems as sets_of
from research.pocket.evaluate.accuracy import accuracy_tables, vote
from research.pocket.evaluate.held_out import pairs_of
from research.pocket.evaluate.intervals import Intervals, Observed
from research.pocket.evaluate.pools import Attempt, Pool
from research.pocket.evaluate.problems import (
    MAIN,
    OTHERS,
    PAIRS,
    SET_SEED,
    Cell,
    Item,
    Sets,
    draw_item,
    draw_sets,
    is_unseen,
    may_be_held_out,
)
from research.pocket.evaluate.rendering import format_entry, make_json, markdown
from research.pocket.evaluate.restarting import observations
from research.pocket.evaluate.revising import revision_tables
from research.pocket.evaluate.run import FULL, QUICK, Pools, Sizes, all_tables, draw_pools
from research.pocket.evaluate.tables import Table
from research.pocket.evaluate.verifying import lines_of, verifier_tables
from tests.research.pocket.scripted import ScriptedPolicy
from tts.errors import ConfigError
from tts.statistics import Estimate
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.expression import Step, apply
from tts.tasks.arithmetic.generator import held_out

SLIP = 0.1
SIZES = Sizes(problems=6, samples=16, deep=2, deep_samples=64, others=2, pairs=60, pair_samples=8, cut=4, revised=2)


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
    assert (split, QUICK.problems, QUICK.others, QUICK.pairs) in sets_of.PINNED
    assert (split, FULL.problems, FULL.others, FULL.pairs) in sets_of.PINNED
    draw_sets(split, problems=QUICK.problems, others=QUICK.others, pairs=QUICK.pairs)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_whole_sets_are_the_pinned_ones(split: Any) -> None:
    draw_sets(split, problems=FULL.problems, others=FULL.others, pairs=FULL.pairs)


def test_a_change_of_the_generator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sets_of.PINNED, ("test", 1, 1, 2), "0" * 64)
    with pytest.raises(ConfigError, match=r"'test'.*SHA-256 [0-9a-f]{64},.*pinned"):
        draw_sets("test", problems=1, others=1, pairs=2)
    draw_sets("test", problems=1, others=1, pairs=2, seed=SET_SEED + 1)  # others are nobody's promise


def test_problems_have_names_of_their_own_and_answers_that_are_right() -> None:
    sets = draw_sets("validation", problems=2, others=2, pairs=8, seed=5)
    items = [*sets.main, *sets.others, *sets.pairs]
    assert len({each.problem.id for each in items}) == len(items)
    assert len(sets.main) == 2 * len(MAIN)
    for each in items:
        lines = [*(f"{step}\n" for step in each.worked), f"A: {each.worked[-1].result}\n"]
        assert all(each.judge(lines))
        assert len(each.worked) == (each.cell.size - 1 if each.cell.kind == "countdown" else each.cell.size)


def test_smaller_sets_are_the_beginning_of_larger_ones() -> None:
    small, large = (draw_sets("test", problems=n, others=0, pairs=2 * n, seed=3) for n in (1, 2))
    assert small.main == large.main[::2]
    assert all(each in large.pairs for each in small.pairs)


def test_half_of_the_pairs_are_new_to_a_model_and_the_others_could_have_been() -> None:
    found = [each.worked for each in draw_sets("test", problems=1, others=0, pairs=10, seed=2).pairs]
    assert sum(any(map(is_unseen, worked)) for worked in found) == 5
    assert all(any(map(may_be_held_out, worked)) for worked in found)
    assert not is_unseen(Step(3, "+", 4, 7))
    assert not may_be_held_out(Step(9, "*", 9, 81))  # as small as those of which none is held out
    asked = [Step(left, "+", right, left + right) for left in range(10, 99) for right in range(10, 99)]
    assert {is_unseen(step) for step in asked if countdown.may_have(step)} == {False}
    assert {is_unseen(step) == held_out(step) for step in asked if not countdown.may_have(step)} == {True}


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
    return draw_sets("validation", problems=SIZES.problems, others=SIZES.others, pairs=SIZES.pairs, seed=11)


def solutions() -> Mapping[str, Sequence[Step]]:
    return {each.problem.text: each.worked for each in drawn_sets().others if each.cell.kind == "countdown"}


def policy(slip: float = SLIP, *, of_unseen: float | None = None, **more: Any) -> ScriptedPolicy:
    def slips(step: Step) -> float:
        true = dataclasses.replace(step, result=apply(step.operator, step.left, step.right))
        return slip if of_unseen is None or not is_unseen(true) else of_unseen

    return ScriptedPolicy(slips, solutions=solutions(), **more)


@lru_cache
def known() -> Pools:
    heads = {"process": lambda right: 0.9 if right else 0.1, "probe": lambda right: 0.5}
    return draw_pools(policy(fixes=0.25, breaks=0.4, heads=heads), drawn_sets(), SIZES, seed=3)  # type: ignore[arg-type]


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
    found = tables(known())
    by_position = found["process_by_position"]
    assert column(by_position, "position")[-2] == "answer line"
    assert column(by_position, "leads_auc")[-2].value == pytest.approx(1)
    assert column(by_position, "leads_auc_within")[-2].value == pytest.approx(1)
    for share, *aucs in zip(
        *(column(by_position, key)[:-2] for key in ("leads_share", "leads_auc", "leads_auc_within")), strict=True
    ):
        assert share < 0.9  # a right beginning may still go wrong, which nobody can see there
        assert all(0.5 < auc.value < 1 for auc in aucs)
    final = found["final_answer"]
    assert column(final, "verifier") == ["process model", "probe", "self-evaluation"]
    assert [each.value for each in column(final, "auc")] == [pytest.approx(1), 0.5, pytest.approx(1)]
    assert [each.value for each in column(final, "auc_within")] == [pytest.approx(1), 0.5, pytest.approx(1)]
    assert column(final, "ece")[0].value == pytest.approx(0.1)
    assert column(final, "brier")[0] == pytest.approx(0.01)
    answers = found["probe_by_position"]
    row = column(answers, "position").index("answer line")
    assert column(answers, "leads_ece")[row].value == pytest.approx(abs(0.5 - column(answers, "leads_share")[row]))


def test_a_line_leads_where_its_sample_ends_right_and_is_right_by_itself() -> None:
    two = item()
    first, second = two.worked
    slipped = dataclasses.replace(first, result=first.result + 1)
    follows = next(
        Step(a, second.operator, b, apply(second.operator, a, b))
        for a, b in [(slipped.result, second.right), (second.left, slipped.result)]
        if first.result in (second.left, second.right)
    )
    lines = (f"{slipped}\n", f"{follows}\n", f"A: {follows.result}\n")
    pool = Pool(
        two, (Attempt(lines, str(follows.result), right=False, readings={"process": (0.1, 0.2, 0.3)}), attempt(None))
    )
    if two.judge(lines)[1]:  # the slip went where the second step takes it
        assert [
            (line.number, line.final, line.readings["process"], line.leads, line.right) for line in lines_of([pool])[:3]
        ] == [
            (1, False, 0.1, False, False),
            (2, False, 0.2, False, True),
            (3, True, 0.3, False, True),
        ]
    else:
        assert [line.right for line in lines_of([pool])][:1] == [False]


def test_a_verifier_that_knows_only_how_hard_problems_are_knows_nothing_within_them() -> None:
    right, wrong = ([attempt(answer, right=answer == "1", weight=weight) for answer in "12"] for weight in (0.9, 0.1))
    pools = [
        Pool(item(index=i), (one,) * many + (other,) * (4 - many))
        for i, (one, other, many) in enumerate([(*right, 3), (*wrong, 1)] * 8)
    ]
    found = {table.name: table for table in verifier_tables(pools, [], Intervals())}
    for name, row, key in (("process_by_position", 6, "leads_auc"), ("final_answer", 0, "auc")):
        assert column(found[name], key)[row].value == pytest.approx(0.75)
        assert column(found[name], f"{key}_within")[row].value == 0.5


def test_lines_that_were_cut_short_are_not_read() -> None:
    two = item()
    cut = Attempt((f"{two.worked[0]}\n", "12 +"), None, right=False, finished=False, readings={"process": (0.5, 0.4)})
    assert [line.readings for line in lines_of([Pool(two, (cut,))])] == [{"process": 0.5}]


def test_self_evaluation_of_a_known_policy() -> None:
    table = tables(known())["self_evaluation"]
    whole, cut, p = column(table, "whole_num"), column(table, "cut_num"), column(table, "whole_share")
    assert whole[-1] == 60 * 16
    assert cut[-1] == 60 * 4
    for (low, high), found in zip([(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)], p, strict=False):
        truth = np.mean([1 - (1 - (1 - SLIP) ** size) * (1 - SLIP) ** size for size in (low, high)])
        assert found == pytest.approx(truth, abs=4 * math.sqrt(0.25 / (12 * 16)))
    assert column(table, "whole_auc")[-1].value > 0.7
    assert 0.5 < column(table, "cut_auc")[-1].value < column(table, "whole_auc")[-1].value


def test_the_drawn_label_is_that_of_another_sample() -> None:
    both = Pool(item(), (attempt("1", right=True, restart=0.8), attempt("2", restart=0.3, cuts=(0.4,))))
    alike = Pool(item(), (attempt("1", restart=0.1), attempt("2", restart=0.2)))
    whole, cut = observations([both, alike], np.random.default_rng(0))
    assert whole == [Observed(0.8, True, 0), Observed(0.3, False, 0), Observed(0.1, True, 1), Observed(0.2, True, 1)]
    assert cut == [Observed(0.4, False, 0)]
    assert observations([Pool(item(), (attempt("1", restart=0.5),))], np.random.default_rng(0)) == ([], [])


def test_revisions_of_a_known_policy() -> None:
    table = tables(known())["revision"]
    found = dict(zip(table.columns, table.rows[-1], strict=True))
    for name in ("fixed_first", "fixed_several"):
        assert near(found[name], 0.25, 2 * found["wrong"])
    assert near(found["broken"], 0.4, 2 * found["kept"])
    gain = found["fixed_first"].value - found["fresh"].value
    assert found["gain_first"].value == pytest.approx(gain)
    hard = dict(zip(table.columns, table.rows[4], strict=True))
    truth = np.mean([(1 - SLIP) ** 9, (1 - SLIP) ** 10])
    assert near(hard["fresh"], truth, 8 * hard["wrong"])  # although only problems with a wrong attempt are in the row


def test_fresh_accuracy_is_that_of_samples_that_chose_nothing() -> None:
    wrong, right = attempt("2"), attempt("1", right=True)
    pool = Pool(item(), (wrong, wrong, right, right), revisions={"first": (right, wrong), "several": (right, right)})
    (table,) = revision_tables([pool], Intervals())
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["wrong"], row["kept"]) == (1, 0)
    assert (row["fresh"].value, row["fixed_first"].value, row["fixed_several"].value) == (1, 0.5, 1)
    assert row["gain_first"].value == -0.5
    assert math.isnan(row["broken"].value)


@pytest.mark.parametrize("of_unseen", [SLIP, 0.6])
def test_memory_shows_as_a_difference_on_held_out_pairs(of_unseen: float) -> None:
    pools = draw_pools(policy(of_unseen=of_unseen), drawn_sets(), SIZES, verifiers=(), seed=4)  # type: ignore[arg-type]
    found = tables(pools)["held_out_pairs"]
    pairs = column(found, "held_out_pairs")[-1]
    assert pairs > 30
    assert sum(column(found, "held_out_pairs")[:-1]) == pairs
    assert near(column(found, "held_out")[-1], 1 - of_unseen, 8 * pairs)
    assert near(column(found, "other")[-1], 1 - SLIP, 8 * 30)
    assert (0.0 in column(found, "difference")[-1]) == (of_unseen == SLIP)


def test_a_step_behind_a_wrong_one_does_not_count() -> None:
    three = next(each for index in range(200) if all(map(may_be_held_out, (each := item(3, index)).worked)))
    slipped = dataclasses.replace(three.worked[1], result=three.worked[1].result + 1)
    lines = (f"{three.worked[0]}\n", f"{slipped}\n", f"{three.worked[2]}\n")
    found = list(pairs_of([Pool(three, (Attempt(lines, None, right=False),))]))
    assert [pair.share for pair in found] == [1, 0]


def test_one_seed_gives_one_evaluation_and_fewer_samples_are_the_beginning() -> None:
    heads = {"process": lambda right: 0.9 if right else 0.1, "probe": lambda right: 0.5}
    again = draw_pools(policy(fixes=0.25, breaks=0.4, heads=heads), drawn_sets(), SIZES, seed=3)  # type: ignore[arg-type]
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
    assert not any(pool.revisions for pool in pools.main[-6:])


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


def test_the_pairs_are_of_two_operations() -> None:
    assert {each.cell for each in drawn_sets().pairs} == {PAIRS}
