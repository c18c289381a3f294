from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tts.budget.budget import Budget
from tts.budget.ledger import Entry, Ledger, sum_usage
from tts.errors import ConfigError, quote
from tts.types import Usage

COUNTS = ("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples", "requests")
AMOUNTS = ("flops", "seconds", "usd")


# Budget ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", COUNTS)
@pytest.mark.parametrize(
    ("value", "nearest"),
    [(0, 1), (-7, 1), (3.5, 4), (0.2, 1), (math.nan, 1), (math.inf, 1), (-math.inf, 1), (10.25, 10)],
)
def test_a_count_that_is_not_whole_and_positive_is_refused_with_the_nearest_that_is(
    unit: str, value: float, nearest: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget(**{unit: value})
    assert caught.value.cause == f"budget {unit} is {value!r}, but must be a whole number of at least 1"
    assert caught.value.hint == f"the nearest valid value is {nearest}"
    assert Budget(**{unit: nearest}).limits == {unit: nearest}


@pytest.mark.parametrize("unit", AMOUNTS)
@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, math.inf, 10**400])
def test_an_amount_that_is_not_finite_and_positive_is_refused(unit: str, value: float) -> None:
    rule = {"flops": "of at least 1", "seconds": "above 0", "usd": "of at least 1e-15"}[unit]
    with pytest.raises(
        ConfigError,
        match=rf"budget {unit} is {re.escape(quote(value))}, but must be a finite number {rule} .*Budget\({unit}=1\)",
    ):
        Budget(**{unit: value})


@pytest.mark.parametrize(("unit", "value"), [("flops", 0.5), ("usd", 1e-20)])
def test_an_amount_below_what_is_counted_is_refused(unit: str, value: float) -> None:
    with pytest.raises(ConfigError, match="of at least"):
        Budget(**{unit: value})


@pytest.mark.parametrize(
    ("amounts", "limits", "cure"),
    [((), {"dollars": 1}, "usd"), ((), {"FLOPs": 1}, "flops"), ((400,), {}, "tokens")],
)
def test_a_word_that_is_no_unit_has_its_cure(amounts: tuple[Any, ...], limits: dict[str, Any], cure: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget(*amounts, **limits)
    assert cure in (caught.value.hint or "")


def test_a_count_beyond_every_float_is_a_count() -> None:
    assert Budget(tokens=10**400).tokens == 10**400


@pytest.mark.parametrize("unit", [*COUNTS, *AMOUNTS])
@pytest.mark.parametrize("value", [True, False, np.True_, np.bool_(False), "100", [1], object()])
def test_what_is_no_number_is_refused(unit: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"budget {unit} is .* but must be a number"):
        Budget(**{unit: value})


def test_a_budget_without_a_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"limit,.*Budget\(tokens=4096\)"):
        Budget()


@pytest.mark.parametrize("value", [5, 5.0, np.int64(5), np.float32(5), Decimal(5)])
def test_whole_numbers_of_any_type_are_taken_as_integers(value: Any) -> None:
    assert Budget(samples=value).samples == 5
    assert type(Budget(samples=value).samples) is int


def test_a_bare_number_is_a_limit_on_tokens_and_a_budget_is_itself() -> None:
    given_budget = Budget(samples=3, usd=0.5)
    assert Budget.of(4096) == Budget(tokens=4096)
    assert Budget.of(given_budget) is given_budget
    assert str(given_budget) == "samples=3, usd=0.5"


# Ledger ---------------------------------------------------------------------------------------------------------------


def test_the_ledgers_total_sums_counts_takes_peaks_and_does_not_know_what_one_call_does_not() -> None:
    ledger = Ledger()
    assert ledger.total() == Usage()
    ledger.add(Entry("expand", "policy", 2, 64, generated_tokens=20, cancelled_tokens=3, samples=2, flops=46))
    ledger.add(Entry("score", "main", 2, 0, verifier_tokens=20, verifier_calls=2, usd=None, estimated=True))
    total = ledger.total()
    assert (total.tokens, total.samples, total.verifier_calls, total.flops) == (43, 2, 2, 46)
    assert (total.usd, total.estimated) == (None, True)
    assert sum_usage([Usage(peak_kv_tokens=9), Usage(peak_kv_tokens=4)]).peak_kv_tokens == 9
    assert sum_usage([Usage(kv_bytes_per_token=None), Usage(kv_bytes_per_token=4)]).kv_bytes_per_token == 4
