"""What every stop rule promises; a new one is under test as soon as it is in the table."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from tests.contracts.walk import classes_with
from tests.support.candidates import candidates
from tts.search.parts import STOP_RULES, StopRule
from tts.search.plan import parse

SEQUENCES: tuple[list[str | None], ...] = (
    ["a"] * 12,
    [None] * 12,
    ["a", "b"] * 6,
    ["a", "b", "a", "b", "a", *["b"] * 10],
    [None, *["a"] * 11],
)


@pytest.fixture(params=STOP_RULES.names())
def rule(request: pytest.FixtureRequest) -> StopRule:
    return STOP_RULES.get(request.param)()


def test_it_is_a_frozen_dataclass_whose_text_parses_back(rule: StopRule) -> None:
    assert isinstance(rule, StopRule)
    assert rule.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert all(f.kw_only for f in dataclasses.fields(rule) if f.init)  # type: ignore[arg-type]
    assert STOP_RULES.get(rule.registered_as) is type(rule)
    assert parse(f"single | {rule}").stopping == rule


def test_without_a_candidate_it_does_not_stop(rule: StopRule) -> None:
    assert rule.should_stop([]) is None


@pytest.mark.parametrize("answers", SEQUENCES)
def test_its_verdict_is_a_function_of_the_candidates(rule: StopRule, answers: list[str | None]) -> None:
    of = candidates(answers)
    before = copy.copy(of)
    for count in range(1, len(of) + 1):
        verdict = rule.should_stop(of[:count])
        assert (
            verdict
            == rule.should_stop(tuple(of[:count]))
            == STOP_RULES.get(rule.registered_as)().should_stop(of[:count])
        )
        if verdict is not None:
            assert verdict.reason
            assert verdict.answer is None or verdict.answer in answers[:count]
            assert of[:count][verdict.used], "the verdict leaves no candidate to choose from"
    assert of == before


def test_candidates_without_an_answer_never_stop_it(rule: StopRule) -> None:
    of = candidates([None] * 30)
    if rule.order == "finished":  # it reads which solutions ended, not what they answer
        return
    assert all(rule.should_stop(of[:count]) is None for count in range(1, 31))


def test_every_stop_rule_is_in_the_table() -> None:
    written = classes_with("search", ("should_stop",))
    assert written
    assert {way for way in written if way not in STOP_RULES.entries.values()} == set()
