"""What the file of a performance model must hold: every field is checked before anything goes by it.

A damaged file is refused in one line: which field of which file has which value, what the rule is, and what cures it.

Shapes: G success rates, L lures, B sizes, D width of hidden states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tts.allocator.difficulty import LURES, RATES, Floats, Population
from tts.allocator.gauges import READINGS, Gauge, PromptProbe
from tts.errors import ConfigError, TTSError, shown
from tts.search.plan import parse
from tts.search.protocols import StrategyProtocol, UsesModels

FORMAT: Final = 1
PLAIN: Final = "best_of_n"  # the strategy that draws plain samples
REFIT: Final = "make it again with tts fit"
_NEEDED: Final = ("format", "model", "task", "verifiers", "source", "problems", "tokens", "population", "curves")
_NOT_NEEDED: Final = ("first", "gauges", "probe", "models", "unit")
UNITS: Final = ("tokens", "flops", "usd")  # of cost, in which strategies and models may be compared
_ROUNDED: Final = 1e-5  # of numbers that are written with six digits
_LARGE: Final = 2**63  # what no number of a file reaches
_ANY: Final = ("a number", math.isfinite)
_SHARE: Final = ("a number between 0 and 1", lambda value: 0 <= value <= 1)
_LEAST_0: Final = ("a number of at least 0", lambda value: value >= 0)
_ABOVE_0: Final = ("a number above 0", lambda value: value > 0)
_ELSEWHERE: Final = "install the package that has it, or "
_Rule = tuple[str, Callable[[float], bool]]


def fields_of(text: str, *, file: str = "", cure: str = REFIT) -> dict[str, Any]:
    """Return the fields of the model that a text holds as JSON, by the names that `PerformanceModel` has for them.

    Curves are sizes [B], accuracy [G, B] and its error [G, B].

    Args:
        file: where the text is from; "": nowhere. cure: for what is damaged.

    Raises:
        ConfigError: it is no such model; the first field that is not as it must be is named.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise ConfigError(f"{_whose(file)} is no JSON: {failure}", hint=cure) from None
    whole = _Field(value, "", file, cure)
    if isinstance(value, dict) and "format" in value:  # of another format, the other fields may be other ones
        _format(_Field(value["format"], "format", file, cure))
    parts = whole.parts(_NEEDED, _NOT_NEEDED)
    absent = _Field(None, "", file, cure)
    gauges = _gauges(parts["gauges"]) if "gauges" in parts else {}
    probe = _probe(parts.get("probe", absent))
    if (probe is None) != ("probe" not in gauges):
        has, lacks = ("probe", "gauges.probe") if probe is not None else ("gauges.probe", "probe")
        raise ConfigError(f"{_whose(file)} has {has} and no {lacks}, but the gauge reads what the probe says", hint=cure)
    models = {role: each.text() for role, each in parts["models"].each().items()} if "models" in parts else {}
    return {
        "models": models,
        "unit": _unit(parts["unit"]) if "unit" in parts else "tokens",
        "model": parts["model"].text(),
        "task": parts["task"].text(),
        "verifiers": {role: each.text() for role, each in parts["verifiers"].each().items()},
        "source": parts["source"].text(),
        "problems": parts["problems"].whole(1),
        "tokens": parts["tokens"].number(_ABOVE_0),
        "first": _first(parts.get("first", absent)),
        "population": _population(parts["population"]),
        "curves": _curves(parts["curves"], models),
        "gauges": gauges,
        "probe": probe,
    }


