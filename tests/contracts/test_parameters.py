"""Every parameter of everything in the tables: a value of another kind is one line that names it, and never a raw
TypeError.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

import tts
from tts.checks import Count, Rule, check_int, check_number, check_text, choice, number, number_above, whole
from tts.errors import ConfigError
from tts.registry import Registry, parse_call
from tts.search.ends import Tokens
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.verifiers import VERIFIERS

TABLES = (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS)
PARTS = {
    (table, name): tuple(inspect.signature(table.get(name)).parameters) for table in TABLES for name in table.entries
}
WRONG: tuple[Any, ...] = ([], [1], {}, {"a": 1}, {1}, (), (1,), b"a", 1j, ..., True)
WRONG += (float("nan"), float("inf"), 10**400, -1, "")
FLAGS = {("tests", "restore")}
LISTS = {
    ("pacore", "widths"),
    ("cascade", "thresholds"),
    ("cascade", "efforts"),
    ("cascade", "thought_tokens"),
}  # which take a list, or nothing
SIGNED = {
    ("score_threshold", "threshold"),
    ("adaptive", "threshold"),
    ("reasc", "gate"),
    ("reasc", "mean"),
}  # a verifier's range may begin below 0


def kinds_of(part: Any, parameter: str) -> set[Any]:
    """Return the types of which a value of a parameter may be, as it is annotated."""
    kind = get_type_hints(part)[parameter]
    return set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}


EACH_PART = pytest.mark.parametrize(
    ("table", "name"), [part for part in PARTS if PARTS[part]], ids=lambda one: getattr(one, "kind", one)
)


@EACH_PART
def test_a_value_of_another_kind_is_refused_in_one_line_that_names_it(table: Registry, name: str) -> None:
    for parameter in PARTS[table, name]:
        assert_refused(table, name, parameter)


def assert_refused(table: Registry, name: str, parameter: str) -> None:
    """Check every value that is wrong for a parameter."""
    kinds = kinds_of(table.get(name), parameter)
    wrong = [*WRONG, *((3, 0.5) if str in kinds else ("a", "1"))]  # a number for a text, and a text for all others
    if (name, parameter) in SIGNED:
        wrong.remove(-1)
    if (name, parameter) in FLAGS:
        wrong = [value for value in wrong if value is not True]
    if (name, parameter) in LISTS:
        wrong = [value for value in wrong if value not in ([1], (1,))]
    for value in [*wrong, object(), print, *([] if type(None) in kinds else [None])]:
        with pytest.raises(ConfigError) as caught:
            table.get(name)(**{parameter: value})
        assert caught.value.cause.startswith(f"{parameter} is "), value
        assert ", but " in caught.value.cause, value
        assert "\n" not in str(caught.value), value
        assert len(str(caught.value)) < 300 or value == 10**400, value


@EACH_PART
def test_so_it_is_in_the_text_form(table: Registry, name: str) -> None:
    for parameter in PARTS[table, name]:
        assert_refused_in_a_text(table, name, parameter)


def assert_refused_in_a_text(table: Registry, name: str, parameter: str) -> None:
    for value in (
        "{[]: 1}",
        "{{}}",
        "[-1]" if (name, parameter) in LISTS else "[1]",
        "b'a'",
        "1j",
        "-'a'",
        "f'{1}'",
        "[i for i in 'ab']",
        "{**{}, []: 1}",
        "0x" + "f" * 6000,
    ):
        with pytest.raises(ConfigError, match=parameter if len(value) < 60 else f"{parameter}|{name}") as caught:
            parse_call(table, f"{name}({parameter}={value})")
        assert "\n" not in str(caught.value)


def test_the_cases_cover_every_dataclass_field() -> None:
    for table in TABLES:
        for name in table.entries:
            made = table.get(name)
            if dataclasses.is_dataclass(made):
                assert {f.name for f in dataclasses.fields(made) if f.init} == set(PARTS[table, name])
    assert sum(map(len, PARTS.values())) > 15


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("best_of_majority(alpha='a')", "alpha is 'a', but must be a number between 0 and 1"),
        ("best_of_majority(k=None)", "k is None, but must be a whole number of at least 1"),
        ("weighted(aggregate=3)", "aggregate is 3, but must be a text that is not empty"),
        ("weighted(aggregate='lst')", "aggregate is 'lst', but no aggregate has that name"),
        ("weighted(verifier=[])", "verifier is [], but must be a text that is not empty"),
        ("best(truncated='maybe')", "truncated is 'maybe', but must be 'vote' or 'drop'"),
    ],
)
def test_a_selection_names_the_rule(text: str, cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_call(SELECTIONS, text)
    assert caught.value.cause == cause


def test_the_shared_checks() -> None:
    for fine in (None, 1, 7, 2**63 - 1):
        check_int("n", fine, 1)
    for fine in (None, 0, 0.5, 1):
        check_number("x", fine, 0, 1)
    check_number("x", -(10.0**9))
    check_text("x", "a")
    with pytest.raises(ConfigError, match=r"n.*whole.*2"):
        check_int("n", None, 2, optional=False)
    with pytest.raises(ConfigError, match=r"n.*9223372036854775808,.*below 2\*\*63"):
        check_int("n", 2**63, 1)
    with pytest.raises(ConfigError, match=r"n.*long"):
        check_int("n", 16**6000, 1)
    with pytest.raises(ConfigError, match=r"x.*1\.5,.*between 0"):
        check_number("x", 1.5, 0, 1)
    with pytest.raises(ConfigError, match=r"x.*-1,.*number.*0"):
        check_number("x", -1, 0)
    with pytest.raises(ConfigError, match=r"x.*\[1, 2"):
        check_number("x", list(range(1, 100)))
    for count in (0, 1.5, "a", None, True):
        with pytest.raises(ConfigError, match=r"Tokens.*whole.*1"):
            Tokens(count)  # type: ignore[arg-type]


# Parts of one's own ---------------------------------------------------------------------------------------------------


def doubled(name: str, value: Any) -> int:
    check_int(name, value, 1, optional=False)
    return 2 * value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide(tts.Strategy):
    width: Count = 2
    depth: Count | None = None
    share: Annotated[float | int, number(0, 1)] = 0.5
    how: Annotated[str, choice("one", "two")] = "one"
    twice: Annotated[int, Rule(doubled)] = 1
    seconds: Annotated[float, number_above(0, 60)] = 1.0
    own: list[LocalName] | None = None  # type: ignore[name-defined]  # noqa: F821 - as a name that is imported for types alone

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return await search.complete([search.root], n=self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wider(Wide):
    width: int = 8  # another default, by the same rule


@pytest.mark.parametrize(
    ("parameters", "cause"),
    [
        ({"width": 0}, "width is 0, but must be a whole number of at least 1"),
        ({"width": None}, "width is None, but must be a whole number of at least 1"),
        ({"depth": 0.5}, "depth is 0.5, but must be a whole number of at least 1"),
        ({"share": 2}, "share is 2, but must be a number between 0 and 1"),
        ({"how": "three"}, "how is 'three', but must be 'one' or 'two'"),
        ({"seconds": 0}, "seconds is 0, but must be a number above 0 and below 60"),
    ],
)
@pytest.mark.parametrize("part", [Wide, Wider])
def test_parameters_of_ones_own_part_are_checked_from_their_annotations(
    part: Any, parameters: dict[str, Any], cause: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        part(**parameters)
    assert caught.value.cause == cause


def test_what_a_rule_returns_is_kept_and_none_is_let_through_where_the_annotation_has_it() -> None:
    assert (Wide(twice=3).twice, Wide(depth=None).depth, Wider().width, Wide(own=[1]).own) == (6, None, 8, [1])
    with pytest.raises(ConfigError, match=r"width.*'a',.*whole"):
        tts.parse(f"{__name__}:Wider(width='a')")


def test_a_verifier_of_ones_own_is_checked_alike() -> None:
    @dataclass(frozen=True)
    class Brief(tts.Verifier):
        most: Annotated[int, whole(10)] = 10

        async def score(self, problem: Any, trajectories: Any, calls: Any) -> list[tts.StepScores]:
            return [tts.StepScores(whole=0.5) for _ in trajectories]

    with pytest.raises(ConfigError, match=r"most.*9,.*whole.*10"):
        Brief(most=9)
