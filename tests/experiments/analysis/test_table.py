from __future__ import annotations

import csv
import dataclasses
import io
import json
import math

import numpy as np
import pytest

from tests.experiments.made import cell, result
from tts.experiments.analysis.curves import curves_of
from tts.experiments.analysis.table import NOT_REPEATED, TableRow, table
from tts.experiments.output.tables import as_csv, as_json, as_text
from tts.experiments.study.record import Result
from tts.statistics import clustered_mean
from tts.types import Usage


def rows_of(*results: Result) -> list[TableRow]:
    return table(results, rng=np.random.default_rng(0))


def run(problem: int, seed: int = 0, *, right: bool | None = True, error: str | None = None, **given) -> Result:
    """Return a run of the one strategy, or of another with `cell=`."""
    own = cell(problem, seed=seed, **given.pop("of", {}))
    return result(own, right=None if error else right, error=error, **given)


def test_accuracy_is_over_problems_however_many_runs_each_has():
    """A study that was cut off, or whose runs failed here and there, has as many runs of a problem as happened to be
    finished.
    """
    right = {0: [True, True, False], 1: [False, False, False], 2: [True, True, True], 3: [True]}
    (row,) = rows_of(*(run(i, seed, right=value) for i, values in right.items() for seed, value in enumerate(values)))
    assert row.accuracy == clustered_mean([2 / 3, 0, 1, 1], rng=np.random.default_rng(0), bounds=(0, 1))
    assert row.accuracy.value == pytest.approx(2 / 3)  # of ten runs six were right
    assert (row.problems, row.seeds, row.runs, row.no_accuracy) == (4, 3, 10, None)


