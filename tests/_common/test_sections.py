"""Faults of settings as one line each: the place, the rule, and the nearest key, also in sections of sections."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, field_validator

from tts._common.sections import Section
from tts.errors import ConfigError


class Inner(Section):
    """A part."""

    more_keys = ("price",)
    size: int = Field(default=1, ge=1)


class Outer(Section):
    """A whole with a part, parts by name and parts in a list."""

    one: Inner | None = None
    named: dict[str, Inner] = Field(default_factory=dict[str, Inner])
    listed: list[Inner] = Field(default_factory=list[Inner])
    count: int | str = 0

    @field_validator("count")
    @classmethod
    def _count(cls, given: Any) -> Any:
        if given == 13:
            raise ConfigError("count is 13, but must be another number", hint="take 12")
        if given == 14:
            raise ValueError("It is one too many")
        return given


class Needy(Section):
    """A whole with a key that must be given."""

    name: str
    parts: dict[str, Inner] = Field(default_factory=dict[str, Inner])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"on": {}}, "key of the whole is 'on', but no key of the whole has that name (hint: did you mean one?)"),
        ({"one": {"siz": 1}}, "key of one is 'siz', but no key of one has that name (hint: did you mean size?)"),
        ({"one": {"pric": 1}}, "key of one is 'pric', but no key of one has that name (hint: did you mean price?)"),
        (
            {"named": {"size": {"siz": 1}}},
            "key of named.size is 'siz', but no key of named.size has that name (hint: did you mean size?)",
        ),
        (
            {"named": {"a b": {"siz": 1}}},
            "key of named.a b is 'siz', but no key of named.a b has that name (hint: did you mean size?)",
        ),
        (
            {"named": {"a | b[1]\n": {"size": 0}}},
            r"named['a | b[1]\n'].size is 0, but must be greater than or equal to 1",
        ),
        (
            {"listed": [{}, {"siz": 1}]},
            "key of listed[1] is 'siz', but no key of listed[1] has that name (hint: did you mean size?)",
        ),
        ({"listed": [{"size": 0}]}, "listed[0].size is 0, but must be greater than or equal to 1"),
        ({"listed": {}}, "listed is {}, but must be a valid list"),
        ({"count": 1.5}, "count is 1.5, but must be a valid integer"),
        ({"count": 13}, "count: count is 13, but must be another number (hint: take 12)"),
        ({"count": 14}, "count is 14, but it is one too many"),
        ([], "the whole is [], but must be a valid dictionary or instance of Outer"),
    ],
)
def test_a_fault_is_one_line_with_its_place_and_rule(given: Any, line: str):
    with pytest.raises(ConfigError) as caught:
        Outer.of(given, "the whole")
    assert str(caught.value) == line


def test_an_unknown_key_goes_before_the_one_that_is_missing_for_it():
    with pytest.raises(ConfigError) as caught:
        Needy.of({"nam": "x"})
    assert str(caught.value) == "key is 'nam', but no key has that name (hint: did you mean name?)"


def test_keys_that_may_be_given_are_named_where_one_is_missing():
    with pytest.raises(ConfigError) as caught:
        Needy.of({})
    assert str(caught.value) == "name is missing, but must be given (hint: keys: name, parts)"
