from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.experiments.made import cell
from tests.experiments.studies import toy
from tts.experiments.run.forecast import EarlierResults, RowForecast, forecast, total
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import ScoringCost, Setting


def expected(config: StudyConfig, earlier: EarlierResults | None = None) -> list[RowForecast]:
    with PreparedStudy(config) as prepared:
        return forecast(
            prepared.cells(), prepared.executor.settings, earlier or EarlierResults(), slots=prepared.executor.slots
        )


def test_without_results_it_goes_by_budgets_and_typical_lengths():
    config = toy(
        limit=5,
        strategies="best_of_n | majority",
        budgets=[{"samples": 4}, 90, {"samples": 1, "tokens": 10}, {"flops": 10**6}],
    )
    with PreparedStudy(config) as prepared:
        (setting,) = prepared.executor.settings.values()
    samples, tokens, both, flops = expected(config)
    assert (samples.tokens, samples.basis, samples.at_most) == (5 * 4 * setting.typical_tokens, "typical", None)
    assert (tokens.tokens, tokens.basis, tokens.at_most) == (5 * 90, "limit", 5 * 90)
    assert (both.tokens, both.basis) == (50, "limit")
    assert (flops.tokens, flops.basis) == (None, "unknown")
    assert {row.seconds for row in (samples, tokens, flops)} == {None}
    assert (samples.cells, samples.done) == (5, 0)


def test_what_verifiers_read_is_in_it():
    budgets = [
        {"samples": 4},
        {"generated_tokens": 100},
        {"samples": 4, "verifier_tokens": 10},
        {"samples": 4, "tokens": 60},
    ]
    budgets += [{"generated_tokens": 50, "verifier_tokens": 20}, {"samples": 4, "verifier_calls": 1}]
    strategies = ["best_of_n | majority", "best_of_n | weighted", "particle_filter | best"]
    rows = expected(toy(limit=5, strategies=strategies, budgets=budgets))  # the toy verifier reads each token once
    with PreparedStudy(toy(limit=1)) as prepared:
        (setting,) = prepared.executor.settings.values()
    typical = setting.typical_tokens
    assert 4 * typical > 60
    votes, scores, steps = rows[:6], rows[6:12], rows[12:]
    assert [row.tokens for row in votes] == [5 * each for each in (4 * typical, 100, 4 * typical, 60, 50, 4 * typical)]
    twice = [5 * each for each in (8 * typical, 200, 4 * typical + 10, 60, 70, 5 * typical)]
    assert [row.tokens for row in scores] == [row.tokens for row in steps] == twice
    assert [row.basis for row in scores] == ["typical", "limit", "typical", "limit", "limit", "typical"]
    assert [row.at_most for row in scores] == [None, None, None, 300, 350, None]
    assert all(row.whole for row in rows)


@pytest.mark.parametrize(
    ("verifier", "strategy", "tokens"),
    [
        ("toy", "best_of_n | best_of_majority", None),  # it asks about some candidates alone
        ("judge(max_tokens=8)", "best_of_n | best", None),  # its bound has room for prompts and replies of any length
        ("judge(max_tokens=8)", "best_of_n | majority", 0),
        (
            "ensemble(members=[\"self_evaluation(question='Right?', yes='1', no='2')\", 'confidence'])",
            "best_of_n | best",
            6,
        ),
        ("ensemble(members=['judge(max_tokens=8)', 'judge(max_tokens=9)'])", "best_of_n | best", None),
        ("confidence", "best_of_n | best", 0),
        ("checker", "best_of_n | best_of_majority", 0),
        ("self_evaluation(question='Right?', yes='1', no='2')", "best_of_n | best", 6),
        # once a step, however many there are
        ("self_evaluation(question='Right?', yes='1', no='2')", "particle_filter | best", None),
    ],
)
def test_what_a_verifier_will_cost_is_said_where_it_is_known(verifier: str, strategy: str, tokens: int | None):
    config = toy(limit=5, strategies=strategy, verifiers=verifier, budgets={"samples": 4}, allow_oracle=True)
    with PreparedStudy(config) as prepared:
        (setting,) = prepared.executor.settings.values()
        (row,) = forecast(prepared.cells(), prepared.executor.settings, EarlierResults(), slots=1)
    assert row.whole == (tokens is not None)
    assert row.tokens == 5 * 4 * (setting.typical_tokens + (tokens or 0))


def test_dollars_are_those_of_both_models():
    setting = Setting(
        task="t",
        typical_tokens=20,
        identity={},
        sampling={},
        verifiers={"main": "v"},
        strategies={"s": "s"},
        scoring={"s": ScoringCost(10, 0.5)},
        usd_per_token=0.1,
    )
    one = cell(model="m", setting=setting.digest, strategy="s", budget={"samples": 3})
    for scoring, usd, tokens in (
        (ScoringCost(10, 0.5), 3 * 2 + 3 * 0.5, 90),
        (ScoringCost(10, None), None, 90),
        (None, None, 60),
    ):
        changed = dataclasses.replace(setting, scoring={"s": scoring})
        (row,) = forecast([one], {("m", None): changed}, EarlierResults(), slots=1)
        assert (row.usd, row.tokens, row.whole) == (
            None if usd is None else pytest.approx(usd),
            tokens,
            scoring is not None,
        )


def test_a_limit_on_seconds_is_the_time_where_none_was_measured():
    (row,) = expected(
        toy(limit=6, concurrency=3, strategies="best_of_n | majority", budgets={"seconds": 5, "samples": 4})
    )
    assert row.seconds == 6 * 5 / 3


def test_with_results_it_goes_by_what_like_ones_cost(tmp_path: Path):
    earlier = EarlierResults()
    with Store(tmp_path / "store.sqlite") as store, PreparedStudy(toy(limit=6)) as prepared:
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


def test_the_most_tokens_of_a_row_bound_it():
    free, capped = ({"sampling": {"max_tokens": 7}} if cap else {} for cap in (False, True))
    budgets, strategies = [{"samples": 4}], ["best_of_n | majority", "best_of_n | weighted"]
    votes, scores = expected(toy(limit=5, strategies=strategies, budgets=budgets, **capped))
    assert (votes.tokens, votes.at_most) == (5 * 4 * 7, None)  # the toy verifier may be asked, without a limit
    assert scores.tokens == 2 * votes.tokens
    assert expected(toy(limit=5, strategies=strategies[:1], budgets=budgets, **free))[0].tokens > votes.tokens
    (alone,) = expected(toy(limit=5, strategies=strategies[:1], budgets=budgets, verifiers="none", **capped))
    assert (alone.tokens, alone.at_most) == (5 * 4 * 7, 5 * 4 * 7)
