"""Studies that an account pays: cells have their own budgets or stay open, and never a result that the account cut
short.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tts
from tts.errors import ConfigError
from tts.experiments.analysis.replayable import PartialResults
from tts.experiments.study.record import Result

pytestmark = pytest.mark.filterwarnings(f"ignore::{PartialResults.__module__}.{PartialResults.__qualname__}")
SUMS = {"dataset": "arithmetic", "operators": "+-", "parentheses": False, "operations": [4], "limit": 10}


def study(**more: Any) -> tts.Study:
    settings = {
        "name": "sums",
        "models": "toy",
        "problems": SUMS,
        "strategies": ["best_of_n | majority"],
        "budgets": {"samples": [1, 8]},
    }
    return tts.Study(**{**settings, **more})


def by_key(of: tts.Study) -> dict[str, Result]:
    return {result.cell.key: result for result in of.results()}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, Result]:
    paid = study()
    paid.run(tmp_path / "whole.sqlite", progress=False)
    return by_key(paid)


@pytest.mark.slow
def test_cells_that_an_account_cannot_pay_stay_open_for_the_next_run(tmp_path: Path, whole: dict[str, Result]) -> None:
    paid, runs = study(), 0
    while runs < 9:
        runs += 1
        with tts.Account(tts.Budget(samples=30)) as account:
            ended = paid.run(tmp_path / "paid.sqlite", progress=False, account=account)
        assert account.spent["samples"] <= 30
        assert ended.counts.pending == ended.unpaid
        assert not ended.counts.leased
        if not ended.unpaid:
            break
    assert 1 < runs < 9
    for key, result in by_key(paid).items():
        other = whole[key]
        assert (result.answer, result.usage.tokens, result.stopped_by, result.reproducible) == (
            other.answer, other.usage.tokens, other.stopped_by, True,
        )  # fmt: skip


@pytest.mark.slow
def test_cells_that_share_a_limit_are_whole_or_stay_open_and_say_that_timing_decided(
    tmp_path: Path, whole: dict[str, Result]
) -> None:
    paid, flags = study(), set[bool]()
    for _ in range(9):
        account = tts.Account(tts.Budget(tokens=1200))
        ended = paid.run(tmp_path / "paid.sqlite", progress=False, account=account)
        assert account.spent["tokens"] <= 1200
        assert not account.reservation("tokens")
        flags |= {result.reproducible for result in by_key(paid).values()}
        if not ended.unpaid:
            break
    assert not ended.unpaid
    assert False in flags
    for key, result in by_key(paid).items():
        assert (result.answer, result.usage.tokens, result.usage.samples) == (
            whole[key].answer, whole[key].usage.tokens, whole[key].usage.samples,
        )  # fmt: skip


def test_a_spent_account_leaves_all_cells_open(tmp_path: Path) -> None:
    account = tts.Account(tts.Budget(tokens=1))
    ended = study().run(tmp_path / "paid.sqlite", progress=False, account=account)
    assert (ended.counts.done, ended.unpaid) == (0, 20)


def test_an_account_of_another_executor_and_a_closed_one_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"executor.*'ray',.*pays"):
        study().run(tmp_path / "paid.sqlite", executor="ray", account=tts.Account(100))
    with tts.Account(100, name="alice") as account:
        pass
    with pytest.raises(ConfigError, match="the account 'alice' is closed"):
        study().run(tmp_path / "paid.sqlite", account=account)
    assert not (tmp_path / "paid.sqlite").exists()
