from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.budget.budget import Budget
from tts.budget.units import format_usd
from tts.cli.arguments import parse_budget, read_problem
from tts.errors import ConfigError, nearest_names, unknown_name


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2000", Budget(tokens=2000)),
        ("2e3", Budget(tokens=2000)),
        (" 2_000 ", Budget(tokens=2000)),
        ("2000,seconds=0.5", Budget(tokens=2000, seconds=0.5)),
        ("generated_tokens = 5 , verifier_calls=3", Budget(generated_tokens=5, verifier_calls=3)),
        ("flops=1e18,usd=0.25", Budget(flops=1e18, usd=0.25)),
    ],
)
def test_budgets(text, budget):
    assert parse_budget(text) == budget


def test_what_a_budget_prints_parses_back():
    budget = Budget(tokens=9, samples=4, seconds=0.5, usd=0.00005)
    assert parse_budget(str(budget)) == budget
    assert str(budget).endswith("usd=0.00005")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2k", "write 2000"),
        ("tokens=1.5M", "write 1500000"),
        ("$0.001", "write usd=0.001"),
        ("usd=$0.00002", "write usd=0.00002"),
        ("dollars=1", "did you mean usd?"),
        ("FLOPs=1", "did you mean flops?"),
        ("many", "write a number of tokens"),
    ],
)
def test_what_people_write_gets_a_hint(text, hint):
    with pytest.raises(ConfigError) as failure:
        parse_budget(text)
    assert (failure.value.hint or "").startswith(hint)


def test_words_of_other_programs_are_known():
    assert nearest_names("base_url", ["model", "url"]) == ["url"]
    assert nearest_names("vote", ["best_of_n", "self_consistency"]) == ["self_consistency"]
    assert "TTS_API_KEY" in (unknown_name("option", "api_key", ["url"]).hint or "")


def test_dollars_are_shown_as_people_write_them():
    texts = {0: "$0.00", 0.05: "$0.05", 12.5: "$12.50", 1234.5: "$1,234.50", 0.0123456: "$0.0123", 5e-05: "$0.00005"}
    assert {amount: format_usd(amount) for amount in texts} == texts


LIMITS = {"tokens": 2000, "samples": 4, "seconds": 0.5, "usd": 0.25, "verifier_calls": 3}


@given(st.permutations(list(LIMITS)), st.lists(st.booleans(), min_size=4, max_size=4))
def test_limits_of_several_flags_add_up_however_they_are_divided(units, is_joined):
    flags = [f"{units[0]}={LIMITS[units[0]]}"]
    for unit, joins in zip(units[1:], is_joined, strict=True):
        limit = f"{unit}={LIMITS[unit]}"
        flags = [*flags[:-1], f"{flags[-1]},{limit}"] if joins else [*flags, limit]
    assert parse_budget(*flags) == Budget(**LIMITS)


@pytest.mark.parametrize("flags", [("tokens=2000", "tokens=2000"), ("2000", "samples=2,tokens=30"), ("5", "6")])
def test_a_limit_of_two_flags_is_refused(flags):
    with pytest.raises(ConfigError, match="gives tokens twice"):
        parse_budget(*flags)


@pytest.mark.parametrize("text", ["3 + 4", "a" * 5000, "a\0b", "folder/", "~", "two\nlines", "größer"])
def test_what_is_no_file_is_the_problem_itself(text):
    assert read_problem(text) == text


def test_only_line_ends_at_the_end_are_dropped(tmp_path):
    (path := tmp_path / "p.txt").write_bytes(b"  a \r\n\r\nb \r\n\r\n")
    assert read_problem(str(path)) == "  a \r\n\r\nb "