def test_the_error_by_group_is_that_of_the_plain_double_sum():
    """Problems of one group depend on each other, so that they say less than as many of their own."""
    right = {i: bool(i // 3 % 2) for i in range(36)}  # of a group all are alike
    (row,) = rows_of(*(run(i, right=value, of={"group": f"text {i // 3}"}) for i, value in right.items()))
    off = np.array([value - 0.5 for value in right.values()])
    pairs = sum(off[i] * off[j] for i in range(36) for j in range(36) if i // 3 == j // 3)
    assert row.group_error == pytest.approx(math.sqrt(pairs * 12 / 11) / 36)
    assert row.standard_error == pytest.approx(np.std(list(right.values()), ddof=1) / math.sqrt(36))
    (shown,) = (line for line in as_text([row]).splitlines() if line.startswith("error by group"))
    assert shown.split(maxsplit=3)[3] == f"± {100 * row.group_error:.2f} %"
    assert json.loads(as_json([row]))[0]["group_error"] == row.group_error
    (alone,) = rows_of(*(run(i, right=value, of={"group": f"{i % 9} steps"}) for i, value in right.items()))
    (without,) = rows_of(*(run(i, right=value) for i, value in right.items()))
    assert (alone.group_error, without.group_error, without.standard_error) == (None, None, row.standard_error)
    assert "error by group" not in as_text([without])


def test_the_dollars_of_lost_tokens_are_unknown_and_not_zero():
    (row,) = rows_of(dataclasses.replace(run(0, right=True), usage=Usage(usd=2.5), lost_tokens=7))
    facts = dict(line.split(maxsplit=2)[::2] for line in as_text([row]).splitlines() if line.startswith("lost dollars"))
    assert facts == {"lost": "unknown"}
    (whole,) = rows_of(dataclasses.replace(run(0, right=True), usage=Usage(usd=2.5)))
    assert "lost dollars" not in as_text([whole])


def test_the_table_says_what_curves_say():
    """Same estimate, same interval, in studies with any pattern of runs that are missing or failed."""
    for draws in map(np.random.default_rng, range(20)):
        runs = [
            run(
                problem,
                seed,
                right=bool(draws.random() < 0.6),
                error="it broke" if draws.random() < 0.2 else None,
                of={"budget": budget},
                usage=Usage(**budget),
            )
            for budget in ({"samples": 2}, {"samples": 4})
            for problem in range(8)
            for seed in range(3)
            if draws.random() < 0.7
        ]
        (curve,) = curves_of(runs, rng=np.random.default_rng(0))
        rows = sorted(rows_of(*runs), key=lambda row: row.budget["samples"])
        assert [row.accuracy for row in rows] == [
            curve.accuracy[i] for i in np.argsort(curve.costs["samples"], kind="stable")
        ]


def test_what_is_spent_is_summed():
    tokens = ("prompt", "reused", "generated", "cancelled", "truncated", "verifier")
    spent = [*(f"{kind}_tokens" for kind in tokens), "flops", "usd", "seconds", "work_seconds"]
    usages = [Usage(**{name: factor * number for number, name in enumerate(spent, 1)}) for factor in (1, 10)]
    (row,) = rows_of(*(run(i, usage=usage, lost_tokens=7) for i, usage in enumerate(usages)))
    assert row.lost_tokens == 14
    for name in spent:
        assert getattr(row, name) == sum(getattr(usage, name) for usage in usages), name


def test_what_one_run_does_not_know_the_sum_does_not():
    unknown = Usage(reused_tokens=None, flops=None, usd=None)
    (row,) = rows_of(run(0), run(1, usage=unknown), run(2))
    assert (row.reused_tokens, row.flops, row.usd) == (None, None, None)
    assert as_text([row]).count("unknown") == 3


def test_missing_answers_refuse_accuracy_with_the_reason_and_nothing_else():
    (row,) = rows_of(run(0), run(1, right=None), run(1, 1, right=None), run(2))
    assert (row.accuracy, row.no_accuracy) == (None, "1 of 3 problems have no reference answer")
    assert row.generated_tokens == 40
    assert "unknown: 1 of 3 problems have no reference answer" in as_text([row])
    assert json.loads(as_json([row]))[0]["accuracy"] is None


def test_failed_runs_are_counted_by_kind_and_not_as_wrong():
    errors = ["EngineError: every row failed", "EngineError: lost", "VerifierError: broke"]
    (row,) = rows_of(
        run(0), run(1, right=False), *(run(2 + i, error=error, stopped_by="failed") for i, error in enumerate(errors))
    )
    assert (row.accuracy.value, row.accuracy.num, row.problems, row.runs, row.failed) == (0.5, 2, 5, 5, 3)
    assert dict(row.errors) == {"EngineError": 2, "VerifierError": 1}
    assert dict(row.stops) == {"failed": 3, "samples drawn": 2}


def test_where_every_run_failed_there_is_no_accuracy():
    (row,) = rows_of(run(0, error="it broke"), run(1, error="it broke"))
    assert (row.accuracy, row.no_accuracy, row.failed) == (None, "every run failed", 2)


def test_stops_and_failures_are_counted_the_most_frequent_first():
    runs = [
        run(i, stopped_by=stop, failures={"lost": 2, "b": i})
        for i, stop in enumerate(["b", "a", "unanimous", "unanimous"])
    ]
    (row,), (turned,) = rows_of(*runs), rows_of(*reversed(runs))
    assert list(row.stops.items()) == list(turned.stops.items()) == [("unanimous", 2), ("a", 1), ("b", 1)]
    assert list(row.failures.items()) == [("lost", 8), ("b", 6)]


def test_notes_say_what_holds_of_any_run():
    (row,) = rows_of(run(0), run(1, oracle=True), run(2, reproducible=False, usage=Usage(estimated=True)))
    assert row.notes == ("estimated", "not reproducible", "oracle")
    assert rows_of(run(0))[0].notes == ()
    unscored = run(0, of={"verifiers": {"main": "toy"}})
    assert rows_of(unscored, run(1, of={"verifiers": {"main": "toy"}}))[0].notes == ("verifier never called",)
    assert rows_of(run(0, of={"verifiers": {"main": "recorded(low=0, high=1)"}}))[0].notes == ()
    assert rows_of(unscored, run(1, usage=Usage(verifier_calls=2), of={"verifiers": {"main": "toy"}}))[0].notes == ()


def test_rows_of_a_strategy_go_by_budget_however_they_came_in():
    found = rows_of(
        *(
            run(0, of={"strategy": name, "budget": {"tokens": tokens}})
            for name, tokens in (("b", 9), ("a", 9), ("b", 4), ("a", 20))
        )
    )
    assert [(row.strategy, row.budget["tokens"]) for row in found] == [("b", 4), ("b", 9), ("a", 9), ("a", 20)]


OTHERS = [{name: name[0]} for name in ("dataset", "model", "setting", "strategy")]


@pytest.mark.parametrize("other", [*OTHERS, {"budget": {"tokens": 10**6}}, {"verifiers": {"main": "v"}}])
def test_what_differs_in_more_than_problem_and_seed_is_another_row(other):
    first, second = rows_of(run(0), run(0, of=other), run(1, 5), run(1, of=other, right=False))
    assert [(each.problems, each.seeds, each.runs) for each in (first, second)] == [(2, 2, 2), (2, 1, 2)]
    (field,) = other
    assert getattr(second, field) == other[field] != getattr(first, field)


def test_the_order_of_runs_is_no_difference():
    runs = [run(i, seed, right=(i + seed) % 3 > 0) for i in range(6) for seed in range(3)]
    assert rows_of(*runs) == rows_of(*reversed(runs))


def test_the_order_of_limits_is_no_difference():
    assert len(rows_of(run(0, of={"budget": {"a": 1, "b": 2}}), run(1, of={"budget": {"b": 2, "a": 1}}))) == 1


def test_a_row_does_not_depend_on_those_after_it():
    runs = [run(i, right=i % 3 > 0) for i in range(20)]
    assert rows_of(*runs, run(0, of={"model": "other"}))[0] == rows_of(*runs)[0]


def test_columns_that_a_restart_changes_are_those_of_time_and_lost_work():
    assert {f.name for f in dataclasses.fields(TableRow)} > NOT_REPEATED
    again = run(0, lost_tokens=9, usage=Usage(generated_tokens=10, cancelled_tokens=3, seconds=4, work_seconds=5))
    first, second = (dataclasses.asdict(rows_of(each)[0]) for each in (run(0), again))
    assert {name for name in first if first[name] != second[name]} == NOT_REPEATED


def test_the_text_says_once_what_is_the_same_in_all_rows():
    small = [run(i, right=i > 4, of={"budget": {"tokens": 1000}}) for i in range(10)]
    large = [
        run(i, right=i > 2, usage=Usage(generated_tokens=123_456, flops=2 * 10**12), of={"budget": {"tokens": 20000}})
        for i in range(10)
    ]
    above, below = as_text(rows_of(*small, *large)).split("\n\n")
    facts = [line.split(maxsplit=1) for line in above.splitlines()]
    assert ["model", "toy"] in facts
    assert ["strategy", "best_of_n(n=4) | majority"] in facts
    header, *body = below.splitlines()
    assert header.split("  ")[0] == "budget"
    assert header.split()[1:] == ["accuracy", "[95", "%]", "out", "FLOPs", "seconds,", "summed"]
    assert [line.split()[0] for line in body] == ["tokens=1000", "tokens=20000"]
    assert [line.split()[-3:-1] for line in body] == [["100", "0"], ["1,234,560", "2e+13"]]
    assert "50.0 % [" in body[0]
    assert "70.0 % [" in body[1]
    assert len({len(line) for line in below.splitlines()}) == 1


def test_accuracy_is_a_column_also_where_all_rows_have_the_same():
    runs = [run(i, right=i > 4, of={"budget": {"tokens": size}}) for size in (1000, 20000) for i in range(10)]
    above, below = as_text(rows_of(*runs)).split("\n\n")
    assert "accuracy" not in above
    assert [line.split()[1] for line in below.splitlines()] == ["accuracy", "50.0", "50.0"]


def test_times_are_a_column_also_where_chance_makes_them_equal():
    runs = [run(0, of={"budget": {"tokens": size}}, usage=Usage(seconds=1.7)) for size in (1000, 20000)]
    above, below = as_text(rows_of(*runs)).split("\n\n")
    assert "\nseconds" not in above
    assert [line.split()[-1] for line in below.splitlines()] == ["summed", "1.7", "1.7"]
    assert "\nseconds, summed        1.7" in as_text(rows_of(runs[0]))


def test_texts_of_several_lines_do_not_break_the_table():
    text = as_text(rows_of(run(0, of={"strategy": "a\nb"}), run(0, of={"strategy": "c"})))
    assert "a b" in text


def test_many_kinds_are_named_shortly():
    (row,) = rows_of(*(run(i, stopped_by=f"kind {min(i, 4)}") for i in range(7)))
    assert "3 kind 4, 1 kind 0, 1 kind 1, 2 others" in as_text([row])


def test_a_table_without_results_says_so():
    assert as_text(rows_of()) == "no results yet"
    assert json.loads(as_json(rows_of())) == []


def test_json_and_csv_have_every_column():
    rows = rows_of(
        run(0, failures={"lost": 1}),
        run(1, right=False),
        run(0, right=None, usage=Usage(flops=None), of={"model": "\ud800"}),
    )
    first, second = json.loads(as_json(rows))
    assert list(first) == [f.name for f in dataclasses.fields(TableRow)]
    assert first["accuracy"]["value"] == 0.5
    assert (first["failures"], first["notes"], second["model"], second["flops"]) == ({"lost": 1}, [], "\ud800", None)
    flat = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert set(flat[0]) == {*first, "accuracy_low", "accuracy_high"}
    assert [float(flat[0][f"accuracy{end}"]) for end in ("", "_low", "_high")] == [
        first["accuracy"][end] for end in ("value", "low", "high")
    ]
    assert (flat[0]["failures"], flat[1]["accuracy"], flat[1]["flops"], flat[0]["budget"]) == (
        '{"lost": 1}',
        "",
        "",
        '{"tokens": 100}',
    )


def test_no_interval_is_a_point():
    for right in (True, False):
        (row,) = rows_of(*(run(i, right=right) for i in range(5)))
        assert row.accuracy.low < row.accuracy.high
        assert math.isclose(row.accuracy.value, float(right))


def test_no_cell_of_a_table_is_a_formula():
    (row,) = rows_of(run(0, of={"strategy": "=cmd()", "dataset": "@x"}))
    (read,) = csv.DictReader(io.StringIO(as_csv([row])))
    assert (read["strategy"], read["dataset"]) == ("'=cmd()", "'@x")


def test_reasons_with_numbers_are_counted_by_kind_and_others_as_they_are():
    reasons = [f"settled: another sample would add {i / 1000}, below the price 0.001" for i in range(4)]
    rows = rows_of(
        *(run(i, stopped_by=reason) for i, reason in enumerate([*reasons, "budget: tokens", "sprt: no difference"]))
    )
    (line,) = (line for line in as_text(rows).splitlines() if line.startswith("stopped by"))
    assert line.split(maxsplit=2)[2] == "4 settled, 1 budget: tokens, 1 sprt: no difference"
    assert set(reasons) < set(rows[0].stops)  # the other forms have them whole
