"""The text form of a plan: what it refuses, where it says the mistake is, and what an object that is almost a part
lacks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.errors import ConfigError
from tts.registry import parse_call
from tts.search.ends import StopDecision
from tts.search.parts import Plan, Strategy
from tts.search.plan import parse
from tts.search.selections.majority import Majority
from tts.types import Candidate
from tts.verifiers import VERIFIERS


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    return caught.value


def place(error: ConfigError) -> int:
    """Return the index of the character that an error points at."""
    found = re.search(r"(?:\(| at )character (\d+) ", error.cause)
    assert found is not None, error.cause
    return int(found[1]) - 1


# What is refused, and where -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("best_of_n(n=1,n=2)", "n=2", "the parameter n is given twice"),
        ("single | best(verifier='é', verifier='é')", "verifier='é')", "the parameter verifier is given twice"),
        ("best_of_n(8)", "8", "parameters are named"),
        ("best_of_n(**{'n': 1})", "{", "parameters are named"),
        ("best_of_n(n=x)", "x", "the value of n must be a number"),
        ("best_of_n(n={[]: 1})", "{", "the value of n must be a number"),
        ("single | never(x=1)", "x=1", "the stop rule never takes no parameters"),
        ("single | (majority | best)", "majority", "a name belongs here"),
        ("single | best_of_n", "best_of_n", "'best_of_n' is a strategy, but only the first part may be one"),
        ("single | (majority", "(majority", "it cannot be read here"),
        ("single | 'é' | )", ")", "it cannot be read here"),
        ("single | majority | weighted", "weighted", "two selections, majority and weighted"),
        ("self_consistency | best", "best", "two selections, majority and best"),
        ("single | never | unanimous(window=3)", "unanimous", "two stop rules, never and unanimous"),
        ("single | majorty", "majorty", "no stop rule or selection has that name"),
        ("best_of_n(m=2)", "m=2", "no parameter of the strategy best_of_n has that name"),
        ("single | best(verifer='é')", "verifer", "no parameter of the selection best has that name"),
        ("single | best(verifier='éé') | majorty", "majorty", "no stop rule or selection has that name"),
    ],
)
def test_the_position_of_a_mistake_is_its_index_in_the_text(text: str, at: str, why: str) -> None:
    start = text.rindex(at)
    for space, before in ((" ", ""), ("\n", ""), ("\r\n  ", ""), (" ", "\n  ")):
        spread = text.replace(" | ", f"{space}| ")
        error = refusal(before + spread)
        assert why in error.cause
        assert place(error) == len(text[:start].replace(" | ", f"{space}| "))
        assert repr(spread) in error.cause


def test_a_position_is_right_behind_a_line_break_within_a_call() -> None:
    text = "best_of_n(\n    n=4,\n    temperature=warm,\n)"
    assert place(refusal(text)) == text.index("warm")
    assert "('warm,\\n)')" in refusal(text).cause


def test_an_unknown_name_keeps_its_nearest_names() -> None:
    assert refusal("single | majorty").hint == "did you mean majority or best_of_majority?"
    assert refusal("best_of_n(temprature=1)").hint == "did you mean temperature?"
    assert (
        str(refusal("best_of_m(n=8)"))
        == "strategy is 'best_of_m', but no strategy has that name (hint: did you mean best_of_n?)"
    )
    with pytest.raises(
        ConfigError,
        match=r"parameter.*toy.*'eror'.*\(character 5",
    ):
        parse_call(VERIFIERS, " toy(eror=1)")
    with pytest.raises(
        ConfigError,
        match=r"the text 'toy \| checker' is malformed at character 7 \('checker'\): a verifier is one name",
    ):
        parse_call(VERIFIERS, "toy | checker")


@pytest.mark.parametrize(("name", "kind"), [("majority", "selection"), ("never", "stop rule")])
def test_a_plan_that_begins_with_another_part_says_where_it_belongs(name: str, kind: str) -> None:
    for text in (name, f"{name} | best_of_n"):
        error = refusal(text)
        assert error.cause == f"the text begins with {name!r}, a {kind}, but must begin with a strategy"
        assert error.hint == f"for example best_of_n(n=8) | {name}"


def test_a_line_break_is_a_space() -> None:
    assert parse("best_of_n(n=8)\n | unanimous(\n\twindow=3\r\n)\n | majority\n") == parse(
        "best_of_n(n=8) | unanimous(window=3) | majority"
    )


@pytest.mark.parametrize(
    "text",
    ["", " ", "\ud800", "x" + "(" * 500, "x" + " | x" * 3000, "single\0", "1", "'a'", "single()()", "a.b", "a-b"],
)
def test_what_is_no_plan_at_all_is_one_line(text: str) -> None:
    refusal(text)


_PIECES = [
    "best_of_n",
    "majority",
    "never",
    "weighted",
    "(",
    ")",
    "n",
    "=",
    "4",
    "'é'",
    ",",
    "|",
    " ",
    "\n",
    "[",
    "]",
    "{",
    ":",
    "None",
    "**",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_any_text_is_a_plan_or_one_line_that_points_into_it(text: str) -> None:
    try:
        plan = parse(text)
    except ConfigError:
        error = refusal(text)
        assert "character" not in error.cause or 0 <= place(error) <= len(text.strip())
    else:
        assert parse(str(plan)) == plan


# What is almost a part ------------------------------------------------------------------------------------------------


class Half:
    """A strategy as a newcomer writes one."""

    async def run(self, search: Any) -> Sequence[Candidate]:
        return search.candidates


class Whole(Strategy):
    async def run(self, search: Any) -> Sequence[Candidate]:
        return search.candidates


class Rule:
    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        return None


class Choice:
    registered_as = "choice"

    async def select(self, candidates: Sequence[Candidate], search: Any) -> Any:
        return None


class Needy(Whole):
    def __init__(self, width: int) -> None:
        self.width = width


@pytest.mark.parametrize("attempt", [Half, Half()], ids=("class", "object"))
def test_a_part_without_its_base_class_is_told_which_one_to_write(attempt: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Plan.of(attempt)
    assert (
        str(caught.value)
        == "Half has run, but is no tts.Strategy (hint: write class Half(tts.Strategy): the rest has defaults)"
    )


def test_so_are_a_stop_rule_and_a_selection() -> None:
    with pytest.raises(ConfigError, match=r"Rule.*should_stop, but.*tts.StopRule"):
        parse("single") | Rule()
    with pytest.raises(ConfigError, match=r"select, but.*tts.Selection \(hint"):
        parse("single") | Choice
    with pytest.raises(ConfigError, match=r"stop rule.*,.*tts\.StopRule"):
        Plan(parse("single").strategy, Majority())  # type: ignore[arg-type]


def test_a_class_stands_for_itself_with_defaults() -> None:
    assert isinstance(Plan.of(Whole).strategy, Whole)
    assert (Plan.of(Whole) | Majority).selection == Majority()
    with pytest.raises(ConfigError, match=r"Needy.*parameters: .*'width'.*give"):
        Plan.of(Needy)


@pytest.mark.parametrize("part", [5, None, "best_of_n", print, Majority(), [1] * 500])
def test_what_is_no_attempt_is_told_how_a_plan_begins(part: Any) -> None:
    with pytest.raises(ConfigError, match="must begin with a strategy") as caught:
        Plan.of(part)
    assert len(str(caught.value)) < 250
