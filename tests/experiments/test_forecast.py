from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.studies import toy
from tts.experiments.config import StudyConfig
from tts.experiments.forecast import Earlier, Expected, forecast, total
from tts.experiments.runner import Prepared, run
from tts.experiments.store import Store


def expected(config: StudyConfig, earlier: Earlier | None = None) -> list[Expected]:
    with Prepared(config) as prepared:
        return forecast(prepared.cells(), prepared.executor.settings, earlier or Earlier(), slots=prepared.executor.slots)


def test_without_results_it_goes_by_budgets_and_typical_lengths():
    config = toy(limit=5, strategies="best_of_n | majority", budgets=[{"samples": 4}, 90, {"samples": 1, "tokens": 10}, {"flops": 10**6}])
    with Prepared(config) as prepared:
        (setting,) = prepared.executor.settings.values()
    samples, tokens, both, flops = expected(config)
    assert (samples.tokens, samples.basis, samples.at_most) == (5 * 4 * setting.typical_tokens, "typical", None)
    assert (tokens.tokens, tokens.basis, tokens.at_most) == (5 * 90, "limit", 5 * 90)
    assert (both.tokens, both.basis) == (50, "limit")
    assert (flops.tokens, flops.basis) == (None, "unknown")
    assert {row.seconds for row in (samples, tokens, flops)} == {None}
    assert (samples.cells, samples.done) == (5, 0)


def test_with_results_it_goes_by_what_like_ones_cost(tmp_path: Path):
    earlier = Earlier()
    with Store(tmp_path / "store.sqlite") as store, Prepared(toy(limit=6)) as prepared:
        ended = run(prepared, store)
        done = list(store.results(ended.study))
    earlier.add(done)
    earlier.add(done)  # of another study that shares its cells
    for row in expected(toy(limit=6), earlier):
        assert (row.cells, row.done, row.tokens, row.seconds, row.usd) == (6, 6, 0, 0, 0)
    for row in expected(toy(limit=10, concurrency=1), earlier):
        like = [one.usage for one in done if one.cell.strategy == row.strategy and one.cell.budget == row.budget]
        assert (row.cells, row.done, row.basis) == (10, 6, "measured")
        assert row.tokens == pytest.approx(4 / 6 * sum(usage.tokens for usage in like))
        assert row.seconds == pytest.approx(4 / 6 * sum(usage.seconds for usage in like))
        assert row.usd is None  # the toy has no prices
    other = expected(toy(limit=6, budgets=90), earlier)
    assert [row.basis for row in other] == ["limit", "limit"]
    assert all(row.seconds for row in other)  # at the rate of the same models and verifiers


def test_what_two_names_share_is_paid_for_once():
    sums = {"dataset": "arithmetic", "operators": "+-", "parentheses": False, "operations": 2}
    problems = [{**sums, "name": "every", "limit": 6}, {**sums, "name": "few", "limit": 2}]
    every, few = expected(toy(problems=problems, strategies="best_of_n | majority", budgets=90))
    assert (every.cells, every.done, few.cells, few.done) == (6, 0, 2, 2)
    assert (every.tokens, few.tokens) == (6 * 90, 0)


def test_an_unknown_part_makes_the_sum_unknown():
    assert total([1.0, 2.0]) == 3.0
    assert total([1.0, None]) is None
    assert total([]) == 0