@dataclass(frozen=True, slots=True)
class _Field:
    """A value of a file, and where it stands.

    Args:
        name: such as population.share[3]; "": it is the whole. file, cure: as in `fields_of`.
    """

    value: Any
    name: str
    file: str
    cure: str

    def __str__(self) -> str:
        return f"{self.name} of {_whose(self.file)}" if self.name else _whose(self.file)

    def refused(self, rule: str) -> ConfigError:
        """Return the error for a value that breaks a rule."""
        return ConfigError(f"{self} is {shown(self.value)}, but must be {rule}", hint=self.cure)

    def each(self) -> dict[str, _Field]:
        """Return the values of an object with any keys."""
        if not isinstance(self.value, dict):
            raise self.refused("an object, {…}")
        return {key: _Field(value, f"{self.name}[{json.dumps(key)}]", self.file, self.cure) for key, value in self.value.items()}

    def parts(self, needed: Sequence[str], others: Sequence[str] = ()) -> dict[str, _Field]:
        """Return the values of an object with these keys: all of the first, and any of the others."""
        found, before = self.each(), f"{self.name}." if self.name else ""
        for key in needed:
            if key not in found:
                raise ConfigError(f"{self} has no {key!r}, but must have {', '.join(needed)}", hint=self.cure)
        for key in found:
            if key not in (*needed, *others):
                raise ConfigError(f"{self} has {key!r}, but may only have {', '.join((*needed, *others))}", hint=self.cure)
        return {key: _Field(one.value, f"{before}{key}", self.file, self.cure) for key, one in found.items()}

    def items(self, count: int, of_what: str) -> list[_Field]:
        """Return the values of a list of so many."""
        if not isinstance(self.value, list):
            raise self.refused(f"a list of {count} {of_what}")
        if len(self.value) != count:
            raise ConfigError(f"{self} has {len(self.value)} values, but must have {count} {of_what}", hint=self.cure)
        return [_Field(value, f"{self.name}[{place}]", self.file, self.cure) for place, value in enumerate(self.value)]

    def text(self) -> str:
        """Return a text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.refused("a text that is not empty")
        return self.value

    def whole(self, least: int) -> int:
        """Return a whole number of at least so much."""
        if type(self.value) is not int or not least <= self.value < _LARGE:
            raise self.refused(f"a whole number of at least {least}")
        return self.value

    def number(self, rule: _Rule) -> float:
        """Return a finite number that keeps a rule."""
        words, holds = rule
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not abs(self.value) < _LARGE or not holds(self.value):
            raise self.refused(words)
        return float(self.value)

    def numbers(self, count: int, of_what: str, rule: _Rule) -> Floats:
        """Return a list of so many numbers, each of which keeps a rule."""
        return np.array([each.number(rule) for each in self.items(count, of_what)])

    def table(self, columns: int, of_what: str, rule: _Rule) -> Floats:
        """Return a table [G, columns] of such numbers."""
        return np.stack([row.numbers(columns, of_what, rule) for row in self.items(len(RATES), "lists, one a success rate")])


def _whose(file: str) -> str:
    return f"the performance model {file!r}" if file else "the performance model"


def _format(field: _Field) -> None:
    if type(field.value) is not int or field.value != FORMAT:
        raise field.refused(f"{FORMAT}, the format that this version reads")


def _unit(field: _Field) -> str:
    if field.value not in UNITS:
        raise field.refused(" or ".join(map(repr, UNITS)))
    return field.value


def _first(field: _Field) -> float | None:
    return None if field.value is None else field.number(("a number between 0 and 100, or null", lambda value: 0 <= value <= 100))


def _population(field: _Field) -> Population:
    parts = field.parts(("rates", "share", "problems"))
    for rate, each in zip(RATES.tolist(), parts["rates"].items(len(RATES), "success rates"), strict=True):
        if abs(each.number(_SHARE) - rate) > _ROUNDED:
            raise each.refused(f"{rate:.6f}, the success rate that this version has there")
    share = parts["share"].table(len(LURES), "shares, one a lure", _LEAST_0)
    if not abs(share.sum() - 1) <= _ROUNDED * share.size:
        raise ConfigError(f"{parts['share']} sums to {share.sum():.6g}, but must sum to 1: it is of all problems", hint=field.cure)
    grid = Population.of_rates(np.ones(len(RATES)))
    return Population(grid.rate, grid.lure, share.ravel() / share.sum(), parts["problems"].whole(0))


def other_models(strategy: StrategyProtocol) -> tuple[str, ...]:
    """Return the roles of the models beside the policy that a strategy uses."""
    return tuple(strategy.needs_of_models) if isinstance(strategy, UsesModels) else ()


def draws_plain(strategy: StrategyProtocol) -> bool:
    """Whether a strategy draws plain samples of the policy."""
    return strategy.registered_as == PLAIN and not other_models(strategy)


def _curves(field: _Field, models: Mapping[str, str]) -> dict[str, tuple[Floats, Floats, Floats]]:
    curves, strategies = field.each(), list[StrategyProtocol]()
    for name, each in curves.items():
        try:
            strategies.append(parse(name).strategy)
        except TTSError as failure:
            raise ConfigError(f"{each} is of no strategy that is here: {failure.cause}", hint=_ELSEWHERE + field.cure) from None
        if strategies[-1].registered_as == "auto":
            raise ConfigError(f"{each} is of auto, but must be of a strategy that auto may choose", hint=field.cure)
        for role in other_models(strategies[-1]):
            if role not in models:
                raise ConfigError(f"{each} writes with the role {role!r}, but models has no model of it", hint=field.cure)
    if not any(map(draws_plain, strategies)):
        named = ", ".join(curves) or "nothing"
        raise ConfigError(f"{field} is of {named}, but must have one of {PLAIN}, which draws plain samples", hint=field.cure)
    return {name: _curve(each) for name, each in curves.items()}


def _curve(field: _Field) -> tuple[Floats, Floats, Floats]:
    parts = field.parts(("sizes", "accuracy", "error"))
    listed = parts["sizes"].value
    if not isinstance(listed, list) or not listed:
        raise parts["sizes"].refused("a list of at least one size")
    count, sizes = len(listed), list[float]()
    for each in parts["sizes"].items(count, "sizes"):
        if sizes and each.number(_ABOVE_0) <= sizes[-1]:
            raise each.refused(f"above {sizes[-1]:g}, the size before it")
        sizes.append(each.number(_ABOVE_0))
    accuracy, error = (parts[name].table(count, "values, one a size", rule) for name, rule in (("accuracy", _SHARE), ("error", _LEAST_0)))
    return np.array(sizes), accuracy, error


def _gauges(field: _Field) -> dict[str, Gauge]:
    return {name: _gauge(each) for name, each in field.parts((), READINGS).items()}


def _gauge(field: _Field) -> Gauge:
    intercept, slope, deviation, spread, low, high = field.items(6, "numbers: intercept, slope, deviation, spread, low, high")
    least = low.number(_ANY)
    return Gauge(
        intercept=intercept.number(_ANY),
        slope=slope.number(_ANY),
        deviation=deviation.number(_ABOVE_0),
        spread=spread.number(_LEAST_0),
        low=least,
        high=high.number((f"a number of at least {least:g}, the low end of its range", lambda value: value >= least)),
    )


def _probe(field: _Field) -> PromptProbe | None:
    if field.value is None:
        return None
    if not isinstance(field.value, list) or len(field.value) < 2:
        raise field.refused("a list of weights and a bias, or null")
    numbers = field.numbers(len(field.value), "numbers", _ANY)
    return PromptProbe(numbers[:-1], float(numbers[-1]))
